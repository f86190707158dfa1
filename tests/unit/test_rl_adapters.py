"""Adapters whose libraries do not run on a CPU, each against what was read in its repository (``rl_signatures.json``).

The stand-ins below have the shapes of the real classes and call the adapters with the arguments that were read there.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import pickle
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from scapo_eval import InputError, conformance
from scapo_eval.rewarding import batch as loop
from scapo_eval.rewarding.batch import advantages_for_batch, load_reward

torch = pytest.importorskip("torch")

READ = json.loads((Path(__file__).parent / "rl_signatures.json").read_text(encoding="utf-8"))
TEXTS = {"1": "A dog is here today. A cat sits on the red car.", "2": "A cat."}
PROMPT = [2, 3, 4]
END = 1


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    built = Tokenizer(models.BPE({word: k for k, word in enumerate(words)}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(["<pad>", "<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=built, pad_token="<pad>", eos_token="<end>")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    labels = ["dog", "cat", "car"]
    (tmp_path / "truth.json").write_text(json.dumps({"objects": {"1": ["dog"], "2": ["cat"]}, "labels": labels}))
    (tmp_path / "v.yaml").write_text(
        json.dumps({"name": "toy", "labels": {label: {"aliases": [label]} for label in labels}})
    )
    found = {"truth": str(tmp_path / "truth.json"), "vocabulary": str(tmp_path / "v.yaml")}
    monkeypatch.setenv("SCAPO_TRUTH", found["truth"])
    monkeypatch.setenv("SCAPO_VOCABULARY", found["vocabulary"])
    monkeypatch.setattr(loop, "_faulty_in_a_row", 0)
    return found


@pytest.fixture
def ids(tokenizer: Any) -> list[list[int]]:
    """The first response ended by itself, the second was cut off."""
    first, second = (tokenizer.encode(text) for text in TEXTS.values())
    return [[*first, END], second]


@pytest.fixture
def expected(world: dict[str, str], ids: list[list[int]], tokenizer: Any) -> np.ndarray[Any, Any]:
    found, _ = advantages_for_batch(["1", "2"], ids, tokenizer, load_reward(**world))
    assert set(found[0].tolist()) == {1.0, -1.0, 0.0}  # not constant inside one response
    return found


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Imports an adapter with stand-ins for the modules of its library."""

    def load(name: str, **modules: Any) -> Any:
        for module, content in modules.items():
            dotted = module.replace("__", ".")
            for k in range(dotted.count(".") + 1):
                parent = ".".join(dotted.split(".")[: k + 1])
                if parent not in sys.modules or k == dotted.count("."):
                    monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
            for key, value in content.items():
                setattr(sys.modules[dotted], key, value)
        monkeypatch.delitem(sys.modules, f"scapo_eval.integrations.{name}", raising=False)
        return importlib.import_module(f"scapo_eval.integrations.{name}")

    return load


def binds(function: Callable[..., Any], names: list[str]) -> None:
    """Whether a function takes these arguments by their names."""
    inspect.signature(function).bind(**dict.fromkeys(names))


# ---- ms-swift ----


class SwiftTrainer:
    """ms-swift's trainer: one advantage per response, expanded over its tokens."""

    def __init__(self, tokenizer: Any, size: int, *, args: Any) -> None:
        self.model = SimpleNamespace(training=True)
        self.template = SimpleNamespace(tokenizer=tokenizer)
        self._metrics: dict[str, dict[str, list[float]]] = {"train": {}, "eval": {}}
        self._metrics["train"] = _Lists()
        self.size = size

    def split_by_mini_batches(self, samples: list[Any]) -> list[list[Any]]:
        return [samples[k : k + self.size] for k in range(0, len(samples), self.size)]

    def _postprocess_batch(self, samples: list[Any], batch_encoded_inputs: list[dict[str, Any]]) -> None:
        for encoded in batch_encoded_inputs:
            encoded["grpo_batch"].advantages = encoded["grpo_batch"].completion_mask.float()


