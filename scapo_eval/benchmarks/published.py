"""Texts for publishing a run: a footnote with the conditions of the run, and a table with published values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..results.render import Cell, Column, Table
from ..results.results import Run
from .protocol import Protocol, ProtocolFacts

_READERS = {
    "opera": "extracted as in OPERA's CHAIR script",
    "reference": "extracted as in the standalone CHAIR script",
    "native": "matched by scapo",
}


def footnote(run: Run, protocol: Protocol, sample: ProtocolFacts | None = None) -> str:
    """Returns the conditions of a run in one line, for a footnote.

    Args:
        run: Run that was checked against the protocol.
        protocol: Protocol of the run.
        sample: Properties of the captions, or None if they are not available.
    """
    return "; ".join(_parts(run, protocol, sample or ProtocolFacts(None, 0))) + "."


def _parts(run: Run, protocol: Protocol, sample: ProtocolFacts) -> Iterator[str]:
    fields = run.signature.fields
    off = ", but the run deviates from them" if fields.get("protocol", "").endswith(",off") else ""
    yield f"{protocol.title} ({run.n_records:,} records of {run.n_images:,} images, ids {fields.get('ids')}){off}"
    if reader := fields.get("profile", "native" if run.metric_set.name == "capscore" else ""):
        by = f"listed by {fields['judge']}, then " if "judge" in fields else ""
        words = ", ".join(
            f"{name} {fields[key]}"
            for key, name in (("synonyms", "words"), ("vocab", "vocabulary"), ("nltk", "NLTK"), ("claims", "claims"))
            if key in fields
        )
        yield f"objects {by}{_READERS.get(reader, reader)} ({words})"
    if native := fields.get("native"):
        yield f"metrics marked native: objects matched by scapo ({native})"
    if "parser" in fields:
        yield f"answers parsed with the rule '{fields['parser']}'"
    truth = f"truth: {protocol.truth}" if protocol.truth else "truth"
    yield f"{truth} ({fields['oracle']})" if "oracle" in fields else truth
    if protocol.prompts:
        asked = " or ".join(f'"{prompt}"' for prompt in protocol.prompts)
        yield (
            f"prompt: {asked}" if sample.prompts else f"prompt of the protocol: {asked} (the captions do not state it)"
        )
    if limit := protocol.decoding.get("max_new_tokens"):
        checked = sample.max_new_tokens is not None
        yield f"at most {limit:,} new tokens" + (
            "" if checked else " according to the protocol (the captions do not state it)"
        )
    if fields.get("unfinished") == "dropped":
        yield "unfinished last sentences removed"
    elif run.metric_set.name in ("chair", "capscore", "objhal"):
        yield "unfinished last sentences kept"
    drawn = run.resampling
    if drawn.resamples:
        random = f"{drawn.resamples:,} resamples, seed {drawn.seed}"
        how = f"bootstrap by image, {random}" if drawn.interval == "percentile" else "Wilson's, by image"
        yield f"{drawn.confidence * 100:g} % intervals: {how}"
    yield f"scapo {fields.get('v', '')}, protocol {fields.get('protocol', protocol.identity)}"


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """Row of a table that combines published values and the user's own values.

    Attributes:
        system: Name of the model and method.
        values: Mapping from each metric to its value, which is a fraction, or the number itself if the metric is not a
            fraction.
        source: Paper and year, or an empty string for the user's own values.
    """

    system: str
    values: Mapping[str, float | None]
    source: str


CAVEAT = (
    "As far as known, published rows refer to the same images, but to other runs: prompts, length limits and "
    "checkpoints may differ, and nothing is tested against them."
)


def beside(protocol: Protocol, runs: Sequence[Run]) -> tuple[list[str], list[PublishedRow]]:
    """Returns published rows together with the rows of the user's own runs.

    Args:
        protocol: Protocol that the runs follow.
        runs: Runs of one benchmark.

    Returns:
        The metrics that all rows have in common, and the rows sorted by the first metric, best first.
    """
    metric_set = runs[0].metric_set
    told = {name for row in protocol.published for name in row.metrics}
    metrics = [name for name in metric_set.formulas if name in told]
    plain = metric_set.plain_numbers
    rows = [
        PublishedRow(
            row.system,
            {name: value if name in plain else value / 100 for name, value in row.metrics.items()},
            f"{row.paper}{'' if str(row.year) in row.paper else f', {row.year}'}",
        )
        for row in protocol.published
    ] + [PublishedRow(run.name, {name: run.values[name] for name in metrics}, "") for run in runs]
    if metrics:
        first, higher = metrics[0], metric_set.higher_is_better.get(metrics[0], True)

        def place(row: PublishedRow) -> tuple[bool, float]:
            value = row.values.get(first)
            return (value is None, 0.0 if value is None else -value if higher else value)

        rows.sort(key=place)
    return metrics, [row for row in rows if row.values.keys() & set(metrics) or not row.source]


def beside_table(protocol: Protocol, runs: Sequence[Run], names: Mapping[str, str]) -> Table:
    """Returns the rows of :func:`beside` as a table for papers, with numbered notes that state the sources.

    Args:
        protocol, runs: Same as in :func:`beside`.
        names: Mapping from each metric to its column heading.
    """
    metrics, rows = beside(protocol, runs)
    metric_set = runs[0].metric_set
    sources = list(dict.fromkeys(row.source for row in rows if row.source))
    marks = {source: f" [{k}]" for k, source in enumerate(sources, 1)} | {"": ""}
    columns = tuple(
        Column(names[name], "", metric_set.higher_is_better.get(name), name in metric_set.plain_numbers)
        for name in metrics
    )
    return Table(
        corner="System",
        columns=columns,
        rows=tuple((row.system + marks[row.source], tuple(Cell(row.values.get(m)) for m in metrics)) for row in rows),
        notes=(*(f"{marks[source].strip()} {source}." for source in sources), CAVEAT),
    )


def beside_records(protocol: Protocol, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns the rows of :func:`beside` as records for JSON, with values as fractions."""
    _, rows = beside(protocol, runs)
    return [{"system": row.system, "values": dict(row.values), "source": row.source or None} for row in rows]
