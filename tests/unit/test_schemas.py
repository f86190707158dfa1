"""Every file that a scoring verb writes obeys the published schemas; exports obey that of Every Eval Ever."""

from __future__ import annotations

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

ADDITIONAL = {"type": "object", "additionalProperties": {"type": "string"}}
EEE = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library",
        "evaluation_results",
    ],
    "properties": {
        "schema_version": {"const": "0.3.0"},
        "evaluation_id": {"type": "string"},
        "retrieved_timestamp": {"type": "string", "pattern": r"^\d+(\.\d+)?$"},
        "source_metadata": {
            "required": ["source_type", "source_organization_name", "evaluator_relationship"],
            "properties": {
                "source_type": {"enum": ["documentation", "evaluation_run"]},
                "evaluator_relationship": {"enum": ["first_party", "third_party", "collaborative", "other"]},
            },
        },
        "eval_library": {"required": ["name", "version"], "properties": {"additional_details": ADDITIONAL}},
        "model_info": {
            "required": ["name", "id", "additional_details"],
            "properties": {
                "id": {"type": "string", "pattern": "^[^/]+/[^/]+$"},
                "additional_details": {
                    **ADDITIONAL,
                    "required": ["deployment_type", "model_availability"],
                    "properties": {
                        "deployment_type": {"enum": ["self_deployed", "externally_managed", "unknown"]},
                        "model_availability": {"enum": ["open_weights", "closed_weights", "unknown"]},
                    },
                },
            },
        },
        "evaluation_results": {
            "type": "array",
            "minItems": 1,
            "items": {
                "required": ["evaluation_name", "source_data", "metric_config", "score_details"],
                "properties": {
                    "source_data": {
                        "required": ["dataset_name", "source_type"],
                        "properties": {"source_type": {"const": "other"}, "additional_details": ADDITIONAL},
                    },
                    "metric_config": {
                        "required": ["lower_is_better"],
                        "properties": {
                            "lower_is_better": {"type": "boolean"},
                            "score_type": {"enum": ["binary", "continuous", "levels"]},
                            "min_score": {"type": "number"},
                            "max_score": {"type": "number"},
                        },
                        "if": {"required": ["score_type"], "properties": {"score_type": {"const": "continuous"}}},
                        "then": {"required": ["min_score", "max_score"]},
                    },
                    "score_details": {
                        "required": ["score"],
                        "properties": {
                            "score": {"type": "number"},
                            "details": ADDITIONAL,
                            "uncertainty": {
                                "properties": {
                                    "confidence_interval": {
                                        "required": ["lower", "upper"],
                                        "properties": {
                                            "lower": {"type": "number"},
                                            "upper": {"type": "number"},
                                            "confidence_level": {"type": "number", "minimum": 0, "maximum": 1},
                                            "method": {"type": "string"},
                                        },
                                    },
                                    "num_samples": {"type": "integer"},
                                    "num_bootstrap_samples": {"type": "integer"},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip
"""What the documentation of evaleval/every_eval_ever requires of a document of version 0.3, in our words: their
schema file comes without a license and is not shipped. The rules of their validator on bounds and deployment are in."""

eee_document = fastjsonschema.compile(EEE)


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
    options = {"score": "--per-caption", "chair": "--per-caption", "objhal": "--per-caption"}
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
    assert "as another harness computed them" in (tmp_path / "page.html").read_text()
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
