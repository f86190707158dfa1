"""``python -m scapo_train.world grid FILE``: a registered grid of trials whose results accumulate.

A registration (TOML) names cells, hypotheses and seeds before the first trial. Results lie beside it, one JSON line for
each finished or failed trial, so that they survive the runs themselves, and those of several machines add up. The
command runs what is missing: by priority, then one seed after the other, so that whatever time there is gives whole
blocks. ``--part 2/4`` takes every fourth block, ``--merge FILE`` adds the results of another machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import msgspec
import torch

from scapo_eval.base.errors import InputError, ScapoError, short_repr
from scapo_eval.base.processes import process_pool
from scapo_eval.files.files import read_bytes
from scapo_eval.files.json_text import dump_json
from scapo_eval.files.locks import try_lock

from ..config import parse_toml
from .experiment import SCHEMES, Measured, Trial, describe, measure, one_thread, prepare, train
from .pictures import WORLDS
from .pretrain import QUICK, Lessons

START = "start"
"""The scheme of results that are the start model's."""

LESSONS = {"full": Lessons(), "quick": QUICK}


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Trials that are compared with each other.

    Attributes:
        name: name of the cell.
        world: name of its world.
        schemes: names in SCHEMES.
        seeds: first and last seed.
        steps: number of steps of each trial.
        lessons: ``full`` or ``quick``, of the start models.
        settings: settings of the trainer that all its trials share.
        priority: cells with smaller numbers run first.
    """

    name: str
    world: str
    schemes: tuple[str, ...]
    seeds: tuple[int, int]
    steps: int = 40
    lessons: Literal["full", "quick"] = "full"
    settings: tuple[str, ...] = ()
    priority: int = 1

    @property
    def numbers(self) -> range:
        """The seeds."""
        return range(self.seeds[0], self.seeds[1] + 1)

    def keys(self, seed: int) -> Iterator[Key]:
        """Yields the trials of one seed, the start model first."""
        yield Key(self.world, self.lessons, START, seed, 0, ())
        for scheme in self.schemes:
            yield Key(self.world, self.lessons, scheme, seed, self.steps, self.settings)


class Hypothesis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claim about a cell.

    Attributes:
        name: name of the hypothesis.
        cell: name of its cell.
        metric: a column of the tables; of two families also ``area`` (dominated by Hal. and Cover Rate) or ``matched``
            (Cover Rate at equal Hal. Rate).
        scheme: the scheme, or the family of ``area`` and ``matched``.
        claim: ``higher``, ``lower``: than the other's by more than ``by``; ``not lower``: not by more than ``by``;
            ``equivalent``: within ``by``; ``below``: the mean itself is below ``by``.
        other: the scheme or family that it is compared with; none for ``below``.
        by: points.
        responses: ``sampled`` or ``greedy``.
        spread: standard deviation between seeds, from earlier trials; decides the power.
        expected: the answer that is expected.
    """

    name: str
    cell: str
    metric: str
    scheme: str
    claim: Literal["higher", "lower", "not lower", "equivalent", "below"]
    spread: float
    other: str = ""
    by: float = 1.0
    responses: Literal["sampled", "greedy"] = "sampled"
    expected: str = ""


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A registered grid.

    Attributes:
        title, question, rule, limits, reading: texts of its page: what is asked, how it is decided and when it stops,
            what it cannot show, and what the results say (added later).
        registered: day of registration.
        cells: what is run.
        hypotheses: what is claimed.
        families: name -> schemes whose points make one frontier.
        level: one-sided level of the tests, which Holm's method divides among the hypotheses.
    """

    title: str
    question: str
    rule: str
    registered: str
    cells: tuple[Cell, ...]
    hypotheses: tuple[Hypothesis, ...]
    families: dict[str, tuple[str, ...]] = {}
    limits: str = ""
    reading: str = ""
    level: float = 0.025

    def cell(self, name: str) -> Cell:
        """Returns the cell of this name."""
        return next(cell for cell in self.cells if cell.name == name)


class Key(msgspec.Struct, frozen=True, order=True):
    """Identity of a trial: two trials with equal keys are repetitions."""

    world: str
    lessons: str
    scheme: str
    seed: int
    steps: int
    settings: tuple[str, ...]

    @property
    def trial(self) -> Trial:
        """The trial; its steps are a setting, so that trials of several lengths have folders of their own."""
        return Trial(self.scheme, self.seed, (*self.settings, f"run.steps={self.steps}"))


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the results.

    Attributes:
        key: the trial.
        design: hash of the world's rules and of the scheme's settings, which must be those of the code that reads it.
        measured: what its model says of the held-out pictures; None if the trial failed.
        failed: the error.
        seconds: how long it took.
        where: PyTorch's version and kernels.
    """

    key: Key
    design: str
    measured: Measured | None = None
    failed: str = ""
    seconds: float = 0.0
    where: str = ""


