"""Rewrites all install lines of pages, examples and scripts: python benchmarks/install_lines.py.

The switch ``ON_INDEX`` in scapo_eval/base/installed.py determines the form of the lines. The messages of the package
read the same switch. Commands that always need a clone of the repository are not changed: editable installations, the
commands in README.md that create ``.venv``, and CONTRIBUTING.md. ``--check`` only lists the files that would change.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from scapo_eval.base.installed import IN_A_CLONE, ON_INDEX, requirement

ROOT = Path(__file__).resolve().parents[1]

NOT_YET = "It is not on a package index yet: install it from this repository or a wheel."
NOW = "Install it with `pip install scapo`."

_OWN = re.compile(r"(?<![\w/.-])'?(?:\.|scapo)(?:\[([\w,-]+)\])?'?(?![\w/.\[-])")
_CODE = re.compile(rf"^( *)(?:# {IN_A_CLONE}\n *)?(pip install (?!-)[^`\n]*)$", re.MULTILINE | re.IGNORECASE)
_INLINE = re.compile(rf"`(pip install (?!-)[^`\n]*)`(?: {IN_A_CLONE})?")


def files() -> list[Path]:
    """Returns the files that may contain install lines for users."""
    patterns = ("README.md", "docs/**/*.md", "examples/**/*.*", "benchmarks/*.py", "scapo_eval/**/*.py")
    texts = {path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix in (".md", ".py", ".ipynb")}
    return sorted(texts - {Path(__file__).resolve(), ROOT / "scapo_eval" / "base" / "installed.py"})


def rewritten(text: str, on_index: bool = ON_INDEX) -> str:
    """Returns the text of a file with install lines in the form for the switch.

    Args:
        text: Content of the file.
        on_index: True for a package that is on a package index.
    """

    def command(line: str) -> str | None:
        arguments, comment, rest = line.partition("#")
        changed, n = _OWN.subn(lambda own: requirement(own[1] or "", on_index), arguments)
        return changed + comment + rest if n else None

    def code(found: re.Match[str]) -> str:
        indent, line = found[1], command(found[2])
        if line is None:
            return found[0]
        return f"{indent}{line}" if on_index else f"{indent}# {IN_A_CLONE.capitalize()}\n{indent}{line}"

    def inline(found: re.Match[str]) -> str:
        line = command(found[1])
        if line is None:
            return found[0]
        return f"`{line}`" if on_index else f"`{line}` {IN_A_CLONE}"

    text = re.sub(r"It is not on a package index yet[^.]*\.", NOW, text) if on_index else text.replace(NOW, NOT_YET)
    return _INLINE.sub(inline, _CODE.sub(code, text))


def main() -> int:
    """Rewrites the files, or lists those that would change."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only list the files that would change")
    check = parser.parse_args().check
    changed = 0
    for path in files():
        text = path.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            changed += 1
            print(path.relative_to(ROOT))
            if not check:
                path.write_text(new, encoding="utf-8")
    return int(check and changed > 0)


if __name__ == "__main__":
    sys.exit(main())
