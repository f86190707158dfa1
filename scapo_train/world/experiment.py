"""Trials of all schemes, trained with ``scapo_train`` and measured with ``scapo_eval``.

A trial is a training run with a credit scheme, settings, a seed, and a choice of CPU kernels. The seed determines the
pictures, the start model, the prompts and the samples. Trials with the same seed therefore differ only in the compared
settings, and trials with different seeds share only the rules of the world. Trials use the same function as ``python -m
scapo_train world.toml --set ...``. An interrupted experiment resumes from its finished work.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

from scapo_eval import score_captions
from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.processes import process_pool
from scapo_eval.engines import Completion, Request, Sampling
from scapo_eval.engines.hf import TransformersEngine
from scapo_eval.files.files import atomic_write, decoding, read_regular
from scapo_eval.files.json_text import dump_json, parse_json

from .. import trainer
from ..config import load
from ..monitoring.log import CONFIG, METRICS, show_messages
from ..monitoring.watch import Interrupted
from . import preference, telling
from .files import NOISY, read_ids, write_world
from .judge import judge_of
from .language import GRAMMAR, PROMPT, fluency, repeats
from .pictures import WORLDS, World
from .pretrain import Lessons, pretrain
from .shorten import Edit, Shortening, edit_of, shorten

_log = logging.getLogger(__name__)

TRAIN_PICTURES, EVALUATION_PICTURES = 1024, 256

_KERNELS = "ATEN_CPU_CAPABILITY"

KERNELS = ("default", "avx2", "avx512")
"""Kernels of PyTorch on x86 (``ATEN_CPU_CAPABILITY``). They round differently, and training amplifies these
differences.
"""


@dataclass(frozen=True)
class Scheme:
    """Credit scheme that corresponds to one line in the table of results.

    Attributes:
        title: Name of the scheme in tables and charts.
        settings: Settings that differ from ``world.toml``.
        on_pairs: True if the scheme trains on pairs of samples from the start model, False if it trains on rollouts.
        foreign: True if the captions of the scheme are imported from another project.
        shortens: Name of the scheme whose model is trained on its own shortened captions (``shorten.py``), or an empty
            string.
        edit: Name of the function that shortens these captions.
        end_weight: Weight of the end token in the training on these captions.
    """

    title: str
    settings: tuple[str, ...] = ()
    on_pairs: bool = False
    foreign: bool = False
    shortens: str = ""
    edit: Edit = "shortened"
    end_weight: float = 1.0


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
    "claims": Scheme(
        "SCAPO, claims of all kinds",
        ('credit.kinds=["presence","count","attribute","relation"]', 'credit.scenes=["{world}/scenes.jsonl"]'),
    ),
    "robust": Scheme("SCAPO, robust", ("credit.robust=true",)),
    "sparse": Scheme("SCAPO, sparse truth", ("data.oracle={world}/truth_sparse.json",)),
    "cap_sparse": Scheme(
        "response, Cap. Score, sparse truth",
        ("credit.scheme=grpo", "credit.reward=cap", "data.oracle={world}/truth_sparse.json"),
    ),
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
    "r_h_quarter": Scheme("SCAPO, r_h 0.25", ("credit.r_h=0.25",)),
    "r_h_half": Scheme("SCAPO, r_h 0.5", ("credit.r_h=0.5",)),
    "r_h_double": Scheme("SCAPO, r_h 2", ("credit.r_h=2",)),
    "stop_r_h_half": Scheme("SCAPO, stop group, r_h 0.5", ("credit.stop=group", "credit.r_h=0.5")),
    "stop_r_h_double": Scheme("SCAPO, stop group, r_h 2", ("credit.stop=group", "credit.r_h=2")),
    "r_reg_high": Scheme("SCAPO, r_reg 0.3", ("credit.r_reg=0.3",)),
    "f_quarter": Scheme("response, F-0.25", ("credit.scheme=grpo", "credit.reward=cap", "credit.beta=0.25")),
    "f_half": Scheme("response, F-0.5", ("credit.scheme=grpo", "credit.reward=cap", "credit.beta=0.5")),
    "f_double": Scheme("response, F-2", ("credit.scheme=grpo", "credit.reward=cap", "credit.beta=2")),
    "words": Scheme("SCAPO, credit for words", ("credit.tokens=words",)),
    "ratio": Scheme("SCAPO, reference ratio 100", ("credit.reference_ratio=100",)),
    **{
        f"{scheme}noisy_{percent}": Scheme(
            f"{title}, {percent} % of the truth wrong", (*settings, f"data.oracle={{world}}/truth_noisy_{percent}.npz")
        )
        for scheme, title, settings in (
            ("", "SCAPO", ()),
            ("cap_", "response, Cap. Score", ("credit.scheme=grpo", "credit.reward=cap")),
        )
        for percent in NOISY
    },
    "boundary": Scheme("SCAPO, boundaries times 5", _own("boundary")),
    "boundary_half": Scheme("SCAPO, r_h 0.5, boundaries times 5", _own("boundary", "credit.r_h=0.5")),
    "opening": Scheme("SCAPO, repetition -0.5 at its opening", _own("opening")),
    "short": Scheme("SCAPO, shortened captions", shortens="scapo"),
    "short_twice": Scheme("SCAPO, captions shortened twice", shortens="short"),
    "short_thrice": Scheme("SCAPO, captions shortened three times", shortens="short_twice"),
    "deduplicated": Scheme("SCAPO, deduplicated captions", shortens="scapo", edit="deduplicated"),
    "distinct": Scheme("SCAPO, captions of distinct objects", shortens="scapo", edit="distinct", end_weight=0.3),
}
"""Schemes by name, with the chart's schemes first. In settings, ``{world}`` is the folder of the world's files."""

ALIASES = {"grpo": "hal", "dr_grpo": "dr_hal"}
"""Names of the paper -> names in SCHEMES, where the paper's reward is taken to be 1 - Hal. Rate."""

