"""Estimates of the errors in the matrix: the errors that were found in rounds, and bounds on the remaining errors.

The estimates are given per label and overall. A bound applies to the current matrix, which includes people's verdicts.
The bound is the interval for the number of wrong cells at the last draw, minus the number of errors that have been
found and corrected since then. If a judge has changed cells of a label since the label's last draw, the bounds of this
label and the overall bounds are omitted until a new draw.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import InputError
from ...base.verdicts import ABSENT, PRESENT, UNKNOWN
from ...files.files import atomic_write
from ...files.json_text import dump_json, read_json
from ..store import Store
from .bounds import alpha_of_draw, pooled_wrong_cells, wrong_cells
from .rounds import (
    ANSWERS,
    FOLDER,
    VERDICTS,
    Round,
    judged_matrix,
    people_cells,
    read_rounds,
    read_seconds,
)

DEFAULT_CONFIDENCE = 0.99
FORMAT = "scapo-qc-summary/1"
SIDES = {"present": PRESENT, "absent": ABSENT}
"""The judge's call -> verdict. A wrong ``present`` is a false positive, and a wrong ``absent`` is a false negative."""


@dataclass(frozen=True)
class _Sample:
    """The results of a draw, as (images, labels) arrays. All estimates are based on these arrays.

    Attributes:
        judged: Verdicts at the time of the draw (1, 0 or -1; not a mask).
        eligible: Cells that could be drawn.
        checked: Drawn cells for which the answer is yes, no or unsure.
        random: Checked cells from the labels' random draws.
        present: Checked cells that were drawn from all present cells.
        wrong: Checked cells for which the person's answer differs from the judge's verdict.
        unsure: Checked cells for which the answer is "unsure", and disputed cells.
        corrected: Eligible cells that were found to be wrong and corrected in this draw or a later one.
        contested: Eligible cells to which the first person gave another verdict than the judge in this draw or a later
            one, and for which the second person agrees with the judge. The matrix contains the first person's verdict.
        doubtful: Cells outside ``eligible`` that may be wrong because the answer in an earlier round was uncertain.
    """

    judged: NDArray[np.int8]
    eligible: NDArray[np.bool_]
    checked: NDArray[np.bool_]
    random: NDArray[np.bool_]
    present: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    unsure: NDArray[np.bool_]
    corrected: NDArray[np.bool_]
    contested: NDArray[np.bool_]
    doubtful: NDArray[np.bool_]


