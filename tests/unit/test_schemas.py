"""Every file that a scoring verb writes obeys the published schemas; exports obey that of Every Eval Ever."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from scapo_eval.base.version import RESULTS_FORMAT
from scapo_eval.cli.main import main

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEMAS = CHECKOUT / "docs" / "schema"
EXAMPLES = CHECKOUT / "examples"
TRUTH = EXAMPLES / "truth.json"
BASE, OURS = EXAMPLES / "captions_baseline.jsonl", EXAMPLES / "captions_aligned.jsonl"

results_file = fastjsonschema.compile(json.loads((SCHEMAS / "results-1.schema.json").read_text()))
evidence_line = fastjsonschema.compile(json.loads((SCHEMAS / "evidence-1.schema.json").read_text()))

THEIRS = CHECKOUT / "tests" / "schemas" / "every_eval_ever"
"""The schemas of every-eval-ever 0.3.0 as it is on PyPI (MIT, LICENSE beside them)."""

eee_document = fastjsonschema.compile(json.loads((THEIRS / "eval.schema.json").read_text()))
eee_instance = fastjsonschema.compile(json.loads((THEIRS / "instance_level_eval.schema.json").read_text()))


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """``scapo-eval`` in this process; returns what it printed."""

    def runs(*arguments: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        assert int(left.value.code or 0) == code, err
        return out if code == 0 else err

    return runs


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


YES_NO = [
    {"id": f"{'VD/illusion' if k < 3 else 'VS/chart'}/{k % 2}/1/{k}/0", "response": "Yes.", "label": "yes"}
    for k in range(4)
]
OBJECTS = {"image_id": 1, "caption": "A dog sits here.", "extracted": ["dog"], "judge_model": "j"}
CLAIMS = {"id": "1", "image_id": "1", "claims": ["a"], "descriptive": [1], "verified": [1], "references": ["b"],
          "matched": [None], "answers": ["no"], "judge_model": "j", "verifier_model": "j", "judge_prompt": "p",
          "against": "both"}  # fmt: skip
FINISHED = {"results": {"mme": {"mme_perception_score,none": 1717.8}, "mmmu_val": {"mmmu_acc,none": 0.5}},
            "configs": {}, "n-samples": {}, "config": {"model_args": "pretrained=Org/Model"}}  # fmt: skip


def verbs(folder: Path, shared: Path) -> dict[str, list[object]]:
    """Every verb that writes results, on small inputs."""
    amber, pope = shared / "data" / "amber", shared / "data" / "pope"
    ratings = write(folder / "ratings.jsonl", *({"rating": k % 7, "image_id": k} for k in range(5)))
    facts = write(folder / "facts.jsonl", {"id": 1, "facts": ["a"], "verified": [1], "setting": "detailed"})
    answers = write(folder / "answers.jsonl", *YES_NO)
    found: dict[str, list[object]] = {
        "score": ["score", BASE, OURS, "--truth", TRUTH],
        "chair": ["chair", BASE, OURS, "--truth", TRUTH],
        "objhal": ["objhal", write(folder / "objects.jsonl", OBJECTS), "--truth", TRUTH],
        "amber": ["amber", amber / "responses" / "gen_llava_base.json.gz", "--data", amber],
        "pope": ["pope", *([pope / "formats" / "llava_answers.jsonl", "--questions", pope / "formats/labels.jsonl"])],
        "phd": ["phd", shared / "data/phd/phd_synthetic_answers.jsonl", "--data",
                shared / "data/phd/phd_synthetic.json"],
        "hallusionbench": ["hallusionbench", answers],
        "yesno": ["yesno", answers],
        "mmhal": ["mmhal", ratings],
        "faithscore": ["faithscore", facts],
        "facts": ["facts", write(folder / "claims.jsonl", CLAIMS)],
        "density": ["density", OURS, "--truth", TRUTH],
        "claims": ["claims", BASE, OURS, "--truth", TRUTH],
    }  # fmt: skip
    return found


def test_every_results_file_and_its_export(tmp_path: Path, shared: Path, run: Callable[..., str]) -> None:
    commands = verbs(tmp_path, shared)
    for verb, arguments in commands.items():
        saved, exported = tmp_path / f"{verb}.json", tmp_path / f"{verb}_eee"
        run(*arguments, "-o", saved, "-q", "--resamples", 20)
        document = json.loads(saved.read_text())
        results_file(document)
        assert document["format"] == RESULTS_FORMAT
        run("export", saved, "--to", "eee", "-o", f"{exported}/", "-q", "--resamples", 20, "--timestamp", 1)
        written = list(exported.rglob("*.json"))
        assert len(written) == len(document["systems"]), verb
        for path in written:
            eee = json.loads(path.read_text())
            eee_document(eee)
            system = next(each for each in document["systems"] if each["name"] == eee["model_info"]["name"])
            values = {each["evaluation_result_id"].split("/", 1)[1]: each for each in eee["evaluation_results"]}
            expected = {name: each for name, each in system["metrics"].items() if each["value"] is not None}
            assert {name: each["score_details"]["score"] for name, each in values.items()} == {
                name: each["value"] for name, each in expected.items()
            }
            name = next(iter(expected))
            interval = values[name]["score_details"]["uncertainty"]["confidence_interval"]
            assert (interval["lower"], interval["upper"]) == (expected[name]["ci_low"], expected[name]["ci_high"])
    from scapo_eval.results.benchmark import benchmarks

    assert {record.verb for record in benchmarks() if record.metric_set} == commands.keys()


def test_every_line_of_evidence(tmp_path: Path, shared: Path, run: Callable[..., str]) -> None:
    commands = verbs(tmp_path, shared)
    commands["amber yes/no"] = [
        "amber", shared / "data/amber/responses/partial_a.json.gz", "--data", shared / "data/amber",
    ]  # fmt: skip
    options = dict.fromkeys(("score", "chair", "objhal", "claims"), "--per-caption")
    options |= dict.fromkeys(("amber", "amber yes/no", "pope", "phd", "hallusionbench", "yesno"), "--per-answer")
    for verb, option in options.items():
        arguments = [each for each in commands[verb] if each != BASE]
        run(*arguments, option, tmp_path / "evidence.jsonl", "-q", "--resamples", 0)
        lines = (tmp_path / "evidence.jsonl").read_text().splitlines()
        assert lines, verb
        for line in lines[:200]:
            evidence_line(json.loads(line))
    evidence_line(CLAIMS)  # what judge facts writes is checked where it runs: tests/integration/test_answer.py


def test_finished_values_are_compared_reported_and_exported(tmp_path: Path, run: Callable[..., str]) -> None:
    files = []
    for name, value in (("base", 0.5), ("ours", 0.6)):
        FINISHED["results"]["mmmu_val"]["mmmu_acc,none"] = value
        (tmp_path / f"{name}.results.json").write_text(json.dumps(FINISHED))
        files.append(tmp_path / f"{name}.json")
        run("import", tmp_path / f"{name}.results.json", "--name", name, "-o", files[-1], "-q")
        results_file(json.loads(files[-1].read_text()))
    table = run("compare", *files, "-o", tmp_path / "both.json", "--json")
    results_file(json.loads((tmp_path / "both.json").read_text()))
    (mme, mmmu) = json.loads(table)["comparisons"]
    assert (mme["metric"], mme["difference"]) == ("mme_perception", 0.0)
    assert (mmmu["difference"], mmmu["p_value"], mmmu["n_images"]) == (pytest.approx(0.1), None, 0)
    assert "Nothing is tested." in run("compare", tmp_path / "both.json", "--format", "table")
    shown = run("report", tmp_path / "both.json", "--format", "csv", "--table", "general")
    assert shown.splitlines()[1].startswith("base,1717.8")
    run("report", *files, "-o", tmp_path / "page.html")
    assert "as computed by another harness" in (tmp_path / "page.html").read_text()
    run("export", tmp_path / "both.json", "--to", "eee", "-o", tmp_path / "out.json", "--model", "ours=Org/Ours", "-q")
    document = json.loads((tmp_path / "out.ours.json").read_text())
    eee_document(document)
    assert document["model_info"]["id"] == "Org/Ours"
    assert document["source_metadata"]["source_type"] == "documentation"
    (tmp_path / "out.base.json").write_bytes((tmp_path / "both.json").read_bytes())
    assert "out.base.json" in run(
        "export", tmp_path / "out.base.json", "--to", "eee", "-o", tmp_path / "out.json", code=2
    )
    assert "system 'x' not found" in run(
        "export", files[0], "--to", "eee", "-o", tmp_path / "x.json", "--model", "x=y/z", code=2
    )


def test_instances_are_joined_with_their_aggregate(tmp_path: Path, run: Callable[..., str]) -> None:
    results, evidence, out = tmp_path / "r.json", tmp_path / "e.jsonl", tmp_path / "out.json"
    pope = [{"id": k, "image": f"{k}.jpg", "question": "Is there a dog?", "response": said, "label": "yes"}
            for k, said in enumerate(["Yes", "No", "Yes"], 1)]  # fmt: skip
    answers = write(tmp_path / "a.jsonl", *pope)
    run("yesno", answers, "-o", results, "--per-answer", evidence, "-q", "--resamples", 10)
    run("export", results, "--to", "eee", "-o", out, "--instances", evidence, "-q", "--timestamp", 1)
    document = json.loads(out.read_text())
    eee_document(document)
    data = (tmp_path / "out_samples.jsonl").read_bytes()
    told = document["detailed_evaluation_results"]
    assert (told["total_rows"], told["checksum"]) == (3, hashlib.sha256(data).hexdigest())
    records = [json.loads(line) for line in data.splitlines()]
    [accuracy] = [each for each in document["evaluation_results"] if each["metric_config"]["metric_id"] == "accuracy"]
    for record in records:
        eee_instance(record)
        assert record["evaluation_id"] == document["evaluation_id"]
        assert record["evaluation_result_id"] == accuracy["evaluation_result_id"] == "yesno/accuracy"
    assert sum(r["evaluation"]["score"] for r in records) / 3 == accuracy["score_details"]["score"]
    assert accuracy["source_data"]["source_type"] == "other"
    hashed = hashlib.sha256("\n".join(["1", "2", "3"]).encode()).hexdigest()
    assert accuracy["source_data"]["additional_details"]["image_ids_sha256"] == hashed

    for verb in ("score", "chair"):
        run(verb, OURS, "--truth", TRUTH, "-o", results, "--per-caption", evidence, "-q", "--resamples", 0)
        run("export", results, "--to", "eee", "-o", out, "--instances", evidence, "-q", "--timestamp", 1)
        document = json.loads(out.read_text())
        records = [json.loads(line) for line in (tmp_path / "out_samples.jsonl").read_text().splitlines()]
        for record in records:
            eee_instance(record)
        [chair_s] = [r for r in document["evaluation_results"] if r["evaluation_result_id"].endswith("/chair_s")]
        assert chair_s["metric_config"]["metric_name"] == "CHAIR_s (native)"
        assert chair_s["metric_config"]["additional_details"] == {"metric_id_status": "unregistered"}
        share = sum(record["evaluation"]["score"] for record in records) / len(records)
        assert share == pytest.approx(chair_s["score_details"]["score"])
    assert "one system" in run(
        "export", results, results, "--to", "eee", "-o", tmp_path / "x.json", "--instances", evidence, code=2
    )


def test_tables_of_density_and_faithscore(tmp_path: Path, run: Callable[..., str]) -> None:
    both = ["--truth", TRUTH, "--vocabulary", "coco80", "--truth", TRUTH, "--vocabulary", "dopa160"]
    run("density", OURS, *both, "-o", tmp_path / "density.json", "-q")
    shown = run("report", tmp_path / "density.json", "--table", "3", "--format", "csv", "-q").splitlines()
    assert [line.split(",")[0] for line in shown[1:]] == ["coco80", "dopa160"]
    facts = [{"id": k, "facts": ["a", "b"], "verified": [1, k % 2], "setting": f"s{k}"} for k in range(2)]
    run("faithscore", write(tmp_path / "base.jsonl", *facts), "-o", tmp_path / "faith.json", "-q")
    shown = run("report", tmp_path / "faith.json", "--table", "faithscore", "--format", "csv").splitlines()
    assert shown[0] == "Method,S0 FaithScore,S0 Avg. Facts,S1 FaithScore,S1 Avg. Facts"
    assert [float(value) for value in shown[1].split(",")[1:]] == pytest.approx([0.5, 2, 1, 2])


def test_import_keeps_the_truth_that_a_log_carries(tmp_path: Path, run: Callable[..., str]) -> None:
    sample = {
        "doc_id": 0, "target": "", "arguments": [], "resps": [["A dog and a cat."]],
        "filtered_resps": ["A dog and a cat."], "doc_hash": "x", "prompt_hash": "x", "target_hash": "x",
        "doc": {"question_id": "42", "gt_object": ["dog", "dog"]},
        "coco_cap_chair_i": {"answer": ["dog", "dog"], "pred": ["dog", "cat"], "image_id": 42},
    }  # fmt: skip
    without = {**sample, "doc": {"question_id": "42"}}
    for log in (sample, without):
        path = write(tmp_path / "samples_coco_cap_chair.jsonl", log)
        assert json.loads(run("import", path, "--as", "captions", "-q")) == {
            "image_id": "42", "caption": "A dog and a cat.", "objects": ["dog"],
        }  # fmt: skip
    scored = json.loads(run("score", path, "--json", "--resamples", 0, "-q"))["systems"][0]
    assert scored["metrics"]["chair_i"]["value"] == 0.5
