"""Shared fixtures: a real browser, real loopback servers, tiny models with real architectures, and a small training
run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from scapo_eval.base.installed import install_command
from scapo_eval.cli.main import main

SERVER = Path(__file__).resolve().parent.parent / "servers" / "loopback.py"
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _missing(reason: str) -> NoReturn:
    if os.environ.get("SCAPO_REQUIRE_SHARED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``scapo-eval`` in this process, and returns its exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        captured = capfd.readouterr()
        assert isinstance(leaving.value.code, int)
        return leaving.value.code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yields Debian's chromium, controlled by playwright. Without it, tests are skipped, or fail if
    SCAPO_REQUIRE_SHARED=1.
    """
    try:
        from playwright import sync_api as playwright
    except ImportError:
        _missing(f"playwright is not installed: {install_command('test')}")
    chromium = shutil.which("chromium")
    if chromium is None:
        _missing("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=CHROMIUM, timeout=600_000)
        yield running
        running.close()


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Starts loopback servers. Each call returns the base URL of a server."""
    running: list[subprocess.Popen[str]] = []

    def run(*options: str) -> str:
        process = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{int(process.stdout.readline())}/v1"

    yield run
    for process in running:
        process.terminate()
        process.wait(600)
        assert process.stdout is not None
        process.stdout.close()


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@dataclass(frozen=True)
class Lab:
    """Small training run: a model, pictures, prompts, ground truth, and the settings of a run with four steps."""

    folder: Path

    @property
    def config(self) -> Path:
        """Settings as a file."""
        return self.folder / "config.toml"

    def run(self, name: str, *changes: str) -> list[str]:
        """Returns the arguments of a run with its own output folder and ``section.key=value`` changes."""
        output = f"run.output={self.folder / name}"
        return [str(self.config), *(part for change in (output, *changes) for part in ("--set", change))]

    def command(self, ranks: int, *arguments: str) -> list[str]:
        """Returns the command of a run, with torchrun if it has several ranks."""
        launcher = [*TORCHRUN, str(ranks)] if ranks > 1 else []
        return [sys.executable, *launcher, "-m", "scapo_train", *arguments]

    def forked(self, ranks: int, *program: str) -> list[str]:
        """Returns the command of a program with torchrun, in which all processes are forks of one process (the fixture
        ``warm``).
        """
        return ["python", *TORCHRUN, str(ranks), "--no-python", "python", *program]


@pytest.fixture(scope="session")
def lab_template(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the common files of all runs."""
    folder = tmp_path_factory.mktemp("lab")
    tiny.build(folder / "model")
    tiny.draw(folder / "images", 12)
    (folder / "images" / "truth.json").rename(folder / "truth.json")
    prompts = [{"image": f"{k}.png", "image_id": k, "prompt": "Describe this image" + " a" * k} for k in range(1, 13)]
    (folder / "train.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    return folder


@pytest.fixture
def lab(lab_template: Path, tmp_path: Path) -> Lab:
    """Returns a separate lab for a test. Its model is shared."""
    folder = tmp_path / "lab"
    shutil.copytree(lab_template, folder, ignore=shutil.ignore_patterns("model"))
    settings = {
        "run": {"steps": 4, "save_every": 1, "samples_every": 2, "samples": 2},
        "model": {"path": str(lab_template / "model"), "dtype": "float32"},
        "data": {
            "train": str(folder / "train.jsonl"),
            "images": str(folder / "images"),
            "oracle": str(folder / "truth.json"),
            "vocabulary": "coco80",
            "prompts_per_step": 5,
        },
        "rollout": {"group": 3, "max_new_tokens": 12},
        "optim": {"lr": 1e-3, "clip": 1.0},
    }
    lines = [
        line
        for section, values in settings.items()
        for line in (f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
    ]
    (folder / "config.toml").write_text("\n".join(lines))
    return Lab(folder)


@pytest.fixture(scope="module")
def exact_norms() -> Iterator[Callable[[Any], None]]:
    """Makes the norms of a float64 model compute in float64 in the rest of the module (``programs/exact.py``)."""
    spec = importlib.util.spec_from_file_location("exact", PROGRAMS / "exact.py")
    assert spec is not None
    assert spec.loader is not None
    exact = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exact)
    with pytest.MonkeyPatch.context() as patch:
        yield lambda model: exact.exact_norms(model, patch.setattr)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts ``transformers serve`` with the model in a folder. Each call returns the base URL of a server."""
    for package in ("fastapi", "uvicorn", "openai", "accelerate"):
        pytest.importorskip(package)
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(_served(model, tmp_path))


@contextmanager
def _served(model: str, folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = shutil.which("transformers", path=str(Path(sys.executable).parent))
    assert command is not None
    (folder / "hub").mkdir(exist_ok=True)
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_CACHE": str(folder / "hub"),
    }  # fmt: skip
    log_path = folder / f"serve-{port}.log"
    with open(log_path, "w") as log:
        process = subprocess.Popen(
            [command, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            for _ in range(3000):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                        break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, log_path.read_text()[-3000:]
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
