"""Faulty scenes: named with file, line and reason, or counted; nothing is guessed, and nothing ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.cli.main import main
from scapo_eval.files.records import Records
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.truths.references import read_weights
from scapo_eval.truths.scenes import Scenes

WORDS = Vocabulary.load("coco80")
GRAPH = {"image_id": 7, "width": 100, "height": 100, "objects": [{"name": "dog"}, {"name": "cat"}]}
ON = {"subject": 0, "predicate": "on", "object": 1}
RED = {"kind": "attribute", "label": "dog", "value": "red", "answer": "yes"}


def with_dog(**fields: Any) -> dict[str, Any]:
    return {"objects": [{"name": "dog", **fields}]}


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"objects": {"dog": 1}}, "not a scene graph: 'objects' must be a list"),
    ({"objects": ["dog"]}, "not a valid record"),
    ({"objects": [{"name": 5}]}, "the name of a thing must be a string, found 5"),
    (with_dog(attributes="red"), "'attributes' must be a list of words, found 'red'"),
    (with_dog(attributes=[None]), "'attributes' must be a list of words"),
    (with_dog(box="0011"), "a box must be four numbers"),
    (with_dog(box=5), "a box must be four numbers"),
    (with_dog(box=[True, 0, 1, 1]), "a box must be four numbers"),
    (with_dog(box=[1, 2]), "a box must be four numbers"),
    (with_dog(crowd="false"), "'crowd' must be true or false, found 'false'"),
    (with_dog(text=["STOP"]), "'text' must be a string"),
    ({"width": "100"}, "'width' must be a number >= 0, found '100'"),
    ({"height": -5}, "'height' must be a number >= 0, found -5"),
    ({"relations": {"on": 1}}, "'relations' must be a list"),
    ({"relations": ["on"]}, "not a valid record"),
    ({"relations": [["dog", "on", "cat"]]}, "not a valid record: a relation must be an object with 'subject'"),
    ({"relations": [{**ON, "subject": -1}]}, "the subject of a relation does not exist"),
    ({"objects": [{"box": [0, 0, 1, 1]}]}, "an object has no 'name'"),
    (with_dog(bbox=[0, 0, 1, 1]), "unknown key 'bbox'; did you mean 'box'?"),
    (with_dog(attribute=["red"]), "unknown key 'attribute'; did you mean 'attributes'?"),
    (with_dog(colour="red"), "unknown key 'colour'; did you mean 'attributes'?"),
    ({"Complete": ["dog"]}, "unknown key 'Complete'; did you mean 'complete'?"),
    ({"relations": [{**ON, "object": 9}]}, "the object of a relation does not exist"),
    ({"relations": [{**ON, "object": True}]}, "the object of a relation does not exist"),
    ({"relations": [{**ON, "predicate": None}]}, "'predicate' of a relation must be a string"),
    ({"counts": {"dog": -1}}, "a count must be a non-negative whole number, found -1 for 'dog'"),
    ({"counts": {"dog": "2"}}, "a count must be a non-negative whole number"),
    ({"counts": {"dog": 0}}, "the count of 'dog' is 0, but 1 objects have this name"),
    ({"counts": ["dog"]}, "not a valid record"),
    ({"complete": "dog"}, "'complete' must be a list, found 'dog'"),
    ({"complete": [None]}, "the name of a thing must be a string"),
    ({"claims": [{**RED, "kind": "mood"}]}, "'kind' of a claim must be"),
    ({"claims": [{**RED, "answer": "maybe"}]}, "'answer' to a claim must be yes, no, absent, unsure or null"),
    ({"claims": [{**RED, "answer": ["yes"]}]}, "'answer' to a claim must be"),
    ({"claims": [{**RED, "answer": True}]}, "'answer' to a claim must be"),
    ({"claims": [{**RED, "label": None}]}, "a claim has no 'label'"),
    ({"claims": [{**RED, "value": ["red"]}]}, "'value' must be a string"),
    ({"claims": [{**RED, "kind": "count", "value": "-1"}]}, "not a count: '-1'"),
    ({"claims": [RED, {**RED, "answer": "no"}]}, "two different answers to the claim 'attribute dog red'"),
]


@pytest.mark.parametrize(("changes", "reason"), FAULTS, ids=[reason for _, reason in FAULTS])
def test_a_faulty_graph_is_named_by_its_line(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "scenes.jsonl"
    path.write_text(f"{json.dumps({**GRAPH, 'image_id': 6})}\n{json.dumps({**GRAPH, **changes})}\n")
    with pytest.raises((InputError, InputErrors)) as error:
        Scenes.load(path, WORDS)
    assert f"{path}:2: {reason}" in str(error.value)


def test_all_faults_are_named_and_the_command_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, captions = tmp_path / "scenes.jsonl", tmp_path / "captions.jsonl"
    rows = [{**GRAPH, "image_id": k, **changes} for k, (changes, _) in enumerate(FAULTS[3:8])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    captions.write_text(json.dumps({"image_id": 7, "caption": "Two dogs."}) + "\n")
    monkeypatch.setattr("sys.argv", ["scapo-eval", "claims", str(captions), "--scenes", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert all(f"scenes.jsonl:{line}: " in shown for line in range(1, 6))
    assert "Traceback" not in shown


def test_unknown_names_and_boxes_outside_are_counted() -> None:
    graph = {**with_dog(box=[90, 90, 50, 50]), "image_id": 7, "width": 100, "height": 100, "complete": ["gizmo"]}
    scenes = Scenes.load(Records("mine", [graph]), WORDS)
    assert scenes.scenes["7"].things[0].box is None
    assert scenes.notes == (
        "mine: objects not used, because their names are not in the vocabulary: 1 ('gizmo')",
        "mine: boxes not used, because they exceed their image: 1 (first: [90, 90, 50, 50] in image 7)",
    )


COCO: dict[str, Any] = {
    "images": [{"id": 1, "width": 100, "height": 100}],
    "categories": [{"id": 1, "name": "dog"}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "iscrowd": 0}],
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"categories": [{"id": 1, "name": " "}]}, "the name of a thing must be a string"),
        ({"categories": [{"id": 1, "name": "dog"}, {"id": 1, "name": "cat"}]}, "1 categories have an id"),
        ({"images": [{"id": 1}, {"id": 1}]}, "1 images have an id that occurs before"),
        ({"images": [{"id": -1}], "annotations": []}, "must not be negative, got -1"),
        ({"images": [{"id": 1, "width": -100}]}, "the size of image 1 is negative"),
        ({"images": [{"id": 1, "width": "x"}]}, "not a valid COCO instances file"),
        ({"annotations": [{"image_id": 2, "category_id": 1}]}, "an annotation refers to image 2"),
        ({"annotations": [{"image_id": 1, "category_id": 9}]}, "or category 9"),
        ({"images": [{"id": 1, "neg_category_ids": [9]}]}, "image 1 refers to category 9, which the file does not"),
        ({"images": [{"id": 1, "not_exhaustive_category_ids": [9]}]}, "image 1 refers to category 9"),
        ({"annotations": [{"image_id": 1, "category_id": 1, "bbox": ["0", 0, 5, 5]}]}, "Expected `float`, got `str`"),
        ({"annotations": [{"image_id": 1, "category_id": 1, "iscrowd": 7}]}, "'iscrowd' must be 0 or 1, found 7"),
    ],
)
def test_faulty_coco_instances(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({**COCO, **changes}))
    with pytest.raises(InputError, match=str(path)) as error:
        Scenes.load(path, WORDS)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"images": [{"id": -1, "width": 5, "height": 5}], "annotations": []}, "image id must not be negative, got -1"),
        ({"images": [{"id": 1, "width": 5, "height": 5}] * 2}, "1 images have an id that occurs before"),
        ({"categories": [{"id": 1, "name": "dog"}, {"id": 1, "name": "cat"}]}, "1 categories have an id"),
        ({"annotations": [{"image_id": 1, "category_id": 1, "area": -1}]}, "not a valid annotation of image 1"),
    ],
)
def test_faulty_areas(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    annotations = [{"image_id": 1, "category_id": 1, "area": 25}]
    path.write_text(json.dumps({**COCO, "annotations": annotations, **changes}))
    with pytest.raises(InputError, match=str(path)) as error:
        read_weights(path)
    assert reason in str(error.value)


@pytest.mark.parametrize("box", [[90, 90, 50, 50], [0, 0, -5, 5]])
def test_boxes_outside_in_coco_are_counted(box: list[int], tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({**COCO, "annotations": [{"image_id": 1, "category_id": 1, "bbox": box}]}))
    scenes = Scenes.load(path, WORDS)
    assert scenes.scenes["1"].things[0].box is None
    assert "boxes not used, because they exceed their image: 1" in scenes.notes[0]


def test_categories_of_coco_that_the_vocabulary_lacks_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({**COCO, "categories": [{"id": 1, "name": "Gizmo"}, {"id": 2, "name": "unused"}]}))
    assert (
        "objects not used, because their names are not in the vocabulary: 1 ('gizmo')"
        in Scenes.load(path, WORDS).notes[0]
    )


@pytest.mark.parametrize("scenes", [GRAPH, 7, None])
def test_other_types_of_input_are_refused(scenes: Any) -> None:
    with pytest.raises(InputError, match="scenes must be a file or Records, got"):
        Scenes.load(scenes, WORDS)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats(allow_nan=False)
    | st.sampled_from(["dog", "red", "on", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*ON, *RED, "name", "box"]), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["objects", "relations", "counts", "complete", "claims", "width"]), VALUES))
def test_any_record_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        scenes = Scenes.load(Records("mine", [{**GRAPH, **changes}]), WORDS)
    except (InputError, InputErrors):
        return
    assert scenes.scenes["7"].width >= 0
