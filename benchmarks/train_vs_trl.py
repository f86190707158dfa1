"""A training step compared with TRL's GRPOTrainer on a CPU: seconds per phase, and growth of memory.

    # In a clone of the repository
    pip install trl==1.16.0 '.[train]'                         # or: bash .ci/adapters trl
    python benchmarks/train_vs_trl.py                            # 8 prompts x 8 responses of 64 tokens
    python benchmarks/train_vs_trl.py --side 3 --prompts 16      # pictures as small as the small world's
    python benchmarks/train_vs_trl.py --side 14 --prompts 4      # image tokens : response tokens as in practice
    python benchmarks/train_vs_trl.py --vocabulary 151936 --memory --prompts 4
    python benchmarks/train_vs_trl.py --smoke                    # smoke test

Both train the same Qwen2.5-VL (random weights, 0.8 million parameters, float32, frozen tower) on the same prompts, with
one update per batch, KL weight 0.01 to a reference model, AdamW, no gradient checkpointing, and one thread. The end of
sequence is never sampled, so that all responses have the same length on both sides. Steps alternate in one process, so
that other load on the machine affects both in the same way. Times are medians after a warm-up. The time of a phase
excludes that of nested phases, and time outside of all phases is "other". Memory is the growth of the peak resident set
after loading, with each side in a separate process. The exit code is 1 if a required value is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from scapo_eval import PresenceOracle, SubsentenceReward, Vocabulary
from scapo_eval.engines.hf import image_tokens, load_processor
from scapo_eval.engines.images import load
from scapo_train.config import Config
from scapo_train.config import load as load_config
from scapo_train.data import read_prompts
from scapo_train.distributed import ProcessGroup
from scapo_train.metrics import Metrics
from scapo_train.trainer import Trainer
from scapo_train.world.files import write_world
from scapo_train.world.pictures import CELL, World
from scapo_train.world.pretrain import build

GROUP = 8
PHASES = ("data", "vision", "rollout", "reward", "logprob", "update", "other")
GENERATION = ("data", "vision", "rollout")
"""Phases that TRL combines in one call: preprocessing of pictures, the tower, and decoding."""

LIMITS = {"everything but generation": 0.5, "whole step": 0.7}
MEMORY_LIMIT = 0.5
REWARD_SHARE = 0.01


class Stopwatch:
    """Seconds of wall-clock and CPU time per phase. A nested phase interrupts the outer phase."""

    def __init__(self) -> None:
        self.steps: list[dict[str, tuple[float, float]]] = []
        self._spent: dict[str, tuple[float, float]] = {}
        self._open = ["other"]
        self._since = self._now()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the time of the context to a phase."""
        self._book()
        self._open.append(phase)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """Returns the seconds of wall-clock time as ``seconds_<phase>``, like the trainer's own clock, without ending
        the step.
        """
        self._book()
        return {f"seconds_{phase}": wall for phase, (wall, _) in self._spent.items()}

    def begin(self) -> None:
        """Begins a step."""
        self._spent, self._since = {}, self._now()

    def end(self) -> None:
        """Ends a step."""
        self._book()
        self.steps.append(self._spent)

    def watch(self, owner: Any, name: str, phase: str | Callable[[], str]) -> None:
        """Counts calls of a method as a phase."""
        method = getattr(owner, name)

        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self(phase if isinstance(phase, str) else phase()):
                return method(*args, **kwargs)

        setattr(owner, name, watched)

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def _book(self) -> None:
        now, phase = self._now(), self._open[-1]
        wall, cpu = self._spent.get(phase, (0.0, 0.0))
        self._spent[phase] = (wall + now[0] - self._since[0], cpu + now[1] - self._since[1])
        self._since = now


def write(folder: Path, options: argparse.Namespace) -> None:
    """Writes model, pictures, prompts and ground truth."""
    world = World("benchmark")
    write_world(world, folder, train=options.prompts, evaluation=1, seed=0)
    model = build(folder / "model", seed=0, world=world)
    if options.vocabulary > model.config.text_config.vocab_size:
        model.resize_token_embeddings(options.vocabulary, mean_resizing=False)
    model.save_pretrained(folder / "model")
    path = folder / "model" / "preprocessor_config.json"
    pixels = (CELL * options.side) ** 2
    path.write_text(json.dumps(json.loads(path.read_text()) | {"min_pixels": pixels, "max_pixels": pixels}))


def settings_of(folder: Path, options: argparse.Namespace) -> Config:
    """Returns the settings of the run."""
    found = load_config(folder / "world.toml")
    return replace(
        found,
        run=replace(found.run, output=tempfile.mkdtemp(dir=folder), steps=10_000, samples_every=0, export=False),
        data=replace(found.data, prompts_per_step=options.prompts, evaluation="", evaluation_oracle=""),
        rollout=replace(found.rollout, group=GROUP, max_new_tokens=options.tokens, prompts_per_batch=options.prompts),
        optim=replace(found.optim, lr=1e-6),
    )