class _Lists(dict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> list[float]:
        return self.setdefault(key, [])


SWIFT = {
    "use_liger_kernel": False,
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "kl_in_reward": False,
    "beta": 0.01,
    "off_policy_sequence_mask_delta": None,
}


def swift_sample(image: str | None, ids: list[int], truncated: bool) -> Any:
    encoded = {"input_ids": [*PROMPT, *ids], "labels": [-100] * len(PROMPT) + ids}
    return SimpleNamespace(
        extra={} if image is None else {"image_id": image}, encoded=encoded, is_truncated=truncated, advantages=None
    )


def swift(adapter: Callable[..., Any], others: Sequence[Any] = ()) -> tuple[Any, dict[str, Any], Any]:
    """Imports the adapter. ``others`` are the sums of the other processes."""
    orms: dict[str, Any] = {}
    factory = SimpleNamespace(TRAINER_MAPPING={"grpo": "swift.rlhf_trainers.GRPOTrainer"})
    module = adapter(
        "ms_swift",
        accelerate__utils={"gather_object": lambda rows: [*rows, *others]},
        swift__rewards={"ORM": type("ORM", (), {}), "orms": orms},
        swift__rlhf_trainers={"GRPOTrainer": SwiftTrainer},
        swift__trainers={"TrainerFactory": factory},
    )
    return module, orms, factory


def test_ms_swift_fills_in_token_advantages(
    adapter: Callable[..., Any], world: dict[str, str], ids: list[list[int]], expected: Any, tokenizer: Any
) -> None:
    reward = load_reward(**world)
    others = [loop.log_sums(reward.batch(["1"] * 6, ["A cat and a car."] * 6))]
    _, orms, factory = swift(adapter, others)
    path, name = factory.TRAINER_MAPPING["grpo"].rsplit(".", 1)
    trainer_class = getattr(importlib.import_module(path), name)  # as TrainerFactory.get_cls does
    assert (
        list(inspect.signature(trainer_class._postprocess_batch).parameters)
        == (READ["ms-swift"]["GRPOTrainer._postprocess_batch"])
    )
    samples = [swift_sample("1", ids[0], False), swift_sample("2", ids[1], True)]
    width = len(ids[0]) + 2
    for size in (1, 2):  # micro-batches; padding on the left, on the right
        trainer = trainer_class(tokenizer, size, args=SimpleNamespace(**SWIFT))
        mask = torch.zeros(2, width, dtype=torch.bool)
        mask[0, 2:] = True
        mask[1, : len(ids[1])] = True
        batches = [SimpleNamespace(completion_mask=mask[k : k + size], advantages=None) for k in range(0, 2, size)]
        trainer._postprocess_batch(samples, [{"grpo_batch": batch} for batch in batches])
        found = torch.cat([batch.advantages for batch in batches])
        assert found.shape == mask.shape
        assert found[0][mask[0]].tolist() == expected[0].tolist()
        assert found[1][mask[1]].tolist() == expected[1, : len(ids[1])].tolist()
        assert not found[~mask].any()
        assert trainer._metrics["train"]["scapo/errors"] == [0.0]
        assert trainer._metrics["train"]["scapo/hallucinated"] == [(2 + 6 * 2) / 8]
    reward = orms["scapo"]()
    columns = {**dict.fromkeys(READ["ms-swift"]["ORM.__call__"]), "completions": list(TEXTS.values())}
    assert reward(**{**columns, "image_id": ["1", "2"]}) == [0.0, 1.0]


def test_the_ms_swift_plugin_puts_the_trainer_in_place(adapter: Callable[..., Any], world: Any) -> None:
    """ms-swift imports the file that ``--external_plugins`` names."""
    _, orms, factory = swift(adapter)
    orms.clear()
    factory.TRAINER_MAPPING.clear()
    del sys.modules["scapo_eval.integrations.ms_swift"]
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "recipes" / "ms_swift_plugin.py"))
    assert factory.TRAINER_MAPPING == {"grpo": "scapo_eval.integrations.ms_swift.ScapoGRPOTrainer"}
    assert list(orms) == ["scapo"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("use_liger_kernel", True),
        ("loss_type", "cispo"),
        ("importance_sampling_level", "sequence"),
        ("kl_in_reward", True),
        ("off_policy_sequence_mask_delta", 0.5),
    ],
)
def test_ms_swift_s_traps_are_refused(adapter: Callable[..., Any], setting: str, value: Any) -> None:
    module, _, _ = swift(adapter)
    with pytest.raises(InputError, match=f"^{setting}={value} "):
        module.ScapoGRPOTrainer(None, 1, args=SimpleNamespace(**{**SWIFT, setting: value}))
    for harmless in ({"kl_in_reward": True, "beta": 0.0}, {"loss_type": "bnpo"}):
        module.ScapoGRPOTrainer(None, 1, args=SimpleNamespace(**{**SWIFT, **harmless}))


