"""The page's modules: their bundle is one script in which every name is declared once."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from scapo_eval.report import bundle

ROOT = Path(__file__).resolve().parents[2]

DECLARED = re.compile(r"^(export )?(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


def test_every_import_is_exported_where_it_says_and_every_name_is_declared_once() -> None:
    modules = bundle.texts(".js")
    declared = {name: DECLARED.findall(text) for name, text in modules.items()}
    exported = {name: {each for export, each in found if export} for name, found in declared.items()}
    imported: dict[str, set[str]] = {name: set() for name in modules}
    for text in modules.values():
        for names, module in bundle.IMPORT.findall(text):
            imported[module] |= {each.strip() for each in names.split(",") if each.strip()}
    assert imported == exported  # nothing missing, nothing exported that no module imports
    times = Counter(each for found in declared.values() for _, each in found)
    assert [each for each, n in times.items() if n > 1] == []


def test_bundle_holds_no_module_syntax_and_declares_before_it_uses() -> None:
    script = bundle.script()
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    modules = bundle.texts(".js")
    begins = {
        name: script.index(text.removeprefix("// @ts-check\n").split("\n", 1)[0]) for name, text in modules.items()
    }
    for name, text in modules.items():
        for _, needed in bundle.IMPORT.findall(text):
            assert begins[needed] < begins[name], (name, needed)


def test_every_part_is_in_the_page() -> None:
    page = bundle.texts(".html")
    included = {name for text in page.values() for name in re.findall(r'\{% (?:include|from) "(\w+)"', text)}
    assert included == set(page) - {"page"}
    assert all(text in bundle.style() for text in bundle.texts(".css").values())


@pytest.mark.slow
def test_the_types_of_the_pages_modules_hold() -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    ready = [npm, "exec", "--yes", "--package", "typescript@5.9.3", "--", "tsc", "--version"]
    if subprocess.run(ready, cwd=ROOT, capture_output=True).returncode:
        pytest.skip("TypeScript cannot be had from npm's registry")
    done = subprocess.run(["bash", ".ci/page"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["the pages' types hold"]), done.stdout
