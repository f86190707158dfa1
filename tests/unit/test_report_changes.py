"""What changed between two systems' captions, and the figures for papers, on captions whose changes are known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scapo_eval
from scapo_eval import InputError, PresenceOracle, Vocabulary
from scapo_eval.benchmarks.faithscore import Facts, faithscore_run
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.report import CaptionEvidence, Report, TrainingLog, bundle, html, plots
from scapo_eval.report.changes import label_changes, length_difference, telling_captions
from scapo_eval.report.data import Plane, Point, caption_evidence, planes, shared_images
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
    tested = [(row["label"], round(60 * row["difference"]), row["tone"]) for row in entry["tested"]]
    assert tested == [("cat", -20, "better"), ("car", -1, "untested"), ("sofa", -1, "untested")]
    assert argument["texts"]["text"][entry["example"]["texts"][0]] == "A dog, a cat and a sofa."
    page = html.page(report, title="T").decode()
    assert (
        '<strong class="untested">fewer words or objects</strong> <small>Cap. Score significantly better</small>'
        in page
    )
    assert "names 25.3 points fewer absent objects" in page
    assert "its 95 % interval (Wilson, effective sample size)" in page


# Figures for papers


def drawn(figure: Any) -> Any:
    """A figure as it is written."""
    figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("width", [*plots.WIDTHS, 5.5])
@pytest.mark.slow
def test_the_legend_stands_outside_and_names_fit(
    systems: tuple[CaptionEvidence, CaptionEvidence], width: str | float
) -> None:
    group = compare([run.scores for run in systems], resampling=DRAWN)
    log = TrainingLog("run", {"step": list(range(90)), "hal_rate": [0.2] * 90, "kl": [0.1] * 90}, [])
    style = plots.Style(width)
    for figure in (
        drawn(plots.frontier(planes(Report((group,), systems)), style)),
        drawn(plots.differences(group, style=style)),
        drawn(plots.labels(systems, 20, style)),
        drawn(plots.training([log, log], None, style)),
    ):
        assert figure.get_figwidth() == style.inches == plots.WIDTHS.get(str(width), width)
        (legend,) = figure.legends
        below = legend.get_window_extent().y1
        for axes in figure.axes:
            assert axes.get_tightbbox().y0 >= below - 1
            assert axes.get_window_extent().height > 0.8 * legend.get_window_extent().height
            named = [label for label in (axes.xaxis.label, axes.yaxis.label) if label.get_text()]
            boxes = [label.get_window_extent() for label in named]
            assert all(box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 for box in boxes)


def a_plane(names: list[str]) -> Plane:
    points = [Point(n, 0.1 + 0.01 * k, 0.6 + 0.015 * (k % 3), 0.7, np.zeros((0, 2))) for k, n in enumerate(names)]
    return Plane("capscore", "hal_rate", "cover_rate", "T", tuple(points), (), tuple(range(1, len(names))))


@pytest.mark.parametrize(("systems", "named"), [(5, True), (20, False)])
def test_names_stand_beside_their_points_or_in_a_legend_lower_than_the_plot(systems: int, named: bool) -> None:
    names = [f"system {k}" for k in range(systems)]
    figure = drawn(plots.frontier([a_plane(names)], plots.Style(5.5)))
    (axes,), (legend,) = figure.axes, figure.legends
    written = [text for text in axes.texts if text.get_text().startswith("system")]
    assert len(written) == (systems if named else 0)
    assert len(legend.get_texts()) == (0 if named else systems)
    assert legend.get_window_extent().height < axes.get_window_extent().height
    boxes = [text.get_window_extent() for text in written]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    styles = {line.get_marker() + line.get_color() for line in axes.lines if line.get_label().startswith("system")}
    assert len(styles) == systems  # no two alike


def test_fonts_and_style_sheets_are_taken_or_refused(
    systems: tuple[CaptionEvidence, CaptionEvidence], tmp_path: Path
) -> None:
    figure = drawn(plots.labels(systems, style=plots.Style(4, font="DejaVu Serif", style="grayscale")))
    assert figure.axes[0].xaxis.label.get_fontname() == "DejaVu Serif"
    with pytest.raises(InputError, match="font not found: 'No Such Font'"):
        plots.labels(systems, style=plots.Style(font="No Such Font"))
    with pytest.raises(InputError, match="style sheet not found: 'none such'"):
        plots.labels(systems, style=plots.Style(style="none such"))
    sheet = tmp_path / "sheet.mplstyle"
    sheet.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a valid style sheet"):
        plots.labels(systems, style=plots.Style(style=str(sheet)))
    sheet.write_text("text.usetex: True\naxes.grid: True")
    (axes,) = plots.labels(systems, style=plots.Style(style=str(sheet))).axes
    assert (axes.xaxis.label.get_usetex(), axes.xaxis.get_gridlines()[0].get_visible()) == (False, True)
    for width in ("page", 0.5, 99):
        with pytest.raises(InputError, match="not a valid width"):
            plots.Style(width)


def test_every_run_and_system_has_its_place_in_the_legend(tmp_path: Path) -> None:
    for folder, steps in (("a/run", 1), ("b/run", 4)):
        (tmp_path / folder).mkdir(parents=True)
        lines = [{"step": k, "reward": k if k % steps == 0 else None} for k in range(1, 13)]
        (tmp_path / folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = scapo_eval.plots.training([tmp_path / "a/run", tmp_path / "b/run"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["run#1", "run#2"]
    figure = plots.training([TrainingLog("one", {"step": [1], "reward": [0.5]}, [])])
    assert [line.get_marker() for line in figure.axes[0].lines] == ["."]
    told = [Facts(k, str(k), 2, 1 + k % 2, setting) for k in range(40) for setting in ("long", "short")]
    runs = [faithscore_run(name, each, ["long", "short"]) for name, each in (("base", told), ("ours", told[1::2]))]
    figure = scapo_eval.plots.faithscore(scapo_eval.compare(runs, allow_different=True))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["base", "ours"]


def test_figures_are_made_of_results() -> None:
    import scapo_eval

    runs = [scapo_eval.score(rows(n), vocabulary="coco80", name=str(n), resamples=100) for n in (0, 1)]
    results = scapo_eval.compare(runs)
    assert scapo_eval.plots.frontier(results, width=5.5).get_figwidth() == 5.5
    (panel,) = scapo_eval.plots.differences(results, ["hal_rate"]).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["1"]
    assert panel.get_title() == "Hal. Rate"
    with pytest.raises(InputError, match="metric 'x' not found"):
        scapo_eval.plots.differences(results, ["x"])
    apart = scapo_eval.score(rows(1)[:20], vocabulary="coco80", name="few", resamples=100)
    for few in (runs[:1], [runs[0], apart]):
        with pytest.raises(InputError, match="that share 30 images"):
            scapo_eval.plots.differences(scapo_eval.compare(few))


def rows(wrong: int) -> list[dict[str, Any]]:
    """Forty captions, of which some name a car that is not there."""
    texts = ["A dog." + " A car." * (k % 3 <= wrong) for k in range(40)]
    return [{"image_id": k, "caption": text, "objects": ["dog"]} for k, text in enumerate(texts)]


def test_figures_say_what_they_draw(systems: tuple[CaptionEvidence, CaptionEvidence]) -> None:
    (axes,) = drawn(plots.labels(systems)).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sofa", "car", "cat"]
    shares = [line.get_xdata().tolist() for line in axes.lines]
    assert shares == [pytest.approx([100 / 60, 300 / 60, 2000 / 60]), pytest.approx([0, 200 / 60, 0])]
    plane = planes(Report((compare([run.scores for run in systems], resampling=DRAWN),), systems))[0]
    (axes,) = drawn(plots.frontier([plane])).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "Hal. Rate, % (lower is better)",
        "Cover Rate, % (higher is better)",
    )
    (axes,) = drawn(plots.frontier([replace(plane, metric_set="amber", x="chair", y="cover")])).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("CHAIR, % (lower is better)", "Cover, % (higher is better)")


# Colors that people with any color vision tell apart

SEEN = {  # Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB; rows of three
    "trichromat": "1 0 0  0 1 0  0 0 1",
    "protanope": "0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216  -0.003882 -0.048116 1.051998",
    "deuteranope": "0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413  -0.01182 0.04294 0.968881",
    "tritanope": "1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602  0.004733 0.691367 0.3039",
}
TO_XYZ = "0.4124564 0.3575761 0.1804375  0.2126729 0.7151522 0.072175  0.0193339 0.119192 0.9503041"
DISTINCT = 17.0
"""Least difference (CIE 1976) of two systems' colors; 2.3 is what an eye just sees."""


