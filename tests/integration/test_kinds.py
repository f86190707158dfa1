"""Recognition of files, the messages about them, and a run of every command that a message suggests."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import Vocabulary
from scapo_eval.readers.formats import recognize_file
from scapo_eval.readers.kinds import KINDS, Kind
from scapo_eval.results.benchmark import benchmarks
from scapo_eval.truths.claim_matrix import ClaimMatrix

Run = Callable[..., tuple[int, str, str]]


def verbs_of(kind: Kind) -> tuple[str, ...]:
    """Returns the names of the commands that accept a given kind of file."""
    return (*(record.verb for record in benchmarks() if kind.name in record.takes), *kind.verbs)


CAPTIONS = [{"image_id": k, "caption": "A dog and a cat."} for k in (1, 2, 3)]
OBJECTS = {"1": ["dog"], "2": ["cat"], "3": ["dog", "cat"]}
QUESTION = {"id": "1", "image": "1.jpg", "question": "Is there a dog?"}
DECAPBENCH = {
    "image_name": "1.jpg",
    "eval_details": {
        "facts": [["a"]], "fact_classes": [[1]], "verifications": [[1]], "mappings_with_human": [{"a": 0}],
    },
}  # fmt: skip

FILES: dict[str, dict[str, Any]] = {
    "captions": {"captions.jsonl": CAPTIONS, "coco.json": json.dumps(CAPTIONS),
                 "captions.tsv": "image_id\tcaption\n1\tA dog.\n"},
    "rollouts": {"rollouts.jsonl": [{"image_id": k, "response": "A dog."} for k in (1, 2)]},
    "answers": {"answers.jsonl": [{"id": "1", "response": "Yes"}],
                "llava.jsonl": [{"question_id": 1, "prompt": "Is there a dog?", "text": "Yes", "model_id": "m"}]},
    "AMBER responses": {"amber.json": json.dumps([{"id": 1, "response": "A dog on a beach."}])},
    "ratings": {"ratings.jsonl": [{"question_type": "other", "judge_text": "Rating: 5", "id": "a", "image_id": 1}]},
    "answers to rate": {"to_rate.jsonl": [{**QUESTION, "gt_answer": "yes", "model_answer": "Yes", "image_id": 1,
                                           "image_content": ["dog"], "question_type": "other"}]},
    "facts": {"facts.jsonl": [{"id": "1", "facts": ["a"], "verified": [1]}]},
    "claims": {"claims.jsonl": [{"id": "1", "image_id": 1, "claims": ["a"], "descriptive": [1], "verified": [1]}]},
    "object lists": {"lists.jsonl": [{**row, "extracted": ["dog"], "judge_model": "j"} for row in CAPTIONS[:1]]},
    "uses": {"uses.jsonl": [{"caption": "A dog and a cat.", "vocabulary": Vocabulary.load("coco80").identity, "uses": [
        {"start": 2, "end": 5, "use": "claim"}, {"start": 12, "end": 15, "use": "claim"}]}]},
    "results": {"results.json": None},
    "harness results": {"harness.json": json.dumps({"results": {"mme": {"mme_cognition_score,none": 300.0}},
                                                    "configs": {}})},
    "truth": {"truth.json": json.dumps(OBJECTS), "objects.json": json.dumps({"objects": OBJECTS}),
              "truth.jsonl": [{"image_id": k, "objects": v} for k, v in OBJECTS.items()],
              "truth.csv": "image_id,label\n1,dog\n2,cat\n3,dog\n", "matrix.npz": None,
              "coco_truth.json": json.dumps({"images": [{"id": 1}, {"id": 2}, {"id": 3}], "annotations": [
                  {"image_id": 1, "category_id": 18}], "categories": [{"id": 18, "name": "dog"}]})},
    "scenes": {"scenes.jsonl": [{"image_id": k, "objects": [{"name": "dog"}]} for k in (1, 2, 3)],
               "judged.jsonl": [{"image_id": 1, "objects": [], "claims": [{"kind": "attribute", "label": "dog",
                                 "value": "red", "answer": "no"}]}], "claims.npz": None},
    "references": {"references.jsonl": [{"image_id": k, "references": ["A dog and a cat."]} for k in (1, 2, 3)]},
    "judgements": {"judgements.jsonl": [{"hyp": "A dog.", "human_score": 4, "image_id": 1}]},
    "vocabulary": {"vocabulary.yaml": "name: mine\nversion: 1\nlabels:\n  dog: {aliases: [dog]}\nignore: []\n"},
    "questions": {"questions.jsonl": [{"question_id": 1, "image": "1.jpg", "text": "Is there a dog?", "label": "yes"}]},
    "PhD questions": {"phd.json": None},
    "prompts": {"query.json": json.dumps([{"id": 1, "image": "1.jpg", "query": "Describe this image."}])},
    "a table without predictions": {"table.tsv": "index\tquestion\tanswer\n0\tIs there a dog?\tYes\n"},
    "a training run": {"run/metrics.jsonl": [{"step": 1, "loss": 0.5}]},
    "an annotation run": {},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes every file of the table."""
    monkeypatch.chdir(tmp_path)
    for files in FILES.values():
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            if isinstance(content, list):
                content = "".join(json.dumps(record) + "\n" for record in content)
            if content is not None:
                path.write_text(content)
    np.savez(tmp_path / "matrix.npz", matrix=np.ones((3, 1), np.int8), image_ids=["1", "2", "3"], labels=["dog"],
             vocabulary_fingerprint="", version="1")  # fmt: skip
    ClaimMatrix.of(["1"], [("count", "dog", "2", "")], np.array([1], np.int8)).save(tmp_path / "claims.npz")
    code, _, err = run("score", "captions.jsonl", "--truth", "truth.json", "-q", "-o", "results.json")
    assert code == 0, err
    return tmp_path


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, files in FILES.items() for name in files])
def test_what_a_file_is(kind: str, name: str, folder: Path) -> None:
    if not (folder / name).exists():
        pytest.skip("made by the tests of its verb")
    known = recognize_file(folder / name if kind != "a training run" else folder / "run")
    assert known is not None
    assert known.kind.name == kind


