"""Runs the code cells of a notebook in order, without Jupyter, and returns their outputs.

python tests/notebook.py examples/tour.ipynb        # writes the outputs into the notebook
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def outputs(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Returns the outputs of each code cell, in the notebook format.

    Args:
        notebook: Notebook document. Its cells run in one namespace, in the working directory.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_shown("".join(cell["source"]), namespace) for cell in code_cells(notebook)]


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the cells with code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _shown(source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    body = ast.parse(source)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(body, "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)  # type: ignore[attr-defined]
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        found.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return found


def main() -> None:
    """Writes the outputs into the notebook."""
    path = Path(sys.argv[1]).resolve()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    os.chdir(path.parent)
    for number, (cell, shown) in enumerate(zip(code_cells(notebook), outputs(notebook), strict=True), 1):
        for output in shown:
            if "execution_count" in output:
                output["execution_count"] = number
        cell["execution_count"], cell["outputs"] = number, shown
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