def test_ms_swift_says_what_is_missing(adapter: Callable[..., Any], world: Any, tokenizer: Any) -> None:
    module, _, _ = swift(adapter)
    mask = torch.ones(1, 3)
    with pytest.raises(InputError, match="missing column 'image_id' in the dataset"):
        module.token_advantages([swift_sample(None, [5, 6, 7], False)], mask, tokenizer)
    with pytest.raises(InputError, match="differ in the number of generated tokens"):
        module.token_advantages([swift_sample("1", [5, 6], False)], mask, tokenizer)


# ---- SkyRL ----


def skyrl(adapter: Callable[..., Any]) -> tuple[Any, dict[str, Any]]:
    registered: dict[str, Any] = {}

    def register_advantage_estimator(name: str) -> Callable[[Any], Any]:
        return lambda function: registered.setdefault(name, function)

    module = adapter(
        "skyrl",
        skyrl__backends__skyrl_train__utils__ppo_utils={"register_advantage_estimator": register_advantage_estimator},
        skyrl__train__generators__base={"GeneratorInterface": object},
    )
    return module, registered


def test_skyrl_s_generator_rewards_every_token_and_the_estimator_keeps_it(
    adapter: Callable[..., Any], world: dict[str, str], ids: list[list[int]], expected: Any, tokenizer: Any
) -> None:
    module, registered = skyrl(adapter)

    class Generator:
        async def generate(self, input_batch: Any) -> Any:
            output = dict.fromkeys(READ["SkyRL"]["GeneratorOutput"])
            masks = [[1] * len(row) for row in ids]
            output |= {"response_ids": ids, "rewards": [0.0, 1.0], "loss_masks": masks}
            return {**output, "rollout_metrics": {"a": 1}, "stop_reasons": ["stop", "length"]}

    generator = module.ScapoGenerator(Generator(), tokenizer, load_reward(**world))
    batch = dict.fromkeys(READ["SkyRL"]["GeneratorInput"])
    output = asyncio.run(generator.generate({**batch, "env_extras": [{"image_id": "1"}, {"image_id": 2}]}))
    assert list(output) == READ["SkyRL"]["GeneratorOutput"]
    assert output["rewards"] == [expected[0].tolist(), expected[1, : len(ids[1])].tolist()]
    assert (output["rollout_metrics"]["a"], output["rollout_metrics"]["scapo/errors"]) == (1, 0.0)

    width = len(ids[0])
    rewards = torch.tensor([row + [0.0] * (width - len(row)) for row in output["rewards"]])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    arguments = dict.fromkeys(READ["SkyRL"]["estimator"])
    advantages, returns = registered["scapo"](**{**arguments, "token_level_rewards": rewards, "response_mask": mask})
    assert advantages.tolist() == expected.tolist()
    assert torch.equal(returns, advantages)
    for extras, message in [(None, "2 responses for 0 env_extras"), ([{}, {}], "missing key 'image_id' in env_extras")]:
        with pytest.raises(InputError, match=message):
            asyncio.run(generator.generate({**batch, "env_extras": extras}))


