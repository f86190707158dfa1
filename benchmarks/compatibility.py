"""Compatible versions: ``python benchmarks/compatibility.py resolve|run|page`` makes docs/compatibility.md.

``resolve [EXTRA ...]`` asks uv for the lowest and the newest versions with wheels for every Python version and extra,
without installing them. ``run`` installs the lowest and the newest versions for the current Python version, each into a
new environment, and runs the tests below. Both steps need ``uv`` and the package index, and write their results to
compatibility.json in this folder. ``page`` writes the page from this file.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_suffix(".json")
PAGE = CHECKOUT / "docs" / "compatibility.md"

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
LIGHT = ("formats", "nltk", "vocab", "pandas", "report", "http")
"""Extras to install for the tests: all extras without torch, spaCy or a GPU library."""

EXTRAS = (
    "", *LIGHT, "spacy", "hf", "torchmetrics", "train", "lora", "trl", "verl", "vllm", "ray", "ray-llm", "spark",
    "docs",
)  # fmt: skip
SOURCE_ONLY = "pyspark"
"""Package without wheels, which is built during resolution. All other packages are wheels."""
TOGETHER = ("train,report", "train,http,report", "train,vllm", "http,report", ",".join(LIGHT))
TESTS = (
    "tests/unit/test_io.py", "tests/unit/test_io_formats.py", "tests/unit/test_truth_formats.py",
    "tests/unit/test_oracle.py", "tests/unit/test_capscore.py", "tests/unit/test_stats.py", "tests/unit/test_render.py",
    "tests/unit/test_results_files.py", "tests/unit/test_vocab_tools.py", "tests/unit/test_report.py",
    "tests/unit/test_package.py", "tests/integration/test_cli_score.py",
)  # fmt: skip


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs uv and returns its result."""
    return subprocess.run(["uv", *arguments], cwd=CHECKOUT, capture_output=True, text=True)


def compiled(python: str, extras: str, resolution: str) -> subprocess.CompletedProcess[str]:
    """Returns pinned requirements, from wheels."""
    chosen = [word for extra in extras.split(",") if extra for word in ("--extra", extra)]
    return uv(
        "pip", "compile", "-q", "--no-header", "--no-annotate", "--only-binary", ":all:", "--no-binary", SOURCE_ONLY,
        "--python-version", python,
        "--python-platform", "x86_64-manylinux_2_28", "--resolution", resolution, *chosen, "pyproject.toml",
    )  # fmt: skip


def reason(said: str) -> str:
    """Returns a short reason for a failed resolution: the resolver's first sentence that names a package."""
    text = " ".join(re.sub(r"[×╰─▶│]", " ", said).split())
    found = re.search(r"[Bb]ecause (.+?)(?:,? we can conclude|, and| and (?:only|you|scapo)|\.\s|$)", text)
    return (found[1] if found else text).partition(" (e.g.")[0][:160]


def direct() -> set[str]:
    """Returns the names of the packages in pyproject.toml."""
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    return set(re.findall(r'"([A-Za-z][\w-]*)(?:\[\w+\])?[<>=]{2}', text))


def resolve(*chosen: str) -> dict[str, Any]:
    """Returns extra -> Python version -> resolution -> versions of the direct dependencies, or the reason of a failure.

    Without arguments, all extras are resolved.
    """
    found: dict[str, Any] = {}
    named = direct()
    for extras in chosen or (*EXTRAS, *TOGETHER):
        for python in PYTHONS:
            for name, resolution in RESOLUTIONS.items():
                done = compiled(python, extras, resolution)
                pins = dict(line.split("==") for line in done.stdout.split() if "==" in line)
                answer = (
                    {"versions": {k: v for k, v in pins.items() if k in named}}
                    if not done.returncode
                    else {"fails": reason(done.stderr)}
                )
                found.setdefault(extras, {}).setdefault(python, {})[name] = answer
                print(f"[{extras}] {python} {name}: {answer.get('fails') or f'{len(pins)} packages'}", flush=True)
    return found


def run() -> dict[str, Any]:
    """Returns resolution -> test results, for the current Python version."""
    python = ".".join(platform.python_version_tuple()[:2])
    found: dict[str, Any] = {}
    for name, resolution in RESOLUTIONS.items():
        requirements = compiled(python, ",".join(LIGHT), resolution)
        if requirements.returncode:
            found[name] = {"fails": reason(requirements.stderr)}
            continue
        with tempfile.TemporaryDirectory() as folder:
            pins, program = Path(folder, "pins.txt"), Path(folder, "environment", "bin", "python")
            pins.write_text(requirements.stdout)
            uv("venv", "-q", "--python", sys.executable, str(Path(folder, "environment")))
            tools = ("pytest", "hypothesis", "fastjsonschema", "hatchling")
            installed = uv("pip", "install", "-q", "--python", str(program), "-r", str(pins), *tools)
            if installed.returncode:
                found[name] = {"fails": reason(installed.stderr)}
                continue
            done = subprocess.run(
                [program, "-m", "pytest", "-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider",
                 "--import-mode=importlib", "-q", "--tb=line", *TESTS],
                cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True,
            )  # fmt: skip
        counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)}
        found[name] = {"python": platform.python_version(), "tests": counts}
        print(f"{python} {name}: {counts}\n{done.stdout[-3000:] if done.returncode else ''}", flush=True)
    return {python: found}


