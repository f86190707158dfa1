"""McNemar's exact test, and where it stands in for the resampling tests."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from scapo_eval.base.errors import InputError
from scapo_eval.base.types import Answer
from scapo_eval.benchmarks.join import join
from scapo_eval.benchmarks.questions import Question
from scapo_eval.benchmarks.yesno import BENCHMARK
from scapo_eval.readers.parsers import first_word
from scapo_eval.results.comparison import compare
from scapo_eval.results.results import Resampling, Run
from scapo_eval.results.stats import mcnemar


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (1, 9), (9, 1), (5, 5), (40, 61), (300, 421)])
def test_it_is_the_two_sided_binomial_test(won: int, lost: int) -> None:
    n = won + lost
    tail = Fraction(sum(comb(n, k) for k in range(min(won, lost) + 1)), 2**n)
    assert mcnemar(won, lost) == float(min(Fraction(1), 2 * tail))


def test_known_values() -> None:
    assert mcnemar(1, 9) == 22 / 1024
    assert mcnemar(0, 6) == 2 / 64


def run_of(right: np.ndarray, name: str) -> Run:
    questions = [Question(str(k), "yes", image=str(k // 2), category="ab"[k % 2]) for k in range(len(right))]
    answers = [Answer(str(k), "Yes" if ok else "No") for k, ok in enumerate(right)]
    joined = join(answers, questions, first_word, source=name)
    return BENCHMARK.runs({name: joined}, parser="default", resampling=Resampling(200, 1))[0]


def test_accuracies_are_tested_exactly_and_the_rest_by_randomisation() -> None:
    rng = np.random.default_rng(0)
    base, ours = rng.random(200) < 0.6, rng.random(200) < 0.75
    found = compare([run_of(base, "base"), run_of(ours, "ours")], test="mcnemar")
    rows = {row["metric"]: row for row in found.comparisons}
    assert rows["accuracy"]["p_value"] == mcnemar(int((ours & ~base).sum()), int((base & ~ours).sum()))
    even = slice(0, None, 2)
    assert rows["a_accuracy"]["p_value"] == mcnemar(int((ours & ~base)[even].sum()), int((base & ~ours)[even].sum()))
    assert {name: row["test"] for name, row in rows.items() if row["test"] != "mcnemar"} == dict.fromkeys(
        [
            "recall",
            "f1",
            "yes_ratio",
            "precision",
            *(f"{c}_{m}" for c in "ab" for m in ("precision", "recall", "f1", "yes_ratio")),
        ],
        "studentized_permutation",
    )
    assert rows["accuracy"]["n_images"] == 100


def test_no_test_below_30_images() -> None:
    right = np.arange(40) % 3 > 0
    found = compare([run_of(right, "base"), run_of(~right, "ours")], test="mcnemar")
    assert {(row["p_value"], row["test"]) for row in found.comparisons} == {(None, None)}


def test_runs_without_verdicts_say_so() -> None:
    run = run_of(np.ones(80, dtype=bool), "a")
    bare = replace(run, name="b", verdicts={})
    with pytest.raises(InputError, match="compares right and wrong items; yesno runs have none"):
        compare([run, bare], test="mcnemar")