def test_every_kind_has_an_example_and_verbs_that_exist() -> None:
    from scapo_eval.cli.main import VERBS

    assert set(FILES) == set(KINDS)
    for kind in KINDS.values():
        assert set(verbs_of(kind)) <= set(VERBS), kind.name
        assert (
            not kind.verb
            or kind.verb in verbs_of(kind)
            or kind.name in ("truth", "scenes", "vocabulary", "uses", "references", "questions", "PhD questions")
        )
        assert bool(kind.command) <= bool(kind.purpose)


FILLED = {
    "TRUTH": "truth.json",
    "CAPTIONS": "captions.jsonl",
    "ANSWERS": "answers.jsonl",
    "QUESTIONS": "questions.jsonl",
}


@pytest.mark.parametrize("kind", ["captions", "rollouts", "answers", "ratings", "facts", "claims", "object lists",
                                  "uses", "results", "harness results", "truth", "scenes", "references", "vocabulary",
                                  "questions", "a training run"])  # fmt: skip
def test_the_command_of_a_kind_works(kind: str, folder: Path, run: Run) -> None:
    name = next(iter(FILES[kind])) if kind != "a training run" else "run"
    command = KINDS[kind].advice(name).partition(": ")[2]
    words = [FILLED.get(word, word) for word in shlex.split(command)]
    assert words.pop(0) == "scapo-eval"
    code, out, err = run(*words)
    assert code == 0, err
    assert out or (folder / words[-1]).exists()