def test_the_lines_of_the_page_wrap_skyrl_s_generator(
    adapter: Callable[..., Any], world: dict[str, str], tokenizer: Any
) -> None:
    skyrl(adapter)
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    [block] = [part for part in page.split("```python\n")[1:] if "ScapoGenerator" in part.split("```")[0]]
    block = block.split("```")[0].replace('"truth.npz", "dopa160"', repr((world["truth"], world["vocabulary"]))[1:-1])
    own = SimpleNamespace()
    names: dict[str, Any] = {"BasePPOExp": type("BasePPOExp", (), {"get_generator": lambda *_: own})}
    exec(block, names)
    assert names["Experiment"]().get_generator(None, tokenizer, None).generator is own


# ---- slime ----


def test_slime_s_rewards_carry_their_credit(
    adapter: Callable[..., Any],
    world: Any,
    ids: list[list[int]],
    expected: Any,
    tokenizer: Any,
    tmp_path: Path,
) -> None:
    module = adapter("slime")
    binds(module.reward, READ["slime"]["custom_rm"])
    binds(module.advantages, READ["slime"]["custom_advantage_function"])
    tokenizer.save_pretrained(tmp_path / "policy")
    args = SimpleNamespace(hf_checkpoint=str(tmp_path / "policy"))
    rewards, samples = [], []
    for image, row, status in zip(("1", "2"), ids, ("completed", "truncated"), strict=True):
        sample = SimpleNamespace(
            tokens=PROMPT + row,
            response_length=len(row),
            metadata={"image_id": image},
            status=SimpleNamespace(value=status),
        )
        credit = asyncio.run(module.reward(args, sample))
        rewards.append(pickle.loads(pickle.dumps(credit)))  # as Ray hands it to a training process
        samples.append(sample)
    assert sum(rewards) / len(rewards) == 0.5  # slime logs the mean
    assert samples[0].metadata["scapo/errors"] == 0.0
    data = {**dict.fromkeys(READ["slime"]["rollout_data"]), "rewards": rewards}
    data["kl"] = [torch.zeros(len(row)) for row in ids]
    assert module.advantages(args, data) is None
    assert [row.tolist() for row in data["advantages"]] == [
        expected[k, : len(row)].tolist() for k, row in enumerate(ids)
    ]
    assert data["returns"] is data["advantages"]
    with pytest.raises(InputError, match="the rewards contain no credit per token: set --custom-rm-path"):
        module.advantages(args, {**data, "rewards": [0.0, 1.0]})
    with pytest.raises(InputError, match="split by context parallelism are not supported"):
        module.advantages(args, {**data, "kl": [torch.zeros(2)] * 2})
    samples[0].metadata = {}
    with pytest.raises(InputError, match="missing key 'image_id' in the sample's metadata"):
        asyncio.run(module.reward(args, samples[0]))


# ---- EasyR1 ----


