"""A judge that reads captions and decides how they use the names of objects. It needs no images.

The matcher finds the mentions in each distinct caption. They are marked in the text, and a language model determines
the use of each of them with a single answer. The output is the file for the option ``--uses`` of the scoring commands.
An unreadable answer is requested again. If the answers in all attempts are unreadable, the caption is counted as
unreadable, and the rules determine its uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from ..base.errors import InputError
from ..base.hashes import digest
from ..base.types import Mention
from ..benchmarks.judged import Judging
from ..engines import Completion, Request, Sampling, Turn
from ..files.files import read_text
from ..matching.judged_uses import JUDGED_USES
from ..matching.matcher import AliasMatcher
from ..matching.vocabulary import Vocabulary
from .judge import ask_until_read
from .judge_prompts import USES_CASE, USES_EXAMPLE, USES_TASK, fill
from .runner import RequestCounts, Session, now, write_card, write_rows


@dataclass(frozen=True, slots=True)
class MarkedCaption:
    """A caption whose mentions a judge should read.

    Attributes:
        text: Text of the caption.
        mentions: All mentions in the caption, in order.
    """

    text: str
    mentions: tuple[Mention, ...]

    @property
    def marked(self) -> str:
        """The text, in which each mention is written as ``[[NUMBER:SURFACE]]``."""
        parts, end = list[str](), 0
        for number, mention in enumerate(self.mentions, 1):
            parts += [self.text[end : mention.start], f"[[{number}:{mention.surface}]]"]
            end = mention.end
        return "".join([*parts, self.text[end:]])

    def listed(self, definitions: Mapping[str, str]) -> str:
        """Returns one line per mention, with its number, its words and its label. The first line with a label also
        contains the label's definition.
        """
        lines, told = list[str](), set[str]()
        for number, mention in enumerate(self.mentions, 1):
            definition = definitions.get(mention.label, "") if mention.label not in told else ""
            told.add(mention.label)
            meaning = f" ({' '.join(definition.split())})" if definition else ""
            lines.append(f"{number}. {' '.join(mention.surface.split())}: {mention.label}{meaning}")
        return "\n".join(lines)


def captions_to_judge(texts: Iterable[str], matcher: AliasMatcher) -> list[MarkedCaption]:
    """Returns the distinct texts with their mentions, in the order of their first occurrence."""
    distinct = list(dict.fromkeys(texts))
    return [MarkedCaption(text, tuple(matcher.find(text))) for text in distinct]


def uses_turns(caption: MarkedCaption, definitions: Mapping[str, str], task: str = USES_TASK) -> tuple[Turn, ...]:
    """Returns the conversation that requests the uses of the mentions in a caption. The conversation consists of the
    task, a worked example, and the case.

    Args:
        caption: Caption with mentions.
        definitions: Mapping from labels to their definitions.
        task: Instruction to the judge. If the instruction contains ``{caption}``, it is a complete prompt and is sent
            alone.
    """
    case = {"caption": caption.marked, "mentions": caption.listed(definitions)}
    if "{caption}" in task:
        return (Turn("user", fill(task, case)),)
    example, answer = USES_EXAMPLE
    shown = (Turn("user", fill(USES_CASE, example)), Turn("assistant", answer))
    return (Turn("system", task), *shown, Turn("user", fill(USES_CASE, case)))


def read_uses_task(path: str | None) -> str:
    """Returns the judge's instruction: the content of a file, or :data:`~.judge_prompts.USES_TASK` if there is none.

    Raises:
        InputError: If the text is a complete prompt without the placeholder ``{mentions}``.
    """
    task = read_text(path) if path else USES_TASK
    if "{caption}" in task and "{mentions}" not in task:
        raise InputError("the prompt has {caption} but no {mentions}", path=path)
    return task


_OBJECT = re.compile(r"\{[^{}]*\}")


def read_uses(text: str, number: int) -> list[str] | None:
    """Returns the uses in a judge's answer, one for each of ``number`` mentions, or None if the answer contains no JSON
    object that states a known use for each of them.

    Text around the object, such as a code fence or a preceding explanation, is ignored. Of several objects, the last
    one is read.
    """
    found = _OBJECT.findall(text)
    try:
        told = orjson.loads(found[-1]) if found else None
    except ValueError:
        return None
    if not isinstance(told, dict) or set(told) != {str(k) for k in range(1, number + 1)}:
        return None
    uses = [told[str(k)] for k in range(1, number + 1)]
    return uses if all(use in JUDGED_USES for use in uses) else None


def uses_schema(number: int) -> dict[str, Any]:
    """Returns the JSON schema of an answer about a number of mentions."""
    names = [str(k) for k in range(1, number + 1)]
    use = {"type": "string", "enum": list(JUDGED_USES)}
    return {
        "type": "object", "properties": dict.fromkeys(names, use), "required": names, "additionalProperties": False,
    }  # fmt: skip


def ask_for_uses(
    captions: Sequence[MarkedCaption], session: Session, vocabulary: Vocabulary, task: str, sampling: Sampling
) -> list[tuple[list[str] | None, Completion]]:
    """Requests the uses of the mentions in captions with mentions.

    Returns:
        For each caption, the use of each mention, or None if the request failed or the answer is unreadable, and the
        last completion.
    """
    definitions = {label: info.definition for label, info in vocabulary.info.items()}
    requests = [
        Request(uses_turns(caption, definitions, task), sampling, schema=uses_schema(len(caption.mentions)))
        for caption in captions
    ]
    return ask_until_read(session, requests, [partial(read_uses, number=len(caption.mentions)) for caption in captions])


def judging_of(judge: str, task: str, sampling: Sampling) -> Judging:
    """Returns the origin of uses, with a hash of the judge's prompt."""
    prompt = digest([turn.text for turn in uses_turns(MarkedCaption("", ()), {}, task)])
    return Judging(judge, prompt=prompt, sampling=sampling.said)


