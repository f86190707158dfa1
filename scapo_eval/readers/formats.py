"""Recognition of file layouts from other tools, and extraction of the id, image, question and answer from their
records.

The following layouts are supported, with the sources of their definitions in parentheses: lmms-eval v0.1 to v0.7
(``loggers/evaluation_tracker.py``), VLMEvalKit (``vlmeval/inference.py``), LLaVA (``model_vqa_loader.py``), AMBER and
POPE (their READMEs), COCO's result format, verl 0.9 (``_dump_generations``) and TRL 1.16 (logged completions).
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..base.errors import InputError, InputWarning, short_repr
from ..base.ids import canonical_image_id
from ..base.types import Answer
from ..files.containers import ErrorHandler, Rows, Warn, open_rows, warn_user
from ..files.fields import (
    RECORD_KEYS,
    Record,
    caption_key,
    find_image,
    id_in,
    image_key,
    image_name_in,
    image_of,
    label_of,
    last_user_turn,
    message_text,
    only_text,
    optional_text,
    plain_key,
    required,
    state_of,
    text_in,
)
from ..files.json_text import parse_json
from ..files.records import Readable, Records
from ..files.source import Source
from .advice import advice_on_keys, is_map_of_several, nested_records, several_captions, without_header
from .kinds import KINDS, Kind, kind_of_folder
from .parsers import first_word

AnswerOf = Callable[[Record, int], Answer]


@dataclass(frozen=True, slots=True)
class ForeignCaption:
    """One caption from a file in any layout.

    Attributes:
        line: Number of the line, array element or row in the file, counted from 1.
        image_id: Canonical image id. The constructor accepts any spelling.
        caption: Text of the caption.
        model: Model that wrote the caption, or None if the file does not name the model.
        prompt: Prompt of the caption, or None if the file does not contain the prompt.
        id: Explicit id of the caption, or None if the file contains no caption ids.
        objects: Objects in the image according to the record, or None if the record contains no ground truth.
        written: Image id as it was given.
    """

    line: int
    image_id: str
    caption: str
    model: str | None = None
    prompt: str | None = None
    id: str | int | None = None
    objects: list[str] | None = None
    written: Any = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", self.image_id)
        object.__setattr__(self, "image_id", canonical_image_id(self.image_id))


CaptionsOf = Callable[[Record, int], Iterator[ForeignCaption]]


@dataclass(frozen=True, slots=True)
class Format:
    """A file layout.

    Attributes:
        name: Short name of the layout, which does not change between versions.
        title: Name of the layout as shown in messages.
        matches: Function that recognizes the layout by the file type and the keys of the first record.
        answer: Function that converts a record to an answer. The function is None if the layout has no answers.
        captions: Function that converts a record to captions. The function is None if the layout has no captions.
        kind: Kind of the files that have this layout. For a layout that may contain either captions or answers, the
            value is the kind that is used for files with answers.
    """

    name: str
    title: str
    matches: Callable[[Rows, set[str]], bool]
    answer: AnswerOf | None = None
    captions: CaptionsOf | None = None
    kind: Kind = KINDS["answers"]


@dataclass(frozen=True, slots=True)
class Recognized:
    """A recognized file whose rows have not been read."""

    format: Format
    rows: Rows


def recognize(path: Readable) -> Format:
    """Recognizes the layout of a file by its content and returns the layout.

    Raises:
        InputError: If the layout is unknown. The message lists the keys found and the supported layouts.
    """
    return open_layout(path, warn=lambda message: None).format


def open_layout(path: Readable, *, on_error: ErrorHandler | None = None, warn: Warn = warn_user) -> Recognized:
    """Opens a file and recognizes its layout in one pass, so that standard input is also supported.

    Args:
        path: Path of the file, ``-`` for standard input, or records in memory.
        on_error: Callback for each unreadable record. If ``on_error`` is None, the faults are raised together at the
            end.
        warn: Callback for warnings about damage that does not prevent reading.

    Raises:
        InputError: If the file is unreadable or its layout is unknown.
    """
    rows = open_rows(path, on_error=on_error, warn=warn)
    layout = layout_of(rows)
    if layout is not None:
        return Recognized(layout, _unpacked(rows) if layout is LMMS_EVAL_LOG else rows)
    if several := several_keys(rows.first):
        raise InputError(several, path=rows.path)
    if rows.container == "table" and (missing := without_header([*rows.first])):
        raise InputError(missing, path=rows.path)
    if name := _name_of_other_kind(rows.first):
        known = _KNOWN[name]
        reason = f"recognized as {known.title}: it contains no captions and no answers{known.kind.advice(rows.path)}"
        raise InputError(reason, path=rows.path)
    if nested := nested_records(rows.path, rows.first):
        raise InputError(nested, path=rows.path)
    if listed := several_captions(rows.path, rows.first):
        raise InputError(listed, path=rows.path)
    advice = advice_on_keys(rows.path, rows.first, "image_id and caption (of answers: id and response)")
    if not advice:
        titles = [layout.title for layout in FORMATS if layout.answer or layout.captions]
        advice = f"; understood are: {'; '.join(titles)}"
    raise InputError(f"unknown layout: {rows.container} with {_listed([*rows.first])}{advice}", path=rows.path)


def layout_of(rows: Rows) -> Format | None:
    """Returns the first layout in :data:`FORMATS` that matches the first record, or None if none matches.

    If the keys of captions were named with :func:`name_keys`, they apply to records that have one of these keys and to
    records of an unknown layout.
    """
    keys = set(rows.first)
    known = next((layout for layout in FORMATS if layout.matches(rows, keys)), None)
    named = {key for key in _named or () if key}
    if _named is not None and (known is None or not keys.isdisjoint(named)):
        return Format(
            "captions-named-keys",
            f"captions with named keys ({', '.join(sorted(named))})",
            lambda rows, found: True,
            captions=captions_under(*_named),
            kind=KINDS["captions"],
        )
    if named and rows.path not in ("", *_warned) and known is not None and known.captions is not None:
        _warned.add(rows.path)
        lacking = " or ".join(f"'{key}'" for key in sorted(named))
        warnings.warn(f"{rows.path}: no key {lacking}; read as {known.title}", InputWarning, stacklevel=2)
    return known


_named: tuple[str | None, str | None] | None = None
_warned: set[str] = set()
"""Files without the named keys, each of which causes one warning."""


def name_keys(image_key: str | None, caption_key: str | None) -> None:
    """Sets the keys of the image id and the caption for all files that this process reads.

    Args:
        image_key: Key of the image ids, or None to determine the key from each record.
        caption_key: Key of the captions, or None to determine the key from each record.
    """
    global _named
    _named = (image_key, caption_key) if image_key or caption_key else None
    _warned.clear()


def keys_are_named() -> bool:
    """Returns True if :func:`name_keys` has set the keys of captions."""
    return _named is not None


def kind_of(source: Recognized) -> Literal["captions", "answers"]:
    """Determines from the first record whether a file contains captions or answers, for layouts that allow both.

    The file contains answers if the first record has a label, has a response that means "yes" or "no", or does not name
    an image. Otherwise, the file contains captions.
    """
    layout = source.format
    if layout.answer is None or layout.captions is None:
        return "captions" if layout.captions else "answers"
    try:
        answer = layout.answer(source.rows.first, 1)
        if answer.label is not None or first_word(answer.response) is not None:
            return "answers"
    except ValueError:
        pass
    if layout.name == "chat":
        return "captions"
    if layout.name == "answers" and find_image(source.rows.first) is None:
        return "answers"
    try:
        return "captions" if any(layout.captions(source.rows.first, 1)) else "answers"
    except ValueError:
        return "answers"


def _listed(keys: list[str]) -> str:
    shown = ", ".join(repr(key)[1:-1][:40] for key in keys[:12]) + (", ..." if len(keys) > 12 else "")
    return f"the keys {shown}" if keys else "an empty object"


def _unpacked(rows: Rows) -> Rows:
    """Returns the samples in the log file that lmms-eval v0.1 or v0.2 writes for a complete run."""
    logs = rows.first["logs"]
    samples = [(number, log) for number, log in enumerate(logs, 1) if isinstance(log, dict)]
    if not samples or len(samples) < len(logs):
        raise InputError("'logs' must be a list of samples, each an object", path=rows.path)
    model = _lmms_model(rows.first)
    for _, log in samples:
        log.setdefault("model", model)
    return Rows(rows.path, rows.container, samples[0][1], iter(samples))


def _lmms_model(run: Record) -> str | None:
    args = run.get("args")
    told = args.get("model_args") if isinstance(args, dict) else None
    named = re.search(r"(?:^|,)(?:pretrained|model|model_version)=([^,]+)", told) if isinstance(told, str) else None
    if named:
        return named.group(1)
    return args["model"] if isinstance(args, dict) and isinstance(args.get("model"), str) else None


# --- own ------------------------------------------------------------------------------------------------------------


def _own_answer(row: Record, line: int) -> Answer:
    return Answer(
        id=id_in(row, "id"),
        response=text_in(row, "response"),
        image=find_image(row),
        question=optional_text(row.get("question")),
        label=label_of(row.get("label")) or optional_text(row.get("label")),
        benchmark=optional_text(row.get("benchmark")),
        category=optional_text(row.get("category")) or optional_text(row.get("split")),
        mode=optional_text(row.get("mode")),
        task=optional_text(row.get("task")),
        model=optional_text(row.get("model")),
        agrees=_agrees(row),
        line=line,
    )


_PHD_MODE = re.compile(r"(?:phd[-_ /]?)?(?:base|sec|iac|icc|ccs)", re.IGNORECASE)


def _is_phd_without_ids(rows: Rows, found: set[str]) -> bool:
    mode = rows.first.get("mode")
    return found >= {"mode", "question", "response"} and isinstance(mode, str) and bool(_PHD_MODE.fullmatch(mode))


def _phd_answer(row: Record, line: int) -> Answer:
    """Reads one answer to PhD without an id. The image and the question identify it within its mode."""
    return _own_answer({**row, "id": f"{find_image(row)}: {text_in(row, 'question')}"}, line)


def _agrees(row: Record) -> bool | None:
    """Converts the value of HallusionBench's field ``same`` ("1" or "0") to a Boolean, and any other value to None."""
    return {"1": True, "0": False}.get(str(row.get("same")))