def test_easyr1_s_reward_manager_and_estimator_are_replaced(
    adapter: Callable[..., Any],
    world: dict[str, str],
    ids: list[list[int]],
    expected: Any,
    tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    estimators: dict[str, Any] = {}

    def register_adv_estimator(name: str) -> Callable[[Any], Any]:
        return lambda function: estimators.setdefault(getattr(name, "value", name), torch.no_grad()(function))

    def compute_grpo_outcome_advantage(
        token_level_rewards: Any, response_mask: Any, index: Any, eps: float = 1e-6, **kwargs: Any
    ) -> Any:
        """EasyR1's own: one number per response."""

    class AutoRewardManager:
        """As EasyR1 makes it in its reward process."""

        def __init__(self, config: Any, tokenizer: Any) -> None:
            self.config, self.tokenizer = config, tokenizer

        def compute_reward(self, data: Any) -> Any:
            """EasyR1's own: the last token."""

    core_algos = {
        "register_adv_estimator": register_adv_estimator,
        "compute_grpo_outcome_advantage": compute_grpo_outcome_advantage,
    }
    verl = ModuleType("verl.trainer.core_algos")
    vars(verl).update(core_algos)
    module = adapter(
        "easyr1",
        verl__workers__reward={"AutoRewardManager": AutoRewardManager},
        verl__trainer={"core_algos": verl},
    )
    module.install()
    width = len(ids[0])
    responses = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    manager = AutoRewardManager(SimpleNamespace(reward_function_kwargs=world), tokenizer)
    data = SimpleNamespace(
        batch={"responses": responses, "response_mask": mask},
        non_tensor_batch={"ground_truth": np.array(["1", "2"], dtype=object)},
    )
    rewards, metrics = manager.compute_reward(data)
    assert rewards.tolist() == expected.tolist()
    assert metrics["overall"] == [0.0, 1.0]
    assert metrics["scapo/errors"] == [0.0, 0.0]
    arguments = dict.fromkeys(READ["EasyR1"]["compute_grpo_outcome_advantage"])
    found, returns = estimators["grpo"](**{**arguments, "token_level_rewards": rewards, "response_mask": mask})
    assert found.tolist() == expected.tolist()
    assert torch.equal(found, returns)
    begun: list[Any] = []
    ray = SimpleNamespace(init=lambda runtime_env: begun.append(runtime_env))
    main = SimpleNamespace(main=lambda: ray.init(runtime_env={"env_vars": {"NCCL_DEBUG": "WARN"}}))  # as EasyR1's
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "verl.trainer.main", main)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["easyr1", "algorithm.adv_estimator=grpo"])
    with pytest.raises(InputError, match=r"set algorithm\.use_kl_loss=true"):
        module.main()
    sys.argv.append("algorithm.use_kl_loss=true")
    module.main()
    hook = "scapo_eval.integrations.easyr1.install"
    assert begun == [{"env_vars": {"NCCL_DEBUG": "WARN"}, "worker_process_setup_hook": hook}]
    core_algos = dict(core_algos, compute_grpo_outcome_advantage=lambda scores: scores)
    vars(verl).update(core_algos)
    with pytest.raises(InputError, match="this EasyR1's estimator 'grpo' has the parameters scores"):
        module.install()


# ---- ROLL ----


def test_roll_s_advantages_are_replaced(
    ids: list[list[int]], expected: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute_advantage(data: Any, **given: Any) -> Any:
        data.batch["raw_advantages"] = data.batch["advantages"] = torch.ones_like(given["response_mask"])
        return data

    for name in ("roll", "roll.pipeline", "roll.pipeline.rlvr", "roll.pipeline.rlvr.rlvr_vlm_pipeline"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    pipeline = sys.modules["roll.pipeline.rlvr.rlvr_vlm_pipeline"]
    pipeline.compute_advantage = compute_advantage  # type: ignore[attr-defined]
    sys.modules["roll.pipeline.rlvr"].rlvr_vlm_pipeline = pipeline  # type: ignore[attr-defined]
    recipe = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "recipes" / "roll_scapo.py"))
    monkeypatch.setitem(recipe["compute_advantage"].__globals__, "load_tokenizer", lambda: tokenizer)

    width = len(PROMPT) + len(ids[0]) + 2
    rows = [[*PROMPT, *own, *[0] * (width - len(PROMPT) - len(own))] for own in ids]
    generated = torch.tensor([[0] * 3 + [1] * len(own) + [0] * (width - 3 - len(own)) for own in ids])
    kept = generated[:, 1:].clone()
    kept[1] = 0  # ROLL leaves a sample out
    data = SimpleNamespace(
        batch={"input_ids": torch.tensor(rows), "response_mask": generated},
        non_tensor_batch={"ground_truth": np.array(["1", "2"], dtype=object)},
        meta_info={},
    )
    given = dict.fromkeys(READ["ROLL"]["compute_advantage"])
    found = pipeline.compute_advantage(**{**given, "data": data, "response_mask": kept})
    assert found.batch["advantages"][0][kept[0] > 0].tolist() == expected[0].tolist()
    assert not found.batch["advantages"][kept == 0].any()
    assert found.batch["raw_advantages"].all()  # ROLL's own are left for its log
    assert found.meta_info["metrics"]["scapo/errors"] == 0


