"""``scapo-eval report`` and ``plot`` as users run them: their inputs, outputs and rejections."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Said(NamedTuple):
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs ``scapo-eval`` in a folder and in this process, with bytes as its standard input."""

    def call(*arguments: object, cwd: Path, stdin: bytes = b"") -> Said:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return Said(*run(*arguments))

    return call


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with two systems' captions and inline ground truth, their results file, a training run, and an
    empty folder.
    """
    folder = tmp_path_factory.mktemp("world")
    for name, said in (("base", "a dog, a cat and a car"), ("ours", "a dog and a cat")):
        lines = [
            {
                "image_id": k,
                "caption": said if k % 2 else "a dog and a car",
                "objects": ["dog", "cat", "car"][: 1 + k % 2 + k // 39],
            }
            for k in range(1, 41)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, "-m", "scapo_eval.cli.main", "base.jsonl", "ours.jsonl", "-o", "results.json"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
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
def test_inputs_are_recognised_by_content(run: Callable[..., Said], world: Path, inputs: list[str], pages: str) -> None:
    done = run("report", *inputs, "-o", "report.html", cwd=world)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = (world / "report.html").read_text()
    assert [
        word for word in "scores frontier labels captions guards training".split() if f'<section id="{word}"' in page
    ] == (pages.split())


def test_a_page_and_a_table_go_to_standard_output_too(run: Callable[..., Said], world: Path) -> None:
    captions = (world / "base.jsonl").read_bytes()
    (world / "truth.json").write_text(json.dumps({k: ["dog"] for k in range(1, 41)}))
    page = run("report", "-", "--truth", "truth.json", "-q", cwd=world, stdin=captions)
    assert page.returncode == 0
    assert page.stdout.startswith("<!DOCTYPE html>")
    table = run("report", "results.json", "--format", "markdown", cwd=world)
    assert table.stdout.splitlines()[0].startswith("| System | Hal. Rate ↓ | Cover Rate ↑ |")
    assert table.stdout.splitlines()[2].startswith("| base | ")


def test_systems_are_renamed(run: Callable[..., Said], world: Path) -> None:
    done = run("report", "results.json", "--name", "ours=Ours", "--format", "csv", cwd=world)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["System", "base", "Ours"]
    done = run("report", "base.jsonl", "--name", "base=B", "--format", "csv", cwd=world)
    assert done.stdout.splitlines()[1].startswith("B,")


def test_the_same_input_gives_the_same_bytes(run: Callable[..., Said], world: Path) -> None:
    arguments = ["report", "base.jsonl", "ours.jsonl", "run", "-o"]
    assert run(*arguments, "a.html", cwd=world).returncode == 0
    command = [sys.executable, "-m", "scapo_eval.cli.main", *arguments, "b.html"]  # strings hash otherwise there
    subprocess.run(command, cwd=world, capture_output=True, check=True)
    assert (world / "a.html").read_bytes() == (world / "b.html").read_bytes()


def plots_of_the_docs() -> list[str]:
    """Returns the ``scapo-eval plot`` commands in docs/plots.md."""
    text = (Path(__file__).parents[2] / "docs" / "plots.md").read_text("utf-8")
    lines = text.replace("\\\n", "").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.startswith("scapo-eval plot")]


@pytest.mark.parametrize("command", plots_of_the_docs())
def test_plots_of_the_docs_are_written(run: Callable[..., Said], world: Path, command: str) -> None:
    (world / "truth.json").write_text(
        json.dumps({k: ["dog", "cat", "car"][: 1 + k % 2 + k // 39] for k in range(1, 41)})
    )
    facts = [{"id": k, "facts": ["a", "b"], "verified": [1, k % 2], "setting": "detailed"} for k in range(40)]
    (world / "facts.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    assert run("faithscore", "facts.jsonl", "-o", "facts_results.json", "-q", cwd=world).returncode == 0
    for name in ("scapo", "grpo"):
        (world / "runs" / name).mkdir(parents=True, exist_ok=True)
        (world / "runs" / name / "metrics.jsonl").write_bytes((world / "run" / "metrics.jsonl").read_bytes())
    arguments = command.split()[1:]
    done = run(*arguments, cwd=world)
    assert (done.returncode, done.stderr) == (0, "")
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[arguments[-1].split(".")[-1]]
    assert (world / arguments[-1]).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["report", "empty", "-o", "r.html"],
            "empty: the folder contains no file in .jsonl, .json, .parquet, .csv or .tsv",
        ),
        (
            ["report", "results.json", "--name", "x=y"],
            "system 'x' not found, so it cannot be renamed (there are base, ours)",
        ),
        (["report", "results.json", "--name", "x=ours"], "system 'x' not found"),
        (["report", "results.json", "--name", "x"], "expected --name OLD=NEW, got 'x'"),
        (["report", "x=base.jsonl", "y=base.jsonl"], "'base.jsonl' is given under two names: x, y"),
        (["report", "absent.jsonl", "-o", "r.html"], "absent.jsonl: file not found"),
        (["report", "results.json", "--thumbnails", "-o", "r.html"], "--thumbnails requires the folder"),
        (["report", "base.jsonl", "--images", "empty", "-o", "r.html"], "empty: pictures of these images not found"),
        (["report", "base.jsonl", "--kinds", "count", "-o", "r.html"], "--kinds requires --scenes FILE"),
        (["report", "base.jsonl", "--scenes", "results.json", "-o", "r.html"], "results.json:1: no image id"),
        (["report", "results.json", "--format", "csv", "--table", "3"], "use caption files"),
        (
            ["report", "results.json", "--table", "3", "-o", "r.html"],
            "--table, --metrics and --intervals are for tables",
        ),
        (["report", "results.json", "--format", "csv", "--images", "empty"], "--title and --images are for the page"),
        (["report", "results.json", "--format", "csv", "--title", "T"], "--title and --images are for the page"),
        (["report", "results.json", "--port", "80", "-o", "r.html"], "--port requires --watch"),
        (["plot", "frontier", "results.json", "--top", "5", "-o", "r.png"], "--top is for plot labels"),
        (["plot", "labels", "results.json", "--trail", "run-", "-o", "r.png"], "--trail is for plot frontier"),
        (["plot", "labels", "base.jsonl", "--by", "length", "-o", "r.png"], "--by is for report"),
        (["report", "results.json", "-o", "no/such/r.html"], "no/such/r.html: cannot be written"),
        (["plot", "training", "results.json", "-o", "r.png"], "nothing to draw: specify the folder"),
        (["plot", "frontier", "results.json", "--smooth", "5", "-o", "r.png"], "--smooth is for plot training"),
        (["plot", "frontier", "results.json", "-o", "r.jpg"], "must end in .png, .svg, .pdf"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    run: Callable[..., Said], world: Path, arguments: list[str], reason: str
) -> None:
    done = run(*arguments, cwd=world)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not (world / "r.html").exists()


def test_a_figure_finds_the_results_of_its_benchmark(run: Callable[..., Said], world: Path) -> None:
    facts = [{"id": k, "facts": ["a", "b"], "verified": [1, k % 2]} for k in range(40)]
    (world / "f.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    assert run("faithscore", "f.jsonl", "-o", "f.json", "-q", cwd=world).returncode == 0
    assert run("faithscore", "f.jsonl", "g=f.jsonl", "-o", "fg.json", "-q", cwd=world).returncode == 0
    for kind, inputs in (("faithscore", ["results.json", "f.json"]), ("differences", ["f.json", "results.json"])):
        done = run("plot", kind, *inputs, "-o", f"{kind}.svg", cwd=world)
        assert (done.returncode, done.stderr) == (0, "")
    done = run("plot", "differences", "results.json", "fg.json", "-o", "both.svg", cwd=world)
    assert done.returncode == 2
    assert "and there are several: capscore, faithscore" in done.stderr


def test_a_terminal_is_told_what_takes_its_time(
    run: Callable[..., Said], world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes standard error for a terminal
    page = tmp_path / "page.html"
    said = run("report", "base.jsonl", "ours.jsonl", "--resamples", 20, "-o", page, cwd=world)
    assert said.returncode == 0
    assert "comparing the systems" in said.stderr
    assert "creating the page: 80 captions" in said.stderr
    monkeypatch.delenv("FORCE_COLOR")
    assert run("report", "base.jsonl", "--resamples", 20, "-o", page, cwd=world).stderr == ""


def test_a_missing_extra_is_named_before_the_captions_are_scored(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.jsonl").write_text("no JSON\n")
    assert "neither JSON nor a table" in run("report", "c.jsonl", "-o", "page.html", cwd=tmp_path).stderr
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "needs the extra 'report'" in run("report", "c.jsonl", "-o", "page.html", cwd=tmp_path).stderr


def test_inputs_are_named_as_they_are_given(run: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "hal_rate": 0.2}\n')
    text = '{"image_id": 1, "caption": "A dog.", "objects": ["dog"]}\n'
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "captions.jsonl").write_text(text)
    said = run("score", "x/captions.jsonl", "-o", "saved.json", cwd=tmp_path)
    assert said.returncode == 0
    arguments = ("One=x/captions.jsonl", "Two=y/captions.jsonl", "Three=saved.json", "--format", "csv")
    assert [line.split(",")[0] for line in run("report", *arguments, cwd=tmp_path).stdout.splitlines()[1:]] == [
        "One",
        "Two",
        "Three",
    ]
    assert run("report", "Mine=run", "-o", "named.html", cwd=tmp_path).returncode == 0
    assert run("report", "A=saved.json", "B=x/captions.jsonl", "--format", "csv", cwd=tmp_path).returncode == 0
    assert run("score", "x/captions.jsonl", "y/captions.jsonl", "-o", "two.json", cwd=tmp_path).returncode == 0
    refused = run("report", "A=two.json", "--format", "csv", cwd=tmp_path)
    assert (refused.returncode, "'A' names one system, but the file contains 2" in refused.stderr) == (2, True)


def test_many_resamples_are_told_on_a_terminal(
    run: Callable[..., Said], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("score", "base.jsonl", "ours.jsonl", "--resamples")
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = "resamples: intervals and differences of 2 systems"
    assert f"100,000 {said}" in run(*command, 100_000, cwd=world).stderr
    assert said not in run(*command, 100, cwd=world).stderr
    assert said not in run(*command, 100_000, "-q", cwd=world).stderr
    monkeypatch.delenv("FORCE_COLOR")
    assert said not in run(*command, 100_000, cwd=world).stderr
