"""Runs and results: what stands in them, and that a results file brings them back, whatever the benchmark."""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastjsonschema
import numpy as np
import pytest

from scapo_eval import InputError
from scapo_eval.base.version import __version__
from scapo_eval.benchmarks.amber.formulas import METRICS as AMBER
from scapo_eval.benchmarks.capscore import capscore_metrics
from scapo_eval.benchmarks.chair import METRICS as CHAIR
from scapo_eval.benchmarks.claimscore import claim_metrics
from scapo_eval.benchmarks.density import density_metrics
from scapo_eval.benchmarks.facts import COLUMNS_0_2
from scapo_eval.benchmarks.facts import METRICS as FACTS
from scapo_eval.benchmarks.faithscore import faithscore_metrics
from scapo_eval.benchmarks.hallusionbench import metrics_of as hallusionbench_metrics
from scapo_eval.benchmarks.mmhal import METRICS as MMHAL
from scapo_eval.benchmarks.objhal import METRICS as OBJHAL
from scapo_eval.benchmarks.phd import phd_metrics
from scapo_eval.benchmarks.pope import pope_metrics
from scapo_eval.benchmarks.yesno import yesno_metrics
from scapo_eval.files.source import Source
from scapo_eval.results import count_files
from scapo_eval.results.benchmark import SUMMARIES, Benchmark, benchmark, benchmarks, metric_set_of
from scapo_eval.results.comparison import compare
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet, of_version, ratio
from scapo_eval.results.results import MetricValue, NotResults, Resampling, Results, Run, load_results
from scapo_eval.results.signature import Signature

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "results-1.schema.json"
METRIC_SETS = [
    AMBER,
    CHAIR,
    FACTS,
    MMHAL,
    OBJHAL,
    density_metrics(),
    capscore_metrics(),
    claim_metrics(("presence", "count")),
    capscore_metrics(dagger=True),
    hallusionbench_metrics(["", "vd", "vd_math"]),
    faithscore_metrics([]),
    faithscore_metrics(["detailed", "coarse"]),
    yesno_metrics(["", "adversarial"]),
    pope_metrics(["random", "popular"]),
    phd_metrics(["base_attribute", "base_counting", "ccs"]),
]
each_metric_set = pytest.mark.parametrize("metrics", METRIC_SETS, ids=lambda m: f"{m.name}-{len(m.columns)}")


def a_run(name: str = "a", metrics: MetricSet = CHAIR, images: int = 40, seed: int = 0, **others: Any) -> Run:
    rows = np.random.default_rng(seed).integers(1, 9, (images, len(metrics.columns)))
    position = {name: k for k, name in enumerate(metrics.columns)}
    for name in {"captions", "responses"} & position.keys():
        rows[:, position[name]] = 1
    for few, many in metrics.at_most:
        rows[:, position[few]] = np.minimum(rows[:, position[few]], rows[:, position[many]])
    for parts, whole in metrics.adds_up:
        rows[:, position[whole]] = sum(rows[:, position[part]] for part in parts)
    table = CountTable(metrics.columns, tuple(f"i{k:02}" for k in range(images)), rows)
    signature = others.pop("signature", Signature.of(metrics.name, vocab="v@1", n=images))
    return Run(name=name, signature=signature, metric_set=metrics, table=table, n_records=images, **others)


# ---- benchmarks ----


def test_metric_sets_stand_here_for_every_benchmark() -> None:
    assert {metrics.name for metrics in METRIC_SETS} == {each.name for each in benchmarks() if each.metric_set}


@each_metric_set
def test_metrics_are_found_again(metrics: MetricSet) -> None:
    again = metric_set_of(metrics.name, metrics.columns)
    counts = np.arange(1, len(metrics.columns) + 1)
    assert list(again.formulas) == list(metrics.formulas)
    assert again.columns == metrics.columns
    assert again.higher_is_better == metrics.higher_is_better
    assert again.plain_numbers == metrics.plain_numbers
    assert {k: repr(v) for k, v in again.score(counts).items()} == {
        k: repr(v) for k, v in metrics.score(counts).items()
    }


@each_metric_set
def test_results_are_pickled(metrics: MetricSet) -> None:
    drawn = Resampling(20)
    results = compare([a_run(metrics=metrics, resampling=drawn), a_run("b", metrics, seed=1, resampling=drawn)])
    again = pickle.loads(pickle.dumps(results))
    assert again.to_dict() == results.to_dict()
    some = replace(metrics, formulas={name: metrics.formulas[name] for name in list(metrics.formulas)[:1]})
    assert list(pickle.loads(pickle.dumps(some)).formulas) == list(some.formulas)


