"""An installed package with one file, which supplies a command, a Python function, comparisons, intervals and a report
page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own_benchmark.md").read_text(encoding="utf-8")
PROGRAM, TOML, COMMANDS, PYTHON = (block for _, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S))
EXAMPLES = [f"examples/captions_{name}.jsonl" for name in ("baseline", "aligned")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder in which the package of the page is installed."""
    source, target = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("installed")
    (source / "numerals.py").write_text(PROGRAM, encoding="utf-8")
    (source / "pyproject.toml").write_text(TOML, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=600)
    return target


@pytest.fixture
def user(installed: Path, tmp_path: Path) -> Path:
    (tmp_path / "examples").mkdir()
    for name in (*EXAMPLES, "examples/truth.json"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def python(
    installed: Path, folder: Path, *arguments: str, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "NO_COLOR": "1", **(more or {})}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def run(installed: Path, folder: Path, *arguments: str) -> str:
    done = python(installed, folder, "-m", "scapo_eval.cli.main", *arguments)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def test_the_file_is_short() -> None:
    assert len(PROGRAM.splitlines()) <= 40


def test_every_command_of_the_page_runs(installed: Path, user: Path) -> None:
    printed = {}
    commands = re.sub(r"\\\n +", "", COMMANDS).splitlines()
    lines = [line for line in commands if line.startswith("scapo-eval ")]
    assert len(lines) == len(commands) - 1
    for line in lines:
        printed[line] = run(installed, user, *shlex.split(line)[1:])
    shown = " ".join(printed["scapo-eval numerals --help"].split())
    assert "Usage: scapo-eval numerals [OPTIONS] RECORDS..." in shown
    assert "--words WORDS Words that count. [default: two three four five several many]" in shown
    captions = [json.loads(line)["caption"].casefold() for line in (user / EXAMPLES[0]).read_text().splitlines()]
    said = [re.findall(r"\w+", caption) for caption in captions]
    wanted = [sum(word in "two three four five several many".split() for word in words) for words in said]
    document = json.loads((user / "numerals.json").read_text())
    first, second = document["systems"]
    assert first["metrics"]["say_number"]["value"] == sum(n > 0 for n in wanted) / len(wanted)
    assert first["metrics"]["numerals"]["value"] == sum(wanted) / len(wanted)
    assert first["metrics"]["say_number"]["ci_low"] < first["metrics"]["say_number"]["value"]
    fields = r"numerals\|version:1\|words:two three four five several many\|n:40\|ids:\w{8}\|bs:1000\|seed:12345\|"
    assert re.match(fields, first["signature"])
    assert {row["metric"] for row in document["comparisons"]} == {"say_number", "numerals"}
    assert all(row["p_value"] is not None and row["n_images"] == 40 for row in document["comparisons"])
    counted = [json.loads(line) for line in (user / "counted.jsonl").read_text().splitlines()]
    assert [each["counts"]["numerals"] for each in counted] == [
        sum(word in ("two", "three") for word in words) for words in said
    ]
    [latex] = [text for line, text in printed.items() if "latex" in line]
    assert "Says how many" in latex
    page = (user / "numerals.html").read_text(encoding="utf-8")
    assert "Says how many" in page
    assert "captions with a numeral" in page
    raw = [text for line, text in printed.items() if "--benchmark numerals" in line]
    assert f"{second['metrics']['say_number']['value']:.4f}"[:4] in raw[0]


def test_the_python_block_runs(installed: Path, user: Path) -> None:
    (user / "program.py").write_text(PYTHON, encoding="utf-8")
    done = python(installed, user, "program.py")
    assert done.returncode == 0, done.stderr
    assert "numerals|version:1|words:two three four five several many|n:40|" in done.stdout
    assert "Says how many" in done.stdout
    asked = "import inspect, scapo_eval; print(inspect.signature(scapo_eval.numerals)); help(scapo_eval.numerals)"
    shown = python(installed, user, "-c", asked).stdout
    assert "(records: 'Given', *, words: str = 'two three four five several many', name: " in shown
    assert "Captions that say how many" in shown


def test_it_stands_on_the_help_page_and_beside_the_shipped_ones(installed: Path, user: Path) -> None:
    shown = run(installed, user, "--help")
    assert "Benchmarks from other packages:\n  numerals " in shown
    asked = {"_SCAPO_EVAL_COMPLETE": "bash_complete", "COMP_WORDS": "scapo-eval num", "COMP_CWORD": "1"}
    done = python(installed, user, "-m", "scapo_eval.cli.main", more=asked)
    assert done.stdout == "plain,numerals\n"
    run(installed, user, *EXAMPLES, "--truth", "examples/truth.json", "-o", "scores.json", "-q")
    run(installed, user, "numerals", *EXAMPLES, "-o", "numerals.json", "-q")
    table = run(installed, user, "report", "scores.json", "numerals.json", "--format", "markdown")
    assert "Numerals Says how many" in table
    assert "Captions Cap. Score" in table


def test_faults_are_named_by_line(installed: Path, user: Path) -> None:
    (user / "bad.jsonl").write_text('{"id": 1, "caption": "two"}\n{"id": 2}\n{"id": 1, "caption": "a"}\n')
    done = python(installed, user, "-m", "scapo_eval.cli.main", "numerals", "bad.jsonl")
    assert done.returncode == 2
    assert "bad.jsonl:2: " in done.stderr
    assert "bad.jsonl:3: the id '1' appears twice (lines 1 and 3)" in done.stderr
    assert "Traceback" not in done.stderr
    done = python(installed, user, "-m", "scapo_eval.cli.main", "numerals", "bad.jsonl", "--engine", "ray")
    refused = "numerals does not support --engine, --address, --on-bad-file: its records are counted in one process"
    assert refused in " ".join(done.stderr.split())


def test_a_package_that_cannot_be_loaded_is_named_and_hurts_nobody(installed: Path, user: Path) -> None:
    broken = user / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[scapo.benchmarks]\nbroken = no_such_module:BENCHMARK\n")
    where = f"{user}{os.pathsep}{installed}"
    done = python(Path(where), user, "-m", "scapo_eval.cli.main", "broken", "x.jsonl")
    assert done.returncode == 2
    assert "the benchmark 'broken' of the package 'broken' cannot be loaded: ModuleNotFoundError" in done.stderr
    done = python(Path(where), user, "-m", "scapo_eval.cli.main", "--help")
    assert done.returncode == 0
    assert "numerals" in done.stdout
    assert "it is omitted" in done.stderr


FEW = {"pope": 4, "amber": 20, "phd": 11}
"""Benchmark -> files of the product, beside its own, that may name it.

Of POPE: the table of what is shipped, the typed public names, its parser, its layout of answers. AMBER and PhD have
more: counting on engines, truth files, the paper's tables, a prompt with a context, names of kinds of files.
"""


@pytest.mark.parametrize("name", FEW)
def test_a_benchmark_is_named_in_few_files(name: str) -> None:
    files = [path for room in ("scapo_eval", "scapo_train") for path in (ROOT / room).rglob("*")]
    others = [path for path in files if path.is_file() and path.suffix != ".pyc" and name not in str(path)]
    says = re.compile(f"(?i:{name})(?![a-z])".encode())  # not Popen
    named = [str(path) for path in others if says.search(path.read_bytes())]
    assert len(named) <= FEW[name], sorted(named)


def test_protocols_may_come_with_it(installed: Path, user: Path) -> None:
    package = user / "own-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[scapo.benchmarks]\nown = own:BENCHMARK\n")
    (user / "own.py").write_text(
        "from dataclasses import replace\nfrom pathlib import Path\nimport numerals\n"
        'BENCHMARK = replace(numerals.BENCHMARK, name="own", title="", summary="Own.", verb="", '
        'options={}, protocols=Path(__file__).parent / "protocols")\n'
    )
    (user / "protocols").mkdir()
    protocol = {"name": "own-40", "title": "Forty captions", "benchmarks": ["own"], "records": [40]}
    (user / "protocols" / "own-40.json").write_text(json.dumps(protocol))
    both = Path(f"{user}{os.pathsep}{installed}")
    assert "own-40" in run(both, user, "protocol", "list")
    saved = json.loads(run(both, user, "own", EXAMPLES[0], "--protocol", "own-40", "--json"))
    assert "protocol:own-40@" in saved["systems"][0]["signature"]
    wrong = {**protocol, "records": [41]}
    (user / "protocols" / "own-40.json").write_text(json.dumps(wrong))
    done = python(both, user, "-m", "scapo_eval.cli.main", "own", EXAMPLES[0], "--protocol", "own-40")
    assert done.returncode == 2
    assert "own-40" in done.stderr
