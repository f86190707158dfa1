"""Claims of many captions at once: words as codes, rules that remember what they read, and one text against many."""

from __future__ import annotations

import ast
import json
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.claiming import extract, memory, rules, tokens
from scapo_eval.claiming.claim import KINDS
from scapo_eval.claiming.cues import shipped_claim_cues
from scapo_eval.claiming.extract import ClaimExtractor

GOLD = Path(__file__).parents[2] / "benchmarks" / "gold"
WIDE, NARROW = ClaimExtractor("open400"), ClaimExtractor("coco80")
CODES = tokens.codes()


def gold() -> list[str]:
    """Returns all gold and hard captions, and the examples of the cues."""
    texts = []
    for path in sorted(GOLD.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            texts += [value for value in record.values() if isinstance(value, str) and " " in value]
    examples = [text for cue in shipped_claim_cues().cues for text in (*cue.holds, *cue.fails)]
    return list(dict.fromkeys([*texts, *(re.sub(r"[\[\]{}]", "", text) for text in [*texts, *examples])]))


def recombined(seed: int, n: int) -> list[str]:
    """Returns texts of random pieces of the gold captions and of random words that rules read."""
    rng, texts = random.Random(seed), gold()
    words = [word for word in CODES.words if word]
    things = 'dog dogs man hat shirt scissors cars table "STOP" orange skis tie ear street trees picture'.split()
    found = []
    for _ in range(n):
        parts = list[str]()
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.7:
                piece = rng.choice(texts).split(" ")
                begin = rng.randrange(len(piece))
                parts += piece[begin : begin + rng.randrange(1, 15)]
            else:
                parts += [rng.choice(things if rng.random() < 0.3 else words) for _ in range(rng.randrange(12))]
        found.append(rng.choice((" ", " ", " ", "  ", " *")).join(parts))
    return found


@pytest.fixture(name="fresh", autouse=True)
def _fresh() -> Iterator[None]:
    rules.MEMORY.forget()
    yield
    rules.MEMORY.forget()


@pytest.mark.parametrize("extractor", [WIDE, NARROW], ids=["open400", "coco80"])
def test_one_text_as_many(extractor: ClaimExtractor) -> None:
    texts = [*gold()[::2], *recombined(1, 800)]
    found = extractor.find_batch(texts)
    assert sum(map(len, found)) > 3000
    assert found == [claims for k in range(0, len(texts), 50) for claims in extractor.find_batch(texts[k : k + 50])]
    assert found == [extractor.find(text) for text in texts]


def test_what_was_read_before_does_not_matter() -> None:
    texts, others = recombined(2, 400), recombined(3, 800)
    found = []
    for text in texts:
        rules.MEMORY.forget()
        found.append(WIDE.find(text))
    WIDE.find_batch(others)
    assert WIDE.find_batch(texts) == found


def test_words_that_rules_read_alike_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*gold(), *recombined(4, 1500)]
    found = WIDE.find_batch(texts)
    exact = (np.arange(len(CODES.words)) << rules.FLAGS).astype(np.int32)
    assert all(len(np.unique(cells)) < limit for cells, limit in zip(rules.ALIKE, (200, 300, 450), strict=True))
    monkeypatch.setattr(rules, "ALIKE", (exact, exact, exact))
    rules.MEMORY.forget()
    assert WIDE.find_batch(texts) == found


def test_kinds_are_found_alone() -> None:
    texts = recombined(5, 600)
    found = WIDE.find_batch(texts)
    for kind in KINDS:
        alone = ClaimExtractor("open400", kinds=(kind,)).find_batch(texts)
        assert alone == [[claim for claim in claims if claim.kind == kind] for claims in found]


CHARACTERS = "ab'’s-–—\n *.,_1é\0\x02\x06Q\xa0“”²ñredbrownlingly%Kard\x1c"
TEXTS = st.lists(st.text(CHARACTERS, max_size=30) | st.text(max_size=20), max_size=5)


@given(TEXTS)
def test_words_are_split_alike_in_few_and_in_many_captions(texts: list[str]) -> None:
    few, many = tokens.tokens_of(texts), tokens.tokens_of([*texts, *[""] * tokens._FEW])
    kept = many.start < len(few.lowered)
    assert many.lowered.startswith(few.lowered)
    for name in ("code", "start", "end"):
        assert (getattr(few, name) == getattr(many, name)[kept]).all(), name
    for text, base in zip(texts, few.base.tolist(), strict=True):
        assert len(few.lowered[base : base + len(text)]) == len(text)
    for code, start, end in zip(few.code.tolist(), few.start.tolist(), few.end.tolist(), strict=True):
        assert form(few.lowered[start:end]) == form(CODES.words[code])


def form(word: str) -> tuple[object, ...]:
    """Returns what the rules ask about words in no list."""
    if word == "\0" or not word:
        return ()
    long = len(word) > 4
    return (
        word[0].isalnum(),
        word.isalpha() and "Z" not in word,
        word[0] == "\n",
        word.endswith("ing"),
        long and word.endswith("ing"),
        long and word.endswith("ed"),
        word.endswith("ly"),
        long and word.endswith(("ly", "ward", "wards")),
        CODES.color_in(word),
    )


