"""The small world: the paper's claim, watched in training runs of the real trainer.

A run depends on its seed and on the processor's kernels alike. Asserted is what held under all of PyTorch's
(``ATEN_CPU_CAPABILITY`` default, avx2 and avx512) by far more than the margins here: of sampled responses, relative to
the model before alignment, as means over several seeds. Nothing is said of fluency or of greedy responses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from filelock import FileLock  # noqa: E402

from scapo_train import trainer  # noqa: E402
from scapo_train.config import load  # noqa: E402
from scapo_train.world import __main__ as command  # noqa: E402
from scapo_train.world.experiment import SCHEMES, Rates, measure  # noqa: E402
from scapo_train.world.pictures import WORLDS  # noqa: E402
from scapo_train.world.pretrain import Lessons  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
LESSONS = Lessons(see=60, speak=450, scenes=2500)
PICTURES = {"TRAIN_PICTURES": 256, "EVALUATION_PICTURES": 128}
UNWATCHED = ("run.samples=0", "run.evaluate_every=0", "data.evaluation=", "data.evaluation_oracle=")
SEEDS = (0, 1, 2)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world with a model before alignment: one for all processes of the test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "world"
    torch.set_num_threads(1)
    with FileLock(f"{folder}.lock"), pytest.MonkeyPatch.context() as patch:
        for name, value in PICTURES.items():
            patch.setattr(command, name, value)
        command.prepare(WORLDS["plain"], folder, LESSONS)
        measure(folder / "model", folder, 1.0)
    return folder


@pytest.fixture(scope="module")
def before(start: Path) -> Rates:
    """The rates of the model before alignment."""
    return measure(start / "model", start, 1.0)


def trained(start: Path, folder: Path, scheme: str, steps: int, seeds: Sequence[int] = SEEDS) -> list[Rates]:
    """The rates after alignment, a run for each seed."""
    torch.set_num_threads(1)
    found = []
    for seed in seeds:
        run = folder / f"{scheme}-{seed}"
        changes = [f"run.output={run}", f"run.seed={seed}", f"run.steps={steps}", *UNWATCHED]
        trainer.train(load(start / "world.toml", [*changes, *SCHEMES[scheme].settings]))
        found.append(measure(run / "model", start, 1.0))
    return found


def mean(found: Sequence[Rates], name: str) -> float:
    return float(np.mean([getattr(rates, name) for rates in found]))


def test_the_model_before_alignment_omits_and_invents(before: Rates) -> None:
    assert before.cover_rate is not None
    assert before.hal_rate is not None
    assert 0.3 <= before.cover_rate <= 0.7
    assert 0.1 <= before.hal_rate <= 0.4


def test_subsentence_credit_says_more_and_invents_less(start: Path, before: Rates, tmp_path: Path) -> None:
    found = trained(start, tmp_path, "scapo", 40)
    print([(rates.hal_rate, rates.cover_rate) for rates in [before, *found]])
    assert mean(found, "cover_rate") >= before.cover_rate + 0.08
    assert mean(found, "hal_rate") <= before.hal_rate - 0.015


def test_the_response_level_hal_rate_teaches_saying_less(start: Path, before: Rates, tmp_path: Path) -> None:
    found = trained(start, tmp_path, "hal", 12)
    print([(rates.hal_rate, rates.cover_rate, rates.words) for rates in [before, *found]])
    assert mean(found, "cover_rate") <= before.cover_rate / 2
    assert mean(found, "words") < before.words


def test_the_response_level_cap_score_teaches_guessing(start: Path, before: Rates, tmp_path: Path) -> None:
    found = trained(start, tmp_path, "cap", 10)
    print([(rates.hal_rate, rates.cover_rate) for rates in [before, *found]])
    assert mean(found, "cover_rate") >= before.cover_rate + 0.15
    assert mean(found, "hal_rate") >= before.hal_rate + 0.01


def test_a_finished_experiment_is_not_done_again(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "world"
    shutil.copytree(start, folder)
    settings = (folder / "world.toml").read_text().replace(str(start), str(folder))
    (folder / "world.toml").write_text(settings)
    monkeypatch.setattr(command, "QUICK", LESSONS)
    asked = ["--quick", "--steps", "1", "--output", str(folder)]
    assert command.main(asked) == 0
    table, picture = (folder / "table.md").read_bytes(), (folder / "dynamics.png").read_bytes()
    assert capsys.readouterr().out == table.decode()
    assert [line.split("|")[1].strip() for line in table.decode().splitlines()[2:]] == [
        "start", "SCAPO", "response, 1 - Hal.", "response, Cap. Score",
    ]  # fmt: skip
    written = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/metrics.jsonl")}
    assert len(written) == 3
    assert command.main(asked) == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert (folder / "table.md").read_bytes() == table
    assert (folder / "dynamics.png").read_bytes() == picture
    capsys.readouterr()
    other = subprocess.run(
        [sys.executable, "-m", "scapo_train.world", "--quick", "--world", "risky", "--output", str(folder)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert other.returncode == 2
    assert "holds another world" in other.stderr
