"""The examples in the docstrings of public names run, and every one has one."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import scapo_eval

API = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
LISTS = re.findall(r"currentmodule:: (\S+)\n(.*?)(?=\.\. currentmodule|```)", API, re.DOTALL)
NAMES = [f"{module}.{name}" for module, names in LISTS for name in re.findall(r"^   (\w+)$", names, re.MULTILINE)]


def test_the_api_page_lists_every_public_name() -> None:
    public = {f"scapo_eval.{name}" for name in scapo_eval.__all__} - {"scapo_eval.__version__"}
    public |= {f"scapo_eval.plots.{name}" for name in scapo_eval.plots.__all__}
    assert len(NAMES) == len(set(NAMES))
    assert public == {name for name in NAMES if name.count(".") == 1 or ".plots." in name}


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, member = name.rpartition(".")
    text = inspect.getdoc(getattr(import_module(module), member)) or ""
    assert "Example:\n" in text
    for library in [*re.findall(r">>> from (tokenizers) import", text), *["matplotlib"] * (".plots." in name)]:
        pytest.importorskip(library)
    monkeypatch.setenv("SCAPO_TRUTH", "")
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(example)
    assert runner.tries > 1
    assert not runner.failures
