"""Comparison of CHAIR with the two reference scripts on the same real captions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scapo_eval.benchmarks.capscore import score_captions
from scapo_eval.benchmarks.chair import (
    BENCHMARK,
    METRICS,
    ChairScorer,
    Native,
    Opera,
    Profile,
    Reference,
    Synonyms,
    score_chair,
)
from scapo_eval.benchmarks.chair.singular import singularize
from scapo_eval.benchmarks.chair.synonyms import DOUBLE_WORDS
from scapo_eval.benchmarks.chair.tokens import sentence_tokens
from scapo_eval.benchmarks.objhal import score_objhal
from scapo_eval.benchmarks.scoring import ScoredBlock
from scapo_eval.cli.verbs import command_of
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.truths.oracle import PresenceOracle

FILES = [f"{model}_{decoder}" for model in ("llava-1.5", "instructblip") for decoder in ("greedy", "beam5", "ours")]
COUNTS = {
    "captions": "captions",
    "hallucinated_captions": "hallucinated_captions",
    "mentions": "mentions",
    "hallucinated_mentions": "hallucinated_mentions",
    "recalled_objects": "covered",
    "ground_truth_objects": "truth",
}
FIGURES = {"CHAIRs": "chair_s", "CHAIRi": "chair_i", "Recall": "recall", "Len": "len"}


@pytest.fixture(scope="module")
def data(shared: Path) -> Path:
    return shared / "data" / "coco_chair"


@pytest.fixture(scope="module")
def script_vocabulary(data: Path) -> dict[str, Any]:
    return json.loads((data / "vocabulary.json").read_text())


@pytest.fixture(scope="module")
def synonyms_file(script_vocabulary: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chair") / "synonyms.txt"
    path.write_text("\n".join(", ".join(words) for words in script_vocabulary["aliases"].values()))
    return path


@pytest.fixture(scope="module")
def reference(synonyms_file: Path) -> Reference:
    return Reference(Synonyms.load(synonyms_file))


@pytest.fixture(scope="module")
def nltk_data(shared: Path) -> str:
    nltk = pytest.importorskip("nltk")
    nltk.data.path.insert(0, str(shared / "nltk_data"))
    return str(shared / "nltk_data")


@pytest.fixture(scope="module")
def opera(synonyms_file: Path, nltk_data: str) -> Opera:
    return Opera(Synonyms.load(synonyms_file), workers=1)


@pytest.fixture(scope="module")
def truth(data: Path) -> PresenceOracle:
    return PresenceOracle.load(data / "ground_truth.json.gz")


def check(path: Path, profile: Profile, truth: PresenceOracle, expected: dict[str, Any]) -> None:
    lists: list[list[Any]] = []

    def keep(scorer: ChairScorer, block: ScoredBlock) -> None:
        lists.extend([int(r["image_id"]), r["generated"], r["hallucinated"]] for r in scorer.records(block))

    run = score_chair(path, profile, truth, on_block=keep)
    counts = run.table.counts()
    assert {name: counts[own] for name, own in COUNTS.items()} == expected["counts"]
    assert lists == expected["per_caption"]
    for name, own in FIGURES.items():
        if name in expected:
            assert run.values[own] == pytest.approx(expected[name], abs=1e-12)
    assert run.values["hal_rate"] == pytest.approx(expected["set_based"]["hal_rate"], abs=1e-12)


@pytest.mark.parametrize("name", FILES)
def test_reference_equals_the_standalone_script(
    name: str, data: Path, reference: Reference, truth: PresenceOracle
) -> None:
    expected = json.loads((data / "expected.json").read_text())["files"][f"{name}.jsonl"]
    check(data / "captions" / f"{name}.jsonl", reference, truth, expected)


@pytest.mark.parametrize("name", FILES)
def test_opera_equals_operas_script(name: str, data: Path, opera: Opera, truth: PresenceOracle) -> None:
    expected = json.loads((data / "expected_opera.json").read_text())["files"][f"{name}.jsonl"]
    check(data / "captions" / f"{name}.jsonl", opera, truth, expected)


def test_object_halbench_has_operas_counts(
    data: Path, shared: Path, opera: Opera, truth: PresenceOracle, tmp_path: Path
) -> None:
    """Compares Object HalBench's CHAIR part with OPERA's counts on real captions, and with ``chair`` on its own 300
    images.
    """
    expected = json.loads((data / "expected_opera.json").read_text())["files"]["instructblip_ours.jsonl"]
    lines = (data / "captions" / "instructblip_ours.jsonl").read_text().splitlines()[:100]
    (tmp_path / "real.jsonl").write_text("\n".join(lines))
    lists: list[list[Any]] = []

    def keep(scorer: ChairScorer, block: ScoredBlock) -> None:
        lists.extend([int(r["image_id"]), r["generated"], r["hallucinated"]] for r in scorer.records(block))

    counts = score_objhal(tmp_path / "real.jsonl", opera, truth, on_block=keep).counts
    assert lists == expected["per_caption"][:100]
    assert counts["hallucinated_captions"] == sum(bool(wrong) for _, _, wrong in lists)
    assert counts["object_captions"] == sum(bool(said) for _, said, _ in lists)

    objects = PresenceOracle.load(shared / "data" / "objhal" / "coco_objects.json")
    assert len(objects.image_ids) == 300
    told = [
        {
            "image_id": image,
            "caption": " ".join(f"There is a {name}." for name in sorted({*objects.present(image), extra})),
        }
        for image, extra in zip(objects.image_ids, ["dog", "cat", "car", "bowl"] * 75, strict=True)
    ]
    (tmp_path / "told.jsonl").write_text("".join(json.dumps(record) + "\n" for record in told))
    ours = score_objhal(tmp_path / "told.jsonl", opera, objects)
    theirs = score_chair(tmp_path / "told.jsonl", opera, objects)
    assert {name: ours.counts[name] for name in theirs.counts if name != "words"} == {
        name: number for name, number in theirs.counts.items() if name != "words"
    }
    assert ours.counts["words"] == sum(len(record["caption"].split(" ")) for record in told)
    assert ours.values["chair_s_refined"] == ours.values["chair_s"] == theirs.values["chair_s"]
    absent = sum(
        not objects.state(r["image_id"], extra)
        for r, extra in zip(told, ["dog", "cat", "car", "bowl"] * 75, strict=True)
    )
    assert ours.counts["hallucinated_captions"] >= absent > 250


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on, where NumPy has threads
def test_opera_is_the_same_in_several_processes(data: Path, opera: Opera, synonyms_file: Path) -> None:
    lines = (data / "captions" / "llava-1.5_greedy.jsonl").read_text().splitlines()[:120]
    texts = [json.loads(line)["caption"] for line in lines]
    one, two = opera.find_batch(texts), Opera(Synonyms.load(synonyms_file), workers=2).find_batch(texts)
    assert one.label_id.tolist() == two.label_id.tolist()
    assert one.lengths.tolist() == two.lengths.tolist()


def test_singular_forms_are_patterns(script_vocabulary: dict[str, Any]) -> None:
    forms = script_vocabulary["surface_forms"]
    assert {form: singularize(form) for form in forms} == forms
    assert all(singularize(word) != word for word in script_vocabulary["never_match"])


def test_double_words_are_the_scripts(script_vocabulary: dict[str, Any]) -> None:
    assert dict(DOUBLE_WORDS) == script_vocabulary["double_words"]


def test_sentence_tokens_are_nltks(shared: Path, nltk_data: str) -> None:
    """Compares sentence tokens on real captions, without sentences that NLTK has tokenized differently since 3.8.1."""
    import nltk

    changed = re.compile(r"[\u2012-\u2015]|\w'(?![mtsdn])\w\b")
    words = nltk.NLTKWordTokenizer()
    seen = 0
    for path in sorted((shared / "data" / "captions_real").glob("coco*.jsonl"))[::3]:
        for line in path.read_text().splitlines():
            for sentence in nltk.sent_tokenize(json.loads(line)["caption"].lower()):
                if not changed.search(sentence):
                    assert sentence_tokens(sentence) == words.tokenize(sentence)
                    seen += 1
    assert seen > 5_000


def test_native_counts_are_those_of_score(data: Path, truth: PresenceOracle) -> None:
    vocabulary = Vocabulary.load("coco80")
    path = data / "captions" / "llava-1.5_ours.jsonl"
    found = score_chair(path, Native(vocabulary), truth).counts
    records = [json.loads(line) for line in path.read_text().splitlines()]
    scores = score_captions(records, vocabulary, truth)
    assert {name: found[name] for name in scores.counts} == scores.counts
    assert found["words"] == sum(len(record["caption"].split()) for record in records)


def test_command(data: Path, synonyms_file: Path) -> None:
    paths = [str(data / "captions" / f"{name}.jsonl") for name in ("llava-1.5_greedy", "llava-1.5_ours")]
    options = ["--truth", str(data / "ground_truth.json.gz"), "--synonyms", str(synonyms_file), "--json"]
    run = CliRunner().invoke(command_of(BENCHMARK), [*paths, *options, "--profile", "reference"], standalone_mode=False)
    assert run.exception is None
    found = json.loads(run.stdout)
    expected = json.loads((data / "expected.json").read_text())["files"]
    for system in found["systems"]:
        wanted = expected[f"{system['name']}.jsonl"]
        for name in ("CHAIRs", "CHAIRi", "Recall"):
            figure = system["metrics"][FIGURES[name]]
            assert figure["value"] == pytest.approx(wanted[name], abs=1e-12)
            assert figure["printed"] == float(f"{wanted[name] * 100:.1f}")
            assert figure["ci_low"] < figure["value"] < figure["ci_high"]
        assert "profile:reference|synonyms:" in system["signature"]
    assert {row["metric"] for row in found["comparisons"]} == set(METRICS.formulas)
    assert all(row["n_images"] == 500 for row in found["comparisons"])
