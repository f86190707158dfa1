"""Output of a training run, which consists of metrics, samples, the run card, a console line per step, and trackers.

``scapo-eval report`` reads ``metrics.jsonl``, ``samples.jsonl`` and ``alarms.jsonl`` (docs/report.md).
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.logging import RichHandler

from scapo_eval import __version__
from scapo_eval.base.errors import InputError
from scapo_eval.files.files import atomic_write, decoding, read_regular
from scapo_eval.files.json_text import dump_json, parse_json
from scapo_eval.files.locks import try_lock

from ..config import Config, to_toml
from .alarms import Alarm
from .trackers import TRACKERS, LoggedSample

_log = logging.getLogger(__name__)

METRICS, SAMPLES, EXTREMES, ALARMS = "metrics.jsonl", "samples.jsonl", "extremes.jsonl", "alarms.jsonl"
CARD, CONFIG, LOCK = "card.json", "config.toml", "lock"
_SHOWN = {"hal_rate": "Hal", "cover_rate": "Cover", "cap_score": "Cap", "reward": "reward", "length": "length"}


class Clock:
    """Measurement of the duration of each phase of a step, in seconds.

    Args:
        device: Device that is synchronized at the start and at the end of a phase, so that a phase includes only its
            own work.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._spent: dict[str, float] = {}
        self.phase = ""
        """Name of the current or last phase."""

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the duration of the ``with`` block to a phase."""
        self.phase, begin = phase, self._now()
        try:
            yield
        finally:
            self._spent[phase] = self._spent.get(phase, 0.0) + self._now() - begin

    def take(self) -> dict[str, float]:
        """Returns the duration of each phase in seconds as ``seconds_<phase>``, and resets the measurement for the next
        step.
        """
        spent = {f"seconds_{phase}": seconds for phase, seconds in self._spent.items()}
        self._spent = {}
        return spent

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


class Log:
    """Log files of a training run. Only the main rank writes a log.

    Args:
        folder: Folder of the training run.
        config: Settings of the training run.
        card: Facts that are needed to reproduce the training run.
        done: Number of completed steps, or -1 before the first evaluation. Lines for later steps are removed from the
            log, because the state of these steps was not saved.

    Raises:
        ScapoError: If a tracker is not installed.
    """

    def __init__(self, folder: Path, config: Config, card: Mapping[str, Any], done: int) -> None:
        self.folder = folder
        for name in (METRICS, SAMPLES, EXTREMES, ALARMS):
            _keep_until(folder / name, done)
        with atomic_write(folder / CONFIG) as stream:
            stream.write(to_toml(config).encode())
        with atomic_write(folder / CARD) as stream:
            stream.write(dump_json(card := {**_machine(), **card}) + b"\n")
        self._trackers = [TRACKERS[name](folder, {**asdict(config), "card": card}) for name in config.run.trackers]

    def metrics(self, step: int, steps: int, values: Mapping[str, float | None]) -> None:
        """Writes the metrics of one step, and prints the most important metrics."""
        _append(self.folder / METRICS, {"step": step, **values})
        for tracker in self._trackers:
            tracker.metrics(step, {name: value for name, value in values.items() if value is not None})
        places = {"": "", "evaluation_": "held-out "}
        shown = [
            f"{where}{name} {_short(key, values[prefix + key])}"
            for prefix, where in places.items()
            for key, name in _SHOWN.items()
            if prefix + key in values
        ]
        seconds = sum(value or 0.0 for name, value in values.items() if name.startswith("seconds_"))
        if step:
            shown.append(f"left {_duration(seconds * (steps - step))}")
        print_line(f"step {step}/{steps}  {'  '.join(shown)}  {seconds:.1f} s")

    def samples(self, step: int, samples: Sequence[LoggedSample]) -> None:
        """Writes the responses for the images that are described periodically."""
        for image_id, response in samples:
            _append(self.folder / SAMPLES, {"step": step, "image_id": image_id, "response": response})
        for tracker in self._trackers:
            tracker.samples(step, samples)

    def alarm(self, step: int, alarm: Alarm) -> None:
        """Writes an alarm that is raised in this step, but was not raised in the previous step."""
        _append(self.folder / ALARMS, {"step": step, **asdict(alarm)})

    def extreme(self, step: int, kind: str, image_id: str, response: str, parts: Sequence[Sequence[float]]) -> None:
        """Writes one of the step's best or worst responses with its pieces. For each piece, the line contains start,
        end, reward, new, rep and hal.
        """
        row = {"step": step, "kind": kind, "image_id": image_id, "response": response, "parts": parts}
        _append(self.folder / EXTREMES, row)

    def close(self, *, failed: bool) -> None:
        """Closes all trackers."""
        for tracker in self._trackers:
            tracker.close(failed=failed)


@contextmanager
def open_folder(folder: Path, *, resume: bool) -> Iterator[None]:
    """Creates the folder of a training run, and keeps other processes from training in it until the ``with`` block
    ends.

    Raises:
        InputError: If the folder contains a run and ``resume`` is False, if another process is training in the folder,
            or if the folder cannot be created.
    """
    if not resume and (folder / METRICS).exists():
        raise InputError("contains a run: continue with --resume auto, or set another run.output", path=str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = open(folder / LOCK, "ab")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"cannot be created: {error.strerror}", path=str(folder)) from None
    with stream:
        try:
            alone = try_lock(stream.fileno())
        except InputError as error:
            _log.warning("%s: a second process in this folder would not be noticed: %s", folder, error.reason)
            alone = True
        if not alone:
            reason = "another process is training in this folder: wait until it ends, or set another run.output"
            raise InputError(reason, path=str(folder))
        yield


def show_messages(rank: int) -> None:
    """Prints the messages of the training loop on the terminal. Ranks other than the first print only errors."""
    handler: logging.Handler = logging.StreamHandler()  # a log file needs each message on one line
    handler.setFormatter(logging.Formatter("scapo_train: %(levelname)s: %(message)s"))
    if sys.stderr.isatty():
        handler = RichHandler(console=Console(stderr=True), show_path=False, show_time=False, markup=False)
    for name in ("scapo_train", "scapo_eval"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO if rank == 0 else logging.ERROR)


def print_line(line: str) -> None:
    """Prints a line on standard error. If the reader of a pipe has exited, further lines are discarded, so that the
    training continues.
    """
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _duration(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{whole:02d}"


def _short(key: str, value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{100 * value:.1f}" if key in ("hal_rate", "cover_rate", "cap_score") else f"{value:.2f}"


def _append(path: Path, row: Mapping[str, Any]) -> None:
    try:
        with open(path, "ab") as stream:
            stream.write(dump_json(row) + b"\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}; go on with --resume auto", path=str(path)) from None


def _keep_until(path: Path, done: int) -> None:
    """Removes from a file the lines for steps after ``done``, and an incomplete last line that was left behind by a
    killed process.
    """
    if not path.exists():
        return
    kept = []
    with decoding("file of a training run's rows", path):
        for line in read_regular(path).splitlines(keepends=True):
            if not line.endswith(b"\n") or parse_json(line)["step"] > done:
                break
            kept.append(line)
    with atomic_write(path) as stream:
        stream.write(b"".join(kept))


def package_versions() -> dict[str, str]:
    """Returns the versions of the packages of every run."""
    import transformers

    return {"scapo": __version__, "torch": str(torch.__version__), "transformers": transformers.__version__}


def _machine() -> dict[str, Any]:
    return {
        **package_versions(),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "command": sys.argv,
    }
