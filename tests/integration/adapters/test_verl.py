"""verl adapter with verl's own data structures, without a GPU (run by .ci/adapters)."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: bash .ci/adapters verl")

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.workers.config import FSDPActorConfig
from verl.workers.rollout.replica import TokenOutput

from scapo_eval import InputError
from scapo_eval.conformance import main
from scapo_eval.integrations import verl as adapter
from scapo_eval.rewarding import batch as loop
from scapo_eval.rewarding.tokens import decode_with_offsets

SENTENCES = {
    "1": "A dog is near the tree. A cat is in the grass. A man is on the street.",
    "2": "The small cat is on a table. The cat is red and old and small.",
    "3": "A car and a dog are on the street.",
}


@pytest.fixture
def loop_config(truth_file: Path, vocabulary_file: Path) -> Any:
    """Returns the configuration in examples/verl_scapo.yaml."""
    (entry,) = OmegaConf.load(Path(__file__).parents[3] / "examples" / "verl_scapo.yaml")
    return OmegaConf.merge(entry, {"truth": str(truth_file), "vocabulary": str(vocabulary_file)})


class Server:
    """Inference server that answers every prompt with the same ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def generate(self, **_: Any) -> TokenOutput:
        return TokenOutput(token_ids=self.ids, log_probs=[-1.0] * len(self.ids))


def agent_loop(loop_config: Any, tokenizer: Any, ids: list[int], response_length: int = 64) -> Any:
    """Returns the agent loop as verl's worker creates it, from its YAML entry by hydra."""
    import hydra
    from verl.utils.dataset.rl_dataset import RLHFDataset

    rollout = {"prompt_length": 64, "response_length": response_length, "multi_turn": {}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout, "model": {}}, "data": {}})
    return hydra.utils.instantiate(
        config=loop_config,
        trainer_config=DictConfigWrap(config=config),
        server_manager=Server(ids),
        tokenizer=tokenizer,
        processor=None,
        hf_model_type="qwen2",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
    )


def run(loop: Any, image_id: str) -> AgentLoopOutput:
    prompt = [{"role": "user", "content": "Describe this image."}]
    extra_info = {"image_id": image_id, "index": 0}
    return loop.loop.run_until_complete(loop.run({}, raw_prompt=prompt, extra_info=extra_info))


@pytest.fixture(autouse=True)
def event_loop() -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()


def test_plugin_registers_the_estimator_when_verl_is_imported() -> None:
    code = (
        "import verl; from verl.trainer.ppo.core_algos import get_adv_estimator_fn as get;"
        "print(get('scapo').__module__)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "scapo_eval.integrations.verl"


def test_the_agent_loop_names_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['verl.experimental.agent_loop.agent_loop'] = None;"
        "import scapo_eval.integrations.verl_agent"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert "MissingExtra: the verl agent loop (" in done.stderr
    assert "needs the extra 'verl': pip install " in done.stderr


def test_token_rewards_pass_from_the_agent_loop_to_the_advantages(
    loop_config: Any, tokenizer: Any, reward: Any
) -> None:
    outputs = []
    for image, sentence in SENTENCES.items():
        ids = [*tokenizer.encode(sentence), tokenizer.eos_token_id]
        output = run(agent_loop(loop_config, tokenizer, ids), image)
        assert output.response_ids == ids
        fields = output.as_dict()
        text, offsets = decode_with_offsets(tokenizer, ids)
        expected = reward([image], [text])[0]
        assert fields["rm_scores"].tolist() == expected.token_advantages(offsets).tolist()
        assert output.reward_score == expected.total  # so that verl does not compute another one
        assert output.extra_fields["reward_extra_info"]["scapo/covered"] == expected.covered
        outputs.append(fields)

    # the trainer pads what the agent loops give and computes advantages
    width = max(len(fields["responses"]) for fields in outputs)

    def padded(key: str) -> torch.Tensor:
        return torch.stack([torch.nn.functional.pad(fields[key], (0, width - len(fields[key]))) for fields in outputs])

    batch = TensorDict(
        {"token_level_rewards": padded("rm_scores"), "response_mask": padded("response_mask")}, batch_size=len(outputs)
    )
    uid = np.array(["a", "a", "b"], dtype=object)
    data = compute_advantage(DataProto(batch=batch, non_tensor_batch={"uid": uid}), adv_estimator="scapo")
    advantages = data.batch["advantages"]
    assert torch.equal(advantages, padded("rm_scores"))
    assert set(advantages[0].tolist()) >= {1.0, -1.0, 0.0}  # not constant inside one response
    assert torch.equal(data.batch["returns"], advantages)


def test_the_conformance_check_runs_the_agent_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verl"]) == 0
    assert "agent loop and estimator: 67 tokens, 0 wrong" in capsys.readouterr().out


def test_verl_s_policy_loss_takes_the_token_advantages(loop_config: Any, tokenizer: Any) -> None:
    """Makes one gradient step on logits, with verl's own PPO loss from the advantages."""
    ids = [*tokenizer.encode(SENTENCES["1"]), tokenizer.eos_token_id]
    advantages = run(agent_loop(loop_config, tokenizer, ids), "1").as_dict()["rm_scores"].unsqueeze(0)
    logits = torch.zeros(1, len(ids), len(tokenizer), requires_grad=True)
    log_prob = torch.log_softmax(logits, dim=-1).gather(-1, torch.tensor([ids]).unsqueeze(-1)).squeeze(-1)
    mask = torch.ones_like(advantages)
    actor = FSDPActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=False)
    loss, _ = core_algos.compute_policy_loss_vanilla(
        old_log_prob=log_prob.detach(), log_prob=log_prob, advantages=advantages, response_mask=mask,
        loss_agg_mode="token-mean", config=actor,
    )  # fmt: skip
    rounding = 2**-24 * float(advantages.abs().sum())  # of a mean: n float32 terms, summed in any order
    assert float(loss) == pytest.approx(-float(advantages.mean()), rel=0, abs=rounding)
    loss.backward()
    pushed = -logits.grad[0, torch.arange(len(ids)), torch.tensor(ids)]
    assert torch.equal(torch.sign(pushed), torch.sign(advantages[0]))


