"""The report's figures, tables, plots and page, as far as they can be checked without a browser."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import PresenceOracle, Vocabulary, cap_score
from scapo_eval.base.errors import InputError, InputErrors, MissingExtra
from scapo_eval.base.verdicts import Verdict
from scapo_eval.benchmarks.capscore import capscore_metrics
from scapo_eval.benchmarks.labels import label_rows, together, wilson
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.matching.uses import USES
from scapo_eval.report import CaptionEvidence, Report, TrainingLog, html, plots, tables
from scapo_eval.report.data import (
    ISO_LEVELS,
    SurfaceForm,
    SuspectForm,
    caption_evidence,
    confidence_ellipse,
    density,
    guards,
    iso_curve,
    marked,
    planes,
    read_training_log,
    surface_forms,
    suspect_forms,
)
from scapo_eval.report.training import seed_groups, training_columns
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.render import render
from scapo_eval.results.results import Resampling, Results, Run, load_results
from scapo_eval.results.signature import Signature

VOCABULARY = Vocabulary.from_mapping(
    {"dog": ["dog", "dogs", "puppy"], "cat": ["cat"], "car": ["car"], "sky": ["sky"]}, ignore=["hot dog"]
)
TRUTH = PresenceOracle.from_objects({1: ["dog"], 2: ["cat", "dog"], 3: []}, labels=["dog", "cat", "car"])
CAPTIONS = [
    (1, "A dog, two dogs and a cat under the sky."),
    (2, "A puppy eats a hot dog."),
    (3, "A car and a cat wait here quietly. A car and a cat wait here quietly."),
    (3, "Nothing."),
]


def captions_file(path: Path, records: list[tuple[Any, str]]) -> Path:
    path.write_text("".join(json.dumps({"image_id": i, "caption": c}) + "\n" for i, c in records))
    return path


def a_run(folder: Path, name: str = "one", records: list[tuple[Any, str]] | None = None) -> CaptionEvidence:
    path = captions_file(folder / f"{name}.jsonl", records or CAPTIONS)
    return caption_evidence(path, VOCABULARY, TRUTH, name=name, options=ScoringOptions(), resampling=Resampling(50))


def a_report(folder: Path) -> Report:
    runs = (a_run(folder), a_run(folder, "two", [(i, text.replace("cat", "dog")) for i, text in CAPTIONS]))
    return Report((compare([run.scores for run in runs], resampling=Resampling(50)),), runs)


def column(rows: Mapping[str, list[Any]], name: str) -> dict[str, Any]:
    return dict(zip(VOCABULARY.labels, rows[name], strict=True))


def test_labels_count_claims_hallucinations_and_misses(tmp_path: Path) -> None:
    rows = label_rows(a_run(tmp_path).labels)
    assert column(rows, "mentions") == {"dog": 3, "cat": 3, "car": 2, "sky": 1}
    assert column(rows, "claims") == {"dog": 2, "cat": 2, "car": 1, "sky": 0}
    assert column(rows, "hallucinated") == {"dog": 0, "cat": 2, "car": 1, "sky": 0}
    assert column(rows, "rate") == {"dog": 0.0, "cat": 1.0, "car": 1.0, "sky": None}
    assert column(rows, "truth") == {"dog": 2, "cat": 1, "car": 0, "sky": 0}
    assert column(rows, "missed") == {"dog": 0, "cat": 1, "car": 0, "sky": 0}
    assert column(rows, "unknown") == {"dog": 0, "cat": 0, "car": 0, "sky": 1}


def test_aliases_and_what_stands_together(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert surface_forms(run) == [
        SurfaceForm("cat", 1, mentions=3, hallucinated=3, unknown=0, unclaimed=0),
        SurfaceForm("car", 2, mentions=2, hallucinated=2, unknown=0, unclaimed=0),
        SurfaceForm("dog", 0, mentions=1, hallucinated=0, unknown=0, unclaimed=0),
        SurfaceForm("dogs", 0, mentions=1, hallucinated=0, unknown=0, unclaimed=0),
        SurfaceForm("puppy", 0, mentions=1, hallucinated=0, unknown=0, unclaimed=0),
        SurfaceForm("sky", 3, mentions=1, hallucinated=0, unknown=1, unclaimed=0),
    ]
    most, counts, beside = together(run.labels)
    assert (most, counts, beside) == ([1, 2], [[2, 1], [1, 1]], [(1, 0, 1)])


def test_a_word_that_is_wrong_far_more_often_than_its_labels_others_is_suspected() -> None:
    def form(surface: str, mentions: int, hallucinated: int, unknown: int = 0, label: int = 0) -> SurfaceForm:
        return SurfaceForm(surface, label, mentions, hallucinated, unknown, 0)

    person = [form("man", 60, 6), form("people", 40, 4), form("drivers", 5, 4)]
    more = [form("drivers", 9, 5, unknown=2), form("alone", 9, 9, label=1)]
    assert suspect_forms([person, more]) == [SuspectForm("drivers", 0, 9, 12, 10, 100)]
    assert suspect_forms([person]) == []  # four mentions are too few
    assert suspect_forms([[form("man", 100, 10), form("men", 30, 6)]]) == []  # twice the rate, but the intervals touch
    assert suspect_forms([[form("man", 900, 300), form("men", 300, 170)]]) == []  # apart, but not twice


def test_uses_and_left_out_mentions_are_columns_of_a_page(tmp_path: Path) -> None:
    path = captions_file(tmp_path / "uses.jsonl", [(1, "A dog. There is no cat."), (2, "Possibly a dog.")])
    options = ScoringOptions(claims="asserted")
    run = caption_evidence(path, VOCABULARY, TRUTH, name="uses", options=options, resampling=Resampling(0))
    assert run.mentions.label_id.tolist() == [0, 0]
    matcher = html.AliasMatcher(VOCABULARY)
    columns = marked(run.texts, run.states, matcher, run.rewards, run.found, run.uses, run.counts)
    assert columns["label"] == [0, 1, 0]
    assert [USES[use] for use in columns["use"]] == ["claim", "negated", "hedged"]
    assert columns["verdict"] == [
        Verdict.SUPPORTED,
        Verdict.NOT_COUNTED,
        Verdict.SUPPORTED,
    ]  # the negated cat does not count
    assert [form.unclaimed for form in surface_forms(run)] == [1]


def test_guards(tmp_path: Path) -> None:
    found = guards(a_run(tmp_path))
    assert found["words"] == (10 + 6 + 16 + 1) / 4
    assert found["objects"] == (3 + 1 + 2) / 4
    assert found["repetition"] == pytest.approx(1 - (7 + 3 + 8) / (7 + 3 + 13))
    assert found["repeated_mentions"] == pytest.approx(1 - 6 / 9)
    assert found["no_claim"] == 0.25
    assert found["unknown"] == pytest.approx(1 / 6)
    assert found["identical"] == 0
    same = guards(a_run(tmp_path, "same", [(1, "A dog."), (2, "A dog."), (3, "A car.")]))
    assert same["identical"] == pytest.approx(2 / 3)


def test_density_is_the_papers_table_3(tmp_path: Path) -> None:
    found = density(a_run(tmp_path))
    assert found["objects"] == (2 + 1 + 2) / 4
    assert found["objects"] == found["objects_supported"] + found["objects_hallucinated"]
    assert (found["subsentences_supported"], found["subsentences_hallucinated"]) == (2 / 4, 3 / 4)
    assert found["subsentences"] == (1 + 1 + 2 + 1) / 4


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (1, 10, 0.0179, 0.4042), (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)],
)  # the last two: Newcombe 1998, Table I, method 3
def test_wilson_against_published_values(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, 0) == (None, None)


def test_iso_curves_lie_where_the_score_says() -> None:
    for level in ISO_LEVELS:
        curve = iso_curve(level)
        assert len(curve) > 1
        assert all(cap_score(hal, cover) == pytest.approx(level, abs=1e-6) for hal, cover in curve)


def test_the_ellipse_holds_95_percent() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_normal([0.2, 0.7], [[4e-4, 1e-4], [1e-4, 2e-4]], size=20_000)
    outline = confidence_ellipse(np.cov(drawn.T), (0.2, 0.7), 720)

    def polar(points: Any) -> tuple[Any, Any]:
        x, y = points[:, 0] - 0.2, points[:, 1] - 0.7
        return np.arctan2(y, x), np.hypot(x, y)

    (angle, distance), (along, border) = polar(drawn), polar(outline)
    order = np.argsort(along)
    reach = np.interp(angle, along[order], border[order], period=2 * math.pi)
    assert (distance <= reach).mean() == pytest.approx(0.95, abs=0.01)


def test_trails_replace_the_arrows_of_their_earlier_checkpoints(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, name) for name in ("base", "run-10", "run-20", "run-30", "other")]
    group = compare([run.scores for run in runs], resampling=Resampling(50))
    (plane,) = planes(Report((group,), tuple(runs), trails=("run-",)))
    assert (plane.trails, plane.arrows) == (((1, 2, 3),), (3, 4))
    assert plane.points[0].score == pytest.approx(runs[0].scores.cap_score)


def test_marks_count_in_utf16_units() -> None:
    matcher = html.AliasMatcher(VOCABULARY)
    texts = ["\U0001f436 dog \U0001f436\U0001f436 dogs", "\ud800 dog", "a hot dog, a dog", ""]
    columns = marked(texts, np.ones((4, 4), dtype=np.int8), matcher)
    assert columns["marks"] == [2, 1, 2, 0]
    starts, k = [], 0
    for n in columns["marks"]:
        at = 0
        for _ in range(n):
            starts.append(at + columns["gap"][k])
            at = starts[-1] + columns["length"][k]
            k += 1
    assert starts == [3, 12, 2, 2, 13]
    assert columns["verdict"] == [*[Verdict.SUPPORTED] * 3, Verdict.NOT_COUNTED, Verdict.SUPPORTED]
    first = texts[0].encode("utf-16-le")
    assert first[2 * 12 : 2 * (12 + columns["length"][1])].decode("utf-16-le") == "dogs"


def test_pieces_partition_every_text(tmp_path: Path) -> None:
    run = a_run(tmp_path, "odd", [(1, "\U0001f436 A dog. A cat, \U0001f436 and here another big cat."), (2, "")])
    columns = marked(run.texts, run.states, html.AliasMatcher(VOCABULARY), run.rewards)
    assert sum(columns["piece_length"]) == len(run.texts[0].encode("utf-16-le")) // 2
    assert columns["pieces"][1] == 0
    assert set(columns["reward"]) <= {1000, 0, -1000, -100}


# Tables


def amber_group(rows: Mapping[str, Mapping[str, float]]) -> Results:
    """Results with figures as given, in whole thousandths."""
    names = list(next(iter(rows.values())))
    formulas = {n: ratio(n, "n") for n in names}
    metrics = MetricSet("amber", (*names, "n"), formulas, {n: n != "chair" for n in names})
    runs = [
        Run(
            name=name,
            signature=Signature.of("amber"),
            metric_set=metrics,
            table=CountTable(
                metrics.columns, ("1",), np.array([[*(round(1000 * value) for value in figures.values()), 1000]])
            ),
            n_records=1,
            resampling=Resampling(0),
        )
        for name, figures in rows.items()
    ]
    return compare(runs)


AMBER = amber_group(
    {
        "Qwen2.5-VL": {"accuracy": 0.839, "precision": 0.845, "recall": 0.926, "f1": 0.884, "cap_score": 0.765},
        "+ SCAPO": {"accuracy": 0.874, "precision": 0.876, "recall": 0.944, "f1": 0.909, "cap_score": 0.828},
    }
)


def test_table_4_is_laid_out_as_in_the_paper() -> None:
    text = render(tables.table(Report((AMBER,)), "4"), "latex")
    assert "Configuration & Acc. $\\uparrow$ & Pre. $\\uparrow$ & Rec. $\\uparrow$ & F1 $\\uparrow$ \\\\" in text
    assert "Qwen2.5-VL & 83.9 & 84.5 & 92.6 & 88.4 \\\\" in text
    assert "+ SCAPO & 87.4{\\scriptsize\\,\\textcolor{red}{(+3.5)}}" in text


def test_table_1_joins_benchmarks_by_name_and_leaves_gaps() -> None:
    text = render(tables.table(Report((AMBER,)), "1"), "latex")
    assert "& \\multicolumn{2}{c}{AMBER} & \\multicolumn{2}{c}{MS COCO} & \\multicolumn{5}{c}{PhD} \\\\" in text
    assert "\\cmidrule(lr){2-3}\\cmidrule(lr){4-5}\\cmidrule(lr){6-10}" in text
    assert "Qwen2.5-VL & 76.5 & 83.9 & -- & -- & -- & -- & -- & -- & -- \\\\" in text
    assert "+ SCAPO & 82.8 & 87.4 & --" in text


def test_tables_escape_names_in_every_format(tmp_path: Path) -> None:
    run = a_run(tmp_path, 'a|b_c & <i>,\n"100%"')
    report = Report((compare([run.scores], resampling=Resampling(0)),), (run,))
    latex = render(tables.table(report, "scores"), "latex")
    assert 'a|b\\_c \\& \\(<\\)i\\(>\\), "100\\%" &' in latex
    markdown = render(tables.table(report, "scores"), "markdown")
    assert markdown.splitlines()[2].startswith('| a\\|b\\_c & \\<i\\>, "100%" | ')
    rows = list(csv.reader(io.StringIO(render(tables.table(report, "scores"), "csv"))))
    assert rows[1][0] == run.name
    assert float(rows[1][rows[0].index("Hal. Rate")]) == run.scores.hal_rate


def test_table_3_needs_captions() -> None:
    with pytest.raises(InputError, match="use caption files"):
        tables.table(Report((AMBER,)), "3")
    with pytest.raises(InputError, match="scores for this table not found"):
        tables.table(Report(), "2")


# Training runs


def write_run(folder: Path, metrics: list[Any], samples: list[Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    if samples is not None:
        (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    return folder


def test_a_training_run_is_read_with_gaps_and_sorted_samples(tmp_path: Path) -> None:
    samples = [{"step": s, "image_id": i, "response": f"{s} {i}"} for s in (0, 10) for i in (7, "000000000003")]
    folder = write_run(tmp_path / "run", [{"step": 0, "kl": 0.1}, {"step": 10, "hal_rate": 0.2, "kl": None}], samples)
    run = read_training_log(folder)
    assert run.name == "run"
    assert run.columns == {"step": [0, 10], "kl": [0.1, None], "hal_rate": [None, 0.2]}
    assert run.samples == [(0, "7", "0 7"), (10, "7", "10 7"), (0, "3", "0 000000000003"), (10, "3", "10 000000000003")]


@pytest.mark.parametrize("text", ["", "\n"])
def test_a_resumed_run_may_have_no_samples_and_no_alarms_yet(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run", [{"step": 1}])
    for name in ("samples.jsonl", "alarms.jsonl"):
        (folder / name).write_text(text)
    run = read_training_log(folder)
    assert (run.samples, run.alarms) == ([], [])


ALARM = {
    "step": 10, "name": "kl", "metric": "kl", "value": 1.5, "threshold": 1, "setting": "loss.kl_alarm = 1",
    "start": None,
}  # fmt: skip


def test_alarms_of_a_training_run_are_read_and_handed_to_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [{"step": 10, "kl": 1.5, "alarm_kl": 1.0}])
    assert read_training_log(folder).alarms == []
    (folder / "alarms.jsonl").write_text("".join(json.dumps(ALARM | {"step": step}) + "\n" for step in (20, 10)))
    run = read_training_log(folder)
    assert [alarm.step for alarm in run.alarms] == [10, 20]
    (shown,) = payload(html.page(Report(training_logs=(run,)), title="T"), "training")["runs"]
    assert shown["alarms"][0] == [10, "kl", "kl", 1.5, 1, "loss.kl_alarm = 1"]
    assert (shown["steps"], shown["columns"]) == ([10], {"kl": 0})  # flags have no charts


def test_logged_numbers_reach_the_page_to_six_digits(tmp_path: Path) -> None:
    values = [0.1754385964912, None, 1e300, 17.5, -3.25e-7, 123456.0, 0.0]
    rows = [{"step": k, "big": value, "kl": None if value == 1e300 else value} for k, value in enumerate(values)]
    run = read_training_log(write_run(tmp_path / "run", rows))
    header, data = training_columns(Report(training_logs=(run, run)))
    one, two = (each["columns"] for each in header["runs"])
    assert one["big"] == values  # no 32 bits hold it
    numbers = np.frombuffer(data, np.uint8).reshape(4, -1).T.copy().view("<f4").ravel()
    for at in (one["kl"], two["kl"]):
        kept = numbers[at : at + len(values)].tolist()
        assert np.isnan(kept[1])
        assert np.isnan(kept[2])
        assert [float(f"{v:.6g}") for v in kept if v == v] == [0.175439, 17.5, -3.25e-7, 123456.0, 0.0]


def test_runs_that_differ_in_the_seed_only_are_one_experiment(tmp_path: Path) -> None:
    def log(name: str, text: str | None) -> TrainingLog:
        folder = write_run(tmp_path / name, [{"step": 0}])
        if text is not None:
            (folder / "config.toml").write_text(text)
        return read_training_log(folder)

    settings = '# made by a program\n[run]\noutput = "{0}"\nseed = {0}\n[loss]\nkl = {1}\n'
    logs = [log(f"kl_{n}", settings.format(n, kl)) for n, kl in ((1, 0.01), (2, 0.01), (3, 0.0))]
    assert logs[0].settings == {"run.output": '"1"', "run.seed": "1", "loss.kl": "0.01"}
    assert seed_groups(logs) == ["kl", "kl", "kl_3"]
    assert seed_groups([log(name, None) for name in ("grpo-seed1", "grpo-seed2", "scapo", "dapo_7")]) == [
        "grpo", "grpo", "scapo", "dapo_7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": "high"}, r"alarms\.jsonl:1: 'step' must be a whole number, 'value' and 'threshold' numbers"),
        ({"metric": None}, r"the rest strings"),
    ],
)
def test_faulty_alarms_are_refused_by_line(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    folder = write_run(tmp_path / "run", [{"step": 10}])
    (folder / "alarms.jsonl").write_text(json.dumps(ALARM | change) + "\n")
    with pytest.raises(InputError, match=reason):
        read_training_log(folder)
    (folder / "alarms.jsonl").write_text(json.dumps({"step": 1}) + "\n")
    with pytest.raises(InputError, match=r"alarms\.jsonl:1: missing key 'name'"):
        read_training_log(folder)


@pytest.mark.parametrize(
    ("metrics", "samples", "reason"),
    [
        ([{"step": 1}, {"step": 1}], None, r"metrics\.jsonl:2: 'step' must be a whole number above"),
        ([{"kl": 1}], None, r"metrics\.jsonl:1: 'step' must"),
        ([{"step": 1, "kl": "low"}], None, r"metrics\.jsonl:1: 'kl' must be a number or null, found 'low'"),
        ([{"step": 1}], [{"step": 1, "image_id": 3}], r"samples\.jsonl:1: missing key 'response'"),
        ([{"step": 1}], [{"step": 1, "image_id": 3, "response": 4}], r"samples\.jsonl:1: 'step' must be a whole"),
        ([{"step": 1}], [{"step": 1, "image_id": "", "response": ""}], r"samples\.jsonl:1: 'image_id'"),
    ],
)
def test_faulty_runs_are_refused_by_line(tmp_path: Path, metrics: Any, samples: Any, reason: str) -> None:
    folder = write_run(tmp_path / "run", metrics, samples)
    with pytest.raises((InputError, InputErrors), match=reason):
        read_training_log(folder)


# Page and plots


def test_a_label_that_only_one_system_names_is_in_the_tables_of_all(tmp_path: Path) -> None:
    runs = (a_run(tmp_path), a_run(tmp_path, "two", [(image, "A dog.") for image, _ in CAPTIONS]))
    report = Report((compare([run.scores for run in runs], resampling=Resampling(0)),), runs)
    tables = payload(html.page(report, title="T"), "charts")["labels"]
    assert [table["label"] for table in tables] == [["dog", "cat", "car", "sky"]] * 2
    assert [table["hallucinated"][2] for table in tables] == [1, 0]


def payload(page: bytes, name: str) -> Any:
    found = re.search(rf'id="data-{name}">([^<]+)</script>'.encode(), page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b85decode(found[1].replace(b",", b"<"))))


@pytest.mark.slow
def test_the_page_is_one_file_that_allows_no_request(tmp_path: Path) -> None:
    page = html.page(a_report(tmp_path), title="T")
    assert page == html.page(a_report(tmp_path), title="T")
    text = page.decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    assert "img-src data:;" in policy[1]
    outside = re.sub(r'(id="data-\w+">)[^<]+', r"\1", text).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"https?://|<link|@import|url\((?!#|`?#)|\bfetch\(|XMLHttpRequest|innerHTML|insertAdjacent", outside
    )
    assert "<noscript>" in text
    assert "leeoniya" not in text  # only where a training run is
    texts = payload(page, "captions")["texts"]  # image by image, then system by system
    assert texts[:2] == [CAPTIONS[0][1], CAPTIONS[0][1].replace("cat", "dog")]
    assert sorted(texts) == sorted(text for _, c in CAPTIONS for text in (c, c.replace("cat", "dog")))


def test_names_notes_and_titles_are_escaped(tmp_path: Path) -> None:
    evil = "</title><script>x</script>\ud800'\"[/]"
    run = a_run(tmp_path, "evil")
    named = caption_evidence(
        tmp_path / "evil.jsonl", VOCABULARY, TRUTH, name=evil, options=ScoringOptions(), resampling=Resampling(0)
    )
    page = html.page(Report((compare([named.scores], resampling=Resampling(0)),), (named,)), title=evil).decode()
    assert "<script>x" not in page
    assert page.count("<script>") == 1
    assert payload(page.encode(), "captions")["systems"][0]["name"] == evil
    assert run.name == "evil"


def test_pictures_are_joined_by_id_and_embedded_on_request(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "pictures" / "val"
    folder.mkdir(parents=True)
    image.new("RGB", (640, 320), "red").save(folder / "COCO_val2014_000000000002.jpg")
    image.new("RGB", (10, 10), "red").save(folder / "notes.png")
    (folder / "000000000003.jpg").write_bytes(b"no picture")
    found = html.image_files(tmp_path / "pictures", ["1", "2"])
    assert list(found) == ["2"]
    assert html.addresses(found, str(tmp_path / "r.html")) == {"2": "pictures/val/COCO_val2014_000000000002.jpg"}
    small = html.thumbnails(found)["2"]
    data = base64.b64decode(small.removeprefix("data:image/jpeg;base64,"))
    assert image.open(io.BytesIO(data)).size == (220, 110)
    page = html.page(a_report(tmp_path), title="T", images={"2": "a.jpg"}).decode()
    assert "img-src data: file:;" in page
    with pytest.raises(InputError, match="not a readable image"):
        html.thumbnails(html.image_files(tmp_path / "pictures", ["3"]))
    with pytest.raises(InputError, match="pictures of these images not found"):
        html.image_files(tmp_path / "pictures", ["77"])


@pytest.mark.parametrize(
    ("image", "files", "found"),
    [
        ("val/cat.jpg", ["train/cat.jpg", "val/cat.jpg"], "val/cat.jpg"),
        ("val/cat", ["train/cat.jpg", "val/cat.jpg"], "val/cat.jpg"),
        ("val/cat.jpg", ["cat.jpg"], "cat.jpg"),
        ("pics/val/cat.jpg", ["val/cat.png"], "val/cat.png"),
        ("cat", ["val/cat.jpg"], "val/cat.jpg"),
        ("test/cat.jpg", ["train/cat.jpg", "val/cat.jpg"], None),
        ("cat", ["train/cat.jpg", "val/cat.jpg"], None),
        ("7", ["a/7.jpg", "b/7.jpg"], "a/7.jpg"),
    ],
)
def test_pictures_are_found_by_path_and_then_by_a_unique_name(
    tmp_path: Path, image: str, files: list[str], found: str | None
) -> None:
    for file in (*files, "other.jpg"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    expected = {} if found is None else {image: tmp_path / found}
    assert html.image_files(tmp_path, [image, "other"]) == expected | {"other": tmp_path / "other.jpg"}


def test_a_picture_is_never_shown_for_two_images_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "cat.jpg").touch()
    found = html.image_files(tmp_path, ["train/cat.jpg", "val/cat.jpg"])
    assert found == {"val/cat.jpg": tmp_path / "val" / "cat.jpg"}


@pytest.mark.parametrize("form", plots.FORMATS)
@pytest.mark.slow
def test_plots_are_drawn_and_equal_input_gives_equal_bytes(tmp_path: Path, form: str) -> None:
    report = a_report(tmp_path)
    run = TrainingLog("run $a$ $b$", {"step": [0, 1, 2], "hal_rate": [0.2, None, 0.1], "kl": [0, 1, 2]}, [])
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[form]

    def pictures() -> list[bytes]:
        streams = [io.BytesIO() for _ in range(3)]
        figures = (plots.frontier(planes(report)), plots.labels(report.captions), plots.training([run]))
        for figure, stream in zip(figures, streams, strict=True):
            plots.save(figure, stream, form)
        return [stream.getvalue() for stream in streams]

    first = pictures()
    assert all(picture.startswith(start) for picture in first)
    assert first == pictures()


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("jinja2", lambda report: html.page(report, title="T")),
        ("matplotlib", lambda report: plots.frontier(planes(report))),
        ("PIL", lambda report: html.thumbnails({"1": Path("1.jpg")})),
    ],
)
def test_without_the_extra_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, make: Callable[[Report], Any]
) -> None:
    report = a_report(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[report\]"):
        make(report)


def test_plots_say_what_is_missing() -> None:
    with pytest.raises(InputError, match="nothing to draw: a frontier"):
        plots.frontier([])
    with pytest.raises(InputError, match="use caption files"):
        plots.labels([])
    with pytest.raises(InputError, match=r"folder of a training run, with metrics\.jsonl"):
        plots.training([])
    with pytest.raises(InputError, match=r"must end in \.png, \.svg, \.pdf"):
        plots.picture_format("figure.jpg")


def test_a_results_file_alone_gives_a_frontier(tmp_path: Path) -> None:
    metrics = capscore_metrics()
    run = Run(
        name="s",
        signature=Signature.of("capscore"),
        metric_set=metrics,
        table=CountTable(metrics.columns, ("1", "2"), np.array([[1, 3, 1, 2, 4, 5, 2, 1, 0]] * 2, dtype=np.int64)),
        n_records=2,
    )
    run.save(tmp_path / "r.json")
    group = Results(load_results(tmp_path / "r.json", Resampling(20)))
    (plane,) = planes(Report((group,)))
    assert (plane.points[0].x, plane.points[0].y) == pytest.approx((1 / 3, 1 / 2))
    page = html.page(Report((group,)), title="T").decode()
    assert '<section id="frontier"' in page
    assert '<section id="captions"' not in page


def test_mentions_that_do_not_count_are_marked_as_such(tmp_path: Path) -> None:
    path = captions_file(tmp_path / "c.jsonl", [(1, "A dog sits here. There is no cat in the picture.")])
    found = {}
    for claims in ("all", "asserted"):
        options = ScoringOptions(claims=claims)  # type: ignore[arg-type]
        run = caption_evidence(path, VOCABULARY, TRUTH, name="c", options=options, resampling=Resampling(0))
        (system,) = payload(html.page(Report(captions=(run,)), title="T"), "captions")["systems"]
        found[claims] = (system["verdict"], system["reward"], run.scores.counts["hallucinated"], guards(run)["objects"])
    assert found == {"all": ([1, 0], [1000, -1000], 1, 2.0), "asserted": ([1, 3], [1000, -100], 0, 1.0)}