TABLE_1 = (
    "vcd", "opera", "vti", "dpo", "mdpo", "opa_dpo", "symmpo", "hal", "dapo", "dr_hal", "scapo",
)  # fmt: skip
"""Rows of the paper's Table 1 below the start model: seven trained here, four whose captions are imported."""

MAIN = ("scapo", "hal", "cap", "object", "eos_last", "sparse")
"""Schemes in the chart. All other schemes run only on request."""


@dataclass(frozen=True)
class Trial:
    """One training run.

    Attributes:
        scheme: Name of the scheme, one of SCHEMES.
        seed: Seed for the pictures, the start model, the prompts and the samples.
        settings: Settings in the form ``key=value`` that differ from those of the world and the scheme.
        kernels: Name of the CPU kernels, one of KERNELS. An empty string selects the machine's default kernels.
    """

    scheme: str
    seed: int
    settings: tuple[str, ...] = ()
    kernels: str = ""

    @property
    def name(self) -> str:
        """Text that states the scheme and the settings that all trials in one line of the table share."""
        return ",".join((self.scheme, *self.settings))

    @property
    def title(self) -> str:
        """Name of the trial in tables and charts."""
        return ", ".join((SCHEMES[self.scheme].title, *self.settings))

    def start(self, folder: Path) -> Path:
        """Returns the path of the folder with the files and the start model for the trial's seed."""
        return folder / f"seed-{self.seed}"

    def run(self, folder: Path) -> Path:
        """Returns the path of the trial's run folder."""
        name = quote(self.name, safe=",=")  # a setting may contain a path
        return self.start(folder) / "runs" / (f"{name}@{self.kernels}" if self.kernels else name)


