"""The experiment: trials of every scheme by the trainer itself, measured by ``scapo_eval`` itself.

A trial is one training run: a scheme, settings, a seed, and the processor's kernels. Its seed is that of everything,
pictures, start model, prompts and samples, so that trials of one seed differ in what is compared alone, and those of
two seeds share nothing but the rules of the world. A trial is a process of its own, ``python -m scapo_train world.toml
--set ...``, as a user would start it. What is finished is not done again, so an interrupted experiment goes on where it
was.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scapo_eval import score_captions
from scapo_eval.engines import Completion, Request, Sampling
from scapo_eval.engines.hf import TransformersEngine
from scapo_eval.errors import InputError, ScapoError
from scapo_eval.io.files import atomic_write, dump_json

from ..config import load
from ..log import show_messages
from .files import read_ids, write_world
from .language import PROMPT, fluency, repeats
from .pictures import WORLDS, World
from .pretrain import Lessons, pretrain

_log = logging.getLogger(__name__)

TRAIN_PICTURES, EVALUATION_PICTURES = 1024, 256

KERNELS = ("default", "avx2", "avx512")
"""Kernels of PyTorch on x86 (``ATEN_CPU_CAPABILITY``): they round differently, and a training run amplifies that."""


@dataclass(frozen=True)
class Scheme:
    """One line of the table.

    Attributes:
        title: name of the scheme in table and chart.
        settings: settings that differ from ``world.toml``.
    """

    title: str
    settings: tuple[str, ...] = ()


_CREDITS = Path(__file__).with_name("credits.py")


def _own(function: str, *settings: str) -> tuple[str, ...]:
    return (f"credit.scheme={_CREDITS}:{function}", *settings)


SCHEMES: Mapping[str, Scheme] = {
    "scapo": Scheme("SCAPO"),
    "hal": Scheme("response, 1 - Hal.", ("credit.scheme=grpo", "credit.reward=hal")),
    "cap": Scheme("response, Cap. Score", ("credit.scheme=grpo", "credit.reward=cap")),
    "object": Scheme("object level", ("credit.scheme=object",)),
    "eos_last": Scheme("SCAPO, eos last", ("credit.eos=last",)),
    "sparse": Scheme("SCAPO, sparse truth", ("data.oracle={world}/truth_sparse.json",)),
    "hal_spoken": Scheme("response, 1 - Hal., silence 0", _own("hal_spoken")),
    "baseline": Scheme("SCAPO, baseline", _own("baseline")),
    "baseline_place": Scheme("SCAPO, baseline of the place", _own("baseline_place")),
    "no_repeat": Scheme("SCAPO, repetition -0.5", _own("no_repeat")),
    "per_piece": Scheme("SCAPO, same weight of pieces", _own("per_piece")),
    "baseline_no_repeat": Scheme("SCAPO, baseline, repetition -0.5", _own("baseline_no_repeat")),
    "k2": Scheme("SCAPO, KL estimator k2", ("loss.kl_estimator=k2",)),
    "dr_hal": Scheme("Dr. GRPO, 1 - Hal.", ("credit.scheme=dr_grpo", "credit.reward=hal")),
    "dr_cap": Scheme("Dr. GRPO, Cap. Score", ("credit.scheme=dr_grpo", "credit.reward=cap")),
    "eos_own": Scheme("SCAPO, eos own", ("credit.eos=own",)),
    "additive": Scheme("SCAPO, additive", ("credit.ablation=additive",)),
    "full_repeat": Scheme("SCAPO, full repeat", ("credit.ablation=full_repeat",)),
    "no_reg": Scheme("SCAPO, no reg", ("credit.ablation=no_reg",)),
    "no_kl": Scheme("SCAPO, no KL", ("loss.kl=0",)),
}
"""Name -> scheme, those of the chart first; ``{world}`` stands for the folder of the world's files."""

MAIN = ("scapo", "hal", "cap", "object", "eos_last", "sparse")
"""The schemes of the chart; the others are run on demand."""


