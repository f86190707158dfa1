"""Pages hold together: links lead somewhere, tutorials and README run as they stand."""

from __future__ import annotations

import glob
import os
import re
import runpy
import shlex
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from release import commands

import scapo_eval
from scapo_eval.cli.main import cli
from scapo_eval.matching.lint import check as findings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROGRAM = ROOT / "tests" / "programs" / "page_blocks.py"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")])
TUTORIALS = sorted((DOCS / "tutorial").glob("*.md"))
GUIDES = sorted((DOCS / "howto").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Slugs of the headings, as code hosts and the site make them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", title).lower().replace(" ", "-") for title in titles]
    return {"".join(c for c in word if c in "-_" or unicodedata.category(c)[0] in "LN") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_table_of_contents_names_pages() -> None:
    listed = re.findall(r"^[\w/]+$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert len(listed) > 25
    assert [name for name in listed if listed.count(name) > 1 or not (DOCS / f"{name}.md").is_file()] == []


def test_every_command_has_its_verb_and_options() -> None:
    """Of all pages: also of commands that need data, models or hours."""
    checked = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        installed = re.findall(r'^(\w+) = "\w+:BENCHMARK"$', text, re.MULTILINE)  # by the page itself
        for language, source in FENCE.findall(text):
            for line in re.split(r"\n|&&|;", source.replace("\\\n", " ")) if language == "bash" else ():
                if line.strip().startswith("scapo-eval "):
                    words = shlex.split(re.split(r"\s\||\s>", line)[0], comments=True)[1:]
                    if set(installed) & set(words):
                        continue  # tests/integration/test_own_benchmark.py runs them
                    assert not unknown(cli, words), line
                    checked += 1
    assert checked > 150


def unknown(command: click.Command, words: list[str]) -> list[str]:
    """Verbs and options that the command line does not have."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = command.get_command(context, words[0])
        if below is not None:
            return unknown(below, words[1:])
        if command is not cli or words[0].isalpha():
            return words[:1]
        return unknown(cli, ["score", *words])
    if "--benchmark" in words:  # of compare: that verb's options
        verb = words.index("--benchmark")
        return unknown(cli, [words[verb + 1], *words[:verb], *words[verb + 2 :]])
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in names]


def test_every_python_block_is_python() -> None:
    for page in PAGES:
        for language, source in FENCE.findall(page.read_text(encoding="utf-8")):
            if language == "python":
                compile(source, str(page), "exec")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(line: str) -> str:
    """What a ``scapo-eval`` command prints on a terminal; shell patterns are expanded."""
    _, *words = shlex.split(line, comments=True)
    arguments = [name for word in words for name in (sorted(glob.glob(word)) or [word])]
    if arguments[0].startswith("examples/") and "--format" not in arguments:
        arguments += ["--format", "table"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, (line, done.output)
    return done.output


@pytest.mark.parametrize("page", [*TUTORIALS, *GUIDES, ROOT / "README.md"], ids=lambda page: page.stem)
@pytest.mark.slow
def test_a_page_runs_as_it_stands(page: Path, user: Path) -> None:
    """Commands on the example, in order; where output is shown, its lines are printed; then the Python blocks."""
    run("scapo-eval example")
    on_the_example = commands(page.read_text(encoding="utf-8"))
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    printed = ""
    for language, source in blocks:
        if language == "bash":
            found = re.findall(r"^scapo-eval (?!.*runs/).*$", source.replace("\\\n", " "), re.MULTILINE)
            known = [line for line in found if page in TUTORIALS or line in on_the_example]
            printed = "".join(map(run, known))
        elif language == "text" and page.stem != "train":  # its output: test_train_plan.py
            assert [line for line in source.splitlines() if line not in printed] == []
    own = "\n".join(source for language, source in blocks if language == "python" and page.stem != "README")
    exec(compile(own, str(page), "exec"), {})  # the README's: test_docs_python.py


def test_the_files_of_the_guides_on_own_data_are_read(user: Path) -> None:
    worlds = []
    for language, source in FENCE.findall((DOCS / "howto" / "own_truth.md").read_text(encoding="utf-8")):
        if language in {"json", "csv"}:
            Path(f"truth.{language}").write_text(source)
            worlds.append(scapo_eval.PresenceOracle.load(f"truth.{language}").world)
    assert worlds == ["open-axis", "open-axis", "total"]
    [(_, vocabulary)] = [
        block
        for block in FENCE.findall((DOCS / "howto" / "own_vocabulary.md").read_text(encoding="utf-8"))
        if block[0] == "yaml"
    ]
    Path("pets.yaml").write_text(vocabulary)
    pets = scapo_eval.Vocabulary.load("pets.yaml")
    assert list(pets.labels) == ["dog", "cat"]
    pytest.importorskip("inflect")
    assert findings(pets) == []


def test_the_blocks_of_the_reward_pages_run(user: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("tokenizers")
    runpy.run_path(str(PROGRAM))["run_blocks"]()


@pytest.mark.slow
def test_the_blocks_of_the_reward_pages_run_from_the_wheel(user: Path) -> None:
    """In a folder without the repository; only the wheel's files are importable as scapo_eval."""
    pytest.importorskip("pandas")
    pytest.importorskip("tokenizers")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", ".", str(ROOT)]
    subprocess.run(pip, check=True, capture_output=True)
    [wheel] = user.glob("*.whl")
    zipfile.ZipFile(wheel).extractall("wheel")
    environment = {**os.environ, "PYTHONPATH": str(user / "wheel")}
    done = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(user / "wheel" / "scapo_eval")


def test_the_signature_of_the_scores_page_is_that_of_its_command() -> None:
    examples = ROOT / "examples"
    run = scapo_eval.score(examples / "captions_baseline.jsonl", truth=examples / "truth.json")
    assert f"`{run.signature}`" in (DOCS / "scores.md").read_text(encoding="utf-8")
