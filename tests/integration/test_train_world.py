"""The small world in its quick form: the paper's claim, watched in training runs of the real trainer.

A run depends on its seed and on the processor's kernels alike. Asserted is what held under all of PyTorch's
(``ATEN_CPU_CAPABILITY`` default, avx2 and avx512): relative to the model before alignment, of sampled responses, as
means over several seeds, by a margin. Nothing is said of fluency or of greedy responses.

The figures are those of the rollouts: every step is about pictures that the model has not been trained on yet.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
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
from scapo_train.world.experiment import SCHEMES, read_metrics  # noqa: E402
from scapo_train.world.pictures import WORLDS  # noqa: E402
from scapo_train.world.pretrain import QUICK  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
SEEDS = (0, 1)  # a third agrees and costs two minutes
UNWATCHED = (
    "run.samples=0", "run.evaluate_every=0", "run.export=false", "data.evaluation=", "data.evaluation_oracle=",
)  # fmt: skip


@dataclass(frozen=True)
class Said:
    """Means over steps and seeds: fractions, and tokens of a response."""

    hal: float
    cover: float
    length: float


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick world with its model before alignment: made once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "world"
    torch.set_num_threads(1)
    with FileLock(f"{folder}.lock"):
        command.prepare(WORLDS["plain"], folder, QUICK)
    return folder


def rollouts(
    start: Path, folder: Path, scheme: str, *, steps: int, last: int, seeds: Sequence[int] = SEEDS, lr: float = 3e-4
) -> Said:
    """What is said in the last steps of a run for each seed."""
    torch.set_num_threads(1)
    rows = []
    for seed in seeds:
        run = folder / f"{scheme}-{seed}"
        changes = [f"run.output={run}", f"run.seed={seed}", f"run.steps={steps}", f"optim.lr={lr}", *UNWATCHED]
        trainer.train(load(start / "world.toml", [*changes, *SCHEMES[scheme].settings]))
        rows += read_metrics(run)[-last:]
    # a step in which nothing is claimed has no Hal. Rate
    hal = [row["hal_rate"] for row in rows if row["hal_rate"] is not None]
    cover, length = (float(np.mean([row[name] for row in rows])) for name in ("cover_rate", "length"))
    return Said(float(np.mean(hal)) if hal else 0.0, cover, length)


@pytest.fixture(scope="module")
def before(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the model before alignment says: 1,024 responses, at a learning rate of all but 0."""
    return rollouts(start, tmp_path_factory.mktemp("before"), "scapo", steps=8, last=8, seeds=[9], lr=1e-12)


def test_the_model_before_alignment_omits_and_invents(before: Said) -> None:
    assert 0.35 <= before.cover <= 0.7
    assert 0.15 <= before.hal <= 0.35


def test_subsentence_credit_says_more_and_invents_less(start: Path, before: Said, tmp_path: Path) -> None:
    found = rollouts(start, tmp_path, "scapo", steps=40, last=10)
    assert found.cover >= before.cover + 0.08
    assert found.hal <= before.hal - 0.01


def test_the_response_level_hal_rate_teaches_saying_less(start: Path, before: Said, tmp_path: Path) -> None:
    found = rollouts(start, tmp_path, "hal", steps=25, last=5)
    assert found.cover <= before.cover / 2
    assert found.length < before.length


def test_the_response_level_cap_score_teaches_guessing(start: Path, before: Said, tmp_path: Path) -> None:
    found = rollouts(start, tmp_path, "cap", steps=12, last=4)
    assert found.cover >= before.cover + 0.12
    assert found.hal >= before.hal + 0.01


def test_a_finished_experiment_is_not_done_again(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "world"
    shutil.copytree(start, folder)
    settings = (folder / "world.toml").read_text().replace(json.dumps(str(start))[1:-1], json.dumps(str(folder))[1:-1])
    (folder / "world.toml").write_text(settings)
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
    assert command.main(["--quick", "--world", "risky", "--output", str(folder)]) == 2
    assert "holds another world" in capsys.readouterr().err
