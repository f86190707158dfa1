"""Functions that find the fields of records from other tools, such as ids, texts, labels, images and prompts, under all
common names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..base.errors import InputError
from ..base.ids import canonical_image_id, file_name_of
from .json_text import json_type

Record = Mapping[str, Any]


def required(row: Record, key: str) -> Any:
    """Returns the value of a required key of a record.

    Raises:
        ValueError: If the key is missing. The message lists the keys that were found.
    """
    if key not in row:
        raise ValueError(f"missing key {key!r} (found: {', '.join(row)})")
    return row[key]


def text_in(row: Record, key: str) -> str:
    """Returns the text under a required key of a record."""
    value = required(row, key)
    if not isinstance(value, str):
        raise ValueError(f"{key!r} must be a string, not {json_type(value)}")
    return value


def optional_text(value: object) -> str | None:
    """Returns a non-empty string unchanged, and None for any other value."""
    return value if isinstance(value, str) and value.strip() else None


def id_in(row: Record, key: str) -> str:
    """Returns an id as a string, exactly as it is written in the record. Whole numbers, including floats such as 5.0 in
    tables, are converted to decimal digits.
    """
    value = required(row, key)
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    shown = "an empty string" if isinstance(value, str) else json_type(value) if value is None else repr(value)
    raise ValueError(f"{key!r} must be a string or a whole number, not {shown}")


def label_of(value: object) -> str | None:
    """Returns ``yes`` or ``no`` for these words, regardless of capitalization and a final period, and None for any
    other value.
    """
    said = value.strip().rstrip(".").casefold() if isinstance(value, str) else None
    return said if said in ("yes", "no") else None


def image_of(value: object) -> str | None:
    """Returns an image name or id as a string. Returns None for values that are neither names nor ids, such as a cell
    with base64 data. If the value is an object, its ``path``, ``file_name`` or ``url`` is the name.
    """
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("path", "file_name", "url") if isinstance(value.get(key), str)), None)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str) or not value.strip() or len(value) > 1024:
        return None
    # a table can represent a list of one image as text
    listed = re.fullmatch(r"\s*\[\s*(['\"])([^'\"]+)\1\s*\]\s*", value)
    return listed.group(2) if listed else value


MEDIA = {"bytes", "path"}  # of an image, a sound or a video


def plain_value(value: Any) -> Any:
    """Returns a value of a table as JSON can represent it. Media are replaced with their paths, and other binary data
    with None.
    """
    if isinstance(value, dict):
        return value["path"] if value.keys() == MEDIA else {key: plain_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(plain_value, value))
    if isinstance(value, bytes):
        return None
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


IMAGE_KEYS = ("image_id", "image", "image_file", "image_path", "img_path", "image_source", "file_name", "filename")
"""Keys of the image of an answer or of a record for a judge."""

_STATES = {
    **dict.fromkeys(("1", "1.0", "true", "yes"), 1),
    **dict.fromkeys(("0", "0.0", "false", "no"), 0),
    **dict.fromkeys(("-1", "-1.0", "unknown"), -1),
}


def state_of(value: object) -> int | None:
    """Returns the state in a cell of a ground truth (1, 0, or -1 for unknown), or None if the value is no state."""
    return _STATES.get(str(value).strip().casefold())


_IMAGE_RANKS = (
    ("imageid", "imgid", "cocoid"),
    (
        "image", "img", "imagefile", "imagepath", "imgpath", "imagesource", "imagename", "imgname", "filename",
        "filepath", "file", "path",
    ),
    ("imageurl", "imgurl", "url"),
    ("id", "questionid", "sampleid", "key", "uid", "index"),
)  # fmt: skip
"""Names of the key of an image in captions and ground truth, in the spelling that :func:`plain_key` returns. A name in
an earlier row takes precedence.
"""

RECORD_KEYS = frozenset(_IMAGE_RANKS[-1])
"""Names of the key of a record, which identifies the image if no other key does."""

_TEXT_KEYS = (
    "caption", "captions", "response", "description", "text", "sentence", "answer", "output", "outputs", "prediction",
    "pred", "result", "candidate", "generation", "generated", "generatedcaption", "generatedtext", "modeloutput",
    "modelresponse", "modelanswer", "completion", "predcaption", "predictedcaption", "content",
)  # fmt: skip


@lru_cache(maxsize=1024)
def plain_key(key: str) -> str:
    """Returns a key in lower case and without underscores, hyphens and spaces, because tools spell the same key in
    several ways (``image_id``, ``imageID``, ``Image ID``).
    """
    return re.sub(r"[-_ ]", "", key).casefold()


def names_image(key: str) -> bool:
    """Returns True if a key is one of the known names of an image's key."""
    return any(plain_key(key) in names for names in _IMAGE_RANKS)


