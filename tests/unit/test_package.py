"""What the wheel and the source distribution hold, and what a user has without the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from scapo_eval.base.errors import InputError
from scapo_eval.cli.example import FILES, RECIPES, command

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """Files under version control, which are also those of a source distribution."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("git, or a checkout, not found")
    return set(done.stdout.split("\0")) - {""}


@pytest.fixture(scope="module")
def wheel() -> set[str]:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(CHECKOUT))
    return {file.distribution_path for file in builder.recurse_included_files()}


def test_the_wheel_is_the_packages_the_vocabularies_and_the_example(tracked: set[str], wheel: set[str]) -> None:
    packages = {name for name in tracked if name.startswith(("scapo_eval/", "scapo_train/"))}
    data = {name for name in tracked if name.startswith("vocab/")} | {f"examples/{name}" for name in FILES + RECIPES}
    new = {name for name in wheel if (CHECKOUT / name).exists()} - tracked  # of a working tree, not yet committed
    assert wheel - new == packages | {f"scapo_eval/{name}" for name in data}


def test_the_source_distribution_builds_the_wheel(tracked: set[str]) -> None:
    builder = pytest.importorskip("hatchling.builders.sdist").SdistBuilder(str(CHECKOUT))
    left_out = tracked - {file.distribution_path for file in builder.recurse_included_files()}
    of_the_checkout = (".ci/", ".github/", ".git", ".oxfmtrc.json", ".pre-commit-config.yaml", "pyproject.toml")
    assert not [name for name in left_out if not name.startswith(of_the_checkout)]  # pyproject.toml is always in


def test_the_example_without_the_repository(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "examples"
    for _ in range(2):  # a second time changes nothing
        done = CliRunner().invoke(command, [str(folder)], catch_exceptions=False)
        assert f"--truth {folder / 'truth.json'}" in done.output
        for name in FILES:
            assert (folder / name).read_bytes() == (CHECKOUT / "examples" / name).read_bytes()
    more = CliRunner().invoke(command, [str(folder), "--recipes"], catch_exceptions=False)
    assert more.exit_code == 0
    for name in RECIPES:
        assert (folder / name).read_bytes() == (CHECKOUT / "examples" / name).read_bytes()
    page = (CHECKOUT / "docs" / "integrations.md").read_text()
    for name in set(re.findall(r"[\w/]+\.(?:py|yaml)", page)):
        for path in (CHECKOUT / "examples").rglob(Path(name).name):
            assert (folder / path.relative_to(CHECKOUT / "examples")).exists(), name
    (folder / "truth.json").write_text("{}")
    with pytest.raises(InputError, match=r"truth\.json: exists and was not written by this command"):
        CliRunner().invoke(command, [str(folder)], catch_exceptions=False)
    assert (folder / "truth.json").read_text() == "{}"


def test_issue_forms_say_what_they_mean() -> None:
    yaml = pytest.importorskip("yaml")
    known = {"label", "description", "placeholder", "value", "render", "options", "multiple"}
    forms = [path for path in (CHECKOUT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 3
    for path in forms:
        for field in yaml.safe_load(path.read_text())["body"]:
            assert set(field["attributes"]) <= known, path.name  # a comma in a label makes keys of its rest
