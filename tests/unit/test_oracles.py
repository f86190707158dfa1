"""Other verifiers than a matrix, rewards and cuts of one's own: each equals the plain way where both can speak."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import InputError, PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary
from scapo_eval.rewarding.reward import Part, RewardResult
from scapo_eval.segmenting.segment import split_subsentences
from scapo_eval.truths.oracles import JudgedOracle, TableOracle

LABELS = ("dog", "cat", "car", "tree")
TRUTH = {1: ["dog", "tree"], 2: ["cat"], 3: []}
STATES = {(str(image), label): int(label in present) for image, present in TRUTH.items() for label in LABELS}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_mapping({label: [label] for label in LABELS}, name="toy")


@pytest.fixture(scope="module")
def responses() -> tuple[list[int], list[str]]:
    rng = random.Random(0)
    words = [*LABELS, "a", "the", "is", "near", "red", "old"]
    texts = [
        "".join(rng.choice(words) + rng.choice([" ", " ", " ", ", ", ". "]) for _ in range(rng.choice([0, 5, 30])))
        for _ in range(150)
    ]
    return [rng.choice(list(TRUTH)) for _ in texts], texts


def ask(image_ids: Sequence[str], labels: Sequence[str]) -> list[int]:
    """A verifier of one's own."""
    return [STATES[cell] for cell in zip(image_ids, labels, strict=True)]


class Verifier:
    """An object that knows some images."""

    fingerprint = "mine"

    def __contains__(self, image_id: object) -> bool:
        return (image_id, "dog") in STATES

    def lookup(self, image_ids: Sequence[str], labels: Sequence[str]) -> list[int]:
        return ask(image_ids, labels)


def kinds(folder: Path) -> dict[str, Any]:
    pandas = pytest.importorskip("pandas")
    table = [[STATES[str(image), label] for label in LABELS] for image in TRUTH]
    return {
        "matrix": PresenceOracle.from_matrix(np.array(table), list(TRUTH), LABELS),
        "dict of lists": TRUTH,
        "dict of values": {image: dict(zip(LABELS, row, strict=True)) for image, row in zip(TRUTH, table, strict=True)},
        "DataFrame": pandas.DataFrame(table, index=list(TRUTH), columns=LABELS),
        "DataFrame of floats": pandas.DataFrame(table, index=list(TRUTH), columns=LABELS, dtype=float),
        "list of present labels": pandas.DataFrame(
            [(image, label) for image, present in TRUTH.items() for label in present or [""]],
            columns=["image_id", "label"],
        ),
        "function": ask,
        "object": Verifier(),
        "judge": JudgedOracle(ask, folder / "answers.jsonl"),
    }


