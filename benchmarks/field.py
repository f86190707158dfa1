"""Field table: all public outputs in ../shared/data under every applicable metric and profile (docs/lab/field.md).

    NLTK_DATA=... python benchmarks/field.py -o docs/lab/field.md [--data ../shared/data]

The tables contain values with 95 % intervals, paired tests of all pairs of systems on the same images, and the
differences from published values. No caption text is printed. The run needs less than two minutes of processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

from chair import shared_synonyms

import scapo_eval
from scapo_eval.base.errors import ScapoError
from scapo_eval.benchmarks.hallusionbench import hallusionbench_runs, read_hallusionbench
from scapo_eval.benchmarks.mmhal import mmhal_run, read_ratings
from scapo_eval.files.files import atomic_write
from scapo_eval.readers.parsers import parser
from scapo_eval.results.names import metric_name
from scapo_eval.results.render import number, stars
from scapo_eval.results.results import Resampling, Results, Run
from scapo_eval.results.stats import holm

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


class CaptionSet(NamedTuple):
    """Systems that described the same images.

    Attributes:
        title: Heading.
        truth: Ground truth file, relative to the data folder.
        systems: Name -> captions file, relative to the data folder. The first system is the baseline.
        note: Note on the set.
    """

    title: str
    truth: str
    systems: Mapping[str, str]
    note: str


class Published(NamedTuple):
    """Published value.

    Attributes:
        set_, system, metric: Set, system and metric of the value.
        value: Value as printed, in percent or points.
        source: Source of the value.
        cause: Known cause of its difference from this project's value.
    """

    set_: str
    system: str
    metric: str
    value: float
    source: str
    cause: str = ""


JOINED, FULL = "coco_chair/ground_truth.json.gz", "coco_chair/ground_truth_full.json.gz"
CAPTIONS = (
    CaptionSet(
        "LLaVA-1.5-7B, OPERA's images", JOINED,
        {f"LLaVA-1.5 {name}": f"coco_chair/captions/llava-1.5_{file}.jsonl"
         for name, file in (("greedy", "greedy"), ("beam 5", "beam5"), ("OPERA", "ours"))},
        "The captions were generated for 500 images of COCO val2014 with the prompt \"Please describe this image in "
        "detail.\" and a limit of 512 new tokens.",
    ),
    CaptionSet(
        "InstructBLIP-7B, OPERA's images", JOINED,
        {f"InstructBLIP {name}": f"coco_chair/captions/instructblip_{file}.jsonl"
         for name, file in (("greedy", "greedy"), ("beam 5", "beam5"), ("OPERA", "ours"))},
        "The captions were generated with the same prompt and token limit as those of LLaVA-1.5, for 500 other images "
        "of COCO val2014.",
    ),
    CaptionSet(
        "Less-is-more's images", FULL,
        {name: f"captions_real/coco_val2014_lessismore_{file}.jsonl" for name, file in (
            ("LLaVA-1.5-7B", "r1_llava15_7b"), ("+ VCD", "r2_vcd"), ("+ OPERA", "r3_opera"),
            ("+ selective EOS", "r6_lim"), ("LLaVA-1.5-13B", "r7_llava15_13b"))},
        "The captions describe 500 images of COCO val2014, with the prompt for detailed descriptions.",
    ),
    CaptionSet(
        "CompreCap's images", FULL,
        {"GPT-4o": "captions_modern/comprecap_gpt4o.jsonl",
         "LLaVA-NeXT-34B": "captions_modern/comprecap_llava_next_34b.jsonl"},
        "The captions are long descriptions from recent models. GPT-4o describes 560 images, and LLaVA-NeXT-34B "
        "describes the same 560 images and 30 more.",
    ),
)  # fmt: skip

OPERA_TABLE = "OPERA (arXiv 2311.17911), CHAIR at 512 tokens"
REPOSITORY, LLAVA = "that repository's result files", "LLaVA's `eval_pope.py`"
LESS_TABLE = "Less is more (arXiv 2402.14545), Table 1"
TYPO = "the official script computes 12.7 from the authors' own captions, so the printed 14.7 does not match "
"their file"
OTHER_TRUTH = (
    "probably the ground truth: their script reads COCO's reference captions with its tagger and lemmatizer, "
    "whereas this ground truth was built with the standalone script's singularizer; COCO's captions "
    "are not available to check this"
)
CAPTIONS_PUBLISHED = (
    *(Published(CAPTIONS[0].title, f"LLaVA-1.5 {system}", metric, value, OPERA_TABLE, cause)
      for system, metric, value, cause in (
          ("greedy", "chair_s", 45.0, ""), ("greedy", "chair_i", 14.7, TYPO),
          ("beam 5", "chair_s", 48.8, ""), ("beam 5", "chair_i", 13.9, ""),
          ("OPERA", "chair_s", 44.6, ""), ("OPERA", "chair_i", 12.8, ""))),
    *(Published(CAPTIONS[1].title, f"InstructBLIP {system}", metric, value, OPERA_TABLE)
      for system, metric, value in (
          ("greedy", "chair_s", 58.8), ("greedy", "chair_i", 23.7), ("beam 5", "chair_s", 55.6),
          ("beam 5", "chair_i", 15.8), ("OPERA", "chair_s", 46.4), ("OPERA", "chair_i", 14.2))),
    *(Published(CAPTIONS[2].title, system, metric, value, LESS_TABLE, OTHER_TRUTH)
      for system, values in (
          ("LLaVA-1.5-7B", (50.0, 15.4, 77.1)), ("+ VCD", (48.6, 14.9, 77.3)), ("+ OPERA", (47.8, 14.6, 76.8)))
      for metric, value in zip(("chair_s", "chair_i", "recall"), values, strict=True)),
)  # fmt: skip
"""Published values from transcriptions of the papers' tables in public repositories, not from the papers themselves."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("--resamples", type=int, default=1000)
    arguments = parser.parse_args()
    try:
        text = "\n".join(page(arguments.data, arguments.resamples)) + "\n"
    except (ScapoError, OSError) as error:
        sys.exit(str(error))
    with atomic_write(arguments.output) as stream:
        stream.write(text.encode())


