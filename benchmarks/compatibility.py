"""Compatible versions: ``compatibility.py resolve|pairs|run|tried|engines|page`` makes docs/compatibility.md.

``resolve [EXTRA ...]`` asks uv for the lowest and the newest versions with wheels, for every Python and extra; nothing
is installed. ``pairs`` asks it which vLLM each release of Ray brings, and whether each release of vLLM fits the extra
``train``. ``run`` installs the lowest and the newest versions for the Python that runs it, each into a fresh
environment, and runs the tests below. All need ``uv`` and the package index, and note what they found in
compatibility.json beside this file, with the day. ``tried [train] [trl] ...`` runs the tests of the trainer or of an
adapter with the packages of the Python that runs it. ``engines TABLE.json`` takes over what ``bash .ci/engines vllm``
measured. ``page`` writes the page of it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_suffix(".json")
PAGE = CHECKOUT / "docs" / "compatibility.md"

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PLATFORM = "x86_64-manylinux_2_31"
"""Debian 11, Ubuntu 20.04 and newer; for older systems a dependency of vLLM has no wheels since vLLM 0.22."""

RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
LIGHT = ("formats", "nltk", "vocab", "pandas", "report", "http")
"""Extras to install for the tests: all extras without torch, spaCy or a GPU library."""

EXTRAS = (
    "", *LIGHT, "spacy", "ngrams", "hf", "torchmetrics", "train", "lora", "trl", "verl", "ms-swift", "verifiers",
    "tinker", "vllm", "ray", "ray-llm", "spark", "docs",
)  # fmt: skip
SOURCE_ONLY = "pyspark"
"""Published without wheels: built while it is resolved; everything else comes as wheels."""
PAIRS = {"ray": ("2.55", "ray[llm]=={}"), "vllm": ("0.20", "vllm=={}"), "vllm with train": ("0.20", "vllm=={}")}
"""Name of a pair's first package -> its oldest release, and what is resolved of each newer one."""
TOGETHER = ("train,report", "train,http,report", "train,vllm", "http,report", ",".join(LIGHT))
TESTS = (
    "tests/unit/test_io.py", "tests/unit/test_io_formats.py", "tests/unit/test_truth_formats.py",
    "tests/unit/test_oracle.py", "tests/unit/test_capscore.py", "tests/unit/test_stats.py", "tests/unit/test_render.py",
    "tests/unit/test_results_files.py", "tests/unit/test_vocab_tools.py", "tests/unit/test_report.py",
    "tests/unit/test_package.py", "tests/integration/test_cli_score.py",
)  # fmt: skip

TRIED = {"train": ("torch", "transformers", "peft"), "trl": ("trl", "torch", "transformers")}
"""Part of scapo -> the packages whose versions are noted, the most important first."""
TRIED_TESTS = {
    "train": (
        "tests/unit/test_train_loss.py", "tests/unit/test_train_packing.py",
        "tests/integration/test_train_model.py", "tests/integration/test_train_families.py",
        "tests/integration/test_train_step.py", "tests/integration/test_train_distributed.py",
        "tests/integration/test_train_checkpoint.py", "tests/integration/test_train_lora.py",
        "tests/integration/test_train_doctor.py",
    ),
    "trl": ("tests/integration/adapters/test_trl.py",),
}  # fmt: skip


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs uv and returns its result."""
    return subprocess.run(["uv", *arguments], cwd=CHECKOUT, capture_output=True, text=True)


def compiled(python: str, extras: str | None, resolution: str, *requirements: str) -> subprocess.CompletedProcess[str]:
    """Returns pinned requirements of extras (None: without this project) and further requirements, from wheels."""
    chosen = [word for extra in (extras or "").split(",") if extra for word in ("--extra", extra)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "further.in").write_text("".join(f"{line}\n" for line in requirements))
        return uv(
            "pip", "compile", "-q", "--no-header", "--no-annotate", "--only-binary", ":all:", "--no-binary",
            SOURCE_ONLY, "--python-version", python, "--python-platform", PLATFORM, "--resolution", resolution,
            *chosen, *([] if extras is None else ["pyproject.toml"]), f"{folder}/further.in",
        )  # fmt: skip


def pinned(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Returns package -> version of a resolver's answer."""
    return dict(line.split("==") for line in done.stdout.split() if "==" in line)


def pairs() -> dict[str, Any]:
    """Returns pair -> release -> versions that come with it on Python 3.12, or the reason why none fit."""
    found: dict[str, Any] = {}
    for pair, (oldest, wanted) in PAIRS.items():
        extras = pair.partition(" with ")[2] or None
        for release in _releases(pair.split()[0], oldest):
            done = compiled("3.12", extras, "highest", wanted.format(release))
            pins = pinned(done)
            answer = {name: pins[name] for name in ("vllm", "torch", "transformers") if name in pins}
            found.setdefault(pair, {})[release] = {"fails": reason(done.stderr)} if done.returncode else answer
            print(f"{pair} {release}: {found[pair][release]}", flush=True)
    return found