def summarize(
    store: Store, *, confidence: float = DEFAULT_CONFIDENCE, matrix: NDArray[np.int8] | None = None
) -> dict[str, Any]:
    """Returns the state of quality control, which is the content of ``qc/summary.json``.

    Bounds are stated as fractions of the number of cells currently in the matrix.

    Args:
        store: Annotation run.
        confidence: Minimum probability with which each interval is valid after any number of rounds.
        matrix: (images, labels) matrix of verdicts to which the bounds apply, or None for that of the run.

    Returns:
        A dictionary with the following keys, among others:

        - ``rounds``: one record for each round.
        - ``second``: agreement between the two people in each round that a second person also answered. Pairs with two
          different answers are treated as unsure in the round and in all bounds.
        - ``overall``: intervals for all wrong cells (``error``), for absent cells that are called present
          (``false_positive``), and for present cells that are called absent (``false_negative``). If ``overall`` is
          null, ``overall_missing`` states the reason.
        - ``labels``: intervals for false positives and false negatives, per label.
        - ``stale``: labels with cells that a judge has changed since the last draw of the label.
        - ``refine``: labels with errors in the last round.
        - ``errors``: all cells that were found to be wrong.
        - ``claims``: True if the cells are claims. ``labels`` then contains their kinds, and ``present`` means true.
        - ``judges``: names of all judges in the run.
    """
    rounds = read_rounds(store)
    seconds = [agreement(rounds[second.number - 1], second) for second in read_seconds(store)]
    contested = {record.round: _contested(rounds[record.round - 1], record.disputed) for record in seconds}
    for record in seconds:
        round_ = rounds[record.round - 1]
        for pair in record.disputed:
            round_.answers[pair] = "unsure"
        round_.errors = [error for error in round_.errors if error["pair"] not in record.disputed]
    if matrix is None:
        matrix = judged_matrix(store)
    alpha = round(1 - confidence, 12)
    closed = [round_ for round_ in rounds if round_.state == "closed" and round_.draw.labels]
    current = _changed(matrix, rounds, store)
    samples = {round_.number: _sample(round_, rounds, contested) for round_ in _counting_rounds(closed)}
    labels: dict[str, Any] = {}
    for column, name in enumerate(store.labels):
        last = next((round_ for round_ in reversed(closed) if column in round_.draw.labels), None)
        if last is None:
            continue
        draws = sum(column in round_.draw.labels for round_ in rounds[: last.number])
        level = alpha_of_draw(alpha, draws)
        labels[name] = {"round": last.number, "alpha": level, "stale": bool(current[last.number][column])}
        for side in SIDES:
            labels[name][side] = _label_side(samples[last.number], column, side, matrix, level, labels[name]["stale"])
    last_full = next((round_ for round_ in reversed(closed) if round_.draw.full), None)
    overall, missing = None, "no round over all labels has been closed"
    if last_full is not None:
        level = alpha_of_draw(alpha, sum(round_.draw.full for round_ in rounds[: last_full.number]))
        changed = [store.labels[k] for k in np.flatnonzero(current[last_full.number])]
        if changed:
            missing = f"{len(changed)} labels have changed since round {last_full.number}; draw over all labels again"
        else:
            overall = _overall(samples[last_full.number], matrix, level, last_full.number)
            missing = "" if overall else f"a label of round {last_full.number} has no displayable picture"
    last_closed = closed[-1] if closed else None
    return {
        "format": FORMAT,
        "confidence": confidence,
        "rounds": [_round_record(round_, store) for round_ in rounds],
        "second": [record.to_dict() for record in seconds],
        "overall": overall,
        "overall_missing": missing,
        "labels": labels,
        "never_drawn": [name for name in store.labels if name not in labels],
        "stale": [name for name, record in labels.items() if record["stale"]],
        "refine": list(dict.fromkeys(error["label"] for error in last_closed.errors)) if last_closed else [],
        "errors": [{"round": round_.number, **_without_pair(error)} for round_ in rounds for error in round_.errors],
        "judges": sorted({provenance.judge for provenance in store.provenances if provenance.kind != "human"}),
        "claims": bool(store.claims),
    }


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """Agreement between two people on the pairs of a round that both people answered with "yes" or "no".

    Attributes:
        round: Number of the round.
        state: State of the share that the second person answers.
        people: Names of the people who answered first, and names of the people who answered second.
        pairs: Number of pairs that were drawn for the second person.
        both: Number of pairs for which each person answered either yes or no.
        agree: Number of pairs with equal answers.
        kappa: Cohen's kappa (1960), or None if all answers of both people are the same (all yes or all no).
        disputed: Pairs that one person answered with yes and the other with no. The list ``disputed`` is empty until
            the second person's share is closed.
    """

    round: int
    state: str
    people: tuple[tuple[str, ...], tuple[str, ...]]
    pairs: int
    both: int
    agree: int
    kappa: float | None
    disputed: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the agreement as a record for ``qc/summary.json``."""
        return {**asdict(self), "disputed": len(self.disputed)}


def agreement(first: Round, second: Round) -> PeopleAgreement:
    """Returns the agreement between the two people who answered a round.

    Args:
        first: The round as answered by the first person.
        second: The share of the round that a second person answered.
    """
    cells = [*zip(first.draw.pairs.rows.tolist(), first.draw.pairs.label_ids.tolist(), strict=True)]
    place = {cell: pair for pair, cell in enumerate(cells)}
    table = np.zeros((2, 2), dtype=np.int64)
    disputed = []
    asked = zip(second.draw.pairs.rows.tolist(), second.draw.pairs.label_ids.tolist(), strict=True)
    for cell, other in zip(asked, second.answers, strict=True):
        own = first.answers[place[cell]]
        if own in VERDICTS and other in VERDICTS:
            table[VERDICTS[own], VERDICTS[other]] += 1
            disputed += [place[cell]] if own != other else []
    n, agree = int(table.sum()), int(np.trace(table))
    chance = float(table.sum(axis=0) @ table.sum(axis=1)) / n**2 if n else 1.0
    names = tuple(tuple(sorted(set(filter(None, each.people)))) for each in (first, second))
    return PeopleAgreement(
        round=first.number,
        state=second.state,
        people=(names[0], names[1]),
        pairs=len(second.answers),
        both=n,
        agree=agree,
        kappa=(agree / n - chance) / (1 - chance) if chance < 1 else None,
        disputed=tuple(disputed) if second.state == "closed" else (),
    )


def write_summary(store: Store, *, confidence: float = DEFAULT_CONFIDENCE) -> dict[str, Any]:
    """Writes ``qc/summary.json``, and returns the summary. The data card includes a summary with the same fields."""
    summary = summarize(store, confidence=confidence)
    with atomic_write(summary_path(store)) as stream:
        stream.write(dump_json(summary) + b"\n")
    return summary


def read_summary(store: Store) -> dict[str, Any]:
    """Reads the summary that :func:`write_summary` wrote.

    Raises:
        InputError: If the file cannot be read, or if it is not a summary of quality control.
    """
    path = summary_path(store)
    summary = read_json(path)
    confidence = summary.get("confidence") if isinstance(summary, dict) else None
    if not isinstance(confidence, float) or not 0 < confidence < 1 or not isinstance(summary.get("rounds"), list):
        raise InputError("damaged: not a summary of quality control", path=str(path))
    return dict(summary)


def summary_path(store: Store) -> Path:
    """Returns the path of ``qc/summary.json``."""
    return store.folder / FOLDER / "summary.json"


def refine_command(folder: str | Path, summary: dict[str, Any]) -> str | None:
    """Returns the command that asks the judge again about the labels with errors, or None if there are no such labels
    or if the cells are claims.
    """
    if not summary["refine"] or summary["claims"]:
        return None
    labels = ",".join(summary["refine"])
    return f"scapo-eval annotate refine {shlex.quote(str(folder))} --labels {shlex.quote(labels)}"


def _counting_rounds(closed: Sequence[Round]) -> list[Round]:
    """Returns the rounds that determine the bounds: the last round of each label, and the last round
    over all labels.
    """
    latest: dict[int, Round] = {}
    for round_ in closed:
        latest.update(dict.fromkeys(round_.draw.labels, round_))
    full = [round_ for round_ in closed if round_.draw.full][-1:]
    return list({round_.number: round_ for round_ in (*latest.values(), *full)}.values())


def _changed(matrix: NDArray[np.int8], rounds: Sequence[Round], store: Store) -> dict[int, NDArray[np.bool_]]:
    """Returns, for each round number, a (labels,) mask of the labels whose cells have changed since the round.

    Cells that people changed do not count.
    """
    judges = ~people_cells(store)
    return {round_.number: ((matrix != round_.draw.matrix) & judges).any(axis=0) for round_ in rounds}


_MASKS = ("checked", "random", "present", "wrong", "unsure", "corrected", "contested")


CellIndices = tuple[NDArray[np.int64], NDArray[np.int64]]


def _contested(round_: Round, disputed: Sequence[int]) -> CellIndices:
    """Returns the rows and columns of the disputed cells in which the first person corrected the judge."""
    judged, pairs = round_.draw.judged, round_.draw.pairs
    chosen = [pair for pair in disputed if judged[pair] not in (UNKNOWN, VERDICTS[str(round_.answers[pair])])]
    return pairs.rows[chosen], pairs.label_ids[chosen]


def _sample(round_: Round, rounds: Sequence[Round], contested: Mapping[int, CellIndices]) -> _Sample:
    draw = round_.draw
    shape = draw.matrix.shape
    earlier, later = rounds[: round_.number - 1], rounds[round_.number - 1 :]
    doubtful = np.zeros(shape, dtype=np.bool_)
    for earlier_round in earlier:
        cells = _cells(earlier_round, "unsure")
        doubtful[cells] = draw.matrix[cells] != UNKNOWN
    masks = {name: np.zeros(shape, dtype=np.bool_) for name in _MASKS}
    masks["checked"][_cells(round_, "yes", "no", "unsure")] = True
    masks["unsure"][_cells(round_, "unsure")] = True
    rows, labels = draw.pairs.rows, draw.pairs.label_ids
    for name, drawn in (("random", draw.pairs.random), ("present", draw.pairs.present)):
        masks[name][rows[drawn], labels[drawn]] = True
        masks[name] &= masks["checked"]
    masks["wrong"][_wrong(round_, draw.matrix)] = True
    for later_round in later:
        masks["corrected"][_wrong(later_round, draw.matrix)] = True
        if later_round.number in contested:
            masks["contested"][contested[later_round.number]] = True
    masks["corrected"] &= draw.eligible
    masks["contested"] &= draw.eligible
    return _Sample(judged=draw.matrix, eligible=draw.eligible, doubtful=doubtful, **masks)


def _cells(round_: Round, *answers: str) -> CellIndices:
    chosen = [pair for pair, answer in enumerate(round_.answers) if answer in answers]
    return round_.draw.pairs.rows[chosen], round_.draw.pairs.label_ids[chosen]


def _wrong(round_: Round, matrix: NDArray[np.int8]) -> CellIndices:
    """Returns the rows and columns of the cells in which people's answers differ from the verdicts in a matrix."""
    rows, labels = _cells(round_, "yes")
    absent = matrix[rows, labels] == ABSENT
    others, columns = _cells(round_, "no")
    present = matrix[others, columns] == PRESENT
    return np.concatenate([rows[absent], others[present]]), np.concatenate([labels[absent], columns[present]])


