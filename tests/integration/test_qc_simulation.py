"""Bounds on planted errors, with simulated judges and people, and the real store, draws, rounds and bounds.

``benchmarks/annotate_simulation.py`` runs the same simulation with 1,000 images x 40 labels.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

RUNS = 200
IMAGES, LABELS = 300, 12


@pytest.fixture(scope="module")
def simulation() -> Iterator[ModuleType]:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "annotate_simulation.py"
    spec = importlib.util.spec_from_file_location("annotate_simulation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_true_residual_error_lies_inside_the_bounds(simulation: ModuleType) -> None:
    runs = []
    for k in range(RUNS):
        world = simulation.make_world(np.random.default_rng([1, k]), IMAGES, LABELS)
        with tempfile.TemporaryDirectory(dir=simulation.scratch()) as folder:
            runs.append(simulation.simulate(Path(folder) / "run", world, k))
    assert all(run["clean"] for run in runs)
    assert np.median([run["rounds"] for run in runs]) > 1  # there was something to refine
    for kind in simulation.KINDS:
        assert sum(simulation.holds(run, kind) for run in runs) >= 0.95 * RUNS
        assert sum(run[kind]["true"] > 0 for run in runs) > RUNS / 10 or kind == "false_positive"
    # not idle: these judges begin with errors of about half a percent
    assert np.median([run["error"]["high"] for run in runs]) < 0.025
    assert np.median([run["false_positive"]["high"] for run in runs]) < 0.05


def test_bounds_hold_where_refining_is_of_no_use_and_naive_ones_do_not(simulation: ModuleType) -> None:
    runs, naive, wanted = [], 0, 40
    rates = {"false_positive": np.full(LABELS, 0.03), "false_negative": np.full(LABELS, 0.1)}
    for k in range(wanted):
        world = simulation.make_world(np.random.default_rng([2, k]), 1200, LABELS, better=1.0)
        world = dataclasses.replace(world, **rates)
        with tempfile.TemporaryDirectory(dir=simulation.scratch()) as folder:
            runs.append(simulation.simulate(Path(folder) / "run", world, k, most_rounds=2))
        naive += simulation.naive(world, k)
    assert naive < 0.05 * wanted  # waiting for clean draws, label by label, proves nothing
    for kind in simulation.KINDS:
        assert sum(simulation.holds(run, kind) for run in runs) >= 0.95 * wanted
    assert np.median([run["error"]["low"] for run in runs]) > 0.005
    assert np.median([run["error"]["high"] for run in runs]) < 0.08
