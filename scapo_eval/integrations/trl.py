"""TRL (1.16): a response-level reward function, and a GRPOTrainer with a credit per subsentence.

TRL asks a reward function for one number per completion and spreads it over all tokens, so
:func:`reward_function` alone is NOT SCAPO: it rewards the sum of a response's pieces. TRL's loss does take
one advantage per token; :class:`ScapoTrainer` fills them in.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..base.errors import InputError, MissingExtra
from ..rewarding.batch import advantages_for_batch, log_metrics
from ..rewarding.reward import RewardColumns, SubsentenceReward
from ..rewarding.token_credit import Eos, Truncated

try:
    import torch
    import trl
    from trl import GRPOConfig, GRPOTrainer
except ImportError as error:
    raise MissingExtra("trl", "the TRL adapter") from error

SUPPORTED = ">=1.16,<1.17"
"""TRL versions that this was tested with: the two methods that ScapoTrainer extends are not public."""

IMAGE_ID = "image_id"
"""The dataset column that names each prompt's image."""

_PAPER = {
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "num_iterations": 1,
    "epsilon": 0.2,
    "beta": 0.01,
    "learning_rate": 2e-6,
    "max_grad_norm": 1.0,
    "num_generations": 8,
    "temperature": 1.0,
    "vllm_importance_sampling_correction": False,
    "use_bias_correction_kl": False,
    "remove_unused_columns": False,  # image_id must reach the reward
}


def scapo_config(**settings: Any) -> GRPOConfig:
    """A GRPOConfig with the paper's loss where TRL's defaults differ; ``settings`` take precedence.

    ``loss_type="dapo"`` divides by all response tokens of the global batch (N_tok); KL 0.01 to the
    reference, clipping 0.2, learning rate 2e-6, gradients clipped at 1. vLLM's importance correction and
    the KL bias correction, which the paper does not have, are off.
    """
    return GRPOConfig(**{**_PAPER, **settings})


def reward_function(reward: SubsentenceReward, *, name: str = "scapo") -> Callable[..., list[float | None]]:
    """A reward function for any GRPOTrainer: ONE number per completion.

    With ``level="subsentence"`` it is the sum of the pieces' rewards, with ``hal`` and ``cap`` the
    response-level rewards that the paper compares with. A row that cannot be scored gives None, which
    TRL leaves out (with ``on_error="zero"``; otherwise it raises).

    Args:
        reward: the reward that scores the completions. The dataset needs a column ``image_id``.
        name: name under which TRL logs it.
    """

    def score(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        found = reward.batch(_image_ids(columns), [_text(completion) for completion in completions])
        log = columns.get("log_metric")
        if log is not None:
            for key, value in log_metrics(found).items():
                log(f"{name}/{key.removeprefix('scapo/')}", value)
        return _totals(found)

    score.__name__ = name
    return score


class ScapoTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """GRPOTrainer whose advantages are the subsentence rewards, per token and without group statistics.

    Args:
        reward: the reward that scores the completions. The dataset needs a column ``image_id``.
        eos: see :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        truncated: see :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        reward_funcs: further rewards, which TRL logs beside the responses' totals and does NOT train on.
        args: see :func:`scapo_config`.
        kwargs: further arguments of GRPOTrainer.

    TRL's log shows what :func:`~scapo_eval.rewarding.batch.log_metrics` names, ``scapo/errors`` among them.

    Raises:
        InputError: a TRL version that this was not tested with, or an ``args.loss_type`` whose
            advantages are not per token.
    """

    def __init__(
        self,
        *,
        reward: SubsentenceReward,
        eos: Eos = "zero",
        truncated: Truncated = "score",
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        **kwargs: Any,
    ) -> None:
        _check_version()
        args = args or scapo_config()
        if args.importance_sampling_level != "token" or args.loss_type not in ("dapo", "grpo", "bnpo", "dr_grpo"):
            raise InputError("ScapoTrainer needs importance_sampling_level='token' and loss_type='dapo'")
        self._advantages = partial(advantages_for_batch, reward=reward, eos=eos, truncated=truncated)
        further = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
        further = [function for function in further if function is not None]
        if further:
            warnings.warn("ScapoTrainer logs reward_funcs and does not train on them", stacklevel=2)

        def scapo(**_: Any) -> list[float | None]:  # TRL logs a reward under its function's name
            return _totals(self._scapo_columns)

        super().__init__(reward_funcs=[scapo, *further], args=args, **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Computes the token advantages from the generated ids themselves; the totals that TRL logs are theirs."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        self._scapo_advantages, self._scapo_columns = self._advantages(
            _image_ids({IMAGE_ID: [row.get(IMAGE_ID) for row in inputs]}),
            completion_ids_list,
            self._tokenizer,
            finished=[len(ids) > 0 and ids[-1] in ends for ids in completion_ids_list],
        )
        mode = "train" if self.model.training else "eval"
        for name, value in log_metrics(self._scapo_columns).items():
            self._metrics[mode][name].append(value)
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Puts the (B, T) token advantages in the place of TRL's one per completion."""
        output = super()._generate_and_score_completions(inputs)
        mask = output["completion_mask"]
        advantages = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        found = torch.from_numpy(self._scapo_advantages)
        advantages[:, : found.shape[1]] = found.to(mask.device)
        output["advantages"] = advantages * mask
        return output


def _check_version() -> None:
    from packaging.specifiers import SpecifierSet

    if not SpecifierSet(SUPPORTED).contains(trl.__version__, prereleases=True):
        raise InputError(f"ScapoTrainer was tested with trl{SUPPORTED}, not with {trl.__version__}")


def _totals(columns: RewardColumns) -> list[float | None]:
    """The sum of each response's rewards, None for a faulty row."""
    return [None if k in columns.errors else total for k, total in enumerate(columns.total.tolist())]


def _image_ids(columns: Any) -> Sequence[object]:
    ids = columns.get(IMAGE_ID)
    if ids is None or all(image is None for image in ids):
        raise InputError(f"missing column '{IMAGE_ID}' in the dataset (with remove_unused_columns=False)")
    return list(ids)


def _text(completion: Any) -> object:
    """A completion's text: TRL hands over strings, or lists of messages for conversational prompts."""
    if not isinstance(completion, list):
        return completion
    texts: list[str] = []
    for message in completion:
        content = message.get("content") or ""
        texts += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return "".join(texts)