def matrix(text: str) -> Any:
    return np.array(text.split(), dtype=float).reshape(3, 3)


def linear(color: str) -> Any:
    share = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(light: Any) -> Any:
    x, y, z = matrix(TO_XYZ) @ np.clip(light, 0, 1) / np.array([0.95047, 1, 1.08883])
    a, b, c = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * b - 16, 500 * (a - b), 200 * (b - c)])


@pytest.mark.parametrize("vision", SEEN)
@pytest.mark.parametrize(("colors", "paper"), [(plots.COLORS, "#ffffff"), (plots.DARK_COLORS, "#1a1f25")])
def test_the_systems_colors_are_told_apart_by_every_eye(colors: tuple[str, ...], paper: str, vision: str) -> None:
    seen = [lab(matrix(SEEN[vision]) @ linear(color)) for color in colors]
    least = min(float(np.linalg.norm(a - b)) for k, a in enumerate(seen) for b in seen[:k])
    assert least >= DISTINCT
    weights = np.array([0.2126, 0.7152, 0.0722])
    behind = float(weights @ linear(paper))
    for color in colors:  # WCAG 2.2, 1.4.11
        own = float(weights @ linear(color))
        assert (max(own, behind) + 0.05) / (min(own, behind) + 0.05) >= 3, color


