"""Base class of all commands. It refuses options with several values, lists all missing parameters at once, shows the
help page for the word ``help``, and corrects arguments that are at the wrong place.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ..base.errors import InputError, InputErrors, ScapoError
from ..readers.data_set import input_at
from ..readers.formats import KnownFile, recognize_file
from ..readers.kinds import KINDS
from ..results.benchmark import BENCHMARK_OF, benchmark, has_benchmark
from .common import with_help
from .context import Context
from .examples import broken, example_of
from .files import InputFile, split_name

_WORDS = f"{__name__}.words"
_UNREADABLE = ("missing key", "not valid as", "no image id")
_SWAPPED = "; the arguments look swapped"


class Verb(click.Command):
    """Command whose messages about wrong arguments name the remedy."""

    context_class = Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line.

        Raises:
            click.UsageError: If parameters are missing, or an option with one value is given several values.
        """
        words = with_help(args)
        ctx.meta[_WORDS] = words
        try:
            rest = super().parse_args(ctx, [*words])
        except click.MissingParameter as error:
            raise self._missing(ctx, words) or error from None
        if not ctx.resilient_parsing:
            self._refuse_repeats(ctx, words)
        return rest

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes an example at the end of the help page."""
        super().format_epilog(ctx, formatter)
        if (example := example_of(name_of(ctx))) is not None:
            with formatter.section("Example"):
                for line in broken(example.lines[-1]).splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. If it fails because of swapped arguments, the message contains the corrected command."""
        try:
            return super().invoke(ctx)
        except (ScapoError, click.UsageError) as error:
            if (better := misplaced(ctx)) is not None:
                path, reason, words = better
                command = f"{ctx.command_path} {shlex.join(words)}"
                raise InputError(f"{reason}; write: {command}", path=path) from error
            if (told := _recognized(ctx, error)) is not None:
                raise told from error
            raise

    def _missing(self, ctx: click.Context, words: Sequence[str]) -> click.UsageError | None:
        """Returns an error that lists all missing parameters, or None if click's own message is sufficient."""
        given = self.make_context(ctx.info_name, [*words], ctx.parent, resilient_parsing=True).params
        missing = [param for param in self.params if param.required and not given.get(param.name or "")]
        if len(missing) == 1 and (isinstance(missing[0], click.Argument) or isinstance(missing[0].type, click.Choice)):
            return None
        return click.UsageError(f"missing: {', '.join(map(_described, missing))}", ctx) if missing else None

    def _refuse_repeats(self, ctx: click.Context, words: Sequence[str]) -> None:
        order = self.make_parser(ctx).parse_args([*words])[2]
        for option in dict.fromkeys(order):
            if not isinstance(option, click.Option) or option.multiple or option.is_flag or option.count:
                continue
            values = list(dict.fromkeys(_values(option, words))) if order.count(option) > 1 else []
            if len(values) > 1:
                reason = f"{option.opts[-1]} accepts one value, and is given {len(values)}: {', '.join(values)}"
                raise click.UsageError(reason, ctx)


def name_of(ctx: click.Context) -> str:
    """Returns the name of a command with its groups, without the name of the program (``vocab check``)."""
    return ctx.command_path.partition(" ")[2]


def misplaced(ctx: click.Context) -> tuple[str, str, list[str]] | None:
    """Returns the file that is at the wrong place on a command line, the reason, and the corrected words. The result is
    None if no file is recognized as misplaced.
    """
    words: list[str] = ctx.meta.get(_WORDS, [])
    files, accepted = list(_files(ctx)), _accepted(_verb(ctx))
    options = {name for option in ctx.command.params for name in option.opts if isinstance(option, click.Option)}
    for file in files:
        known = _known(file)
        if known is not None and known.kind.name in accepted:
            continue
        belongs = known.kind.option if known is not None else ""
        for flag, value in _optional_files(ctx):
            other = _known(value)
            is_options = known is not None and belongs == flag and os.path.exists(value)
            if known is not None and is_options and (other is None or other.kind is not known.kind):
                return file, f"recognized as {known.title}{_SWAPPED}", _swapped(words, file, value)
            if other is not None and other.kind.name in accepted and other.kind.option != flag:
                return value, f"recognized as {other.title}{_SWAPPED}", _swapped(words, file, value)
        if known is not None and belongs in options.difference(words) and len(files) > 1:
            rest = [word for word in words if split_name(word)[1] != file]
            return file, f"recognized as {known.title}, which requires {belongs}", [*rest, belongs, file]
        if known is not None and (belongs, file) in _optional_files(ctx) and len(files) > 1:
            at = words.index(belongs) if belongs in words else len(words)
            rest = [word for k, word in enumerate(words) if k == at + 1 or split_name(word)[1] != file]
            return file, f"recognized as {known.title}, which {belongs} already names", rest
    return None