def page(data: Path, resamples: int) -> Iterable[str]:
    """Yields the page block by block."""
    yield "# The field table\n"
    yield (
        "The tables on this page show the scores of public model outputs for every metric that applies to them. The page is "
        "generated by `NLTK_DATA=... python "
        "benchmarks/field.py -o docs/lab/field.md` from the public outputs that the tests use. Values are percentages "
        "with 95 % Wilson intervals, computed with images as the units. The first system of each table is its "
        "baseline; * and ** mark differences from the baseline with p < 0.05 and p < 0.01 after Holm's correction "
        "over the systems. An HTML comment below each table contains the signature of every row.\n"
    )
    for each in CAPTIONS:
        yield from caption_set(each, data, resamples)
    yield from orders(data, resamples)
    yield from amber(data, resamples)
    yield from yes_no(data, resamples)
    yield from phd(data, resamples)
    yield from mmhal(data, resamples)


# --- Captions -------------------------------------------------------------------------------------------------------


def caption_set(each: CaptionSet, data: Path, resamples: int) -> Iterable[str]:
    """Yields one set of captions with Cap. Score and the three CHAIR profiles."""
    yield f"## {each.title}\n\n{each.note}\n"
    truth = scapo_eval.PresenceOracle.load(data / each.truth)
    synonyms = shared_synonyms()
    files = {name: data / path for name, path in each.systems.items()}
    yield "### Cap. Score (`scapo-eval`, vocabulary coco80)\n"
    yield from shown(
        [scapo_eval.score(path, truth=truth, name=name, resamples=resamples) for name, path in files.items()],
        pairs_of=("cap_score", "hal_rate", "cover_rate"),
    )
    opera: list[Run] = []
    for profile in ("native", "reference", "opera"):
        yield f"### CHAIR (`--profile {profile}`)\n"
        opera = [
            scapo_eval.chair(
                path,
                truth=truth,
                profile=profile,
                synonyms=None if profile == "native" else synonyms,
                name=name,
                resamples=resamples,
            )
            for name, path in files.items()
        ]
        yield from shown(opera, pairs_of=("chair_s", "recall"), metrics=("chair_s", "chair_i", "recall", "len"))
    yield from published([known for known in CAPTIONS_PUBLISHED if known.set_ == each.title], opera, "opera")


