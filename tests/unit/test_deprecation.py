"""Deprecations are warnings that name the user's line, the way out and the end; none outlives its end."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from pathlib import Path

import pytest

import scapo_eval
from scapo_eval.base.deprecation import ScapoDeprecationWarning, warn_deprecated
from scapo_eval.base.moved import MOVED
from scapo_eval.base.version import __version__

ROOT = Path(__file__).resolve().parents[2]


def old_name() -> None:
    warn_deprecated("old_name()", instead="new_name()", removed_in="0.4.0")


def test_the_warning_names_the_users_line_and_the_way_out() -> None:
    with pytest.warns(ScapoDeprecationWarning) as caught:
        old_name()
    assert str(caught[0].message) == "old_name() is deprecated and will be removed in scapo 0.4.0; use new_name()"
    assert caught[0].filename == __file__
    assert caught[0].lineno == test_the_warning_names_the_users_line_and_the_way_out.__code__.co_firstlineno + 2


def test_users_see_it_by_default() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):  # what Python hides
            warnings.simplefilter("ignore", ignored)
        old_name()
    assert [warning.category for warning in caught] == [ScapoDeprecationWarning]


def test_nothing_deprecated_is_past_its_end() -> None:
    version = [int(part) for part in __version__.split(".")]
    for path in [*(ROOT / "scapo_eval").rglob("*.py"), *(ROOT / "scapo_train").rglob("*.py")]:
        for end in re.findall(r"(?:removed_in=\"|removed in scapo )(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8")):
            assert [int(part) for part in end.split(".")] > version, path


@pytest.mark.parametrize(("former", "name"), [pair for pair in MOVED.items() if pair[0].startswith("scapo_eval.")])
def test_former_names_of_modules_lead_to_the_same_module(former: str, name: str) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(ScapoDeprecationWarning, match=f"{re.escape(former)} is deprecated .* use {re.escape(name)}"):
        module = importlib.import_module(former)
    vars(scapo_eval).pop("claims", None)  # the import has put the former module in the place of the function
    assert module is importlib.import_module(name)
    assert module.__spec__ is not None
    assert module.__spec__.name == name


def test_a_former_name_warns_at_the_import_statement() -> None:
    sys.modules.pop("scapo_eval.oracles", None)
    with pytest.warns(ScapoDeprecationWarning) as caught:
        from scapo_eval.oracles import JudgedOracle
    assert JudgedOracle.__module__ == "scapo_eval.truths.oracles"
    assert [warning.filename for warning in caught] == [__file__]
