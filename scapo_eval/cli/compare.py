"""``scapo-eval compare``: results files of earlier runs side by side, without their captions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..errors import InputError
from ..io.files import read_json
from ..results import FORMAT, System, table_from
from .common import Output, emit, output_options


@click.command("compare")
@click.argument("results", nargs=-1, required=True)
@output_options
def command(results: tuple[str, ...], output: Output) -> int:
    """Compares systems of RESULTS files (written by -o of a scoring verb); the first is the baseline."""
    systems = [system for path in results for system in load_systems(path)]
    if len(systems) < 2:
        raise click.UsageError(
            "one system is nothing to compare; give several results files, or one with several systems"
        )
    return emit(unique_names(systems), output)


def unique_names(systems: list[System]) -> list[System]:
    """Systems of one name, from different files, told apart by number."""
    from dataclasses import replace

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
        InputError: the file is no results file of this project, or lacks the counts per image.
    """
    from ..metrics import by_name

    document = read_json(path)
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise InputError(path, None, f"no results file (expected format {FORMAT}; write one with -o of a scoring verb)")
    if "per_image" not in document:
        raise InputError(path, None, "carries no counts per image, so nothing can be tested with it")
    systems = []
    for entry, table in zip(document["systems"], document["per_image"], strict=True):
        found: Any = table_from(table)
        counts = {key: value for key, value in entry["counts"].items() if key not in found.columns}
        systems.append(
            System(
                name=entry["name"],
                signature=entry["signature"],
                metric=by_name(document["metric"], found.columns),
                table=found,
                n_captions=entry["n_captions"],
                counts=counts,
                verdicts=table.get("verdicts", {}),
                printed={k: m["printed"] for k, m in entry["metrics"].items() if "printed" in m},
                notes=tuple(entry.get("notes", ())),
            )
        )
    return systems
