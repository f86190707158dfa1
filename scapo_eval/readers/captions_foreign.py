"""Reader for captions in files from other tools. For the project's own format, ``readers/captions.py`` is faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..base.ids import MergedImages
from ..files.containers import ErrorHandler, Warn, warn_user
from ..files.fields import mixed_models
from .formats import AMBER_DESCRIPTIONS, ForeignCaption, Recognized, open_layout, wrong_kind


def read_foreign_captions(
    path: str | Path, *, model: str | None = None, on_error: ErrorHandler | None = None, warn: Warn = warn_user
) -> Iterator[tuple[int, str, str]]:
    """Yields the captions of a file in any supported layout, including the project's own, in file order.

    Args:
        path: Path of the file, or ``-`` for standard input.
        model: Name of the model whose captions are returned. This argument is required for a file with captions from
            several models.
        on_error: Callback for each unreadable record. Reading continues after the call. If ``on_error`` is None, the
            first 20 faults are raised together at the end.
        warn: Callback for warnings about damage that does not prevent reading, such as truncated workbook cells.

    Yields:
        ``(line, canonical image id, caption)`` for each caption. Several captions of one image are separate samples.

    Raises:
        InputError: If the layout is unknown or contains no captions, or if the file contains several models and
            ``model`` is None.
        InputErrors: If records are unreadable.
    """
    source = open_layout(path, on_error=on_error, warn=warn)
    for caption in captions_of(source, model=model, on_error=on_error, warn=warn):
        yield caption.line, caption.image_id, caption.caption


def captions_of(
    source: Recognized,
    *,
    model: str | None = None,
    remedy: str | None = None,
    on_error: ErrorHandler | None = None,
    warn: Warn = warn_user,
) -> Iterator[ForeignCaption]:
    """Yields the captions of an open file, each with its model and prompt; see :func:`read_foreign_captions`.

    ``remedy`` is the advice in the error message for a file with several models. The default advice is to select one
    model with ``--model``.
    """
    layout, path = source.format, source.rows.path
    if layout.captions is None:
        raise wrong_kind(source, "captions")
    faults, merged = FaultList(on_error), MergedImages()
    first: ForeignCaption | None = None
    questions = 0
    for line, record in source.rows:
        try:
            captions = list(layout.captions(record, line))
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=path, line=line))
            continue
        questions += not captions
        for caption in captions:
            if model is not None and caption.model != model:
                continue
            first = first or caption
            merged.add(caption.written, caption.image_id)
            if caption.model != first.model:
                raise mixed_models(path, line, [first.model, caption.model, *_models_of_the_rest(source)], remedy)
            yield caption
    faults.raise_if_any()
    others = f"AMBER's ids above {AMBER_DESCRIPTIONS} are yes/no questions"
    if first is None:
        reason = f"no caption by the model {model!r}" if model else "no caption"
        raise InputError(f"{reason}: {others}" if questions else reason, path=path)
    if questions:
        warn(f"{path}: {questions:,} answers are not captions and are omitted: {others}")
    if merged.note:
        warn(f"{path}: {merged.note}")


def _models_of_the_rest(source: Recognized) -> Iterator[str | None]:
    assert source.format.captions is not None
    for line, record in source.rows:
        with suppress(ValueError):
            yield from (caption.model for caption in source.format.captions(record, line))
