"""Claims that a judge is asked about: which, with what words, how answers are read, and what they decide."""

from __future__ import annotations

from typing import Any

import pytest

from scapo_eval.base.errors import InputErrors
from scapo_eval.claiming.claim import ClaimKey, question_of
from scapo_eval.claiming.extract import ClaimExtractor
from scapo_eval.files.records import Records
from scapo_eval.inference.judge_claims import claims_to_judge, read_answer
from scapo_eval.matching.uses import Reading
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.readers.formats import ForeignCaption
from scapo_eval.truths.claim_oracle import ClaimOracle
from scapo_eval.truths.scenes import Scenes

VOCABULARY = Vocabulary.load("open400")
EXTRACTOR = ClaimExtractor(VOCABULARY, ("count", "attribute", "relation", "text"))


@pytest.mark.parametrize(
    ("claim", "question"),
    [
        (("presence", "dog", "", ""), "Is at least one dog visible in the image?"),
        (("count", "dog", "2", ""), "How many of these are visible in the image: dog? Is the number exactly 2?"),
        (("count", "dog", "3+", ""), "How many of these are visible in the image: dog? Is the number at least 3?"),
        (("count", "dog", "2-3", ""), "How many of these are visible in the image: dog? Is the number 2 to 3?"),
        (("attribute", "bus", "red", ""), 'Is there a bus in the image for which this is true: "red"?'),
        (
            ("relation", "person", "holding", "dog"),
            'Is this true of a person and a dog in the image: "person holding dog"?',
        ),
        (("relation", "dog", "left", ""), "Is there a dog in this part of the image: left?"),
        (("text", "sign", "STOP", ""), 'Is "STOP" written on a sign in the image?'),
        (("text", "", "STOP", ""), 'Is "STOP" written in the image?'),
    ],
)
def test_questions(claim: ClaimKey, question: str) -> None:
    assert question_of(claim) == question


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes", "yes"), ("**No**, it is green.", "no"), ("Answer: absent", "absent"), ("The answer is no.", "no"),
        ("unsure", "unsure"), ("There is no telling.", None), ("", None), ("I see a dog, so yes.", None),
    ],
)  # fmt: skip
def test_answers(text: str, answer: str | None) -> None:
    assert read_answer(text) == answer


def asked(*texts: str, reading: Reading = "all") -> list[tuple[str, ...]]:
    captions = [ForeignCaption(k, "7", text) for k, text in enumerate(texts)]
    return [claim for image in claims_to_judge(captions, EXTRACTOR, reading) for claim in image.claims]


def test_each_claim_is_asked_once() -> None:
    assert asked("A red bus.", "A red bus and a red bus.", "A bus.") == [("attribute", "bus", "red", "")]
    assert asked("A bus that may be red.", reading="certain") == []
    assert ("count", "dog", "2+", "") in asked("Two brown dogs.")


def judged(*claims: dict[str, Any], **further: Any) -> ClaimOracle:
    answered = [{"other": "", **claim} for claim in claims]
    records = [{"image_id": 7, "objects": [], **further, "claims": answered}]
    return ClaimOracle(VOCABULARY, scenes=(Scenes.load(Records("judged", records), VOCABULARY),))


@pytest.mark.parametrize(
    ("text", "kind", "value", "answer", "state"),
    [
        ("A red bus.", "attribute", "red", "yes", 1),
        ("A red bus.", "attribute", "red", "no", 0),
        ("A red bus.", "attribute", "red", "absent", -1),
        ("A red bus.", "attribute", "red", "unsure", -1),
        ("A red bus.", "attribute", "red", None, -1),
        ("A red bus.", "attribute", "blue", "yes", -1),
        ("Two buses.", "count", "2", "yes", 1),
        ("Two buses.", "count", "2", "absent", 0),
        ("Two red buses.", "count", "2+", "yes", -1),
        ("Two red buses.", "count", "2+", "no", 0),
        ("Several red buses.", "count", "3+", "yes", 1),
    ],
)
def test_what_an_answer_decides(text: str, kind: str, value: str, answer: str | None, state: int) -> None:
    oracle = judged({"kind": kind, "label": "bus", "value": value, "answer": answer})
    (claim,) = (claim for claim in EXTRACTOR.find(text) if claim.kind == kind)
    assert oracle.state(7, claim) == state


def test_annotations_decide_before_the_judge() -> None:
    answers = [{"kind": "count", "label": label, "value": "2", "answer": "no"} for label in ("bus", "dog")]
    oracle = judged(*answers, counts={"bus": 2})
    assert [oracle.state(7, claim) for claim in EXTRACTOR.find("Two buses. Two dogs.")] == [1, 0]


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ({"kind": "color", "label": "bus", "value": "red", "answer": "yes"}, "'kind' of a claim must be"),
        ({"kind": "attribute", "label": "bus", "value": "red", "answer": "maybe"}, "'answer' to a claim must be"),
        ({"kind": "attribute", "label": "bus", "value": "red"}, "answer"),
        ({"kind": "count", "label": "bus", "value": "-2", "answer": "yes"}, "not a count"),
    ],
)
def test_bad_answers_are_named_by_line(claim: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputErrors, match=reason):
        judged(claim)


def test_labels_of_another_vocabulary_are_counted() -> None:
    oracle = judged({"kind": "attribute", "label": "zorble", "value": "red", "answer": "yes"})
    assert "zorble" in oracle.notes[0]
