"""What changed between two systems' captions, and the figures for papers, on captions whose changes are known."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import PresenceOracle, Vocabulary
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.report import CaptionEvidence, Report, TrainingLog, html, plots
from scapo_eval.report.changes import label_changes, length_difference, telling_captions
from scapo_eval.report.data import caption_evidence, planes, shared_images
from scapo_eval.report.overview import overview
from scapo_eval.results.comparison import compare
from scapo_eval.results.results import Resampling

VOCABULARY = Vocabulary.from_mapping({name: [name] for name in ("dog", "cat", "car", "sofa")})
TRUTH = PresenceOracle.from_objects({k: ["dog"] for k in range(60)}, labels=VOCABULARY.labels)
DRAWN = Resampling(300)


def captions(folder: Path, name: str, texts: list[str]) -> CaptionEvidence:
    """A system that captions image k with ``texts[k]``."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"image_id": k, "caption": text}) + "\n" for k, text in enumerate(texts)))
    return caption_evidence(path, VOCABULARY, TRUTH, name=name, options=ScoringOptions(), resampling=DRAWN)


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> tuple[CaptionEvidence, CaptionEvidence]:
    """A baseline that invents a cat in 20 images and a car in 3, and a system that invents a car in 2 others."""
    folder = tmp_path_factory.mktemp("systems")
    base = ["A dog and a cat." if k < 20 else "A dog and a car." if k < 23 else "A dog here today." for k in range(60)]
    base[7] = "A dog, a cat and a sofa."
    ours = ["A dog and a car." if k in (30, 31) else "A dog." for k in range(60)]
    return captions(folder, "base", base), captions(folder, "ours", ours)


def test_labels_are_ordered_by_change_and_tested_by_image(systems: tuple[CaptionEvidence, CaptionEvidence]) -> None:
    base, ours = systems
    cat, car, sofa = label_changes(ours, base, DRAWN)
    assert [each.label for each in (cat, car, sofa)] == ["cat", "car", "sofa"]
    assert [round(60 * each.difference) for each in (cat, car, sofa)] == [-20, -1, -1]
    assert [each.tone for each in (cat, car, sofa)] == ["better", "untested", "untested"]
    assert cat.p_holm == pytest.approx(2 / 2**20)  # the sign test of 20 against 0; no other label could reach that
    assert cat.low is not None
    assert cat.low < cat.difference < cat.high < 0  # type: ignore[operator]
    assert car.low < 0 < car.high  # type: ignore[operator]
    (back, *_) = label_changes(base, ours, DRAWN)
    assert (back.label, back.tone, back.difference) == ("cat", "worse", -cat.difference)
    assert label_changes(base, base, DRAWN) == []


def test_the_telling_pair_is_the_clearest_image_of_the_change(
    systems: tuple[CaptionEvidence, CaptionEvidence],
) -> None:
    base, ours = systems
    assert telling_captions(ours, base, better=True, label="cat") == (7, 7)
    assert telling_captions(base, ours, better=False, label="cat") == (7, 7)
    assert telling_captions(ours, base, better=False, label="car") in ((30, 30), (31, 31))
    assert telling_captions(ours, base, better=False, label="cat") is None
    assert telling_captions(ours, base, better=True, covered=True) is None  # both always name the dog
    words = [sum(map(len, run.words)) / 60 for run in (ours, base)]
    assert length_difference(ours, base, DRAWN).difference == pytest.approx(words[0] - words[1])


def test_the_page_gets_the_pair_and_saying_less_is_no_loss(systems: tuple[CaptionEvidence, CaptionEvidence]) -> None:
    group = compare([run.scores for run in systems], resampling=DRAWN)
    report = Report((group,), systems)
    (argument,) = overview(report)
    entry = argument["against"][0][1]
    assert entry["verdict"] == "better"
    assert entry["example"]["label"] == "cat"
    assert entry["example"]["image"] == "7"
    assert argument["texts"]["text"][entry["example"]["texts"][0]] == "A dog, a cat and a sofa."
    page = html.page(report, title="T").decode()
    assert '<strong class="untested">says less</strong> <small>and is better in Cap. Score</small>' in page
    assert "names 25.3 points fewer absent objects" in page


# Figures for papers


def drawn(monkeypatch: pytest.MonkeyPatch, draw: Any, *arguments: Any, **options: Any) -> Any:
    """The matplotlib figure that a plot would write."""
    figures: list[Any] = []
    monkeypatch.setattr(plots.Plot, "save", lambda plot, stream, form: figures.append(plot.figure))
    draw(io.BytesIO(), "png", *arguments, **options)
    figures[0].draw_without_rendering()
    return figures[0]


@pytest.mark.parametrize("width", plots.WIDTHS)
@pytest.mark.slow
def test_the_legend_stands_outside_and_names_fit(
    monkeypatch: pytest.MonkeyPatch, systems: tuple[CaptionEvidence, CaptionEvidence], width: str
) -> None:
    report = Report((compare([run.scores for run in systems], resampling=DRAWN),), systems)
    log = TrainingLog("run", {"step": list(range(90)), "hal_rate": [0.2] * 90, "kl": [0.1] * 90}, [])
    style = plots.Style(width)
    for figure in (
        drawn(monkeypatch, plots.frontier, planes(report), style),
        drawn(monkeypatch, plots.labels, systems, 20, style),
        drawn(monkeypatch, plots.training, [log, log], None, style),
    ):
        assert figure.get_figwidth() == plots.WIDTHS[width]
        (legend,) = figure.legends
        below = legend.get_window_extent().y1
        for axes in figure.axes:
            assert axes.get_tightbbox().y0 >= below - 1
            named = [label for label in (axes.xaxis.label, axes.yaxis.label) if label.get_text()]
            boxes = [label.get_window_extent() for label in named]
            assert all(box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 for box in boxes)


def test_figures_say_what_they_draw(
    monkeypatch: pytest.MonkeyPatch, systems: tuple[CaptionEvidence, CaptionEvidence]
) -> None:
    figure = drawn(monkeypatch, plots.labels, systems)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sofa", "car", "cat"]
    shares = [line.get_xdata().tolist() for line in axes.lines]
    assert shares == [pytest.approx([100 / 60, 300 / 60, 2000 / 60]), pytest.approx([0, 200 / 60, 0])]
    plane = planes(Report((compare([run.scores for run in systems], resampling=DRAWN),), systems))[0]
    (axes,) = drawn(monkeypatch, plots.frontier, [plane]).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "Hal. Rate, % (lower is better)",
        "Cover Rate, % (higher is better)",
    )
    (axes,) = drawn(monkeypatch, plots.frontier, [replace(plane, metric_set="amber", x="chair", y="cover")]).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("CHAIR, % (lower is better)", "Cover, % (higher is better)")


def test_smoothing_is_a_centered_mean_that_passes_over_gaps() -> None:
    values = np.array([0.0, 3.0, np.nan, 6.0, 9.0])
    assert plots.moving_mean(values, 1).tolist() == pytest.approx(values.tolist(), nan_ok=True)
    assert plots.moving_mean(values, 3).tolist() == pytest.approx([1.5, 1.5, np.nan, 7.5, 7.5], nan_ok=True)


def test_a_figure_says_where_systems_have_other_images() -> None:
    a, b = frozenset("abc"), frozenset("cde")
    assert shared_images([a, a]) == ""
    assert shared_images([a, a, b]) == "Not all systems were scored on the same images: some share only 1 image."
    assert shared_images([a, frozenset("xyz")]).endswith("some share no image.")
