"""The page on what can be gamed says what the real reward pays, and its monitors show it."""

from __future__ import annotations

from pathlib import Path

import gaming
import pytest

from scapo_eval.rewarding.batch import log_metrics
from scapo_eval.rewarding.monitor import behavior_metrics, behavior_sums

ROOT = Path(__file__).resolve().parents[2]


def test_page() -> None:
    page = (ROOT / "docs" / "gaming.md").read_text()
    for table in gaming.tables().split("\n\n"):
        assert table in page


def test_what_the_page_says() -> None:
    pays = gaming.pays()
    honest = pays["honest"]
    no_gain = set(pays) - {"honest", "denial of present objects", "very short pieces", "in the reasoning"}
    assert all(pays[name]["default"] <= honest["default"] for name in no_gain)
    assert pays["the same sentences three times"]["`r_rep=1`"] == 3 * honest["`r_rep=1`"]
    assert pays["denial of present objects"]["`claims=asserted`"] < 0 < pays["denial of present objects"]["default"]
    assert pays["two wrong objects, glued"]["default"] > pays["two wrong objects, apart"]["default"]
    linear = "`lam_g, lam_h=linear`"
    assert pays["two wrong objects, glued"][linear] == pays["two wrong objects, apart"][linear]
    assert pays["in the reasoning"]["`discourse`, `answer_only`"] < 0 < pays["in the reasoning"]["default"]
    assert pays["nothing"]["`level=hal`"] == 1


@pytest.mark.parametrize(
    ("name", "monitor", "sign"),
    [
        ("the same sentences three times", "repeated_share", 1),
        ("filler about nothing", "without_label_share", 1),
        ("likely objects in one list", "labels_per_piece", 1),
        ("hedged guesses", "hedge_rate", 1),
        ("denial of absent objects", "denial_rate", 1),
        ("all in one sentence", "words_per_piece", 1),
        ("very short pieces", "words_per_piece", -1),
        ("in the reasoning", "silent_share", 1),
    ],
)
def test_monitors(name: str, monitor: str, sign: int) -> None:
    behavior = gaming.behavior()
    assert sign * (behavior[name][monitor] - behavior["honest"][monitor]) > 0


def test_sums_add_up_and_are_logged() -> None:
    reward = gaming.reward_of(gaming.SETTINGS["default"])
    responses = list(gaming.RESPONSES.values())
    whole = reward.batch(["1"] * len(responses), responses)
    parts = [behavior_sums(reward.batch(["1"], [response])) for response in responses]
    assert behavior_sums(whole) == {name: sum(part[name] for part in parts) for name in parts[0]}
    logged = log_metrics(whole)
    expected = behavior_metrics(behavior_sums(whole))
    assert {name: logged[f"scapo/{name}"] for name in expected} == expected
    assert set(log_metrics(reward.batch([], [])).values()) == {0.0}
