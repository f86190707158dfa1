"""``import scapo_eval`` is cheap: heavy and command-line packages come in only where they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import scapo_eval

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ["torch", "transformers", "vllm", "spacy", "nltk", "pandas", "inflect", "datasets", "torchmetrics"]
LATER = ["rapidfuzz", "rich", "click", "yaml", "pyarrow", "zstandard", "numpy"]  # used, but not by the import itself
SPECIFIED = [
    "Vocabulary", "AliasMatcher", "Mention", "Subsentence", "split_subsentences", "PresenceOracle", "RewardConfig",
    "SubsentenceReward", "cap_score", "score_captions",
]  # fmt: skip


def loaded_after(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running the code."""
    report = "import sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, timeout=600, check=True
    )
    return set(json.loads(done.stdout))


def test_the_import_itself_brings_nothing_in() -> None:
    assert not loaded_after("import scapo_eval") & {*HEAVY, *LATER}


def test_every_public_name_without_heavy_packages() -> None:
    code = "\n".join(["import scapo_eval", *(f"scapo_eval.{name}" for name in scapo_eval.__all__)])
    assert not loaded_after(code) & {*HEAVY, "rapidfuzz", "rich", "click", "pyarrow"}


def test_scoring_without_heavy_packages() -> None:
    code = """
from scapo_eval import Vocabulary, PresenceOracle, score_captions, split_subsentences
v = Vocabulary.from_mapping({"dog": ["dog"]})
score_captions([{"image_id": 1, "caption": "a dog"}], v, PresenceOracle.from_objects({1: ["dog"]}))
split_subsentences("A dog. A cat.")
"""
    assert not loaded_after(code) & {*HEAVY, "rapidfuzz", "rich", "click", "pyarrow"}


def test_the_command_line_without_heavy_packages() -> None:
    assert not loaded_after("from scapo_eval.cli.main import cli; cli.get_command(None, 'score')") & set(HEAVY)


@pytest.mark.parametrize("blocked", [HEAVY])
def test_public_names_where_the_heavy_packages_cannot_be_imported(blocked: list[str]) -> None:
    code = "\n".join(
        [
            "import sys",
            f"sys.modules.update(dict.fromkeys({blocked}))",
            f"from scapo_eval import {', '.join(scapo_eval.__all__)}",
        ]
    )
    assert "scapo_eval" in loaded_after(code)


@pytest.mark.parametrize("name", SPECIFIED)
def test_the_names_of_the_specification(name: str) -> None:
    assert name in scapo_eval.__all__
    assert getattr(scapo_eval, name).__name__ == name
    assert name in dir(scapo_eval)


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        scapo_eval.nothing  # noqa: B018


@pytest.mark.slow
def test_every_module_is_imported_without_file_locks() -> None:
    """As on Windows, where fcntl is missing: reading and scoring need no lock."""
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "scapo_eval").rglob("*.py")
        if not {"engines", "integrations", "distributed"} & set(path.parts) and path.name != "__main__.py"
    )
    code = f"import sys, importlib; sys.modules['fcntl'] = None; [importlib.import_module(name) for name in {modules}]"
    assert "scapo_eval" in loaded_after(code)
