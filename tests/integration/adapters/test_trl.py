"""TRL adapter with the real library, in several steps with a tiny random model (run by .ci/adapters)."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="TRL has an environment of its own: bash .ci/adapters trl")

import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import GRPOTrainer

from scapo_eval import InputError, RewardConfig, SubsentenceReward
from scapo_eval.integrations import trl as adapter
from scapo_eval.rewarding.batch import log_sums
from scapo_eval.rewarding.tokens import decode_with_offsets


@pytest.fixture
def model(tokenizer: Any, tmp_path: Path) -> Any:
    """Returns a model in a folder, because TRL loads the reference model of the KL term from the policy's path."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "model")
    return Qwen2ForCausalLM.from_pretrained(tmp_path / "model")


@pytest.fixture
def dataset() -> Dataset:
    rows = [{"prompt": "Describe this image.", "image_id": str(k % 4 + 1)} for k in range(16)]
    return Dataset.from_list(rows)


def settings(folder: Path, sampled_ids: list[int], vocabulary_size: int, **more: Any) -> dict[str, Any]:
    others = [k for k in range(vocabulary_size) if k not in sampled_ids]
    return {
        "output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no",
        "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 32, "max_steps": 2,
        "logging_steps": 1, "learning_rate": 1e-2, "disable_tqdm": True,
        "generation_kwargs": {"suppress_tokens": others}, **more,
    }  # fmt: skip


class Recorder(adapter.ScapoTrainer):
    """Trainer that keeps its loss and the inputs of the loss."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        self.__dict__.setdefault("seen", []).append((inputs, float(loss)))
        return loss


def test_scapo_trainer_gives_each_subsentence_its_own_credit(
    model: Any, dataset: Dataset, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path
) -> None:
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trainer = Recorder(
        reward=reward,
        model=model,
        args=adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer))),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    assert len(trainer.seen) == 2
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    varied = 0
    for inputs, _ in trainer.seen:
        advantages, mask = inputs["advantages"], inputs["completion_mask"].bool()
        assert advantages.shape == mask.shape
        assert (advantages[~mask] == 0).all()
        for row in range(len(mask)):
            ids = inputs["completion_ids"][row][mask[row]].tolist()
            own = advantages[row][mask[row]].numpy()
            varied += len(set(own.tolist())) > 1
            text, offsets = decode_with_offsets(tokenizer, ids)
            possible = [
                reward([image], [text])[0].token_advantages(offsets, finished=ids[-1] == tokenizer.eos_token_id)
                for image in ("1", "2", "3", "4")
            ]
            assert any(np.array_equal(own, expected) for expected in possible)
            if ids[-1] == tokenizer.eos_token_id:
                assert own[-1] == 0
    assert varied > 0  # advantages differ inside one response


def vision_language(tokenizer: Any, folder: Path) -> tuple[Any, Any]:
    """Returns a tiny random Qwen2.5-VL, and its processor without the video part (which needs torchvision)."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.processing_utils import ProcessorMixin

    class ImageProcessorOnly(Qwen2_5_VLProcessor):
        """Processor for images and text."""

        def __init__(self, image_processor: Any = None, tokenizer: Any = None, **kwargs: Any) -> None:
            self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
            self.image_token_id, self.video_token_id = tokenizer.convert_tokens_to_ids(
                [self.image_token, self.video_token]
            )
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=tokenizer.chat_template)

        @classmethod
        def get_attributes(cls) -> list[str]:
            return ["image_processor", "tokenizer"]

        @property
        def model_input_names(self) -> list[str]:
            return ["input_ids", "attention_mask", "pixel_values", "image_grid_thw", "mm_token_type_ids"]

    token = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
            "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None,
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "window_size": 112, "fullatt_block_indexes": [1],
        },
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
    )  # fmt: skip
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder / "vlm")
    images = Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, min_pixels=56 * 56, max_pixels=84 * 84)
    return Qwen2_5_VLForConditionalGeneration.from_pretrained(folder / "vlm"), ImageProcessorOnly(images, tokenizer)


