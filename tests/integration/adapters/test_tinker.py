"""The recipe's data in Tinker's own types, with the credit of every sampled token in the alignment of Tinker's
losses.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

tinker = pytest.importorskip("tinker", reason="Tinker is not installed here; .ci/adapters tinker installs it")

RECIPE = Path(__file__).parents[3] / "examples" / "recipes" / "tinker_scapo.py"


def test_every_sampled_token_has_its_credit(tokenizer: Any, reward: Any) -> None:
    from scapo_eval.conformance import expected_credit

    picture = tinker.types.ImageChunk(data=b"x", format="png", expected_tokens=5)
    prompt = tinker.types.ModelInput(chunks=[picture, tinker.types.EncodedTextChunk(tokens=[7, 8])])
    texts = {"1": "A dog is near the tree. A cat is in the grass.", "2": "The small cat is on a table."}
    responses = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts.values()]
    logprobs = [[-0.5] * len(tokens) for tokens in responses]
    make = runpy.run_path(str(RECIPE))["scapo_data"]
    data = make([prompt] * 2, responses, logprobs, list(texts), tokenizer, reward)
    n_tokens = sum(map(len, responses))
    for datum, image, tokens in zip(data, texts, responses, strict=True):
        inputs = {name: value.to_numpy() for name, value in datum.loss_fn_inputs.items()}
        assert {len(value) for value in inputs.values()} == {datum.model_input.length} == {7 + len(tokens) - 1}
        assert inputs["target_tokens"][6:].tolist() == tokens
        assert datum.model_input.chunks[-1].tokens == tokens[:-1]
        assert set(inputs["logprobs"][6:]) == {-0.5}
        due = expected_credit(reward, tokenizer, image, tokens, finished=True)
        assert inputs["advantages"][6:] == pytest.approx(due / n_tokens)
        assert not inputs["advantages"][:6].any()
