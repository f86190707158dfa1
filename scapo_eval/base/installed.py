"""Installation source of this package, and the command that installs an extra from the same source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
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


_NEEDS: Mapping[str, tuple[str, str]] = {
    r"scapo-eval (report|plot)\b": ("report", "jinja2"),
    r"scapo-eval vocab (check|expand)\b": ("vocab", "inflect"),
    r"scapo-eval chair\b.* --(profile opera|protocol chair-opera)\b": ("nltk", "nltk"),
    r"scapo-eval (answer|describe|judge)\b": ("http", "aiohttp"),
    r"\.parquet\b": ("formats", "pyarrow"),
    r"\.xlsx\b": ("formats", "openpyxl"),
}
"""Pattern of a command -> extra that the command needs, and a module that the extra installs."""


def runnable(command: str) -> str:
    """Returns a command for a message. If the command needs a missing extra, a comment with the command that installs
    the extra is appended.

    Args:
        command: Command line that begins with ``scapo-eval``.
    """
    needed = [needs for pattern, needs in _NEEDS.items() if re.search(pattern, command)]
    missing = ",".join(dict.fromkeys(extra for extra, module in needed if find_spec(module) is None))
    return f"{command}  # first: {install_command(missing)}" if missing else command


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
