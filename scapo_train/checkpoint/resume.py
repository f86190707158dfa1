"""Checks before a run is resumed: changed settings and packages, invalid states, and deleted checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from scapo_eval.base.errors import InputError
from scapo_eval.files.files import decoding, read_regular
from scapo_eval.files.json_text import convert_as, parse_json

from ..config import Config, from_toml
from ..monitoring.alarms import Alarm
from ..monitoring.log import METRICS
from .save import STATE

_log = logging.getLogger(__name__)

DECISIVE = {
    "run": ("seed",),
    "model": ("path", "revision", "min_pixels", "max_pixels"),
    "lora": None,
    "data": ("train", "oracle", "vocabulary", "prompts_per_step"),
    "rollout": ("group", "temperature", "max_new_tokens"),
    "credit": None,
    "preference": None,
    "loss": (
        "clip_low", "clip_high", "kl", "kl_estimator", "normaliser", "mean_per_micro_batch", "engine_correction",
        "correction_level",
    ),
}  # fmt: skip
"""Settings, by section, that determine the objective or the prompts of a step. None represents all settings of a
section.
"""


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Best(msgspec.Struct):
    value: float | None
    step: _Number
    waited: _Number
    metric: str | msgspec.UnsetType = msgspec.UNSET
    held_out: str | msgspec.UnsetType = msgspec.UNSET


class _Alarms(msgspec.Struct):
    start: dict[str, float]
    said: list[str]
    raised: dict[str, Alarm] = {}


class _Ahead(msgspec.Struct):
    ids: list[list[_Number]]
    finished: list[bool]
    logprobs: list[list[float]]


class _Versions(msgspec.Struct):
    step: _Number
    packages: dict[str, str]


class _State(msgspec.Struct):
    step: _Number
    bad: list[_Number]
    config: str
    reward: str | None = None
    prompts: str | msgspec.UnsetType = msgspec.UNSET
    best: _Best | msgspec.UnsetType = msgspec.UNSET
    alarms: _Alarms | msgspec.UnsetType = msgspec.UNSET
    ahead: dict[str, _Ahead] = {}
    versions: list[_Versions] | msgspec.UnsetType = msgspec.UNSET


def known_state(state: Any, path: Path) -> dict[str, Any]:
    """Validates the state in a checkpoint before it is used.

    Args:
        state: State from a checkpoint.
        path: Folder of the checkpoint.

    Returns:
        The validated state.

    Raises:
        InputError: If the state is invalid. The error states the file and the fault.
    """
    checked: dict[str, Any] = msgspec.to_builtins(convert_as(state, _State, path / STATE))
    return checked


def saved_budget(saved: str) -> int:
    """Returns the value of ``optim.micro_batch_tokens`` in the settings of a checkpoint, or 0 if they are unreadable.

    Args:
        saved: Settings of the checkpoint, as TOML.
    """
    try:
        return from_toml(saved).optim.micro_batch_tokens
    except InputError:  # reported by check_changes
        return 0


def check_changes(
    saved: str,
    now: Config,
    others: Mapping[str, tuple[str | None, str]],
    *,
    accept: bool,
    path: Path,
    derived: Collection[str] = (),
) -> None:
    """Compares the settings of a checkpoint with those of the resumed run, and logs every change.

    Args:
        saved: Settings of the checkpoint, as TOML.
        now: Settings of the resumed run.
        others: Mapping from the names of other parts of the objective, such as the reward, to their signatures in the
            checkpoint (None if the checkpoint contains no signature) and in the resumed run. A part is compared only if
            the settings are equal.
        accept: True to accept changes to the objective.
        path: Folder of the checkpoint.
        derived: Names of settings that are not compared, because the run determines them itself.

    Raises:
        InputError: If the objective (such as the reward, the scheme, the loss, the ground truth or the seed) has
            changed or cannot be compared, unless ``accept`` is True.
    """
    try:
        before = from_toml(saved)
    except InputError as error:
        if not accept:
            reason = f"its settings cannot be compared: {error.reason}: use --accept-changes, or set another run.output"
            raise InputError(reason, path=str(path)) from None
        _log.warning("%s: its settings cannot be compared: %s", path, error)
        return
    decisive: list[str] = []
    for section, names in vars(now).items():
        old = vars(getattr(before, section))
        for name, value in vars(names).items():
            if old[name] == value or f"{section}.{name}" in derived:
                continue
            change = f"{section}.{name} = {value!r} (before: {old[name]!r})"
            keys = DECISIVE.get(section, ())
            if keys is None or name in keys:
                decisive.append(change)
            else:
                _log.warning("resumed with another setting than before: %s", change)
    if not decisive:
        decisive = [
            f"{name} {after} (before: {former})"
            for name, (former, after) in others.items()
            if former not in (None, after)
        ]
    if decisive and not accept:
        reason = f"the resumed run has {'; '.join(decisive)}: use --accept-changes, or set another run.output"
        raise InputError(reason, path=str(path))
    for change in decisive:
        _log.warning("resumed with another objective than before: %s", change)


def continued(saved: Sequence[Mapping[str, Any]], packages: Mapping[str, str], step: int) -> list[Mapping[str, Any]]:
    """Returns the versions of packages in all parts of a resumed run, and logs a warning if they have changed.

    Args:
        saved: Versions in the checkpoint: the parts of the run in order, each with the number of steps before it
            (``step``) and its ``packages``. Empty for a checkpoint without versions.
        packages: Versions of the resumed run.
        step: Number of steps in the checkpoint.
    """
    before = saved[-1]["packages"] if saved else packages
    if before != packages:
        changed = [name for name in {**before, **packages} if before.get(name) != packages.get(name)]
        one, other = (
            ", ".join(f"{name} {each[name]}" if name in each else f"no {name}" for name in changed)
            for each in (before, packages)
        )
        _log.warning("the run was saved with %s and continues with %s: the samples may differ", one, other)
    return [*saved] if saved and before == packages else [*saved, {"step": step, "packages": packages}]


def check_not_deleted(folder: Path, save_every: int) -> None:
    """Raises an error if the checkpoints of a training run have been deleted.

    Args:
        folder: Folder of the training run, which contains no complete checkpoint.
        save_every: Number of steps between checkpoints.

    Raises:
        InputError: If the folder contains an exported model, or metrics for a step after the first checkpoint was due.
    """
    done = 0
    if (folder / METRICS).exists():
        lines = read_regular(folder / METRICS).splitlines(keepends=True)
        with decoding("file of metrics", folder / METRICS):
            done = max((int(parse_json(line)["step"]) for line in lines if line.endswith(b"\n")), default=0)
    if (folder / "model").exists() or (save_every and done > save_every):
        reason = f"has {done} steps, but no checkpoint to resume from: restore it, or set another run.output"
        raise InputError(reason, path=str(folder))
