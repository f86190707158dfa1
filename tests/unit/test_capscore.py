"""Cap. Score and its parts: the paper's arithmetic (SPEC section 6) and the definitions as plain loops over sets."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, InputErrors, PresenceOracle, ScapoError, Vocabulary, cap_score, score_captions
from scapo_eval.benchmarks.capscore import capscore_metrics, caption_counts, score_file
from scapo_eval.truths.oracle import Truth

LABELS = ["dog", "cat", "car", "bus", "tree", "sky"]
VOCABULARY = Vocabulary.from_mapping({label: [label, f"{label}s"] for label in LABELS}, name="six")
WORDS = [*LABELS, *(f"{label}s" for label in LABELS), "a", "the", "on", "and"]


@pytest.mark.parametrize(
    ("hal", "cover", "score"),
    [
        (15.1, 64.3, 73.2),
        (11.8, 50.5, 64.2),
        (4.9, 64.0, 76.5),
        (13.4, 73.7, 79.6),
        (9.4, 69.6, 78.7),
        (4.8, 73.2, 82.8),
        (13.9, 78.8, 82.3),
        (11.6, 52.0, 65.5),
        (4.6, 66.1, 78.1),
    ],
)
def test_the_papers_cap_scores(hal: float, cover: float, score: float) -> None:
    assert round(100 * cap_score(hal / 100, cover / 100), 1) == score


@pytest.mark.parametrize(
    ("hal", "cover", "score"),
    [(1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (0.5, 0.5, 0.5), (1, 0, 0.0)],
)
def test_corners(hal: float, cover: float, score: float) -> None:
    found = cap_score(hal, cover)
    assert found == score
    assert type(found) is float


@pytest.mark.parametrize("rates", [(-0.1, 0.5), (0.5, 1.1), (15.1, 64.3), (float("nan"), 0.5), (0.5, float("inf"))])
def test_rates_are_fractions(rates: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must be a fraction in"):
        cap_score(*rates)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_harmonic_mean_lies_between_its_terms(hal: float, cover: float) -> None:
    assert min(1 - hal, cover) - 1e-12 <= cap_score(hal, cover) <= max(1 - hal, cover) + 1e-12


# ---- the definitions, by sets ----


def by_sets(records: Sequence[Mapping[str, Any]], states: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Every count from whole words split at spaces: 1 present, 0 absent, -1 unknown."""
    names = ["captions", "generated", "hallucinated", "covered", "truth", "mentions"]
    counts = dict.fromkeys([*names, "hallucinated_mentions", "hallucinated_captions", "unknown"], 0)
    for record in records:
        cells = states[record["image_id"]]
        said = [word.removesuffix("s") if word != "bus" else word for word in record["caption"].split()]
        said = [word for word in said if word in LABELS]
        false_mentions = [word for word in said if cells[word] == 0]
        counts["captions"] += 1
        counts["covered"] += len({word for word in said if cells[word] == 1})
        counts["hallucinated"] += len(set(false_mentions))
        counts["generated"] += len({word for word in said if cells[word] >= 0})
        counts["unknown"] += len({word for word in said if cells[word] == -1})
        counts["truth"] += sum(state == 1 for state in cells.values())
        counts["mentions"] += sum(cells[word] >= 0 for word in said)
        counts["hallucinated_mentions"] += len(false_mentions)
        counts["hallucinated_captions"] += bool(false_mentions)
    return counts


def random_world(seed: int) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]], PresenceOracle]:
    rng = random.Random(seed)
    states = {f"i{k}": {label: rng.choice([1, 1, 0, 0, 0, -1]) for label in LABELS} for k in range(25)}
    records = [
        {"image_id": rng.choice(list(states)), "caption": " ".join(rng.choices(WORDS, k=rng.randrange(12)))}
        for _ in range(120)
    ]
    matrix = np.array([[states[image][label] for label in LABELS] for image in states], dtype=np.int8)
    rows, columns = np.nonzero(matrix == 1)
    oracle = PresenceOracle(
        source="matrix",
        world="total",
        image_ids=tuple(states),
        labels=tuple(LABELS),
        indptr=np.searchsorted(rows, np.arange(len(states) + 1)),
        label_ids=columns.astype(np.int32),
        unknown=np.argwhere(matrix == -1),
    )
    return records, states, oracle


