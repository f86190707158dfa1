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
        "Hal. Rate, %", "headline", True, "Share of named labels that are absent from the image; lower is better."
    ),
    "cover_rate": Quantity(
        "Cover Rate, %", "headline", True, "Share of labels in the image that the responses name; higher is better."
    ),
    "cap_score": Quantity(
        "Cap. Score, %", "headline", True, "Harmonic mean of 1 - Hal. Rate and Cover Rate; higher is better."
    ),
    "reward": Quantity("Reward per response", "headline", False, "Mean reward, which training maximizes."),
    "length": Quantity(
        "Length, tokens", "headline", False, "Mean number of tokens; it falls if the policy learns to write less."
    ),
    "kl": Quantity("KL, nats per token", "headline", False, "Divergence of the policy from the reference model."),
    "repeated_sentence_share": Quantity(
        "Repeated sentences, % of responses", "guards", True, "Responses that contain a sentence twice."
    ),
    "repeated_ngram_share": Quantity(
        "Repeated phrases, % of responses", "guards", True, "Responses with the same four words three times in a row."
    ),
    "without_claim_share": Quantity(
        "Without a claim, % of responses", "guards", True, "Responses that name no label at all."
    ),
    "truncated_share": Quantity(
        "Truncated, % of responses", "guards", True, "Responses that reached the length limit."
    ),
    "zero_reward_share": Quantity(
        "Subsentences with reward 0, %", "guards", True, "These subsentences provide no learning signal."
    ),
    "objects": Quantity("Objects per response", "guards", False, "Mean number of labels that a response names."),
    "entropy": Quantity(
        "Entropy, nats per token", "guards", False, "Entropy of the policy; near 0, the policy has collapsed."
    ),
    "pieces": Quantity(
        "Subsentences per response", "Reward", False, "Mean number of pieces into which a response is split."
    ),
    "reward_new": Quantity("Reward for new objects", "Reward", False, "Mean gain per response."),
    "reward_hal": Quantity("Reward for hallucinated objects", "Reward", False, "Mean penalty per response."),
    "reward_reg": Quantity(
        "Reward of subsentences without objects",
        "Reward",
        False,
        "Mean penalty per response for subsentences without objects.",
    ),
    "groups_without_variance": Quantity(
        "Groups without a learning signal, %",
        "Reward",
        True,
        "Groups in which all responses to the prompt have the same reward.",
    ),
    "empty_responses": Quantity("Empty responses", "Reward", False, "Number of responses without text in a step."),
    "p_end": Quantity(
        "Probability of ending, per token",
        "Update",
        False,
        "Mean probability of the end-of-sequence token at each token.",
    ),
    "grad_norm": Quantity("Gradient norm", "Update", False, "Gradient norm before clipping."),
    "gradient_snr": Quantity(
        "Squared signal-to-noise ratio of the gradient",
        "Update",
        False,
        "Estimate for one step (run.snr_every); average it over several steps.",
    ),
    "loss": Quantity("Loss", "Update", False, "Loss of the update; its absolute value is not meaningful."),
    "clip_share": Quantity("Clipped, % of tokens", "Update", True, "Tokens whose gradient was clipped."),
    "mismatch": Quantity(
        "Engine mismatch, nats per token",
        "Update",
        False,
        "Difference between the log-probabilities of the sampling engine and of the policy.",
    ),
    "updates_left_out": Quantity("Updates omitted", "Update", False, "Updates with a non-finite loss or gradient."),
    "lr": Quantity("Learning rate", "Update"),
    "tokens_per_second": Quantity("Tokens per second", "Time"),
    "mfu": Quantity(
        "Model FLOPs utilization, %", "Time", True, "Utilization during the update, on GPUs that the planner supports."
    ),
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