# --- What changes the order ---------------------------------------------------------------------------------------

ORDERS = """\
## Effects on the order of systems

**Reading.** The table orders the systems by each of three metrics, best first, for the readings `all` (the default of
`--claims`) and `visual`. The sign `=` between two systems means that their difference is not significant (approximate
randomization by image, p >= 0.05 after Holm's correction over adjacent systems). No system changes rank between the two
readings, although the values differ by up to five points (see [closed
vocabulary](closed_vocabulary.md#the-reading-of-claims)).
"""

PEOPLE = """\
**Weighting.** In THumB, people rated captions of 500 images from four systems and from human writers
(`benchmarks/people.py`). [Validity](validity.md) shows the agreement for single captions. The ground truth consists of
COCO's objects, and the references are four other captions of each image. The table shows means over captions, with
ranks in brackets. Raters rank the human captions first, followed by those from the four models, from the newest model
to the oldest. No weighted or unweighted count of objects produces this order, but `cap_people` does. Sorting by the
length of the captions gives almost the same order, but places Up-Down narrowly above Unified-VLP. `cap_people` was
fitted on half of these images, but ranks the systems in the same order on the other half. For single captions, length
does not correlate with human ratings.
"""


def orders(data: Path, resamples: int) -> Iterable[str]:
    """Yields the systems whose order depends on the reading or the weighting, and the order that people support."""
    yield ORDERS
    yield "| Captions | Metric | `all` | `visual` |\n| --- | --- | --- | --- |"
    for each in CAPTIONS:
        truth = scapo_eval.PresenceOracle.load(data / each.truth)
        runs = {
            claims: [
                scapo_eval.score(data / path, truth=truth, name=name, claims=claims, resamples=resamples)
                for name, path in each.systems.items()
            ]
            for claims in ("all", "visual")
        }
        for metric in ("cap_score", "hal_rate", "chair_s"):
            cells = [order(runs[claims], metric) for claims in ("all", "visual")]
            yield f"| {each.title} | {metric_name(metric)} | {' | '.join(cells)} |"
    yield f"\n{PEOPLE}"
    yield from thumb_places(data / "human")


def order(runs: Sequence[Run], metric: str) -> str:
    """Returns the systems from best to worst, joined by ``>`` between significantly different neighbors and by ``=``
    otherwise.
    """
    sign = 1 if runs[0].metric_set.higher_is_better[metric] else -1
    ranked = sorted(runs, key=lambda run: -sign * (run.values[metric] or 0))
    tests = [
        next(row["p_value"] for row in scapo_eval.compare([a, b]).comparisons if row["metric"] == metric)
        for a, b in pairwise(ranked)
    ]
    joints = [" > " if p is not None and p < 0.05 else " = " for p in holm(tests)]
    return "".join(name + joint for name, joint in zip([run.name for run in ranked], [*joints, ""], strict=True))


def thumb_places(human: Path) -> Iterable[str]:
    """Yields the means of THumB's systems according to people and metrics, with their ranks."""
    metrics = ("cap_people", "cover_words", "cover_weighted", "cover_rate", "cap_score", "cap_weighted", "length")
    found = scapo_eval.validate(
        human / "thumb.jsonl.gz", ratings=["total"], metrics=metrics, resamples=0,
        references=human / "thumb_references.jsonl.gz", truth=human / "truth_coco.json.gz",
    )  # fmt: skip
    names = ["total", *metrics]
    yield f"| System | people, total | {' | '.join(f'`{name}`' for name in metrics)} |"
    yield f"| --- |{' ---: |' * len(names)}"
    for system in sorted(found.systems, key=lambda system: -(system.means["total"] or 0)):
        cells = []
        for name in names:
            better = sum((other.means[name] or 0) > (system.means[name] or 0) for other in found.systems)
            cells.append(f"{system.means[name]:.3f} ({better + 1}.)")
        yield f"| {system.system} | {' | '.join(cells)} |"
    yield ""


# --- AMBER, yes/no, MMHal-Bench -------------------------------------------------------------------------------------


