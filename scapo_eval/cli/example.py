"""``scapo-eval example``: writes the shipped example to files, so that every command in the README runs anywhere."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.errors import InputError
from ..files.files import atomic_write, shipped_folder
from .base import Verb
from .echo import echo

FILES = ("captions_baseline.jsonl", "captions_aligned.jsonl", "truth.json")

RECIPES = (
    *("recipes/easyr1_reward.py", "recipes/ms_swift_plugin.py", "recipes/openrlhf_reward.py"),
    *("recipes/roll_scapo.py", "recipes/scapo_captions.py", "recipes/tinker_scapo.py"),
    *("recipes/lmms_eval/scapo_captions.yaml", "recipes/lmms_eval/utils.py", "recipes/vlmevalkit_scapo.py"),
    *("plain_loop.py", "trl_scapo.py", "verl_scapo.py", "verl_scapo.yaml"),
)
"""Files that docs/integrations.md refers to."""


@click.command("example", cls=Verb)
@click.argument("folder", type=click.Path(path_type=Path), default="examples", metavar="[DIR]")
@click.option("--recipes", is_flag=True, help="Also the plugins and scripts for training libraries.")
def command(folder: Path, recipes: bool) -> None:
    """Writes the shipped example into DIR (default: examples): captions by two systems for 40 images, and the ground
    truth.

    Existing files are never replaced. If an existing file has different content, an error is raised.
    """
    contents = {folder / name: (shipped_folder("examples") / name).read_bytes() for name in FILES + RECIPES * recipes}
    for path, content in contents.items():
        size = path.stat().st_size if path.is_file() else None
        if path.exists() and (size != len(content) or path.read_bytes() != content):
            raise InputError("exists and was not written by this command; choose another folder", path=str(path))
    try:
        for path in contents:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be created: {error.strerror or error}", path=str(folder)) from None
    for path, content in contents.items():
        with atomic_write(path) as stream:
            stream.write(content)
    baseline, aligned, truth = (folder / name for name in FILES)
    echo(f"scapo-eval: {len(contents)} files -> {folder}/; now: ", err=True, nl=False)
    echo(f"scapo-eval {baseline} {aligned} --truth {truth}", err=True)
