"""The last sentence without an end: what is dropped, and that every verb scores what is left."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scapo_eval
from scapo_eval import InputError, PresenceOracle, Vocabulary
from scapo_eval.benchmarks.amber import AmberData
from scapo_eval.benchmarks.capscore import score_file
from scapo_eval.benchmarks.density import score_density
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.results.results import Resampling
from scapo_eval.segmenting.punctuation import last_sentence
from scapo_eval.segmenting.segment import split_subsentences
from scapo_eval.segmenting.unfinished import without_unfinished

TRUTH = {1: ["dog"], 2: ["dog"], 3: ["cat"]}
CUT = ["A dog sits. Beside it a cat", "A dog runs on 3.5 acres of", "A cat sleeps.\nThe dog watches it!"]
LEFT = ["A dog sits.", "A dog runs on 3.5 acres of", "A cat sleeps.\nThe dog watches it!"]


def records(texts: list[str], key: str = "caption") -> list[dict[str, object]]:
    return [{"image_id": image, key: text} for image, text in zip(TRUTH, texts, strict=True)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        *zip(CUT, LEFT, strict=True),
        ("", ""),
        ("A dog. ", "A dog. "),
        ("A cat. A dog." + "\n" * 20, "A cat. A dog." + "\n" * 20),
        ('He said "stop." ', 'He said "stop." '),
        ("**A dog.** It", "**A dog.**"),
        ("A dog, e.g. a", "A dog, e.g. a"),
        ("One dog.\n- a cat\n- a", "One dog.\n- a cat"),
        ("Is it a dog? Yes, it", "Is it a dog?"),
        ("一只狗。旁边", "一只狗。"),
    ],
)
def test_what_is_dropped(text: str, left: str) -> None:
    assert without_unfinished(text) == left


@given(st.text(alphabet='ab .!?\n"*…', max_size=40))
def test_it_is_a_beginning_of_the_text_and_nothing_more_is_dropped_from_it(text: str) -> None:
    left = without_unfinished(text)
    assert text.startswith(left)
    assert bool(left) == bool(text)
    if left != text:
        assert text[len(left) :].strip()  # something was said after it
        assert not re.search(r"[.!?…][\s\"*]*$", text)


@given(st.text(alphabet='ab .,!?\n"*…—-)1。（', max_size=40))
def test_the_last_sentence_is_that_of_the_segmentation(text: str) -> None:
    pieces = split_subsentences(text, "sentence")
    assert last_sentence(text) == (pieces[-1].start if pieces else 0)


def test_scores_are_those_of_what_is_left() -> None:
    truth, drawn = PresenceOracle.from_objects(TRUTH), {"resamples": 0}
    for verb in (scapo_eval.score, scapo_eval.chair):
        dropped = verb(records(CUT), truth=truth, drop_unfinished=True, **drawn)  # type: ignore[operator]
        plain = verb(records(LEFT), truth=truth, **drawn)  # type: ignore[operator]
        assert dropped.values == plain.values
        assert dropped.counts == {**plain.counts, "unfinished": 1}
        assert "|unfinished:dropped|" in dropped.signature
        assert "unfinished" not in plain.signature
        with pytest.raises(InputError, match="unfinished: none against dropped"):
            scapo_eval.compare([dropped, plain])


def test_densities_and_several_processes(tmp_path: Path) -> None:
    path, vocabulary = tmp_path / "r.jsonl", Vocabulary.load("coco80")
    truth = PresenceOracle.from_objects(TRUTH)
    path.write_text("".join(json.dumps(record) + "\n" for record in records(CUT, "response")))
    [run] = score_density(path, [(vocabulary, truth)], ["sentence"], ScoringOptions(drop_unfinished=True))
    assert run.counts["objects"] == 4
    path.write_text("".join(json.dumps(record) + "\n" for record in records(CUT)))
    one, two = (
        score_file(path, vocabulary, truth, ScoringOptions(drop_unfinished=True, workers=n), resampling=Resampling(0))
        for n in (1, 2)
    )
    assert (one.counts, str(one.signature)) == (two.counts, str(two.signature))


def test_descriptions_of_amber(shared: Path) -> None:
    data = AmberData.load(shared / "data" / "amber")
    given = [{"id": 1, "response": "A beach and a"}, {"id": 2, "response": "A man. A tree and"}]
    given += [{"id": 1005, "response": "Yes. There is"}]
    dropped = scapo_eval.amber(given, data=data, drop_unfinished=True, resamples=0)
    plain = scapo_eval.amber([{**r, "response": str(r["response"]).replace(" A tree and", "")} for r in given],
                             data=data, resamples=0)  # fmt: skip
    assert dropped.values == plain.values
    assert dropped.counts["unfinished"] == 1
    assert "|unfinished:dropped|" in dropped.signature
