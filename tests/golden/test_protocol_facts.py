"""Ground truths in protocols, and a published value reproduced with one command."""

from __future__ import annotations

import json
from pathlib import Path

import protocol_facts
import pytest
from click.testing import CliRunner

import scapo_eval
from scapo_eval import InputError, Protocol
from scapo_eval.benchmarks.chair import Synonyms
from scapo_eval.benchmarks.pope import read_pope_questions
from scapo_eval.cli.main import cli

FILES = [f"{model}_{decoder}" for model in ("llava-1.5", "instructblip") for decoder in ("greedy", "beam5", "ours")]


@pytest.fixture
def nltk(shared: Path) -> None:
    found = pytest.importorskip("nltk")
    found.data.path.insert(0, str(shared / "nltk_data"))


def test_the_tables_are_made_of_the_public_files(shared: Path) -> None:
    for path, text in protocol_facts.files(shared):
        assert path.read_text(encoding="utf-8") == text, path.name


def test_chairs_words_are_the_official_ones(shared: Path, tmp_path: Path) -> None:
    aliases = json.loads((shared / "data" / "coco_chair" / "vocabulary.json").read_text())["aliases"]
    official = tmp_path / "synonyms.txt"
    official.write_text("\n".join(", ".join(words) for words in aliases.values()))
    assert Synonyms.shipped().fingerprint == Synonyms.load(official).fingerprint


@pytest.mark.parametrize("split", ["adversarial", "popular", "random"])
def test_popes_questions_are_the_official_ones(split: str, shared: Path) -> None:
    own = read_pope_questions([Protocol.load(f"pope-{split}").questions()])
    official = read_pope_questions([shared / "data" / "pope" / f"coco_pope_{split}.json"])
    assert [(q.id, q.label, q.text, q.category) for q in own] == [(q.id, q.label, q.text, q.category) for q in official]


@pytest.mark.parametrize("name", ["llava-1.5_greedy", "instructblip_ours"])
def test_one_command_and_nothing_else(name: str, shared: Path, nltk: None) -> None:
    captions = shared / "data" / "coco_chair" / "captions" / f"{name}.jsonl"
    protocol = "chair-opera" if name.startswith("llava") else "chair-opera-instructblip"
    run = CliRunner().invoke(cli, ["chair", str(captions), "--protocol", protocol, "--beside", "--json", "-q"])
    assert run.exception is None, run.output
    found = json.loads(run.stdout)
    expected = json.loads((shared / "data" / "coco_chair" / "expected_opera.json").read_text())["files"][
        f"{name}.jsonl"
    ]
    metrics = found["systems"][0]["metrics"]
    for there, here in {"CHAIRs": "chair_s", "CHAIRi": "chair_i", "Recall": "recall", "Len": "len"}.items():
        assert metrics[here]["value"] == pytest.approx(expected[there], abs=1e-12)
    truth = shared / "data" / "coco_chair" / "ground_truth.json.gz"
    native = scapo_eval.chair(captions, truth=truth, resamples=0).values
    assert metrics["chair_s_native"]["value"] == native["chair_s"]
    [footnote] = found["footnotes"]
    for said in ("500 images, ids ", "extracted as in OPERA's CHAIR script", "instances and reference captions joined",
                 "at most 512 new tokens", "95 % intervals: Wilson's, by image"):  # fmt: skip
        assert said in footnote
    assert len(found["published"]) == 4


def test_published_figures_are_those_of_the_public_outputs(shared: Path) -> None:
    expected = json.loads((shared / "data" / "coco_chair" / "expected_opera.json").read_text())["files"]
    for protocol, model in {"chair-opera": "llava-1.5", "chair-opera-instructblip": "instructblip"}.items():
        for row, decoder in zip(Protocol.load(protocol).published, ("greedy", "beam5", "ours"), strict=True):
            figures = expected[f"{model}_{decoder}.jsonl"]
            printed = {"chair_s": "CHAIRs", "chair_i": "CHAIRi", "recall": "Recall"}
            assert {k: row.metrics[k] for k in printed} == {k: round(100 * figures[v], 1) for k, v in printed.items()}
            assert row.metrics["len"] == round(figures["Len"], 1)
    pope = json.loads((shared / "data" / "parity" / "pope" / "expected.json").read_text())
    for split in ("adversarial", "popular", "random"):
        [row] = Protocol.load(f"pope-{split}").published
        figures = pope[f"llava-v1.5-13b/{split}"]
        assert row.metrics["f1"] == round(100 * figures["F1 score"], 1)
        assert row.metrics["accuracy"] == round(100 * figures["Accuracy"], 1)


def test_pope_needs_no_questions(shared: Path) -> None:
    answers = str(shared / "data" / "pope" / "llava-v1.5-13b.answers.jsonl")
    run = CliRunner().invoke(cli, ["pope", answers, "--protocol", "pope-popular", "--json", "-q", "--resamples", "0"])
    assert run.exception is None, run.output
    assert json.loads(run.stdout)["systems"][0]["metrics"]["f1"]["value"] == pytest.approx(0.8624589565851879)


def test_the_papers_rows_are_the_papers(shared: Path) -> None:
    table = (
        (shared / "paper" / "scapo_paper.tex").read_text().split("tab:rule_based_main", 1)[1].split("bottomrule", 1)[0]
    )
    plain = table.replace("\\textbf{", "").replace("\\underline{", "").replace("}", "").replace("\\ ", " ")
    for name, column in (("amber-generative", 1), ("scapo-coco", 3)):
        published = Protocol.load(name).published
        assert len(published) == 12
        for row in published:
            method = row.system.split(", ")[-1].replace("Qwen2.5-VL-7B", "Qwen2.5-VL").replace("SCAPO", "SCAPO (Ours)")
            [line] = [line for line in plain.splitlines() if line.strip().startswith(f"{method} &")]
            assert float(line.replace("\\", "").split("&")[column]) == row.metrics["cap_score"]


def test_a_protocol_without_truth_says_where_to_get_it(shared: Path) -> None:
    with pytest.raises(InputError, match=r"'scapo-coco' contains no ground truth \(--truth: COCO's annotations"):
        Protocol.load("scapo-coco").facts_path()
    with pytest.raises(InputError, match="missing key 'questions'"):
        Protocol.load("chair-opera").questions()
