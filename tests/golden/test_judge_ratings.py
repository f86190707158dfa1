"""Official rating rule on 96 real verdicts."""

from __future__ import annotations

import json
from pathlib import Path

from scapo_eval.benchmarks.mmhal import TYPES, mmhal_run, parse_rating, read_ratings


def test_the_rule_agrees_with_every_published_rating(shared: Path, tmp_path: Path) -> None:
    path = shared / "data" / "captions_real" / "mmhal_bench_qwen3vl4b.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [parse_rating(row["judge_text"]) for row in rows] == [row["rating"] for row in rows]
    found = mmhal_run("x", read_ratings(path)).values
    assert found["mmhal_score"] == sum(row["rating"] for row in rows) / 96 == 359 / 96
    assert found["mmhal_hal"] == 44 / 96

    bare = tmp_path / "evaluation.json"  # the official output has neither ratings nor types
    bare.write_text(json.dumps([{"choices": [{"message": {"content": row["judge_text"]}}]} for row in rows]))
    assert mmhal_run("x", read_ratings(bare)).values == found
    for question_type in TYPES:
        ratings = [row["rating"] for row in rows if row["question_type"] == question_type]
        assert found[f"{question_type}_score"] == sum(ratings) / 12
        assert found[f"{question_type}_hal"] == sum(rating < 3 for rating in ratings) / 12
