"""ms-swift itself: a step of its GRPO pipeline with a tiny model trains on SCAPO's token credit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("swift", reason="ms-swift is not installed here; .ci/adapters ms-swift installs it")

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


@pytest.mark.parametrize("trainer", [{"use_liger_loss": True}, {"args": SimpleNamespace(use_liger_kernel=True)}])
def test_liger_is_refused_because_it_averages_the_credit(trainer: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="averages the advantages over each response"):
        adapter.ScapoGRPOTrainer._postprocess_batch(SimpleNamespace(**trainer), [], [])
