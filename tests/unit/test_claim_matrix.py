"""The claim matrix: what it holds, that equal matrices give equal files, how scenes read it, and faulty files."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import ClaimExtractor, ClaimOracle, InputError, PresenceOracle, Scenes, Vocabulary
from scapo_eval.claiming.claim import KINDS, ClaimKey
from scapo_eval.files.records import Records
from scapo_eval.truths.claim_matrix import ClaimMatrix
from scapo_eval.truths.truth_matrix import npz_bytes

VOCABULARY = Vocabulary.load("open400")
CLAIMS: list[tuple[str, ClaimKey, int]] = [
    ("7", ("count", "dog", "2+", ""), 1),
    ("7", ("count", "cat", "3", ""), 0),
    ("7", ("attribute", "orange", "orange", ""), 1),
    ("7", ("relation", "dog", "on", "couch"), -1),
    ("9", ("attribute", "bus", "red", ""), 0),
    ("9", ("text", "", "STOP", ""), 1),
]


def matrix(p: list[float] | None = None, claims: list[tuple[str, ClaimKey, int]] = CLAIMS) -> ClaimMatrix:
    images, keys, states = zip(*claims, strict=True)
    probabilities = None if p is None else np.array(p, np.float32)
    return ClaimMatrix.of(
        images, keys, np.array(states, np.int8), probabilities=probabilities, vocabulary_fingerprint="abc"
    )


def test_states_return_from_the_file(tmp_path: Path) -> None:
    path, p = tmp_path / "claims.npz", [0.9, 0.1, 0.8, float("nan"), 0.2, 1.0]
    matrix(p).save(path)
    again = ClaimMatrix.load(path.read_bytes(), str(path))
    assert {image: again.states(image) for image in again.image_ids} == {
        image: {claim: state for of, claim, state in CLAIMS if of == image} for image in ("7", "9")
    }
    assert again.probabilities is not None
    assert np.array_equal(again.probabilities, np.array(p, np.float32), equal_nan=True)
    assert again.vocabulary_fingerprint == "abc"
    assert again.fingerprint == matrix(p).fingerprint != matrix().fingerprint
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    with pytest.raises(KeyError):
        again.states("8")


def scenes_of(path: Path, found: ClaimMatrix, vocabulary: Vocabulary = VOCABULARY) -> Scenes:
    found.save(path)
    return Scenes.load(path, vocabulary)


def test_the_oracle_looks_claims_up_and_can_be_pickled(tmp_path: Path) -> None:
    scenes = scenes_of(tmp_path / "claims.npz", matrix())
    oracle = ClaimOracle(VOCABULARY, scenes=(scenes,))
    extractor = ClaimExtractor(VOCABULARY, ("count", "attribute", "relation", "text"))
    texts = ["Two dogs sit on a couch. Three cats.", "A red bus.", "A blue bus."]
    claims = extractor.find_batch(texts)
    expected = [{"2": -1, "sitting": -1, "on": -1, "3": 0}, {"red": 0}, {"blue": -1}]
    for given in (oracle, pickle.loads(pickle.dumps(oracle))):
        states = given.states([7, 9, 9], claims)
        found = [
            {claim.value: state for claim, state in zip(*of, strict=True)} for of in zip(claims, states, strict=True)
        ]
        assert found == expected
    assert [oracle.evidence(9, *of) for of in claims[1:]] == ["judged: no", ""]
    (on,) = (claim for claim in claims[0] if claim.kind == "relation")
    assert oracle.evidence(7, on) == "judged: undecided"  # unsure, or a probability between the thresholds
    assert oracle.facts(7, "attribute") == frozenset()  # what is judged is no fact to cover
    assert len(scenes.scenes) == 2
    assert "8" not in scenes.scenes
    assert scenes.scenes.get("8") is None


def test_probabilities_must_be_valid_before_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"claim 3 \(image '7'\) has 1.5"):
        matrix([0, 0, 0, 1.5, 0, 0])
    faulty = replace(matrix(), probabilities=np.full(6, np.inf, np.float32))
    with pytest.raises(ValueError, match=r"claim 0 \(image '7'\) has inf"):
        faulty.save(tmp_path / "claims.npz")
    assert not (tmp_path / "claims.npz").exists()


@pytest.mark.parametrize(
    ("images", "claims", "states", "p", "reason"),
    [
        (["7"], [("count", "dog", "2", "")], [0.9], [1], "states must be 1 values, each 1, 0 or -1"),
        (["7"], [("count", "dog", "2", "")], [257], None, "each 1, 0 or -1"),
        (["7"], [("count", "dog", "2", "")], [1, 0], None, "states must be 1 values"),
        (["7", "8"], [("count", "dog", "2", "")], [1], None, "an image id for each claim"),
        (["007"], [("count", "dog", "2", "")], [1], None, "image id '007' is not canonical: use '7'"),
        (["7"], [("colour", "dog", "red", "")], [1], None, "a claim must be .* got"),
        (["7"] * 2, [("count", "dog", "2", "")] * 2, [1, 0], None, "appears twice"),
        (["7", "8", "7"], [("count", "dog", value, "") for value in "234"], [1, 0, 1], None, "an image appears twice"),
    ],
)
def test_faulty_arguments_are_refused(images: Any, claims: Any, states: Any, p: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ClaimMatrix.of(images, claims, states, probabilities=p)


def test_lists_are_arrays() -> None:
    made = ClaimMatrix.of(
        ["7", "7"], [("count", "dog", "2", ""), ("count", "cat", "1", "")], [1, 0], probabilities=[1, 0]
    )
    assert made.states("7") == {("count", "dog", "2", ""): 1, ("count", "cat", "1", ""): 0}
    assert made.chances("7") == {("count", "dog", "2", ""): 1.0, ("count", "cat", "1", ""): 0.0}


NAN = float("nan")


def test_claims_have_the_probability_of_the_source_that_decides(tmp_path: Path) -> None:
    first = scenes_of(tmp_path / "first.npz", matrix([0.9, 0.1, 0.8, 0.5, NAN, 0.7]))
    second = scenes_of(tmp_path / "second.npz", matrix([0.6, 0.6, 0.6, 0.6, 0.2, 0.6]))
    plain = Scenes.load(
        Records("plain", [{"image_id": 9, "objects": [{"name": "bus", "attributes": ["red"]}]}]), VOCABULARY
    )
    presence = PresenceOracle.from_objects({"7": ["dog"]}, labels=VOCABULARY.labels)
    extractor = ClaimExtractor(VOCABULARY, KINDS)
    texts = ["At least two dogs sit on a couch. Three cats.", "A red bus.", "A blue bus. A tree."]
    claims = extractor.find_batch(texts)
    ids = [7, "9", 9]

    def told(*scenes: Scenes, truth: PresenceOracle | None = None) -> list[dict[tuple[str, str], float]]:
        oracle = pickle.loads(pickle.dumps(ClaimOracle(VOCABULARY, truth, scenes)))
        found = oracle.probabilities(ids, claims)
        alone = [[oracle.probability(image, claim) for claim in of] for image, of in zip(ids, claims, strict=True)]
        assert all(np.array_equal(*both, equal_nan=True) for both in zip(found, alone, strict=True))
        assert [array.dtype for array in found] == [np.float64] * 3
        for array, states in zip(found, oracle.states(ids, claims), strict=True):  # those without a probability
            sure = np.isin(array, (0, 1))
            assert np.array_equal(array[sure], np.array(states)[sure])
        return [
            {
                (claim.kind, claim.value): round(chance, 6)
                for claim, chance in zip(of, array.tolist(), strict=True)
                if chance == chance
            }
            for of, array in zip(claims, found, strict=True)
        ]

    of_first = [{("count", "2+"): 0.9, ("count", "3"): 0.1, ("relation", "on"): 0.5}, {("attribute", "red"): 0.0}, {}]
    assert told(first) == of_first  # the last is false without a probability, so the probability is 0
    assert told(first, second) == of_first
    assert told(second, first) == [
        {("count", "2+"): 0.6, ("count", "3"): 0.6, ("relation", "on"): 0.6}, {("attribute", "red"): 0.2}, {},
    ]  # fmt: skip
    with_truth = told(plain, first, truth=presence)
    assert with_truth[0] == {
        ("presence", ""): 0.0, ("count", "2+"): 0.9, ("count", "3"): 0.1, ("relation", "on"): 0.5,
    }  # fmt: skip
    assert with_truth[1] == {("presence", ""): 1.0, ("attribute", "red"): 1.0}
    assert told() == [{}, {}, {}]


def test_a_bound_gives_no_probability_of_a_restricted_count_unless_it_is_false(tmp_path: Path) -> None:
    (claim,) = ClaimExtractor(VOCABULARY, ("count",)).find("Two brown dogs run.")
    assert claim.restricted
    for state, p, expected in ((1, 0.9, NAN), (0, 0.1, 0.1), (-1, 0.5, NAN)):
        told = matrix([p], [("7", ("count", "dog", "2+", ""), state)])
        oracle = ClaimOracle(VOCABULARY, scenes=(scenes_of(tmp_path / f"{state}.npz", told),))
        assert oracle.probability(7, claim) == pytest.approx(expected, nan_ok=True)
        answer = {1: "yes", 0: "no", -1: "undecided"}[state]
        assert oracle.evidence(7, claim) == f"judged: {answer} (at least 2, P(yes) {p:.2f})"


def test_a_matrix_answers_presence_if_it_has_claims_of_presence(tmp_path: Path) -> None:
    assert not scenes_of(tmp_path / "others.npz", matrix()).answers_presence
    presence: list[tuple[str, ClaimKey, int]] = [("7", ("presence", "dog", "", ""), 1)]
    assert scenes_of(tmp_path / "presence.npz", matrix(claims=presence)).answers_presence


def test_the_evidence_of_a_judge_contains_its_probability(tmp_path: Path) -> None:
    scenes = scenes_of(tmp_path / "claims.npz", matrix([0.9, 0.1, 0.8, 0.5, NAN, 0.7]))
    oracle = ClaimOracle(VOCABULARY, scenes=(scenes,))
    extractor = ClaimExtractor(VOCABULARY, ("count", "attribute", "relation"))
    claims = extractor.find_batch(["At least two dogs. A dog on a couch.", "A red bus."])
    said = [oracle.evidence(image, claim) for image, of in zip((7, 9), claims, strict=True) for claim in of]
    assert said == ["judged: yes (P(yes) 0.90)", "judged: undecided (P(yes) 0.50)", "judged: no"]


def test_labels_have_the_names_of_the_vocabulary_and_values_keep_theirs(tmp_path: Path) -> None:
    other = Vocabulary.from_mapping({"hound": ["dog"], "feline": ["cat"], "orange": ["tangerine"]})
    scenes = scenes_of(tmp_path / "claims.npz", matrix(), other)
    assert scenes.scenes["7"].answers == {
        ("count", "hound", "2+", ""): 1, ("count", "feline", "3", ""): 0, ("attribute", "orange", "orange", ""): 1,
    }  # fmt: skip
    assert scenes.scenes["9"].answers == {("text", "", "STOP", ""): 1}
    assert len(scenes.notes) == 2
    assert "made for a vocabulary with fingerprint abc; labels are matched with those of" in scenes.notes[0]
    assert "claims about objects not used, because their names are not in the vocabulary: 2" in scenes.notes[1]
    own = replace(matrix(), vocabulary_fingerprint=other.fingerprint)
    [note] = scenes_of(tmp_path / "own.npz", own, other).notes
    assert "made for" not in note
    renamed = Vocabulary.from_mapping({"tangerine": ["orange"]})
    assert scenes_of(tmp_path / "o.npz", matrix(), renamed).scenes["7"].answers == {
        ("attribute", "tangerine", "orange", ""): 1
    }


Change = Callable[[dict[str, Any]], None]


def damaged(change: Change) -> bytes:
    """Returns the file of the matrix after a change to its arrays."""
    with np.load(io.BytesIO(matrix()._bytes())) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    change(parts)
    return npz_bytes(parts)


def put(**arrays: Any) -> Change:
    return lambda parts: parts.update({name: np.asarray(array) for name, array in arrays.items()})


SIX = np.zeros(6, np.uint32)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda parts: parts.pop("state"), "missing state"),
        (put(names=np.frombuffer(b'{"format": "x"', np.uint8)), "claim matrix"),
        (put(names=np.frombuffer(b"[]", np.uint8)), "claim matrix"),
        (put(names=np.frombuffer(b'{"format":"x","images":[],"labels":[""],"values":[]}', np.uint8)), "the format is"),
        (
            put(
                names=np.frombuffer(
                    b'{"format":"scapo-claims/1","images":["7","9"],"labels":[""," "],"values":[]}', np.uint8
                )
            ),
            "the first label must be empty, and no other",
        ),
        (
            put(
                names=np.frombuffer(
                    b'{"format":"scapo-claims/1","images":["7","7"],"labels":[""],"values":[]}', np.uint8
                )
            ),
            "an image appears twice",
        ),
        (put(starts=np.array([0, 2, 5])), "'starts' does not divide"),
        (put(starts=np.array([0, 9, 6])), "'starts' does not increase"),
        (put(state=np.zeros(5, np.int8)), "another type or size"),
        (put(state=np.zeros(6, np.int64)), "another type or size"),
        (put(state=np.full(6, 3, np.int8)), "a kind or state is unknown"),
        (put(kind=np.full(6, 5, np.uint8)), "a kind or state is unknown"),
        (put(label=SIX + 99), "refers to a label that does not exist"),
        (put(other=SIX + 99), "refers to a label that does not exist"),
        (put(value=SIX + 99), "a value that does not exist"),
        (put(kind=np.ones(6, np.uint8)), "not a count"),
        (put(p=np.full(6, 2, np.float32)), "'p' must be probabilities"),
        (put(p=np.full(5, 0.5, np.float32)), "'p' must be probabilities: expected 6 float32 values"),
        (put(p=np.array([0, 1, 0, 0, -0.5, 0], np.float32)), r"probabilities: claim 4 \(image '9'\) has -0.5"),
    ],
)
def test_faulty_files_are_named(tmp_path: Path, change: Change, reason: str) -> None:
    path = tmp_path / "claims.npz"
    path.write_bytes(damaged(change))
    with pytest.raises(InputError, match=reason) as caught:
        Scenes.load(path, VOCABULARY)
    assert str(path) in str(caught.value)


def test_a_file_that_is_cut_is_named(tmp_path: Path) -> None:
    path = tmp_path / "claims.npz"
    path.write_bytes(matrix()._bytes()[:200])
    with pytest.raises(InputError, match="claim matrix"):
        Scenes.load(path, VOCABULARY)
