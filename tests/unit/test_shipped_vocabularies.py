"""What the vocabularies that come with the project promise."""

from __future__ import annotations

import pytest

from scapo_eval import Vocabulary
from scapo_eval.matching.vocabulary import shipped_vocabularies

COCO = set(Vocabulary.load("coco80").labels)


@pytest.mark.parametrize("name", list(shipped_vocabularies()))
def test_every_label_is_defined_and_every_coco_category_has_its_words(name: str) -> None:
    vocabulary = Vocabulary.load(name)
    assert all(info.definition and info.group for info in vocabulary.info.values())
    assert {category for info in vocabulary.info.values() for category in info.coco} == COCO
    assert all(rule.reason for rule in vocabulary.rules)


def test_dopa160_keeps_what_the_paper_says() -> None:
    dopa = Vocabulary.load("dopa160")
    assert (len(dopa.labels), len(dopa.aliases)) == (160, 894)
    named = (
        "book chair bench couch knife fork shirt jacket picture sky cloud grass mountain beach street sidewalk court"
    )
    assert {*named.split(), "island"} <= set(dopa.labels)
    merged = {
        "chair": "stool stools armchair armchairs ottoman ottomans seat seats",
        "bench": "pew pews bleachers",
        "couch": "sofa sofas loveseat loveseats",
        "book": "booklet booklets brochure brochures",
        "picture": "poster posters painting paintings",
    }
    for label, aliases in merged.items():
        assert {dopa.aliases[alias] for alias in aliases.split()} == {label}


def test_open400_has_about_as_many_labels() -> None:
    assert 380 <= len(Vocabulary.load("open400").labels) <= 440