def never_sampled(model: Any, tokenizer: Any) -> list[int]:
    """Returns the ids of picture tokens, of the end, and of broken or invisible characters, which no trained model
    samples.
    """
    texts = [tokenizer.decode([k]) for k in range(len(tokenizer))]
    odd = [k for k, text in enumerate(texts) if not (text.isascii() and text.isprintable())]
    return sorted({*odd, *tokenizer.all_special_ids, *image_tokens(model.config)})


class Ours:
    """Steps of ``scapo_train``.

    Args:
        config: Settings of the run.
        micro_batches: Number of forward and backward passes per update.
    """

    def __init__(self, config: Config, micro_batches: int) -> None:
        self.watch = Stopwatch()
        self._trainer = Trainer(config, ProcessGroup(0, 1, torch.device("cpu")))
        prompt = len(self._trainer.prompts.take([0])[0].ids)
        row = prompt + config.rollout.group * (config.rollout.max_new_tokens - 1)
        budget = row * config.data.prompts_per_step // micro_batches
        budgeted = replace(config, optim=replace(config.optim, micro_batch_tokens=budget))
        self._trainer.config = self._trainer.updater.config = budgeted
        self._trainer.policy.never = never_sampled(self._trainer.policy.vlm, self._trainer.tokenizer)
        self._trainer.clock = self.watch  # type: ignore[assignment]

    def step(self) -> Metrics:
        """Makes one step including its log entry, and returns its metrics."""
        trainer = self._trainer
        self.watch.begin()
        values = trainer.train_step()
        trainer.step += 1
        assert trainer.log is not None
        trainer.log.metrics(trainer.step, trainer.steps, values)
        self.watch.end()
        assert values["length"] == trainer.config.rollout.max_new_tokens
        assert values["kl"] is not None
        return values


class Theirs:
    """TRL's GRPOTrainer with the same settings and the same reward.

    Args:
        config: Settings of the run.
        steps: Number of steps of :meth:`run`.
        micro_batches: Number of forward and backward passes per update.
    """

    def __init__(self, config: Config, steps: int, micro_batches: int) -> None:
        import transformers
        from datasets import Dataset
        from trl import GRPOTrainer

        from scapo_eval.integrations.trl import reward_function, scapo_config

        data, rollout = config.data, config.rollout
        self.watch = Stopwatch()
        model = transformers.AutoModelForImageTextToText.from_pretrained(config.model.path, dtype=torch.float32)
        model.model.visual.requires_grad_(False)
        processor = load_processor(config.model.path)
        never = never_sampled(model, processor.tokenizer)
        responses = data.prompts_per_step * rollout.group
        arguments = scapo_config(
            output_dir=str(Path(config.run.output) / "trl"), use_cpu=True, bf16=False, report_to=[], logging_steps=1,
            save_strategy="no", disable_tqdm=True, gradient_checkpointing=False, shuffle_dataset=False,
            per_device_train_batch_size=responses // micro_batches, gradient_accumulation_steps=micro_batches,
            num_generations=rollout.group, max_completion_length=rollout.max_new_tokens, max_steps=steps,
            learning_rate=config.optim.lr, lr_scheduler_type="constant", generation_kwargs={"suppress_tokens": never},
        )  # fmt: skip
        reward = SubsentenceReward(Vocabulary.load(data.vocabulary), PresenceOracle.load(data.oracle))
        rows = [
            {"prompt": list(each.messages), "image": load(each.path), "image_id": each.image_id}
            for each in read_prompts(data.train)
        ]
        self._trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward_function(reward),
            args=arguments,
            train_dataset=Dataset.from_list(rows * steps),
            processing_class=processor,
        )

    def run(self, between: Callable[[], object]) -> None:
        """Makes all steps. ``between`` is called after each step, and its time does not count."""
        from transformers import TrainerCallback

        trainer, watch = self._trainer, self.watch

        class Alternate(TrainerCallback):  # type: ignore[misc, unused-ignore]
            def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                if state.global_step == 0:  # the optimizer is there now
                    watch.watch(more["optimizer"], "step", "update")

            def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                """Ends the step, because the log entry is its last action."""
                if "kl" in more["logs"]:
                    assert more["logs"]["completions/min_length"] == trainer.max_completion_length
                    watch.end()
                    between()
                    watch.begin()

        def forward() -> str:
            return "update" if torch.is_grad_enabled() else "logprob"

        watch.watch(trainer, "_tokenize_prompts", "data")
        watch.watch(trainer, "_generate", "rollout")
        watch.watch(trainer, "_calculate_rewards", "reward")
        watch.watch(trainer, "_prepare_inputs", "other")
        watch.watch(trainer, "_get_per_token_logps_and_entropies", forward)
        watch.watch(trainer, "training_step", "update")
        watch.watch(trainer, "_clip_grad_norm", "update")
        trainer.add_callback(Alternate())
        watch.begin()
        trainer.train()


