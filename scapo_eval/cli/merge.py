"""``scapo-eval merge captions.*-of-64.jsonl -o captions.jsonl``: combines the shards of a job."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.errors import InputError
from ..inference.shards import merge_outputs
from .base import Verb
from .echo import echo
from .files import OUTPUTS, PLAIN


@click.command("merge", cls=Verb)
@click.argument("shards", type=PLAIN, nargs=-1, required=True)
@click.option("-o", "--output", type=OUTPUTS, required=True, metavar="FILE|RUN", help="The whole output, or run.")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
def command(shards: tuple[str, ...], output: str, quiet: bool) -> None:
    """Combines the shards of a job into the output that one machine would have written.

    SHARDS are all outputs of describe, answer or judge with --shard, or all folders of annotate coarse with --shard.
    Journals, run cards and the descriptions of answer --describe are also merged, so running the command without
    --shard repeats failed requests.
    """
    folders = [path for path in shards if Path(path).is_dir()]
    if folders and len(folders) < len(shards):
        raise InputError(f"some shards are folders ({folders[0]}), some are files")
    if folders:
        from ..annotate.qc.rounds import FOLDER
        from ..annotate.shards import merge_runs

        store = merge_runs(shards, output)
        text = f"{len(shards):,} shards, {len(store.image_ids):,} images, {len(store.open_cells()):,} open cells"
        store.close()
        for folder in folders:
            if any(Path(folder, FOLDER).glob("round-*")):
                echo(
                    f"scapo-eval: warning: {folder}: people's verdicts are merged, but not the rounds of its quality "
                    "control, so the matrix has no bounds before new rounds (scapo-eval annotate qc draw)",
                    err=True,
                )
    else:
        merged = merge_outputs(shards, output)
        text = f"{merged.shards:,} shards, {merged.rows:,} rows, {merged.failed:,} failed, "
        text += f"{merged.completions:,} completions"
        if merged.differing:
            text += f"; {merged.differing:,} requests have different answers in several shards: the first are kept"
    if not quiet:
        echo(f"{output}: {text}", err=True)
