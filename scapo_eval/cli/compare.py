"""``scapo-eval compare``: systems side by side, from results files or (``--benchmark``) from what they were made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ..errors import InputError, ScapoError
from ..io.files import STDIN, read_json
from ..io.formats import recognise
from ..results import FORMAT, System, table_from
from .common import Output, emit, output_options

BENCHMARKS = ("score", "chair", "amber", "phd", "pope", "yesno", "mmhal", "faithscore")
"""Verbs that score several raw files and compare them with the first."""


class Compare(click.Command):
    """Becomes the verb that ``--benchmark`` names, wherever that option stands; the rest is that verb's to parse."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The verb's own context, with at least two files, or that of ``compare`` for results files."""
        benchmark, rest = _take_benchmark(args)
        if benchmark is None:
            return super().make_context(info_name, args, parent, **extra)
        command: click.Command = import_module(f".{benchmark}", __package__).command
        context = command.make_context(f"{info_name} --benchmark {benchmark}", rest, parent, **extra)
        files = next(parameter.name for parameter in command.params if isinstance(parameter, click.Argument))
        if len(context.params[files or ""]) < 2:
            raise click.UsageError(f"one file is nothing to compare; to score it: scapo-eval {benchmark}", context)
        return context


def _take_benchmark(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``--benchmark``, and the arguments without it."""
    for k, word in enumerate(args):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option == "--benchmark":
            value = value if equals else "".join(args[k + 1 : k + 2])
            if value not in BENCHMARKS:
                raise click.UsageError(f"no benchmark '{value}'; --benchmark takes one of {', '.join(BENCHMARKS)}")
            return value, [*args[:k], *args[k + (1 if equals else 2) :]]
    return None, list(args)


@click.command("compare", cls=Compare)
@click.argument("results", nargs=-1, required=True)
@click.option(
    "--benchmark",
    metavar="NAME",
    expose_value=False,
    help=f"Compare captions or answers themselves: {', '.join(BENCHMARKS)}. Takes that verb's options, too.",
)
@output_options
def command(results: tuple[str, ...], output: Output) -> int:
    """Compares systems; the first is the baseline.

    RESULTS are results files (written by -o of a scoring verb); with --benchmark NAME they are the files that
    the verb NAME scores, followed by its options, for example: compare a.jsonl b.jsonl --benchmark chair
    --truth truth.json
    """
    systems = [system for path in results for system in load_systems(path)]
    if len(systems) < 2:
        raise click.UsageError(
            "one system is nothing to compare; give several results files, or one with several systems"
        )
    return emit(unique_names(systems), output)


def unique_names(systems: list[System]) -> list[System]:
    """Systems of one name, from different files, told apart by number."""
    names = [system.name for system in systems]
    return [
        replace(system, name=f"{system.name}#{names[: k + 1].count(system.name)}")
        if names.count(system.name) > 1
        else system
        for k, system in enumerate(systems)
    ]


def load_systems(path: str) -> list[System]:
    """The systems of one results file.

    Raises:
        InputError: the file is no results file of this project, is damaged, or lacks the counts per image.
    """
    document = _results_document(path)
    if "per_image" not in document:
        raise InputError("carries no counts per image, so nothing can be tested with it", path=path)
    try:
        return [
            _system(document["metric"], entry, table)
            for entry, table in zip(document["systems"], document["per_image"], strict=True)
        ]
    except ScapoError as error:
        raise InputError(str(error), path=path) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"a damaged results file ({type(error).__name__}: {error}); write it anew with -o of its verb"
        raise InputError(reason, path=path) from None


def _results_document(path: str) -> Mapping[str, Any]:
    try:
        document = read_json(path)
    except InputError:
        if path == STDIN or not Path(path).is_file():
            raise
        document = None  # JSON Lines, for one
    if isinstance(document, Mapping) and document.get("format") == FORMAT:
        return document
    raise InputError(
        f"no results file of format {FORMAT}{_looks_like(path)}; compare captions or answers with --benchmark NAME "
        f"({', '.join(BENCHMARKS)}), or write results files with -o of that verb first",
        path=path,
    )


def _looks_like(path: str) -> str:
    try:
        title = "" if path == STDIN else recognise(path).title
    except ScapoError:
        title = ""
    return f" but {title}" if title else ""


def _system(metric: str, entry: Mapping[str, Any], table: Mapping[str, Any]) -> System:
    from ..metrics import by_name

    found = table_from(table)
    return System(
        name=entry["name"],
        signature=entry["signature"],
        metric=by_name(metric, found.columns),
        table=found,
        n_captions=entry["n_captions"],
        counts={key: value for key, value in entry["counts"].items() if key not in found.columns},
        verdicts=table.get("verdicts", {}),
        printed={name: figure["printed"] for name, figure in entry["metrics"].items() if "printed" in figure},
        notes=tuple(entry.get("notes", ())),
    )
