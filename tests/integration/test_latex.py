"""LaTeX output of commands, compiled with pdflatex. Without pdflatex and its packages, the tests are skipped with a
reason.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HOSTILE = r"a_b & 50% #1 {x} $y$ ~^\input{/etc/passwd} ü — ä «q» „r“"
PREAMBLE = r"""\documentclass{article}
\usepackage[textwidth=5.5in]{geometry}
\usepackage{PACKAGES}
\begin{document}
"""


def compile_latex(folder: Path, text: str) -> str:
    """Compiles a table in a page of NeurIPS' width with the packages in its first line, and returns the log."""
    latex = shutil.which("pdflatex")
    if latex is None:
        pytest.skip("pdflatex is not installed (Debian: texlive-latex-recommended)")
    found = re.search(r"% needs \\usepackage\{(.+)\}", text)
    assert found is not None
    for package in found[1].split(","):
        if subprocess.run(["kpsewhich", f"{package}.sty"], capture_output=True).returncode:
            pytest.skip(f"LaTeX's {package} is not installed (Debian: texlive-latex-recommended)")
    (folder / "paper.tex").write_text(PREAMBLE.replace("PACKAGES", found[1]) + text + "\\end{document}\n", "utf-8")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert (folder / "paper.pdf").read_bytes().startswith(b"%PDF")
    return log


@pytest.fixture
def captions(tmp_path: Path) -> list[str]:
    """Returns two systems' captions, one with a name that LaTeX would interpret as commands."""
    said = {"base": "A dog, a cat and a car.", HOSTILE: "A dog and a cat."}
    given = []
    for k, (name, text) in enumerate(said.items()):
        rows = [{"image_id": i, "caption": text, "objects": ["dog", "cat", "car"][: 1 + i % 3]} for i in range(40)]
        path = tmp_path / f"{k}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        given.append(f"{name}={path}")
    return given


@pytest.mark.parametrize("verb", ["score", "report"])
def test_tables_compile_and_fit_the_page(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, captions: list[str], verb: str
) -> None:
    code, text, said = run(verb, *captions, "--format", "latex")
    assert (code, "toprule" in text) == (0, True), said
    log = compile_latex(tmp_path, text)
    assert "Overfull \\hbox" not in log
    assert "Missing character" not in log


def test_a_protocols_table_compiles_with_its_footnote(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, shared: Path
) -> None:
    captions = shared / "data" / "captions_real" / "coco_val2014_opera_llava15_opera.jsonl"
    code, text, said = run("chair", str(captions), "--protocol", "chair-opera", "--format", "latex")
    assert code == 0, said
    assert "footnotesize" in text
    log = compile_latex(tmp_path, text)
    assert "Overfull \\hbox" not in log
    assert "Missing character" not in log
