"""Sampling of the next step's responses while the policy is updated.

The responses of a step are then sampled with the weights before the previous update. The importance correction
(``loss.engine_correction``) accounts for this difference. Finished responses are part of a checkpoint: a resumed run
could not sample them again, because their weights no longer exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from .data import Prompt, Response
from .distributed import ProcessGroup

Draw = Callable[[Sequence[Prompt], int, int, float], list[Response]]
"""Function that samples responses to prompts, such as :meth:`scapo_train.samplers.server.ServerSampler.draw`. The
arguments are the prompts, a seed, the number of responses per prompt, and the temperature.
"""


class LookAhead:
    """Responses to the prompts of the next step.

    Args:
        draw: Function that samples responses. It is called in a thread of its own.
        process_group: Group of all processes in the training run.
        group: Number of responses per prompt.
        temperature: Sampling temperature.
    """

    def __init__(self, draw: Draw, process_group: ProcessGroup, group: int, temperature: float) -> None:
        self._draw, self._process_group = draw, process_group
        self._group, self._temperature = group, temperature
        self._pending: tuple[list[int], Future[list[Response]]] | None = None
        self._made: dict[int, list[Response]] = {}

    def start(self, prompts: Sequence[Prompt], seed: int) -> None:
        """Starts sampling responses to the prompts of this rank in the next step. The sampler's weights must not change
        before :meth:`wait` returns.
        """
        future: Future[list[Response]] = Future()

        def work() -> None:
            try:
                future.set_result(self._draw(prompts, seed, self._group, self._temperature))
            except BaseException as error:  # raised by wait
                future.set_exception(error)

        self._pending = [prompt.index for prompt in prompts], future
        threading.Thread(target=work, daemon=True).start()  # a run that fails does not wait for the server

    def wait(self) -> None:
        """Waits until the responses are complete, and raises the errors of the sampling function."""
        if self._pending is None:
            return
        (indices, future), self._pending = self._pending, None
        made = [replace(response, age=1) for response in future.result()]
        self._made = {index: made[at * self._group : (at + 1) * self._group] for at, index in enumerate(indices)}

    def take(self, prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[Response]] | None:
        """Returns the prompts of this rank for which there are responses, and these responses, group by group. Returns
        None if there are no responses for this step.

        A prompt without responses was unreadable when they were sampled.
        """
        made, self._made = self._made, {}
        if not made:
            return None
        known = [prompt for prompt in prompts if prompt.index in made]
        return known, [response for prompt in known for response in made[prompt.index]]

    def state(self) -> dict[str, Any]:
        """Returns the responses of all ranks by the index of their prompt, for a checkpoint. All ranks must call this
        method.
        """
        own = {
            str(index): {
                "ids": [response.ids for response in responses],
                "finished": [response.finished for response in responses],
                "logprobs": [response.logprobs.tolist() for response in responses if response.logprobs is not None],
            }
            for index, responses in self._made.items()
        }
        return {index: made for rank in self._process_group.gather(own) for index, made in rank.items()}

    def restore(self, state: Mapping[str, Any], indices: Sequence[int]) -> None:
        """Restores the output of :meth:`state` on any number of ranks.

        If the responses are not those of the next step, because the run was resumed with other settings
        (``--accept-changes``), they are ignored, and the step samples its own.

        Args:
            state: Responses from a checkpoint.
            indices: Indices of the next step's prompts on all ranks.
        """
        made = {
            int(index): [
                Response(ids, finished, np.array(logprobs, np.float32), age=1)
                for ids, finished, logprobs in zip(kept["ids"], kept["finished"], kept["logprobs"], strict=True)
            ]
            for index, kept in state.items()
        }
        if made.keys() <= {*indices} and all(len(responses) == self._group for responses in made.values()):
            self._made = made