# ---- python -m scapo_eval.conformance ----


def skyrl_modules() -> dict[str, Any]:
    return {
        "skyrl__backends__skyrl_train__utils__ppo_utils": {"register_advantage_estimator": lambda _: lambda own: own},
        "skyrl__train__generators__base": {"GeneratorInterface": object},
    }


def slime_modules() -> dict[str, Any]:
    def load_function(path: str) -> Any:
        module, name = path.rsplit(".", 1)
        return getattr(importlib.import_module(module), name)

    return {"slime__utils__misc": {"load_function": load_function}}


def easyr1_modules() -> dict[str, Any]:
    core_algos = SimpleNamespace(
        register_adv_estimator=lambda _: lambda own: own,
        compute_grpo_outcome_advantage=lambda token_level_rewards, response_mask, index: None,
    )
    manager = type("AutoRewardManager", (), {})
    return {"verl__workers__reward": {"AutoRewardManager": manager}, "verl__trainer": {"core_algos": core_algos}}


def verl_modules() -> dict[str, Any]:
    """The classes of verl through which the check calls the adapter, as test_verl.py finds them in verl itself."""
    estimators: dict[str, Any] = {}

    class AgentLoopOutput:
        def __init__(self, **given: Any) -> None:
            vars(self).update(given, model_fields_set=set(given), extra_fields={})

        def as_dict(self) -> dict[str, Any]:
            return {"response_mask": torch.ones(len(self.response_ids)), "token_rewards": self.token_rewards}  # type: ignore[attr-defined]

    class SingleTurnAgentLoop:
        def __init__(self, *, server_manager: Any, tokenizer: Any, **_: Any) -> None:
            self.server_manager, self.tokenizer = server_manager, tokenizer

        async def run(self, sampling_params: Any, **_: Any) -> Any:
            return AgentLoopOutput(response_ids=(await self.server_manager.generate()).token_ids)

    loop = {"AgentLoopOutput": AgentLoopOutput, "DictConfigWrap": SimpleNamespace}
    return {
        "verl__trainer__ppo__core_algos": {
            "register_adv_est": lambda name: lambda own: estimators.setdefault(name, own),
            "get_adv_estimator_fn": estimators.__getitem__,
        },
        "verl__experimental__agent_loop__agent_loop": {**loop, "DictConfigWrap": lambda config: config},
        "verl__experimental__agent_loop__single_turn_agent_loop": {"SingleTurnAgentLoop": SingleTurnAgentLoop},
        "verl__utils__dataset__rl_dataset": {"RLHFDataset": object},
        "verl__workers__rollout__replica": {"TokenOutput": SimpleNamespace},
        "omegaconf": {"OmegaConf": SimpleNamespace(create=lambda given: SimpleNamespace(data={}))},
    }


STOOD_IN = {"skyrl": skyrl_modules, "slime": slime_modules, "easyr1": easyr1_modules, "verl": verl_modules}


