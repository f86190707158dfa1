"""A judge that lists the objects of descriptions, for Object HalBench; ``scapo-eval objhal`` scores what it lists.

The reference (``eval_gpt_obj_halbench.py`` of RLHF-V and RLAIF-V) has a language model list the objects that an
answer mentions, as JSON. The wording here is this project's own, its contract the same: a list of strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from ..base.hashes import digest
from ..benchmarks.judged import Judging
from ..engines import Completion, Request, Sampling, Turn
from ..files.records import Readable
from ..readers.captions_foreign import captions_of
from ..readers.formats import ForeignCaption, open_layout
from ..segmenting.unfinished import without_unfinished
from .judge import ask_until_read
from .judge_prompts import fill
from .runner import RequestCounts, Session, now, write_card, write_rows

FEW_WORDS = 3
"""Descriptions of no more words than these name no object to the reference, and no judge is asked."""

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
"""Replaces the request if a record does not state how its description was asked for."""


def objects_turns(case: dict[str, str], task: str = OBJECTS_TASK) -> tuple[Turn, ...]:
    """Returns the conversation that asks for a description's objects: the task, a worked example, the case.

    Args:
        case: the texts of ``question`` and ``answer``.
        task: the instruction; one with ``{answer}`` in it is a whole prompt and is sent alone.
    """
    if "{answer}" in task:
        return (Turn("user", fill(task, case)),)
    example, verdict = OBJECTS_EXAMPLE
    shown = (Turn("user", fill(OBJECTS_CASE, example)), Turn("assistant", verdict))
    return (Turn("system", task), *shown, Turn("user", fill(OBJECTS_CASE, case)))


_LIST = re.compile(r"\[.*\]", re.DOTALL)


def read_objects(text: str) -> list[str] | None:
    """Returns the objects in a judge's answer, each once; None where it holds no JSON list of strings.

    What surrounds the list does not matter (a code fence, a sentence before it); refusals, lists that were cut off,
    and several lists are no list.
    """
    match = _LIST.search(text)
    try:
        listed = orjson.loads(match.group()) if match else None
    except ValueError:
        return None
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        return None
    return list(dict.fromkeys(name for name in (" ".join(name.split()) for name in listed) if name))


def read_captions(path: Readable) -> list[ForeignCaption]:
    """Captions of a file in any layout.

    Raises:
        InputError, InputErrors: the file holds no captions, or unreadable ones.
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
    """Has the objects of every caption listed, and writes what ``scapo-eval objhal`` reads.

    Args:
        captions: what is read, see :func:`read_captions`.
        session: the judge's session.
        output: path of the JSON Lines with ``extracted``; a list that cannot be read is null, and the judge's last
            words stand beside it as ``unread``.
        judge: name of the judge.
        task: instruction to the judge, see :func:`objects_turns`.
        sampling: sampling settings of the judge; None takes the defaults.
        drop_unfinished: drop the last sentence of a caption where it has no end, before the judge sees it.
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
