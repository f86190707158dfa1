"""Bundling of the page's script modules into one script, and of its style sheets into one style sheet, in the order of
their dependencies.

The scripts in the folder ``page`` are standard ES modules, so editors, formatters and linters can process them. The
bundle is the concatenation of all modules in one function scope. Therefore, no two modules may declare the same
top-level name, and imports must not rename anything.
"""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files

PAGE = files(__package__).joinpath("page")
"""Folder of the page's parts."""

IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"\./([\w-]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) )", re.MULTILINE)


def texts(suffix: str) -> dict[str, str]:
    """Returns a mapping from name to text for all files of the page that have the given suffix, sorted by name."""
    parts = sorted((path.name, path) for path in PAGE.iterdir() if path.name.endswith(suffix))
    return {name.removesuffix(suffix): path.read_text("utf-8") for name, path in parts}


@cache
def script() -> str:
    """Returns the text of all script modules. Each module follows the modules that it imports."""
    modules = texts(".js")
    needed = {name: [module for _, module in IMPORT.findall(text)] for name, text in modules.items()}
    bare = [EXPORT.sub("", IMPORT.sub("", modules[name])) for name in TopologicalSorter(needed).static_order()]
    return '"use strict";\n(() => {\n' + "\n".join(bare) + "})();\n"


@cache
def style() -> str:
    """Returns the text of all style sheets. ``base`` comes first, so that the sheets of single pages can override
    it.
    """
    sheets = texts(".css")
    return "\n".join([sheets.pop("base"), *sheets.values()])


@cache
def vendored(name: str) -> str:
    """Returns the text of a third-party file that is listed in the file NOTICE."""
    return PAGE.joinpath("vendor").joinpath(name).read_text("utf-8")


@cache
def watching() -> str:
    """Returns the script for a served page that is rebuilt when an input file changes."""
    return PAGE.joinpath("live").joinpath("watch.js").read_text("utf-8")