def _own_captions(key: str) -> CaptionsOf:
    def captions(row: Record, line: int) -> Iterator[ForeignCaption]:
        image = required(row, "image_id")
        try:
            canonical_image_id(image)
        except ValueError as error:
            raise ValueError(f"'image_id' {error}") from None
        model, prompt = optional_text(row.get("model")), optional_text(row.get("prompt"))
        text = text_in(row, key)
        if key == "response":  # a rollout's id is its prompt's, and several samples share it
            yield ForeignCaption(line, image, text, model, prompt)
        else:
            identity = row.get("id")
            identity = identity if isinstance(identity, int) else optional_text(identity)
            yield ForeignCaption(line, image, text, model, prompt, identity, _objects(row))

    return captions


def _objects(row: Record) -> list[str] | None:
    """Returns the objects in a record's image, or None if the record contains no ground truth. In a table, the cell
    contains the objects as a JSON list, or is empty.
    """
    value = row.get("objects")
    if isinstance(value, str):
        try:
            value = parse_json(value.encode()) if value.strip() else None
        except ValueError:
            raise ValueError("'objects' must be a JSON list of strings") from None
    if value is None or (isinstance(value, list) and all(isinstance(label, str) for label in value)):
        return value
    raise ValueError("'objects' must be a list of strings")


