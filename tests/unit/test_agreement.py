"""Ids that must fit: captions of other images are refused or said, and nothing else is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import PresenceOracle, Run, chair, score
from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.benchmarks.agreement import Claims, Fit, likely_ids
from scapo_eval.benchmarks.capscore import score_file
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.files.records import Records
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.truths.oracle import Truth

LABELS = ("dog", "cat", "car", "bench", "cup", "chair", "bird", "boat", "horse", "kite")
N = 60
SMALL = Vocabulary.from_mapping({label: [label] for label in LABELS}, name="small")


def truth_of(n: int, seed: int = 3) -> dict[str, list[str]]:
    """Images with some labels each."""
    draw = random.Random(seed)
    return {str(3 * k + 7): [label for label in LABELS if draw.random() < 0.3] or ["dog"] for k in range(n)}


def captions_of(truth: dict[str, list[str]], seed: int = 4) -> list[str]:
    """What a captioner says that misses a quarter of the objects, and invents some."""
    draw = random.Random(seed)
    return [
        "".join(
            f"There is a {label}. "
            for label in LABELS
            if draw.random() < (0.75 if label in present else 0.08)
        )
        + "It is day."
        for present in truth.values()
    ]  # fmt: skip


TRUTH = truth_of(N)
IDS, SAID = list(TRUTH), captions_of(TRUTH)


def scored(ids: Sequence[object], said: Sequence[str], truth: Any = TRUTH, **options: Any) -> Run:
    """The scores of captions."""
    records = [{"image_id": image, "caption": text} for image, text in zip(ids, said, strict=False)]
    oracle = PresenceOracle.from_objects(truth, labels=LABELS)
    return score(records, truth=oracle, vocabulary=SMALL, resamples=0, **options)


def asked(run: Run) -> bool:
    """Whether it is asked if the captions belong to their images."""
    return any("do the captions belong" in note for note in run.notes)


def test_captions_of_their_images_fit() -> None:
    for n in (24, N):
        run = scored(IDS[:n], SAID[:n])
        assert run.account is not None
        assert run.account.agreement is not None
        assert run.account.agreement.z > 5
        assert run.notes == ()
    fewer = scored(IDS[:19], [*SAID[1:19], SAID[0]])
    assert fewer.account is not None
    assert fewer.account.agreement is None


SHUFFLED = random.Random(1).sample(range(N), N)
BY_TEXT = sorted(range(N), key=lambda k: IDS[k])
MIXED_UP: dict[str, tuple[list[str], list[str], str]] = {
    "shifted down": (IDS[:-1], SAID[1:], "1 line further down"),
    "shifted up": (IDS[3:], SAID[:-3], "3 lines further up"),
    "reversed": (IDS, SAID[::-1], "from its end"),
    "sorted ids": (IDS, [SAID[k] for k in BY_TEXT], "sorted ids"),
    "sorted captions": ([IDS[k] for k in BY_TEXT], SAID, "ids listed in another"),
}


@pytest.mark.parametrize("case", MIXED_UP)
def test_captions_of_other_images_are_refused_with_the_likely_cause(case: str) -> None:
    ids, said, cause = MIXED_UP[case]
    with pytest.raises(InputError, match="do not belong to the images with their ids") as refused:
        scored(ids, said)
    assert cause in str(refused.value)
    assert "--any-ids" in str(refused.value)
    run = scored(ids, said, any_ids=True)
    assert asked(run)
    with pytest.raises(InputError, match=cause):
        chair(
            [{"image_id": i, "caption": c} for i, c in zip(ids, said, strict=True)],
            truth=PresenceOracle.from_objects(TRUTH), resamples=0,
        )  # fmt: skip


def test_row_numbers_for_ids_are_refused() -> None:
    truth = dict(zip(map(str, SHUFFLED), TRUTH.values(), strict=True))  # ids 0..N-1 in another order
    with pytest.raises(InputError, match="row numbers, from 0"):
        scored(range(N), SAID, truth)
    with pytest.raises((InputError, InputErrors), match="look like row numbers"):
        scored(range(N), SAID, {str(k + 5000): v for k, v in enumerate(TRUTH.values())})


ONE_LABEL = {image: [label for label in present if label == "dog"] for image, present in TRUTH.items()}


@pytest.mark.parametrize(
    ("kind", "said", "truth"),
    [
        ("random policy", [SAID[k] for k in SHUFFLED], TRUTH),
        ("collapsed policy", ["A dog on a bench."] * N, TRUTH),
        ("two answers", ["A dog.", "A cat."] * (N // 2), TRUTH),
        ("shuffled, one label", [SAID[k] for k in SHUFFLED], ONE_LABEL),
    ],
)  # fmt: skip
def test_policies_at_chance_are_asked_about_and_never_refused(kind: str, said: list[str], truth: Any) -> None:
    run = scored(IDS, said, truth)
    assert asked(run)
    with pytest.raises(InputError, match=r"--strict"):
        score_file(
            Records("r", [{"image_id": i, "caption": c} for i, c in zip(IDS, said, strict=True)]),
            SMALL, PresenceOracle.from_objects(truth, labels=LABELS),
            ScoringOptions(strict=True),
        )  # fmt: skip


def test_nothing_is_asked_where_any_order_gives_the_same_values() -> None:
    run = scored(IDS, SAID, {key: list(LABELS[:3]) for key in IDS})
    assert run.notes == ()
    assert run.account is not None
    assert run.account.agreement is None


def test_small_random_files_are_never_refused() -> None:
    draw = random.Random(11)
    for seed in range(150):
        truth = truth_of(20 + seed % 13, seed)
        said = draw.choices(captions_of(truth, seed), k=len(truth)) if seed % 3 else draw.choices(SAID, k=len(truth))
        scored(list(truth), said, truth)


def test_z_is_that_of_all_permutations() -> None:
    """Six captions and all 720 orders of their images, counted one by one, against the formula."""
    chosen = [k for k in range(N) if "There is" in SAID[k]][:6]
    truth = Truth.of(PresenceOracle.from_objects({k: TRUTH[IDS[j]] for k, j in enumerate(chosen)}), SMALL)
    ids = truth.vocabulary.label_ids
    claims = [[label for label in LABELS if f"a {label}." in SAID[k]] for k in chosen]
    caption = np.array([k for k, labels in enumerate(claims) for _ in labels])
    label = np.array([ids[name] for labels in claims for name in labels])
    times = 4  # each caption and image four times: 24 captions, of which permutations of six are only some
    fit = Fit()
    for _ in range(times):
        fit.add(np.arange(6), Claims.of_first(6, caption, label))
    found, _ = fit.agreement(truth)
    present = truth.states == 1
    sums = [
        sum(int(present[order[k], ids[name]]) for k in range(6) for name in claims[k])
        for order in permutations(range(6))
    ]
    assert found is not None
    assert found.chance == pytest.approx(np.mean(sums) / len(caption), abs=1e-4)
    assert found.confirmed == pytest.approx(sums[0] / len(caption), abs=1e-4)
    # the variance of 24 captions: sum of d^2 over 24 x 24 pairs / 23, where that of six is over 6 x 6 / 5
    sd = np.sqrt(np.var(sums) * 5 * times**2 / (6 * times - 1))
    assert found.z == pytest.approx(times * (sums[0] - np.mean(sums)) / sd, abs=0.01)


def test_the_order_of_lines_and_of_the_truth_changes_nothing() -> None:
    draw = random.Random(0)
    words = ["dog", "cat", "car", "person", "chair", "couch"]
    truth = {k: draw.sample(words, 3) for k in range(500)}
    rows = [
        {"image_id": k, "caption": f"A {draw.choice(labels + words)} and a {draw.choice(labels)}."}
        for k, labels in truth.items()
    ]
    shuffled = {k: truth[k] for k in draw.sample(sorted(truth), len(truth))}
    runs = [score(rows, truth=truth), score(draw.sample(rows, len(rows)), truth=shuffled)]
    first, second = (run.account.agreement for run in runs if run.account is not None)
    assert first is not None
    assert first == second


def test_workers_and_blocks_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines = [{"image_id": IDS[k % N], "caption": SAID[k % N] + " And so on." * 60} for k in range(4000)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [score(path, truth=TRUTH, vocabulary=SMALL, resamples=0, workers=workers) for workers in (1, 2)]
    assert runs[0].account == runs[1].account
    assert runs[0].account is not None
    assert runs[0].account.agreement is not None


@pytest.mark.parametrize(
    ("spell", "said"),
    [
        (lambda k: f"/data/img_{k}.png", "numbers in them match"),
        (lambda k: f"folder/x{k}_final.jpg", "numbers in them match"),
        (lambda k: f"other-{int(k) + 5000}", None),
    ],
)
def test_unknown_ids_are_said_with_what_they_may_mean(spell: Callable[[str], str], said: str | None) -> None:
    unknown = [spell(image) for image in IDS]
    with pytest.raises(InputError, match=f"none of {N} captions have the id of an image") as refused:
        scored(unknown, SAID)
    assert (said or "unknown, for example") in str(refused.value)
    run = scored([*IDS[:5], *unknown[5:]], SAID, on_unknown_image="skip")
    assert any("only 5 of 60" in note for note in run.notes)


def test_what_unknown_ids_may_mean() -> None:
    assert "names of files" in (likely_ids(["a/Cat.jpg", "b/dog.jpg"], ["cat", "DOG.png"]) or "")
    assert likely_ids(["x", "y"], ["7", "8"]) is None
    assert likely_ids(["9", "11"], ["7", "8"]) is None
