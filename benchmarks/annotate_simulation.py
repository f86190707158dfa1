"""Coverage of quality control's error bounds, in simulated runs with planted errors through the real store and rounds.

    python benchmarks/annotate_simulation.py [--runs 200] [--images 1000] [--labels 40] [--json FILE]

Each run has a synthetic ground truth with label frequencies like the paper's, and a judge with its own false-positive
and false-negative rate for each label. A coarse pass is followed by rounds over all labels until one round is free of
errors. Labels with errors are judged again with a fraction of their error rates, as with an improved prompt. The
person's answers are the ground truth. The simulation counts how often the true residual error of the final matrix is
within the reported bounds, and measures the width of the bounds.

As a control, the same count is made for a naive bound. In this case, labels leave the rounds one by one when their own
30 pairs are free of errors, and the last draws are pooled as if they were one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapo_eval.annotate.qc.bounds import clopper_pearson
from scapo_eval.annotate.qc.rounds import PersonAnswer, close_round, draw_round, open_round
from scapo_eval.annotate.qc.summary import summarize
from scapo_eval.annotate.store import CellProvenance, Store
from scapo_eval.files.json_text import dump_json
from scapo_eval.inference.sources import ImageFile
from scapo_eval.matching.vocabulary import Vocabulary

MOST_ROUNDS = 40
KINDS = ("error", "false_positive", "false_negative")


@dataclass(frozen=True)
class World:
    """Ground truth and judge of a simulation.

    Attributes:
        truth: (images, labels) matrix of 1 and 0.
        false_positive: (labels,) probability that the judge calls an absent label present.
        false_negative: (labels,) probability that the judge calls a present label absent.
        better: Factor by which a refinement multiplies these probabilities.
        unsure: Probability that the person cannot decide.
    """

    truth: NDArray[np.int8]
    false_positive: NDArray[np.float64]
    false_negative: NDArray[np.float64]
    better: float
    unsure: float


def make_world(
    rng: np.random.Generator, images: int, labels: int, *, better: float | None = None, unsure: float = 0.002
) -> World:
    """Returns a world with label frequencies from 0.4 % to 60 % (median 2.5 %, mean about 6 %, as in the paper's Tables
    5 and 6).
    """
    frequency = np.clip(rng.lognormal(np.log(0.025), 1.2, labels), 0.004, 0.6)
    return World(
        truth=(rng.random((images, labels)) < frequency).astype(np.int8),
        false_positive=rng.choice([0.0, 0.001, 0.003, 0.02], labels, p=[0.3, 0.4, 0.2, 0.1]),
        false_negative=rng.choice([0.0, 0.02, 0.08, 0.25], labels, p=[0.3, 0.4, 0.2, 0.1]),
        better=float(rng.choice([0.1, 0.3, 0.5])) if better is None else better,
        unsure=unsure,
    )


def judged(world: World, labels: NDArray[np.int64], times: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Returns the (images, len(labels)) verdicts of the judge after ``times`` refinements."""
    truth = world.truth[:, labels]
    share = world.better**times
    rates = np.where(truth == 1, world.false_negative[labels] * share, world.false_positive[labels] * share)
    return truth ^ (rng.random(truth.shape) < rates).astype(np.int8)


def simulate(
    folder: Path, world: World, seed: int, *, confidence: float = 0.99, most_rounds: int = MOST_ROUNDS
) -> dict[str, Any]:
    """Simulates one run from the coarse pass to an error-free round, or to the last permitted round.

    Returns:
        For each kind of error, the true share of wrong cells and the bounds (``low``, ``high``), and the number of
        rounds.
    """
    rng = np.random.default_rng(seed)
    images, labels = world.truth.shape
    vocabulary = Vocabulary.from_mapping({f"label {k}": [f"label {k}"] for k in range(labels)})
    pictures = [ImageFile(str(k), f"{k}.jpg", f"{k}.jpg") for k in range(images)]
    times = np.zeros(labels, dtype=np.int64)
    with Store.create(folder, pictures, vocabulary) as store:
        judge(store, world, np.arange(labels), times, rng, CellProvenance("coarse", "coarse@0", "simulated"))
        for number in range(1, most_rounds + 1):
            draw_round(store, seed=seed)
            with open_round(store, write=True) as round_:
                pairs = round_.draw.pairs
                answers = person(world, pairs.rows, pairs.label_ids, rng)
                round_.answer_many(enumerate(answers), by="truth")
                errors = close_round(store, round_)
            if not errors or number == most_rounds:
                break
            failing = np.array(sorted({store.vocabulary.label_ids[error["label"]] for error in errors}))
            times[failing] += 1
            judge(store, world, failing, times, rng, CellProvenance("label", f"label@{number}", "simulated", number))
        overall = summarize(store, confidence=confidence)["overall"]
        wrong = store.matrix != world.truth
        cells = {"error": store.matrix >= 0, "false_positive": store.matrix == 1, "false_negative": store.matrix == 0}
        figures = {
            kind: {"true": float(wrong[mask].mean()), "low": overall[kind]["low"], "high": overall[kind]["high"]}
            for kind, mask in cells.items()
        }
    return {"rounds": number, "clean": not errors, **figures}


