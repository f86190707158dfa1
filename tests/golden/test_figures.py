"""Counts and values of every metric on the shared data, compared with the last deliberate update.

Other tests verify the correct values (``test_chair.py``, ``test_amber.py``...). These tests detect unintended changes.
"""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RENEW = "if this is meant: python tests/safety_net.py golden, and say in the commit why the figures changed"


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Returns path -> number, text or None."""
    if not isinstance(value, (dict, list)):
        return {path: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return {name: leaf for key, each in pairs for name, leaf in leaves(each, f"{path}/{key}").items()}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    return type(a) is type(b) and bool(a == b)


def test_figures_are_unchanged(shared: Path) -> None:
    spec = importlib.util.spec_from_file_location("safety_net", HERE.parent / "safety_net.py")
    assert spec is not None
    assert spec.loader is not None
    safety_net = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(safety_net)
    wanted = leaves(json.loads((HERE / "figures.json").read_text(encoding="utf-8")))
    found = leaves(safety_net.figures())
    changed = [
        f"{path}: {wanted.get(path, 'absent')} -> {found.get(path, 'absent')}"
        for path in {**wanted, **found}
        if path not in wanted or path not in found or not same(wanted[path], found[path])
    ]
    assert len(wanted) > 1000
    assert not changed, "\n".join([f"{len(changed)} figures changed; {RENEW}", *changed[:20]])
