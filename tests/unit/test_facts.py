"""Claims in descriptions: DCScore's and CAPEval's arithmetic, what judges say, foreign verdicts, bad input."""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError, InputErrors, ScapoError
from scapo_eval.benchmarks.facts import JudgeTrial, agreement, claim_rows, facts_run, read_descriptions
from scapo_eval.inference.judge_facts import (
    JudgePrompts,
    read_answers,
    read_claims,
    read_matches,
    read_references,
    read_verdicts,
)
from scapo_eval.readers.formats import recognize_file
from scapo_eval.results.comparison import compare


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def arithmetic(true: list[bool], matched: list[int | None], references: int) -> tuple[float, float, float]:
    """Precision, recall and F1, step by step; that they are DeCapBench's is shown by tests/golden/test_parity.py."""
    counts: defaultdict[int, int] = defaultdict(int)
    for match in matched:
        if match is not None:
            counts[match] += 1
    correct, total, right = 0.0, references, 0
    for holds, match in zip(true, matched, strict=True):
        if holds and match is None:
            correct, right, total = correct + 1, right + 1, total + 1
        elif holds and match is not None:
            correct, right = correct + 1 / counts[match], right + 1
    precision, recall = right / len(true), correct / total
    return precision, recall, 2 * precision * recall / (precision + recall + 1e-8)


@given(
    st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.integers(0, 4))), min_size=1, max_size=12),
    st.integers(5, 9),
)
def test_precision_recall_and_f1_step_by_step(claims: list[tuple[bool, int | None]], references: int) -> None:
    true, matched = [holds for holds, _ in claims], [match for _, match in claims]
    found = agreement(JudgeTrial(tuple(true), tuple(matched)), references)
    assert found.precision is not None
    expected = arithmetic(true, matched, references)
    assert (float(found.precision), float(found.recall), float(found.f1)) == pytest.approx(expected, abs=2e-8)


DOG = {
    "id": "a", "image_id": 1, "claims": ["A dog.", "It is red.", "It is brown.", "A cat.", "It is sad."],
    "descriptive": [1, 1, 1, 1, 0], "verified": [1, 0, 1, 0, 1], "matched": [0, 1, 1, None, None],
    "references": ["A dog.", "The dog is brown.", "A couch.", "A lamp."], "answers": ["yes", "no", "unsaid", "yes"],
    "judge_model": "j", "verifier_model": "v", "judge_prompt": "p", "against": "both",
}  # fmt: skip
EMPTY = {**DOG, "id": "b", "image_id": 2, "claims": [], "descriptive": [], "verified": [], "matched": [],
         "answers": ["unsaid"] * 4}  # fmt: skip
UNREAD = {**DOG, "id": "c", "image_id": 3, "verified": None, "unread": {"verify": "I think so."}}
NOTHING = {"id": "d", "image_id": 4, "claims": None, "unread": {"decompose": "Sorry."}}


def test_a_description_by_hand(tmp_path: Path) -> None:
    # 3 of 5 claims are true; dog 1, brown 1/2 (two claims speak of it), sad beyond the references: 2.5 of 4 + 1
    precision, recall = Fraction(3, 5), Fraction(5, 10)
    f1 = 2 * precision * recall / (precision + recall)
    # the descriptive ones: 2 of 4 true, 1.5 of 4 references (the claim they share one with counts them half anyway)
    p, r = Fraction(2, 4), Fraction(3, 8)
    run = facts_run("x", read_descriptions(lines(tmp_path / "a.jsonl", DOG)))
    values = {name: round(value, 12) for name, value in run.values.items() if value is not None}
    assert values == {
        "dcscore": round(float((f1 + 2 * p * r / (p + r)) / 2), 12),
        "precision": 0.6, "recall": 0.5, "f1": round(float(f1), 12),
        "precision_descriptive": 0.5, "recall_descriptive": 0.375,
        "f1_descriptive": round(float(2 * p * r / (p + r)), 12),
        "capeval_c": 0.75, "capeval_p": round(2 / 3, 12), "claims": 5.0,
    }  # fmt: skip
    assert "judge:j" in run.signature
    assert "against:both" in run.signature


