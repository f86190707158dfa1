"""The first annotation pass over all cells, with one question per image and label or several labels per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.verdicts import UNKNOWN
from ..engines import Sampling
from ..inference.runner import Session
from ..inference.sources import ImageFile
from ..matching.vocabulary import Vocabulary
from .passes import Call, Forecast, PassOutcome, run_pass
from .prompts import LabelPrompt, Template
from .store import Store


def open_or_create(folder: str, images: Sequence[ImageFile], vocabulary: Vocabulary) -> Store:
    """Opens the run in a folder for writing, or creates a new run if the folder does not contain one.

    Raises:
        InputError: If :class:`~scapo_eval.annotate.store.Store` rejects the folder, or if the run was created for other
            images.
    """
    if not (Path(folder) / "run.json").exists():
        return Store.create(folder, images, vocabulary)
    store = Store.open(folder, vocabulary=vocabulary, write=True)
    wanted = tuple(image.image_id for image in images)
    if wanted != store.image_ids:
        store.close()
        have, want = set(store.image_ids), set(wanted)
        reason = (
            f"was begun with other images: {len(have - want):,} of its {len(have):,} are not in the list, "
            f"{len(want - have):,} of the list are not in it"
            if have != want
            else "was begun with the same images in another order; give them in the order of the first start"
        )
        raise InputError(reason, path=folder)
    return store


def prompts_for(
    vocabulary: Vocabulary, labels_per_call: int = 1, template: Template | None = None, *, one_word: bool = False
) -> list[LabelPrompt]:
    """Returns prompts that together cover all labels.

    Args:
        vocabulary: Labels to ask about, in order.
        labels_per_call: Number of labels per prompt.
        template: Custom template. If no template is given, the shipped template is used.
        one_word: True to ask for only the word yes or no and to store its probability.

    Raises:
        InputError: If the template does not name its labels, if it requests a single answer for several labels, or if
            it requests several answers or JSON although ``one_word`` is true.
    """
    template = template or Template.shipped("coarse" if labels_per_call == 1 else "coarse_many")
    labels = iter(vocabulary.labels)
    prompts = []
    while group := list(islice(labels, labels_per_call)):
        prompts.append(template.prompt("coarse", group, vocabulary, one_word=one_word))
    return prompts


def coarse(
    store: Store,
    session: Session,
    prompts: Sequence[LabelPrompt],
    *,
    sampling: Sampling | None = None,
    report: Callable[[Forecast], None] = lambda forecast: None,
    only_first: bool = False,
    rows: NDArray[np.bool_] | None = None,
) -> PassOutcome:
    """Asks the judge about every cell that has no verdict; see :func:`~scapo_eval.annotate.passes.run_pass`.

    Args:
        store: Run that is open for writing.
        session: Session of the judge.
        prompts: Prompts from :func:`prompts_for`.
        sampling: Sampling settings of the judge, or None for the defaults.
        report: Callback that receives a forecast of cost and time after every block.
        only_first: True to stop after the first few calls, from which cost and time are forecast.
        rows: (images,) mask of the images to ask about, or None for all images.
    """
    calls, total = _open_calls(store, prompts, rows)
    return run_pass(
        store, session, calls, total, sampling=sampling or Sampling(), report=report,
        only_first=only_first,
    )  # fmt: skip


def calls_left(store: Store, prompts: Sequence[LabelPrompt], rows: NDArray[np.bool_] | None = None) -> int:
    """Returns the number of calls that a coarse pass would make for all images, or for the images in ``rows``."""
    return _open_calls(store, prompts, rows)[1]


def _open_calls(
    store: Store, prompts: Sequence[LabelPrompt], rows: NDArray[np.bool_] | None
) -> tuple[Iterator[Call], int]:
    coarse_or_none = np.array([*(provenance.kind == "coarse" for provenance in store.provenances), True])
    open_cells = (store.matrix == UNKNOWN) & coarse_or_none[store.provenance_ids]
    if rows is not None:
        open_cells &= rows[:, None]
    columns = [tuple(store.vocabulary.label_ids[label] for label in prompt.labels) for prompt in prompts]
    wanted = np.stack([open_cells[:, list(column)].any(axis=1) for column in columns], axis=1)
    cells = (
        Call(row, prompts[k], columns[k]) for row in range(len(wanted)) for k in np.flatnonzero(wanted[row]).tolist()
    )
    return cells, int(wanted.sum())