def keys_named(record: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Returns the keys of a record that are spellings of one of the names, in the order of the names.

    Args:
        record: Record or its keys.
        names: Names in the spelling that :func:`plain_key` returns.
    """
    return _keys_named(tuple(record), tuple(names))


@lru_cache(maxsize=1024)  # the records of a file have the same keys
def _keys_named(keys: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    found = [key for key in keys if isinstance(key, str) and plain_key(key) in names]
    return tuple(sorted(found, key=lambda key: names.index(plain_key(key))))


def image_key(record: Record) -> str | None:
    """Returns the key of a record's image, or None if no known key contains an id or name of an image.

    An image id takes precedence over a file name, a file name over a URL, and a URL over the id of the record.

    Raises:
        ValueError: If keys of the same rank name different images.
    """
    for names in _IMAGE_RANKS:
        images = {key: image for key in keys_named(record, names) if (image := image_of(record[key])) is not None}
        if len(images) > 1 and len({file_name_of(canonical_image_id(image)) for image in images.values()}) > 1:
            raise ValueError(_several("image", images))
        if images:
            return next(iter(images))
    return None


def caption_key(record: Record) -> str | None:
    """Returns the key of a record's caption, or None if no known key contains a text.

    Raises:
        ValueError: If several known keys contain different texts.
    """
    texts = {key: text for key in keys_named(record, _TEXT_KEYS) if (text := only_text(record[key])) is not None}
    if len(set(texts.values())) > 1:
        raise ValueError(_several("caption", texts))
    return next(iter(texts), None)


def only_text(value: object) -> str | None:
    """Returns a text, or the text in a list that contains nothing else, such as ``[{"text": "A dog."}]``. Returns None
    for any other value.
    """
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
        if isinstance(value, Mapping):
            value = value.get("text", value.get("generated_text"))
    return value if isinstance(value, str) else None


def _several(what: str, keys: Iterable[str]) -> str:
    named = " and ".join(map(repr, keys))
    return f"the keys {named} name different {what}s; choose one with --{what}-key KEY"


def find_image(*records: Record) -> str | None:
    """Returns the first image id or image name under one of the usual keys, or None if there is none."""
    for record in records:
        for key in IMAGE_KEYS:
            if key in record and (image := image_of(record[key])) is not None:
                return image
    return None


def image_id_in(*records: Record, fallback: str | None = None) -> str:
    """Returns the canonical image id of a record. Raises the same errors as :func:`image_name_in`."""
    return canonical_image_id(image_name_in(*records, fallback=fallback))


def image_name_in(*records: Record, fallback: str | None = None) -> str:
    """Returns the image id or image name of a record as it is written.

    Raises:
        ValueError: If the record contains no image id.
    """
    image = find_image(*records) or fallback
    if image is None:
        raise ValueError(f"no image id (none of {', '.join(IMAGE_KEYS)}; found: {', '.join(records[0])})")
    return image


def last_user_turn(prompt: object) -> str | None:
    """Returns the user's last question in a chat prompt (text or messages), without roles and special tokens."""
    if isinstance(prompt, list):
        asked = [turn.get("content") for turn in prompt if isinstance(turn, dict) and turn.get("role") == "user"]
        prompt = message_text(asked[-1]) if asked else None
    if not isinstance(prompt, str):
        return None
    if "user\n" in prompt:
        prompt = prompt.rpartition("user\n")[2]
    prompt = re.split(r"<\|im_end\|>|<\|eot_id\|>|\n?\bassistant\s*\Z", prompt)[0]
    return optional_text(re.sub(r"<\|[a-z_]+\|>", "", prompt).strip())


def message_text(content: object) -> str:
    """Returns the text of a chat message, whose content is a string or a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def mixed_models(path: str, line: int | None, models: Iterable[str | None], remedy: str | None = None) -> InputError:
    """Returns the error for a file that contains the output of several models.

    Args:
        path: Path of the file.
        line: Line of the first record of the second model.
        models: Model of each record in order, or None for a record without a model.
        remedy: Advice that is shown to the user. By default, the user is advised to choose a model with the option
            ``--model``.
    """
    named = [repr(model) if model else "no model" for model in dict.fromkeys(models)]
    remedy = remedy or "select one with --model NAME"
    return InputError(f"several models in one file ({', '.join(named)}); {remedy}", path=path, line=line)


def split_by_import(path: str) -> str:
    """Returns the advice for the error of :func:`mixed_models` if the command has no ``--model`` option."""
    return f"extract one with: scapo-eval import {path} --model NAME -o one_model.jsonl"
