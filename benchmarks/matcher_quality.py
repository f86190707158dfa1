"""Quality of the matcher: COCO-80, coverage by dopa160, traps and claims on the gold set of benchmarks/gold.

    python benchmarks/matcher_quality.py [--errors] [--json]

Captions are read from ../shared/data by file and line and verified by their hash, because the gold set contains no
text. benchmarks/gold/README.md defines correct results. All figures are compared with those of a basic alias list,
which contains the labels and their naive plurals without other aliases or ignore phrases.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.types import Mention
from scapo_eval.matching.matcher import AliasMatcher
from scapo_eval.matching.matcher_batch import BATCH
from scapo_eval.matching.trie import watched
from scapo_eval.matching.uses import LEFT_OUT, USES, Reading, clear_cache, cue_words, find_uses_of
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet, divide, harmonic_mean, ratio
from scapo_eval.results.stats import bootstrap

GOLD = Path(__file__).resolve().parent / "gold"
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"

COVERED_KINDS = frozenset({"object", "person", "animal", "food", "clothing", "region"})
"""Kinds whose asserted mentions dopa160 should cover. Parts, printed words and groups without a noun are excluded."""

TRAP = " (trap)"

CLAIMS_NOTHING = frozenset(LEFT_OUT["visual"]) - {"negated"}
"""Uses in which a word makes no claim about the image. Such words are traps."""

READINGS: tuple[Reading, ...] = ("all", "visual")

HELD_OUT = ("held_out", "held_out_after")
"""Captions that were annotated before the matcher was run on them. They are no longer held out, because their errors
have been read.
"""


class GoldMention(NamedTuple):
    """One annotation.

    Attributes:
        start, end: Character span.
        concept: Concept that the words name, in the singular. For a lexical trap, it ends in TRAP.
        coco: COCO-80 category, or None.
        kind: object, person, animal, food, clothing, part, region, text or group.
        use: claim, negated, hedged, quoted, generic, purpose, modifier or comparison. In the first two passes over the
            oldest captions, nonvisual represents the last five of these uses.
    """

    start: int
    end: int
    concept: str
    coco: str | None
    kind: str
    use: str

    @property
    def is_trap(self) -> bool:
        """True if the word makes no claim about the image: another sense, quoted text, a purpose or a comparison."""
        return self.use in CLAIMS_NOTHING or self.concept.endswith(TRAP)

    def is_due(self, claims: Reading) -> bool:
        """Returns True if a reading should count the mention, which must name its object with a use that the reading
        includes.
        """
        return not self.concept.endswith(TRAP) and self.use not in LEFT_OUT[claims]

    @property
    def to_cover(self) -> bool:
        """True if the mention counts for coverage."""
        return self.use == "claim" and self.kind in COVERED_KINDS


class GoldCaption(NamedTuple):
    """Caption with its annotations. ``where`` is ``file[line]``, with lines starting at 0."""

    where: str
    text: str
    mentions: tuple[GoldMention, ...]


class Trap(NamedTuple):
    """Sentence by this project in which ``text[start:end]`` must not match any of ``labels``."""

    text: str
    start: int
    end: int
    labels: frozenset[str]


@dataclass(frozen=True)
class Judged:
    """Comparison of the mentions in one caption with its annotations.

    Attributes:
        wrong: Mentions that are not an annotated use of the label.
        missed: Annotated COCO mentions that were not found.
        sprung: Lexical traps that were found as mentions.
        uncovered: Mentions to cover that no suitable label covers.
        counts: Row of the count table, with the columns of QUALITY.
    """

    wrong: list[Mention]
    missed: list[GoldMention]
    sprung: list[GoldMention]
    uncovered: list[GoldMention]
    counts: dict[str, int]


QUALITY = MetricSet(
    "matcher",
    ("found", "right", "gold", "gold_found", "traps", "sprung", "to_cover", "covered"),
    {
        "precision": ratio("right", "found"),
        "recall": ratio("gold_found", "gold"),
        "f1": lambda sums: harmonic_mean(
            divide(sums["right"], sums["found"]), divide(sums["gold_found"], sums["gold"])
        ),
        "coverage": ratio("covered", "to_cover"),
        "traps_hit": ratio("sprung", "traps"),
    },
)
CLAIMS = MetricSet(
    "claims",
    ("left_out", "right", "due"),
    {"precision": ratio("right", "left_out"), "recall": ratio("right", "due")},
)
AGREEMENT = MetricSet(
    "agreement",
    ("first", "second", "matched", "coco", "use", "kind"),
    {
        "mention_f1": lambda sums: divide(2 * sums["matched"], sums["first"] + sums["second"]),
        "same_coco": ratio("coco", "matched"),
        "same_use": ratio("use", "matched"),
        "same_kind": ratio("kind", "matched"),
    },
)


# ---------------------------------------------------------------- reading


def read_gold(name: str = "mentions", data: Path = DATA) -> list[GoldCaption]:
    """Reads the captions of ``gold/<name>.jsonl``, with their texts from the shared data.

    Raises:
        InputError: If a caption differs from the annotated caption.
    """
    texts: dict[str, list[str]] = {}
    found = []
    for number, line in enumerate((GOLD / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        file, at = row["file"], row["line"]
        if file not in texts:
            texts[file] = list(captions_of(data / file))
        text = texts[file][at]
        if hashlib.sha256(text.encode()).hexdigest() != row["sha256"]:
            raise InputError(f"another caption stands at {file}[{at}]", path=f"{name}.jsonl", line=number)
        found.append(GoldCaption(f"{file}[{at}]", text, tuple(GoldMention(*mention) for mention in row["mentions"])))
    return found


def captions_of(path: Path) -> Iterator[str]:
    """Yields the captions in a file of the shared data, in order."""
    if path.suffix == ".gz":
        yield from (record["response"] for record in json.loads(gzip.decompress(path.read_bytes())))
    else:
        yield from (json.loads(line)["caption"] for line in path.read_bytes().split(b"\n") if line.strip())


def read_traps() -> list[Trap]:
    """Returns the project's own trap sentences."""
    rows = map(json.loads, (GOLD / "traps.jsonl").read_text(encoding="utf-8").splitlines())
    return [Trap(row["text"], row["start"], row["end"], frozenset(row["labels"])) for row in rows]


