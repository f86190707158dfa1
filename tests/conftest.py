"""Shared fixtures: the folder of real data, which tests may use and the project never needs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "deterministic", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("deterministic")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in a shell's background job: commands under test inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # some 300 commands under test: compiled once, not by each

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first: several processes end together, where a long one at the end would keep one alone."""
    items.sort(key=lambda item: "test_train_world" not in item.nodeid)


@pytest.fixture(scope="session")
def shared() -> Path:
    """``../shared`` beside the checkout; absent: skip, or fail where SCAPO_REQUIRE_SHARED=1."""
    if (SHARED / "data").is_dir():
        return SHARED
    reason = f"no real data at {SHARED}"
    if os.environ.get("SCAPO_REQUIRE_SHARED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