def versions(answer: dict[str, Any], names: list[str]) -> list[str]:
    """Returns a table cell for each package."""
    return [answer.get("versions", {}).get(name, "") for name in names]


def table(rows: list[list[str]]) -> str:
    """Returns a Markdown table whose first row is the header."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def page(record: dict[str, Any]) -> str:
    """Returns the text of docs/compatibility.md."""
    base = record["resolve"][""]
    names = sorted({name for python in base.values() for name in python["newest"].get("versions", {})})
    required = [["Python", "", *names]]
    for python, answers in base.items():
        required += [[python, name, *versions(answer, names)] for name, answer in answers.items()]
    ran = [["Python", "lowest", "newest"]]
    for python in PYTHONS:
        cells = record["run"].get(python)
        ran.append([python, *(_outcome(cells[name]) if cells else "not run" for name in RESOLUTIONS)])
    extras = [["extras", *PYTHONS]]
    for name in (*EXTRAS, *TOGETHER):
        if name and (answers := record["resolve"].get(name)):
            extras.append([f"`[{name}]`", *(_resolved(name, answers[python]) for python in PYTHONS)])
    heavy = ["torch", "transformers", "vllm", "trl", "verl", "ray"]
    chosen = [["extras, Python 3.12", "", *heavy]]
    for name in ("hf", "train", "vllm", "train,vllm", "ray", "ray-llm", "trl", "verl"):
        chosen += [[f"`[{name}]`", k, *versions(v, heavy)] for k, v in record["resolve"][name]["3.12"].items()]
    failures = sorted(
        {
            f"- `[{name}]`, Python {python}, {which}: {answer['fails']}"
            for name, answers in record["resolve"].items()
            for python, both in answers.items()
            for which, answer in both.items()
            if "fails" in answer
        }
    )
    return TEXT.format(
        required=table(required),
        ran=table(ran),
        extras=table(extras),
        chosen=table(chosen),
        failures="\n".join(failures) or "None.",
        light=", ".join(f"`{name}`" for name in LIGHT),
        files=len(TESTS),
    )


def _outcome(answer: dict[str, Any]) -> str:
    if "fails" in answer:
        return f"cannot be installed: {answer['fails']}"
    return f"{', '.join(f'{n:,} {word}' for word, n in answer['tests'].items())} ({answer['python']})"


def _resolved(extra: str, answers: dict[str, Any]) -> str:
    fits = [name for name, answer in answers.items() if "versions" in answer]
    if extra in ("trl", "verl", "vllm") and not any(extra in answers[name]["versions"] for name in fits):
        return "no"  # a marker leaves the package itself out
    return "yes" if len(fits) == 2 else f"{fits[0]} only" if fits else "no"


TEXT = """# Compatibility

This page lists the versions of Python and of the dependencies with which scapo was tested. It is generated by
`benchmarks/compatibility.py`. *Resolved* only means that a resolver (uv) found compatible wheels for Linux on x86-64.
*Run* means that these wheels were installed and that the tests passed.

## Run

The following results are from {files} test files (files and formats, oracle, scoring, statistics, results, tables,
vocabulary tools, the report, the package, the command line), with the extras {light}:

{ran}

The number of tests differs between rows, because the rows were run on different days. Skipped tests need another
version of Python or another package. The whole test suite, including training, is run in CI with the newest versions
and one version of Python.

## Resolved: the dependencies

The lowest version is the oldest one that `pyproject.toml` allows and that has a wheel for that Python.

{required}

## Resolved: the extras

Each extra was resolved with its lowest and its newest versions. The version pins of `trl` and `verl` are
incompatible, and `vllm` and `ray-llm` require their own version of torch. `[trl]` needs Python 3.11 or later. pyspark
is published only as source, so for `[spark]`, it is built, as pip does.

{extras}

{chosen}

The following combinations cannot be resolved:

{failures}
"""


def main(what: str = "", *extras: str) -> None:
    """Runs one of the three steps."""
    steps: dict[str, Any] = {"resolve": resolve, "run": run, "page": dict}
    if what not in steps:
        sys.exit(__doc__)
    found = steps[what](*extras)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"resolve": {}, "run": {}}
    if what == "page":
        PAGE.write_text(page(record))
        return
    record[what] = {**record[what], **found}
    RECORD.write_text(json.dumps(record, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    outcomes = [answer for both in found.values() for answer in both.values()] if what == "run" else []
    if any("fails" in each or {"failed", "error", "errors"} & set(each["tests"]) for each in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
