"""Tinker (0.38): training data with a credit per token, for its built-in policy losses.

    data = scapo_data(prompts, responses, logprobs, image_ids, tokenizer, reward)
    training_client.forward_backward(data, loss_fn="ppo").result()

Tinker sums the loss over tokens, so the advantages here are divided by the number of response tokens: the loss is the
paper's mean. Clip thresholds go into Tinker's ``loss_fn_config``. Its built-in losses have no KL term: for the paper's
use ``forward_backward_custom``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tinker import types

from scapo_eval import SubsentenceReward
from scapo_eval.rewarding.batch import advantages_for_batch


def scapo_data(
    prompts: Sequence[types.ModelInput],
    responses: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    image_ids: Sequence[Any],
    tokenizer: Any,
    reward: SubsentenceReward,
) -> list[types.Datum]:
    """Returns one Datum per response.

    Args:
        prompts: text and image chunks; an image chunk needs its ``expected_tokens``.
        responses: sampled tokens, with the stop token if there was one.
        logprobs: of these tokens, from the sampler.
        image_ids: the image of each response.
        tokenizer: of the policy, from transformers.
        reward: the reward.
    """
    padded, _ = advantages_for_batch(image_ids, responses, tokenizer, reward)
    n_tokens = sum(map(len, responses))
    data = []
    for prompt, tokens, sampled, credit in zip(prompts, responses, logprobs, padded, strict=True):
        before = [0] * (prompt.length - 1)  # position i predicts token i + 1; prompt tokens have no share in the loss
        inputs = {
            "target_tokens": np.array([*before, *tokens], dtype=np.int64),
            "logprobs": np.array([*before, *sampled], dtype=np.float32),
            "advantages": np.array([*before, *credit[: len(tokens)] / n_tokens], dtype=np.float32),
        }
        model_input = prompt.append(types.EncodedTextChunk(tokens=list(tokens[:-1])))
        data.append(types.Datum(model_input=model_input, loss_fn_inputs=inputs))
    return data