def plain_vocabulary(vocabulary: Vocabulary) -> Vocabulary:
    """Returns a basic alias list with each label and its plural in -s or -es."""
    suffix = {label: "es" if label.endswith(("s", "x", "ch", "sh")) else "s" for label in vocabulary.labels}
    table = {label: [label, label + suffix[label]] for label in vocabulary.labels}
    return Vocabulary.from_mapping(table, name=f"plain {vocabulary.name}", info=vocabulary.info)


# ---------------------------------------------------------------- judging


def overlap(a: Any, b: Any) -> int:
    """Returns the number of common characters of two spans. Negative if the spans are separate."""
    return int(min(a.end, b.end) - max(a.start, b.start))


def pairs(
    ours: Sequence[Any], theirs: Sequence[Any], fit: Callable[[Any, Any], bool] = lambda a, b: True
) -> list[tuple[int, int]]:
    """Returns the indices of matching overlapping spans, one to one, with larger overlaps first."""
    candidates = sorted(
        (-overlap(a, b), i, j)
        for i, a in enumerate(ours)
        for j, b in enumerate(theirs)
        if overlap(a, b) > 0 and fit(a, b)
    )
    left, right, kept = set[int](), set[int](), list[tuple[int, int]]()
    for _, i, j in candidates:
        if i not in left and j not in right:
            left.add(i)
            right.add(j)
            kept.append((i, j))
    return kept


def judge(caption: GoldCaption, matcher: AliasMatcher) -> Judged:
    """Compares the mentions that the matcher counts in a caption with its annotations.

    If the labels are the COCO categories, a mention is correct if it is paired, one to one, with an overlapping
    annotation of the same category that its reading should count. For other labels, a mention is correct if it overlaps
    such an annotation without a contradicting category, and there is no recall. A trap is triggered by an incorrect
    mention.
    """
    info = matcher.vocabulary.info
    on_coco = all(entry.coco == (label,) for label, entry in info.items())
    found = [mention for mention in matcher.find(caption.text) if mention.use not in LEFT_OUT[matcher.claims]]
    things = [mention for mention in caption.mentions if mention.is_due(matcher.claims)]

    def fits(mention: Mention, thing: GoldMention) -> bool:
        categories = info[mention.label].coco
        return thing.coco in categories or (not on_coco and (thing.coco is None or not categories))

    coco = [thing for thing in things if thing.coco is not None]
    paired = pairs(found, coco, fits)
    if on_coco:
        right = {i for i, _ in paired}
        missed = [thing for j, thing in enumerate(coco) if j not in {j for _, j in paired}]
    else:
        right = {i for i, m in enumerate(found) if any(overlap(m, t) > 0 and fits(m, t) for t in things)}
        coco, missed = [], []
    wrong = [mention for i, mention in enumerate(found) if i not in right]
    traps = [mention for mention in caption.mentions if mention.is_trap]
    sprung = [t for t in traps if any(overlap(mention, t) > 0 for mention in (wrong if t not in things else found))]
    to_cover = [thing for thing in things if thing.to_cover]
    uncovered = [t for t in to_cover if not any(overlap(m, t) > 0 and fits(m, t) for m in found)]
    counts = {
        "found": len(found),
        "right": len(right),
        "gold": len(coco),
        "gold_found": len(coco) - len(missed),
        "traps": len(traps),
        "sprung": len(sprung),
        "to_cover": len(to_cover),
        "covered": len(to_cover) - len(uncovered),
    }
    return Judged(wrong, missed, sprung, uncovered, counts)