def test_scapo_trainer_trains_a_vision_language_model(
    tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path
) -> None:
    from PIL import Image

    torch.manual_seed(0)
    model, processor = vision_language(tokenizer, tmp_path)
    prompt = [{"role": "user", "content": "Describe this image."}]
    pictures = [Image.fromarray(np.full((84, 84, 3), 40 * k, dtype=np.uint8)) for k in range(4)]
    rows = [{"prompt": prompt, "image": pictures[k % 4], "image_id": str(k % 4 + 1)} for k in range(8)]
    trainer = Recorder(
        reward=reward,
        model=model,
        args=adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer))),
        train_dataset=Dataset.from_list(rows),
        processing_class=processor,
    )
    trainer.train()
    assert [math.isfinite(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry] == [True, True]
    inputs = trainer.seen[0][0]
    assert "pixel_values" in inputs
    assert any(
        len(set(row[m].tolist())) > 1
        for row, m in zip(inputs["advantages"], inputs["completion_mask"].bool(), strict=True)
    )


def test_the_loss_is_scapo_s(
    model: Any, dataset: Dataset, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path
) -> None:
    """Checks the loss with one update per batch, for which it is the negative mean advantage over all response
    tokens.
    """
    more = {"beta": 0.0, "max_steps": 1, "gradient_accumulation_steps": 2}
    trainer = Recorder(
        reward=reward,
        model=model,
        args=adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer), **more)),
        train_dataset=dataset,
        processing_class=tokenizer,
        eos="last",
        truncated="mask",
    )
    trainer.train()
    tokens = sum(int(inputs["completion_mask"].sum()) for inputs, _ in trainer.seen)
    credit = sum(float((inputs["advantages"] * inputs["completion_mask"]).sum()) for inputs, _ in trainer.seen)
    assert len(trainer.seen) == 2  # two micro-batches of one global batch
    sizes = sum(float((inputs["advantages"] * inputs["completion_mask"]).abs().sum()) for inputs, _ in trainer.seen)
    rounding = 2**-24 * sizes  # of a mean: the sum of n float32 terms is off by at most n * 2^-24 of their sizes
    assert sum(loss for _, loss in trainer.seen) == pytest.approx(-credit / tokens, rel=0, abs=rounding)


def test_the_reward_function_is_one_number_per_completion(
    model: Any, dataset: Dataset, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path
) -> None:
    whole = SubsentenceReward(reward.truth.vocabulary, reward.truth.oracle, RewardConfig(level="cap"))
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[adapter.reward_function(reward), adapter.reward_function(whole, name="cap")],
        args=adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer), max_steps=1)),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    log = trainer.state.log_history[0]
    for key in ("loss", "rewards/scapo/mean", "rewards/cap/mean", "scapo/generated", "scapo/errors"):
        assert math.isfinite(log[key]), key
    assert log["scapo/errors"] == 0
    score = adapter.reward_function(reward)
    messages = [
        [{"role": "assistant", "content": "A dog is near the tree."}],
        [{"role": "assistant", "content": "A dog."}],
    ]
    assert score(completions=messages, image_id=["1", "unknown"]) == [1.0, None]


