"""What the vocabularies that come with the project promise."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from scapo_eval import Vocabulary
from scapo_eval.files.files import shipped_folder
from scapo_eval.matching.compiled import CUES, read_compiled
from scapo_eval.matching.cues import parse_cues
from scapo_eval.matching.vocabulary import parse_shipped, shipped_vocabularies

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


@pytest.mark.parametrize("name", shipped_vocabularies())
def test_the_compiled_files_are_those_of_the_yaml(name: str) -> None:
    compiled = read_compiled(name, Vocabulary)
    assert compiled is not None, "vocab/ has changed: python -m scapo_eval.matching.compiled"
    assert compiled == parse_shipped(name)


def test_the_compiled_cues_are_those_of_the_yaml() -> None:
    compiled = read_compiled(CUES, dict)
    assert compiled is not None, "cues.yaml has changed: python -m scapo_eval.matching.compiled"
    assert compiled == parse_cues()


def test_a_compiled_file_of_another_yaml_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(str(shipped_folder("vocab")), tmp_path / "vocab")
    monkeypatch.setattr("scapo_eval.matching.compiled.shipped_folder", lambda name: tmp_path / name)
    assert read_compiled("coco80", Vocabulary) is not None
    for name in ("rules.yaml", "coco80.yaml"):
        path = tmp_path / "vocab" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(f"{text}\n# changed\n", encoding="utf-8")
        assert read_compiled("coco80", Vocabulary) is None
        path.write_text(text, encoding="utf-8")
    path = tmp_path / "vocab" / "compiled" / "coco80.json.gz"
    whole = path.read_bytes()
    for damaged in (b"", whole[:1000], b"{}", gzip.compress(b'["", {}]')):
        path.write_bytes(damaged)
        assert read_compiled("coco80", Vocabulary) is None
    path.unlink()
    assert read_compiled("coco80", Vocabulary) is None
