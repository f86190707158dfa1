"""The reference of the command line is the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cli_page
import pytest


def test_the_page_is_what_the_command_line_says() -> None:
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), "python benchmarks/cli_page.py"


def test_every_verb_has_a_section_with_its_options() -> None:
    page = cli_page.page()
    for verb in ("score", "compare", "vocab check", "annotate qc", "doctor", "import"):
        assert f"# {verb}\n" in page
    assert "`--truth FILE`" in page.partition("### score")[2].partition("###")[0]
    assert page.count("| `--fail-under METRIC=VALUE` |") == 1


@pytest.mark.slow
def test_a_newcomers_five_tasks_are_done_by_the_lines_of_the_readme() -> None:
    script = Path(cli_page.__file__).with_name("first_tasks.py")
    done = subprocess.run([sys.executable, script, "--here"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
