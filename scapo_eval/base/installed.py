"""Installation source of this package, and the command that installs an extra from the same source."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "scapo"

ON_INDEX = False
"""True if the package is on a package index.

Until then, pages show ``pip install '.[EXTRA]'``; tests check this text.
"""


def install_command(extras: str) -> str:
    """Returns the command that installs extras from the package's installation source.

    Args:
        extras: Comma-separated names of extras.

    Returns:
        ``pip install -e '/home/me/scapo[report]'`` for a checkout, ``pip install 'scapo[report] @ file:///...whl'`` for
        a wheel, or ``pip install 'scapo[report]'`` for an installation from an index.
    """
    origin = _origin()
    url = str(origin.get("url", ""))
    if isinstance(folder := origin.get("dir_info"), dict) and url.startswith("file://"):
        editable = "-e " if folder.get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}[{extras}]'"
    return f"pip install '{DISTRIBUTION}[{extras}]{f' @ {url}' if url else ''}'"


def _origin() -> dict[str, Any]:
    """Returns pip's record of the package's installation source (PEP 610). The record is empty if the package was
    installed from an index.
    """
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except (PackageNotFoundError, OSError):
        return {}
    try:
        origin = json.loads(text) if text else {}
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}
