r"""EasyR1 adapter that rewards individual tokens and preserves these rewards as advantages.

EasyR1 writes the reward of a response to its last token, and its trainer accepts only built-in estimators.
:func:`install` therefore replaces ``AutoRewardManager.compute_reward`` and the estimator ``grpo`` in every process of
the run::

    python -m scapo_eval.integrations.easyr1 config=config.yaml algorithm.adv_estimator=grpo \
        algorithm.use_kl_loss=true \
        worker.reward.reward_function=examples/recipes/easyr1_reward.py:compute_score \
        'worker.reward.reward_function_kwargs={truth: truth.npz, vocabulary: dopa160}' data.answer_key=image_id

EasyR1 loads the specified reward function, which the adapter then replaces. The answer column contains the image id.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..files.files import read_bytes
from ..files.yaml_text import load_yaml
from ..rewarding.batch import advantages_for_batch, compute_scapo_advantage, load_reward, log_metrics

try:
    import torch
    from verl.trainer import core_algos
    from verl.workers.reward import AutoRewardManager
except ImportError as error:
    raise InputError(f"the EasyR1 adapter needs EasyR1 (github.com/hiyouga/EasyR1): {error}") from error


def compute_reward(manager: Any, data: Any) -> tuple[torch.Tensor, dict[str, list[float]]]:
    """Computes the rewards of a batch in place of EasyR1's ``AutoRewardManager.compute_reward``.

    Args:
        manager: Reward manager with a ``tokenizer``, and with ``truth``, ``vocabulary`` and fields of
            :class:`~scapo_eval.rewarding.reward.RewardConfig` in ``config.reward_function_kwargs``.
        data: Batch with ``responses`` and ``response_mask``, both (B, T), and with the image ids as ``ground_truth``.

    Returns:
        Token rewards of shape (B, T), and the metrics for EasyR1's log, in which ``overall`` is the validation metric.
    """
    settings = {"level": "subsentence", **manager.config.reward_function_kwargs}
    reward = load_reward(**settings)
    responses, mask = data.batch["responses"], data.batch["response_mask"]
    images = list(data.non_tensor_batch["ground_truth"])
    advantages, columns = advantages_for_batch(images, responses, manager.tokenizer, reward, mask=mask)
    metrics = {name: [value] * len(columns) for name, value in log_metrics(columns).items()}
    return torch.from_numpy(advantages).to(responses.device), {"overall": columns.total.tolist(), **metrics}


def install() -> None:
    """Replaces EasyR1's reward function and its estimator ``grpo`` in this process.

    Raises:
        InputError: If the arguments of the estimators in the installed EasyR1 version differ from those in the
            supported version.
    """
    taken = inspect.signature(core_algos.compute_grpo_outcome_advantage).parameters
    if not {"token_level_rewards", "response_mask"} <= set(taken):
        raise InputError(f"this EasyR1's estimator 'grpo' has the parameters {', '.join(taken)}")
    AutoRewardManager.compute_reward = compute_reward
    core_algos.register_adv_estimator("grpo")(compute_scapo_advantage)


def refuse_kl_in_rewards(arguments: Sequence[str]) -> None:
    """Rejects runs that subtract the KL term from the token rewards, because the KL term would then become part of the
    credit.

    Args:
        arguments: Command-line arguments of EasyR1 in the form ``key=value``. The value of ``config`` is the path of a
            YAML file.

    Raises:
        InputError: If neither ``algorithm.use_kl_loss`` nor ``algorithm.disable_kl`` is true.
    """
    given = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    algorithm: dict[str, Any] = {}
    if "config" in given:
        document = load_yaml(read_bytes(Path(given["config"])), given["config"])
        algorithm = (document.get("algorithm") if isinstance(document, dict) else None) or {}
    for name in ("use_kl_loss", "disable_kl"):
        if str(given.get(f"algorithm.{name}", algorithm.get(name, False))).lower() in ("true", "1"):
            return
    raise InputError("EasyR1 would put the KL term into the token rewards: set algorithm.use_kl_loss=true")


def main() -> None:
    """Runs EasyR1's main function and calls :func:`install` in every process of the run."""
    import ray
    from verl.trainer.main import main as easyr1

    refuse_kl_in_rewards(sys.argv[1:])
    begin = ray.init

    def with_hook(*arguments: Any, runtime_env: dict[str, Any] | None = None, **settings: Any) -> Any:
        hooked = {**(runtime_env or {}), "worker_process_setup_hook": "scapo_eval.integrations.easyr1.install"}
        return begin(*arguments, runtime_env=hooked, **settings)

    ray.init = with_hook
    install()
    easyr1()


if __name__ == "__main__":
    main()
