"""``scapo-eval`` without arguments and ``scapo-eval doctor``: the first commands of a new user."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import install_lines
import pytest

from scapo_eval.base import installed
from scapo_eval.base.installed import ON_INDEX, install_command
from scapo_eval.base.releases import fits
from scapo_eval.cli import doctor
from scapo_eval.cli.here import what_next
from scapo_eval.engines import VLLM, VLLM_RESOLVED, VLLM_RUN

Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]

NO_ORIGIN = "pip install 'scapo[report]'" if ON_INDEX else "pip install '.[report]'  # in a clone of the repository"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "files", [("captions_baseline.jsonl", "captions_aligned.jsonl", "truth.json"), ("truth.json",)]
)
def test_alone_it_says_what_is_here_and_every_command_runs(run: Run, files: tuple[str, ...]) -> None:
    for name in files:
        shutil.copy(ROOT / "examples" / name, name)
    code, out, _ = run()
    assert code == 0
    assert len(out.splitlines()) <= 10
    assert all(name in out for name in files)
    commands = [line.split(" #")[0] for line in out.splitlines() if line.startswith("scapo-eval ") and ":" not in line]
    assert len(commands) >= 2
    for command in commands:
        assert run(*shlex.split(command)[1:])[0] == 0, command


def test_a_pipe_in_the_folder_is_not_opened() -> None:
    os.mkfifo("pipe.jsonl")
    assert "No captions or results in this folder" in "\n".join(what_next(Path()))


@pytest.mark.parametrize("module", ["jinja2", "no module"])
def test_a_command_that_needs_a_missing_extra_is_followed_by_its_installation(
    run: Run, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    shutil.copy(ROOT / "examples" / "captions_baseline.jsonl", "captions.jsonl")
    shutil.copy(ROOT / "examples" / "truth.json", "truth.json")
    [line] = [line for line in what_next(Path()) if line.startswith("scapo-eval report")]
    command, _, comment = line.partition("  # first: ")
    assert comment == (install_command("report") if module == "jinja2" else "")
    assert ("needs the extra" in run(*shlex.split(command)[1:])[2]) == bool(comment)


def test_one_results_file_with_one_system_is_shown(run: Run) -> None:
    captions, truth = (str(ROOT / "examples" / name) for name in ("captions_baseline.jsonl", "truth.json"))
    for name in ("a", "b"):
        assert run("score", f"{name}={captions}", "--truth", truth, "--resamples", "0", "-o", f"{name}.json")[0] == 0
        expected = "scapo-eval show a.json" if name == "a" else "scapo-eval compare a.json b.json"
        assert expected in what_next(Path())
        assert run(*expected.split()[1:])[0] == 0
    Path("res").mkdir()
    for name in ("a", "b"):
        Path(f"{name}.json").rename(f"res/{name}.json")
    assert "scapo-eval compare res/" in what_next(Path())
    assert run("compare", "res/")[0] == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"question": "Is there a dog?", "answer": "yes"},
        {"question_id": 1, "text": "Yes"},
        {"question_id": 1, "answer": "Yes, there is."},
        {"id": 1, "response": "Yes"},
        {"question_id": 1, "prompt": "Is there a dog?", "text": "Yes", "model_id": "m"},
    ],
)
def test_answers_beside_questions_are_scored_by_them(run: Run, answer: dict[str, object]) -> None:
    question = {"question_id": 1, "image": "1.jpg", "text": "Is there a dog?", "label": "yes"}
    Path("coco_pope_random.json").write_text(json.dumps(question))
    Path("answers.jsonl").write_text(json.dumps(answer))
    [command] = [line for line in what_next(Path()) if "answers.jsonl " in line]
    assert command == "scapo-eval pope answers.jsonl --questions coco_pope_random.json"
    assert run(*shlex.split(command)[1:])[0] == 0


def test_a_wide_table_a_list_of_words_and_a_folder_of_captions(run: Run) -> None:
    Path("wide.csv").write_text("image_id,dog,cat\n1,1,0\n2,0,1\n")
    Path("words.txt").write_text("dog\ncat\n")
    Path("notes.txt").write_text("These captions were written by a person on Monday.\n")
    Path("parts").mkdir()
    for k in (1, 2):
        Path(f"parts/{k}.jsonl").write_text(json.dumps({"image_id": k, "caption": "A dog."}))
    lines = what_next(Path())
    command = "scapo-eval parts/ --truth wide.csv --vocabulary words.txt"
    assert command in lines
    assert not any("notes.txt" in line for line in lines)
    assert run(*command.split()[1:])[0] == 0


def test_captions_of_other_images_are_scored_with_their_own_truth(run: Run) -> None:
    for name, images in (("a", (1, 2)), ("b", (3, 4)), ("c", (5,))):
        captions = [{"image_id": image, "caption": "A dog."} for image in images]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(caption) + "\n" for caption in captions))
    for name, images in (("first", (3, 4)), ("second", (1, 2))):
        Path(f"{name}.json").write_text(json.dumps({str(image): ["dog"] for image in images}))
    lines = what_next(Path())
    commands = ["scapo-eval a.jsonl --truth second.json", "scapo-eval b.jsonl --truth first.json"]
    assert [line for line in lines if " --truth " in line] == commands
    assert "# without a ground truth for their images: c.jsonl" in lines
    for command in commands:
        assert run(*command.split()[1:])[0] == 0


def test_python_runs_the_package_as_a_module(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, "-m", "scapo_eval", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, run("--version")[1])


def test_results_are_compared(run: Run) -> None:
    for name in ("captions_baseline", "captions_aligned"):
        truth, captions = (str(ROOT / "examples" / file) for file in ("truth.json", f"{name}.jsonl"))
        assert run("score", captions, "--truth", truth, "--resamples", "0", "-o", f"{name}.json")[0] == 0
    lines = what_next(Path())
    assert "scapo-eval compare captions_aligned.json captions_baseline.json" in lines
    assert run("compare", "captions_aligned.json", "captions_baseline.json")[0] == 0


def test_an_empty_folder_and_one_with_other_files(run: Run) -> None:
    Path("notes.json").write_text("[1, 2")
    Path("captions.jsonl").mkdir()
    code, out, _ = run()
    assert code == 0
    assert "scapo-eval example" in out
    assert run("example")[0] == 0
    assert "scapo-eval example " not in run()[1]


def test_doctor_names_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert re.search(rf"^ok +base +.*numpy {re.escape(version('numpy'))}", out, re.MULTILINE)
    wanted = [("", "numpy", ">=1.24"), ("formats", "no-such-package", ">=1"), ("report", "numpy", "<1")]
    monkeypatch.setattr(doctor, "_requirements", lambda: iter(wanted))
    code, out, _ = run("doctor")
    assert code == 0
    assert re.search(r"^missing formats +no-such-package \(parquet", out, re.MULTILINE)
    assert re.search(r"^wrong +report +numpy \S+ \(needs <1\)", out, re.MULTILINE)
    assert run("doctor", "formats")[0] == run("doctor", "report")[0] == 2
    assert run("doctor", "vocab")[0] == 0
    code, _, err = run("doctor", "vocabs")
    assert code == 2
    assert "no extra 'vocabs'" in err


def test_doctor_looks_for_chromium(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_requirements", lambda: iter([("", "numpy", ">=1.24")]))
    monkeypatch.setattr(shutil, "which", {"chromium": "/opt/chromium"}.get)
    assert re.search(r"^ok +chromium +/opt/chromium \(browser tests", run("doctor")[1], re.MULTILINE)
    monkeypatch.setattr(shutil, "which", {}.get)
    code, out, _ = run("doctor")
    assert code == 0
    assert re.search(r"^missing +chromium +apt-get install chromium", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("found", "module", "told"),
    [
        ("0.32.0", "LLM = None", r"^ok +vLLM's import works; scapo was run with 0.32.0 \(docs"),
        ("0.33.0", "LLM = None", r"^ok +vLLM's import works; scapo was not run with 0.33.0, but with 0.24, "),
        ("0.99.0", "LLM = None", r"^wrong +vLLM's import works; 0.99.0 is outside the range >=0.21,<0.34 that"),
        ("0.32.0", "import no_such_library", r"^wrong +vLLM's import fails \(ModuleNotFoundError: .*no_such_library"),
    ],
)
def test_doctor_imports_vllm(
    run: Run, found: str, module: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "version", lambda name: found)
    monkeypatch.setattr(doctor, "_requirements", lambda: iter([("vllm", "vllm", VLLM)]))
    code, out, _ = run("doctor", "vllm")
    assert re.search(told, out, re.MULTILINE), out
    assert code == (2 if "fails" in told else 0)


def test_the_ranges_of_vllm_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    ran = set(re.findall(r"^\| `\w+` \| ([\d.]+) \|", page, re.MULTILINE))
    fitting = re.findall(r"^\| vLLM ([\d.]+) \|.*\| transformers", page, re.MULTILINE)
    assert ran
    assert ran <= set(fitting)
    assert {release.rpartition(".")[0] for release in ran} <= set(VLLM_RUN)
    assert all(f" {release}" in page.partition("## vLLM, run")[2].partition("##")[0] for release in VLLM_RUN)
    assert f'"vllm{VLLM}"' in (ROOT / "pyproject.toml").read_text()
    assert all(fits(release, VLLM_RESOLVED) for release in fitting)
    others = set(re.findall(r"^\| vLLM ([\d.]+) \|", page, re.MULTILINE)) - set(fitting)
    assert others
    assert not any(fits(release, VLLM_RESOLVED) for release in others)


@pytest.mark.parametrize(
    ("found", "wanted", "does"),
    [
        ("2.13.0+cpu", ">=2.9,<2.14", True),
        ("2.14", ">=2.9,<2.14", False),
        ("1.24", ">=1.24", True),
        ("1.3", ">=1.24", False),
        ("5.23.0", "==5.23.0", True),
        ("1.8.0rc1", ">=1.8", True),
        ("3", "", True),
    ],
)
def test_ranges_of_versions(found: str, wanted: str, does: bool) -> None:
    assert fits(found, wanted) is does


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, NO_ORIGIN),
        ("{", NO_ORIGIN),
        ({"url": "file:///a%20b/scapo", "dir_info": {"editable": True}}, "pip install -e '/a b/scapo[report]'"),
        ({"url": "file:///scapo", "dir_info": {}}, "pip install '/scapo[report]'"),
        ({"url": "file:///x.whl", "archive_info": {}}, "pip install 'scapo[report] @ file:///x.whl'"),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    origin: object, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return origin if origin is None or isinstance(origin, str) else json.dumps(origin)

    monkeypatch.setattr(installed, "distribution", lambda name: Distribution())
    assert install_command("report") == command


def test_no_install_line_deviates_from_the_switch() -> None:
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in install_lines.files()}
    assert {Path("README.md"), Path("docs/scale.md"), Path("examples/trl_scapo.py")} <= texts.keys()
    assert [path for path, text in texts.items() if install_lines.rewritten(text) != text] == []
    named = [f"{path}: {line}" for path, text in texts.items() for line in text.splitlines() if "scapo[" in line]
    assert ON_INDEX or not named  # also outside of commands


def test_the_switch_changes_every_install_line_and_back() -> None:
    changed = 0
    for path in install_lines.files():
        on = install_lines.rewritten(path.read_text(encoding="utf-8"), on_index=True)
        off = install_lines.rewritten(on, on_index=False)
        assert install_lines.rewritten(off, on_index=True) == on, path
        assert (install_lines.NOW in on) == (install_lines.NOT_YET in off) == (path == ROOT / "README.md"), path
        assert not re.search(r"(?<!/)pip install (?!-e)[^`\n]*'\.\[", on), path
        changed += on != off
    assert changed > 8


@pytest.mark.parametrize(
    ("off", "on"),
    [
        ("# In a clone of the repository\npip install '.[report]'\n", "pip install 'scapo[report]'\n"),
        ("  # In a clone of the repository\n  pip install trl .  # or\n", "  pip install trl scapo  # or\n"),
        ("Run `pip install '.[a,b]'` in a clone of the repository.", "Run `pip install 'scapo[a,b]'`."),
        ("pip install -e '.[dev]'\n", "pip install -e '.[dev]'\n"),
        ("pip install spacy ./mine\n", "pip install spacy ./mine\n"),
    ],
)
def test_both_forms_of_install_lines(off: str, on: str) -> None:
    assert install_lines.rewritten(off, on_index=True) == on
    assert install_lines.rewritten(on, on_index=False) == install_lines.rewritten(off, on_index=False) == off
