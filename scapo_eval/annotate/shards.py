"""Annotation runs of individual shards, and a function that merges these runs into a single run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.verdicts import UNKNOWN
from ..files.files import atomic_write
from ..files.json_text import dump_json, read_as
from ..inference.shards import Shard, check_complete, merge_journals
from .passes import JOURNAL, PASSES, UNREAD
from .store import Store, files_of

SHARD = "shard.json"


def keep_shard(store: Store, shard: Shard | None) -> None:
    """Marks a run as the run of one shard, or checks that an existing mark refers to the same shard.

    Raises:
        InputError: If the run was started for another shard, or without shards.
    """
    path = store.folder / SHARD
    had = shard_of(store.folder) if path.exists() else None
    if had == shard:
        return
    if had is not None or len(store):
        begun = f"shard {had}" if had else "a whole run, not as a shard"
        raise InputError(f"was started as {begun}; choose another folder", path=str(store.folder))
    assert shard is not None
    with atomic_write(path) as stream:
        stream.write(dump_json({"number": shard.number, "of": shard.of}))


def shard_of(folder: str | Path) -> Shard:
    """Returns the shard that a run belongs to.

    Raises:
        InputError: If the folder does not contain the run of a shard.
    """
    path = Path(folder) / SHARD
    if not path.is_file():
        raise InputError(f"not a shard's run: {SHARD} not found (annotate coarse --shard writes it)", path=str(folder))
    return read_as(path, Shard)


def rows_of(store: Store, shard: Shard | None) -> NDArray[np.bool_]:
    """Returns an (images,) mask of the images that belong to a shard. The image id determines the shard."""
    if shard is None:
        return np.ones(len(store.image_ids), dtype=bool)
    return np.array([shard.has(image) for image in store.image_ids], dtype=bool)


def merge_runs(folders: Sequence[str], output: str) -> Store:
    """Merges the runs of all shards.

    Args:
        folders: Runs of the shards, in any order.
        output: Folder of the merged run, which must not contain a run.

    Returns:
        The merged run, which is open for writing.

    Raises:
        InputError: If a shard is missing or appears twice, if the images or labels of a run differ from those of the
            other runs, or if a run contains verdicts on images of another shard.
    """
    shards = {folder: shard_of(folder) for folder in folders}
    check_complete([(folder, shards[folder]) for folder in folders])
    ordered = sorted(folders, key=lambda folder: shards[folder].number)
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.open(folder)) for folder in ordered]
        first = stores[0]
        for folder, store in zip(ordered, stores, strict=True):
            if store.image_ids != first.image_ids:
                raise InputError(f"does not belong to the same run as {ordered[0]}: its images differ", path=folder)
            if store.claims != first.claims:
                raise InputError(f"does not belong to the same run as {ordered[0]}: its claims differ", path=folder)
            if store.vocabulary.fingerprint != first.vocabulary.fingerprint:
                raise InputError(
                    f"does not belong to the same run as {ordered[0]}: its vocabulary differs", path=folder
                )
            judged = (store.provenance_ids >= 0).any(axis=1)
            if (foreign := np.flatnonzero(judged & ~rows_of(store, shards[folder]))).size:
                image = store.image_ids[int(foreign[0])]
                raise InputError(
                    f"contains verdicts on image {image}, which is not in shard {shards[folder]}", path=folder
                )
        whole = Store.create(output, first.images, first.vocabulary, first.claims_of_images)
        try:
            _fill(whole, stores)
        except BaseException:
            whole.close()
            for path in [*files_of(output), Path(output, JOURNAL)]:
                path.unlink(missing_ok=True)
            with suppress(OSError):  # the folder contains other files
                os.rmdir(output)
            raise
    return whole


def _fill(whole: Store, stores: Sequence[Store]) -> None:
    for store in stores:
        whole.absorb(store)
        for row in store.lines(PASSES):
            whole.append(PASSES, row)
        for row in store.lines(UNREAD, dict[str, str]):
            cell = whole.find(row)
            if cell is None:
                raise InputError("damaged: contains a cell that is not in the run", path=str(store.folder / UNREAD))
            if whole.matrix[cell] == UNKNOWN:
                whole.append(UNREAD, row)
    if (pool := stores[0].folder / "pool.json").exists():
        whole.keep_pool(read_as(pool, dict[str, Any]))
    merge_journals([os.fspath(store.folder / JOURNAL) for store in stores], os.fspath(whole.folder / JOURNAL))
