"""Advice in error messages about files that contain a ground truth in another form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..files.fields import image_key, state_of
from ..readers.advice import is_image_file, is_list_of_labels, jq_command

_TOOLS: Mapping[str, frozenset[str]] = {
    "Label Studio": frozenset({"data", "annotations"}),
    "Labelme": frozenset({"shapes", "imagePath"}),
    "VGG Image Annotator": frozenset({"_via_img_metadata"}),
}
_OBJECTS = ("objects", "labels", "classes", "categories")
_INVERTED = (
    "[to_entries[] | .key as $name | .value[] | {image: ., label: $name}] | group_by(.image) | "
    "map({(.[0].image): map(.label)}) | add"
)
XML = "XML, such as CVAT and Pascal VOC write it, is not supported; export the annotations as COCO instances (JSON)"


def advice_on_map(document: Mapping[str, Any], source: str) -> str:
    """Returns the command that converts a JSON object to a map from image ids to labels, or an empty string."""
    values = list(document.values())
    program = ""
    if all(isinstance(value, str) and is_list_of_labels(value) for value in values):
        program = 'map_values(split(", *"; null))'
    elif all(isinstance(value, dict) and isinstance(value.get("objects"), list) for value in values):
        program = "map_values(.objects)"
    elif all(isinstance(value, dict) and value and None not in map(state_or_count, value.values()) for value in values):
        program = "map_values([to_entries[] | select(.value == true or (.value | numbers) > 0).key])"
    return _converted(program, source) or advice_on_tool(document)


def advice_on_labels(document: Mapping[str, Any], source: str) -> str:
    """Returns the advice for a map from labels to image names, or an empty string."""
    names = [name for value in document.values() if isinstance(value, list) for name in value[:1]]
    inverted = names and all(isinstance(name, str) and is_image_file(name) for name in names)
    if not inverted or any(is_image_file(key) for key in document):
        return ""
    return f"not a valid truth file: it maps labels to images{_converted(_INVERTED, source)}"


def advice_on_record(record: Mapping[str, Any], source: str) -> str:
    """Returns the command that converts records with a list of labels under another key, or an empty string."""
    try:
        image = image_key(record)
    except ValueError:
        image = None
    lists = [key for key, value in record.items() if isinstance(value, list) and value and isinstance(value[0], str)]
    texts = [key for key in _OBJECTS if isinstance(value := record.get(key), str) and is_list_of_labels(value)]
    if image is not None and len(lists or texts) == 1:
        objects = f".[{json.dumps((lists or texts)[0])}]"
        objects = objects if lists else f'({objects} | split(", *"; null))'
        program = f"(arrays[], objects) | {{image_id: .[{json.dumps(image)}], objects: {objects}}}"
        return _converted(program, source, "truth.jsonl")
    return advice_on_tool(record)


def advice_on_tool(record: Mapping[str, Any]) -> str:
    """Returns the advice for a record of an annotation tool, or an empty string."""
    tool = next((name for name, keys in _TOOLS.items() if keys <= record.keys()), None)
    return f"; it is an export of {tool}: export the annotations as COCO instances (JSON)" if tool else ""


def state_or_count(value: object) -> int | None:
    """Returns the state that a value means, of which a count is one, or None if it is no state."""
    if isinstance(value, int) and value > 0:
        return 1
    return state_of(value)


def _converted(program: str, source: str, output: str = "truth.json") -> str:
    return f"; convert it: {jq_command(program, source, output)}" if program else ""
