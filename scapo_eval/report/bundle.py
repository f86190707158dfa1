"""Bundling of the page's modules into one script and of its style sheets into one sheet, in the order of dependencies.

The script modules in the folder ``page`` are standard ES modules, so that editors, formatters and linters can read
them. The bundle is their concatenation in one function scope. Modules must therefore not declare the same top-level
name, and imports must not rename.
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
    """Returns name -> text for each part of the page with a suffix, sorted by name."""
    parts = sorted((path.name, path) for path in PAGE.iterdir() if path.name.endswith(suffix))
    return {name.removesuffix(suffix): path.read_text("utf-8") for name, path in parts}


@cache
def script() -> str:
    """Returns all script modules, each after the modules that it imports."""
    modules = texts(".js")
    needed = {name: [module for _, module in IMPORT.findall(text)] for name, text in modules.items()}
    bare = [EXPORT.sub("", IMPORT.sub("", modules[name])) for name in TopologicalSorter(needed).static_order()]
    return '"use strict";\n(() => {\n' + "\n".join(bare) + "})();\n"


@cache
def style() -> str:
    """Returns all style sheets, with ``base`` first, so that the sheets of single pages can override it."""
    sheets = texts(".css")
    return "\n".join([sheets.pop("base"), *sheets.values()])


@cache
def vendored(name: str) -> str:
    """Returns a file from a third party; see NOTICE."""
    return PAGE.joinpath("vendor").joinpath(name).read_text("utf-8")


@cache
def watching() -> str:
    """Returns the script for a served page that follows its inputs."""
    return PAGE.joinpath("live").joinpath("watch.js").read_text("utf-8")
