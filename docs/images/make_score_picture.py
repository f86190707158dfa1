"""Draws docs/images/score.svg: lines of input, and what the README's first command prints (needs the package only)."""

from __future__ import annotations

import io
import re
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.text import Text

from scapo_eval.cli.main import cli
from scapo_eval.cli.screen import Screen

COMMAND = "scapo-eval examples/captions_baseline.jsonl examples/captions_aligned.jsonl --truth examples/truth.json"
SHOWN = 78  # characters of a line of input


def main() -> None:
    """Runs the command into a recording console and writes the picture."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, highlight=False)
    captions = Path(COMMAND.split()[1])
    console.print(f"[bold green]$[/] head -n 2 {captions} | cut -c 1-{SHOWN}")
    for line in captions.read_text(encoding="utf-8").splitlines()[:2]:
        console.print(Text(line[:SHOWN]))
    console.print(f"\n[bold green]$[/] {COMMAND}")
    with mock.patch.object(Screen, "console", return_value=console):
        cli.main([*COMMAND.split()[1:], "--format", "table"], standalone_mode=False)
    svg = console.export_svg(title="scapo-eval", unique_id="score")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace, Menlo, Consolas")
    Path(__file__).with_name("score.svg").write_text(svg)


if __name__ == "__main__":
    main()