def _answer_as_caption(row: Record, line: int) -> Iterator[ForeignCaption]:
    prompt = optional_text(row.get("prompt")) or optional_text(row.get("question"))
    image = image_name_in(row, fallback=None if row.keys() & _ASKED else id_in(row, "id"))
    yield ForeignCaption(line, image, text_in(row, "response"), optional_text(row.get("model")), prompt)


_ASKED = frozenset({"question", "label", "benchmark", "category", "mode", "task"})  # an id with these is no image's


def keys_of_captions(record: Record) -> tuple[str, str] | None:
    """Returns the keys of the image id and the caption in a record. The result is None if the record contains no text
    or no image under the known keys, or if it contains several texts or different images.
    """
    try:
        image, text = image_key(record), caption_key(record)
    except ValueError:
        return None
    return (image, text) if image is not None and text is not None else None


def several_keys(record: Record) -> str | None:
    """Returns the reason why a record is ambiguous, or None if it does not contain several texts or different images
    under the known keys.
    """
    try:
        image_key(record), caption_key(record)
    except ValueError as error:
        return str(error)
    return None


def captions_under(key_of_image: str | None, key_of_caption: str | None) -> CaptionsOf:
    """Returns a function that reads captions from records with custom keys for the image id and the caption. If a key
    is None, it is chosen from the known keys of each record.
    """

    def captions(row: Record, line: int) -> Iterator[ForeignCaption]:
        under = key_of_image or image_key(row) or "image_id"
        image = image_of(required(row, under))
        if image is None:
            raise ValueError(f"{under!r} is no image's id or name")
        under = key_of_caption or caption_key(row) or "caption"
        text = only_text(row.get(under))
        model, prompt = optional_text(row.get("model")), optional_text(row.get("prompt"))
        text = text_in(row, under) if text is None else text
        yield ForeignCaption(line, image, text, model, prompt, objects=_objects(row))

    return captions


def _answer_under_other_keys(row: Record, line: int) -> Answer:
    """Reads one answer with the id of its question. A text whose key names a caption is not an answer."""
    identity, text = next((key for key in row if plain_key(key) in RECORD_KEYS), None), caption_key(row)
    if identity is None or text is None or "caption" in plain_key(text):
        raise ValueError(f"not the id of a question and an answer ({_listed(list(row))})")
    return Answer(
        id=id_in(row, identity),
        response=only_text(row[text]) or "",
        image=find_image(row),
        question=optional_text(row.get("question")),
        label=label_of(row.get("label")),
        model=optional_text(row.get("model")),
        line=line,
    )


_IMAGE_NAME = re.compile(r"\d+|.*\.(?:jpe?g|png|webp|bmp|gif|tiff?)", re.IGNORECASE | re.ASCII)
_SENTENCE = re.compile(r"\b(?:an?|the|is|are|of|in|on|with|and)\b", re.IGNORECASE)


def _is_by_image(record: Record) -> bool:
    texts = [text for value in record.values() if (text := only_text(value)) is not None]
    if not texts or len(texts) < len(record) or not all(_IMAGE_NAME.fullmatch(str(image)) for image in record):
        return False
    words = len(" ".join(texts).split())
    sentences = sum(bool(_SENTENCE.search(text)) for text in texts)
    return words > 2 * len(texts) or (words == 2 * len(texts) and 2 * sentences >= len(texts))  # else labels


def _captions_by_image(row: Record, line: int) -> Iterator[ForeignCaption]:
    for image, value in row.items():
        text = only_text(value)
        yield ForeignCaption(line, image, text_in(row, image) if text is None else text)


CHAT_KEYS = ("messages", "conversations", "conversation")
"""Keys of the messages in a chat."""

_ASSISTANTS = ("assistant", "gpt", "model")


def _turns(row: Record) -> list[tuple[str, object]]:
    """Returns the role and the content of each message of a chat."""
    listed: list[Any] = next((row[key] for key in CHAT_KEYS if isinstance(row.get(key), list)), [])
    return [
        (str(turn.get("role", turn.get("from"))), turn.get("content", turn.get("value")))
        for turn in listed
        if isinstance(turn, dict)
    ]


def _is_chat(row: Record) -> bool:
    return any(role in _ASSISTANTS for role, _ in _turns(row))


