"""One optimization step from top to bottom: prompts, rollouts, credit, log-probabilities, update, metrics.

Every scheme runs through these lines; it differs in the advantages that ``credit.py`` gives, and in its
published form in the loss's settings. The phases are in files of their own, in the order of their use.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scapo_eval.errors import InputError, ScapoError
from scapo_eval.oracle import PresenceOracle
from scapo_eval.reward import RewardConfig, SubsentenceReward
from scapo_eval.tokens import decode_batch
from scapo_eval.vocabulary import Vocabulary

from .alarms import AlarmWatch
from .best import Best
from .checkpoint import Checkpoints, export
from .config import Config, required, to_toml
from .credit import CreditedBatch, credit, resamples
from .data import Prompts, Response, check_pictures, indices_of_step, read_prompts, seed_of
from .distributed import ProcessGroup, join_process_group
from .export import BEST
from .log import Clock, Log, open_folder, show_messages
from .metrics import Metrics, ratio, response_metrics, response_sums, score_metrics, update_metrics
from .model import load_policy, processor_of, source_folder
from .plan.hardware import matrix_rate
from .policy import EncodedPrompt, Policy
from .resume import check_changes, check_not_deleted, known_state
from .rollout import PolicySampler, Sampler, encode
from .update import Updater, UpdateResult, check_finite, optimizer_of
from .watch import Interrupted

_log = logging.getLogger(__name__)


def train(config: Config, *, resume: bool = False, accept_changes: bool = False) -> Path:
    """Trains until the last step.

    Args:
        config: settings of the training run; see :mod:`scapo_train.config`.
        resume: go on from the newest checkpoint, if there is one.
        accept_changes: go on also where the objective (reward, scheme, loss, seed...) is another than before.

    Returns:
        The folder of the training run.

    Raises:
        InputError: faulty input, with the file, line and reason.
        Interrupted: SIGTERM or SIGINT; saved.
    """
    required(config)
    with join_process_group() as process_group:
        show_messages(process_group.rank)
        return Trainer(config, process_group, resume=resume, accept_changes=accept_changes).run()


class Trainer:
    """A training run: everything that lives longer than a step.

    Args:
        config: settings of the training run.
        process_group: this process and the others of the training run.
        resume: go on from the newest checkpoint, if there is one.
        accept_changes: go on also where the objective is another than before.
    """

    def __init__(
        self, config: Config, process_group: ProcessGroup, *, resume: bool = False, accept_changes: bool = False
    ) -> None:
        self.config, self.process_group = config, process_group
        self.folder = Path(config.run.output)
        if process_group.main:
            open_folder(self.folder, resume=resume)
        data = config.data
        vocabulary, oracle = Vocabulary.load(data.vocabulary), PresenceOracle.load(data.oracle)
        reward_config = config.credit.reward_config()
        self.reward = SubsentenceReward(vocabulary, oracle, reward_config, any_fingerprint=data.any_fingerprint)
        if (without := self.reward.truth.without_truth) and process_group.main:
            _log.warning("%s", without)
        sources = read_prompts(data.train, data.images, oracle, skip_unknown=data.on_unknown_image == "skip")
        check_pictures(sources)
        self.steps = config.run.steps or data.epochs * (len(sources) // data.prompts_per_step)
        indices_of_step(0, len(sources), data.prompts_per_step, config.run.seed)

        self.processor = processor_of(config.model)
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)
        load = partial(load_policy, config.model, config.rollout.temperature, process_group)
        self.policy = load(lora=config.lora, seed=config.run.seed)
        self.reference = (self.policy if config.lora.rank else load(reference=True)) if config.loss.kl else None
        positions = getattr(self.policy.vlm.config.get_text_config(), "max_position_embeddings", None)
        self._longest = positions - config.rollout.max_new_tokens if positions else None
        self.prompts = Prompts(sources, self.processor, data.max_bad, self._longest)
        self.held_out, self.held_out_reward = self._held_out(vocabulary, reward_config)
        self.trainable = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        self.optimizer = optimizer_of(config, self.policy)
        self.updater = Updater(config, self.policy, self.reference, self.optimizer, process_group, self.steps)
        self.sampler = _sampler(config, self.policy, self.processor, process_group)
        self.clock = Clock(process_group.device)
        self._has_learned = False
        self.checkpoints = Checkpoints(self.folder / "checkpoints", config.run.keep)
        self.alarms = AlarmWatch(config)
        self.best = Best(config.run.keep_best, config.run.patience)
        self.best_checkpoint = Checkpoints(self.folder / BEST, 1)
        self.step = self._resume(accept_changes) if resume else 0
        self.sampler.sync()
        self.log = self._make_log(oracle) if process_group.main else None
        self._stop_requested = False

    def run(self) -> Path:
        """All remaining steps, and the export.

        Raises:
            Interrupted: after a signal; the state is saved.
        """
        config = self.config.run
        handlers = {each: signal.signal(each, self._on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            if self.step == 0:
                start = self.evaluate(0)
                if start and self.log is not None:
                    self.log.metrics(0, self.steps, start)
            while self.step < self.steps and not self.best.exhausted:
                values = self.train_step()
                self.step += 1
                values |= self.evaluate(self.step)
                if self.log is not None:
                    self.log.metrics(self.step, self.steps, values)
                if self.best.update(self.step, values):
                    self.best_checkpoint.save(self.step, self.policy, self.optimizer, self._state())
                stop = bool(self.process_group.max(int(self._stop_requested)))
                due = config.save_every and self.step % config.save_every == 0
                last = self.step == self.steps or self.best.exhausted
                raised = [name for name in config.stop_on if values[f"alarm_{name}"]]
                saved = self.save() if stop or due or last or raised else False
                if raised:
                    place = f"stopped after step {self.step} of {self.steps} by run.stop_on: {', '.join(raised)}"
                    raise ScapoError(f"{place}; nothing is exported")
                if stop and not last:
                    place = f"stopped after step {self.step} of {self.steps}" + (
                        "" if saved else ", which is not saved"
                    )
                    raise Interrupted(f"{place}: go on with --resume auto")
            if not self._has_learned and self.step:
                reason = "not one update was made: nothing is exported (metrics.jsonl: updates_left_out)"
                raise InputError(reason, path=str(self.folder))
            if config.export:
                self._take_best()
                export(self.policy.vlm, source_folder(self.config.model), self.folder / "model")
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.prompts.close()
            self.sampler.close()
            if self.log is not None:
                self.log.close(failed=sys.exc_info()[0] is not None)
        return self.folder

    def train_step(self) -> Metrics:
        """One step of Algorithm 1; returns its metrics."""
        config, process_group, clock = self.config, self.process_group, self.clock
        with clock("data"):
            prompts = self.prompts.take(self._own_indices(self.step), self._own_indices(self.step + 1))
            bad = process_group.gather(self.prompts.bad)  # the limit and the checkpoint are of all ranks
            self.prompts.bad.update(*bad)
        with clock("vision"):
            encoded = encode(self.policy, prompts, process_group.device)
        with clock("rollout"):
            responses = self._sample(encoded, attempt=0)
        with clock("reward"):
            credited = self._credit(encoded, responses)
        for attempt in range(1, resamples(config) + 1):
            with clock("rollout"):
                resampled = self._resample(encoded, responses, credited, attempt)
            if resampled:
                with clock("reward"):
                    credited = self._credit(encoded, responses)
        with clock("logprob"):
            mini_batches = self.updater.mini_batches(self._indices(self.step), encoded, responses)
            self.updater.add_frozen_logprobs(mini_batches)
        with clock("update"):
            update = self.updater.update(mini_batches, credited, self.step)
        self._has_learned |= update.tokens > 0
        check_finite(self.trainable, process_group, self.step + 1)
        with clock("sync"):
            self.sampler.sync()
        return self._metrics(encoded, responses, credited, update)

    # --- rollouts and credit ------------------------------------------------------------------------------------

    def _indices(self, step: int) -> list[int]:
        """The prompts of a step, over all ranks."""
        data = self.config.data
        return indices_of_step(step, len(self.prompts.sources), data.prompts_per_step, self.config.run.seed)

    def _own_indices(self, step: int) -> list[int]:
        """The prompts of a step that this rank takes."""
        return self._indices(step)[self.process_group.rank :: self.process_group.size] if step < self.steps else []

    def _sample(self, encoded: Sequence[EncodedPrompt], attempt: int) -> list[Response]:
        rollout = self.config.rollout
        seed = seed_of(self.config.run.seed, self.step, attempt)
        return self.sampler.sample(encoded, seed, rollout.group, rollout.temperature)

    def _credit(self, encoded: Sequence[EncodedPrompt], responses: Sequence[Response]) -> CreditedBatch:
        rollout, image_ids = self.config.rollout, self._image_ids(encoded)
        return credit(
            self.config.credit, self.reward, self.tokenizer, image_ids, responses, rollout.group, rollout.max_new_tokens
        )

    def _image_ids(self, encoded: Sequence[EncodedPrompt]) -> list[str]:
        """The image of each response, group by group."""
        return [each.prompt.source.image_id for each in encoded for _ in range(self.config.rollout.group)]

    def _resample(
        self, encoded: Sequence[EncodedPrompt], responses: list[Response], credited: CreditedBatch, attempt: int
    ) -> bool:
        """Samples groups without variance again, in place; whether any rank had one."""
        flat: list[int] = np.flatnonzero(~credited.has_variance).tolist()
        if self.process_group.max(len(flat)) == 0:
            return False
        group = self.config.rollout.group
        drawn = self._sample([encoded[k] for k in flat], attempt)
        for at, k in enumerate(flat):
            responses[k * group : (k + 1) * group] = drawn[at * group : (at + 1) * group]
        return True

    # --- metrics and evaluation ---------------------------------------------------------------------------------

    def _metrics(
        self,
        encoded: Sequence[EncodedPrompt],
        responses: Sequence[Response],
        credited: CreditedBatch,
        update: UpdateResult,
    ) -> Metrics:
        """The metrics of a step over all ranks; warns of alarming ones, and writes extreme responses where due."""
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
                has_engine=self.config.rollout.engine != "transformers",
            ),
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "mfu": ratio(update.flops, (rate or 0.0) * process_group.size * seconds["seconds_update"]),
            "tokens_per_second": ratio(update.tokens / self.config.optim.inner_epochs, sum(seconds.values())),
            **seconds,
        }
        metrics |= self.alarms.check(self.step + 1, metrics)
        if self.log is not None:
            for alarm in self.alarms.began:
                self.log.alarm(self.step + 1, alarm)
        if self.log is not None and self._due(self.config.run.samples_every, self.step + 1):
            self._write_extremes(self.log, encoded, credited)
        return metrics

    def _write_extremes(self, log: Log, encoded: Sequence[EncodedPrompt], credited: CreditedBatch) -> None:
        """The step's best and worst responses of this rank, with their pieces."""
        order = np.argsort(credited.rewards, kind="stable")
        results, image_ids = credited.columns.results(), self._image_ids(encoded)
        count = min(2, len(order))
        for kind, chosen in (("worst", order[:count]), ("best", order[::-1][:count])):
            for k in chosen.tolist():
                parts = [list(part) for part in results[k].parts]
                log.extreme(self.step + 1, kind, image_ids[k], results[k].response, parts)

    def _held_out(self, vocabulary: Vocabulary, reward_config: RewardConfig) -> tuple[Prompts, SubsentenceReward]:
        """The held-out prompts and their rewards; without any, the first training prompts stand in for samples."""
        data = self.config.data
        if not data.evaluation:
            return Prompts(
                self.prompts.sources[: self.config.run.samples], self.processor, data.max_bad, self._longest
            ), self.reward
        oracle = self.reward.truth.oracle
        if data.evaluation_oracle:
            oracle = PresenceOracle.load(data.evaluation_oracle)
        skip = data.on_unknown_image == "skip"
        sources = read_prompts(data.evaluation, data.images, oracle, skip_unknown=skip)
        sources = sources[: data.evaluation_prompts or None]
        reward = SubsentenceReward(vocabulary, oracle, reward_config, any_fingerprint=data.any_fingerprint)
        return Prompts(sources, self.processor, data.max_bad, self._longest), reward

    def _due(self, every: int, step: int) -> bool:
        return bool(every) and (step % every == 0 or step == self.steps)

    def evaluate(self, step: int) -> Metrics:
        """Describes held-out images, where that is due; returns their scores and writes samples of the responses."""
        run, data, process_group = self.config.run, self.config.data, self.process_group
        scored = bool(data.evaluation) and self._due(run.evaluate_every, step)
        sampled = run.samples > 0 and self._due(run.samples_every, step)
        if not scored and not sampled:
            return {}
        number = len(self.held_out.sources) if scored else min(run.samples, len(self.held_out.sources))
        with self.clock("evaluation"):
            prompts = self.held_out.take(range(process_group.rank, number, process_group.size))
            encoded = encode(self.policy, prompts, process_group.device)
            responses = self.sampler.sample(encoded, seed_of(run.seed, 2**31), 1, data.evaluation_temperature)
            texts, _ = decode_batch(self.tokenizer, [response.ids for response in responses])
            image_ids = [each.prompt.source.image_id for each in encoded]
            columns = self.held_out_reward.batch(image_ids, texts)
        if sampled:
            rows = list(zip([each.prompt.index for each in encoded], image_ids, texts, strict=True))
            all_rows = sorted(row for rank in process_group.gather(rows) for row in rank)
            if self.log is not None:
                self.log.samples(step, [(image_id, text) for _, image_id, text in all_rows[: run.samples]])
        if not scored:
            return {}
        truth = self.held_out_reward.truth
        sums = {
            "generated": float(columns.generated.sum()),
            "hallucinated": float(columns.hallucinated.sum()),
            "covered": float(columns.covered.sum()),
            "present": float(truth.n_present[truth.rows(image_ids)].sum()),
            "length": float(sum(len(response.ids) for response in responses)),
            "responses": float(len(responses)),
        }
        totals = dict(zip(sums, process_group.sum(*sums.values()), strict=True))
        metrics = {**score_metrics(totals), "length": ratio(totals["length"], totals["responses"])}
        return {f"evaluation_{name}": value for name, value in metrics.items()} | self.clock.take()

    # --- saving and resuming ------------------------------------------------------------------------------------

    def save(self) -> bool:
        """Writes a checkpoint of the present state; whether that succeeded."""
        return self.checkpoints.save(self.step, self.policy, self.optimizer, self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "bad": sorted(self.prompts.bad),
            "config": to_toml(self.config),
            "reward": str(self.reward.signature),
            "best": self.best.state(),
            "alarms": self.alarms.state(),
        }

    def _take_best(self) -> None:
        """Gives the policy the weights of the best checkpoint, where one is kept."""
        path = self.best_checkpoint.latest()
        if self.best.step and path is not None:
            self.best_checkpoint.load_weights(path, self.policy)
            _log.info("exported: step %d, the best %s of the held-out images", self.best.step, self.best.metric)

    def _resume(self, accept_changes: bool) -> int:
        """The steps that the newest checkpoint has done, after loading it; 0 if there is none."""
        newest = self.checkpoints.latest()
        if newest is None:
            check_not_deleted(self.folder, self.config.run.save_every)
            return 0
        state = known_state(self.checkpoints.load(newest, self.policy, self.optimizer), newest)
        self.prompts.bad.update(state["bad"])
        if "best" in state:
            self.best.restore(state["best"])
        if "alarms" in state:
            self.alarms.restore(state["alarms"])
        reward = (state.get("reward"), str(self.reward.signature))
        check_changes(state["config"], self.config, reward, accept=accept_changes, path=newest)
        self._has_learned = True
        _log.info("resumed after step %d from %s", state["step"], newest)
        return int(state["step"])

    def _make_log(self, oracle: PresenceOracle) -> Log:
        config = self.config
        card = {
            "reward": str(self.reward.signature),
            "vocabulary": self.reward.truth.vocabulary.fingerprint,
            "oracle": oracle.fingerprint,
            "ranks": self.process_group.size,
            "steps": self.steps,
            "prompts": len(self.prompts.sources),
            "parameters": sum(parameter.numel() for parameter in self.policy.parameters()),
            "trainable": sum(parameter.numel() for parameter in self.trainable),
        }
        return Log(self.folder, config, card, self.step or -1)

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self._stop_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop_requested = True


def _sampler(config: Config, policy: Policy, processor: Any, process_group: ProcessGroup) -> Sampler:
    if config.rollout.engine == "transformers":
        rollout = config.rollout
        return PolicySampler(policy, process_group.device, rollout.max_new_tokens, rollout.prompts_per_batch)
    if not policy.packs:
        reason = f'rollout.engine = "vllm" is not for models of the kind {policy.vlm.config.model_type}'
        raise InputError(f'{reason}: set it to "transformers"')
    from .rollout_vllm import VllmSampler

    return VllmSampler(config, policy, processor, process_group)
