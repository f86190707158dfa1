"""A reading that asks a language model while a reward is computed."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from scapo_eval import InputError, RewardConfig, RewardResult, ScapoError, SubsentenceReward, UsesJudge
from scapo_eval.engines import Completion, Request
from scapo_eval.engines.base import OnCompletion

GHOST, DOG, MUMBLED, DOWN = "The ghost of a car.", "A dog runs. A dog runs.", "A car: mumble.", "A car: down."


class Sleepy:
    """An engine for which everything about a ghost is generic, "mumble" is unreadable, and "down" fails."""

    identity: Mapping[str, Any] = {"model": "sleepy"}
    card: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_up = False

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        for request in requests:
            text = request.turns[-1].text
            self.asked.append(text)
            numbers = re.findall(r"\[\[(\d+):", text)
            said = "{" + ", ".join(f'"{k}": "{"generic" if "ghost" in text else "claim"}"' for k in numbers) + "}"
            if "down" in text and not self.is_up:
                done(request, Completion(error="the server is down"))
            else:
                done(request, Completion(text="hm" if "mumble" in text else said))

    def close(self) -> None:
        pass


def totals(results: Sequence[RewardResult]) -> list[float]:
    return [result.total for result in results]


def test_a_reward_asks_each_new_text_once_and_goes_on_with_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oracle = {"1": ["dog"]}
    texts, engine = [GHOST, DOG, "", MUMBLED, DOWN, GHOST], Sleepy()
    judge = UsesJudge(engine, "coco80", journal=tmp_path / "uses.journal")
    reward = SubsentenceReward("coco80", oracle, RewardConfig(claims=judge))
    given = reward(["1"] * 6, texts)
    by_rules = SubsentenceReward("coco80", oracle, RewardConfig(claims="visual"))(["1"] * 6, texts)
    # the rules count the car of which only a ghost is there, as they count those of the texts that were not judged
    assert by_rules[0].total == -1
    assert given[0].total == given[5].total == -0.1
    assert totals(given[1:5]) == totals(by_rules[1:5])
    assert sum("ghost" in text for text in engine.asked) == 1
    assert judge.unjudged(texts) == 2
    assert "2 of 4 texts were not judged, and rules determine their uses (the first error: the server is down)" in (
        caplog.text
    )

    with pytest.raises(ScapoError, match="cannot be sent to other processes; judge the captions with scapo-eval"):
        pickle.dumps(judge)

    asked = len(engine.asked)
    assert totals(reward(["1"] * 6, texts)) == totals(given)
    assert len(engine.asked) == asked + 1  # only the text whose request failed
    engine.is_up = True
    reward(["1"] * 6, texts)
    assert (len(engine.asked), judge.unjudged(texts)) == (asked + 2, 1)
    judge.close()

    again = Sleepy()
    resumed = UsesJudge(again, "coco80", journal=tmp_path / "uses.journal")
    reward = SubsentenceReward("coco80", oracle, RewardConfig(claims=resumed))
    assert totals(reward(["1"] * 6, texts)) == totals(given)
    assert not any("ghost" in text or "runs" in text for text in again.asked)
    assert "visual" in str(reward.signature)
    assert "sleepy" in str(reward.signature)
    resumed.close()


def test_the_reading_all_needs_no_judge(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the reading all counts every mention and needs no judge"):
        UsesJudge(Sleepy(), "coco80", "all", journal=tmp_path / "uses.journal")