@pytest.mark.parametrize("seed", range(8))
def test_counts_and_figures_equal_a_loop_over_sets(seed: int) -> None:
    records, states, oracle = random_world(seed)
    scores = score_captions(records, VOCABULARY, oracle)
    expected = by_sets(records, states)
    assert scores.table.counts() == expected
    assert scores.counts == {**expected, "skipped": 0, "unknown_images": 0}
    assert scores.n_records == 120
    assert scores.n_images == len({record["image_id"] for record in records})
    hal, cover = expected["hallucinated"] / expected["generated"], expected["covered"] / expected["truth"]
    assert scores.hal_rate == pytest.approx(hal, abs=1e-15)
    assert scores.cover_rate == pytest.approx(cover, abs=1e-15)
    assert scores.cap_score == pytest.approx(cap_score(hal, cover), abs=1e-15)
    assert scores.chair_i == pytest.approx(expected["hallucinated_mentions"] / expected["mentions"], abs=1e-15)
    assert scores.chair_s == pytest.approx(expected["hallucinated_captions"] / 120, abs=1e-15)


def test_rows_are_per_caption() -> None:
    records, states, oracle = random_world(99)
    truth = Truth.of(oracle, VOCABULARY)
    mentions = AliasMatcher(VOCABULARY).find_batch([record["caption"] for record in records])
    rows = caption_counts(mentions, truth.rows(record["image_id"] for record in records), truth)
    names = capscore_metrics().columns
    for record, row in zip(records, rows.tolist(), strict=True):
        assert dict(zip(names, row, strict=True)) == by_sets([record], states)


TRUTH = PresenceOracle.from_objects({"1": ["dog", "car"], "2": []}, labels=["dog", "cat", "car", "bus", "tree"])


def score(*captions: tuple[str, str]) -> Any:
    return score_captions([{"image_id": i, "caption": c} for i, c in captions], VOCABULARY, TRUTH)


def test_sets_for_hal_rate_and_mentions_for_chair() -> None:
    scores = score(("1", "dog dog dog cat cat cat cat bus"))
    assert scores.counts["generated"] == 3
    assert scores.hal_rate == pytest.approx(2 / 3)
    assert scores.chair_i == 5 / 8
    assert scores.chair_s == 1.0
    assert scores.cover_rate == 0.5


def test_several_captions_of_one_image_are_several_samples() -> None:
    scores = score(("1", "dog"), ("000000000001", "dog"), ("COCO_val2014_000000000001.jpg", "cat"))
    assert (scores.n_records, scores.n_images) == (3, 1)
    assert scores.counts["truth"] == 6
    assert scores.cover_rate == 2 / 6
    assert scores.hal_rate == 1 / 3


def test_labels_outside_the_axis_are_unknown_and_count_nowhere() -> None:
    scores = score(("1", "sky sky"), ("1", "dog sky"))
    assert scores.counts["unknown"] == 2
    assert scores.counts["generated"] == scores.counts["mentions"] == scores.counts["covered"] == 1
    assert scores.hal_rate == scores.chair_i == scores.chair_s == 0.0


def test_a_zero_denominator_is_no_value() -> None:
    nothing_said = score(("1", "sky and grass"))
    assert (nothing_said.hal_rate, nothing_said.chair_i, nothing_said.cap_score) == (None, None, None)
    assert (nothing_said.cover_rate, nothing_said.chair_s) == (0.0, 0.0)
    nothing_true = score(("2", "a dog"))
    assert (nothing_true.cover_rate, nothing_true.cap_score) == (None, None)
    assert nothing_true.hal_rate == 1.0
    all_wrong = score(("1", "a cat"))
    assert (all_wrong.hal_rate, all_wrong.cover_rate, all_wrong.cap_score) == (1.0, 0.0, 0.0)