def test_half_characters_and_truncation(loop_config: Any, tokenizer: Any) -> None:
    ids = [*tokenizer.encode("A dog is near the tree."), *tokenizer.convert_tokens_to_ids(["Ã", "©", "Ġcat", "Ġ"])]
    output = run(agent_loop(OmegaConf.merge(loop_config, {"truncated": "mask"}), tokenizer, ids), "1")
    assert len(output.as_dict()["rm_scores"]) == len(ids)
    cut = run(agent_loop(loop_config, tokenizer, ids, response_length=3), "1")
    assert len(cut.as_dict()["rm_scores"]) == len(cut.response_ids) == 3


def test_a_bad_row_does_not_end_the_run(loop_config: Any, tokenizer: Any) -> None:
    ids = tokenizer.encode("A dog.")
    assert set(run(agent_loop(loop_config, tokenizer, ids), "no such image").as_dict()["rm_scores"].tolist()) == {0.0}
    loop = agent_loop(loop_config, tokenizer, ids)
    with pytest.raises(InputError, match="missing key 'image_id' in extra_info \\(found: index\\)"):
        loop.rewarded(
            AgentLoopOutput(prompt_ids=[], response_ids=ids, response_mask=[1] * len(ids), metrics={}), {"index": 1}
        )


def test_custom_reward_function_is_loaded_by_verl(truth_file: Path, vocabulary_file: Path) -> None:
    reward = {
        "custom_reward_function": {
            "path": "pkg://scapo_eval.integrations.verl",
            "name": "compute_score",
            "reward_kwargs": {"truth": str(truth_file), "vocabulary": str(vocabulary_file), "r_reg": 0.5},
        }
    }
    score = get_custom_reward_fn(OmegaConf.create({"reward": reward}))
    assert score is not None
    found = score(
        data_source="coco", solution_str=SENTENCES["1"], ground_truth=None, extra_info={"image_id": 1, "num_turns": 2}
    )
    assert found["score"] == -0.5
    assert [found[f"scapo/{name}"] for name in ("generated", "hallucinated", "covered", "errors")] == [3, 1, 2, 0]
    found = score(data_source="coco", solution_str="A dog.", ground_truth=None, extra_info={"image_id": "unknown"})
    assert (found["score"], found["scapo/errors"]) == (0.0, 1.0)


def test_a_truth_of_another_data_set_ends_the_run(loop_config: Any, tokenizer: Any) -> None:
    """Checks that the error is raised in the trainer, because verl omits groups with an error in the agent loop."""
    ids = tokenizer.encode("A dog is near the tree.")
    unrewarded = OmegaConf.merge(loop_config, {"reward": {"r_reg": 0.0}})
    nothing = tokenizer.encode("The street.")  # no label
    estimator = partial(compute_advantage, adv_estimator="scapo")

    def batch(*rows: tuple[str, list[int]], uid: str = "aabb") -> DataProto:
        fields = [run(agent_loop(unrewarded, tokenizer, own), image).as_dict() for image, own in rows]
        names = {"token_level_rewards": "rm_scores", "response_mask": "response_mask"}
        tensors = {
            name: torch.nested.as_nested_tensor([row[key] for row in fields], layout=torch.jagged).to_padded_tensor(0)
            for name, key in names.items()
        }
        return DataProto(TensorDict(tensors, batch_size=len(rows)), {"uid": np.array([*uid], dtype=object)})

    wrong = [(image, ids) for image in ("x", "x", "y", "y")]
    for rows in ([*wrong[:3], ("1", ids)], [("1", nothing)] * 4, [*wrong[:3], ("1", nothing)]):
        assert not estimator(batch(*rows)).batch["advantages"][:3].any()
    assert not estimator(batch(*wrong, uid="aaaa")).batch["advantages"].any()
    with pytest.raises(InputError, match="none of the 4 rows in the batch has a reward"):
        estimator(batch(*wrong))


