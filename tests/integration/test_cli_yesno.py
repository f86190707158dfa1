"""``scapo-eval yesno``, ``pope`` and ``phd`` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

Outcome = tuple[int, str, str]
ScapoEval = Callable[..., Outcome]

RECORDS = [
    {"id": f"q{k}", "image": f"{k // 3}.jpg", "response": response, "label": label}
    for k, (label, response) in enumerate([("yes", "Yes."), ("no", "No"), ("yes", "**No**"), ("no", "Hm")] * 25)
]


def write(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_one_system(run: ScapoEval, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", RECORDS)
    code, out, err = run("yesno", path, "--json", "--resamples", 100)
    system = json.loads(out)["systems"][0]
    assert code == 0
    assert system["name"] == "mine"
    values = {name: figure["value"] for name, figure in system["metrics"].items()}
    assert values == {"accuracy": 0.5, "precision": 1.0, "recall": 0.5, "f1": 2 / 3, "yes_ratio": 0.25}
    assert system["metrics"]["accuracy"]["ci_low"] < 0.5 < system["metrics"]["accuracy"]["ci_high"]
    wanted = {"tp": 25, "fp": 0, "tn": 25, "fn": 25, "yes_unparsed": 0, "no_unparsed": 25}
    assert system["counts"] == {**wanted, "unparsed": 25, "missing": 0, "duplicate": 0, "unknown": 0}
    assert system["n_captions"] == 100
    assert system["n_images"] == 34
    assert system["signature"].startswith("yesno|parser:default|unparsed:wrong|n:100|")
    assert "25 of 100 answers are neither yes nor no according to the parser 'default'; they count as wrong" in err


def test_what_the_signature_tells(run: ScapoEval, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", RECORDS)
    signatures = set()
    for options in ([], ["--parser", "pope"], ["--unparsed", "drop"], ["--no", "hm"], ["--seed", "1"]):
        _, out, _ = run("yesno", path, "--json", "--resamples", 10, *options)
        signatures.add(json.loads(out)["systems"][0]["signature"])
    assert len(signatures) == 5


def test_further_words(run: ScapoEval, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", RECORDS)
    _, out, err = run("yesno", path, "--json", "--no", "hm")
    assert json.loads(out)["systems"][0]["metrics"]["accuracy"]["value"] == 0.75
    assert "neither" not in err
    assert run("yesno", path, "--parser", "lmms", "--yes", "oui")[0] == 2


def test_two_systems_with_mcnemar(run: ScapoEval, tmp_path: Path) -> None:
    better = [{**record, "response": str(record["label"])} for record in RECORDS]
    first, second = write(tmp_path / "a.jsonl", RECORDS), write(tmp_path / "b.jsonl", better)
    code, out, _ = run("yesno", first, second, "--json", "--test", "mcnemar")
    rows = {row["metric"]: row for row in json.loads(out)["comparisons"]}
    assert code == 0
    assert (rows["accuracy"]["difference"], rows["accuracy"]["test"]) == (0.5, "mcnemar")
    assert rows["accuracy"]["p_value"] == 2 / 2**50
    assert rows["f1"]["test"] == "studentized_permutation"


def test_results_files_keep_what_mcnemar_needs(run: ScapoEval, tmp_path: Path) -> None:
    parts = [{**record, "category": "ab"[k % 2]} for k, record in enumerate(RECORDS)]
    files = [
        write(tmp_path / "a.jsonl", parts),
        write(tmp_path / "b.jsonl", ({**record, "response": str(record["label"])} for record in reversed(parts))),
    ]
    kept = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, file in zip(files, kept, strict=True):
        assert run("yesno", path, "-o", file, "-q")[0] == 0
    _, direct, _ = run("yesno", *files, "--json", "--test", "mcnemar")
    code, later, _ = run("compare", *kept, "--json", "--test", "mcnemar")
    assert code == 0
    assert json.loads(later)["comparisons"] == json.loads(direct)["comparisons"]


def test_results_of_other_parts_are_not_compared(run: ScapoEval, tmp_path: Path) -> None:
    kept = [tmp_path / "a.json", tmp_path / "b.json"]
    for category, file in zip("xy", kept, strict=True):
        path = write(tmp_path / f"{category}.jsonl", ({**record, "category": category} for record in RECORDS))
        run("yesno", path, "-o", file, "-q")
    code, _, err = run("compare", *kept)
    assert code == 2
    assert "cover different parts" in err


def test_unpaired_answers_are_said(run: ScapoEval, tmp_path: Path) -> None:
    files = [write(tmp_path / "a.jsonl", RECORDS), write(tmp_path / "b.jsonl", RECORDS[:-2])]
    _, _, err = run("yesno", *files, "--json")
    assert (
        "b: 2 questions are answered by only one of the two systems, this one and a; differences use only the "
        "questions that both answered"
    ) in err


def test_evidence_of_every_answer(run: ScapoEval, tmp_path: Path) -> None:
    path, evidence = write(tmp_path / "mine.jsonl", RECORDS), tmp_path / "evidence.jsonl"
    assert run("yesno", path, "--per-answer", evidence)[0] == 0
    records = [json.loads(line) for line in evidence.read_text().splitlines()]
    assert records[2] == {
        "line": 3,
        "id": "q2",
        "image": "0.jpg",
        "label": "yes",
        "said": "no",
        "correct": False,
        "response": "**No**",
    }
    assert [record["said"] for record in records[:4]] == ["yes", "no", "no", "unknown"]
    assert run("yesno", path, path, "--per-answer", evidence)[0] == 2


def test_question_files_may_follow_one_option(run: ScapoEval, tmp_path: Path) -> None:
    """Checks that several files may follow ``--questions``, because the shell expands ``--questions
    coco_pope_*.json``.
    """
    names = [f"coco_pope_{category}.json" for category in ("adversarial", "popular", "random")]
    asked = {"question_id": 1, "image": "1.jpg", "text": "Is there a dog in the image?", "label": "yes"}
    files = [write(tmp_path / name, [asked]) for name in names]
    answers = [
        {"question_id": k * 10**7 + 1, "prompt": asked["text"], "text": "Yes", "model_id": "m"} for k in range(3)
    ]
    path = write(tmp_path / "answers.jsonl", answers)
    for arguments in (
        [path, "--questions", *files],
        ["--questions", files[0], "--questions", files[1], "--questions", files[2], path],
    ):
        code, out, err = run("pope", *arguments, "--json")
        metrics = json.loads(out)["systems"][0]["metrics"]
        assert code == 0
        assert err == ""
        assert metrics["random_accuracy"]["value"] == metrics["mean_f1"]["value"] == 1.0
    plain, described = path, write(tmp_path / "b.jsonl", [{**row, "description": "A dog."} for row in answers])
    code, out, err = run("augmented", "--benchmark", "pope", "--questions", *files, plain, described, "--json", "-q")
    assert (code, json.loads(out)["systems"][1]["metrics"]["accuracy"]["value"], err) == (0, 1.0, "")
    code, _, err = run("pope", files[0], "--questions", files[1])
    assert code == 2
    assert "every file contains questions" in err


def test_prompts_and_back(run: ScapoEval, tmp_path: Path) -> None:
    record = {"image_id": "7", "task": "object", "yes_question": "Is it a cat?", "no_question": "Is it a dog?"}
    data = tmp_path / "data.json"
    data.write_text(
        json.dumps([{**record, "context": {"sec": "S.", "icc": "I."}}, {**record, "ccs_description": "odd"}])
    )
    prompts = tmp_path / "prompts.jsonl"
    assert run("phd", "--data", data, "--prompts", prompts) == (0, "", "")
    asked = [json.loads(line) for line in prompts.read_text().splitlines()]
    assert [line["id"] for line in asked][::2] == [f"phd/{mode}/7/yes" for mode in ("base", "sec", "icc", "ccs")]
    answers = write(tmp_path / "answers.jsonl", ({"id": line["id"], "response": line["label"]} for line in asked))
    code, out, err = run("phd", answers, "--data", data, "--json")
    metrics = json.loads(out)["systems"][0]["metrics"]
    assert (code, err) == (0, "")
    assert metrics["phd_all"]["value"] == metrics["phd_sec_task"]["value"] == metrics["phd_ccs_object"]["value"] == 1.0


def test_phd_answers_without_ids_and_with_contradictory_modes(run: ScapoEval, tmp_path: Path) -> None:
    contexts = {"sec": "Parks have bicycles.", "icc": "The picture shows a bicycle."}
    record = {"image_id": "7", "yes_question": "Is it a cat?", "no_question": "Is it a dog?", "context": contexts}
    data = write(tmp_path / "data.json", [record])
    answers = [
        {"mode": mode, key: "7", "question": text, "response": said}
        for mode, key in (("base", "image"), ("iac", "image_id"), ("PhD-icc", "image"))
        for text, said in (("Is it a cat?", "Yes"), ("Is it a dog?", "No"))
    ]
    code, out, _ = run("phd", write(tmp_path / "a.jsonl", answers), "--data", data, "--json")
    metrics = json.loads(out)["systems"][0]["metrics"]
    assert (code, [metrics[f"phd_{mode}"]["value"] for mode in ("base", "sec", "icc")]) == (0, [1.0] * 3)
    labeled = [{**row, "label": row["response"]} for row in answers]
    code, out, _ = run("phd", write(tmp_path / "b.jsonl", labeled), "--json")
    assert (code, json.loads(out)["systems"][0]["metrics"]["accuracy"]["value"]) == (0, 1.0)
    given = [{"id": f"phd/{mode}/7/yes", "mode": "iac", "response": "Yes"} for mode in ("sec", "base")]
    code, _, err = run("phd", write(tmp_path / "c.jsonl", given), "--data", data)
    assert (code, "c.jsonl:2: the id 'phd/base/7/yes' and the mode 'iac' contradict each other" in err) == (2, True)


@pytest.mark.parametrize("arguments", [["phd"], ["phd", "--prompts", "x.jsonl"], ["yesno"], ["pope"]])
def test_nothing_to_do(run: ScapoEval, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("verb", "record", "reason"),
    [
        ("pope", {"id": "phd/base/1/yes", "response": "Yes", "label": "yes"}, "look like phd answers"),
        ("phd", {"id": "pope/random/1", "response": "Yes", "label": "yes"}, "look like pope answers"),
        ("yesno", {"image_id": 1, "caption": "A dog."}, "captions"),
        ("pope", {"id": 1, "response": "Yes"}, "1 of 1 answers have no label yes or no; give POPE's question files"),
    ],
)
def test_other_files_are_named(run: ScapoEval, tmp_path: Path, verb: str, record: dict[str, Any], reason: str) -> None:
    code, out, err = run(verb, write(tmp_path / "a.jsonl", [record]))
    assert (code, out) == (2, "")
    assert "a.jsonl" in err
    assert reason in err