def _chat_text(row: Record) -> str:
    """Returns the text of the assistant's last turn."""
    said = [content for role, content in _turns(row) if role in _ASSISTANTS]
    if not said:
        raise ValueError(f"no turn of the assistant ({_listed(list(row))})")
    return message_text(said[-1])


def _chat_image(row: Record) -> str | None:
    """Returns the image of a chat, which is named by a key of the record or in the content of a message."""
    shown = row.get("images") or []
    for _, content in _turns(row) if not shown else ():
        for part in content if isinstance(content, list) else ():
            named = part.get("image", part.get("image_url")) if isinstance(part, dict) else None
            shown += [named] if image_of(named) is not None else []
    if isinstance(shown, list) and len(shown) > 1:
        raise ValueError(f"{len(shown)} images in one chat; a caption belongs to one image")
    found = image_key(row)
    return image_of(shown) if found is None or plain_key(found) in RECORD_KEYS else image_of(row[found])


def _chat_captions(row: Record, line: int) -> Iterator[ForeignCaption]:
    image = _chat_image(row) or image_of(row.get(image_key(row) or ""))
    if image is None:
        raise ValueError(f"no image id ({_listed(list(row))})")
    yield ForeignCaption(line, image, _chat_text(row), optional_text(row.get("model")), _chat_prompt(row))


def _chat_prompt(row: Record) -> str | None:
    asked = [content for role, content in _turns(row) if role in ("user", "human")]
    return optional_text(message_text(asked[-1])) if asked else None


def _chat_answer(row: Record, line: int) -> Answer:
    return Answer(
        id=id_in(row, next((key for key in row if plain_key(key) in RECORD_KEYS), "id")),
        response=_chat_text(row),
        image=_chat_image(row),
        question=_chat_prompt(row),
        label=label_of(row.get("label")),
        model=optional_text(row.get("model")),
        line=line,
    )


AMBER_DESCRIPTIONS = 1004
"""Largest AMBER id that belongs to a description prompt. Larger ids belong to yes/no questions."""


def _amber_captions(row: Record, line: int) -> Iterator[ForeignCaption]:
    number = id_in(row, "id")
    if not number.isdecimal() or int(number) <= AMBER_DESCRIPTIONS:
        yield ForeignCaption(line, number, text_in(row, "response"))


# --- responses of an API ---


def _api_image(row: Record) -> str | None:
    return find_image(row) or image_of(row.get("custom_id"))


def _api_body(row: Record) -> Record:
    """Returns the object that contains the texts: OpenAI's body, Anthropic's message, or the record itself."""
    for key, inner in ("response", "body"), ("result", "message"):
        outer = row.get(key)
        if isinstance(outer, dict) and inner in outer:
            return outer[inner] if isinstance(outer[inner], dict) else {}
    return row


def _is_of_api(row: Record) -> bool:
    body = _api_body(row)
    listed = body is not row or isinstance(body.get("choices"), list)
    return (listed or "custom_id" in row) and _api_image(row) is not None


def _api_text(row: Record) -> str:
    """Returns the text of the only response.

    Raises:
        ValueError: If the request failed, or if there are several responses.
    """
    body = _api_body(row)
    if (text := only_text(body.get("output"))) is not None:
        return text
    choices, turns = ([each for each in _list_of(body, key) if isinstance(each, dict)] for key in ("choices", "output"))
    choices = choices or [turn for turn in turns if turn.get("type") == "message"]
    if len(choices) > 1:
        raise ValueError(f"{len(choices)} responses to one request; write a record for each")
    first = choices[0] if choices else body
    message = first.get("message", first)
    message = message if isinstance(message, dict) else {}
    content = message.get("content", first.get("text"))
    if not isinstance(content, (str, list)) or not (text := message_text(content)):
        error = row.get("error") or body.get("error") or row.get("result")
        raise ValueError(f"the request has no text{f' ({short_repr(error)})' if error else ''}")
    return text


def _list_of(record: Record, key: str) -> list[Any]:
    return found if isinstance(found := record.get(key), list) else []


def _api_captions(row: Record, line: int) -> Iterator[ForeignCaption]:
    image = _api_image(row)
    if image is None:
        raise ValueError(f"no image id ({_listed(list(row))})")
    yield ForeignCaption(line, image, _api_text(row), optional_text(_api_body(row).get("model")))


# --- LLaVA, POPE ----------------------------------------------------------------------------------------------------

_LLAVA_KEYS = ("answer_id", "model_id", "prompt")  # what its answers have and its question files have not


def _llava_answer(row: Record, line: int) -> Answer:
    return Answer(
        id=id_in(row, "question_id"),
        response=text_in(row, "text"),
        image=find_image(row),
        question=optional_text(row.get("prompt")),
        label=label_of(row.get("label")),
        category=optional_text(row.get("category")),
        model=optional_text(row.get("model_id")),
        line=line,
    )


def _llava_captions(row: Record, line: int) -> Iterator[ForeignCaption]:
    image = image_name_in(row, fallback=id_in(row, "question_id"))
    model, prompt = optional_text(row.get("model_id")), optional_text(row.get("prompt"))
    yield ForeignCaption(line, image, text_in(row, "text"), model, prompt)


def verb_of_questions(first: Record) -> str:
    """Returns the verb that scores answers to the questions in a file with the given first record."""
    return "pope" if {"question_id", "text", "label"} <= first.keys() else "yesno"


