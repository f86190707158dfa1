"""HallusionBench: the three groupings on hand-made answers, the two question sets, every layout of answers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.benchmarks.hallusionbench import TextOnly, hallusionbench_runs, read_hallusionbench, read_questions
from scapo_eval.cli.main import cli
from scapo_eval.inference.answer import read_questions as read_prompts
from scapo_eval.inference.sources import ImageFolder
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.comparison import compare
from scapo_eval.results.results import Resampling, Run, load_results

# one set of two figures with two questions each, and one that is asked without a figure and with two
QUESTIONS = {
    "VD/illusion/1/0/0/0": "yes", "VD/illusion/1/0/0/1": "no",
    "VD/illusion/2/0/1/0": "no", "VD/illusion/2/0/1/1": "yes",
    "VS/chart/0/3/0/0": "yes", "VS/chart/1/3/1/0": "yes", "VS/chart/2/3/2/0": "no",
}  # fmt: skip
SAID = {
    "VD/illusion/1/0/0/0": "Yes.", "VD/illusion/1/0/0/1": "No.",  # the original: both right
    "VD/illusion/2/0/1/0": "Yes.", "VD/illusion/2/0/1/1": "Yes.",  # the edited figure: one of two
    "VS/chart/0/3/0/0": "It cannot be told.",  # without a figure: right
    "VS/chart/1/3/1/0": "Yes", "VS/chart/2/3/2/0": "I am not sure.",  # with one: wrong
}  # fmt: skip


def official(identity: str, **further: str) -> dict[str, str]:
    keys = ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id")
    label = {"yes": "1", "no": "0"}[QUESTIONS[identity]]
    return {**dict(zip(keys, identity.split("/"), strict=True)), "gt_answer": label, "question": identity, **further}


def lines(path: Path, records: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def scored(path: str, questions: str | None = None, text_only: TextOnly = "auto") -> Run:
    truth = read_questions([questions]) if questions else None
    found = read_hallusionbench(path, truth, PARSERS["default"], text_only=text_only)
    return hallusionbench_runs({"x": found}, parser="default", resampling=Resampling(0))[0]


@pytest.fixture
def own(tmp_path: Path) -> str:
    return lines(
        tmp_path / "own.jsonl", ({"id": k, "response": SAID[k], "label": label} for k, label in QUESTIONS.items())
    )


def test_the_three_groupings(own: str) -> None:
    run = scored(own)
    assert run.values["a_acc"] == 5 / 7
    assert run.values["f_acc"] == 2 / 4  # the original and the first chart; no figure is no figure
    assert run.values["q_acc"] == 1 / 3  # only the question about 0/1 is right about both figures
    assert run.values["average"] == pytest.approx((5 / 7 + 2 / 4 + 1 / 3) / 3)
    assert (run.values["easy_acc"], run.values["hard_acc"]) == (3 / 3, 1 / 3)
    assert (run.values["vd_easy_acc"], run.values["vd_hard_acc"], run.values["vs_hard_acc"]) == (1, 1 / 2, 0)
    assert run.values["yes_bias"] == pytest.approx(
        (2 - 0) / 7
    )  # two wrong answers, both to questions whose truth is no
    assert (run.values["figures_inconsistent"], run.values["figures_wrong"]) == (1 / 4, 1 / 4)
    assert run.metric_set.signed == {"yes_bias", "vd_yes_bias", "vs_yes_bias"}
    # the edited illusion answered as the original: mixed; a chart that nothing is said of: bad vision
    assert (run.values["lh"], run.values["vi"], run.values["mixed"]) == (0, 1 / 2, 1 / 2)
    assert (run.values["vd_a_acc"], run.values["vd_illusion_f_acc"], run.values["vs_chart_q_acc"]) == (3 / 4, 1 / 2, 0)
    assert run.table.image_ids == ("VD/illusion/0", "VS/chart/3")
    assert run.counts["unclear_right"] == 1
    assert "text_only:in" in run.signature


def test_the_two_question_sets_are_told_apart(own: str, tmp_path: Path) -> None:
    questions = lines(tmp_path / "HallusionBench.json", map(official, QUESTIONS))
    full, figures = scored(own, questions), scored(own, questions, "out")
    assert (figures.values["a_acc"], figures.values["q_acc"]) == (4 / 6, 1 / 3)
    assert "text_only:out" in figures.signature
    rest = [{"id": k, "response": SAID[k]} for k in QUESTIONS if not k.startswith("VS/chart/0")]
    alone = scored(lines(tmp_path / "rest.jsonl", rest), questions)  # nothing without a figure is answered
    assert alone.values == figures.values
    assert alone.counts["missing"] == 0
    assert "6 questions, without the 1 that are asked without a figure" in alone.notes
    assert alone.values["lh"] is None  # what an error is blamed on needs the answers without a figure
    assert any("LH, VI and Mixed need" in note for note in alone.notes)
    with pytest.raises(InputError, match="text_only: out against in"):
        compare([full, figures])
    with pytest.raises(InputError, match="no question is asked without a figure"):
        scored(lines(tmp_path / "own.jsonl", ({**r, "label": "no"} for r in rest)), None, "in")


def test_every_layout_gives_the_same(own: str, tmp_path: Path) -> None:
    wanted = scored(own).values
    official_file = tmp_path / "HallusionBench_result.json"
    official_file.write_text(json.dumps([official(k, model_prediction=SAID[k]) for k in QUESTIONS]))
    kit = [
        {"index": k.replace("/", "_"), "answer": QUESTIONS[k].title(), "category": k[:2], "prediction": SAID[k]}
        for k in QUESTIONS
    ]
    lmms = [
        {"doc_id": n, "doc": official(k), "target": "", "filtered_resps": [SAID[k]]} for n, k in enumerate(QUESTIONS)
    ]
    for path in (str(official_file), lines(tmp_path / "kit.json", kit), lines(tmp_path / "lmms.jsonl", lmms)):
        assert scored(path).values == wanted, path


def test_the_counts_of_an_item_are_in_the_order_of_the_columns(own: str) -> None:
    """Checks that results files do not depend on Python's random hashes."""
    items = scored(own).items
    assert items is not None
    item, column, _ = items.cells.tolist()
    assert sorted(zip(item, column, strict=True)) == list(zip(item, column, strict=True))


