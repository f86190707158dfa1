"""What users of the Python interface naturally get wrong, or write differently, is read as meant or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scapo_eval
from scapo_eval import CountedBenchmark, InputError, ratio
from scapo_eval.benchmarks.pairs import PairSettings, pair_file
from scapo_eval.benchmarks.systems import function_of
from scapo_eval.files.records import Records
from scapo_eval.integrations import viewers
from scapo_eval.integrations.counting import CaptionCounter
from scapo_eval.results.results import unique_names

ROWS = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(40)]
RUN = scapo_eval.score(ROWS, name="same", resamples=10)


def test_one_word_for_yes_is_a_word() -> None:
    answers = [{"id": k, "response": "Oui.", "label": "yes"} for k in range(4)]
    assert scapo_eval.yesno(answers, yes="oui", resamples=0).values["accuracy"] == 1
    with pytest.raises(InputError, match="the words for yes and no must be strings, got None"):
        scapo_eval.yesno(answers, yes=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda texts: pd.Series(texts, index=[2, 0, 1]), iter, np.array, tuple])
def test_texts_may_be_any_series(make: Callable[[list[str]], Any]) -> None:
    texts = ["A dog.", "A cat and a red car.", "x"]
    matcher, claims = scapo_eval.AliasMatcher("coco80"), scapo_eval.ClaimExtractor("coco80")
    assert matcher.find_batch(make(texts)).label_id.tolist() == matcher.find_batch(texts).label_id.tolist()
    assert claims.find_batch(make(texts)) == claims.find_batch(texts)
    for faulty in (None, "A dog.", 7):
        with pytest.raises(InputError, match="expected a list of texts"):
            claims.find_batch(faulty)  # type: ignore[arg-type]


def test_options_of_python_functions_are_checked_like_those_of_the_command_line() -> None:
    for objects in ("Judge", ""):
        with pytest.raises(InputError, match="objects must be one of"):
            scapo_eval.objhal(ROWS, objects=objects)
    long = CountedBenchmark(
        name="long",
        count=lambda record, *, least=3: {"long": int(len(record["caption"]) >= least), "all": 1},
        columns=("long", "all"),
        formulas={"long_rate": ratio("long", "all")},
        options={"least": scapo_eval.Option(help="Least length.", at_least=1)},
    )
    scored = function_of(long)
    assert scored is not None
    assert scored(ROWS, least=3).values["long_rate"] == 1
    for least in (0, -5, 1.5, True, "3"):
        with pytest.raises(InputError, match="least must be a whole number of at least 1, got"):
            scored(ROWS, least=least)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"formulas": {"rate": ratio("digitz", "all")}}, "has no column 'digitz'"),
        ({"columns": "all"}, "columns must be a list of names, got 'all'"),
        ({"headline": ("x",)}, "has no metric 'x'"),
    ],
)
def test_a_counted_benchmark_names_what_it_does_not_have(fields: dict[str, Any], message: str) -> None:
    known = {"columns": ("digits", "all"), "formulas": {"rate": ratio("digits", "all")}}
    with pytest.raises(InputError, match=message):
        CountedBenchmark(name="digits", count=lambda record: {}, **{**known, **fields})


def test_finished_has_one_value_for_each_response() -> None:
    reward = scapo_eval.SubsentenceReward("coco80", {1: ["dog"]})
    columns = reward.batch([1, 1], ["A dog.", "A cat."])
    offsets = [[(0, 1), (2, 5), (5, 6), (6, 6)]] * 2
    for finished in ([True], [True] * 3, ["no", "no"], None):
        with pytest.raises(InputError, match="finished must be True or False, or a list of 2 such values"):
            columns.token_advantages(offsets, eos="last", finished=finished)
    ended, unended = columns.token_advantages(offsets, eos="last", finished=[True, False])
    assert (ended[-1], unended[-1]) == (1, 0)


def test_viewers_show_the_hallucinated_labels_of_the_cap_score() -> None:
    line = viewers._with_hallucinated(scapo_eval.evidence(RUN)[0])
    assert (line["hallucinated"], line["missed"]) == (["cat"], ["couch"])
    assert viewers._with_hallucinated({"hallucinated": ["a"], "mentions": []})["hallucinated"] == ["a"]


def test_runs_with_equal_names_stay_apart() -> None:
    other = scapo_eval.score(ROWS, name="same#1", resamples=10)
    assert [run.name for run in unique_names([RUN, RUN, other])] == ["same#2", "same#3", "same#1"]
    figure = scapo_eval.plots.differences([RUN, RUN, RUN], ["hal_rate"])
    assert {tick.get_text() for tick in figure.axes[0].get_yticklabels()} == {"same#2", "same#3"}


def test_what_cannot_be_drawn_or_compared_is_named() -> None:
    for draw in (scapo_eval.plots.differences, scapo_eval.plots.frontier, scapo_eval.plots.faithscore):
        for nothing in ([], ["a.json"]):
            with pytest.raises(InputError, match="nothing to draw"):
                draw(nothing)
    with pytest.raises(InputError, match="unknown style 'widht'"):
        scapo_eval.plots.frontier(RUN, widht="column")
    with pytest.raises(InputError, match="not a valid width"):
        scapo_eval.plots.Style(width=None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a training run"):
        scapo_eval.plots.training("nowhere")
    results = scapo_eval.compare([RUN, RUN])
    assert [run.name for run in scapo_eval.compare(results).runs] == [run.name for run in results.runs]
    with pytest.raises(InputError, match="expected runs"):
        scapo_eval.compare(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="test must be one of"):
        scapo_eval.compare([RUN], test="ttest")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="dopa_vocabulary requires dopa"):
        scapo_eval.score(ROWS, dopa_vocabulary="coco80")
    for pilot in (["a.json"], [1]):
        with pytest.raises(InputError, match="the pilot must be results"):
            scapo_eval.power(pilot)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="labels must be a mapping"):
        scapo_eval.Vocabulary.from_mapping(["dog"])  # type: ignore[arg-type]


def test_one_prefix_of_a_trail_is_a_prefix() -> None:
    runs = [scapo_eval.score(ROWS, name=name, resamples=10) for name in ("ours-1", "ours-2", "reference", "run")]
    one, several = (scapo_eval.plots.frontier(runs, trails=trails) for trails in ("ours-", ["ours-"]))
    assert len(one.axes[0].lines) == len(several.axes[0].lines)


def test_validation_reads_generators_and_checks_its_numbers() -> None:
    rows = [
        {"id": k, "image_id": k, "caption": f"A {'dog' if k % 3 else 'cat'}.", "rating": k % 5, "system": "ab"[k % 2]}
        for k in range(90)
    ]
    truth = {k: ["dog"] for k in range(90)}
    found = scapo_eval.validate(rows, truth=truth, metrics=["hal_rate"], without=(x for x in ["b"]), resamples=0)
    assert {each.n for each in found.agreements} == {45}
    for wrong in ({"resamples": -1}, {"resamples": 1.5}, {"seed": -1}, {"seed": None}):
        with pytest.raises(InputError, match="must be a whole number of at least 0"):
            scapo_eval.validate(rows, truth=truth, **wrong)
    with pytest.raises(InputError, match="scores must be a mapping"):
        scapo_eval.validate(rows, truth=truth, scores=[1])  # type: ignore[arg-type]


def test_evidence_is_that_of_the_scored_captions() -> None:
    rows = [dict(row) for row in ROWS]
    scored = scapo_eval.score_captions(rows)
    for row in rows:
        row["caption"] = "A couch."
    assert scapo_eval.evidence(scored)[0]["caption"] == "A dog and a cat."


def test_captions_may_name_the_file_of_an_image_differently() -> None:
    rows = [{"image_id": f"val/im{k}.png", "caption": "A dog on a couch."} for k in range(3)]
    references = {f"im{k}.jpg": ["A dog on a couch.", "A dog."] for k in range(3)}
    same = [{**row, "image_id": row["image_id"][4:-3] + "jpg"} for row in rows]
    for how in ({}, {"leave_out_self": True}, {"truth": {f"im{k}.jpg": ["dog"] for k in range(3)}}):
        one, other = (scapo_eval.score(given, references=references, resamples=0, **how) for given in (rows, same))
        assert {k: v for k, v in one.values.items() if v == v} == {k: v for k, v in other.values.items() if v == v}
    counter = CaptionCounter.of({"cat.jpg": ["cat"]})
    assert counter.evidence("val/cat.png", "A cat and a dog.")["hallucinated"] == ["dog"]
    counts = [counter.counts("cat.jpg", text) for text in ("A cat.", "A dog.")]
    assert counter.values(iter(counts)) == counter.values(counts)
    records = [{"image_id": "val/cat.png", "prompt": "Say.", "response": text} for text in ("A cat.", "A dog.")]
    pairs: list[Any] = []
    oracle = scapo_eval.PresenceOracle.of({"cat.jpg": ["cat"]})
    pair_file(Records("x", records), scapo_eval.Vocabulary.of("coco80"), oracle, PairSettings(), write=pairs.append)
    assert [(pair.chosen.text, pair.rejected.text) for pair in pairs] == [("A cat.", "A dog.")]
