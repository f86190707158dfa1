"""Draws docs/images/score.svg: what the README's first command prints on a terminal (needs the package only)."""

from __future__ import annotations

import io
import re
from pathlib import Path
from unittest import mock

from rich.console import Console

from scapo_eval.cli.main import cli
from scapo_eval.cli.screen import Screen

COMMAND = "scapo-eval examples/captions_baseline.jsonl examples/captions_aligned.jsonl --truth examples/truth.json"


def main() -> None:
    """Runs the command into a recording console and writes the picture."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(f"[bold green]$[/] {COMMAND}")
    with mock.patch.object(Screen, "console", return_value=console):
        cli.main([*COMMAND.split()[1:], "--format", "table"], standalone_mode=False)
    svg = console.export_svg(title="scapo-eval", unique_id="score")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace, Menlo, Consolas")
    Path(__file__).with_name("score.svg").write_text(svg)


if __name__ == "__main__":
    main()
