"""Small part of ``benchmarks/semantics.py``: every command with each of its laws."""

from __future__ import annotations

import pytest

from benchmarks import semantics


@pytest.mark.parametrize("world", semantics.WORLDS)
def test_no_law_is_broken_in_silence(world: str) -> None:
    laws = semantics.laws_of(world)
    broken = [fault for fault in semantics.campaign(len(laws), 3, f"{world} ") if fault[2]]
    assert broken == []


def test_a_broken_law_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scapo_eval.files.account.Account.notes", [])
    assert [law for _, law, broken in semantics.campaign(4, 3, "score repeated") if broken] == ["repeated"] * 4
