"""Builds and checks a release: ``python benchmarks/release.py DIR`` (``.ci/release`` makes the environment for it).

Wheel and source distribution are built twice, from two exports of HEAD in folders with different names, and must be
identical. Then only the wheel is installed into a new environment, in which all commands and Python blocks of its
README that need only the shipped example are run. The licenses and the bill of materials (CycloneDX) are derived from
this environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
EXTRAS = "formats,nltk,vocab,pandas,report,http"
"""Extras in the licenses and the bill of materials. torch (train, hf, vllm, torchmetrics) is excluded, because users
install it separately.
"""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Runs a command and returns its standard output. If it fails, both streams are printed and the program ends."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def built(folder: Path) -> dict[str, bytes]:
    """Builds sdist and wheel (from the sdist) of HEAD, exported into the folder, and returns name -> bytes."""
    source, output = folder / "source", folder / "output"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=CHECKOUT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    epoch = run("git", "log", "-1", "--format=%ct", cwd=CHECKOUT).strip()
    run(sys.executable, "-m", "build", "--outdir", output, source, SOURCE_DATE_EPOCH=epoch)
    return {path.name: path.read_bytes() for path in sorted(output.iterdir())}


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the files in a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
        return
    with tarfile.open(path) as sdist:
        for member in sdist.getmembers():
            if (stream := sdist.extractfile(member)) is not None:
                yield member.name, stream.read()


def check_contents(path: Path) -> int:
    """Checks a package for local paths and unwanted files, and returns the number of files."""
    private = [str(place).encode() for place in {CHECKOUT, Path.home(), Path(sys.prefix)} if len(place.parts) > 1]
    found = list(members(path))
    if missing := {"LICENSE", "NOTICE"} - {Path(name).name for name, _ in found}:
        sys.exit(f"{path.name}: {', '.join(missing)} not found")
    for name, content in found:
        if any(place + b"/" in content for place in private):
            sys.exit(f"{path.name}: {name} names a path of this machine")
        if "__pycache__" in name or name.endswith((".pyc", ".part")) or (path.suffix == ".whl" and "tests/" in name):
            sys.exit(f"{path.name}: {name} does not belong there")
    return len(found)


def readme_of(wheel: Path) -> str:
    """Returns the description in the form that a package index shows."""
    [metadata] = [content for name, content in members(wheel) if name.endswith(".dist-info/METADATA")]
    return str(Parser().parsestr(metadata.decode()).get_payload())


def lines_of(page: str) -> list[str]:
    """Returns the lines of all Bash blocks of a page. Continued lines are joined."""
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def commands(page: str) -> list[str]:
    """Returns the commands of a page that need only the shipped example."""
    return [line for line in lines_of(page) if re.match(r"scapo-eval (example\b|.*examples/)", line)]


def walk(wheel: Path, folder: Path) -> tuple[Path, int]:
    """Runs the README's commands in an empty folder with only the wheel, and returns the environment and the number of
    commands.
    """
    environment, user = folder / "environment", folder / "user"
    venv.create(environment, with_pip=True)
    user.mkdir()
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[report]")
    readme = readme_of(wheel)
    first, *others = commands(readme)
    if "scapo-eval example" not in first:
        sys.exit(f"the README's first command is not 'scapo-eval example': {first}")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    for line in (first, *others):
        print(f"  $ {line}", flush=True)
        run("bash", "-euo", "pipefail", "-c", line, cwd=user, PATH=path, PYTHONPATH="")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    run(programs / "python", "-c", "\n".join(blocks), cwd=user, PYTHONPATH="")
    if not (user / "report.html").is_file():
        sys.exit("the README's way does not lead to report.html")
    return environment, 1 + len(others) + len(blocks)


def bill_of_materials(environment: Path, output: Path, wheel: Path) -> list[dict[str, Any]]:
    """Writes the CycloneDX document of the environment with all light extras (without pip), and returns its
    components.
    """
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[{EXTRAS}]")
    run(programs / "python", "-m", "pip", "check")
    run(programs / "python", "-m", "pip", "uninstall", "-q", "-y", "scapo", "setuptools", "pip")
    run(
        sys.executable, "-m", "cyclonedx_py", "environment", environment, "--pyproject", CHECKOUT / "pyproject.toml",
        "--output-reproducible", "--output-format", "JSON", "-o", output,
    )  # fmt: skip
    document = json.loads(output.read_text())
    document["metadata"]["component"]["version"] = wheel.name.split("-")[1]  # which pyproject.toml leaves to the build
    output.write_text(json.dumps(document, indent=2) + "\n")
    components: list[dict[str, Any]] = document["components"]
    return components


def licenses(components: Iterable[dict[str, Any]]) -> str:
    """Returns a table with package, version and license from the metadata."""
    rows = ["| package | version | license |", "|---|---|---|"]
    for each in sorted(components, key=lambda each: str(each["name"]).lower()):
        said = [
            entry.get("expression") or entry["license"].get("id") or entry["license"].get("name", "").splitlines()[0]
            for entry in each.get("licenses", [])
        ]
        names = dict.fromkeys(name.removeprefix("License :: ").removeprefix("OSI Approved :: ") for name in said)
        rows.append(f"| {each['name']} | {each.get('version', '')} | {' / '.join(names) or 'not said'} |")
    return "\n".join(rows) + "\n"


def main(folder: str) -> None:
    """Runs all steps in order, and stops at the first failure."""
    output = Path(folder)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        once, twice = built(temporary / "a"), built(temporary / "another")
        if once != twice:
            sys.exit(f"two builds differ: {[name for name in once if once[name] != twice.get(name)]}")
        for artifact, content in once.items():
            (output / artifact).write_bytes(content)
            count = check_contents(output / artifact)
            print(f"{artifact}: {count} files, {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}")
        run(sys.executable, "-m", "twine", "check", "--strict", *(output / artifact for artifact in once))
        wheel = next(output / artifact for artifact in once if artifact.endswith(".whl"))
        environment, count = walk(wheel, temporary)
        print(f"README: {count} commands and blocks run from the wheel alone")
        components = bill_of_materials(environment, output / "sbom.cdx.json", wheel)
        (output / "licenses.md").write_text(licenses(components))
        print(f"{len(components)} packages -> {output / 'licenses.md'}, {output / 'sbom.cdx.json'}")
        shutil.rmtree(environment)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
