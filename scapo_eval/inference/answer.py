"""Answers from a model to questions about images, optionally with the model's own description of the image as context.

The published scores of SCAPO on yes/no questions are based on these description-augmented answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import UNFIT, FaultList, InputError, unfit
from ..benchmarks.prompts import DESCRIBE, DESCRIBE_IN_DETAIL, with_description
from ..benchmarks.questions import image_key
from ..engines import Request, Sampling
from ..files.fields import find_image, id_in, image_of
from ..files.files import display_name
from ..files.json_text import iter_records
from ..readers.captions_foreign import read_foreign_captions
from ..results.benchmark import benchmarks
from .runner import RequestCounts, Session, now, write_card, write_rows
from .sources import ImageFile, ImageFolder

_PROMPTS = ("prompt", "question", "query", "text")
_PASSED_ON = (
    "benchmark", "mode", "task", "category", "label", "question_type", "question_topic", "gt_answer", "image_content",
)  # fmt: skip
"""Fields of a question that are copied to the row of its answer."""


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question as it is sent to the model.

    Attributes:
        id: Id of the question, in the format that the scoring command expects.
        prompt: Full text of the prompt.
        image: Name of the image, or None for a question without an image.
        path: Expected path of the image file, or None for a question without an image.
        record: Fields of the output row that are known before the answer is available.
    """

    id: str | int
    prompt: str
    image: str | None
    path: str | None
    record: Mapping[str, Any]

    @property
    def image_id(self) -> str:
        """Canonical id of the image, which is used to look up its description. For example, the image ``ccs-7`` is not
        COCO's image 7.
        """
        return (image_key(self.image, self.record.get("mode")) or "").replace("ccs/", "ccs-")


def read_questions(paths: Sequence[str], folder: ImageFolder) -> list[AskedQuestion]:
    """Reads the questions of one or more files.

    Args:
        paths: Files in the prompt format of a supported benchmark, or files with records ``{"id", "image",
            "question"}``.
        folder: Folder that contains the image files.

    Raises:
        InputErrors: If questions are invalid.
        InputError: If a file has no records, or if an id appears twice.
    """
    asked: list[AskedQuestion] = []
    for path in paths:
        asked += _of_file(path, folder)
    seen: set[str] = set()
    for question in asked:
        if str(question.id) in seen:
            raise InputError(
                f"the id {question.id!r} appears twice; answers are joined by id",
                path=paths[0] if len(paths) == 1 else None,
            )
        seen.add(str(question.id))
    return asked


def _records(path: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """Returns the prompts from a question file in the format of its benchmark, or the unchanged records of any other
    file.
    """
    _, first = next(iter_records(path))
    for benchmark in benchmarks():
        if benchmark.prompts and (prompts := benchmark.prompts(path, first)) is not None:
            return prompts
    return iter_records(path)


def _of_file(path: str, folder: ImageFolder) -> list[AskedQuestion]:
    faults = FaultList()
    asked = []
    for line, record in _records(path):
        try:
            asked.append(_question(record, folder))
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=display_name(path), line=line))
    faults.raise_if_any()
    return asked


def _question(record: Mapping[str, Any], folder: ImageFolder) -> AskedQuestion:
    key = next((key for key in ("id", "question_id", "index") if record.get(key) is not None), None)
    prompt = next((record[key] for key in _PROMPTS if isinstance(record.get(key), str) and record[key].strip()), None)
    if prompt is None:
        raise ValueError(f"missing key 'question' (found: {', '.join(record) or 'nothing'})")
    if key is None:
        raise ValueError(f"missing key 'id' (found: {', '.join(record)})")
    identity = record[key] if isinstance(record[key], int) else id_in(record, key)
    known = {name: record[name] for name in _PASSED_ON if record.get(name) is not None}
    names = (image_of(record.get(key)) for key in ("image", "image_path"))
    image = next(filter(None, names), find_image(record))
    question = record.get("question") or record.get("query") or record.get("text") or prompt
    known |= {"image": image, "question": question}
    path = _located(folder, image)
    if path is not None and not os.path.isfile(path) and isinstance(record.get("image_src"), str):
        path = folder.find(
            record["image_src"].rsplit("/", 1)[-1]
        )  # MMHal-Bench's files keep their first address's name
    return AskedQuestion(identity, prompt, image, path, _known(known))


