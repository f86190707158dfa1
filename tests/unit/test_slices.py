"""Results by a column of the records: slices, their differences, and tests of interaction."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from click.testing import CliRunner

from scapo_eval.base.errors import InputError
from scapo_eval.benchmarks.slicing import Slicer
from scapo_eval.cli.main import cli
from scapo_eval.results.counts import CountTable
from scapo_eval.results.metric import MetricSet, ratio
from scapo_eval.results.parts import Parts, labels_of
from scapo_eval.results.results import Resampling
from scapo_eval.results.slices import Sliced

RATE = MetricSet("toy", ("hits", "all"), {"rate": ratio("hits", "all")}, {"rate": False})


def sliced(rates: list[list[float]], seed: int, images: int = 150, *, same_images: bool = False) -> Sliced:
    """Systems x slices of true rates; every slice has its own images, or all the same."""
    rng = np.random.default_rng(seed)
    systems = {}
    for name, own in zip("ab", rates, strict=True):
        slices = {}
        for k, rate in enumerate(own):
            claims = 1 + rng.poisson(3, images)
            rows = np.stack([rng.binomial(claims, rate), claims], axis=1)
            ids = tuple(f"{0 if same_images else k}-{i:04}" for i in range(images))
            slices[str(k)] = CountTable(RATE.columns, ids, rows)
        systems[name] = slices
    return Sliced("scene", systems)


@pytest.mark.parametrize("same_images", [False, True])
@pytest.mark.slow
def test_interactions_have_their_size(same_images: bool) -> None:
    """200 samples of four slices without an interaction, though the systems differ: 5 % of the tests find one."""
    found: dict[str | None, list[bool]] = {None: [], "a": []}
    for seed in range(200):
        systems = sliced([[0.2] * 4, [0.3] * 4], seed, 60, same_images=same_images)
        for row in systems.interactions(RATE):
            found[row["baseline"]].append(row["p_value"] <= 0.05)
    assert 0.02 < np.mean(found[None]) < 0.08
    assert 0.01 < np.mean(found["a"]) < 0.09


def test_an_interaction_is_found() -> None:
    said = sliced([[0.2, 0.2, 0.2], [0.1, 0.2, 0.35]], 1).to_dict(RATE, Resampling(100))
    tests = {(row["system"], row["baseline"]): row for row in said["interactions"]}
    assert tests["b", "a"]["p_value"] < 0.001
    assert tests["b", None]["p_value"] < 0.001
    assert tests["a", None]["p_value"] > 0.05
    assert tests["b", "a"]["slices"] == 3
    entry = next(each for each in said["slices"] if (each["system"], each["slice"]) == ("b", "2"))
    assert entry["n_images"] == 150
    assert entry["differences"]["rate"]["p_value"] < 0.05
    assert entry["metrics"]["rate"]["ci_low"] < entry["metrics"]["rate"]["value"] < entry["metrics"]["rate"]["ci_high"]


def test_small_slices_are_shown_and_not_tested() -> None:
    said = sliced([[0.2, 0.2], [0.2, 0.2]], 1, images=20).to_dict(RATE, Resampling(100))
    assert {row["p_value"] for row in said["interactions"]} == {None}
    assert len(said["slices"]) == 4


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """Two systems: the second invents cats, in kitchens only."""
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({"objects": {str(k): ["dog"] for k in range(120)}, "labels": ["dog", "cat"]}))
    paths = []
    for name, wrong in (("base", 10), ("ours", 2)):
        lines = []
        for k in range(120):
            kitchen = k % 2 == 0
            cat = k % wrong == 0 if kitchen else k % 9 == 0
            record = {"image_id": k, "caption": "a dog" + (" and a cat" if cat else ""), "scene": "street"}
            if kitchen:
                record |= {"meta": {"scene": "kitchen"}}
                del record["scene"]
            lines.append(json.dumps(record))
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        paths.append(str(path))
    return paths[0], paths[1], str(truth)


def test_the_option(files: tuple[str, str, str], tmp_path: Path) -> None:
    base, ours, truth = files
    command = ["score", base, ours, "--truth", truth, "--by", "scene", "--metrics", "hal_rate"]
    said = CliRunner().invoke(cli, [*command, "--json", "-o", str(tmp_path / "r.json")])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)["sliced"]
    assert found["by"] == "scene"
    assert [(each["system"], each["slice"], each["n_images"]) for each in found["slices"]] == [
        ("base", "kitchen", 60), ("base", "street", 60), ("ours", "kitchen", 60), ("ours", "street", 60),
    ]  # fmt: skip
    (test,) = [row for row in found["interactions"] if row["baseline"]]
    assert test["p_value"] < 0.001
    shown = CliRunner().invoke(cli, [*command, "--width", "100"])
    assert "kitchen: ours" in shown.output
    assert "hal_rate: difference of ours to base equal in all slices? p = 0.000" in shown.output
    again = CliRunner().invoke(cli, ["compare", str(tmp_path / "r.json"), "--json"])
    assert json.loads(again.stdout)["sliced"] == found | {"slices": ANY, "interactions": ANY}
    assert len(json.loads(again.stdout)["sliced"]["interactions"]) > len(found["interactions"])  # of all metrics
    one = CliRunner().invoke(cli, ["score", base, "--truth", truth, "--by", "length", "--width", "100"])
    assert "by length" in one.output
    assert "equal in all slices" not in one.output  # 30 images a slice is the least
    assert "hal_rate: base equal in all slices? p = " in CliRunner().invoke(cli, [*command, "--width", "90"]).output


def test_files_of_one_system_each_are_sliced_alike(files: tuple[str, str, str], tmp_path: Path) -> None:
    """Numbers are cut into quarters over all systems, wherever these were scored."""
    base, ours, truth = files
    together = CliRunner().invoke(cli, ["score", base, ours, "--truth", truth, "--by", "image_id", "--json"])
    for name, path in (("base", base), ("ours", ours)):
        CliRunner().invoke(
            cli, ["score", path, "--truth", truth, "--by", "image_id", "-o", str(tmp_path / f"{name}.json")]
        )
    results = [str(tmp_path / "base.json"), str(tmp_path / "ours.json")]
    apart = CliRunner().invoke(cli, ["compare", *results, "--json"])
    assert json.loads(apart.stdout)["sliced"] == json.loads(together.stdout)["sliced"]
    document = json.loads((tmp_path / "base.json").read_text())
    document["per_image"][0]["by"]["rows"][3][0] += 1
    (tmp_path / "base.json").write_text(json.dumps(document))
    said = CliRunner().invoke(cli, ["compare", *results])
    assert "per_image[0].by.rows: captions adds up to 121, but that of the images to 120" in str(said.exception)


def test_large_numbers_keep_the_digits_that_tell_their_quarters_apart(tmp_path: Path) -> None:
    parts = Parts("date", ("1",) * 20, tuple(range(20240101, 20240121)), np.ones((20, 1), dtype=np.int64))
    assert list(parts.tables(("n",), labels_of([parts]))) == [
        "below 20240106", "20240106 to below 20240111", "20240111 to below 20240116", "20240116 and more",
    ]  # fmt: skip


def test_tests_of_interaction_do_not_depend_on_the_order_of_slices() -> None:
    class Alike(str):  # sets of equal hashes keep the order of insertion, as sets of strings keep that of a seed
        def __hash__(self) -> int:
            return 0

    systems = sliced([[0.2] * 6, [0.22, 0.2, 0.18, 0.2, 0.25, 0.2]], 1, same_images=True).systems
    orders = ("012345", "543210", "130254")
    turned = [
        Sliced("scene", {s: {Alike(k): each[k] for k in order} for s, each in systems.items()}) for order in orders
    ]
    assert len({row["p_value"] for each in turned for row in each.interactions(RATE) if row["baseline"]}) == 1


def test_results_without_the_column_are_named(files: tuple[str, str, str], tmp_path: Path) -> None:
    base, ours, truth = files
    with_column, without = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    CliRunner().invoke(cli, ["score", base, "--truth", truth, "--by", "scene", "-o", with_column])
    CliRunner().invoke(cli, ["score", ours, "--truth", truth, "-o", without])
    said = CliRunner().invoke(cli, ["compare", with_column, without, "--by", "scene"])
    assert said.exit_code == 2
    assert "--by scene: scored without this column: ours" in said.output


def test_what_cannot_be_sliced(files: tuple[str, str, str]) -> None:
    base, _, truth = files
    with pytest.raises(InputError, match=r"column 'place' not found \(found: image_id, meta, scene, length\)"):
        Slicer(base, "place")
    many = CliRunner().invoke(cli, ["score", base, "--truth", truth, "--by", "image_id", "--json"])
    assert len(json.loads(many.stdout)["sliced"]["slices"]) == 4  # numbers are cut into quarters
    for column in ("length", "scene"):  # standard input is kept for the second look
        said = CliRunner().invoke(cli, ["score", "-", "--truth", truth, "--by", column], input=Path(base).read_text())
        assert said.exit_code == 0, said.output


def test_columns_of_tables_make_slices(files: tuple[str, str, str], tmp_path: Path) -> None:
    """JSON Lines, CSV and parquet give equal slices. NaN in parquet is a missing value."""
    pandas = pytest.importorskip("pandas")
    base, _, truth = files
    rows = [json.loads(line) for line in Path(base).read_text().splitlines()]
    for k, row in enumerate(rows):
        row.pop("meta", None)
        row["weight"] = None if k % 5 == 0 else float(k % 3)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = pandas.DataFrame(rows)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    found = {}
    for name in ("jsonl", "csv", "parquet"):
        command = ["score", str(tmp_path / f"rows.{name}"), "--truth", truth, "--by", "weight", "--json"]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        found[name] = [(each["slice"], each["n_images"]) for each in json.loads(done.stdout)["sliced"]["slices"]]
    assert [name for name, _ in found["jsonl"]] == ["0.0", "1.0", "2.0", "(none)"]
    assert found["csv"] == found["parquet"] == found["jsonl"]
