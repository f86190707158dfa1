"""The pages follow the style guide, and the rules find what they should."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("docs/compatibility.md",)


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    """``tests/prose.py``."""
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tests" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_have_no_fault(prose: ModuleType) -> None:
    assert [str(fault) for fault in prose.faults()] == []


def test_docstrings_and_messages_have_no_fault(prose: ModuleType) -> None:
    assert [str(fault) for fault in prose.faults(code=True)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes so many rows, eight at most.", True),
        ("Groups of five or more captions.", True),
        ("A gradient that is not finite is skipped.", True),
        ("A contract holds it.", True),
        ("Rows without a truth are\nleft out.", True),
        ("The colour of the car.", True),
        ("answers of another tool", True),
        ("They analysed modelled neighbourhoods; Grey licences.", True),
        ("An organism, its analyses, a programmer and four levels.", False),
        ("    judgements: Name of an argument.", False),
        ("Code is quoted: `left out`, and so is *the colour*.", False),
        ("```text\nleft out\n```\n", False),
        ("Rows without a ground truth are omitted.", False),
    ],
)
def test_rules(prose: ModuleType, text: str, found: bool) -> None:
    assert bool(list(prose.faults_of(text))) == found


def test_advice_is_the_american_spelling(prose: ModuleType) -> None:
    text = "The normalised colours of unlabelled judgements are analysed."
    advice = {fault.advice.split("'")[1] for fault in prose.faults_of(text)}
    assert advice == {"normalized", "colors", "unlabeled", "judgments", "analyzed"}


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("a.py", '"""Module."""\n\nx = "colour"  # the colour\n', [3]),
        ("a.js", 'const colour = "colour"; // it is left out\nconst y = `rows that are left out of it`;', [1, 2]),
        ("a.html", '<p title="is left out">\nThe colour.</p>', [1, 2]),
        ("a.yaml", "# the colour\na:\n  aliases: [colour of it is grey]\n  reason: The colour.\n", [1, 4]),
        ("judge_prompts.py", 'x = "What is the colour of the car?"  # grey\n', [1]),
    ],
)
def test_files_of_the_code(
    prose: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, found: list[int]
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / name).write_text(source, encoding="utf-8")
    assert sorted(fault.line for fault in prose.code_faults(tmp_path / name)) == found


def test_entries_of_the_changelog_are_short(prose: ModuleType) -> None:
    text = f"- {'a' * 298}\n- {'a' * 299}\n"
    assert [fault.line for fault in prose.changelog_faults(text, "CHANGELOG.md")] == [2]


def test_docstrings_start_with_a_verb(prose: ModuleType) -> None:
    source = 'def f():\n    """How many."""\n\ndef g():\n    """The rows."""\n\ndef h():\n    """Returns the rows."""\n'
    assert [fault.line for fault in prose.strings(source, "x.py")] == [2, 5]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("Args:\n        a: One. b, c: Two.", [5]),
        ("Args:\n        a: One. b,\n        c: Two.", [5]),
        ("Args:\n        a: One.\n        b, c: Two.", []),
        ("| a | b | | --- | --- |", [4]),
        ("| a | b |\n    | --- | --- |", []),
    ],
)
def test_entries_and_rows_start_a_line(prose: ModuleType, lines: str, found: list[int]) -> None:
    source = f'def f():\n    """Returns.\n\n    {lines}\n    """\n'
    assert [fault.line for fault in prose.strings(source, "x.py")] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a" * 701, [1]),
        ("a" * 700, []),
        (f"```bash\n{'a' * 81}\n```\n{'a' * 81}\n", [2]),
        (f"```python\n{'a' * 80}\n```\n{'a' * 701}\n", [4]),
        (f"```json\n{'a' * 81}\n```\n", [2]),
        (f"```\n{'a' * 81}\n```\n", [2]),
    ],
)
def test_long_lines_of_user_pages(prose: ModuleType, text: str, found: list[int]) -> None:
    assert [fault.line for fault in prose.long_lines(text)] == found


def test_no_user_page_is_long() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT).as_posix()
        words = len(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).split())
        assert name.startswith(("docs/lab/", *GENERATED)) or words <= 1500, (name, words)


def test_the_readme_is_short_and_its_commands_fit_on_a_telephone() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    marked = re.findall(r"<!-- (?:example|test)-command -->\n```bash\n(.*?)```", text, re.DOTALL)
    assert len(marked) == 2
    blocks = re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 40] == []
