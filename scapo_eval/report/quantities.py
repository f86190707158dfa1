"""Titles, groups and explanations of the quantities that a training run logs (``metrics.jsonl``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

HELD_OUT, SECONDS = "evaluation_", "seconds_"


class Quantity(NamedTuple):
    """Description that is used to display a logged quantity.

    Attributes:
        title: Title of the quantity, including the unit.
        group: Name of the group in which the quantity is displayed. ``headline`` is displayed first, next to
            ``guards``.
        percent: True if the quantity is a fraction that is displayed in percent.
        meaning: Explanation of the quantity in one sentence.
    """

    title: str
    group: str
    percent: bool = False
    meaning: str = ""


_KNOWN = {
    "hal_rate": Quantity(
        "Hal. Rate, %", "headline", True, "Named labels that are not in the image, of all named; less is better."
    ),
    "cover_rate": Quantity(
        "Cover Rate, %", "headline", True, "Labels in the image that the responses name; more is better."
    ),
    "cap_score": Quantity(
        "Cap. Score, %", "headline", True, "Harmonic mean of 1 - Hal. Rate and Cover Rate; more is better."
    ),
    "reward": Quantity("Reward per response", "headline", False, "What the responses were trained for, on average."),
    "length": Quantity("Length, tokens", "headline", False, "Tokens of a response; falls where a policy says less."),
    "kl": Quantity("KL, nats per token", "headline", False, "How far the policy has moved from the reference."),
    "repeated_sentence_share": Quantity(
        "Repeated sentences, % of responses", "guards", True, "Responses that say a sentence twice."
    ),
    "repeated_ngram_share": Quantity(
        "Repeated phrases, % of responses", "guards", True, "Responses with the same four words three times in a row."
    ),
    "without_claim_share": Quantity(
        "Without a claim, % of responses", "guards", True, "Responses that name no label at all."
    ),
    "truncated_share": Quantity(
        "Cut off, % of responses", "guards", True, "Responses that reached the longest length without an end."
    ),
    "zero_reward_share": Quantity("Subsentences with reward 0, %", "guards", True, "They teach nothing."),
    "objects": Quantity("Objects per response", "guards", False, "Labels that a response names."),
    "entropy": Quantity("Entropy, nats per token", "guards", False, "How undecided the policy is; a collapse is 0."),
    "pieces": Quantity("Subsentences per response", "Reward", False, "How many pieces a response is cut into."),
    "reward_new": Quantity("Reward for new objects", "Reward", False, "The gain, per response."),
    "reward_hal": Quantity("Reward for invented objects", "Reward", False, "The penalty, per response."),
    "reward_reg": Quantity("Reward of subsentences without objects", "Reward", False, "Their price, per response."),
    "groups_without_variance": Quantity(
        "Groups that teach nothing, %", "Reward", True, "Groups of responses to one prompt that all have one reward."
    ),
    "empty_responses": Quantity("Empty responses", "Reward", False, "Responses without any text, in a step."),
    "p_end": Quantity("Probability of the end, per token", "Update", False, "Of ending the response at each token."),
    "grad_norm": Quantity("Gradient norm", "Update", False, "Before clipping."),
    "loss": Quantity("Loss", "Update", False, "Of the update; its level means little."),
    "clip_share": Quantity("Clipped, % of tokens", "Update", True, "Tokens whose gradient the clip cut off."),
    "mismatch": Quantity(
        "Engine mismatch, nats per token", "Update", False, "Between the sampling engine's and the policy's."
    ),
    "updates_left_out": Quantity("Updates omitted", "Update", False, "Loss or gradient were not finite."),
    "lr": Quantity("Learning rate", "Update"),
    "tokens_per_second": Quantity("Tokens per second", "Time"),
    "mfu": Quantity("Model FLOPs utilization, %", "Time", True, "Of the update, on GPUs that the planner knows."),
}
HEADLINE = tuple(name for name, known in _KNOWN.items() if known.group == "headline")
GROUPS = ("headline", "guards", "Held-out images", "Reward", "Update", "Time", "Others")


def quantity(name: str) -> Quantity:
    """Returns the description of a quantity for a key of ``metrics.jsonl``. For an unknown key, the title is the key
    itself.
    """
    if name.startswith(HELD_OUT):
        known = quantity(name.removeprefix(HELD_OUT))
        return known._replace(title=f"Held out: {known.title}", group="Held-out images")
    if name.startswith(SECONDS):
        return Quantity(f"Seconds: {name.removeprefix(SECONDS).replace('_', ' ')}", "Time")
    return _KNOWN.get(name, Quantity(name, "Others"))


def by_group(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Returns the names of the quantities in each group. Groups are in the order of ``GROUPS``, and the names within a
    group are in the order of this module's table of quantities. Groups without quantities are omitted.
    """
    order = {name: k for k, name in enumerate(_KNOWN)}
    wanted = sorted(dict.fromkeys(names), key=lambda name: order.get(name.removeprefix(HELD_OUT), len(order)))
    members_of = {group: [name for name in wanted if quantity(name).group == group] for group in GROUPS}
    return [(group, members) for group, members in members_of.items() if members]
