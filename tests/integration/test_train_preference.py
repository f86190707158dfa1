"""Preference baselines: losses compared with literal formulas, and runs on pairs from start to export."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_train.__main__ import main as train  # noqa: E402
from scapo_train.preference import loss as preference_loss  # noqa: E402
from scapo_train.preference.trainer import cropped, main  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
RATIOS = (0.7, -1.3, 0.2, 2.5, -0.4)


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


def loss(name: str, *more: float) -> float:
    count = {"dpo": 2, "mdpo": 3, "symmpo": 5}[name]
    ratios = [torch.tensor([each], dtype=torch.float64) for each in RATIOS[:count]]
    return float(getattr(preference_loss, name)(*ratios, *more))


def test_losses_are_the_published_formulas() -> None:
    """Compares the losses with literal transcriptions, with an image m, its responses w and l, and another image's m'
    and w'.
    """
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
    """Writes a file of pairs in the format of ``scapo-eval pairs --format trl``."""
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


def left_behind(folder: Path) -> tuple[Any, ...]:
    """Returns the compared results of a run: metrics, samples, and the bytes of the exported weights."""
    samples = (folder / "samples.jsonl").read_bytes()
    return metrics(folder), samples, (folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture
def described(lab: Any, pairs: Path) -> tuple[str, ...]:
    """Returns the settings of a run on pairs that describes held-out pictures during training."""
    return (
        f"data.train={pairs}", f"data.evaluation={lab.folder / 'train.jsonl'}", "data.evaluation_prompts=7",
        "data.prompts_per_step=3", "run.evaluate_every=2",
    )  # fmt: skip


def test_held_out_pictures_are_described_and_the_best_is_kept(
    lab: Any, described: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that held-out scores equal those of the loop on rollouts for the same weights."""
    run = (*described, "run.keep_best=cover_rate", "run.keep=9")
    assert main(lab.run("pairs", *run)) == 0
    found = metrics(lab.folder / "pairs")
    scores = {line["step"]: line["evaluation_cover_rate"] for line in found if "evaluation_cover_rate" in line}
    assert sorted(scores) == [0, 2, 4]
    samples = [json.loads(line) for line in (lab.folder / "pairs" / "samples.jsonl").read_text().splitlines()]
    assert [(line["step"], line["image_id"]) for line in samples] == [(k, each) for k in (0, 2, 4) for each in "12"]
    rollouts = ("data.prompts_per_step=3", "run.steps=1", *described[1:3], "run.evaluate_every=1")
    assert train(lab.run("rollouts", *rollouts)) == 0
    assert metrics(lab.folder / "rollouts")[0] == found[0]
    best = max((2, 4), key=lambda step: scores[step])  # the earlier where they are equal
    assert [path.name for path in (lab.folder / "pairs" / "best").iterdir()] == [f"step-{best:06d}"]
    assert f"exported: step {best}, the best cover_rate of the held-out images" in capsys.readouterr().err
    assert main(lab.run("no_truth", *described, "data.oracle=")) == 2
    assert "data.evaluation requires a ground truth: --set data.evaluation_oracle=" in capsys.readouterr().err
    assert main(lab.run("no_evaluation", described[0], "data.prompts_per_step=3", "data.oracle=")) == 0
    assert (lab.folder / "no_evaluation" / "samples.jsonl").exists()


