"""Installation source of this package, and the command that installs an extra from the same source."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "scapo"

ON_INDEX = False
"""True if the package is on a package index. The command ``python benchmarks/install_lines.py`` adapts all pages."""

IN_A_CLONE = "in a clone of the repository"


def requirement(extras: str, on_index: bool = ON_INDEX) -> str:
    """Returns the argument of ``pip install`` for the package.

    Args:
        extras: Comma-separated names of extras, which may be empty.
        on_index: True for the name on a package index, and False for the folder of a clone.
    """
    name = DISTRIBUTION if on_index else "."
    return f"'{name}[{extras}]'" if extras else name


def install_command(extras: str) -> str:
    """Returns the command that installs extras from the package's installation source.

    Args:
        extras: Comma-separated names of extras.

    Returns:
        ``pip install -e '/home/me/scapo[report]'`` for a checkout, ``pip install 'scapo[report] @ file:///...whl'`` for
        a wheel, and ``pip install 'scapo[report]'`` otherwise. As long as the package is not on an index, the last
        command is ``pip install '.[report]'`` with a comment.
    """
    origin = _origin()
    url = str(origin.get("url", ""))
    if isinstance(folder := origin.get("dir_info"), dict) and url.startswith("file://"):
        editable = "-e " if folder.get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}[{extras}]'"
    if url:
        return f"pip install '{DISTRIBUTION}[{extras}] @ {url}'"
    return f"pip install {requirement(extras)}" + ("" if ON_INDEX else f"  # {IN_A_CLONE}")


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
