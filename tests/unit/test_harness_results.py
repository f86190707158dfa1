"""Finished figures of lmms-eval and VLMEvalKit, handed over into one results file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.base.errors import InputError
from scapo_eval.cli.main import main
from scapo_eval.readers.formats import open_layout
from scapo_eval.results.harness import HandedOver, handed_over, results_object


def lmms(path: Path, results: dict[str, Any], **more: Any) -> Path:
    document = {
        "results": results,
        "configs": {task: {"task": task} for task in results},
        "versions": dict.fromkeys(results, "Yaml"),
        "n-samples": {task: {"original": 10, "effective": 10} for task in results},
        "config": {"model": "qwen2_5_vl", "model_args": "pretrained=Qwen/Qwen2.5-VL-7B-Instruct,device_map=auto"},
        "lmms_eval_version": "main@v0.6",
    }
    path.write_text(json.dumps({**document, **more}, indent=2))
    return path


def table(path: Path, *rows: list[object]) -> Path:
    """As VLMEvalKit writes them: every cell quoted."""
    path.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    return path


def read(path: Path) -> HandedOver:
    return handed_over(open_layout(path), path)


def values(run: HandedOver) -> dict[str, float]:
    return {name: figure.value for name, figure in run.values.items()}


def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, args)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capfd.readouterr()
    return int(left.value.code or 0), out, err


def test_lmms_eval_results(tmp_path: Path) -> None:
    run_ = read(
        lmms(
            tmp_path / "results.json",
            {
                "mme": {
                    "alias": "mme",
                    "mme_perception_score,none": 1717.8,
                    "mme_perception_score_stderr,none": "N/A",
                    "mme_perception_score_stderr_clt,none": 0.008,  # of the answers, not of the score
                    "mme_cognition_score,none": 625.7,
                },
                "mmbench_en_dev": {"gpt_eval_score,none": 84.8, "submission,none": None},
                "mmmu_val": {"mmmu_acc,none": 0.538, "mmmu_acc_stderr,none": 0.01},
                "llava_in_the_wild": {"gpt_eval_llava_all,none": 69.7, "gpt_eval_llava_conv,none": 71.0},
                "mmvet": {"gpt_eval_score,none": 65.9},
                "ai2d": {"exact_match,flexible-extract": 0.8},
            },
        )
    )
    assert values(run_) == {
        "mme_perception": 1717.8,
        "mme_cognition": 625.7,
        "mmbench_circular": pytest.approx(0.848),
        "mmmu_accuracy": 0.538,
        "llava_bench_relative": pytest.approx(0.697),
        "llava_in_the_wild/gpt_eval_llava_conv": 71.0,
        "mmvet_total": pytest.approx(0.659),
        "ai2d/exact_match@flexible-extract": 0.8,
    }
    assert (run_.tool, run_.model, run_.n) == ("lmms-eval", "Qwen2.5-VL-7B-Instruct", 60)
    (system,) = results_object([run_])["systems"]
    assert system["signature"].startswith("handed-over:lmms-eval|")
    assert "harness:main@v0.6" in system["signature"]
    mmmu = system["metrics"]["mmmu_accuracy"]
    assert mmmu["ci_low"] == pytest.approx(0.538 - 0.0196, abs=1e-5)
    assert system["metrics"]["mme_perception"] == {
        "value": 1717.8, "ci_low": None, "ci_high": None, "printed": 1717.8, "plain": True,
    }  # fmt: skip
    assert system["metrics"]["mmbench_circular"]["printed"] == 84.8


def test_the_old_spelling_of_perception(tmp_path: Path) -> None:
    path = lmms(tmp_path / "old.json", {"mme": {"mme_percetion_score,none": 1500.0}})
    assert values(read(path)) == {"mme_perception": 1500.0}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            (["perception", "reasoning", "OCR"], [1717.8, 625.7, 185.0]),
            {"mme_perception": 1717.8, "mme_cognition": 625.7, "MME/OCR": 185.0},
        ),
        (
            (["split", "Relative Score (main)", "VLM Score"], ["overall", 69.7, 60.1], ["conv", 71.0, 62.0]),
            {
                "llava_bench_relative": pytest.approx(0.697),
                "LLaVABench/overall/VLM Score": 60.1,
                "LLaVABench/conv/Relative Score (main)": 71.0,
                "LLaVABench/conv/VLM Score": 62.0,
            },
        ),
        (
            (["Category", "tot", "acc"], ["rec", 187, 70.0], ["Overall", 218, 65.9]),
            {
                "MMVet/rec/tot": 187, "MMVet/rec/acc": 70.0,
                "MMVet/Overall/tot": 218, "mmvet_total": pytest.approx(0.659),
            },
        ),
        (
            (["split", "Overall", "Art & Design", "Business"], ["dev", 0.5, 0.4, 0.3], ["validation", 0.538, 0.6, 0.5]),
            {
                "MMMU/dev/Overall": 0.5, "MMMU/dev/Art & Design": 0.4, "MMMU/dev/Business": 0.3,
                "mmmu_accuracy": 0.538, "MMMU/validation/Art & Design": 0.6, "MMMU/validation/Business": 0.5,
            },
        ),
        ((["split", "Overall", "AR", "CP"], ["none", 0.848, 0.9, 0.8]),
         {"mmbench_circular": 0.848, "MMBench/AR": 0.9, "MMBench/CP": 0.8}),
        (
            (
                ["split", "Overall", "AR"],
                ["vanilla_0_dev", 0.88, 0.9], ["vanilla_all_dev", 0.87, 0.9], ["circular_dev", 0.848, 0.8],
            ),
            {
                "mmbench_vanilla": 0.88, "MMBench/vanilla_0_dev/AR": 0.9,
                "MMBench/vanilla_all_dev/Overall": 0.87, "MMBench/vanilla_all_dev/AR": 0.9,
                "mmbench_circular": 0.848, "MMBench/circular_dev/AR": 0.8,
            },
        ),
        ((["split", "Overall", "other"], ["none", 0.5, "x"]), {"VLMEvalKit/Overall": 0.5}),
    ],
)  # fmt: skip
def test_vlmevalkit_tables(tmp_path: Path, rows: tuple[list[object], ...], expected: dict[str, float]) -> None:
    assert values(read(table(tmp_path / "scores.csv", *rows))) == expected


def test_vanilla_table_of_older_versions_is_told_by_its_name(tmp_path: Path) -> None:
    path = table(tmp_path / "m_MMBench_chatgpt_vanilla_acc.csv", ["split", "Overall", "AR"], ["dev", 0.88, 0.9])
    assert values(read(path))["mmbench_vanilla"] == 0.88


def test_vlmevalkit_json(tmp_path: Path) -> None:
    path = tmp_path / "score.json"
    path.write_text(json.dumps({"split": ["dev", "test"], "Overall": [0.5, 0.6], "AR": [0.1, 0.2]}))
    assert values(read(path)) == {
        "mmbench_circular": 0.5, "MMBench/dev/AR": 0.1, "MMBench/test/Overall": 0.6, "MMBench/test/AR": 0.2,
    }  # fmt: skip


def test_a_file_without_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"results.json: recognized as lmms-eval results .*without any number"):
        read(lmms(tmp_path / "results.json", {"mmbench_en_test": {"submission,none": None}}))


def test_import_merges_the_files_of_a_system(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mme = table(tmp_path / "scapo_MME_score.csv", ["perception", "reasoning"], [1728.2, 635.4])
    mmmu = lmms(tmp_path / "results.json", {"mmmu_val": {"mmmu_acc,none": 0.538}})
    out = tmp_path / "general.json"
    code, _, err = run(capfd, monkeypatch, "import", mme, mmmu, "--name", "SCAPO", "-o", out)
    assert code == 0
    assert "VLMEvalKit scores: 2 values imported" in err
    document = json.loads(out.read_text())
    (system,) = document["systems"]
    assert system["name"] == "SCAPO"
    assert set(system["metrics"]) == {"mme_perception", "mme_cognition", "mmmu_accuracy"}
    assert system["signature"].startswith("handed-over:vlmevalkit+lmms-eval|")
    code, _, _ = run(capfd, monkeypatch, "import", mme, mmmu, "-o", out)
    assert [system["name"] for system in json.loads(out.read_text())["systems"]] == [
        "scapo_MME_score",
        "Qwen2.5-VL-7B-Instruct",
    ]


def test_two_files_with_the_same_figure_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = lmms(tmp_path / "a.json", {"mmmu_val": {"mmmu_acc,none": 0.5}})
    b = lmms(tmp_path / "b.json", {"mmmu_val": {"mmmu_acc,none": 0.6}})
    code, out, err = run(capfd, monkeypatch, "import", a, b)
    assert (code, out) == (2, "")
    assert "b.json: contains 'mmmu_accuracy' for 'Qwen2.5-VL-7B-Instruct', as does " in err
    code, _, err = run(capfd, monkeypatch, "import", a, "--as", "captions")
    assert code == 2
    assert "not for finished results" in err