def test_metric_sets_of_no_benchmark_are_pickled_with_their_formulas() -> None:
    own = MetricSet("own", ("right", "asked"), {"accuracy": ratio("right", "asked")})
    assert pickle.loads(pickle.dumps(own)) == own


@pytest.mark.parametrize("name", SUMMARIES)
def test_records_are_complete(name: str) -> None:
    from scapo_eval.cli.main import cli

    record = benchmark(name)
    assert isinstance(record, Benchmark)
    assert record.name == name
    assert SUMMARIES[name].endswith(".")
    assert record.summary == SUMMARIES[name]
    command = cli.get_command(None, record.verb)  # type: ignore[arg-type]
    assert command is not None
    assert command.help == record.help
    taken = {parameter.name for parameter in command.params}
    assert {*record.options, record.files} <= taken
    if record.function is not None:  # what the command line takes, Python takes, too
        own = set(inspect.signature(record.function).parameters)
        written = {name for name, option in record.options.items() if option.file == "written"}
        assert {*record.options, record.files} - written <= own
    for metrics in METRIC_SETS:
        if metrics.name == name:
            for x, y, title in record.frontiers:
                assert title
                assert {x, y} <= set(metrics.formulas) or x.endswith("_dagger")


def test_benchmarks_come_in_the_order_of_the_help() -> None:
    assert [record.name for record in benchmarks()] == list(SUMMARIES)
    with pytest.raises(InputError, match=r"unknown benchmark 'cider' \(known: capscore, "):
        benchmark("cider")


def test_unknown_metrics_and_foreign_columns_are_errors() -> None:
    with pytest.raises(InputError, match=r"does not know the metrics of 'cider' \(known: capscore, "):
        metric_set_of("cider", ["a"])
    with pytest.raises(InputError, match="are not those of 'chair'"):
        metric_set_of("chair", ["a"])


# ---- runs ----


def test_a_run_stamps_how_its_intervals_are_drawn() -> None:
    run = a_run(resampling=Resampling(200, 7))
    assert str(run.signature) == f"chair|vocab:v@1|n:40|bs:200|seed:7|interval:wilson|v:{__version__}"
    again = run.redrawn(Resampling(100, 9, 0.9))
    assert str(again.signature) == f"chair|vocab:v@1|n:40|bs:100|seed:9|ci:0.9|interval:wilson|v:{__version__}"
    assert again.redrawn(Resampling(200, 7)).signature == run.signature
    assert run.redrawn(Resampling(200, 7)) is run


def test_values_and_metrics_agree() -> None:
    run = a_run(printed={"chair_i": 12.5}, other_counts={"skipped": 3}, resampling=Resampling(50))
    assert {name: metric.value for name, metric in run.metrics.items()} == run.values
    total = run.table.counts()
    assert run.values["chair_i"] == total["hallucinated_mentions"] / total["mentions"]
    chair_i = run.metrics["chair_i"]
    assert isinstance(chair_i, MetricValue)
    assert chair_i.low is not None
    assert chair_i.high is not None
    assert chair_i.value is not None
    assert chair_i.low < chair_i.value < chair_i.high
    assert (chair_i.printed, run.metrics["chair_s"].printed) == (12.5, None)
    assert run.counts == {**total, "skipped": 3}
    assert run.n_images == 40
    assert (run.redrawn(Resampling(0)).metrics["chair_i"].low, run.redrawn(Resampling(0)).values) == (None, run.values)


@pytest.mark.parametrize(("given", "found"), [(None, "NoneType"), (["a.json"], "list"), (b"a.json", "bytes")])
def test_results_are_read_from_paths(given: Any, found: str) -> None:
    with pytest.raises(InputError, match=f"expected a path, found {found}"):
        load_results(given)


def test_runs_and_results_are_shown_in_one_line() -> None:
    runs = [a_run(f"{k}" * 60) for k in range(6)]
    results = compare(runs, resampling=Resampling(0))
    for shown in (repr(runs[0]), repr(results)):
        assert "\n" not in shown
        assert len(shown) < 250
    assert "40 images" in repr(runs[0])


# ---- results files ----