def memory(side: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Returns the memory of this process in MiB after loading, and the additional memory of two steps."""
    config = settings_of(folder, options)
    if side == "ours":
        ours = Ours(config, options.micro_batches)
    else:
        theirs = Theirs(config, 2, options.micro_batches)
    gc.collect()
    loaded = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    if side == "ours":
        ours.step()
        ours.step()
    else:
        theirs.run(lambda: None)
    return {"loaded": loaded, "growth": resident("VmHWM") - loaded}


def resident(name: str) -> float:
    """Returns the value of a line in /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def middle(watch: Stopwatch, warm_up: int, kind: int) -> dict[str, float]:
    """Returns the median seconds per phase and for compared sums. Kind 0 is wall-clock time, and kind 1 is CPU time."""
    steps = [{phase: spent[kind] for phase, spent in step.items()} for step in watch.steps[warm_up:]]
    sums = {
        "generation": [sum(step.get(phase, 0.0) for phase in GENERATION) for step in steps],
        "whole step": [sum(step.values()) for step in steps],
    }
    sums["everything but generation"] = [a - b for a, b in zip(sums["whole step"], sums["generation"], strict=True)]
    phases = {phase: median(step.get(phase, 0.0) for step in steps) for phase in PHASES}
    return phases | {name: median(values) for name, values in sums.items()}


def show_seconds(ours: Stopwatch, theirs: Stopwatch, warm_up: int) -> list[tuple[str, float, float]]:
    """Prints the table, and returns the required values as name, value and limit."""
    wall, cpu = ([middle(watch, warm_up, kind) for watch in (ours, theirs)] for kind in (0, 1))
    print("| phase | ours, CPU ms | TRL, CPU ms | ratio | ours, wall ms | TRL, wall ms | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in wall[0]:
        cells = []
        for a, b in (cpu, wall):
            cells += [f"{1e3 * a[name]:,.1f}", f"{1e3 * b[name]:,.1f}", f"{a[name] / b[name]:.2f}" if b[name] else ""]
        print(f"| {name} | {' | '.join(cells)} |")
    return [(name, cpu[0][name] / cpu[1][name], limit) for name, limit in LIMITS.items()] + [
        ("share of the reward", cpu[0]["reward"] / cpu[0]["whole step"], REWARD_SHARE)
    ]


def show_memory(folder: Path, options: argparse.Namespace) -> list[tuple[str, float, float]]:
    """Prints the table, and returns the required values as name, value and limit."""
    found = {}
    print("| | loaded, MiB | growth, MiB |\n|---|---:|---:|")
    for side in ("ours", "trl"):
        command = [sys.executable, *sys.argv, "--memory-of", side, "--folder", str(folder)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[side] = json.loads(output.splitlines()[-1])
        print(f"| {side} | {found[side]['loaded']:,.0f} | {found[side]['growth']:,.0f} |")
    return [("growth of memory", found["ours"]["growth"] / found["trl"]["growth"], MEMORY_LIMIT)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="of every response")
    parser.add_argument("--side", type=int, default=6, help="side of a picture in image tokens")
    parser.add_argument("--vocabulary", type=int, default=0, help="tokens of the model, if more than the tokenizer's")
    parser.add_argument("--micro-batches", type=int, default=1, help="forward and backward passes of an update")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="one small step of each, to see that it runs; no limits")
    parser.add_argument("--memory", action="store_true", help="growth of memory instead of seconds")
    parser.add_argument("--memory-of", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("trl") is None:
        sys.exit("TRL is not installed: pip install trl==1.16.0")
    if options.smoke:
        options.prompts, options.tokens, options.side, options.steps, options.warm_up = 2, 8, 3, 1, 0
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if options.memory_of:
        print(json.dumps(memory(options.memory_of, options.folder, options)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options)
        print(f"{options.prompts} prompts x {GROUP} responses of {options.tokens} tokens; pictures of ", end="")
        print(f"{options.side**2} tokens; {options.micro_batches} micro-batch(es); load {os.getloadavg()[0]:.1f}\n")
        if options.memory:
            reached = show_memory(Path(folder), options)
        else:
            config = settings_of(Path(folder), options)
            ours = Ours(config, options.micro_batches)
            theirs = Theirs(config, options.steps, options.micro_batches)
            with contextlib.redirect_stdout(sys.stderr):
                theirs.run(ours.step)
            reached = show_seconds(ours.watch, theirs.watch, options.warm_up)
    print()
    if options.smoke:
        return 0
    for name, value, limit in reached:
        print(f"{name}: {value:.3g} (at most {limit:g}): {'reached' if value <= limit else 'MISSED'}")
    return 0 if all(value <= limit for _, value, limit in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
