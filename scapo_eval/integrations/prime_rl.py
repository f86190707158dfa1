"""prime-rl adapter: an advantage function that assigns credit to each subsentence.

prime-rl's algorithm ``custom`` calls a function that receives the rollouts of a group and returns one advantage per
completion token::

    [orchestrator.algo.advantage]
    type = "custom"
    import_path = "scapo_eval.integrations.prime_rl.advantages"
    kwargs = { truth = "truth.npz", vocabulary = "dopa160", tokenizer = "Qwen/Qwen2.5-VL-7B-Instruct" }

Each rollout must contain its image id, either as ``image_id`` in ``info`` or as its ``answer``. Only single-turn
rollouts are supported. An advantage function cannot log metrics in prime-rl, so SCAPO's metrics are not logged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..base.errors import InputError
from ..rewarding.batch import advantages_for_batch, count_faulty, load_reward
from ..rewarding.functions import IMAGE_ID, image_id_of


@lru_cache(maxsize=2)
def _tokenizer(path: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=True)


def advantages(inputs: Any, *, truth: str, vocabulary: str = "coco80", tokenizer: Any, **settings: Any) -> Any:
    """Returns the token credits of a group of rollouts. The credits are not normalized with group statistics.

    Args:
        inputs: prime-rl's AdvantageInputs, with ``rollouts`` in the format of verifiers, and ``completion_lengths``.
        truth: Path of the ground truth file; see :meth:`PresenceOracle.load`.
        vocabulary: Name or path of the vocabulary; see :meth:`Vocabulary.load`.
        tokenizer: Tokenizer of the policy, or its name.
        settings: Fields of :class:`~scapo_eval.rewarding.reward.RewardConfig`.

    Returns:
        For each rollout, a list with one float per completion token.

    Raises:
        InputError: If an image id is missing, a rollout has several turns, the length of a completion differs from its
            number of tokens, or too many consecutive rollouts are faulty.
    """
    images, ids, finished = list[object](), list[list[int]](), list[bool]()
    for rollout, length in zip(inputs.rollouts, inputs.completion_lengths, strict=True):
        image = image_id_of(rollout.get("info"), rollout.get("answer"))
        if image is None:
            raise InputError(f"missing key '{IMAGE_ID}' in the rollout's info")
        if len(rollout["trajectory"]) != 1:
            raise InputError(
                f"a rollout of {len(rollout['trajectory'])} turns; only rollouts of one turn are supported"
            )
        step = rollout["trajectory"][0]
        tokens = list(step["tokens"]["completion_ids"])
        if len(tokens) != length:
            raise InputError(f"{len(tokens)} tokens in a completion of {length}")
        images.append(image)
        ids.append(tokens)
        finished.append(not (step.get("is_truncated") or step["tokens"].get("is_truncated")))
    reward = load_reward(truth, vocabulary, **settings)
    policy = _tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    padded, columns = advantages_for_batch(images, ids, policy, reward, finished=finished)
    count_faulty(columns)
    return [row[: len(tokens)].tolist() for row, tokens in zip(padded, ids, strict=True)]
