"""Small campaign of damaged inputs: benchmarks/faults.py for some commands with a fixed seed."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

for package in ("aiohttp", "inflect", "openpyxl", "PIL", "pyarrow", "torch", "zstandard"):
    pytest.importorskip(package)

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"
SEED, COMMANDS = 5, 30


@pytest.fixture(scope="module")
def faults() -> ModuleType:
    """Returns the program as a module."""
    spec = importlib.util.spec_from_file_location("faults", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["faults"] = module
    spec.loader.exec_module(module)
    return module


def test_damaged_inputs_are_refused_by_name(faults: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "COMMANDS", random.Random(SEED).sample(faults.COMMANDS, COMMANDS))
    monkeypatch.setattr(faults, "_BOMB", 256 << 20)
    wrong = [
        (outcome.kind, outcome.place, case.command, case.file)
        for case, outcome in faults.campaign(COMMANDS, SEED)
        if outcome.kind != "held"
    ]
    assert wrong == []


def test_a_traceback_is_noticed(faults: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text("5")
    said = 'Traceback (most recent call last):\n  File "/x/scapo_eval/files/files.py", line 5, in f\nKeyError: 1'
    case = faults.Case("score captions.jsonl", "captions.jsonl", b"5")
    assert faults._judged(case, 1, said, [], 0.1, 50)[0] == "traceback"
    assert faults._judged(case, 1, "", [], 0.1, 50)[0] == "code"
    assert faults._judged(case, 2, "scapo-eval: no", [], 0.1, 50)[0] == "unnamed"
    assert faults._judged(case, 2, "scapo-eval: captions.jsonl:1: no", ["out.json"], 0.1, 50)[0] == "half-written"
    assert faults._judged(case, 0, "", [], 11, 50)[0] == "slow"
    assert faults._judged(case, 0, "", [], 1, 1500)[0] == "memory"
    assert faults.run_case(case, tmp_path).kind == "held"
