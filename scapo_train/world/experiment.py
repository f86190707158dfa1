"""The experiment: trials of every scheme by the trainer itself, measured by ``scapo_eval`` itself.

A trial is one training run: a scheme, settings, a seed, and the processor's kernels. Its seed is that of everything,
pictures, start model, prompts and samples, so that trials of one seed differ in what is compared alone, and those of
two seeds share nothing but the rules of the world. What is trained is what ``python -m scapo_train world.toml --set``
... trains, by the same function. What is finished is not done again, so an interrupted experiment goes on where it was.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scapo_eval import score_captions
from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.processes import process_pool
from scapo_eval.engines import Completion, Request, Sampling
from scapo_eval.engines.hf import TransformersEngine
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json

from .. import trainer
from ..config import load
from ..monitoring.log import show_messages
from . import preference
from .files import read_ids, write_world
from .judge import judge_of
from .language import PROMPT, fluency, repeats
from .pictures import WORLDS, World
from .pretrain import Lessons, pretrain

_log = logging.getLogger(__name__)

TRAIN_PICTURES, EVALUATION_PICTURES = 1024, 256

_KERNELS = "ATEN_CPU_CAPABILITY"

KERNELS = ("default", "avx2", "avx512")
"""Kernels of PyTorch on x86 (``ATEN_CPU_CAPABILITY``): they round differently, and a training run amplifies that."""


@dataclass(frozen=True)
class Scheme:
    """One line of the table.

    Attributes:
        title: name of the scheme in table and chart.
        settings: settings that differ from ``world.toml``.
        on_pairs: whether it is trained on pairs of the start model's own samples, not on rollouts.
        foreign: whether its captions come from another project. They are imported, not made here.
    """

    title: str
    settings: tuple[str, ...] = ()
    on_pairs: bool = False
    foreign: bool = False


_CREDITS = Path(__file__).with_name("credits.py")


def _own(function: str, *settings: str) -> tuple[str, ...]:
    return (f"credit.scheme={_CREDITS}:{function}", *settings)


SCHEMES: Mapping[str, Scheme] = {
    "scapo": Scheme("SCAPO"),
    "hal": Scheme("response, 1 - Hal.", ("credit.scheme=grpo", "credit.reward=hal")),
    "cap": Scheme("response, Cap. Score", ("credit.scheme=grpo", "credit.reward=cap")),
    "object": Scheme("object level", ("credit.scheme=object",)),
    "eos_last": Scheme("SCAPO, eos last", ("credit.eos=last",)),
    "stop": Scheme("SCAPO, stop group", ("credit.stop=group",)),
    "robust": Scheme("SCAPO, robust", ("credit.robust=true",)),
    "sparse": Scheme("SCAPO, sparse truth", ("data.oracle={world}/truth_sparse.json",)),
    "hal_spoken": Scheme("response, 1 - Hal., silence 0", _own("hal_spoken")),
    "baseline": Scheme("SCAPO, baseline", _own("baseline")),
    "baseline_place": Scheme("SCAPO, baseline of the place", _own("baseline_place")),
    "no_repeat": Scheme("SCAPO, repetition -0.5", _own("no_repeat")),
    "per_piece": Scheme("SCAPO, same weight of pieces", _own("per_piece")),
    "baseline_no_repeat": Scheme("SCAPO, baseline, repetition -0.5", _own("baseline_no_repeat")),
    "sayable": Scheme("SCAPO, sayable", ("credit.reference_floor=0.01",)),
    "sayable_rarely": Scheme("SCAPO, sayable one time in a thousand", ("credit.reference_floor=0.001",)),
    "kl_piece": Scheme("SCAPO, KL per piece", _own("kl_piece")),
    "k2": Scheme("SCAPO, KL estimator k2", ("loss.kl_estimator=k2",)),
    "dr_hal": Scheme("Dr. GRPO, 1 - Hal.", ("credit.scheme=dr_grpo", "credit.reward=hal")),
    "dr_cap": Scheme("Dr. GRPO, Cap. Score", ("credit.scheme=dr_grpo", "credit.reward=cap")),
    "eos_own": Scheme("SCAPO, eos own", ("credit.eos=own",)),
    "additive": Scheme("SCAPO, additive", ("credit.ablation=additive",)),
    "full_repeat": Scheme("SCAPO, full repeat", ("credit.ablation=full_repeat",)),
    "no_reg": Scheme("SCAPO, no reg", ("credit.ablation=no_reg",)),
    "no_kl": Scheme("SCAPO, no KL", ("loss.kl=0",)),
    "dpo": Scheme("DPO", ("preference.loss=dpo",), on_pairs=True),
    "mdpo": Scheme("mDPO", ("preference.loss=mdpo",), on_pairs=True),
    "symmpo": Scheme("SymMPO", ("preference.loss=symmpo",), on_pairs=True),
    "dapo": Scheme(
        "DAPO, 1 - Hal.",
        ("credit.scheme=dapo", "credit.reward=hal", "credit.form=original", "loss.kl=0", "loss.clip_high=0.28"),
    ),
    "vcd": Scheme("VCD", foreign=True),
    "opera": Scheme("OPERA", foreign=True),
    "vti": Scheme("VTI", foreign=True),
    "opa_dpo": Scheme("OPA-DPO", foreign=True),
    "r_h_half": Scheme("SCAPO, r_h 0.5", ("credit.r_h=0.5",)),
    "r_h_double": Scheme("SCAPO, r_h 2", ("credit.r_h=2",)),
    "r_reg_high": Scheme("SCAPO, r_reg 0.3", ("credit.r_reg=0.3",)),
    "f_half": Scheme("response, F-0.5", ("credit.scheme=grpo", "credit.reward=cap", "credit.beta=0.5")),
    "f_double": Scheme("response, F-2", ("credit.scheme=grpo", "credit.reward=cap", "credit.beta=2")),
    "opening": Scheme("SCAPO, repetition -0.5 at its opening", _own("opening")),
}
"""Name -> scheme, those of the chart first; ``{world}`` means the folder of the world's files."""