def _releases(package: str, oldest: str) -> list[str]:
    """Returns the newest release of each minor version since the oldest one."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package], capture_output=True, text=True, check=True
    ).stdout
    numbers = [tuple(map(int, text.split("."))) for text in re.findall(r" (\d+\.\d+\.\d+)(?=,|\s)", listed)]
    newest: dict[tuple[int, ...], tuple[int, ...]] = {}
    for number in numbers:
        newest[number[:2]] = max(number, newest.get(number[:2], number))
    least = tuple(map(int, oldest.split(".")))
    return [".".join(map(str, number)) for minor, number in sorted(newest.items()) if minor >= least]


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
                pins = pinned(done)
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
            found[name] = {"python": platform.python_version(), "tests": tested(f"{python} {name}", program, TESTS)}
    return {python: found}


def tested(name: str, program: str | Path, tests: tuple[str, ...]) -> dict[str, int]:
    """Returns outcome -> number of tests, run by a Python."""
    done = subprocess.run(
        [program, "-m", "pytest", "-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider",
         "--import-mode=importlib", "-q", "--tb=line", *tests],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True,
    )  # fmt: skip
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)}
    print(f"{name}: {counts}\n{done.stdout[-3000:] if done.returncode else ''}", flush=True)
    return counts


def tried(*chosen: str) -> dict[str, Any]:
    """Returns part and versions -> test results of the parts, with the packages of the current Python."""
    found: dict[str, Any] = {}
    for part in chosen or ("train",):
        packages = {name: metadata.version(name) for name in TRIED[part]}
        name = " ".join([f"[{part}]", *(f"{package} {version}" for package, version in packages.items())])
        answer = {"tests": tested(name, sys.executable, TRIED_TESTS[part]), "python": platform.python_version()}
        found[name] = {**answer, "part": part, "packages": packages, "day": today()}
    return found


def today() -> str:
    """Returns the day in UTC."""
    return datetime.now(timezone.utc).date().isoformat()


def engines(table: str) -> dict[str, Any]:
    """Returns what ``bash .ci/engines vllm`` measured, by release of vLLM."""
    measured, server = json.loads(Path(table).read_text()), Path(f"{table}.server")
    if server.exists() and (other := json.loads(server.read_text()))["vllm"] == measured["vllm"]:
        of_server = {row["family"]: row for row in other["families"]}
        measured["families"] = [row | of_server.get(row["family"], {}) for row in measured["families"]]
    return {measured["vllm"]: measured}


def measured(record: dict[str, Any]) -> str:
    """Returns a table of families and releases."""
    gaps = {
        "before": "before", "after": "after", "export": "export", "adapters": "merged", "request": "adapters alone",
        "files": "server, files", "gloo": "server, transfer",
    }  # fmt: skip
    rows = [["family", "vLLM", "torch", "transformers", "day", "greedy", *gaps.values(), "sync", "adapters' sync"]]
    for release, run_of in record.get("engines", {}).items():
        for each in run_of["families"]:
            values = [f"{each[name]:.1e}" if name in each else "" for name in gaps]
            seconds = [f"{each[name]:.2f} s" if name in each else "" for name in ("sync_seconds", "request_seconds")]
            releases = [release, *(run_of[name] for name in ("torch", "transformers", "day"))]
            rows.append([f"`{each['family']}`", *releases, f"{each['greedy_equal']:.0%}", *values, *seconds])
    return table(rows)


def tries(record: dict[str, Any]) -> str:
    """Returns a table of the versions with which the trainer and the adapters were run."""
    rows = [["extra", "trl", "torch", "transformers", "peft", "day", "tests"]]
    for answer in sorted(record.get("tried", {}).values(), key=lambda each: (each["part"], *_order(each["packages"]))):
        cells = [answer["packages"].get(name, "") for name in rows[0][1:5]]
        rows.append([f"[{answer['part']}]", *cells, answer["day"], _outcome(answer)])
    return table(rows)


def _order(packages: dict[str, str]) -> list[list[int]]:
    return [[int(number) for number in re.findall(r"\d+", version)] for version in packages.values()]


def paired(record: dict[str, Any]) -> str:
    """Returns a table of the releases of Ray and vLLM."""
    found = record.get("pairs", {})
    rows = [["release", "vLLM", "torch", "transformers", "with `[train]`"]]
    for pair in ("ray", "vllm"):
        for release, answer in found.get(pair, {}).items():
            cells = [answer.get(name, "") for name in ("vllm", "torch", "transformers")]
            with_train = found["vllm with train"].get(release, {}) if pair == "vllm" else {}
            fits = (
                "" if pair == "ray" else "no" if "fails" in with_train else f"transformers {with_train['transformers']}"
            )
            name = {"ray": "Ray", "vllm": "vLLM"}[pair]
            rows.append([f"{name} {release}", *(["does not fit", "", ""] if "fails" in answer else cells), fits])
    return table(rows)


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
    why: dict[tuple[str, str], list[str]] = {}
    for name, answers in record["resolve"].items():
        for python, both in answers.items():
            for answer in both.values():
                if "fails" in answer:
                    why.setdefault((name, answer["fails"]), []).append(python)
    failures = sorted(_failure(*key, pythons) for key, pythons in why.items())
    return TEXT.format(
        required=table(required),
        ran=table(ran),
        extras=table(extras),
        chosen=table(chosen),
        failures="\n".join(failures) or "None.",
        light=", ".join(f"`{name}`" for name in LIGHT),
        files=len(TESTS),
        measured=measured(record),
        tried=tries(record),
        paired=paired(record),
        day=record.get("days", {}).get("resolve", "an earlier day"),
    )


def _outcome(answer: dict[str, Any]) -> str:
    if "fails" in answer:
        return f"cannot be installed: {answer['fails']}"
    return f"{', '.join(f'{n:,} {word}' for word, n in answer['tests'].items())} ({answer['python']})"


def _failure(extra: str, reason: str, pythons: list[str]) -> str:
    return f'- `[{extra}]` on Python {", ".join(dict.fromkeys(pythons))}. uv reports: "{reason}."'


def _resolved(extra: str, answers: dict[str, Any]) -> str:
    fits = [name for name, answer in answers.items() if "versions" in answer]
    if extra in ("trl", "verl", "vllm") and not any(extra in answers[name]["versions"] for name in fits):
        return "no"  # a marker leaves the package itself out
    return "yes" if len(fits) == 2 else f"{fits[0]} only" if fits else "no"


TEXT = """# Compatibility