@dataclass(frozen=True)
class Trial:
    """One training run.

    Attributes:
        scheme: name in SCHEMES.
        seed: seed of everything: pictures, start model, prompts and samples.
        settings: settings that differ from the world's and the scheme's, ``key=value``.
        kernels: one of KERNELS; empty for the machine's own.
    """

    scheme: str
    seed: int
    settings: tuple[str, ...] = ()
    kernels: str = ""

    @property
    def name(self) -> str:
        """Scheme and settings: what trials of one line of the table share."""
        return ",".join((self.scheme, *self.settings))

    @property
    def title(self) -> str:
        """The name for people."""
        return ", ".join((SCHEMES[self.scheme].title, *self.settings))

    def start(self, folder: Path) -> Path:
        """Where the files and the start model of its seed lie."""
        return folder / f"seed-{self.seed}"

    def run(self, folder: Path) -> Path:
        """Where its training run lies."""
        return self.start(folder) / "runs" / (f"{self.name}@{self.kernels}" if self.kernels else self.name)


@dataclass(frozen=True)
class Rates:
    """Rates of one model's captions over the held-out pictures; fractions, None where undefined.

    Attributes:
        hal_rate: Hal. Rate, as ``scapo-eval`` computes it.
        cover_rate: Cover Rate, likewise.
        cap_score: Cap. Score, likewise.
        words: mean number of words per caption.
        fluency: share of sentences that the world's grammar could have written.
        repeats: share of captions that say a sentence twice.
    """

    hal_rate: float | None
    cover_rate: float | None
    cap_score: float | None
    words: float
    fluency: float | None
    repeats: float


@dataclass(frozen=True)
class Measured:
    """What a model says of the held-out pictures: sampled at temperature 1, and greedy."""

    sampled: Rates
    greedy: Rates


def perform(world: World, output: Path, trials: Sequence[Trial], steps: int, lessons: Lessons, jobs: int) -> None:
    """Draws the worlds, trains their models, runs the trials and describes the held-out pictures.

    Args:
        world: rules of the pictures.
        output: folder of the experiment; this world's is ``output / world.name``.
        trials: what is to be run.
        steps: number of steps of each.
        lessons: how long start models are taught.
        jobs: number of processes at once.

    Raises:
        ScapoError: a trial failed; no further one has begun.
    """
    folder = output / world.name
    seeds = sorted({trial.seed for trial in trials})
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        wanted = [seed for seed in seeds if not is_prepared(world, folder / f"seed-{seed}", lessons, seed)]
        _all(pool, prepare, [(world, output, lessons, seed) for seed in wanted])
        with ThreadPoolExecutor(jobs) as threads:
            _all(threads, train, [(folder, trial, steps) for trial in trials])
        models = [folder / f"seed-{seed}" for seed in seeds] + [trial.run(folder) for trial in trials]
        wanted_models = [model for model in models if not (model / "model" / _captions(0.0)).exists()]
        _all(pool, _describe, [(model / "model", _start_of(model)) for model in wanted_models])


def _all(pool: Executor, function: Any, calls: Sequence[tuple[Any, ...]]) -> None:
    """All calls; after a failure none begins."""
    futures = [pool.submit(function, *call) for call in calls]
    try:
        for future in futures:
            future.result()
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise


def _one_thread() -> None:
    """A model this small is slower with several."""
    import torch

    torch.set_num_threads(1)
    show_progress()


def show_progress() -> None:
    """Says on standard error what is being done."""
    show_messages(0)
    logging.getLogger("scapo_train").setLevel(logging.INFO)


def is_prepared(world: World, folder: Path, lessons: Lessons, seed: int) -> bool:
    """Whether a folder holds the files and the start model of a seed.

    Raises:
        InputError: it holds another world's, or a model of other lessons.
    """
    done = folder / "model" / "lessons.json"
    if not done.exists():
        return False
    if json.loads(done.read_text(encoding="utf-8")) != {"world": world.name, **vars(lessons), "seed": seed}:
        raise InputError("holds another world: give another --output", path=str(folder))
    return True


