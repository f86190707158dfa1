"""``scapo-eval report`` and ``plot`` as users run them: what they take, write and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: object, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, timeout=600, env={**os.environ})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two systems' captions with inline truth, their results file, a training run, an empty folder."""
    folder = tmp_path_factory.mktemp("world")
    for name, said in (("base", "a dog, a cat and a car"), ("ours", "a dog and a cat")):
        lines = [
            {"image_id": k, "caption": said, "objects": ["dog", "cat", "car"][: 1 + k % 2 + k // 39]}
            for k in range(1, 41)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("base.jsonl", "ours.jsonl", "-o", "results.json", cwd=folder).returncode == 0
    (folder / "run").mkdir()
    (folder / "run" / "metrics.jsonl").write_text('{"step": 0, "hal_rate": 0.2}\n{"step": 1, "hal_rate": 0.1}\n')
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("inputs", "pages"),
    [
        (["base.jsonl", "ours.jsonl", "run"], "scores frontier labels captions guards training"),
        (["results.json"], "scores frontier"),
        (["run"], "training"),
        (["results.json", "run"], "scores frontier training"),
    ],
)
def test_inputs_are_recognised_by_content(world: Path, inputs: list[str], pages: str) -> None:
    done = run("report", *inputs, "-o", "report.html", cwd=world)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    page = (world / "report.html").read_text()
    assert [
        word for word in "scores frontier labels captions guards training".split() if f'<section id="{word}"' in page
    ] == (pages.split())


def test_a_page_and_a_table_go_to_standard_output_too(world: Path) -> None:
    captions = (world / "base.jsonl").read_bytes()
    (world / "truth.json").write_text(json.dumps({k: ["dog"] for k in range(1, 41)}))
    page = run("report", "-", "--truth", "truth.json", "-q", cwd=world, stdin=captions)
    assert page.returncode == 0
    assert page.stdout.startswith(b"<!DOCTYPE html>")
    table = run("report", "results.json", "--format", "markdown", cwd=world)
    assert table.stdout.decode().splitlines()[0].startswith("| System | Hal. Rate ↓ | Cover Rate ↑ |")
    assert table.stdout.decode().splitlines()[2].startswith("| base | ")


def test_systems_are_renamed(world: Path) -> None:
    done = run("report", "results.json", "--name", "ours=Ours", "--format", "csv", cwd=world)
    assert [line.split(",")[0] for line in done.stdout.decode().splitlines()] == ["System", "base", "Ours"]
    done = run("report", "base.jsonl", "--name", "base=B", "--format", "csv", cwd=world)
    assert done.stdout.decode().splitlines()[1].startswith("B,")


def test_the_same_input_gives_the_same_bytes(world: Path) -> None:
    made = []
    for name in ("a.html", "b.html"):
        assert run("report", "base.jsonl", "ours.jsonl", "run", "-o", name, cwd=world).returncode == 0
        made.append((world / name).read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("kind", ["frontier", "labels", "training"])
def test_plots_are_written(world: Path, kind: str) -> None:
    done = run("plot", kind, "base.jsonl", "ours.jsonl", "run", "-o", f"{kind}.svg", cwd=world)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"<svg" in (world / f"{kind}.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["report", "empty", "-o", "r.html"], "empty: not a training run's folder: metrics.jsonl not found in it"),
        (
            ["report", "results.json", "--name", "x=y"],
            "system 'x' not found, so it cannot be renamed (there are base, ours)",
        ),
        (["report", "results.json", "--name", "x"], "expected --name OLD=NEW, got 'x'"),
        (["report", "absent.jsonl", "-o", "r.html"], "absent.jsonl: file not found"),
        (["report", "results.json", "--thumbnails", "-o", "r.html"], "give their folder with --images"),
        (["report", "base.jsonl", "--images", "empty", "-o", "r.html"], "empty: pictures of these images not found"),
        (["report", "results.json", "--format", "csv", "--table", "3"], "give captions files"),
        (["report", "results.json", "-o", "no/such/r.html"], "no/such/r.html: cannot be written"),
        (["plot", "training", "results.json", "-o", "r.png"], "nothing to draw: give the folder"),
        (["plot", "frontier", "results.json", "-o", "r.jpg"], "must end in .png, .svg, .pdf"),
    ],
)
def test_bad_input_is_refused_in_one_line(world: Path, arguments: list[str], reason: str) -> None:
    done = run(*arguments, cwd=world)
    assert done.returncode == 2
    assert reason in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert not (world / "r.html").exists()
