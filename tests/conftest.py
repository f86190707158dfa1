"""Shared fixtures, including the folder of real data, which tests may use but the project never needs."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "deterministic", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fresh", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in a shell's background job: commands under test inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # some 300 commands under test: compiled once, not by each

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
TINY = Path(__file__).resolve().parents[1] / "examples" / "describe_and_score" / "tiny_model.py"
WARM = Path(__file__).resolve().parent / "programs" / "warm.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest tests first, so that parallel processes end at the same time, and marks the fast tests."""
    items.sort(key=lambda item: "test_train_world" not in item.nodeid)
    for item in items:
        is_unit = "unit" in item.path.parts and not item.path.name.startswith("test_train_")
        if is_unit and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.fast)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Returns ``../shared`` next to the checkout. If it is missing, skips the test, or fails if
    SCAPO_REQUIRE_SHARED=1.
    """
    if (SHARED / "data").is_dir():
        return SHARED
    reason = f"no real data at {SHARED}"
    if os.environ.get("SCAPO_REQUIRE_SHARED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """Returns the recipe's builder of tiny models with random weights, their tokenizers and processors."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("tiny_model", TINY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields a folder with ``scapo-eval``, ``python`` and ``transformers`` as forks of one process
    (``programs/warm.py``).
    """
    folder = tmp_path_factory.mktemp("programs")
    listening = folder / "warm"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-W", "ignore", str(WARM), str(listening)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", (folder / "log").read_text()
    (folder / "bin").mkdir()
    for name in ("scapo-eval", "python", "transformers"):
        client = shlex.join([sys.executable, "-I", "-S", str(WARM), str(listening), name])
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {client} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    yield folder / "bin"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def warm(programs: Path) -> Iterator[None]:
    """Makes a module use these forks for ``scapo-eval`` and ``python``, through the PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def peak_of() -> Callable[[Callable[[], object]], float]:
    """Returns a function that measures the peak bytes of PyTorch's tensors during an action."""
    import torch

    def measure(action: Callable[[], object]) -> float:
        gc.collect()  # what an earlier test left would be given back meanwhile, and be taken off
        activities = [torch.profiler.ProfilerActivity.CPU]
        with (
            torch.backends.mkldnn.flags(enabled=False),  # on some processors, oneDNN keeps packed copies of weights
            torch.profiler.profile(activities=activities, profile_memory=True) as found,
        ):
            action()
        events = found.profiler.kineto_results.events()
        now = peak = 0
        for _, size in sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]"):
            now += size
            peak = max(peak, now)
        return float(peak)

    return measure


@pytest.fixture
def quiet_loggers() -> Iterator[None]:
    """Gives a test unchanged loggers, and restores them, because a run changes those of the project."""
    loggers = [logging.getLogger(name) for name in ("scapo_train", "scapo_eval")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:  # caplog would record a message twice if propagation were turned on later
        logger.handlers[:], logger.propagate = [], True
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate, logger.level = handlers, propagate, level