def design_of(key: Key) -> str:
    """Returns the hash of what a trial's name stands for."""
    settings = SCHEMES[key.scheme].settings if key.scheme != START else ()
    named = [setting.rpartition("/")[2] for setting in settings]  # a file's folder is the machine's own
    world, lessons = (
        {name: value for name, value in asdict(rules).items() if value != getattr(type(rules)(), name)}
        for rules in (WORLDS[key.world], LESSONS[key.lessons])
    )  # a rule that is added later leaves results as they are
    parts = [world, lessons, named]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def load_registration(path: Path) -> Registration:
    """Reads a registration.

    Raises:
        InputError: if it is not a valid one, or names what does not exist.
    """
    try:
        found = msgspec.convert(parse_toml(read_bytes(path), str(path)), Registration)
    except msgspec.ValidationError as error:
        raise InputError(f"not a valid registration: {error}", path=str(path)) from None
    cells, reasons = {cell.name: cell for cell in found.cells}, list[str]()
    for cell in found.cells:
        if cell.world not in WORLDS:
            reasons.append(f"cell '{cell.name}': unknown world '{cell.world}'")
    for cell in found.cells:
        reasons += [f"cell '{cell.name}': unknown scheme '{name}'" for name in cell.schemes if name not in SCHEMES]
    for claimed in found.hypotheses:
        if claimed.cell not in cells:
            reasons.append(f"hypothesis {claimed.name}: unknown cell '{claimed.cell}'")
            continue
        known = tuple(found.families) if claimed.metric in FRONTIER else (*cells[claimed.cell].schemes, START)
        wanted = (claimed.scheme, *((claimed.other,) if claimed.claim != "below" else ()))
        reasons += [f"hypothesis {claimed.name}: '{name}' is not in its cell" for name in wanted if name not in known]
    reasons += [
        f"family '{family}': unknown scheme '{name}'"
        for family, names in found.families.items()
        for name in names
        if name not in (*SCHEMES, START)
    ]
    if reasons:
        raise InputError("; ".join(reasons), path=str(path))
    return found


FRONTIER = ("area", "matched")


def read_results(path: Path) -> dict[Key, Result]:
    """Returns the newest line of each trial, those that finished before those that failed; none without a file.

    Raises:
        InputError: if a line is not valid, or is of other rules or settings than this code's.
    """
    found: dict[Key, Result] = {}
    if not path.exists():
        return found
    lines = read_bytes(path).split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # an unfinished last line is of a process that was killed
        try:
            result = msgspec.json.decode(line, type=Result)
        except msgspec.MsgspecError as error:
            raise InputError(f"not a valid result: {error}", path=str(path), line=number) from None
        key = result.key
        if key.scheme not in (*SCHEMES, START) or key.world not in WORLDS:
            raise InputError(f"unknown scheme or world in {short_repr(line.decode())}", path=str(path), line=number)
        if result.design != design_of(key):
            raise InputError(f"{key.scheme} in {key.world} has other settings now", path=str(path), line=number)
        if key not in found or result.measured is not None or found[key].measured is None:
            found[key] = result
    return found


