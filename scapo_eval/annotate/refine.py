"""Second questions about the cells that need them: label-specific prompts, and joint ones for labels that get mixed up.

Only the cells of the named labels (or the named cells) are asked again. A person's verdicts stay; every earlier
verdict stays in the history, with its reason.
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
    """The cells that are asked again.

    Attributes:
        prompts: label-specific and joint prompts; each label occurs in one of them only.
        cells: (images, labels) bool, true for the cells to ask about.
        reason: why they are asked again, for the history.
        round: number of the round of quality control that led to this refinement, 0 before any.
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
) -> list[LabelPrompt]:
    """Returns the prompts of a refinement.

    Args:
        vocabulary: the vocabulary whose definitions the generated prompts quote.
        labels: labels to ask one by one, by the general label template unless ``own`` has a file for them.
        own: label -> file with the user's prompt.
        groups: labels to ask together -> file with the user's prompt, None for the general joint template.
        published: whether the paper's texts take the place of the general templates.

    Raises:
        InputError: for an unknown label, a label in two prompts, an empty prompt file, or labels that the paper prints
            no text for.
    """
    wanted = list(dict.fromkeys([*labels, *own]))
    everything = [*wanted, *(label for group in groups for label in group)]
    for label in everything:
        if label not in vocabulary.label_ids:
            raise InputError(f"unknown label '{label}': not in the run's vocabulary")
        if everything.count(label) > 1:
            reason = f"'{label}' would be asked by two prompts; name it once, alone or in one group"
            raise InputError(reason)
    prompts = []
    for label in wanted:
        template = Template.read(own[label], "label") if label in own else _general("label", [label], published)
        prompts.append(template.prompt("label", [label], vocabulary))
    for group, path in groups.items():
        if len(group) < 2:
            raise InputError(f"a joint prompt needs at least two labels, got '{group[0]}'")
        template = Template.read(path, "joint") if path else _general("joint", group, published)
        prompts.append(template.prompt("joint", group, vocabulary))
    return prompts


def _general(name: str, labels: Sequence[str], published: bool) -> Template:
    """Returns the general template, or the text that the paper prints for these labels."""
    if not published:
        return Template.shipped(name)
    paper_text = next((text for known, text in PAPER.items() if set(known) == set(labels)), None)
    if paper_text is None:
        printed = "; ".join(", ".join(known) for known in PAPER)
        raise InputError(f"the paper prints no text for {', '.join(labels)} (it does for {printed})")
    return Template.published(paper_text)


def all_cells(store: Store, prompts: Sequence[LabelPrompt]) -> NDArray[np.bool_]:
    """Returns (images, labels) bool, true in the columns of the prompts' labels."""
    cells = np.zeros(store.matrix.shape, dtype=bool)
    cells[:, [store.vocabulary.label_ids[label] for prompt in prompts for label in prompt.labels]] = True
    return cells


def listed_cells(store: Store, path: str) -> NDArray[np.bool_]:
    """Returns (images, labels) bool, true for the cells listed in JSON Lines of ``image_id`` and ``label``, as ``mine``
    writes.

    Raises:
        InputError: for an image or label that the run does not have.
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
    """Asks about the cells of a refinement; those it has settled before are not asked again.

    Args:
        store: the run, open for writing.
        session: the judge.
        refinement: what is asked.
        sampling: sampling settings of the judge; None takes the defaults.
        report: called with a forecast of cost and time after every block.
        only_first: make only the first few calls, for their forecast.
    """
    wanted = needed_calls(store, refinement, judge_of(session.engine))
    columns = [tuple(store.vocabulary.label_ids[label] for label in prompt.labels) for prompt in refinement.prompts]

    def calls() -> Iterator[Call]:
        for row in range(len(wanted)):
            for k in np.flatnonzero(wanted[row]).tolist():
                yield Call(row, refinement.prompts[k], columns[k])

    kinds = {prompt.kind for prompt in refinement.prompts}
    assert kinds <= {"label", "joint"}
    return run_pass(
        store, session, calls(), int(wanted.sum()), sampling=sampling or Sampling(), round=refinement.round,
        reason=refinement.reason, report=report, only_first=only_first,
    )  # fmt: skip


def needed_calls(store: Store, refinement: Refinement, judge: str) -> NDArray[np.bool_]:
    """Returns (images, prompts) bool, true for the calls that a refinement still needs.

    A call is needed if one of its cells is in the refinement and was decided neither by a person nor by an equal call
    (same prompt, judge, round and reason).
    """
    human = np.array([*(provenance.kind == "human" for provenance in store.provenances), False])[store.provenance_ids]
    needed = []
    for prompt in refinement.prompts:
        columns = [store.vocabulary.label_ids[label] for label in prompt.labels]
        asked = store.provenance_ids[:, columns] == store.id_of(
            CellProvenance(prompt.kind, prompt.id, judge, refinement.round, refinement.reason)
        )
        needed.append((refinement.cells[:, columns] & ~human[:, columns] & ~asked).any(axis=1))
    return np.stack(needed, axis=1)
