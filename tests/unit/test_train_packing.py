"""Division of rows into micro-batches of nearly equal numbers of tokens on all ranks."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from scapo_train.config import Config
from scapo_train.data import Response
from scapo_train.update import Updater, evenly


def test_shares_are_nearly_equal_and_complete() -> None:
    draw = random.Random(1)
    for number in (1, 3, 7):
        lengths = sorted(draw.randint(400, 2000) for _ in range(30))
        shares = evenly(lengths, number)
        assert sorted(k for share in shares for k in share) == list(range(30))
        assert all(share == sorted(share) for share in shares)
        sums = [sum(lengths[k] for k in share) for share in shares]
        assert sums == sorted(sums)
        assert sums[-1] - sums[0] <= lengths[-1]
    assert evenly([5, 6], 3) == [[], [0], [1]]


@pytest.mark.parametrize(("packs", "sizes"), [(True, [600, 700, 700]), (False, [300, 300, 300, 300, 400, 400])])
def test_micro_batches_are_filled_evenly_within_the_budget(packs: bool, sizes: list[int]) -> None:
    policy: Any = SimpleNamespace(
        packs=packs,
        batch=lambda rows, _: SimpleNamespace(tokens=sum(row.length for row in rows)),
        idle_batch=lambda _: SimpleNamespace(tokens=0),
    )
    group: Any = SimpleNamespace(max=lambda value: value, device=torch.device("cpu"), size=1)
    lengths = [400, 300, 300, 300, 300, 400]
    encoded: Any = [
        SimpleNamespace(row=lambda _, length=length: SimpleNamespace(length=length), prompt=SimpleNamespace(index=k))
        for k, length in enumerate(lengths)
    ]
    config = replace(
        Config(),
        rollout=replace(Config().rollout, group=1),
        optim=replace(Config().optim, micro_batch_tokens=750),
    )
    updater = Updater(config, policy, None, None, group, 1)  # type: ignore[arg-type]
    (made,) = updater.mini_batches(range(6), encoded, [Response([1], True)] * 6)
    assert [micro.batch.tokens for micro in made] == sizes
    group.max = lambda value: max(value, 6) if value > 1 else value  # another rank has more micro-batches
    (made,) = updater.mini_batches(range(6), encoded, [Response([1], True)] * 6)
    assert [micro.batch.tokens for micro in made] == [300, 300, 300, 300, 400, 400]