def _label_side(
    sample: _Sample, column: int, side: str, matrix: NDArray[np.int8], alpha: float, stale: bool
) -> dict[str, Any]:
    """Returns the counts and bounds for those cells of one label that the judge marked as present (or absent)."""
    of_side = sample.judged[:, column] == SIDES[side]

    def count(mask: NDArray[np.bool_]) -> int:
        return int((mask[:, column] & of_side).sum())

    checked, wrong, unsure, population = map(
        count, (sample.checked, sample.wrong, sample.unsure, sample.eligible)
    )  # fmt: skip
    contested = _Contested(
        count(sample.contested & sample.checked),
        count(sample.contested & ~sample.checked),
        int((sample.contested[:, column] & ~of_side).sum()),
        leaves=True,
    )
    low, high = contested.bounds(
        wrong, unsure, lambda wrong, unsure: _finite(wrong, unsure, checked, population, alpha)
    ) or (0.0, 0.0)
    cells = int((matrix[:, column] == SIDES[side]).sum())
    interval = None if stale else _interval(low, high + count(sample.doubtful), count(sample.corrected), cells)
    return {"cells": cells, "checked": checked, "wrong": wrong, "unsure": unsure, **(interval or _NOTHING)}


@dataclass(frozen=True)
class _Contested:
    """Numbers of contested cells, for which it is open whether the judge or the first person is right.

    If the first person is right, the judge's error has been corrected. If the judge is right, the matrix contains an
    error that the first person made.

    Attributes:
        checked: Cells with the judge's verdicts in question that are in the sample.
        others: Cells with these verdicts that are not in the sample.
        entered: Cells with other verdicts of the judge, so that the first person's verdicts are in question.
        leaves: True if a cell with a corrected verdict is no longer one of the cells in question.
    """

    checked: int
    others: int
    entered: int
    leaves: bool

    def bounds(
        self, wrong: int, unsure: int, estimate: Callable[[int, int], tuple[float, float] | None]
    ) -> tuple[float, float] | None:
        """Returns bounds on the number of wrong cells in the current matrix that hold whoever is right.

        Args:
            wrong: Cells in the sample that are wrong.
            unsure: Cells in the sample with an uncertain answer, including the contested cells.
            estimate: Function of the numbers of wrong and unsure cells in the sample, which returns the bounds on the
                number of cells that the judge got wrong, or None if there are none.
        """
        lows, highs = [], []
        for right in range(self.checked + 1):  # contested cells of the sample in which the first person is right
            found = estimate(wrong + right, unsure - self.checked)
            if found is None:
                return None
            own = 0 if self.leaves else self.checked - right + self.others  # errors that the first person made
            lows.append(found[0] - right - self.others)
            highs.append(found[1] - right + own + self.entered)
        return max(0.0, min(lows)), max(highs)


