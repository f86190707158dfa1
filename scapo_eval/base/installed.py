"""Finds out how this package was installed, and the command that adds an extra to it."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "scapo"

ON_INDEX = False
"""Whether the package is on a package index. Pages say ``pip install '.[EXTRA]'`` until it is (tests check both)."""


def install_command(extras: str) -> str:
    """Returns the command that installs extras from where the package came from.

    Args:
        extras: names, separated by commas.

    Returns:
        ``pip install -e '/home/me/scapo[report]'`` for a checkout, ``pip install 'scapo[report] @ file:///...whl'`` for
        a wheel, ``pip install 'scapo[report]'`` where it came from an index.
    """
    origin = _origin()
    url = str(origin.get("url", ""))
    if isinstance(folder := origin.get("dir_info"), dict) and url.startswith("file://"):
        editable = "-e " if folder.get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}[{extras}]'"
    return f"pip install '{DISTRIBUTION}[{extras}]{f' @ {url}' if url else ''}'"


def _origin() -> dict[str, Any]:
    """Returns what pip wrote down about where the package came from (PEP 610); empty for an index."""
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except (PackageNotFoundError, OSError):
        return {}
    try:
        origin = json.loads(text) if text else {}
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}
