"""``scapo-eval`` without arguments and ``scapo-eval doctor``: the first commands of a new user."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from scapo_eval.base import installed
from scapo_eval.base.installed import ON_INDEX, install_command
from scapo_eval.cli import doctor
from scapo_eval.cli.doctor import fits
from scapo_eval.cli.here import what_next

Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]


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
        (None, "pip install 'scapo[report]'"),
        ("{", "pip install 'scapo[report]'"),
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


def test_pages_name_a_place_where_the_package_is() -> None:
    """Checks the switch for all install lines (``ON_INDEX``)."""
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if "lab" not in page.parts)]
    wrong = "'.[" if ON_INDEX else "'scapo["
    lines = [
        f"{page.name}: {line}" for page in pages for line in page.read_text().splitlines() if "pip install" in line
    ]
    assert len(lines) > 5
    assert not [line for line in lines if wrong in line and "-e " not in line]