@pytest.mark.parametrize(
    ("word", "same"),
    [
        ("soft-brown", "vivid-brown"),
        ("pale-gray-colored", "dark-gray-coloured"),
        ("chandelier", "lantern"),
        ("forwards", "eastward"),
        ("’s", "'s"),
        ("7x", "4th"),
    ],
)
def test_words_with_one_code(word: str, same: str) -> None:
    assert tokens.tokens_of([word]).code.tolist() == tokens.tokens_of([same]).code.tolist()


@pytest.mark.parametrize(
    ("word", "other"), [("red", "blue"), ("zebra", "running1"), ("king", "eating"), ("ly", "fly1")]
)
def test_words_with_two_codes(word: str, other: str) -> None:
    assert CODES.of(word) != CODES.of(other)


def test_every_word_that_the_rules_compare_with_has_a_code() -> None:
    named = set[str]()
    for module in (rules, extract):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            compared = [*node.comparators, node.left] if isinstance(node, ast.Compare) else []
            named |= {c.value for part in compared for c in ast.walk(part) if isinstance(c, ast.Constant) and c.value}
        sets = [words for words in vars(module).values() if isinstance(words, frozenset)]
        named |= {word for words in sets for word in words if isinstance(word, str)}
    words = {word for word in named if isinstance(word, str)}
    names = {
        "attribute",
        "color",
        "doing",
        "material",
        "state",
        "spatial",
        "presence",
        "text",
        "verb",
        "behind",
        "comma",
        "own",
        "claim",
        "hedged",
    }
    names |= {"part", "wearing", "STARTING", "isalpha", "isdecimal", " ", *rules.SETS, *rules.WORDS}
    assert len(words) > 100
    assert {word for word in words - names if word not in CODES.words} == set()


class Sum:
    """A rule that adds the cells up to the first zero, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, tape: memory.Tape) -> Iterator[tuple[int]]:
        self.runs += 1
        place = tape.at
        while tape.cell(place, 0):
            place += 1
        if place > tape.at:
            yield (sum(tape.cell(k, 0) for k in range(tape.at, place)),)


def read(of: memory.Memory, rule: int, cells: list[int], at: list[int]) -> list[tuple[int, int]]:
    tape = memory.Tape(np.array([cells], dtype=np.int32))
    owner, rows = of.rows(tape, rule, np.array(at))
    return list(zip(owner.tolist(), rows[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("few", [0, 10**6], ids=["steps of NumPy", "steps of Python"])
def test_a_rule_runs_once_for_each_reading(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(memory, "_FEW", few)
    rule, other = Sum(), Sum()
    of = memory.Memory((other, rule), 1)
    cells = [3, 4, 0, 3, 5, 0, 3, 4, 0]
    assert read(of, 1, cells, [0, 3, 6, 2, 1]) == [(0, 7), (1, 8), (2, 7), (4, 4)]
    assert (rule.runs, other.runs) == (4, 0)
    assert read(of, 1, [0, *cells], [1, 4, 7, 0]) == [(0, 7), (1, 8), (2, 7)]
    assert rule.runs == 4
    assert read(of, 0, cells, [0]) == [(0, 7)]
    of.forget()
    assert read(of, 1, cells, [0]) == [(0, 7)]
    assert (rule.runs, other.runs) == (5, 1)


def test_a_memory_is_bounded_and_shared_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = recombined(6, 300)
    found = WIDE.find_batch(texts)
    monkeypatch.setattr(memory, "_MOST", 500)
    results: list[object] = []

    def work(shift: int) -> None:
        for k in range(0, len(texts), 30):
            begin = (k + shift) % len(texts)
            results.append(WIDE.find_batch(texts[begin : begin + 30]) == found[begin : begin + 30])

    threads = [threading.Thread(target=work, args=(30 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40
    assert len(rules.MEMORY._branches) < 10_000


def test_a_value_that_another_thread_adds_is_not_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    texts_of, listed = extract._Reading._texts, len(rules.VALUES.listed)

    def meanwhile(reading: extract._Reading) -> extract.Ints:
        found = texts_of(reading)
        rules.VALUES.of(f"value {len(rules.VALUES.listed)}")
        return found

    monkeypatch.setattr(extract._Reading, "_texts", meanwhile)
    claims = WIDE.find('A sign says "STOP". Another sign says "GO".')
    assert [claim.value for claim in claims if claim.kind == "text"] == ["STOP", "GO"]
    assert len(rules.VALUES.listed) > listed


def test_readings_that_are_too_long_to_keep_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST", 2000)
    of, cells = memory.Memory((Sum(),), 1), [*[7] * 300, 0]
    for _ in range(3):
        assert read(of, 0, cells * 800, [301 * k for k in range(800)]) == [(k, 2100) for k in range(800)]
    assert max(len(of._distance), of._n_rows) <= 2001
    assert len(of._table) <= 1 << 12


def test_a_batch_with_more_readings_than_a_memory_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST", 2000)
    rng = np.random.default_rng(1)
    cells = [*rng.integers(0, 9, size=3000).tolist(), *[7] * 300, 0]
    of, at = memory.Memory((Sum(),), 1), list(range(len(cells)))
    first = read(of, 0, cells, at)
    assert first == [(k, sum(cells[k : cells.index(0, k)])) for k in at if cells[k]]
    assert first == read(of, 0, cells, at)
    assert len(of._branches) <= 2000 + memory._LONG
