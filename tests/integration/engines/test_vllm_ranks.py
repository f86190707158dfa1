"""Two ranks of the trainer with vLLM itself (``bash .ci/engines vllm``). Otherwise, the tests are skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: bash .ci/engines vllm")
from vllm_bench import GLOO, check_two_ranks

from scapo_train.config import load

pytestmark = pytest.mark.usefixtures("quiet_loggers")


def remove_shared_memory() -> None:
    """Removes the memory that an engine of two processes has left behind, because vLLM refuses a name in use."""
    for left in Path("/dev/shm").glob("-tp:*-cpushm_*"):
        left.unlink()


@pytest.mark.parametrize("size", [1, 2], ids=["an-engine-each", "tensor-parallel"])
def test_two_ranks(lab: Any, size: int) -> None:
    remove_shared_memory()
    check_two_ranks(lab, f"rollout.tensor_parallel={size}")


def test_ranks_that_shard_the_policy_send_it_to_a_server_of_two_processes(
    lab: Any, gloo: None, serve: Callable[..., str]
) -> None:
    remove_shared_memory()
    url = serve(load(lab.config).model.path, *GLOO, "--tensor-parallel-size", "2")
    check_two_ranks(lab, f"rollout.server={url}", "rollout.transfer=gloo", f"run.output={lab.folder / 'run'}")
