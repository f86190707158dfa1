"""Scenes from Visual Genome's files, made up in the form of versions 1.0, 1.2 and 1.4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import ClaimExtractor, ClaimOracle, InputError, Scenes, Vocabulary
from scapo_eval.base.errors import InputErrors

VOCABULARY = Vocabulary.load("open400")
BOX = {"x": 10, "y": 20, "w": 30, "h": 40}
MAN = {"object_id": 1, **BOX, "names": ["man"], "synsets": ["man.n.01"]}
BUS = {"object_id": 2, "x": 60, "y": 0, "w": 40, "h": 90, "names": ["bus"], "synsets": ["bus.n.01"]}
ATTRIBUTES: list[dict[str, Any]] = [
    {"image_id": 7, "attributes": [{**MAN, "attributes": ["standing", " Tall"]}, {**BUS, "attributes": ["red"]}, MAN]},
    {"image_id": 8, "attributes": []},
]
OBJECTS: list[dict[str, Any]] = [
    {
        "image_id": 7,
        "objects": [{**MAN, "merged_object_ids": [5]}, {**BUS, "merged_object_ids": []}],
        "image_url": "https://cs.stanford.edu/people/rak248/VG_100K/7.jpg",
    },
    {"image_id": 8, "objects": []},
]
RELATIONSHIPS: list[dict[str, Any]] = [
    {
        "image_id": 7,
        "relationships": [
            {
                "relationship_id": 15927,
                "predicate": "NEAR",
                "synsets": [],
                "subject": {**BOX, "object_id": 5, "name": "man", "synsets": ["man.n.01"], "merged_object_ids": []},
                "object": {"object_id": 2, "x": 60, "y": 0, "w": 40, "h": 90, "name": "bus", "synsets": []},
            },
            {
                "relationship_id": 15928,
                "predicate": "wearing",
                "synsets": ["wear.v.01"],
                "subject": {**BOX, "object_id": 1, "names": ["man"], "synsets": []},
                "object": {**BOX, "object_id": 9, "names": ["hat"], "synsets": []},
            },
        ],
    },
    {"image_id": 8, "relationships": []},
]
FIRST_VERSION = [
    {"id": 7, "relationships": [
        {"id": 1, "predicate": "wearing", "subject": {**BOX, "id": 1, "name": "man"},
         "object": {**BOX, "id": 9, "name": "hat"}},
        {"id": 2, "predicate": "near", "subject": {**BOX, "id": 1, "name": "man"},
         "object": {"id": 2, "x": 60, "y": 0, "w": 40, "h": 90, "name": "bus"}},
    ]},
    {"id": 8, "relationships": []},
]  # fmt: skip
GRAPHS = [
    {
        "image_id": 7,
        "objects": [{**MAN, "attributes": ["standing", "tall"]}, {**BUS, "attributes": ["red"]},
                    {**BOX, "object_id": 9, "names": ["hat"]}],
        "relationships": [{"relationship_id": 3, "predicate": "near", "subject_id": 1, "object_id": 2, "synsets": []},
                          {"relationship_id": 4, "predicate": "wearing", "subject_id": 1, "object_id": 9},
                          {"relationship_id": 5, "predicate": "on", "subject_id": 1, "object_id": 77}],
    },
    {"image_id": 8, "objects": [], "relationships": []},
]  # fmt: skip
SIZES = [{"image_id": 7, "width": 100, "height": 100, "coco_id": None, "flickr_id": None, "url": ""}]
TEXT = "A tall man wearing a hat is standing near a red bus. A blue bus is to the right of the man. A dog."


def written(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1))
    return folder


def true_claims(scenes: Scenes) -> set[str]:
    """What a text claims truly, in words."""
    oracle = ClaimOracle(VOCABULARY, scenes=(scenes,))
    claims = ClaimExtractor(VOCABULARY).find(TEXT)
    states = oracle.states([7], [claims])[0]
    found = {(s, f"{c.label} {c.value} {c.other}".strip()) for c, s in zip(claims, states, strict=True)}
    assert not any(state == 0 for state, _ in found)  # nothing is complete, so nothing is refuted
    return {said for state, said in found if state == 1}


PRESENT, SAID = {"person", "bus"}, {"person tall", "person standing", "bus red"}
HAT, NEAR = {"hat"}, {"person next to bus"}


def test_a_folder_of_files_is_one_picture_each(tmp_path: Path) -> None:
    files = {"objects": OBJECTS, "attributes": ATTRIBUTES, "relationships": RELATIONSHIPS, "image_data": SIZES}
    scenes = Scenes.load(written(tmp_path, **files), VOCABULARY)
    assert list(scenes.scenes) == ["7", "8"]
    picture = scenes.scenes["7"]
    assert [(thing.label, thing.box) for thing in picture.things] == [
        ("person", (10, 20, 40, 60)), ("bus", (60, 0, 100, 90)), ("hat", (10, 20, 40, 60))
    ]  # fmt: skip
    assert picture.relations == ((0, "near", 1), (0, "wearing", 2))  # a merged number is the thing that it became
    assert picture.complete == frozenset()
    right = {"bus right of person"}
    assert true_claims(scenes) == PRESENT | SAID | HAT | NEAR | {"person wearing hat"} | right


@pytest.mark.parametrize(
    ("name", "content", "true"),
    [
        ("objects", OBJECTS, PRESENT),
        ("attributes", ATTRIBUTES, PRESENT | SAID),
        ("relationships", RELATIONSHIPS, PRESENT | HAT | NEAR | {"person wearing hat"}),
        ("first", FIRST_VERSION, PRESENT | HAT | NEAR | {"person wearing hat"}),
        ("scene_graphs", GRAPHS, PRESENT | SAID | HAT | NEAR | {"person wearing hat"}),
    ],
)
def test_each_file_by_itself(name: str, content: Any, true: set[str], tmp_path: Path) -> None:
    path = written(tmp_path, **{name: content}) / f"{name}.json"
    assert true_claims(Scenes.load(path, VOCABULARY)) == true
    given: dict[str, Any] = {"scenes": str(path), "vocabulary": "open400", "kinds": "presence", "resamples": 0}
    run = scapo_eval.claimscore([{"image_id": 7, "caption": TEXT}], **given)
    assert (run.values["hal_rate"], run.table.counts()["unknown"]) == (0, 1 if true >= HAT else 2)


def test_a_thing_with_two_names_has_both_labels(tmp_path: Path) -> None:
    both = {**MAN, "names": ["man", "hat", "man", "gizmo"], "attributes": ["red"]}
    path = written(tmp_path, attributes=[{"image_id": 7, "attributes": [both]}]) / "attributes.json"
    scenes = Scenes.load(path, VOCABULARY)
    assert [(thing.label, thing.attributes) for thing in scenes.scenes["7"].things] == [
        ("person", {"red"}), ("hat", {"red"})
    ]  # fmt: skip
    assert "objects not used, because their names are not in the vocabulary: 1 ('gizmo')" in scenes.notes[0]


@pytest.mark.parametrize(
    ("name", "content", "reason", "line"),
    [
        ("objects", [OBJECTS[0], OBJECTS[0]], "image 7 appears twice", 2),
        ("objects", [{"objects": [MAN]}], "missing key 'image_id'", 1),
        ("attributes", [ATTRIBUTES[0], {"image_id": 8, "attributes": [{**MAN, "names": "man"}]}], "Expected `array", 2),
        ("relationships", [{"image_id": 7, "relationships": [{"subject": MAN, "object": BUS}]}], "`predicate`", 1),
        ("attributes", [{"image_id": 7, "attributes": [{**MAN, "attributes": [3]}]}], "Expected `str`", 1),
    ],
)
def test_faults_are_named_by_their_picture(name: str, content: Any, reason: str, line: int, tmp_path: Path) -> None:
    written(tmp_path, **{name: content})
    for path in (tmp_path / f"{name}.json", tmp_path):
        with pytest.raises(InputErrors) as caught:
            Scenes.load(path, VOCABULARY)
        (fault,) = caught.value.errors
        assert reason in fault.reason
        assert (Path(str(fault.path)).name, fault.line) == (f"{name}.json", line)


def test_boxes_outside_and_folders_without_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds none of Visual Genome's objects.json"):
        Scenes.load(tmp_path, VOCABULARY)
    (tmp_path / "objects.json").write_text('[{"image_id": 7, "objects": [{"names": ["man"]')
    with pytest.raises(InputError, match="not a valid Visual Genome file"):
        Scenes.load(tmp_path, VOCABULARY)
    written(tmp_path, objects=OBJECTS, image_data=[{"image_id": 7, "width": 50, "height": 100}])
    scenes = Scenes.load(tmp_path, VOCABULARY)
    assert (
        "boxes not used, because they exceed their image: 1 (first: [60.0, 0.0, 40.0, 90.0] in image 7)"
        in scenes.notes[0]
    )


def test_a_plain_graph_in_an_array_stays_one(tmp_path: Path) -> None:
    relations = [{"subject": 0, "predicate": "on", "object": 1}]
    graph = {"image_id": 7, "objects": [{"name": "dog"}, {"name": "couch"}], "relations": relations}
    (tmp_path / "graph.json").write_text(json.dumps([graph]))
    scenes = Scenes.load(tmp_path / "graph.json", VOCABULARY)
    assert scenes.scenes["7"].relations == ((0, "on", 1),)