@pytest.mark.parametrize("library", STOOD_IN)
def test_the_conformance_check_calls_the_adapter(
    library: str, adapter: Callable[..., Any], world: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(conformance, "metadata", SimpleNamespace(version=lambda _: "0.9.1"))
    module = adapter(library, **STOOD_IN[library]())
    if library == "verl":
        module = adapter("verl_agent")
    assert conformance.main([library]) == 0
    assert "tokens, 0 wrong" in capsys.readouterr().out
    right = advantages_for_batch

    def mixed_up(*given: Any, **options: Any) -> Any:
        advantages, columns = right(*given, **options)
        return advantages + 1, columns

    monkeypatch.setattr(module, "advantages_for_batch", mixed_up)
    assert conformance.main([library]) == 1
    assert "tokens, 0 wrong" not in capsys.readouterr().out


def test_every_conformance_check_is_tested() -> None:
    """TRL and ms-swift take a real step (tests/integration/adapters)."""
    assert {*STOOD_IN, "trl", "ms-swift"} == {*conformance.CHECKS}


# ---- without the libraries ----


@pytest.mark.parametrize(
    ("name", "message"),
    [("ms_swift", "pip install 'ms-swift>=4.6'"), ("skyrl", "needs SkyRL"), ("easyr1", "needs EasyR1")],
)
def test_a_missing_library_is_named(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("swift", "skyrl", "verl"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"scapo_eval.integrations.{name}", raising=False)
    with pytest.raises(InputError, match=message):
        importlib.import_module(f"scapo_eval.integrations.{name}")


def test_the_environment_names_the_reward(world: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAPO_REWARD", '{"r_reg": 0.5}')
    assert loop.reward_from_environment()(["1"], ["Nothing."])[0].total == -0.5
    monkeypatch.setenv("SCAPO_REWARD", '{"r_rag": 1}')
    with pytest.raises(InputError, match="unknown setting of the reward 'r_rag'; did you mean 'r_reg'"):
        loop.reward_from_environment()
    for text in ("{", "[]"):
        monkeypatch.setenv("SCAPO_REWARD", text)
        with pytest.raises(InputError, match="SCAPO_REWARD must be a JSON object of settings of the reward"):
            loop.reward_from_environment()
    monkeypatch.setenv("SCAPO_REWARD", '{"kinds": {"count": 1}}')
    with pytest.raises(InputError, match="settings strings, numbers or lists of them"):
        loop.reward_from_environment()
    monkeypatch.delenv("SCAPO_TRUTH")
    with pytest.raises(InputError, match="set the environment variable SCAPO_TRUTH to the truth file"):
        loop.reward_from_environment()


def test_prime_rl_s_advantage_function(
    world: dict[str, str], ids: list[list[int]], expected: np.ndarray[Any, Any], tokenizer: Any
) -> None:
    from scapo_eval.integrations.prime_rl import advantages

    rollouts = [
        {"info": '{"image_id": "1"}', "trajectory": [{"tokens": {"completion_ids": ids[0]}}]},
        {"info": {}, "answer": "2", "trajectory": [{"tokens": {"completion_ids": ids[1]}, "is_truncated": True}]},
    ]
    inputs = SimpleNamespace(rollouts=rollouts, completion_lengths=[len(own) for own in ids])
    found = advantages(inputs, tokenizer=tokenizer, **world)
    assert found == [row[: len(own)].tolist() for row, own in zip(expected, ids, strict=True)]
    rollouts[0] |= {"info": {"image_id": 0}, "answer": "1"}
    assert not any(advantages(inputs, tokenizer=tokenizer, **world)[0])  # 0 is an id, which this truth does not know
    wrong = SimpleNamespace(rollouts=[rollouts[0]] * 16, completion_lengths=[len(ids[0])] * 16)
    for _ in range(3):
        advantages(wrong, tokenizer=tokenizer, **world)
    with pytest.raises(InputError, match="64 consecutive rows have no reward"):
        advantages(wrong, tokenizer=tokenizer, **world)
    inputs.completion_lengths = [1, 2]
    with pytest.raises(InputError, match="tokens in a completion of 1"):
        advantages(inputs, tokenizer=tokenizer, **world)
    rollouts[0]["trajectory"] = []
    with pytest.raises(InputError, match="a rollout of 0 turns"):
        advantages(inputs, tokenizer=tokenizer, **world)
    for answer in (None, ""):  # "" is verifiers' default
        rollouts[0] |= {"info": {}, "answer": answer}
        with pytest.raises(InputError, match="missing key 'image_id'"):
            advantages(inputs, tokenizer=tokenizer, **world)
