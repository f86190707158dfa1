"""Responses of the next step: in a thread, in a checkpoint, and on another number of ranks."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scapo_eval.base.errors import ScapoError  # noqa: E402
from scapo_train.data import Prompt, PromptRecord, Response  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.lookahead import LookAhead  # noqa: E402

GROUP = ProcessGroup(0, 1, torch.device("cpu"))


def prompts(*indices: int) -> list[Prompt]:
    return [Prompt(index, PromptRecord((), str(index), ()), torch.arange(2), {}) for index in indices]


def drawn(asked: Sequence[Prompt], seed: int, group: int, temperature: float) -> list[Response]:
    assert (seed, group, temperature) == (5, 2, 0.7)
    return [
        Response([prompt.index, k], bool(k), np.array([-0.1 * prompt.index, -1 / 3], np.float32))
        for prompt in asked
        for k in range(group)
    ]


def contents(responses: Sequence[Response]) -> list[Any]:
    return [(one.ids, one.finished, one.age, np.asarray(one.logprobs).tolist()) for one in responses]


def test_responses_come_from_another_thread_and_are_a_step_old() -> None:
    here, threads = threading.current_thread(), list[threading.Thread]()

    def draw(*given: Any) -> list[Response]:
        threads.append(threading.current_thread())
        return drawn(*given)

    ahead = LookAhead(draw, GROUP, 2, 0.7)
    assert ahead.take(prompts(1)) is None  # the first step samples its own
    ahead.wait()
    ahead.start(prompts(3, 1), 5)
    ahead.wait()
    taken = ahead.take(prompts(3, 1))
    assert taken is not None
    assert [prompt.index for prompt in taken[0]] == [3, 1]
    assert contents(taken[1]) == contents([replace(one, age=1) for one in drawn(prompts(3, 1), 5, 2, 0.7)])
    assert threads != [here]
    assert ahead.take(prompts(3, 1)) is None  # used once


def test_a_checkpoint_keeps_them_for_any_number_of_ranks() -> None:
    ahead = LookAhead(drawn, GROUP, 2, 0.7)
    ahead.start(prompts(4, 2, 9), 5)
    ahead.wait()
    state = json.loads(json.dumps(ahead.state()))
    taken = ahead.take(prompts(4, 2, 9))
    assert taken is not None
    for share in ([4, 9], [2]):
        resumed = LookAhead(drawn, GROUP, 2, 0.7)
        resumed.restore(state, [9, 4, 2])
        found = resumed.take(prompts(*share))
        assert found is not None
        at = [[4, 2, 9].index(index) for index in share]
        assert contents(found[1]) == contents([taken[1][2 * k + i] for k in at for i in range(2)])


def test_a_prompt_without_responses_is_left_out_and_those_of_another_step_are_ignored() -> None:
    ahead = LookAhead(drawn, GROUP, 2, 0.7)
    ahead.start(prompts(4, 9), 5)
    ahead.wait()
    state = ahead.state()
    taken = ahead.take(prompts(4, 2, 9))  # the second one could not be read when they were sampled
    assert taken is not None
    assert [prompt.index for prompt in taken[0]] == [4, 9]
    for group, indices in ((2, [4, 2]), (3, [4, 2, 9])):
        resumed = LookAhead(drawn, GROUP, group, 0.7)
        resumed.restore(state, indices)
        assert resumed.take(prompts(*indices)) is None


def test_an_error_is_raised_where_the_responses_are_awaited() -> None:
    def away(*_: Any) -> list[Response]:
        raise ScapoError("no server")

    ahead = LookAhead(away, GROUP, 2, 0.7)
    ahead.start(prompts(1), 5)
    with pytest.raises(ScapoError, match="no server"):
        ahead.wait()
    assert ahead.take(prompts(1)) is None
