"""``scapo-eval compare`` with results files, and with raw files of any benchmark (``--benchmark``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.cli.compare import VERBS as BENCHMARKS
from scapo_eval.cli.main import VERBS

Outcome = tuple[int, str, str]
ScapoEval = Callable[..., Outcome]

TRUTH = {str(image): ["dog"] if image % 2 else ["cat"] for image in range(40)}
CAPTIONS = {
    "honest": [{"image_id": image, "caption": f"A {words[0]}."} for image, words in TRUTH.items()],
    "doggy": [{"image_id": image, "caption": "A dog."} for image in TRUTH],
}
ANSWERS = {
    name: [{"id": str(k), "image": f"{k}.jpg", "response": says, "label": "yes"} for k in range(40)]
    for name, says in (("agrees", "Yes"), ("denies", "No"))
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Changes to a folder with a ground truth, two caption files and two answer files."""
    (tmp_path / "truth.json").write_text(json.dumps({"labels": ["cat", "dog"], "objects": TRUTH}))
    for name, records in {**CAPTIONS, **ANSWERS}.items():
        write(tmp_path / f"{name}.jsonl", records)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("verb", ["score", "chair"])
@pytest.mark.parametrize("spelling", [["--benchmark", "{}"], ["--benchmark={}"]])
def test_raw_captions_are_what_the_verb_makes_of_them(
    run: ScapoEval, world: Path, verb: str, spelling: list[str]
) -> None:
    files, options = ["honest.jsonl", "doggy.jsonl"], ["--truth", "truth.json", "--json", "--resamples", 50]
    words = [word.format(verb) for word in spelling]
    direct = run(verb, *files, *options)
    assert direct[0] == 0
    assert json.loads(direct[1])["comparisons"]
    assert run("compare", *files, *words, *options) == direct
    assert run("compare", *words, *options, *files) == direct


def test_raw_answers_with_the_verbs_own_options(run: ScapoEval, world: Path) -> None:
    code, out, _ = run(
        "compare", "agrees.jsonl", "denies.jsonl", "--benchmark", "yesno", "--parser", "lmms", "--test", "mcnemar",
        "--json",
    )  # fmt: skip
    row = next(row for row in json.loads(out)["comparisons"] if row["metric"] == "accuracy")
    assert code == 0
    assert (row["baseline"], row["system"], row["difference"], row["test"]) == ("agrees", "denies", -1.0, "mcnemar")


def test_every_benchmark_is_a_verb_and_shows_its_options(run: ScapoEval) -> None:
    assert set(BENCHMARKS) <= set(VERBS)
    for name in BENCHMARKS:
        code, out, _ = run("compare", "--benchmark", name, "--help")
        assert code == 0
        assert f"compare --benchmark {name}" in out
    code, out, _ = run("compare", "--help")
    assert code == 0
    assert ", ".join(BENCHMARKS) in " ".join(out.split())


@pytest.mark.parametrize("name", [["--benchmark", "bleu"], ["--benchmark=show"], ["--benchmark"]])
def test_an_unknown_benchmark_lists_the_known_ones(run: ScapoEval, world: Path, name: list[str]) -> None:
    code, out, err = run("compare", "honest.jsonl", "doggy.jsonl", *name)
    assert (code, out) == (2, "")
    assert ", ".join(BENCHMARKS) in err


def test_one_raw_file_is_nothing_to_compare(run: ScapoEval, world: Path) -> None:
    code, _, err = run("compare", "honest.jsonl", "--benchmark", "chair", "--truth", "truth.json")
    assert code == 2
    assert "nothing to compare; to score it: scapo-eval chair" in err


@pytest.mark.parametrize(("file", "kind"), [("honest.jsonl", "own captions"), ("agrees.jsonl", "own answers")])
def test_raw_files_without_benchmark_get_a_hint(run: ScapoEval, world: Path, file: str, kind: str) -> None:
    code, _, err = run("compare", file, file)
    assert code == 2
    assert err.startswith(f"scapo-eval: {file}: not a results file")
    assert kind in err
    assert "--benchmark NAME (score, claims, chair" in err
    assert "-o" in err


def test_results_files_that_cannot_be_read(run: ScapoEval, world: Path) -> None:
    assert run("chair", "honest.jsonl", "--truth", "truth.json", "-o", "good.json", "-q")[0] == 0
    good = json.loads(Path("good.json").read_text())
    damaged: dict[str, Any] = {
        "no systems": {**good, "systems": None},
        "fewer tables": {**good, "per_image": []},
        "no counts": {**good, "systems": [{"name": "a"}]},
        "short rows": {**good, "per_image": [{**good["per_image"][0], "rows": [[1]]}]},
        "another metric": {**good, "metric": "cider"},
    }
    for name, document in damaged.items():
        path = Path(f"{name}.json")
        path.write_text(json.dumps(document))
        code, out, err = run("compare", "good.json", path)
        assert (code, out) == (2, ""), name
        assert err.startswith(f"scapo-eval: {path}: "), name
    code, _, err = run("compare", "good.json", "absent.json")
    assert code == 2
    assert err.startswith("scapo-eval: absent.json: file not found")