@each_metric_set
def test_a_run_survives_the_file(metrics: MetricSet, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    run = a_run(
        metrics=metrics,
        other_counts={"unparsed": 2, "duplicate": 0},
        verdicts={"accuracy": {"q1": True, "q2": False}},
        printed={next(iter(metrics.formulas)): 12.3},
        notes=("one sentence",),
        resampling=Resampling(20, 3),
    )
    run.save(path)
    (again,) = load_results(path, Resampling(20, 3))
    for name in ("name", "signature", "n_records", "other_counts", "verdicts", "printed", "notes", "resampling"):
        assert getattr(again, name) == getattr(run, name), name
    assert again.table.columns == run.table.columns
    assert again.table.image_ids == run.table.image_ids
    assert np.array_equal(again.table.rows, run.table.rows)
    assert again.to_dict() == run.to_dict()
    assert again.evidence() == run.evidence()


def test_results_survive_the_file(tmp_path: Path) -> None:
    drawn = Resampling(50, 3)
    results = compare([a_run("a", seed=1), a_run("b", seed=2), a_run("c", seed=3)], resampling=drawn)
    results.save(tmp_path / "r.json")
    written = json.loads((tmp_path / "r.json").read_text())
    assert {name: written[name] for name in ("systems", "comparisons", "verdicts")} == json.loads(
        json.dumps(results.to_dict())
    )
    again = Results(load_results(tmp_path / "r.json", drawn))
    assert compare(again.runs).to_dict() == results.to_dict()


def test_loading_draws_the_intervals_otherwise(tmp_path: Path) -> None:
    a_run(resampling=Resampling(50, 3)).save(tmp_path / "r.json")
    (again,) = load_results(tmp_path / "r.json", Resampling(60, 4))
    assert "|bs:60|seed:4|" in again.signature
    assert again.metrics == a_run(resampling=Resampling(60, 4)).metrics


RIGHT = ("questions", "figures", "pairs", "easy", "hard")
FORMER = {  # columns of version 0.2, the metrics of its files, and those that stood for something else
    "mmhal": (MMHAL, [column for column in MMHAL.columns if column != "informative_sum"], [], ["mmhal_score"]),
    "facts": (FACTS, list(COLUMNS_0_2), ["dcscore"], ["f1", "precision", "capeval_p"]),
    "hallusionbench": (
        hallusionbench_metrics(["", "vd"]),
        [f"{part}{unit}{end}" for part in ("", "vd_") for unit in RIGHT for end in ("", "_right")],
        ["easy_acc", "hard_acc", "vd_easy_acc"],
        ["a_acc", "f_acc", "average", "vd_q_acc"],
    ),
}


@pytest.mark.parametrize("name", FORMER)
def test_counts_of_version_0_2_give_what_they_still_can(name: str, tmp_path: Path) -> None:
    metrics, columns, mended, kept = FORMER[name]
    path = tmp_path / "r.json"
    Results((a_run("a", of_version(metrics, columns, columns, mended)),)).save(path)
    document = json.loads(path.read_text())
    for metric in mended:
        document["systems"][0]["metrics"][metric] = {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6}
    path.write_text(json.dumps(document))
    [run] = load_results(path)
    assert run.table.columns == tuple(columns)
    assert set(kept) <= set(run.metrics)
    assert not set(mended) & set(run.metrics)
    said = [note for note in run.notes if "earlier version" in note]
    assert len(said) == bool(mended)
    assert all(metric in said[0] for metric in mended)


def old_file(path: Path, change: Any = None) -> Path:
    """A results file of the first versions: no claims in the signature, ``skipped`` in place of ``skip``, no notes."""
    table = a_run().table
    document = {
        "format": "scapo-results/1",
        "metric": "chair",
        "systems": [
            {
                "name": "old",
                "signature": "chair|profile:reference|synonyms:1|oracle:12|world:closed|n:40|ids:631aa145|skipped:2"
                "|v:0.0.9",
                "n_captions": 40,
                "n_images": 40,
                "metrics": {"chair_i": {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "printed": 50.0}},
                "counts": {**table.counts(), "skipped": 2},
            }
        ],
        "comparisons": [],
        "per_image": [
            {"columns": list(table.columns), "image_ids": list(table.image_ids), "rows": table.rows.tolist()}
        ],
    }
    if change:
        change(document)
    path.write_text(json.dumps(document) + "\n")
    return path


def test_old_files_are_read(tmp_path: Path) -> None:
    (old,) = load_results(old_file(tmp_path / "old.json"), Resampling(50, 3))
    assert (old.name, old.n_records, old.other_counts) == ("old", 40, {"skipped": 2})
    assert old.values == a_run().values
    assert old.metrics["chair_i"].printed == 50.0
    assert str(old.signature).endswith(f"|skipped:2|bs:50|seed:3|interval:wilson|v:0.0.9|drawn:{__version__}")
    now = Signature.of(
        "chair", profile="reference", synonyms="1", oracle="12", world="closed", claims="all", n=7, skip=1
    )
    assert old.signature.differences(now) == {}
    assert now.differences(old.signature) == {}
    assert replace(old, name="new").signature == old.signature  # stamped again, nothing accumulates
    results = compare([old, a_run("new", seed=1)], resampling=Resampling(20), allow_different=True)
    assert {row["n_images"] for row in results.comparisons} == {40}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.pop("per_image"), "contains no counts per image"),
        (lambda d: d.update(metric="cider"), "does not know the metrics of 'cider'"),
        (lambda d: d["per_image"][0].update(columns=["a"]), r"rows\[0\] \(image i00\): 10 counts for 1 columns"),
        (lambda d: d["per_image"].pop(), "per_image: 0 entries for 1 systems"),
        (lambda d: d["systems"][0].pop("n_captions"), r"systems\[0\].n_captions: must be a non-negative whole number"),
        (lambda d: d["systems"][0].update(signature="chair|n"), "not a valid signature"),
        (lambda d: d["systems"][0].update(signature=7), r"systems\[0\].signature: must be a string, not a number"),
        (lambda d: d.update(systems=7), "systems: must be an array, not a number"),
        (lambda d: d.update(systems=[], per_image=[]), "systems: empty"),
        (lambda d: d["per_image"][0]["rows"][3].__setitem__(2, -1), r"per_image\[0\].rows\[3\].hallucinated .*got -1"),
        (lambda d: d["per_image"][0]["rows"][3].__setitem__(2, 1.5), r"rows\[3\].hallucinated .*got 1.5"),
        (lambda d: d["per_image"][0]["rows"][3].__setitem__(2, True), r"rows\[3\].hallucinated .*got True"),
        (lambda d: d["per_image"][0]["rows"][3].__setitem__(2, 2**70), r"rows\[3\].hallucinated"),
        (
            lambda d: d["per_image"][0]["rows"][3].__setitem__(3, 99),
            r"per_image\[0\].rows\[3\] \(image i03\): covered 99 is more than truth \d",
        ),
        (lambda d: d["per_image"][0]["rows"][3].pop(), r"rows\[3\] \(image i03\): 9 counts for 10 columns"),
        (lambda d: d["per_image"][0]["rows"].pop(), r"39 rows for 40 image_ids"),
        (
            lambda d: d["per_image"][0]["image_ids"].__setitem__(1, "i00"),
            r"image_ids: 'i00' appears twice \(at 0 and 1\)",
        ),
        (lambda d: d["per_image"][0]["image_ids"].__setitem__(1, 7), r"image_ids\[1\]: must be a string"),
        (
            lambda d: d["per_image"][0].update(verdicts={"accuracy": {"q": 1}}),
            "verdicts.accuracy.q: must be true or false",
        ),
        (lambda d: d["systems"][0]["counts"].update(truth=3), r"systems\[0\].counts.truth: 3, but the rows add up to"),
        (lambda d: d["systems"][0]["counts"].update(skipped=-3), r"systems\[0\].counts.skipped: must be a non-neg"),
        (lambda d: d["systems"][0].update(notes=[1]), r"systems\[0\].notes"),
        (lambda d: d["systems"].__setitem__(0, None), r"systems\[0\]: must be an object"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, change: Any, reason: str) -> None:
    path = old_file(tmp_path / "r.json", change)
    with pytest.raises(InputError, match=reason) as error:
        load_results(path)
    assert error.value.path == str(path)


