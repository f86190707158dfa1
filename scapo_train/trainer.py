"""One complete optimization step: prompts, rollouts, credit, log-probabilities, update and metrics.

All schemes use the same optimization step. The schemes differ in the advantages from ``credit.py`` and, in their
published forms, in the settings of the loss. Each phase of the step is implemented in a separate file. ``loop.py``
contains all objects that are used in more than one step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from scapo_eval.base.errors import InputError
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.rewarding.reward import SubsentenceReward
from scapo_eval.truths.oracle import PresenceOracle

from . import loop
from .checkpoint.resume import saved_budget
from .config import Config
from .credit import CreditedBatch, Logprobs, credit, no_logprobs, resamples, scheme_of
from .data import Prompt, Response, read_prompts, seed_of
from .families.policy import EncodedPrompt
from .lookahead import LookAhead
from .loop import Loop, Models, Task
from .metrics import Metrics, ratio, response_metrics, response_sums, update_metrics
from .monitoring.alarms import AlarmWatch
from .monitoring.log import Log
from .plan.budget import budget_of_run
from .plan.hardware import matrix_rate
from .rollout import Sampler, encode
from .update import Updater, UpdateResult, check_finite

_log = logging.getLogger(__name__)

SNR_PARTS = 8
"""Number of parts of a step's prompts whose gradients are compared for ``gradient_snr``."""


def read_task(config: Config) -> Task:
    """Reads the ground truth, the prompts and a custom credit scheme.

    Raises:
        ScapoError: If a file is invalid.
    """
    if ":" in config.credit.scheme:
        scheme_of(config.credit.scheme)
    data = config.data
    vocabulary, oracle = Vocabulary.load(data.vocabulary), PresenceOracle.load(data.oracle)
    reward = SubsentenceReward(vocabulary, oracle, config.credit.reward_config(), any_fingerprint=data.any_fingerprint)
    sources = read_prompts(data.train, data.images, oracle, skip_unknown=data.on_unknown_image == "skip")
    return Task(sources, reward)


