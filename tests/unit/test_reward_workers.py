"""Rewards are the same in eight threads, in processes that are forked or spawned, and in Ray's workers.

And a call leaves no memory behind.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary

IDS = [1, 2] * 8
TEXTS = [
    "A dog runs over the lawn, chasing a red ball, and a cat sleeps on the old sofa.",
    "<think>A car?</think>## Scene\n\n- a cat\n- a dog\n---\nThere is no car \u2014 only a cat.",
] * 8

Rewards = list[tuple[list[float], list[float]]]
Score = Callable[[SubsentenceReward], Rewards]


def make() -> SubsentenceReward:
    vocabulary = Vocabulary.from_mapping({"dog": ["dog"], "cat": ["cat"], "car": ["car"]})
    oracle = PresenceOracle.from_objects({"1": ["dog"], "2": ["cat"]}, labels=vocabulary.labels)
    return SubsentenceReward(vocabulary, oracle, RewardConfig(rule="discourse", answer_only=True, claims="certain"))


def score(reward: SubsentenceReward) -> Rewards:
    """Rewards and token advantages of the texts, a token per character."""
    results = reward(IDS, TEXTS)
    offsets = [[(k, k + 1) for k in range(len(text))] for text in TEXTS]
    return [
        ([part.reward for part in result.parts], result.token_advantages(own).tolist())
        for result, own in zip(results, offsets, strict=True)
    ]


def in_threads(score: Score, reward: SubsentenceReward) -> list[Rewards]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(score, [reward] * 32))


def in_processes(method: str) -> Callable[[Score, SubsentenceReward], list[Rewards]]:
    def run(score: Score, reward: SubsentenceReward) -> list[Rewards]:
        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map(score, [reward] * 2)

    return run


def in_ray(score: Score, reward: SubsentenceReward) -> list[Rewards]:
    ray = pytest.importorskip("ray", reason="needs Ray (pip install ray)")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        found: list[Rewards] = ray.get([ray.remote(score).remote(reward) for _ in range(4)])
        return found
    finally:
        ray.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process that has threads
@pytest.mark.parametrize(
    "run", [in_threads, in_processes("fork"), in_processes("spawn"), in_ray], ids=["threads", "fork", "spawn", "ray"]
)
@pytest.mark.slow
def test_the_same_everywhere(run: Callable[[Score, SubsentenceReward], list[Rewards]]) -> None:
    reward = make()
    expected = score(reward)
    found = run(score, reward)
    assert len(found) > 1
    assert all(own == expected for own in found)


@pytest.mark.slow
def test_calls_leave_no_memory_behind() -> None:
    reward = make()
    for n in (100, 300):  # the first calls fill tables
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(n):
            reward(IDS[:2], TEXTS[:2])
            reward(IDS[:1], TEXTS[:1])[0].token_advantages([(0, 1), (1, 5)])
    gc.collect()
    assert sys.getallocatedblocks() - before < 150
