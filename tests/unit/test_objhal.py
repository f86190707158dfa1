"""Object HalBench: rates on hand-made descriptions, matched and listed by a judge; what a judge's words are read as."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scapo_eval import InputError, PresenceOracle, Vocabulary
from scapo_eval.base.errors import InputErrors
from scapo_eval.benchmarks.chair import Native, Profile, Reference, Synonyms, score_chair
from scapo_eval.benchmarks.objhal import score_objhal
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.cli.main import cli
from scapo_eval.inference.answer import read_questions as read_prompts
from scapo_eval.inference.judge_objects import read_objects
from scapo_eval.inference.sources import ImageFolder
from scapo_eval.readers.captions_foreign import captions_of
from scapo_eval.readers.formats import open_layout
from scapo_eval.results.results import Resampling, Run, load_results

TRUTH = PresenceOracle.from_objects(
    {1: ["dog", "car"], 2: ["dog"], 3: ["cat"], 4: ["car"]}, labels=["dog", "cat", "car", "wine glass"]
)
NATIVE = Native(Vocabulary.load("coco80"))
SYNONYMS = Synonyms("four", {"dog": "dog", "puppy": "dog", "cat": "cat", "car": "car", "wine glass": "wine glass"})
ROWS = [
    {"image_id": 1, "caption": "A dog runs after a dog and a cat.", "extracted": ["dog", "Dog", "a cat"]},
    {"image_id": 2, "caption": "A puppy beside a dog in the sun.", "extracted": ["puppy", "dog", "sun"]},
    {"image_id": 3, "caption": "Nothing much is here.", "extracted": []},
    {"image_id": 4, "caption": "Cars and wine glasses, no cat.", "extracted": ["cars", "wine glasses"]},
]


def lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def scored(path: Path, profile: Profile = NATIVE, **options: Any) -> Run:
    return score_objhal(path, profile, TRUTH, ScoringOptions(**options), resampling=Resampling(0))


@pytest.mark.parametrize("profile", [NATIVE, Reference(SYNONYMS)], ids=lambda p: p.name)
def test_listed_objects(tmp_path: Path, profile: Profile) -> None:
    """Each listed name counts once: dog, cat!; puppy, dog; none; car, wine glass!"""
    run = scored(lines(tmp_path / "x.jsonl", ROWS), profile)
    assert run.values["chair_s"] == 2 / 4
    assert run.values["chair_s_refined"] == 2 / 3
    assert run.values["chair_i"] == 2 / 6
    assert run.values["recall"] == 3 / 5
    assert run.values["len"] == (9 + 8 + 4 + 6) / 4
    assert "|objects:judge|judge:unnamed|" in run.signature


def test_matched_objects_are_chairs(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", ({k: v for k, v in row.items() if k != "extracted"} for row in ROWS))
    for profile in (NATIVE, Reference(SYNONYMS)):
        run = scored(path, profile)
        chair = score_chair(path, profile, TRUTH, resampling=Resampling(0))
        assert {**run.counts, "object_captions": 0, "words": 0} == {**chair.counts, "object_captions": 0, "words": 0}
        assert run.values["len"] == (9 + 8 + 4 + 6) / 4  # words between spaces, as the benchmark counts them
        assert run.values["chair_s_refined"] == chair.counts["hallucinated_captions"] / 3
        assert "|objects:matcher|" in run.signature
    with_lists = lines(tmp_path / "y.jsonl", ROWS)
    by_matcher = score_objhal(with_lists, NATIVE, TRUTH, source="matcher", resampling=Resampling(0))
    assert by_matcher.values == scored(path).values


def test_unread_lists_are_counted_and_never_guessed(tmp_path: Path) -> None:
    told = {"judge_model": "J", "judge_prompt": "ab12"}
    rows = [{**row, **told, "extracted": None if row["image_id"] == 3 else row["extracted"]} for row in ROWS]
    run = scored(lines(tmp_path / "x.jsonl", rows))
    assert (run.counts["unread"], run.n_records, run.n_images) == (1, 3, 3)
    assert run.values["chair_s"] == 2 / 3
    assert "|judge:J|prompt:ab12|" in run.signature
    assert "|unrated:1|" in run.signature
    assert "1 captions omitted: the judge's lists for them could not be read" in run.notes
    cut = scored(lines(tmp_path / "y.jsonl", ({**row, "unfinished": "dropped"} for row in ROWS)))
    assert "|unfinished:dropped|" in cut.signature


def test_the_benchmarks_own_requests_can_be_answered_and_scored(tmp_path: Path) -> None:
    requests = [{"image_id": k, "question": f"Describe {k}!", "image": "A" * 5000} for k in (1, 2)]
    asked = read_prompts([str(lines(tmp_path / "q.jsonl", requests))], ImageFolder(None))
    assert [(each.id, each.prompt, each.image) for each in asked] == [
        ("objhal/1", "Describe 1!", "1"), ("objhal/2", "Describe 2!", "2"),
    ]  # fmt: skip
    answers = [{"id": each.id, "response": "There is a dog.", **each.record} for each in asked]
    path = lines(tmp_path / "a.jsonl", answers)
    assert scored(path).values["chair_s"] == 0
    assert [each.prompt for each in captions_of(open_layout(path))] == ["Describe 1!", "Describe 2!"]


def test_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for changed, message in (
        ({"extracted": "dog"}, "line 2|'extracted' must be a list of strings or null, not a string"),
        ({"caption": ROWS[0]["caption"]}, "this caption has two different lists"),
        ({"judge_model": "other"}, r"lists were made in different ways: unnamed \(prompt unknown\) and other"),
        ({"image_id": 99}, "unknown image id '99'"),
        ({"image_id": None}, "'image_id'"),
    ):
        lines(path, [ROWS[0], {**ROWS[1], **changed}])
        with pytest.raises((InputError, InputErrors), match=message):
            scored(path)
    lines(path, [*ROWS, {"image_id": 1, "caption": "x"}])
    with pytest.raises(InputErrors, match="missing key 'extracted'"):
        scored(path)
    assert scored(path, skip_bad=True).counts["skipped"] == 1
    with pytest.raises(InputError, match="use --drop-unfinished with judge objhal"):
        scored(path, drop_unfinished=True)
    lines(path, [{**row, "extracted": None} for row in ROWS])
    with pytest.raises(InputError, match="none of the 4 lists could be read"):
        scored(path)


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ('["dog", "hot  dog"]', ["dog", "hot dog"]),
        ('```json\n["dog"]\n```', ["dog"]),
        ("The objects: []", []),
        ('["dog", "dog", ""]', ["dog"]),
        ("dog, cat", None),
        ("I'm sorry, I can't.", None),
        ('["dog", "ca', None),
        ("]dog[", None),
        ('["dog"] or ["cat"]', None),
        ('["dog", 3]', None),
        ('{"objects": "dog"}', None),
        ("", None),
    ],
)
def test_what_a_judge_says(text: str, objects: list[str] | None) -> None:
    assert read_objects(text) == objects


def test_the_verb_its_evidence_and_its_results(tmp_path: Path) -> None:
    listed, plain = lines(tmp_path / "listed.jsonl", ROWS), tmp_path / "plain.jsonl"
    lines(plain, ({k: v for k, v in row.items() if k != "extracted"} for row in ROWS))
    TRUTH.save(tmp_path / "truth.json")
    arguments = ["--truth", str(tmp_path / "truth.json"), "--json"]
    evidence, results = tmp_path / "e.jsonl", tmp_path / "r.json"
    first = CliRunner().invoke(
        cli, ["objhal", str(listed), *arguments, "--per-caption", str(evidence), "-o", str(results)]
    )
    assert json.loads(first.stdout)["systems"][0]["metrics"]["chair_s_refined"]["value"] == 2 / 3
    assert load_results(results)[0].counts["object_captions"] == 3
    assert [json.loads(line)["extracted"] for line in evidence.read_text().splitlines()][1] == ["puppy", "dog", "sun"]
    both = CliRunner().invoke(cli, ["objhal", str(listed), str(plain), *arguments])
    assert "objects: matcher against judge" in str(both.exception)
    allowed = CliRunner().invoke(cli, ["objhal", str(listed), str(plain), *arguments, "--allow-different"])
    assert json.loads(allowed.stdout)["comparisons"][0]["differing"] == ["objects", "judge"]
