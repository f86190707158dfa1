"""Rewards for plain loops, the recipes for other libraries (called as those call them), and the README's example."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from scapo_eval import InputError, PresenceOracle, SubsentenceReward, Vocabulary
from scapo_eval.base.deprecation import ScapoDeprecationWarning
from scapo_eval.rewarding.batch import (
    advantages_for_batch,
    load_reward,
    log_metrics,
    metrics_of_sums,
    rewards_for_batch,
)
from scapo_eval.rewarding.tokens import decode_with_offsets

EXAMPLES = Path(__file__).parents[2] / "examples"
PAD, END = 0, 1
SENTENCES = ["A dog is here today. A cat sits on the red car.", "A cat.", ""]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    built = Tokenizer(models.BPE({word: k for k, word in enumerate(words)}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(["<pad>", "<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=built, pad_token="<pad>", eos_token="<end>")


@pytest.fixture(scope="module")
def reward() -> SubsentenceReward:
    vocabulary = Vocabulary.from_mapping({label: [label] for label in ("dog", "cat", "car")})
    return SubsentenceReward(
        vocabulary, PresenceOracle.from_objects({1: ["dog"], 2: ["cat"]}, labels=vocabulary.labels)
    )


@pytest.fixture(scope="module")
def batch(tokenizer: Any) -> Any:
    """(3, T) padded ids; the second response was cut off."""
    rows = [tokenizer.encode(text) for text in SENTENCES]
    rows = [[*rows[0], END], rows[1], [END]]
    ids = np.full((3, max(map(len, rows)) + 2), PAD)
    for k, row in enumerate(rows):
        ids[k, : len(row)] = row
    return ids


def test_a_batch_of_padded_ids(tokenizer: Any, reward: SubsentenceReward, batch: Any) -> None:
    advantages, _ = advantages_for_batch([1, 2, 2], batch, tokenizer, reward, finished=[True, False, True])
    assert advantages.shape == batch.shape
    assert advantages.dtype == np.float32
    first = len("A dog is here today. ")
    assert set(advantages[0, :first]) == {1.0}
    assert set(advantages[0, first : len(SENTENCES[0])]) == {-1.0}
    assert (advantages[0, len(SENTENCES[0]) :] == 0).all()
    assert advantages[1].tolist() == [1.0] * 6 + [0.0] * (batch.shape[1] - 6)
    assert not advantages[2].any()


def test_the_log_counts_faulty_rows(tokenizer: Any, reward: SubsentenceReward, batch: Any) -> None:
    lenient = SubsentenceReward(reward.truth.vocabulary, reward.truth.oracle, on_error="zero")
    _, columns = advantages_for_batch([1, 9, 2], batch, tokenizer, lenient)
    expected = {
        "scapo/reward": 0.0,
        "scapo/generated": pytest.approx(2 / 3 + 1 / 3),
        "scapo/hallucinated": pytest.approx(2 / 3),
        "scapo/covered": pytest.approx(1 / 3),
        "scapo/subsentences": pytest.approx(2 / 3),
        "scapo/empty": pytest.approx(1 / 3),
        "scapo/errors": pytest.approx(1 / 3),
    }
    assert {name: value for name, value in log_metrics(columns).items() if name in expected} == expected


def test_metrics_need_sums_and_rewards_need_names() -> None:
    with pytest.raises(InputError, match="expected the sums of at least one batch, found none"):
        metrics_of_sums([])
    for given in ({"vocabulary": ["dog", "cat"]}, {"scenes": {"7": 1}}, {"truth": {7: ["dog"]}}):
        with pytest.raises(InputError, match=r"truth and vocabulary must be files or names, .*unhashable"):
            load_reward(**{"truth": "truth.json", **given})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="found NoneType"):
        load_reward(None)  # type: ignore[arg-type]


def test_lists_arrays_tensors_and_masks_agree(tokenizer: Any, reward: SubsentenceReward, batch: Any) -> None:
    class Tensor:
        """What numpy sees of a tensor on a device."""

        def __init__(self, values: Any) -> None:
            self.values = values

        def cpu(self) -> Any:
            return self.values

    expected, _ = advantages_for_batch([1, 2, 2], batch, tokenizer, reward)
    for ids in (batch.tolist(), [Tensor(row) for row in batch]):
        np.testing.assert_array_equal(advantages_for_batch([1, 2, 2], ids, tokenizer, reward)[0], expected)
    mask = batch != PAD
    left = np.stack(
        [np.concatenate([row[~m], row[m]]) for row, m in zip(batch, mask, strict=True)]
    )  # padded on the left
    moved, _ = advantages_for_batch([1, 2, 2], left, tokenizer, reward, mask=left != PAD)
    np.testing.assert_array_equal(moved[left != PAD], expected[mask])
    assert not moved[left == PAD].any()
    with pytest.raises(InputError, match="mask and token ids have different shapes"):
        advantages_for_batch([1, 2, 2], batch, tokenizer, reward, mask=mask[:, 1:])


def test_a_mask_tells_responses_from_their_prompts(tokenizer: Any, reward: SubsentenceReward, batch: Any) -> None:
    expected, _ = advantages_for_batch([1, 2, 2], batch, tokenizer, reward)
    prompt = np.tile(tokenizer.encode("Is a dog in the car? "), (3, 1))
    whole = np.concatenate([prompt, batch], axis=1)
    mask = np.concatenate([np.zeros_like(prompt, dtype=bool), batch != PAD], axis=1)
    found, _ = advantages_for_batch([1, 2, 2], whole, tokenizer, reward, mask=mask)
    assert found.shape == whole.shape
    assert not found[:, : prompt.shape[1]].any()
    np.testing.assert_array_equal(found[:, prompt.shape[1] :], expected)


def test_whether_a_response_ended_is_seen_from_its_tokens(
    tokenizer: Any, reward: SubsentenceReward, batch: Any
) -> None:
    unpadded = [batch[0][: len(SENTENCES[0]) + 1], batch[1][:6]]
    advantages, _ = advantages_for_batch([1, 2], unpadded, tokenizer, reward, eos="last", truncated="mask")
    assert advantages[0, len(SENTENCES[0])] == -1.0  # finished: the end of sequence gets the last piece's reward
    assert not advantages[1].any()  # cut off: masked


@pytest.mark.parametrize("settings", [{"eos": "own"}, {"eos": "last"}, {"truncated": "mask"}])
def test_padding_does_not_show_whether_a_response_ended(
    tokenizer: Any, reward: SubsentenceReward, batch: Any, settings: Any
) -> None:
    with pytest.raises(InputError, match="pass mask or finished"):
        advantages_for_batch([1, 2, 2], batch, tokenizer, reward, **settings)
    rows = [batch[0][: len(SENTENCES[0]) + 1], batch[1][:6], batch[2][:1]]
    expected, _ = advantages_for_batch([1, 2, 2], rows, tokenizer, reward, **settings)
    for given in ({"mask": batch != PAD}, {"finished": [True, False, True]}):
        found, _ = advantages_for_batch([1, 2, 2], batch, tokenizer, reward, **given, **settings)
        np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)


def test_single_rows_agree_with_the_readable_result(tokenizer: Any, reward: SubsentenceReward, batch: Any) -> None:
    advantages, columns = advantages_for_batch([1, 2, 2], batch, tokenizer, reward)
    assert columns.n_empty == 1
    for ids, row, result in zip(batch, advantages, columns.results(), strict=True):
        text, offsets = decode_with_offsets(tokenizer, ids)
        assert text == result.response
        np.testing.assert_array_equal(result.token_advantages(offsets), row)
    assert advantages_for_batch([], [], tokenizer, reward)[0].shape == (0, 0)
    with pytest.warns(ScapoDeprecationWarning, match="use advantages_for_batch"):
        former = rewards_for_batch([1, 2, 2], batch, tokenizer, reward)
    np.testing.assert_array_equal(former, advantages)


# ---- recipes ----


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "truth.json").write_text(json.dumps({"objects": {"1": ["dog"], "2": []}, "labels": ["dog", "cat"]}))
    (tmp_path / "v.yaml").write_text("name: toy\nlabels: {dog: {aliases: [dog]}, cat: {aliases: [cat]}}\n")
    monkeypatch.setenv("SCAPO_TRUTH", str(tmp_path / "truth.json"))
    monkeypatch.setenv("SCAPO_VOCABULARY", str(tmp_path / "v.yaml"))
    return tmp_path


def recipe(name: str) -> ModuleType:
    """A recipe, loaded from its file as those libraries load it."""
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", EXAMPLES / "recipes" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("world")
def test_openrlhf_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(tensor=lambda values, dtype=None: np.array(values, dtype=dtype), float32=np.float32)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    function = recipe("openrlhf_reward").reward_func
    assert list(inspect.signature(function).parameters)[:3] == ["queries", "prompts", "labels"]
    prompts = ["<img>Describe: "] * 3
    queries = [prompts[0] + text for text in ("A dog.", "A dog and a cat.", "A dog.")]
    found = function(queries, prompts, ["1", "1", "unknown"], extra="ignored")
    assert set(found) == {"rewards", "scores", "extra_logs"}
    np.testing.assert_allclose(found["rewards"], [1.0, 2 / 3, 0.0], rtol=1e-6)
    assert found["extra_logs"]["hallucinated"].tolist() == [0, 1, 0]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("said", ["A dog.<|im_end|>", "Is there a cat?<|im_end|>\n<|im_start|>assistant\nNo.", ""])
def test_openrlhf_s_queries_repeat_placeholders_and_lack_long_beginnings(
    turns: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    module = recipe("openrlhf_reward")
    turn = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Is there a cat?<|im_end|>\n"
    prompt = "A cat asks. " + turn * turns + "<|im_start|>assistant\n"
    expanded = prompt.replace("<|image_pad|>", "<|image_pad|>" * 4)
    for query in (prompt, expanded, prompt[20:]):
        assert module.response_of(query + said, prompt) == said
    assert not caplog.records
    with pytest.raises(InputError, match="does not contain the end of its prompt"):
        module.reward_func(["<|user|>Is there a cat? Yes.\n"], [prompt], ["1"])
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_easyr1_recipe(world: Path) -> None:
    module = recipe("easyr1_reward")
    rows = [{"response": "A dog.", "response_length": 3, "ground_truth": "1"}]
    found = module.compute_score(rows, truth=str(world / "truth.json"), vocabulary=str(world / "v.yaml"))
    assert found == [{"overall": 1.0, "covered": 1.0, "hallucinated": 0.0}]
    assert (module.REWARD_NAME, module.REWARD_TYPE) == ("scapo", "batch")


def test_the_plain_loop_example_runs() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / "plain_loop.py")], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("advantages: 2 responses x ")
    assert lines[1:3] == ["+1.0  A dog lies on the grass near a bench. ", "-1.0  A cat sits beside it. "]


def test_the_readme_s_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    root = EXAMPLES.parent
    blocks = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "SubsentenceReward(" in block]
    monkeypatch.chdir(root)
    names: dict[str, Any] = {}
    exec(block, names)
    result = names["result"]
    assert "".join(result.response[part.start : part.end] for part in result.parts) == result.response
    assert [part.reward for part in result.parts] == [1.0, -1.0]
