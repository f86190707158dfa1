"""Uses of mentions from a judge: what it is asked, how answers are read, and what readings and rewards make of them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scapo_eval import AliasMatcher, ClaimExtractor, JudgedUses, RewardConfig, SubsentenceReward, Vocabulary, score
from scapo_eval.base.columns import MentionColumns
from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.inference.judge_prompts import USES_TASK
from scapo_eval.inference.judge_uses import captions_to_judge, read_uses, read_uses_task, uses_turns
from scapo_eval.matching.uses import READINGS, ReadingName
from scapo_eval.matching.uses import USES as USE_NAMES

VOCABULARY = Vocabulary.load("coco80")
MATCHER = AliasMatcher(VOCABULARY)
TEXT = "A dog, a cat and a bus stop. No car is here, but <!-- a cup --> perhaps two chairs."
SAID = ("hedged", "generic", "none", "claim", "negated")


def row(text: str, uses: Sequence[str] | None, **further: Any) -> dict[str, Any]:
    told = None
    if uses is not None:
        told = [
            {"start": mention.start, "end": mention.end, "label": mention.label, "use": use}
            for mention, use in zip(MATCHER.find(text), uses, strict=True)
        ]
    return {"caption": text, "uses": told, "vocabulary": VOCABULARY.identity, "judge_model": "J", **further}


def read(claims: ReadingName = "visual", *rows: dict[str, Any]) -> JudgedUses:
    return JudgedUses.load(rows or [row(TEXT, SAID)], claims)


def found(text: str, claims: JudgedUses) -> list[tuple[str, str]]:
    return [(mention.surface, mention.use) for mention in AliasMatcher(VOCABULARY, claims).find(text)]


def test_what_a_judge_is_asked() -> None:
    [caption, empty] = captions_to_judge([TEXT, "Nothing.", TEXT], MATCHER)
    assert caption.marked == (
        "A [[1:dog]], a [[2:cat]] and a [[3:bus]] stop. "
        "No [[4:car]] is here, but <!-- a cup --> perhaps two [[5:chairs]]."
    )
    assert not empty.mentions
    definitions = {"dog": "A domestic\n dog.", "chair": "A seat."}
    [*_, last] = uses_turns(caption, definitions)
    assert "\n1. dog: dog (A domestic dog.)\n2. cat: cat\n" in last.text
    [turn] = uses_turns(caption, definitions, "Read {caption} and answer about\n{mentions}")
    assert turn.text.startswith("Read A [[1:dog]], ")


def test_own_prompts(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Judge {caption}.")
    with pytest.raises(InputError, match=r"the prompt has \{caption\} but no \{mentions\}"):
        read_uses_task(str(tmp_path / "prompt.txt"))
    assert read_uses_task(None) == USES_TASK


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ('{"1": "claim", "2": "none"}', ["claim", "none"]),
        ('```json\n{"2": "none",\n "1": "quoted"}\n```', ["quoted", "none"]),
        ('First {"1": "claim"}, so {"1": "claim", "2": "hedged"}', ["claim", "hedged"]),
        ('{"1": "claim"}', None),
        ('{"1": "claim", "2": "none", "3": "none"}', None),
        ('{"1": "claim", "2": "maybe"}', None),
        ('{"1": "claim", "2": ["none"]}', None),
        ('["claim", "none"]', None),
        ('{"1": "claim", "2": "no', None),
        ("", None),
    ],
)
def test_answers(text: str, uses: list[str] | None) -> None:
    assert read_uses(text, 2) == uses


TEXTS = ("A dog and a cat.", "No dog. A cat.", "Nothing is here.", "A cat, perhaps.", "Is there a dog?")
USES = {TEXTS[0]: ("negated", "none"), TEXTS[1]: ("claim", "hedged"), TEXTS[3]: None}


@pytest.mark.parametrize("claims", READINGS[1:])
def test_all_methods_of_the_matcher_agree(claims: ReadingName) -> None:
    judged = read(claims, *(row(text, uses) for text, uses in USES.items()))
    matcher = pickle.loads(pickle.dumps(AliasMatcher(VOCABULARY, judged)))
    rules = AliasMatcher(VOCABULARY, claims)
    one_by_one = [matcher.find(text) for text in TEXTS]
    assert [[mention.use for mention in mentions] for mentions in one_by_one] == [
        ["negated"], ["claim", "hedged"], [], ["hedged"], ["question"],
    ]  # fmt: skip
    assert one_by_one[3:] == [rules.find(text) for text in TEXTS[3:]]
    columns, uses = matcher.find_all_uses(TEXTS)
    both, left_out, again = matcher.find_both_uses(TEXTS, ("hedged",))
    some, codes = matcher.find_left_out(TEXTS)
    for mentions in (columns, both, some):
        assert mentions.start.tolist() == [mention.start for each in one_by_one for mention in each]
    assert codes.tolist() == left_out.tolist()
    assert (again > 0).tolist() == [False, False, True, True, False]
    assert uses.tolist() == [code for text in TEXTS for code in matcher.find_all_uses([text])[1].tolist()]
    assert len(matcher.find_batch(TEXTS).start) == (1 if claims == "certain" else 3)
    assert judged.unjudged(TEXTS) == 3


def test_words_that_are_no_mention_are_dropped_from_claims() -> None:
    text = "Two red buses and a brown dog."
    claims = ClaimExtractor(VOCABULARY, claims=read("visual", row(text, ("none", "hedged")))).find(text)
    assert {(claim.label, claim.use) for claim in claims} == {("dog", "hedged")}


def test_scores_state_the_judge_and_what_it_has_not_read() -> None:
    records = [{"image_id": k, "caption": text, "objects": ["cat"]} for k, text in enumerate(TEXTS)]
    judged = read("asserted", *(row(text, uses, judge_prompt="ab12") for text, uses in USES.items()))
    run = score(records, claims=judged)
    assert run.other_counts["unjudged"] == 3
    assert any(note.startswith("3 of 5 captions are not in the file of --uses") for note in run.notes)
    fields = run.signature.fields
    assert fields["claims"] == "asserted"
    assert fields["reading"].endswith("+J ab12")
    assert fields["uses"] == judged.fingerprint
    by_rules = score(records, claims="asserted")
    assert "reading" in run.signature.differences(by_rules.signature)
    assert "uses" not in run.signature.differences(by_rules.signature)
    assert "unjudged" not in by_rules.other_counts


def test_rewards() -> None:
    text = "<think>A dog.</think>A dog sits in a poster. A cat."
    answer = "\n" * 21 + text[21:]
    judged = read("visual", row(answer, ("quoted", "claim")))
    reward = SubsentenceReward(VOCABULARY, {1: ["dog"]}, RewardConfig.robust(claims=judged))
    [result] = reward([1], [text])
    assert (result.covered, result.hallucinated) == (0, 1)
    assert reward.unjudged([text, "A dog."]) == 1
    for field in ("|claims:visual|", "|preset:robust|", "+J|", f"|uses:{judged.fingerprint}|"):
        assert field in reward.signature


class Denying:
    """Reading of a user, whose judge denies everything."""

    name: ReadingName = "asserted"
    vocabulary = VOCABULARY.identity
    judge, fingerprint, source = "mine", "live", "mine"

    def uses_of(self, texts: Sequence[str], mentions: MentionColumns) -> NDArray[np.int64]:
        return np.full(len(mentions.start), USE_NAMES.index("negated"))

    def unjudged(self, texts: Iterable[str]) -> int:
        return 0


def test_a_judge_of_ones_own() -> None:
    reward = SubsentenceReward(VOCABULARY, {1: ["dog"]}, RewardConfig(claims=Denying()))
    assert [part.new for part in reward([1], ["A dog."])[0].parts] == [0]
    assert "|uses:live|" in reward.signature


def lines(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "uses.jsonl"
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in rows) + "\n")
    return path


GOOD = row("A dog.", ["claim"])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([GOOD, row("A cat.", ["maybe"])], r"uses.jsonl:2: unknown use 'maybe'; known: claim, hedged, .*, none"),
        ([GOOD, {**row("A cat.", ["claim"]), "caption": "A"}], r"uses.jsonl:2: the span 2 to 5 lies outside"),
        ([GOOD, '{"caption": "A ca'], r"uses.jsonl:2: "),
        (['{"caption": "A ca'], r"uses.jsonl:1: not valid JSON: unexpected end of data"),
        ([GOOD, {"caption": "A cat.", "uses": []}], r"uses.jsonl:2: .*vocabulary"),
        ([GOOD, {**GOOD, "uses": [{"start": "2", "end": 5, "use": "claim"}]}], r"uses.jsonl:2: .*start"),
        ([GOOD, row("A dog.", ["none"])], r"uses.jsonl:2: the caption appears twice .* \(lines 1 and 2\)"),
        ([GOOD, {**row("A cat.", ["claim"]), "vocabulary": "x@1"}], r"uses.jsonl:2: .* two vocabularies, coco80@\w+ "),
        ([row("A dog.", None)], r"uses.jsonl: no caption with readable uses \(all are null\)"),
    ],
)
def test_bad_files(tmp_path: Path, rows: list[object], reason: str) -> None:
    with pytest.raises((InputError, InputErrors), match=reason):
        JudgedUses.load(lines(tmp_path, *rows))


def test_equal_lines_are_one_and_a_readable_line_replaces_an_unreadable_one(tmp_path: Path) -> None:
    judged = JudgedUses.load(lines(tmp_path, row("A dog.", None), GOOD, GOOD))
    assert (len(judged.spans), judged.unjudged(["A dog."])) == (1, 0)


def test_bad_readings() -> None:
    with pytest.raises(InputError, match="the reading all counts every mention and needs no uses"):
        read("all")
    with pytest.raises(InputError, match=r"the uses are those of mentions of coco80@\w+, not of dopa160@"):
        AliasMatcher("dopa160", read())
    with pytest.raises(InputError, match="claims must be one of"):
        AliasMatcher("coco80", "some")  # type: ignore[arg-type]
    other = read("visual", {**row("A dog and a cat.", ("claim", "claim")), "uses": []})
    with pytest.raises(InputError, match=r"the mention 'dog' at position 2 of 'A dog and a cat\.' has no use"):
        found("A dog and a cat.", other)
