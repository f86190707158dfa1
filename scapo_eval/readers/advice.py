"""Advice in error messages about records and tables whose captions cannot be read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from itertools import islice

from ..base.ids import file_name_of
from ..files.fields import Record, keys_named, names_image

_OWN_KEYS = frozenset({"image_id", "caption"})
_TEXT_KEYS = frozenset({"caption", "response", "prediction", "answer", "text", "description"})
_TURN_KEYS = frozenset({"role", "from"})
_OUTER_KEYS = 3  # maximum number of keys beside a list of records with unknown keys
_LEVELS = 3  # of objects around a list of records
_SENTENCE = re.compile(r"\b(?:an?|the|is|are|of|in|on|with|and)\b", re.IGNORECASE)
_LONGEST_NAME = 40  # characters of a column name
_IMAGE_FILE = re.compile(r"\.(?:jpe?g|png|webp)(?:#\d)?$", re.IGNORECASE)  # Flickr's captions have a number
_PLAIN = re.compile(r"[\w\s,.'\u2019/&()-]+")
_LABEL_WORDS = 4
_READ = 100  # values of a record


def advice_on_keys(name: str, record: Record, keys: str = "image_id and caption") -> str:
    """Returns advice to name the keys of a record, or to take the values out of an inner object.

    The longest text is the caption, and the first other number or text without spaces is the image id. The advice is
    empty if there is no text.

    Args:
        name: Name of the source.
        record: First record, or a faulty one.
        keys: Keys that records in memory need.
    """
    if name.startswith("<"):  # records in memory
        return f"; rename the keys to {keys}"
    if program := records_of_columns(record):
        return f"; write records: {jq_command(program, name)}"
    if len(record) > 1 and all(isinstance(value, dict) and "caption" in value for value in record.values()):
        return f"; write records: {jq_command('to_entries[] | {image_id: .key} + .value', name)}"
    inside = next((key for key, value in record.items() if isinstance(value, dict) and _OWN_KEYS & value.keys()), "")
    if inside.isidentifier():
        return f"; take the keys out of '{inside}': {jq_command(f'. + .{inside}', name)}"
    texts = [key for key, value in record.items() if isinstance(value, str) and key != "image_id"]
    caption = "caption" if "caption" in record else max(texts, key=lambda key: len(str(record[key])), default=None)
    others = (key for key, value in record.items() if key != caption and _may_be_id(value))
    image = "image_id" if "image_id" in record else next(others, None)
    if caption is None:
        return ""
    if image is None:
        return f"; no key contains image ids: add the key image_id to each record (captions: '{caption}')"
    named = shlex.join(["scapo-eval", "score", name, "--image-key", image, "--caption-key", caption])
    return f"; name the keys: {named} --truth TRUTH"


def _may_be_id(value: object) -> bool:
    is_word = isinstance(value, str) and value != "" and (not re.search(r"\s", value) or is_image_file(value))
    return is_word or (isinstance(value, int) and not isinstance(value, bool))


def records_of_columns(record: Record) -> str | None:
    """Returns the jq program that writes records if a JSON object contains the columns of a table, otherwise None.
    pandas writes such objects unless it is asked for records.
    """
    names, rows = record.get("columns"), record.get("data")
    columns = [key for key, value in record.items() if isinstance(value, (list, dict)) and value]
    if isinstance(names, list) and isinstance(rows, list):  # orient="split"
        columns = list(map(str, names))
    found = [next(iter(keys_named(columns, keys)), None) for keys in (_IMAGES, _LISTED)]
    image, caption = found
    if image is None or caption is None:
        return None
    if isinstance(names, list):
        return f".data[] | {{image_id: .[{columns.index(image)}], caption: .[{columns.index(caption)}]}}"
    return (
        f"[[.[{json.dumps(image)}][]], [.[{json.dumps(caption)}][]]] | transpose[] | {{image_id: .[0], caption: .[1]}}"
    )


_IMAGES = ("imageid", "image", "imagepath", "filename", "file", "imgid", "img", "id")


def jq_command(program: str, name: str, output: str = "captions.jsonl") -> str:
    """Returns the command that converts a file with other records."""
    return f"jq -c {shlex.quote(program)} {shlex.quote(name)} > {output}"


def nested_records(name: str, record: Record) -> str | None:
    """Returns the reason and the remedy if a file is one object that contains the records in an inner list, or None.

    The keys beside the list may be unknown if the records of the list contain captions or answers.
    """
    own = _OWN_KEYS & record.keys() or isinstance(record.get("response"), dict)
    path = None if own else _path_of_records(record, _LEVELS)
    if path is None:
        return None
    place, first = path
    output = "captions.jsonl" if "caption" in first else "records.jsonl"
    return f"the records are inside '{'.'.join(place)}'; take them out: {jq_command(_program(place), name, output)}"


def _path_of_records(record: Record, levels: int) -> tuple[list[str], Record] | None:
    """Returns the keys that lead to the first list of records in an object, and the first record of this list."""
    for key, value in record.items():
        first = value[0] if isinstance(value, list) and value else None
        if not isinstance(first, dict) or _TURN_KEYS & first.keys():
            continue
        if len(record) <= _OUTER_KEYS or _TEXT_KEYS & first.keys():
            return [str(key)], first
    for key, value in record.items() if levels > 1 else ():
        if isinstance(value, dict) and (inner := _path_of_records(value, levels - 1)) is not None:
            return [str(key), *inner[0]], inner[1]
    return None


def _program(place: Sequence[str]) -> str:
    """Returns the program for jq that lists the records under the given keys."""
    parts = (f".{key}" if key.isascii() and key.isidentifier() else f"[{json.dumps(key)}]" for key in place)
    program = "".join(parts)
    return f"{program if program.startswith('.') else f'.{program}'}[]"


def without_header(columns: Sequence[str]) -> str | None:
    """Returns the reason if the first line of a table contains a caption and is therefore no header, or None."""
    if max(map(len, columns)) <= _LONGEST_NAME and not any(map(is_image_file, columns)):
        return None
    if columns[0].isdecimal() or file_name_of(columns[0]) != columns[0] or is_image_file(columns[0]):
        return "a table without a header line: add the line image_id,caption (with the separator of the table)"
    return "texts without image ids: write a table with the header image_id,caption, or JSON lines with these keys"


def several_captions(name: str, record: Record) -> str | None:
    """Returns the reason why a record or a map with lists of captions is refused, with the commands that accept them.

    The reason is None if there is no such list.
    """
    reason = "several captions for one image: write a record (image_id, caption) for each caption"
    key = next((key for key in keys_named(record, _LISTED) if _are_several(record[key])), None)
    if (key is None and not is_map_of_several(record)) or records_of_columns(record):
        return None
    if name.startswith("<"):  # records in memory
        return reason
    if key is None:
        references = shlex.join(["scapo-eval", "score", "CAPTIONS", "--references", name])
        program = "to_entries[] | {image_id: .key, caption: .value[]}"
        return f"{reason}: {jq_command(program, name)}; as references of the images: {references}"
    image = next((key for key in record if names_image(key)), "image_id")
    program = f"(arrays[], objects) | {{image_id: .[{json.dumps(image)}], caption: .[{json.dumps(key)}][]}}"
    return f"{reason}: {jq_command(program, name)}"


_LISTED = ("caption", "captions", "texts", "sentences", "descriptions", "responses", "outputs", "predictions", "text")


def _are_several(value: object) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(text, str) for text in value)


def is_list_of_labels(text: str) -> bool:
    """Returns True if a text is a list of labels that are separated by commas, and no sentence."""
    parts = [part.split() for part in text.split(",")]
    short = all(0 < len(part) <= _LABEL_WORDS for part in parts)
    return short and _PLAIN.fullmatch(text) is not None and not _SENTENCE.search(text)


def is_image_file(name: str) -> bool:
    """Returns True if a text is the name of an image file."""
    return _IMAGE_FILE.search(name) is not None


def is_map_of_several(record: Record) -> bool:
    """Returns True if a record maps image names to lists of captions. Only the beginning of a long record is read."""
    texts = [text for value in islice(record.values(), _READ) if isinstance(value, list) for text in value]
    words = [len(text.split()) for text in texts if isinstance(text, str)]
    return bool(texts) and len(words) == len(texts) and sum(words) > _LABEL_WORDS * len(words)