def judge_uses(
    captions: Sequence[MarkedCaption],
    session: Session,
    output: str,
    *,
    matcher: AliasMatcher,
    judge: str,
    task: str = USES_TASK,
    sampling: Sampling | None = None,
) -> RequestCounts:
    """Requests the uses of the mentions in all captions, and writes the file for ``--uses``.

    Args:
        captions: Captions from :func:`captions_to_judge`. Captions without mentions are written without a request.
        session: Session of the judge.
        output: Path of the JSON Lines file. If the uses are unreadable, ``uses`` is null, and ``unread`` contains the
            judge's last reply.
        matcher: Matcher that found the mentions.
        judge: Name of the judge.
        task: Instruction to the judge; see :func:`uses_turns`.
        sampling: Sampling settings of the judge, or None for the defaults.

    Returns:
        The counts of the requests in this session.
    """
    sampling = sampling or Sampling()
    started = now()
    asked = [caption for caption in captions if caption.mentions]
    answers = iter(ask_for_uses(asked, session, matcher.vocabulary, task, sampling))
    judging = judging_of(judge, task, sampling)
    about = {"vocabulary": matcher.vocabulary.identity, **judging.to_record()}

    def rows() -> Iterator[tuple[dict[str, Any], str | None]]:
        for number, caption in enumerate(captions, 1):
            uses, completion = next(answers) if caption.mentions else (list[str](), Completion(text="{}"))
            session.tally.add(completion)
            told = None
            if uses is not None:
                told = [
                    {"start": mention.start, "end": mention.end, "label": mention.label, "use": use}
                    for mention, use in zip(caption.mentions, uses, strict=True)
                ]
            row: dict[str, Any] = {"caption": caption.text, "uses": told}
            if told is None and completion.error is None:
                session.tally.add_unread(f"uses not found in what the judge says of text {number}")
                row["unread"] = completion.text
            yield {**row, **about}, completion.error

    write_rows(output, rows(), session.share)
    write_card(
        output, session, started=started, sampling=sampling, prompts={"uses": task}, images=[],
        judge=judge, prompt_hash=judging.prompt, vocabulary=matcher.vocabulary.identity,
    )  # fmt: skip
    return session.tally