def test_intervals_are_drawn_again_and_the_signature_says_how(run: ScapoEval, world: Path) -> None:
    options = ["--truth", "truth.json", "-q"]
    for name in CAPTIONS:
        assert run("score", f"{name}.jsonl", *options, "--seed", 5, "-o", f"{name}.json")[0] == 0
    written = json.loads(Path("honest.json").read_text())["systems"][0]
    assert "|bs:1000|seed:5|" in written["signature"]
    code, out, _ = run("compare", "honest.json", "doggy.json", "--seed", 9, "--resamples", 100, "--json")
    assert code == 0
    direct = run("score", "honest.jsonl", "doggy.jsonl", *options, "--seed", 9, "--resamples", 100, "--json")
    assert json.loads(out) == json.loads(direct[1])
    for system in json.loads(out)["systems"]:
        assert "|bs:100|seed:9|interval:wilson|test:studentized_permutation|v:" in system["signature"]
        assert "bs:1000" not in system["signature"]
        assert "seed:5" not in system["signature"]


RECORDS: dict[str, list[dict[str, Any]]] = {
    "mmhal": [{"rating": k % 7, "image_id": f"i{k}"} for k in range(96)],
    "faithscore": [{"id": k, "facts": 4, "verified": k % 5} for k in range(40)],
    "density": [{"image_id": image, "response": "A dog."} for image in TRUTH],
    "chair": CAPTIONS["doggy"],
    "yesno": ANSWERS["agrees"],
}


@pytest.mark.parametrize("verb", RECORDS)
def test_every_verb_says_how_its_intervals_are_drawn(run: ScapoEval, world: Path, verb: str) -> None:
    path = write(world / "records.jsonl", RECORDS[verb])
    truth = ["--truth", "truth.json"] if verb in ("density", "chair") else []
    code, out, err = run(verb, path, *truth, "--seed", 3, "--resamples", 20, "--json", "-o", "r.json")
    assert code == 0, err
    (system,) = json.loads(out)["systems"]
    assert "|bs:20|seed:3|interval:wilson|v:" in system["signature"]
    assert json.loads(Path("r.json").read_text())["systems"] == [system]


def test_runs_that_were_resampled_in_two_ways_are_compared(run: ScapoEval, world: Path) -> None:
    """Compares a run on an engine with a run in one process. Both are resampled again with the requested method."""
    scored = ("--truth", "truth.json", "--resamples", 50, "-q", "--json", "--interval", "percentile")
    for name, kind in (("honest", "poisson"), ("doggy", "multinomial")):
        path = f"{name}.json"
        code, out, _ = run("score", f"{name}.jsonl", *scored, "--bootstrap", kind, "-o", path)
        assert (code, "bootstrap:poisson" in json.loads(out)["systems"][0]["signature"]) == (0, kind == "poisson")
    found = {}
    for kind in ("poisson", "multinomial"):
        asked = ("--resamples", 50, "--json", "--interval", "percentile", "--bootstrap", kind)
        code, out, _ = run("compare", "honest.json", "doggy.json", *asked)
        assert (code, out) == run("score", "honest.jsonl", "doggy.jsonl", *scored, "--bootstrap", kind)[:2]
        found[kind] = json.loads(out)["comparisons"][0]
    assert found["poisson"]["difference"] == found["multinomial"]["difference"]
    assert found["poisson"]["ci_low"] != found["multinomial"]["ci_low"]


def test_figures_without_a_value_are_left_out_of_the_table_only(run: ScapoEval, world: Path) -> None:
    write(world / "positive.jsonl", [{**record, "response": "Hm"} for record in ANSWERS["agrees"]])
    _, table, _ = run("yesno", "positive.jsonl", "--width", 120)
    _, plain, _ = run("yesno", "positive.jsonl")
    _, found, _ = run("yesno", "positive.jsonl", "--json")
    assert "precision" not in table
    assert "accuracy" in table
    assert "1 more without a value" in table
    assert "positive\tprecision\tn/a" in plain
    assert json.loads(found)["systems"][0]["metrics"]["precision"]["value"] is None


def test_equivalence_is_said_in_the_unit_of_each_metric(run: ScapoEval, world: Path) -> None:
    write(world / "ratings.jsonl", ({"image_id": k, "rating": k % 7} for k in range(98)))
    words = ["ratings.jsonl", "again=ratings.jsonl", "--benchmark", "mmhal", "--equivalence", 3]
    _, out, _ = run("compare", *words, "--format", "table", "--width", 200)
    said = "(two one-sided tests, p < 0.05) within ±0.18: again in mmhal_score; within ±3 points: again in mmhal_hal"
    assert f"Equivalent to ratings {said}, again in informativeness." in out
    _, out, err = run("compare", *words)
    assert "the tests of --equivalence are shown with --format table and --format json" in err
