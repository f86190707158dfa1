"""Identification of the benchmark to which a file of answers belongs, based on the answers themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..base.errors import InputError, ScapoError
from ..base.types import Answer
from ..files.containers import Warn, warn_user
from ..files.files import display_name
from ..files.records import Readable
from ..files.source import Source
from ..readers.answers import answers_of, read_answers
from ..readers.captions import taken_keys
from ..readers.formats import kind_of, open_layout, recognize_file
from ..results.benchmark import benchmark, benchmarks, has_benchmark


def answers_to(
    benchmark: str | None, path: Readable, *, model: str | None = None, warn: Warn = warn_user
) -> tuple[str, list[Answer]]:
    """Returns all answers in a file, and the name of the file for use in messages.

    Args:
        benchmark: Name of the expected benchmark, or None to accept any benchmark.
        path: File in any supported layout, or records in memory.
        model: Same as in :func:`read_answers`.
        warn: Same as in :func:`read_answers`.

    Raises:
        InputError: If most answers belong to another benchmark.
    """
    source = display_name(path)
    answers = list(read_answers(path, model=model, warn=warn))
    foreign = [answer for answer in answers if benchmark_of(answer) not in (None, benchmark)]
    if benchmark and 2 * len(foreign) > len(answers):
        reason = f"these look like {looks_like(foreign)}, not like {benchmark} answers"
        raise InputError(reason, path=source, line=foreign[0].line or None)
    return source, answers


def benchmark_of(answer: Answer) -> str | None:
    """Returns the benchmark of an answer, or None if the record does not identify it.

    The benchmark is identified by the field ``benchmark`` (``NAME`` and ``name_split`` both mean ``name``), by the id
    (``name/...``), or by the benchmark's own recognition function (based on modes or the wording of questions).
    """
    name = answer.benchmark or (answer.id.split("/", 1)[0] if "/" in answer.id else "")
    word = re.match(r"[a-z0-9]*", name.casefold())
    if word and has_benchmark(word.group()):
        return word.group()
    if answer.benchmark:
        return answer.benchmark
    return next((record.name for record in benchmarks() if record.recognizes and record.recognizes(answer)), None)


def looks_like(answers: Sequence[Answer]) -> str | None:
    """Returns the name of the benchmark to which answers probably belong, based on their ids and texts, or None if it
    is unknown.
    """
    named = Counter(name for answer in answers if (name := benchmark_of(answer)))
    if named:
        name = named.most_common(1)[0][0]
        return f"{name} answers" + (f" (scapo-eval {name})" if has_benchmark(name) else "")
    if any(answer.question for answer in answers):
        return None
    for record in benchmarks():
        if record.recognizes_file and (title := record.recognizes_file(answers)):
            return f"{title} (scapo-eval {record.verb})"
    length = sum(len(answer.response) for answer in answers) / max(1, len(answers))
    return "captions (scapo-eval score)" if length > 150 else None


def file_looks_like(path: Readable) -> str | None:
    """Returns a description of what a file probably contains, based on its layout, ids and texts.

    Returns None if the content cannot be identified, or if the file can be read only once.
    """
    try:
        source = open_layout(path, warn=lambda message: None)
        if source.format.answer is None:
            return source.format.title
        return looks_like(list(answers_of(source))) or source.format.title
    except ScapoError:
        return None


@contextmanager
def caption_file(path: Source) -> Iterator[None]:
    """Improves the error messages of the code in the ``with`` block, which scores a caption file. If the file does not
    contain captions, a single error states what it contains.
    """
    if reason := _answers_of_a_benchmark(path):
        raise InputError(reason, path=path.name)
    try:
        yield
    except ScapoError as error:
        if reason := _no_captions(path):
            raise InputError(reason, path=path.name) from error
        raise


def _answers_of_a_benchmark(path: Source) -> str | None:
    """Returns an error message if the records are answers whose ids could be mistaken for image ids, otherwise None."""
    try:
        known = recognize_file(path)
    except ScapoError:
        return None
    if known is None or known.layout is None or known.layout.format.name != "answers" or not taken_keys(known.layout):
        return None
    looks = file_looks_like(path) or ""
    if "(scapo-eval" not in looks or looks.startswith("captions"):
        return None
    return f"no captions (image_id, caption) but {known.title}; they look like {looks}"


def _no_captions(path: Source) -> str | None:
    try:
        known = recognize_file(path)
    except ScapoError:
        return None
    if (
        known is None
        or known.kind.name in benchmark("capscore").takes
        or (known.layout and (kind_of(known.layout) == "captions" or taken_keys(known.layout)))
    ):
        return None
    looks = file_looks_like(path) or ""
    reason = f"no captions (image_id, caption) but {known.title}"
    if "(scapo-eval" in looks and not looks.startswith("captions"):
        return f"{reason}; they look like {looks}"
    if known.layout and known.layout.format.captions:
        reason += known.kind.advice(path)
        return f"{reason}; if they are captions: scapo-eval import {path} --as captions -o captions.jsonl"
    return reason + known.kind.advice(path)


def hint(answers: Sequence[Answer], benchmark: str | None) -> str:
    """Returns ``; the file looks like ...`` if the answers seem to belong to another benchmark, otherwise an empty
    text.
    """
    looks = looks_like(answers)
    return f"; the file looks like {looks}" if looks and not looks.startswith(benchmark or "\0") else ""