This page lists the versions of Python and of the dependencies with which scapo was tested. It is generated by
`benchmarks/compatibility.py`. *Resolved* means only that the resolver of uv found compatible wheels for Linux on
x86-64. *Run* means that these wheels were also installed and that the tests passed.

## Run

The following table shows the results of {files} test files, with the extras {light}. The tests cover files and
formats, oracles, scoring, statistics, results, tables, vocabulary tools, the report, the package and the command line.

{ran}

The number of tests differs between rows, because the tests were run on different days. Skipped tests need another
version of Python or a package outside these extras. CI runs the whole test suite, including training, with one
version of Python, the versions of torch and transformers that the extra `test` pins, and the newest versions of all
other dependencies that are compatible with them.

## Training, run

`python benchmarks/compatibility.py tried train` runs the tests of the trainer with the packages that are installed,
on a CPU, including runs on several processes. The upper bound of torch in the extra `train` is the newest minor version
in this table.

{tried}

## vLLM, run

`bash .ci/engines vllm` runs vLLM on a CPU, in float32, with a tiny model of each family. The column *greedy* shows the
share of vLLM's greedy responses that equal those of the trainer. The next seven columns show the largest difference
between the log-probabilities of vLLM and of the trainer, in nats. The first five are those of vLLM in the training
process: before an update, after an update, for an exported model, with adapters that are merged into the weights, and
with adapters that are sent alone. The other two are those of a server before and after an update, with weights sent as
files and by vLLM's API for weight transfer over gloo (a cell is empty until `.ci/engines` has measured it). The limit
for these differences is 1e-4 nats. The last two columns show the duration of a synchronization of all weights, and of
adapters alone.

Without entries in this table, vLLM 0.24 and 0.26 were run with the trainer
([lab notes](lab/training.md#vllm-on-a-gpu)), and vLLM 0.29 with the engine `ray` (`bash .ci/engines ray_vllm`). All
other releases below were only resolved.

{measured}

## Ray, vLLM and training, resolved

The table shows which versions are installed together with each release of Ray and vLLM on Python 3.12. The last column
shows whether a vLLM release is compatible with the extra `train` and, if so, with which version of transformers.

{paired}

## Resolved: the dependencies

The dependencies were resolved on {day}, for systems with glibc 2.31 or newer. *Lowest* is the lowest version that
`pyproject.toml` allows and that has a wheel for this version of Python.

{required}

## Resolved: the extras

Each extra was resolved with both the lowest allowed and the newest versions of its dependencies. The version pins of
`trl` and `verl` are incompatible, and `vllm` and `ray-llm` each require their own version of torch. `[trl]` needs
Python 3.11 or later. pyspark is published only as source, so the check for `[spark]` builds pyspark, as pip does.

{extras}

{chosen}

uv cannot find compatible versions for the following extras:

{failures}
"""


def main(what: str = "", *extras: str) -> None:
    """Runs one of the steps."""
    steps: dict[str, Any] = {"resolve": resolve, "pairs": pairs, "run": run, "tried": tried}
    steps |= {"engines": engines, "page": dict}
    if what not in steps:
        sys.exit(__doc__)
    found = steps[what](*extras)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"resolve": {}, "run": {}}
    if what == "page":
        PAGE.write_text(page(record))
        return
    record[what] = {**record.get(what, {}), **found}
    record.setdefault("days", {})[what] = today()
    RECORD.write_text(json.dumps(record, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    outcomes = [answer for both in found.values() for answer in both.values()] if what == "run" else []
    outcomes += found.values() if what == "tried" else []
    if any("fails" in each or {"failed", "error", "errors"} & set(each["tests"]) for each in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