def test_truth_labels_outside_the_vocabulary_are_dropped_and_named_once() -> None:
    oracle = PresenceOracle.from_objects({"1": ["dog", "cra", "zebra"], "2": ["zebra", "cat"]})
    scores = score_captions(
        [{"image_id": 1, "caption": "a dog"}, {"image_id": 2, "caption": "a cat"}], VOCABULARY, oracle
    )
    assert scores.counts["truth"] == 2
    assert scores.cover_rate == 1.0
    warnings = [text for text in scores.notes if "are ignored" in text]
    assert len(warnings) == 1
    assert "2 labels of the ground truth are not in the vocabulary 'six'" in warnings[0]
    assert "3 entries" in warnings[0]


def test_a_close_name_is_suggested() -> None:
    vocabulary = Vocabulary.from_mapping({"couch": ["couch", "sofa"], "dog": ["dog"]})
    oracle = PresenceOracle.from_objects({"1": ["sofas", "dog"]})
    (warning,) = score_captions([{"image_id": 1, "caption": "a dog"}], vocabulary, oracle).notes
    assert "did you mean 'couch' for 'sofas'?" in warning


@pytest.mark.parametrize("objects", [{"1": ["zebra", "doge"]}, {"1": []}])
def test_a_truth_that_the_vocabulary_does_not_know_is_an_error(objects: dict[str, list[str]]) -> None:
    oracle = PresenceOracle.from_objects(objects)
    with pytest.raises(ScapoError, match="no label of this ground truth is in the vocabulary 'six'"):
        score_captions([{"image_id": 1, "caption": "a dog"}], VOCABULARY, oracle)


def test_claims_that_an_open_map_never_lists_are_named() -> None:
    oracle = PresenceOracle.from_objects({"1": ["dog"], "2": ["car"]})
    scores = score_captions([{"image_id": 1, "caption": "a dog under the sky"}], VOCABULARY, oracle)
    assert scores.hal_rate == 0.5
    assert any("'sky'" in text and "does not state its label set" in text for text in scores.notes)


