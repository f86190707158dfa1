"""A judge that lists the objects in descriptions for Object HalBench. ``scapo-eval objhal`` computes scores from the
output of this judge.

In the reference implementation (``eval_gpt_obj_halbench.py`` of RLHF-V and RLAIF-V), a language model lists the objects
in an answer as JSON. The prompt in this module is worded differently but requests the same output, which is a list of
strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..base.hashes import digest
from ..benchmarks.judged import Judging
from ..engines import Completion, Request, Sampling, Turn
from ..files.records import Readable
from ..readers.captions_foreign import captions_of
from ..readers.formats import ForeignCaption, open_layout
from ..segmenting.unfinished import without_unfinished
from .judge import ask_until_read, json_in
from .judge_prompts import fill
from .runner import RequestCounts, Session, now, write_card, write_rows

FEW_WORDS = 3
"""Maximum number of words in a description that is assumed to name no object, as in the reference. Such descriptions
are not sent to the judge.
"""

OBJECTS_TASK = """\
You are given a request for a description of an image, and the description that somebody wrote. Take the description \
for true and list every visible object that it says is in the image.

- List only what the description names itself; do not add what may be there, too.
- Write each object's name alone, without color, size, material, number or any other property.
- List each object once. Leave out what the description says is absent.
- Answer with one JSON list of strings and nothing else. If it names no visible object, answer []."""

OBJECTS_CASE = """\
Request: {question}

Description: {answer}"""

OBJECTS_EXAMPLE = (
    {
        "question": "What can be seen here?",
        "answer": "Two brown dogs lie on a worn leather couch. There is no cat, and the mood is calm.",
    },
    '["dog", "couch"]',
)

NO_QUESTION = "Describe this image."
"""Replacement for the request if a record does not contain the prompt of its description."""


def objects_turns(case: dict[str, str], task: str = OBJECTS_TASK) -> tuple[Turn, ...]:
    """Returns the conversation that requests the objects in a description. The conversation consists of the task, a
    worked example, and the case.

    Args:
        case: Texts for the placeholders ``question`` and ``answer``.
        task: Instruction to the judge. If the instruction contains ``{answer}``, it is a complete prompt and is sent
            alone.
    """
    if "{answer}" in task:
        return (Turn("user", fill(task, case)),)
    example, verdict = OBJECTS_EXAMPLE
    shown = (Turn("user", fill(OBJECTS_CASE, example)), Turn("assistant", verdict))
    return (Turn("system", task), *shown, Turn("user", fill(OBJECTS_CASE, case)))


def read_objects(text: str) -> list[str] | None:
    """Returns the distinct objects in a judge's answer, or None if the answer contains no JSON list of strings.

    Text around the list, such as a code fence or a preceding sentence, is ignored. Refusals, truncated lists and
    several lists in one answer are not accepted.
    """
    listed = json_in(text, "[", "]")
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        return None
    return list(dict.fromkeys(name for name in (" ".join(name.split()) for name in listed) if name))


def read_captions(path: Readable) -> list[ForeignCaption]:
    """Reads the captions from a file in any supported layout.

    Raises:
        InputError: If the file contains no captions.
        InputErrors: If some captions cannot be read.
    """
    return list(captions_of(open_layout(path)))


def judge_objects(
    captions: Sequence[ForeignCaption],
    session: Session,
    output: str,
    *,
    judge: str,
    task: str = OBJECTS_TASK,
    sampling: Sampling | None = None,
    drop_unfinished: bool = False,
) -> RequestCounts:
    """Requests the objects in all captions, and writes the input of ``scapo-eval objhal``.

    Args:
        captions: Captions from :func:`read_captions`.
        session: Session of the judge.
        output: Path of the JSON Lines file with the key ``extracted``. If the list is unreadable, ``extracted`` is
            null, and ``unread`` contains the judge's last reply.
        judge: Name of the judge.
        task: Instruction to the judge; see :func:`objects_turns`.
        sampling: Sampling settings of the judge, or None for the defaults.
        drop_unfinished: True to remove an incomplete last sentence from a caption before it is judged.

    Returns:
        The counts of the requests in this session.
    """
    sampling = sampling or Sampling()
    started = now()
    texts = [without_unfinished(caption.caption) if drop_unfinished else caption.caption for caption in captions]
    asked = [k for k, text in enumerate(texts) if len(text.split()) > FEW_WORDS]
    requests = [
        Request(objects_turns({"question": captions[k].prompt or NO_QUESTION, "answer": texts[k]}, task), sampling)
        for k in asked
    ]
    answers = ask_until_read(session, requests, [read_objects] * len(requests))
    verdicts = dict(zip(asked, answers, strict=True))
    prompt_hash = digest([turn.text for turn in objects_turns({}, task)])
    judging = Judging(judge, prompt=prompt_hash, sampling=sampling.said).to_record()

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for k, (caption, text) in enumerate(zip(captions, texts, strict=True)):
            objects, completion = verdicts.get(k, ([], Completion(text="[]")))
            session.tally.add(completion)
            row = {**_known(caption), "caption": text, "extracted": objects}
            if drop_unfinished:
                row["unfinished"] = "dropped"
            if objects is None and completion.error is None:
                session.tally.add_unread(f"objects not found in what the judge says of line {caption.line}")
                row["unread"] = completion.text
            yield {**row, **judging}, completion.error

    write_rows(output, rows(), session.share)
    write_card(
        output, session, started=started, sampling=sampling, prompts={"objects": task},
        images=[caption.image_id for caption in captions], judge=judge, prompt_hash=prompt_hash,
    )  # fmt: skip
    return session.tally


def _known(caption: ForeignCaption) -> dict[str, Any]:
    known = {"id": caption.id, "image_id": caption.image_id, "model": caption.model, "prompt": caption.prompt}
    return {key: value for key, value in known.items() if value is not None}
