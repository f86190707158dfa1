"""TRL adapter: a response-level reward function, and a GRPOTrainer that assigns credit to each subsentence.

TRL requests one number per completion from a reward function, and applies this number to all tokens.
:func:`reward_function` alone is therefore NOT SCAPO, because every token receives the sum of the rewards of the
response's pieces. However, TRL's loss accepts one advantage per token, and :class:`ScapoTrainer` supplies these token
advantages.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from ..base.errors import InputError, MissingExtra
from ..rewarding.batch import advantages_for_batch, log_sums, metrics_of_sums
from ..rewarding.functions import RewardFunction, totals
from ..rewarding.reward import SubsentenceReward
from ..rewarding.token_credit import Eos, Truncated

try:
    import torch
    import trl
    from accelerate.utils import gather_object
    from trl import GRPOConfig, GRPOTrainer
except ImportError as error:
    raise MissingExtra("trl", "the TRL adapter") from error

TESTED = ("1.8.0", "1.13.0", "1.16.0")
"""TRL versions that this adapter was tested with. Other versions are checked for the non-public methods that
ScapoTrainer extends.
"""

IMAGE_ID = "image_id"
"""Dataset column with the image id of each prompt."""

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
    "remove_unused_columns": False,  # keep image_id for the reward
}

_TOOLS = (
    "TRL passes the results of tools to the reward as if the model had written them; compute the credit with "
    "advantages_for_batch(..., mask=...) in your own loop"
)


def scapo_config(**settings: Any) -> GRPOConfig:
    """Returns a GRPOConfig in which the paper's loss settings replace TRL's defaults. ``settings`` take precedence.

    ``loss_type="dapo"`` divides by the number of response tokens in the global batch (N_tok). The weight of the KL term
    is 0.01, the clip range is 0.2, the learning rate is 2e-6, and the maximum gradient norm is 1. vLLM's importance
    correction and the bias correction of the KL term are disabled, because the paper does not use them.
    """
    known = {field.name for field in fields(GRPOConfig)}
    return GRPOConfig(**{**{name: value for name, value in _PAPER.items() if name in known}, **settings})


def reward_function(reward: SubsentenceReward, *, name: str = "scapo") -> RewardFunction:
    """Returns a reward function for any GRPOTrainer, which computes ONE number per completion.

    With ``level="subsentence"``, the number is the sum of the pieces' rewards. With ``level="hal"`` and
    ``level="cap"``, the number is the response-level reward of the paper's baselines. By default, a row that cannot be
    scored raises an error. With ``on_error="zero"``, the function returns None for a row that cannot be scored, and TRL
    omits the row.

    Args:
        reward: Reward with which the completions are scored. The dataset must contain a column ``image_id``.
        name: Name of the reward in TRL's log.
    """
    return RewardFunction(reward, name)


class ScapoTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """GRPOTrainer that uses subsentence rewards as token advantages, without group statistics.

    Args:
        reward: Reward with which the completions are scored. The dataset must contain a column ``image_id``.
        eos: Credit of the end-of-sequence token; see :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        truncated: Treatment of the last piece of a truncated response; see
            :meth:`scapo_eval.rewarding.reward.RewardResult.token_advantages`.
        reward_funcs: Additional reward functions, whose values TRL logs but does NOT use for training.
        args: Configuration of the trainer; see :func:`scapo_config`.
        kwargs: Additional arguments of GRPOTrainer.

    TRL's log contains the metrics of :func:`~scapo_eval.rewarding.batch.log_metrics` over all processes, including
    ``scapo/errors``.

    Raises:
        InputError: If TRL lacks a method that this class extends, a setting (the loss, the liger kernel) requires one
            advantage per response, or completions contain tokens of tools.
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
        _probe()
        args = args or scapo_config()
        _refuse_traps(args)
        if given := [name for name in ("tools", "environment_factory") if kwargs.get(name)]:
            raise InputError(f"ScapoTrainer does not support {given[0]}: {_TOOLS}")
        self._advantages = partial(advantages_for_batch, reward=reward, eos=eos, truncated=truncated)
        further = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
        further = [function for function in further if function is not None]
        if further:
            warnings.warn("ScapoTrainer logs reward_funcs and does not train on them", stacklevel=2)

        def scapo(**_: Any) -> list[float | None]:  # TRL logs a reward under the name of its function
            return totals(self._scapo_columns)

        super().__init__(reward_funcs=[scapo, *further], args=args, **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Computes the token advantages from the generated token ids, and returns the sum of each response's rewards,
        which TRL logs.
        """
        processor = self.processing_class
        tokenizer: Any = getattr(self, "_tokenizer", None) or getattr(processor, "tokenizer", processor)
        ends = {*getattr(self, "eos_token_ids", [tokenizer.eos_token_id]), tokenizer.pad_token_id}
        self._scapo_advantages, self._scapo_columns = self._advantages(
            _image_ids({IMAGE_ID: [row.get(IMAGE_ID) for row in inputs]}),
            completion_ids_list,
            tokenizer,
            finished=[len(ids) > 0 and ids[-1] in ends for ids in completion_ids_list],
        )
        mode = "train" if self.model.training else "eval"
        for name, value in metrics_of_sums(gather_object([log_sums(self._scapo_columns)])).items():
            self._metrics[mode][name].append(value)
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Replaces TRL's advantages (one per completion) with (B, T) token advantages."""
        output = super()._generate_and_score_completions(inputs)
        if output.get("tool_mask") is not None:
            raise InputError(f"rollout_func returned env_mask: {_TOOLS}")
        mask = output["completion_mask"]
        advantages = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        token_advantages = torch.from_numpy(self._scapo_advantages)
        advantages[:, : token_advantages.shape[1]] = token_advantages.to(mask.device)
        output["advantages"] = advantages * mask
        return output


def _probe() -> None:
    """Checks that TRL has the methods that ScapoTrainer extends, and warns if the installed version of TRL has not been
    tested.

    Raises:
        InputError: If a method is missing or has different arguments.
    """
    wanted = {
        "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
        "_generate_and_score_completions": ("inputs",),
    }
    for name, arguments in wanted.items():
        method = getattr(GRPOTrainer, name, None)
        parameters = () if method is None else tuple(inspect.signature(method).parameters)[1:]
        if parameters != arguments:
            reason = (
                f"has no GRPOTrainer.{name}"
                if method is None
                else f"GRPOTrainer.{name} has the parameters {', '.join(parameters)}"
            )
            raise InputError(f"trl {trl.__version__}: {reason}; ScapoTrainer needs ({', '.join(arguments)})")
    if trl.__version__ not in TESTED:
        tested = ", ".join(TESTED)
        warnings.warn(
            f"ScapoTrainer was tested with trl {tested}, not with {trl.__version__}; "
            "python -m scapo_eval.conformance trl checks whether it works correctly",
            stacklevel=3,
        )


def _refuse_traps(args: GRPOConfig) -> None:
    """Rejects settings that would make TRL silently discard the token credits."""
    if args.importance_sampling_level != "token" or args.loss_type not in ("dapo", "grpo", "bnpo", "dr_grpo"):
        raise InputError("ScapoTrainer needs importance_sampling_level='token' and loss_type='dapo'")
    for name in ("use_liger_kernel", "use_liger_loss"):
        if getattr(args, name, False):
            raise InputError(
                f"{name} computes the loss from one advantage per response: turn it off for credit per token"
            )


def _image_ids(columns: Any) -> Sequence[object]:
    ids = columns.get(IMAGE_ID)
    if ids is None or all(image is None for image in ids):
        raise InputError(f"missing column '{IMAGE_ID}' in the dataset (with remove_unused_columns=False)")
    return list(ids)
