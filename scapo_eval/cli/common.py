"""What the scoring verbs share: output options, and the one way in which results are shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_args

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..claims import CLAIMS
from ..compare import compare
from ..errors import InputError, ScapoError
from ..io.files import STDIN, atomic_write, dump_json
from ..results import Resampling, Run
from ..scoring import ScoringOptions
from ..stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Test
from .main import GATE_MISSED

MANY_FIGURES = 8
"""From more metrics than this on, a table has them as rows."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Where people read: consoles for results and for everything else."""

    width: int | None = None
    no_color: bool = False
    quiet: bool = False

    def console(self, *, stderr: bool = False) -> Console:
        """A console for results (or, with ``stderr``, for everything else)."""
        return Console(
            stderr=stderr,
            width=self.width,
            no_color=self.no_color or None,
            highlight=False,
            quiet=stderr and self.quiet,
        )

    def warn(self, text: str) -> None:
        """One warning on standard error, unless ``--quiet``."""
        if not self.quiet:
            click.echo(f"scapo-eval: warning: {text}", err=True)


@dataclass(frozen=True, kw_only=True)
class Output(Screen):
    """The options of :func:`output_options`."""

    as_json: bool
    output: str | None
    resamples: int
    seed: int
    test: Test
    allow_different: bool
    fail_under: tuple[str, ...]
    fail_above: tuple[str, ...]

    @property
    def resampling(self) -> Resampling:
        """How intervals are drawn."""
        return Resampling(self.resamples, self.seed)


def output_options(command: Command) -> Command:
    """Adds the options that every scoring verb has; the command receives them as ``output: Output``."""
    options = [
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object, fractions unrounded."),
        click.option(
            "-o",
            "--output",
            metavar="FILE",
            help="Also write a results file (JSON with counts per image) for compare and report.",
        ),
        click.option(
            "--resamples",
            type=click.IntRange(0, 1_000_000),
            default=DEFAULT_RESAMPLES,
            show_default=True,
            help="Bootstrap resamples; 0 for no intervals.",
        ),
        click.option(
            "--seed", type=click.IntRange(0), default=DEFAULT_SEED, show_default=True, help="Seed of every resampling."
        ),
        click.option(
            "--test",
            type=click.Choice(get_args(Test)),
            default="approximate_randomization",
            show_default=True,
            help="Test of differences to the first system.",
        ),
        click.option(
            "--allow-different",
            is_flag=True,
            help="Compare systems that were scored differently (truth, vocabulary, claims...), and mark it.",
        ),
        click.option(
            "--fail-under",
            multiple=True,
            metavar="METRIC=VALUE",
            help="Exit with 3 if a system's metric (a fraction) is below VALUE.",
        ),
        click.option(
            "--fail-above",
            multiple=True,
            metavar="METRIC=VALUE",
            help="Exit with 3 if a system's metric is above VALUE.",
        ),
        click.option("--width", type=click.IntRange(40), help="Width of the table in characters."),
        click.option("--no-color", is_flag=True, help="No colors (NO_COLOR works, too)."),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings."),
    ]
    return with_options(command, options, "output", Output)


def scoring_options(command: Command) -> Command:
    """Adds how captions or responses are scored; the command receives the options as ``scoring: ScoringOptions``."""
    options = [
        click.option(
            "--claims",
            type=click.Choice(CLAIMS),
            default="all",
            show_default=True,
            help="Mentions that count: all (the paper); asserted: without negated ones; certain: nor hedged ones.",
        ),
        click.option("--skip-bad", is_flag=True, help="Leave faulty records out and count them in the signature."),
        click.option(
            "--on-unknown-image",
            type=click.Choice(["error", "skip"]),
            default="error",
            show_default=True,
            help="Captions of images that the truth does not have.",
        ),
        click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary."),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Processes that parse and match.  [default: 1; CHAIR's 'opera' one each]",
        ),
    ]
    return with_options(command, options, "scoring", ScoringOptions)


@contextmanager
def evidence_file(path: str | None) -> Iterator[Callable[[Iterable[dict[str, Any]]], None] | None]:
    """Yields what writes records of evidence as JSON Lines, None without a path."""
    if path is None:
        yield None
        return
    with atomic_write(path) as stream:
        yield lambda records: stream.writelines(dump_json(record) + b"\n" for record in records)


