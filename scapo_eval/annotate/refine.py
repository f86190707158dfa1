"""Second questions about selected cells, asked with label-specific prompts or, for labels that judges confuse, with
joint prompts.

The judge is asked again only about the cells of selected labels, or about selected cells. Verdicts by people are never
changed. Every earlier verdict remains in the history with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UNFIT, InputError
from ..engines import Sampling
from ..files.json_text import iter_records
from ..inference.runner import Session
from ..matching.vocabulary import Vocabulary
from .passes import Call, Forecast, PassOutcome, judge_of, run_pass
from .prompts import PAPER, LabelPrompt, Template
from .store import CellProvenance, Store


@dataclass(frozen=True, slots=True)
class Refinement:
    """Cells to ask about again, and the prompts for them.

    Attributes:
        prompts: Label-specific and joint prompts. Each label occurs in exactly one prompt.
        cells: (images, labels) mask of the cells to ask about.
        reason: Reason for the refinement, which is recorded in the history of the cells.
        round: Number of the quality-control round that led to this refinement, or 0 before the first round.
    """

    prompts: Sequence[LabelPrompt]
    cells: NDArray[np.bool_]
    reason: str
    round: int = 0


def prompts_for(
    vocabulary: Vocabulary,
    labels: Sequence[str],
    *,
    own: Mapping[str, str],
    groups: Mapping[tuple[str, ...], str | None],
    published: bool = False,
    one_word: bool = False,
) -> list[LabelPrompt]:
    """Returns the prompts of a refinement.

    Args:
        vocabulary: Vocabulary whose definitions the generated prompts quote.
        labels: Labels to ask about individually, with the general label template unless ``own`` names a file for the
            label.
        own: Mapping from labels to files with custom prompts.
        groups: Mapping whose keys are groups of labels to ask about together. Each value is a file with custom prompts,
            or None for the general joint template.
        published: True to replace the general templates with the paper's prompts.
        one_word: True to ask for only the word "yes" or "no" and to store its probability. If ``one_word`` is true,
            joint prompts are refused.

    Raises:
        InputError: If a label is unknown or occurs in two prompts, if a prompt file is empty, or if the paper prints no
            prompt for the labels.
    """
    wanted = list(dict.fromkeys([*labels, *own]))
    everything = [*wanted, *(label for group in groups for label in group)]
    for label in everything:
        if label not in vocabulary.label_ids:
            raise InputError(f"unknown label '{label}': not in the run's vocabulary")
        if everything.count(label) > 1:
            reason = f"two prompts ask about '{label}'; list it once, alone or in one group"
            raise InputError(reason)
    prompts = []
    for label in wanted:
        template = Template.read(own[label], "label") if label in own else _general("label", [label], published)
        prompts.append(template.prompt("label", [label], vocabulary, one_word=one_word))
    for group, path in groups.items():
        if len(group) < 2:
            raise InputError(f"a joint prompt needs at least two labels, got '{group[0]}'")
        template = Template.read(path, "joint") if path else _general("joint", group, published)
        prompts.append(template.prompt("joint", group, vocabulary, one_word=one_word))
    return prompts


def _general(name: str, labels: Sequence[str], published: bool) -> Template:
    """Returns the general template, or the paper's prompt for the labels."""
    if not published:
        return Template.shipped(name)
    paper_text = next((text for known, text in PAPER.items() if set(known) == set(labels)), None)
    if paper_text is None:
        printed = "; ".join(", ".join(known) for known in PAPER)
        raise InputError(f"the paper contains no prompt for {', '.join(labels)} (only for {printed})")
    return Template.published(paper_text)


def all_cells(store: Store, prompts: Sequence[LabelPrompt]) -> NDArray[np.bool_]:
    """Returns an (images, labels) mask that is true for the labels of the prompts."""
    cells = np.zeros(store.matrix.shape, dtype=bool)
    cells[:, [store.vocabulary.label_ids[label] for prompt in prompts for label in prompt.labels]] = True
    return cells


def listed_cells(store: Store, path: str) -> NDArray[np.bool_]:
    """Returns an (images, labels) mask of the cells listed in a JSON Lines file with the fields ``image_id`` and
    ``label``, such as the output of ``mine``.

    Raises:
        InputError: If an image or label is not part of the run.
    """
    cells = np.zeros(store.matrix.shape, dtype=bool)
    rows = {image: k for k, image in enumerate(store.image_ids)}
    for line, record in iter_records(path):
        try:
            cells[rows[str(record["image_id"])], store.vocabulary.label_ids[record["label"]]] = True
        except UNFIT as error:
            reason = f"expected an image_id and a label of the run, missing or unknown: {error}"
            raise InputError(reason, path=path, line=line) from None
    return cells


def refine(
    store: Store,
    session: Session,
    refinement: Refinement,
    *,
    sampling: Sampling | None = None,
    report: Callable[[Forecast], None] = lambda forecast: None,
    only_first: bool = False,
) -> PassOutcome:
    """Asks about the cells of a refinement, except cells that were already decided in an earlier call of this
    refinement. If a joint prompt also asks about other cells, their verdicts are not stored.

    Args:
        store: Run that is open for writing.
        session: Engine of the judge, with the journal of its completions.
        refinement: Cells to ask about, and the prompts for them.
        sampling: Sampling settings of the judge, or None for the defaults.
        report: Callback that receives a forecast of cost and time after every block.
        only_first: True to stop after the first few calls, from which cost and time are forecast.
    """
    wanted = needed_calls(store, refinement, judge_of(session.engine))
    columns = [tuple(store.vocabulary.label_ids[label] for label in prompt.labels) for prompt in refinement.prompts]

    def calls() -> Iterator[Call]:
        for row in range(len(wanted)):
            for k in np.flatnonzero(wanted[row]).tolist():
                omitted = frozenset(column for column in columns[k] if not refinement.cells[row, column])
                yield Call(row, refinement.prompts[k], columns[k], omitted)

    kinds = {prompt.kind for prompt in refinement.prompts}
    assert kinds <= {"label", "joint"}
    return run_pass(
        store, session, calls(), int(wanted.sum()), sampling=sampling or Sampling(), round=refinement.round,
        reason=refinement.reason, report=report, only_first=only_first,
    )  # fmt: skip


def needed_calls(store: Store, refinement: Refinement, judge: str) -> NDArray[np.bool_]:
    """Returns an (images, prompts) mask of the calls that a refinement still requires.

    A call is required if one of its cells belongs to the refinement and is still undecided. A cell is considered
    decided if it was decided by a person or by an equal call (same prompt, judge, round and reason). A cell whose
    answer was unreadable is still undecided.
    """
    unsettled = store.unsettled
    human = np.array([*(provenance.kind == "human" for provenance in store.provenances), False])[store.provenance_ids]
    needed = []
    for prompt in refinement.prompts:
        columns = [store.vocabulary.label_ids[label] for label in prompt.labels]
        asked = store.provenance_ids[:, columns] == store.id_of(
            CellProvenance(prompt.kind, prompt.id, judge, refinement.round, refinement.reason)
        )
        decided = human[:, columns] | (asked & ~unsettled[:, columns])
        needed.append((refinement.cells[:, columns] & ~decided).any(axis=1))
    return np.stack(needed, axis=1)
