"""The page's modules as one script and its style sheets as one sheet, in the order in which they need each other.

The script modules of the folder ``page`` are plain ES modules, so that editors, formatters and linters read
them as such. Their bundle is their concatenation in one function scope: no two modules may declare the same
name at their top level, and names are imported as they are exported.
"""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files

PAGE = files(__package__).joinpath("page")
"""The folder of the page's parts."""

IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"\./([\w-]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) )", re.MULTILINE)


def texts(suffix: str) -> dict[str, str]:
    """Returns a mapping: name -> text of each part of the page with a suffix, sorted by name."""
    parts = sorted((path.name, path) for path in PAGE.iterdir() if path.name.endswith(suffix))
    return {name.removesuffix(suffix): path.read_text("utf-8") for name, path in parts}


@cache
def script() -> str:
    """Returns every script module, each after those that it imports."""
    modules = texts(".js")
    needed = {name: [module for _, module in IMPORT.findall(text)] for name, text in modules.items()}
    bare = [EXPORT.sub("", IMPORT.sub("", modules[name])) for name in TopologicalSorter(needed).static_order()]
    return '"use strict";\n(() => {\n' + "\n".join(bare) + "})();\n"


@cache
def style() -> str:
    """Returns every style sheet; ``base`` first, so that those of single pages may overrule it."""
    sheets = texts(".css")
    return "\n".join([sheets.pop("base"), *sheets.values()])


@cache
def vendored(name: str) -> str:
    """Returns a file of somebody else's, see NOTICE."""
    return PAGE.joinpath("vendor").joinpath(name).read_text("utf-8")


@cache
def watching() -> str:
    """Returns the script of a page that is served and follows its inputs."""
    return PAGE.joinpath("live").joinpath("watch.js").read_text("utf-8")
