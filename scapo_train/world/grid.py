"""Command ``python -m scapo_train.world grid FILE``, which runs a registered grid of trials and collects the results.

A registration is a TOML file that defines cells, hypotheses and seeds before the first trial. The results file is in
the same folder as the registration, and contains one JSON line for each finished or failed trial. Results therefore
remain available after the run folders are deleted, and results from several machines can be merged. The command runs
the missing trials in blocks, ordered by priority and then by seed, so that complete blocks are available after any
amount of time. The option ``--part 2/4`` runs every fourth block, starting with the second block. The option ``--merge
FILE`` adds the results from another machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from scapo_eval.base.errors import InputError, ScapoError, short_repr
from scapo_eval.base.processes import process_pool
from scapo_eval.files.files import read_bytes
from scapo_eval.files.json_text import dump_json
from scapo_eval.files.locks import try_lock

from ..config import parse_toml
from ..monitoring.watch import Interrupted
from .experiment import (
    SCHEMES,
    Measured,
    Rates,
    Trial,
    check_settings,
    describe,
    measure,
    one_thread,
    prepare,
    train,
    until_interrupted,
)
from .pictures import WORLDS, World
from .pretrain import QUICK, Lessons
from .shorten import Shortening

START = "start"
"""The scheme of results that are the start model's."""

LESSONS = {"full": Lessons(), "quick": QUICK}


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Set of trials in the same world that are compared with each other.

    Attributes:
        name: Name of the cell.
        world: Name of the world.
        schemes: Names of the schemes, each of which is in SCHEMES.
        seeds: First and last seed of the trials.
        steps: Number of training steps in each trial.
        lessons: Training length of the start models, ``full`` or ``quick``.
        settings: Trainer settings that all trials of the cell share.
        priority: Position of the cell in the order of the grid. Cells with lower numbers are run first.
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
        """Seeds of the cell."""
        return range(self.seeds[0], self.seeds[1] + 1)

    def keys(self, seed: int) -> Iterator[Key]:
        """Yields the keys of the trials with one seed. The first key is that of the start model."""
        yield Key(self.world, self.lessons, START, seed, 0, ())
        for scheme in self.schemes:
            yield Key(self.world, self.lessons, scheme, seed, self.steps, self.settings)


class Hypothesis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claim about the trials of a cell.

    Attributes:
        name: Name of the hypothesis.
        cell: Name of the cell.
        metric: Name of the metric to compare, which is a column of the tables. Two families can also be compared by
            ``area`` (the area that a family dominates in the plane of ``hal_rate`` and ``cover_rate``) or by
            ``matched`` (``cover_rate`` at equal ``hal_rate``).
        scheme: Name of the scheme, or name of the family for ``area`` and ``matched``.
        claim: Type of the claim about the mean over seeds. With ``higher`` or ``lower``, the claim is that the mean is
            above or below that of ``other`` by more than ``by``. With ``not lower``, the claim is that the mean is
            above the mean of ``other`` minus ``by``. With ``equivalent``, the claim is that the two means differ by
            less than ``by``. With ``below``, the claim is that the mean itself is less than the value of ``by``.
        other: Name of the scheme or family with which ``scheme`` is compared, or an empty string for ``below``.
        by: Margin or bound in percentage points.
        responses: Decoding method for the responses, ``sampled`` or ``greedy``.
        spread: Standard deviation between seeds in earlier trials, used to compute the power.
        expected: Answer that was expected at the time of registration.
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
    """Registered grid of trials and its hypotheses.

    Attributes:
        title: Title of the page.
        question: Question that the trials are meant to answer.
        rule: Rules for decisions and for stopping, as text.
        registered: Date of registration.
        cells: Cells of trials to run.
        hypotheses: Hypotheses to decide on.
        families: Mapping from the name of a family to its schemes, whose points form one frontier.
        limits: Limitations of the trials, as text.
        reading: Interpretation of the results, which is added after the trials.
        level: Significance level of the one-sided tests, which are corrected by Holm's method.
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
        """Returns the cell with the given name."""
        return next(cell for cell in self.cells if cell.name == name)


class Key(msgspec.Struct, frozen=True, order=True):
    """Key that identifies a trial. Trials with equal keys are repetitions."""

    world: str
    lessons: str
    scheme: str
    seed: int
    steps: int
    settings: tuple[str, ...]

    @property
    def trial(self) -> Trial:
        """Trial whose settings include the number of steps, so that trials with different numbers of steps have
        separate folders.
        """
        return Trial(self.scheme, self.seed, (*self.settings, f"run.steps={self.steps}"))


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one trial, which is one line of the results file.

    Attributes:
        key: Key of the trial.
        design: Hash of the rules of the world, the lessons and the settings of the scheme, as far as they differ from
            the defaults. A result is rejected if its hash differs from that of the current code. Changes to defaults
            and to the code of schemes do not affect the hash.
        measured: Rates of the model on the held-out pictures, or None if the trial failed.
        failed: Error message if the trial failed.
        seconds: Duration of the trial in seconds.
        where: Version of PyTorch and name of the CPU kernels.
    """

    key: Key
    design: str
    measured: Measured | None = None
    failed: str = ""
    seconds: float = 0.0
    where: str = ""


