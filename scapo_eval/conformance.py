"""Test that the installed version of a training library trains on SCAPO's credits (``python -m scapo_eval.conformance
FRAMEWORK``).

For each token, the check compares the credit that an adapter passes to the library's loss with an independent
computation of the reward from the same token ids. The independent computation handles each response alone and decodes
its tokens one after another. For TRL and ms-swift, the check performs a real training step on the CPU with a tiny
random model. The other libraries need a GPU for a training step, so the check runs only the adapter and the classes of
the library that surround it.

The exit code is 0 if all credits are equal, 1 if some differ, and 2 if the library is missing or incompatible with the
adapter.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from .base.errors import ScapoError
from .rewarding.reward import SubsentenceReward
from .rewarding.tokens import decode_with_offsets

WORDS = "A The a the dog cat car tree man is are in on by of and with grass street table small red old near".split()
SPECIAL = ("<|endoftext|>", "<|im_end|>")
LABELS = ("dog", "cat", "car", "tree", "person")
TRUTH = {"1": ["dog", "tree"], "2": ["cat"], "3": ["dog", "cat", "car", "tree"], "4": ["person"]}
VOCABULARY = {label: {"aliases": [label]} for label in LABELS[:4]} | {"person": {"aliases": ["man"]}}
RESPONSES = (
    ("1", "A dog is near the tree. A cat is in the grass. A man is on the street."),
    ("2", "The small cat is on a table. The cat is red and old and small."),
    ("3", "A car and a dog are on the street. Some trees are near a tree"),
)


class CheckResult(NamedTuple):
    """Result of checking one training library.

    Attributes:
        tokens, wrong: Number of compared tokens, and number of tokens with a different credit.
        loss: The loss computed by the library and the expected loss, or None if no loss was computed.
        what: Description of the part of the library that was run.
    """

    tokens: int
    wrong: int
    loss: tuple[float, float] | None
    what: str

    @property
    def is_right(self) -> bool:
        """True if all values are equal and at least one token was compared."""
        return self.tokens > 0 and not self.wrong and (self.loss is None or bool(np.isclose(*self.loss, atol=1e-6)))

    def __str__(self) -> str:
        said = f"{self.what}: {self.tokens:,} tokens, {self.wrong:,} wrong"
        if self.loss is not None:
            told, due = self.loss
            said += ", loss equal" if np.isclose(told, due, atol=1e-6) else f", loss {told:.6g} instead of {due:.6g}"
        return said


def tiny_tokenizer() -> Any:
    """Returns a byte-level tokenizer whose tokens are words and full stops, so that random ids form readable
    captions.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [*SPECIAL, *(f"\u0120{word}" for word in WORDS), ".", ",", "\u0120", ".\u0120The"]
    vocabulary = {piece: k for k, piece in enumerate([*pieces, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    vocabulary = {piece: k for k, piece in enumerate(vocabulary)}
    built = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([*SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=built, eos_token=SPECIAL[1], pad_token=SPECIAL[0], padding_side="left"
    )


def write_world(folder: Path) -> dict[str, str]:
    """Writes a ground truth and a vocabulary to files, and returns their paths, keyed by the names of the adapters'
    arguments.
    """
    (folder / "truth.json").write_text(json.dumps({"objects": TRUTH, "labels": LABELS}))
    (folder / "vocabulary.yaml").write_text(json.dumps({"name": "tiny", "labels": VOCABULARY}))
    return {"truth": str(folder / "truth.json"), "vocabulary": str(folder / "vocabulary.yaml")}


def expected_credit(
    reward: SubsentenceReward, tokenizer: Any, image: str, ids: Sequence[int], *, finished: bool
) -> np.ndarray[Any, Any]:
    """Returns the (T,) credits of the T tokens in one response, which is processed alone."""
    text, offsets = decode_with_offsets(tokenizer, list(ids))
    return reward([image], [text])[0].token_advantages(offsets, finished=finished)


def unreadable(tokenizer: Any) -> list[int]:
    """Returns all token ids except those of words, of the full stop and of the end-of-sequence token."""
    words = {tokenizer.convert_tokens_to_ids(piece) for piece in (*(f"\u0120{word}" for word in WORDS), ".")}
    return [k for k in range(len(tokenizer)) if k not in {*words, tokenizer.eos_token_id}]


def write_model(folder: Path, tokenizer: Any) -> None:
    """Writes a random model with two layers."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(
        vocab_size=len(tokenizer), **shape, num_key_value_heads=2, max_position_embeddings=128,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)


def check_trl(folder: Path) -> CheckResult:
    """Checks a real training step of TRL's GRPOTrainer with a random model. The step has no KL term, so that the
    expected loss is known.
    """
    from transformers import Qwen2ForCausalLM

    from .integrations import trl as adapter

    files, tokenizer = write_world(folder), tiny_tokenizer()
    reward = SubsentenceReward(files["vocabulary"], files["truth"])
    write_model(folder / "model", tokenizer)
    model = Qwen2ForCausalLM.from_pretrained(folder / "model")
    compared, wrong, losses = 0, 0, list[tuple[float, float]]()

    class Recorder(adapter.ScapoTrainer):
        """Trainer that checks its loss and the inputs of this loss."""

        def _calculate_rewards(self, inputs: Any, *given: Any) -> Any:
            self.images = [row["image_id"] for row in inputs]
            return super()._calculate_rewards(inputs, *given)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            nonlocal compared, wrong
            output = super()._generate_and_score_completions(inputs)
            mask = output["completion_mask"].bool()
            for row, image in enumerate(self.images):
                ids = output["completion_ids"][row][mask[row]].tolist()
                due = expected_credit(reward, tokenizer, image, ids, finished=ids[-1] == tokenizer.eos_token_id)
                compared += len(ids)
                wrong += int((output["advantages"][row][mask[row]].cpu().numpy() != due).sum())
            wrong += int((output["advantages"][~mask] != 0).sum())
            return output

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            mask = inputs["completion_mask"]
            losses.append((float(loss), float(-(inputs["advantages"] * mask).sum() / mask.sum())))
            return loss

    args = adapter.scapo_config(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], save_strategy="no", beta=0.0, max_steps=1,
        per_device_train_batch_size=16, num_generations=4, max_completion_length=64, logging_steps=1,
        disable_tqdm=True, generation_kwargs={"suppress_tokens": unreadable(tokenizer)},
    )  # fmt: skip
    from datasets import Dataset

    rows = [{"prompt": "A dog", "image_id": str(k % 4 + 1)} for k in range(16)]
    Recorder(
        reward=reward, model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    ).train()
    loss = losses[0] if losses else (float("nan"), 0.0)
    return CheckResult(compared, wrong, loss, f"trl {metadata.version('trl')}, one step")


class _Case(NamedTuple):
    """Responses in the form in which a library passes them to its adapter."""

    folder: Path
    files: Mapping[str, str]
    tokenizer: Any
    images: list[str]
    ids: list[list[int]]
    due: list[np.ndarray[Any, Any]]

    @classmethod
    def of(cls, folder: Path) -> _Case:
        files, tokenizer = write_world(folder), tiny_tokenizer()
        reward = SubsentenceReward(files["vocabulary"], files["truth"])
        ids = [tokenizer.encode(text) for _, text in RESPONSES]
        ids = [[*own, tokenizer.eos_token_id] for own in ids[:-1]] + ids[-1:]
        images = [image for image, _ in RESPONSES]
        due = [
            expected_credit(reward, tokenizer, image, own, finished=own[-1] == tokenizer.eos_token_id)
            for image, own in zip(images, ids, strict=True)
        ]
        return cls(folder, files, tokenizer, images, ids, due)

    def padded(self, rows: Sequence[Sequence[float]]) -> Any:
        """Returns a (B, T) float tensor in which each row is padded with zeros."""
        import torch

        made = torch.zeros((len(rows), max(map(len, self.ids))))
        for own, row in zip(made, rows, strict=True):
            own[: len(row)] = torch.tensor(row)
        return made

    def outcome(self, found: Sequence[Any], what: str) -> CheckResult:
        """Returns the result of checking the credits of all responses, given as one array per response."""
        wrong = sum(int((np.asarray(own)[: len(due)] != due).sum()) for own, due in zip(found, self.due, strict=True))
        return CheckResult(sum(map(len, self.due)), wrong, None, what)


def check_verl(folder: Path) -> CheckResult:
    """Checks the credits of responses after the agent loop and the estimator have processed them. The agent loop's
    server returns given responses, and the estimator is looked up by its name.
    """
    import asyncio

    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.rollout.replica import TokenOutput

    from .integrations.verl_agent import ScapoAgentLoop

    case = _Case.of(folder)
    case.tokenizer.chat_template = "{% for turn in messages %}{{ turn.content }}{% endfor %}"
    left = iter(case.ids)

    class Server:
        async def generate(self, **_: Any) -> TokenOutput:
            ids = next(left)
            return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids))

    async def generate() -> list[dict[str, Any]]:
        rollout = {"prompt_length": 64, "response_length": 64, "multi_turn": {}}
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout, "model": {}}, "data": {}})
        loop = ScapoAgentLoop(
            trainer_config=DictConfigWrap(config=config), server_manager=Server(), tokenizer=case.tokenizer,
            processor=None, hf_model_type="qwen2", dataset_cls=RLHFDataset, data_config=DictConfigWrap(config.data),
            truth=case.files["truth"], vocabulary=case.files["vocabulary"],
        )  # fmt: skip
        prompt = [{"role": "user", "content": "A dog"}]
        return [(await loop.run({}, raw_prompt=prompt, extra_info={"image_id": k})).as_dict() for k in case.images]

    rows = asyncio.run(generate())
    advantages, _returns = get_adv_estimator_fn("scapo")(
        token_level_rewards=case.padded([row["rm_scores"].tolist() for row in rows]),
        response_mask=case.padded([row["response_mask"].tolist() for row in rows]),
        index=case.images,
    )
    return case.outcome(advantages.numpy(), f"verl {metadata.version('verl')}, agent loop and estimator")


def check_skyrl(folder: Path) -> CheckResult:
    """Checks the credits of generated responses after ScapoGenerator and the estimator have processed them."""
    import asyncio

    from .integrations.skyrl import ScapoGenerator
    from .rewarding.batch import compute_scapo_advantage, load_reward

    case = _Case.of(folder)

    class Generator:
        async def generate(self, _: Any) -> Any:
            stops = ["stop" if own[-1] == case.tokenizer.eos_token_id else "length" for own in case.ids]
            masks = [[1] * len(own) for own in case.ids]
            return {
                "response_ids": case.ids, "rewards": [0.0] * len(masks), "loss_masks": masks, "stop_reasons": stops
            }  # fmt: skip

    batch = {"prompts": [[]] * len(case.ids), "env_extras": [{"image_id": image} for image in case.images]}
    output = asyncio.run(ScapoGenerator(Generator(), case.tokenizer, load_reward(**case.files)).generate(batch))
    mask = (case.padded([[1.0] * len(own) for own in case.ids]) > 0).float()
    advantages, _returns = compute_scapo_advantage(case.padded(output["rewards"]), mask)
    return case.outcome(advantages.numpy(), "SkyRL, generator and estimator")


def check_slime(folder: Path) -> CheckResult:
    """Checks the credits of the reward function after the advantage function has processed them. Both are loaded by
    their paths, as in slime.
    """
    import asyncio
    from types import SimpleNamespace

    import torch
    from slime.utils.misc import load_function

    case = _Case.of(folder)
    os.environ |= {"SCAPO_TRUTH": case.files["truth"], "SCAPO_VOCABULARY": case.files["vocabulary"]}
    case.tokenizer.save_pretrained(folder / "policy")
    reward = load_function("scapo_eval.integrations.slime.reward")
    args = SimpleNamespace(hf_checkpoint=str(folder / "policy"))

    async def credited(image: str, ids: list[int]) -> Any:
        status = "completed" if ids[-1] == case.tokenizer.eos_token_id else "truncated"
        prompt = case.tokenizer.encode("A dog")
        sample = SimpleNamespace(
            tokens=[*prompt, *ids], response_length=len(ids), status=status, metadata={"image_id": image}
        )
        return await reward(args, sample)

    rewards = [asyncio.run(credited(image, ids)) for image, ids in zip(case.images, case.ids, strict=True)]
    data: dict[str, Any] = {"rewards": rewards, "kl": [torch.zeros(len(ids)) for ids in case.ids]}
    load_function("scapo_eval.integrations.slime.advantages")(None, data)
    return case.outcome([own.numpy() for own in data["advantages"]], "slime, reward and advantage functions")


def check_easyr1(folder: Path) -> CheckResult:
    """Checks the credits in a batch after the adapter's reward manager and estimator have processed it."""
    from types import SimpleNamespace

    import torch

    from .integrations import easyr1 as adapter
    from .rewarding.batch import compute_scapo_advantage

    case = _Case.of(folder)
    adapter.install()
    mask = case.padded([[1.0] * len(own) for own in case.ids]) > 0
    batch = {"responses": case.padded(case.ids).to(torch.int64), "response_mask": mask}
    data = SimpleNamespace(batch=batch, non_tensor_batch={"ground_truth": case.images})
    config = SimpleNamespace(reward_function_kwargs=dict(case.files))
    rewards, _metrics = adapter.compute_reward(SimpleNamespace(tokenizer=case.tokenizer, config=config), data)
    advantages, _returns = compute_scapo_advantage(rewards, mask.float())
    return case.outcome(advantages.numpy(), "EasyR1, reward manager and estimator")


def check_ms_swift(folder: Path) -> CheckResult:
    """Checks a real training step of ms-swift's GRPO pipeline with a random model. The step has no KL term, so that the
    expected loss is known.
    """
    case = _Case.of(folder)
    os.environ |= {"SCAPO_TRUTH": case.files["truth"], "SCAPO_VOCABULARY": case.files["vocabulary"]}
    from .integrations import ms_swift as adapter

    reward = SubsentenceReward(case.files["vocabulary"], case.files["truth"])
    tokenizer = case.tokenizer
    tokenizer.chat_template = "{% for turn in messages %}{{ turn.content }}{% endfor %}"
    write_model(folder / "model", tokenizer)
    tokenizer.save_pretrained(folder / "model")
    generation = {"suppress_tokens": unreadable(tokenizer), "eos_token_id": tokenizer.eos_token_id, "do_sample": True}
    (folder / "model" / "generation_config.json").write_text(json.dumps(generation))
    rows = [{"messages": [{"role": "user", "content": "A dog"}], "image_id": str(k % 4 + 1)} for k in range(16)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    compared, wrong, losses = 0, 0, list[tuple[float, float]]()

    class Recorder(adapter.ScapoGRPOTrainer):
        """Trainer that checks its loss and the inputs of this loss."""

        def _postprocess_batch(self, samples: Any, batch_encoded_inputs: Any) -> None:
            nonlocal compared, wrong
            super()._postprocess_batch(samples, batch_encoded_inputs)
            for chunk, encoded in zip(self.split_by_mini_batches(samples), batch_encoded_inputs, strict=True):
                batch = encoded["grpo_batch"]
                mask = batch.completion_mask.bool()
                for row, sample in enumerate(chunk):
                    ids = np.asarray(sample.encoded["input_ids"])[np.asarray(sample.encoded["labels"]) != -100].tolist()
                    finished = ids[-1] == tokenizer.eos_token_id
                    due = expected_credit(reward, tokenizer, sample.extra["image_id"], ids, finished=finished)
                    compared += len(ids)
                    wrong += int((batch.advantages[row][mask[row]].cpu().numpy() != due).sum())
                wrong += int((batch.advantages[~mask] != 0).sum())

        def _compute_loss(self, model: Any, model_inputs: Any, grpo_batch: Any, origin_data: Any = None) -> Any:
            loss = super()._compute_loss(model, model_inputs, grpo_batch, origin_data)
            mask = grpo_batch.completion_mask
            losses.append((float(loss), float(-(grpo_batch.advantages * mask).sum() / mask.sum())))
            return loss

    from swift.pipelines import rlhf_main

    options = {
        "rlhf_type": "grpo", "model": folder / "model", "model_type": "qwen2", "template": "dummy",
        "dataset": folder / "data.jsonl", "output_dir": folder / "out", "reward_funcs": "scapo", "loss_type": "dapo",
        "beta": 0, "max_steps": 1, "per_device_train_batch_size": 16, "num_generations": 4, "logging_steps": 1,
        "max_completion_length": 64, "tuner_type": "full", "torch_dtype": "float32", "attn_impl": "eager",
        "use_cpu": "true", "use_vllm": "false", "save_strategy": "no", "report_to": "none",
        "remove_unused_columns": "false", "dataset_num_proc": 1, "load_from_cache_file": "false",
    }  # fmt: skip
    with patch.object(adapter, "ScapoGRPOTrainer", Recorder):  # ms-swift looks up the class by name
        rlhf_main([str(part) for name, value in options.items() for part in (f"--{name}", value)])
    loss = losses[0] if losses else (float("nan"), 0.0)
    return CheckResult(compared, wrong, loss, f"ms-swift {metadata.version('ms-swift')}, one step")


CHECKS: dict[str, Callable[[Path], CheckResult]] = {
    "trl": check_trl,
    "verl": check_verl,
    "ms-swift": check_ms_swift,
    "skyrl": check_skyrl,
    "slime": check_slime,
    "easyr1": check_easyr1,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks one training library, prints the result, and returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 1 or given[0] not in CHECKS:
        print(f"usage: python -m scapo_eval.conformance {'|'.join(CHECKS)}", file=sys.stderr)
        return 0 if given in (["-h"], ["--help"]) else 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = CHECKS[given[0]](Path(folder))
        except (ScapoError, ImportError) as error:
            print(f"{given[0]}: {error}", file=sys.stderr)
            return 2
    print(outcome)
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