@pytest.mark.parametrize("settings", [{}, {"r_rep": 0.5, "additive": True}, {"level": "hal"}, {"level": "cap"}])
def test_every_kind_of_oracle_gives_the_same_rewards(
    vocabulary: Vocabulary, responses: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    ids, texts = responses
    config = RewardConfig(**settings)
    plain = SubsentenceReward(
        vocabulary, PresenceOracle.from_objects(TRUTH, labels=LABELS), config
    ).batch(ids, texts)  # fmt: skip
    assert len(set(plain.reward.tolist())) >= 3
    for kind, oracle in kinds(tmp_path).items():
        found = SubsentenceReward(vocabulary, oracle, config).batch(ids, texts)
        for name in ("reward", "new", "rep", "hal", "covered", "hallucinated", "unknown", "claim_verdict"):
            np.testing.assert_array_equal(getattr(found, name), getattr(plain, name), err_msg=f"{kind}: {name}")


def test_unknown_images_cells_and_signatures(vocabulary: Vocabulary) -> None:
    reward = SubsentenceReward(vocabulary, Verifier(), on_error="zero")
    assert [result.error is None for result in reward([1, 99], ["A dog.", "A dog."])] == [True, False]
    assert "|oracle:mine|world:on-demand|" in str(reward.signature)
    half = {1: {"dog": 1, "cat": None, "car": -1, "tree": float("nan")}, 2: {"dog": 0}}
    reward = SubsentenceReward(vocabulary, half)
    found = reward([1, 2], ["A dog, a cat, a car, a tree.", "A dog, a cat."])
    assert [(each.covered, each.hallucinated, each.unknown) for each in found] == [(1, 0, 3), (0, 1, 1)]
    with pytest.raises(InputError, match=r"image_ids\[0\]: unknown image id 3"):
        reward([3], ["A dog."])
    copy = pickle.loads(pickle.dumps(reward))
    assert copy([2], ["A dog."])[0].total == -1.0


def test_each_cell_is_asked_about_once_and_only_if_it_is_claimed(vocabulary: Vocabulary) -> None:
    asked: list[tuple[str, str]] = []

    def spy(image_ids: Sequence[str], labels: Sequence[str]) -> list[int]:
        asked.extend(zip(image_ids, labels, strict=True))
        return ask(image_ids, labels)

    SubsentenceReward(vocabulary, spy)([1, "1", 2], ["A dog. A dog.", "The dog and a cat.", "Nothing."])
    assert sorted(asked) == [("1", "cat"), ("1", "dog")]


@pytest.mark.parametrize(
    ("oracle", "message"),
    [
        (7, "an oracle must be a file, a PresenceOracle, a mapping, .*, not int"),
        ("truth.json", r"truth.json: file not found"),
        (lambda images, labels: [2.0] * len(images), r"image 1, label 'dog': 2 is not in \[0, 1\]"),
        (lambda images, labels: [1.0], "expected 2 values, one per cell, got shape"),
        (lambda images, labels: ["yes"] * len(images), "expected a number per cell, got"),
        ({1: {"dog": 1}, 2: ["cat"]}, r"image 2: expected \{label: value\}"),
        ({1: {"dog": 1}, "0001": {"dog": 0}}, "image id '1' appears twice"),
        ({1: {"dog": 1.5}}, r"image 1, label 'dog': 1.5 is not in \[0, 1\]"),
    ],
)
def test_wrong_kinds_are_named(vocabulary: Vocabulary, oracle: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SubsentenceReward(vocabulary, oracle)([1], ["A dog and a cat."])


# ---- soft truth ----


PLAIN = "A dog and a cat are near here. The car is red and old today. A dog is near the car. Nothing else is here."
CHARGED = 'A carr is here. Is there a dog in it? It says "cat". A dog and a carr are here. The car is old. A treee.'


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (PLAIN, {}),
        (PLAIN, {"r_rep": 0.3, "lam_g": "linear", "lam_h": "sqrt"}),
        (PLAIN, {"additive": True, "r_rep": 0.3, "lam_g": "sqrt", "lam_h": "linear"}),
        (PLAIN, {"level": "hal"}),
        (CHARGED, {"claims": "visual", "near_misses": True, "r_rep": 0.3, "lam_g": "linear", "lam_h": "sqrt"}),
        (CHARGED, {"claims": "visual", "near_misses": True, "r_rep": 0.3, "additive": True, "lam_h": "linear"}),
    ],
)
def test_soft_truth_gives_the_expectation_over_all_worlds(
    vocabulary: Vocabulary, text: str, settings: dict[str, Any]
) -> None:
    """By enumeration: the reward in each of the 16 possible images, weighted by its probability."""
    probabilities = dict(zip(LABELS, (0.9, 0.25, 0.5, 0.0), strict=True))
    config = RewardConfig(**settings)
    expected: Any = 0.0
    for world in product((0, 1), repeat=4):
        weight = np.prod([p if present else 1 - p for p, present in zip(probabilities.values(), world, strict=True)])
        if weight:
            labels = [label for label, present in zip(LABELS, world, strict=True) if present]
            oracle = PresenceOracle.from_objects({1: labels}, labels=LABELS)
            expected = expected + weight * SubsentenceReward(vocabulary, oracle, config).batch([1], [text]).reward
    found = SubsentenceReward(vocabulary, {1: probabilities}, config).batch([1], [text])
    np.testing.assert_allclose(found.reward, expected, rtol=1e-12)
    likely = PresenceOracle.from_objects({1: ["dog", "car"]}, labels=LABELS)  # 1/2 and more counts as present
    certain = SubsentenceReward(vocabulary, likely, config).batch([1], [text])
    for name in ("covered", "hallucinated", "new", "rep", "hal", "claim_label", "claim_verdict"):
        np.testing.assert_array_equal(getattr(found, name), getattr(certain, name))


def test_soft_truth_has_no_cap_score(vocabulary: Vocabulary) -> None:
    with pytest.raises(InputError, match="level='cap' requires an oracle that returns 1 and 0, not probabilities"):
        SubsentenceReward(vocabulary, {1: {"dog": 0.5}}, RewardConfig(level="cap"))([1], ["A dog."])


# ---- the judge ----


