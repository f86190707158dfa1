"""Every Python block of ``docs/python.md`` and of the README runs, in order, on the example's files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("torchmetrics")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("captions_baseline.jsonl", "captions_aligned.jsonl", "truth.json")


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def run_blocks(sources: list[str], page: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for number, source in enumerate(sources, 1):
        exec(compile(source, f"{page}, block {number}", "exec"), namespace)
    return namespace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "examples").mkdir()
    for name in EXAMPLES:
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
        shutil.copy(ROOT / "examples" / name, tmp_path / "examples" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_blocks(blocks("docs/python.md"), "docs/python.md")
    shown = capsys.readouterr().out
    assert "<DataFrame>:2: 'caption' must be a string, found null" in shown
    assert "{'claims': ('all', 'asserted')}" in shown
    assert "\\begin{tabular}" in shown
    assert (folder / "results.json").is_file()
    assert set(found["metric"].compute()) == set(found["baseline"].values)


def test_the_page_on_readings() -> None:
    assert run_blocks(blocks("docs/readings.md"), "docs/readings.md")["judged"].name == "visual"


def test_the_pages_on_claims(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks(blocks("docs/claims.md"), "docs/claims.md")
    assert "attribute blue 0" in capsys.readouterr().out
    run_blocks(blocks("docs/annotate_claims.md"), "docs/annotate_claims.md")
    assert capsys.readouterr().out == "[[1, 0]]\n[0.9 0.2]\n"


def test_the_readme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_blocks(blocks("README.md"), "README.md")
    assert "1.0 A family eats." in capsys.readouterr().out
    assert found["result"].parts
