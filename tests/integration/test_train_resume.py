"""Resumed runs, which are bit-equal after ``kill -9`` at any moment, on another number of ranks, and after SIGTERM."""

from __future__ import annotations

import json
import os
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from scapo_train.__main__ import main  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
    pytest.mark.usefixtures("warm"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of the metrics without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and "mfu" not in k} for line in lines]


def left_behind(folder: Path) -> tuple[Any, ...]:
    """Returns the compared results of a run: metrics, samples, extremes, and the bytes of the exported weights."""
    texts = [(folder / name).read_bytes() for name in ("samples.jsonl", "extremes.jsonl")]
    return metrics(folder), *texts, (folder / "model" / "model.safetensors").read_bytes()


def test_every_checkpoint_leads_to_the_same_end(lab: Any) -> None:
    hard = ("optim.mini_batches=2", "optim.inner_epochs=2", "optim.schedule=cosine", "optim.warmup=2", "run.keep=9")
    (lab.folder / "images" / "3.png").unlink()  # what was left out is counted on, too
    assert main(lab.run("whole", *hard)) == 0
    whole = left_behind(lab.folder / "whole")
    assert [line["step"] for line in whole[0]] == [1, 2, 3, 4]
    assert whole[0][-1]["prompts_left_out"] == 1.0
    for step in (1, 2, 3):
        again = lab.folder / f"from{step}"
        shutil.copytree(lab.folder / "whole", again)
        for later in range(step + 1, 5):
            shutil.rmtree(again / "checkpoints" / f"step-{later:06d}")
        shutil.rmtree(again / "model")
        assert main([*lab.run(again.name, *hard), "--resume", "auto"]) == 0
        assert left_behind(again) == whole