def append(path: Path, results: Sequence[Result]) -> None:
    """Appends lines to a file, one process at a time; a line that a killed process left unfinished is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as stream:
        while not try_lock(stream.fileno()):
            time.sleep(0.05)
        stream.seek(0)
        content = stream.read()
        stream.truncate(content.rfind(b"\n") + 1)
        stream.write(b"".join(dump_json(msgspec.to_builtins(result)) + b"\n" for result in results))
        stream.flush()
        os.fsync(stream.fileno())


def merge(path: Path, others: Sequence[Path]) -> int:
    """Adds the results of other files that are not there yet; returns their number."""
    known, new = read_results(path), dict[Key, Result]()
    for other in others:
        if not other.exists():
            raise InputError("results not found", path=str(other))
        for key, result in read_results(other).items():
            former = new.get(key, known.get(key))
            if former is None or (former.measured is None and result.measured is not None):
                new[key] = result
    append(path, list(new.values()))
    return len(new)


Block = tuple[Key, ...]
"""The trials of one start model, the start model first."""


def blocks_of(registration: Registration) -> list[Block]:
    """Returns the blocks in the order in which they run: by priority, then by seed, then by cost."""
    found: dict[tuple[int, int, float, str, str, int], dict[Key, None]] = {}
    for cell in registration.cells:
        cost = cell.steps * sum(WORLDS[cell.world].objects)
        for number, seed in enumerate(cell.numbers):
            place = (cell.priority, number, cost, cell.world, cell.lessons, seed)
            found.setdefault(place, {}).update(dict.fromkeys(cell.keys(seed)))
    return [tuple(found[place]) for place in sorted(found)]


def missing(block: Block, results: dict[Key, Result], *, retry: bool) -> Block:
    """Returns the trials of a block that have no result yet (``retry``: or failed)."""
    return tuple(key for key in block if key not in results or (retry and results[key].measured is None))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process works in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "wb") as stream:
        while not try_lock(stream.fileno()):
            time.sleep(0.5)
        yield


def perform_block(output: Path, results: Path, block: Block, deadline: float | None) -> None:
    """Runs the trials of a block that no process has finished meanwhile, and appends a line for each.

    Args:
        output: folder of the runs.
        results: file of the results.
        block: trials of one start model.
        deadline: time (of ``time.time``) after which no trial begins.
    """
    where = f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    for key in block:
        world, lessons = WORLDS[key.world], LESSONS[key.lessons]
        folder = output / key.lessons
        if deadline is not None and time.time() > deadline:
            return
        with _alone(folder / f"locks/{key.seed}"):
            known = read_results(results).get(key)
            if known is not None and known.measured is not None:
                continue
            began = time.time()
            measured, failed = None, ""
            try:
                run = prepare(world, folder, lessons, key.seed)
                if key.scheme != START:
                    run = train(folder / world.name, key.trial, key.steps)
                describe(run / "model", folder / world.name / f"seed-{key.seed}")
                measured = measure(run)
            except ScapoError as error:
                failed = str(error)
            seconds = round(time.time() - began, 1)
            append(results, [Result(key, design_of(key), measured, failed, seconds, where)])


def run(
    registration: Registration,
    output: Path,
    results: Path,
    *,
    jobs: int = 1,
    part: tuple[int, int] = (1, 1),
    hours: float | None = None,
    retry: bool = False,
) -> None:
    """Runs what is missing.

    Args:
        registration: what is run.
        output: folder of the runs.
        results: file of the results.
        jobs: number of processes at once.
        part: which part of the blocks, of how many.
        hours: hours after which no trial begins.
        retry: whether trials that failed are run again.
    """
    known = read_results(results)
    wanted = [missing(block, known, retry=retry) for block in blocks_of(registration)[part[0] - 1 :: part[1]]]
    deadline = None if hours is None else time.time() + 3600 * hours
    with process_pool(jobs, option="--jobs", initializer=one_thread, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(perform_block, output, results, block, deadline) for block in wanted if block]:
            future.result()


def state(registration: Registration, results: dict[Key, Result]) -> str:
    """Returns a line per cell: how many trials are finished, failed and missing, and the hours that are left."""
    lines = []
    for cell in registration.cells:
        keys = [key for seed in cell.numbers for key in cell.keys(seed)]
        done = [results[key] for key in keys if key in results and results[key].measured is not None]
        failed = sum(key in results and results[key].measured is None for key in keys)
        left = len(keys) - len(done) - failed
        mean = sum(result.seconds for result in done) / len(done) if done else None
        hours = "" if mean is None else f", about {left * mean / 3600:.1f} CPU hours"
        lines.append(f"{cell.name}: {len(done)} of {len(keys)} trials finished, {failed} failed, {left} missing{hours}")
    return "\n".join(lines)


def command(arguments: Sequence[str]) -> int:
    """Runs the command; returns 0, or 4 if a trial failed."""
    parser = argparse.ArgumentParser(prog="scapo_train.world grid", description=__doc__)
    parser.add_argument("registration", type=Path, help="TOML file")
    parser.add_argument("--results", type=Path, help="results (default: beside the registration, .jsonl)")
    parser.add_argument("-o", "--output", type=Path, help="folder of the runs (default: runs/NAME)")
    parser.add_argument("--jobs", type=int, default=1, help="trials at once (default: 1)")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="every N-th block, from the K-th on")
    parser.add_argument("--hours", type=float, help="begin no trial after this time")
    parser.add_argument("--retry", action="store_true", help="run failed trials again")
    parser.add_argument(
        "--merge", type=Path, nargs="+", default=[], metavar="FILE", help="add these results, run nothing"
    )
    parser.add_argument("--state", action="store_true", help="say what is missing, run nothing")
    given = parser.parse_args(arguments)
    registration = load_registration(given.registration)
    results = given.results or given.registration.with_suffix(".jsonl")
    if given.merge:
        print(f"{merge(results, given.merge)} results added")
    elif not given.state:
        output = given.output or Path("runs") / given.registration.stem
        run(
            registration, output, results,
            jobs=max(1, given.jobs), part=given.part, hours=given.hours, retry=given.retry,
        )  # fmt: skip
    known = read_results(results)
    print(state(registration, known))
    failed = [result for result in known.values() if result.measured is None]
    for result in failed:
        print(
            f"failed: {result.key.scheme}, {result.key.world}, seed {result.key.seed}: {result.failed}", file=sys.stderr
        )
    return 4 if failed else 0


def _part(given: str) -> tuple[int, int]:
    """Returns which part of how many: ``2/4`` -> (2, 4)."""
    first, slash, last = given.partition("/")
    if not slash or not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise argparse.ArgumentTypeError(f"'{given}' is not K/N, as in 2/4")
    return int(first), int(last)