def test_scoring_faulty_rows_does_not_omit_their_groups(truth_file: Path, vocabulary_file: Path) -> None:
    given = {"truth": str(truth_file), "vocabulary": str(vocabulary_file)}
    scores = [
        adapter.compute_score("coco", "A dog.", None, {"image_id": "x"}, **given) for _ in range(loop.MOST_FAULTY + 1)
    ]
    assert {(row["score"], row["scapo/errors"]) for row in scores} == {(0.0, 1.0)}


def test_rewards_on_last_tokens_only_are_refused() -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.5, 0.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    estimator = core_algos.get_adv_estimator_fn("scapo")
    with pytest.raises(InputError, match="default_agent_loop=scapo"):
        estimator(token_level_rewards=rewards, response_mask=mask, config=None, index=None)
    one_token = torch.tensor([[1, 0, 0], [1, 1, 0]])  # a response of one token beside such a one excuses nothing
    last = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    with pytest.raises(InputError, match="default_agent_loop=scapo"):
        estimator(token_level_rewards=last, response_mask=one_token)
    advantages, _ = estimator(token_level_rewards=last[:1], response_mask=one_token[:1])
    assert advantages.tolist() == [[1.0, 0.0, 0.0]]
    rewards[0, 0] = -1.0
    advantages, _ = estimator(token_level_rewards=rewards, response_mask=mask)
    assert advantages.tolist() == [[-1.0, 0.0, 1.0], [0.0, 0.5, 0.0]]


def test_the_example_writes_a_data_set_and_a_command_that_verl_understands(tmp_path: Path) -> None:
    import hydra
    import pyarrow.parquet
    from verl.workers.config import AgentLoopConfig

    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"image": "1.jpg", "image_id": 1, "prompt": "Describe this image."}\n')
    example = Path(__file__).parents[3] / "examples" / "verl_scapo.py"
    command = [sys.executable, str(example), str(prompts), "--model", "m", "--print", "trainer.n_gpus_per_node=8"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (row,) = pyarrow.parquet.read_table(tmp_path / "prompts.verl.parquet").to_pylist()
    assert row["extra_info"] == {"image_id": "1", "index": 1}
    assert row["prompt"][0]["content"] == "<image>Describe this image."
    _, module, *overrides = shlex.split(printed.split(" -m ", 1)[0] + " " + printed.split(" -m ", 1)[1])
    assert module == "verl.trainer.main_ppo"
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", overrides=overrides)  # refuses a key that verl does not have
    assert config.algorithm.adv_estimator == "scapo"
    assert config.data.max_prompt_length >= 4000  # an image of Qwen2.5-VL has thousands of tokens
    assert not config.trainer.val_before_train
    agent = config.actor_rollout_ref.rollout.agent
    assert agent.default_agent_loop == "scapo"
    assert Path(agent.agent_loop_config_path).exists()
    assert "agent_loop_config_path" in AgentLoopConfig.__dataclass_fields__


def test_verl_s_loss_takes_the_golden_step(golden_step: dict[str, Any]) -> None:
    policy = golden_step["logprobs"].clone().requires_grad_()
    mask, clip = golden_step["mask"], golden_step["clip"]
    actor = FSDPActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=False, clip_ratio=clip,
        clip_ratio_low=clip, clip_ratio_high=clip, clip_ratio_c=1e6,
    )  # fmt: skip
    loss, _ = core_algos.compute_policy_loss_vanilla(
        old_log_prob=golden_step["old_logprobs"], log_prob=policy, advantages=golden_step["advantages"],
        response_mask=mask, loss_agg_mode="token-mean", config=actor,
    )  # fmt: skip
    kl = core_algos.kl_penalty(policy, golden_step["reference_logprobs"], "low_var_kl")
    loss = loss + golden_step["kl_weight"] * core_algos.agg_loss(kl, mask, "token-mean")
    loss.backward()
    assert float(loss.detach()) == pytest.approx(golden_step["loss"], rel=0, abs=1e-6)
    torch.testing.assert_close(policy.grad, golden_step["gradient"], rtol=0, atol=1e-6)
