"""The first annotation pass over all cells. Each question is about one label in an image, about several labels in an
image, or about one claim about an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.types import State
from ..base.verdicts import UNKNOWN
from ..claiming.claim import KINDS, ClaimKey, ClaimKind
from ..claiming.extract import ClaimExtractor
from ..engines import Sampling
from ..inference.judge_claims import claims_to_judge
from ..inference.runner import Session
from ..inference.sources import ImageFile
from ..matching.vocabulary import Vocabulary
from ..readers.captions_foreign import read_foreign_captions
from ..readers.formats import ForeignCaption
from ..truths.scenes import Scenes
from .passes import Call, Forecast, PassOutcome, Prompt, run_pass
from .prompts import LabelPrompt, Template
from .store import CellProvenance, Store

_BATCH = 4096  # captions whose claims are found at once


Claims = Mapping[str, tuple[ClaimKey, ...]]
"""Image id -> distinct claims about the image."""


def claims_in(
    captions: Sequence[str], images: Sequence[ImageFile], vocabulary: Vocabulary, kinds: Sequence[ClaimKind]
) -> tuple[Claims, int]:
    """Returns the distinct claims that captions make about images.

    Args:
        captions: Caption or rollout files of any number of systems, in any order.
        images: Images of the run.
        vocabulary: Labels that the claims are about.
        kinds: Kinds of claims to find.

    Returns:
        The claims for each image in a fixed order, and the number of captions of images that do not belong to the run.

    Raises:
        InputError: If a file cannot be read.
        InputErrors: If a file has faulty records.
    """
    known, found, foreign = {image.image_id for image in images}, dict[str, set[ClaimKey]](), 0
    extractor = ClaimExtractor(vocabulary, kinds)
    for path in captions:
        stream = (ForeignCaption(*row) for row in read_foreign_captions(path))
        while block := list(islice(stream, _BATCH)):
            of_run = [caption for caption in block if caption.image_id in known]
            foreign += len(block) - len(of_run)
            for image in claims_to_judge(of_run, extractor):
                found.setdefault(image.image_id, set()).update(image.claims)
    return joined([found]), foreign


@dataclass(frozen=True)
class JudgedClaims:
    """Claims that were judged outside the run, by another command or in a claim matrix.

    Attributes:
        name: Name and hash of the file, which identify the judge in the history.
        states: Image id -> claim -> state: 1 true, 0 false, -1 undecided.
        notes: Remarks about data in the file that is not used.
    """

    name: str
    states: Mapping[str, Mapping[ClaimKey, State]]
    notes: tuple[str, ...]

    @classmethod
    def load(
        cls, path: str, images: Sequence[ImageFile], vocabulary: Vocabulary, kinds: Sequence[ClaimKind]
    ) -> JudgedClaims:
        """Reads the output of ``scapo-eval judge claims`` or a claim matrix.

        Args:
            path: Path of the file.
            images: Images of the run. Claims about other images are omitted.
            vocabulary: Labels of the claims.
            kinds: Kinds of claims to read.

        Raises:
            InputError: If the file contains no judged claim of these kinds about the images.
            InputErrors: If the file has faulty records.
        """
        scenes = Scenes.load(path, vocabulary)
        of_images = ((image.image_id, scenes.id_of(image.image_id)) for image in images)
        states = {
            image: {claim: state for claim, state in (scenes.scenes[own].answers or {}).items() if claim[0] in kinds}
            for image, own in of_images
            if own is not None
        }
        if not any(states.values()):
            raise InputError(f"no judged claims about the images (kinds: {', '.join(kinds)})", path=path)
        return cls(f"{Path(path).name}@{scenes.fingerprint}", states, scenes.notes)

    def store(self, store: Store, rows: NDArray[np.bool_]) -> None:
        """Stores the known states of those claims that have no verdict in the run yet. The judge is asked about all
        others.

        Args:
            store: Run that contains claims, opened for writing.
            rows: (claims,) mask of the claims whose states are stored.
        """
        never = rows & (store.provenance_ids.max(axis=1) < 0)
        known = [
            (row, state)
            for row in np.flatnonzero(never).tolist()
            if (state := self.states.get(store.image_ids[row], {}).get(store.claims[row], UNKNOWN)) != UNKNOWN
        ]
        if known:
            of_rows, states = np.array(known).T
            columns = store.cells[of_rows].argmax(axis=1)
            store.write(of_rows, columns, states, CellProvenance("coarse", "", self.name))


def joined(claims: Sequence[Mapping[str, Iterable[ClaimKey]]]) -> Claims:
    """Returns the distinct claims of several sources, in a fixed order."""
    found: dict[str, set[ClaimKey]] = {}
    for source in claims:
        for image, of_image in source.items():
            found.setdefault(image, set()).update(of_image)
    return {image: tuple(sorted(of_image, key=_in_order)) for image, of_image in found.items()}


def _in_order(claim: ClaimKey) -> tuple[int, ClaimKey]:
    return KINDS.index(claim[0]), claim


def is_run(folder: str) -> bool:
    """Returns True if a folder contains a run."""
    return (Path(folder) / "run.json").exists()


def open_or_create(
    folder: str, images: Sequence[ImageFile], vocabulary: Vocabulary, claims: Claims | None = None
) -> Store:
    """Opens the run in a folder for writing, or creates a new run if the folder does not contain one.

    Args:
        folder: Folder of the run.
        images: Images of the run. If the images of an existing run have moved, the run stores their new paths.
        vocabulary: Vocabulary of the run.
        claims: Claims about the images, each of which becomes a cell of the run. If ``claims`` is None, each
            combination of an image and a label becomes a cell.

    Raises:
        InputError: If :class:`~scapo_eval.annotate.store.Store` rejects the folder, or if the run was created for other
            images or claims.
    """
    if not is_run(folder):
        return Store.create(folder, images, vocabulary, claims)
    store = Store.open(folder, vocabulary=vocabulary, write=True)
    wanted, begun = (tuple(image.image_id for image in given) for given in (images, store.images))
    if wanted != begun:
        store.close()
        have, want = set(begun), set(wanted)
        reason = (
            f"was started with other images: {len(have - want):,} of its {len(have):,} are not in the list, "
            f"{len(want - have):,} of the list are not in it"
            if have != want
            else "was started with the same images in another order; use the original order"
        )
        raise InputError(reason, path=folder)
    if store.claims != tuple(claim for image in wanted for claim in (claims or {}).get(image, ())):
        store.close()
        kinds = ("labels", "claims") if claims else ("claims", "labels")
        reason = (
            "was started with other claims; use the same captions and kinds, or choose another folder"
            if store.claims and claims
            else f"was started with {kinds[0]}, not with {kinds[1]}; choose another folder"
        )
        raise InputError(reason, path=folder)
    store.relocate(images)
    return store


def prompts_for(
    vocabulary: Vocabulary, labels_per_call: int = 1, template: Template | None = None, *, one_word: bool = False
) -> list[LabelPrompt]:
    """Returns prompts that together cover all labels.

    Args:
        vocabulary: Labels to ask about, in order.
        labels_per_call: Number of labels per prompt.
        template: Custom template for the prompts. If no template is given, the shipped template is used.
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
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling | None = None,
    report: Callable[[Forecast], None] = lambda forecast: None,
    only_first: bool = False,
    rows: NDArray[np.bool_] | None = None,
) -> PassOutcome:
    """Asks the judge about every cell that has no verdict; see :func:`~scapo_eval.annotate.passes.run_pass`.

    Args:
        store: Run that is open for writing.
        session: Engine of the judge, with the journal of its completions.
        prompts: Prompts from :func:`prompts_for`, or the prompts of the run's claims.
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


def calls_left(store: Store, prompts: Sequence[Prompt], rows: NDArray[np.bool_] | None = None) -> int:
    """Returns the number of calls that a coarse pass would make for all images, or for the images in ``rows``."""
    return _open_calls(store, prompts, rows)[1]


def _open_calls(store: Store, prompts: Sequence[Prompt], rows: NDArray[np.bool_] | None) -> tuple[Iterator[Call], int]:
    coarse_or_none = np.array([*(provenance.kind == "coarse" for provenance in store.provenances), True])
    open_cells = store.unsettled & coarse_or_none[store.provenance_ids]
    if rows is not None:
        open_cells &= rows[:, None]
    if store.claims:
        asked = np.argwhere(open_cells).tolist()
        return (Call(row, prompts[row], (column,)) for row, column in asked), len(asked)
    columns = [
        tuple(store.vocabulary.label_ids[label] for label in prompt.labels)
        for prompt in prompts
        if isinstance(prompt, LabelPrompt)
    ]
    wanted = np.stack([open_cells[:, list(column)].any(axis=1) for column in columns], axis=1)
    cells = (
        Call(row, prompts[k], columns[k]) for row in range(len(wanted)) for k in np.flatnonzero(wanted[row]).tolist()
    )
    return cells, int(wanted.sum())
