"""``scapo-eval doctor``: lists installed, missing and outdated packages, with the commands to install them."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, version

import click

from ..base.installed import DISTRIBUTION, install_command
from ..base.releases import fits, release_of
from ..base.version import __version__
from ..engines import VLLM_RESOLVED, VLLM_RUN
from .base import Verb
from .codes import BAD_INPUT
from .common import completing
from .echo import echo

FOR = {
    "formats": "parquet, xlsx",
    "nltk": "CHAIR's opera profile, AMBER's parity mode",
    "vocab": "drafting vocabularies",
    "spacy": "AMBER's word similarity, noun phrases in vocab mine",
    "http": "models behind an OpenAI-compatible server",
    "hf": "models in transformers",
    "vllm": "models in vLLM",
    "ray-llm": "models in vLLM on Ray",
    "ray": "scoring on Ray",
    "spark": "scoring on Spark",
    "report": "report, plot",
    "ngrams": "CIDEr, BLEU and ROUGE in validate",
    "pandas": "data frames",
    "torchmetrics": "a metric of torchmetrics",
    "train": "scapo_train",
    "lora": "scapo_train with adapters",
    "trl": "the adapter for TRL",
    "verl": "the adapter for verl",
}
"""Extra -> purpose. Extras for contributors are omitted."""

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_PYTHON = re.compile(r"python_version\s*(<|>=)\s*['\"]([\d.]+)['\"]")


@dataclass
class _Part:
    """Packages of one extra, or of the base installation."""

    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)

    def add(self, name: str, wanted: str) -> None:
        try:
            installed = version(name)
        except PackageNotFoundError:
            self.missing.append(name)
            return
        if fits(installed, wanted):
            self.present.append(f"{name} {installed}")
        else:
            self.unfit.append(f"{name} {installed} (needs {wanted})")


def _requirements() -> Iterator[tuple[str, str, str]]:
    """Yields the extra (an empty string for the base installation), the package and the version range of each
    requirement that applies to this version of Python.
    """
    for line in distribution(DISTRIBUTION).requires or ():
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is None or match[1] == DISTRIBUTION:
            continue
        marker = match[3] or ""
        python = _PYTHON.search(marker)
        running = sys.version_info[:2]
        if python and not fits(f"{running[0]}.{running[1]}", python[1] + python[2]):
            continue
        extra = _EXTRA.search(marker)
        yield (extra[1] if extra else ""), match[1], match[2].strip()


@click.command("doctor", cls=Verb)
@click.argument("extras", nargs=-1, shell_complete=completing(lambda ctx: FOR))
def command(extras: Sequence[str]) -> int:
    """Checks the installation: the base packages, and each extra with its purpose.

    EXTRAS are the required extras. The exit code is 2 if a required extra or the base installation is incomplete.
    """
    if unknown := [extra for extra in extras if extra not in FOR]:
        raise click.UsageError(f"no extra '{unknown[0]}'; there are {', '.join(FOR)}")
    echo(f"scapo {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    try:
        wanted = list(_requirements())
    except PackageNotFoundError:
        echo("not installed with pip (imported from its folder), so its requirements are unknown")
        return BAD_INPUT
    parts = {name: _Part() for name in ("", *FOR)}
    for extra, package, bounds in wanted:
        if extra in parts:
            parts[extra].add(package, bounds)
    width = max(map(len, FOR))
    bad = []
    for name, part in parts.items():
        if part.missing or part.unfit:
            faults = [*part.unfit, *([f"missing: {', '.join(part.missing)}"] if part.missing else [])]
            state, told = "wrong" if part.unfit else "missing", "; ".join(faults).removeprefix("missing: ")
            bad += [name] if name in ("", *extras) else []
        else:
            state, told = "ok", ", ".join(part.present)
        purpose = f" ({FOR[name]})" if name else ""
        echo(f"{state:8}{name or 'base':{width}}  {told}{purpose}")
        if state == "ok" and name == "nltk":
            bad += _nltk_data(name in extras)
        if name == "vllm" and part.present and part.present[0].startswith("vllm "):
            bad += _vllm(name in extras)
    browser = shutil.which("chromium")
    told = browser or "apt-get install chromium"
    echo(f"{'ok' if browser else 'missing':8}{'chromium':{width}}  {told} (browser tests, pictures of the report)")
    if absent := [name for name, part in parts.items() if name and (part.missing or part.unfit)]:
        echo(f"\nAn extra is installed with: {install_command(absent[0])}")
    return BAD_INPUT if bad else 0


def _vllm(needed: bool) -> list[str]:
    """Prints whether scapo was run with the installed version of vLLM and whether it can be imported. Returns the extra
    if it is needed and the import fails.
    """
    installed = version("vllm")
    fitting = fits(installed, VLLM_RESOLVED)
    if release_of(installed)[:2] in [release_of(each)[:2] for each in VLLM_RUN]:
        told = f"scapo was run with {installed}"
    elif fitting:
        told = f"scapo was not run with {installed}, but with {', '.join(VLLM_RUN)}"
    else:
        told = f"{installed} is outside the range {VLLM_RESOLVED} that installs together with scapo's trainer"
    told += " (docs/compatibility.md)"
    done = subprocess.run([sys.executable, "-c", "from vllm import LLM"], capture_output=True, text=True)
    if done.returncode == 0:
        echo(f"{'ok' if fitting else 'wrong':8}{'':4}vLLM's import works; {told}")
        return []
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    echo(f"{'wrong':8}{'':4}vLLM's import fails ({last}); {told}")
    return ["vllm"] if needed else []


def _nltk_data(needed: bool) -> list[str]:
    from ..base.nltk_tools import NLTK_DATA, absent_data

    missing = absent_data()
    if not missing:
        echo(f"{'ok':8}{'':4}NLTK's data: {', '.join(NLTK_DATA)}")
        return []
    echo(f"{'missing':8}{'':4}NLTK's data: python -m nltk.downloader {' '.join(missing)}")
    return ["nltk"] if needed else []
