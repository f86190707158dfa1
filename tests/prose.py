"""Checks the prose of pages, and on request of the code, against ``docs/style.md``.

``python tests/prose.py`` lists every fault of the pages as ``file:line: 'text': advice`` and exits with code 1 if there
is one. It applies ``RULES`` below and, if it is installed (extra ``dev``), proselint. ``--code`` lists the faults of
docstrings, messages, help texts, comments, the report's scripts and YAML files instead. ``poe lint`` and
``tests/unit/test_prose.py`` check both.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")
CODE = ("scapo_eval/**/*", "scapo_train/**/*", "vocab/*", "benchmarks/*.py", "examples/**/*.py")
SUFFIXES = frozenset({".py", ".js", ".html", ".yaml"})
LONGEST_ENTRY = 300
"""Maximum number of characters in an entry of the changelog."""


def _any(words: str) -> str:
    """Returns a pattern of any of the words."""
    return f"(?:{'|'.join(words.split())})"


OUR = """
    arb ard arm behavi cand clam col demean endeav ferv fav flav harb hon hum lab neighb od parl ranc rig rum sav savi
    splend succ tum val vap vig
"""
ISE = """
    agon apolog author bapt categor central character civil color colour critic crystall custom digit econom emphas
    equal factor fertil final formal general harmon immun individual initial internal item jeopard legal linear local
    material maxim mechan memor minim mobil modern modular monopol national neutral normal optim organ original parallel
    parameter parametr penal personal popular prior random rational real recogn regular serial social special stabil
    standard steril subsid summar symbol sympath synchron synthes token util vandal vector verbal visual
"""
ELL = """
    bevel cancel channel counsel dial enamel equal fuel funnel gravel initial jewel label level libel marshal model
    panel parcel pedal pencil quarrel rival shovel shrivel signal spiral stencil swivel total towel travel tunnel
    unravel
"""
OTHERS = {
    "acknowledgement": "acknowledgment", "aeroplane": "airplane", "ageing": "aging", "aluminium": "aluminum",
    "amongst": "among", "analogue": "analog", "artefact": "artifact", "calibre": "caliber", "catalogue": "catalog",
    "centre": "center", "cheque": "check", "cosy": "cozy", "defence": "defense", "distil": "distill",
    "draught": "draft",
    "enrol": "enroll", "fibre": "fiber", "fulfil": "fulfill", "grey": "gray", "instalment": "installment",
    "instil": "instill", "jewellery": "jewelry", "judgement": "judgment", "kerb": "curb", "kilometre": "kilometer",
    "learnt": "learned", "licence": "license", "likeable": "likable", "litre": "liter", "lustre": "luster",
    "manoeuvre": "maneuver", "marvellous": "marvelous", "maths": "math", "meagre": "meager", "metre": "meter",
    "millimetre": "millimeter", "mould": "mold", "moustache": "mustache", "offence": "offense", "plough": "plow",
    "practise": "practice", "pretence": "pretense", "programme": "program", "pyjamas": "pajamas", "sabre": "saber",
    "sceptic": "skeptic", "sceptical": "skeptical", "sizeable": "sizable", "skilful": "skillful", "sombre": "somber",
    "spectre": "specter", "spelt": "spelled", "storey": "story", "theatre": "theater", "tyre": "tire",
    "unlabelled": "unlabeled", "whilst": "while", "wilful": "willful", "woollen": "woolen",
}  # fmt: skip

SPELLINGS = {
    rf"\b([a-z]*{_any(OUR)}o)u(r[a-z]*)\b": r"\1\2",
    rf"\b([a-z]*{_any(ISE)}i)s(e[drs]?|ers|ing|ations?|able)\b": r"\1z\2",
    r"\b((?:anal|catal|dial|electrol|hydrol|paral)y)s(e[dr]?|ers|ing|able)\b": r"\1z\2",
    rf"\b([a-z]*{_any(ELL)})l(ed|ings?|ers?)\b": r"\1\2",
    **{rf"\b{word}((?:s|d|rs?|ed|ing|ly)?)\b": rf"{other}\1" for word, other in OTHERS.items()},
}
"""British spelling (case is ignored) -> American spelling."""

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
}  # fmt: skip
"""Pattern (case is ignored) -> advice."""

PROMPTS = frozenset({"judge_prompts.py", "judge_facts.py", "judge_objects.py"})
"""Modules with texts that judges are sent; results name their hashes, so the words stay."""

KEPT = frozenset({"normaliser", "programmed", "programmer", "programmers"})
"""Names of settings, and American words that look British."""

PROSE_KEYS = frozenset({"reason", "definition", "source"})
"""Keys of YAML files whose values are prose; the others are lists of words and examples."""

SCRIPT_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`""", re.DOTALL)
"""Comment or string of a script."""

OPENERS = ("What", "Where", "How", "Which", "Who", "Whom", "Whose", "Why", "When")
"""First words that no docstring has."""

