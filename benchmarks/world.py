"""The small world in full: three seeds of every scheme of the figure, and the worlds that tell rewards apart.

    python benchmarks/world.py --output runs/worlds            # about two hours on two cores; goes on where it was
    python benchmarks/world.py --output runs/worlds --seeds 1

Prints each world's table, beside what its rules allow at best, and checks the claims of docs/training.md.
Exit code 1: one of them did not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

SCHEMES = {
    "plain": ("scapo", "hal", "cap", "object", "eos_last", "sparse"),
    "risky": ("scapo", "cap"),
    "crowded": ("scapo", "cap"),
}
Rates = dict[str, dict[str, float]]


class Claim(NamedTuple):
    """``scheme``'s metric is at least (sign 1) or at most (-1) that of ``other``, plus ``margin`` points."""

    world: str
    scheme: str
    metric: str
    sign: int
    other: str
    margin: float

    def holds(self, rates: Rates) -> bool:
        """Whether it does, of one seed."""
        difference = rates[self.scheme][self.metric] - rates[self.other][self.metric] - self.margin
        return self.sign * difference >= 0

    def __str__(self) -> str:
        words = "at least" if self.sign > 0 else "at most"
        return f"{self.metric} of {self.scheme} is {words} that of {self.other} {self.margin:+g}"


CLAIMS = (
    Claim("plain", "scapo", "cover_rate", 1, "start", 8),
    Claim("plain", "scapo", "hal_rate", -1, "start", -2),
    Claim("plain", "hal", "cover_rate", -1, "start", -25),
    Claim("plain", "cap", "hal_rate", 1, "start", 1),
    Claim("plain", "cap", "cover_rate", 1, "start", 15),
    Claim("plain", "sparse", "cover_rate", -1, "scapo", -5),
    Claim("risky", "scapo", "hal_rate", -1, "cap", -5),
    Claim("crowded", "scapo", "cap_score", 1, "cap", 1),
    Claim("crowded", "scapo", "hal_rate", -1, "cap", -5),
)


def rates(results: dict[str, Any], seed: int) -> Rates:
    """Scheme -> percentages of one seed; an undefined one is 0."""
    return {
        each["name"]: {
            name: 100 * (value or 0) for name, value in each["sampled"][min(seed, len(each["sampled"]) - 1)].items()
        }
        for each in results["outcomes"]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    missed = 0
    for world, schemes in SCHEMES.items():
        folder = given.output / world
        command = [
            sys.executable,
            "-m",
            "scapo_train.world",
            "--world",
            world,
            "--output",
            str(folder),
            "--schemes",
            *schemes,
        ]
        command += [f"--{name}={getattr(given, name)}" for name in ("seeds", "steps", "jobs")]
        print(f"\n## {world}\n", flush=True)
        subprocess.run(command, check=True)
        results = json.loads((folder / "results.json").read_text())
        for reward, ideal in (("scapo", "guesses above 1/2"), ("cap", "guesses for the best Cap. Score")):
            hal, cover = (100 * results["ideal"][reward][name] for name in ("hal_rate", "cover_rate"))
            print(f"at best, {ideal}: Hal. {hal:.1f}, Cover {cover:.1f}")
        for claim in CLAIMS:
            if claim.world == world:
                kept = [claim.holds(rates(results, seed)) for seed in range(given.seeds)]
                missed += not all(kept)
                print(f"{'ok    ' if all(kept) else 'MISSED'} {claim} ({sum(kept)} of {len(kept)} seeds)")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
