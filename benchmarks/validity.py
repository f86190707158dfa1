"""Limits of a closed vocabulary, and the dependence of values on the choices in their measurement.

    NLTK_DATA=... python benchmarks/validity.py -o docs/lab/closed_vocabulary.md [--truth NAME=FILE ...]

The tables contain 95 % bootstrap intervals by caption or image, on the public data of ../shared. No caption text is
printed. ``--truth instances=instances_val2014.json`` adds rows for ground truths that are not in this data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from chair import shared_synonyms
from matcher_quality import (
    DATA,
    QUALITY,
    Figure,
    GoldCaption,
    judge,
    measure,
    plain_vocabulary,
    read_gold,
)

import scapo_eval
from scapo_eval.base.errors import ScapoError
from scapo_eval.base.ids import canonical_image_id
from scapo_eval.files.files import atomic_write
from scapo_eval.matching.matcher import AliasMatcher
from scapo_eval.matching.uses import LEFT_OUT, READINGS
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.results import Run
from scapo_eval.truths.oracle import PresenceOracle

TRUTH = "coco_chair/ground_truth_full.json.gz"
CAPTIONS = {
    "LLaVA-1.5-7B": "captions_real/coco_val2014_lessismore_r1_llava15_7b.jsonl",
    "selective EOS": "captions_real/coco_val2014_lessismore_r6_lim.jsonl",
    "GPT-4o": "captions_modern/comprecap_gpt4o.jsonl",
    "LLaVA-NeXT-34B": "captions_modern/comprecap_llava_next_34b.jsonl",
}
"""Two systems with the same list of images, and two recent models with another list."""

THINNED = (0.05, 0.1, 0.2)
SPLITS = ("random", "popular", "adversarial")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--truth", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("-o", "--output", default="-")
    arguments = parser.parse_args()
    truths = {name: path for name, _, path in (text.partition("=") for text in arguments.truth)}
    try:
        text = "\n".join(page(arguments.data, truths)) + "\n"
    except (ScapoError, OSError) as error:
        sys.exit(str(error))
    with atomic_write(arguments.output) as stream:
        stream.write(text.encode())


def page(data: Path, truths: Mapping[str, str]) -> Iterator[str]:
    """Yields the page block by block."""
    oracle, gold = PresenceOracle.load(data / TRUTH), read_gold(data=data)
    yield INTRODUCTION
    yield "## Coverage: what a vocabulary can see at all\n\n" + COVERAGE
    yield from coverage(gold)
    yield "## Agreement with readers\n\n" + AGREEMENT
    yield from agreement(gold, oracle, data)
    yield "## The vocabulary and the profile\n\n" + PROFILES
    yield from profiles(data, oracle)
    yield "## The reading of claims\n\n" + ON_READINGS
    yield from readings(data, oracle)
    yield "## The truth\n\n" + TRUTHS
    yield from thinned(data, oracle, truths)
    yield from pope_cells(data, oracle)
    yield CONCLUSION


# --- Coverage -------------------------------------------------------------------------------------------------------

BY_KIND = MetricSet("kind", ("mentions", "seen"), {"seen": ratio("seen", "mentions")})


def source_of(caption: GoldCaption) -> str:
    """Returns the folder and file of an annotated caption in short form."""
    return caption.where.rpartition("[")[0].removesuffix(".jsonl").removesuffix(".json.gz")


def coverage(gold: Sequence[GoldCaption]) -> Iterator[str]:
    """Yields the claims that a label covers, by source and by kind."""
    vocabularies = [Vocabulary.load(name) for name in ("coco80", "dopa160")]
    judged = {
        vocabulary.name: [judge(caption, AliasMatcher(vocabulary, "visual")) for caption in gold]
        for vocabulary in vocabularies
    }
    yield from table_head("Source", [f"{vocabulary.name}, percent" for vocabulary in vocabularies], "Mentions")
    places = sorted(range(len(gold)), key=lambda k: source_of(gold[k]))
    groups = [("all", list(range(len(gold))))]
    groups += [(name, list(members)) for name, members in groupby(places, key=lambda k: source_of(gold[k]))]
    for name, members in groups:
        figures, number = [], 0
        for found in judged.values():
            values, counts = measure(QUALITY, (found[k].counts for k in members))
            figures.append(percent(values["coverage"]))
            number = counts["to_cover"]
        yield row(name, [*figures, str(number)])
    yield ""
    yield from table_head("Kind", [f"{vocabulary.name}, percent" for vocabulary in vocabularies], "Mentions")
    kinds = sorted({mention.kind for caption in gold for mention in caption.mentions})
    spans = {
        vocabulary.name: [AliasMatcher(vocabulary).find(caption.text) for caption in gold]
        for vocabulary in vocabularies
    }
    for kind in kinds:
        figures, number = [], 0
        for found in spans.values():
            rows = []
            for caption, mentions in zip(gold, found, strict=True):
                own = [m for m in caption.mentions if m.kind == kind and m.use == "claim"]
                seen = sum(any(a.start < m.end and m.start < a.end for a in mentions) for m in own)
                rows.append({"mentions": len(own), "seen": seen})
            values, counts = measure(BY_KIND, rows)
            figures.append(percent(values["seen"]))
            number = counts["mentions"]
        yield row(kind, [*figures, str(number)])
    yield ""


# --- Agreement ------------------------------------------------------------------------------------------------------

SIDES = ("read", "matched")
COUNTS = ("claims", "hallucinated", "covered", "truth", "captions", "flagged")
BOTH = MetricSet(
    "both",
    (*(f"{side}_{name}" for side in SIDES for name in COUNTS), "same"),
    {
        f"{side}_{metric}": ratio(f"{side}_{a}", f"{side}_{b}")
        for side in SIDES
        for metric, a, b in (
            ("hal", "hallucinated", "claims"), ("cover", "covered", "truth"), ("chair_s", "flagged", "captions"),
        )
    }
    | {"same": ratio("same", "read_captions")},
)  # fmt: skip


def agreement(gold: Sequence[GoldCaption], oracle: PresenceOracle, data: Path) -> Iterator[str]:
    """Yields Hal. Rate, Cover Rate and CHAIR_s of the same captions, for annotated mentions and for the matcher's
    mentions.
    """
    vocabulary = Vocabulary.load("coco80")
    images = [image_of(caption, data) for caption in gold]
    known = [k for k, image in enumerate(images) if image in oracle.index]
    states = scapo_eval.truths.oracle.Truth.of(oracle, vocabulary).states
    position = {label: k for k, label in enumerate(vocabulary.labels)}
    yield from table_head("Claims", ["Readers' Hal.", "Matcher's", "Readers' Cover", "Matcher's",
                                     "Readers' CHAIR_s", "Matcher's", "Same CHAIR_s verdict"], "Captions")  # fmt: skip
    for claims in READINGS:
        found = AliasMatcher(vocabulary, claims).find_batch([gold[k].text for k in known])
        rows = []
        for n, k in enumerate(known):
            state = states[oracle.index[images[k]]]
            read = {m.coco for m in gold[k].mentions if m.coco and m.use not in LEFT_OUT[claims]}
            sides = {
                "read": {position[label] for label in read},
                "matched": set(found.label_id[found.row(n)].tolist()),
            }
            counts = {}
            for side, labels in sides.items():
                wrong = sum(state[label] == 0 for label in labels)
                counts |= {
                    f"{side}_claims": sum(state[label] >= 0 for label in labels),
                    f"{side}_hallucinated": wrong,
                    f"{side}_covered": sum(state[label] == 1 for label in labels),
                    f"{side}_truth": int((state == 1).sum()),
                    f"{side}_captions": 1,
                    f"{side}_flagged": int(wrong > 0),
                }
            rows.append({**counts, "same": int(counts["read_flagged"] == counts["matched_flagged"])})
        values, _ = measure(BOTH, rows)
        names = [f"{side}_{metric}" for metric in ("hal", "cover", "chair_s") for side in SIDES]
        yield row(claims, [*(percent(values[name]) for name in (*names, "same")), str(len(known))])
    yield ""


def image_of(caption: GoldCaption, data: Path) -> str:
    """Returns the image of an annotated caption. Empty if its file contains no COCO id."""
    file, _, place = caption.where.rpartition("[")
    if file.endswith(".gz"):
        return ""
    record = json.loads((data / file).read_bytes().split(b"\n")[int(place[:-1])])
    return canonical_image_id(record["image_id"])


# --- Vocabulary, profile, reading -----------------------------------------------------------------------------------


def profiles(data: Path, oracle: PresenceOracle) -> Iterator[str]:
    """Yields the values of the same captions and ground truth for different word lists."""
    coco, synonyms = Vocabulary.load("coco80"), shared_synonyms()
    options = {
        "native, coco80": {"profile": "native"},
        "native, labels and plurals only": {"profile": "native", "vocabulary": plain_vocabulary(coco)},
        "reference": {"profile": "reference", "synonyms": synonyms},
        "opera": {"profile": "opera", "synonyms": synonyms},
    }
    yield from run_head("Read by")
    for system, path in CAPTIONS.items():
        for name, how in options.items():
            run = scapo_eval.chair(data / path, truth=oracle, name=name, **how)  # type: ignore[arg-type]
            yield run_row(system, name, run, ("hal_rate", "recall", "chair_s", "chair_i"))
    yield ""


def readings(data: Path, oracle: PresenceOracle) -> Iterator[str]:
    """Yields the values of the same captions, ground truth and vocabulary for all readings of claims."""
    yield from run_head("`--claims`")
    for system, path in CAPTIONS.items():
        for claims in READINGS:
            run = scapo_eval.score(data / path, truth=oracle, claims=claims)
            yield run_row(system, claims, run)
    yield ""


# --- Truth ----------------------------------------------------------------------------------------------------------


def thinned(data: Path, oracle: PresenceOracle, truths: Mapping[str, str]) -> Iterator[str]:
    """Yields values for the joint ground truth with randomly removed objects, and for the user's own ground truths."""
    yield from run_head("Truth")
    objects = oracle.objects()
    for system, path in CAPTIONS.items():
        yield run_row(system, "joined (instances and captions)", scapo_eval.score(data / path, truth=oracle))
        for share in THINNED:
            rng = np.random.default_rng(0)
            kept = {
                image: [label for label, draw in zip(labels, rng.random(len(labels)), strict=True) if draw >= share]
                for image, labels in objects.items()
            }
            run = scapo_eval.score(data / path, truth=kept)
            yield run_row(system, f"the same without {share:.0%} of its objects, at random", run)
        for name, truth in truths.items():
            yield run_row(system, name, scapo_eval.score(data / path, truth=truth, on_unknown_image="skip"))
    yield ""


