"""The experiment: every scheme from the same checkpoint by the trainer itself, measured by ``scapo_eval`` itself.

A run is a process of its own, ``python -m scapo_train world.toml --set ...``, as a user would start it. What is
finished is not done again, so an interrupted experiment goes on where it was.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scapo_eval import score_captions
from scapo_eval.engines import Completion, Request, Sampling
from scapo_eval.engines.hf import TransformersEngine
from scapo_eval.errors import ScapoError
from scapo_eval.io.files import atomic_write, dump_json

from ..config import load
from .files import read_ids
from .language import PROMPT, fluency

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scheme:
    """One line of the chart.

    Attributes:
        title: name of the scheme in the chart.
        settings: settings that differ from ``world.toml``.
    """

    title: str
    settings: tuple[str, ...] = ()


SCHEMES: Mapping[str, Scheme] = {
    "scapo": Scheme("SCAPO"),
    "hal": Scheme("response, 1 - Hal.", ("credit.scheme=grpo", "credit.reward=hal")),
    "cap": Scheme("response, Cap. Score", ("credit.scheme=grpo", "credit.reward=cap")),
    "object": Scheme("object level", ("credit.scheme=object",)),
    "eos_last": Scheme("SCAPO, eos last", ("credit.eos=last",)),
    "sparse": Scheme("SCAPO, sparse truth", ("data.oracle={world}/truth_sparse.json",)),
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
class Rates:
    """Rates of one model's captions over the held-out pictures; fractions, None where undefined.

    Attributes:
        hal_rate: Hal. Rate, as ``scapo-eval`` computes it.
        cover_rate: Cover Rate, likewise.
        cap_score: Cap. Score, likewise.
        words: mean number of words per caption.
        fluency: share of sentences that the world's grammar could have written.
    """

    hal_rate: float | None
    cover_rate: float | None
    cap_score: float | None
    words: float
    fluency: float | None


def train(folder: Path, scheme: str, seed: int, steps: int) -> Path:
    """One run, unless it is finished.

    Args:
        folder: folder of the world's files; the training run lies in its ``runs/SCHEME-SEED``.
        scheme: name in SCHEMES.
        seed: seed of sampling and of the order of the prompts.
        steps: number of steps.

    Raises:
        ScapoError: the trainer failed, with the end of what it said.
    """
    run = run_folder(folder, scheme, seed)
    if finished(run, steps):
        return run
    settings = [f"run.output={json.dumps(str(run))}", f"run.seed={seed}", f"run.steps={steps}"]
    settings += [setting.format(world=folder) for setting in SCHEMES[scheme].settings]
    command = [sys.executable, "-m", "scapo_train", str(folder / "world.toml"), "--resume", "auto"]
    command += [part for setting in settings for part in ("--set", setting)]
    _log.info("%s, seed %d: %d steps", SCHEMES[scheme].title, seed, steps)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise ScapoError(f"{run} failed (exit {done.returncode}): {' '.join(done.stderr.split())[-600:]}")
    return run


def train_all(folder: Path, schemes: Sequence[str], seeds: Sequence[int], steps: int, jobs: int) -> None:
    """All runs, ``jobs`` at once, seed by seed; after a failure none begins."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(train, folder, scheme, seed, steps) for seed in seeds for scheme in schemes]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def run_folder(folder: Path, scheme: str, seed: int) -> Path:
    """Where a run lies."""
    return folder / "runs" / f"{scheme}-{seed}"


def finished(run: Path, steps: int) -> bool:
    """Whether a run has made its steps and written its model."""
    metrics = read_metrics(run)
    return bool(metrics) and metrics[-1]["step"] >= steps and (run / "model" / "config.json").exists()


def read_metrics(run: Path) -> list[dict[str, float]]:
    """The lines of a run's ``metrics.jsonl``; none where there is no such file."""
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def measure(model: Path, folder: Path, temperature: float) -> Rates:
    """Captions of the held-out pictures, and their rates against the whole truth.

    The captions lie beside the model, ``captions_T.jsonl``, and are not made again.
    """
    path = model / f"captions_{temperature:g}.jsonl"
    if not path.exists():
        engine = TransformersEngine(str(model), dtype="float32", device="cpu", batch_size=64)
        longest = load(folder / "world.toml").rollout.max_new_tokens
        sampling = Sampling(temperature=temperature, max_tokens=longest, seed=0)
        pictures = read_ids(folder / "evaluation.jsonl")
        requests = [Request.of(PROMPT, image, sampling, sample=k) for k, (image, _) in enumerate(pictures)]
        found: dict[int, Completion] = {}
        place = {id(request): k for k, request in enumerate(requests)}
        engine.run(requests, lambda request, response: found.__setitem__(place[id(request)], response))
        with atomic_write(path) as stream:
            for k, (_, image_id) in enumerate(pictures):
                stream.write(dump_json({"image_id": image_id, "caption": found[k].text}) + b"\n")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    scores = score_captions(records, str(folder / "vocabulary.yaml"), str(folder / "truth.npz"), resamples=0)
    texts = [record["caption"] for record in records]
    words = sum(len(text.split()) for text in texts) / len(texts)
    values = scores.values
    return Rates(values["hal_rate"], values["cover_rate"], values["cap_score"], words, fluency(texts))
