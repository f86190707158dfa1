"""The notebook in ``examples/`` runs as it is, and shows what it says it shows."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "examples" / "tour.ipynb"

pytest.importorskip("pandas")


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "tests" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def comparable(shown: dict[str, Any]) -> Any:
    """Without what depends on versions: the project's in signatures, and how pandas writes HTML."""
    data = shown.get("data", {"text/plain": shown.get("text")})
    texts = {kind: "".join(text) for kind, text in data.items()}
    texts = {kind: text for kind, text in texts.items() if "<style scoped>" not in text}
    return {kind: re.sub(r"\|v:[\w.+]+", "|v:", text) for kind, text in texts.items()}


def test_the_tour_shows_what_it_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change that is meant: ``python tests/notebook.py examples/tour.ipynb``."""
    program, notebook = runner(), json.loads(TOUR.read_text(encoding="utf-8"))
    monkeypatch.chdir(TOUR.parent)
    stored = [cell["outputs"] for cell in program.code_cells(notebook)]
    shown = program.outputs(notebook)
    assert sum(map(len, stored)) >= 10
    assert [list(map(comparable, cell)) for cell in shown] == [list(map(comparable, cell)) for cell in stored]


def test_the_stored_outputs_are_small_and_of_no_machine() -> None:
    text = TOUR.read_text(encoding="utf-8")
    assert len(text) < 40_000
    assert not re.search(r"/home/|/work/|/tmp/|0x[0-9a-f]{6}", text)
