"""MMHal-Bench ratings and FaithScore facts: parsing, figures, the verbs, bad input."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError, InputErrors, ScapoError
from scapo_eval.benchmarks.faithscore import (
    SHARE_UNIT,
    Facts,
    faithscore_metrics,
    faithscore_run,
    read_facts,
    settings_of,
)
from scapo_eval.benchmarks.mmhal import TYPES, Rating, mmhal_run, parse_rating, read_ratings
from scapo_eval.cli.main import cli, main
from scapo_eval.results.comparison import compare
from scapo_eval.results.results import Resampling


def lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def completion(text: str) -> dict[str, Any]:
    return {"model": "gpt-4-0314", "choices": [{"message": {"role": "assistant", "content": text}}]}


def verdicts(total: int, hallucinated: int) -> list[int]:
    """96 ratings with this sum, this many of them below 3."""
    ratings = [0] * hallucinated + [3] * (96 - hallucinated)
    for k in range(96):
        room = 2 if k < hallucinated else 3
        step = max(0, min(room, total - sum(ratings)))
        ratings[k] += step
    assert sum(ratings) == total
    return ratings


def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, args)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capfd.readouterr()
    return int(left.value.code or 0), out, err


# --- MMHal-Bench ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Fine.\n\n- Rating: 6, very informative, no hallucination", 6),
        ("**RATING: 0**", 0),
        ("Rating: 3. Again, Rating: 3.", 3),
        ("Rating: 3 or Rating: 4", None),
        ("I would rate it 5.", None),
        ("Rating:5", None),  # the official rule wants the space
        ("Rating: 7", None),
        ("", None),
    ],
)
def test_rating_by_the_official_rule(text: str, rating: int | None) -> None:
    assert parse_rating(text) == rating


@pytest.mark.parametrize(
    ("total", "score", "hallucinated", "rate"),
    [
        (313, 3.26, 38, 39.6), (331, 3.45, 33, 34.4), (338, 3.52, 32, 33.3),
        (334, 3.48, 32, 33.3), (327, 3.41, 36, 37.5), (332, 3.46, 33, 34.4),
    ],
)  # fmt: skip
def test_the_papers_scores_are_ninety_sixths(
    tmp_path: Path, total: int, score: float, hallucinated: int, rate: float
) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps([completion(f"- Rating: {r}, x") for r in verdicts(total, hallucinated)]))
    scored = mmhal_run("x", read_ratings(path))
    found = scored.values
    assert found["mmhal_score"] == total / 96
    assert round(total / 96, 2) == score
    assert found["mmhal_hal"] == hallucinated / 96
    assert round(100 * hallucinated / 96, 1) == rate
    assert scored.printed["mmhal_score"] == score
    assert "judge:gpt-4-0314" in scored.signature


def test_types_by_the_official_order_and_by_name(tmp_path: Path) -> None:
    ratings = [k % 8 % 7 for k in range(96)]
    path = tmp_path / "texts.json"
    path.write_text(json.dumps([f"rating: {rating}" for rating in ratings]))
    by_order = read_ratings(path)
    assert [rating.question_type for rating in by_order[:9]] == [*TYPES, "attribute"]
    scored = mmhal_run("x", by_order)
    found = scored.values
    assert [found[f"{t}_score"] for t in TYPES] == [0, 1, 2, 3, 4, 5, 6, 0]
    assert [found[f"{t}_hal"] for t in TYPES] == [1, 1, 1, 0, 0, 0, 0, 1]
    named = lines(tmp_path / "named.jsonl", [{"rating": 4, "question_type": "Holistic"}, {"rating": 2}])
    assert [rating.question_type for rating in read_ratings(named)] == ["holistic", None]


def test_ids_pair_and_type_answers_in_any_order(tmp_path: Path) -> None:
    records = [{"id": f"mmhal/{k}", "rating": k % 7} for k in range(1, 97)]
    files = [lines(tmp_path / f"{k}.jsonl", each) for k, each in enumerate((records, records[::-1]))]
    runs = [mmhal_run(path.stem, read_ratings(path)) for path in files]
    assert runs[0].values == runs[1].values
    assert runs[0].values["attribute_score"] == sum(k % 7 for k in range(1, 97, 8)) / 12
    (row,) = (row for row in compare(runs).comparisons if row["metric"] == "mmhal_score")
    assert (row["n_images"], row["n_differing"]) == (96, 0)


def test_unparsed_verdicts_are_left_out_and_said(tmp_path: Path) -> None:
    texts = ["rating: 6"] * 94 + [None, "rating: 1 or rating: 2"]
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(texts))
    scored = mmhal_run("x", read_ratings(path))
    assert scored.values["mmhal_score"] == 6
    assert scored.other_counts == {"unparsed": 2, "missing": 0}
    assert scored.printed == {
        "mmhal_score": 5.88,
        "mmhal_hal": 0.02,
        "informativeness": 97.92,
    }  # the official script
    assert "2 verdicts" in scored.notes[0]


def test_a_partial_run_says_its_share() -> None:
    scored = mmhal_run("x", [Rating(k, str(k), 5, None) for k in range(48)])
    assert scored.counts["missing"] == 48
    assert scored.notes == ("48 of MMHal-Bench's 96 questions (50%)",)
    assert not scored.printed
    assert scored.values["attribute_score"] is None


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{"rating": 7}], "1: 'rating' must be a whole number from 0 to 6, got 7"),
        ([{"rating": 3.5}], "1: 'rating' must be a string or a whole number, not 3.5"),
        ([{"rating": True}], "1: 'rating' must be"),
        ([{"rating": 1}, {"question": "x"}], "2: missing key 'rating' or 'judge_text' (found: question)"),
        (
            [{"question": "x"}] * 3,
            "1: missing key 'rating' or 'judge_text' (found: question) (3 records, lines 1-3); none of the 3 records",
        ),
        ([{"model_answer": "x"}], "these are answers: rate them first"),
        ([{"choices": []}], "a chat completion without choices[0].message.content"),
        ([{"rating": 1, "question_type": "odd"}], "unknown question_type 'odd'"),
        ([{"judge_text": "good"}], "none of the 1 verdicts contains a rating (Rating: 0 to 6)"),
        (
            [{"rating": 1, "image_id": "a"}, {"rating": 2, "image_id": "a"}],
            "2: a second rating of the question on line 1",
        ),
        ([{"rating": 1, "model": "a"}, {"rating": 2, "model": "b"}], "2: several models in one file ('a', 'b')"),
        ([[["x"]]], "1: the judge's text must be a string, not an array"),
    ],
)
def test_ratings_that_cannot_be_used(tmp_path: Path, records: list[Any], reason: str) -> None:
    with pytest.raises(ScapoError) as refused:
        read_ratings(lines(tmp_path / "r.jsonl", records))
    assert reason in str(refused.value)


def test_an_empty_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("[]")
    with pytest.raises(InputError, match="contains no record"):
        read_ratings(tmp_path / "r.json")


def test_mmhal_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    a = lines(tmp_path / "a.jsonl", [{"rating": r, "image_id": f"i{k}"} for k, r in enumerate(verdicts(313, 38))])
    b = lines(tmp_path / "b.jsonl", [{"rating": r, "image_id": f"i{k}"} for k, r in enumerate(verdicts(338, 32))])
    code, out, _ = run(capfd, monkeypatch, "mmhal", a, b, "--json", "--resamples", 50)
    found = json.loads(out)
    assert code == 0
    assert [system["metrics"]["mmhal_score"]["value"] for system in found["systems"]] == [313 / 96, 338 / 96]
    difference = next(row for row in found["comparisons"] if row["metric"] == "mmhal_score")
    assert difference["difference"] == pytest.approx(25 / 96, abs=1e-12)
    assert difference["n_images"] == 96
    code, out, err = run(capfd, monkeypatch, "mmhal", tmp_path / "absent.json")
    assert (code, out) == (2, "")
    assert "absent.json: file not found" in err


# --- FaithScore -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "facts", "verified"),
    [
        ({"facts": ["a", "b", "c"], "verified": [1, 0, True]}, 3, 2),
        ({"facts": ["a", "b", "c"], "verified": ["c", "a"]}, 3, 2),
        ({"facts": 12, "verified": 10}, 12, 10),
        ({"facts": ["a", "b"], "verified": 1}, 2, 1),
        ({"facts": [], "verified": []}, 0, 0),
        ({"atomic_facts": ["a", "b"], "fs_list": [0, 1], "faith_score": 0.5}, 2, 1),
        ({"fact_scores": [1, 1, 0]}, 3, 2),
        ({"facts": ["a", ["b"], 1], "verified": ["a"]}, 3, 1),
        (
            {"facts": [f"{k}" for k in range(10**5)], "verified": [f"{k}" for k in range(10**5)]},
            10**5,
            10**5,
        ),  # a search takes minutes
    ],
    ids=range(9),
)
def test_facts_of_every_shape(tmp_path: Path, record: dict[str, Any], facts: int, verified: int) -> None:
    (found,) = read_facts(lines(tmp_path / "f.jsonl", [record]))
    assert (found.facts, found.verified) == (facts, verified)


def test_the_official_fact_scores_alone(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("[[1, 0], [], [1]]")
    assert [(f.facts, f.verified) for f in read_facts(tmp_path / "scores.json")] == [(2, 1), (0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{"facts": 2, "verified": 3}], "1: 3 verified of 2 facts"),
        ([{"facts": ["a"], "verified": [1, 1]}], "1: 2 verdicts on 1 facts"),
        ([{"facts": ["a"], "verified": ["b"]}], "list of some of the facts"),
        ([{"facts": -1, "verified": 0}], "'facts' must be a list or a count"),
        ([{"facts": ["a"]}], "missing key 'verified' (found: facts)"),
        ([{"id": 1, "facts": 1, "verified": 1}] * 2, "2: id '1' appears twice (lines 1 and 2)"),
        ([{"faithscore": 0.9, "num_samples": 10}], "only FaithScore's mean"),
    ],
)
def test_facts_that_cannot_be_used(tmp_path: Path, records: list[Any], reason: str) -> None:
    with pytest.raises(InputErrors) as refused:
        read_facts(lines(tmp_path / "f.jsonl", records))
    assert reason in str(refused.value)


def test_a_mean_of_ratios_not_a_ratio_of_sums() -> None:
    run_ = [Facts(1, "a", 10, 10), Facts(2, "b", 2, 1), Facts(3, "c", 0, 0)]
    scored = faithscore_run("x", run_, [])
    assert scored.values == {"faithscore": 0.75, "avg_facts": 4.0}
    assert scored.printed == {"faithscore": 0.5}  # the official script takes an answer without facts as 0
    assert scored.other_counts == {"without_facts": 1}


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1)), min_size=1, max_size=50))
def test_fixed_point_agrees_with_fractions(answers: list[tuple[int, float]]) -> None:
    run_ = [Facts(k, f"i{k}", facts, round(facts * share)) for k, (facts, share) in enumerate(answers)]
    exact = sum((Fraction(f.verified, f.facts) for f in run_), Fraction()) / len(run_)
    scored = faithscore_run("x", run_, [])
    found = scored.values["faithscore"]
    assert found == pytest.approx(float(exact), abs=1e-12)
    if all(f.facts <= 30 for f in run_):
        assert Fraction(scored.table.counts()["share"], SHARE_UNIT) / len(run_) == exact


def test_answers_without_names_are_never_paired(tmp_path: Path) -> None:
    nameless = [Facts(k, None, 2, 1) for k in range(1, 41)]
    runs = [faithscore_run(name, nameless, []) for name in "ab"]
    found = compare(runs, resampling=Resampling(50))
    assert {row["n_images"] for row in found.comparisons} == {0}
    assert "|ids:none|" in runs[0].signature
    numbered = read_facts(lines(tmp_path / "f.jsonl", [{"id": 7, "facts": 1, "verified": 1}]))
    assert numbered[0].image == "7"
    part = [Rating(k, None, 5, None) for k in range(1, 41)]
    assert not set(mmhal_run("a", part).table.image_ids) & set(mmhal_run("b", part).table.image_ids)
    full = [Rating(k, None, 5, None) for k in range(1, 97)]  # the benchmark's own order is an id
    assert mmhal_run("a", full).table.image_ids == mmhal_run("b", full).table.image_ids


def test_settings_side_by_side() -> None:
    run_ = [Facts(1, "a", 4, 4, "detailed"), Facts(2, "b", 4, 2, "detailed"), Facts(3, "c", 2, 1, "coco_cap")]
    other = [Facts(1, "a", 8, 4, "detailed")]
    settings = settings_of([run_, other])
    assert settings == ["detailed", "coco_cap"]
    runs = [faithscore_run("a", run_, settings), faithscore_run("b", other, settings)]
    first, second = compare(runs, resampling=Resampling(0)).runs
    assert first.metrics["detailed_faithscore"].value == 0.75
    assert first.metrics["detailed_avg_facts"].value == 4
    assert first.metrics["coco_cap_faithscore"].value == 0.5
    assert second.metrics["coco_cap_faithscore"].value is None
    assert faithscore_metrics(settings).plain_numbers == {"avg_facts", "detailed_avg_facts", "coco_cap_avg_facts"}


def test_a_setting_is_given_once(tmp_path: Path) -> None:
    files = [lines(tmp_path / f"{k}.jsonl", [{"id": 7, "facts": 1, "verified": 1}]) for k in "ab"]
    said = CliRunner().invoke(cli, ["faithscore", *(f"x/detailed={file}" for file in files)])
    assert said.exit_code == 2
    assert "'x/detailed' appears twice" in said.output


def test_an_answer_without_facts_has_no_share() -> None:
    scored = faithscore_run("x", [Facts(1, "a", 0, 0)], [])
    assert scored.values == {"faithscore": None, "avg_facts": 0.0}
    assert np.array_equal(scored.table.total, [1, 0, 0, 0, 0])


def test_faithscore_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    a = lines(tmp_path / "a.jsonl", [{"id": 1, "facts": 4, "verified": 3}])
    b = lines(tmp_path / "b.jsonl", [{"id": 1, "facts": 2, "verified": 1}])
    code, out, _ = run(capfd, monkeypatch, "faithscore", f"x/detailed={a}", f"x/brief={b}", f"y/detailed={b}", "--json")
    found = json.loads(out)
    assert code == 0
    assert [system["name"] for system in found["systems"]] == ["x", "y"]
    assert found["systems"][0]["metrics"]["detailed_faithscore"]["value"] == 0.75
    assert found["systems"][0]["metrics"]["brief_avg_facts"]["value"] == 2
    assert found["systems"][1]["metrics"]["brief_avg_facts"]["value"] is None
    code, out, err = run(capfd, monkeypatch, "faithscore", f"x={a}", f"x={b}")
    assert (code, out) == (2, "")
    assert "name the setting of each" in err
    code, _, err = run(capfd, monkeypatch, "faithscore", f"/detailed={a}")
    assert code == 2
    assert "expected SYSTEM/SETTING=FILE" in err