def design_of(key: Key) -> str:
    """Returns a hash of a trial's design: the rules of the world, the lessons and the settings of the scheme."""
    scheme = None if key.scheme == START else SCHEMES[key.scheme]
    settings = scheme.settings if scheme else ()
    named = [setting.rpartition("/")[2] for setting in settings]  # a file's folder is the machine's own
    while scheme and scheme.shortens:
        named += [scheme.edit] * (scheme.edit != "shortened")
        named += [f"end_weight={scheme.end_weight}"] * (scheme.end_weight != 1)
        scheme = SCHEMES[scheme.shortens]
        named += [*scheme.settings, str(Shortening())]
    rules, base = WORLDS[key.world], WORLDS[WORLDS[key.world].base]
    parts: list[Any] = [_differences(rules), _differences(LESSONS[key.lessons]), named]
    if base not in (rules, WORLDS["plain"]):
        parts.append(_differences(base))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _differences(rules: World | Lessons) -> dict[str, Any]:
    """Returns the rules that differ from their defaults, so that a rule that is added later leaves results as they
    are.
    """
    return {name: value for name, value in asdict(rules).items() if value != getattr(type(rules)(), name)}


def load_registration(path: Path) -> Registration:
    """Reads and checks a registration.

    Raises:
        InputError: If the registration is invalid, or its trials cannot be run or compared, for example because it
            contains the name of an unknown world, scheme or metric.
    """
    try:
        found = msgspec.convert(parse_toml(read_bytes(path), str(path)), Registration)
    except msgspec.ValidationError as error:
        raise InputError(f"not a valid registration: {error}", path=str(path)) from None
    cells = {cell.name: cell for cell in found.cells}
    reasons = [f"cell '{cell.name}': {fault}" for cell in found.cells for fault in _faults_of_cell(cell)]
    for named in (found.cells, found.hypotheses):
        numbers = Counter(each.name for each in named)
        reasons += [f"the name '{name}' is used twice" for name, number in numbers.items() if number > 1]
    for claimed in found.hypotheses:
        if claimed.cell not in cells:
            reasons.append(f"hypothesis {claimed.name}: unknown cell '{claimed.cell}'")
            continue
        faults = _faults_of_claim(claimed, cells[claimed.cell], found.families)
        reasons += [f"hypothesis {claimed.name}: {fault}" for fault in faults]
    reasons += [
        f"family '{family}': unknown scheme '{name}'"
        for family, names in found.families.items()
        for name in names
        if name not in (*SCHEMES, START)
    ]
    if reasons:
        raise InputError("; ".join(dict.fromkeys(reasons)), path=str(path))
    return found


FRONTIER = ("area", "matched")


def _faults_of_cell(cell: Cell) -> Iterator[str]:
    if cell.world not in WORLDS:
        yield f"unknown world '{cell.world}'"
    if not 0 <= cell.seeds[0] <= cell.seeds[1]:
        yield f"{cell.seeds[0]} to {cell.seeds[1]} are not seeds"
    if cell.steps < 1:
        yield "steps must be at least 1"
    for name in cell.schemes:
        if name not in SCHEMES:
            yield f"unknown scheme '{name}'"
        elif cell.settings:
            try:
                check_settings(name, cell.settings)
            except InputError as error:
                yield str(error)


