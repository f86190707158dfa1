"""Training step computed independently from the paper, compared with the reward's credit and the trainer's loss."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "step"


@pytest.fixture(scope="module")
def step() -> Any:
    return json.loads((FOLDER / "step.json").read_text(encoding="utf-8"))


def test_the_file_is_what_its_script_writes(step: Any) -> None:
    made = json.loads(json.dumps(runpy.run_path(str(FOLDER / "write.py"))["make"]()))
    numbers = ("loss", "gradient", "gradient_norm")  # sums of exponentials may differ in the last digit
    assert {k: v for k, v in made.items() if k not in numbers} == {k: v for k, v in step.items() if k not in numbers}
    flat = [np.concatenate([[d["loss"], d["gradient_norm"]], *d["gradient"]]) for d in (made, step)]
    np.testing.assert_allclose(*flat, rtol=1e-12)


def test_the_reward_gives_the_credit(step: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="tokens need transformers")
    from scapo_eval.conformance import expected_credit, tiny_tokenizer
    from scapo_eval.rewarding.reward import SubsentenceReward

    (tmp_path / "vocabulary.yaml").write_text(json.dumps(step["vocabulary"]))
    (tmp_path / "truth.json").write_text(json.dumps(step["truth"]))
    reward, tokenizer = SubsentenceReward(tmp_path / "vocabulary.yaml", tmp_path / "truth.json"), tiny_tokenizer()
    for row in step["responses"]:
        pieces = [token.replace(" ", "\u0120") for token in row["tokens"]]
        ids = tokenizer.convert_tokens_to_ids(pieces)
        assert tokenizer.unk_token_id not in ids, pieces
        credit = expected_credit(reward, tokenizer, row["image_id"], ids, finished=row["finished"])
        np.testing.assert_allclose(credit, row["advantages"], atol=1e-7)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_the_trainer_s_loss_and_gradient(step: Any, dtype: str, tolerance: float) -> None:
    torch = pytest.importorskip("torch", reason="the trainer needs torch")
    from scapo_train.loss import token_loss

    def flat(name: str) -> Any:
        values = [value for row in step["responses"] for value in row[name]]
        return torch.tensor(values, dtype=getattr(torch, dtype))

    policy = flat("logprobs").requires_grad_()
    weight = torch.full_like(policy, 1 / len(policy))
    loss = token_loss(
        policy, flat("advantages"), weight, old=flat("old_logprobs"), reference=flat("reference_logprobs"),
        clip_low=step["clip"], clip_high=step["clip"], kl_weight=step["kl_weight"],
    ).loss  # fmt: skip
    loss.backward()
    assert float(loss.detach()) == pytest.approx(step["loss"], rel=0, abs=tolerance)
    np.testing.assert_allclose(policy.grad.numpy(), np.concatenate(step["gradient"]), rtol=0, atol=tolerance)
    assert float(policy.grad.norm()) == pytest.approx(step["gradient_norm"], rel=0, abs=tolerance)
