"""A model's descriptions of images, which are the basis of all scores and of description-augmented answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..benchmarks.prompts import DESCRIBE, DESCRIBE_IN_DETAIL
from ..engines import Request, Sampling
from .runner import RequestCounts, Session, now, write_card, write_rows
from .sources import ImageFile

PRESETS = {"paper": DESCRIBE, "augmentation": DESCRIBE_IN_DETAIL}
"""Name on the command line -> prompt from the protocol of the paper."""


def describe(
    images: Sequence[ImageFile],
    session: Session,
    output: str,
    *,
    prompt: str = DESCRIBE,
    sampling: Sampling | None = None,
    samples: int = 1,
    model: str = "",
) -> RequestCounts:
    """Describes all images, and writes a captions file, its run card, and the failed items.

    Args:
        images: Images to describe.
        session: Session with an engine and the journal of its completions.
        output: Path of the JSON Lines file with the captions, in the order of ``images``.
        prompt: Prompt to send with each image.
        sampling: Sampling settings. If ``sampling`` is None, the defaults are used.
        samples: Number of descriptions per image, each with its own seed.
        model: Name of the model, which is written to the rows of the output.

    Returns:
        The counts of the requests in this session.
    """
    sampling = sampling or Sampling()
    started = now()

    def requests() -> Iterator[tuple[ImageFile, Request]]:
        for image in images:
            for sample in range(samples):
                yield image, Request.of(prompt, image.path, sampling, sample=sample)

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for image, request in requests():
            completion = session.completion_of(request)
            row: dict[str, Any] = {"image_id": image.image_id}
            if completion.error is None:
                row["caption"] = completion.text
            row |= {"image": image.name, "prompt": prompt, "model": model, "max_tokens": sampling.max_tokens}
            if samples > 1:
                row["sample"] = request.sample
            if completion.finish not in (None, "stop"):
                row["meta"] = {"finish": completion.finish}
            yield row, completion.error

    session.ask(request for _, request in requests())
    write_rows(output, rows(), session.share)
    identical = _identical(session, requests(), samples) if samples > 1 and sampling.temperature != 0 else 0
    if 2 * identical >= len(images) > 0 and identical:
        session.warn(
            f"all {samples} samples are identical for {identical} of {len(images)} images, although the temperature is "
            "not 0: a setting of the server or the checkpoint (top_k = 1?) may apply"
        )
    write_card(
        output, session, started=started, sampling=sampling, prompts={"describe": prompt},
        images=[image.name for image in images], samples=samples, images_with_identical_samples=identical,
    )  # fmt: skip
    return session.tally


def _identical(session: Session, requests: Iterable[tuple[ImageFile, Request]], samples: int) -> int:
    """Returns the number of images for which all samples have the same text."""
    texts: list[str | None] = []
    identical = 0
    for _, request in requests:
        completion = session.journal.get(session.key(request))
        texts.append(completion.text if completion is not None and completion.error is None else None)
        if len(texts) == samples:
            identical += texts[0] is not None and len(set(texts)) == 1
            texts.clear()
    return identical
