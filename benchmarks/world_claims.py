"""The small world that tells numbers, colors and places: training with presence alone, and with claims of all kinds.

    python benchmarks/world_claims.py --output runs/telling --seed 7411 --seeds 5    # goes on where it was
    python benchmarks/world_claims.py --output runs/telling --seed 7411 --seeds 5 --report

Prints, over the seeds that are finished, the share of false claims of each kind, the number of claims, and what
presence and fluency became; differences are taken within seeds. Registered in docs/lab/claims.md before the trials.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import scapo_eval
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json
from scapo_train.world.experiment import Trial, finished, measure, perform
from scapo_train.world.pictures import WORLDS
from scapo_train.world.pretrain import Lessons
from scapo_train.world.report import markdown, mean_and_margin

WORLD = WORLDS["telling"]
LESSONS = Lessons(see=200, speak=3000)
"""Colors and numbers take longer to learn than the nouns of the other worlds."""

KINDS = {"count": "numbers", "attribute": "colors", "relation": "places"}
SCHEMES = ("scapo", "claims")
TITLES = {"start": "start", "scapo": "presence alone", "claims": "claims of all kinds"}

Figures = dict[str, float]
"""Name -> value of one model's captions; rates in percent."""


def figures_of(run: Path, start: Path, decoding: str) -> Figures:
    """Returns what one model's captions say: wrong claims by kind, claims per caption, presence and fluency."""
    name = "captions_1.jsonl" if decoding == "sampled" else "captions_0.jsonl"
    result = scapo_eval.claimscore(
        str(run / "model" / name), scenes=str(start / "scenes.jsonl"), vocabulary=str(start / "vocabulary.yaml")
    )
    counts = result.table.counts()
    figures = {}
    for kind, title in KINDS.items():
        known, wrong = counts[f"generated_{kind}"], counts[f"hallucinated_{kind}"]
        figures[f"wrong {title}"] = 100 * wrong / known if known else float("nan")
        figures[f"{title} said"] = known / counts["captions"]
    rates = asdict(getattr(measure(run), decoding))
    scale = {"words": 1}
    return figures | {name: scale.get(name, 100) * value for name, value in rates.items() if value is not None}


def gathered(folder: Path, seeds: Sequence[int], steps: int) -> dict[str, dict[str, dict[int, Figures]]]:
    """Returns decoding -> model -> seed -> figures, of seeds of which every trial is finished."""
    found: dict[str, dict[str, dict[int, Figures]]] = {}
    for seed in seeds:
        trials = {scheme: Trial(scheme, seed) for scheme in SCHEMES}
        if not all(finished(trial.run(folder), steps) for trial in trials.values()):
            continue
        start = folder / f"seed-{seed}"
        runs = {"start": start, **{scheme: trial.run(folder) for scheme, trial in trials.items()}}
        if not all((run / "model" / "captions_0.jsonl").exists() for run in runs.values()):
            continue
        for decoding in ("sampled", "greedy"):
            for scheme, run in runs.items():
                found.setdefault(decoding, {}).setdefault(scheme, {})[seed] = figures_of(run, start, decoding)
    return found


def tables(found: dict[str, dict[str, dict[int, Figures]]]) -> str:
    """Returns Markdown: models by figures, and the differences within seeds."""
    parts = []
    for decoding, models in found.items():
        names = list(next(iter(models["start"].values())))
        lines = []
        for scheme, by_seed in models.items():
            lines.append([TITLES[scheme], *(_cell([row.get(name) for row in by_seed.values()]) for name in names)])
        for one, other in (("claims", "scapo"), ("claims", "start"), ("scapo", "start")):
            pairs = [(models[one][seed], models[other][seed]) for seed in models[one]]
            cells = [
                _cell([a[name] - b[name] for a, b in pairs if name in a and name in b], sign="+") for name in names
            ]
            lines.append([f"{TITLES[one]} less {TITLES[other]}", *cells])
        parts.append(f"{decoding}, {len(models['start'])} seeds\n\n{markdown(['model', *names], lines, 1)}")
    return "\n\n".join(parts)


def _cell(values: Sequence[float | None], sign: str = "") -> str:
    known = [value for value in values if value is not None and value == value]
    if not known:
        return "n/a"
    mean, margin = mean_and_margin(known)
    return f"{mean:{sign}.2f}" + ("" if margin is None else f" ± {margin:.2f}")


def main() -> int:
    """Runs the trials seed by seed, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7411)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.seeds)
    for seed in () if given.report else seeds:
        trials = [Trial(scheme, seed) for scheme in SCHEMES]
        perform(WORLD, given.output, trials, given.steps, LESSONS, given.jobs)
    found = gathered(given.output / WORLD.name, seeds, given.steps)
    if not found:
        print("no seed is finished")
        return 1
    missing = sorted(set(seeds) - set(found["sampled"]["start"]))
    with atomic_write(given.output / "telling.json") as stream:
        stream.write(dump_json(json.loads(json.dumps(found))) + b"\n")
    print(tables(found))
    if missing:
        print(f"\nnot finished: seeds {', '.join(map(str, missing))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
