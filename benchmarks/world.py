"""Tests of the claims in docs/laboratory.md: five seeds with three kernels, in worlds that distinguish the rewards.

    python benchmarks/world.py --output runs/lab               # 90 minutes on two cores; continues after an interrupt
    python benchmarks/world.py --output runs/lab --report      # of the existing trials

Prints the tables of each world and the best values that its rules permit. Then prints each claim with its difference,
the 95 % interval over seeds, and the number of seeds in which it is true. The exit code is 1 if the mean of a claim
with its interval contradicts it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from scapo_train.world.experiment import KERNELS
from scapo_train.world.ideal import best_guesser, guesser
from scapo_train.world.pictures import WORLDS
from scapo_train.world.report import SchemeRow, mean_and_margin, outcomes, paired, write

SCHEMES = {
    "plain": ("scapo", "hal", "cap", "hal_spoken", "sparse", "no_repeat"),
    "risky": ("scapo", "cap", "no_repeat"),
    "crowded": ("scapo", "cap", "no_repeat"),
}


class Claim(NamedTuple):
    """Claim that ``scheme``'s metric for sampled responses is higher (1) or lower (-1) than ``other``'s, by at least
    ``margin``.
    """

    world: str
    scheme: str
    metric: str
    sign: int
    other: str
    margin: float = 0.0

    def __str__(self) -> str:
        words = "above" if self.sign > 0 else "below"
        by = f" by {self.margin:g} points" if self.margin else ""
        return f"{self.world}: {self.metric} of {self.scheme} is {words} that of {self.other}{by}"


CLAIMS = (
    Claim("plain", "hal", "cover_rate", -1, "start", 25),
    Claim("plain", "hal_spoken", "cover_rate", -1, "start"),
    Claim("plain", "scapo", "cover_rate", 1, "start"),
    Claim("plain", "scapo", "hal_rate", -1, "start"),
    Claim("plain", "cap", "cover_rate", 1, "scapo"),
    Claim("plain", "cap", "hal_rate", 1, "start"),
    Claim("plain", "sparse", "cover_rate", -1, "scapo"),
    Claim("risky", "scapo", "hal_rate", -1, "cap", 5),
    Claim("crowded", "scapo", "hal_rate", -1, "cap", 5),
    Claim("risky", "scapo", "cap_score", 1, "cap"),
    Claim("crowded", "scapo", "cap_score", 1, "cap"),
)


def judged(claim: Claim, found: dict[str, SchemeRow]) -> tuple[bool, str]:
    """Returns whether a claim is true including its interval, and a sentence with the difference."""
    one, other = found.get(claim.scheme), found.get(claim.other)
    if one is None or other is None:
        return False, f"no trials  {claim}"
    if claim.other == "start":  # a start knows no kernels
        before = other.values("sampled", claim.metric)
        pairs = {seed: value - before[seed] for seed, value in one.values("sampled", claim.metric).items()}
    else:
        pairs = paired(one, other, "sampled", claim.metric)
    each = [claim.sign * value - claim.margin for value in pairs.values()]
    mean, margin = mean_and_margin(pairs.values())
    holds = margin is not None and claim.sign * mean - claim.margin > margin
    shown = f"{mean:+.1f}" + ("" if margin is None else f" ± {margin:.1f}")
    sentence = f"{claim} ({shown}; {sum(value > 0 for value in each)} of {len(each)} seeds)"
    return holds, f"{'ok        ' if holds else 'MISSED    '} {sentence}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    missed = 0
    for name, schemes in SCHEMES.items():
        world, folder = WORLDS[name], given.output / name
        if not given.report:
            command = [sys.executable, "-m", "scapo_train.world", "--world", name, "--output", str(given.output)]
            command += ["--schemes", *schemes, "--kernels", *given.kernels]
            command += [f"--{option}={getattr(given, option)}" for option in ("seeds", "jobs")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"\n## {name}\n\n{write(world, folder)}\n")
        ideals = {"guesses above 1/2": guesser(world, 0.5), "guesses for the best Cap. Score": best_guesser(world)[1]}
        for title, ideal in ideals.items():
            print(f"at best, {title}: Hal. {100 * ideal.hal_rate:.1f}, Cover {100 * ideal.cover_rate:.1f}")
        found = {outcome.name: outcome for outcome in outcomes(folder)}
        for claim in CLAIMS:
            if claim.world == name:
                holds, sentence = judged(claim, found)
                missed += not holds
                print(sentence)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
