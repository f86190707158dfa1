"""Rounds of quality control: draws, the file of answers, closing, what the summary says, tables, command line."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scapo_eval.annotate.finalize import finalize
from scapo_eval.annotate.qc.bounds import alpha_of_draw, pooled_wrong_cells, wrong_cells
from scapo_eval.annotate.qc.draws import draw_pairs
from scapo_eval.annotate.qc.exchange import pairs_table, read_answers
from scapo_eval.annotate.qc.rounds import (
    ANSWERS,
    AnswerConflict,
    PersonAnswer,
    Round,
    ask_undecided,
    close_round,
    draw_round,
    draw_second,
    judged_matrix,
    open_round,
    people_cells,
    read_rounds,
    read_seconds,
)
from scapo_eval.annotate.qc.summary import summarize, write_summary
from scapo_eval.annotate.qc.summary_tables import percent
from scapo_eval.annotate.store import CellProvenance, Store
from scapo_eval.base.errors import InputError, InputErrors, ScapoError
from scapo_eval.cli.main import main
from scapo_eval.inference.sources import ImageFile
from scapo_eval.matching.vocabulary import LabelInfo, Vocabulary

LABELS = ("cat", "dog", "kite")
JUDGE = CellProvenance("coarse", "coarse@12345678", "judge-7b")
Truth = np.ndarray[Any, np.dtype[np.int8]]


def make_run(folder: Path, matrix: Truth, labels: tuple[str, ...] = LABELS) -> Store:
    vocabulary = Vocabulary.from_mapping(
        {label: [label] for label in labels}, info={labels[0]: LabelInfo(definition="A cat, no lion.")}
    )
    pictures = [ImageFile(str(k), f"{k}.jpg", str(folder / f"{k}.jpg")) for k in range(len(matrix))]
    store = Store.create(folder / "run", pictures, vocabulary)
    rows, columns = np.indices(matrix.shape)
    known = matrix.ravel() >= 0
    store.write(rows.ravel()[known], columns.ravel()[known], matrix.ravel()[known], JUDGE)
    return store


@pytest.fixture
def truth() -> Truth:
    """60 images: cat in 20, dog in 6, kite in 2."""
    matrix = np.zeros((60, 3), dtype=np.int8)
    matrix[:20, 0] = matrix[20:26, 1] = matrix[30:32, 2] = 1
    return matrix


def honest(round_: Round, truth: Truth, answers: dict[int, PersonAnswer] | None = None, by: str = "ann") -> None:
    """Answers every pair by the truth, some otherwise."""
    pairs = round_.draw.pairs
    given = enumerate(zip(pairs.rows.tolist(), pairs.label_ids.tolist(), strict=True))
    round_.answer_many(
        [(k, (answers or {}).get(k, "yes" if truth[row, label] else "no")) for k, (row, label) in given], by=by
    )


def one_round(store: Store, truth: Truth, **options: Any) -> list[dict[str, Any]]:
    draw_round(store, **options)
    with open_round(store, write=True) as round_:
        honest(round_, truth)
        return close_round(store, round_)


# Draws


def test_every_label_gives_its_random_pairs_and_enough_that_are_present(truth: Truth) -> None:
    eligible = np.ones(truth.shape, dtype=np.bool_)
    drawn = draw_pairs(truth, eligible, [0, 1, 2], random=10, present=6, at_least=5, seed=3, round_number=1)
    for label, frequency in enumerate((20, 6, 2)):
        of_label = drawn.label_ids == label
        rows = drawn.rows[of_label]
        assert len(set(rows.tolist())) == len(rows)
        assert drawn.random[of_label].sum() == 10
        present = truth[rows, label] == 1
        assert present.sum() >= min(5, frequency)
        assert present[~drawn.random[of_label]].all()
    assert (np.diff(drawn.label_ids) >= 0).all()


def test_draws_are_repeatable_differ_by_round_and_ignore_other_labels(truth: Truth) -> None:
    eligible = np.ones(truth.shape, dtype=np.bool_)

    def rows(labels: list[int], seed: int = 1, number: int = 1) -> list[int]:
        drawn = draw_pairs(truth, eligible, labels, random=8, present=0, at_least=4, seed=seed, round_number=number)
        return drawn.rows[drawn.label_ids == 1].tolist()

    assert rows([0, 1, 2]) == rows([1]) != rows([1], number=2)
    assert rows([1]) != rows([1], seed=2)


def test_pairs_that_were_added_do_not_stand_apart() -> None:
    matrix = np.zeros((400, 1), dtype=np.int8)
    matrix[:10] = 1
    eligible = np.ones(matrix.shape, dtype=np.bool_)
    places = [
        np.flatnonzero(
            ~draw_pairs(matrix, eligible, [0], random=20, present=0, at_least=10, seed=s, round_number=1).random
        )
        for s in range(200)
    ]
    assert 0.45 < np.concatenate(places).mean() / 28.5 < 1.15
    assert {int(p.min()) for p in places} >= {0, 1, 2}


@pytest.mark.slow
def test_random_draws_are_uniform_over_the_cells() -> None:
    matrix = np.zeros((20, 1), dtype=np.int8)
    matrix[:3] = 1
    eligible = np.ones(matrix.shape, dtype=np.bool_)
    times = np.zeros(20)
    for seed in range(2000):
        drawn = draw_pairs(matrix, eligible, [0], random=5, present=2, at_least=3, seed=seed, round_number=1)
        times[drawn.rows[drawn.random]] += 1
    # 500 expected each, standard deviation sqrt(2000 * .25 * .75) = 19.4
    assert np.abs(times - 500).max() < 5 * 19.4


@pytest.mark.slow
def test_the_present_draw_is_uniform_over_all_present_cells() -> None:
    matrix = np.zeros((30, 3), dtype=np.int8)
    matrix[:9, 0] = matrix[10, 1] = matrix[4:6, 2] = 1
    eligible = np.ones(matrix.shape, dtype=np.bool_)
    eligible[0, 0] = False
    times = np.zeros(matrix.shape)
    for seed in range(1100):
        drawn = draw_pairs(matrix, eligible, [0, 1, 2], random=3, present=4, at_least=2, seed=seed, round_number=1)
        assert drawn.present.sum() == 4
        cells = list(zip(drawn.rows.tolist(), drawn.label_ids.tolist(), strict=True))
        assert len(set(cells)) == len(cells)
        times[drawn.rows[drawn.present], drawn.label_ids[drawn.present]] += 1
    # 400 expected of each of the 11 cells, standard deviation sqrt(1100 * 4/11 * 7/11) = 16
    assert ((times > 0) == ((matrix == 1) & eligible)).all()
    assert np.abs(times[times > 0] - 400).max() < 5 * 16


def test_rounds_are_fresh_until_nothing_is_left(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        seen: set[tuple[int, int]] = set()
        for _ in range(6):
            one_round(store, truth, random=10, present=0, at_least=0)
            drawn = read_rounds(store)[-1].draw.pairs
            cells = set(zip(drawn.rows.tolist(), drawn.label_ids.tolist(), strict=True))
            assert len(cells) == 30
            assert not cells & seen
            seen |= cells
        with pytest.raises(ScapoError, match="nothing to draw"):
            draw_round(store)
        assert summarize(store)["overall"]["error"]["high"] == 0


def test_excluded_images_and_cells_without_verdict_are_never_drawn(tmp_path: Path, truth: Truth) -> None:
    truth[40, 1] = -1
    with make_run(tmp_path, truth) as store:
        store.exclude("41", "damaged")
        drawn = draw_round(store, random=100).draw.pairs
        assert len(drawn.rows) == 3 * 59 - 1
        assert 41 not in drawn.rows
        assert (40, 1) not in set(zip(drawn.rows.tolist(), drawn.label_ids.tolist(), strict=True))


# The file


def test_every_answer_is_on_disk_at_once_and_half_a_line_is_cut_off(tmp_path: Path, truth: Truth) -> None:
    store = make_run(tmp_path, truth)
    path = draw_round(store, random=4).path
    with open_round(store, write=True) as round_:
        round_.answer(0, "yes", by="ann")
        round_.answer(2, "unsure", by="bob")
        again = read_rounds(store)[0]
        assert (again.answers[0], again.answers[2], again.people[2], again.order) == ("yes", "unsure", "bob", [0, 2])
        round_.answer(0, None, by="ann")
    with open(path, "ab") as stream:
        stream.write(b'{"pair":1,"answ')
    with open_round(store, write=True) as round_:
        assert (round_.answers[:3], round_.order, round_.people[0]) == ([None, None, "unsure"], [2], "")
        round_.answer(1, "no", by="ann")
    again = read_rounds(store)[0]
    assert (again.answers[:3], again.versions[:3], again.order) == ([None, "no", "unsure"], [2, 1, 1], [2, 1])
    store.close()


@settings(max_examples=30)
@given(
    events=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([*ANSWERS, None])), max_size=12),
    cut=st.integers(1, 400),
)
@pytest.mark.slow
def test_a_file_cut_anywhere_gives_the_answers_of_its_whole_lines(
    events: list[tuple[int, PersonAnswer | None]], cut: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = make_run(Path(folder), np.zeros((8, 1), dtype=np.int8), ("cat",))
        path = draw_round(store, random=6).path
        with open_round(store, write=True) as round_:
            for pair, answer in events:
                round_.answer(pair, answer, by="ann")
        data = path.read_bytes()
        kept = data[: max(data.index(b"\n") + 1, len(data) - cut)]
        path.write_bytes(kept)
        expected: dict[int, PersonAnswer | None] = {}
        for pair, answer in events[: kept.count(b"\n") - 1]:
            expected.pop(pair, None)
            if answer is not None:
                expected[pair] = answer
        with open_round(store, write=True) as round_:
            assert round_.answers == [expected.get(pair) for pair in range(6)]
            assert round_.order == list(expected)
            round_.answer(0, "yes", by="bob")
        assert read_rounds(store)[0].answers[0] == "yes"
        store.close()


def test_of_two_answers_to_what_one_saw_the_second_is_refused(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=4)
        with open_round(store, write=True) as round_:
            round_.answer(0, "yes", by="ann", version=0)
            with pytest.raises(AnswerConflict, match="answered in another window in the meantime: yes"):
                round_.answer(0, "no", by="bob", version=0)
            round_.answer(0, None, by="ann", version=1)
            with pytest.raises(AnswerConflict, match="withdrawn"):
                round_.answer(0, "no", by="bob", version=1)
            round_.answer(0, "no", by="bob", version=2)
            assert (round_.answers[0], round_.people[0]) == ("no", "bob")
            with pytest.raises(ScapoError, match="pair 999 not found"):
                round_.answer(999, "no", by="bob")


def test_one_process_answers_at_a_time(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=4)
        with open_round(store, write=True), pytest.raises(InputError, match="another process uses this round"):
            open_round(store, write=True)
        open_round(store, write=True).close_file()


def test_a_killed_server_loses_no_answer(tmp_path: Path, truth: Truth) -> None:
    make_run(tmp_path, truth).close()
    store = Store.open(tmp_path / "run")
    draw_round(store, random=20)
    code = (
        "import os, sys\n"
        "from scapo_eval.annotate.store import Store\n"
        "from scapo_eval.annotate.qc.rounds import open_round\n"
        "store = Store.open(sys.argv[1])\n"
        "round_ = open_round(store, write=True)\n"
        "for pair in range(15):\n"
        "    round_.answer(pair, 'no', by='ann')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, timeout=600)
    assert done.returncode == -9
    with open_round(store, write=True) as round_:
        assert round_.open_pairs == list(range(15, len(round_.answers)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace(b"scapo-qc-round/1", b"scapo-qc-round/9", 1), "not a round of this run"),
        (lambda text: b'{"format":' + text, "1: damaged"),
        (lambda text: text + b'{"pair":99999,"answer":"no","by":"a"}\n', "2: damaged"),
        (lambda text: text + b'{"pair":1,"answer":"perhaps","by":"a"}\n', "2: damaged"),
        (lambda text: text + b"{}\n", "2: damaged"),
        (lambda text: text.replace(b'"matrix":"', b'"matrix":"AAAA', 1), "1: damaged"),
    ],
)
def test_damaged_rounds_are_named(tmp_path: Path, truth: Truth, change: Callable[[bytes], bytes], reason: str) -> None:
    with make_run(tmp_path, truth) as store:
        path = draw_round(store, random=4).path
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(InputError, match=f"{re.escape(str(path))}:.*{reason}|{reason}"):
            read_rounds(store)


def test_a_round_of_another_run_is_refused(tmp_path: Path, truth: Truth) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with make_run(tmp_path / "a", truth) as first, make_run(tmp_path / "b", truth[:50]) as second:
        path = draw_round(first, random=4).path
        (second.folder / "qc").mkdir()
        (second.folder / "qc" / path.name).write_bytes(path.read_bytes())
        with pytest.raises(InputError, match="not a round of this run"):
            read_rounds(second)
        with open_round(first, write=True) as round_:
            close_round(first, round_, abandon=True)
        draw_round(first, random=4)
        path.unlink()
        with pytest.raises(InputError, match="round 1 not found: this file is round 2"):
            read_rounds(first)


# Closing


def test_closing_writes_people_into_the_run_and_lists_the_errors(tmp_path: Path, truth: Truth) -> None:
    judged = truth.copy()
    judged[0, 0], judged[50, 1] = 0, 1
    with make_run(tmp_path, judged) as store:
        errors = one_round(store, truth, random=60)
        assert [(e["image_id"], e["label"], e["judged"], e["person"]) for e in errors] == [
            ("0", "cat", 0, 1),
            ("50", "dog", 1, 0),
        ]
        assert {(e["kind"], e["prompt"], e["judge"], e["by"]) for e in errors} == {
            ("coarse", "coarse@12345678", "judge-7b", "ann")
        }
        assert (store.matrix == truth).all()
        assert store.provenance_of(0, 0) == CellProvenance("human", "", "ann", 1)
        store.write([0], [0], [0], CellProvenance("label", "label@1", "judge-7b", 1))
        assert store.matrix[0, 0] == 1
        summary = summarize(store)
        assert summary["refine"] == ["cat", "dog"]
        assert [e["round"] for e in summary["errors"]] == [1, 1]
    assert (Store.open(tmp_path / "run").matrix == truth).all()


def test_an_unfinished_round_is_not_closed_but_can_be_given_up(tmp_path: Path, truth: Truth) -> None:
    judged = truth.copy()
    judged[:, 0] = 1
    with make_run(tmp_path, judged) as store:
        draw_round(store, random=20)
        with pytest.raises(ScapoError, match="round 1 is still open"):
            draw_round(store)
        with open_round(store, write=True) as round_:
            pair = next(k for k, row in enumerate(round_.draw.pairs.rows.tolist()) if row >= 20)
            round_.answer(pair, "no", by="ann")
            with pytest.raises(ScapoError, match="pairs have no answer yet"):
                close_round(store, round_)
            assert len(close_round(store, round_, abandon=True)) == 1
            with pytest.raises(ScapoError, match="round 1 is abandoned"):
                round_.answer(0, "no", by="ann")
        row = int(round_.draw.pairs.rows[pair])
        assert store.matrix[row, 0] == 0
        summary = summarize(store)
        assert (summary["overall"], summary["labels"]) == (None, {})
        one_round(store, truth, random=20)
        summary = summarize(store)
        assert summary["overall"]["alpha"] == alpha_of_draw(0.01, 2)
        assert row not in read_rounds(store)[1].draw.pairs.rows[read_rounds(store)[1].draw.pairs.label_ids == 0]


def test_a_closing_that_was_killed_half_way_is_repeated(tmp_path: Path, truth: Truth) -> None:
    judged = truth.copy()
    judged[0, 0] = 0
    with make_run(tmp_path, judged) as store:
        draw_round(store, random=60)
        store.write([0], [0], [1], CellProvenance("human", "", "ann", 1))  # what the killed closing had written
        with open_round(store, write=True) as round_:
            honest(round_, truth)
            (error,) = close_round(store, round_)
        assert (error["kind"], error["prompt"]) == ("coarse", "coarse@12345678")


def test_undecided_cells_are_decided_by_a_person(tmp_path: Path, truth: Truth) -> None:
    judged = truth.copy()
    judged[3, 0] = judged[22, 1] = judged[23, 1] = -1
    with make_run(tmp_path, judged) as store:
        one_round(store, truth, random=5)
        before = summarize(store)
        ask_undecided(store)
        with open_round(store, write=True) as round_:
            assert round_.draw.pairs.rows.tolist() == [3, 22, 23]
            honest(round_, truth, {1: "unsure"})
            assert close_round(store, round_) == []
        assert (store.matrix[3, 0], store.matrix[22, 1], store.matrix[23, 1]) == (1, -1, 1)
        after = summarize(store)
        assert after["rounds"][1]["kind"] == "undecided"
        assert after["stale"] == []
        assert after["overall"]["alpha"] == before["overall"]["alpha"]
        ask_undecided(store)
        with open_round(store, write=True) as round_:
            honest(round_, truth)
            close_round(store, round_)
        with pytest.raises(ScapoError, match="every cell has a verdict"):
            ask_undecided(store)


# The summary


def test_bounds_are_those_of_the_samples(tmp_path: Path, truth: Truth) -> None:
    judged = truth.copy()
    judged[40, 1], judged[0, 0] = 1, 0
    with make_run(tmp_path, judged) as store:
        draw_round(store, random=30, at_least=4)
        with open_round(store, write=True) as round_:
            drawn = round_.draw
            honest(round_, truth)
            close_round(store, round_)
        summary = summarize(store)
        alpha = alpha_of_draw(0.01, 1)
        for label, name in enumerate(LABELS):
            of_label = drawn.pairs.label_ids == label
            wrong = drawn.judged != truth[drawn.pairs.rows, drawn.pairs.label_ids]
            for side, verdict in (("present", 1), ("absent", 0)):
                sample = of_label & (drawn.judged == verdict)
                population = int((judged[:, label] == verdict).sum())
                low, high = wrong_cells(int((sample & wrong).sum()), int(sample.sum()), population, alpha)
                mended = int((sample & wrong).sum())
                cells = int((store.matrix[:, label] == verdict).sum())
                found = summary["labels"][name][side]
                assert found == {
                    "cells": cells,
                    "checked": int(sample.sum()),
                    "wrong": mended,
                    "unsure": 0,
                    "low": pytest.approx((low - mended) / cells),
                    "high": pytest.approx((high - mended) / cells),
                }
        wrong_random = int((wrong & drawn.pairs.random).sum())
        bounds = pooled_wrong_cells(wrong_random, 0, [(60, 30)] * 3, alpha)
        assert bounds is not None
        overall = summary["overall"]
        error = overall["error"]
        assert (error["checked"], error["cells"], error["wrong"]) == (90, 180, wrong_random)
        assert error["high"] == pytest.approx((bounds[1] - int(wrong.sum())) / 180)
        checked, wrongly = int(drawn.pairs.present.sum()), wrong & (drawn.judged == 1)
        _, most = wrong_cells(int((wrongly & drawn.pairs.present).sum()), checked, int((judged == 1).sum()), alpha)
        false = overall["false_positive"]
        assert (false["checked"], false["cells"]) == (15, int((store.matrix == 1).sum()))
        assert false["high"] == pytest.approx((most - int(wrongly.sum())) / false["cells"])


def test_unsure_widens_upper_bounds_now_and_later(tmp_path: Path, truth: Truth) -> None:
    highs = {}
    for name, answers in {"sure": {}, "unsure": {0: "unsure"}}.items():
        (tmp_path / name).mkdir()
        with make_run(tmp_path / name, truth) as store:
            draw_round(store, random=20, present=0, at_least=0)
            with open_round(store, write=True) as round_:
                honest(round_, truth, answers)  # type: ignore[arg-type]
                close_round(store, round_)
                row, label = round_.draw.pairs.rows[0], round_.draw.pairs.label_ids[0]
            assert (store.provenance_of(row, label) == JUDGE) == (name == "unsure")
            first = summarize(store)["overall"]["error"]
            one_round(store, truth, random=20, present=0, at_least=0)
            second = summarize(store)["overall"]["error"]
            highs[name] = (first["high"], second["high"])
            assert first["low"] == second["low"] == 0
    assert highs["unsure"][0] > highs["sure"][0]
    assert highs["unsure"][1] == pytest.approx(highs["sure"][1] + 1 / 180)


def test_missing_pictures_are_counted_apart(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=20, present=0, at_least=0)
        with open_round(store, write=True) as round_:
            honest(round_, truth, {0: "missing", 1: "missing"})
            close_round(store, round_)
            skipped = int(round_.draw.pairs.rows[0])
        summary = summarize(store)
        assert (summary["rounds"][0]["missing"], summary["overall"]["error"]["checked"]) == (2, 58)
        assert sum(summary["labels"]["cat"][side]["checked"] for side in ("present", "absent")) == 18
        again = draw_round(store, random=60, present=0, at_least=0, labels=["cat"])
        assert skipped in again.draw.pairs.rows
        assert len(again.draw.pairs.rows) == 60 - 18


def test_a_label_that_a_judge_changed_has_no_bounds_until_a_fresh_draw(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        one_round(store, truth, random=10)
        assert summarize(store)["stale"] == []
        store.write(np.arange(60), np.ones(60, dtype=int), truth[:, 1], CellProvenance("label", "p@1", "judge-7b", 1))
        assert summarize(store)["stale"] == []  # asked again, nothing changed
        store.write(
            np.arange(60), np.ones(60, dtype=int), 1 - truth[:, 1], CellProvenance("label", "p@2", "judge-7b", 1)
        )
        summary = summarize(store)
        assert (summary["stale"], summary["overall"]) == (["dog"], None)
        assert "1 labels have changed since round 1" in summary["overall_missing"]
        assert summary["labels"]["dog"]["present"]["high"] is None
        assert summary["labels"]["cat"]["present"]["high"] is not None
        one_round(store, truth, random=10, labels=["dog"])
        summary = summarize(store)
        assert (summary["stale"], summary["labels"]["dog"]["round"]) == ([], 2)
        assert summary["labels"]["dog"]["alpha"] == alpha_of_draw(0.01, 2)
        assert summary["labels"]["cat"]["alpha"] == alpha_of_draw(0.01, 1)
        assert summary["overall"] is None  # the last draw over all labels saw another matrix
        one_round(store, truth, random=10)
        assert summarize(store)["overall"]["alpha"] == alpha_of_draw(0.01, 2)


def test_a_doubtful_cell_that_a_judge_changes_asks_for_a_fresh_draw(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=10)
        with open_round(store, write=True) as round_:
            honest(round_, truth, {0: "unsure"})
            close_round(store, round_)
        row, label = int(round_.draw.pairs.rows[0]), int(round_.draw.pairs.label_ids[0])
        assert summarize(store)["stale"] == []
        store.write([row], [label], [1 - truth[row, label]], CellProvenance("label", "p@1", "judge-7b", 1))
        assert summarize(store)["stale"] == [LABELS[label]]


def test_the_summary_on_disk_is_what_it_says(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        one_round(store, truth, random=10)
        written = write_summary(store, confidence=0.9)
        assert json.loads((store.folder / "qc" / "summary.json").read_bytes()) == written
        assert (written["confidence"], written["judges"], written["never_drawn"]) == (0.9, ["judge-7b"], [])
        assert written["overall"]["error"]["high"] < summarize(store)["overall"]["error"]["high"]


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (None, "n/a", "n/a"),
        (0.0, "0.00 %", "0.00 %"),
        (0.0012474, "0.12 %", "0.13 %"),
        (0.00001, "0.001 %", "0.001 %"),
        (0.0000104, "0.001 %", "0.002 %"),
        (0.07, "7.00 %", "7.00 %"),
        (1.0, "100.00 %", "100.00 %"),
    ],
)
def test_bounds_are_rounded_outwards(value: float | None, down: str, up: str) -> None:
    assert (percent(value, up=False), percent(value, up=True)) == (down, up)


# Tables


def test_a_table_carries_answers_out_and_in(tmp_path: Path, truth: Truth) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=5)
        with open_round(store, write=True) as round_:
            round_.answer(0, "unsure", by="ann")
            rows = list(csv.DictReader(io.StringIO(pairs_table(round_, store).decode())))
            assert list(rows[0]) == ["image_id", "image", "label", "definition", "verdict"]
            assert (rows[0]["definition"], rows[0]["verdict"], rows[1]["verdict"]) == ("A cat, no lion.", "unsure", "")
            for row in rows[1:-1]:
                row["verdict"] = "Yes" if truth[int(row["image_id"]), LABELS.index(row["label"])] else "0"
            text = io.StringIO()
            writer = csv.DictWriter(text, list(rows[0]), delimiter=";")
            writer.writeheader()
            writer.writerows(rows)
            (tmp_path / "a.csv").write_text("\ufeff" + text.getvalue())
            found = read_answers(str(tmp_path / "a.csv"), round_, store)
            assert [pair for pair, _ in found] == list(range(1, len(rows) - 1))
            round_.answer_many(found, by="lab")
            assert round_.open_pairs == [len(rows) - 1]
            last = rows[-1]
            (tmp_path / "b.jsonl").write_text(json.dumps({**last, "image_id": int(last["image_id"]), "verdict": True}))
            assert read_answers(str(tmp_path / "b.jsonl"), round_, store) == [(len(rows) - 1, "yes")]


def test_faulty_tables_are_refused_line_by_line(tmp_path: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_run(tmp_path, truth) as store:
        round_ = draw_round(store, random=5)
        row, label = int(round_.draw.pairs.rows[0]), LABELS[int(round_.draw.pairs.label_ids[0])]
        pair = {"image_id": str(row), "label": label, "verdict": "yes"}
        lines = [
            pair,
            {**pair, "verdict": "no"},
            {**pair, "verdict": "maybe"},
            {**pair, "label": "cow"},
            {"image_id": 1},
            {**pair, "image_id": -1},
        ]
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(InputErrors) as raised:
            read_answers(str(path), round_, store)
        places = [(error.line, error.reason) for error in raised.value.errors]
        assert [line for line, _ in places] == [2, 3, 4, 5, 6]
        assert "already has the answer 'yes', not 'no'" in places[0][1]
        assert "must be yes, no, unsure or missing" in places[1][1]
        assert "does not contain 'cow'" in places[2][1]
        (tmp_path / "a.csv").write_text("image_id,label," + "verdict" * 400)
        with monkeypatch.context() as patched:
            patched.setattr("scapo_eval.files.containers._MAX_CELL", 1000)
            with pytest.raises(InputError, match=r"a\.csv:.*not a valid CSV file: field larger than field limit"):
                read_answers(str(tmp_path / "a.csv"), round_, store)
        (tmp_path / "c.csv").write_text(f"image_id,label,verdict,verdict\n{row},{label},yes,no\n")
        with pytest.raises(InputError, match=r"c\.csv:1: the column 'verdict' appears twice"):
            read_answers(str(tmp_path / "c.csv"), round_, store)
        (tmp_path / "d.csv").write_text(f"image_id,label,verdict\n{row},{label},yes,no\n")
        with pytest.raises(InputErrors, match=r"d\.csv:2: the line has 4 cells, but the header has 3"):
            read_answers(str(tmp_path / "d.csv"), round_, store)
        (tmp_path / "b.csv").write_text("id,label\n1,cat\n")
        with pytest.raises(InputError, match="1: expected a header line with the columns image_id, label and verdict"):
            read_answers(str(tmp_path / "b.csv"), round_, store)


# The command line


@pytest.fixture
def qc(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scapo-eval", "annotate", "qc", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        captured = capfd.readouterr()
        return int(leaving.value.code or 0), captured.out, captured.err

    return call


def test_a_round_without_a_browser(tmp_path: Path, truth: Truth, qc: Callable[..., tuple[int, str, str]]) -> None:
    judged = truth.copy()
    judged[0, 0] = 0
    make_run(tmp_path, judged).close()
    run = tmp_path / "run"
    assert qc("status", run)[0] == 0
    assert qc("draw", run, "--random", 60, "--seed", 5) == (
        0,
        "",
        f"round 1: 180 pairs of 3 labels (0 drawn because the judge calls them present); seed 5\n"
        f"answer them: scapo-eval annotate qc serve {run}\n",
    )
    assert qc("draw", run)[0] == 2
    code, text, _ = qc("export", run, "-o", "-")
    rows = list(csv.DictReader(io.StringIO(text)))
    for row in rows:
        row["verdict"] = "yes" if truth[int(row["image_id"]), LABELS.index(row["label"])] else "no"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "180 answers imported, 0 pairs still open" in qc("import", run, tmp_path / "a.jsonl", "--by", "lab")[2]
    code, text, _ = qc("close", run)
    assert code == 0
    assert "1\tall\t180\t180\t0\t0\t1\tclosed" in text
    assert f"scapo-eval annotate refine {run} --labels cat" in text
    code, text, _ = qc("status", run, "--errors")
    assert "cat\t1\t20\t0 / 19\t0.00 %\t40\t1 / 41\t0.00 %" in text
    assert text.splitlines()[-1].split("\t") == ["1", "0", "cat", "0", "1", "lab", "coarse@12345678", "judge-7b"]
    assert json.loads(qc("status", run, "--json")[1])["overall"]["error"]["high"] == 0
    code, _, message = qc("draw", run, "--failing")
    assert (code, message) == (
        2,
        "scapo-eval: nothing to draw: people have checked every judged cell of these labels\n",
    )


def test_a_second_person(tmp_path: Path, truth: Truth) -> None:
    """Kappa by hand; what two people see otherwise is in doubt, whoever is right, and goes into no cell."""
    store = make_run(tmp_path, truth)
    with pytest.raises(ScapoError, match="the last round has no random pairs for a second person"):
        draw_second(store)
    one_round(store, truth, random=20)
    before = summarize(store)
    share = draw_second(store, share=0.5)
    asked = share.draw.pairs
    n = len(asked.rows)
    assert n == round(len(read_rounds(store)[0].answers) / 2)
    with pytest.raises(ScapoError, match="has already been drawn"):
        draw_second(store)
    present = truth[asked.rows, asked.label_ids] == 1
    odd = [int(np.flatnonzero(present)[0]), *np.flatnonzero(~present)[:2].tolist()]
    others: dict[int, PersonAnswer] = {k: "no" if present[k] else "yes" for k in odd}
    matrix = store.matrix.copy()
    with open_round(store, write=True, second=True) as second:
        honest(second, truth, {**others, int(np.flatnonzero(~present)[3]): "unsure"}, by="bob")
        assert close_round(store, second) == []
    assert (store.matrix == matrix).all()
    (record,) = summarize(store)["second"]
    yes, m = int(present.sum()), n - 1
    chance = (yes * (yes + 1) + (m - yes) * (m - yes - 1)) / m**2
    assert (record["both"], record["agree"], record["disputed"]) == (m, m - 3, 3)
    assert record["people"] == (("ann",), ("bob",))
    assert record["kappa"] == pytest.approx(((m - 3) / m - chance) / (1 - chance))
    after = summarize(store)
    assert after["rounds"][0]["unsure"] == before["rounds"][0]["unsure"] + 3
    sides = [
        (after["labels"][name][side], before["labels"][name][side]) for name in LABELS for side in ("present", "absent")
    ]
    assert sum(now["unsure"] for now, _ in sides) == 3
    assert all(now["high"] > was["high"] for now, was in sides if now["unsure"])
    assert all(now["high"] == was["high"] for now, was in sides if not now["unsure"])


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_whichever_of_two_people_is_right(seed: int, tmp_path: Path, truth: Truth) -> None:
    """If every cell is checked, the bounds are the extremes over all cells on which the two people differ."""
    generator = np.random.default_rng(seed)
    judged = np.where(generator.random(truth.shape) < 0.03, 1 - truth, truth)
    store = make_run(tmp_path, judged)

    def answers(round_: Round, errors: int) -> dict[int, PersonAnswer]:
        pairs = round_.draw.pairs
        chosen = generator.choice(len(pairs.rows), errors, replace=False).tolist()
        return {k: "no" if truth[pairs.rows[k], pairs.label_ids[k]] else "yes" for k in chosen}

    draw_round(store, random=len(truth), present=truth.size)
    with open_round(store, write=True) as first:
        honest(first, truth, answers(first, 2))
        close_round(store, first)
    draw_second(store, share=1.0)
    with open_round(store, write=True, second=True) as second:
        honest(second, truth, answers(second, 2), by="bob")
        close_round(store, second)
    [one], [two] = read_rounds(store), read_seconds(store)
    place = {cell: k for k, cell in enumerate(zip(*cells_of(one), strict=True))}
    both = [(one.answers[place[cell]], two.answers[k]) for k, cell in enumerate(zip(*cells_of(two), strict=True))]
    now = judged_matrix(store)
    found: list[dict[tuple[str, str], int]] = []
    for right in itertools.product((0, 1), repeat=sum(a != b for a, b in both)):
        real, chosen = now.copy(), iter(right)
        for cell, pair in zip(zip(*cells_of(two), strict=True), both, strict=True):
            said = pair[next(chosen)] if pair[0] != pair[1] else pair[0]
            real[cell] = said == "yes"
        wrong = now != real
        found.append(
            {
                **{
                    (name, side): int((wrong & (now == verdict))[:, column].sum())
                    for column, name in enumerate(LABELS)
                    for side, verdict in (("present", 1), ("absent", 0))
                },
                ("overall", "error"): int(wrong.sum()),
                ("overall", "false_positive"): int((wrong & (now == 1)).sum()),
                ("overall", "false_negative"): int((wrong & (now == 0)).sum()),
            }
        )
    summary = summarize(store)
    for of, part in found[0]:
        record = summary["overall"][part] if of == "overall" else summary["labels"][of][part]
        counts = [each[of, part] for each in found]
        assert round(record["high"] * record["cells"], 6) == max(counts)
        assert round(record["low"] * record["cells"], 6) == min(counts) == 0
    disputed = {cell for cell, (a, b) in zip(zip(*cells_of(two), strict=True), both, strict=True) if a != b}
    listed = {(int(error["image_id"]), LABELS.index(error["label"])) for error in summary["errors"]}
    assert not disputed & listed


def test_bounds_of_a_released_matrix_are_those_of_its_thresholds(tmp_path: Path, truth: Truth) -> None:
    """Verdicts that other thresholds change were not checked, so that there are no bounds on them."""
    store = make_run(tmp_path, truth)
    rows, columns = np.indices(truth.shape)
    p = np.where(truth == 1, 0.9, 0.1)
    p[:3, 0] = 0.6
    store.write(rows.ravel(), columns.ravel(), truth.ravel(), JUDGE, p.ravel())
    one_round(store, truth, labels=["dog", "kite", "cat"], random=20)
    write_summary(store)
    output = str(tmp_path / "dopa.npz")
    usual = finalize(store, output)["quality_control"]
    assert usual["overall"]["error"]["high"] > 0
    card = finalize(store, output, thresholds=(0.8, 0.8))
    seen = people_cells(store)[:3, 0].sum()
    found = card["quality_control"]
    assert card["cells"]["present"] == usual["overall"]["false_positive"]["cells"] - (3 - seen)
    assert found["overall"] is None
    assert found["overall_missing"] == (
        f"the thresholds of P(yes) give {3 - seen} cells other verdicts than those that people checked"
    )
    assert found["labels"]["cat"]["stale"]
    assert found["labels"]["cat"]["present"]["high"] is None
    assert found["labels"]["dog"] == usual["labels"]["dog"]
    (store.folder / "qc" / "summary.json").unlink()  # the process was killed before it was written
    assert finalize(store, output)["quality_control"] == usual


def test_numbers_that_are_none_are_refused(
    qc: Callable[..., tuple[int, str, str]], tmp_path: Path, truth: Truth
) -> None:
    store = make_run(tmp_path, truth)
    store.close()
    run = str(store.folder)
    for words in (("status", run, "--confidence", "nan"), ("draw", run, "--second", "nan")):
        assert "nan is not a finite number" in qc(*words)[2]
    code, _, said = qc("draw", run, "--seed", str(2**63))
    assert (code, "is not below 2**63" in said) == (2, True)
    assert qc("draw", run, "--seed", str(2**63 - 1))[0] == 0
    assert read_rounds(Store.open(run))[0].draw.seed == 2**63 - 1


def test_files_of_the_run_are_not_overwritten(
    qc: Callable[..., tuple[int, str, str]], tmp_path: Path, truth: Truth
) -> None:
    store = make_run(tmp_path, truth)
    store.close()
    run = store.folder
    assert qc("draw", run)[0] == 0
    for name in ("qc/round-001.jsonl", "images.jsonl", "run.json"):
        before = (run / name).read_bytes()
        code, _, said = qc("export", run, "-o", run / name)
        assert (code, "is also an input and would be overwritten" in said) == (2, True)
        assert (run / name).read_bytes() == before
    assert qc("export", run, "-o", run / "pairs.csv")[0] == 0


def cells_of(round_: Round) -> tuple[list[int], list[int]]:
    return round_.draw.pairs.rows.tolist(), round_.draw.pairs.label_ids.tolist()


def test_the_first_person_is_no_second_one(
    tmp_path: Path, truth: Truth, qc: Callable[..., tuple[int, str, str]]
) -> None:
    make_run(tmp_path, truth).close()
    run, table = tmp_path / "run", tmp_path / "a.csv"
    assert qc("draw", run, "--random", 10)[0] == 0

    def answered(*second: str) -> list[str]:
        _, text, _ = qc("export", run, "-o", "-", *second)
        rows = [row | {"verdict": "no"} for row in csv.DictReader(io.StringIO(text))]
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [*map(str, rows)]

    first = answered()
    assert qc("import", run, table, "--by", "ann")[0] == 0
    assert qc("close", run)[0] == 0
    assert "exclude each other" in qc("draw", run, "--second", "0.2", "--labels", "cat")[2]
    assert "pairs for a second person" in qc("draw", run, "--second", "0.2")[2]
    assert len(answered("--second")) == round(0.2 * len(first))
    assert qc("import", run, table, "--by", "ann", "--second")[::2] == (
        2, "scapo-eval: 'ann' answered round 1 as the first person; the second person must be different (--by)\n",
    )  # fmt: skip
    assert qc("import", run, table, "--by", "bob", "--second")[0] == 0
    code, text, _ = qc("close", run, "--second")
    assert code == 0
    n = round(0.2 * len(first))
    assert f"second person bob: {n} of {n} answers agree, Cohen's kappa n/a" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("draw", "RUN", "--labels", "cat,cow"), "unknown label 'cow': not in the run's vocabulary 'custom'"),
        (("draw", "RUN", "--failing"), "no label has errors in the last finished round"),
        (("draw", "RUN", "--failing", "--labels", "cat"), "exclude each other"),
        (("draw", "RUN", "--undecided"), "every cell has a verdict"),
        (("serve", "RUN"), "no round has been drawn; draw one"),
        (("import", "RUN", "none.csv"), "no round has been drawn; draw one"),
        (("close", "RUN"), "no round has been drawn"),
        (("draw", "nowhere"), "annotation run not found"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path,
    truth: Truth,
    qc: Callable[..., tuple[int, str, str]],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    make_run(tmp_path, truth).close()
    code, out, found = qc(*[str(tmp_path / "run") if word == "RUN" else word for word in arguments])
    assert (code, out) == (2, "")
    assert message in found


def test_a_port_that_is_taken_is_said(tmp_path: Path, truth: Truth, qc: Callable[..., tuple[int, str, str]]) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, message = qc("serve", tmp_path / "run", "--port", port, "--by", "ann")
    assert (code, out) == (2, "")
    assert f"port {port} cannot be used: Address already in use" in message


def test_a_run_that_somebody_writes_is_not_closed(
    tmp_path: Path, truth: Truth, qc: Callable[..., tuple[int, str, str]]
) -> None:
    with make_run(tmp_path, truth) as store:
        draw_round(store, random=2)
        with open_round(store, write=True) as round_:
            honest(round_, truth)
        code, _, message = qc("close", tmp_path / "run")
        assert (code, f"process {os.getpid()} is writing this run" in message) == (2, True)
    assert qc("close", tmp_path / "run")[0] == 0
