"""The uses of many captions at once equal those of each caption, and what is decided by letters is right."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import AliasMatcher
from scapo_eval.matching import uses_batch
from scapo_eval.matching.beginnings import OTHER, codes_at, may_begin, may_end, must_end
from scapo_eval.matching.cues import compiled, shipped_cues
from scapo_eval.matching.remembered import UNKNOWN, WIDTH, Remembered
from scapo_eval.matching.uses import BEFORE, USES, shipped_rules

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MATCHER = AliasMatcher("coco80")
CUES = shipped_cues().cues
EXAMPLES = [re.sub(r"[][]", "", text) for cue in CUES for text in (*cue.holds, *cue.fails)]


def _hard() -> list[str]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from readings import read_hard
    finally:
        sys.path.remove(str(BENCHMARKS))
    return [text for path in sorted(BENCHMARKS.glob("gold/hard*.jsonl")) for text, _ in read_hard(path)]


def _invented(count: int, seed: int) -> list[str]:
    """Returns texts of cue words, function words, objects and marks in random order."""
    rng = random.Random(seed)
    words = [word for cue in CUES for word in cue.words]
    common = (
        "a an the of any some to is are can be not for and or with it there no in on that has"
        " , . \n ? \" * - \u2014 n't \0 _"
        " caf\u00e9 \u0130 NO Dogs dogs dog person people man bus bench book cat orange keyboard bus"
    ).split(" ")
    pool = words + common * (len(words) // (2 * len(common)))
    texts = [" ".join(rng.choices(pool, k=rng.randint(1, 50))) for _ in range(count)]
    return [re.sub(r" (?=[,.?]|n't)", "", text) for text in texts]


def _assert_equal(texts: list[str]) -> None:
    mentions, uses = MATCHER.find_all_uses(texts)
    for k, text in enumerate(texts):
        rows = mentions.row(k)
        columns = mentions.start[rows].tolist(), mentions.end[rows].tolist(), uses[rows].tolist()
        read = [(start, end, USES[use]) for start, end, use in zip(*columns, strict=True)]
        assert read == [(mention.start, mention.end, mention.use) for mention in MATCHER.find(text)], text


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The letters of a rule are read when it is first met, and nothing has been met."""
    monkeypatch.setattr(uses_batch, "_OFTEN", 1)
    monkeypatch.setattr(uses_batch, "_OFTEN_BACK", 1)
    uses_batch._letters.cache_clear()
    uses_batch.clear_met()
    yield
    uses_batch._letters.cache_clear()


@pytest.mark.parametrize("texts", [_hard(), EXAMPLES, _invented(1500, 1)], ids=["hard", "examples", "invented"])
def test_a_batch_equals_its_captions(texts: list[str], read_at_once: None) -> None:
    _assert_equal(texts)
    _assert_equal(texts[::-1])  # now all texts around cues have been met


def test_a_batch_equals_its_captions_before_letters_are_read() -> None:
    uses_batch._letters.cache_clear()
    uses_batch.clear_met()
    _assert_equal(_invented(500, 2))


def test_letters_exclude_no_match() -> None:
    texts = [text.lower() for text in (*EXAMPLES, *_invented(300, 3)) if text.isascii()]
    decided = 0
    for cue in CUES:
        if not cue.after:
            continue
        may = may_begin(compiled(cue.after))
        for text in texts:
            for match in re.finditer("|".join(rf"\b{word}\b" for word in cue.words), text):
                tail = text[match.end() :]
                code = _code(tail)
                decided += not may[code]
                assert may[code] or compiled(cue.after).match(tail) is None, (cue.after, tail)
    assert decided > 1000


