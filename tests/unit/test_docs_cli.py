"""The reference of the command line is the command line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import cli_page
import click
import pytest

from scapo_eval.cli.examples import EXAMPLES, broken, example_of


def test_the_pages_are_what_the_command_line_says() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in cli_page.FOLDER.iterdir()}
    assert found == cli_page.pages(), "python benchmarks/cli_page.py"


def test_every_verb_has_a_page_with_its_options() -> None:
    pages = cli_page.pages()
    text = "".join(pages.values())
    for verb in ("score", "compare", "annotate qc", "doctor", "import"):
        assert pages[f"{verb.replace(' ', '_')}.md"].startswith(f"# scapo-eval {verb}\n")
    assert "## vocab check\n" in pages["vocab.md"]
    assert "`--truth FILE`" in pages["score.md"]
    assert text.count("| `--fail-under METRIC=VALUE` |") == 1
    assert "[`compare`](compare.md)" in pages["index.md"]


def test_every_command_has_an_example_that_it_accepts() -> None:
    """The pages contain the output of those that can be run, so the first test runs them."""
    commands = dict(cli_page.all_commands())
    assert EXAMPLES.keys() <= commands.keys()
    for name, context in commands.items():
        if isinstance(context.command, click.Group):
            continue
        example = example_of(name)
        assert example is not None, name
        words = shlex.split(broken(example.lines[-1]).replace("\\\n", ""))
        assert words[: 1 + name.count(" ") + 1] == ["scapo-eval", *name.split()]
        context.meta.clear()  # the files of the examples before
        context.command.make_context(context.info_name, words[2 + name.count(" ") :], context.parent)


@pytest.mark.slow
def test_a_newcomers_five_tasks_are_done_by_the_lines_of_the_readme() -> None:
    script = Path(cli_page.__file__).with_name("first_tasks.py")
    done = subprocess.run([sys.executable, script, "--here"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