def test_inline_objects_are_the_truth() -> None:
    records = [
        {"image_id": 1, "caption": "a dog and a cat", "objects": ["dog"]},
        {"image_id": "1", "caption": "a dog", "objects": ["dog"]},
        {"image_id": 2, "caption": "a bus", "objects": ["bus", "car"]},
    ]
    scores = score_captions(records, VOCABULARY)
    assert scores.counts["covered"] == 3
    assert scores.counts["hallucinated"] == 1
    assert scores.counts["truth"] == 4


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{"caption": "a"}], "records:1: missing key 'image_id'"),
        ([{"image_id": 1}], "records:1: missing key 'caption'"),
        ([{"image_id": 1, "caption": None}], "records:1: 'caption' must be a string, found null"),
        ([{"image_id": 1, "caption": ["a", "b"]}], "several captions for one image"),
        ([{"image_id": 1.5, "caption": "a"}], "'image_id' must be a whole number"),
        ([{"image_id": float("nan"), "caption": "a"}], "'image_id' must be a number or a string, not nan"),
        ([{"image_id": "", "caption": "a"}], "'image_id' is an empty string"),
        ([{"image_id": True, "caption": "a"}], "'image_id' must be a number or a string"),
        ([{"image_id": 77, "caption": "a"}], "unknown image id '77'"),
        (
            [{"image_id": 1, "caption": "a", "id": 3}, {"image_id": 2, "caption": "a", "id": 3}],
            "records:2: the same id appears twice \\(lines 1",
        ),
        ([], "no caption"),
    ],
)
def test_records_that_cannot_be_scored(records: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(ScapoError, match=reason):
        score_captions(records, VOCABULARY, TRUTH)


@pytest.mark.parametrize("objects", ["dog", 5, {"dog": 1}, [1], [["dog"]]])
def test_inline_objects_that_are_none(objects: Any) -> None:
    records = [{"image_id": 1, "caption": "a dog", "objects": objects}]
    with pytest.raises(ScapoError, match="records:1: 'objects' must be a list of strings"):
        score_captions(records, VOCABULARY)


def test_a_record_that_is_no_mapping() -> None:
    with pytest.raises(InputErrors, match="records:1: expected a JSON object, found an array"):
        score_captions([["1", "a dog"]], VOCABULARY, TRUTH)  # type: ignore[list-item]


def test_unknown_images_can_be_skipped_and_are_counted() -> None:
    records = [{"image_id": 1, "caption": "a dog"}, {"image_id": 77, "caption": "a dog"}]
    scores = score_captions(records, VOCABULARY, TRUTH, skip_unknown_images=True)
    assert (scores.n_records, scores.counts["unknown_images"]) == (1, 1)
    assert "skip:1" in scores.signature


def test_the_signature_names_what_decides_the_figures() -> None:
    base = score(("1", "a dog")).signature
    assert str(base).startswith(f"capscore|vocab:six@{VOCABULARY.fingerprint}|oracle:{TRUTH.fingerprint}|world:closed|")
    assert "|n:1|" in base
    assert base == score(("000000000001", "a cat")).signature  # the text is not in it
    assert base != score(("2", "a dog")).signature
    records = [{"image_id": 1, "caption": "a dog"}]
    assert base != score_captions(records, VOCABULARY, TRUTH, seed=1).signature
    assert base != score_captions(records, VOCABULARY, TRUTH, resamples=10).signature


def test_dagger_figures_are_the_same_against_a_second_vocabulary_and_matrix(tmp_path: Any) -> None:
    second = Vocabulary.from_mapping({"animal": ["dog", "cat"], "sky": ["sky"]}, name="second")
    matrix = PresenceOracle.from_objects({"1": ["animal", "sky"], "2": ["sky"]}, labels=["animal", "sky"])
    path = tmp_path / "captions.jsonl"
    path.write_text('{"image_id": 1, "caption": "a dog and a cat"}\n{"image_id": 2, "caption": "a dog in the sky"}\n')
    both = score_file(path, VOCABULARY, TRUTH, dagger=Truth.of(matrix, second))
    alone = score_file(path, second, matrix)
    for name in ("hal_rate", "cover_rate", "cap_score"):
        assert both.values[f"{name}_dagger"] == alone.values[name]
        assert both.values[name] == score_file(path, VOCABULARY, TRUTH).values[name]
    assert both.values["hal_rate_dagger"] == 1 / 3
    assert both.values["cover_rate_dagger"] == 2 / 3
    assert f"second@{second.fingerprint}" in both.signature
    assert set(both.values) == set(capscore_metrics(dagger=True).formulas)


def test_score_file_and_score_captions_agree(tmp_path: Any) -> None:
    import orjson

    records, _, oracle = random_world(5)
    path = tmp_path / "captions.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(record) for record in records))
    from_file, in_memory = score_file(path, VOCABULARY, oracle), score_captions(records, VOCABULARY, oracle)
    assert from_file.values == in_memory.values
    assert from_file.metrics == in_memory.metrics
    assert from_file.signature == in_memory.signature


def test_labels_without_any_truth_are_counted_for_both_truths() -> None:
    known = (
        "dog",
        "cat",
        "car",
        "tree",
        "person",
        "bicycle",
        "bus",
        "chair",
        "couch",
        "bench",
        "book",
        "bottle",
        "cup",
    )
    known += ("bowl", "apple", "pizza", "clock", "umbrella")
    oracle = PresenceOracle.from_objects({1: ["dog"]}, labels=known)
    captions = [{"image_id": 1, "caption": "A dog by a fence."}]
    (note,) = score_captions(captions, "dopa160", oracle).notes
    assert (
        "142 of 160 labels of the vocabulary 'dopa160' have no ground truth, so mentions of them do not count" in note
    )
    assert not score_captions(captions, Vocabulary.from_mapping({"dog": ["dog"]}), oracle).notes
