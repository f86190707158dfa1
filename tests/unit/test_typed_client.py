"""The package's types as a strict client sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_mypy_accepts_a_strict_client() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "tests/typed_client.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.stdout.startswith("Success: no issues found in 1 source file"), done.stdout + done.stderr
