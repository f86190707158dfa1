"""Metrics against people: statistics against their definitions, sets as published, the frozen card, and bad input."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import scapo_eval
from scapo_eval import InputError, InputErrors, MissingExtra
from scapo_eval.claiming.claim import KINDS
from scapo_eval.cli.main import cli
from scapo_eval.files.records import Records
from scapo_eval.results.stats import holm
from scapo_eval.validation import agreement
from scapo_eval.validation.agreement import Pairing, ResampledImages, Statistic, interval_of
from scapo_eval.validation.halves import half_of
from scapo_eval.validation.judgements import Judgements
from scapo_eval.validation.ngrams import NGRAMS, ngram_scores

VALUES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 5)), min_size=4, max_size=25)


def by_definition(statistic: Statistic, x: list[float], y: list[float], images: list[int]) -> float:
    """A statistic as textbooks write it, over all pairs; NaN where it has none."""
    pairs = [(np.sign(a - b), np.sign(c - d)) for (a, c), (b, d) in combinations(zip(x, y, strict=True), 2)]
    signed = sum(p * q for p, q in pairs)
    if statistic == "pearson":
        if len(set(x)) == 1 or len(set(y)) == 1:
            return float("nan")
        return float(np.corrcoef(x, y)[0, 1])
    if statistic == "kendall_b":
        under = sqrt(sum(p != 0 for p, _ in pairs) * sum(q != 0 for _, q in pairs))
        return float(signed / under) if under else float("nan")
    if statistic == "kendall_c":
        fewer = min(len(set(x)), len(set(y)))
        return float(2 * signed * fewer / (len(x) ** 2 * (fewer - 1))) if fewer > 1 else float("nan")
    inside = [(p, q) for (p, q), (i, j) in zip(pairs, combinations(images, 2), strict=True) if i == j and q != 0]
    return float(np.mean([(p * q + 1) / 2 for p, q in inside])) if inside else float("nan")


@pytest.mark.parametrize("statistic", ["pearson", "kendall_b", "kendall_c", "pairwise"])
@given(rows=VALUES)
def test_statistics_are_their_definitions(statistic: Statistic, rows: list[tuple[int, int, int]]) -> None:
    """On all items, and on resamples: an image that is drawn twice stands there twice."""
    x, y, images = ([float(value) for value in column] for column in zip(*rows, strict=True))
    sample = ResampledImages.of([str(image) for image in images], resamples=3, seed=1)
    found = Pairing(np.array(x), np.array(y), sample).resampled(statistic)
    for drawn, value in zip(sample.weights(), found, strict=True):
        if statistic == "kendall_c" and drawn.max() > 1:
            continue  # its number of classes is that of all items
        chosen = [(k, copy) for k in range(len(x)) for copy in range(int(drawn[sample.group[k]]))]
        if len(chosen) < 2:
            continue
        names = [10 * sample.group[k] + copy for k, copy in chosen]
        wanted = by_definition(statistic, [x[k] for k, _ in chosen], [y[k] for k, _ in chosen], names)
        assert value == pytest.approx(wanted, abs=1e-7, nan_ok=True)


@pytest.mark.parametrize("scale", [1e-12, 1, 1e12])
def test_the_scale_of_a_metric_does_not_matter(scale: float) -> None:
    sample = ResampledImages.of([str(k) for k in range(40)], resamples=50, seed=1)
    x, y = np.full(40, scale / 3), np.arange(40.0) % 5
    x[0] = 100 * scale  # without image 0, the metric is constant
    found = Pairing(x, y, sample).resampled("pearson")
    assert found[0] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert np.isnan(found[1:]).tolist() == (sample.drawn[:, 0] == 0).tolist()


@pytest.mark.parametrize("statistic", ["kendall_b", "kendall_c", "auc"])
def test_many_images_need_no_table_of_their_pairs(statistic: Statistic, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = ResampledImages.of([str(k // 2) for k in range(40)], resamples=5, seed=1)
    pairing = Pairing(np.arange(40.0) % 7, np.arange(40.0) % 2, sample)
    [wanted, *_] = pairing.resampled(statistic)
    monkeypatch.setattr("scapo_eval.validation.agreement.MOST_IMAGES", 10)
    sizes, form = [], agreement._form
    monkeypatch.setattr(agreement, "_form", lambda weights, table: sizes.append(table.shape) or form(weights, table))
    assert pairing.resampled(statistic).tolist() == [wanted]
    assert set(sizes) == {(1, 1)}


def test_verdicts_by_hand() -> None:
    sample = ResampledImages.of(list("aabbccdd"), resamples=0, seed=1)
    ours, theirs = np.array([1, 1, 0, 0, 1, 0, 1, 1.0]), np.array([1, 1, 0, 1, 1, 0, 0, 1.0])
    pairing = Pairing(ours, theirs, sample)
    assert pairing.statistics() == ("auc", "accuracy", "kappa")
    assert pairing.resampled("accuracy")[0] == pytest.approx(6 / 8)
    chance = (5 * 5 + 3 * 3) / 64
    assert pairing.resampled("kappa")[0] == pytest.approx((6 / 8 - chance) / (1 - chance))
    won = [(a > b) + 0.5 * (a == b) for a, p in zip(ours, theirs, strict=True) if p
           for b, n in zip(ours, theirs, strict=True) if not n]  # fmt: skip
    assert pairing.resampled("auc")[0] == pytest.approx(np.mean(won))


def test_an_interval_holds_its_value_as_often_as_it_says() -> None:
    """200 samples of 60 images with a known correlation of .5, two items an image."""
    rng, inside = np.random.default_rng(5), 0
    for seed in range(200):
        shared = rng.normal(size=60).repeat(2)
        x = sqrt(0.5) * shared + sqrt(0.5) * rng.normal(size=120)
        y = sqrt(0.5) * shared + sqrt(0.5) * rng.normal(size=120)
        sample = ResampledImages.of([str(k // 2) for k in range(120)], resamples=300, seed=seed)
        interval = interval_of(Pairing(x, y, sample).resampled("pearson"))
        assert interval.low is not None
        assert interval.high is not None
        inside += interval.low <= 0.5 <= interval.high
    assert 180 <= inside <= 199


def rows(n: int = 40, **more: Any) -> list[dict[str, Any]]:
    """Captions of which the even ones name the dog that is there, and are rated well."""
    captions = ("A dog on a lawn.", "A cat on a lawn.")
    return [
        {"id": k, "image_id": k // 2, "caption": captions[k % 2], "rating": 5 - 3 * (k % 2), **more} for k in range(n)
    ]


TRUTH = {k: ["dog"] for k in range(40)}


def test_a_metric_that_agrees_and_one_that_does_not() -> None:
    scores = {"elsewhere": [{"id": k, "score": (k * 7) % 11} for k in range(40)]}
    found = scapo_eval.validate(rows(), truth=TRUTH, metrics=["hal_rate", "length"], scores=scores, resamples=200)
    assert found.value("hal_rate", "rating", "pearson") == pytest.approx(1.0)
    assert found.value("hal_rate", "rating", "pairwise") == 1.0
    assert found.value("length", "rating", "pearson") is None  # all captions have five words
    assert abs(found.value("elsewhere", "rating", "pearson") or 1) < 0.4
    [gap] = [d for d in found.differences if (d.metric, d.statistic) == ("elsewhere", "kendall_b")]
    assert gap.high is not None
    assert gap.high < 0
    raw = [d.p_value for d in found.differences if d.statistic == "kendall_b"]
    assert [d.p_holm for d in found.differences if d.statistic == "kendall_b"] == holm(raw)
    again = scapo_eval.validate(rows()[::-1], truth=TRUTH, metrics=["hal_rate"], resamples=200)
    for name in ("value", "low", "high"):
        assert getattr(again.agreements[0], name) == pytest.approx(getattr(found.agreements[0], name))
    assert json.dumps(found.to_dict())


def test_pairs_and_marked_parts() -> None:
    pairs = [
        {"image_id": k, "caption": "A dog.", "rival": "A cat and a horse.", "rating": 1 + k % 2} for k in range(30)
    ]
    found = scapo_eval.validate(pairs, truth=TRUTH, metrics=["hal_rate", "length"], resamples=50)
    assert found.value("hal_rate", "rating", "pairwise") == 1.0
    assert found.value("length", "rating", "pairwise") == 0.0
    text = "A dog and a horse, no cat."
    span = [{"start": 10, "end": 17, "wrong": True}, {"start": 0, "end": 5, "wrong": False}]
    marked = [{"image_id": k, "caption": text, "spans": span} for k in range(30)]
    parts = scapo_eval.validate(marked, truth=TRUTH, resamples=50)
    assert parts.value("claims=all", "wrong", "span_precision") == 0.5  # it flags the cat, too
    assert parts.value("claims=visual", "wrong", "span_precision") == 1.0
    assert parts.value("claims=all", "wrong", "span_recall") == 1.0
    assert parts.value("holds presence", "wrong", "span_share") == 1.0
    assert parts.value("holds beyond presence", "wrong", "span_share") == 0.0


def test_marked_parts_of_unknown_images_are_told() -> None:
    span = [{"start": 0, "end": 5, "wrong": True}]
    marked = [{"image_id": k // 2, "caption": "A dog.", "spans": span} for k in range(90)]
    found = scapo_eval.validate(marked, truth=TRUTH, resamples=10)
    assert (found.agreements[0].n, found.agreements[0].n_images) == (80, 40)
    assert found.notes[0].startswith("10 items have no values of metrics that need a ground truth")
    with pytest.raises(InputError, match="2 captions with marked parts are of images in the ground truth"):
        scapo_eval.validate(marked, truth={0: ["dog"]}, resamples=10)


def test_wrong_parts_that_hold_a_claim_by_kind() -> None:
    texts = ["Two dogs sit.", "A red horse.", "It is lovely."]
    spans = [[(0, 3), (4, 8), (9, 12)], [(2, 5)], [(6, 12)]]
    marked = [
        {
            "image_id": k,
            "caption": texts[k % 3],
            "spans": [{"start": a, "end": b, "wrong": True} for a, b in spans[k % 3]],
        }
        for k in range(30)
    ]
    found = scapo_eval.validate(marked, truth=TRUTH, resamples=50)
    shares = {kind: found.value(f"holds {kind}", "wrong", "span_share") for kind in ("any", "beyond presence", *KINDS)}
    assert shares == {
        "any": 4 / 5, "beyond presence": 3 / 5, "presence": 1 / 5, "count": 1 / 5, "attribute": 2 / 5,
        "relation": 0, "text": 0,
    }  # fmt: skip


def test_false_claims_against_wrong_parts_and_facts() -> None:
    scene = {"objects": [{"name": "dog"}, {"name": "horse", "attributes": ["brown"]}], "complete": ["dog", "horse"]}
    scenes = [{"image_id": k, **scene} for k in range(30)]
    truth = {k: ["dog", "horse"] for k in range(40)}
    texts = ["Two dogs sit.", "A red horse, one dog.", "No red horse."]
    marked = [
        {"image_id": k, "caption": texts[k % 3], "spans": [{"start": 0, "end": 8, "wrong": k % 3 == 0}]}
        for k in range(30)
    ]
    found = scapo_eval.validate(marked, truth=truth, scenes=scenes, resamples=50)
    shares = [found.value(f"kind={kind}", "wrong", "span_decided") for kind in ("any", "count", "attribute", "text")]
    assert shares == [1, 1, 0, 0]  # nothing is known of sitting
    assert found.value("kind=count", "wrong", "span_precision") == 1
    assert found.value("kind=attribute", "wrong", "span_precision") == 0  # the negated claim does not count
    assert found.value("kind=beyond presence", "wrong", "span_precision") == 0.5
    assert found.value("kind=beyond presence", "wrong", "span_recall") == 1
    assert str(found.signature) != str(scapo_eval.validate(marked, truth=truth, resamples=50).signature)
    facts = [
        {"image_id": k, "answer": "", "facts": [{"text": text, "label": k % 2} for text in texts]} for k in range(30)
    ]
    judged = scapo_eval.validate(facts, truth=truth, scenes=scenes, ratings=["true"], resamples=50)
    assert judged.value("holds count", "wrong", "span_share") == pytest.approx(2 / 3)
    assert judged.value("kind=count", "wrong", "span_recall") == pytest.approx(1 / 3)
    assert judged.value("kind=count", "wrong", "span_precision") == 0.5


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        (rows(20), {}, "20 items; a correlation requires at least 30"),
        ([{**row, "rating": 3} for row in rows()], {}, "rating 'rating' is 3 for every item"),
        ([{**row, "rating": None} for row in rows()], {}, "40 are missing"),
        ([{**row, "rating": "good"} for row in rows()], {}, "rating 'rating' must be a number, got 'good'"),
        (rows(), {"ranges": {"rating": (1, 4)}}, "rating 'rating' is 5, not in \\[1, 4\\]"),
        (rows(), {"ratings": ["clarity"]}, "rating 'clarity' not found"),
        (rows(), {"metrics": ["cider"]}, "metric 'cider' not found"),
        (rows(), {"metrics": ["cover_words"]}, "it requires references"),
        (rows(), {"truth": None, "metrics": ["hal_rate"]}, "require a ground truth"),
        (rows(), {"references": {0: ["A dog."]}}, "38 items have no references, image '1' for example"),
        (rows(), {"scores": {"x": [{"id": 99, "score": 1}]}}, "id '99' matches no item"),
        (rows(), {"scores": {"x": [{"id": 0, "score": None}]}}, "no item of"),
        (rows(), {"scores": {"x": [{"id": 0, "score": float("-inf")}]}}, "'score' must be finite, got -inf"),
        (rows(), {"scores": {"x": [{"id": k, "score": k} for k in range(20)]}}, "20 items have both"),
        (rows(), {"without": ["nobody"]}, "system 'nobody' not found"),
        (rows(system="a"), {"without": ["a"]}, "no item is left"),
        ([{**row, "ratings": {}} for row in rows()], {}, "no item has a rating"),
        (
            rows(),
            {"scores": {"hal_rate": [{"id": k, "score": k} for k in range(40)]}},
            "is the name of a metric",
        ),
        (rows(), {"scenes": [{"image_id": 0, "objects": [{"name": "dog"}]}]}, "--scenes has an effect only on"),
        (rows(spans=[]), {"metrics": ["cider"]}, "--metric has no effect on marked parts"),
        (rows(spans=[]), {"claims": "visual"}, "--claims has no effect on marked parts"),
        (rows(), {"half": "both"}, "half must be one of"),
        ([{**row, "id": 1} for row in rows()], {}, "id '1' appears twice"),
        ([{"image": 1, "text": "A dog."}], {}, "not valid as human judgments"),
        ([{"caption": "A dog.", "rating": 1}], {}, "missing key 'image_id'"),
        ([{"image_id": 1, "caption": "A dog.", "spans": [{"start": 0, "end": 99, "wrong": True}]}], {}, "span"),
        ([{"image_id": 1, "answer": "", "facts": ["There is a text."]}], {}, "'facts' must be a list of objects"),
        ([{"image": 1, "human": "", "p5b": "", "sxs_p5b": {"Like": "x"}}], {}, "rating 'Like' must be a number"),
    ],
)
def test_bad_input_is_named(records: list[dict[str, Any]], options: dict[str, Any], reason: str) -> None:
    with pytest.raises((InputError, InputErrors), match=reason):
        scapo_eval.validate(records, **{"truth": TRUTH, "resamples": 10, **options})


def test_metrics_by_default() -> None:
    records = [{**row, "references": ["A dog."]} for row in rows()]
    found = scapo_eval.validate(records, resamples=10)
    named = ["cover_rate", "cover_weighted", "cover_words", "cap_people", "length"]
    assert list(dict.fromkeys(agreement.metric for agreement in found.agreements)) == named
    scores = {"elsewhere": [{"id": k, "score": k % 7} for k in range(40)]}
    found = scapo_eval.validate(records, scores=scores, resamples=10)
    assert list(dict.fromkeys(agreement.metric for agreement in found.agreements)) == [*named, "elsewhere"]
    with pytest.raises(InputError, match="0 items have both 'hal_rate' and 'rating'"):
        scapo_eval.validate(rows(), truth={99: ["dog"]}, resamples=10)


def test_a_few_missing_ratings_are_left_out() -> None:
    records = [{**row, "rating": None if k < 4 else row["rating"]} for k, row in enumerate(rows())]
    [first, *_] = scapo_eval.validate(records, truth=TRUTH, metrics=["hal_rate"], resamples=10).agreements
    assert (first.n, first.n_images) == (36, 18)


def test_an_id_of_null_is_a_missing_id() -> None:
    loaded = Judgements.load(Records("own", rows(3, id=None)))
    assert [item.id for item in loaded.items] == ["1", "2", "3"]


def test_halves_do_not_depend_on_the_other_images() -> None:
    halves = [half_of(str(k)) for k in range(1000)]
    assert 450 < halves.count("report") < 550
    assert halves[:12] == [half_of(str(k)) for k in range(12)]
    found = scapo_eval.validate(rows(400), truth={k: ["dog"] for k in range(200)}, metrics=["hal_rate"], half="report")
    assert found.agreements[0].n_images == [half_of(str(k)) for k in range(200)].count("report")


def test_thumb_and_faithscore_as_they_are_published() -> None:
    published = {
        "SYS": "Human", "seg_id": "7", "set_id": 5, "hyp": "A dog.", "image": "COCO_val2014_000000000007.jpg",
        "P": 4.0, "R": 3.0, "Fl": -0.0, "Inc": -0.0, "Con": -0.0, "human_score": 3.5,
    }  # fmt: skip
    [item] = Judgements.load(Records("thumb", [published])).items
    assert (item.image, item.system, item.ratings["precision"], item.ratings["total"]) == ("7", "Human", 4.0, 3.5)
    answer = {
        "id": "000000000007", "answer": "Two dogs, one of them on a couch.", "stage 1": {"Two dogs": 1},
        "stage 2": {"There is a dog.": 1, "There are two dogs.": 0, "The dog is brown.": 1},
    }  # fmt: skip
    found = Judgements.load(Records("facts", [answer]))
    assert [(item.ratings["object"], item.ratings["true"]) for item in found.items] == [(1, 1), (None, 0), (None, 1)]
    [whole] = Judgements.load(Records("facts", [answer]), name="faithscore-answers").items
    assert whole.ratings == {"true": pytest.approx(2 / 3), "objects": 1.0}
    labels = [{"text": "There is a dog.", "label": 1}, {"text": "There is a cat.", "label": None}, {"text": "A bus."}]
    unlabeled = {"image_id": "7", "answer": "A dog.", "facts": labels}
    found = Judgements.load(Records("facts", [unlabeled]), name="faithscore")
    assert [item.ratings["true"] for item in found.items] == [1, None, None]
    [whole] = Judgements.load(Records("facts", [unlabeled]), name="faithscore-answers").items
    assert whole.ratings == {"true": 1.0, "objects": 1.0}
    with pytest.raises(InputErrors, match="rating 'precision' is 6, not in"):
        Judgements.load(Records("thumb", [{**published, "P": 6.0}]))


def test_without_the_package_n_grams_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocoevalcap.bleu.bleu_scorer", None)
    references = {k: ["A dog."] for k in range(20)}
    with pytest.raises(MissingExtra, match=r"\[ngrams\]"):
        scapo_eval.validate(rows(), references=references, metrics=["cider_d"])


def test_n_grams_with_the_package() -> None:
    pytest.importorskip("pycocoevalcap")
    references = {str(k): [f"one{k} two{k} three{k} four{k}"] for k in range(3)}
    images = ["0", "0", "1", "2", "9"]
    captions = [references["0"][0], "five six", "one1 two1 three1 four1", "one1", "one1"]
    scores = {name: ngram_scores(name, images, captions, references) for name in NGRAMS}
    assert scores["cider_d"][:4] == pytest.approx([10, 0, 10, 0])  # every image counts once, however many captions
    assert scores["bleu_4"][[0, 2]] == pytest.approx(1, abs=1e-6)
    assert scores["rouge_l"][:4] == pytest.approx([1, 0, 1, 0])
    assert all(np.isnan(values[4]) for values in scores.values())  # an image without references


def test_means_of_systems_are_the_rates_themselves() -> None:
    """Agreements use 1 - hal_rate, so that greater values are better. The table of means shows hal_rate."""
    mixed = [{**row, "system": "right" if row["id"] % 2 == 0 else "wrong"} for row in rows()]
    found = scapo_eval.validate(mixed, truth=TRUTH, metrics=["hal_rate", "cover_rate"], resamples=10)
    rates = {system.system: system.means["hal_rate"] for system in found.systems}
    assert rates == {"right": 0, "wrong": 1}
    assert {system.system: system.means["cover_rate"] for system in found.systems} == {"right": 1, "wrong": 0}
    assert found.value("hal_rate", "rating", "pearson") == pytest.approx(1.0)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(system="a")))
    Path("truth.json").write_text(json.dumps(TRUTH))
    Path("clip.jsonl").write_text("".join(json.dumps({"id": k, "score": k % 3}) + "\n" for k in range(40)))
    words = [
        "validate",
        "ratings.jsonl",
        "--truth",
        "truth.json",
        "--metric",
        "hal_rate",
        "--scores",
        "clip=clip.jsonl",
    ]
    printed = CliRunner().invoke(cli, [*words, "--range", "rating=1:5", "--format", "tsv"])
    assert printed.exit_code == 0, printed.output
    head, first, *_ = (line.split("\t") for line in printed.stdout.splitlines())
    assert dict(zip(head, first, strict=True)) | {"ci_low": "", "ci_high": ""} == {
        "kind": "agreement", "rating": "rating", "statistic": "pearson", "metric": "hal_rate", "value": "1.000",
        "ci_low": "", "ci_high": "", "n": "40", "n_images": "20", "baseline": "", "p_value": "", "p_holm": "",
    }  # fmt: skip
    table = CliRunner().invoke(cli, [*words, "--width", "120"])
    assert "kendall_c" in table.stdout
    assert "own: 40 items, 20 images." in table.stdout
    twice = CliRunner().invoke(cli, [*words, "--scores", "clip=clip.jsonl"])
    assert (twice.exit_code, "two --scores have the same name" in twice.output) == (2, True)
    found = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert found["systems"][0]["means"]["rating"] == 3.5
    for faulty in ("rating=x", "1:5", "rating=5:1", "rating=1:1", "rating=nan:5"):
        refused = CliRunner().invoke(cli, [*words, "--range", faulty])
        assert refused.exit_code == 2
        assert f"'{faulty}' is not NAME=LOW:HIGH, for example rating=1:5" in " ".join(refused.output.split())
    rated = [{**row, "ratings": {"same": 1, "own": row.pop("rating")}} for row in rows()]
    found = scapo_eval.validate(rated, truth=TRUTH, metrics=["hal_rate"], resamples=0)
    assert {each.rating for each in found.agreements} == {"own"}
    assert "rating 'same' is equal for every item and is omitted" in found.notes
    with pytest.raises(InputError, match="rating 'same' is 1 for every item"):
        scapo_eval.validate(rated, truth=TRUTH, metrics=["hal_rate"], ratings=["same"], resamples=0)
    refused = CliRunner().invoke(cli, [*words, "--range", "rating=1:5", "--range", "rating=1:9"])
    assert (refused.exit_code, "two ranges for 'rating'" in refused.output) == (2, True)


@pytest.fixture(scope="module")
def human(shared: Path) -> Path:
    return shared / "data" / "human"


@pytest.fixture(scope="module")
def thumb(human: Path) -> Callable[..., Any]:
    return lambda **how: scapo_eval.validate(
        human / "thumb.jsonl.gz", half="report", without=["Human"], ratings=["precision", "total"], resamples=200, **how
    )


@pytest.mark.slow
def test_the_frozen_card_on_the_half_that_it_was_not_fitted_to(human: Path, thumb: Callable[..., Any]) -> None:
    references, truth = human / "thumb_references.jsonl.gz", human / "truth_coco.json.gz"
    metrics = ["cap_score", "cap_people", "hal_rate"]
    both = thumb(references=references, truth=truth, metrics=metrics)
    assert both.value("cap_people", "total", "pearson") == pytest.approx(0.442, abs=0.002)
    assert both.value("hal_rate", "precision", "pearson") == pytest.approx(0.462, abs=0.002)
    [gap] = [d for d in both.differences if (d.metric, d.rating, d.statistic) == ("cap_people", "total", "pearson")]
    assert gap.low is not None
    assert gap.low > 0.05  # better than Cap. Score on the same captions
    alone = thumb(references=references, metrics=["cap_people", "cover_words"])
    assert alone.value("cap_people", "total", "pearson") == pytest.approx(0.403, abs=0.002)
    assert alone.value("cover_words", "total", "pearson") == pytest.approx(0.428, abs=0.002)
    assert thumb(truth=truth, metrics=metrics).value("cap_people", "total", "pearson") == pytest.approx(
        0.302, abs=0.002
    )
    means = {system.system: system.means["cap_people"] or 0 for system in alone.systems}
    assert max(means, key=lambda name: means[name]) == "Human"


def test_facts_of_objects(human: Path) -> None:
    found = scapo_eval.validate(
        human / "faithscore.jsonl.gz", truth=human / "truth_coco.json.gz", metrics=["hal_rate"], ratings=["object"],
        resamples=50,
    )  # fmt: skip
    assert found.value("hal_rate", "object", "accuracy") == pytest.approx(0.911, abs=0.001)
    assert found.value("hal_rate", "object", "kappa") == pytest.approx(0.648, abs=0.002)


def test_every_set_is_recognized(human: Path) -> None:
    sizes = {"thumb": 2500, "faithscore": 1380, "haelm": 300, "composite": 6021, "iiw400": 100}
    files = {path.name.partition(".")[0].partition("_")[0]: path for path in human.glob("*.jsonl.gz")
             if "references" not in path.name}  # fmt: skip
    for name, size in sizes.items():
        found = Judgements.load(files[name])
        assert (found.name, len(found.items)) == (name, size)
    with gzip.open(files["composite"], "rt") as stream:
        assert len(list(stream)) == 6021


def test_kinds_of_judgements_are_not_mixed() -> None:
    rated = [{"image_id": k, "caption": "A dog.", "rating": 1 + k % 2} for k in range(40)]
    pairs = [{**row, "rival": "A cat."} for row in rated]
    spans = [{**row, "spans": [{"start": 0, "end": 5, "wrong": False}]} for row in rated]
    for first, second, said in ((rated, pairs, "a pair, but line 1 has a rating"),
                                (pairs, spans, "marked spans, but line 1 has a pair"),
                                (spans, rated, "a rating, but line 1 has marked spans")):  # fmt: skip
        with pytest.raises(InputErrors, match=f"{said}: a file contains only one kind of judgment") as caught:
            Judgements.load(Records("mixed", [*first, *second]))
        assert caught.value.errors[0].line == 41


def test_a_range_of_no_rating_is_refused() -> None:
    with pytest.raises(InputError, match=r"no rating 'foo', for which a range is given \(there are: rating\)"):
        Judgements.load(Records("own", rows()), ranges={"foo": (1, 5)})
    with pytest.raises(InputError, match=r"set must be one of thumb, faithscore, faithscore-answers, haelm"):
        Judgements.load(Records("own", rows()), name="x")
