"""Every example of the pages on input files is read by the reader of the verb that the page names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import pytest

from scapo_eval import JudgedUses, PresenceOracle, Vocabulary
from scapo_eval.base.errors import FaultList
from scapo_eval.benchmarks.chair import Reference, Synonyms
from scapo_eval.benchmarks.chair.truth import joined_truth
from scapo_eval.benchmarks.facts import read_descriptions
from scapo_eval.benchmarks.faithscore import read_facts
from scapo_eval.benchmarks.hallusionbench import read_hallusionbench
from scapo_eval.benchmarks.mmhal import read_ratings
from scapo_eval.benchmarks.objhal import read_judged
from scapo_eval.benchmarks.phd import read_phd
from scapo_eval.benchmarks.questions import read_questions
from scapo_eval.readers.answers import read_answers
from scapo_eval.readers.captions import caption_blocks
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.results import load_results
from scapo_eval.truths.references import References, read_weights
from scapo_eval.truths.truth_table import read_open_images
from scapo_eval.validation.judgements import Judgements

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("data.md", "data_keys.md", "data_truths.md", "data_answers.md", "data_other.md")
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in PAGES)
EXAMPLE = re.compile(r"<!-- reader: (.+?) \| (\S+) \| (\d+)(?: (\S+))? -->\n```(\w*)\n(.*?)```", re.DOTALL)
EXAMPLES = {found[1]: found for found in EXAMPLE.findall(PAGE)}


def captions(path: Path, rollouts: bool = False) -> list[str]:
    faults = FaultList()
    blocks = caption_blocks(path, rollouts=rollouts, warn=lambda _: None)
    found = [text for block in blocks for text in block.parse(faults).captions]
    faults.raise_if_any()
    return found


def prompts(path: Path) -> Sized:
    from scapo_train.data import read_prompts

    return read_prompts(path)


def coco_captions(path: Path) -> Sized:
    """Joined with the page's instances, by the page's synonyms."""
    write(path.parent, "instances.json")
    reader = Reference(Synonyms.load(write(path.parent, "synonyms.txt")))
    joined = joined_truth([path.parent / "instances.json"], [path], reader, warn=lambda _: None)
    assert joined.objects() == {"226988": ["dog", "person"]}
    return joined.image_ids


def classes(path: Path) -> Sized:
    """Names for the page's labels."""
    return read_open_images([write(path.parent, "labels.csv")], path).labels


READERS: dict[str, Callable[[Path], Any]] = {
    "captions": captions,
    "rollouts": lambda path: captions(path, rollouts=True),
    "answers": lambda path: list(read_answers(path)),
    "objects": lambda path: read_judged(path, warn=lambda _: None).lists,
    "hallusionbench": lambda path: read_hallusionbench(path, None, PARSERS["default"]).graded,
    "ratings": read_ratings,
    "facts": read_facts,
    "claims": read_descriptions,
    "truth": lambda path: PresenceOracle.load(path).image_ids,
    "classes": classes,
    "coco captions": coco_captions,
    "synonyms": lambda path: Synonyms.load(path).vocabulary.labels,
    "references": lambda path: References.load(path).texts,
    "weights": read_weights,
    "judgements": lambda path: Judgements.load(path).items,
    "questions": read_questions,
    "phd": read_phd,
    "uses": lambda path: JudgedUses.load(path).spans,
    "vocabulary": lambda path: Vocabulary.load(path).labels,
    "prompts": prompts,
    "results": load_results,
}


def write(folder: Path, name: str) -> Path:
    _, _, _, _, language, text = EXAMPLES[name]
    if language == "python":
        exec(compile(text, name, "exec"), {})
    else:
        (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    reader, _, number, world, _, text = EXAMPLES[name]
    path = write(tmp_path, name)
    assert len(READERS[reader](path)) == int(number)
    assert text.count("\n") <= 8
    if world:
        assert PresenceOracle.load(path).world == world


def test_the_page_has_no_example_that_is_not_read() -> None:
    fences = re.findall(r"^```(\w*)$", PAGE, re.MULTILINE)[::2]
    assert len(fences) == len(EXAMPLES) + fences.count("bash") + fences.count("text")
    assert {reader for reader, *_ in EXAMPLES.values()} == READERS.keys()