def test_a_run_killed_twice_and_one_that_was_asked_to_leave_end_as_one_that_was_not(
    lab: Any, described: tuple[str, ...]
) -> None:
    settings = (*described, "run.steps=12", "preference.loss=symmpo", "run.save_every=2")
    assert main(lab.run("whole", *settings)) == 0
    whole = left_behind(lab.folder / "whole")
    moments = random.Random(5)

    def started(name: str, wait: int) -> subprocess.Popen[str]:
        """Returns a process that has written a number of lines."""
        command = [
            sys.executable,
            "-m",
            "scapo_train.preference",
            *lab.run(name, *settings),
            "--resume",
            "auto",
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        lines = lab.folder / name / "metrics.jsonl"
        while not lines.exists() or lines.read_bytes().count(b"\n") < wait:
            assert process.poll() is None
            time.sleep(0.002)
        return process

    for wait in (3, 7):
        process = started("killed", wait)
        time.sleep(moments.uniform(0, 0.1))
        process.kill()
        process.communicate()
    assert len(metrics(lab.folder / "killed")) < 13
    assert main([*lab.run("killed", *settings), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "killed") == whole

    process = started("stopped", 4)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    done = metrics(lab.folder / "stopped")[-1]["step"]
    assert 3 <= done < 12
    assert f"scapo_train.preference: stopped after step {done} of 12: continue with --resume auto" in said
    assert "Traceback" not in said
    assert (lab.folder / "stopped" / "checkpoints" / f"step-{done:06d}").is_dir()
    assert main([*lab.run("stopped", *settings), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "stopped") == whole


def test_adapters_and_the_general_path_train_on_pairs(lab: Any, pairs: Path, tiny: ModuleType) -> None:
    pytest.importorskip("peft")
    steady = (f"data.train={pairs}", "data.prompts_per_step=3", "preference.loss=mdpo", "run.samples=0", "run.keep=9")
    adapters = (*steady, "lora.rank=3", "lora.dropout=0.2")
    assert main(lab.run("whole", *adapters)) == 0
    whole = metrics(lab.folder / "whole")
    assert whole[0]["loss"] == pytest.approx(3 * math.log(2), abs=1e-5)
    assert whole[-1]["loss"] < whole[0]["loss"]
    shutil.copytree(lab.folder / "whole", lab.folder / "again")
    for step in (3, 4):
        shutil.rmtree(lab.folder / "again" / "checkpoints" / f"step-{step:06d}")
    assert main([*lab.run("again", *adapters), "--resume", "auto"]) == 0
    assert metrics(lab.folder / "again") == whole
    llava = tiny.build(lab.folder / "llava", "llava")
    assert main(lab.run("general", *steady, f"model.path={llava}")) == 0
    general = metrics(lab.folder / "general")
    assert general[0]["loss"] == pytest.approx(3 * math.log(2), abs=1e-5)
    assert general[-1]["loss"] < general[0]["loss"]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("name", ["mdpo", "symmpo"])
def test_two_ranks_make_the_same_run(lab: Any, described: tuple[str, ...], name: str) -> None:
    settings = (*described, f"preference.loss={name}", "model.dtype=float64", "run.export=false")
    assert main(lab.run("one", *settings)) == 0
    two = lab.forked(2, "-m", "scapo_train.preference", *lab.run("two", *settings))
    done = subprocess.run(two, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    for one, other in zip(metrics(lab.folder / "one"), metrics(lab.folder / "two"), strict=True):
        assert one.keys() == other.keys()
        known = {key: value for key, value in one.items() if value is not None}
        assert {key: other[key] for key in known} == pytest.approx(known, rel=1e-6, abs=1e-6)


def turn(text: Any, role: str = "assistant") -> list[dict[str, Any]]:
    return [{"role": role, "content": text}]


SIDES = {"chosen": turn("A dog ."), "rejected": turn("A cat .")}
PICTURE = {"images": ["1.png"], "prompt": turn("Describe this image", "user")}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON object, found an array"),
        ({"image": "1.png", "image_id": 1, "prompt": "What?"}, "'chosen' must be one turn of the assistant"),
        ({**PICTURE, "chosen": "A dog .", "rejected": "A cat ."}, "'chosen' must be one turn of the assistant"),
        ({**PICTURE, "chosen": turn("A dog ."), "rejected": turn(" ")}, "'rejected' must be one turn"),
        ({**PICTURE, **SIDES, "rejected": turn("A cat .", "user")}, "'rejected' must be one turn"),
        ({**PICTURE, "chosen": turn(["A dog ."]), "rejected": turn("A cat .")}, "'chosen' must be one turn"),
        ({**PICTURE, "chosen": turn("A"), "rejected": turn("A")}, "are identical, so there is no"),
        ({**PICTURE, "images": "1.png", **SIDES}, "'images' must be a list"),
        ({**PICTURE, "images": [], **SIDES}, 'loss = "mdpo" requires a picture'),
        ({**PICTURE, "prompt": "What?", **SIDES}, "'prompt' must be a list"),
        ({**PICTURE, "prompt": turn("<image>?", "user"), **SIDES}, "literal <image>"),
        ({**PICTURE, **SIDES, "rejected": turn("A <|image_pad|> .")}, "'rejected' holds <|image_pad|>"),
        ({**PICTURE, "chosen": turn("A .<|im_end|>"), "rejected": turn("A")}, "'chosen' holds <|im_end|>, a"),
        ({**PICTURE, **SIDES, "metadata": {"image_id": [1]}}, "'image_id' of 'metadata' "),
        ({**PICTURE, "chosen": turn("a " * 600), "rejected": turn("A .")}, "and the model has positions for 512"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_pair_is_named(
    lab: Any, pairs: Path, line: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(pairs, "a") as stream:
        stream.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    run = lab.run("run", f"data.train={pairs}", "preference.loss=mdpo", "data.prompts_per_step=7", "run.steps=1")
    assert main(run) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"scapo_train.preference: {pairs}:7: ")
    assert reason in said
    assert "Traceback" not in said


def test_what_a_newcomer_gets_wrong(lab: Any, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*changes: str) -> str:
        assert main(lab.run("run", f"data.train={pairs}", "data.prompts_per_step=3", *changes)) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return said.rpartition("scapo_train.preference: ")[2]

    lines = pairs.read_text().splitlines(keepends=True)
    assert "model.path is not set" in refused("model.path=")
    assert "data.train is not set" in refused("data.train=")
    assert "/nowhere.jsonl: file not found" in refused("data.train=/nowhere.jsonl")
    assert "preference.loss: expected one of 'dpo', 'mdpo', 'symmpo', got 'ipo'" in refused("preference.loss=ipo")
    assert "run.stop_on refers to alarms about rollouts" in refused("run.stop_on=['kl']")
    assert "run.snr_every applies to rollouts" in refused("run.snr_every=1")
    assert "preference training requires 1" in refused("optim.mini_batches=2")
    assert "6 prompts, but data.prompts_per_step is 7" in refused("data.prompts_per_step=7")
    assert "like all other 6 pictures: check data.images" in refused("data.images=/nowhere")
    pairs.write_text(lines[0] * 3)
    assert 'preference.loss = "symmpo" requires pairs about two pictures' in refused("preference.loss=symmpo")
    pairs.write_text("")
    assert "the file contains no record" in refused()
    assert not (lab.folder / "run" / "metrics.jsonl").exists()


def test_pictures_that_cannot_be_read_are_left_out_and_counted(
    lab: Any, described: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.folder / "images" / "3.png").unlink()
    (lab.folder / "images" / "5.png").write_bytes(b"damaged")
    few = (*described, "data.prompts_per_step=2", "run.steps=3", "run.evaluate_every=0", "run.samples=0")
    assert main(lab.run("run", *few, "preference.loss=mdpo")) == 0
    assert metrics(lab.folder / "run")[-1]["prompts_left_out"] == 2.0
    assert capsys.readouterr().err.count("omitted: ") >= 2
    assert main(lab.run("strict", *few, "data.max_bad=1")) == 2
    assert "cannot be read, like 1 others: more than data.max_bad = 1" in capsys.readouterr().err
    for k in (1, 2, 4, 6):
        (lab.folder / "images" / f"{k}.png").write_bytes(b"damaged")
    assert main(lab.run("none", *few)) == 2
    assert main(lab.run("one_step", *few, "run.steps=1")) == 2
    assert "no update was made, so nothing is exported" in capsys.readouterr().err


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
