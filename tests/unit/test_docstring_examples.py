"""The examples in the docstrings of public names run, and every one has one."""

from __future__ import annotations

import doctest
import inspect

import pytest

import scapo_eval


@pytest.mark.parametrize("name", [name for name in scapo_eval.__all__ if name != "__version__"])
def test_the_example_of_a_public_name_runs(name: str) -> None:
    text = inspect.getdoc(getattr(scapo_eval, name)) or ""
    assert "Example:\n" in text
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(example)
    assert runner.tries > 1
    assert not runner.failures
