"""Parameter types for files on the command line. If an output file is also an input file or another output file, an
error is raised before any file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..base.errors import ScapoError
from ..files.files import refuse_replacing, refuse_unwritable
from ..files.source import STDIN, Source
from ..inference.sources import IMAGE_SUFFIXES
from ..readers.data_set import DataSet, files_at, input_at, naming_files, sharing_inputs
from ..readers.formats import KnownFile, recognize_file
from ..results.results import Run, load_results, system_names, unique_names

_STDIN = f"{__name__}.stdin"
_INPUTS, _OUTPUTS, _SOURCES = f"{__name__}.inputs", f"{__name__}.outputs", f"{__name__}.sources"
_PICTURES = f"{__name__}.pictures"  # folders of pictures


class _File(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Parameter type for a file name. The context records all file names on the command line."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Returns a completion item that makes the shell complete file names."""
        return [CompletionItem(incomplete, type="file")]

    def _seen(self, ctx: click.Context | None, own: str, path: str) -> None:
        if ctx is None or ctx.resilient_parsing or path == STDIN:
            return
        ctx.meta.setdefault(own, []).extend(self._read(path) if own == _INPUTS else [path])
        outputs = ctx.meta.get(_OUTPUTS, ())
        refuse_replacing(outputs, [*ctx.meta.get(_INPUTS, ()), *_pictures_among(outputs, ctx.meta.get(_PICTURES, ()))])

    def _read(self, path: str) -> list[str]:
        """Returns the files that a command reads for an input."""
        return files_at(path)


class InputFile(_File):
    """Parameter type for an input file, or for the name of a shipped file.

    Args:
        named: True if the command interprets ``NAME=FILE`` itself. If False, the parameter type removes ``NAME=``.
    """

    def __init__(self, *, named: bool) -> None:
        self.named = named

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Returns the file names and the names of shipped files that complete the text."""
        names: Iterable[str] = ()
        if "vocabulary" in (param.name or ""):
            from ..matching.vocabulary import shipped_vocabularies

            names = shipped_vocabularies()
        elif param.name == "protocol":
            from ..benchmarks.protocol import shipped_protocols

            names = shipped_protocols()
        shipped = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return shipped + super().shell_complete(ctx, param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the value unchanged, or only FILE if the value is ``NAME=FILE`` and the command does not use
        names.
        """
        path = split_name(str(value))[1]
        if not path and not (ctx and ctx.resilient_parsing):
            self.fail("the name of the file is empty", param, ctx)
        if path == STDIN and ctx is not None and param is not None:
            first = ctx.meta.setdefault(_STDIN, param)
            if first is not param and not ctx.resilient_parsing:
                self.fail("standard input (-) is already another input; write one of them into a file", param, ctx)
        self._seen(ctx, _INPUTS, path)
        return value if self.named else path


class PicturesInput(InputFile):
    """Parameter type for pictures or lists of them. Only pictures are read from a folder, so that other files in it may
    be written.
    """

    def _read(self, path: str) -> list[str]:
        if not Path(path).is_dir():
            return super()._read(path)
        click.get_current_context().meta.setdefault(_PICTURES, []).append(path)
        return [path]


class OutputFile(_File):
    """Parameter type for an output file.

    Args:
        folder: True if the output can also be a folder, or if the command creates missing folders.
    """

    def __init__(self, *, folder: bool) -> None:
        self.folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the name of an output file unchanged. A name that cannot be written raises an error."""
        if not value and not (ctx and ctx.resilient_parsing):
            self.fail("the name of the file is empty", param, ctx)
        self._seen(ctx, _OUTPUTS, str(value))
        if not self.folder and value != STDIN and not (ctx and ctx.resilient_parsing):
            refuse_unwritable(str(value))
        return value


INPUT, PLAIN, PICTURES = InputFile(named=True), InputFile(named=False), PicturesInput(named=False)
OUTPUT, OUTPUTS = OutputFile(folder=False), OutputFile(folder=True)


def _pictures_among(outputs: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Returns those outputs that would replace a picture in one of several folders. The folders are not listed, because
    they may contain millions of pictures.
    """
    inside = [Path(folder).resolve() for folder in folders]
    pictures = [output for output in outputs if inside and Path(output).suffix.lower() in IMAGE_SUFFIXES]
    return [output for output in pictures if not {*inside}.isdisjoint(Path(output).resolve().parents)]


