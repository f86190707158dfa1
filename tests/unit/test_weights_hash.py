"""The hash of a model folder, by which completions of different models are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from scapo_eval.engines.base import weights_hash

FILES = ("model.safetensors", "config.json", "chat_template.jinja", "tokenizer.json", "adapter_config.json")


@pytest.mark.parametrize("changed", FILES)
def test_every_file_that_determines_completions_counts(tmp_path: Path, changed: str) -> None:
    for name in FILES:
        (tmp_path / name).write_text("{}")
    before = weights_hash(str(tmp_path))
    (tmp_path / "README.md").write_text("A model.")
    (tmp_path / "original.json").mkdir()
    assert weights_hash(str(tmp_path)) == before
    (tmp_path / changed).write_text("{ }")
    assert weights_hash(str(tmp_path)) != before


def test_a_model_on_a_hub_has_no_hash() -> None:
    assert weights_hash("org/model") is None
