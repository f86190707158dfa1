"""A step of ms-swift's own GRPO pipeline with a tiny model, which must train on SCAPO's token credit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("swift", reason="ms-swift is not installed here; .ci/adapters ms-swift installs it")

import torch
from swift.rlhf_trainers.arguments import GRPOConfig

from scapo_eval.base.errors import InputError
from scapo_eval.conformance import main
from scapo_eval.integrations import ms_swift as adapter


def test_a_real_step_has_the_credit_of_every_token_and_its_loss(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ms-swift"]) == 0
    assert "one step: 263 tokens, 0 wrong, loss equal" in capsys.readouterr().out


def test_the_check_notices_another_credit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = adapter.token_advantages

    def averaged(samples: Any, mask: Any, tokenizer: Any) -> Any:
        advantages, metrics = right(samples, mask, tokenizer)
        means = (advantages * mask).sum(1) / mask.sum(1)
        return means[:, None] * mask, metrics

    monkeypatch.setattr(adapter, "token_advantages", averaged)
    assert main(["ms-swift"]) == 1
    assert "0 wrong" not in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("use_liger_kernel", True),
        ("loss_type", "cispo"),
        ("importance_sampling_level", "sequence_token"),
        ("kl_in_reward", True),
        ("off_policy_sequence_mask_delta", 0.5),
    ],
)
def test_settings_that_change_the_credit_are_refused(setting: str, value: Any, tmp_path: Path) -> None:
    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, beta=0.01, loss_type="dapo")
    args.use_liger_kernel, args.kl_in_reward = False, False
    setattr(args, setting, value)
    with pytest.raises(InputError, match=f"^{setting}={value} "):
        adapter.ScapoGRPOTrainer(args=args)


def test_ms_swift_s_loss_takes_the_golden_step(golden_step: dict[str, Any]) -> None:
    policy = golden_step["logprobs"].clone().requires_grad_()
    mask = golden_step["mask"].bool()
    batch = SimpleNamespace(
        completion_mask=mask, truncated_mask=None, advantages=golden_step["advantages"],
        old_per_token_logps=golden_step["old_logprobs"], ref_per_token_logps=golden_step["reference_logprobs"],
        rollout_per_token_logps=None, teacher_per_token_logps=None, num_items_in_batch=mask.sum(),
    )  # fmt: skip
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True), args=SimpleNamespace(delta=None), compute_entropy=False,
        overlong_filter=False, beta=golden_step["kl_weight"], kl_in_reward=False, loss_type="dapo",
        rollout_importance_sampling_mode=None, log_rollout_offpolicy_metrics=False,
        disable_rollout_importance_sampling=False, importance_sampling_level="token", _has_teacher=False,
        off_policy_sequence_mask_delta=None, epsilon_low=golden_step["clip"], epsilon_high=golden_step["clip"],
        accelerator=SimpleNamespace(num_processes=1, gather_for_metrics=lambda value: value), sdar_loss_coef=0,
        chord_sft_iterator=None, _undo_gradient_accumulation_scaling=lambda loss: loss,
        _get_per_token_logps_and_entropies=lambda *_, **__: (policy, None),
    )  # fmt: skip
    loss, _ = adapter.GRPOTrainer._compute_loss_and_metrics(trainer, None, {}, batch)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(golden_step["loss"], rel=0, abs=1e-6)
    torch.testing.assert_close(policy.grad, golden_step["gradient"], rtol=0, atol=1e-6)