def _located(folder: ImageFolder, image: str | None) -> str | None:
    return None if image is None else folder.find(image)


def _known(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}


def wants_description(asked: AskedQuestion) -> bool:
    """Returns True if a description may precede the prompt, that is, if the question has an image and does not itself
    request a description.
    """
    return asked.path is not None and asked.prompt not in (DESCRIBE, DESCRIBE_IN_DETAIL)


def images_to_describe(asked: Sequence[AskedQuestion]) -> list[ImageFile]:
    """Returns the images that need a description, without duplicates and in the order of the questions."""
    images: dict[str, ImageFile] = {}
    for question in asked:
        if question.path is not None and question.image is not None and wants_description(question):
            images.setdefault(question.image_id, ImageFile(question.image_id, question.image, question.path))
    return list(images.values())


def read_descriptions(path: str) -> dict[str, str]:
    """Returns the first description of each image in a captions file, keyed by image id (see
    :attr:`AskedQuestion.image_id`).
    """
    descriptions: dict[str, str] = {}
    for _, image_id, caption in read_foreign_captions(path):
        descriptions.setdefault(image_id, caption)
    return descriptions


def answer(
    asked: Sequence[AskedQuestion],
    session: Session,
    output: str,
    *,
    descriptions: Mapping[str, str] | None = None,
    sampling: Sampling | None = None,
    model: str = "",
) -> RequestCounts:
    """Answers all questions, and writes the input of the scoring commands, the run card, and the failed items.

    Args:
        asked: Questions to answer.
        session: Session with an engine and the journal of its completions.
        output: Path of the JSON Lines file with records ``{"id", "response", ...}``, in the order of ``asked``.
        descriptions: Mapping from image ids to descriptions that precede the questions on these images. If
            ``descriptions`` is None, questions are sent without descriptions. If ``descriptions`` lacks an image, the
            questions about this image fail, because a question is never silently sent without the image's description.
        sampling: Sampling settings. If ``sampling`` is None, the default sampling settings are used.
        model: Name of the model, which is written to the rows of the output.

    Returns:
        Request counts for this session.
    """
    sampling = sampling or Sampling()
    started = now()

    def description(question: AskedQuestion) -> str | None:
        return descriptions.get(question.image_id) if descriptions is not None and wants_description(question) else None

    def request(question: AskedQuestion) -> Request | None:
        context = description(question)
        if descriptions is not None and wants_description(question) and context is None:
            return None
        prompt = question.prompt if context is None else with_description(context, question.prompt)
        return Request.of(prompt, question.path, sampling)

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for question in asked:
            row: dict[str, Any] = {"id": question.id}
            wanted = request(question)
            if wanted is None:
                session.tally.requests += 1
                session.tally.failed += 1
                error: str | None = "its image has no description"
                session.tally.first_errors.append(str(error))
            else:
                completion = session.completion_of(wanted)
                error = completion.error
                if error is None:
                    row["response"] = completion.text
            row |= {**question.record, "model": model}
            context = description(question)
            if context is not None:
                row["description"] = context
            yield row, error

    session.ask(wanted for question in asked if (wanted := request(question)) is not None)
    write_rows(output, rows(), session.share)
    write_card(
        output,
        session,
        started=started,
        sampling=sampling,
        prompts={"augmented": with_description("{description}", "{question}")} if descriptions is not None else {},
        images=[question.image for question in asked if question.image is not None],
        augmented=descriptions is not None,
    )
    return session.tally