def amber(data: Path, resamples: int) -> Iterable[str]:
    """Yields the scores of AMBER's two public files of descriptions, by this project's reading and by that of the
    official script.
    """
    yield (
        "## AMBER, descriptions\n\nThe tables show scores for the descriptions of all 1,004 images that were published in "
        "github.com/RachalHys/CV-AGLA-Captioning.\n"
    )
    files = {"LLaVA-1.5": "gen_llava_base", "InstructBLIP + AGLA": "gen_instructblip_agla_small"}
    sets = json.loads((data / "amber" / "expected.json").read_bytes())["sets"]
    source = scapo_eval.benchmarks.amber.AmberData.load(data / "amber")
    metrics = ("chair", "cover", "hal", "cog", "cap_score")
    runs: list[Run] = []
    for mode in ("embedded", "parity"):
        yield f"### `--mode {mode}`\n"
        runs = [
            scapo_eval.amber(
                data / "amber" / "responses" / f"{file}.json.gz",
                data=source,
                mode=mode,
                name=name,
                resamples=resamples,
            )
            for name, file in files.items()
        ]
        yield from shown(runs, pairs_of=("cap_score", "hal"), metrics=metrics)
    known = [
        Published("AMBER", name, metric, sets[file]["published_in_that_repository"][heading], REPOSITORY)
        for name, file in files.items()
        for metric, heading in (("chair", "CHAIR"), ("cover", "Cover"), ("hal", "Hal"), ("cog", "Cog"))
    ]  # fmt: skip
    yield from published(known, runs, "parity, no word vectors")


def yes_no(data: Path, resamples: int) -> Iterable[str]:
    """Yields the scores of POPE answers by LLaVA-1.5-13B, and of HallusionBench's sample answers under every parser."""
    yield (
        "## POPE\n\nThe tables show scores for 8,910 answers from LLaVA-1.5-13B that were published in "
        "github.com/haotian-liu/LLaVA (pull request 1199).\n"
    )
    questions = [data / "pope" / f"coco_pope_{split}.json" for split in ("random", "popular", "adversarial")]
    run = scapo_eval.pope(
        data / "pope" / "llava-v1.5-13b.answers.jsonl", questions=questions, parser="pope", name="LLaVA-1.5-13B",
        resamples=resamples,
    )  # fmt: skip
    names = [f"{split}_{metric}" for split in ("random", "popular", "adversarial") for metric in ("accuracy", "f1")]
    yield from shown([run], metrics=("accuracy", "precision", "recall", "f1", "yes_ratio"))
    yield from shown([run], metrics=names)
    expected = json.loads((data / "pope" / "expected.json").read_bytes())["llava-v1.5-13b.answers.jsonl"]
    known = [
        Published("POPE", "LLaVA-1.5-13B", f"{split}_{metric}", round(100 * values[metric], 1), LLAVA)
        for split, values in expected["per_category"].items()
        for metric in ("accuracy", "f1")
    ]  # fmt: skip
    yield from published(known, [run], "parser pope")
    yield (
        "## HallusionBench\n\nThe benchmark's sample result file contains 254 free-form answers from one unnamed "
        "model, 55 of which begin with neither yes nor no. The table shows the scores of these answers with each parser; all other "
        "settings are identical.\n"
    )
    sample = data / "pope" / "hallusionbench_verbose_254.jsonl"
    parsers = ("default", "contains", "vlmevalkit", "pope")
    runs = [scapo_eval.yesno(sample, parser=parser, name=parser, resamples=resamples) for parser in parsers]
    yield from shown(runs, pairs_of=("accuracy",), metrics=("accuracy", "precision", "recall", "f1", "yes_ratio"))
    yield (
        "The next table reads the same answers with the default parser and groups them as the official script does. A "
        "question, figure or pair is right only if all its answers are right.\n"
    )
    found = {"sample": read_hallusionbench(str(sample), None, parser("default"))}
    grouped = hallusionbench_runs(found, parser="default", resampling=Resampling(resamples))
    yield from shown(grouped, metrics=("a_acc", "f_acc", "q_acc"))
    yield "No published value.\n"