def springs(trap: Trap, matcher: AliasMatcher) -> bool:
    """Returns True if a trap sentence triggers the matcher, by one of its labels or by a label of its COCO category."""
    info = matcher.vocabulary.info
    return any(
        overlap(mention, trap) > 0 and trap.labels & {mention.label, *info[mention.label].coco}
        for mention in matcher.find(trap.text)
        if mention.use not in LEFT_OUT[matcher.claims]
    )


def agreement_counts(first: GoldCaption, second: GoldCaption) -> dict[str, int]:
    """Compares two blind annotation passes over one caption, before any rule was agreed on."""
    both = [(first.mentions[i], second.mentions[j]) for i, j in pairs(first.mentions, second.mentions)]
    return {
        "first": len(first.mentions),
        "second": len(second.mentions),
        "matched": len(both),
        "coco": sum(a.coco == b.coco for a, b in both),
        "use": sum(a.use == b.use for a, b in both),
        "kind": sum(a.kind == b.kind for a, b in both),
    }


def kappa(first: Sequence[GoldCaption], second: Sequence[GoldCaption], field: str) -> float:
    """Returns Cohen's kappa of one field over the mentions in both passes."""
    values = [
        (getattr(a.mentions[i], field), getattr(b.mentions[j], field))
        for a, b in zip(first, second, strict=True)
        for i, j in pairs(a.mentions, b.mentions)
    ]
    n = len(values)
    ours, theirs = [a for a, _ in values], [b for _, b in values]
    chance = sum(ours.count(value) * theirs.count(value) for value in set(ours)) / n**2
    return float((sum(a == b for a, b in values) / n - chance) / (1 - chance))


def claims_counts(caption: GoldCaption, claims: Reading) -> dict[str, int]:
    """Compares the annotated mentions that a reading omits with their annotated uses."""
    mentions = caption.mentions
    if claims != "visual":  # what claims nothing is nobody's guess or denial
        mentions = tuple(mention for mention in mentions if not mention.is_trap)
    read = read_uses(caption.text, mentions)
    out = np.array([use in LEFT_OUT[claims] for use in read], dtype=bool)
    wanted = np.array([mention.use in LEFT_OUT[claims] for mention in mentions], dtype=bool)
    return {"left_out": int(out.sum()), "right": int((out & wanted).sum()), "due": int(wanted.sum())}


def read_uses(text: str, mentions: Sequence[Any]) -> list[str]:
    """Returns the uses that the rules derive for the annotated spans, independent of the matcher."""
    spans = [(mention.start, mention.end, 0) for mention in mentions]
    return [USES[use] for use in find_uses_of(text, spans, watched(text, cue_words(USES)), USES)]


def model_of(caption: GoldCaption) -> str:
    """Returns the model that wrote a caption, from the name of its file."""
    return next(name for part, name in _MODELS.items() if part in caption.where)


_MODELS = {
    "gpt4o": "GPT-4o",
    "llava_next": "LLaVA-NeXT-34B",
    "qwen3vl": "Qwen3-VL-4B",
    "instructblip": "InstructBLIP",
    "llava": "LLaVA-1.5",
    "lessismore": "LLaVA-1.5",
}


# ---------------------------------------------------------------- figures


class Figure(NamedTuple):
    """Figure with its 95 % bootstrap interval by caption."""

    value: float
    ci_low: float | None
    ci_high: float | None


