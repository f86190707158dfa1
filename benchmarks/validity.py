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

CHAIR, `hal_rate`, `cover_rate` and POPE depend on a list of objects, a list of words for these objects, and a ground
truth. This page shows how much of a caption each of the two lists covers, and how much the values depend on the list
and the ground truth. The page is generated by `NLTK_DATA=... python benchmarks/validity.py -o
docs/lab/closed_vocabulary.md`. Values are in percent. For the 95 % bootstrap intervals, captions are resampled in the
first two sections, and images in the other sections. The page contains no caption texts.
"""

COVERAGE = """\
The first table shows, by source, the share of claims for which the vocabulary has a label. This table includes all
claims about objects, persons, animals, food, clothing and regions in 350 annotated captions (`benchmarks/gold`). The
second table shows, for each kind of mention, the share of mentions that overlap with an alias of the vocabulary.
`dopa160` was improved with these captions, so its values are optimistic. `hal_rate` and CHAIR count claims that the
vocabulary does not cover as neither right nor wrong. The tables have no rows for attributes, counts, relations and
actions, because a vocabulary of objects does not contain them. To evaluate such claims, use a judge (`scapo-eval
facts`).
"""

AGREEMENT = """\
The annotated captions of images with a ground truth were scored twice: once with the COCO objects that the annotators
found in them, and once with the objects that the matcher found. Both scores use the same ground truth, so any
difference between them comes from how the captions are read. The annotators of the gold set are language models, not
people. The [validity](../validity.md) page shows how well the metrics agree with human judgments. The column "Same
CHAIR_s verdict" shows how often the two scores agree on whether a caption contains a hallucinated object.
"""

PROFILES = """\
The same captions were scored with four word lists and the same ground truth (the union of COCO's instances and
reference captions). Values from different profiles are not comparable, and different profiles may rank systems
differently.
"""

ON_READINGS = """\
The reading `all` counts every mention, as the published scripts do. The other readings omit mentions that a caption
denies or guesses, or that make no claim about this image ([readings](../readings.md)). With `all`, "there is no dog"
and "possibly a dog" both count as claims that a dog is present.
"""

TRUTHS = """\
`hal_rate` treats every object that the ground truth does not list for an image as absent. If annotators overlooked a
present object, a correct claim about it counts as hallucinated. The more objects a model names, the more such errors
change its `hal_rate`. To measure this effect, objects were removed at random from the combined ground truth. To add
ground truths that the public data does not contain (COCO's instances alone, or your own dense matrix), use `--truth
instances=instances_val2014.json`. The commands `scapo-eval oracle stats` and `scapo-eval oracle overlap` compare ground
truths.
"""

POPE = """\
POPE's correct answers are based on COCO's instances. The table compares these answers with the combined ground truth
for the same pairs of image and object. The table counts objects that POPE considers absent although a reference caption
names them, and objects that POPE considers present although they are absent from the combined ground truth. If both
counts are 0, POPE's questions never ask about an object that only the captions name. In this case, POPE's labels agree
with the combined ground truth, but contain no information about the disputed objects.
"""

CONCLUSION = """\
## When not to use these metrics

- **Do not use CHAIR or `hal_rate` alone**, because both fall if a model writes less. Also report `cover_rate` (or
  `recall`) and length, or report `cap_score` and the frontier (`scapo-eval report`).
- **Do not compare values across papers** that do not state the profile, ground truth, images, prompt or token limit. A
  difference in any of these conditions can change the value by more than the gain that most methods report. The option
  `--protocol` and the signature state the conditions, and `compare` refuses runs with different conditions.
- **Do not use `cap_score` for descriptions of content other than objects** (charts, text, faces, style, counts,
  relations). The table of coverage by kind shows the kinds of content that `cap_score` measures. To evaluate content
  that it does not measure, use claims verified by a judge (`facts`) or a question-based evaluation.
- **Do not use a vocabulary before you have checked its coverage of your captions** with `scapo-eval vocab mine` and
  `scapo-eval labels`.
- **Do not interpret differences that are smaller than the intervals.** Do not interpret differences that a different
  profile, or a few objects missing from the ground truth, could explain.
- **Do not use POPE as a measure of descriptions.** POPE asks about one object at a time, and half of the correct
  answers are "yes", so a model may answer well and still describe images badly. POPE's questions do not cover most of
  the content of a description.
- **Do not use a sparsely annotated ground truth for long captions.** A longer caption correctly names more objects that
  such a ground truth does not list. Use the combined ground truth or a dense one, and check it with `oracle stats`.
"""


if __name__ == "__main__":
    main()
