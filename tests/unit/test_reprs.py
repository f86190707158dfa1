"""Nothing that a notebook or a log may show is longer than 200 characters, or than one line."""

from __future__ import annotations

from typing import Any

import pytest

import scapo_eval
from scapo_eval import AliasMatcher, PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary
from scapo_eval.base.errors import FaultList
from scapo_eval.base.types import Answer
from scapo_eval.benchmarks.capscore import CaptionScorer
from scapo_eval.benchmarks.join import join
from scapo_eval.benchmarks.questions import Question, plain_key
from scapo_eval.files.records import Records
from scapo_eval.readers.captions import captions_of, iter_blocks
from scapo_eval.results.benchmark import benchmark, benchmarks
from scapo_eval.truths.oracle import Truth

LONG = "a dog and a cat " * 1000


def public_objects() -> dict[str, Any]:
    vocabulary = Vocabulary.from_mapping(
        {f"label{k}": [f"alias {k}"] for k in range(500)} | {"dog": ["dog"]}, name=LONG
    )
    oracle = PresenceOracle.from_objects({k: ["dog"] for k in range(500)}, source=LONG)
    records = [{"image_id": k, "caption": LONG} for k in range(500)]
    run = scapo_eval.score(records, truth=oracle, vocabulary=vocabulary, resamples=10, name=LONG)
    reward = SubsentenceReward(vocabulary, oracle)
    results = reward(list(range(50)), [LONG] * 50)
    matcher = AliasMatcher(vocabulary)
    captions = captions_of("x", enumerate(records), FaultList())
    truth = Truth.of(oracle, vocabulary)
    scorer = CaptionScorer((truth, truth))
    question, answer = Question("1", "yes", text=LONG), Answer("1", LONG + "yes", question=LONG)
    joined = join([answer], [question], lambda text: "yes", source="x", key=plain_key)
    found = {
        "vocabulary": vocabulary, "label info": Vocabulary.load("coco80").info["dog"], "matcher": matcher,
        "oracle": oracle, "truth": truth, "run": run, "results": scapo_eval.compare([run, run]),
        "metric": run.metrics["hal_rate"], "signature": run.signature, "table": run.table, "set": run.metric_set,
        "resampling": run.resampling, "reward": reward, "config": RewardConfig(), "result": results[0],
        "columns": results[0].columns, "part": results[0].parts[0], "mention": matcher.find(LONG)[0],
        "mentions": matcher.find_batch([LONG] * 50), "subsentence": scapo_eval.split_subsentences(LONG)[0],
        "captions": captions, "records": Records("x", records), "block": next(iter_blocks(Records("x", records))),
        "scorer": scorer, "scored": scorer.score(captions, "x", FaultList()), "question": question, "answer": answer,
        "joined": joined, "graded": joined.graded[0],
    }  # fmt: skip
    return found | {record.name: record for record in benchmarks()}


@pytest.mark.slow
def test_reprs_are_one_short_line() -> None:
    too_long = {name: len(repr(each)) for name, each in public_objects().items() if len(repr(each)) > 200}
    assert too_long == {}
    assert [name for name, each in public_objects().items() if "\n" in repr(each)] == []


def test_reprs_say_what_there_is() -> None:
    assert [repr(each) for each in benchmarks()][:2] == [
        "<Benchmark capscore: Captions>",
        "<Benchmark claimscore: Claims>",
    ]
    assert repr(benchmark("yesno")) == "<YesNoBenchmark yesno: Yes/no>"
    vocabulary = Vocabulary.load("coco80")
    assert repr(vocabulary).startswith("<Vocabulary coco80: 80 labels, ")
    oracle = PresenceOracle.from_objects({1: ["dog"], 2: []}, labels=["dog", "cat"])
    assert repr(oracle) == "<PresenceOracle 2 images, 2 labels, closed: mapping>"
    run = scapo_eval.score([{"image_id": 1, "caption": "a dog and a cat"}], truth=oracle, resamples=0, name="mine")
    assert repr(run) == "<CaptionScores mine: hal_rate=0.5, cover_rate=1, cap_score=0.6667, 1 records, 1 images>"
    assert repr(run.table) == "<CountTable columns=9 items, image_ids=1 items, rows=int64[1, 9], cells=uint64[1]>"
    (result,) = SubsentenceReward(vocabulary, oracle)([1], ["A dog runs over the grass. A cat sleeps on the couch."])
    assert repr(result) == "<RewardResult total=0: 2 pieces, 1 of 2 labels supported, 1 hallucinated>"
