"""References as truth and as weights: what is present, unknown and absent, what each label weighs, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from math import log1p
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import scapo_eval
from scapo_eval import InputError, InputErrors, PresenceOracle, Vocabulary
from scapo_eval.benchmarks.people import CARDS, SHORT, SMOOTHING, UNNAMED, word_scores
from scapo_eval.cli.main import cli
from scapo_eval.files.records import Records
from scapo_eval.matching.words import content_words, stem, tokens
from scapo_eval.readers.formats import recognize_file
from scapo_eval.truths.references import (
    WEIGHT_UNIT,
    Beside,
    References,
    ReferenceWords,
    given_weights,
    reference_truth,
)

TEXTS = {
    "1": ["A dog sleeps on a couch.", "A brown dog indoors.", "A dog.", "An animal, no cat."],
    "2": ["A man rides a bicycle.", "A man rides a bicycle."],
    "3": ["A cat."],
}


@pytest.fixture
def references() -> References:
    return References.of_records(
        enumerate(({"image_id": image, "references": texts} for image, texts in TEXTS.items()), 1), "refs"
    )


@pytest.fixture(scope="module")
def coco80() -> Vocabulary:
    return Vocabulary.load("coco80")


def state(truth: object, image: str, label: str) -> int:
    return truth.oracle.state(image, label)  # type: ignore[attr-defined]


def test_named_is_present_with_its_share_unnamed_unknown_denied_absent(
    references: References, coco80: Vocabulary
) -> None:
    truth = reference_truth(references, coco80)
    assert state(truth, "1", "dog") == 1
    assert state(truth, "1", "couch") == 1
    assert state(truth, "1", "cat") == 0  # the fourth denies it
    assert state(truth, "1", "horse") == -1
    row = truth.index["1"]
    weights = {label: int(truth.weights[row, k]) for label, k in coco80.label_ids.items() if truth.weights[row, k]}
    assert weights == {"dog": 3 * WEIGHT_UNIT // 4, "couch": WEIGHT_UNIT // 4}
    closed = reference_truth(references, coco80, unnamed="absent")
    assert state(closed, "1", "horse") == 0


def test_another_truth_says_what_is_absent_and_references_add_to_it(references: References, coco80: Vocabulary) -> None:
    oracle = PresenceOracle.from_objects({1: ["chair"], 2: [], 9: ["dog"]}, labels=["chair", "dog", "horse", "person"])
    truth = reference_truth(references, coco80, oracle=oracle)
    assert truth.oracle.image_ids == ("1", "2")  # only what both have
    assert (state(truth, "1", "chair"), state(truth, "1", "dog"), state(truth, "1", "horse")) == (1, 1, 0)
    assert state(truth, "1", "zebra") == -1  # outside of the other truth's labels, and not named
    with pytest.raises(InputError, match="share no image"):
        reference_truth(references, coco80, oracle=PresenceOracle.from_objects({77: ["dog"]}))


def test_hal_has_no_value_without_a_truth_of_absence(references: References) -> None:
    records = [{"image_id": 1, "caption": "A dog and a horse."}, {"image_id": 2, "caption": "A man."}]
    found = scapo_eval.score(records, references=references, vocabulary="coco80", resamples=0)
    assert (found.hal_rate, found.chair_i, found.cap_score) == (None, None, None)
    assert found.values["named_rate"] == pytest.approx(2 / 3)
    assert found.values["cover_rate"] == pytest.approx(2 / 4)
    assert found.values["cover_weighted"] == pytest.approx((0.75 + 1) / (0.75 + 0.25 + 1 + 1))
    assert "unnamed:unknown" in found.signature
    assert "weights:references" in found.signature
    assert any("unknown" in note for note in found.notes)
    closed = scapo_eval.score(records, references=references, vocabulary="coco80", unnamed="absent", resamples=0)
    assert closed.hal_rate == pytest.approx(1 / 3)
    assert closed.values["cap_weighted"] == pytest.approx(2 * (2 / 3) * (1.75 / 3) / (2 / 3 + 1.75 / 3))
    assert closed.signature.differences(found.signature)["unnamed"] == ("absent", "unknown")


def test_a_caption_that_is_a_reference_is_named_and_left_out(references: References) -> None:
    records = [{"image_id": 1, "caption": "a DOG sleeps on a couch"}, {"image_id": 3, "caption": "A cat."}]
    with_self = scapo_eval.score(records, references=references, vocabulary="coco80", unnamed="absent", resamples=0)
    assert with_self.hal_rate == 0.0
    assert any("2 captions are also references of their own images" in note for note in with_self.notes)
    without = scapo_eval.score(
        records, references=references, vocabulary="coco80", unnamed="absent", leave_out_self=True, resamples=0
    )
    assert without.counts["generated"] == 2  # the second image has no other reference: nothing is known of it
    assert without.hal_rate == 0.5  # nobody else names the couch
    assert without.counts["unknown"] == 1
    assert without.counts["word_captions"] == 1
    by_label = {row["label"]: row for row in scapo_eval.labels(without).rows}
    assert sum(row["hallucinated"] for row in by_label.values()) == without.counts["hallucinated"] == 1
    assert by_label["couch"]["hallucinated"] == 1
    assert "self:left-out" in without.signature
    assert not any("also references of their own" in note for note in without.notes)


def test_weights_of_areas_and_given_ones(coco80: Vocabulary, tmp_path: Path) -> None:
    instances = {
        "images": [{"id": 1, "width": 10, "height": 10}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "area": 25.0},
            {"image_id": 1, "category_id": 1, "area": 25.0},
            {"image_id": 1, "category_id": 2, "area": 5.0},
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "fork"}],
    }
    records = [{"image_id": 1, "caption": "A dog."}]
    truth = {1: ["dog", "fork"]}
    given = [{"image_id": 1, "weights": {"dog": 0.5, "fork": 0.05}}]
    found = scapo_eval.score(records, truth=truth, weights=given, resamples=0)
    assert found.values["cover_weighted"] == pytest.approx(0.5 / 0.55)
    assert found.values["cover_rate"] == 0.5
    assert "cap_people" not in found.values
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(instances))
    by_area = given_weights(path, PresenceOracle.load(path), coco80)
    assert by_area.weights[0, coco80.label_ids["dog"]] == 500_000
    assert by_area.weights[0, coco80.label_ids["fork"]] == 50_000


def test_named_labels_are_named_by_a_reference(tmp_path: Path) -> None:
    records = [{"image_id": 1, "caption": "A dog and a cat."}, {"image_id": 2, "caption": "A dog and a car."}]
    texts = {1: ["A dog.", "A dog in a room."], 2: ["A dog runs.", "A dog outside."]}
    alone = scapo_eval.score(records, references=texts, vocabulary="coco80")
    joined = scapo_eval.score(records, references=texts, truth={1: ["dog", "cat"], 2: ["dog"]})
    assert (alone.values["named_rate"], joined.values["named_rate"]) == (0.5, 0.5)
    assert joined.counts["covered"] == 3
    joined.save(tmp_path / "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    evidence = document["per_image"][0]
    k = evidence["columns"].index("named_labels")  # earlier versions did not count these labels
    for row in (evidence["columns"], *evidence["rows"]):
        del row[k]
    (tmp_path / "old.json").write_text(json.dumps(document))
    (old,) = scapo_eval.load_results(tmp_path / "old.json")
    assert "named_rate" not in old.values
    assert old.values["cover_weighted"] == joined.values["cover_weighted"]


def test_only_scored_images_need_weights() -> None:
    truth = {1: ["dog"], 42: ["cat"]}
    weights = [{"image_id": 1, "weights": {"dog": 0.5}}]
    found = scapo_eval.score([{"image_id": 1, "caption": "A dog."}], truth=truth, weights=weights)
    assert found.values["cover_weighted"] == 1
    with pytest.raises(InputError, match="no weights for image '42' of"):
        scapo_eval.score([{"image_id": 42, "caption": "A cat."}], truth=truth, weights=weights)


def test_labels_of_weights_that_the_vocabulary_lacks_are_named() -> None:
    weights = [{"image_id": 1, "weights": {"dog": 0.5, "Cat": 0.5, "zzz": 1}}]
    found = scapo_eval.score([{"image_id": 1, "caption": "A dog."}], truth={1: ["dog", "cat"]}, weights=weights)
    (note,) = (note for note in found.notes if "of the weights" in note)
    assert note.endswith(
        "2 labels of the weights are not in the vocabulary 'coco80' and are ignored (2 entries): 'Cat', 'zzz'; "
        "did you mean 'cat' for 'Cat'?"
    )
    with pytest.raises(InputError, match=r"no weight is above 0 .*did you mean 'dog' for 'Dog'"):
        scapo_eval.score(
            [{"image_id": 1, "caption": "A dog."}], truth={1: ["dog"]}, weights=[{"image_id": 1, "weights": {"Dog": 1}}]
        )


def test_weighted_rates_without_variation_have_an_interval() -> None:
    records = [{"image_id": k, "caption": "A dog."} for k in range(40)]
    texts = {k: ["A dog there.", "One dog."] for k in range(40)}
    found = scapo_eval.score(records, references=texts, vocabulary="coco80", unnamed="absent")
    rate, weighted = found.metrics["cover_rate"], found.metrics["cover_weighted"]
    assert (weighted.value, weighted.low, weighted.high) == (1, rate.low, 1)
    assert found.metrics["cap_weighted"].low < 0.95  # type: ignore[operator]


def test_nothing_moves_where_nothing_is_asked_for() -> None:
    found = scapo_eval.score([{"image_id": 1, "caption": "A dog."}], truth={1: ["dog", "cat"]}, resamples=0)
    assert list(found.values) == ["hal_rate", "cover_rate", "cap_score", "chair_i", "chair_s"]
    assert not {"weights", "references", "people"} & found.signature.fields.keys()
    people = scapo_eval.score(
        [{"image_id": 1, "caption": "A dog."}], truth={1: ["dog", "cat"]}, people=True, resamples=0
    )
    assert people.values["cap_people"] == pytest.approx((2 / 3) ** 0.25, abs=1e-6)
    assert people.signature.fields["people"] == "truth@1"


def test_words_by_the_definition(references: References) -> None:
    words = ReferenceWords(references)
    caption = "The dog sleeps, the dog runs."
    counts = {image: [content_words(tokens(text)) for text in texts] for image, texts in TEXTS.items()}
    images_with = Counter(word for texts in counts.values() for word in set().union(*texts))
    rarity = {word: log1p(len(TEXTS) / (images_with[word] + 1)) for word in {*images_with, "run"}}
    shares = Counter(word for text in counts["1"] for word in text)
    shared, missing = rarity["dog"] + rarity["sleep"], shares.keys() - {"dog", "sleep"}
    missed = [sum(rarity[word] * (shares[word] / 4) ** power for word in missing) for power in (1, 2)]
    length = sum(len(tokens(text)) for text in TEXTS["1"]) / 4
    found = word_scores(words, "1", caption)
    assert found is not None
    assert found.named == pytest.approx(shared / (shared + rarity["run"]))
    assert found.covered == pytest.approx(shared / (shared + missed[1]))
    assert found.overlap == pytest.approx(shared / (shared + missed[0] + UNNAMED * rarity["run"] + SMOOTHING))
    assert found.repetition == pytest.approx(1 / (1 + 2 / length))
    assert found.brevity == pytest.approx(min(1, 6 / (SHORT * length)))


def test_cap_people_is_the_card(references: References) -> None:
    caption = "A dog sleeps on a couch beside a horse."
    words = word_scores(ReferenceWords(references), "1", caption)
    assert words is not None
    alone = words.overlap**0.5 * words.repetition * words.brevity
    records = [{"image_id": 1, "caption": caption}]
    found = scapo_eval.score(records, references=references, resamples=0)
    assert found.values["cap_people"] == pytest.approx(alone, abs=1e-6)
    truth = PresenceOracle.from_objects({1: ["dog"]}, labels=["dog", "horse", "couch"])
    both = scapo_eval.score(records, references=references, truth=truth, resamples=0)
    assert both.values["cap_people"] == pytest.approx(alone * (1 - 1 / 4), abs=1e-6)  # of three labels one is absent
    assert (found.signature.fields["people"], both.signature.fields["people"]) == ("references@2", "references+truth@2")
    assert CARDS["references+truth"].powers["faithful"] == 1


def test_a_caption_of_nothing_scores_nothing(references: References) -> None:
    found = scapo_eval.score([{"image_id": 1, "caption": "!"}], references=references, resamples=0)
    assert found.values["cap_people"] == 0.0


@given(st.lists(st.sampled_from("boat kite train giraffe umbrella purple swim".split()), min_size=1, max_size=30))
@pytest.mark.slow
def test_words_that_no_reference_has_never_help(more: list[str]) -> None:
    words = ReferenceWords(References("refs", {image: tuple(texts) for image, texts in TEXTS.items()}))
    caption = "A brown dog sleeps on a couch."
    before, after = (word_scores(words, "1", text) for text in (caption, f"{caption} {' '.join(more)}"))
    assert before is not None
    assert after is not None
    assert after.overlap < before.overlap
    assert after.repetition <= before.repetition
    assert after.brevity == before.brevity == 1.0


def test_stems_put_forms_together() -> None:
    for forms in (("ride", "rides", "riding"), ("run", "runs", "running"), ("bus", "buses"), ("glass", "glasses"),
                  ("walk", "walked")):  # fmt: skip
        assert len(set(map(stem, forms))) == 1, forms
    assert stem("grass") == "grass"
    assert content_words(tokens("A picture of the MAN\N{RIGHT SINGLE QUOTATION MARK}s dog")) == {"man'", "dog"}


def test_counts_add_up_in_any_order(references: References) -> None:
    records = [{"image_id": 1, "caption": f"A dog and {n} couches."} for n in range(20)]
    records += [{"image_id": 2, "caption": "A man rides."}]
    first = scapo_eval.score(records, references=references)
    again = scapo_eval.score(records[::-1], references=references)
    assert first.counts == again.counts
    assert {name: (value.value, value.low) for name, value in first.metrics.items()} == {
        name: (value.value, value.low) for name, value in again.metrics.items()
    }


def test_processes_count_the_same(references: References, tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    texts = ["A dog sleeps on a couch.", "A horse and a dog.", "A man."]
    rows = [{"image_id": k % 3 + 1, "caption": texts[k % 2]} for k in range(3000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, two = (
        scapo_eval.score(path, references=references, leave_out_self=True, resamples=0, workers=workers)
        for workers in (None, 2)
    )
    assert one.counts == two.counts
    assert one.counts["among_references"] == 500


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"references": ["A dog."]}], "references without the image: missing key 'image_id'"),
        ([{"image_id": 1}], "missing key 'references'"),
        ([{"image_id": 1, "references": [3]}], "expected a string or a list of strings"),
        ([{"image_id": 1, "references": [" "]}], "image 1 has no reference"),
        ([{"image_id": True, "references": ["A dog."]}], "image id"),
    ],
)
def test_bad_references_are_named(rows: list[dict[str, object]], reason: str) -> None:
    with pytest.raises(InputErrors, match=reason):
        References.load(Records("refs", rows))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"image_id": 1, "weights": {"dog": 2}}], "'dog': 2 is not in \\[0, 1\\]"),
        ([{"image_id": 1, "weights": [1]}], "missing key 'weights', an object"),
        ([{"image_id": 1, "weights": {}}, {"image_id": 1, "weights": {}}], "image 1 appears twice"),
        ([{"image_id": 2, "weights": {"dog": 1}}], "no weights for image '1'"),
        ([{"image_id": 1, "weights": {"dog": 0}}], "no weight is above 0"),
    ],
)
def test_bad_weights_are_named(rows: list[dict[str, object]], reason: str) -> None:
    with pytest.raises((InputErrors, InputError), match=reason):
        scapo_eval.score([{"image_id": 1, "caption": "A dog."}], truth={1: ["dog"]}, weights=rows)


def test_references_as_pandas_groups_them() -> None:
    texts = {1: ["A dog.", "A cat."], 2: ["A car."]}
    arrays = {image: np.array(of_image, dtype=object) for image, of_image in texts.items()}
    captions = [{"image_id": 1, "caption": "A dog and a bus."}]
    found, expected = (scapo_eval.score(captions, references=given).to_dict() for given in (arrays, texts))
    assert found == expected


def test_options_that_do_not_fit_are_refused(references: References) -> None:
    for options, reason in (
        ({"leave_out_self": True}, "--leave-out-self"),
        ({"unnamed": "absent"}, "--unnamed"),
        ({"references": references, "weights": Records("w", [])}, "either references or a file of weights"),
    ):
        with pytest.raises(InputError, match=reason):
            Beside(**options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weights require a ground"):
        scapo_eval.score([{"image_id": 1, "caption": "A dog."}], weights=[{"image_id": 1, "weights": {"dog": 1}}])


def test_references_in_the_place_of_captions_say_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "refs.jsonl"
    path.write_text('{"image_id": 1, "references": ["A dog."]}\n')
    known = recognize_file(path)
    assert known is not None
    assert (known.kind.name, known.title) == ("references", "reference captions")
    judged = recognize_file(Records("thumb", [{"SYS": "a", "hyp": "A dog.", "human_score": 3.5, "image": "7.jpg"}]))
    assert judged is not None
    assert judged.kind.verbs == ("validate",)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"image_id": image, "references": texts} for image, texts in TEXTS.items()]
    Path("refs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("captions.jsonl").write_text('{"image_id": 1, "caption": "A dog on a sofa."}\n')
    done = run(
        "captions.jsonl", "--references", "refs.jsonl", "--json", "-o", "results.json", "--per-caption", "e.jsonl"
    )
    assert done.exit_code == 0, done.output
    [system] = json.loads(done.stdout)["systems"]
    assert system["metrics"]["hal_rate"]["value"] is None
    assert "vocab:open400@" in system["signature"]
    assert json.loads(Path("e.jsonl").read_text())["counts"]["among_references"] == 0
    [again] = scapo_eval.load_results("results.json")  # the metrics of its columns
    assert again.values["cover_weighted"] == system["metrics"]["cover_weighted"]["value"]
    done = run("oracle", "references", "refs.jsonl", "--vocabulary", "coco80", "-o", "t.npz", "--weights", "w.jsonl")
    assert done.exit_code == 0, done.output
    oracle = PresenceOracle.load("t.npz")
    assert oracle.present(1) == {"dog", "couch"}
    assert json.loads(Path("w.jsonl").read_text().splitlines()[0]) == {
        "image_id": "1", "weights": {"dog": 0.75, "couch": 0.25}
    }  # fmt: skip
    done = run("captions.jsonl", "--truth", "t.npz", "--weights", "w.jsonl", "--format", "tsv")
    assert done.exit_code == 0, done.output
    assert "cover_weighted\t100.0" in done.stdout
    assert isinstance(run("captions.jsonl", "--truth", "t.npz", "--leave-out-self").exception, InputError)
    assert np.count_nonzero(oracle.matrix() == 0) == 1