NOUN_OPENERS = ("The", "A", "An", "Whether", "One", "Every", "All", "Each", "Its", "Those", "That", "Of", "Number")
"""First words of a noun phrase: for properties, classes and modules only."""

MERGED = re.compile(r"\. [a-z_]\w*(?:,\s+[a-z_]\w*)*:\s|\|[ ]+\|[ ]")
"""Start of an entry of a section (``Args:``, ``Attributes:``), or of a row of a table, within a line of a docstring."""

QUOTED = re.compile(
    r"^ +\w+: |``.*?``|`[^`\n]*`|\"[^\"\n]*\"|“[^”]*”|\*[^*\n]+\*|\]\([^)\s]*\)|<!--.*?-->|<[^>]+>",
    re.DOTALL | re.MULTILINE,
)
"""Names of arguments, code and quotations."""
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
TYPOGRAPHY = ("typography", "lexical_illusions", "weasel_words.very", "terms", "dates_times", "spelling.consistency")
"""Checks of proselint that do not fit pages of commands, tables and object names."""


LONGEST = {"paragraph": 700, "code": 80}
"""Maximum number of characters in a line of a user page: of text, and of code, data or output."""


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
            yield Fault(path, line + prose.count("\n", 0, found.start()), " ".join(found[0].split()), advice)
    for pattern, american in SPELLINGS.items():
        for found in re.finditer(pattern, prose, re.IGNORECASE):
            if found[0].lower() not in KEPT:
                at = line + prose.count("\n", 0, found.start())
                yield Fault(path, at, found[0], f"write {found.expand(american)!r}")


def long_lines(text: str, path: str = "") -> Iterator[Fault]:
    """Yields a fault for each line of a user page that is longer than ``LONGEST`` allows."""
    kind = "paragraph"
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *```", line):
            kind = "paragraph" if kind != "paragraph" else "code"
        elif len(line) > LONGEST[kind]:
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
            yield from faults_of(node.value, path, node.lineno)


def comments(source: str) -> str:
    """Returns the comments of a module, each on its line."""
    lines = [""] * (source.count("\n") + 2)
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string.lstrip("# ")
    return "\n".join(lines)


def script_faults(source: str, path: str) -> Iterator[Fault]:
    """Yields the faults of the comments and texts of a script."""
    for found in SCRIPT_TEXT.finditer(source):
        if found[0].startswith("/") or is_prose(found[0]):
            yield from faults_of(found[0].strip('"`'), path, 1 + source.count("\n", 0, found.start()))


def yaml_faults(source: str, path: str) -> Iterator[Fault]:
    """Yields the faults of the comments of a YAML file, and of its values of ``PROSE_KEYS``."""
    for number, line in enumerate(source.splitlines(), 1):
        yield from faults_of(line[found.end() :] if (found := re.search(r"(?:^|\s)#", line)) else "", path, number)
    nodes = [yaml.compose(source, getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value in PROSE_KEYS:
                    yield from faults_of(value.value, path, value.start_mark.line + 1)
                nodes.append(value)
        elif isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)


def changelog_faults(text: str, path: str) -> Iterator[Fault]:
    """Yields a fault for each entry of the changelog that is longer than ``LONGEST_ENTRY``."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST_ENTRY:
            yield Fault(path, number, line[:40], f"{len(line)} characters; at most {LONGEST_ENTRY}")


def is_prose(text: str) -> bool:
    """Returns whether a string is prose, not a name, a list of words or a regular expression."""
    return text.count(" ") > 2 and (text.count(" ") < 12 or re.search(r"[.,:;]", text) is not None) and "(?" not in text


def code_faults(file: Path) -> Iterator[Fault]:
    """Yields the faults of a module, script, page template or YAML file."""
    source, path = file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))
    if file.suffix == ".py":
        yield from faults_of(comments(source), path)
        if file.name not in PROMPTS:
            yield from strings(source, path)
    elif file.suffix == ".js":
        yield from script_faults(source, path)
    elif file.suffix == ".html":
        yield from faults_of(re.sub('[<>"]', " ", source), path)
    elif file.suffix == ".yaml":
        yield from yaml_faults(source, path)


def faults(code: bool = False) -> Iterator[Fault]:
    """Yields the faults by ``RULES`` and ``SPELLINGS`` of every page, or of the code."""
    if code:
        for file in sorted({file for pattern in CODE for file in ROOT.glob(pattern)}):
            if file.suffix in SUFFIXES and "vendor" not in file.parts:
                yield from code_faults(file)
    else:
        for page in pages():
            text, path = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
            yield from faults_of(text, path)
            if page.name == "CHANGELOG.md":
                yield from changelog_faults(text, path)
            if page.name != "CHANGELOG.md" and not path.startswith(("docs/lab/", "docs/cli/", "benchmarks/")):
                yield from long_lines(text, path)


def pages() -> list[Path]:
    """Returns the Markdown files, without the style guide, which quotes what not to write."""
    found = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    return sorted(page for page in found if page.name != "style.md")


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