def test_what_cannot_work_says_so(
    model: Any, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path, monkeypatch: Any
) -> None:
    with pytest.raises(InputError, match="missing column 'image_id' in the dataset"):
        adapter.reward_function(reward)(completions=["A dog."], images=[None])
    plain = settings(tmp_path, sampled_ids, len(tokenizer))
    with pytest.raises(InputError, match="importance_sampling_level='token'"):
        adapter.ScapoTrainer(reward=reward, args=adapter.scapo_config(**plain, importance_sampling_level="sequence"))
    with pytest.raises(InputError, match="use_liger_kernel computes the loss from one advantage per response"):
        adapter.ScapoTrainer(reward=reward, args=adapter.scapo_config(**plain, use_liger_kernel=True))
    for name in ("tools", "environment_factory"):
        with pytest.raises(InputError, match=f"does not support {name}: TRL passes the results of tools to the reward"):
            adapter.ScapoTrainer(reward=reward, args=adapter.scapo_config(**plain), **{name: [print]})
    monkeypatch.setattr(adapter.trl, "__version__", "99.0.0")
    with pytest.warns(UserWarning, match=r"not with 99\.0\.0"):
        adapter._probe()
    monkeypatch.delattr(adapter.GRPOTrainer, "_calculate_rewards")
    with pytest.raises(InputError, match=r"has no GRPOTrainer\._calculate_rewards"):
        adapter._probe()


def test_further_rewards_are_logged_and_every_reward_is_computed_once(
    model: Any, dataset: Dataset, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path
) -> None:
    class Counted(SubsentenceReward):
        """Reward that counts its batches."""

        batches = 0

        def batch(self, *given: Any) -> Any:
            type(self).batches += 1
            return super().batch(*given)

    def length(completions: list[str], **_: Any) -> list[float]:
        return [float(len(text)) for text in completions]

    counted = Counted(reward.truth.vocabulary, reward.truth.oracle, on_error="zero")
    rows = [{**row, "image_id": "unknown" if k % 4 == 0 else row["image_id"]} for k, row in enumerate(dataset)]
    with pytest.warns(UserWarning, match="logs reward_funcs and does not train on them"):
        trainer = Recorder(
            reward=counted,
            reward_funcs=length,
            model=model,
            args=adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer), max_steps=4)),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )
    trainer.train()
    assert Counted.batches == 4  # once a step
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 4
    assert all(entry["rewards/length/mean"] > 0 for entry in logs)
    assert 0 < sum(entry["scapo/errors"] for entry in logs) < 4
    assert all(
        entry["scapo/reward"] == pytest.approx(entry["rewards/scapo/mean"])
        for entry in logs
        if not entry["scapo/errors"]
    )


@pytest.fixture
def one_step(
    model: Any, dataset: Dataset, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path
) -> dict[str, Any]:
    """Arguments of a trainer that trains for one step."""
    args = adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer), max_steps=1))
    return {
        "reward": reward, "model": model, "args": args, "train_dataset": dataset, "processing_class": tokenizer
    }  # fmt: skip