@dataclass(frozen=True)
class Rates:
    """Rates for one model's captions of the held-out pictures, as fractions or None if undefined.

    Attributes:
        hal_rate: Share of the claims that are hallucinated, as computed by ``scapo-eval``.
        cover_rate: Share of the present objects that the captions name, as computed by ``scapo-eval``.
        cap_score: Harmonic mean of ``1 - hal_rate`` and ``cover_rate``, as computed by ``scapo-eval``.
        words: Mean number of words per caption.
        fluency: Share of sentences that match the grammar of the world.
        repeats: Share of captions with a repeated sentence.
        cut: Share of captions that reached the token limit, or None if this share is unknown.
        judged: Share of sentences, including incomplete sentences, that a second model considers fluent (``judge.py``).
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
    """Rates for the captions that one model generates for the held-out pictures, by sampling at temperature 1 and by
    greedy decoding.
    """

    sampled: Rates
    greedy: Rates


_OF_THE_TRIAL = ("run.output", "run.seed", "run.steps")


def check_settings(scheme: str, settings: Sequence[str]) -> None:
    """Checks the settings of trials before anything is drawn.

    Raises:
        InputError: If a setting is invalid, contradicts the scheme, or differs for each trial.
    """
    for setting in settings:
        if (key := setting.partition("=")[0].strip()) in _OF_THE_TRIAL:
            raise InputError(f"{key} is not a setting of trials, because it follows from the seed and the steps")
    load("qwen2_5_vl_7b", [*SCHEMES[scheme].settings, *settings])


def perform(world: World, output: Path, trials: Sequence[Trial], steps: int, lessons: Lessons, jobs: int) -> None:
    """Draws the pictures of each seed, trains the start models, runs the trials, and generates captions for the
    held-out pictures.

    Args:
        world: Rules for drawing the pictures.
        output: Folder of the experiment. The files of the world are in the folder ``output / world.name``.
        trials: Trials to run.
        steps: Number of training steps per trial.
        lessons: Training length of the start models.
        jobs: Number of parallel processes.

    Raises:
        ScapoError: If a trial fails. No further trial is started after a failure.
    """
    folder = output / world.name
    seeds = sorted({trial.seed for trial in trials})
    starts = {seed: folder / f"seed-{seed}" for seed in seeds}
    ready = {seed for seed in seeds if is_prepared(world, starts[seed], lessons, seed) and _is_described(starts[seed])}
    _all(jobs, "", _prepare_and_describe, [(world, output, lessons, seed) for seed in seeds if seed not in ready])
    done = {trial for trial in trials if finished(trial.run(folder), steps) and _is_described(trial.run(folder))}
    for kernels in sorted({trial.kernels for trial in trials}):
        wanted = [trial for trial in trials if trial.kernels == kernels and trial not in done]
        for number in sorted({rounds_of(trial.scheme) for trial in wanted}):  # each round continues the one before
            calls = [(folder, trial, steps) for trial in wanted if rounds_of(trial.scheme) == number]
            _all(jobs, kernels, _train_and_describe, calls)


def rounds_of(scheme: str) -> int:
    """Returns how many times the model of a scheme is trained on its own shortened captions."""
    teacher = SCHEMES[scheme].shortens
    return 1 + rounds_of(teacher) if teacher else 0


def _all(jobs: int, kernels: str, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
    """Calls a function with each tuple of arguments, in processes that use the given kernels. After a failure, no
    further call is started.
    """
    if not calls:
        return
    former = os.environ.get(_KERNELS)
    if kernels:
        os.environ[_KERNELS] = kernels  # PyTorch reads this variable at import
    try:
        spawn = get_context("spawn")
        with process_pool(jobs, option="--jobs", initializer=one_thread, mp_context=spawn) as pool:
            for future in [pool.submit(until_interrupted, function, *call) for call in calls]:
                future.result()
    finally:
        if former is None:
            os.environ.pop(_KERNELS, None)
        else:
            os.environ[_KERNELS] = former


_stopped = Event()
"""Event that is set in a worker process after a trial was interrupted."""


def until_interrupted(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a worker process, unless a trial was interrupted in this process.

    When a signal arrives, the trainer saves its state and ends like a task. The worker would then begin the next one.

    Raises:
        KeyboardInterrupt: If a trial is or was interrupted.
    """
    if _stopped.is_set():
        raise KeyboardInterrupt
    try:
        return function(*arguments)
    except Interrupted:
        _stopped.set()
        raise KeyboardInterrupt from None


def one_thread() -> None:
    """Limits PyTorch to one thread in this process, because a model of this size is slower with several threads."""
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


_FILES_OF_START = (
    "world.toml",  # written last of the files of a world
    *(f"model/{name}" for name in ("config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json")),
)


def is_prepared(world: World, folder: Path, lessons: Lessons, seed: int) -> bool:
    """Returns True if a folder contains the files and the start model for a seed.

    The result is False if a file is missing, for example because the folder was moved while it was being written.

    Raises:
        InputError: If the folder contains a start model for another world, other lessons or another seed.
    """
    done = folder / "model" / "lessons.json"
    if not done.exists():
        return False
    if json.loads(done.read_text(encoding="utf-8")) != {"world": world.name, **vars(lessons), "seed": seed}:
        raise InputError("contains another world: use another --output", path=str(folder))
    return all((folder / name).exists() for name in _FILES_OF_START)