def test_the_page_has_the_colors_of_the_figures() -> None:
    light, dark = re.findall(r"(?:--s\d: #\w+;\s*){8}", bundle.style())
    assert tuple(re.findall(r"--s\d: (#\w+);", light)) == plots.COLORS
    assert tuple(re.findall(r"--s\d: (#\w+);", dark)) == plots.DARK_COLORS


def test_a_moving_average_has_as_many_steps_as_the_figure_says() -> None:
    values = [float(k == 11) for k in range(1, 22)]
    figure = plots.training([TrainingLog("one", {"step": list(range(1, 22)), "reward": values}, [])], smooth=4)
    (smooth,) = [line for line in figure.axes[0].lines if line.get_linewidth() == 1.3]
    assert smooth.get_ydata()[10] == pytest.approx(0.2)
    assert "means over 5 steps" in figure.legends[0].get_title().get_text()


def test_smoothing_is_a_mean_by_the_distance_of_steps_that_passes_over_gaps() -> None:
    steps, values = np.array([0.0, 1, 2, 3, 10]), np.array([0.0, 3.0, np.nan, 6.0, 9.0])
    assert plots.smoothed(steps, values, 0).tolist() == pytest.approx(values.tolist(), nan_ok=True)
    assert plots.smoothed(steps, values, 4).tolist() == pytest.approx([1.5, 3, np.nan, 4.5, 9], nan_ok=True)


def test_a_figure_says_where_systems_have_other_images() -> None:
    a, b = frozenset("abc"), frozenset("cde")
    assert shared_images([a, a]) == ""
    assert shared_images([a, a, b]) == "Not all systems were scored on the same images: some share only 1 image."
    assert shared_images([a, frozenset("xyz")]).endswith("some share no image.")


def test_faithscores_figure_has_a_panel_per_setting_with_the_values() -> None:
    def run(name: str, right: int) -> scapo_eval.Run:
        facts = [{"id": f"{setting}{k}", "facts": ["a"] * (2 + k % 3), "setting": setting}
                 for setting in ("detailed", "coarse") for k in range(40)]  # fmt: skip
        rows = [{**fact, "verified": [int(j < right) for j in range(len(fact["facts"]))]} for fact in facts]
        return scapo_eval.faithscore(rows, name=name)

    runs = [run("base", 1), run("ours", 2)]
    figure = scapo_eval.plots.faithscore(scapo_eval.compare(runs))
    assert [axes.get_title() for axes in figure.axes] == ["Detailed", "Coarse"]
    for axes, setting in zip(figure.axes, ("detailed", "coarse"), strict=True):
        points = [tuple(float(v[0]) for v in line.get_data()) for line in axes.lines]
        expected = [(each.values[f"{setting}_avg_facts"], 100 * each.values[f"{setting}_faithscore"]) for each in runs]
        assert points == expected
    rows = [{"image_id": k, "caption": "A dog."} for k in range(3)]
    with pytest.raises(InputError, match="needs results of scapo-eval faithscore"):
        scapo_eval.plots.faithscore(scapo_eval.score(rows, truth={str(k): ["dog"] for k in range(3)}))
