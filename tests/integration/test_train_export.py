"""Exports that other programs load: the source's files in addition to weights, any checkpoint, and the best
checkpoint.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_eval.engines import Request, Sampling  # noqa: E402
from scapo_eval.engines.hf import TransformersEngine  # noqa: E402
from scapo_train import export, trainer  # noqa: E402
from scapo_train.__main__ import main  # noqa: E402
from scapo_train.checkpoint.best import Best  # noqa: E402
from scapo_train.checkpoint.save import Checkpoints  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
WRITTEN = {"config.json", "model.safetensors"}


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def caption(folder: Path, picture: Path) -> str:
    """Returns a description by the exported model, through the transformers engine."""
    found: list[str] = []
    engine = TransformersEngine(str(folder), dtype="float32", device="cpu")
    request = Request.of("Describe this image .", str(picture), Sampling(max_tokens=8))
    engine.run([request], lambda _, completion: found.append(completion.text))
    return found[0]


def test_an_export_has_the_files_of_its_source_and_describes(lab: Any, lab_template: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    source = lab_template / "model"
    own = lab.folder / "own"
    own.mkdir()
    for path in source.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    settings = json.loads((own / "generation_config.json").read_text()) | {"do_sample": True, "top_k": 1}
    (own / "generation_config.json").write_text(json.dumps(settings))
    (own / "video_preprocessor_config.json").write_text('{"video_processor_type": "Qwen2VLVideoProcessor"}')
    assert main(lab.run("run", "run.steps=1", f"model.path={own}")) == 0
    model = lab.folder / "run" / "model"
    names = {path.name for path in own.iterdir()}
    assert {path.name for path in model.iterdir()} == names
    for name in names - WRITTEN:
        assert (model / name).read_bytes() == (own / name).read_bytes(), name
    AutoModelForImageTextToText.from_pretrained(model)

    def processor(folder: Path) -> str:
        """Returns the processor that transformers alone loads from a folder, or the missing part."""
        try:
            return type(AutoProcessor.from_pretrained(folder)).__name__
        except ImportError as error:
            return "torchvision" if "Torchvision library" in str(error) else str(error)

    assert processor(model) == processor(own)
    assert processor(model) == ("Qwen2_5_VLProcessor" if importlib.util.find_spec("torchvision") else "torchvision")
    picture = lab.folder / "images" / "1.png"
    assert caption(model, picture).split()


def test_any_checkpoint_is_exported(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.keep=9")) == 0
    run = lab.folder / "run"
    assert export.main([str(run), "--step", "4"]) == 0
    assert export.main([str(run), "--step", "2", "-o", str(lab.folder / "two"), "--dtype", "float32"]) == 0
    last, two = weights(run / "model-000004"), weights(lab.folder / "two")
    whole = weights(run / "model")
    assert all(torch.equal(last[name], whole[name]) for name in whole)
    assert any(not torch.equal(two[name].bfloat16(), whole[name]) for name in whole)
    assert main(lab.run("short", "run.steps=2")) == 0
    short = weights(lab.folder / "short" / "model")
    assert all(torch.equal(two[name].bfloat16(), short[name]) for name in short)
    capsys.readouterr()
    assert export.main([str(run), "--step", "7"]) == 2
    assert "checkpoint not found (found: 1, 2, 3, 4)" in capsys.readouterr().err
    assert export.main([str(run), "--step", "4"]) == 2
    assert "model-000004: exists" in capsys.readouterr().err


def test_the_best_evaluation_is_kept_exported_and_waited_for(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {0: 0.9, 1: 0.2, 2: 0.5, 3: 0.4, 4: 0.5, 5: 0.9}
    monkeypatch.setattr(trainer.Trainer, "evaluate", lambda self, step: {"evaluation_cap_score": scores[step]})
    evaluation = (f"data.evaluation={lab.folder / 'train.jsonl'}", "run.evaluate_every=1")
    best = (*evaluation, "run.keep_best=cap_score", "run.patience=2", "run.steps=5")
    assert main(lab.run("run", *best)) == 0
    run = lab.folder / "run"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 5  # the start and four steps
    assert [path.name for path in (run / "best").iterdir()] == ["step-000002"]
    assert "exported: step 2, the best cap_score of the held-out images" in capsys.readouterr().err
    assert export.main([str(run), "--step", "2", "--best", "-o", str(lab.folder / "two")]) == 0
    two, whole = weights(lab.folder / "two"), weights(run / "model")
    assert all(torch.equal(two[name], whole[name]) for name in whole)
    assert main([*lab.run("run", *best), "--resume", "auto"]) == 0  # it has waited long enough
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 5
    assert export.main([str(lab.folder / "images")]) == 2
    assert "not the folder of a training run: it has no config.toml" in capsys.readouterr().err
    assert main(lab.run("none", "run.keep_best=cap_score")) == 2
    assert "run.keep_best needs data.evaluation and run.evaluate_every" in capsys.readouterr().err


def test_the_best_step_is_kept_across_a_resumption(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed run has a new best step after its last checkpoint. When it is resumed, its scores differ."""
    scores = {0: 0.1, 1: 0.5, 2: 0.2, 3: 0.9, 4: 0.3, 5: 0.3}
    monkeypatch.setattr(trainer.Trainer, "evaluate", lambda self, step: {"evaluation_cap_score": scores[step]})
    step_of_trainer = trainer.Trainer.train_step

    def killed(self: trainer.Trainer) -> Any:
        if self.step == 3:
            raise RuntimeError("killed")
        return step_of_trainer(self)

    best = (
        f"data.evaluation={lab.folder / 'train.jsonl'}", "run.evaluate_every=1", "run.keep_best=cap_score",
        "run.save_every=2", "run.steps=5",
    )  # fmt: skip
    run = lab.folder / "run"
    monkeypatch.setattr(trainer.Trainer, "train_step", killed)
    with pytest.raises(RuntimeError, match="killed"):
        main(lab.run("run", *best))
    monkeypatch.setattr(trainer.Trainer, "train_step", step_of_trainer)
    assert {path.name for path in (run / "best").iterdir()} == {"step-000001", "step-000003"}
    assert export.main([str(run), "--best", "-o", str(lab.folder / "three")]) == 0  # the best one before it was killed
    scores[3] = 0.4
    assert main([*lab.run("run", *best), "--resume", "auto"]) == 0
    assert [path.name for path in (run / "best").iterdir()] == ["step-000001"]
    assert "exported: step 1, the best cap_score of the held-out images" in capsys.readouterr().err
    assert export.main([str(run), "--best", "-o", str(lab.folder / "one")]) == 0
    one, three, whole = (weights(path) for path in (lab.folder / "one", lab.folder / "three", run / "model"))
    assert all(torch.equal(one[name], whole[name]) for name in whole)
    assert any(not torch.equal(three[name], whole[name]) for name in whole)