def refuse_replacing_inputs(outputs: Sequence[str]) -> None:
    """Rejects an output that the command line does not name if it is an input of the running command, or another
    output.

    Raises:
        InputError: If an output would replace another file.
    """
    context = click.get_current_context(silent=True)
    refuse_replacing(outputs, context.meta.get(_INPUTS, ()) if context is not None else ())


def split_name(argument: str) -> tuple[str | None, str]:
    """Splits ``NAME=FILE`` into name and file. If the complete argument is the name of a file or an
    address (``https://host/file?query=x``), it is not split.
    """
    name, equals, path = argument.partition("=")
    if not equals or not name or not path or "://" in name or Path(argument).exists():
        return None, argument
    return name, path


def named_files(arguments: Sequence[str]) -> list[tuple[str, Source]]:
    """Returns the name and the input of the system that each argument specifies. If an argument has no ``NAME=``, the
    name is derived from the file.

    Raises:
        click.UsageError: If two systems have the same name.
    """
    given = sources_given(arguments)
    short = iter(system_names([source.path for name, source in given if name is None]))
    named = [(name if name is not None else next(short), source) for name, source in given]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"system '{name}' appears twice; name one of them: OTHER=FILE")
    return named


def sources_given(arguments: Sequence[str]) -> list[tuple[str | None, Source]]:
    """Returns the name (or None) and the input of each argument."""
    sources = [(name, source_of(path)) for name, path in map(split_name, arguments)]
    sources = [
        (source.system if name is None and isinstance(source, DataSet) else name, source) for name, source in sources
    ]
    for _, source in sources:
        if sum(source is other for _, other in sources) > 1:
            source.keep()  # an input that is given twice is read twice
    return sources


def named_runs(results: Sequence[str]) -> list[Run]:
    """Returns the runs in results files, of which each is given as ``NAME=FILE`` or FILE.

    Raises:
        NotResults: If a file is not a results file.
        click.UsageError: If a name is given to a file with several systems.
    """
    return unique_names([run for argument in results for run in _load_runs(*split_name(argument))])


def _load_runs(name: str | None, path: str) -> tuple[Run, ...]:
    runs = load_results(source_of(path))
    if name is None:
        return runs
    if len(runs) > 1:
        raise click.UsageError(f"'{name}={path}' names one system, but the file contains {len(runs)}")
    return (replace(runs[0], name=name),)


def source_of(path: str) -> Source:
    """Returns the input at a path, as an object that all functions of the command share."""
    context = click.get_current_context(silent=True)
    return input_at(path) if context is None else shared_source(path, context)


def shared_source(path: str, context: click.Context) -> Source:
    """Opens an input like :func:`source_of`, but before the context of the command exists."""
    known: dict[str, Source] = context.meta.setdefault(_SOURCES, {})
    if path not in known:
        known[path] = input_at(path)
    return known[path]


@contextmanager
def naming_inputs(context: click.Context) -> Iterator[None]:
    """Wraps a command so that it opens each file once, and error messages name the affected file if the input is a
    folder or a pattern.
    """
    known: dict[str, Source] = context.meta.setdefault(_SOURCES, {})
    with sharing_inputs(known), naming_files(known.values()):
        yield


def first_file(words: Sequence[str], command: click.Command, context: click.Context) -> tuple[Source, KnownFile] | None:
    """Returns the first file on a command line and its recognized kind, or None if the command line contains no file.

    Args:
        words: Words of the command line.
        command: Command that defines the options.
        context: Context of the parent command.
    """
    if context.resilient_parsing or not (files := files_among(words, command)):
        return None
    source = shared_source(files[0], context)
    try:
        known = recognize_file(source)
    except ScapoError:  # the error is reported when the file is read
        return None
    return (source, known) if known else None


def files_among(words: Sequence[str], command: click.Command) -> list[str]:
    """Returns the files on a command line, which are all words other than options and their values."""
    flags = {
        name
        for option in command.params
        if getattr(option, "is_flag", False)
        for name in (*option.opts, *option.secondary_opts)
    }
    files = []
    for before, word in zip(("", *words), words, strict=False):
        value = before.startswith("-") and before != STDIN and "=" not in before and before not in flags
        if not value and (not word.startswith("-") or word == STDIN):
            files.append(split_name(word)[1])
    return files
