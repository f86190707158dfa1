"""Annotated cuts, which must match their texts, and accuracy of the rules as in docs/lab/segmentation.md."""

from __future__ import annotations

import json
from pathlib import Path

import segmentation as benchmark

ROOT = Path(__file__).resolve().parent.parent.parent


def test_annotations(shared: Path) -> None:
    first, second = (benchmark.read_cuts(name, shared / "data") for name in ("cuts", "cuts_second_pass"))
    assert (len(first), len(second)) == (100, 20)
    for gold in first + second:
        assert not gold.cut & gold.may
        assert all(0 < at < len(gold.text) and not gold.text[at].isspace() for at in gold.cut | gold.may)
        assert all(gold.text[at - 1].isspace() or gold.text[at - 1] in "\u2014*" for at in gold.cut | gold.may)
    keys = {"file", "line", "sha256", "cut", "may"}
    rows = (benchmark.GOLD / "cuts.jsonl").read_text().splitlines()
    assert all(set(json.loads(row)) == keys for row in rows)
    assert (
        benchmark.agreement(shared / "data")
        .split(" over ")[1]
        .endswith("20 texts: F1 of cuts 99.3, kappa of cut, may and nothing 0.97")
    )


def test_documented_figures(shared: Path) -> None:
    page = (ROOT / "docs" / "lab" / "segmentation.md").read_text()
    gold = benchmark.read_cuts("cuts", shared / "data")
    for model in ("GPT-4o", "Qwen3-VL-4B"):
        held_out = [text for text in gold if text.model == model and not text.tuned]
        for rule in ("subsentence", "discourse"):
            figures = benchmark.figures(held_out, rule)
            assert f"`{rule}` | {' | '.join(figures)} |" in page, (model, rule, figures)
        assert all(float(figure.split()[0]) >= 95 for figure in figures)