def test_the_log_covers_all_processes(
    one_step: dict[str, Any], reward: SubsentenceReward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaces the gathering of objects by that of a second process with three times as many faulty responses."""
    other = log_sums(reward.batch([*["x"] * 24], ["A dog."] * 24, whole=False))
    monkeypatch.setattr(adapter, "gather_object", lambda rows: [*rows, other])
    trainer = adapter.ScapoTrainer(**one_step)
    trainer.train()
    assert trainer.state.log_history[0]["scapo/errors"] == 0.75


def test_credit_for_tokens_of_an_environment_is_refused(one_step: dict[str, Any], tokenizer: Any) -> None:
    def rollout(prompts: list[str], _: Any) -> dict[str, Any]:
        ids = tokenizer.encode("A dog. A cat.")
        rows = {"prompt_ids": ids, "completion_ids": ids, "env_mask": [1, 1, 1, 0, 0, 0][: len(ids)]}
        return {name: [row] * len(prompts) for name, row in rows.items()} | {"logprobs": None}

    trainer = adapter.ScapoTrainer(**one_step, rollout_func=rollout)
    with pytest.raises(InputError, match="rollout_func returned env_mask: TRL passes the results of tools"):
        trainer.train()


def test_the_example_trains(
    model: Any, tokenizer: Any, truth_file: Path, vocabulary_file: Path, sampled_ids: list[int], tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path / "model")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"image_id": k % 4 + 1, "prompt": "Describe this image."}) + "\n" for k in range(8))
    )
    more = settings(tmp_path / "run", sampled_ids, len(tokenizer), max_steps=1)
    command = [
        sys.executable, str(Path(__file__).parents[3] / "examples" / "trl_scapo.py"),
        "--model", str(tmp_path / "model"), "--prompts", str(prompts), "--truth", str(truth_file),
        "--vocabulary", str(vocabulary_file), "--output", str(tmp_path / "run"),
        *(f"{name}={json.dumps(value)}" for name, value in more.items() if name != "output_dir"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("reward|vocab:toy@")
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_pairs_pass_through_trl_s_dpo_data_path(
    tokenizer: Any, truth_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    """Checks the path from scapo-eval pairs through JSON Lines, datasets and DPOTrainer's vision collator to token ids
    and masks.
    """
    from datasets import Image, List, load_dataset
    from PIL import Image as Picture
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    (tmp_path / "images").mkdir()
    for k in (1, 2):
        Picture.fromarray(np.full((84, 84, 3), 40 * k, dtype=np.uint8)).save(tmp_path / "images" / f"{k}.png")
    sampled = [("1", "A dog is near the tree."), ("1", "A cat is on the table."), ("2", "A cat."), ("2", "A car.")]
    rollouts, pairs = tmp_path / "rollouts.jsonl", tmp_path / "pairs.jsonl"
    rollouts.write_text("".join(json.dumps({"image_id": image, "response": text}) + "\n" for image, text in sampled))
    command = [sys.executable, "-m", "scapo_eval.cli.main", "pairs", str(rollouts), "--truth", str(truth_file)]
    command += ["--vocabulary", str(vocabulary_file), "--images", str(tmp_path / "images"), "--format", "trl"]
    subprocess.run([*command, "--prompt", "Describe this image.", "-o", str(pairs)], check=True)
    data = load_dataset("json", data_files=str(pairs), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(data) == 2
    data = data.cast_column("images", List(Image()))
    _, processor = vision_language(tokenizer, tmp_path)
    batch = DataCollatorForVisionPreference(processor)([data[0], data[1]])
    texts = [
        tokenizer.decode(ids[mask.bool()], skip_special_tokens=True).strip()
        for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)
    ]
    assert texts == ["A dog is near the tree.", "A cat.", "A cat is on the table.", "A car."]  # chosen, then rejected
    assert len(batch["image_grid_thw"]) == 4


def test_the_loss_of_scapo_train_s_dpo_is_trl_s(tokenizer: Any, tmp_path: Path) -> None:
    from copy import deepcopy

    from PIL import Image as Picture
    from trl import DPOConfig, DPOTrainer

    from scapo_train.data import Prompt, PromptRecord
    from scapo_train.model import policy_of
    from scapo_train.preference import loss as preference_loss

    def turn(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    picture = Picture.fromarray(np.arange(84 * 84 * 3, dtype=np.uint8).reshape(84, 84, 3))
    texts = [("A dog is near the tree.", "A cat."), ("A cat.", "A car is on the table.")]
    rows = [
        {"images": [picture], "prompt": turn("user", "Describe this image."), "chosen": turn("assistant", chosen),
         "rejected": turn("assistant", rejected)}
        for chosen, rejected in texts
    ]  # fmt: skip
    model, processor = vision_language(tokenizer, tmp_path)
    reference = deepcopy(model)
    for parameter in model.model.language_model.parameters():
        parameter.data.mul_(1.5)
    arguments = DPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], beta=0.3, max_length=None,
        per_device_train_batch_size=2, gradient_checkpointing=False,
    )  # fmt: skip
    data = Dataset.from_list(rows)
    trainer = DPOTrainer(
        model=model, ref_model=reference, args=arguments, train_dataset=data, processing_class=processor
    )
    batch = next(iter(trainer.get_train_dataloader()))
    with torch.no_grad():
        theirs = float(trainer.compute_loss(model, dict(batch)))

        ratios = []
        policies = [policy_of(each, [tokenizer.eos_token_id], 1.0) for each in (model, reference)]
        for policy in policies:
            policy.never = []
        grids, real = batch["image_grid_thw"], batch["attention_mask"].bool()
        pixels = batch["pixel_values"].split(grids.prod(1).tolist())
        for k, (ids, mask) in enumerate(zip(batch["input_ids"], batch["completion_mask"].bool(), strict=True)):
            inputs = {"pixel_values": pixels[k], "image_grid_thw": grids[k : k + 1]}
            prompt = Prompt(k, PromptRecord.of(["1.png"], "1", ""), ids[real[k] & ~mask], inputs)
            sums = []
            for policy in policies:
                (encoded,) = policy.prepare([prompt], torch.device("cpu"))
                row = encoded.row([ids[real[k] & mask].tolist()])
                sums.append(policy(policy.batch([row], torch.device("cpu"))).logprob.sum())
            ratios.append(sums[0] - sums[1])
        chosen, rejected = torch.stack(ratios).chunk(2)
        ours = float(preference_loss.dpo(chosen, rejected, 0.3).mean())
    assert abs(theirs - math.log(2)) > 1e-3
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_the_benchmark_beside_trl_takes_a_step_on_both_sides() -> None:
    program = Path(__file__).resolve().parents[3] / "benchmarks" / "train_vs_trl.py"
    done = subprocess.run([sys.executable, str(program), "--smoke"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    taken = {name.strip(): [float(cell.replace(",", "")) for cell in cells[:2]] for name, *cells in rows}
    for phase in ("rollout", "reward", "logprob", "update", "whole step"):
        assert min(taken[phase]) > 0, phase


def test_trl_s_loss_takes_the_golden_step(
    model: Any, dataset: Dataset, tokenizer: Any, reward: SubsentenceReward, sampled_ids: list[int], tmp_path: Path,
    golden_step: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Replaces only the model's log-probabilities by those of the step."""
    args = adapter.scapo_config(**settings(tmp_path, sampled_ids, len(tokenizer), per_device_train_batch_size=4))
    trainer = adapter.ScapoTrainer(
        reward=reward, model=model, args=args, train_dataset=dataset, processing_class=tokenizer
    )
    trainer.current_gradient_accumulation_steps = 1
    policy = golden_step["logprobs"].clone().requires_grad_()
    found = (policy, torch.zeros_like(policy), None)
    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", lambda *_, **__: found)
    mask = golden_step["mask"].int()
    ones = torch.ones_like(mask)
    loss = trainer._compute_loss(
        model.train(),
        {
            "prompt_ids": ones[:, :1], "prompt_mask": ones[:, :1], "completion_ids": ones, "completion_mask": mask,
            "advantages": golden_step["advantages"], "old_per_token_logps": golden_step["old_logprobs"],
            "ref_per_token_logps": golden_step["reference_logprobs"], "num_items_in_batch": mask.sum(),
        },
    )  # fmt: skip
    loss.backward()
    assert float(loss.detach()) == pytest.approx(golden_step["loss"], rel=0, abs=1e-6)
    torch.testing.assert_close(policy.grad, golden_step["gradient"], rtol=0, atol=1e-6)


def test_the_lines_of_the_page_make_a_trainer(
    model: Any, dataset: Dataset, reward: SubsentenceReward, tokenizer: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    tokenizer.save_pretrained(tmp_path / "model")
    page = (Path(__file__).parents[3] / "docs" / "integrations.md").read_text(encoding="utf-8")
    [block] = [part for part in page.split("```python\n")[1:] if "ScapoTrainer" in part.split("```")[0]]
    names: dict[str, Any] = {"reward": reward, "data": dataset}
    block = block.split("```")[0].replace("Qwen/Qwen2.5-VL-7B-Instruct", str(tmp_path / "model"))
    exec(block.replace("scapo_config()", "scapo_config(use_cpu=True, bf16=False)"), names)  # there is no GPU here
    assert isinstance(names["trainer"], adapter.ScapoTrainer)
