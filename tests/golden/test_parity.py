"""Parity matrix with the originals' own outputs, and the page that shows it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import parity
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lab" / "parity.md"


@pytest.fixture(scope="module")
def tables(shared: Path) -> list[parity.Table]:
    nltk = pytest.importorskip("nltk")
    nltk.data.path.insert(0, str(shared / "nltk_data"))
    return parity.tables(shared)


def test_what_differs_says_why(tables: list[parity.Table]) -> None:
    cells = [(table.title, cell) for table in tables for cell in table.cells]
    assert [f"{title}: {cell.figure}" for title, cell in cells if cell.state != "equal" and not cell.note] == []
    assert Counter(cell.state for _, cell in cells)["equal"] >= 70


def test_the_page_is_what_the_originals_say(tables: list[parity.Table]) -> None:
    assert PAGE.read_text() == parity.page(tables)


def test_a_difference_is_seen() -> None:
    assert parity.cell("f", "f", [(0.5, 0.5 + 1e-13)], "x", within=1e-12).state == "equal"
    cell = parity.cell("f", "f", [(1, 1), (0.5, 0.6)], "x", within=1e-12, reason="the moon")
    assert (cell.state, cell.note) == ("different", "1 of 2: the moon")
    assert parity.cell("f", "f", [([1], [2])], "x").note == ""