def test_a_judge_is_asked_once_and_resumes(tmp_path: Path) -> None:
    path, asked = tmp_path / "answers.jsonl", list[tuple[str, str]]()

    def judge(image_ids: Sequence[str], labels: Sequence[str]) -> list[float | None]:
        asked.extend(zip(image_ids, labels, strict=True))
        return [None if label == "car" else ask([image], [label])[0] for image, label in asked[-len(labels) :]]

    truth = PresenceOracle.from_objects({1: ["dog"]}, labels=["dog"])
    oracle = JudgedOracle(judge, path, truth=truth)
    assert oracle.lookup(["1", "1", "2", "1"], ["dog", "tree", "car", "tree"]) == [1, 1, -1, 1]
    assert asked == [("1", "tree"), ("2", "car")]  # the truth knows the dog
    with path.open("ab") as stream:
        stream.write(b'{"image_id": "2", "la')  # a killed process
    again = JudgedOracle(judge, path, truth=truth)
    assert again.lookup(["1", "2", "2"], ["tree", "car", "cat"]) == [1, -1, 1]
    assert asked[2:] == [("2", "cat")]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["image_id"], row["label"], row["value"]) for row in rows] == [
        ("1", "tree", 1.0),
        ("2", "car", None),
        ("2", "cat", 1.0),
    ]
    assert len(JudgedOracle(judge, path)) == 3
    path.write_text('{"image_id": "1"}\n')
    with pytest.raises(InputError, match=r"answers.jsonl:1: not a valid answer of a judge"):
        JudgedOracle(judge, path)
    with pytest.raises(InputError, match="cannot be written"):
        JudgedOracle(judge, tmp_path / "none" / "answers.jsonl").lookup(["1"], ["dog"])


def test_a_judge_is_not_asked_about_names_that_the_truth_knows(tmp_path: Path) -> None:
    asked = list[tuple[str, str]]()

    def judge(image_ids: Sequence[str], labels: Sequence[str]) -> list[float]:
        asked.extend(zip(image_ids, labels, strict=True))
        return [1.0] * len(labels)

    genome = tmp_path / "objects.json"
    genome.write_text('[{"image_id": 7, "objects": [{"names": ["sofa"]}, {"names": ["puppy"]}]}]')
    named = SubsentenceReward("coco80", JudgedOracle(judge, tmp_path / "a", truth=PresenceOracle.load(genome)))
    assert [result.total for result in named([7, 7], ["A dog on a couch.", "A bus."])] == [1, -1]
    assert asked == []
    truth = PresenceOracle.from_matrix([[1, 0]], ["val/cat.jpg"], ["dog", "bus"])
    reward = SubsentenceReward("coco80", JudgedOracle(judge, tmp_path / "b", truth=truth))
    assert [result.total for result in reward(["cat", "cat"], ["A dog. A bus.", "A kite."])] == [0, 1]
    assert asked == [("cat", "kite")]
    assert named.signature != reward.signature


def test_a_cell_is_asked_about_once_per_batch(vocabulary: Vocabulary) -> None:
    asked: list[tuple[str, str]] = []

    def spy(image_ids: Sequence[str], labels: Sequence[str]) -> list[int]:
        asked.extend(zip(image_ids, labels, strict=True))
        return ask(image_ids, labels)

    text = 'A carr. Is there a cat? "Tree", it says. A dog, a car and a cat.'
    for config in (RewardConfig.robust(), RewardConfig(level="cap")):
        SubsentenceReward(vocabulary, spy, config)([1, 1], [text, text])
        assert sorted(asked) == [("1", label) for label in sorted(LABELS)]
        asked.clear()


def test_a_table_with_a_row_per_image(vocabulary: Vocabulary) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"image_id": [1, 2], "dog": [1, 0], "cat": [0, 1]})
    rewards = SubsentenceReward(vocabulary, frame)([1, 2], ["A dog.", "A dog."])
    assert [result.total for result in rewards] == [1, -1]
    soft = SubsentenceReward(vocabulary, frame.assign(dog=[0.8, 0.0]))([1], ["A dog."])
    assert soft[0].total == pytest.approx(0.6)
    reordered = frame.iloc[::-1]
    [first, second] = SubsentenceReward(vocabulary, frame)(reordered["image_id"], ["A cat.", "A dog."])
    assert (first.total, first.image_id, second.image_id) == (1, 2, 1)


def test_a_table_has_a_fingerprint_of_its_content() -> None:
    one, same, other = (TableOracle.from_mapping({1: {"dog": value}}) for value in (0.5, 0.5, 0.6))
    assert one.fingerprint == same.fingerprint != other.fingerprint


# ---- rewards and cuts of one's own ----


def longer_is_worse(result: RewardResult, part: Part) -> float:
    return part.reward - 0.01 * (part.end - part.start)


def brevity(result: RewardResult) -> float:
    return -0.5 if len(result.response) > 20 else 0.25


def at_commas(text: str) -> list[int]:
    return [k + 1 for k, character in enumerate(text[:-1]) if character == ","]


