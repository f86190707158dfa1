"""Errors by users and problems during a run: a clear message with exit code 2, or a count without a stop."""

from __future__ import annotations

import io
import json
import math
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_eval.base.errors import ScapoError  # noqa: E402
from scapo_train import distributed, loop, trainer  # noqa: E402
from scapo_train.__main__ import main  # noqa: E402
from scapo_train.config import load  # noqa: E402
from scapo_train.data import indices_of_step  # noqa: E402
from scapo_train.monitoring import log  # noqa: E402
from scapo_train.update import Updater  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]


def metrics(lab: Any, name: str = "run") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.folder / name / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def refused(lab: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Makes runs with changes that must be rejected, and returns the message."""

    def run(*changes: str) -> str:
        assert main(lab.run("run", *changes)) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert "scapo_train: " in said
        return said.partition("scapo_train: ")[2]

    return run


def test_settings_and_files_that_are_wrong(lab: Any, refused: Callable[..., str], tmp_path: Path) -> None:
    assert "unknown key optim.learning_rate; known: " in refused("optim.learning_rate=1")
    assert "optim.lr: expected float, got 'fast'" in refused("optim.lr=fast")
    assert "data.oracle is not set" in refused("data.oracle=")
    assert "/nowhere.jsonl: file not found" in refused("data.train=/nowhere.jsonl")
    assert "/nowhere.json: file not found" in refused("data.oracle=/nowhere.json")
    assert "train.jsonl: 12 prompts, but data.prompts_per_step is 13" in refused("data.prompts_per_step=13")
    (tmp_path / "file").write_text("")
    assert "cannot be created" in refused(f"run.output={tmp_path / 'file' / 'run'}")


def test_an_image_id_that_the_oracle_does_not_know_is_named_with_its_line(
    lab: Any, refused: Callable[..., str]
) -> None:
    with open(lab.folder / "train.jsonl", "a") as stream:
        stream.write('{"image": "1.png", "image_id": 777, "prompt": "Describe this image ."}\n')
    said = refused()
    assert "train.jsonl:13: " in said
    assert "777" in said


def test_a_vocabulary_other_than_the_matrix_was_made_for(lab: Any, refused: Callable[..., str]) -> None:
    import numpy as np

    from scapo_eval import Vocabulary

    labels = list(Vocabulary.load("dopa160").labels)
    np.savez(
        lab.folder / "dopa.npz",
        matrix=np.zeros((12, len(labels)), dtype=np.int8),
        image_ids=np.array([str(k) for k in range(1, 13)]),
        labels=np.array(labels),
        vocabulary_fingerprint="another",
        version="1",
    )
    said = refused(f"data.oracle={lab.folder / 'dopa.npz'}", "data.vocabulary=dopa160")
    assert "fingerprint" in said
    assert "any_fingerprint" in said


def test_a_truth_without_any_label_of_the_vocabulary(lab: Any, refused: Callable[..., str]) -> None:
    objects = {str(k): ["quark", "gluon"] for k in range(1, 13)}
    (lab.folder / "other.json").write_text(json.dumps({"labels": ["quark", "gluon"], "objects": objects}))
    assert "coco80" in refused(f"data.oracle={lab.folder / 'other.json'}")


def test_a_damaged_checkpoint_is_named_with_a_remedy(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.export=false")) == 0
    newest = lab.folder / "run" / "checkpoints" / "step-000004"
    shard = next(newest.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:2000])
    assert main([*lab.run("run"), "--resume", "auto"]) == 2
    said = capsys.readouterr().err
    assert f"scapo_train: {newest}: is damaged, or of another model" in said
    shutil.rmtree(newest)
    assert main([*lab.run("run"), "--resume", "auto"]) == 0  # from step 3


def test_a_mistyped_model_is_said_before_transformers_looks_for_it(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    for loader in ("AutoConfig", "AutoTokenizer", "AutoProcessor"):  # which would try each file again and again

        def asked(*arguments: object, **options: object) -> None:
            pytest.fail("transformers was asked")

        monkeypatch.setattr(f"transformers.{loader}.from_pretrained", asked)
    assert "Qwen/Mistyped: folder not found, and the hub http://127.0.0.1:9" in refused("model.path=Qwen/Mistyped")
    assert f"{tmp_path / 'none'}: folder not found" in refused(f"model.path={tmp_path / 'none'}")


def test_a_model_without_a_vision_tower(lab: Any, refused: Callable[..., str], tiny: ModuleType) -> None:
    tiny.build(lab.folder / "text", "text")
    assert "models of the kind llama cannot be trained: it has no vision tower" in refused(
        f"model.path={lab.folder / 'text'}"
    )


@pytest.mark.parametrize("damage", ["nothing", "weights", "settings"])
def test_a_model_that_cannot_be_loaded(lab: Any, lab_template: Path, refused: Callable[..., str], damage: str) -> None:
    broken = lab.folder / "broken"
    if damage == "nothing":
        broken.mkdir()
    else:
        shutil.copytree(lab_template / "model", broken)
        file = broken / ("model.safetensors" if damage == "weights" else "config.json")
        file.write_bytes(file.read_bytes()[:1000])
    assert f"cannot load {broken}: " in refused(f"model.path={broken}")


def test_a_missing_picture_in_the_middle_of_an_epoch_is_left_out_and_counted(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.folder / "images" / "3.png").unlink()
    (lab.folder / "images" / "7.png").write_bytes((lab.folder / "images" / "7.png").read_bytes()[:50])
    assert main(lab.run("run")) == 0
    said = capsys.readouterr().err
    assert said.count("omitted: ") == 2
    assert f"{lab.folder / 'images' / '3.png'}: file not found" in said
    counts = [line["prompts_left_out"] for line in metrics(lab)]
    assert counts == sorted(counts)
    assert counts[-1] == 2.0
    assert main(lab.run("other", "data.max_bad=1")) == 2
    assert "3.png: cannot be read, like 1 others: more than data.max_bad = 1" in capsys.readouterr().err
    assert len(metrics(lab, "other")) >= 1


def damage(lab: Any, numbers: Iterable[int]) -> None:
    for k in numbers:
        (lab.folder / "images" / f"{k}.png").write_bytes(b"damaged")


def test_a_step_without_any_picture_changes_nothing(lab: Any) -> None:
    first = [index + 1 for index in indices_of_step(0, 12, 5, 0)]
    damage(lab, first)
    assert main(lab.run("run", "run.steps=2", "optim.mini_batches=2", "run.samples=0")) == 0
    before, after = metrics(lab)
    assert before["updates_left_out"] == 2.0
    assert before["length"] is None
    assert before["loss"] is None
    assert after["loss"] is not None


def test_no_picture_at_all_is_an_error_and_nothing_is_exported(
    lab: Any, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(lab, [index + 1 for step in range(2) for index in indices_of_step(step, 12, 5, 0)])
    assert "no update was made, so nothing is exported" in refused("run.steps=2", "run.samples=0")
    damage(lab, range(1, 13))
    assert main([*lab.run("all", "run.samples=0", "data.prompts_per_step=12")]) == 2
    assert "like all other pictures (12 in total): no prompt is left" in capsys.readouterr().err
    shutil.rmtree(lab.folder / "images")
    assert main(lab.run("none")) == 2
    assert "1.png: file not found, like all other 12 pictures: check data.images" in capsys.readouterr().err
    for name in ("run", "all", "none"):
        assert not (lab.folder / name / "model").exists()


def test_the_pictures_that_may_be_bad_as_a_share(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    damage(lab, [3, 7])
    assert main(lab.run("some", "data.max_bad=0.2", "run.export=false")) == 0
    assert main(lab.run("few", "data.max_bad=0.1", "run.export=false")) == 2
    assert "like 1 others: more than data.max_bad = 0.1" in capsys.readouterr().err


def test_images_that_the_truth_does_not_know_can_be_skipped(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with open(lab.folder / "train.jsonl", "a") as stream:
        stream.write('{"image": "1.png", "image_id": 777, "prompt": "Describe this image ."}\n')
    assert main(lab.run("run", "data.on_unknown_image=skip", "run.export=false")) == 0
    assert "train.jsonl: 1 prompts omitted: their images are not in the ground truth" in capsys.readouterr().err
    assert json.loads((lab.folder / "run" / "card.json").read_text())["prompts"] == 12


def test_labels_without_truth_are_counted(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "data.vocabulary=dopa160", "run.steps=1", "run.export=false")) == 0
    labels = len(json.loads((lab.folder / "truth.json").read_text())["labels"])
    said = capsys.readouterr().err
    assert f"{160 - labels} of 160 labels of the vocabulary 'dopa160' have no ground truth" in said


def test_a_prompt_longer_than_the_positions_of_the_model(lab: Any, refused: Callable[..., str]) -> None:
    said = refused("rollout.max_new_tokens=505")
    assert "besides rollout.max_new_tokens for the response there is room for 7" in said


def test_a_resumed_run_keeps_its_objective(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.steps=2", "run.export=false")) == 0
    resumed = [*lab.run("run", "credit.r_h=2.0", "run.seed=1", "run.samples=0"), "--resume", "auto"]
    before = (lab.folder / "run" / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(resumed) == 2
    said = capsys.readouterr().err
    assert "the resumed run has run.seed = 1 (before: 0); credit.r_h = 2.0 (before: 1.0)" in said
    assert (lab.folder / "run" / "metrics.jsonl").read_bytes() == before
    assert main([*resumed, "--accept-changes"]) == 0
    assert "resumed with another objective than before: run.seed = 1" in capsys.readouterr().err
    truth = json.loads((lab.folder / "truth.json").read_text())
    truth["objects"]["1"] = []
    (lab.folder / "truth.json").write_text(json.dumps(truth))
    changed = [*lab.run("run", "credit.r_h=2.0", "run.seed=1", "run.steps=5"), "--resume", "auto"]
    assert main(changed) == 2
    assert "the resumed run has the reward " in capsys.readouterr().err


def test_other_prompts_under_the_same_name_are_another_objective(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.steps=1", "run.export=false")) == 0
    lines = (lab.folder / "train.jsonl").read_text().splitlines(keepends=True)
    (lab.folder / "train.jsonl").write_text("".join(lines[:7]).replace("Describe", "Name"))
    again = [*lab.run("run", "run.steps=2", "run.export=false"), "--resume", "auto"]
    capsys.readouterr()
    assert main(again) == 2
    assert "the resumed run has prompts with the hash " in capsys.readouterr().err
    assert main([*again, "--accept-changes"]) == 0


def test_changed_adapters_are_no_damage(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.steps=1", "run.export=false")) == 0
    capsys.readouterr()
    assert main([*lab.run("run", "lora.rank=4"), "--resume", "auto"]) == 2
    said = capsys.readouterr().err
    assert "the resumed run has lora.rank = 4 (before: 0)" in said
    assert "damaged" not in said


def test_unreadable_settings_of_a_checkpoint_are_refused(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.steps=1", "run.export=false")) == 0
    path = lab.folder / "run" / "checkpoints" / "step-000001" / "state.json"
    path.write_text(path.read_text().replace("[loss]", "[lossy]").replace("crc32", "former_crc32"))
    again = [*lab.run("run", "run.steps=2", "run.export=false", "loss.kl=0.5"), "--resume", "auto"]
    capsys.readouterr()
    assert main(again) == 2
    assert "its settings cannot be compared: unknown section [lossy]" in capsys.readouterr().err
    assert main([*again, "--accept-changes"]) == 0


def test_a_second_process_in_the_folder_is_refused(
    lab: Any, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    step = trainer.Trainer.train_step

    def during(self: Any) -> Any:
        if not said:
            said.append(refused())  # the folder's metrics.jsonl does not exist yet
        return step(self)

    monkeypatch.setattr(trainer.Trainer, "train_step", during)
    assert main(lab.run("run", "run.steps=1", "run.samples=0", "run.export=false")) == 0
    assert "another process is training in this folder" in said[0]
    assert len(metrics(lab)) == 1
    monkeypatch.undo()
    assert main([*lab.run("run", "run.steps=2", "run.export=false"), "--resume", "auto"]) == 0


def test_a_file_system_without_locks_is_only_warned_about(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl

    def without(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", without)
    assert main(lab.run("run", "run.steps=1", "run.export=false")) == 0
    assert "a second process in this folder would not be noticed" in capsys.readouterr().err


def test_unreadable_pictures_among_the_samples_do_not_count_twice(lab: Any) -> None:
    """The limit is a share of all prompts, whether or not the picture is among the first ``run.samples``."""
    (lab.folder / "images" / "1.png").write_text("hello")
    assert main(lab.run("run", "data.max_bad=0.2", "run.samples=1", "run.export=false")) == 0


def test_completed_steps_are_saved_before_too_many_unreadable_pictures_end_the_run(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("data.max_bad=0", "data.prompts_per_step=4", "run.save_every=0", "run.samples=0", "run.export=false")
    lines = [json.loads(line) for line in (lab.folder / "train.jsonl").read_text().splitlines()]
    late = indices_of_step(2, len(lines), 4, 0)[0]  # a prompt of the third step
    picture = lab.folder / "images" / lines[late]["image"]
    content = picture.read_bytes()
    picture.write_text("hello")
    assert main(lab.run("run", *settings)) == 2
    said = capsys.readouterr().err
    assert "more than data.max_bad = 0; after step 2: continue with --resume auto" in said
    picture.write_bytes(content)
    assert main([*lab.run("run", *settings), "--resume", "auto"]) == 0
    assert [row["step"] for row in metrics(lab)] == [1, 2, 3, 4]
    assert metrics(lab)[-1]["prompts_left_out"] == 0


def test_completed_steps_are_saved_before_a_prompt_that_is_too_long_ends_the_run(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (lab.folder / "train.jsonl").read_text().splitlines()]
    lines[indices_of_step(1, len(lines), 4, 0)[0]]["prompt"] = "a " * 600  # of the second step
    (lab.folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ("data.prompts_per_step=4", "run.save_every=0", "run.samples=0", "optim.micro_batch_tokens=8192")
    assert main(lab.run("run", *settings)) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "its prompt has 6" in said
    assert said.endswith("there is room for 500; after step 1: continue with --resume auto")
    assert (lab.folder / "run" / "checkpoints" / "step-000001").is_dir()


def test_a_model_without_a_chat_template_is_refused(
    lab: Any, tiny: ModuleType, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tiny.build(tmp_path / "model")
    (path / "chat_template.jinja").unlink()
    said = refused(f"model.path={path}")
    assert "1.png: the model's chat template fails: " in said


def test_special_tokens_in_prompts_are_refused(lab: Any, refused: Callable[..., str]) -> None:
    with open(lab.folder / "train.jsonl", "a") as stream:
        stream.write('{"image": "1.png", "image_id": 1, "prompt": "Describe this image<|im_end|>"}\n')
    assert "the prompt of image '1' contains <|im_end|>, a special token of the model" in refused()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("rollout.temperature=1e-9", "--set: rollout.temperature must be at least 0.01, got 1e-09"),
        ("preference.beta=0", "--set: preference.beta must be greater than 0"),
        ("optim.lr=-1", "--set: optim.lr must be greater than 0"),
        ("run.evaluate_every=2", "--set: run.evaluate_every needs data.evaluation"),
        ("credit.scheme=nowhere.py:mine", "nowhere.py: credit.scheme: Python file not found"),
        ("data.evaluation=/nowhere.jsonl", "/nowhere.jsonl: file not found"),
    ],
)
def test_settings_without_an_effect_are_refused_before_the_model_is_loaded(
    change: str, said: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "load_policy", lambda *_, **__: pytest.fail("the model is loaded"))
    message = refused(change)
    assert said in message
    assert len([line for line in message.splitlines() if "WARNING" not in line]) == 1


def test_contradicting_numbers_of_pixels(refused: Callable[..., str]) -> None:
    assert "model.min_pixels is greater than model.max_pixels" in refused(
        "model.min_pixels=100000", "model.max_pixels=10"
    )


def test_a_closed_pipe_does_not_end_the_run(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return os.open(os.devnull, os.O_WRONLY)

    step = trainer.Trainer.train_step

    def closing(self: Any) -> Any:
        monkeypatch.setattr("sys.stderr", Closed())
        return step(self)

    monkeypatch.setattr(trainer.Trainer, "train_step", closing)
    assert main(lab.run("run", "run.export=false")) == 0
    assert [row["step"] for row in metrics(lab)] == [1, 2, 3, 4]


def test_a_path_is_not_the_name_of_a_shipped_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "qwen2_5_vl_7b.toml")]) == 2
    assert "configuration not found (shipped: " in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen2_5_vl_7b").mkdir()
    assert main(["qwen2_5_vl_7b"]) == 2
    assert "qwen2_5_vl_7b: data.train is not set" in capsys.readouterr().err


def test_a_damaged_report_of_the_doctor_is_named(lab: Any, refused: Callable[..., str]) -> None:
    (lab.folder / "run").mkdir()
    (lab.folder / "run" / "doctor.json").write_text('{"ok":false,"findings":[{}]}')
    assert "doctor.json: " in refused()


def test_hours_left_are_not_cut_at_a_day() -> None:
    assert log._duration(2 * 86_400 + 3_661) == "49:01:01"


def test_deleted_checkpoints_are_no_reason_to_begin_again(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.export=false")) == 0
    shutil.rmtree(lab.folder / "run" / "checkpoints")
    assert main([*lab.run("run"), "--resume", "auto"]) == 2
    assert "has 4 steps, but no checkpoint to resume from" in capsys.readouterr().err
    assert len(metrics(lab)) == 4


def as_if_sampled(monkeypatch: pytest.MonkeyPatch, ids: list[int]) -> None:
    """Replaces every response by these tokens."""

    def sample(self: Any, prompts: Any, seed: int, group: int, temperature: float) -> list[Any]:
        return [trainer.Response(list(ids), True) for _ in range(len(prompts) * group)]

    monkeypatch.setattr(loop.PolicySampler, "sample", sample)


def token(lab_template: Path, word: str) -> int:
    from transformers import AutoTokenizer

    return int(AutoTokenizer.from_pretrained(lab_template / "model").convert_tokens_to_ids(word))


def test_empty_responses_are_counted(lab: Any, lab_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_sampled(monkeypatch, [token(lab_template, "<|im_end|>")])
    assert main(lab.run("run", "run.steps=2", "run.samples=0")) == 0
    for line in metrics(lab):
        assert line["empty_responses"] == 15.0
        assert line["length"] == 1.0
        assert line["reward"] == 0.0
        assert line["hal_rate"] is None


@pytest.mark.parametrize("kl", [0.0, 0.01])
def test_all_rewards_zero_is_said_and_moves_nothing(
    lab: Any, lab_template: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kl: float
) -> None:
    as_if_sampled(monkeypatch, [token(lab_template, word) for word in ("There", "is", "a", ".", "<|im_end|>")])
    zero = ("credit.r_reg=0.0", f"loss.kl={kl}", "optim.weight_decay=0.0", "run.samples=0", "run.steps=2")
    assert main(lab.run("run", *zero)) == 0
    assert "every reward is 0: nothing to learn from" in capsys.readouterr().err
    for line in metrics(lab):
        assert line["zero_reward_share"] == 1.0
        assert line["reward"] == 0.0
        assert line["grad_norm"] == pytest.approx(0.0, abs=1e-6)


def test_a_loss_that_is_not_finite_stops_the_step_and_not_the_run(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = trainer.credit
    calls = []

    def poisoned(*arguments: Any) -> Any:
        found = whole(*arguments)
        calls.append(found)
        if len(calls) == 2:
            found.advantages[0][:] = float("nan")
        return found

    monkeypatch.setattr(trainer, "credit", poisoned)
    assert main(lab.run("run")) == 0
    assert "step 2: " in capsys.readouterr().err
    lines = metrics(lab)
    assert [line["updates_left_out"] for line in lines] == [0.0, 1.0, 0.0, 0.0]
    assert lines[1]["loss"] is None
    assert all(line["loss"] is not None and line["grad_norm"] > 0 for line in (lines[0], *lines[2:]))


def test_a_run_whose_updates_were_all_omitted_exports_nothing_and_goes_on(
    lab: Any, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    norm = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *given: norm(*given) * math.nan)
    assert "no update was made, so nothing is exported" in refused("run.steps=1").splitlines()[-1]
    assert main([*lab.run("run", "run.steps=2"), "--resume", "auto"]) == 2  # nothing was learned before either
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", norm)
    assert main([*lab.run("run", "run.steps=3"), "--resume", "auto"]) == 0
    assert [line["updates_left_out"] for line in metrics(lab)] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("place", "raised", "said"),
    [
        ("update.Updater.update", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"),
         r"out of memory in step 1 \(update\): CUDA out of memory; .* optim.micro_batch_tokens = 4096, "),
        ("rollout.PolicySampler.sample", RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
         r"out of memory in step 1 \(rollout\): .*settings need less memory: rollout.prompts_per_batch = 8, "),
        ("loop.load_policy", MemoryError(), r"before the first step: .*need less memory: model.reference"),
    ],
    ids=["update", "rollout", "loading"],
)  # fmt: skip
def test_out_of_memory_is_one_line_with_what_would_need_less(
    lab: Any, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, place: str, raised: Exception, said: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(f"scapo_train.{place}", full)
    assert re.search(said, refused("run.samples=0"))


def test_too_little_memory_for_the_moments_of_a_checkpoint_is_an_error_that_all_ranks_hear(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(lab.run("run", "run.steps=1", "run.export=false")) == 0

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("scapo_train.checkpoint.save.make_moments", full)
    config = load(lab.config, [f"run.output={lab.folder / 'run'}"])
    with pytest.raises(ScapoError, match="out of memory before the first step"):  # not the error of PyTorch
        trainer.train(config, resume=True)


def test_an_alarm_can_end_the_run_with_a_checkpoint_and_no_export(
    lab: Any, lab_template: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_if_sampled(monkeypatch, [token(lab_template, word) for word in ("There", "is", "a", ".") * 2])
    stop = ("run.stop_on=['kl', 'repetition']", "run.samples=0", "run.save_every=0")
    assert main(lab.run("run", *stop)) == 2
    said = capsys.readouterr().err
    assert "stopped after step 1 of 4 by run.stop_on: repetition; nothing is exported" in said
    assert said.count("alarm repetition: repeated_sentence_share is 1.000") == 1
    assert (lab.folder / "run" / "checkpoints" / "step-000001").is_dir()
    assert not (lab.folder / "run" / "model").exists()
    (line,) = metrics(lab)
    assert line["alarm_repetition"] == line["repeated_sentence_share"] == line["without_claim_share"] == 1.0
    assert line["alarm_kl"] == 0.0


def test_weights_that_are_not_finite_end_the_run_and_are_not_saved(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Updater.update

    def poisoned(self: Updater, *arguments: Any) -> Any:
        found = whole(self, *arguments)
        if arguments[-1] == 2:
            next(self._policy.language_model.parameters()).data.view(-1)[0] = float("inf")
        return found

    monkeypatch.setattr(Updater, "update", poisoned)
    assert main(lab.run("run")) == 2
    assert "step 3: non-finite weights; resume from the last checkpoint" in capsys.readouterr().err
    names = sorted(path.name for path in (lab.folder / "run" / "checkpoints").iterdir())
    assert names == ["step-000001", "step-000002"]
    assert not (lab.folder / "run" / "model").exists()


def test_the_update_corrects_for_another_engine(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Updater.add_frozen_logprobs

    def perturbed(self: Updater, mini_batches: Any) -> None:
        """Updates as if the sampling engine had assigned half of the policy's probability to every token."""
        whole(self, mini_batches)
        with torch.no_grad():
            for micro in (micro for mini in mini_batches for micro in mini):
                micro.sampled = self._policy(micro.batch).logprob - math.log(2)

    monkeypatch.setattr(Updater, "add_frozen_logprobs", perturbed)
    changes = (
        "loss.kl=0.0",
        "model.dtype=float64",
        "run.steps=1",
        "run.export=false",
        "run.samples=0",
        "optim.clip=0.0",
    )
    norms = {}
    for most in (0.0, 1.5, 3.0):
        settings = load(*_given(lab.run(f"at{most}", *changes)))
        trainer.train(replace(settings, loss=replace(settings.loss, engine_correction=most)))
        norms[most] = metrics(lab, f"at{most}")[0]["grad_norm"]
    assert norms[1.5] == pytest.approx(1.5 * norms[0.0], rel=1e-6)
    assert norms[3.0] == pytest.approx(2.0 * norms[0.0], rel=1e-6)


def _given(arguments: list[str]) -> tuple[str, list[str]]:
    return arguments[0], [each for each in arguments[1:] if each != "--set"]


def test_a_full_disk_while_saving_does_not_stop_the_run(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.steps=2", "run.export=false")) == 0
    good = lab.folder / "run" / "checkpoints" / "step-000002"
    before = {path: path.read_bytes() for path in good.iterdir()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))  # metrics fit, weights do not
    try:
        assert main([*lab.run("run", "run.export=false"), "--resume", "auto"]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said = capsys.readouterr().err
    assert "step 3 was not saved to " in said
    assert f"the last good one is {good}" in said
    assert [line["step"] for line in metrics(lab)] == [1, 2, 3, 4]
    assert {path: path.read_bytes() for path in good.iterdir()} == before
    assert main([*lab.run("run"), "--resume", "auto"]) == 0  # steps 3 and 4 again, and saved
    assert [line["step"] for line in metrics(lab)] == [1, 2, 3, 4]
    assert (lab.folder / "run" / "checkpoints" / "step-000004").exists()


def test_a_disk_too_full_for_a_line_of_metrics_ends_the_run_after_its_last_checkpoint(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(lab.run("run", "run.steps=2", "run.export=false")) == 0
    good = sorted((lab.folder / "run" / "checkpoints").rglob("*"))
    size = (lab.folder / "run" / "metrics.jsonl").stat().st_size + 100
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        assert main([*lab.run("run", "run.samples=0"), "--resume", "auto"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said = capsys.readouterr().err
    assert f"scapo_train: {lab.folder}/run/metrics.jsonl: cannot be written: File too large" in said
    assert "Traceback" not in said
    assert sorted((lab.folder / "run" / "checkpoints").rglob("*")) == good
    assert main([*lab.run("run"), "--resume", "auto"]) == 0
    assert [line["step"] for line in metrics(lab)] == [1, 2, 3, 4]


def test_a_full_disk_while_exporting_is_said(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lab.run("run", "run.export=false")) == 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
    try:
        assert main([*lab.run("run"), "--resume", "auto"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said = capsys.readouterr().err
    assert f"scapo_train: {lab.folder / 'run' / 'model'}: cannot be written: " in said
    assert "Traceback" not in said


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with (
        pytest.raises(ScapoError, match="4 processes need a GPU each, but this machine has 2: --nproc-per-node 2"),
        distributed.join_process_group(),
    ):
        raise AssertionError("nobody gets here")
