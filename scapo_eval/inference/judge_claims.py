"""A judge that looks at images and decides whether the claims of captions are true.

Each distinct claim about an image is judged once. The result is a scene graph (option ``--scenes`` of ``scapo-eval
claims`` and ``reward``). An unreadable answer is requested again. If the answers in all attempts are unreadable, the
claim is counted as unreadable, and its truth is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError
from ..base.hashes import digest
from ..benchmarks.judged import Judging
from ..claiming.claim import Claim, ClaimKey, asked_as, question_of
from ..claiming.extract import ClaimExtractor
from ..engines import Request, Sampling, Turn
from ..files.files import read_text
from ..matching.uses import Reading, left_out
from ..readers.formats import ForeignCaption
from .judge import ask_until_read
from .judge_prompts import fill
from .runner import RequestCounts, Session, now, write_card, write_rows
from .sources import ImageFolder

CLAIM_TASK = """\
Look at the image and answer the question about it with one word:
- yes or no;
- absent, if a thing that the question is about is not in the image at all;
- unsure, if the image does not show enough to decide.

Question: {question}"""

_ANSWER = re.compile(r"\W*(?:(?:the\s+)?answer(?:\s+is)?\W+)?(yes|no|absent|unsure)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ImageClaims:
    """The claims that captions make about one image.

    Attributes:
        image_id: Canonical id of the image.
        claims: Distinct claims to judge, in the order of their first occurrence.
    """

    image_id: str
    claims: tuple[ClaimKey, ...]


def claims_to_judge(
    captions: Sequence[ForeignCaption], extractor: ClaimExtractor, reading: Reading = "all"
) -> list[ImageClaims]:
    """Returns the distinct claims in captions, grouped by image.

    Args:
        captions: Captions of one or several systems.
        extractor: Extractor that finds the claims in the captions.
        reading: Reading that determines which mentions in the captions count. Claims whose use is omitted by the
            reading are not judged.
    """
    by_image: dict[str, dict[ClaimKey, None]] = {}
    of_captions = extractor.find_batch([caption.caption for caption in captions])
    for caption, claims in zip(captions, of_captions, strict=True):
        asked = by_image.setdefault(caption.image_id, {})
        asked.update((asked_as(claim), None) for claim in claims if _can_be_asked(claim, reading))
    return [ImageClaims(image, tuple(asked)) for image, asked in by_image.items() if asked]


def _can_be_asked(claim: Claim, reading: Reading) -> bool:
    return claim.use not in left_out(reading)


def read_answer(text: str) -> str | None:
    """Returns the answer at the beginning of a judge's reply: ``yes``, ``no``, ``absent`` or ``unsure``. Returns None
    if the reply does not begin with one of these words.
    """
    match = _ANSWER.match(text)
    return match[1].lower() if match else None


def read_claim_task(path: str | None) -> str:
    """Returns the text of the judge's prompt: the content of a file, or :data:`CLAIM_TASK` if there is none.

    Raises:
        InputError: If the text has no placeholder ``{question}``.
    """
    task = read_text(path) if path else CLAIM_TASK
    if "{question}" not in task:
        raise InputError("the prompt has no {question}", path=path)
    return task


def judge_claims(
    images: Sequence[ImageClaims],
    session: Session,
    folder: ImageFolder,
    output: str,
    *,
    judge: str,
    task: str = CLAIM_TASK,
    sampling: Sampling | None = None,
) -> RequestCounts:
    """Judges all claims based on their images, and writes the answers as a scene graph with one line per image.

    Args:
        images: Claims to judge, as returned by :func:`claims_to_judge`.
        session: Session of the judge.
        folder: Folder that contains the image files.
        output: Path of the JSON Lines file with the scene graph. An image with a failed request is written to the file
            of failures. If the command is repeated, it makes only the requests that are still missing. An unreadable
            answer is stored as null.
        judge: Name of the judge.
        task: Complete prompt with the placeholder ``{question}``.
        sampling: Sampling settings of the judge, or None for the defaults.

    Returns:
        Request counts for this session.
    """
    sampling = sampling or Sampling()
    started = now()
    requests = [
        Request((Turn("user", fill(task, {"question": question_of(claim)}), (folder.find(image.image_id),)),), sampling)
        for image in images
        for claim in image.claims
    ]
    answers = iter(ask_until_read(session, requests, [read_answer] * len(requests)))
    prompt_hash = digest([task])
    judging = Judging(judge, prompt=prompt_hash, sampling=sampling.said).to_record()

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for image in images:
            told, error = list[dict[str, Any]](), None
            for claim in image.claims:
                answer, completion = next(answers)
                session.tally.add(completion)
                error = error or completion.error
                if answer is None and completion.error is None:
                    session.tally.add_unread(f"neither yes nor no to {question_of(claim)!r} of image {image.image_id}")
                told.append({**dict(zip(_FIELDS, claim, strict=True)), "answer": answer})
            yield {"image_id": image.image_id, "objects": [], "claims": told, **judging}, error

    write_rows(output, rows(), session.share)
    write_card(
        output, session, started=started, sampling=sampling, prompts={"claim": task},
        images=[image.image_id for image in images], judge=judge, prompt_hash=prompt_hash,
    )  # fmt: skip
    return session.tally


_FIELDS = ("kind", "label", "value", "other")
