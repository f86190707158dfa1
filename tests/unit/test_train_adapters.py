"""Whether vLLM receives adapters alone or merged into the weights."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from scapo_eval.base.errors import InputError
from scapo_train.config import Config, from_table
from scapo_train.samplers.adapters import engine_settings, has_experts, obstacle, sent_alone

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet() -> Any:
    logger = logging.getLogger("scapo_train")
    before = logger.propagate, logger.level
    logger.propagate = True
    yield
    logger.propagate, logger.level = before


def config(rank: int = 8, dtype: str = "bfloat16", **rollout: Any) -> Config:
    table = {"lora": {"rank": rank}, "model": {"dtype": dtype}, "rollout": {"engine": "vllm", **rollout}}
    return from_table(table)


def model(experts: int = 0) -> Any:
    return SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_experts=experts))


AWAKE = {"sleep": False}


@pytest.mark.parametrize(
    ("settings", "experts", "device", "said"),
    [
        (config(**AWAKE), 0, "cuda", None),
        (config(sleep_level=1), 0, "cuda", None),
        (config(server="http://127.0.0.1:1"), 0, "cuda", None),
        (config(dtype="float32", **AWAKE), 0, "cpu", None),
        (config(rank=512, **AWAKE), 0, "cuda", None),
        (config(), 0, "cuda", "rollout.sleep_level = 2 discards"),
        (config(rank=513, **AWAKE), 0, "cuda", "lora.rank = 513 is more than"),
        (config(dtype="float32", **AWAKE), 0, "cuda", "only in bfloat16, not in model.dtype = float32"),
        (config(**AWAKE), 4, "cuda", "a mixture of experts"),
    ],
)
def test_the_reason_to_merge(settings: Config, experts: int, device: str, said: str | None) -> None:
    found = obstacle(settings, has_experts(model(experts)), device)
    assert (said in found) if said and found else found is said


def test_the_choice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "scapo_train")
    assert not sent_alone(config(rank=0), "vllm", None)
    assert not sent_alone(config(adapters="merge"), "vllm", None)
    assert caplog.text == ""
    assert sent_alone(config(), "vllm", None)
    assert not sent_alone(config(), "vllm", "because")
    assert "vllm: adapters are merged into the weights that are sent: because" in caplog.text
    with pytest.raises(InputError, match=r'^rollout.adapters = "request": because \("auto" merges'):
        sent_alone(config(adapters="request"), "vllm", "because")


@pytest.mark.parametrize("table", [{"lora": {"rank": 8}}, {"rollout": {"engine": "vllm"}}])
def test_a_request_needs_adapters_and_vllm(table: dict[str, Any]) -> None:
    table = {**table, "rollout": {**table.get("rollout", {}), "adapters": "request"}}
    with pytest.raises(InputError, match=r'"request" requires lora\.rank and rollout\.engine = "vllm"'):
        from_table(table)


@pytest.mark.parametrize(("rank", "room"), [(1, 8), (8, 8), (9, 16), (300, 320), (512, 512)])
def test_the_rank_is_rounded_up(rank: int, room: int) -> None:
    given = engine_settings(config(rank), ["down_proj", "q_proj"])
    assert given == {"enable_lora": True, "max_lora_rank": room, "lora_target_modules": ["down_proj", "q_proj"]}