def with_options(
    command: Command, options: Sequence[Callable[[Any], Any]], argument: str, record: type[Any]
) -> Command:
    """Adds options to a command, which receives them together as one dataclass.

    Args:
        command: the function to decorate, with its own options already on it.
        options: click options, one per field of the record, in the order of the help text.
        argument: name under which the command takes the record.
        record: the dataclass.
    """

    def wrapper(**kwargs: Any) -> Any:
        values = {field.name: kwargs.pop(field.name) for field in fields(record)}
        return command(**{argument: record(**values)}, **kwargs)

    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    decorated: Any = wrapper
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@contextmanager
def caption_file(path: str) -> Iterator[None]:
    """Around the scoring of a caption file: one that holds something else is said to, not faulted line by line."""
    try:
        yield
    except ScapoError as error:
        if found := _no_captions(path):
            raise InputError(found, path=path) from error
        raise


def _no_captions(path: str) -> str | None:
    from ..io.formats import kind_of, open_source
    from ..metrics.provenance import file_looks_like

    try:
        source = None if path == STDIN else open_source(path, warn=lambda _: None)
    except ScapoError:
        return None
    if source is None or kind_of(source) == "captions":
        return None
    layout = source.format
    looks = file_looks_like(path) or ""
    reason = f"no captions (image_id, caption) but {layout.title}"
    if "(scapo-eval" in looks and not looks.startswith("captions"):
        return f"{reason}; they look like {looks}"
    if layout.captions:
        return f"{reason}; convert them: scapo-eval import {path} --as captions -o captions.jsonl"
    return f"{reason}; {layout.use}" if layout.use else reason


def emit(runs: Sequence[Run], output: Output, *, allow_different: bool = False) -> int:
    """Computes intervals and differences, prints them, writes the results file, checks the gates.

    Args:
        runs: the first is the baseline.
        output: the options.
        allow_different: whether the verb itself sets different readings side by side.

    Returns:
        The exit code: 0, or 3 where a gate is missed.
    """
    metrics = runs[0].metric_set
    gates = [_gate(text, under=True) for text in output.fail_under] + [
        _gate(text, under=False) for text in output.fail_above
    ]
    for name, _, _ in gates:
        if name not in metrics.formulas:
            raise click.UsageError(f"unknown metric '{name}'; known: {', '.join(metrics.formulas)}")
    results = compare(
        runs,
        resampling=output.resampling,
        test=output.test,
        allow_different=allow_different or output.allow_different,
    )
    if output.output:
        results.save(output.output)
    for run in runs:
        for note in run.notes:
            output.warn(f"{run.name}: {note}" if len(runs) > 1 else note)
    found = results.to_dict()
    if output.as_json:
        click.echo(dump_json(found))
    else:
        show(
            found,
            output,
            plain_numbers=metrics.plain_numbers,
            better=dict(metrics.higher_is_better),
        )
    return _check_gates(found, gates, output)


Gate = tuple[str, float, bool]


def _gate(text: str, *, under: bool) -> Gate:
    name, _, value = text.partition("=")
    try:
        bound = float(value)
        if bound != bound:
            raise ValueError
        return name, bound, under
    except ValueError:
        raise click.UsageError(f"expected METRIC=VALUE, for example cap_score=0.7, got '{text}'") from None


def _check_gates(found: dict[str, Any], gates: list[Gate], output: Output) -> int:
    missed = 0
    for name, bound, under in gates:
        for system in found["systems"]:
            value = system["metrics"][name]["value"]
            if value is None or (value < bound if under else value > bound):
                missed += 1
                shown = (
                    "has no value" if value is None else f"= {value:.4f} is {'under' if under else 'above'} {bound:g}"
                )
                click.echo(f"scapo-eval: gate missed: {system['name']}: {name} {shown}", err=True)
    return GATE_MISSED if missed else 0


def number(value: float | None, plain: bool = False, digits: int = 1) -> str:
    """A value for people: percent with one decimal, a plain number with two, ``n/a`` where there is none."""
    if value is None:
        return "n/a"
    return f"{value:.2f}" if plain else f"{100 * value:.{digits}f}"


def show(
    found: dict[str, Any],
    output: Output,
    *,
    plain_numbers: frozenset[str] = frozenset(),
    better: dict[str, bool] | None = None,
) -> None:
    """A table on a terminal, tab-separated values elsewhere."""
    if output.console().is_terminal or output.width:
        _show_table(found, output, plain_numbers, better or {})
    else:
        _write_tsv(found, plain_numbers)


def _write_tsv(found: dict[str, Any], plain_numbers: frozenset[str]) -> None:
    differences = {(row["system"], row["metric"]): row for row in found["comparisons"]}
    columns = ["system", "metric", "value", "ci_low", "ci_high"]
    if differences:
        columns += ["difference", "difference_low", "difference_high", "p_value", "shared_images"]
    lines = ["\t".join(columns)]
    for system in found["systems"]:
        for name, figure in system["metrics"].items():
            plain = name in plain_numbers
            cells = [
                _cell(system["name"]),
                name,
                *(number(figure[key], plain) for key in ("value", "ci_low", "ci_high")),
            ]
            if differences:
                row = differences.get((system["name"], name))
                cells += (
                    [
                        *(number(row[k], plain) for k in ("difference", "ci_low", "ci_high")),
                        p_text(row),
                        str(row["n_images"]),
                    ]
                    if row
                    else [""] * 5
                )
            lines.append("\t".join(cells))
    sys.stdout.write("\n".join(lines) + "\n")


