"""The examples in the docstrings of public names run, and what people use first has one."""

from __future__ import annotations

import doctest
import inspect

import pytest

import scapo_eval

WITHOUT = frozenset(
    (
        "CaptionScores", "CountedBenchmark", "InputErrors", "Mention", "MissingExtra", "Option", "Results",
        "ScapoError", "Subsentence", "__version__", "amber", "load_results", "phd", "pope", "power", "score_captions",
        "validate",
    )
)  # fmt: skip
"""Public names whose examples are in the docs: they need files, or are what another name returns."""


@pytest.mark.parametrize("name", [name for name in scapo_eval.__all__ if name not in WITHOUT])
def test_the_example_of_a_public_name_runs(name: str) -> None:
    text = inspect.getdoc(getattr(scapo_eval, name)) or ""
    assert "Example:\n" in text
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(example)
    assert runner.tries > 1
    assert not runner.failures
