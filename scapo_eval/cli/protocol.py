"""``scapo-eval protocol list|show|check``: lists, shows or checks conditions under which published numbers were
obtained, such as images, prompts and limits.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from ..benchmarks.protocol import Protocol, read_sample, shipped_protocols
from ..files.json_text import dump_json
from .codes import BAD_INPUT
from .echo import echo
from .files import PLAIN, source_of
from .groups import Group
from .screen import SafeConsole

HEADINGS = ("protocol", "verbs", "images", "hash", "needs", "title")


@click.group("protocol", cls=Group)
def command() -> None:
    """Protocols for published numbers: images, prompt, limits, ground truth, profile. Scoring verbs check a protocol
    that is given with ``--protocol``.
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_(as_json: bool) -> None:
    """Lists the shipped protocols."""
    protocols = [Protocol.load(name) for name in shipped_protocols()]
    if as_json:
        rows = [
            {
                "name": protocol.name, "title": protocol.title, "benchmarks": protocol.benchmarks,
                "records": protocol.records,
                "images": protocol.image_ids and len(protocol.image_ids), "image_ids_hash": protocol.images_hash,
                "truth": bool(protocol.facts), "needs": protocol.needs, "published": len(protocol.published),
            }
            for protocol in protocols
        ]  # fmt: skip
        echo(dump_json({"protocols": rows}))
        return
    cells = [
        (
            protocol.name,
            ", ".join("score" if name == "capscore" else name for name in protocol.benchmarks),
            "" if protocol.image_ids is None else f"{len(protocol.image_ids):,}",
            protocol.images_hash or "",
            "; ".join([*(["includes ground truth"] if protocol.facts else []), *protocol.needs]),
            protocol.title,
        )
        for protocol in protocols
    ]
    if not sys.stdout.isatty():
        echo("\n".join(map("\t".join, [HEADINGS, *cells])))
        return
    table = Table(Column("protocol", no_wrap=True), "verbs", "title", box=None, pad_edge=False)
    for name, verbs, *_, title in cells:
        table.add_row(*map(Text, (name, verbs, title)))
    console = SafeConsole(highlight=False)
    console.print(table)
    console.print("\nTo show what a protocol needs: scapo-eval protocol show NAME")


@command.command()
@click.argument("protocol", type=PLAIN, metavar="NAME|FILE")
@click.option("--ids", is_flag=True, help="Print only the image ids, one per line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, which is also a protocol file.")
def show(protocol: str, ids: bool, as_json: bool) -> None:
    """Shows all conditions of a protocol."""
    if ids and as_json:
        raise click.UsageError("--ids and --json exclude each other")
    chosen = Protocol.load(protocol)
    if ids:
        if chosen.image_ids is None:
            raise click.UsageError(f"the images of '{chosen.name}' are not known")
        echo("\n".join(sorted(chosen.image_ids, key=lambda image: (len(image), image))))
    elif as_json:
        echo(dump_json(chosen.to_dict()))
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for key, value in {**chosen.to_dict(), "identity": chosen.identity}.items():
            if key not in ("image_ids", "image_ids_hash", "published"):
                table.add_row(key.replace("_", " "), Text(_shown(value)))
        for row in chosen.published:
            values = ", ".join(f"{name} {value:g}" for name, value in row.metrics.items())
            table.add_row("published", Text(f"{row.system}: {values} ({row.paper}, {row.year})"))
        images = chosen.image_ids
        table.add_row("images", "not known" if images is None else f"{len(images):,}, hash {chosen.images_hash}")
        SafeConsole(highlight=False).print(table)


def _shown(value: Any) -> str:
    if value is None or value in ((), {}):
        return "not fixed"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {'unset' if part is None else _shown(part)}" for key, part in value.items())
    return "; ".join(map(_shown, value)) if isinstance(value, tuple) else str(value)


@command.command()
@click.argument("files", type=PLAIN, nargs=-1, required=True)
@click.option("--protocol", type=PLAIN, required=True, metavar="NAME|FILE", help="Protocol to check against.")
def check(files: tuple[str, ...], protocol: str) -> int:
    """Checks whether captions or answers follow a protocol, but does not score them. The exit code is 2 if a file
    deviates.
    """
    wanted = Protocol.load(protocol)
    code = 0
    for path in files:
        sample = read_sample(source_of(path))
        departures = wanted.differences(sample)
        code = BAD_INPUT if departures else code
        unchecked = [
            *(["images"] if wanted.image_ids is None or sample.image_ids is None else []),
            *(["prompt"] if not (wanted.prompts and sample.prompts) else []),
            *(["limit"] if not (wanted.decoding and sample.max_new_tokens) else []),
        ]
        told = f" (not checked, because not known: {', '.join(unchecked)})" if unchecked else ""
        outcome = "; ".join(departures) if departures else f"follows '{wanted.name}'"
        echo(f"{path}: {outcome}{told}", err=bool(departures))
    return code
