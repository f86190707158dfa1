"""Runs the fast tests under coverage, and prints the share of executed lines for every room.

python tests/coverage_by_room.py [pytest arguments, in place of -m fast]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path


def rooms(report: dict[str, object]) -> dict[str, tuple[int, int]]:
    """Returns room, such as ``scapo_eval/matching`` -> (executed, all) statements, from coverage's JSON report."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, entry in report["files"].items():  # type: ignore[attr-defined]
        parts = Path(name).parts
        room = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        totals[room][0] += entry["summary"]["covered_lines"]
        totals[room][1] += entry["summary"]["num_statements"]
    return {room: (executed, statements) for room, (executed, statements) in sorted(totals.items())}


def main() -> int:
    """Prints the table, and returns the exit code of the tests."""
    chosen = sys.argv[1:] or ["-m", "fast"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "pytest", *chosen, "-n", "logical", "--maxprocesses", "8", "--cov"]
        code = subprocess.run([*command, "--cov-report", f"json:{report}"], check=False).returncode
        if report.exists():
            for room, (executed, statements) in rooms(json.loads(report.read_bytes())).items():
                print(f"{room:<28}{executed:>7,} of {statements:>7,} lines  {executed / max(statements, 1):6.1%}")
    return code


if __name__ == "__main__":
    sys.exit(main())