def test_unanswered_questions_leave_their_figure_and_pair_out(own: str, tmp_path: Path) -> None:
    questions = lines(tmp_path / "q.jsonl", map(official, QUESTIONS))
    some = [{"id": k, "response": SAID[k]} for k in QUESTIONS if k != "VD/illusion/2/0/1/0"]
    run = scored(lines(tmp_path / "some.jsonl", some), questions)
    assert (run.values["a_acc"], run.values["f_acc"], run.values["q_acc"]) == (5 / 6, 2 / 3, 1 / 2)
    assert run.counts["missing"] == 1
    assert "omitted, because some of their questions are not answered: 1 of 4 figures, 1 of 3 pairs" in run.notes


def test_wholly_unanswered_units_are_counted_and_causes_need_answers_about_originals(tmp_path: Path) -> None:
    questions = lines(tmp_path / "q.jsonl", map(official, QUESTIONS))
    some = [{"id": k, "response": SAID[k]} for k in QUESTIONS if not k.startswith("VS/chart")]
    run = scored(lines(tmp_path / "some.jsonl", some), questions, "in")
    assert "omitted, because some of their questions are not answered: 2 of 4 figures, 1 of 3 pairs" in run.notes
    assert (run.values["lh"], run.values["vd_vi"]) == (None, None)
    assert "LH, VI and Mixed need the questions about every original, also those without a figure" in run.notes


def test_against_the_official_formulas_on_real_answers(shared: Path) -> None:
    path = shared / "data" / "pope" / "hallusionbench_verbose_254.jsonl"
    run = scored(str(path))
    right: dict[str, bool] = {}
    for record in map(json.loads, path.read_text().splitlines()):
        category, *_, figure, _ = record["id"].split("/")
        said = PARSERS["default"](record["response"])
        right[record["id"]] = said == record["label"] or (said is None and (category, figure) == ("VS", "0"))
    figures, pairs = defaultdict(list), defaultdict(list)
    for identity, correct in right.items():
        category, subcategory, _, set_, figure, question = identity.split("/")
        if (category, figure) != ("VS", "0"):
            figures[category, subcategory, set_, figure].append(correct)
        pairs[category, subcategory, set_, question].append(correct)
    assert len(figures) == 69  # the official count of this version
    assert run.values["a_acc"] == sum(right.values()) / 254
    assert run.values["f_acc"] == sum(map(all, figures.values())) / 69
    assert run.values["q_acc"] == sum(map(all, pairs.values())) / len(pairs)


def test_the_verb_its_results_and_their_comparison(own: str, tmp_path: Path) -> None:
    better = lines(tmp_path / "better.jsonl", ({"id": k, "response": v, "label": v} for k, v in QUESTIONS.items()))
    results, evidence = tmp_path / "r.json", tmp_path / "e.jsonl"
    done = CliRunner().invoke(cli, ["hallusionbench", own, better, "-o", str(results), "--json"], standalone_mode=False)
    assert done.exit_code == 0, done.output
    rows = {row["metric"]: row["difference"] for row in json.loads(done.stdout)["comparisons"]}
    assert rows["f_acc"] == 0.5
    first, second = load_results(results)
    assert compare([first, second]).comparisons[0]["metric"] == "a_acc"
    assert second.values["q_acc"] == 1
    for bound, refused in (("-0.9", False), ("-1.5", True)):  # a difference of two fractions
        done = CliRunner().invoke(cli, ["hallusionbench", own, "--fail-under", f"yes_bias={bound}"])
        assert (done.exit_code == 2) == ("yes_bias is a fraction between -1 and 1" in done.output) == refused
    done = CliRunner().invoke(cli, ["hallusionbench", own, "--per-answer", str(evidence)], standalone_mode=False)
    records = [json.loads(line) for line in evidence.read_text().splitlines()]
    assert [(record["said"], record["correct"]) for record in records][4::2] == [("unknown", True), ("unknown", False)]


def test_bad_input(tmp_path: Path) -> None:
    stranger = lines(tmp_path / "a.jsonl", [{"id": "7", "response": "Yes", "label": "yes"}])
    with pytest.raises(InputErrors, match="'7' is not a question id of HallusionBench"):
        scored(stranger)
    unlabeled = lines(tmp_path / "b.jsonl", [{"id": "VD/math/1/0/0/0", "response": "Yes"}])
    with pytest.raises(InputErrors, match=r"give HallusionBench\.json with --questions"):
        scored(unlabeled)
    bad = lines(tmp_path / "c.jsonl", [{**official("VD/illusion/1/0/0/0"), "gt_answer": "2"}])
    with pytest.raises(InputErrors, match="gt_answer 1 or 0"):
        read_questions([bad])


def test_its_questions_can_be_asked(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "HallusionBench.json",
        [official("VD/illusion/1/0/0/0", filename="./hallusion_bench/VD/illusion/0_0.png"),
         {**official("VS/chart/0/3/0/0"), "filename": None}],
    )  # fmt: skip
    asked = read_prompts([path], ImageFolder(None))
    assert [(each.id, each.path is None) for each in asked] == [
        ("VD/illusion/1/0/0/0", False),
        ("VS/chart/0/3/0/0", True),
    ]
    assert asked[0].record["label"] == "yes"