ALIASES = {"grpo": "hal", "dr_grpo": "dr_hal"}
"""Names of the paper -> names in SCHEMES, where the paper's reward is taken to be 1 - Hal. Rate."""

TABLE_1 = (
    "vcd", "opera", "vti", "dpo", "mdpo", "opa_dpo", "symmpo", "hal", "dapo", "dr_hal", "scapo",
)  # fmt: skip
"""Rows of the paper's Table 1 below the start model: seven trained here, four whose captions are imported."""

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
        """Returns the folder of the files and the start model of its seed."""
        return folder / f"seed-{self.seed}"

    def run(self, folder: Path) -> Path:
        """Returns the folder of its training run."""
        name = quote(self.name, safe=",=")  # a setting may hold a path
        return self.start(folder) / "runs" / (f"{name}@{self.kernels}" if self.kernels else name)


@dataclass(frozen=True)
class Rates:
    """Rates of one model's captions over the held-out pictures; fractions, None if undefined.

    Attributes:
        hal_rate: Hal. Rate, as ``scapo-eval`` computes it.
        cover_rate: Cover Rate, likewise.
        cap_score: Cap. Score, likewise.
        words: mean number of words per caption.
        fluency: share of sentences that the world's grammar could have written.
        repeats: share of captions that say a sentence twice.
        cut: share of captions that the limit on tokens ended; None if it is not known.
        judged: share of sentences, broken ones included, that another model finds fluent (``judge.py``).
    """

    hal_rate: float | None
    cover_rate: float | None
    cap_score: float | None
    words: float
    fluency: float | None
    repeats: float
    cut: float | None = None
    judged: float | None = None


@dataclass(frozen=True)
class Measured:
    """A model's captions of the held-out pictures: sampled at temperature 1, and greedy."""

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
        ScapoError: if a trial failed; no further one has begun.
    """
    folder = output / world.name
    seeds = sorted({trial.seed for trial in trials})
    starts = {seed: folder / f"seed-{seed}" for seed in seeds}
    ready = {seed for seed in seeds if is_prepared(world, starts[seed], lessons, seed) and _is_described(starts[seed])}
    _all(jobs, "", _prepare_and_describe, [(world, output, lessons, seed) for seed in seeds if seed not in ready])
    done = {trial for trial in trials if finished(trial.run(folder), steps) and _is_described(trial.run(folder))}
    for kernels in sorted({trial.kernels for trial in trials}):
        wanted = [trial for trial in trials if trial.kernels == kernels and trial not in done]
        _all(jobs, kernels, _train_and_describe, [(folder, trial, steps) for trial in wanted])


def _all(jobs: int, kernels: str, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
    """Makes all calls, in processes with these kernels; after a failure none begins."""
    if not calls:
        return
    former = os.environ.get(_KERNELS)
    if kernels:
        os.environ[_KERNELS] = kernels  # which PyTorch reads when it is loaded
    try:
        spawn = get_context("spawn")
        with process_pool(jobs, option="--jobs", initializer=one_thread, mp_context=spawn) as pool:
            for future in [pool.submit(function, *call) for call in calls]:
                future.result()
    finally:
        if former is None:
            os.environ.pop(_KERNELS, None)
        else:
            os.environ[_KERNELS] = former


def one_thread() -> None:
    """Limits a process to one thread: a model this small is slower with several."""
    import torch

    torch.set_num_threads(1)
    show_messages(0)
    logging.getLogger(__package__).setLevel(logging.INFO)


def _prepare_and_describe(world: World, output: Path, lessons: Lessons, seed: int) -> None:
    folder = prepare(world, output, lessons, seed)
    describe(folder / "model", folder)


def _train_and_describe(folder: Path, trial: Trial, steps: int) -> None:
    run = train(folder, trial, steps)
    describe(run / "model", trial.start(folder))


def _is_described(run: Path) -> bool:
    return all((run / "model" / _captions(temperature)).exists() for temperature in _TEMPERATURES)


def is_prepared(world: World, folder: Path, lessons: Lessons, seed: int) -> bool:
    """Returns whether a folder holds the files and the start model of a seed.

    Raises:
        InputError: if it holds another world's, or a model of other lessons.
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
    """Returns one trial, unless it is finished; returns the folder of its run.

    Args:
        folder: folder of the world, which holds one of each seed.
        trial: what is run.
        steps: number of steps.

    Raises:
        ScapoError: if the trainer failed, with the folder of the run.
    """
    run, start = trial.run(folder), trial.start(folder)
    if SCHEMES[trial.scheme].foreign:
        if not _is_described(run):
            wanted = " and ".join(_captions(temperature) for temperature in _TEMPERATURES)
            reason = f"captions of another project not found: put {wanted} there ({PROMPT!r}, {start}/evaluation.jsonl)"
            raise InputError(reason, path=str(run / "model"))
        return run
    if finished(run, steps):
        return run
    settings = [f"run.output={json.dumps(str(run))}", f"run.seed={trial.seed}", f"run.steps={steps}"]
    own = (*SCHEMES[trial.scheme].settings, *trial.settings)
    settings += [setting.replace("{world}", str(start)) for setting in own]
    _log.info("%s, seed %d%s: %d steps", trial.title, trial.seed, f", {trial.kernels}" * bool(trial.kernels), steps)
    for former in (run / "model").glob("captions_*.jsonl"):
        former.unlink()  # of fewer steps
    config = load(start / "world.toml", settings)
    try:
        if SCHEMES[trial.scheme].on_pairs:
            preference.train(config)
        else:
            trainer.train(config, resume=True)
    except ScapoError as error:
        raise ScapoError(f"{run}: {error}") from error
    return run


