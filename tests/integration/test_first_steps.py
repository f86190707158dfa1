"""``scapo-eval`` without arguments and ``scapo-eval doctor``: the first commands of a new user."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import install_lines
import pytest

from scapo_eval.base import installed
from scapo_eval.base.installed import ON_INDEX, install_command
from scapo_eval.cli import doctor
from scapo_eval.cli.doctor import fits
from scapo_eval.cli.here import what_next

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
    assert re.search(r"^missing formats +missing: no-such-package", out, re.MULTILINE)
    assert re.search(r"^wrong +report +numpy \S+ \(needs <1\)", out, re.MULTILINE)
    assert run("doctor", "formats")[0] == run("doctor", "report")[0] == 2
    assert run("doctor", "vocab")[0] == 0
    code, _, err = run("doctor", "vocabs")
    assert code == 2
    assert "no extra 'vocabs'" in err


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
