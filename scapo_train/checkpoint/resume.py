"""Decides what a resumed training run may change, and when there is nothing to resume."""

from __future__ import annotations

import logging
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
    ),
}  # fmt: skip
"""Section -> settings that decide what is optimized, or which prompts a step takes; None: all of the section."""


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Best(msgspec.Struct):
    value: float | None
    step: _Number
    waited: _Number


class _Alarms(msgspec.Struct):
    start: dict[str, float]
    said: list[str]
    raised: dict[str, Alarm] = {}


class _State(msgspec.Struct):
    step: _Number
    bad: list[_Number]
    config: str
    reward: str | None = None
    best: _Best | msgspec.UnsetType = msgspec.UNSET
    alarms: _Alarms | msgspec.UnsetType = msgspec.UNSET


def known_state(state: Any, path: Path) -> dict[str, Any]:
    """Returns what a training run saves of a checkpoint's state; refuses any other before it is used.

    Args:
        state: of a checkpoint.
        path: folder of the checkpoint.

    Raises:
        InputError: with the file and the fault.
    """
    checked: dict[str, Any] = msgspec.to_builtins(convert_as(state, _State, path / STATE))
    return checked


def check_changes(saved: str, now: Config, reward: tuple[str | None, str], *, accept: bool, path: Path) -> None:
    """Compares the settings of a checkpoint with those of the resumed run; tells every change.

    Args:
        saved: settings of the checkpoint, as TOML.
        now: settings of the resumed run.
        reward: signature of the reward, in the checkpoint (None if it does not say) and now.
        accept: whether changes of the objective are accepted.
        path: folder of the checkpoint.

    Raises:
        InputError: if the objective changed: another reward, scheme, loss, truth, seed...
    """
    try:
        before = from_toml(saved)
    except InputError as error:
        _log.warning("%s: its settings cannot be compared: %s", path, error)
        return
    decisive: list[str] = []
    for section, names in vars(now).items():
        old = vars(getattr(before, section))
        for name, value in vars(names).items():
            if old[name] == value:
                continue
            change = f"{section}.{name} = {value!r} (before: {old[name]!r})"
            keys = DECISIVE.get(section, ())
            if keys is None or name in keys:
                decisive.append(change)
            else:
                _log.warning("resumed with another setting than before: %s", change)
    if not decisive and reward[0] is not None and reward[0] != reward[1]:
        decisive.append(f"the reward {reward[1]} (before: {reward[0]})")
    if decisive and not accept:
        reason = f"the resumed run has {'; '.join(decisive)}: give --accept-changes, or set another run.output"
        raise InputError(reason, path=str(path))
    for change in decisive:
        _log.warning("resumed with another objective than before: %s", change)


def check_not_deleted(folder: Path, save_every: int) -> None:
    """Refuses to begin again where a training run has saved checkpoints that are missing any more.

    Args:
        folder: folder of the training run, without a complete checkpoint.
        save_every: number of steps between checkpoints.

    Raises:
        InputError: if it has exported a model, or done more steps than those before its first checkpoint.
    """
    done = 0
    if (folder / METRICS).exists():
        lines = read_regular(folder / METRICS).splitlines(keepends=True)
        with decoding("file of metrics", folder / METRICS):
            done = max((int(parse_json(line)["step"]) for line in lines if line.endswith(b"\n")), default=0)
    if (folder / "model").exists() or (save_every and done > save_every):
        reason = f"has {done} steps, but no checkpoint to go on from: restore it, or set another run.output"
        raise InputError(reason, path=str(folder))