def finished(run: Path, steps: int) -> bool:
    """Returns whether a run has made its steps and written its model."""
    metrics = read_metrics(run)
    return bool(metrics) and metrics[-1]["step"] >= steps and (run / "model" / "config.json").exists()


def read_metrics(run: Path) -> list[dict[str, float]]:
    """Returns the lines of a run's ``metrics.jsonl``; none if there is no such file."""
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


_TEMPERATURES = (1.0, 0.0)


def _captions(temperature: float) -> str:
    return f"captions_{temperature:g}.jsonl"


def _start_of(run: Path) -> Path:
    """Returns the folder of the seed that a run, or the start itself, belongs to."""
    return run.parent.parent if run.parent.name == "runs" else run


def describe(model: Path, start: Path) -> None:
    """Writes one response to each held-out picture by each way of decoding, beside the model, unless that is done."""
    if _is_described(model.parent):
        return
    engine = TransformersEngine(str(model), dtype="float32", device="cpu", batch_size=64)
    longest = load(start / "world.toml").rollout.max_new_tokens
    pictures = read_ids(start / "evaluation.jsonl")
    for temperature in _TEMPERATURES:
        sampling = Sampling(temperature=temperature, max_tokens=longest, seed=0)
        requests = [Request.of(PROMPT, image, sampling, sample=k) for k, (image, _) in enumerate(pictures)]
        completions = _completions(engine, requests)
        with atomic_write(model / _captions(temperature)) as stream:
            for completion, (_, image_id) in zip(completions, pictures, strict=True):
                record = {"image_id": image_id, "caption": completion.text, "finish": completion.finish}
                stream.write(dump_json(record) + b"\n")


def _completions(engine: TransformersEngine, requests: Sequence[Request]) -> list[Completion]:
    completions: dict[int, Completion] = {}
    engine.run(requests, lambda request, response: completions.update({id(request): response}))
    return [completions[id(request)] for request in requests]


def measure(run: Path) -> Measured:
    """Returns the rates of what a run's model (or a start's) has said, against the whole truth."""
    start = _start_of(run)

    def rates(temperature: float) -> Rates:
        lines = (run / "model" / _captions(temperature)).read_text(encoding="utf-8").splitlines()
        records = list(map(json.loads, lines))
        texts = [record["caption"] for record in records]
        scores = score_captions(records, str(start / "vocabulary.yaml"), str(start / "truth.npz"), resamples=0)
        words = sum(len(text.split()) for text in texts) / len(texts)
        hal, cover, cap = (scores.values[name] for name in ("hal_rate", "cover_rate", "cap_score"))
        finishes = [record.get("finish") for record in records]
        cut = None if None in finishes else finishes.count("length") / len(finishes)
        judged = judge_of(WORLDS[start.parent.name]).fluent(texts)
        return Rates(hal, cover, cap, words, fluency(texts), repeats(texts), cut, judged)

    return Measured(rates(1.0), rates(0.0))
