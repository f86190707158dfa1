"""The reference of the command line is the command line."""

from __future__ import annotations

import cli_page


def test_the_page_is_what_the_command_line_says() -> None:
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), "python benchmarks/cli_page.py"


def test_every_verb_has_a_section_with_its_options() -> None:
    page = cli_page.page()
    for verb in ("score", "compare", "vocab check", "annotate qc", "doctor", "import"):
        assert f"# {verb}\n" in page
    assert "`--truth FILE`" in page.partition("### score")[2].partition("###")[0]
    assert page.count("| `--fail-under METRIC=VALUE` |") == 1