def test_what_could_not_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    found = read_descriptions(lines(tmp_path / "a.jsonl", DOG, EMPTY, UNREAD, NOTHING))
    run = facts_run("x", found)
    alone = facts_run("x", found[:1]).values
    assert run.values["precision"] == alone["precision"]  # the empty one has none
    assert run.values["recall"] == pytest.approx(0.25)  # and a recall of 0
    assert run.values["f1"] == pytest.approx((alone["f1"] or 0) / 2)
    assert run.counts["asked"] == 12  # what the unread one says of the references is known
    assert run.counts["descriptions"] == 3
    assert {name: run.counts[name] for name in ("unread", "without_claims")} == {"unread": 2, "without_claims": 1}
    assert any(
        "2 descriptions have unreadable verdicts, and metrics that require these omit them" in note
        for note in run.notes
    )
    assert [row["true"] for row in claim_rows(found[2])] == [None] * 5
    assert claim_rows(found[0])[2] == {
        "claim": "It is brown.", "true": True, "descriptive": True, "reference": "The dog is brown.",
    }  # fmt: skip


def test_facts_without_references_have_a_precision_only(tmp_path: Path) -> None:
    path = lines(tmp_path / "facts.jsonl", {"id": 1, "facts": ["a", "b"], "verified": [1, 0]})
    values = facts_run("x", read_descriptions(path)).values
    assert (values["precision"], values["claims"]) == (0.5, 2.0)
    assert [values[name] for name in ("recall", "f1", "dcscore", "capeval_c", "capeval_p", "f1_descriptive")] == [
        None
    ] * 6


def decapbench(number: int, valid: bool = True) -> dict[str, Any]:
    facts = [{"fact": "a", "relevance": 1}, {"fact": "b", "relevance": 0}]
    return {
        "image_name": f"{number}.jpg",
        "valid": valid,
        "human_annotated_oracle_atomic_facts": [{"id": 0, "fact": "A"}, {"id": 1, "fact": "B"}],
        "eval_details": {
            "pred_atomic_facts": facts,
            "verified_results": [
                [{"fact": "a", "verification": 1}, {"fact": "b", "verification": 1}],
                [{"fact": "a", "verification": 1}, {"fact": "b", "verification": 0}],
            ],
            "mappings_with_human": [{"a": 0, "b": "None"}],
        },
    }


def test_decapbenchs_own_output_from_its_folder(tmp_path: Path) -> None:
    for number, valid in ((0, True), (1, False)):
        (tmp_path / f"{number}.json").write_text(json.dumps(decapbench(number, valid)))
    known = recognize_file(tmp_path)
    assert known is not None
    assert known.kind.name == "claims"
    run = facts_run("x", read_descriptions(tmp_path))
    trials = [arithmetic(t, [0, None], 2) for t in ([True, True], [True, False])]
    relevant = arithmetic([True], [0], 2)
    mean = [sum(column) / 2 for column in zip(*trials, strict=True)]
    assert [run.values[name] for name in ("precision", "recall", "f1")] == pytest.approx(mean, abs=1e-7)
    assert run.values["dcscore"] == pytest.approx((mean[2] + relevant[2]) / 2, abs=1e-7)
    assert run.counts["unread"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verified": [1]}, "1 'verified' for 5 'claims'"),
        ({"verified": [1, 0, 2, 0, 1]}, "'verified' must be a list of 0 and 1"),
        ({"matched": [0, 1, 1, 9, None]}, "'matched' refers to reference claim 9 of 4"),
        ({"answers": ["perhaps"] * 4}, "'answers' must be yes, no, unsaid, got 'perhaps'"),
        ({"answers": ["yes"]}, "1 'answers' for 4 'references'"),
        ({"claims": "A dog."}, "'claims' must be a list, not a string"),
        ({"claims": [1]}, "'claims' must be a list of strings, found a number"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, InputErrors)) as error:
        read_descriptions(lines(tmp_path / "a.jsonl", {**DOG, **change}))
    assert message in str(error.value)
    assert "a.jsonl:1" in str(error.value)


