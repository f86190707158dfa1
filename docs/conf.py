"""The site: ``python -m sphinx -W -b html docs DIR`` (extra ``docs``). It opens from disk, search included."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from scapo_eval.base.version import __version__  # noqa: E402

project = "scapo"
author = "The scapo developers"
copyright = "the scapo developers, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4  # as on code hosts: every link to a heading is checked
suppress_warnings = ["misc.highlighting_failure"]  # csv has no lexer
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch", "transformers"]
napoleon_use_rtype = False
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"scapo {__version__}"
html_copy_source = False
html_show_sphinx = False

ELSEWHERE = {"../examples/README.md": "examples.md", "../README.md": "index.md"} | {
    f"../{path.name}": path.name.lower() for path in HERE.parent.glob("*.md") if (HERE / path.name.lower()).exists()
}
"""Links out of this folder -> the page in their place."""


def _complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Links out of this folder stay in the site; pages that index.md does not list come last in the navigation."""
    source[0] = _joined(source[0])
    if name == "index":
        listed = set(re.findall(r"^[\w/]+$", source[0], re.MULTILINE))
        others = "\n".join(sorted(app.env.found_docs - listed - {name}))
        source[0] += f"\n```{{toctree}}\n:caption: More\n:hidden:\n\n{others}\n```\n" if others else ""


def _joined(text: str) -> str:
    """A page with the file that it includes, its links as they are from here."""
    text = re.sub(r"```\{include\} \.\./(\S+)\n```", lambda found: _of_the_checkout(found[1]), text)
    for target, page in ELSEWHERE.items():
        text = text.replace(f"]({target})", f"]({page})")
    return text


def _of_the_checkout(name: str) -> str:
    text = (HERE.parent / name).read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")


def _as_markdown(name: str) -> str:
    """A page for programs: its source; included files and docstrings in place of the directives."""
    text = _joined((HERE / f"{name}.md").read_text(encoding="utf-8"))
    text = re.sub(r"```\{toctree\}.*?```\n", "", text, flags=re.DOTALL)
    return re.sub(r"```\{eval-rst\}\n(.*?)```", lambda found: _docstrings(found[1]), text, flags=re.DOTALL)


def _docstrings(directives: str) -> str:
    """Signature and docstring of everything that autodoc directives name."""
    module, out = "scapo_eval", []
    for kind, name, members in re.findall(r"^\.\. (\w+):: (\S+)(?:\n   :members:([^\n]*))?", directives, re.MULTILINE):
        if kind in ("currentmodule", "automodule"):
            module = name
        found = import_module(module)
        if kind == "automodule":
            out.append(f"### {module}\n\n{inspect.getdoc(found)}\n")
            names = [each.strip() for each in members.split(",") if each.strip()]
            names = names or [each for each, value in vars(found).items() if getattr(value, "__module__", "") == module]
            out += [_entry(getattr(found, each), each) for each in names if each[0] != "_"]
        elif kind != "currentmodule":
            out.append(_entry(getattr(found, name), name))
    return "\n".join(out)


def _entry(value: object, name: str) -> str:
    try:
        signature = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = ""
    text = f"#### `{name}{signature}`\n\n{inspect.getdoc(value) or ''}\n"
    if inspect.isclass(value):
        for each, member in vars(value).items():
            if each[0] != "_" and (callable(member) or isinstance(member, (classmethod, staticmethod, property))):
                inner = getattr(member, "__func__", member)
                text += f"\n{_entry(inner, f'{name}.{each}')}"
    return text


def _for_programs(app: Sphinx, failure: Exception | None) -> None:
    """Every page as Markdown beside its HTML, and llms.txt, the list of them."""
    if failure or app.builder.format != "html":
        return
    lines = [f"# {project}", "", f"> {_first_paragraph(app, 'index')}", "", "## Pages", ""]
    for name in sorted(app.env.found_docs, key=lambda name: (name != "index", name)):
        target = Path(app.outdir, f"{name}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_as_markdown(name), encoding="utf-8")
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.md): {_first_paragraph(app, name)}")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _first_paragraph(app: Sphinx, name: str) -> str:
    found = next(iter(app.env.get_doctree(name).findall(nodes.paragraph)), None)
    text = " ".join(found.astext().split()) if found else ""
    return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " ..."


def setup(app: Sphinx) -> None:
    """Sphinx's hook."""
    app.connect("source-read", _complete)
    app.connect("build-finished", _for_programs)
