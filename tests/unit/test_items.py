"""Comparisons of systems that answered different questions about the same images."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

import scapo_eval
from scapo_eval.base.errors import InputError
from scapo_eval.results.comparison import compare
from scapo_eval.results.results import Results, Run, load_results

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "results-1.schema.json"


def yesno_rows() -> list[dict[str, Any]]:
    draw = random.Random(0)
    return [
        {
            "id": f"q{k}",
            "image": f"{k // 4}.jpg",
            "label": "yes" if k % 2 else "no",
            "response": draw.choice(["Yes", "No"]),
        }
        for k in range(200)
    ]


def hallusionbench_rows() -> list[dict[str, Any]]:
    draw = random.Random(1)
    return [
        {
            "id": f"VD/chart/{1 + (figure > 0)}/{set_}/{figure}/{question}",
            "label": draw.choice(["yes", "no"]),
            "response": draw.choice(["Yes", "No"]),
        }
        for set_ in range(40)
        for figure in range(3)
        for question in range(2)
    ]


def amber_data(tmp_path: Path) -> str:
    root = tmp_path / "AMBER" / "data"
    (root / "query").mkdir(parents=True)
    kinds = ["discriminative-hallucination", "discriminative-attribute-state", "relation"]
    entries: list[dict[str, Any]] = [{"type": "generative", "truth": ["dog"], "hallu": ["cat"]} for _ in range(40)]
    entries += [{"type": kinds[k % 3], "truth": "yes" if k % 2 else "no"} for k in range(120)]
    numbered = [{"id": k, **entry} for k, entry in enumerate(entries, 1)]
    (root / "annotations.json").write_text(json.dumps(numbered))
    (root / "relation.json").write_text(json.dumps({"dog": [], "cat": []}))
    (root / "safe_words.txt").write_text("line")
    queries = [{"id": k, "image": f"AMBER_{1 + k % 40}.jpg", "query": "?"} for k in range(1, 161)]
    (root / "query" / "query_all.json").write_text(json.dumps(queries))
    return str(root.parent)


def amber_rows() -> list[dict[str, Any]]:
    draw = random.Random(2)
    rows = [{"id": k, "response": draw.choice(["A dog.", "A cat.", "A dog and a cat."])} for k in range(1, 41)]
    return rows + [{"id": k, "response": draw.choice(["Yes", "No"])} for k in range(41, 161)]


Score = Callable[[list[dict[str, Any]], str], Run]


@pytest.fixture(params=["yesno", "hallusionbench", "amber"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[dict[str, Any]], Score]:
    """Returns answers, and the function that scores them."""
    if request.param == "yesno":
        return yesno_rows(), lambda rows, name: scapo_eval.yesno(rows, name=name)
    if request.param == "hallusionbench":
        whole = hallusionbench_rows()
        asked = [{key: row[key] for key in ("id", "label")} for row in whole]
        return whole, lambda rows, name: scapo_eval.hallusionbench(rows, questions=asked, name=name)
    data = amber_data(tmp_path)
    return amber_rows(), lambda rows, name: scapo_eval.amber(rows, data=data, name=name)


def rows_of(results: Results) -> dict[str, Mapping[str, Any]]:
    return {row["metric"]: row for row in results.comparisons}


def test_items_add_up_to_the_counts(case: tuple[list[dict[str, Any]], Score]) -> None:
    rows, score = case
    run = score(rows, "all")
    assert run.items is not None
    assert (run.items.summed(run.table.rows.shape) == run.table.rows).all()  # type: ignore[arg-type]


def test_equal_answers_do_not_differ(case: tuple[list[dict[str, Any]], Score]) -> None:
    rows, score = case
    part = [row for k, row in enumerate(rows) if k % 7]
    found = rows_of(compare([score(rows, "all"), score(part, "part")]))
    shared = [row for row in found.values() if row["difference"] is not None]
    assert shared
    assert {row["difference"] for row in shared} == {0.0}
    assert {row["n_differing"] for row in found.values()} == {0}
    assert all(row["p_value"] in (None, 1.0) for row in shared)


def test_the_comparison_is_that_of_the_shared_questions(case: tuple[list[dict[str, Any]], Score]) -> None:
    rows, score = case
    flipped = {"Yes": "No", "No": "Yes", "A dog.": "A cat.", "A cat.": "A dog."}
    other = [
        {**row, "response": row["response"] if k % 3 else flipped.get(row["response"], "A dog.")}
        for k, row in enumerate(rows)
    ]
    left, right = ([row for k, row in enumerate(which) if k % n] for which, n in ((rows, 7), (other, 5)))
    both = [k for k in range(len(rows)) if k % 7 and k % 5]
    found = rows_of(compare([score(left, "a"), score(right, "b")]))
    direct = rows_of(compare([score([which[k] for k in both], name) for which, name in ((rows, "a"), (other, "b"))]))
    accuracy = "a_acc" if "a_acc" in found else "accuracy"
    compared = ("system_value", "baseline_value", "difference", "ci_low", "ci_high", "p_value", "n_images")
    for metric, row in found.items():
        assert [row[key] for key in compared] == pytest.approx([direct[metric][key] for key in compared]), metric
    assert found[accuracy]["n_questions"] == sum(
        "No" in rows[k]["response"] or "Yes" in rows[k]["response"] for k in both
    )
    assert "n_questions" not in direct[accuracy]


def test_results_files_keep_the_items(case: tuple[list[dict[str, Any]], Score], tmp_path: Path) -> None:
    rows, score = case
    runs = [score(rows, "all"), score(rows[:-9], "part")]
    for run in runs:
        run.save(tmp_path / f"{run.name}.json")
    read = [load_results(tmp_path / f"{run.name}.json")[0] for run in runs]
    assert compare(read).comparisons == compare(runs).comparisons
    fastjsonschema.compile(json.loads(SCHEMA.read_text()))(json.loads((tmp_path / "all.json").read_text()))


def test_earlier_files_with_different_questions_are_refused(tmp_path: Path) -> None:
    runs = []
    for name, rows in (("all", yesno_rows()), ("part", yesno_rows()[:-9])):
        path = tmp_path / f"{name}.json"
        scapo_eval.yesno(rows, name=name).save(path)
        document = json.loads(path.read_text())
        del document["per_image"][0]["items"]
        path.write_text(json.dumps(document))
        runs += load_results(path)
    with pytest.raises(
        InputError, match=r"part and all answered different questions, .* score the answers again with -o"
    ):
        compare(runs)
    assert compare([runs[0], runs[0].redrawn(runs[0].resampling)]).comparisons


def test_labels_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    rows = yesno_rows()
    swapped = [{**row, "label": "no" if row["label"] == "yes" else "yes"} for row in rows[:60]]
    runs = [scapo_eval.yesno(rows, name="a"), scapo_eval.yesno([*swapped, *rows[60:190]], name="b")]
    with pytest.raises(InputError, match=r"b and a have different labels for 60 of the questions .* \(first: q0\)"):
        compare(runs)
    for run in runs:
        run.save(tmp_path / f"{run.name}.json")
    with pytest.raises(InputError, match="different labels for 60 of the questions"):
        compare([load_results(tmp_path / f"{name}.json")[0] for name in "ab"])
    assert compare(runs, allow_different=True).comparisons


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda items: items["ids"].__setitem__(0, items["ids"][1]), r"items\.ids: must be distinct strings"),
        (lambda items: items["images"].__setitem__(0, 50), r"items\.images: must be the position of an image"),
        (lambda items: items["images"].pop(), r"items\.images: must be the position of an image"),
        (lambda items: items["cells"].pop(), r"items\.cells: must be three arrays"),
        (lambda items: items["cells"][1].__setitem__(0, -1), r"items\.cells: must be three arrays"),
        (lambda items: items["cells"][2].__setitem__(0, 2), r"items\.cells: the counts of the items do not add up"),
    ],
)
def test_damaged_items_are_named(tmp_path: Path, change: Callable[[Any], Any], reason: str) -> None:
    path = tmp_path / "r.json"
    scapo_eval.yesno(yesno_rows()).save(path)
    document = json.loads(path.read_text())
    change(document["per_image"][0]["items"])
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=reason):
        load_results(path)
