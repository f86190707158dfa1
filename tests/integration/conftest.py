"""Real servers on the loopback address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).resolve().parent.parent / "servers" / "loopback.py"


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Starts loopback servers; each call gives the base URL of one."""
    running: list[subprocess.Popen[str]] = []

    def run(*options: str) -> str:
        process = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{int(process.stdout.readline())}/v1"

    yield run
    for process in running:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
