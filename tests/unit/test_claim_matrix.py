"""The claim matrix: what it holds, that equal matrices give equal files, how scenes read it, and faulty files."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import ClaimExtractor, ClaimOracle, InputError, Scenes, Vocabulary
from scapo_eval.claiming.claim import ClaimKey
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


def test_labels_have_the_names_of_the_vocabulary_and_values_keep_theirs(tmp_path: Path) -> None:
    other = Vocabulary.from_mapping({"hound": ["dog"], "feline": ["cat"], "orange": ["tangerine"]})
    scenes = scenes_of(tmp_path / "claims.npz", matrix(), other)
    assert scenes.scenes["7"].answers == {
        ("count", "hound", "2+", ""): 1, ("count", "feline", "3", ""): 0, ("attribute", "orange", "orange", ""): 1,
    }  # fmt: skip
    assert scenes.scenes["9"].answers == {("text", "", "STOP", ""): 1}
    assert len(scenes.notes) == 1
    assert "2 things with 2 names" in scenes.notes[0]
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
