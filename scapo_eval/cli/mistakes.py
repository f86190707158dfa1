"""Error messages for mistyped options, and for several missing options at once."""

from __future__ import annotations

import sys

import click

OTHER_NAMES = {
    "--gt": "--truth",
    "--ground-truth": "--truth",
    "--annotations": "--truth",
    "--dopa": "--truth",
    "--reference": "--references",
    "--output-file": "--output",
}
"""Mapping from options in other tools to options of this command line with the same meaning."""


def explained(error: click.ClickException) -> click.ClickException:
    """Returns the error with a better suggestion for an unknown option, or with all missing parameters in place of the
    first. Other errors are returned unchanged.
    """
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        if meant := _meant(error.option_name, _options(error.ctx.command)):
            return click.UsageError(f"No such option '{_typed(error.option_name)}'. Did you mean '{meant}'?", error.ctx)
    elif isinstance(error, click.MissingParameter) and error.ctx is not None:
        missing = _missing(error.ctx)
        if len(missing) > 1:
            return click.UsageError(f"missing: {', '.join(map(_described, missing))}", error.ctx)
    return error


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


def _missing(context: click.Context) -> list[click.Parameter]:
    """Returns the required parameters of a command that the command line does not contain."""
    command, words = context.command, sys.argv[1:]
    if context.info_name in words:
        words = words[words.index(context.info_name) + 1 :]
    given = command.make_context(context.info_name, words, context.parent, resilient_parsing=True).params
    return [param for param in command.params if param.required and not given.get(param.name or "")]


def _described(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        text = (param.help or "").partition(". ")[0].rstrip(".")
        return f"{param.opts[-1]} ({text})" if text else param.opts[-1]
    return param.human_readable_name