_NOTHING: dict[str, float | None] = {"low": None, "high": None}


def _interval(low: float, high: float, corrected: int, cells: int) -> dict[str, float | None]:
    """Returns bounds as fractions of the current cells of the matrix. The bounds are None if the matrix has no cells to
    which they apply.
    """
    if not cells:
        return _NOTHING
    return {"low": max(0.0, low - corrected) / cells, "high": min(1.0, max(0.0, high - corrected) / cells)}


def _overall(sample: _Sample, matrix: NDArray[np.int8], alpha: float, number: int) -> dict[str, Any] | None:
    """Returns the bounds over all labels.

    Errors and false negatives are estimated from the random draws, and false positives from the draw among all present
    cells.
    """
    overall: dict[str, Any] = {"round": number, "alpha": alpha}
    sizes = sample.eligible.sum(axis=0), sample.random.sum(axis=0)
    strata = list(zip(*(size.tolist() for size in sizes), strict=True))
    for name, verdicts in _KINDS.items():
        of_kind = np.isin(sample.judged, verdicts)
        drawn = sample.present if name == "false_positive" else sample.random
        checked = int(drawn.sum())
        wrong, unsure, corrected, doubtful = (
            int((mask & of_kind).sum())
            for mask in (sample.wrong & drawn, sample.unsure & drawn, sample.corrected, sample.doubtful)
        )
        contested = _Contested(
            int((sample.contested & of_kind & drawn).sum()),
            int((sample.contested & of_kind & ~drawn).sum()),
            int((sample.contested & ~of_kind).sum()),
            leaves=name != "error",
        )
        population = int((sample.eligible & of_kind).sum())
        bounds = contested.bounds(
            wrong,
            unsure,
            partial(_finite, checked=checked, cells=population, alpha=alpha)
            if name == "false_positive"
            else partial(pooled_wrong_cells, strata=strata, alpha=alpha),
        )
        if bounds is None:
            return None
        low, high = bounds
        cells = int(np.isin(matrix, verdicts).sum())
        interval = _interval(low, high + doubtful, corrected, cells)
        overall[name] = {"cells": cells, "checked": checked, "wrong": wrong, "unsure": unsure, **interval}
    return overall


