"""Equal figures for the same 18 real answers in the layouts of all harnesses, and recognition of real files of every
kind.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scapo_eval.base.types import Answer
from scapo_eval.cli.import_ import command as import_command
from scapo_eval.readers.answers import read_answers
from scapo_eval.readers.captions_foreign import read_foreign_captions
from scapo_eval.readers.formats import recognize
from scapo_eval.readers.parsers import pope

LAYOUTS = {
    "llava_answers.jsonl": "llava",
    "lmms_eval_v0.2_pope.json": "lmms-eval-log",
    "lmms_eval_v0.3_samples_pope.jsonl": "lmms-eval",
    "lmms_eval_v0.5_samples_pope.jsonl": "lmms-eval",
    "lmms_eval_v0.7_samples_pope.jsonl": "lmms-eval",
    "pope_official_answers.json": "pope",
    "trl_completions_00001.parquet": "trl",
    "unified_yesno.jsonl": "answers",
    "verl_rollout_1.jsonl": "verl",
    "vlmevalkit_LLaVA-13B_POPE.json": "vlmevalkit",
    "vlmevalkit_LLaVA-13B_POPE.tsv": "vlmevalkit",
    "vlmevalkit_LLaVA-13B_POPE.xlsx": "vlmevalkit",
}
NEEDS = {".parquet": "pyarrow", ".xlsx": "openpyxl"}


@pytest.fixture(params=LAYOUTS)
def answers_file(request: pytest.FixtureRequest, shared: Path) -> Path:
    path: Path = shared / "data" / "pope" / "formats" / request.param
    if path.suffix in NEEDS:
        pytest.importorskip(NEEDS[path.suffix])
    return path


def confusion(answers: list[Answer]) -> dict[str, int]:
    found = {"TP": 0, "FP": 0, "TN": 0, "FN": 0}
    for answer in answers:
        right = pope(answer.response) == answer.label
        found[("T" if right else "F") + ("P" if pope(answer.response) == "yes" else "N")] += 1
    return found


def labelled(path: Path, output: Path) -> list[Answer]:
    """Returns the answers after ``import``, with the labels of ``labels.jsonl`` if the layout contains none."""
    arguments = [str(path), "-o", str(output), "-q"]
    if next(iter(read_answers(path))).label is None:
        arguments += ["--labels", str(path.parent / "labels.jsonl")]
    assert import_command.main(arguments, standalone_mode=False) == 0
    return list(read_answers(output))


def test_every_layout_gives_the_same_figures(answers_file: Path, tmp_path: Path) -> None:
    expected = json.loads((answers_file.parent.parent / "expected.json").read_text())["formats"][
        "all_files_same_18_rows"
    ]
    assert recognize(answers_file).name == LAYOUTS[answers_file.name]
    answers = labelled(answers_file, tmp_path / "out.jsonl")
    assert len(answers) == expected["n"]
    assert confusion(answers) == {key: expected[key] for key in ("TP", "FP", "TN", "FN")}


def test_every_layout_asks_the_same_questions(answers_file: Path) -> None:
    labels = [json.loads(line) for line in (answers_file.parent / "labels.jsonl").read_text().splitlines()]
    answers = list(read_answers(answers_file))
    assert [(answer.question or "").partition("\n")[0] for answer in answers] == [label["text"] for label in labels]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("pope/coco_pope_random.json", "questions"),
        ("pope/llava-v1.5-13b.answers.jsonl", "llava"),
        ("pope/hallusionbench_verbose_254.jsonl", "answers"),
        ("phd/phd_synthetic.json", "phd-questions"),
        ("phd/phd_synthetic_answers.jsonl", "answers"),
        ("amber/query/query_all.json.gz", "amber-queries"),
        ("amber/responses/disc_messy_a.json.gz", "amber"),
        ("amber/responses/gen_llava_base.json.gz", "amber"),
        ("coco_chair/captions/llava-1.5_greedy.jsonl", "captions"),
        ("captions_real/mmhal_bench_qwen3vl4b.jsonl", "captions"),
    ],
)
def test_real_files_are_recognised(shared: Path, name: str, layout: str) -> None:
    assert recognize(shared / "data" / name).name == layout


def test_real_descriptions_of_amber_are_captions(shared: Path) -> None:
    path = shared / "data" / "amber" / "responses" / "gen_llava_base.json.gz"
    captions = list(read_foreign_captions(path))
    assert len(captions) == 1004
    assert {image for _, image, _ in captions} == {str(number) for number in range(1, 1005)}


def test_real_llava_answers_keep_their_ids(shared: Path) -> None:
    answers = list(read_answers(shared / "data" / "pope" / "llava-v1.5-13b.answers.jsonl"))
    assert len({answer.id for answer in answers}) == len(answers) == 8910
    assert {answer.model for answer in answers} == {"llava-v1.5-13b"}