def _recognized(ctx: click.Context, error: Exception) -> InputError | None:
    """Returns the error with the kind of the file, if the first record of the file is unreadable because the file is of
    another kind, or None.
    """
    first = error.errors[0] if isinstance(error, InputErrors) else error
    if not isinstance(first, InputError) or not first.reason.startswith(_UNREADABLE) or (first.line or 1) > 1:
        return None
    accepted = _accepted(_verb(ctx))
    others = [path for path in _files(ctx) if accepted] + [
        path for flag, path in _optional_files(ctx) if (known := _known(path)) and known.kind.option != flag
    ]
    known = _known(first.path or "") if first.path in others else None
    if known is None or known.kind.name in accepted or known.title in first.reason:
        return None
    reason = f"{first.reason}; recognized as {known.title}{known.kind.advice(first.path)}"
    return InputError(reason, path=first.path, line=first.line)


def _verb(ctx: click.Context) -> str:
    """Returns the name of the verb, which for a command in a group is the name of the group."""
    while ctx.parent is not None and ctx.parent.parent is not None:
        ctx = ctx.parent
    return ctx.command.name or ""


def _accepted(verb: str) -> set[str]:
    """Returns the names of the kinds of files that a verb accepts as arguments."""
    accepted = {kind.name for kind in KINDS.values() if verb in kind.verbs}
    name = BENCHMARK_OF.get(verb, verb)
    return accepted.union(benchmark(name).takes) if has_benchmark(name) else accepted


def _files(ctx: click.Context) -> Iterator[str]:
    """Yields the existing files that are arguments of a command."""
    for param in ctx.command.params:
        if isinstance(param, click.Argument) and isinstance(param.type, InputFile):
            yield from (path for path in _paths(ctx.params.get(param.name or "")) if os.path.exists(path))


def _optional_files(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yields the options of a command that name files, each with its file."""
    flags = {kind.option for kind in KINDS.values()}
    for param in ctx.command.params:
        flag = param.opts[-1]
        if isinstance(param, click.Option) and (isinstance(param.type, InputFile) or flag in flags):
            yield from ((flag, path) for path in _paths(ctx.params.get(param.name or "")))


def _paths(value: Any) -> list[str]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [split_name(text)[1] for text in values if isinstance(text, str)]


def _known(path: str) -> KnownFile | None:
    """Returns the recognized kind of a file or folder, or None. Pipes are not opened again."""
    if not (os.path.isfile(path) or os.path.isdir(path)):
        return None
    try:
        return recognize_file(input_at(path))
    except ScapoError:
        return None


def _swapped(words: Sequence[str], one: str, other: str) -> list[str]:
    """Returns the words of a command line in which two files are exchanged, including ``NAME=FILE`` and
    ``--option=FILE``.
    """
    places = {one: other, other: one}
    swapped = []
    for word in words:
        before, equals, path = word.rpartition("=") if word not in places else ("", "", word)
        swapped.append(before + equals + places.get(path, path))
    return swapped


def _values(option: click.Option, words: Sequence[str]) -> Iterator[str]:
    """Yields the values of an option on a command line."""
    for k, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word in option.opts:
            yield "".join(words[k + 1 : k + 2])
        elif equals and name in option.opts:
            yield value
        elif word[:2] in option.opts and not word.startswith("--"):
            yield word[2:]


def _described(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        text = (param.help or "").partition(". ")[0].rstrip(".")
        return f"{param.opts[-1]} ({text})" if text else param.opts[-1]
    return param.human_readable_name