def test_eight_bit_moments_are_saved_as_they_are(lab: Any) -> None:
    pytest.importorskip("torchao")
    small = ("optim.optimizer=adamw8bit", "optim.warmup=2", "run.keep=9")
    assert main(lab.run("whole", *small)) == 0
    shutil.copytree(lab.folder / "whole", lab.folder / "again")
    for step in (3, 4):
        shutil.rmtree(lab.folder / "again" / "checkpoints" / f"step-{step:06d}")
    assert main([*lab.run("again", *small), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "again") == left_behind(lab.folder / "whole")


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl_moe"])
def test_adapters_are_all_that_is_trained_saved_and_gone_on_with(lab: Any, tiny: ModuleType, family: str) -> None:
    pytest.importorskip("peft")
    moe = family == "qwen3_vl_moe"
    if moe and transformers.__version__.startswith("4."):
        pytest.skip("experts' adapters need transformers 5")
    path = tiny.build(lab.folder / "own", family)
    small = (f"model.path={path}", "lora.rank=3", "optim.mini_batches=2", "run.keep=9")
    small += () if moe else ("lora.dropout=0.2",)
    assert main(lab.run("whole", *small)) == 0
    whole = left_behind(lab.folder / "whole")
    assert all(line["kl"] > 0 for line in whole[0][1:])
    card = json.loads((lab.folder / "whole" / "card.json").read_text())
    assert 0 < card["trainable"] < 0.1 * card["parameters"]
    index = json.loads((lab.folder / "whole" / "checkpoints" / "step-000004" / "index.json").read_text())
    assert len(index["tensors"]) == 2 * 2 * (6 if moe else 7) * 4  # A and B with two moments and the step
    shutil.copytree(lab.folder / "whole", lab.folder / "again")
    for step in (3, 4):
        shutil.rmtree(lab.folder / "again" / "checkpoints" / f"step-{step:06d}")
    assert main([*lab.run("again", *small, "lora.rank=4"), "--resume", "auto"]) == 2  # another objective
    assert main([*lab.run("again", *small), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "again") == whole


def test_a_run_killed_before_its_first_checkpoint_begins_again(lab: Any) -> None:
    late = "run.save_every=3"
    assert main(lab.run("run", late)) == 0
    whole = left_behind(lab.folder / "run")
    for folder in ("checkpoints", "model"):
        shutil.rmtree(lab.folder / "run" / folder)
    for name in ("metrics", "samples", "extremes"):  # as they are in the third step
        file = lab.folder / "run" / f"{name}.jsonl"
        file.write_text("".join(line for line in file.read_text().splitlines(True) if json.loads(line)["step"] < 3))
    assert main([*lab.run("run", late), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "run") == whole


def test_a_killed_run_ends_as_one_that_was_not(lab: Any) -> None:
    steps = 12
    arguments = [*lab.run("killed", f"run.steps={steps}"), "--resume", "auto"]
    assert main(lab.run("whole", f"run.steps={steps}")) == 0
    moments = random.Random(5)
    lines = lab.folder / "killed" / "metrics.jsonl"
    seen = []
    for kill_after in (2, 5):  # steps, and a part of one
        process = subprocess.Popen(lab.command(1, *arguments), stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        while not lines.exists() or lines.read_bytes().count(b"\n") < kill_after:
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.15))
        process.kill()
        process.wait()
        seen.append(lines.read_bytes().count(b"\n"))
    assert seen[0] < steps
    assert main(arguments) == 0
    assert left_behind(lab.folder / "killed") == left_behind(lab.folder / "whole")


SLOW = """
import sys, time
from scapo_train.checkpoint import save
publish = save._publish
def slow(part, target, files):
    if target.name == "step-000004":
        time.sleep(100_000)
    publish(part, target, files)
save._publish = slow
from scapo_train.__main__ import main
main(sys.argv[1:])
"""


def test_a_run_killed_while_it_writes_in_the_background_goes_on_from_the_checkpoint_before(lab: Any) -> None:
    changes = ("run.steps=6", "run.save_every=2", "run.async_save=true")
    assert main(lab.run("whole", *changes)) == 0
    changes = (*changes, "data.workers=3")
    process = subprocess.Popen([sys.executable, "-c", SLOW, *lab.run("killed", *changes)], env=ENVIRONMENT)
    folder = lab.folder / "killed"
    while not (folder / "metrics.jsonl").exists() or len(metrics(folder)) < 5:  # step 5, while step 4 is written
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert names == ["step-000002", "step-000004.part"]
    assert main([*lab.run("killed", *changes), "--resume", "auto"]) == 0
    assert left_behind(folder) == left_behind(lab.folder / "whole")


def test_a_run_goes_on_with_another_number_of_ranks_and_offloaded(lab: Any) -> None:
    resume, exact = ("--resume", "auto"), "model.dtype=float64"
    assert main(lab.run("whole", exact)) == 0
    assert main(lab.run("changed", exact, "run.steps=1", "run.export=false")) == 0
    changed = lab.run("changed", exact, "run.steps=3", "run.export=false")
    two = lab.forked(2, "-m", "scapo_train", *changed, "--set", "optim.offload=true", *resume)
    done = subprocess.run(two, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "resumed after step 1" in done.stderr
    last = lab.forked(1, "-m", "scapo_train", *lab.run("changed", exact), "--set", "optim.offload=true", *resume)
    done = subprocess.run(last, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found, expected = metrics(lab.folder / "changed"), metrics(lab.folder / "whole")
    assert [line["step"] for line in found] == [1, 2, 3, 4]
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        numbers = {name: value for name, value in other.items() if value is not None}
        # transformers' norms round to float32: where one number in 1e8 falls to the other side, 6e-8 of it is left
        assert {name: one[name] for name in numbers} == pytest.approx(numbers, rel=1e-6, abs=1e-6)
    one, other = (
        safetensors.load_file(lab.folder / name / "model" / "model.safetensors") for name in ("changed", "whole")
    )
    assert one.keys() == other.keys()
    step = 2**-7  # from one bfloat16 number to the next
    assert all(torch.allclose(one[name].float(), other[name].float(), rtol=step, atol=1e-6) for name in one)


def test_sigterm_saves_and_leaves(lab: Any) -> None:
    steps = 20
    arguments = lab.run("stopped", f"run.steps={steps}", "run.save_every=0")
    process = subprocess.Popen(["python", "-m", "scapo_train", *arguments], stderr=subprocess.PIPE, text=True)
    lines = lab.folder / "stopped" / "metrics.jsonl"
    while not lines.exists() or lines.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    done = lines.read_bytes().count(b"\n")
    assert 3 <= done < steps
    assert f"scapo_train: stopped after step {done} of {steps}: continue with --resume auto" in said
    assert "Traceback" not in said
    assert main([*arguments, "--resume", "auto"]) == 0
    assert main(lab.run("whole", f"run.steps={steps}", "run.save_every=0")) == 0
    assert left_behind(lab.folder / "stopped") == left_behind(lab.folder / "whole")


def test_hours_that_are_over_save_and_leave_for_another_start(
    lab: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(lab.run("whole")) == 0
    clock = iter(range(0, 10**9, 600))  # ten minutes from one look at the clock to the next
    monkeypatch.setattr("scapo_train.loop.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert main([*lab.run("again"), "--max-hours", "1"]) == 75
    said = capsys.readouterr().err
    assert "stopped after step 2 of 4: continue with --resume auto" in said
    assert main([*lab.run("again"), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "again") == left_behind(lab.folder / "whole")


def test_hours_include_loading_and_the_time_that_a_checkpoint_takes(
    lab: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    for module in ("loop", "checkpoint.save"):
        monkeypatch.setattr(f"scapo_train.{module}.time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(name: str, seconds: float) -> None:
        owner, _, function = name.rpartition(".")
        holder = pkgutil.resolve_name(f"scapo_train.{owner}")
        whole = getattr(holder, function)

        def slowed(*given: Any, **named: Any) -> Any:
            now[0] += seconds
            return whole(*given, **named)

        monkeypatch.setattr(holder, function, slowed)

    slow("trainer.Trainer.load_models", 600)
    slow("trainer.Trainer.train_step", 300)
    slow("checkpoint.save._publish", 300)
    # after step 3: 2,100 s, and 1.5 times 600 s for another step and its checkpoint
    assert main([*lab.run("run", "run.max_hours=0.8", "run.samples=0", "run.export=false")]) == 75
    assert "stopped after step 3 of 4: continue with --resume auto" in capsys.readouterr().err


def test_the_launcher_returns_the_ranks_exit_code(lab: Any) -> None:
    launcher = [sys.executable, "-m", "scapo_train.launch", "--standalone", "--nproc-per-node", "2"]
    bad = subprocess.run(
        [*launcher, *lab.run("bad", "data.train=nowhere.jsonl")], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert bad.returncode == 2
    assert bad.stderr.count("scapo_train: nowhere.jsonl: ") == 1
    over = subprocess.run(
        [*launcher, *lab.run("over", "run.max_hours=1e-9")], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert over.returncode == 75
    assert "stopped after step 1 of 4: continue with --resume auto" in over.stderr


def test_a_finished_run_has_nothing_to_go_on_with_and_a_used_folder_is_refused(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(lab.run("run")) == 0
    before = left_behind(lab.folder / "run")
    assert main([*lab.run("run"), "--resume", "auto"]) == 0
    assert left_behind(lab.folder / "run") == before
    assert main(lab.run("run")) == 2
    assert "contains a run: continue with --resume auto, or set another run.output" in capsys.readouterr().err
    assert left_behind(lab.folder / "run") == before
