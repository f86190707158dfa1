"""Every benchmark's headline figures on made-up records, against formulas written out once more in plain Python.

These need no data from elsewhere, so that a public host catches a changed formula too. The records hold what formulas
are wrong about most: answers that say neither yes nor no, labels twice in a caption, unknown cells, empty groups.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import PresenceOracle, Vocabulary

Answer = tuple[str, str, str]
"""Group, label and what is said: yes, no or neither."""

SAID = {"yes": "Yes, there is.", "no": "No.", "neither": "I cannot tell."}


def made_up(groups: Sequence[str], seed: int, n: int = 90) -> list[Answer]:
    draw = random.Random(seed)
    return [
        (draw.choice(groups), draw.choice(("yes", "no")), draw.choices(tuple(SAID), (5, 4, 2))[0]) for _ in range(n)
    ]


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def figures(answers: Sequence[Answer], *, drop: bool) -> dict[str, float | None]:
    """As any textbook has them: an answer that says neither is wrong, or left out."""
    kept = [(label, said) for _, label, said in answers if not (drop and said == "neither")]
    right = sum(label == said for label, said in kept)
    said_yes = sum(said == "yes" for _, said in kept)
    hits = sum(label == said == "yes" for label, said in kept)
    are_yes = sum(label == "yes" for label, _ in kept)
    return {
        "accuracy": share(right, len(kept)),
        "precision": share(hits, said_yes),
        "recall": share(hits, are_yes),
        "f1": share(2 * hits, said_yes + are_yes),
        "yes_ratio": share(said_yes, len(kept)),
    }


def values(run: Any) -> dict[str, float | None]:
    return {name: metric.value for name, metric in run.metrics.items()}


def approximately(expected: dict[str, float | None]) -> dict[str, Any]:
    return {name: None if value is None else pytest.approx(value, abs=1e-12) for name, value in expected.items()}


@pytest.mark.parametrize("unparsed", ["wrong", "drop"])
@pytest.mark.parametrize("seed", range(3))
def test_yes_no_answers(seed: int, unparsed: str) -> None:
    answers = made_up([""], seed)
    records = [
        {"id": f"q{k}", "image": f"{k // 4}.jpg", "label": label, "response": SAID[said]}
        for k, (_, label, said) in enumerate(answers)
    ]
    run = scapo_eval.yesno(records, unparsed=unparsed, resamples=50)
    assert values(run) == approximately(figures(answers, drop=unparsed == "drop"))


@pytest.mark.parametrize("unparsed", ["wrong", "drop"])
def test_pope(unparsed: str) -> None:
    groups = ["adversarial", "popular", "random"]
    answers = made_up(groups, seed=5)
    records = [
        {
            "id": f"{group}/{k}", "image": f"{k // 4}.jpg", "label": label, "response": SAID[said],
            "benchmark": "pope", "category": group,
        }
        for k, (group, label, said) in enumerate(answers)
    ]  # fmt: skip
    expected = figures(answers, drop=unparsed == "drop")
    for group in groups:
        own = figures([answer for answer in answers if answer[0] == group], drop=unparsed == "drop")
        expected |= {f"{group}_{name}": value for name, value in own.items()}
    for name in ("accuracy", "f1"):
        expected[f"mean_{name}"] = sum(expected[f"{group}_{name}"] or 0 for group in groups) / len(groups)
    assert values(scapo_eval.pope(records, unparsed=unparsed, resamples=50)) == approximately(expected)


def test_phd() -> None:
    modes = ["base", "sec", "icc", "ccs"]
    answers = made_up(modes, seed=7, n=160)
    records = [
        {
            "id": f"phd/{mode}/{k}/{label}", "image": f"{k // 4}.jpg", "mode": mode, "task": "object", "label": label,
            "response": SAID[said], "benchmark": "phd",
        }
        for k, (mode, label, said) in enumerate(answers)
    ]  # fmt: skip
    expected: dict[str, float] = {}
    for mode in modes:
        recalls = []
        for label in ("yes", "no"):
            own = [said for m, right, said in answers if (m, right) == (mode, label)]
            recalls.append(sum(said == label for said in own) / len(own))
        expected[f"phd_{mode}"] = 2 * recalls[0] * recalls[1] / sum(recalls)
    expected["phd_all"] = sum(expected.values()) / len(modes)
    found = values(scapo_eval.phd(records, resamples=50))
    assert {name: found[name] for name in expected} == approximately(dict(expected))


LABELS = ("cat", "dog", "tree", "sky")


def captions(seed: int) -> tuple[list[dict[str, Any]], PresenceOracle, dict[str, set[str]]]:
    """Captions of made-up words, in which a label may stand twice; ``sky`` is outside the truth's axis."""
    draw = random.Random(seed)
    truth = {str(k): {label for label in LABELS[:3] if draw.random() < 0.5} for k in range(40)}
    records = [
        {"image_id": image, "caption": " and ".join(f"a {draw.choice((*LABELS, 'thing'))}" for _ in range(5))}
        for image, _ in itertools.product(truth, range(2))
    ]
    return records, PresenceOracle.from_objects(truth, labels=LABELS[:3]), truth