def judge(
    store: Store,
    world: World,
    labels: NDArray[np.int64],
    times: NDArray[np.int64],
    rng: np.random.Generator,
    source: CellProvenance,
) -> None:
    """Annotates complete labels with the simulated judge."""
    for label in labels.tolist():
        verdicts = judged(world, np.array([label]), int(times[label]), rng)[:, 0]
        store.write(np.arange(len(verdicts)), np.full(len(verdicts), label), verdicts, source)


def person(
    world: World, rows: NDArray[np.int64], labels: NDArray[np.int64], rng: np.random.Generator
) -> list[PersonAnswer]:
    """Returns the ground truth, or "unsure" with some probability."""
    unsure = rng.random(len(rows)) < world.unsure
    return [
        "unsure" if doubt else "yes" if present else "no"
        for present, doubt in zip(world.truth[rows, labels].tolist(), unsure.tolist(), strict=True)
    ]


def naive(world: World, seed: int, *, confidence: float = 0.99) -> bool:
    """Returns True if the naive bound covers the true error. Each label is drawn until it is clean, and these draws are
    pooled.
    """
    rng = np.random.default_rng(seed)
    labels = world.truth.shape[1]
    matrix = judged(world, np.arange(labels), 0, rng)
    seen = np.zeros(matrix.shape, dtype=np.bool_)
    checked = 0
    for label in range(labels):
        for times in range(1, MOST_ROUNDS + 1):
            left = np.flatnonzero(~seen[:, label])
            rows = rng.choice(left, min(30, len(left)), replace=False)
            seen[rows, label] = True
            wrong = (matrix[rows, label] != world.truth[rows, label]).any()
            matrix[rows, label] = world.truth[rows, label]
            if not wrong:
                checked += len(rows)
                break
            again = judged(world, np.array([label]), times, rng)[:, 0]
            matrix[:, label] = np.where(seen[:, label], matrix[:, label], again)
    return bool((matrix != world.truth).mean() <= clopper_pearson(0, checked, 1 - confidence)[1])


def holds(run: dict[str, Any], kind: str) -> bool:
    """Returns True if the true share is within the bounds."""
    figure = run[kind]
    return bool(figure["low"] <= figure["true"] <= figure["high"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=40)
    parser.add_argument("--confidence", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    runs, naive_holds = [], 0
    for k in range(options.runs):
        world = make_world(np.random.default_rng([options.seed, k]), options.images, options.labels)
        with tempfile.TemporaryDirectory(dir=scratch()) as folder:
            runs.append(simulate(Path(folder) / "run", world, options.seed + k, confidence=options.confidence))
        naive_holds += naive(world, options.seed + k, confidence=options.confidence)
    elapsed = time.perf_counter() - began
    print(f"{options.runs} runs of {options.images} images x {options.labels} labels, {elapsed:.0f} s")
    print(f"clean at the end: {sum(run['clean'] for run in runs)}; rounds: {spread([run['rounds'] for run in runs])}")
    print(f"{100 * options.confidence:g} % bounds            inside   true share (%)        upper bound (%)")
    for kind in KINDS:
        inside = sum(holds(run, kind) for run in runs)
        true, high = (spread([100 * run[kind][key] for run in runs]) for key in ("true", "high"))
        print(f"{kind:20} {100 * inside / len(runs):6.1f} %   {true:20}  {high}")
    print(f"control, naive pooling of clean draws: inside {100 * naive_holds / options.runs:.1f} %")
    if options.json:
        Path(options.json).write_bytes(dump_json(runs))


def scratch() -> str | None:
    """Returns a folder in memory if available, because thousands of small files are flushed one by one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def spread(values: Sequence[float]) -> str:
    """Returns the median and the range."""
    return f"{np.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    sys.exit(main())
