"""``scapo-eval faithscore FACTS``: FaithScore and Avg. Facts, generation settings side by side."""

from __future__ import annotations

import click

from ..benchmarks.faithscore import Facts, faithscore_run, read_facts, settings_of
from ..results.results import system_names
from .emit import emit
from .files import INPUT, split_name
from .options import Output, output_options


@click.command("faithscore")
@click.argument("facts", type=INPUT, nargs=-1, required=True, metavar="[SYSTEM[/SETTING]=]FILE...")
@output_options
def command(facts: tuple[str, ...], output: Output) -> int:
    """Scores verified atomic facts; several systems are compared with the first.

    FILEs are records with facts and verified (lists or counts) and optionally id, image_id and setting, or
    FaithScore's own atomic_facts and fact_scores. Files under one SYSTEM are one system, for example
    base/detailed=a.jsonl base/conversation=b.jsonl ours/detailed=c.jsonl; every setting gets its own columns.
    """
    labels = [_label(argument) for argument in facts]
    stems = system_names([path for _, _, path in labels])
    runs: dict[str, list[Facts]] = {}
    for stem, (system, setting, path) in zip(stems, labels, strict=True):
        run = runs.setdefault(system or stem, [])
        if run and not setting:
            raise click.UsageError(f"'{system}' has several files: name the setting of each, {system}/SETTING={path}")
        run.extend(read_facts(path, setting=setting, warn=output.warn))
    settings = settings_of(runs.values())
    return emit([faithscore_run(name, run, settings, output.resampling) for name, run in runs.items()], output)


def _label(argument: str) -> tuple[str | None, str | None, str]:
    """System, setting and path."""
    label, path = split_name(argument)
    if label is None:
        return None, None, path
    system, _, setting = label.partition("/")
    if not system:
        raise click.UsageError(f"expected SYSTEM/SETTING=FILE, got '{argument}'")
    return system, setting or None, path
