"""The generated pages have their form: every system, intervals, tests of pairs, published values, no captions."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
FIELD = (CHECKOUT / "docs" / "lab" / "field.md").read_text(encoding="utf-8")
VALIDITY = (CHECKOUT / "docs" / "lab" / "closed_vocabulary.md").read_text(encoding="utf-8")
PEOPLE = (CHECKOUT / "docs" / "lab" / "validity.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def scripts() -> object:
    """The scripts import each other by name."""
    sys.path.insert(0, str(CHECKOUT / "benchmarks"))
    yield
    sys.path.remove(str(CHECKOUT / "benchmarks"))


def test_every_public_caption_file_is_in_the_field_table() -> None:
    import field

    for each in field.CAPTIONS:
        assert f"## {each.title}\n" in FIELD
        for system in each.systems:
            rows = re.findall(rf"^\| {re.escape(system)} \|.*\\\[.*\\\]", FIELD, re.MULTILINE)
            assert len(rows) >= 4, system  # Cap. Score and three profiles, each with intervals
    for known in field.CAPTIONS_PUBLISHED:
        assert f"| {known.value:.1f} |" in FIELD
    assert FIELD.count("| Pair |") >= 4 * len(field.CAPTIONS)


def test_every_distance_has_a_cause() -> None:
    lines = FIELD.splitlines()
    heads = [k for k, line in enumerate(lines) if line.startswith("| System | Metric | Published |")]
    assert len(heads) >= 5
    for head in heads:
        for line in lines[head + 2 :]:
            if not line.startswith("|"):
                break
            _, _, published, ours, distance, source, cause = (cell.strip() for cell in line.strip("|").split("|"))
            assert source
            assert bool(cause) == (distance != "0"), line
            assert float(distance) == pytest.approx(float(ours) - float(published), abs=0.051)


def test_the_pages_hold_no_caption(shared: Path) -> None:
    for name in ("opera_llava15_greedy", "lessismore_r6_lim"):
        path = shared / "data" / "captions_real" / f"coco_val2014_{name}.jsonl"
        for line in path.read_text().splitlines()[:50]:
            beginning = json.loads(line)["caption"][:60]
            assert beginning not in FIELD
            assert beginning not in VALIDITY
    with gzip.open(shared / "data" / "human" / "thumb.jsonl.gz", "rt") as stream:
        for line in list(stream)[:500]:
            assert json.loads(line)["caption"] not in PEOPLE


def test_the_page_of_the_closed_vocabulary_has_its_tables() -> None:
    import validity

    for text in (validity.INTRODUCTION, validity.COVERAGE, validity.AGREEMENT, validity.PROFILES, validity.ON_READINGS,
                 validity.TRUTHS, validity.POPE, validity.CONCLUSION):  # fmt: skip
        assert text.strip() in VALIDITY
    for system in validity.CAPTIONS:
        rows = [line for line in VALIDITY.splitlines() if line.startswith(f"| {system} |")]
        assert len(rows) >= 4 + 3 + 1 + len(validity.THINNED), system


def test_the_validity_page_has_its_tables() -> None:
    import people

    for text in (people.INTRODUCTION, people.METHOD, people.PLACES, people.FACTS):  # fmt: skip
        assert text.strip() in PEOPLE
    for name, card in people.CARDS.items():
        for term, power in card.powers.items():
            assert re.search(rf"^\| \*{term}\* \|.*\b{power:.2f}\b", PEOPLE, re.MULTILINE), (name, term)
    for system in people.SYSTEMS:
        assert f"\n| {system} | " in PEOPLE
    assert PEOPLE.count("| `cap_people` | ") >= 5
