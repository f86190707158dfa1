"""Checks the prose of pages, and on request of the code, against ``docs/style.md``.

``python tests/prose.py`` lists every fault of the pages as ``file:line: 'text': advice`` and exits with code 1 if there
is one. It applies ``RULES`` below and, if it is installed (extra ``dev``), proselint. ``--code`` lists the faults of
docstrings, messages and help texts instead. ``poe lint`` and ``tests/unit/test_prose.py`` check both.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("scapo_eval", "scapo_train")
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")

BRITISH = {
    "analyse": "analyze", "behaviour": "behavior", "catalogue": "catalog", "centre": "center", "colour": "color",
    "favour": "favor", "grey": "gray", "honour": "honor", "labelled": "labeled", "labelling": "labeling",
    "licence": "license", "modelled": "modeled", "modelling": "modeling", "neighbour": "neighbor",
    "normalise": "normalize", "optimise": "optimize", "organise": "organize", "recognise": "recognize",
    "summarise": "summarize", "tokenise": "tokenize", "whilst": "while",
}  # fmt: skip

RULES = {
    r"\bso (?:many|much)\b[^.;]{0,40}\bat (?:most|least)\b": "write 'at most N' or 'at least N'",
    r"\bof (?:\d+|two|three|four|five|ten) (?:\w+ )?or (?:more|fewer|less)\b": "write 'with at least N' or 'at most N'",
    r"\bthat (?:is|are|was|were) not (?:finite|valid|given|empty|needed|known|installed|shared|shipped|read)\b":
        "use an adjective: 'non-finite', 'invalid', 'missing'",
    r"\b(?:dates|values|keys|names|numbers|lines|files|it|this|that|the rest|the others) being\b":
        "use a sentence with a verb",
    r"\b(?:lint-imports|tests?|contracts?|types?|mypy) holds?\b": "write 'enforces' or 'checks'",
    r"\bholds? (?:it|this|them)\b": "write 'enforces', 'contains' or 'keeps'",
    r"\b(?:leaves?|left) out\b": "write 'omits' or 'omitted'",
    r"\bthe plain\b": "name what is meant: 'the unmodified', 'the original', 'the ordinary'",
    r"\bwords in hand\b|\bknow your truth\b|\bgoes wrong\b|\bbelongs? beside\b|\bwho else is told\b":
        "avoid private figures of speech",
    r"\bin the room\b|\bwings\b|\bpaid for\b|\bcosts? nothing\b": "avoid private figures of speech",
    r"\b(?:is|are|was|were) told (?:by|of|from|apart)\b": "write 'distinguish', 'recognize' or 'report'",
    r"\bthe truth (?:says|knows|tells|has)\b": "write 'according to the ground truth' or 'in the ground truth'",
    r"\bas (?:it|they) (?:stands?|stand)\b": "write 'unchanged'",
    r"\b(?:stands?|stood) (?:in|on|for|at|under|beside|behind) (?:a|the|its|every|each|this)\b":
        "use the technical verb: 'is in', 'means', 'follows'",
    r"\bhas? nothing to (?:say|give|do)\b": "say what happens instead",
    r"\bof (?:another|other) (?:tools?|harness(?:es)?|packages?|frameworks?|programs?)\b":
        "write 'from another tool', 'from other packages'",
    r"\bfrom top to bottom\b|\bby hand and\b": "avoid figures of speech",
    rf"\b(?:{'|'.join(BRITISH)})(?:d|r|s|ed|ing)?\b": "use American spelling",
}  # fmt: skip
"""Pattern (case is ignored) -> advice."""

PROMPTS = frozenset({"judge_prompts.py", "judge_facts.py", "judge_objects.py"})
"""Modules with texts that judges are sent; results name their hashes, so the words stay."""

KEYS = frozenset({"normaliser"})
"""Names of settings, which stay."""

OPENERS = ("What", "Where", "How", "Which", "Who", "Whom", "Whose", "Why", "When")
"""First words that no docstring has."""

NOUN_OPENERS = ("The", "A", "An", "Whether", "One", "Every", "All", "Each", "Its", "Those", "That", "Of", "Number")
"""First words of a noun phrase: for properties, classes and modules only."""

MERGED = re.compile(r"\. [a-z_]\w*(?:,\s+[a-z_]\w*)*:\s|\|[ ]+\|[ ]")
"""Start of an entry of a section (``Args:``, ``Attributes:``), or of a row of a table, within a line of a docstring."""

QUOTED = re.compile(r"``.*?``|`[^`\n]*`|\"[^\"\n]*\"|“[^”]*”|\*[^*\n]+\*|\]\([^)\s]*\)|<!--.*?-->|<[^>]+>", re.DOTALL)
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
TYPOGRAPHY = ("typography", "lexical_illusions", "weasel_words.very", "terms", "dates_times", "spelling.consistency")
"""Checks of proselint that do not fit pages of commands, tables and object names."""


LONGEST = {"paragraph": 700, "bash": 80, "python": 80}
"""Maximum number of characters in a line of a user page: of text, and of code by its language."""


class Fault(NamedTuple):
    """One place to rewrite."""

    path: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        """Returns ``file:line: text: advice``."""
        return f"{self.path}:{self.line}: {self.text!r}: {self.advice}"


def blanked(text: str) -> str:
    """Returns the text with code and quotations replaced by spaces; lines keep their numbers."""
    for pattern in (FENCE, QUOTED):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def faults_of(text: str, path: str = "", line: int = 1) -> Iterator[Fault]:
    """Yields a fault for each match of a rule."""
    prose = blanked(text)
    for pattern, advice in RULES.items():
        for found in re.finditer(pattern.replace(" ", r"\s+"), prose, re.IGNORECASE):
            if found[0].lower() in BRITISH:
                advice = f"write {BRITISH[found[0].lower()]!r}"
            yield Fault(path, line + prose.count("\n", 0, found.start()), " ".join(found[0].split()), advice)


def long_lines(text: str, path: str = "") -> Iterator[Fault]:
    """Yields a fault for each line of a user page that is longer than ``LONGEST`` allows."""
    kind = "paragraph"
    for number, line in enumerate(text.splitlines(), 1):
        if fence := re.match(r" *```(.*)", line):
            kind = "paragraph" if kind != "paragraph" else fence[1] or "output"
        elif len(line) > LONGEST.get(kind, len(line)):
            advice = "split the paragraph" if kind == "paragraph" else "break the line"
            yield Fault(path, number, line[:40], f"{advice} (at most {LONGEST[kind]} characters)")


def strings(source: str, path: str) -> Iterator[Fault]:
    """Yields the faults of the docstrings and of the texts of a module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            first = text.split(" ", 1)[0].rstrip(":,.")
            decorators = {ast.unparse(each).rpartition(".")[2] for each in getattr(node, "decorator_list", ())}
            function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for found in MERGED.finditer(text):
                line = node.body[0].lineno + text.count("\n", 0, found.start())
                yield Fault(path, line, " ".join(found[0].split()), "start a line for each entry and each row")
            if first in OPENERS:
                yield Fault(path, node.body[0].lineno, text[:40], "start with a verb (function) or a noun (class)")
            elif function and first in NOUN_OPENERS and not decorators & {"property", "cached_property"}:
                yield Fault(path, node.body[0].lineno, text[:40], "start with a verb: 'Returns', 'Yields', ...")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_prose(node.value):
            yield from (fault for fault in faults_of(node.value, path, node.lineno) if fault.text not in KEYS)


