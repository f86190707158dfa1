"""Draws docs/images/score.svg: three captions, a command, and the table that it prints (needs the package only)."""

from __future__ import annotations

import io
import re
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.text import Text

from scapo_eval.cli.main import cli
from scapo_eval.cli.screen import Screen

CAPTIONS = Path("examples/captions_baseline.jsonl")
SHORTEST = 3  # captions in the picture
WIDTH = 50  # columns: the type is legible on a telephone
COMMAND = f"""scapo-eval \\
    base={CAPTIONS} \\
    ours=examples/captions_aligned.jsonl \\
    --truth examples/truth.json \\
    --metrics hal_rate,cover_rate,cap_score"""


def recorder() -> Console:
    """Returns a console that records what is printed."""
    return Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        highlight=False,
    )


def table() -> Text:
    """Returns the table that the command prints, without the lines above and below it."""
    console = recorder()
    with mock.patch.object(Screen, "console", return_value=console):
        cli.main(
            [*COMMAND.replace("\\\n", " ").split()[1:], "--format", "table"],
            standalone_mode=False,
        )
    return Text.from_ansi(
        re.split(r"\n\s*\n", console.export_text(styles=True))[1]
    )


def main() -> None:
    """Writes the picture."""
    console = recorder()
    lines = CAPTIONS.read_text(encoding="utf-8").splitlines()
    console.print(
        f"[bold green]{SHORTEST} of {len(lines)} lines in {CAPTIONS.name}[/]"
    )
    for line in sorted(sorted(lines, key=len)[:SHORTEST]):
        console.print(Text(line))
    console.print("\n[bold green]$[/] ", end="")
    console.print(Text(COMMAND))
    console.print()
    console.print(table())
    svg = console.export_svg(title="scapo-eval", unique_id="score")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace, Menlo, Consolas"
    )
    Path(__file__).with_name("score.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
