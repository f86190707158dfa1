"""ROLL (4142237): SCAPO's credit per token in the pipeline for vision-language models.

    import roll_scapo  # before RLVRVLMPipeline runs; it replaces the pipeline's compute_advantage

ROLL puts a response's reward on its last token and spreads it over the others. This module lets it do so, because its
metrics read the result, and then writes SCAPO's advantages in its place. Set ``SCAPO_TRUTH``, ``SCAPO_VOCABULARY`` and
``SCAPO_MODEL`` (the policy, for its tokenizer). The data set's column ``ground_truth`` must be the image id, and a
reward worker of ROLL's must give some score. Switch off ``whiten_advantages`` and the KL term in the reward.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
from roll.pipeline.rlvr import rlvr_vlm_pipeline

from scapo_eval.rewarding.batch import advantages_for_batch, log_metrics, reward_from_environment


@cache
def load_tokenizer() -> Any:
    """Loads the policy's tokenizer once per process."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(os.environ["SCAPO_MODEL"])


def compute_advantage(data: Any, *args: Any, response_mask: torch.Tensor | None = None, **options: Any) -> Any:
    """Computes ROLL's advantages and replaces them.

    Args:
        data: ``batch`` with ``input_ids`` and ``response_mask`` (B, S), ``non_tensor_batch["ground_truth"]`` (B,).
        response_mask: (B, S - 1) tokens that have a share in the loss.
    """
    data = roll_advantage(data, *args, response_mask=response_mask, **options)
    generated = data.batch["response_mask"]
    advantages, columns = advantages_for_batch(
        list(data.non_tensor_batch["ground_truth"]),
        data.batch["input_ids"],
        load_tokenizer(),
        reward_from_environment(),
        mask=generated,
    )
    data.meta_info.setdefault("metrics", {}).update(log_metrics(columns))
    credit = torch.as_tensor(advantages)[:, 1:]  # ROLL's column t is about token t + 1
    kept = generated[:, 1:] if response_mask is None else response_mask
    data.batch["advantages"] = data.batch["returns"] = credit * kept
    return data


roll_advantage = rlvr_vlm_pipeline.compute_advantage
rlvr_vlm_pipeline.compute_advantage = compute_advantage