class Trainer(Loop):
    """Training run on rollouts; see :class:`~scapo_train.loop.Loop`."""

    reward: SubsentenceReward  # always present in tasks of this kind

    @property
    def temperature(self) -> float:
        """Temperature of the rollouts."""
        return self.config.rollout.temperature

    @property
    def compares(self) -> bool:
        """True if the loss has a KL term."""
        return self.config.loss.kl > 0

    def read(self) -> Task:
        """Reads the ground truth, the prompts and a custom credit scheme."""
        task = read_task(self.config)
        if task.reward is not None and (without := task.reward.truth.without_truth) and self.process_group.main:
            _log.warning("%s", without)
        return task

    def make_sampler(self, models: Models) -> Sampler:
        """Returns the engine for the rollouts."""
        if self.config.rollout.engine == "transformers":
            return super().make_sampler(models)
        if not models.policy.packs:
            reason = (
                f'rollout.engine = "vllm" does not support models of the kind {models.policy.vlm.config.model_type}'
            )
            raise InputError(f'{reason}: set it to "transformers"')
        if self.config.rollout.server:
            from .samplers.server import ServerSampler as Engine
        else:
            from .samplers.vllm import VllmSampler as Engine  # type: ignore[assignment]

        return Engine(self.config, models.policy, models.processor, self.process_group)

    def prepare(self) -> None:
        """Derives the token budget if necessary, and creates the updater of the policy, the alarms, and the sampling of
        the next step's responses, if any.
        """
        group, rollout = self.process_group, self.config.rollout
        if not self.config.optim.micro_batch_tokens:
            self.derived = ("optim.micro_batch_tokens",)
            self._derive()
        self.updater = Updater(self.config, self.policy, self.reference, self.optimizer, group, self.steps)
        self.alarms = AlarmWatch(self.config)
        self.ahead: LookAhead | None = None
        self._following: list[Prompt] | None = None  # prompts of the next step, if they have been taken
        if rollout.lookahead:
            draw = self.sampler.draw  # type: ignore[attr-defined]  # only a server samples during an update
            self.ahead = LookAhead(draw, group, rollout.group, rollout.temperature)

    def facts(self) -> dict[str, Any]:
        """Returns the fingerprints of the vocabulary and the ground truth, the number of prompts, and the derived
        budget.
        """
        truth, tokens = self.reward.truth, self.config.optim.micro_batch_tokens
        return {
            "reward": self.objective,
            "vocabulary": truth.vocabulary.fingerprint,
            "oracle": truth.oracle.fingerprint,
            "prompts": len(self.prompts.sources),
            **({"derived": dict.fromkeys(self.derived, tokens)} if self.derived else {}),
        }

    def state(self) -> dict[str, Any]:
        """Returns the state of the loop, the alarms, and the responses of the next step."""
        ahead = {"ahead": self.ahead.state()} if self.ahead is not None else {}
        return {**super().state(), "alarms": self.alarms.state(), **ahead}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores from a checkpoint the state that :meth:`state` returned."""
        super().restore(state)
        if self.derived:
            self._derive(saved_budget(state["config"]))
            self.updater.config = self.config
        if "alarms" in state:
            self.alarms.restore(state["alarms"])
        if self.ahead is not None:
            self.ahead.restore(state["ahead"], self.indices(state["step"]))

    def _derive(self, kept: int = 0) -> None:
        """Replaces ``optim.micro_batch_tokens = 0`` in the settings of the run by the derived budget."""
        tokens = budget_of_run(self.config, self.policy, self.prompts, self.process_group, kept)
        self.config = self.config.with_budget(tokens)
        how = "as in the checkpoint" if tokens == kept else "derived from the model, the prompts and the memory"
        _log.info("optim.micro_batch_tokens = %d, %s", tokens, how)

    def train_step(self) -> Metrics:
        """Performs one step of the paper's Algorithm 1 and returns its metrics."""
        config, process_group, clock = self.config, self.process_group, self.clock
        with clock("data"):
            prompts = self._prompts()
            self.check_pictures()
        made = self.ahead.take(prompts) if self.ahead is not None else None
        if made is not None:
            prompts = made[0]
        with clock("vision"):
            encoded = encode(self.policy, prompts, process_group.device)
        with clock("rollout"):
            responses = self._sample(encoded, attempt=0) if made is None else made[1]
            for attempt in range(1, resamples(config) + 1):
                if not self._resample(encoded, responses, attempt):
                    break
            if self.ahead is not None and self._following:
                self.ahead.start(self._following, self._seed(self.step + 1, attempt=0))
        with clock("logprob"):
            mini_batches = self.updater.mini_batches(self.indices(self.step), encoded, responses)
            self.updater.add_frozen_logprobs(mini_batches)
        lengths = [len(response.ids) for response in responses]
        with clock("reward"):
            credited = self._credit(encoded, responses, partial(self.updater.logprobs, mini_batches, lengths))
        snr = self._signal_to_noise(encoded, responses, credited)
        with clock("update"):
            update = self.updater.update(mini_batches, credited, self.step)
        check_finite(self.trainable, process_group, self.step + 1)
        if self.ahead is not None:
            with clock("rollout"):
                self.ahead.wait()
        with clock("sync"):
            self.sampler.sync()
        return self._metrics(encoded, responses, credited, update) | snr

    # --- rollouts and credit ------------------------------------------------------------------------------------

    def _prompts(self) -> list[Prompt]:
        """Returns the prompts of this step. With look-ahead, the prompts of the next step are prepared as well."""
        prompts = self._following
        if prompts is None:
            prompts = self.prompts.take(self.own_indices(self.step), self.own_indices(self.step + 1), check=False)
        if self.ahead is not None:
            following = self.own_indices(self.step + 1), self.own_indices(self.step + 2)
            self._following = self.prompts.take(*following, check=False)
        return prompts

    def _seed(self, step: int, attempt: int) -> int:
        return seed_of(self.config.run.seed, step, attempt)

    def _sample(self, encoded: Sequence[EncodedPrompt], attempt: int) -> list[Response]:
        rollout = self.config.rollout
        return self.sampler.sample(encoded, self._seed(self.step, attempt), rollout.group, rollout.temperature)

    def _credit(
        self, encoded: Sequence[EncodedPrompt], responses: Sequence[Response], logprobs: Logprobs = no_logprobs
    ) -> CreditedBatch:
        rollout = self.config.rollout
        return credit(
            self.config.credit,
            self.reward,
            self.tokenizer,
            self._image_ids(encoded),
            responses,
            rollout.group,
            rollout.max_new_tokens,
            logprobs,
        )

    def _image_ids(self, encoded: Sequence[EncodedPrompt]) -> list[str]:
        """Returns the image id of each response, group by group."""
        return [prompt.prompt.source.image_id for prompt in encoded for _ in range(self.config.rollout.group)]

    def _resample(self, encoded: Sequence[EncodedPrompt], responses: list[Response], attempt: int) -> bool:
        """Resamples, in place, the groups whose rewards are all equal. Returns True if any rank had a group with equal
        rewards.
        """
        flat: list[int] = np.flatnonzero(~self._credit(encoded, responses).has_variance).tolist()
        if self.process_group.max(len(flat)) == 0:
            return False
        group = self.config.rollout.group
        drawn = self._sample([encoded[k] for k in flat], attempt)
        for at, k in enumerate(flat):
            responses[k * group : (k + 1) * group] = drawn[at * group : (at + 1) * group]
        return True

    def _signal_to_noise(
        self, encoded: Sequence[EncodedPrompt], responses: Sequence[Response], credited: CreditedBatch
    ) -> Metrics:
        """Returns the squared signal-to-noise ratio of this step's gradient if it is due after this step."""
        if not self.due(self.config.run.snr_every, self.step + 1):
            return {}
        order = self.indices(self.step)
        with self.clock("snr"):
            parts = self.updater.mini_batches(order, encoded, responses, min(SNR_PARTS, len(order)))
            self.updater.add_frozen_logprobs(parts)
            return {"gradient_snr": self.updater.signal_to_noise(parts, credited)}

    # --- metrics and evaluation ---------------------------------------------------------------------------------

    def _metrics(
        self,
        encoded: Sequence[EncodedPrompt],
        responses: Sequence[Response],
        credited: CreditedBatch,
        update: UpdateResult,
    ) -> Metrics:
        """Returns the metrics of a step, computed over all ranks, and reports alarms. If samples are due after this
        step, the best and worst responses are written.
        """
        truth, process_group = self.reward.truth, self.process_group
        sums = response_sums(credited, responses, truth.n_present[truth.rows(self._image_ids(encoded))])
        totals = dict(zip(sums, process_group.sum(*sums.values()), strict=True))
        seconds = self.clock.take()
        rate = matrix_rate(torch.cuda.get_device_name()) if process_group.device.type == "cuda" else None
        metrics = {
            **response_metrics(totals),
            "prompts_left_out": float(len(self.prompts.bad)),
            **update_metrics(
                update,
                has_reference=self.reference is not None,
                compares_engine=self.config.rollout.engine != "transformers" and not totals["age"],
                corrects=self.config.loss.engine_correction > 0,
            ),
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "mfu": ratio(update.flops, (rate or 0.0) * process_group.size * seconds["seconds_update"]),
            "tokens_per_second": ratio(update.tokens / self.config.optim.inner_epochs, sum(seconds.values())),
            **seconds,
        }
        if process_group.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(process_group.device) - self.sampler.sleeping_memory
            metrics["peak_memory"] = float(process_group.max(peak))
        metrics |= self.alarms.check(self.step + 1, metrics)
        if self.log is not None:
            for alarm in self.alarms.began:
                self.log.alarm(self.step + 1, alarm)
        if self.log is not None and self.due(self.config.run.samples_every, self.step + 1):
            self._write_extremes(self.log, encoded, credited)
        return metrics

    def _write_extremes(self, log: Log, encoded: Sequence[EncodedPrompt], credited: CreditedBatch) -> None:
        """Writes this rank's best and worst responses of the step, with their pieces."""
        order = np.argsort(credited.rewards, kind="stable")
        results, image_ids = credited.columns.results(), self._image_ids(encoded)
        count = min(2, len(order))
        for kind, chosen in (("worst", order[:count]), ("best", order[::-1][:count])):
            for k in chosen.tolist():
                parts = [list(part) for part in results[k].parts]
                log.extreme(self.step + 1, kind, image_ids[k], results[k].response, parts)


train = partial(loop.train, Trainer)
"""Function that trains on rollouts until the last step; see :func:`scapo_train.loop.train`."""