def test_a_best_step_that_cannot_be_written_is_not_the_best_one(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.3}
    monkeypatch.setattr(trainer.Trainer, "evaluate", lambda self, step: {"evaluation_cap_score": scores[step]})
    save = Checkpoints.save
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, step, *rest, **more: step != 2 and save(self, step, *rest, **more)
    )
    best = (f"data.evaluation={lab.folder / 'train.jsonl'}", "run.evaluate_every=1", "run.keep_best=cap_score")
    assert main(lab.run("run", *best, "run.steps=3")) == 0
    assert [path.name for path in (lab.folder / "run" / "best").iterdir()] == ["step-000001"]


def test_two_ranks_notice_unreadable_held_out_pictures(lab: Any) -> None:
    rows = [json.loads(line) for line in (lab.folder / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["image"] = "bad.png"
    (lab.folder / "images" / "bad.png").write_text("hello")
    (lab.folder / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held = (f"data.evaluation={lab.folder / 'held_out.jsonl'}", "run.evaluate_every=1", "run.steps=1")
    assert ranks(2, lab.run("run", *held)) == [2, 2]


def test_two_ranks_agree_on_the_best_and_on_the_end(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {0: 0.9, 1: 0.2, 2: 0.5, 3: 0.4, 4: 0.5, 5: 0.9}

    def evaluate(self: trainer.Trainer, step: int) -> dict[str, float]:
        """Returns a rank's share of the score, which is only the score after summation."""
        share = scores[step] * (self.process_group.rank + 1) / 3
        return {"evaluation_cap_score": self.process_group.sum(share)[0]}

    monkeypatch.setattr(trainer.Trainer, "evaluate", evaluate)
    best = ("run.evaluate_every=1", f"data.evaluation={lab.folder / 'train.jsonl'}", "run.keep_best=cap_score")
    assert ranks(2, lab.run("run", *best, "run.patience=2", "run.steps=5")) == [0, 0]
    run = lab.folder / "run"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 5  # the start and four steps
    assert [path.name for path in (run / "best").iterdir()] == ["step-000002"]
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-000003", "step-000004"}
    assert export.main([str(run), "--best", "-o", str(lab.folder / "two")]) == 0  # on one rank
    assert export.main([str(run), "-o", str(lab.folder / "four")]) == 0
    two, four, whole = (weights(path) for path in (lab.folder / "two", lab.folder / "four", run / "model"))
    assert all(torch.equal(two[name], whole[name]) for name in whole)
    assert any(not torch.equal(four[name], whole[name]) for name in whole)


def test_adapters_of_two_ranks_are_exported_merged_and_alone(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft")
    small = ("lora.rank=3", "run.steps=2")
    assert ranks(2, lab.run("two", *small)) == [0, 0]
    assert main(lab.run("one", *small)) == 0
    lines = [(lab.folder / run / "metrics.jsonl").read_text().splitlines()[-1] for run in ("one", "two")]
    one, two = map(json.loads, lines)
    assert two["kl"] > 0
    assert json.loads((lab.folder / "two" / "card.json").read_text())["ranks"] == 2
    assert two == {**two, **{name: pytest.approx(one[name], rel=1e-4) for name in ("kl", "grad_norm", "hal_rate")}}
    run = lab.folder / "two"
    assert export.main([str(run), "--step", "2"]) == 0
    merged, whole = weights(run / "model-000002"), weights(run / "model")
    assert merged.keys() == whole.keys()
    assert all(torch.equal(merged[name], whole[name]) for name in whole)
    assert export.main([str(run), "--step", "2", "--adapter"]) == 0
    assert {path.name for path in (run / "adapter-000002").iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip
    assert main(lab.run("full", "run.steps=1", "run.export=false")) == 0
    capsys.readouterr()
    assert export.main([str(lab.folder / "full"), "--adapter"]) == 2
    assert "full: has no adapters (lora.rank = 0)" in capsys.readouterr().err


def ranks(size: int, arguments: list[str]) -> list[int]:
    """Returns the exit codes of a run's ranks, which are forked from this process to avoid the import of torch in each
    rank.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    children = []
    for rank in range(size):
        if not (child := os.fork()):
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            os.environ.update({name: str(value) for name, value in names.items()})
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            code = 1
            try:
                code = main(arguments)
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_less_is_better_for_hallucination() -> None:
    best = Best("hal_rate", 2)
    better = [best.update(k, {"evaluation_hal_rate": value}) for k, value in enumerate((0.5, 0.6, 0.4, None, 0.4))]
    assert better == [True, False, True, False, False]
    assert (best.value, best.step, best.exhausted) == (0.4, 2, True)
    again = Best("hal_rate", 2)
    again.restore(best.state())
    assert again == best
    again = Best("hal_rate", 2)
    again.restore({"value": 0.4, "step": 2, "waited": 2})  # of a checkpoint without the metric
    assert again == best


@pytest.mark.parametrize(("metric", "held_out"), [("", "a"), ("cap_score", "a"), ("hal_rate", "b")])
def test_a_best_value_of_another_metric_or_of_other_images_does_not_count(metric: str, held_out: str) -> None:
    best = Best("hal_rate", 2, "a")
    assert best.update(1, {"evaluation_hal_rate": 0.1})
    other = Best(metric, 2, held_out)
    other.restore(best.state())
    assert (other.value, other.step) == (None, 0)


def test_a_best_step_is_kept_while_the_checkpoint_that_names_it_is_written() -> None:
    run: Any = trainer.Trainer.__new__(trainer.Trainer)
    kept: list[set[int]] = []
    nothing = SimpleNamespace(save=lambda *_, **__: True, complete=lambda: [])
    run.checkpoints = run.best_checkpoint = nothing
    nothing.retain = lambda steps: kept.append(steps())
    run.step, run.policy, run.optimizer, run.state = 2, None, None, dict
    run.best = Best("cap_score", 0, step=1)
    run.save(wait=False)
    run.best.step = 3
    run._remove_outdated_best()
    assert kept == [{1}, {1, 3}]


def test_a_run_that_keeps_the_best_of_another_metric_exports_its_own(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {0: (0.1, 0.9), 1: (0.9, 0.8), 2: (0.2, 0.1), 3: (0.3, 0.2)}
    names = ("evaluation_cap_score", "evaluation_hal_rate")

    def evaluate(self: Any, step: int) -> dict[str, float]:
        return dict(zip(names, scores[step], strict=True))

    monkeypatch.setattr(trainer.Trainer, "evaluate", evaluate)
    settings = (f"data.evaluation={lab.folder / 'train.jsonl'}", "run.evaluate_every=1", "run.steps=3")
    assert main(lab.run("run", *settings, "run.keep_best=cap_score", "run.steps=1")) == 0
    shutil.copytree(lab.folder / "run", lab.folder / "last")
    assert main([*lab.run("run", *settings, "run.keep_best=hal_rate"), "--resume", "auto"]) == 0
    assert "exported: step 2, the best hal_rate of the held-out images" in capsys.readouterr().err
    assert main([*lab.run("last", *settings, "run.keep_best="), "--resume", "auto"]) == 0
    assert "exported: step" not in capsys.readouterr().err