@pytest.mark.parametrize("seed", range(3))
def test_captions(seed: int) -> None:
    records, oracle, truth = captions(seed)
    vocabulary = Vocabulary.from_mapping({label: [label] for label in LABELS})
    claimed = hallucinated = covered = present = mentions = wrong_mentions = wrong_captions = unknown = 0
    for record in records:
        words = [word for word in record["caption"].split() if word in LABELS[:3]]
        own = truth[record["image_id"]]
        claimed += len(set(words))
        hallucinated += len(set(words) - own)
        covered += len(set(words) & own)
        present += len(own)
        mentions += len(words)
        wrong_mentions += sum(word not in own for word in words)
        wrong_captions += bool(set(words) - own)
        unknown += "sky" in record["caption"].split()
    hal, cover = hallucinated / claimed, covered / present
    run = scapo_eval.score(records, truth=oracle, vocabulary=vocabulary, resamples=50)
    found = values(run)
    expected = {
        "hal_rate": hal,
        "cover_rate": cover,
        "cap_score": 2 * (1 - hal) * cover / (1 - hal + cover),
        "chair_i": wrong_mentions / mentions,
        "chair_s": wrong_captions / len(records),
    }
    assert {name: found[name] for name in expected} == approximately(dict(expected))
    assert run.counts["unknown"] == unknown


def test_the_reward_of_every_piece() -> None:
    records, oracle, truth = captions(seed=11)
    reward = scapo_eval.SubsentenceReward(
        Vocabulary.from_mapping({label: [label] for label in LABELS}), oracle, scapo_eval.RewardConfig(rule="sentence")
    )
    texts = [record["caption"].replace(" and a", ". A") + "." for record in records]
    for record, result in zip(records, reward([r["image_id"] for r in records], texts), strict=True):
        named: set[str] = set()
        for part, piece in zip(result.parts, result.response.split(". "), strict=True):
            words = {word for word in LABELS[:3] if word in piece.lower().strip(".").split()}
            right, wrong = words & truth[record["image_id"]], words - truth[record["image_id"]]
            new = right - named
            named |= right
            expected = -1.0 if wrong else -0.1 if not words else float(bool(new))
            assert (part.reward, part.new, part.rep, part.hal) == (
                pytest.approx(expected), len(new), len(right - new), len(wrong),
            )  # fmt: skip


def test_records_of_this_file_hold_what_formulas_are_wrong_about(tmp_path: Path) -> None:
    assert {said for _, _, said in made_up([""], 0)} == set(SAID)
    records, _, truth = captions(0)
    assert any(len(words := [w for w in r["caption"].split() if w in LABELS]) != len(set(words)) for r in records)
    assert any("sky" in r["caption"] for r in records)
    assert not all(truth.values())
