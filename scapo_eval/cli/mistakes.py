"""Error messages for mistyped options."""

from __future__ import annotations

import sys

import click

from ..results.benchmark import benchmarks
from .cluster import ENGINE_OPTIONS

OTHER_NAMES = {
    "--gt": "--truth",
    "--t": "--truth",
    "--ground-truth": "--truth",
    "--annotations": "--truth",
    "--dopa": "--truth",
    "--reference": "--references",
    "--output-file": "--output",
}
"""Mapping from options in other tools to options of this command line with the same meaning."""


def explained(error: click.ClickException) -> click.ClickException:
    """Returns the error with a better suggestion for an unknown option. Other errors are returned unchanged."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    if error.option_name in ENGINE_OPTIONS:
        verbs = ", ".join(record.verb for record in benchmarks() if record.engine)
        reason = f"No such option '{error.option_name}': only {verbs} use it (docs/scale.md#what-runs-on-an-engine)"
        return click.UsageError(reason, error.ctx)
    meant = _meant(error.option_name, _options(error.ctx.command))
    if meant is None:
        return error
    return click.UsageError(f"No such option '{_typed(error.option_name)}'. Did you mean '{meant}'?", error.ctx)


def _options(command: click.Command) -> list[str]:
    return [
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for name in option.opts
    ]


def _typed(option: str) -> str:
    """Returns the argument as it was typed: click reports ``-truth`` as ``-t``."""
    if option.startswith("--"):
        return option
    return next((word for word in sys.argv[1:] if word.startswith(option) and len(word) > len(option)), option)


def _meant(option: str, options: list[str]) -> str | None:
    """Returns the option that was probably meant: one with the same meaning, the same letters, or the same beginning.
    None leaves the suggestion to click.
    """
    word = "--" + _typed(option).lstrip("-").partition("=")[0].replace("_", "-")
    if word in options:
        return word
    if (other := OTHER_NAMES.get(word)) in options:
        return other
    begun = [name for name in options if name.startswith(word)]
    return begun[0] if len(begun) == 1 and len(word) > len("--x") else None