def test_a_reward_of_one_s_own_per_piece_and_per_response(vocabulary: Vocabulary) -> None:
    texts = ["A dog.", "A cat is near the old car. A tree is here.", ""]
    plain = SubsentenceReward(vocabulary, TRUTH)([1, 1, 1], texts)
    own = SubsentenceReward(vocabulary, TRUTH, RewardConfig(piece_reward=longer_is_worse, response_reward=brevity))
    found = pickle.loads(pickle.dumps(own))([1, 1, 1], texts)
    for before, after in zip(plain, found, strict=True):
        assert [part.reward for part in after.parts] == [
            part.reward - 0.01 * (part.end - part.start) + brevity(after) for part in before.parts
        ]
    assert found[1].image_id == 1
    advantages = found[0].token_advantages([(0, 5), (5, 6), (6, 6)])
    assert advantages.tolist() == [np.float32(1 - 0.06 + 0.25)] * 2 + [0.0]
    assert "|piece_reward:longer_is_worse|response_reward:brevity|" in str(own.signature)


def test_a_segmentation_rule_of_one_s_own(vocabulary: Vocabulary, responses: Any) -> None:
    reward = SubsentenceReward(vocabulary, TRUTH, RewardConfig(rule=at_commas))
    result = reward([1], ["a dog,a cat, the tree,"])[0]
    assert [(part.start, part.end, part.reward) for part in result.parts] == [(0, 6, 1.0), (6, 12, -1.0), (12, 22, 1.0)]
    assert "|rule:at_commas|" in str(reward.signature)

    def as_before(text: str) -> list[int]:
        return [piece.start for piece in split_subsentences(text)[1:]]

    ids, texts = responses
    found = SubsentenceReward(vocabulary, TRUTH, RewardConfig(rule=as_before)).batch(ids, texts)
    np.testing.assert_array_equal(found.reward, SubsentenceReward(vocabulary, TRUTH).batch(ids, texts).reward)


@pytest.mark.parametrize("cuts", [[0], [6], [3, 2], [2, 2], [1.5], ["x"], [True]])
def test_wrong_cuts_are_named(vocabulary: Vocabulary, cuts: Any) -> None:
    reward = SubsentenceReward(vocabulary, TRUTH, RewardConfig(rule=lambda text: cuts))
    with pytest.raises(InputError, match=r"response 0: the rule's cuts: expected rising offsets inside the text of 6"):
        reward([1], ["a dog."])


def test_wrong_functions_are_named(vocabulary: Vocabulary) -> None:
    with pytest.raises(InputError, match="piece_reward must be a function, got 1"):
        RewardConfig(piece_reward=1)  # type: ignore[arg-type]
    for value in ("x", None, float("nan")):
        with pytest.raises(InputError, match="response_reward must return a finite number, got"):
            SubsentenceReward(vocabulary, TRUTH, RewardConfig(response_reward=lambda result, v=value: v))(
                [1], ["A dog."]
            )
    with pytest.raises(InputError, match="piece_reward must return a finite number"):
        SubsentenceReward(vocabulary, TRUTH, RewardConfig(piece_reward=lambda result, part: "x"))([1], ["A dog."])


@pytest.mark.parametrize("r_reg", [0, 1])
def test_whole_coefficients_do_not_make_rewards_whole(r_reg: int) -> None:
    """Probabilities of the oracle give fractional rewards, whatever the type of the coefficients."""
    truth = {"1": {"dog": 0.9, "bench": 0.6, "cat": 0.2}}
    text = "A dog stands in the light. A cat and a bench are here. It is warm."
    found = SubsentenceReward("coco80", truth, RewardConfig(r_reg=r_reg))(["1"], [text])[0]
    floats = SubsentenceReward("coco80", truth, RewardConfig(r_reg=float(r_reg)))(["1"], [text])[0]
    assert [part.reward for part in found.parts] == [part.reward for part in floats.parts]
    assert [part.reward for part in found.parts] == pytest.approx([0.9 - 0.1, 0.2 * 0.6 - (1 - 0.2 * 0.6), -r_reg])
    with_r_h = RewardConfig(r_reg=r_reg, r_h=0.5)
    absent = SubsentenceReward("coco80", lambda images, labels: [label == "dog" for label in labels], with_r_h)
    assert [part.reward for part in absent(["1"], ["A dog is here. A cat is here."])[0].parts] == [1.0, -0.5]


def test_probabilities_of_other_labels_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match="no label of this ground truth is in the vocabulary 'coco80'; did you mean"):
        SubsentenceReward("coco80", {"1": {"puppy": 0.9}})
    SubsentenceReward("coco80", {"1": {"puppy": 0.9, "dog": 0.5}})
    assert "1 labels of the ground truth are not in the vocabulary 'coco80' and are ignored (1 entries)" in caplog.text