def test_letters_before_a_cue() -> None:
    texts = [text.lower() for text in (*EXAMPLES, *_invented(300, 4)) if text.isascii()]
    places = [text[: match.start()] for text in texts for match in re.finditer(r"(?<= )\w", text)]
    decided = 0
    for cue in CUES:
        for expression in filter(None, (cue.behind, cue.not_behind)):
            pattern = compiled(expression)
            may, must = may_end(pattern), must_end(pattern)
            for before in places[:: 1 + len(places) // 500]:
                code = _code(before[::-1], step=-1)
                found = pattern.search(before[-BEFORE:]) is not None
                decided += must[code] or not may[code]
                assert may[code] or not found, (expression, before)
                assert found or not must[code], (expression, before)
    assert decided > 1000


def _code(text: str, step: int = 1) -> Any:
    """Returns the code of the place at the beginning of a text, which is reversed if the step is -1."""
    padded = np.frombuffer(("\0" * 4 + text[::step] + "\0" * 4).encode(), dtype=np.uint8)
    at = 4 if step > 0 else 3 + len(text)
    return codes_at(padded, np.array([at]), step)[0]


@pytest.mark.parametrize(
    ("expression", "possible", "impossible"),
    [
        (r"\s+of\b", [" of a", " of", "\tof"], [" often", " on", ", of"]),
        (r"(?=\s+(?:an?|some)\b)", [" a dog", " an", " some"], [" any", " the", " sum"]),
        (r",?\s+\w+ly\b", [" nicely", ", nicely"], []),
        (r"(?!\s+a\b)(?:\s+\w)?", [" a", ","], []),
        (r"\s+(?!the\b|be\b)\w+", [" then", " beer"], [" be", " be."]),
        (r"\s+b{2,3}", [" bbb"], [" ba", " b"]),
        (r"\s+[^a-m]", [" no"], [" am"]),
    ],
)
def test_what_may_begin(expression: str, possible: list[str], impossible: list[str]) -> None:
    may = may_begin(re.compile(expression))
    assert [may[_code(text)] for text in possible] == [True] * len(possible)
    assert [may[_code(text)] for text in impossible] == [False] * len(impossible)


def test_what_may_follow_a_known_beginning() -> None:
    may = may_begin(re.compile(r"\s+(?:can\b(?!\s+(?:be|see)\b)|should\s+be\b)"), " can")
    assert [bool(may[_code(text)]) for text in (" be seen", " be", " bend", " run")] == [False, False, True, True]
    assert not may_begin(re.compile(r"\s+may\b"), " can").tolist()[:OTHER].count(True)


def test_remembered_texts() -> None:
    memory = Remembered(first_id=100)
    text = b"no dog. no dogs. no dog." + b"\0" * WIDTH
    byte = np.frombuffer(text, dtype=np.uint8)
    begin, length, parent = np.array([0, 8, 17, 0]), np.array([6, 6, 6, 6]), np.array([1, 1, 1, 2])
    keys = memory.keys(byte, begin, length, parent)
    assert memory.find(keys)[0].tolist() == [UNKNOWN] * 4
    (first,) = memory.add(keys[:1], np.array([3], dtype=np.uint8))
    states, ids = memory.find(keys)
    assert states.tolist() == [3, 3, 3, UNKNOWN]  # the same text, and the same text behind something else
    assert ids[:3].tolist() == [first] * 3
    longer = memory.keys(byte, np.array([0, 0]), np.array([5, 7]), np.array([1, 1]))
    assert memory.find(longer)[0].tolist() == [UNKNOWN] * 2


def test_the_memory_is_bounded() -> None:
    memory = Remembered(first_id=1)
    numbers = np.arange(60_000)
    byte = np.frombuffer(b"x" * WIDTH, dtype=np.uint8)
    keys = memory.keys(byte, numbers * 0, numbers * 0 + 4, numbers + 1)
    memory.add(keys, (numbers % 4).astype(np.uint8))
    states, _ = memory.find(keys)
    known = states != UNKNOWN
    assert 10_000 < known.sum() < 20_000
    assert (states == numbers % 4)[known].all()


def test_texts_around_cues_fit_into_the_memory() -> None:
    assert max(rule.reach for rule in shipped_rules().rules) <= WIDTH
    assert BEFORE <= WIDTH