_KINDS = {"error": (PRESENT, ABSENT), "false_positive": (PRESENT,), "false_negative": (ABSENT,)}


def _finite(wrong: int, unsure: int, checked: int, cells: int, alpha: float) -> tuple[float, float]:
    """Returns bounds on the number of wrong cells. The upper bound counts unsure cells as wrong."""
    return wrong_cells(wrong, checked, cells, alpha)[0], wrong_cells(wrong + unsure, checked, cells, alpha)[1]


def _round_record(round_: Round, store: Store) -> dict[str, Any]:
    draw = round_.draw
    answers: dict[str, int] = {name: round_.answers.count(name) for name in ANSWERS}
    return {
        "round": round_.number,
        "state": round_.state,
        "kind": "random" if draw.labels else "undecided",
        "labels": len(draw.labels),
        "full": draw.full,
        "seed": draw.seed,
        "pairs": len(round_.answers),
        "random": int(draw.pairs.random.sum()),
        "present": int(draw.pairs.present.sum()),
        "answered": sum(answers.values()),
        **answers,
        "errors": len(round_.errors),
        "false_positives": sum(error["judged"] == PRESENT for error in round_.errors),
        "false_negatives": sum(error["judged"] == ABSENT for error in round_.errors),
        "people": {name: round_.people.count(name) for name in sorted(set(filter(None, round_.people)))},
    }


def _without_pair(error: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in error.items() if key != "pair"}
