"""``python -m scapo_train.world``: tests the claim of the paper in a small world that needs only a CPU.

For each seed, the command draws pictures, trains a small Qwen2.5-VL on them from scratch, and then aligns this model
with SCAPO and with its baselines (``scapo_train``). The command writes ``dynamics.png``, ``table.md`` and
``results.json``. If the command is interrupted, running it again continues the experiment and skips finished work.

``python -m scapo_train.world snr`` trains only the start models, and writes the signal and noise of each scheme's
gradient at these models to ``snr.json``. ``python -m scapo_train.world grid`` runs a registered grid of trials, and
``python -m scapo_train.world evaluate`` decides whether the hypotheses of the grid hold. ``python -m scapo_train.world
paper`` writes a paper about registered trials. ``python -m scapo_train.world ideal`` prints the rates of ideal
describers.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from scapo_eval.base.errors import ScapoError
from scapo_eval.base.text import printable

from .. import interrupts_are_errors
from ..monitoring.log import show_messages
from . import grid, ideal
from .experiment import ALIASES, KERNELS, MAIN, SCHEMES, TABLE_1, Trial, check_settings, perform
from .grid import at_least
from .pictures import WORLDS
from .pretrain import QUICK, Lessons

QUICK_SCHEMES = ("scapo", "hal", "cap")
SNR_SCHEMES = ("scapo", "stop", "baseline", "hal", "cap")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the experiment and returns the exit code.

    The exit code is 0 for success, 2 for invalid input, 4 if a trial of a grid failed, and 130 after an interrupt.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["grid"]:
        return _guarded(grid.command, words[1:])
    if words[:1] == ["evaluate"]:
        from . import evaluate  # the extra [report]

        return _guarded(evaluate.command, words[1:])
    if words[:1] == ["paper"]:
        from . import paper  # the extra [report]

        return _guarded(paper.command, words[1:])
    if words[:1] == ["ideal"]:
        return _guarded(ideal.command, words[1:])
    return _guarded(_experiment, words)


def _guarded(task: Callable[[list[str]], int], words: list[str]) -> int:
    """Runs a task, and converts its exceptions to messages and exit codes."""
    show_messages(0)
    interrupts_are_errors()
    try:
        return task(words)
    except ScapoError as error:
        print(f"scapo_train.world: {printable(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        where = "the output cannot be written" if error.filename is None else printable(str(error.filename))
        print(f"scapo_train.world: {where}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("scapo_train.world: interrupted: run the same command to continue", file=sys.stderr)
        return 130


def _experiment(arguments: list[str]) -> int:
    """Runs trials or measures gradients."""
    parser = argparse.ArgumentParser(prog="scapo_train.world", description=__doc__)
    parser.add_argument(
        "task", nargs="?", choices=["run", "snr"], default="run", help="run trials, or measure gradients"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/world"), help="folder (default: runs/world)")
    parser.add_argument("--world", choices=list(WORLDS), default="plain", help="which rules (default: plain)")
    parser.add_argument("--quick", action="store_true", help="shorter lessons, one seed, three schemes")
    parser.add_argument(
        "--schemes", nargs="+", action="extend", choices=[*SCHEMES, *ALIASES, "table1"], metavar="SCHEME",
        help=f"of {', '.join((*SCHEMES, *ALIASES))}; table1: the rows of the paper's Table 1 that are trained",
    )  # fmt: skip
    parser.add_argument("--seed", type=at_least(0), default=0, help="the first: of pictures, start model and training")
    parser.add_argument("--seeds", type=at_least(1), help="how many (default: 3)")
    parser.add_argument("--steps", type=at_least(1), help="of each trial (default: 40)")
    parser.add_argument(
        "--kernels", nargs="+", action="extend", choices=KERNELS, metavar="KERNELS",
        help=f"run each trial with each of these kernels of PyTorch (ATEN_CPU_CAPABILITY): {', '.join(KERNELS)}",
    )  # fmt: skip
    parser.add_argument(
        "--vary", nargs="+", action="extend", type=_varied, default=[], metavar="KEY=VALUE[,VALUE]",
        help="settings of the trainer; several values: every combination, a line of the table each",
    )  # fmt: skip
    parser.add_argument("--jobs", type=at_least(1), help="trials at once (default: one per core)")
    parser.add_argument("--batches", type=at_least(3), help="of snr: how many (default: 20)")
    given = parser.parse_args(arguments)
    _check(parser, given)
    schemes = _named(given.schemes or ())
    seeds = range(given.seed, given.seed + (given.seeds or (1 if given.quick else 3)))
    trials = list(dict.fromkeys(
        Trial(scheme, seed, settings, kernels)
        for seed in seeds
        for kernels in given.kernels or [""]
        for settings in product(*given.vary)
        for scheme in schemes or (QUICK_SCHEMES if given.quick else MAIN)
    ))  # fmt: skip
    world, steps, lessons = WORLDS[given.world], given.steps or 40, QUICK if given.quick else Lessons()
    if given.task == "snr":
        from . import snr

        schemes, batches = schemes or SNR_SCHEMES, given.batches or snr.BATCHES
        print(snr.measure(world, given.output, schemes, seeds, lessons, batches, snr.PROMPTS))
        return 0
    from .report import write

    for trial in trials:
        check_settings(trial.scheme, trial.settings)
    perform(world, given.output, trials, steps, lessons, given.jobs or os.cpu_count() or 1)
    print(write(world, given.output / world.name))
    return 0


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Ends the command with exit code 2 if an option was given that does not apply to the selected task."""
    if given.task == "run" and given.batches:
        parser.error("--batches is an option of snr")
    if given.task == "snr":
        others = {"--vary": given.vary, "--steps": given.steps, "--kernels": given.kernels, "--jobs": given.jobs}
        if refused := [name for name, value in others.items() if value]:
            parser.error(f"{', '.join(refused)}: not an option of snr")
        schemes = {name: SCHEMES[name] for name in _named(given.schemes or ())}
        if without := [name for name, of in schemes.items() if of.on_pairs or of.foreign or of.shortens]:
            parser.error(f"--schemes: {', '.join(without)} has no gradient on rollouts")


def _named(given: Sequence[str]) -> tuple[str, ...]:
    """Converts names in SCHEMES and ALIASES, and the name ``table1``, to a tuple of distinct names in SCHEMES."""
    trained = [name for name in TABLE_1 if not SCHEMES[name].foreign]
    names = [name for word in given for name in (trained if word == "table1" else [ALIASES.get(word, word)])]
    return tuple(dict.fromkeys(names))


def _varied(given: str) -> list[str]:
    """Expands a text such as ``key=1,2`` into ``["key=1", "key=2"]``."""
    key, equals, values = given.partition("=")
    if not equals or "." not in key or not values:
        raise argparse.ArgumentTypeError(f"'{given}' is not KEY=VALUE[,VALUE], as in loss.kl=0.01,0.1")
    return [f"{key}={value}" for value in values.split(",")]


if __name__ == "__main__":
    sys.exit(main())
