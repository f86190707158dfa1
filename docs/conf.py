"""The site: ``python -m sphinx -W -b html docs DIR`` (extra ``docs``). It opens from disk, search included."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext import autosummary

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from scapo_eval.base.version import __version__  # noqa: E402

project = "scapo"
author = "The scapo developers"
copyright = "the scapo developers, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
smartquotes = False  # "--truth" is an option, not an en dash
myst_heading_anchors = 4  # as on code hosts: every link to a heading is checked
suppress_warnings = ["misc.highlighting_failure"]  # csv has no lexer
autodoc_member_order = "bysource"
autosummary.WELL_KNOWN_ABBREVIATIONS += (  # which end no summary sentence
    "Avg.",
    "Cap.",
    "Eq.",
    "Hal.",
)
templates_path = [
    "_templates"
]  # a page per public name (docs/api, not in the repository)
autodoc_mock_imports = ["torch", "transformers"]
napoleon_use_rtype = False
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"scapo {__version__}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False

ELSEWHERE = {
    "../examples/README.md": "examples.md",
    "../README.md": "index.md",
} | {
    f"../{path.name}": path.name.lower()
    for path in HERE.parent.glob("*.md")
    if (HERE / path.name.lower()).exists()
}
"""Links out of this folder -> the page in their place."""

MOVED = {"field": "lab/field", "cli": "cli/index", "tasks": "howto/index"}
"""Former name of a page -> its present one: the site redirects."""


def _complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Keeps links within the site, and lists the pages that index.md does not name last in the navigation."""
    source[0] = _joined(source[0])
    if name == "index":
        listed = set(re.findall(r"^[\w/]+$", source[0], re.MULTILINE))
        others = "\n".join(
            sorted(
                each
                for each in app.env.found_docs - listed - {name}
                if not each.startswith("api/")
            )
        )
        source[0] += (
            f"\n```{{toctree}}\n:caption: More\n:hidden:\n\n{others}\n```\n"
            if others
            else ""
        )


def _polish(
    app: Sphinx,
    name: str,
    template: str,
    context: dict[str, object],
    tree: object,
) -> None:
    """Keeps options such as --truth on one line, and ends the names of parameters and errors with a colon."""
    if body := str(context.get("body") or ""):
        if name.startswith("api"):
            body = re.sub(r"(</(?:strong|em)>(?:</a>)?) -- ", r"\1: ", body)
        context["body"] = re.sub(
            r"(?<=[\s>(])--[a-z][\w-]*(?=[^<>]*<)",
            r'<span class="option-name">\g<0></span>',
            body,
        )


def _joined(text: str) -> str:
    """Returns a page with its included file, and with links relative to this folder."""
    text = re.sub(
        r"```\{include\} \.\./(\S+)\n```",
        lambda found: _of_the_checkout(found[1]),
        text,
    )
    for target, page in ELSEWHERE.items():
        text = text.replace(f"]({target})", f"]({page})")
    return text


def _of_the_checkout(name: str) -> str:
    text = (HERE.parent / name).read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|#)", "](../", text).replace(
        "](../docs/", "]("
    )


def _as_markdown(name: str) -> str:
    """Returns a page for programs: its source, with included files and docstrings instead of directives."""
    if name.startswith("api/"):
        module, _, member = name.removeprefix("api/").rpartition(".")
        return _entry(getattr(import_module(module), member), member)
    text = _joined((HERE / f"{name}.md").read_text(encoding="utf-8"))
    text = re.sub(r"```\{toctree\}.*?```\n", "", text, flags=re.DOTALL)
    return re.sub(
        r"```\{eval-rst\}\n(.*?)```",
        lambda found: _docstrings(found[1]),
        text,
        flags=re.DOTALL,
    )


def _docstrings(directives: str) -> str:
    """Returns signature and docstring of everything that autosummary and autodoc directives name."""
    module, out = "scapo_eval", []
    for line in directives.splitlines():
        if found := re.match(r"\.\. (currentmodule|automodule):: (\S+)", line):
            module = found[2]
            if found[1] == "automodule":
                source = import_module(module)
                out.append(f"### {module}\n\n{inspect.getdoc(source)}\n")
                own = [
                    each
                    for each, value in vars(source).items()
                    if getattr(value, "__module__", "") == module
                ]
                out += [
                    _entry(getattr(source, each), each)
                    for each in own
                    if each[0] != "_"
                ]
        elif found := re.match(r"   (\w+)$", line):
            out.append(
                _entry(getattr(import_module(module), found[1]), found[1])
            )
    return "\n".join(out)


def _entry(value: object, name: str) -> str:
    try:
        signature = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = ""
    text = f"#### `{name}{signature}`\n\n{inspect.getdoc(value) or ''}\n"
    if inspect.isclass(value):
        for each, member in vars(value).items():
            if each[0] != "_" and (
                callable(member)
                or isinstance(member, (classmethod, staticmethod, property))
            ):
                inner = getattr(member, "__func__", member)
                text += f"\n{_entry(inner, f'{name}.{each}')}"
    return text


def _for_programs(app: Sphinx, failure: Exception | None) -> None:
    """Writes every page as Markdown beside its HTML, llms.txt (the list of pages), and redirects."""
    if failure or app.builder.format != "html":
        return
    lines = [
        f"# {project}",
        "",
        f"> {_first_paragraph(app, 'index')}",
        "",
        "## Pages",
        "",
    ]
    for name in sorted(
        app.env.found_docs, key=lambda name: (name != "index", name)
    ):
        target = Path(app.outdir, f"{name}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_as_markdown(name), encoding="utf-8")
        lines.append(
            f"- [{app.env.titles[name].astext()}]({name}.md): {_first_paragraph(app, name)}"
        )
    Path(app.outdir, "llms.txt").write_text(
        "\n".join(lines) + "\n", encoding="utf-8"
    )
    for former, present in MOVED.items():
        redirect = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={present}.html">'
        Path(app.outdir, f"{former}.html").write_text(
            f"{redirect}<title>{present}</title>\n", encoding="utf-8"
        )


def _live_report(app: Sphinx, failure: Exception | None) -> None:
    """Writes live.html, the front page's report: figures of public systems, made of them by today's code."""
    if failure or app.builder.format != "html":
        return
    command = [
        sys.executable,
        "-m",
        "scapo_eval.cli.main",
        "report",
        str(HERE / "public_results.json"),
        "-q",
    ]
    command += [
        "--title",
        "LLaVA-1.5 on 500 COCO images",
        "-o",
        str(Path(app.outdir, "live.html")),
    ]
    subprocess.run(
        command, check=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)}
    )


def _first_paragraph(app: Sphinx, name: str) -> str:
    found = next(iter(app.env.get_doctree(name).findall(nodes.paragraph)), None)
    text = " ".join(found.astext().split()) if found else ""
    return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " ..."


def setup(app: Sphinx) -> None:
    """Registers the handlers above with Sphinx."""
    app.connect("source-read", _complete)
    app.connect("html-page-context", _polish)
    app.connect("build-finished", _for_programs)
    app.connect("build-finished", _live_report)