@pytest.mark.parametrize("kind", [kind for kind in FILES if FILES[kind] and kind not in ("captions", "PhD questions")])
def test_what_score_says_of_other_files(kind: str, folder: Path, run: Run) -> None:
    name = next(iter(FILES[kind])) if kind != "a training run" else "run"
    code, _, err = run("score", name, "--truth", "truth.json", "-q")
    if kind in ("object lists", "rollouts", "AMBER responses"):  # captions, too
        assert code == 0
        return
    assert code == 2
    suggested = re.search(r"scapo-eval ([a-z]+)", err.replace("scapo-eval: ", "", 1))
    assert suggested is None or suggested.group(1) in {
        *verbs_of(KINDS[kind]), "score", "import", "reward", "yesno", "claims",
    }  # fmt: skip
    if kind not in ("a table without predictions", "answers"):
        assert KINDS[kind].advice(name).removeprefix("; ") in err


def test_files_without_a_verb(folder: Path, run: Run) -> None:
    for name, verb in (("results.json", "show"), ("ratings.jsonl", "mmhal"), ("facts.jsonl", "faithscore"),
                       ("claims.jsonl", "facts")):  # fmt: skip
        code, out, err = run(name)
        assert code == 0, err
        assert f"scapo-eval: {name}: " in err
        assert f"; interpreted as: scapo-eval {verb} {name}\n" in err
        assert run(verb, name)[1] == out
    (folder / "labeled.jsonl").write_text('{"id": "pope/1", "response": "Yes", "label": "yes", "benchmark": "pope"}\n')
    code, out, err = run("labeled.jsonl", "-q")
    assert (code, err) == (0, "")
    assert out == run("pope", "labeled.jsonl", "-q")[1]


def test_results_are_shown_with_their_table(folder: Path, run: Run) -> None:
    code, out, err = run("show", "results.json", "results.json", "--format", "json")
    assert code == 0, err
    assert [system["name"] for system in json.loads(out)["systems"]] == ["captions#1", "captions#2"]
    code, _, err = run("compare", "results.json")
    assert code == 2
    assert err.rstrip().endswith("to show it: scapo-eval show results.json")
    assert "--fail-under" in run("show", "results.json", "--help")[1]


def test_swapped_arguments_are_told_in_one_line(folder: Path, run: Run) -> None:
    swapped = "recognized as a truth file; the arguments look swapped; write: scapo-eval score captions.jsonl --truth"
    assert run("truth.json", "--truth", "captions.jsonl")[::2] == (2, f"scapo-eval: truth.json: {swapped} truth.json\n")
    assert run("captions.jsonl", "--truth", "captions.jsonl")[::2] == (
        2,
        "scapo-eval: captions.jsonl: not a valid truth: recognized as own captions (image_id, caption); to score "
        "them: scapo-eval score captions.jsonl --truth TRUTH\n",
    )
    code, _, err = run("captions.jsonl", "--truth", "results.json")
    assert code == 2
    assert err == (
        "scapo-eval: results.json: not a valid truth: recognized as a results file of scapo-eval; to show them: "
        "scapo-eval show results.json\n"
    )
    code, _, err = run("captions.jsonl", "--truth", "scenes.jsonl")
    assert code == 2
    assert err.endswith("; to score claims with them: scapo-eval claims CAPTIONS --scenes scenes.jsonl\n")
    assert "use it with --scenes" in run("captions.jsonl", "--truth", "claims.npz")[2]


def test_folders(folder: Path, run: Run) -> None:
    (folder / "decapbench").mkdir()
    (folder / "decapbench" / "0.json").write_text(json.dumps(DECAPBENCH))
    known = recognize_file(folder / "decapbench")
    assert known is not None
    assert known.kind.name == "claims"
    (folder / "store").mkdir()
    for name in ("run.json", "images.jsonl"):
        (folder / "store" / name).write_text("{}")
    code, _, err = run("report", "store")
    assert code == 2
    assert err == (
        "scapo-eval: store: not a training run's folder: it is an annotation run; to look at it: scapo-eval annotate "
        "status store\n"
    )
    (folder / "empty").mkdir()
    assert recognize_file(folder / "empty") is None


def test_the_table_of_the_documentation_is_that_of_the_program() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    written = re.findall(r"^\| [^|]+ \| `(scapo-eval [^`]+)`", page, re.MULTILINE)
    assert written == [kind.command for kind in KINDS.values() if kind.command]
