"""Part of ``benchmarks/train_vs_trl.py`` without TRL: the project's side of the comparison, and the tables."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_eval.files.json_text import parse_json  # noqa: E402
from scapo_train.trainer import train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs
PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "train_vs_trl.py"


@pytest.fixture
def benchmark() -> ModuleType:
    """Returns the benchmark as a module."""
    spec = importlib.util.spec_from_file_location("train_vs_trl", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_step_of_the_benchmark_has_the_metrics_and_phases_of_the_trainer(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(prompts=2, tokens=4, side=3, vocabulary=0)
    benchmark.write(tmp_path, options)
    ours = benchmark.Ours(benchmark.settings_of(tmp_path, options), micro_batches=2)
    values = [ours.step() for _ in range(2)]
    (spent, _) = ours.watch.steps
    assert {*benchmark.PHASES} <= {*spent}
    for metrics, step in zip(values, ours.watch.steps, strict=True):
        for phase in {*benchmark.PHASES} - {"other"}:  # what comes after the metrics is "other"
            assert metrics[f"seconds_{phase}"] == step[phase][0] > 0

    config = benchmark.settings_of(tmp_path, options)
    steps = benchmark.replace(config.run, steps=1)
    folder = train(benchmark.replace(config, run=steps))
    (line,) = (folder / "metrics.jsonl").read_bytes().splitlines()
    assert {*values[0]} - {"seconds_other"} == {*parse_json(line)} - {"step"}

    reached = benchmark.show_seconds(ours.watch, ours.watch, warm_up=1)
    assert [(name, limit) for name, _, limit in reached][:2] == list(benchmark.LIMITS.items())
    assert [value for _, value, _ in reached][:2] == [1.0, 1.0]
    assert "| update | " in capsys.readouterr().out


def test_the_benchmark_without_trl_says_what_to_install(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    with pytest.raises(SystemExit, match=r"pip install trl"):
        benchmark.main()