def measure(metric: MetricSet, rows: Iterable[Mapping[str, int]]) -> tuple[dict[str, Figure], dict[str, int]]:
    """Returns figures and summed counts from one row per caption."""
    counts = np.array([[row[name] for name in metric.columns] for row in rows], dtype=np.int64)
    table = CountTable(metric.columns, tuple(map(str, range(len(counts)))), counts)
    values, intervals = metric.score(table.total), bootstrap(table, metric)
    shown = {name: Figure(float(values[name]), intervals[name].low, intervals[name].high) for name in metric.formulas}
    return shown, table.counts()


def quality(gold: Sequence[GoldCaption], traps: Sequence[Trap], matcher: AliasMatcher) -> dict[str, Any]:
    """Returns all figures of one vocabulary and reading. Of the project's traps, only those relevant to its labels are
    used.
    """
    figures, counts = measure(QUALITY, (judge(caption, matcher).counts for caption in gold))
    traps = [trap for trap in traps if trap.labels & set(matcher.vocabulary.labels)]
    own = sum(springs(trap, matcher) for trap in traps)
    counts |= {"own_traps": len(traps), "own_sprung": own}
    figures["own_traps_hit"] = Figure(own / len(traps), None, None)
    return {"figures": figures, "counts": counts}


def claims_cost(gold: Sequence[GoldCaption], vocabulary: Vocabulary, claims: Reading, *, remembering: bool) -> float:
    """Returns the relative CPU time that a reading adds to matching, over all captions in the files of the gold set.

    The result is the median of 15 rounds. In each round, every thousand captions are matched without and with the
    reading, so that the load of the machine affects both in the same way.

    Args:
        gold: Gold set, which determines the files.
        vocabulary: Vocabulary for the matching.
        claims: Reading to measure.
        remembering: True if phrases after cues are cached from the previous round, False if each round clears the
            cache.
    """
    files = sorted({caption.where.rpartition("[")[0] for caption in gold})
    texts = [text for file in files for text in captions_of(DATA / file)]
    parts = [texts[k : k + BATCH] for k in range(0, len(texts), BATCH)]
    matchers = AliasMatcher(vocabulary), AliasMatcher(vocabulary, claims)
    added = []
    for _ in range(15):
        if not remembering:
            clear_cache()
        seconds = [0.0, 0.0]
        for part in parts:
            for k, matcher in enumerate(matchers):
                start = time.process_time()
                matcher.find_batch(part)
                seconds[k] += time.process_time() - start
        added.append(seconds[1] / seconds[0] - 1)
    return float(np.median(added))


def confusion(gold: Sequence[GoldCaption]) -> dict[str, dict[str, int]]:
    """Returns annotated use -> use derived from the annotated span -> number of mentions."""
    table: dict[str, dict[str, int]] = {}
    for caption in gold:
        for mention, use in zip(caption.mentions, read_uses(caption.text, caption.mentions), strict=True):
            row = table.setdefault(mention.use, {})
            row[use] = row.get(use, 0) + 1
    return table


def report(gold: Sequence[GoldCaption], traps: Sequence[Trap]) -> dict[str, Any]:
    """Returns all printed values."""
    found: dict[str, Any] = {"vocabularies": {}, "models": {}, "claims": {}, "confusion": confusion(gold)}
    by_model: dict[str, list[GoldCaption]] = {}
    for caption in gold:
        by_model.setdefault(model_of(caption), []).append(caption)
    for name in ("coco80", "dopa160"):
        vocabulary = Vocabulary.load(name)
        for one, claims in ((vocabulary, "visual"), (vocabulary, "all"), (plain_vocabulary(vocabulary), "all")):
            found["vocabularies"][f"{one.name} {claims}"] = quality(gold, traps, AliasMatcher(one, claims))
        for model, captions in by_model.items():
            found["models"][f"{name} {model}"] = quality(captions, traps, AliasMatcher(vocabulary, "visual"))
    once = {f"{file}.jsonl": read_gold(file) for file in HELD_OUT}
    for file, captions in (*once.items(), ("both", [caption for part in once.values() for caption in part])):
        for name in ("coco80", "dopa160"):
            matcher = AliasMatcher(Vocabulary.load(name), "visual")
            found["models"][f"{name} {file}"] = quality(captions, traps, matcher)
    readings: tuple[Reading, ...] = ("asserted", "certain", "visual")
    for claims in readings:
        figures, counts = measure(CLAIMS, (claims_counts(caption, claims) for caption in gold))
        coco = Vocabulary.load("coco80")
        costs = {
            "cost": claims_cost(gold, coco, claims, remembering=False),
            "cost_remembering": claims_cost(gold, coco, claims, remembering=True),
        }
        found["claims"][claims] = {"figures": figures, "counts": counts, **costs}
    first, second = read_gold("first_pass"), read_gold("second_pass")
    figures, counts = measure(AGREEMENT, map(agreement_counts, first, second))
    kappas = {field: kappa(first, second, field) for field in ("coco", "use", "kind")}
    found["agreement"] = {"figures": figures, "counts": counts, "kappa": kappas}
    return found


