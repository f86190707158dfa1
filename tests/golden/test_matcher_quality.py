"""The gold set is the captions that were annotated, and the matcher is as good on it as docs/vocabulary.md says."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scapo_eval import Vocabulary

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
COCO = set(Vocabulary.load("coco80").labels)


def _load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("matcher_quality", BENCHMARKS / "matcher_quality.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["matcher_quality"] = module
    specification.loader.exec_module(module)
    return module


quality = _load()


@pytest.fixture(scope="module")
def gold(shared: Path) -> list[Any]:
    found: list[Any] = quality.read_gold("mentions", shared / "data")  # checks every hash
    return found


def test_counts_and_no_text(gold: list[Any]) -> None:
    mentions = [mention for caption in gold for mention in caption.mentions]
    assert len(gold) == 200
    assert Counter(mention.polarity for mention in mentions) == {
        "asserted": 2361,
        "nonvisual": 172,
        "hedged": 117,
        "negated": 33,
    }
    assert sum(mention.is_trap for mention in mentions) == 117
    for name, rows in {"mentions": 200, "first_pass": 40, "second_pass": 40}.items():
        lines = (quality.GOLD / f"{name}.jsonl").read_text().splitlines()
        assert len(lines) == rows
        assert all(set(json.loads(line)) == {"file", "line", "sha256", "mentions"} for line in lines)


def test_annotations_are_well_formed(gold: list[Any]) -> None:
    for caption in gold:
        spans = [(mention.start, mention.end) for mention in caption.mentions]
        assert all(0 <= start < end <= len(caption.text) for start, end in spans)
        assert all(left[1] <= right[0] for left, right in zip(spans, spans[1:], strict=False))
        for mention in caption.mentions:
            assert mention.coco is None or mention.coco in COCO
            assert mention.kind in quality.COVERED_KINDS | {"part", "text", "group"}
            assert not mention.is_trap or (mention.coco is None and mention.polarity == "nonvisual")


def test_coco80_reaches_its_targets(gold: list[Any]) -> None:
    vocabulary = Vocabulary.load("coco80")
    tempting = quality.tempting_words(vocabulary)
    ours = quality.quality(gold, quality.read_traps(), vocabulary, tempting)["figures"]
    plain = quality.quality(gold, quality.read_traps(), quality.plain_vocabulary(vocabulary), tempting)["figures"]
    assert ours["precision"].value >= 0.97
    assert ours["recall"].value >= 0.95
    assert ours["traps_hit"].value <= 0.05
    assert ours["own_traps_hit"].value <= 0.05
    assert plain["recall"].value < 0.7
    assert plain["traps_hit"].value > 0.5


def test_dopa160_reaches_its_targets(gold: list[Any]) -> None:
    vocabulary = Vocabulary.load("dopa160")
    figures = quality.quality(gold, quality.read_traps(), vocabulary, quality.tempting_words(vocabulary))["figures"]
    assert figures["coverage"].value >= 0.75
    assert figures["precision"].value >= 0.97
    assert figures["traps_hit"].value <= 0.05
    assert figures["own_traps_hit"].value <= 0.05


@pytest.mark.parametrize(("claims", "precision", "recall"), [("asserted", 0.95, 0.95), ("certain", 0.95, 0.9)])
def test_claims(gold: list[Any], claims: str, precision: float, recall: float) -> None:
    figures, _ = quality.measure(quality.CLAIMS, (quality.claims_counts(caption, claims) for caption in gold))
    assert figures["precision"].value >= precision
    assert figures["recall"].value >= recall


def test_agreement_of_two_blind_passes(shared: Path) -> None:
    first, second = (quality.read_gold(name, shared / "data") for name in ("first_pass", "second_pass"))
    figures, counts = quality.measure(quality.AGREEMENT, map(quality.agreement_counts, first, second))
    assert (counts["first"], counts["second"], counts["matched"]) == (563, 551, 550)
    assert round(figures["mention_f1"].value, 3) == 0.987
    assert round(quality.kappa(first, second, "polarity"), 3) == 0.907


def test_traps_are_where_they_say() -> None:
    traps = quality.read_traps()
    assert len(traps) >= 80
    for trap in traps:
        assert 0 <= trap.start < trap.end <= len(trap.text)
        assert trap.labels


def test_another_caption_in_the_place_is_noticed(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = json.loads((quality.GOLD / "first_pass.jsonl").read_text().splitlines()[0])
    (tmp_path / "moved.jsonl").write_text(json.dumps({**row, "line": row["line"] + 1}))
    monkeypatch.setattr(quality, "GOLD", tmp_path)
    with pytest.raises(quality.InputError, match=r"moved.jsonl:1: another caption stands at"):
        quality.read_gold("moved", shared / "data")
