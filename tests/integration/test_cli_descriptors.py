"""Outputs named ``/dev/stdout`` and ``/dev/fd/N``, which are written where they are open, and other odd outputs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCAPO = f"{sys.executable} -m scapo_eval"


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "truth.json").write_text('{"1": ["dog", "cat"], "2": ["car", "person"], "3": ["dog"]}')
    captions = ("A dog and a bus.", "A person and a zebra and a giraffe.", "A dog.")
    lines = [json.dumps({"image_id": k, "caption": text}) + "\n" for k, text in enumerate(captions, 1)]
    (tmp_path / "c.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_log_that_is_appended_to_is_kept(folder: Path) -> None:
    (folder / "log.txt").write_text("line 1\n")
    done = shell(f"{SCAPO} c.jsonl --truth truth.json --format tsv -o /dev/stdout >> log.txt", folder)
    assert done.returncode == 0
    lines = (folder / "log.txt").read_text().splitlines()
    assert lines[0] == "line 1"
    assert json.loads(next(line for line in lines if line[0] == "{"))["format"] == "scapo-results/1"
    assert "cap_score" in "".join(lines)


@pytest.mark.parametrize("command", ["-o /dev/stdout -q | cat", "-o /dev/stderr -q 2>&1 >/dev/null | cat"])
def test_pipes_are_written(command: str, folder: Path) -> None:
    done = shell(f"set -o pipefail; {SCAPO} c.jsonl --truth truth.json {command}", folder)
    assert done.returncode == 0
    assert '"format":"scapo-results/1"' in done.stdout


def test_output_of_a_process_substitution(folder: Path) -> None:
    assert shell(f"{SCAPO} c.jsonl --truth truth.json -q -o >(cat > made.json)", folder).returncode == 0
    for _ in range(100):
        text = (folder / "made.json").read_text() if (folder / "made.json").exists() else ""
        if text.endswith("\n"):
            break
        time.sleep(0.05)
    assert json.loads(text)["format"] == "scapo-results/1"


def test_a_descriptor_that_is_not_open(folder: Path) -> None:
    done = shell(f"{SCAPO} c.jsonl --truth truth.json -q -o /dev/fd/77", folder)
    assert (done.returncode, done.stderr) == (2, "scapo-eval: /dev/fd/77: cannot be written: Bad file descriptor\n")


@pytest.mark.parametrize("option", ["-o ''", "--per-caption ''", "--truth ''", "--vocabulary ''"])
def test_empty_names_are_refused(option: str, folder: Path) -> None:
    done = shell(f"{SCAPO} c.jsonl --truth truth.json {option}", folder)
    assert done.returncode == 2
    assert "the name of the file is empty" in done.stderr


def test_a_truth_without_fixed_labels_is_converted_with_a_warning(folder: Path) -> None:
    rates = {}
    for name in ("t.npz", "t.json"):
        done = shell(f"{SCAPO} oracle convert truth.json -o {name}", folder)
        assert done.returncode == 0
        assert ("has no fixed set of labels" in done.stderr) == name.endswith("npz")
        scored = shell(f"{SCAPO} c.jsonl --truth {name} --metrics hal_rate --format tsv", folder).stdout
        rates[name] = scored.splitlines()[1].split("\t")[2]
    assert rates == {"t.npz": "0.0", "t.json": "50.0"}


def test_keys_that_no_record_has_are_named(folder: Path) -> None:
    done = shell(f"{SCAPO} c.jsonl --truth truth.json --caption-key refiend --format tsv", folder)
    assert done.stderr.count("warning: c.jsonl: no key 'refiend'; read as own captions (image_id, caption)") == 1


def test_more_workers_than_processors_are_not_started(folder: Path) -> None:
    done = shell(f"{SCAPO} c.jsonl --truth truth.json --workers 1000000 --format tsv", folder)
    assert done.returncode == 0
    assert done.stdout == shell(f"{SCAPO} c.jsonl --truth truth.json --format tsv", folder).stdout


def test_unreadable_and_repeated_ratings(folder: Path) -> None:
    (folder / "one.jsonl").write_text('{"id": 1, "rating": 4}\n{"id": 2, "judge_text": "none"}\n')
    done = shell(f"{SCAPO} mmhal one.jsonl --format tsv", folder)
    said = "1 verdicts contain no rating or several ratings, and are omitted; the official script counts them as 0"
    assert said in " ".join(done.stderr.split())
    assert "mmhal_score\t4.00" in done.stdout
    (folder / "two.jsonl").write_text('{"id": 1, "rating": 4}\n{"id": 1, "rating": 0}\n')
    done = shell(f"{SCAPO} mmhal two.jsonl", folder)
    assert (done.returncode, done.stderr) == (2, "scapo-eval: two.jsonl:2: a second rating of the id on line 1\n")


@pytest.mark.parametrize("option", ["--level cap --beta 1e308", "--r-g 1e308 --lam-g linear"])
def test_coefficients_that_overflow_are_refused(option: str, folder: Path) -> None:
    (folder / "r.jsonl").write_text('{"image_id": 1, "response": "A dog and a cat."}\n')
    done = shell(f"{SCAPO} reward r.jsonl --truth truth.json {option}", folder)
    assert done.returncode == 2
    assert "and at most 1e+100, got 1e+308" in done.stderr