def prepare(world: World, output: Path, lessons: Lessons, seed: int) -> Path:
    """Draws a world and trains its model, unless that is done; returns the folder of the seed."""
    folder = output / world.name / f"seed-{seed}"
    if not is_prepared(world, folder, lessons, seed):
        plain = None if world.name == "plain" else prepare(WORLDS["plain"], output, lessons, seed) / "model"
        write_world(world, folder, train=TRAIN_PICTURES, evaluation=EVALUATION_PICTURES, seed=seed)
        pretrain(world, folder / "model", lessons, seed, plain)
    return folder


def train(folder: Path, trial: Trial, steps: int) -> Path:
    """One trial, unless it is finished; returns the folder of its run.

    Args:
        folder: folder of the world, which holds one of each seed.
        trial: what is run.
        steps: number of steps.

    Raises:
        ScapoError: the trainer failed, with the end of what it said.
    """
    run, start = trial.run(folder), trial.start(folder)
    if finished(run, steps):
        return run
    settings = [f"run.output={json.dumps(str(run))}", f"run.seed={trial.seed}", f"run.steps={steps}"]
    settings += [setting.format(world=start) for setting in SCHEMES[trial.scheme].settings]
    command = [sys.executable, "-m", "scapo_train", str(start / "world.toml"), "--resume", "auto"]
    command += [part for setting in [*settings, *trial.settings] for part in ("--set", setting)]
    kernels = {"ATEN_CPU_CAPABILITY": trial.kernels} if trial.kernels else {}
    _log.info("%s, seed %d%s: %d steps", trial.title, trial.seed, f", {trial.kernels}" * bool(trial.kernels), steps)
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **kernels}
    )
    if done.returncode:
        raise ScapoError(f"{run} failed (exit {done.returncode}): {' '.join(done.stderr.split())[-600:]}")
    return run


def finished(run: Path, steps: int) -> bool:
    """Whether a run has made its steps and written its model."""
    metrics = read_metrics(run)
    return bool(metrics) and metrics[-1]["step"] >= steps and (run / "model" / "config.json").exists()


def read_metrics(run: Path) -> list[dict[str, float]]:
    """The lines of a run's ``metrics.jsonl``; none where there is no such file."""
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _captions(temperature: float) -> str:
    return f"captions_{temperature:g}.jsonl"


def _start_of(run: Path) -> Path:
    """The folder of the seed that a run, or the start itself, belongs to."""
    return run.parent.parent if run.parent.name == "runs" else run


def _describe(model: Path, start: Path) -> None:
    """One response to each held-out picture by each way of decoding; they lie beside the model."""
    engine = TransformersEngine(str(model), dtype="float32", device="cpu", batch_size=64)
    longest = load(start / "world.toml").rollout.max_new_tokens
    pictures = read_ids(start / "evaluation.jsonl")
    for temperature in (1.0, 0.0):
        sampling = Sampling(temperature=temperature, max_tokens=longest, seed=0)
        requests = [Request.of(PROMPT, image, sampling, sample=k) for k, (image, _) in enumerate(pictures)]
        texts = _texts(engine, requests)
        with atomic_write(model / _captions(temperature)) as stream:
            for text, (_, image_id) in zip(texts, pictures, strict=True):
                stream.write(dump_json({"image_id": image_id, "caption": text}) + b"\n")


def _texts(engine: TransformersEngine, requests: Sequence[Request]) -> list[str]:
    found: dict[int, Completion] = {}
    engine.run(requests, lambda request, response: found.update({id(request): response}))
    return [found[id(request)].text for request in requests]


def measure(run: Path) -> Measured:
    """Rates of what a run's model (or a start's) has said, against the whole truth."""
    start = _start_of(run)

    def rates(temperature: float) -> Rates:
        lines = (run / "model" / _captions(temperature)).read_text(encoding="utf-8").splitlines()
        records = list(map(json.loads, lines))
        texts = [record["caption"] for record in records]
        scores = score_captions(records, str(start / "vocabulary.yaml"), str(start / "truth.npz"), resamples=0)
        words = sum(len(text.split()) for text in texts) / len(texts)
        hal, cover, cap = (scores.values[name] for name in ("hal_rate", "cover_rate", "cap_score"))
        return Rates(hal, cover, cap, words, fluency(texts), repeats(texts))

    return Measured(rates(1.0), rates(0.0))