def _pope_answer(row: Record, line: int) -> Answer:
    """Reads one answer in POPE's format. POPE answers have no ids. The line number, counted from 1, therefore
    identifies the question.
    """
    return Answer(
        id=str(line),
        response=text_in(row, "answer"),
        image=find_image(row),
        question=text_in(row, "question"),
        line=line,
    )


# --- lmms-eval ------------------------------------------------------------------------------------------------------


def _lmms_parts(row: Record) -> tuple[Record, list[Record]]:
    """Returns the benchmark's document, which lmms-eval stored in each sample until v0.4, and the records of the
    metrics. The document and the records often contain the same ids.
    """
    doc = row.get("doc")
    parts: list[Record] = [
        value for key, value in row.items() if isinstance(value, dict) and key not in ("doc", "arguments")
    ]
    return (doc if isinstance(doc, dict) else {}), parts


def _lmms_responses(row: Record) -> list[str]:
    """Returns the responses of a sample, which lmms-eval writes as ``"No"`` (v0.7), ``["No"]`` (up to v0.6) or
    ``[["No"]]`` (unfiltered).
    """
    listed: list[str] = []
    stack = [row.get("filtered_resps", row.get("resps"))]
    while stack:
        value = stack.pop(0)
        if isinstance(value, str):
            listed.append(value)
        elif isinstance(value, list):
            stack = [*value, *stack]
    if not listed:
        raise ValueError("neither 'filtered_resps' nor 'resps' holds a text")
    return listed


def _lmms_question(row: Record, doc: Record) -> str | None:
    asked = doc.get("question", row.get("input"))
    while isinstance(asked, (list, tuple)) and asked:
        asked = asked[0]
    if asked is None:
        arguments = row.get("arguments")
        asked = arguments[0] if isinstance(arguments, list) and arguments else None
        asked = asked[0] if isinstance(asked, list) and asked else asked
    return optional_text(asked)


def _lmms_answer(row: Record, line: int) -> Answer:
    doc, parts = _lmms_parts(row)
    responses = _lmms_responses(row)
    if len(responses) > 1:
        raise ValueError(f"{len(responses)} responses to one question (repeats); one is expected")
    asked = next((record for record in (doc, *parts) if record.get("question_id") is not None), None)
    hallusionbench = next((record for record in (doc, *parts) if set(record) >= HALLUSIONBENCH_KEYS), None)
    if hallusionbench is not None:
        return _hallusionbench_answer({**hallusionbench, "model_prediction": responses[0]}, line)
    return Answer(
        id=id_in(asked, "question_id") if asked is not None else lmms_doc_id(row),
        response=responses[0],
        image=find_image(doc, *parts),
        question=_lmms_question(row, doc),
        label=label_of(row.get("target")) or label_of(doc.get("answer")),
        benchmark="pope" if any(key.startswith("pope_") for key in row) else None,
        category=optional_text(doc.get("category")),
        model=optional_text(row.get("model")),
        line=line,
    )


def lmms_doc_id(row: Record) -> str:
    """Returns an id that consists of the number of a sample's document and a prefix, which distinguishes the id from
    question ids.
    """
    return f"doc/{id_in(row, 'doc_id')}"


def _lmms_captions(row: Record, line: int) -> Iterator[ForeignCaption]:
    doc, parts = _lmms_parts(row)
    named = (record.get("question_id") for record in (doc, *parts))  # coco_cap names the image there
    fallback = next((name for name in named if isinstance(name, str) and re.search(r"\.\w{3,4}$|^COCO_", name)), None)
    image = image_name_in(doc, *parts, row, fallback=fallback)
    for response in _lmms_responses(row):
        model, objects = optional_text(row.get("model")), _lmms_objects(row, doc)
        yield ForeignCaption(line, image, response, model, _lmms_question(row, doc), objects=objects)


_CHAIR_PARTS = ("coco_cap_chair_i", "coco_cap_chair_s", "coco_cap_recall")


def _lmms_objects(row: Record, doc: Record) -> list[str] | None:
    """Returns the ground truth that lmms-eval's task ``coco_cap_chair`` logs in the document's ``gt_object`` or in a
    metric's ``answer``.
    """
    parts = [row[key] for key in _CHAIR_PARTS if isinstance(row.get(key), dict)]
    answer = doc.get("gt_object", parts[0].get("answer") if parts else None)
    listed = isinstance(answer, list) and all(isinstance(label, str) for label in answer)
    return list(dict.fromkeys(answer)) if listed else None


# --- HallusionBench -------------------------------------------------------------------------------------------------

HALLUSIONBENCH_KEYS = frozenset({"category", "subcategory", "visual_input", "set_id", "figure_id", "question_id"})


def hallusionbench_id(row: Record) -> str:
    """Joins HallusionBench's id fields into a single id in the style of VLMEvalKit's index, such as
    ``VD/illusion/1/0/0/0``.
    """
    keys = ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id")
    return "/".join(id_in(row, key) for key in keys)


def hallusionbench_label(row: Record) -> str | None:
    """Converts ``gt_answer`` to ``yes`` (1) or ``no`` (0)."""
    return {"1": "yes", "0": "no"}.get(str(row.get("gt_answer")))


