"""Images to descriptions: the first step of every score and of description-augmented answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..engines import Request, Sampling
from ..prompts import DESCRIBE, DESCRIBE_IN_DETAIL
from .runner import Session, Tally, now, write_card, write_rows
from .sources import Picture

PRESETS = {"paper": DESCRIBE, "augmentation": DESCRIBE_IN_DETAIL}
"""Names of the protocol's prompts."""


def describe(
    pictures: Sequence[Picture],
    session: Session,
    output: str,
    *,
    prompt: str = DESCRIBE,
    sampling: Sampling | None = None,
    samples: int = 1,
    model: str = "",
) -> Tally:
    """Describes every image and writes a captions file, its run card, and what failed.

    Args:
        pictures: the images.
        session: who describes, and where answers are kept.
        output: captions JSON Lines, in the order of ``pictures``.
        prompt: sent with every image.
        sampling: how to answer.
        samples: descriptions per image, each with a seed of its own.
        model: name for the output's rows.

    Returns:
        The counts of this run.
    """
    sampling = sampling or Sampling()
    started = now()

    def requests() -> Iterator[tuple[Picture, Request]]:
        for picture in pictures:
            for sample in range(samples):
                yield picture, Request.of(prompt, picture.path, sampling, sample=sample)

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for picture, request in requests():
            response = session.answer_to(request)
            row: dict[str, Any] = {"image_id": picture.image_id}
            if response.error is None:
                row["caption"] = response.text
            row |= {"image": picture.name, "prompt": prompt, "model": model}
            if samples > 1:
                row["sample"] = request.sample
            if response.finish not in (None, "stop"):
                row["meta"] = {"finish": response.finish}
            yield row, response.error

    session.ask(request for _, request in requests())
    write_rows(output, rows())
    write_card(
        output, session, started=started, sampling=sampling, prompts={"describe": prompt},
        images=[picture.name for picture in pictures], samples=samples,
    )  # fmt: skip
    return session.tally