# ---- counts in parquet ----


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a run with more images than a results file lists as JSON."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[formats]'")
    monkeypatch.setattr(count_files, "COUNTS_IN_JSON", 39)
    run = a_run(verdicts={"accuracy": {"q1": True}}, resampling=Resampling(20, 3))
    ids = ("\udc80", *run.table.image_ids[1:])  # as JSON may contain
    cells = np.arange(2**64 - 40, 2**64, dtype=np.uint64)
    table = replace(run.table, image_ids=ids, cells=cells)
    return replace(run, table=table, signature=Signature.of("chair", truth=table.truth, n=40))


def counts_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.*.counts.parquet"))


def test_many_counts_survive_in_a_parquet_file(many: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    few = replace(a_run("few", images=39), resampling=Resampling(20, 3))
    compare([many, few], allow_different=True, resampling=Resampling(20, 3)).save(path)
    written = json.loads(path.read_text())
    assert written["per_image"][0].keys() == {"columns", "counts", "verdicts"}
    assert written["per_image"][1].keys() == {"columns", "image_ids", "rows"}
    fastjsonschema.compile(json.loads(SCHEMA.read_text()))(written)
    again, other = load_results(path, Resampling(20, 3))
    assert again.evidence() == many.evidence()
    assert again.table.rows.dtype == np.int64
    assert other.evidence() == few.evidence()
    assert len(load_results(Source(path))) == len(load_results(str(tmp_path / "*.json"))) == 2


def test_a_results_file_that_is_replaced_keeps_its_counts_until_then(
    many: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    stranger = tmp_path / f"s.json.{'0' * 16}.counts.parquet"
    stranger.touch()
    many.save(path)
    before = counts_of(path)
    backward = replace(many.table, rows=many.table.rows[::-1])
    other = replace(many, table=backward)
    with monkeypatch.context() as patch:
        patch.setattr("scapo_eval.results.results.dump_json", lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            other.save(path)
    assert load_results(path)[0].evidence() == many.evidence()
    other.save(path)
    assert load_results(path)[0].evidence() == other.evidence()
    (after,) = counts_of(path)
    assert after not in before
    a_run(images=9).save(path)
    assert counts_of(path) == []
    assert stranger.exists()


def test_counts_stay_in_the_results_without_pyarrow_or_without_a_folder(
    many: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    many.save("-")
    assert json.loads(capfdbinary.readouterr().out)["per_image"][0]["rows"] == many.table.rows.tolist()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    many.save(tmp_path / "r.json")
    assert load_results(tmp_path / "r.json")[0].evidence() == many.evidence()


def changed_table(path: Path, change: Any) -> None:
    """Changes the parquet file of a results file, with its new hash."""
    import pyarrow.parquet as pq

    (counts,) = counts_of(path)
    pq.write_table(change(pq.read_table(counts)), counts)
    document = json.loads(path.read_text())
    document["per_image"][0]["counts"]["sha256"] = hashlib.sha256(counts.read_bytes()).hexdigest()
    path.write_text(json.dumps(document))


def with_column(table: Any, name: str, value: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, [[value] * len(table)])


def renamed(path: Path, name: Any) -> None:
    document = json.loads(path.read_text())
    document["per_image"][0]["counts"] = name
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: counts_of(path)[0].unlink(), r"per_image\[0\].counts: .*not found; keep this file beside"),
        (lambda path: counts_of(path)[0].write_bytes(b"PAR1"), "other counts than those of the results file"),
        (lambda path: renamed(path, {"file": "../a.counts.parquet", "sha256": "0"}), "must name a file"),
        (lambda path: renamed(path, 7), "must name a file"),
        (lambda path: changed_table(path, lambda t: t.drop_columns(["count:truth"])), "has other columns"),
        (lambda path: changed_table(path, lambda t: t.slice(1)), "n_images: 40, but the rows say 39|add up to"),
        (
            lambda path: changed_table(path, lambda t: with_column(t, "count:truth", -1)),
            r"rows\[0\].truth \(image .*\): must be a non-negative whole number, got -1",
        ),
        (
            lambda path: changed_table(path, lambda t: with_column(t, "count:truth", None)),
            "cells that are not whole numbers",
        ),
        (
            lambda path: changed_table(path, lambda t: with_column(t, "count:truth", 1.5)),
            "cells that are not whole numbers",
        ),
    ],
)
def test_damaged_counts_are_named(many: Run, tmp_path: Path, damage: Any, reason: str) -> None:
    path = tmp_path / "r.json"
    many.save(path)
    assert load_results(path)
    damage(path)
    with pytest.raises(InputError, match=reason) as error:
        load_results(path)
    assert error.value.path == str(path)


def test_files_of_another_kind_are_no_results(tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    path.write_text('{"image_id": 1, "caption": "a dog"}\n{"image_id": 2, "caption": "a dog"}\n')
    with pytest.raises(NotResults, match="not a results file of format scapo-results/1"):
        load_results(path)