def pope_cells(data: Path, oracle: PresenceOracle) -> Iterator[str]:
    """Yields the joint ground truth of the cells in POPE's questions, whose labels are based only on instances."""
    coco = Vocabulary.load("coco80")
    states = scapo_eval.truths.oracle.Truth.of(oracle, coco).states
    matcher = AliasMatcher(coco)
    cells: dict[str, dict[tuple[str, int], bool]] = {}
    for split in SPLITS:
        asked = {}
        for line in (data / "pope" / f"coco_pope_{split}.json").read_text().splitlines():
            record = json.loads(line)
            named = {mention.label for mention in matcher.find(record["text"])}
            if len(named) == 1:
                image = canonical_image_id(record["image"])
                asked[image, coco.labels.index(named.pop())] = record["label"] == "yes"
        cells[split] = asked
    yield POPE
    yield from table_head("Split", ["POPE no, joined present", "POPE yes, joined absent"], "Cells")
    metrics = MetricSet(
        "cells", ("no", "but_present", "yes", "but_absent"),
        {"present": ratio("but_present", "no"), "absent": ratio("but_absent", "yes")},
    )  # fmt: skip
    for split, asked in cells.items():
        rows = []
        for (image, label), yes in asked.items():
            state = states[oracle.index[image]][label]
            rows.append({"no": int(not yes), "but_present": int(not yes and state == 1), "yes": int(yes),
                         "but_absent": int(yes and state == 0)})  # fmt: skip
        values, counts = measure(metrics, rows)
        yield row(split, [percent(values["present"]), percent(values["absent"]), str(counts["no"] + counts["yes"])])
    yield ""


