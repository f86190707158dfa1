"""Preference baselines: their losses against literal formulas, and runs on pairs from start to export."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_train import preference_loss  # noqa: E402
from scapo_train.preference import cropped, main  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
RATIOS = (0.7, -1.3, 0.2, 2.5, -0.4)


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


def loss(name: str, *more: float) -> float:
    count = {"dpo": 2, "mdpo": 3, "symmpo": 5}[name]
    ratios = [torch.tensor([each], dtype=torch.float64) for each in RATIOS[:count]]
    return float(getattr(preference_loss, name)(*ratios, *more))


def test_losses_are_the_published_formulas() -> None:
    """Literal transcriptions; m is an image, w and l its responses, m' and w' another's."""
    w, lose, third, fourth, fifth = RATIOS
    beta = 0.3
    dpo = -log_sigmoid(beta * (w - lose))
    assert loss("dpo", beta) == pytest.approx(dpo, abs=1e-12)
    conditional, anchor = -log_sigmoid(beta * (w - third)), -log_sigmoid(beta * w)
    assert loss("mdpo", beta) == pytest.approx(dpo + conditional + anchor, abs=1e-12)
    # r(m, w'), r(m', w'), r(m', w)
    one, two = w - third, fourth - fifth
    symmetric = -log_sigmoid(beta * one) - log_sigmoid(beta * two)
    anchors = -log_sigmoid(beta * w) - log_sigmoid(beta * fourth)
    wanted = dpo + 0.5 * symmetric + anchors + 1e-4 * (one - two) ** 2
    assert loss("symmpo", beta, 0.5, 1e-4) == pytest.approx(wanted, abs=1e-12)


@pytest.fixture
def pairs(lab: Any) -> Path:
    """A file of pairs as ``scapo-eval pairs --format trl`` writes it."""
    path: Path = lab.folder / "pairs.jsonl"
    words = ("dog", "cat", "car", "bus", "book", "cup")
    with open(path, "w") as stream:
        for k, word in enumerate(words, 1):
            line = {
                "images": [f"{k}.png"],
                "prompt": [{"role": "user", "content": "Describe this image"}],
                "chosen": [{"role": "assistant", "content": f"A {word} on the bench ."}],
                "rejected": [{"role": "assistant", "content": "There is a kite and a pizza ."[: 18 + k % 2]}],
            }
            stream.write(json.dumps(line) + "\n")
    return path


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


@pytest.mark.parametrize(("name", "terms"), [("dpo", 1), ("mdpo", 3), ("symmpo", 4)])
def test_a_run_prefers_what_it_is_taught_and_resumes_bit_equal(lab: Any, pairs: Path, name: str, terms: int) -> None:
    steady = (f"data.train={pairs}", f"preference.loss={name}", "data.prompts_per_step=3", "run.keep=9")
    assert main(lab.run("whole", *steady)) == 0
    whole = metrics(lab.folder / "whole")
    assert whole[0]["loss"] == pytest.approx(terms * math.log(2), abs=1e-5)  # policy and reference are the same
    assert whole[-1]["accuracy"] == 1.0
    assert whole[-1]["margin"] > 0
    assert whole[-1]["loss"] < whole[0]["loss"]
    if name == "symmpo":
        shutil.copytree(lab.folder / "whole", lab.folder / "again")
        for step in (3, 4):
            shutil.rmtree(lab.folder / "again" / "checkpoints" / f"step-{step:06d}")
        assert main([*lab.run("again", *steady), "--resume", "auto"]) == 0
        assert metrics(lab.folder / "again") == whole
        files = [lab.folder / run / "model" / "model.safetensors" for run in ("whole", "again")]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert main([*lab.run("again", *steady, "preference.beta=0.2"), "--resume", "auto"]) == 2


def test_other_files_are_refused(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run")) == 2  # prompts, not pairs
    assert "train.jsonl:1: 'chosen' must be one turn of the assistant" in capsys.readouterr().err


def test_a_crop_shows_a_fifth_at_most_and_is_the_same_again(lab: Any) -> None:
    from PIL import Image

    path = lab.folder / "wide.png"
    gradient = Image.linear_gradient("L").resize((200, 100)).convert("RGB")
    gradient.save(path)
    one = cropped(str(path))
    assert one.size == (200, 100)
    low, high = one.convert("L").getextrema()
    assert 0 < high - low < 256 * math.sqrt(0.2) + 8
    assert one.tobytes() == cropped(str(path)).tobytes()