def test_repeats_and_captions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScapoError, match=r"id 'a' appears twice \(lines 1 and 2\)"):
        read_descriptions(lines(tmp_path / "a.jsonl", DOG, DOG))
    with pytest.raises(ScapoError, match="missing key 'claims'"):
        read_descriptions(lines(tmp_path / "b.jsonl", {"image_id": 1, "caption": "A dog."}))
    with pytest.raises(InputError, match="of none of the 1 descriptions could be read"):
        read_descriptions(lines(tmp_path / "c.jsonl", NOTHING))


def test_other_judges_are_not_compared(tmp_path: Path) -> None:
    one, other = (
        facts_run(name, read_descriptions(lines(tmp_path / name, {**DOG, "judge_model": name}))) for name in "ab"
    )
    with pytest.raises(InputError, match="judge: b against a"):
        compare([one, other])


# --- What a judge says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ('Sure:\n```json\n[{"claim": "A  dog.", "descriptive": true}]\n```', [("A dog.", True)]),
        ('[{"claim": "A dog."}, {"claim": "A dog."}]', [("A dog.", True)]),
        ('[{"claim": "A dog.", "descriptive": true}, {"claim": "A dog.", "descriptive": false}]', None),
        ("[]", []),
        ('["A dog."]', None),
        ('[{"claim": "A dog."', None),
        ("I'm sorry, but I can't help with that.", None),
    ],
)
def test_claims_are_read_or_not_guessed(text: str, claims: list[tuple[str, bool]] | None) -> None:
    assert read_claims(text) == claims


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("1: yes\n2: no", [True, False]),
        ("Here you go.\n\n**1:** Yes.\n2) NO", [True, False]),
        ("2: no\n1: yes\n1: yes", [True, False]),
        ("1: yes\n1: no\n2: no", None),
        ("1: yes", None),
        ("1: yes\n2: no\n3: no", None),
        ("1: yes\n2: maybe", None),
        ("1: _yes_\n2: `no`.", [True, False]),
        ("1: yes\n2: no\n" + "3" * 10 + ": yes", None),
        ("1: yes\n2: no\n" + "3" * 5000 + ": yes", None),
        ("1: yes\n2: " + "_" * 10_000 + " (no)", None),
        ("", None),
    ],
)
def test_verdicts_name_every_claim_once(text: str, verdicts: list[bool] | None) -> None:
    assert read_verdicts(text, 2) == verdicts


def test_matches_and_answers() -> None:
    assert read_matches("1: 0\n2: 3", 2, 3) == [None, 2]
    assert read_matches("1: 0\n2: 4", 2, 3) is None
    assert read_matches("1: 0\n2: " + "1" * 5000, 2, 3) is None
    assert read_answers("1: unsaid\n2: yes", 2) == ["unsaid", "yes"]
    assert read_answers("1: unknown\n2: yes", 2) is None


def test_prompts_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "match.txt").write_text("A {claims} B {references}")
    prompts = JudgePrompts.read(tmp_path)
    assert prompts.match == "A {claims} B {references}"
    assert prompts.verify == JudgePrompts().verify
    assert prompts.hash != JudgePrompts().hash
    (tmp_path / "verify.txt").write_text("Is it true?")
    with pytest.raises(InputError, match=r"placeholder \{claims\} not found"):
        JudgePrompts.read(tmp_path)
    with pytest.raises(InputError, match=r"none of decompose\.txt"):
        JudgePrompts.read(tmp_path / "none")


def test_references(tmp_path: Path) -> None:
    path = tmp_path / "references.jsonl"
    path.write_bytes(
        b"\n".join(map(orjson.dumps, [{"image_id": 7, "claims": ["A dog."]}, {"image_name": "b.jpg", "facts": []}]))
    )
    assert read_references(str(path)) == {"7": ["A dog."], "b.jpg": []}
    with pytest.raises(ScapoError, match="'claims' must be a list of strings, not a string"):
        read_references(str(lines(tmp_path / "bad.jsonl", {"image_id": 7, "claims": "A dog."})))