def prepare(world: World, output: Path, lessons: Lessons, seed: int) -> Path:
    """Draws the pictures of a world and trains its start model, unless both exist. Returns the folder of the seed."""
    folder = output / world.name / f"seed-{seed}"
    if not is_prepared(world, folder, lessons, seed):
        base = prepare(WORLDS[world.base], output, lessons, seed) / "model" if world.has_base else None
        (folder / "model" / "lessons.json").unlink(missing_ok=True)  # until all other files are new
        write_world(world, folder, train=TRAIN_PICTURES, evaluation=EVALUATION_PICTURES, seed=seed)
        pretrain(world, folder / "model", lessons, seed, base)
    return folder


def train(folder: Path, trial: Trial, steps: int) -> Path:
    """Runs one trial unless it is already finished. Returns the folder of the run.

    Args:
        folder: Folder of the world, with one subfolder per seed.
        trial: Trial to run.
        steps: Number of steps.

    Raises:
        Interrupted: If a signal arrives. The state has been saved.
        ScapoError: If the trainer fails. The error message states the folder of the run.
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
    if teacher := SCHEMES[trial.scheme].shortens:
        aligned = train(folder, replace(trial, scheme=teacher), steps)
        _log.info("%s, seed %d: training on shortened captions", trial.title, trial.seed)
        longest = load(start / "world.toml").rollout.max_new_tokens
        seeds = (trial.seed, 5, rounds_of(trial.scheme) - 1)
        world, scheme = WORLDS[folder.name], SCHEMES[trial.scheme]
        edited = edit_of(scheme.edit, world)
        shorten(aligned, run, world, longest, steps, seeds, Shortening(), edited, scheme.end_weight)
        return run
    settings = [f"run.output={json.dumps(str(run))}", f"run.seed={trial.seed}", f"run.steps={steps}"]
    own = (*SCHEMES[trial.scheme].settings, *trial.settings)
    settings += [setting.replace("{world}", str(start)) for setting in own]
    _log.info("%s, seed %d%s: %d steps", trial.title, trial.seed, f", {trial.kernels}" * bool(trial.kernels), steps)
    config = load(start / "world.toml", settings)
    if SCHEMES[trial.scheme].on_pairs and (run / CONFIG).exists():
        former = load(run / CONFIG).run.steps
        if former != steps:
            raise InputError(f"contains pairs for {former} steps: use another --output", path=str(run))
    for name in ("config.json", *map(_captions, _TEMPERATURES)):  # of the model after fewer steps
        (run / "model" / name).unlink(missing_ok=True)
    try:
        if SCHEMES[trial.scheme].on_pairs:
            preference.train(config)
        else:
            trainer.train(config, resume=True)
    except Interrupted:
        raise
    except ScapoError as error:
        raise ScapoError(f"{run}: {error}") from error
    return run


def finished(run: Path, steps: int) -> bool:
    """Returns True if a run has reached the given number of steps and has written its model.

    Raises:
        InputError: If the run has more steps.
    """
    done = max((line["step"] for line in read_metrics(run)), default=0)
    if done > steps:
        raise InputError(f"contains {done} steps instead of {steps}: use another --output", path=str(run))
    return done == steps and (run / "model" / "config.json").exists()


def read_metrics(run: Path) -> list[dict[str, float]]:
    """Returns the records in a run's ``metrics.jsonl``, or an empty list if the file does not exist. An incomplete last
    line, which a killed process can leave behind, is omitted.
    """
    path = run / METRICS
    if not path.exists():
        return []
    with decoding("file of metrics", path):
        return [parse_json(line) for line in read_regular(path).split(b"\n")[:-1]]


_TEMPERATURES = (1.0, 0.0)


def _captions(temperature: float) -> str:
    return f"captions_{temperature:g}.jsonl"


def _start_of(run: Path) -> Path:
    """Returns the folder for the seed to which a run belongs. The folder of a start model is returned unchanged."""
    return run.parent.parent if run.parent.name == "runs" else run


def describe(model: Path, start: Path) -> None:
    """Generates one response per held-out picture and decoding method, and writes the responses to the model folder,
    unless the files exist.
    """
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
    """Returns the rates for the captions that the model of a run (or a start model) generated, measured with the
    complete ground truth.
    """
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
        grammar = telling.GRAMMAR if (start / "scenes.jsonl").exists() else GRAMMAR
        judged = judge_of(WORLDS[start.parent.name]).fluent(texts)
        return Rates(hal, cover, cap, words, fluency(texts, grammar), repeats(texts), cut, judged)

    return Measured(rates(1.0), rates(0.0))