def is_prose(text: str) -> bool:
    """Returns whether a string is prose, not a name, a list of words or a regular expression."""
    return text.count(" ") > 2 and (text.count(" ") < 12 or re.search(r"[.,:;]", text) is not None) and "(?" not in text


def faults(code: bool = False) -> Iterator[Fault]:
    """Yields the faults by ``RULES`` of every page, or of every module."""
    if code:
        for package in PACKAGES:
            for module in sorted((ROOT / package).rglob("*.py")):
                if module.name in PROMPTS:
                    continue
                yield from strings(module.read_text(encoding="utf-8"), str(module.relative_to(ROOT)))
    else:
        for page in pages():
            text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
            yield from faults_of(text, name)
            if page.parent == ROOT or (name.startswith("docs/") and not name.startswith("docs/lab/")):
                yield from long_lines(text, name)


def pages() -> list[Path]:
    """Returns the Markdown files that people write; ``docs/cli`` is made of help texts."""
    found = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    return sorted(page for page in found if page.name not in {"style.md", "CHANGELOG.md"} and page.parent.name != "cli")


def by_proselint() -> Iterator[Fault]:
    """Yields what proselint finds on the pages."""
    from proselint.checks import __register__
    from proselint.config import DEFAULT
    from proselint.registry import CheckRegistry
    from proselint.tools import LintFile

    CheckRegistry().register_many(__register__)
    for page in pages():
        name = str(page.relative_to(ROOT))
        prose = blanked(page.read_text(encoding="utf-8"))
        for found in LintFile(name, prose).lint({**DEFAULT, "max_errors": 1000}) if prose.strip() else ():
            result = found.check_result
            if not result.check_path.startswith(TYPOGRAPHY):
                yield Fault(name, found.pos[0] - 1, result.check_path, result.message)


def main() -> int:
    """Prints every fault and returns the exit code."""
    code = sys.argv[1:] == ["--code"]
    found = [*faults(code)]
    if not code and find_spec("proselint"):
        found += by_proselint()
    elif not code:
        print("proselint is not installed (extra 'dev'): only the rules of this file were checked", file=sys.stderr)
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
