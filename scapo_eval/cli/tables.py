"""Display of results as a table on the terminal. The layout depends on the width of the terminal, and a legend explains
the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from string import ascii_uppercase
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..results.metric import MetricSet
from ..results.names import DAGGER_SUFFIX, meanings_of, reader_mark, reading_of
from ..results.render import MANY_METRICS, is_better, number, on_shared_images, stars, test_of

GAP = 2
LONG_NAME = 12
"""Maximum length of system names, in characters. Longer names are abbreviated if the table does not fit."""

DIFFERENT = "≠"
COUNTS = ("unknown", "skipped", "unknown_images", "unparsed", "missing", "duplicate", "dropped")
"""Counts that are displayed with the values if they are not 0."""


def show_table(console: Console, found: Mapping[str, Any], metric_set: MetricSet, *, resamples: int) -> None:
    """Prints the values, intervals and differences of all systems, followed by the legend and the signatures.

    Args:
        console: Console whose width determines the layout: systems as rows, systems as columns, or one block per
            metric.
        found: Results object with ``systems`` and ``comparisons``.
        metric_set: Metric set of the systems.
        resamples: Number of resamples, for the legend.
    """
    table = _Table(found, metric_set)
    for lines in table.layouts():
        width = max(map(_width, lines), default=0)
        if width <= console.width:
            break
    readings = {reading_of(system["signature"]) for system in found["systems"]}
    if len(readings) == 1 and (reading := readings.pop()):  # otherwise, the signatures state the readings
        for part in wrap(reading, console.width):
            console.print(Text(part, style="dim"))
        console.print()
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print()
    for text in table.legend(resamples):
        for part in wrap(text, console.width):
            console.print(Text(part, style="dim"))
    for line in table.slices(console.width):
        console.print(line, soft_wrap=True)
    for names, sizes, signature in table.signatures():
        console.print()
        for part in wrap(f"{', '.join(names)}: {sizes}", console.width):
            console.print(Text(part))
        for part in folded(signature, console.width):
            console.print(Text(part, style="dim"), soft_wrap=True)


def first_few(names: Sequence[str], most: int = 4) -> str:
    """Returns a text that states the first few names in a list and the number of remaining names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class _Table:
    found: Mapping[str, Any]
    metric_set: MetricSet

    @cached_property
    def systems(self) -> dict[str, Mapping[str, Any]]:
        return {system["name"]: system for system in self.found["systems"]}

    @cached_property
    def rows(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        return {(row["system"], row["metric"]): row for row in self.found["comparisons"]}

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {name: system["n_images"] for name, system in self.systems.items()}

    @cached_property
    def metrics(self) -> list[str]:
        """Names of the metrics that have a value for at least one system."""
        every = list(self.found["systems"][0]["metrics"])
        named = [m for m in every if any(s["metrics"][m]["value"] is not None for s in self.systems.values())]
        return named or every

    @cached_property
    def short(self) -> dict[str, str]:
        """Mapping from system names to abbreviations (one or several letters), for narrow layouts."""
        letters = [*ascii_uppercase, *(f"{a}{b}" for a in ascii_uppercase for b in ascii_uppercase)]
        if all(cell_len(name) <= LONG_NAME for name in self.systems) or len(self.systems) > len(letters):
            return {name: name for name in self.systems}
        return dict(zip(self.systems, letters, strict=False))

    def layouts(self) -> Iterator[list[Text]]:
        """Yields the table in all of its layouts, from the preferred layout to the narrowest."""
        full = {name: name for name in self.systems}
        apart = any(on_shared_images(row, self.sizes, str) for row in self.rows.values())
        if not apart:
            if len(self.metrics) <= MANY_METRICS:
                yield self._wide(full)
            yield self._tall(full)
            if self.short != full:
                yield self._tall(self.short)
        yield self._blocks(full)
        if self.short != full:
            yield self._blocks(self.short)

    def _heading(self, metric: str) -> str:
        better = self.metric_set.higher_is_better.get(metric)
        name = metric + reader_mark(metric, (system["signature"] for system in self.systems.values()))
        return name if better is None else f"{name} {'↑' if better else '↓'}"

    def _number(self, metric: str) -> Callable[[float | None], str]:
        plain = metric in self.metric_set.plain_numbers
        return lambda value: number(value, plain)

    def _value(self, system: str, metric: str) -> Text:
        return Text(self._number(metric)(self.systems[system]["metrics"][metric]["value"]), style="bold")

    def _interval(self, system: str, metric: str) -> Text:
        value, show = self.systems[system]["metrics"][metric], self._number(metric)
        low, high = value["ci_low"], value["ci_high"]
        return Text("" if low is None else f"[{show(low)}, {show(high)}]", style="dim")

    def _difference(self, system: str, metric: str) -> Text:
        row = self.rows.get((system, metric))
        if row is None:
            return Text()
        mark = f" {DIFFERENT}" if row.get("differing") else ""
        text = ""
        if row["difference"] is not None:
            plain = metric in self.metric_set.plain_numbers
            text = number(row["difference"], plain, sign=True) + stars(row)
        better = is_better(row, self.metric_set.higher_is_better.get(metric))
        shared = on_shared_images(row, self.sizes, self._number(metric))
        return Text(
            "  ".join(filter(None, (text + mark, shared))),
            style="dim" if better is None else "green" if better else "red",
        )

    def _with_names(self, names: Mapping[str, str], lines: list[Text]) -> list[Text]:
        told = [Text(f"{short} = {name}", style="dim") for name, short in names.items() if short != name]
        return [*lines, Text(), *told] if told else lines

    def _wide(self, names: Mapping[str, str]) -> list[Text]:
        """Returns the layout in which each system has a row of three lines: value, interval and difference."""
        cells = [[Text("system", style="bold"), *(Text(self._heading(m), style="bold") for m in self.metrics)]]
        for name, short in names.items():
            cells.append([Text(short), *(self._value(name, m) for m in self.metrics)])
            for make in (self._interval, self._difference):
                line = [make(name, m) for m in self.metrics]
                if any(line):
                    cells.append([Text(), *line])
        return self._with_names(names, aligned(cells, right=range(1, len(self.metrics) + 1)))

    def _tall(self, names: Mapping[str, str]) -> list[Text]:
        """Returns the layout in which metrics are rows and systems are columns."""
        makers = (self._value, self._interval, self._difference)
        columns = [aligned([[make(n, m) for make in makers] for m in self.metrics], right=range(3)) for n in names]
        cells = [[Text("metric", style="bold"), *(Text(short, style="bold") for short in names.values())]]
        for k, metric in enumerate(self.metrics):
            cells.append([Text(self._heading(metric), style="bold"), *(column[k] for column in columns)])
        return self._with_names(names, aligned(cells))

    def _blocks(self, names: Mapping[str, str]) -> list[Text]:
        """Returns the layout with one block per metric, in which systems are rows. This layout is also used for systems
        with different images, because its cells have space for the values on shared images.
        """
        makers = (self._value, self._interval, self._difference)
        cells: list[list[Text]] = []
        for metric in self.metrics:
            cells.append([Text(self._heading(metric), style="bold"), Text(), Text(), Text()])
            cells += [[Text(f"  {short}"), *(make(name, metric) for make in makers)] for name, short in names.items()]
        return self._with_names(names, aligned(cells, right=(1, 2)))

    def legend(self, resamples: int) -> Iterator[str]:
        """Yields explanations of the columns and of the marks in the table."""
        known = meanings_of(self.metric_set.name)
        meanings = [
            f"{name}: {known[plain]}{' (DOPA)' if plain != name else ''}"
            for name in self.metrics
            if (plain := name.removesuffix(DAGGER_SUFFIX)) in known
        ]
        if meanings:
            yield "; ".join(meanings) + "."
        percent = "Percent" if not self.metric_set.plain_numbers.issuperset(self.metrics) else "Values"
        if not self.metric_set.counted:
            yield f"{percent} as another harness computed them; intervals from its standard errors. Nothing is tested."
            resamples = 0
        elif resamples:
            drawn = any("|interval:percentile" in system["signature"] for system in self.systems.values())
            how = f"bootstrap by image, {resamples:,} resamples" if drawn else "Wilson's, by image"
            yield f"{percent} with 95 % intervals ({how})."
            yield from self._few_events()
        yield from self._differences(resamples)
        absent = len(self.found["systems"][0]["metrics"]) - len(self.metrics)
        if absent:
            yield f"{absent} more without a value (--json lists them)."

    def _few_events(self) -> Iterator[str]:
        rare: dict[tuple[str, int, int], list[str]] = {}
        for name, system in self.systems.items():
            for metric, value in system["metrics"].items():
                if metric in self.metrics and "events" in value:
                    rare.setdefault((name, value["events"], value["event_images"]), []).append(metric)
        if rare:
            listed = [
                f"{first_few(metrics)} of {name} {events} in {images} image{'' if images == 1 else 's'}"
                for (name, events, images), metrics in rare.items()
            ]
            yield f"Few events: {'; '.join(listed)}."

    def _differences(self, resamples: int) -> Iterator[str]:
        rows = list(self.rows.values())
        if not rows:
            return
        baseline = rows[0]["baseline"]
        shared = sorted({row["n_images"] for row in rows})
        images = " to ".join(f"{n:,}" for n in dict.fromkeys((shared[0], shared[-1])))
        apart = any(on_shared_images(row, self.sizes, str) for row in rows)
        where = (
            f"on shared questions only ({images} images): baseline -> system there; none below 30"
            if any("n_questions" in row for row in rows)
            else f"on shared images only ({images}): baseline -> system there; none below 30"
            if apart
            else f"on the same {images} images"
            if self.metric_set.counted
            else "untested"
        )
        if any(row["difference"] is not None for row in rows):
            yield f"Signed numbers: difference from {baseline}, {where}."
        elif apart:
            yield f"A comparison with {baseline} needs at least 30 shared images."
        if tests := test_of(rows):
            yield (
                f"* p < 0.05, ** p < 0.01: {tests} by image ({resamples:,} resamples), "
                "p corrected for multiple comparisons (Holm)."
            )
        elif resamples and not apart:
            yield "No test: at least 30 shared images are required."
        yield from self._power(rows)
        differing = {row["system"]: ", ".join(row["differing"]) for row in rows if row.get("differing")}
        for system, fields in differing.items():
            yield f"{DIFFERENT} {system} was scored differently from {baseline} in: {fields}."

    def _power(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yields sentences that state the smallest detectable difference between two systems and the result of the
        equivalence test.
        """
        if len(self.systems) == 2:
            shown = {
                row["metric"]: self._number(row["metric"])(row["detectable"])
                for row in rows
                if row["metric"] in self.metrics and row.get("detectable") is not None
            }
            if shown:
                listed = ", ".join(f"{name} {value}" for name, value in shown.items())
                yield f"Smallest difference that is detectable with 80 % power: {listed}."
        plain = self.metric_set.plain_numbers
        tested: dict[str, list[str]] = {}
        for row in (row for row in rows if row.get("p_equivalence") is not None and row["metric"] in self.metrics):
            points = f"{row['margin']:.3g}" if row["metric"] in plain else f"{100 * row['margin']:g} points"
            equal = tested.setdefault(f"within ±{points}", [])
            if row["p_equivalence"] < 0.05:
                equal.append(f"{row['system']} in {row['metric']}")
        if found := "; ".join(f"{within}: {', '.join(equal)}" for within, equal in tested.items() if equal):
            yield f"Equivalent to {rows[0]['baseline']} (two one-sided tests, p < 0.05) {found}."
        elif tested:
            yield f"No equivalence to {rows[0]['baseline']} {' or '.join(tested)} is shown."

    def slices(self, width: int) -> Iterator[Text]:
        """Yields the results for each slice, and the results of the tests for equality of all slices. Metrics that do
        not fit into the width are in a further table.
        """
        sliced = self.found.get("sliced")
        if not sliced:
            return
        left = self.metrics
        while left:
            tables = ((most, self._slices(sliced, left[:most])) for most in range(len(left), 0, -1))
            most, lines = next((k, lines) for k, lines in tables if k == 1 or max(map(_width, lines)) <= width)
            yield Text()
            yield from lines
            left = left[most:]
        tested = [row for row in sliced["interactions"] if row["metric"] in self.metrics and row["p_value"] is not None]
        if tested:
            yield Text()
        for row in tested:
            what = f"difference of {row['system']} to {row['baseline']}" if row["baseline"] else row["system"]
            text = f"{row['metric']}: {what} equal in all slices? p = {row['p_value']:.4f}"
            yield Text(text, style="" if row["p_value"] < 0.05 else "dim")

    def _slices(self, sliced: Mapping[str, Any], metrics: Sequence[str]) -> list[Text]:
        cells = [[Text(f"by {sliced['by']}", style="bold"), Text("images", style="dim"), *map(Text, metrics)]]
        for entry in sliced["slices"]:
            label = entry["slice"] if len(self.systems) == 1 else f"{entry['slice']}: {entry['system']}"
            values = [self._number(m)(entry["metrics"][m]["value"]) for m in metrics]
            cells.append(
                [Text(label), Text(f"{entry['n_images']:,}"), *(Text(value, style="bold") for value in values)]
            )
            bounds = [(entry["metrics"][m]["ci_low"], entry["metrics"][m]["ci_high"]) for m in metrics]
            shown = [
                "" if low is None else f"[{show(low)}, {show(high)}]"
                for (low, high), show in zip(bounds, map(self._number, metrics), strict=True)
            ]
            cells.append([Text(), Text(), *(Text(text, style="dim") for text in shown)])
        return aligned(cells, right=range(1, len(metrics) + 2))

    def signatures(self) -> Iterator[tuple[list[str], str, str]]:
        """Yields one tuple ``(systems, sizes, signature)`` for each group of systems with equal sizes and equal
        signatures.
        """

        def key(system: Mapping[str, Any]) -> tuple[str, str]:
            counts = system["counts"]
            extra = ", ".join(f"{counts[key]:,} {key.replace('_', ' ')}" for key in COUNTS if counts.get(key))
            sizes = f"{system['n_captions']:,} scored, {system['n_images']:,} images"
            return f"{sizes}{'; ' + extra if extra else ''}", system["signature"]

        ordered = sorted(
            self.systems.values(), key=lambda system: list(map(key, self.systems.values())).index(key(system))
        )
        for (sizes, signature), members in groupby(ordered, key=key):
            yield [system["name"] for system in members], sizes, signature


def _width(line: Text) -> int:
    return cell_len(line.plain.rstrip())


def _widths(cells: Sequence[Sequence[Text]]) -> list[int]:
    """Returns the width of each column. Lines with text only in the first cell are ignored."""
    counted = [line for line in cells if any(line[1:])] or cells
    return [max(_width(line[k]) for line in counted) for k in range(len(cells[0]))]


def aligned(cells: Sequence[Sequence[Text]], *, right: Sequence[int] = ()) -> list[Text]:
    """Returns the lines of a table in which the columns are aligned. The columns that ``right`` lists are
    right-aligned.
    """
    widths = _widths(cells)
    lines = []
    for row in cells:
        line = Text()
        for k, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - _width(cell))
            if k in right:
                line.append(space)
            line.append_text(cell)
            if k not in right:
                line.append(space)
            if width:
                line.append(" " * GAP)
        line.rstrip()
        lines.append(line)
    return lines


def folded(signature: str, width: int) -> Iterator[str]:
    """Yields the lines that result from breaking a signature after ``|``."""
    line = ""
    for part in signature.replace("|", "|\n").split("\n"):
        if line and len(line) + len(part) > width:
            yield line
            line = ""
        line += part
    yield line