# --- Words and tables -----------------------------------------------------------------------------------------------


def table_head(corner: str, columns: Sequence[str], number: str) -> Iterator[str]:
    """Yields the header of a table whose last column contains counts."""
    yield f"| {corner} | {' | '.join(columns)} | {number} |"
    yield f"| --- |{' ---: |' * (len(columns) + 1)}"


def run_head(how: str) -> Iterator[str]:
    """Yields the header of a table of runs."""
    yield f"| Captions | {how} | Hal. Rate | Cover Rate | CHAIR_s | CHAIR_i | Images |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"


def run_row(
    system: str, how: str, run: Run, metrics: Sequence[str] = ("hal_rate", "cover_rate", "chair_s", "chair_i")
) -> str:
    """Returns the row of one run."""
    found = [run.metrics[name] for name in metrics]
    cells = [percent(Figure(each.value or 0.0, each.low, each.high)) for each in found]
    return row(system, [how, *cells, str(run.n_images)])


def row(name: str, cells: Iterable[str]) -> str:
    """Returns one line of a table."""
    return f"| {name} | {' | '.join(cells)} |"


def percent(figure: Figure) -> str:
    """Returns a figure in percent with its interval."""
    if np.isnan(figure.value):
        return "--"
    spread = "" if figure.ci_low is None or figure.ci_high is None else (
        f" [{100 * figure.ci_low:.1f}, {100 * figure.ci_high:.1f}]"
    )  # fmt: skip
    return f"{100 * figure.value:.1f}{spread}"


