"""Tables for papers: names, marks, bold where a test says so, signatures; LaTeX that compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import InputError
from scapo_eval.benchmarks.amber.formulas import METRICS as AMBER
from scapo_eval.benchmarks.capscore import capscore_metrics
from scapo_eval.benchmarks.chair import METRICS as CHAIR
from scapo_eval.benchmarks.pope import pope_metrics
from scapo_eval.results.benchmark import benchmark, benchmarks
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet
from scapo_eval.results.names import metric_name
from scapo_eval.results.render import latex, markdown, number, on_shared_images, score_table, stars
from scapo_eval.results.results import Resampling, Results, Run
from scapo_eval.results.signature import Signature

N = 60


def chair_run(name: str, wrong: int, images: range = range(N), **fields: Any) -> Run:
    """One caption per image with one mention; the first ``wrong`` of them are hallucinated."""
    values = dict.fromkeys(CHAIR.columns, 0) | {"captions": 1, "generated": 1, "truth": 1, "mentions": 1, "words": 5}
    bad = dict.fromkeys(("hallucinated", "hallucinated_mentions", "hallucinated_captions"), 1)
    rows = [[*(values | (bad if k < wrong else {"covered": 1})).values()] for k in range(len(images))]
    table = CountTable(CHAIR.columns, tuple(f"{k:03}" for k in images), np.array(rows))
    return Run(name=name, signature=Signature.of("chair", **fields), metric_set=CHAIR, table=table, n_records=len(rows))


def random_run(name: str, metrics: MetricSet, seed: int) -> Run:
    rows = np.random.default_rng(seed).integers(1, 9, (N, len(metrics.columns)))
    rows[:, [column == "captions" for column in metrics.columns]] = 1  # as many captions of each image in every system
    table = CountTable(metrics.columns, tuple(map(str, range(N))), rows)
    return Run(name=name, signature=Signature.of(metrics.name), metric_set=metrics, table=table, n_records=N)


def compared(*runs: Run) -> Results:
    return compare(runs, resampling=Resampling(200))


def mixed() -> list[Results]:
    sets = (capscore_metrics(), AMBER, pope_metrics(["random", "popular"]))
    return [
        compared(*(random_run(name, metrics, k) for k, name in enumerate(("base_line", "ours & more"))))
        for metrics in sets
    ]


def rows_of(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return {cells[0]: cells[1:] for line in lines if (cells := [c.strip() for c in line.strip("|").split(" | ")])}


def test_bold_only_where_the_test_says_so() -> None:
    alike = rows_of(markdown(compared(chair_run("base", 30), chair_run("ours", 29))))
    assert (alike["base"][0], alike["ours"][0]) == ("50.0", "48.3")
    better = rows_of(markdown(compared(chair_run("base", 40), chair_run("ours", 10), chair_run("other", 39))))
    assert (better["base"][0], better["ours"][0], better["other"][0]) == ("66.7", "**16.7**\\*\\*", "65.0")
    worse = rows_of(markdown(compared(chair_run("base", 10), chair_run("ours", 40), chair_run("other", 45))))
    assert (worse["base"][0], worse["ours"][0]) == ("**16.7**", "66.7\\*\\*")
    one_alike = rows_of(markdown(compared(chair_run("base", 10), chair_run("ours", 40), chair_run("other", 11))))
    assert one_alike["base"][0] == "16.7"
    alone = rows_of(markdown(Results((chair_run("alone", 3),))))["alone"]
    assert alone == ["5.0", "5.0", "95.0", "95.0", "95.0", "5.00", "5.0", "60"]


def test_different_images() -> None:
    text = markdown(compared(chair_run("base", 40), chair_run("ours", 10, range(20, 80))))
    changed = "On the 40 shared images, the metrics change from base to ours as follows: CHAIR\\_s 50.0 → 25.0;"
    assert f"base and ours were scored on different images. {changed}" in text
    text = markdown(compared(chair_run("base", 40), chair_run("ours", 10, range(54, 114))))
    assert "base and ours were scored on different images and have only 6 shared images, too few to compare." in text
    assert "**" not in text
    assert "p < " not in text.replace("\\", "")


def test_differing_systems_are_named() -> None:
    runs = chair_run("base", 40, oracle="1"), chair_run("ours", 10, oracle="2")
    text = latex(compare(runs, resampling=Resampling(50), allow_different=True))
    assert "ours and base were scored with different settings (oracle)." in text


def test_signatures_are_comments_and_intervals_come_on_demand() -> None:
    results = compared(chair_run("base", 40), chair_run("ours", 10))
    for run in results.runs:
        assert f"% {run.name}: {run.signature}\n" in latex(results)
        assert f"<!-- {run.name}: {run.signature} -->" in markdown(results)
    assert "[" not in latex(results)
    low, high = results.runs[1].metrics["chair_s"].low, results.runs[1].metrics["chair_s"].high
    assert low is not None
    assert high is not None
    assert f"\\textbf{{16.7}}\\textsuperscript{{**}} {{\\scriptsize[{100 * low:.1f}, {100 * high:.1f}]}}" in latex(
        results, intervals=True
    )


def test_mixed_benchmarks_show_their_headline_metrics() -> None:
    groups = mixed()
    text = latex(groups)
    headings = next(line for line in text.splitlines() if line.startswith("System & "))
    metrics = sum(len(benchmark(group.metric_set.name).headline) for group in groups)
    assert headings.count("&") == metrics + len(groups)
    assert "\\multicolumn{7}{c}{AMBER}" in text
    assert "\\width>\\textwidth" in text
    table = score_table(groups, metrics=["f1", "chair_s", "existence_f1"])
    assert [(c.group, c.heading) for c in table.columns] == [
        ("Captions", "CHAIR_s (native)"), ("Captions", "Images"), ("AMBER", "F1"), ("AMBER", "Existence F1"),
        ("AMBER", "Images"), ("POPE", "F1"), ("POPE", "Images"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="unknown metric 'bleu'; known: hal_rate, "):
        latex(groups, metrics=["bleu"])


def test_every_benchmark_has_headline_metrics_and_every_metric_a_name() -> None:
    for each in benchmarks():
        assert each.title
        assert each.headline or each.metric_set is None
    names = [metric_name(name) for name in (*AMBER.formulas, *capscore_metrics(dagger=True).formulas)]
    assert not any("_" in name.removeprefix("CHAIR_") for name in names)
    wanted = {
        "cap_score_dagger": "Cap. Score†", "existence_f1": "Existence F1", "phd_base": "PhD-base", "phd_all_task":
        "PhD-all by task", "adversarial_yes_ratio": "Adversarial yes ratio", "detailed_faithscore":
        "Detailed FaithScore", "sec_yes_recall": "Sec yes recall", "unheard_of": "unheard of",
    }  # fmt: skip
    assert {name: metric_name(name) for name in wanted} == wanted


def test_words_for_values_and_differences() -> None:
    assert [number(0.1234), number(-0.00001, sign=True), number(2.5, True), number(None)] == [
        "12.3",
        "0.0",
        "2.50",
        "n/a",
    ]
    assert [stars({"p_value": p}) for p in (None, 0.05, 0.049, 0.01, 0.0099)] == ["", "", "*", "*", "**"]
    assert stars({"p_value": 0.001, "p_holm": 0.2}) == ""
    row = {"system": "a", "baseline": "b", "n_images": 1, "system_value": None, "baseline_value": None}
    assert on_shared_images(row, {"a": 2, "b": 1}, number) == "1 shared image"
    assert on_shared_images(row, {"a": 1, "b": 1}, number) == ""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_within_the_width_of_the_text(tmp_path: Path) -> None:
    tables = [
        latex(mixed(), intervals=True),
        latex(compared(chair_run("b_1", 40), chair_run("<i> \\", 10, range(9, 69)))),
    ]
    body = "\n\n".join(tables)
    (tmp_path / "t.tex").write_text(
        "\\documentclass{article}\\usepackage[utf8]{inputenc}\\usepackage{booktabs,graphicx,xcolor}"
        f"\\begin{{document}}\\noindent {body}\\end{{document}}"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "t.tex"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search(r"Overfull \\hbox .* in paragraph", done.stdout)