def _hallusionbench_answer(row: Record, line: int) -> Answer:
    return Answer(
        id=hallusionbench_id(row),
        response=_cell(required(row, "model_prediction")),
        image=image_of(row.get("filename")),
        question=optional_text(row.get("question")),
        label=hallusionbench_label(row),
        benchmark="hallusionbench",
        agrees=_agrees(row),
        line=line,
    )


# --- VLMEvalKit -----------------------------------------------------------------------------------------------------


def _cell(value: object) -> str:
    """Returns the text in a table cell, or an empty string for an empty cell."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _vlmevalkit_answer(row: Record, line: int) -> Answer:
    return Answer(
        id=id_in(row, "index"),
        response=_cell(row["prediction"]) if "prediction" in row else "",
        image=_vlmevalkit_image(row),
        question=optional_text(row.get("question")),
        label=label_of(row.get("answer")),
        category=optional_text(row.get("category")),
        line=line,
    )


def _vlmevalkit_image(row: Record) -> str | None:
    return image_of(row.get("image_path")) or find_image(row)


def _vlmevalkit_captions(row: Record, line: int) -> Iterator[ForeignCaption]:
    image = image_name_in(row, fallback=_vlmevalkit_image(row))
    yield ForeignCaption(line, image, _cell(row.get("prediction")), None, optional_text(row.get("question")))


# --- training rollouts ----------------------------------------------------------------------------------------------


def _rollout_answer(prompt: str, response: str, label: str) -> AnswerOf:
    """Returns a function that reads answers from rollouts. The line number is used as the id, because rollouts have no
    ids.
    """

    def answer(row: Record, line: int) -> Answer:
        return Answer(
            id=str(line),
            response=_rollout_text(row, response),
            image=find_image(row, _extra(row)),
            question=last_user_turn(row.get(prompt)),
            label=label_of(row.get(label)),
            line=line,
        )

    return answer


def _rollout_captions(prompt: str, response: str) -> CaptionsOf:
    def captions(row: Record, line: int) -> Iterator[ForeignCaption]:
        image = image_name_in(row, _extra(row))
        yield ForeignCaption(line, image, _rollout_text(row, response), None, last_user_turn(row.get(prompt)))

    return captions


def _rollout_text(row: Record, key: str) -> str:
    """Returns the response text in a rollout. If the response is a list of messages, their texts are concatenated."""
    value = required(row, key)
    if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
        return "".join(message_text(turn.get("content")) for turn in value)
    return text_in(row, key)


def _extra(row: Record) -> Record:
    extra = row.get("extra_info")
    return extra if isinstance(extra, dict) else {}


# --- the list: first match wins -------------------------------------------------------------------------------------


def _has(*keys: str, any_of: tuple[str, ...] = (), container: str | None = None) -> Callable[[Rows, set[str]], bool]:
    def matches(rows: Rows, found: set[str]) -> bool:
        wanted = found.issuperset(keys) and (not any_of or not found.isdisjoint(any_of))
        return wanted and container in (None, rows.container)

    return matches


def _exactly(container: str, keys: set[str]) -> Callable[[Rows, set[str]], bool]:
    return lambda rows, found: rows.container == container and found == keys


def _is_amber(rows: Rows, found: set[str]) -> bool:
    return _exactly("JSON array", {"id", "response"})(rows, found) and isinstance(rows.first["id"], int)


def _is_questions(rows: Rows, found: set[str]) -> bool:
    plain = {"id", "label"} <= found and found.isdisjoint({"response", "prediction"})
    plain = plain or (found >= {*HALLUSIONBENCH_KEYS, "gt_answer"} and "model_prediction" not in found)
    return plain or ({"question_id", "text", "label"} <= found and found.isdisjoint(_LLAVA_KEYS))


def _is_score_table(rows: Rows, found: set[str]) -> bool:
    named = found & {"Overall", "overall", "perception", "Relative Score (main)", "Final Score", "Avg ACC"}
    tables = bool(named) or {"Category", "tot", "acc"} <= found or {"split", "acc"} <= found
    return tables and found.isdisjoint({"prediction", "response", "caption", "systems", "results"})


LMMS_EVAL_LOG = Format(
    "lmms-eval-log",
    "lmms-eval samples of v0.1 and v0.2 (one JSON object with 'logs')",
    lambda rows, found: isinstance(rows.first.get("logs"), list),
    _lmms_answer,
    _lmms_captions,
)
LMMS_EVAL = Format(
    "lmms-eval",
    "lmms-eval samples (doc_id, filtered_resps)",
    _has("doc_id", any_of=("filtered_resps", "resps")),
    _lmms_answer,
    _lmms_captions,
)
AMBER = Format(
    "amber", "AMBER responses ([{id, response}])", _is_amber, _own_answer, _amber_captions, KINDS["AMBER responses"]
)
LMMS_EVAL_RESULTS = Format(
    "lmms-eval-results",
    "lmms-eval results ('results' per task)",
    lambda rows, found: isinstance(rows.first.get("results"), dict) and bool(found & {"configs", "versions", "config"}),
    kind=KINDS["harness results"],
)
VLMEVALKIT_SCORES = Format("vlmevalkit-scores", "VLMEvalKit scores", _is_score_table, kind=KINDS["harness results"])
OTHER_KEYS = Format(
    "captions-other-keys",
    "captions under other keys (image and text, file_name and description, id and output...)",
    lambda rows, found: keys_of_captions(rows.first) is not None,
    _answer_under_other_keys,
    captions_under(None, None),
)
BY_IMAGE = Format(
    "captions-by-image",
    "captions by image ({image id: caption})",
    lambda rows, found: _is_by_image(rows.first),
    captions=_captions_by_image,
    kind=KINDS["captions"],
)
FORMATS: tuple[Format, ...] = (
    Format(
        "api-responses",
        "responses of an API (custom_id and response; image_id and choices)",
        lambda rows, found: _is_of_api(rows.first),
        captions=_api_captions,
        kind=KINDS["captions"],
    ),
    LMMS_EVAL_LOG,
    LMMS_EVAL_RESULTS,
    Format("scapo-results", "a results file of scapo-eval", _has("systems"), kind=KINDS["results"]),
    Format("coco-annotations", "COCO annotations", _has("images", "annotations"), kind=KINDS["truth"]),
    Format(
        "mmhal-ratings",
        "MMHal-Bench ratings",
        lambda rows, found: "choices" in found or ("judge_text" in found and "caption" not in found),
        kind=KINDS["ratings"],
    ),
    Format(
        "mmhal-answers",
        "MMHal-Bench answers without ratings",
        _has("gt_answer", "model_answer"),
        kind=KINDS["answers to rate"],
    ),
    Format(
        "faithscore",
        "FaithScore facts",
        lambda rows, keys: {"facts", "verified"} <= keys or {"atomic_facts"} <= keys,
        kind=KINDS["facts"],
    ),
    LMMS_EVAL,
    Format(
        "vlmevalkit",
        "VLMEvalKit predictions (index, prediction; xlsx, tsv or json)",
        _has("index", "prediction"),
        _vlmevalkit_answer,
        _vlmevalkit_captions,
    ),
    Format(
        "vlmevalkit-data",
        "a VLMEvalKit benchmark table without predictions",
        _has("index", "question"),
        kind=KINDS["a table without predictions"],
    ),
    VLMEVALKIT_SCORES,
    Format(
        "coco-results",
        "COCO results ([{image_id, caption}])",
        _exactly("JSON array", {"image_id", "caption"}),
        captions=_own_captions("caption"),
        kind=KINDS["captions"],
    ),
    Format(
        "captions",
        "own captions (image_id, caption)",
        _has("image_id", "caption"),
        captions=_own_captions("caption"),
        kind=KINDS["captions"],
    ),
    AMBER,
    Format("answers", "own answers (id, response)", _has("id", "response"), _own_answer, _answer_as_caption),
    Format("phd-answers", "PhD answers (mode, image, question, response)", _is_phd_without_ids, _phd_answer),
    Format(
        "rollouts",
        "own rollouts (image_id, response)",
        _has("image_id", "response"),
        captions=_own_captions("response"),
        kind=KINDS["rollouts"],
    ),
    Format(
        "hallusionbench",
        "HallusionBench results (set_id, figure_id, question_id, model_prediction)",
        _has(*HALLUSIONBENCH_KEYS, "model_prediction"),
        _hallusionbench_answer,
    ),
    Format(
        "questions",
        "yes/no questions with labels (question_id, text, label)",
        _is_questions,
        kind=KINDS["questions"],
    ),
    Format(
        "llava",
        "LLaVA answers (question_id, text, model_id)",
        _has("question_id", "text", any_of=_LLAVA_KEYS),
        _llava_answer,
        _llava_captions,
    ),
    Format(
        "verl",
        "verl rollouts (input, output, score)",
        _has("input", "output", any_of=("score", "gts", "step")),
        _rollout_answer("input", "output", "gts"),
        _rollout_captions("input", "output"),
    ),
    Format(
        "trl",
        "TRL completions (prompt, completion)",
        _has("prompt", "completion"),
        _rollout_answer("prompt", "completion", "label"),
        _rollout_captions("prompt", "completion"),
    ),
    Format(
        "phd-questions",
        "PhD questions",
        _has("yes_question", "no_question"),
        kind=KINDS["PhD questions"],
    ),
    Format("amber-queries", "AMBER queries", _has("id", "image", "query"), kind=KINDS["prompts"]),
    Format(
        "pope",
        "POPE answers (question, answer)",
        lambda rows, keys: {"question", "answer"} <= keys <= {"question", "answer", "image"},
        _pope_answer,
    ),
    Format(
        "chat",
        "chats whose last answer is a caption (messages or conversations)",
        lambda rows, found: _is_chat(rows.first),
        _chat_answer,
        _chat_captions,
    ),
    OTHER_KEYS,
    BY_IMAGE,
)


def wrong_kind(source: Recognized, wanted: str) -> InputError:
    """Returns the error for a recognized file whose content is not of the required kind.

    Args:
        source: The recognized file.
        wanted: Required kind of content, ``answers`` or ``captions``.
    """
    path, layout = source.rows.path, source.format
    advice = KINDS["captions"].advice(path) if layout.answer is None and layout.captions else layout.kind.advice(path)
    return InputError(f"recognized as {layout.title}: it contains no {wanted}{advice}", path=path)


@dataclass(frozen=True, slots=True)
class KnownFile:
    """The kind of a file or folder.

    Attributes:
        kind: Kind of the content, and the commands that accept it.
        title: Name of the kind or layout as shown in messages.
        layout: Recognized layout, including the rows of the file, or None if the layout is not one of :data:`FORMATS`.
    """

    kind: Kind
    title: str
    layout: Recognized | None = None


def recognize_file(path: Readable) -> KnownFile | None:
    """Recognizes a file or folder by its content and returns its kind, or None if the kind is unknown.

    Args:
        path: Path of a file or folder, an input that the caller reads afterwards, or records in memory.

    Raises:
        InputError: If the file is not found or cannot be read.
    """
    if isinstance(path, Records):
        return _recognized(open_rows(path, warn=lambda message: None))
    source = Source.of(path)
    if source.is_folder:
        return _recognized_folder(source.path)
    if source.head[:4] == b"PK\x03\x04" and b".npy" in source.head[:200]:  # NumPy's archive
        return _KNOWN["scenes" if b"names.npy" in source.head[:200] else "truth"]  # a claim matrix begins with names
    try:
        return _recognized(open_rows(source, warn=lambda message: None))
    except InputError:
        return _KNOWN["vocabulary"] if _VOCABULARY.search(source.head) else None


def _recognized_folder(path: str | os.PathLike[str]) -> KnownFile | None:
    if (kind := kind_of_folder(path)) is not None:
        return KnownFile(kind, kind.name)
    first = min(Path(path).glob("*.json"), default=None)
    known = None if first is None else recognize_file(first)
    return known if known is _KNOWN["claims"] else None  # DeCapBench writes a file per description


def _recognized(rows: Rows) -> KnownFile | None:
    name = _name_by_first_record(rows.first)
    if name is not None:
        return _KNOWN[name]
    layout = layout_of(rows)
    if layout is None:
        return _KNOWN["truth"] if _is_truth(rows.first) else None
    if layout.captions is None and {"rating", "question_type"} <= rows.first.keys():
        return KnownFile(KINDS["ratings"], "MMHal-Bench ratings")
    file = Recognized(layout, _unpacked(rows) if layout is LMMS_EVAL_LOG else rows)
    either = layout.answer is not None and layout.captions is not None
    captions = either and layout.kind is KINDS["answers"] and kind_of(file) == "captions"
    return KnownFile(KINDS["captions"] if captions else layout.kind, layout.title, file)


def _name_by_first_record(first: Record) -> str | None:
    return next((name for name, matches in _BY_FIRST_RECORD.items() if matches(first)), None)


def _name_of_other_kind(first: Record) -> str | None:
    """Returns the name of the kind of a file whose layout is not in :data:`FORMATS`, or None."""
    return _name_by_first_record(first) or ("truth" if _is_truth(first) else None)


_KNOWN = {
    name: KnownFile(KINDS[name], title)
    for name, title in {
        "claims": "claims with verdicts",
        "object lists": "captions with a judge's object lists (extracted)",
        "uses": "uses of mentions (judge uses)",
        "truth": "a truth file",
        "scenes": "scenes with objects and claims",
        "vocabulary": "a vocabulary",
        "references": "reference captions",
        "judgements": "human judgments (THumB, FAITHSCORE, IIW-400)",
    }.items()
}
_VERDICTS = frozenset({"verified", "unread"})
_VOCABULARY = re.compile(rb"^labels:", re.MULTILINE)
_BY_FIRST_RECORD: dict[str, Callable[[Record], bool]] = {
    "scenes": lambda first: "image_id" in first and _is_scene(first),
    "claims": lambda first: "eval_details" in first or ("claims" in first and not first.keys().isdisjoint(_VERDICTS)),
    "object lists": lambda first: "extracted" in first,
    "uses": lambda first: {"caption", "vocabulary", "uses"} <= first.keys(),
    "vocabulary": lambda first: isinstance(first.get("labels"), dict) and "ignore" in first,
    "references": lambda first: (
        ("references" in first and first.keys().isdisjoint(("caption", "question", "response")))
        or _is_coco_captions(first)
    ),
    "judgements": lambda first: any(
        keys <= first.keys() for keys in ({"hyp", "human_score"}, {"answer", "stage 2"}, {"human", "sxs_p5b"})
    ),
}


def _is_scene(first: Record) -> bool:
    """Returns True for a scene graph or a judge's answers to claims, but not for Visual Genome's files."""
    objects = first.get("objects")
    if not isinstance(objects, list):
        return False
    if not objects:
        return "claims" in first
    return isinstance(objects[0], dict) and "name" in objects[0] and "object_id" not in objects[0]


def _is_coco_captions(first: Record) -> bool:
    written = first.get("annotations")
    return isinstance(written, list) and bool(written) and isinstance(written[0], dict) and "caption" in written[0]


def _is_truth(first: Record) -> bool:
    """Returns True if a record (or a JSON file that consists of one object) looks like a ground truth."""
    if isinstance(first.get("objects"), (list, dict)) or {"image_id", "label"} <= first.keys():
        return True
    if {"truth", "hallu"} <= first.keys():  # AMBER's annotations
        return True
    try:
        image = image_key(first)
    except ValueError:  # keys that name different images
        return False
    cells = [value for key, value in first.items() if key != image]
    if image is not None and cells and ("objects" in first or all(state_of(cell) is not None for cell in cells)):
        return True
    lists = [value for value in first.values() if isinstance(value, list)]
    if is_map_of_several(first):
        return False
    return len(lists) == len(first) > 0 and all(isinstance(label, str) for labels in lists for label in labels)
