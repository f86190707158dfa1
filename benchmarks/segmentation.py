"""Quality of the segmentation of responses from recent models, compared with manually annotated cuts.

    python benchmarks/segmentation.py [--part tuned|held-out|all] [--errors]

Texts are read from ../shared/data by file and line and verified by their hash, because benchmarks/gold/cuts.jsonl
contains no text. benchmarks/gold/CUTS.md defines correct cuts. A cut of a rule is correct at an annotated *cut* or
*may*. Precision is the share of correct cuts among the cuts of the rule. Recall is the share of annotated *cut*
positions that the rule finds. Intervals are 95 % bootstrap intervals by text. The part "tuned" contains the texts whose
errors were used to write the rule ``discourse``: those of LLaVA-NeXT and every second text of Qwen3-VL.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scapo_eval import split_subsentences
from scapo_eval.base.errors import ScapoError
from scapo_eval.base.types import Mention, Rule
from scapo_eval.segmenting.segment import RULES

GOLD = Path(__file__).resolve().parent / "gold"
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
MODELS = {
    "captions_modern/comprecap_gpt4o.jsonl": "GPT-4o",
    "captions_modern/comprecap_llava_next_34b.jsonl": "LLaVA-NeXT-34B",
    "captions_real/mmhal_bench_qwen3vl4b.jsonl": "Qwen3-VL-4B",
}
COMPARED: tuple[Rule, ...] = ("subsentence", "discourse", "sentence", "clause")
assert set(COMPARED) <= set(RULES)


class GoldText(NamedTuple):
    """One annotated text.

    Attributes:
        model: Model that wrote the text.
        place: File and line.
        tuned: True if the errors in this text were used to write the rule.
        text: The text.
        cut, may: Offsets of required cuts, and of optional cuts.
    """

    model: str
    place: str
    tuned: bool
    text: str
    cut: frozenset[int]
    may: frozenset[int]


def read_cuts(name: str = "cuts", data: Path = DATA) -> list[GoldText]:
    """Reads the annotated texts of one pass.

    Raises:
        ScapoError: If a text differs from the annotated text.
    """
    texts: dict[str, list[str]] = {}
    found = list[GoldText]()
    n_of_model = dict.fromkeys(MODELS, 0)
    for line in (GOLD / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        file = row["file"]
        if file not in texts:
            texts[file] = [json.loads(record)["caption"] for record in (data / file).read_text().splitlines()]
        text = texts[file][row["line"]]
        if hashlib.sha256(text.encode()).hexdigest() != row["sha256"]:
            raise ScapoError(f"{file}:{row['line']}: not the text that was annotated")
        model = MODELS[file]
        tuned = model == "LLaVA-NeXT-34B" or (model == "Qwen3-VL-4B" and n_of_model[file] % 2 == 0)
        n_of_model[file] += 1
        found.append(
            GoldText(model, f"{file}:{row['line']}", tuned, text, frozenset(row["cut"]), frozenset(row["may"]))
        )
    return found


def cuts(text: str, rule: Rule, mentions: Sequence[Mention] | None = None) -> set[int]:
    """Returns the offsets at which a rule cuts a text."""
    return {piece.start for piece in split_subsentences(text, rule, mentions)[1:]}


def counts(gold: GoldText, found: set[int]) -> list[int]:
    """Returns the numbers of correct cuts, of cuts, of found annotated cuts, and of annotated cuts."""
    return [len(found & (gold.cut | gold.may)), len(found), len(found & gold.cut), len(gold.cut)]


def interval(rows: np.ndarray, right: int, of: int, seed: int = 12345) -> str:
    """Returns a text such as ``95.1 [93.0, 97.0]``: a ratio of column sums in percent, and its interval over texts."""
    total = rows.sum(axis=0)
    if not total[of]:
        return "n/a"
    draws = np.random.default_rng(seed).integers(len(rows), size=(1000, len(rows)))
    sums = rows[draws].sum(axis=1)
    low, high = np.percentile(100 * sums[:, right] / np.maximum(sums[:, of], 1), [2.5, 97.5])
    return f"{100 * total[right] / total[of]:.1f} [{low:.1f}, {high:.1f}]"


def figures(texts: Sequence[GoldText], rule: Rule) -> list[str]:
    """Returns the precision and recall of a rule, for all cuts and for cuts inside sentences."""
    rows, inner = [], []
    for gold in texts:
        found, sentence_ends = cuts(gold.text, rule), cuts(gold.text, "sentence")
        rows.append(counts(gold, found))
        inside = gold._replace(cut=gold.cut - sentence_ends, may=gold.may - sentence_ends)
        inner.append(counts(inside, found - sentence_ends))
    return [interval(np.array(table), right, of) for table in (rows, inner) for right, of in ((0, 1), (2, 3))]


def show_errors(texts: Sequence[GoldText], rule: Rule) -> None:
    """Prints the wrong and missing cuts of a rule with their context."""
    for gold in texts:
        found = cuts(gold.text, rule)
        for at in sorted(found ^ gold.cut):
            if at not in gold.may:
                kind = "WRONG  " if at in found else "missing"
                before, after = gold.text[max(0, at - 60) : at], gold.text[at : at + 50]
                print(f"{kind} {gold.place[-22:]}  {before!r} | {after!r}")


def agreement(data: Path = DATA) -> str:
    """Returns the agreement of the blind second pass with the first: F1 of cuts, and kappa of cut, may and nothing."""
    if not (GOLD / "cuts_second_pass.jsonl").exists():
        return "no second pass"
    first = {gold.place: gold for gold in read_cuts("cuts", data)}
    second = read_cuts("cuts_second_pass", data)
    both = of_first = of_second = 0
    table = np.zeros((3, 3))
    for other in second:
        gold = first[other.place]
        both += len(gold.cut & other.cut)
        of_first += len(gold.cut)
        of_second += len(other.cut)
        for at in cuts(gold.text, "clause") | gold.cut | gold.may | other.cut | other.may:
            marks = [0 if at in one.cut else 1 if at in one.may else 2 for one in (gold, other)]
            table[marks[0], marks[1]] += 1
    share = table / table.sum()
    expected = float(share.sum(axis=1) @ share.sum(axis=0))
    kappa = (float(np.trace(share)) - expected) / (1 - expected)
    return (
        f"blind second pass over {len(second)} texts: F1 of cuts {100 * 2 * both / (of_first + of_second):.1f}, "
        f"kappa of cut, may and nothing {kappa:.2f} over {table.sum():.0f} places"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--part", choices=("tuned", "held-out", "all"), default="all")
    parser.add_argument("--rule", choices=COMPARED, action="append", help="default: all")
    parser.add_argument("--errors", action="store_true", help="list the errors of the rules")
    options = parser.parse_args()
    texts = [gold for gold in read_cuts() if options.part == "all" or gold.tuned == (options.part == "tuned")]
    rules = options.rule or COMPARED
    print("| model | texts | rule | precision | recall | precision inside sentences | recall inside sentences |")
    print("|---|---:|---|---:|---:|---:|---:|")
    groups = {model: [gold for gold in texts if gold.model == model] for model in MODELS.values()} | {"all": texts}
    for model, group in groups.items():
        for rule in rules if group else ():
            print(f"| {model} | {len(group)} | `{rule}` | " + " | ".join(figures(group, rule)) + " |")
    print(f"\n{agreement()}")
    if options.errors:
        for rule in rules:
            show_errors(texts, rule)
    return 0


if __name__ == "__main__":
    sys.exit(main())
