"""``python -m scapo_train.world``: a world small enough for a CPU, in which the claim can be watched.

Draws its pictures, trains a small real Qwen2.5-VL on them from scratch, runs SCAPO and its baselines from that
checkpoint with ``scapo_train``, and writes ``dynamics.png``, ``table.md`` and ``results.json``. What is done is not
done again: the same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scapo_eval.errors import InputError, ScapoError
from scapo_eval.text import printable

from ..log import show_messages
from .experiment import MAIN, SCHEMES, train_all
from .files import write_world
from .pictures import WORLDS, World
from .pretrain import QUICK, Lessons, pretrain

QUICK_SCHEMES = ("scapo", "hal", "cap")
TRAIN_PICTURES, EVALUATION_PICTURES = 1024, 256


def prepare(world: World, folder: Path, lessons: Lessons, seed: int = 0) -> None:
    """Draws the world and trains its model, unless that is done.

    Raises:
        InputError: the folder holds another world, or a model of other lessons.
    """
    wanted = {"world": world.name, **vars(lessons), "seed": seed}
    done = folder / "model" / "lessons.json"
    if done.exists():
        if json.loads(done.read_text(encoding="utf-8")) != wanted:
            raise InputError("holds another world: give another --output", path=str(folder))
        return
    write_world(world, folder, train=TRAIN_PICTURES, evaluation=EVALUATION_PICTURES, seed=seed)
    pretrain(world, folder / "model", lessons, seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the experiment; returns the exit code: 0 done, 2 bad input, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="scapo_train.world", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/world"), help="folder (default: runs/world)")
    parser.add_argument("--world", choices=list(WORLDS), default="plain", help="which rules (default: plain)")
    parser.add_argument("--quick", action="store_true", help="less training: one seed, 40 steps, three schemes")
    parser.add_argument(
        "--schemes", nargs="+", choices=list(SCHEMES), metavar="SCHEME", help=f"of {', '.join(SCHEMES)}"
    )
    parser.add_argument("--seeds", type=int, help="how many (default: 3)")
    parser.add_argument("--steps", type=int, help="of each run (default: 100)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: one per core)")
    given = parser.parse_args(arguments)
    schemes = given.schemes or (QUICK_SCHEMES if given.quick else MAIN)
    seeds = range(given.seeds or (1 if given.quick else 3))
    steps = given.steps or (40 if given.quick else 100)
    show_messages(0)
    logging.getLogger("scapo_train").setLevel(logging.INFO)
    try:
        import torch

        from .report import write

        torch.set_num_threads(1)  # a model this small is slower with several
        prepare(WORLDS[given.world], given.output, QUICK if given.quick else Lessons())
        train_all(given.output, schemes, seeds, steps, max(1, given.jobs))
        print(write(WORLDS[given.world], given.output))
    except ScapoError as error:
        print(f"scapo_train.world: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