def _faults_of_claim(claimed: Hypothesis, cell: Cell, families: Mapping[str, Sequence[str]]) -> Iterator[str]:
    is_frontier, compares = claimed.metric in FRONTIER, claimed.claim != "below"
    if not is_frontier and claimed.metric not in {rate.name for rate in fields(Rates)}:
        yield f"unknown metric '{claimed.metric}'"
    if is_frontier and not compares:
        yield f"'{claimed.metric}' compares two families"
    if len(cell.numbers) < 2:
        yield "a test needs at least two seeds"
    for name in (claimed.scheme, claimed.other) if compares else (claimed.scheme,):
        if is_frontier and not families.get(name):
            yield f"'{name}' is not a family"
            continue
        schemes = families[name] if is_frontier else (name,)
        yield from (f"'{each}' is not in its cell" for each in schemes if each not in (*cell.schemes, START))


def read_results(path: Path) -> dict[Key, Result]:
    """Reads a results file and returns the newest result of each trial. The result of a finished trial takes precedence
    over that of a failed attempt.

    If the file does not exist, the mapping is empty.

    Raises:
        InputError: If a line is invalid, or if the design of a trial is not that of the current code (``Result``).
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
    """Locks a results file and appends results to it. An incomplete last line, which a killed process can leave behind,
    is removed first.
    """
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
    """Adds to a file those results from other files that the file does not yet contain, and returns the number of added
    results.
    """
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
    """Returns the blocks in the order of execution, which is determined by priority, then by seed, and then by cost."""
    found: dict[tuple[int, int, float, str, str, int], dict[Key, None]] = {}
    for cell in registration.cells:
        cost = cell.steps * sum(WORLDS[cell.world].objects)
        for number, seed in enumerate(cell.numbers):
            place = (cell.priority, number, cost, cell.world, cell.lessons, seed)
            found.setdefault(place, {}).update(dict.fromkeys(cell.keys(seed)))
    return [tuple(found[place]) for place in sorted(found)]


def missing(block: Block, results: dict[Key, Result], *, retry: bool) -> Block:
    """Returns the trials of a block that have no result. If ``retry`` is True, failed trials are included."""
    return tuple(key for key in block if key not in results or (retry and results[key].measured is None))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits for an exclusive lock on a folder, and keeps the lock until the ``with`` block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "wb") as stream:
        while not try_lock(stream.fileno()):
            time.sleep(0.5)
        yield


def _start_model(world: World, folder: Path, lessons: Lessons, seed: int) -> Path:
    """Prepares a start model, and before it those on which it is based.

    Several worlds share a base, so each start model has its own lock, which is not kept during the trials.
    """
    if world.has_base:
        _start_model(WORLDS[world.base], folder, lessons, seed)
    with _alone(folder / f"locks/start-{world.name}-{seed}"):
        return prepare(world, folder, lessons, seed)


def perform_block(output: Path, results: Path, block: Block, deadline: float | None) -> None:
    """Runs the unfinished trials of a block, and appends one result for each trial.

    Trials that another process has already finished are omitted.

    Args:
        output: Folder of the runs.
        results: Results file.
        block: Trials that share one start model.
        deadline: Time, as returned by ``time.time``, after which no trial is started, or None for no limit.
    """

    def is_over() -> bool:
        return deadline is not None and time.time() > deadline

    where = f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    for key in block:
        world, lessons = WORLDS[key.world], LESSONS[key.lessons]
        folder = output / key.lessons
        if is_over():
            return
        with _alone(folder / f"locks/{world.name}-{key.seed}"):  # the wait may take hours
            known = read_results(results).get(key)
            if is_over() or (known is not None and known.measured is not None):
                continue
            began = time.time()
            measured, failed = None, ""
            try:
                run = _start_model(world, folder, lessons, key.seed)
                if key.scheme != START:
                    run = train(folder / world.name, key.trial, key.steps)
                describe(run / "model", folder / world.name / f"seed-{key.seed}")
                measured = measure(run)
            except Interrupted:  # this trial has not failed: it continues at the next run
                raise
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
    """Runs the missing trials of a grid.

    Args:
        registration: Registered grid.
        output: Folder of the runs.
        results: Results file.
        jobs: Number of parallel processes.
        part: Number of the part to run, starting at 1, and total number of parts.
        hours: Number of hours after which no further trial is started, or None for no limit.
        retry: True to run failed trials again.
    """
    known = read_results(results)
    wanted = [missing(block, known, retry=retry) for block in blocks_of(registration)[part[0] - 1 :: part[1]]]
    deadline = None if hours is None else time.time() + 3600 * hours
    with process_pool(jobs, option="--jobs", initializer=one_thread, mp_context=get_context("spawn")) as pool:
        calls = [(perform_block, output, results, block, deadline) for block in wanted if block]
        for future in [pool.submit(until_interrupted, *call) for call in calls]:
            future.result()


def state(registration: Registration, results: dict[Key, Result]) -> str:
    """Returns one line of text per cell with the numbers of finished, failed and missing trials, and the expected
    remaining hours of one process.
    """
    lines = []
    for cell in registration.cells:
        keys = [key for seed in cell.numbers for key in cell.keys(seed)]
        done = [results[key] for key in keys if key in results and results[key].measured is not None]
        failed = sum(key in results and results[key].measured is None for key in keys)
        left = len(keys) - len(done) - failed
        mean = sum(result.seconds for result in done) / len(done) if done else None
        hours = "" if mean is None else f", about {left * mean / 3600:.1f} hours in one process"
        lines.append(f"{cell.name}: {len(done)} of {len(keys)} trials finished, {failed} failed, {left} missing{hours}")
    return "\n".join(lines)


def command(arguments: Sequence[str]) -> int:
    """Runs the command ``grid`` and returns the exit code, which is 4 if a trial failed and 0 otherwise."""
    parser = argparse.ArgumentParser(prog="scapo_train.world grid", description=__doc__)
    parser.add_argument("registration", type=Path, help="TOML file")
    parser.add_argument("--results", type=Path, help="results (default: beside the registration, .jsonl)")
    parser.add_argument("-o", "--output", type=Path, help="folder of the runs (default: runs/NAME)")
    parser.add_argument("--jobs", type=at_least(1), default=1, help="trials at once (default: 1)")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="every N-th block, from the K-th on")
    parser.add_argument("--hours", type=_hours, help="begin no trial after this time")
    parser.add_argument("--retry", action="store_true", help="run failed trials again")
    parser.add_argument(
        "--merge", type=Path, nargs="+", action="extend", default=[], metavar="FILE", help="add results, run nothing"
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
            jobs=given.jobs, part=given.part, hours=given.hours, retry=given.retry,
        )  # fmt: skip
    known = read_results(results)
    print(state(registration, known))
    failed = [result for result in known.values() if result.measured is None]
    for result in failed:
        print(
            f"failed: {result.key.scheme}, {result.key.world}, seed {result.key.seed}: {result.failed}", file=sys.stderr
        )
    return 4 if failed else 0


def at_least(least: int) -> Callable[[str], int]:
    """Returns an argparse type that accepts integers greater than or equal to ``least``."""

    def number(given: str) -> int:
        if not given.isdecimal() or int(given) < least:
            raise argparse.ArgumentTypeError(f"'{given}' is not a whole number from {least} on")
        return int(given)

    return number


def _hours(given: str) -> float:
    """Converts a number of hours."""
    with suppress(ValueError):
        if 0 < (hours := float(given)) < math.inf:
            return hours
    raise argparse.ArgumentTypeError(f"'{given}' is not a number of hours, as in 0.5")


def _part(given: str) -> tuple[int, int]:
    """Converts a part of the grid, such as ``2/4``, to a pair of integers, such as (2, 4)."""
    first, slash, last = given.partition("/")
    if not slash or not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise argparse.ArgumentTypeError(f"'{given}' is not K/N, as in 2/4")
    return int(first), int(last)
