"""What tricks earn: the real reward of made-up responses that game it, under each setting, and what shows them.

    python benchmarks/gaming.py

Prints the tables of docs/gaming.md. The image holds a person, a dog, a frisbee and a bench; nothing else of coco80.
"""

from __future__ import annotations

from collections.abc import Mapping

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary
from scapo_eval.rewarding.monitor import behavior_metrics, behavior_sums

PRESENT = ("person", "dog", "frisbee", "bench")
HONEST = "A man in a red shirt throws a frisbee. A brown dog jumps up to catch it. Behind them stands a wooden bench."
RESPONSES: Mapping[str, str] = {
    "honest": HONEST,
    "one object wrong": HONEST + " A car is parked on the left side.",
    "the same sentences three times": " ".join([HONEST] * 3),
    "filler about a known object": HONEST + " The dog is a very nice dog indeed." * 5,
    "filler about nothing": HONEST + " The scene is calm and full of joy." * 5,
    "likely objects in one list": "There are a person, a dog, a frisbee, a bench, a car, and a chair.",
    "likely objects one by one": "There is a person. There is a dog. There is a frisbee. There is a bench. "
    "There is a car. There is a chair.",
    "hedged guesses": HONEST + " There might be a car. There might be a chair. Perhaps there is a bird.",
    "denial of absent objects": HONEST + " There is no car. There is no chair. There is no bird.",
    "denial of present objects": "There is no person. There is no dog. There is no frisbee. There is no bench.",
    "two wrong objects, apart": HONEST + " A car is parked on the left side. A bird sits on a branch above.",
    "two wrong objects, glued": HONEST + " A car is parked on the left side and a bird sits on a branch above.",
    "all in one sentence": "A man in a red shirt throws a frisbee and a brown dog jumps up to catch it and "
    "behind them stands a wooden bench and a car.",
    "very short pieces": "Man. Dog. Frisbee. Bench.",
    "no word": "...\n---\n***",
    "in the reasoning": "<think>A person. A dog. A frisbee. A bench.</think>\nThe scene is calm and full of joy.",
    "nothing": "",
}
"""Name -> response."""

SETTINGS: Mapping[str, RewardConfig] = {
    "default": RewardConfig(),
    "`r_rep=1`": RewardConfig(r_rep=1.0),
    "`lam_g, lam_h=linear`": RewardConfig(lam_g="linear", lam_h="linear"),
    "`claims=asserted`": RewardConfig(claims="asserted"),
    "`claims=certain`": RewardConfig(claims="certain"),
    "`rule=sentence`": RewardConfig(rule="sentence"),
    "`discourse`, `answer_only`": RewardConfig(rule="discourse", answer_only=True),
    "`level=hal`": RewardConfig(level="hal"),
    "`level=cap`": RewardConfig(level="cap"),
}
"""Name -> settings."""

SHOWN = (
    "words",
    "words_per_piece",
    "labels_per_piece",
    "repeated_share",
    "without_label_share",
    "silent_share",
    "denial_rate",
    "hedge_rate",
)


def reward_of(config: RewardConfig) -> SubsentenceReward:
    """The reward of the image."""
    vocabulary = Vocabulary.load("coco80")
    oracle = PresenceOracle.from_objects({"1": list(PRESENT)}, labels=vocabulary.labels)
    return SubsentenceReward(vocabulary, oracle, config)


def pays() -> dict[str, dict[str, float]]:
    """Response -> setting -> sum of its rewards."""
    found: dict[str, dict[str, float]] = {name: {} for name in RESPONSES}
    for setting, config in SETTINGS.items():
        totals = reward_of(config).batch(["1"] * len(RESPONSES), list(RESPONSES.values())).total.tolist()
        for name, total in zip(RESPONSES, totals, strict=True):
            found[name][setting] = total
    return found


def behavior() -> dict[str, dict[str, float]]:
    """Response -> monitor -> value, under the settings ``discourse`` and ``answer_only``."""
    reward = reward_of(SETTINGS["`discourse`, `answer_only`"])
    return {
        name: behavior_metrics(behavior_sums(reward.batch(["1"], [response]))) for name, response in RESPONSES.items()
    }


def tables() -> str:
    """Both tables in Markdown."""
    lines = ["| response | " + " | ".join(SETTINGS) + " |", "|---|" + "---:|" * len(SETTINGS)]
    for name, own in pays().items():
        lines.append(f"| {name} | " + " | ".join(f"{value + 0.0:.2f}" for value in own.values()) + " |")
    lines += ["", "| response | " + " | ".join(f"`{name}`" for name in SHOWN) + " |", "|---|" + "---:|" * len(SHOWN)]
    for name, own in behavior().items():
        lines.append(f"| {name} | " + " | ".join(f"{own[monitor]:.2f}" for monitor in SHOWN) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables())