# ---------------------------------------------------------------- printing


def percent(figure: Figure) -> str:
    """Returns a figure in percent with its interval."""
    low, high = figure.ci_low, figure.ci_high
    spread = f" [{100 * low:.1f}, {100 * high:.1f}]" if low is not None and high is not None else ""
    return "n/a" if np.isnan(figure.value) else f"{100 * figure.value:.1f}{spread}"


def _print(found: Mapping[str, Any]) -> None:
    shown = ("precision", "recall", "f1", "coverage", "traps_hit", "own_traps_hit")
    print(f"{'percent [95 % interval]':<30}" + "".join(f"{name:>20}" for name in shown))
    for name, one in (*found["vocabularies"].items(), *found["models"].items()):
        print(f"{name:<30}" + "".join(f"{percent(one['figures'][figure]):>20}" for figure in shown))
    print(f"\n{'annotated as, read as':<24}" + "".join(f"{use:>12}" for use in USES))
    for use, row in found["confusion"].items():
        print(f"{use:<24}" + "".join(f"{row.get(read, 0):>12}" for read in USES))
    print("\nclaims: of the annotated mentions")
    for name, one in found["claims"].items():
        figures = ", ".join(f"{key} {percent(value)}" for key, value in one["figures"].items())
        cost = f"{100 * one['cost']:.0f} % added to matching time, {100 * one['cost_remembering']:.0f} % when run again"
        print(f"{name:<18}{figures}; {one['counts']['due']} to omit; {cost}")
    agreement = found["agreement"]
    figures = ", ".join(f"{key} {percent(value)}" for key, value in agreement["figures"].items())
    kappas = ", ".join(f"{key} {value:.3f}" for key, value in agreement["kappa"].items())
    print(f"\ntwo blind passes ({agreement['counts']['matched']} mentions): {figures}; Cohen's kappa: {kappas}")


def _print_errors(gold: Sequence[GoldCaption], traps: Sequence[Trap]) -> None:
    for name in ("coco80", "dopa160"):
        vocabulary = Vocabulary.load(name)
        matcher = AliasMatcher(vocabulary, "visual")
        for caption in gold:
            found = judge(caption, matcher)
            for mention in found.wrong:
                print(f"{name} wrong\t{mention.label}\t{_window(caption.text, mention)}\t{caption.where}")
            for gap in found.missed:
                print(f"{name} missed\t{gap.coco}\t{_window(caption.text, gap)}\t{caption.where}")
            for gap in found.sprung:
                print(f"{name} sprung\t{gap.concept}\t{_window(caption.text, gap)}\t{caption.where}")
            for gap in found.uncovered if name != "coco80" else ():
                print(f"{name} uncovered\t{gap.concept}\t{_window(caption.text, gap)}\t{caption.where}")
        for trap in traps:
            if springs(trap, matcher):
                print(f"{name} trap\t{'/'.join(sorted(trap.labels))}\t{_window(trap.text, trap)}\ttraps.jsonl")
    for caption in gold:
        for mention, use in zip(caption.mentions, read_uses(caption.text, caption.mentions), strict=True):
            if use != mention.use:
                print(f"use {use}\t{mention.use}\t{_window(caption.text, mention)}\t{caption.where}")


def _window(text: str, span: Any, width: int = 45) -> str:
    left, right = text[max(0, span.start - width) : span.start], text[span.end : span.end + width]
    return f"{left}[{text[span.start : span.end]}]{right}".replace("\n", " ")


def _plain(value: Any) -> Any:
    """Converts figures to JSON objects with names, as in all other JSON of the project."""
    if isinstance(value, Figure):
        return value._asdict()
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--errors", action="store_true", help="print every error with its context instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        gold, traps = read_gold(), read_traps()
        if arguments.errors:
            _print_errors(gold, traps)
            return
        found = report(gold, traps)
    except (ScapoError, OSError) as error:
        sys.exit(str(error))
    if arguments.json:
        print(json.dumps(_plain(found)))
    else:
        _print(found)


if __name__ == "__main__":
    main()
