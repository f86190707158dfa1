"""Which claims are true: scenes from COCO and from plain graphs, precedence, and faulty files."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scapo_eval import ClaimExtractor, InputError, PresenceOracle, Vocabulary
from scapo_eval.base.errors import InputErrors
from scapo_eval.claiming.cues import shipped_claim_cues
from scapo_eval.files.records import Records
from scapo_eval.truths.claim_oracle import ClaimOracle, fact_of, presence_in
from scapo_eval.truths.scenes import Scenes

VOCABULARY = Vocabulary.load("open400")
EXTRACTOR = ClaimExtractor(VOCABULARY)
GRAPH: dict[str, Any] = {
    "image_id": 7,
    "width": 100,
    "height": 100,
    "complete": ["dog", "couch", "cat", "car"],
    "counts": {"sheep": 12},
    "objects": [
        {"name": "dog", "attributes": ["brown", "asleep"], "box": [0, 40, 20, 20]},
        {"name": "dogs", "attributes": ["Grey"], "box": [10, 60, 20, 20]},
        {"name": "couch", "box": [0, 50, 40, 40]},
        {"name": "car", "box": [80, 0, 20, 20], "text": "Taxi"},
        {"name": "tree", "attributes": ["green"]},
    ],
    "relations": [{"subject": 0, "predicate": "atop", "object": 2}],
}


def graph(**changes: Any) -> Scenes:
    return Scenes.load(Records("graph", [GRAPH | changes]), VOCABULARY)


def verdicts(text: str, oracle: ClaimOracle, kind: str) -> list[int]:
    claims = [claim for claim in EXTRACTOR.find(text) if claim.kind == kind]
    (found,) = oracle.states([7], [claims])
    return list(found)


def test_the_attributes_of_an_object_are_read_once() -> None:
    oracle = ClaimOracle(VOCABULARY, scenes=(graph(),))
    assert verdicts("A red bear, a red bus, a red truck, a brown dog, a gray dog.", oracle, "attribute") == [
        -1,
        -1,
        -1,
        1,
        1,
    ]
    (known,) = oracle._scenes_of("7")
    assert {label: len(of_each) for label, of_each in known.attributes.items()} == {
        "dog": 2, "couch": 1, "car": 1, "tree": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind", "state"),
    [
        ("There is a dog.", "presence", 1),
        ("There is a cat.", "presence", 0),
        ("There is a bear.", "presence", -1),
        ("There are two dogs.", "count", 1),
        ("There are three dogs.", "count", 0),
        ("There is one dog.", "count", 0),
        ("There is one brown dog.", "count", -1),  # of the brown ones
        ("Several dogs.", "count", 0),
        ("A few dogs.", "count", 1),
        ("About ten sheep.", "count", 0),
        ("Dozens of sheep.", "count", 1),
        ("Two trees.", "count", -1),  # there may be more
        ("A brown dog.", "attribute", 1),
        ("A gray dog.", "attribute", 1),
        ("A red dog.", "attribute", 0),
        ("A red tree.", "attribute", -1),
        ("A large dog.", "attribute", -1),
        ("The dog is sleeping.", "attribute", 1),
        ("A red cat.", "attribute", -1),  # there is none
        ("A dog on a couch.", "relation", 1),
        ("A car on a couch.", "relation", 0),
        ("A dog to the left of a car.", "relation", 1),
        ("A car to the left of a dog.", "relation", 0),
        ("A car above a couch.", "relation", 1),
        ("A dog above a couch.", "relation", 1),
        ("A dog to the left of a couch.", "relation", -1),
        ("A dog near a car.", "relation", -1),
        ("A car on the right.", "relation", 1),
        ("A car on the left.", "relation", 0),
        ("A car in the upper right corner.", "relation", 1),
        ("A car in the upper left corner.", "relation", 0),
        ("A car in the bottom right.", "relation", 0),
        ("A couch on the upper left side of the image.", "relation", 0),
        ("A car in the background.", "relation", -1),
        ('A car that reads "TAXI".', "text", 1),
        ('A car that reads "BUS".', "text", -1),
    ],
)
def test_a_scene_graph(text: str, kind: str, state: int) -> None:
    assert verdicts(text, ClaimOracle(VOCABULARY, scenes=(graph(),)), kind) == [state]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("There is a dog.", "presence", "the ground truth has dog"),
        ("There is a cat.", "presence", "the ground truth has no cat"),
        ("There is a couch.", "presence", "couch: 1, all annotated"),
        ("There is a bear.", "presence", "no bear annotated"),
        ("Three dogs.", "count", "dog: 2, all annotated"),
        ("Two sheep.", "count", "sheep: 12, all annotated"),
        ("Two trees.", "count", "tree: 1 annotated, maybe more"),
        ("A red dog.", "attribute", "dog: 2, all annotated; dog: asleep, brown; dog: grey"),
        ("A dog on a couch.", "relation",
         "dog: 2, all annotated; couch: 1, all annotated; dog atop couch; boxes touch"),
        ("A car on a couch.", "relation", "car: 1, all annotated; couch: 1, all annotated; no boxes come near"),
        ("A car to the left of a couch.", "relation",
         "car: 1, all annotated; couch: 1, all annotated; left of by -70 % of the picture, by the boxes"),
        ("A car on the left.", "relation", "car: 1, all annotated; center from the left | from the top: 90 % | 10 %"),
        ('A car that reads "BUS".', "text", "“Taxi”"),
    ],
)  # fmt: skip
def test_evidence_says_what_the_source_has(text: str, kind: str, said: str) -> None:
    oracle = ClaimOracle(VOCABULARY, PresenceOracle.from_objects({7: ["dog"]}, labels=["dog", "cat"]), (graph(),))
    claim = next(claim for claim in EXTRACTOR.find(text) if claim.kind == kind)
    assert oracle.evidence(7, claim) == said
    assert oracle.evidence(8, claim) == ""


def test_evidence_says_what_a_judge_answered() -> None:
    answer = {"kind": "attribute", "label": "tree", "value": "red", "other": "", "answer": "no"}
    oracle = ClaimOracle(VOCABULARY, scenes=(graph(claims=[answer]),))
    (claim,) = (claim for claim in EXTRACTOR.find("A red tree.") if claim.kind == "attribute")
    assert oracle.evidence(7, claim) == "tree: 1 annotated, maybe more; tree: green; judged: no"


def test_scenes_are_read_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(json.dumps(GRAPH) + "\n",))
    writer.start()
    assert len(Scenes.load(path, VOCABULARY).scenes["7"].things) == 5
    writer.join()


REFERENCES = [
    {"image_id": 7, "references": ["Two dogs on a red couch.", "A large cat, no bears.", "Possibly a black dog."]},
    {"image_id": 8, "references": ["Two dogs."]},
]


@pytest.mark.parametrize("form", ["records", "lines", "coco"])
def test_references_confirm_claims_and_refute_none(form: str, tmp_path: Path) -> None:
    path = tmp_path / "references"
    rows = [
        {"image_id": row["image_id"], "id": k, "caption": text}
        for k, row in enumerate(REFERENCES)
        for text in row["references"]
    ]
    text = json.dumps({"annotations": rows}) if form == "coco" else "\n".join(map(json.dumps, REFERENCES))
    path.write_text(text)
    scenes = Scenes.load(Records("references", REFERENCES) if form == "records" else path, VOCABULARY)
    oracle = pickle.loads(pickle.dumps(ClaimOracle(VOCABULARY, scenes=(scenes,))))
    assert [
        verdicts(text, oracle, kind)
        for text, kind in (
            ("A dog, a cat, a bear.", "presence"),
            ("A red couch. A blue couch.", "attribute"),
            ("A large cat. A black dog.", "attribute"),
            ("A dog on a couch. A cat on a couch.", "relation"),
            ("Two dogs.", "count"),  # there may be more than those on the couch
        )
    ] == [[1, 1, -1], [1, -1], [1, -1], [1, -1], [-1]]
    (dogs,) = (claim for claim in EXTRACTOR.find("Two dogs.") if claim.kind == "count")
    assert (oracle.state(8, dogs), oracle.evidence(8, dogs)) == (1, "a reference")
    assert oracle.facts(7, "attribute") == frozenset()
    assert scenes.notes[0].endswith("reference captions make claims true, but none false")
    annotated = ClaimOracle(VOCABULARY, scenes=(graph(), scenes))
    assert verdicts("Three dogs. Two dogs.", annotated, "count") == [0, 1]


def coco(**box: Any) -> dict[str, Any]:
    boxes = [[0, 0, 20, 20], [70, 0, 20, 20]]
    return {
        "images": [{"id": 7, "width": 100, "height": 100}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
        "annotations": [{"image_id": 7, "category_id": 1, "bbox": bbox} | box for bbox in boxes],
    }


@pytest.mark.parametrize(
    ("text", "kind", "alone", "crowd"),
    [
        ("Two dogs.", "count", 1, -1),
        ("Three dogs.", "count", 0, -1),
        ("One dog.", "count", 0, 0),
        ("A few dogs.", "count", 1, 1),
        ("Two cats.", "count", 0, 0),
        ("A dog on the left.", "relation", 1, 1),
        ("A red dog.", "attribute", -1, -1),
    ],
)
def test_coco(text: str, kind: str, alone: int, crowd: int, tmp_path: Path) -> None:
    for fields, state in (({}, alone), ({"iscrowd": 1}, crowd)):
        path = tmp_path / "instances.json"
        path.write_text(json.dumps(coco(**fields)))
        scenes = Scenes.load(path, VOCABULARY)
        oracle = pickle.loads(pickle.dumps(ClaimOracle(VOCABULARY, scenes=(scenes,))))
        assert verdicts(text, oracle, kind) == [state]


def lvis(**image: Any) -> dict[str, Any]:
    names = {1: "dog", 2: "pigeon", 3: "bird", 4: "teddy_bear_(toy)", 5: "bat_(animal)", 6: "sofa", 7: "pine_tree"}
    synonyms = {4: ["teddy_bear_(toy)", "teddy_bear"], 6: ["sofa", "couch"]}
    annotated = [1, 2, 2, 3, 4, 4, 5]
    return {
        "images": [{"id": 7, "width": 100, "height": 100, "neg_category_ids": [6, 7]} | image],
        "categories": [{"id": k, "name": name, "synonyms": synonyms.get(k, [name])} for k, name in names.items()],
        "annotations": [{"image_id": 7, "category_id": k, "bbox": [10 * k, 0, 5, 5]} for k in annotated],
    }


@pytest.mark.parametrize(
    ("partial", "text", "kind", "states"),
    [
        ([], "Two dogs. One dog.", "count", [0, 1]),
        ([1], "Two dogs.", "count", [-1]),
        ([1], "A dog.", "presence", [1]),
        ([], "One bird. Three birds.", "count", [1, 0]),  # the pigeons may be the bird
        ([3], "Four birds.", "count", [-1]),
        ([], "Two teddy bears. Three teddy bears.", "count", [1, 0]),
        ([4], "Three teddy bears.", "count", [-1]),
        ([], "A couch. A bear. A tree. A baseball bat.", "presence", [0, -1, -1, -1]),  # not all trees are pines
    ],
)
def test_lvis(partial: list[int], text: str, kind: str, states: list[int], tmp_path: Path) -> None:
    path = tmp_path / "lvis.json"
    path.write_text(json.dumps(lvis(not_exhaustive_category_ids=partial)))
    scenes = Scenes.load(path, VOCABULARY)
    assert verdicts(text, ClaimOracle(VOCABULARY, scenes=(scenes,)), kind) == states
    truth = PresenceOracle.load(path)
    of_scenes = presence_in([scenes], VOCABULARY).states_of(VOCABULARY)
    assert not ((of_scenes >= 0) & (of_scenes != truth.states_of(VOCABULARY))).any()


def test_a_narrower_category_of_coco_does_not_complete_its_label(tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    content = coco() | {"categories": [{"id": 1, "name": "handbag"}, {"id": 2, "name": "cat"}]}
    path.write_text(json.dumps(content))
    words = Vocabulary.load("dopa160")
    scenes = Scenes.load(path, words)
    claims = ClaimExtractor(words, kinds=("count",)).find("Three bags. At least two bags. Two cats.")
    assert ClaimOracle(words, scenes=(scenes,)).states([7], [claims]) == [[-1, 1, 0]]
    assert "lower bounds: 1 ('handbag' of 'bag')" in scenes.notes[0]


def test_folders_and_extensions_of_images_may_differ() -> None:
    def of(*images: str) -> ClaimOracle:
        scenes = Scenes.load(Records("graph", [GRAPH | {"image_id": image} for image in images]), VOCABULARY)
        return ClaimOracle(VOCABULARY, scenes=(scenes,))

    claims = [claim for claim in EXTRACTOR.find("Three dogs.") if claim.kind == "count"]
    oracle = of("val/cat.jpg", "val/dog.jpg")
    assert oracle.states(["cat", "cat.png", "cow"], [claims] * 3) == [[0], [0], [-1]]
    assert oracle.facts("cat", "count")
    assert oracle.evidence("cat", claims[0]) == "dog: 2, all annotated"
    assert of("val/cat.jpg", "train/cat.jpg").states(["cat", "val/cat.jpg"], [claims] * 2) == [[-1], [0]]


CHILD = """
from scapo_eval import Vocabulary
from scapo_eval.files.records import Records
from scapo_eval.truths.scenes import Scenes
words = Vocabulary.load("coco80")
record = {"image_id": 7, "objects": [{"name": "dog", "attributes": list("abcdef")}], "complete": list(words.labels)}
print(Scenes.load(Records("mine", [record]), words).fingerprint)
"""


def test_fingerprints_of_records_are_equal_in_all_processes() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", CHILD], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]


def test_fingerprints_of_references_in_memory_depend_on_the_references() -> None:
    def of(*texts: str) -> str:
        rows = [{"image_id": 7, "references": list(texts)}]
        return Scenes.load(Records("references", rows), VOCABULARY).fingerprint

    assert of("A dog.", "A red car.") == of("A red car.", "A dog.") != of("A dog.", "A blue car.")


def test_the_first_that_knows_decides() -> None:
    presence = PresenceOracle.from_objects({7: ["cat"]}, labels=["cat", "dog"])
    one, two = graph(counts={"dog": 5}), graph()
    oracle = ClaimOracle(VOCABULARY, presence, (one, two))
    assert verdicts("A dog and a cat and a car.", oracle, "presence") == [0, 1, 1]
    assert verdicts("Five dogs.", oracle, "count") == [1]
    assert verdicts("Five dogs.", ClaimOracle(VOCABULARY, presence, (two, one)), "count") == [0]
    assert oracle.signature.count("scenes:") == 2
    assert oracle.signature.startswith("presence:")
    assert oracle.signature != ClaimOracle(VOCABULARY, presence, (two, one)).signature
    assert oracle.states([8], [EXTRACTOR.find("A dog.")]) == [[-1]]


def test_what_is_left_aside_is_counted() -> None:
    scenes = graph(objects=[{"name": "gizmo"}, {"name": "dog", "box": [90, 0, 20, 20]}], relations=[])
    unnamed, outside = scenes.notes
    assert "objects not used, because their names are not in the vocabulary: 1" in unnamed
    assert "'gizmo'" in unnamed
    assert "boxes not used, because they exceed their image: 1" in outside
    assert "image 7" in outside
    assert verdicts("A dog on the right.", ClaimOracle(VOCABULARY, scenes=(scenes,)), "relation") == [-1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"counts": {"dog": -1}}, "non-negative whole number, found -1 for 'dog'"),
        ({"counts": {"dog": "two"}}, "whole number"),
        ({"objects": None}, "'objects' must be a list"),
        ({"objects": ["dog"]}, "not a valid record: a thing must be an object with a 'name', found 'dog'"),
        ({"claims": ["dog"]}, "a claim must be an object with 'kind' and 'answer', found 'dog'"),
        ({"claims": [{"kind": "presence", "label": "dog"}]}, "must be an object with 'kind' and 'answer'"),
        ({"objects": [{"name": 3}]}, "must be a string"),
        ({"objects": [{"name": "dog", "box": [1, 2]}], "relations": []}, "four numbers"),
        ({"relations": [{"subject": 0, "predicate": "on", "object": 9}]}, "does not exist"),
        ({"image_id": None}, "image"),
    ],
)
def test_faulty_scene_graphs(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises((InputError, InputErrors), match=reason):
        graph(**changes)


def test_an_image_twice() -> None:
    with pytest.raises((InputError, InputErrors), match="appears twice"):
        Scenes.load(Records("graph", [GRAPH, GRAPH]), VOCABULARY)


MAN, WOMAN = {"name": "man"}, {"name": "woman"}


@pytest.mark.parametrize(
    ("changes", "text", "kind", "states"),
    [
        ({"counts": {"man": 2, "woman": 1}}, "Three people. At least three people. Two people.", "count", [-1, 1, -1]),
        ({"counts": {"woman": 1, "man": 2}}, "One person.", "count", [0]),
        ({"counts": {"man": 2, "men": 2}}, "At least three people.", "count", [-1]),
        ({"counts": {"man": 2, "person": 4}}, "Three people. Four people.", "count", [-1, 1]),
        ({"counts": {"people": 4, "person": 4}}, "Four people.", "count", [1]),
        ({"counts": {"sofas": 2}}, "Three couches.", "count", [0]),
        ({"counts": {"man": 0}}, "A woman. A man.", "presence", [-1, -1]),
        ({"counts": {"man": 1}}, "A woman.", "presence", [1]),
        ({"complete": ["man"]}, "A woman.", "presence", [-1]),
        ({"complete": ["people"]}, "A woman.", "presence", [0]),
        ({"objects": [MAN, MAN, WOMAN], "counts": {"man": 2}}, "Three people. Over two people.", "count", [-1, 1]),
        ({"objects": [MAN, MAN, WOMAN], "counts": {"man": 5}}, "At least six people.", "count", [1]),
        ({"objects": [{"name": "people"}], "counts": {"man": 5}}, "At least six people.", "count", [-1]),
        ({"objects": [MAN], "counts": {"woman": 1}, "complete": ["person"]}, "Two people.", "count", [-1]),
    ],
)  # fmt: skip
def test_narrower_names_neither_complete_nor_count_a_label(
    changes: dict[str, Any], text: str, kind: str, states: list[int]
) -> None:
    scenes = graph(**{"objects": [], "relations": [], "counts": {}, "complete": [], **changes})
    assert verdicts(text, ClaimOracle(VOCABULARY, scenes=(scenes,)), kind) == states


def test_narrower_names_are_noted_and_are_no_known_counts() -> None:
    scenes = graph(objects=[], relations=[], counts={"man": 2}, complete=["woman"])
    oracle = ClaimOracle(VOCABULARY, scenes=(scenes,))
    assert oracle.facts(7, "presence") == {("person",)}
    assert oracle.facts(7, "count") == frozenset()
    assert "lower bounds: 2 ('man' of 'person', 'woman' of 'person')" in scenes.notes[0]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"people": 2, "person": 3}, r"the counts of 'people' \(2\) and 'person' \(3\) contradict each other"),
        ({"man": 2, "men": 3}, r"the counts of 'man' \(2\) and 'men' \(3\) contradict each other"),
        ({"man": 3, "person": 2}, r"the counts of 'person' \(2\) and 'man' \(3\) contradict each other"),
        ({"man": 1}, "the count of 'man' is 1, but 2 objects have this name"),
    ],
)
def test_counts_that_contradict_each_other(counts: dict[str, int], reason: str) -> None:
    with pytest.raises(InputErrors, match=f"graph:1: {reason}"):
        graph(objects=[MAN, MAN], relations=[], counts=counts)


ABSENT_DOG: list[dict[str, Any]] = [
    {"complete": ["dog", "bus"], "objects": [{"name": "bus"}]},
    {"claims": [{"kind": "presence", "label": "dog", "answer": "no"}], "objects": [{"name": "bus"}]},
    {"counts": {"dog": 0}, "objects": [{"name": "bus"}]},
]
JUDGED_DOG = [
    {"kind": "attribute", "label": "dog", "value": "brown", "answer": "no"},
    {"kind": "relation", "label": "dog", "value": "on", "other": "bus", "answer": "no"},
    {"kind": "relation", "label": "bus", "value": "below", "other": "dog", "answer": "yes"},
    {"kind": "count", "label": "dog", "value": "2", "answer": "no"},
]


@pytest.mark.parametrize("absent", ABSENT_DOG)
def test_attributes_and_relations_of_absent_objects_are_unknown(absent: dict[str, Any]) -> None:
    text = "A brown dog on a bus. A bus below a dog."
    first, judge = (
        graph(**{"counts": {}, "relations": [], **absent}),
        graph(objects=[], relations=[], claims=JUDGED_DOG),
    )
    oracle = ClaimOracle(VOCABULARY, scenes=(first, judge))
    for kind in ("attribute", "relation"):
        assert set(verdicts(text, oracle, kind)) == {-1}
    assert verdicts("Two dogs.", oracle, "count") == [0]
    claim = next(claim for claim in EXTRACTOR.find(text) if claim.kind == "attribute")
    assert oracle.evidence(7, claim) == oracle.evidence(7, EXTRACTOR.find("A dog.")[0])
    in_one = graph(**{"counts": {}, "relations": [], **absent, "claims": [*absent.get("claims", ()), *JUDGED_DOG]})
    assert set(verdicts(text, ClaimOracle(VOCABULARY, scenes=(in_one,)), "relation")) == {-1}


def test_the_presence_oracle_decides_which_objects_are_absent() -> None:
    judge = graph(objects=[], relations=[], counts={}, complete=["dog"], claims=JUDGED_DOG)
    for labels, state in ((["bus"], -1), (["bus", "dog"], 0)):
        oracle = ClaimOracle(VOCABULARY, PresenceOracle.from_objects({7: labels}), (judge,))
        assert verdicts("A brown dog.", oracle, "attribute") == [state]


COLORS = [
    (annotated, claimed, state)
    for cue in shipped_claim_cues().colors
    for state, pairs in zip((1, -1, 0), map(cue.examples.__getitem__, ("holds", "unknown", "fails")), strict=True)
    for annotated, claimed in pairs
]


@pytest.mark.parametrize(("annotated", "claimed", "state"), COLORS)
def test_colors_read_their_examples(annotated: str, claimed: str, state: int) -> None:
    scenes = graph(objects=[{"name": "car", "attributes": [annotated]}], relations=[])
    assert verdicts(f"A {claimed} car.", ClaimOracle(VOCABULARY, scenes=(scenes,)), "attribute") == [state]


def test_colors_of_several_objects() -> None:
    for others, state in ((["white"], 0), (["dark"], -1), (["maroon"], 1), ([], -1)):
        objects = [{"name": "car", "attributes": words} for words in (["blue", "large"], others)]
        oracle = ClaimOracle(VOCABULARY, scenes=(graph(objects=objects, relations=[]),))
        assert verdicts("A red car.", oracle, "attribute") == [state]


def test_color_words_are_colors() -> None:
    cues = shipped_claim_cues()
    assert all(cue.words | cue.of | cue.like <= cues.color_words for cue in cues.colors)
    assert all(color in cues.overlaps[word] for color, words in cues.overlaps.items() for word in words)


def related(*predicates: str, **changes: Any) -> ClaimOracle:
    """An oracle for a dog and a couch without boxes, which the predicates relate."""
    objects = [{"name": "dog"}, {"name": "couch"}]
    relations = [{"subject": 0, "predicate": words, "object": 1} for words in predicates]
    return ClaimOracle(VOCABULARY, scenes=(graph(objects=objects, relations=relations, **changes),))


@pytest.mark.parametrize(
    ("annotated", "text", "states"),
    [
        ("dark brown", "A brown dog.", [1]),
        ("light brown", "A brown dog. A red dog.", [1, 0]),
        ("black and white", "A black and white dog.", [1, 1]),
        ("red and blue", "A blue dog.", [1]),
        ("very large", "A large dog.", [1]),
        ("lying down", "A dog lies here.", [1]),
        ("not brown", "A brown dog.", [-1]),
        ("in a good mood", "A large dog.", [-1]),
    ],
)
def test_attributes_are_reduced_like_claims(annotated: str, text: str, states: list[int]) -> None:
    objects = [{"name": "dog", "attributes": [annotated]}]
    oracle = ClaimOracle(VOCABULARY, scenes=(graph(objects=objects, relations=[]),))
    assert verdicts(text, oracle, "attribute") == states
    facts = oracle.facts(7, "attribute")
    if states[0] == 1:
        assert facts == {fact_of(c) for c in EXTRACTOR.find(text) if c.kind == "attribute" and c.value != "red"} | facts
        assert ("dog", annotated) not in facts


@pytest.mark.parametrize(
    ("predicate", "text", "states"),
    [
        ("sitting on", "A dog on a couch. A dog is above a couch.", [1, -1]),
        ("standing next to", "A dog next to a couch. A couch near a dog.", [1, 1]),
        ("to the left of", "A dog to the left of a couch. A couch to the right of a dog.", [1, 1]),
        ("to the right of", "A dog to the left of a couch. A couch to the left of a dog.", [-1, 1]),
        ("lying under", "A dog below a couch. A couch above a dog. A couch on a dog.", [1, 1, -1]),
    ],
)
def test_relations_are_reduced_like_claims(predicate: str, text: str, states: list[int]) -> None:
    oracle = related(predicate)
    assert verdicts(text, oracle, "relation") == states
    claims = [claim for claim in EXTRACTOR.find(text) if claim.kind == "relation"]
    facts = {fact_of(claim) for claim, state in zip(claims, states, strict=True) if state == 1}
    assert oracle.facts(7, "relation") == facts
    assert len(facts) == 1


def test_a_relation_states_an_attribute() -> None:
    oracle = related("sitting on")
    assert verdicts("A dog sits there. A couch is sitting there.", oracle, "attribute") == [1, -1]
    assert oracle.facts(7, "attribute") == {("dog", "sitting")}


def test_an_answer_decides_both_forms_of_a_relation() -> None:
    answers = [
        {"kind": "relation", "label": "dog", "value": "left of", "other": "couch", "answer": "no"},
        {"kind": "relation", "label": "couch", "value": "next to", "other": "dog", "answer": "yes"},
        {"kind": "relation", "label": "dog", "value": "holding", "other": "couch", "answer": "yes"},
    ]
    oracle = related(claims=answers)
    text = "A couch to the right of a dog. A dog near a couch. A couch with a dog."
    assert verdicts(text, oracle, "relation") == [0, 1, -1]
    claim = next(claim for claim in EXTRACTOR.find(text) if claim.kind == "relation")
    assert oracle.evidence(7, claim).endswith("judged: no")


def test_wrong_arguments_are_named() -> None:
    extractor: Any = ClaimExtractor("coco80")
    for reader in (extractor, extractor.matcher):
        with pytest.raises(InputError, match="a text must be a string, got None"):
            reader.find(None)
        with pytest.raises(InputError, match="a text must be a string, got None"):
            reader.find_batch(["A dog.", None])
        with pytest.raises(InputError, match="expected a list of texts, found a single string"):
            reader.find_batch("A dog.")
    oracle: Any = ClaimOracle(VOCABULARY, PresenceOracle.from_objects({7: ["dog"]}), (graph(),))
    for method in (oracle.states, oracle.probabilities):
        with pytest.raises(InputError, match="1 image ids for the claims of 0 captions"):
            method(["7"], [])
        with pytest.raises(InputError, match="image id must be a number or a string, not null"):
            method([None], [[]])
    for image in (7, 8):
        with pytest.raises(InputError, match=r"kind must be one of presence, .*, got 'color'"):
            oracle.facts(image, "color")
    foreign = replace(EXTRACTOR.find("A dog.")[0], label="unicorn")
    for method in (oracle.state, oracle.probability, oracle.evidence):
        with pytest.raises(InputError, match="the vocabulary 'open400' has no label 'unicorn'"):
            method(7, foreign)
        with pytest.raises(InputError, match="image id is an empty string"):
            method("", foreign)


def test_sources_may_be_given_in_other_forms() -> None:
    given: Any = ("open400", {7: ["dog", "tree"]}, graph())
    oracle = ClaimOracle(*given)
    assert oracle.signature == ClaimOracle(VOCABULARY, PresenceOracle.of(given[1]), oracle.scenes).signature
    assert oracle.vocabulary.fingerprint == VOCABULARY.fingerprint
    assert verdicts("A dog and a cat. Two cars.", oracle, "presence")[:2] == [1, 0]
    for scenes in (None, "scenes.jsonl", 7, [given[1]]):
        with pytest.raises(InputError, match="scenes must be Scenes objects, got"):
            ClaimOracle(VOCABULARY, scenes=scenes)
