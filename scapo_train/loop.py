"""Parts of a training run that do not depend on the kind of step: models, evaluation, checkpoints, signals, the log and
the export.

:mod:`scapo_train.trainer` defines the step of SCAPO and of the baselines that train on rollouts.
:mod:`scapo_train.preference` defines the step of the baselines that train on pairs.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.hashes import digest
from scapo_eval.base.text import printable
from scapo_eval.files.json_text import convert_as, dump_json, read_json
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.rewarding.monitor import kind_metrics, kind_sums
from scapo_eval.rewarding.reward import SubsentenceReward
from scapo_eval.rewarding.tokens import decode_batch
from scapo_eval.truths.oracle import PresenceOracle

from . import interrupts_are_errors
from .attention import check_attention
from .checkpoint.best import Best, referenced
from .checkpoint.resume import check_changes, check_not_deleted, continued, known_state
from .checkpoint.save import Checkpoints, export, step_of
from .config import REQUIRED, Config, load, required, to_toml
from .data import PromptRecord, Prompts, check_pictures, indices_of_step, read_prompts, seed_of
from .distributed import ProcessGroup, join_process_group
from .export import BEST
from .families.policy import Policy
from .metrics import Metrics, ratio, score_metrics
from .model import load_policy, processor_of, source_folder
from .monitoring.log import Clock, Log, open_folder, package_versions, show_messages
from .monitoring.memory import out_of_memory, remedy_for_memory, with_remedy
from .monitoring.watch import Interrupted, TimeOver, exit_code
from .rollout import PolicySampler, Sampler, encode
from .update import optimizer_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Data of a training run, which is read before any model is loaded.

    Attributes:
        sources: Prompts, or other records from which steps are built, in file order.
        reward: Reward of the sampled responses, or None if the steps do not include sampling.
        answers: Given responses to each prompt, or an empty sequence if the responses are sampled.
    """

    sources: Sequence[PromptRecord]
    reward: SubsentenceReward | None = None
    answers: Sequence[tuple[str, ...]] = ()

    @property
    def lines(self) -> Iterator[bytes]:
        """Contents of the records as JSON, without the folders of their pictures."""
        for source, answers in zip(self.sources, self.answers or repeat(()), strict=False):
            yield dump_json([[Path(name).name for name in source.pictures], source.image_id, source.messages, answers])