INTRODUCTION = """\
# Limits of a closed vocabulary

CHAIR, `hal_rate`, `cover_rate` and POPE use one list of objects, one list of words for these objects, and one ground
truth. This page shows how much of a caption the lists cover, and how much the values change if one of the two lists or
the ground truth changes while the captions remain the same. The page is generated by `NLTK_DATA=... python
benchmarks/validity.py -o docs/lab/closed_vocabulary.md`. Values are in percent, with 95 % bootstrap intervals by
caption (in the first two sections) or by image. The page contains no caption texts.
"""

COVERAGE = """\
The first table shows the share of claims that a label of the vocabulary covers, by source. The claims are those of
objects, persons, animals, food, clothing and regions in 350 annotated captions (`benchmarks/gold`). The second table
shows the share of mentions of each kind that any alias overlaps. `dopa160` was improved with these captions, so its
values are optimistic. An uncovered claim counts as neither right nor wrong in `hal_rate` and CHAIR. The tables have no
rows for attributes, counts, relations and actions, because no vocabulary of objects contains them (`scapo-eval facts`
covers them with a judge).
"""

AGREEMENT = """\
The annotated captions of images with a ground truth were scored twice: with the COCO objects that the annotators read
in them, and with the objects that the matcher finds. The ground truth is the same, so all differences are caused by the
reading of the captions. The annotators of the gold set are language models, not people. [validity.md](../validity.md)
shows the agreement with people. The verdict on a caption states if the caption contains a hallucinated object.
"""

PROFILES = """\
The same captions were read with four word lists, with the same ground truth (the union of COCO's instances and
reference captions). Values of different profiles are not comparable, and different profiles may rank systems
differently.
"""

ON_READINGS = """\
`all` counts every mention, as the published scripts do. The other readings omit mentions that a caption denies or
guesses, or that make no claim about this image ([readings](../readings.md)). With `all`, "there is no dog" and
"possibly a dog" count as claims of a dog.
"""

TRUTHS = """\
For `hal_rate`, every object that the ground truth does not list for an image is absent. If annotators missed a present
object, a correct claim counts as hallucinated. This error affects models that name more objects more strongly. To
measure this effect, objects were removed from the combined ground truth at random. To add ground truths that the public
data does not contain (COCO's instances alone, or your own dense matrix), use `--truth
instances=instances_val2014.json`. `scapo-eval oracle stats` and `oracle overlap` compare ground truths.
"""

POPE = """\
POPE's correct answers are based on COCO's instances. The table compares these answers with the combined ground truth
for the same cells. The table counts objects that are absent according to POPE but named by a reference caption, and
objects that are present according to POPE but absent from the combined ground truth. If both counts are 0, POPE's
questions never ask about an object that only the captions name. POPE's labels are then as good as the combined ground
truth, and contain no information about the disputed objects.
"""

CONCLUSION = """\
## When not to use these metrics

- **Do not use CHAIR or `hal_rate` alone**, because they fall if a model says less. Report `cover_rate` (or `recall`)
  and length as well, or `cap_score` and the frontier (`scapo-eval report`).
- **Do not compare values across papers** that do not state the profile, ground truth, images, prompt or token limit.
  Each of these conditions changes the value by more than most methods do. `--protocol` and the signature state the
  conditions, and `compare` refuses runs with different conditions.
- **Do not use `cap_score` for descriptions whose content is not objects** (charts, text, faces, style, counts,
  relations). The table of coverage by kind shows the kinds of content that `cap_score` measures. For other content, use
  claims and a judge (`facts`), or questions.
- **Do not use a vocabulary before you have checked its coverage of your captions** with `scapo-eval vocab mine` and
  `scapo-eval labels`.
- **Do not interpret differences that are smaller than the intervals**, or smaller than the effect of another profile
  or a few missing objects in the ground truth on the same captions.
- **Do not use POPE as a measure of descriptions.** POPE asks about one object at a time, half of the correct answers
  are yes, and a model may answer well and describe badly. POPE's questions do not cover most of the content of a
  description.
- **Do not use a ground truth of sparse instances for long captions.** A longer caption correctly names more objects
  that such a ground truth does not list. Use the combined or a dense ground truth, and check `oracle stats`.
"""


if __name__ == "__main__":
    main()