def phd(data: Path, resamples: int) -> Iterable[str]:
    """Yields the scores of Arabic answers by GPT-4o mini to PhD's counter-common-sense questions."""
    yield (
        "## PhD\n\nThe table shows the scores of 30 answers from GPT-4o mini to counter-common-sense questions in Arabic (Sarab "
        "2026, CC BY 4.0). The answers that the PhD paper evaluates are not available.\n"
    )
    run = scapo_eval.phd(data / "phd" / "sarab_ccs_gpt-4o-mini.jsonl", name="GPT-4o mini", resamples=resamples)
    yield from shown([run], metrics=("phd_ccs", "ccs_accuracy", "ccs_yes_recall", "ccs_no_recall"))
    stated = json.loads((data / "phd" / "expected.json").read_bytes())["sarab_ccs_gpt-4o-mini.jsonl"]["published"]
    names = {"phd_index": "phd_ccs", "accuracy": "ccs_accuracy", "yes_recall": "ccs_yes_recall",
             "no_recall": "ccs_no_recall"}  # fmt: skip
    known = [
        Published("PhD", "GPT-4o mini", ours, round(100 * stated[theirs], 1), "Sarab's README")
        for theirs, ours in names.items()
    ]
    yield from published(known, [run], "parser default")


def mmhal(data: Path, resamples: int) -> Iterable[str]:
    """Yields the scores of MMHal-Bench answers by Qwen3-VL-4B with a judge's ratings."""
    yield (
        "## MMHal-Bench\n\nThe answers of Qwen3-VL-4B-Instruct and their ratings come from "
        "github.com/HilariusJeremy/fyp-multimodal-hallucination, which does not state a score.\n"
    )
    run = mmhal_run(
        "Qwen3-VL-4B", read_ratings(data / "captions_real" / "mmhal_bench_qwen3vl4b.jsonl"),
        Resampling(resamples),
    )  # fmt: skip
    yield from shown([run], metrics=("mmhal_score", "mmhal_hal"))


# --- Tables ---------------------------------------------------------------------------------------------------------


def shown(runs: Sequence[Run], *, metrics: Sequence[str] | None = None, pairs_of: Sequence[str] = ()) -> Iterable[str]:
    """Yields a table of the runs, and the differences of all pairs in some metrics."""
    results: Results = scapo_eval.compare(runs, allow_different=True)
    yield results.to_markdown(metrics, intervals=True)
    if len(runs) > 1 and pairs_of:
        yield from pairs(runs, pairs_of)


def pairs(runs: Sequence[Run], metrics: Sequence[str]) -> Iterable[str]:
    """Yields all pairs of systems with difference, interval and test, corrected over the pairs."""
    found = []
    for first, second in combinations(runs, 2):
        rows = {row["metric"]: row for row in scapo_eval.compare([first, second], allow_different=True).comparisons}
        found.append((f"{second.name} - {first.name}", rows))
    corrected = {name: holm([rows[name]["p_value"] for _, rows in found]) for name in metrics}
    yield f"| Pair | {' | '.join(map(metric_name, metrics))} | Images |\n| --- |{' ---: |' * (len(metrics) + 1)}"
    for k, (pair, rows) in enumerate(found):
        cells = []
        for name in metrics:
            row = {**rows[name], "p_holm": corrected[name][k]}
            mark = stars(row).replace("*", r"\*")
            change, low, high = (number(row[key], sign=True) for key in ("difference", "ci_low", "ci_high"))
            cells.append(f"{change}{mark} [{low}, {high}]")
        yield f"| {pair} | {' | '.join(cells)} | {rows[metrics[0]]['n_images']} |"
    yield ""


def published(known: Sequence[Published], runs: Sequence[Run], how: str) -> Iterable[str]:
    """Yields published values and this project's values, with their difference in the last printed digit and its
    cause.
    """
    if not known:
        yield "No published value.\n"
        return
    values = {run.name: run.values for run in runs}
    yield f"| System | Metric | Published | Ours ({how}) | Distance | Source | Cause |"
    yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
    for each in known:
        ours = values[each.system][each.metric]
        distance = round(100 * (ours or 0), 1) - each.value
        cause = "" if abs(distance) < 0.05 else each.cause or "not known"
        cells = (
            each.system, metric_name(each.metric), f"{each.value:.1f}", number(ours),
            f"{distance:+.1f}" if abs(distance) >= 0.05 else "0", each.source, cause,
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    main()