@dataclass(frozen=True)
class Models:
    """Models of a training run.

    Attributes:
        processor: Processor of pictures and text.
        policy: Model to train.
        reference: Frozen reference model, or None if the run uses no reference. If the policy has adapters, the
            reference is the policy itself.
    """

    processor: Any
    policy: Policy
    reference: Policy | None

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the processor."""
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def positions(self) -> int | None:
        """Maximum number of tokens in a sequence, or None for no limit."""
        return getattr(self.policy.vlm.config.get_text_config(), "max_position_embeddings", None)

    @property
    def trainable(self) -> list[Any]:
        """Parameters that the optimizer changes."""
        return [parameter for parameter in self.policy.parameters() if parameter.requires_grad]


def check_installed(config: Config) -> None:
    """Checks that the package of the optimizer is installed.

    Raises:
        ScapoError: If the package is missing. The error states the command that installs it.
    """
    if config.optim.optimizer == "adamw8bit" and "torchao" not in sys.modules and find_spec("torchao") is None:
        raise ScapoError("optim.optimizer = adamw8bit needs torchao: pip install torchao")


class _Finding(msgspec.Struct):
    name: str
    ok: bool | None


class _Report(msgspec.Struct):
    ok: bool
    findings: list[_Finding]


DOCTOR = "doctor.json"
"""Report file of :mod:`scapo_train.doctor` in the folder of the training run."""


def check_health(folder: Path) -> None:
    """Checks that the report of :mod:`scapo_train.doctor` in a run folder contains no failed check.

    Raises:
        InputError: If the report contains failed checks. The error names the failed checks.
    """
    path = folder / DOCTOR
    if not path.is_file():
        return
    report = convert_as(read_json(path), _Report, path)
    failed = [finding.name for finding in report.findings if finding.ok is False]
    if not report.ok:
        raise InputError(
            f"{', '.join(failed)} failed: fix the problem and run the doctor again, or remove the file", path=path
        )


class Loop(ABC):
    """A training run and all objects that are used in more than one of its steps.

    Each kind of training run is a subclass. Each hook of the subclass is called once, in the following order, and
    receives the results of earlier hooks as arguments. Before :meth:`prepare`, only the attributes ``config`` and
    ``process_group`` exist:

    1. :meth:`read`: reads the training data.
    2. :meth:`load_models`: loads the policy and its reference.
    3. :meth:`make_prompts`: prepares the task's sources for the model.
    4. :meth:`make_sampler`: creates the sampler that describes pictures.
    5. :meth:`prepare`: creates all other objects that a step needs. When :meth:`prepare` is called, all attributes of
      the run exist, and no checkpoint has been loaded.

    After the hooks have run, a checkpoint is loaded (:meth:`restore`), and the steps begin.

    Args:
        config: Settings of the training run.
        process_group: Group of all processes in the training run.
        resume: True to continue from the newest checkpoint, if the folder contains one.
        accept_changes: True to continue even if the objective has changed.
    """

    required: ClassVar[tuple[str, ...]] = REQUIRED
    """Settings that only the user can specify."""

    derived: tuple[str, ...] = ()
    """Settings that the run itself determines. A resumed run may keep their values from the checkpoint."""

    def __init__(
        self, config: Config, process_group: ProcessGroup, *, resume: bool = False, accept_changes: bool = False
    ) -> None:
        hours = config.run.max_hours or math.inf
        self._deadline = time.monotonic() + 3600 * hours  # which loading the model is a part of
        self.config, self.process_group = config, process_group
        self.folder = Path(config.run.output)
        if process_group.main:
            self.folder.mkdir(parents=True, exist_ok=True)
        check_health(self.folder)

        data = config.data
        check_installed(config)
        task = self.read()
        check_pictures(task.sources)
        held_out = _read_held_out(config, task)
        if process_group.main and process_group.size > data.prompts_per_step:
            _log.warning("%d ranks, but data.prompts_per_step = %d", process_group.size, data.prompts_per_step)
        self.reward = task.reward
        self.steps = config.run.steps or data.epochs * (len(task.sources) // data.prompts_per_step)
        indices_of_step(0, len(task.sources), data.prompts_per_step, config.run.seed, source=data.train)

        models = self.load_models()
        self.processor, self.policy, self.reference = models.processor, models.policy, models.reference
        self.tokenizer, self.positions, self.trainable = models.tokenizer, models.positions, models.trainable
        self._check_texts(task.sources)
        check_attention(models.policy, models.processor, task.sources, config.model, process_group)
        self.optimizer = optimizer_of(config, models.policy)
        self.prompts = self.make_prompts(task.sources, models)
        self._prompts_hash = digest(task.lines)
        self.held_out, self.held_out_reward = _prompts(config, held_out.sources, models), held_out.reward
        self.sampler = self.make_sampler(models)
        packages = {**package_versions(), **self.sampler.versions}
        self.versions: list[Mapping[str, Any]] = [{"step": 0, "packages": packages}]
        if self.sampler.longest is not None:
            for prompts in (self.prompts, self.held_out):
                prompts.longest = self.sampler.longest - config.rollout.max_new_tokens

        self.clock = Clock(process_group.device)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", config.run.keep, background=config.run.async_save)
        self.best = Best(config.run.keep_best, config.run.patience, _hash_of(held_out) if config.run.keep_best else "")
        self.best_checkpoint = Checkpoints(self.folder / BEST, 0)
        self._best_of_last_save = 0  # which may still be written in the background
        self.step, self._stop_requested = 0, False
        self._bad: set[int] = set()  # prompts with unreadable pictures in the completed steps
        self.prepare()
        if resume:
            self.step = self._resume(accept_changes)
        self._remove_outdated_best()
        self.sampler.sync()
        self.log = self._make_log() if process_group.main else None

    # --- what a step is about -----------------------------------------------------------------------------------

    @property
    def temperature(self) -> float:
        """Temperature at which the log-probabilities in the loss are computed."""
        return 1.0

    @property
    def compares(self) -> bool:
        """True if the run uses a reference model."""
        return True

    @property
    def objective(self) -> str:
        """Text with settings outside the configuration that a resumed run must share with its checkpoint."""
        return str(self.reward.signature) if self.reward is not None else "pairs"

    @abstractmethod
    def read(self) -> Task:
        """Reads the training data before the model is loaded."""

    def load_models(self) -> Models:
        """Loads the policy and, if needed, the reference."""
        config = self.config
        read = partial(load_policy, config.model, self.temperature, self.process_group)
        processor = processor_of(config.model)
        policy = read(lora=config.lora, seed=config.run.seed, offload=config.optim.offload)
        if not self.compares:
            return Models(processor, policy, None)
        return Models(processor, policy, policy if config.lora.rank else read(reference=True))

    def _check_texts(self, sources: Sequence[PromptRecord]) -> None:
        """Raises an error if a prompt contains a token that represents a picture or ends a response."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        signs = [added[token].content for token in (*self.policy.ends, *self.policy.never) if token in added]
        for source in sources:
            texts = [part["text"] for turn in source.messages for part in turn["content"] if part["type"] == "text"]
            if found := next((sign for sign in signs if any(sign in text for text in texts)), None):
                reason = f"the prompt of image '{source.image_id}' contains {found}, a special token of the model"
                raise InputError(reason, path=self.config.data.train)

    def make_prompts(self, sources: Sequence[PromptRecord], models: Models) -> Prompts:
        """Prepares the prompts for the model, with lengths that leave room for a response."""
        return _prompts(self.config, sources, models)

    def make_sampler(self, models: Models) -> Sampler:
        """Returns the sampler that generates descriptions of pictures."""
        rollout = self.config.rollout
        return PolicySampler(
            models.policy, self.process_group.device, rollout.max_new_tokens, rollout.prompts_per_batch
        )

    @abstractmethod
    def prepare(self) -> None:
        """Creates all other objects that a step needs. ``prepare`` is called after the models have been created and
        before a checkpoint is loaded.
        """

    @abstractmethod
    def train_step(self) -> Metrics:
        """Performs one training step and returns its metrics."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Returns facts about the data for the run card."""

    def state(self) -> dict[str, Any]:
        """Returns the state that a checkpoint contains in addition to the weights and the optimizer's moments."""
        return {
            "step": self.step,
            "bad": sorted(self.prompts.bad),
            "config": to_toml(self.config),
            "reward": self.objective,
            "prompts": self._prompts_hash,
            "best": self.best.state(),
            "versions": self.versions,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the output of :meth:`state` from a checkpoint."""
        self.prompts.bad.update(state["bad"])
        self._bad = set(self.prompts.bad)
        if "best" in state:
            self.best.restore(state["best"])

    def check_pictures(self) -> None:
        """Exchanges the numbers of prompts with unreadable pictures and of refused prompts between all ranks, and ends
        the run if there are too many. All ranks must call this function in a step, before the weights change.

        Raises:
            InputError: If too many pictures are unreadable or a prompt is refused. The completed steps have been saved.
        """
        self._exchange_bad(self.prompts, self._bad)
        self._bad = set(self.prompts.bad)

    def _exchange_bad(self, prompts: Prompts, before: Collection[int], *, counts: bool = True) -> None:
        for bad, refused in self.process_group.gather((prompts.bad, prompts.refused)):
            prompts.bad |= bad
            prompts.refused |= refused
        try:
            (prompts.check_bad if counts else prompts.check_refused)()
        except InputError as error:
            if not self.step:
                raise
            prompts.bad.intersection_update(before)  # when the run is resumed, these pictures are read again
            saved = f"; after step {self.step}: continue with --resume auto" if self.save() else ""
            raise InputError(f"{error.reason}{saved}", path=error.path, line=error.line) from None

    def close(self) -> None:
        """Shuts down threads and the sampler."""
        self.checkpoints.close()
        self.prompts.close()
        self.sampler.close()

    # --- the run ------------------------------------------------------------------------------------------------

    def run(self) -> Path:
        """Performs all remaining steps, exports the model, and returns the folder of the run.

        Raises:
            Interrupted: If a signal arrives, or if ``run.max_hours`` have almost passed. The state has been saved.
            ScapoError: If the memory is insufficient. The error lists settings that need less memory.
        """
        config, longest = self.config.run, 0.0
        handlers = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            if self.step == 0:
                start = self.evaluate(0)
                if start and self.log is not None:
                    self.log.metrics(0, self.steps, start)
            while self.step < self.steps and not self.best.exhausted:
                began = time.monotonic()
                values = self.train_step()
                self.step += 1
                values |= self.evaluate(self.step)
                if self.log is not None:
                    self.log.metrics(self.step, self.steps, values)
                self._save_if_best(values)
                longest = max(longest, time.monotonic() - began)
                next_one = longest + self.checkpoints.seconds  # a step and its checkpoint
                over = time.monotonic() + 1.5 * next_one > self._deadline
                stop = self.process_group.max(2 * int(self._stop_requested) or int(over))
                due = config.save_every and self.step % config.save_every == 0
                last = self.step == self.steps or self.best.exhausted
                raised = [name for name in config.stop_on if values[f"alarm_{name}"]]
                end = bool(stop or last or raised)
                saved = self.save(wait=end) if due or end else False
                if raised:
                    place = f"stopped after step {self.step} of {self.steps} by run.stop_on: {', '.join(raised)}"
                    raise ScapoError(f"{place}; nothing is exported")
                if stop and not last:
                    place = f"stopped after step {self.step} of {self.steps}" + (
                        "" if saved else ", which is not saved"
                    )
                    kind = Interrupted if stop == 2 else TimeOver
                    raise kind(f"{place}: continue with --resume auto")
            if not self.optimizer.state and self.step:
                reason = "no update was made, so nothing is exported (metrics.jsonl: updates_left_out)"
                raise InputError(reason, path=str(self.folder))
            if config.export:
                self._take_best()
                export(self.policy.vlm, source_folder(self.config.model), self.folder / "model")
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise ScapoError(remedy_for_memory(self.config, self.clock.phase, self.step + 1, error)) from None
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.close()
            if self.log is not None:
                self.log.close(failed=sys.exc_info()[0] is not None)
        return self.folder

    def indices(self, step: int) -> list[int]:
        """Returns the indices of a step's prompts on all ranks."""
        data = self.config.data
        return indices_of_step(step, len(self.prompts.sources), data.prompts_per_step, self.config.run.seed)

    def own_indices(self, step: int) -> list[int]:
        """Returns the indices of a step's prompts on this rank."""
        return self.indices(step)[self.process_group.rank :: self.process_group.size] if step < self.steps else []

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self._stop_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop_requested = True

    # --- held-out descriptions ----------------------------------------------------------------------------------

    def due(self, every: int, step: int) -> bool:
        """Returns True if a periodic action is due after this step."""
        return bool(every) and (step % every == 0 or step == self.steps)

    def evaluate(self, step: int) -> Metrics:
        """If an evaluation is due after this step, describes the held-out images, writes samples of the responses, and
        returns the scores.
        """
        run, data, process_group = self.config.run, self.config.data, self.process_group
        scored = bool(data.evaluation) and self.due(run.evaluate_every, step)
        sampled = run.samples > 0 and self.due(run.samples_every, step)
        if not scored and not sampled:
            return {}
        number = len(self.held_out.sources) if scored else min(run.samples, len(self.held_out.sources))
        with self.clock("evaluation"):
            prompts = self.held_out.take(range(process_group.rank, number, process_group.size), check=False)
            self._exchange_bad(self.held_out, (), counts=scored)
            encoded = encode(self.policy, prompts, process_group.device)
            responses = self.sampler.sample(encoded, seed_of(run.seed, 2**31), 1, data.evaluation_temperature)
            texts, _ = decode_batch(self.tokenizer, [response.ids for response in responses])
            image_ids = [prompt.prompt.source.image_id for prompt in encoded]
            columns = self.held_out_reward.batch(image_ids, texts) if scored and self.held_out_reward else None
        if sampled:
            rows = list(zip([prompt.prompt.index for prompt in encoded], image_ids, texts, strict=True))
            all_rows = sorted(row for rank in process_group.gather(rows) for row in rank)
            if self.log is not None:
                self.log.samples(step, [(image_id, text) for _, image_id, text in all_rows[: run.samples]])
        if columns is None or self.held_out_reward is None:
            return {}
        truth = self.held_out_reward.truth
        named = columns.of_presence()
        sums = {
            **{name: float(named[name].sum()) for name in ("generated", "hallucinated", "covered")},
            **kind_sums(columns),
            "present": float(truth.n_present[truth.rows(image_ids)].sum()),
            "length": float(sum(len(response.ids) for response in responses)),
            "responses": float(len(responses)),
        }
        totals = dict(zip(sums, process_group.sum(*sums.values()), strict=True))
        metrics = {
            **score_metrics(totals),
            **kind_metrics(totals),
            "length": ratio(totals["length"], totals["responses"]),
        }
        return {f"evaluation_{name}": value for name, value in metrics.items()} | self.clock.take()

    # --- saving and resuming ------------------------------------------------------------------------------------

    def save(self, *, wait: bool = True) -> bool:
        """Writes a checkpoint of the current state; see :meth:`~scapo_train.checkpoint.save.Checkpoints.save`."""
        saved = self.checkpoints.save(self.step, self.policy, self.optimizer, self.state(), wait=wait)
        self._best_of_last_save = self.best.step
        self._remove_outdated_best()
        return saved

    def _save_if_best(self, metrics: Metrics) -> None:
        """Writes a checkpoint to ``best/`` if the metrics are better than all previous ones. If it cannot be written,
        the previous best step remains the best one.
        """
        previous = self.best.state()
        if self.best.update(self.step, metrics):
            if not self.best_checkpoint.save(self.step, self.policy, self.optimizer, self.state()):
                self.best.restore(previous)
            self._remove_outdated_best()

    def _remove_outdated_best(self) -> None:
        """Removes the steps from ``best/`` that are neither the best step of this run nor of one of its checkpoints,
        from which the run may be resumed.
        """
        if self.best.metric:
            steps = {self.best.step, self._best_of_last_save}
            self.best_checkpoint.retain(lambda: steps | referenced(self.checkpoints))

    def _take_best(self) -> None:
        """Loads the weights of the best step into the policy, if there is a best step.

        Raises:
            InputError: If the checkpoint of the best step is missing.
        """
        best = self.best
        if best.metric and best.step:
            path = next((path for path in self.best_checkpoint.complete() if step_of(path) == best.step), None)
            if path is None:
                reason = f"the checkpoint of the best step {best.step} is missing, so nothing is exported"
                raise InputError(
                    f"{reason}; to export another step, use python -m scapo_train.export", path=str(self.folder)
                )
            self.best_checkpoint.load_weights(path, self.policy)
            _log.info("exported: step %d, the best %s of the held-out images", best.step, best.metric)

    def _resume(self, accept_changes: bool) -> int:
        """Loads the newest checkpoint and returns its number of steps, or 0 if there is no checkpoint."""
        newest = self.checkpoints.latest()
        if newest is None:
            check_not_deleted(self.folder, self.config.run.save_every)
            return 0
        state = known_state(self.checkpoints.state(newest), newest)
        others = {
            "the reward": (state.get("reward"), self.objective),
            "prompts with the hash": (state.get("prompts"), self._prompts_hash),
        }
        check_changes(state["config"], self.config, others, accept=accept_changes, path=newest, derived=self.derived)
        self.checkpoints.load(newest, self.policy, self.optimizer)
        self.restore(state)
        self.versions = continued(state.get("versions", []), self.versions[0]["packages"], state["step"])
        _log.info("resumed after step %d from %s", state["step"], newest)
        return int(state["step"])

    def _make_log(self) -> Log:
        card = {
            **self.sampler.versions,
            "versions": self.versions,
            **self.facts(),
            "ranks": self.process_group.size,
            "steps": self.steps,
            "parameters": sum(parameter.numel() for parameter in self.policy.parameters()),
            "trainable": sum(parameter.numel() for parameter in self.trainable),
        }
        return Log(self.folder, self.config, card, self.step or -1)


def _hash_of(held_out: Task) -> str:
    """Returns the hash of held-out prompts and of the reward that scores their responses."""
    return digest([*held_out.lines, str(held_out.reward and held_out.reward.signature).encode()])


def _prompts(config: Config, sources: Sequence[PromptRecord], models: Models) -> Prompts:
    """Returns prompts whose length leaves room for a response."""
    room = models.positions and models.positions - config.rollout.max_new_tokens
    return Prompts(sources, models.processor, config.data.max_bad, room, workers=config.data.workers)


def _read_held_out(config: Config, task: Task) -> Task:
    """Returns the held-out prompts and the reward that scores their responses. Without held-out prompts, the first
    training prompts are used to write samples.
    """
    data = config.data
    if not data.evaluation:
        return Task(task.sources[: config.run.samples], task.reward)
    path = data.evaluation_oracle or ("" if task.reward is not None else data.oracle)
    if task.reward is None and not path:
        raise InputError("data.evaluation requires a ground truth: --set data.evaluation_oracle=...")
    given = task.reward.truth if task.reward is not None else None
    oracle = PresenceOracle.load(path) if path or given is None else given.oracle
    vocabulary = Vocabulary.load(data.vocabulary) if given is None else given.vocabulary
    sources = read_prompts(data.evaluation, data.images, oracle, skip_unknown=data.on_unknown_image == "skip")
    check_pictures(sources)
    settings = config.credit.reward_config()
    if task.reward is not None:
        settings = replace(settings, scenes=task.reward.scenes)  # read only once
    reward = SubsentenceReward(vocabulary, oracle, settings, any_fingerprint=data.any_fingerprint)
    return Task(sources[: data.evaluation_prompts or None], reward)


def train(kind: type[Loop], config: Config, *, resume: bool = False, accept_changes: bool = False) -> Path:
    """Runs training until the last step.

    Args:
        kind: Class of the training run.
        config: Settings of the training run; see :mod:`scapo_train.config`.
        resume: True to continue from the newest checkpoint, if the folder contains one.
        accept_changes: True to continue even if the objective (such as the reward, the scheme, the loss or the seed)
            has changed.

    Returns:
        The folder of the training run.

    Raises:
        InputError: If the input is invalid. The error message states the file, the line and the reason.
        Interrupted: After SIGTERM or SIGINT, if the state of the run has been saved.
        ScapoError: If the memory does not suffice. The error lists settings that need less memory.
    """
    required(config, names=kind.required)
    with join_process_group() as process_group:
        show_messages(process_group.rank)
        folder = Path(config.run.output)
        with open_folder(folder, resume=resume) if process_group.main else nullcontext():
            with with_remedy(config):
                made = kind(config, process_group, resume=resume, accept_changes=accept_changes)
            return made.run()


def command(prog: str, kind: type[Loop], given: argparse.Namespace) -> int:
    """Runs training and returns the exit code.

    The exit code is 0 after success, 2 after invalid input or insufficient memory, 130 after an interrupt (the state is
    saved), and 75 if the run should be restarted because a rank has died or the time limit was reached.

    Args:
        prog: Name of the program, which is the prefix of its messages.
        kind: Class of the training run; see :func:`train`.
        given: Parsed arguments from :func:`scapo_train.config.command_line`.
    """
    interrupts_are_errors()
    try:
        hours = [f"run.max_hours={given.max_hours}"] if given.max_hours is not None else []
        settings = load(given.config, given.set + hours)
        required(settings, given.config, kind.required)
        train(kind, settings, resume=given.resume == "auto", accept_changes=given.accept_changes)
    except (ScapoError, KeyboardInterrupt) as error:
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:  # earlier faults may affect a single machine
            print(f"{prog}: {printable(str(error)) or 'interrupted'}", file=sys.stderr)
        return exit_code(error)
    return 0
