"""One optimisation step from top to bottom: prompts, rollouts, credit, log-probabilities, update, log.

Every scheme runs through these lines; it differs in the advantages that ``credit.py`` gives, and in its
published form in the loss's settings. The phases are in files of their own, in the order of their use.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scapo_eval.engines.hf import load_processor
from scapo_eval.errors import ScapoError
from scapo_eval.metrics.capscore import cap_score
from scapo_eval.oracle import PresenceOracle
from scapo_eval.reward import SubsentenceReward
from scapo_eval.tokens import decode_batch
from scapo_eval.vocabulary import Vocabulary

from .checkpoint import Checkpoints, export
from .config import Config, required, to_toml
from .credit import Credited, credit, measures, resamples, token_weights
from .data import Prompts, indices_of_step, read_prompts, seed_of
from .distributed import World, world
from .log import Clock, Log, open_folder, show_messages
from .loss import token_loss
from .model import Batch, Policy, Row, batch_of, load_policy, loading, on_device
from .plan import matrix_rate
from .rollout import PolicySampler, Response, Sampler, Seen, encode
from .watch import Interrupted

_log = logging.getLogger(__name__)


@dataclass
class MicroBatch:
    """What one forward and backward pass takes.

    Attributes:
        batch: its rows as tensors.
        owners: the responses of the batch, in the order of its targets; empty where it only fills up.
        sampled: (N,) log-probabilities by an engine that is not the policy itself.
        old, reference: (N,) of the policy before the first update and of the reference, where they are needed.
    """

    batch: Batch
    owners: list[int]
    sampled: Tensor | None = None
    old: Tensor | None = None
    reference: Tensor | None = None


def train(config: Config, *, resume: bool = False) -> Path:
    """Trains until the last step.

    Args:
        config: of the run; see :mod:`scapo_train.config`.
        resume: go on from the newest checkpoint, if there is one.

    Returns:
        The folder of the run.

    Raises:
        InputError: faulty input, with the file, line and reason.
        Interrupted: SIGTERM or SIGINT; saved.
    """
    required(config)
    with world() as here:
        show_messages(here.rank)
        return Trainer(config, here, resume=resume).run()


class Trainer:
    """A run: everything that lives longer than a step.

    Args:
        config: its settings.
        here: this process among the others.
        resume: go on from the newest checkpoint, if there is one.
    """

    def __init__(self, config: Config, here: World, *, resume: bool = False) -> None:
        self.config, self.here = config, here
        self.folder = Path(config.run.output)
        if here.main:
            open_folder(self.folder, resume=resume)
        data, loss = config.data, config.effective_loss
        self.loss = loss
        vocabulary, oracle = Vocabulary.load(data.vocabulary), PresenceOracle.load(data.oracle)
        reward_config = config.credit.reward_config()
        self.reward = SubsentenceReward(vocabulary, oracle, reward_config, any_fingerprint=data.any_fingerprint)
        sources = read_prompts(data.train, data.images, oracle)
        self.steps = config.run.steps or data.epochs * (len(sources) // data.prompts_per_step)
        indices_of_step(0, len(sources), data.prompts_per_step, config.run.seed)

        pixels: dict[str, Any] = {name: getattr(config.model, name) or None for name in ("min_pixels", "max_pixels")}
        with loading(config.model.path):
            self.processor = load_processor(config.model.path, config.model.revision or None, **pixels)
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)
        self.prompts = Prompts(sources, self.processor, data.max_bad)
        self.held_out, self.held_out_reward = self._evaluation(vocabulary, reward_config)

        self.policy = load_policy(config.model, config.rollout.temperature, here)
        self.reference = (
            load_policy(config.model, config.rollout.temperature, here, reference=True) if loss.kl else None
        )
        self.trainable = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        self.optimizer = _optimizer(config, self.policy)
        self.sampler = _sampler(config, self.policy, self.processor, here)
        self.clock = Clock(here.device)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", config.run.keep)
        self.step = self._resumed() if resume else 0
        self.sampler.sync()
        self.log = self._log_of(oracle) if here.main else None
        self._leave = False

    def run(self) -> Path:
        """All remaining steps, and the export.

        Raises:
            Interrupted: after a signal; the state is saved.
        """
        config = self.config.run
        handlers = {each: signal.signal(each, self._asked_to_leave) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            if self.step == 0:
                start = self._look(0)
                if start and self.log is not None:
                    self.log.metrics(0, self.steps, start)
            while self.step < self.steps:
                values = self.train_step()
                self.step += 1
                values |= self._look(self.step)
                if self.log is not None:
                    self.log.metrics(self.step, self.steps, values)
                leave = bool(self.here.max(int(self._leave)))
                due = config.save_every and self.step % config.save_every == 0
                saved = self.save() if leave or due or self.step == self.steps else False
                if leave and self.step < self.steps:
                    place = f"stopped after step {self.step} of {self.steps}" + (
                        "" if saved else ", which is not saved"
                    )
                    raise Interrupted(f"{place}: go on with --resume auto")
            if config.export:
                export(self.policy.vlm, self.processor, self.folder / "model")
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.prompts.close()
            self.sampler.close()
        return self.folder

    def train_step(self) -> dict[str, float | None]:
        """One step of Algorithm 1; returns its metrics."""
        config, here, clock = self.config, self.here, self.clock
        with clock("data"):
            prompts = self.prompts.take(self._indices(self.step), self._indices(self.step + 1))
            self.prompts.bad.update(*here.gather(self.prompts.bad))  # the limit and the checkpoint are of all ranks
        with clock("vision"):
            seen = encode(self.policy, prompts, here.device)
        with clock("rollout"):
            responses = self._sampled(seen, attempt=0)
        with clock("reward"):
            credited = self._credit(seen, responses)
        for attempt in range(1, resamples(config) + 1):
            with clock("rollout"):
                redrawn = self._redrawn(seen, responses, credited, attempt)
            if redrawn:
                with clock("reward"):
                    credited = self._credit(seen, responses)
        lengths = np.array([len(response.ids) for response in responses], dtype=np.int64)
        with clock("logprob"):
            minis = self._mini_batches(seen, responses)
            self._frozen_logprobs([micro for mini in minis for micro in mini])
        with clock("update"):
            update = self._update(minis, credited, lengths)
            (update["arithmetic"],) = self.here.sum(self._arithmetic(minis))
        with clock("sync"):
            self.sampler.sync()
        return self._metrics(seen, responses, credited, lengths, update)

    # --- rollouts and credit ------------------------------------------------------------------------------------

    def _indices(self, step: int) -> list[int]:
        """The prompts of a step that this rank takes."""
        return self._of_all_ranks(step)[self.here.rank :: self.here.size] if step < self.steps else []

    def _of_all_ranks(self, step: int) -> list[int]:
        data = self.config.data
        return indices_of_step(step, len(self.prompts.sources), data.prompts_per_step, self.config.run.seed)

    def _sampled(self, seen: Sequence[Seen], attempt: int) -> list[Response]:
        rollout = self.config.rollout
        seed = seed_of(self.config.run.seed, self.step, attempt)
        return self.sampler.sample(seen, seed, rollout.group, rollout.temperature)

    def _credit(self, seen: Sequence[Seen], responses: Sequence[Response]) -> Credited:
        rollout = self.config.rollout
        image_ids = [each.prompt.source.image_id for each in seen for _ in range(rollout.group)]
        return credit(
            self.config.credit, self.reward, self.tokenizer, image_ids, responses, rollout.group, rollout.max_new_tokens
        )

    def _redrawn(self, seen: Sequence[Seen], responses: list[Response], credited: Credited, attempt: int) -> bool:
        """Draws groups without variance again, in place; whether any rank had one."""
        flat: list[int] = np.flatnonzero(~credited.varied).tolist()
        if self.here.max(len(flat)) == 0:
            return False
        group = self.config.rollout.group
        drawn = self._sampled([seen[k] for k in flat], attempt)
        for at, k in enumerate(flat):
            responses[k * group : (k + 1) * group] = drawn[at * group : (at + 1) * group]
        return True

    # --- the update ---------------------------------------------------------------------------------------------

    def _mini_batches(self, seen: Sequence[Seen], responses: Sequence[Response]) -> list[list[MicroBatch]]:
        """Deals prompts to mini-batches and cuts these into micro-batches, as many on every rank."""
        minis, whole = self.config.optim.mini_batches, self._of_all_ranks(self.step)
        mini = {index: at * minis // len(whole) for at, index in enumerate(whole)}  # the same on any number of ranks
        return [
            self._micro_batches([k for k, each in enumerate(seen) if mini[each.prompt.index] == m], seen, responses)
            for m in range(minis)
        ]

    def _micro_batches(
        self, chosen: Sequence[int], seen: Sequence[Seen], responses: Sequence[Response]
    ) -> list[MicroBatch]:
        budget, group = self.config.optim.micro_batch_tokens, self.config.rollout.group
        rows: list[tuple[Row, list[int]]] = []
        for k in chosen:
            for owners in _within(seen[k], range(k * group, (k + 1) * group), responses, budget):
                rows.append((seen[k].row([responses[i].ids for i in owners]), owners))
        rows.sort(key=lambda row: row[0].length)
        cut: list[list[tuple[Row, list[int]]]] = []
        length = 0
        for row in rows:
            if not cut or length + row[0].length > budget:
                cut.append([])
                length = 0
            cut[-1].append(row)
            length += row[0].length
        device = self.here.device
        found = []
        for rows in cut:
            owners = [i for _, own in rows for i in own]
            given = [responses[i].logprobs for i in owners]
            known = [each for each in given if each is not None]
            sampled = torch.from_numpy(np.concatenate(known)).to(device) if len(known) == len(owners) else None
            found.append(MicroBatch(batch_of([row for row, _ in rows], device), owners, sampled))
        missing = self.here.max(len(found)) - len(found)
        if missing:  # a rank that has less to do takes part in the others' collectives, with weight 0
            end = self.policy.ends[:1]
            idle = batch_of([Row(torch.tensor(end), torch.zeros(3, 1, dtype=torch.long), 1, None, [end])], device)
            found += [MicroBatch(idle, []) for _ in range(missing)]
        return found

    @torch.no_grad()
    def _frozen_logprobs(self, micros: Sequence[MicroBatch]) -> None:
        """Log-probabilities of the reference, and of the policy before its first update where it makes several."""
        if self.config.updates_per_batch > 1:
            for micro in micros:
                micro.old = self.policy(micro.batch).logprob
        if self.reference is not None:
            with on_device(self.reference, self.config.model, self.here):
                for micro in micros:
                    micro.reference = self.reference(micro.batch).logprob

    def _update(
        self, minis: Sequence[Sequence[MicroBatch]], credited: Credited, lengths: NDArray[np.int64]
    ) -> dict[str, float]:
        """All optimiser steps of a batch; returns sums over tokens and means over updates."""
        self.policy.train()
        sums = torch.zeros(6, dtype=torch.float64, device=self.here.device)
        norms, losses, skipped = list[float](), list[float](), 0
        for _ in range(self.config.optim.inner_epochs):
            for micros in minis:
                own = [i for micro in micros for i in micro.owners]
                tokens, responses = self.here.sum(float(lengths[own].sum()), float(len(own)))
                if not tokens:  # no picture of the step could be read, on any rank
                    skipped += 1
                    continue
                weights = token_weights(self.loss, lengths, tokens, responses, self.config.rollout.max_new_tokens)
                loss, sums = self._gradient(micros, credited, lengths, weights, sums)
                norm = torch.nn.utils.clip_grad_norm_(self.trainable, self.config.optim.clip or math.inf)
                norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
                (loss,) = self.here.sum(loss)
                if math.isfinite(loss) and math.isfinite(float(norm)):
                    self._set_learning_rate()
                    self.optimizer.step()
                    norms.append(float(norm))
                    losses.append(loss)
                else:
                    skipped += 1
                    _log.warning("step %d: loss %g, gradient norm %g: update left out", self.step + 1, loss, norm)
                self.optimizer.zero_grad(set_to_none=True)
        self.policy.eval()
        names = ("tokens", "kl", "clipped", "entropy", "p_end", "mismatch")
        totals = dict(zip(names, self.here.sum(*sums.tolist()), strict=True))
        return {
            **totals,
            "loss": float(np.mean(losses)) if losses else math.nan,
            "grad_norm": float(np.mean(norms)) if norms else math.nan,
            "skipped": float(skipped),
        }

    def _gradient(
        self,
        micros: Sequence[MicroBatch],
        credited: Credited,
        lengths: NDArray[np.int64],
        weights: NDArray[np.float64],
        sums: Tensor,
    ) -> tuple[float, Tensor]:
        """Accumulates the gradient of one update; returns this rank's share of the loss, and ``sums`` continued."""
        total = torch.zeros((), device=self.here.device)
        device = self.here.device
        for micro in micros:
            statistics = self.policy(micro.batch)
            mine = lengths[micro.owners]
            if micro.owners:
                advantage = torch.from_numpy(np.concatenate([credited.advantages[i] for i in micro.owners])).to(device)
                each = np.repeat(weights[micro.owners], mine)
                if self.loss.mean_per_micro_batch:
                    each = np.full(mine.sum(), 1.0 / (mine.sum() * len(micros) * self.here.size))
                weight = torch.from_numpy(each).to(device, statistics.logprob.dtype)
            else:
                advantage = weight = torch.zeros_like(statistics.logprob)
            part = token_loss(
                statistics.logprob,
                advantage,
                weight,
                old=micro.old,
                reference=micro.reference,
                clip_low=self.loss.clip_low,
                clip_high=self.loss.clip_high,
                kl_weight=self.loss.kl,
                estimator=self.loss.kl_estimator,
            )
            (part.loss * self.here.size).backward()  # FSDP averages over ranks; the weights sum over them
            total += part.loss.detach()
            if micro.owners:
                apart = torch.zeros((), device=device)
                if micro.sampled is not None:
                    then = statistics.logprob.detach() if micro.old is None else micro.old
                    apart = (then - micro.sampled).abs().sum()
                parts = (mine.sum(), part.kl, part.clipped, statistics.entropy.sum(), statistics.end.sum(), apart)
                sums = sums + torch.stack([torch.as_tensor(each, device=device).double() for each in parts])
        return float(total), sums

    def _arithmetic(self, minis: Sequence[Sequence[MicroBatch]]) -> float:
        """Floating-point operations of this rank's matrix products by weights in an update, recomputation left out."""
        vlm = self.policy.vlm
        layers = sum(parameter.numel() for parameter in vlm.model.language_model.layers.parameters())
        output = vlm.lm_head.weight.numel()
        busy = [micro.batch for mini in minis for micro in mini if micro.owners]
        products = sum(batch.ids.numel() * layers + batch.targets.numel() * output for batch in busy)
        return 6.0 * products * self.config.optim.inner_epochs

    def _set_learning_rate(self) -> None:
        optim, done, total = self.config.optim, self.step, max(1, self.steps)
        rate = optim.lr
        if done < optim.warmup:
            rate *= (done + 1) / optim.warmup
        elif optim.schedule != "constant":
            progress = (done - optim.warmup) / max(1, total - optim.warmup)
            rate *= 1 - progress if optim.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # torchao compiles its step with the rate as an input
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    # --- looking, saving, going on ------------------------------------------------------------------------------

    def _metrics(
        self,
        seen: Sequence[Seen],
        responses: Sequence[Response],
        credited: Credited,
        lengths: NDArray[np.int64],
        update: dict[str, float],
    ) -> dict[str, float | None]:
        group = self.config.rollout.group
        rows = self.reward.truth.rows([each.prompt.source.image_id for each in seen for _ in range(group)])
        found = measures(credited, self.reward.truth.n_present[rows])
        found["length"] = float(lengths.sum())
        found["truncated"] = float(sum(not response.finished for response in responses))
        total = dict(zip(found, self.here.sum(*found.values()), strict=True))
        seconds = self.clock.take()
        tokens = update["tokens"] / self.config.optim.inner_epochs
        if total["pieces"] and total["zero"] == total["pieces"]:
            _log.warning("step %d: every reward is 0: nothing to learn from", self.step + 1)
        kl = update["kl"] / update["tokens"] if self.reference is not None and update["tokens"] else None
        if kl is not None and kl > self.loss.kl_alarm:
            _log.warning("step %d: KL of %.2f a token, more than loss.kl_alarm", self.step + 1, kl)
        own = self.config.rollout.engine == "transformers"
        mismatch = None if own else _ratio(update["mismatch"], update["tokens"])
        rate = matrix_rate(torch.cuda.get_device_name()) if self.here.device.type == "cuda" else None
        whole = (rate or 0.0) * self.here.size * seconds["seconds_update"]
        if mismatch is not None and mismatch > self.config.rollout.mismatch_alarm:
            _log.warning("step %d: the engine's log-probabilities are off by %.3f a token", self.step + 1, mismatch)
        if self.log is not None and self._due(self.config.run.samples_every, self.step + 1):
            self._write_extremes(seen, credited)
        n = total["responses"]
        return {
            **_scores(total),
            **{name: _ratio(total[name], n) for name in ("reward", "reward_new", "reward_hal", "reward_reg")},
            "zero_reward_share": _ratio(total["zero"], total["pieces"]),
            "pieces": _ratio(total["pieces"], n),
            "objects": _ratio(total["objects"], n),
            "length": _ratio(total["length"], n),
            "truncated_share": _ratio(total["truncated"], n),
            "empty_responses": total["without_text"],
            "groups_without_variance": _ratio(total["groups_without_variance"], total["groups"]),
            "prompts_left_out": float(len(self.prompts.bad)),
            "kl": kl,
            "entropy": _ratio(update["entropy"], update["tokens"]),
            "p_end": _ratio(update["p_end"], update["tokens"]),
            "mismatch": mismatch,
            "clip_share": _ratio(update["clipped"], update["tokens"]),
            "loss": _finite(update["loss"]),
            "grad_norm": _finite(update["grad_norm"]),
            "updates_left_out": update["skipped"],
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "mfu": _ratio(update["arithmetic"], whole),
            "tokens_per_second": _ratio(tokens, sum(seconds.values())),
            **seconds,
        }

    def _evaluation(self, vocabulary: Vocabulary, reward_config: Any) -> tuple[Prompts, SubsentenceReward]:
        """The held-out prompts and their rewards; without any, the first training prompts stand in for samples."""
        data = self.config.data
        if not data.evaluation:
            return Prompts(self.prompts.sources[: self.config.run.samples], self.processor, data.max_bad), self.reward
        oracle = self.reward.truth.oracle
        if data.evaluation_oracle:
            oracle = PresenceOracle.load(data.evaluation_oracle)
        sources = read_prompts(data.evaluation, data.images, oracle)[: data.evaluation_prompts or None]
        reward = SubsentenceReward(vocabulary, oracle, reward_config, any_fingerprint=data.any_fingerprint)
        return Prompts(sources, self.processor, data.max_bad), reward

    def _due(self, every: int, step: int) -> bool:
        return bool(every) and (step % every == 0 or step == self.steps)

    def _look(self, step: int) -> dict[str, float | None]:
        """Describes the held-out pictures, where that is due: their scores, and samples of the responses."""
        run, data = self.config.run, self.config.data
        scored = bool(data.evaluation) and self._due(run.evaluate_every, step)
        shown = run.samples > 0 and self._due(run.samples_every, step)
        if not scored and not shown:
            return {}
        number = len(self.held_out.sources) if scored else min(run.samples, len(self.held_out.sources))
        with self.clock("evaluation"):
            prompts = self.held_out.take(range(self.here.rank, number, self.here.size))
            seen = encode(self.policy, prompts, self.here.device)
            responses = self.sampler.sample(seen, seed_of(run.seed, 2**31), 1, data.evaluation_temperature)
            texts, _ = decode_batch(self.tokenizer, [response.ids for response in responses])
            image_ids = [each.prompt.source.image_id for each in seen]
            columns = self.held_out_reward.batch(image_ids, texts)
        if shown:
            rows = zip([each.prompt.index for each in seen], image_ids, texts, strict=True)
            every = sorted(row for rank in self.here.gather(list(rows)) for row in rank)
            for _, image_id, text in every[: run.samples] if self.log is not None else ():
                self.log.sample(step, image_id, text)  # type: ignore[union-attr]
        if not scored:
            return {}
        truth = self.held_out_reward.truth
        found = {
            "generated": float(columns.generated.sum()),
            "hallucinated": float(columns.hallucinated.sum()),
            "covered": float(columns.covered.sum()),
            "present": float(truth.n_present[truth.rows(image_ids)].sum()),
            "length": float(sum(len(response.ids) for response in responses)),
            "responses": float(len(responses)),
        }
        total = dict(zip(found, self.here.sum(*found.values()), strict=True))
        values = {**_scores(total), "length": _ratio(total["length"], total["responses"])}
        return {f"evaluation_{name}": value for name, value in values.items()} | self.clock.take()

    def _write_extremes(self, seen: Sequence[Seen], credited: Credited) -> None:
        """The step's best and worst responses of this rank, with their pieces."""
        order = np.argsort(credited.rewards, kind="stable")
        results, group = credited.columns.results(), self.config.rollout.group
        count = min(2, len(order))
        for kind, chosen in (("worst", order[:count]), ("best", order[::-1][:count])):
            for k in chosen.tolist():
                image_id = seen[k // group].prompt.source.image_id
                parts = [list(part) for part in results[k].parts]
                self.log.extreme(self.step + 1, kind, image_id, results[k].response, parts)  # type: ignore[union-attr]

    def save(self) -> bool:
        """Writes a checkpoint of the present state; whether that succeeded."""
        state = {"step": self.step, "bad": sorted(self.prompts.bad), "config": to_toml(self.config)}
        return self.checkpoints.save(self.step, self.policy, self.optimizer, state)

    def _resumed(self) -> int:
        """The steps that the newest checkpoint has done, after loading it; 0 if there is none."""
        newest = self.checkpoints.latest()
        if newest is None:
            return 0
        state = self.checkpoints.load(newest, self.policy, self.optimizer)
        self.prompts.bad.update(state["bad"])
        if state["config"] != to_toml(self.config):
            before, now = state["config"].splitlines(), to_toml(self.config).splitlines()
            changed = ", ".join(line for line in now if line not in before)
            _log.warning("resumed with other settings than before: %s", changed)
        _log.info("resumed after step %d from %s", state["step"], newest)
        return int(state["step"])

    def _log_of(self, oracle: PresenceOracle) -> Log:
        config = self.config
        card = {
            "reward": self.reward.signature,
            "vocabulary": self.reward.truth.vocabulary.fingerprint,
            "oracle": oracle.fingerprint,
            "ranks": self.here.size,
            "steps": self.steps,
            "prompts": len(self.prompts.sources),
            "parameters": sum(parameter.numel() for parameter in self.policy.parameters()),
            "trainable": sum(parameter.numel() for parameter in self.trainable),
        }
        return Log(self.folder, to_toml(config), card, self.step or -1, config.run.trackers)

    def _asked_to_leave(self, number: int, _frame: Any) -> None:
        if self._leave and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._leave = True


def _within(seen: Seen, owners: Sequence[int], responses: Sequence[Response], budget: int) -> list[list[int]]:
    """The responses of a group by rows, none longer than the budget where that can be."""
    found: list[list[int]] = []
    length = 0
    for i in owners:
        more = len(responses[i].ids) - 1
        if not found or length + more > budget:
            found.append([])
            length = len(seen.prompt.ids)
        found[-1].append(i)
        length += more
    return found


def _optimizer(config: Config, policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters; vectors (norms, biases) do not decay."""
    optim = config.optim
    named = [each for each in policy.parameters() if each.requires_grad]
    groups = [
        {"params": [each for each in named if each.ndim >= 2], "weight_decay": optim.weight_decay},
        {"params": [each for each in named if each.ndim < 2], "weight_decay": 0.0},
    ]
    settings: dict[str, Any] = {"lr": optim.lr, "betas": (optim.beta1, optim.beta2), "eps": optim.eps}
    if optim.optimizer == "adamw":
        return torch.optim.AdamW(groups, fused=True, **settings)
    try:
        from torchao.optim import AdamW8bit
    except ImportError:
        raise ScapoError("optim.optimizer = adamw8bit needs torchao: pip install torchao") from None
    return AdamW8bit(groups, **settings)


def _sampler(config: Config, policy: Policy, processor: Any, here: World) -> Sampler:
    if config.rollout.engine == "transformers":
        rollout = config.rollout
        return PolicySampler(policy, here.device, rollout.max_new_tokens, rollout.prompts_per_batch)
    from .rollout_vllm import VllmSampler

    return VllmSampler(config, policy, processor, here)


def _scores(total: dict[str, float]) -> dict[str, float | None]:
    hal, cover = _ratio(total["hallucinated"], total["generated"]), _ratio(total["covered"], total["present"])
    cap = None if hal is None or cover is None else cap_score(hal, cover)
    return {"hal_rate": hal, "cover_rate": cover, "cap_score": cap}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