def _cell(text: str) -> str:
    return " ".join(text.split())


def p_text(row: dict[str, Any]) -> str:
    """The p-value, corrected where several systems are compared; ``n/a`` where there is no test."""
    p = row.get("p_holm", row["p_value"])
    return "n/a" if p is None else f"{p:.4f}"


def _show_table(found: dict[str, Any], output: Output, plain_numbers: frozenset[str], better: dict[str, bool]) -> None:
    console = output.console()
    differences = {(row["system"], row["metric"]): row for row in found["comparisons"]}
    figures = list(found["systems"][0]["metrics"])
    names = [name for name in figures if any(s["metrics"][name]["value"] is not None for s in found["systems"])]
    if not names:
        names = figures

    def heading(name: str) -> str:
        return name + ((" ↑" if better[name] else " ↓") if name in better else "")

    def cell(system: dict[str, Any], name: str, separator: str) -> Text:
        difference = differences.get((system["name"], name))
        return _figure_cell(system["metrics"][name], difference, name in plain_numbers, better.get(name), separator)

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    if len(names) <= MANY_FIGURES:
        table.add_column("system", overflow="fold")
        for name in names:
            table.add_column(heading(name), justify="right")
        for system in found["systems"]:
            table.add_row(Text(system["name"]), *(cell(system, name, "\n") for name in names))
    else:  # metrics as rows: a wide table would be cut
        table.add_column("metric")
        for system in found["systems"]:
            table.add_column(Text(system["name"]), overflow="fold")
        for name in names:
            table.add_row(heading(name), *(cell(system, name, "  ") for system in found["systems"]))
    console.print(table)
    if absent := len(figures) - len(names):
        console.print(Text(f"{absent} more without a value (--json lists them)", style="dim"))
    for system in found["systems"]:
        sizes = f"{system['n_captions']:,} scored, {system['n_images']:,} images"
        extra = ", ".join(
            f"{system['counts'][key]:,} {key.replace('_', ' ')}"
            for key in ("unknown", "skipped", "unknown_images", "unparsed", "missing", "duplicate")
            if system["counts"].get(key)
        )
        console.print(Text(f"{system['name']}: {sizes}{'; ' + extra if extra else ''}", style="dim"))
        console.print(Text(system["signature"], style="dim"), soft_wrap=True)
    if found["comparisons"]:
        first = found["comparisons"][0]
        tests = sorted({row["test"] for row in found["comparisons"]} - {None})
        how = ", ".join(tests) or "no test below 30 shared images"
        shared = sorted({row["n_images"] for row in found["comparisons"]})
        images = "-".join(f"{n:,}" for n in dict.fromkeys((shared[0], shared[-1])))
        line = (
            f"third line: difference to {first['baseline']} on {images} shared images; * p < 0.05, ** p < 0.01 ({how})"
        )
        console.print(Text(line, style="dim"))


def _figure_cell(
    figure: dict[str, Any], difference: dict[str, Any] | None, plain: bool, higher: bool | None, separator: str
) -> Text:
    cell = Text(number(figure["value"], plain), style="bold")
    if figure.get("ci_low") is not None:
        cell.append(
            f"{separator}[{number(figure['ci_low'], plain)}, {number(figure['ci_high'], plain)}]", style="not bold dim"
        )
    if difference and difference["difference"] is not None:
        p = difference.get("p_holm", difference["p_value"])
        star = "" if p is None or p >= 0.05 else "*" if p >= 0.01 else "**"
        value = difference["difference"]
        good = higher is not None and star and (value > 0) == higher
        style = "not bold green" if good else "not bold red" if star and higher is not None else "not bold dim"
        cell.append(f"{separator}{'+' if value >= 0 else ''}{number(value, plain)}{star}", style=style)
    return cell


@contextmanager
def progress(screen: Screen, description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error that appears after a second; yields ``advance(bytes)``."""
    console = screen.console(stderr=True)
    if screen.quiet or not console.is_terminal:
        yield lambda _: None
        return
    import time

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(Text(description).plain.replace("[", "\\["), total=total)
    began = time.monotonic()
    visible = False

    def advance(size: int) -> None:
        nonlocal visible
        bar.advance(task, size)
        if not visible and time.monotonic() - began > 1:
            visible = True
            bar.start()

    try:
        yield advance
    finally:
        if visible:
            bar.stop()
