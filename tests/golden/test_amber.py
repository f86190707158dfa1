"""Comparison of AMBER with the output of the official script, answer by answer (``shared/data/amber``)."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.benchmarks.amber import Amber, AmberData, NltkNouns, Similarity, read_responses
from scapo_eval.benchmarks.amber.data import Description
from scapo_eval.cli.main import cli

DESCRIBED = ("gen_instructblip_agla_small", "gen_llava_base")
VECTORS = {"standin": "official_script_standin_vectors", "novectors": "official_script_no_vectors"}
TASKS = {
    "": "discriminative",
    **{f"{name}_": name for name in ("existence", "attribute", "state", "number", "action", "relation")},
}


def read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


@pytest.fixture(scope="module")
def amber(shared: Path) -> Path:
    return shared / "data" / "amber"


@pytest.fixture(scope="module")
def data(amber: Path) -> AmberData:
    return AmberData.load(amber)


@pytest.fixture(scope="module")
def expected(amber: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(amber / "expected.json")["sets"]
    return found


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    """Returns the transcription of the official loops."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "amber_plain.py"
    spec = importlib.util.spec_from_file_location("amber_plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def with_nltk(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk")
    monkeypatch.setenv("NLTK_DATA", str(shared / "nltk_data"))
    monkeypatch.setattr(nltk.data, "path", [str(shared / "nltk_data")])


class Tagged:
    """Noun tagger that returns NLTK's stored nouns by text, for parity without NLTK."""

    version = "3.10.4"

    def __init__(self, amber: Path, *names: str) -> None:
        self._nouns = {
            answer["response"]: nouns["nouns"]
            for name in names
            for answer, nouns in zip(
                read(amber / f"responses/{name}.json.gz"), read(amber / f"responses/{name}.nouns.json.gz"), strict=True
            )
        }

    def find_batch(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> list[list[str]]:
        return [self._nouns[text] for text in texts]


def similarity(kind: str, amber: Path, data: AmberData) -> Similarity:
    return Similarity.load(str(amber / "standin_pairs.json") if kind == "standin" else "none", data.words)


def check_yes_no(printed: Any, wanted: dict[str, Any]) -> None:
    """Compares printed values with ``wanted`` from expected.json. Other values are not checked."""
    for prefix, task in TASKS.items():
        for name, value in wanted.get(task, {}).items():
            assert printed[prefix + name.lower()] == value, (task, name)


def check_generative(printed: Any, wanted: dict[str, float]) -> None:
    assert [printed[name.lower()] for name in ("CHAIR", "Cover", "Hal", "Cog")] == [
        wanted[name] for name in ("CHAIR", "Cover", "Hal", "Cog")
    ]


@pytest.mark.parametrize("kind", list(VECTORS))
@pytest.mark.parametrize("name", DESCRIBED)
def test_parity_per_answer_and_in_every_figure(
    name: str, kind: str, amber: Path, data: AmberData, expected: dict[str, Any]
) -> None:
    scorer = Amber(data, "parity", similarity=similarity(kind, amber, data), tagger=Tagged(amber, name))
    scored = scorer.score(read_responses(amber / f"responses/{name}.json.gz", data, official=True))
    trace = read(amber / f"responses/{name}.trace_{kind}.json.gz")
    assert [{key: record[key] for key in trace[0]} for record in scored.records()] == trace
    wanted = expected[name][VECTORS[kind]]
    check_generative(scored.run.printed, wanted)
    found = scored.run.values
    assert round(100 * (found["cap_score"] or 0), 1) == wanted["cap_score"]
    assert round(found["chair"] or 0, 12) == round(wanted["counts"]["chair_score"] / wanted["counts"]["chair_num"], 12)
    assert found["accuracy"] is None
    assert found["amber_score"] is None
    counts = scored.run.table.counts()
    official = {
        "hallucinated_mentions": "chair_score",
        "mentions": "chair_num",
        "covered": "cover_score",
        "truth": "cover_num",
        "imagined": "cog_score",
        "expected": "cog_num",
        "descriptions": "n",
    }
    assert {column: counts[column] for column in official} == {c: wanted["counts"][key] for c, key in official.items()}
    assert counts["descriptions"] - counts["hallucinated_captions"] == wanted["counts"]["non_hallu"]


@pytest.mark.parametrize("kind", list(VECTORS))
def test_credit_equals_the_plain_loops(kind: str, amber: Path, data: AmberData, plain: ModuleType) -> None:
    """Compares credits for random nouns, which reach every branch more often than real answers do."""
    relation = similarity(kind, amber, data)
    associations = read(amber / "relation.json")
    entries = read(amber / "annotations.json.gz")
    rng = np.random.default_rng(7)

    def alike(a: str, b: str) -> bool:
        return a == b or b in relation.near.get(a, ())

    texts = {f"text {k}": rng.choice([*data.words, "sidewalk"], size=k % 60).tolist() for k in range(1004)}

    class Drawn:
        version = "none"

        def find_batch(self, found: Sequence[str], on_progress: object = None) -> list[list[str]]:
            return [texts[text] for text in found]

    from scapo_eval.benchmarks.amber.responses import AmberResponse

    responses = [AmberResponse(k, k, data.items[k - 1], text) for k, text in enumerate(texts, 1)]
    verdicts = Amber(data, "parity", similarity=relation, tagger=Drawn()).verdicts(responses)
    for response, verdict in zip(responses, verdicts, strict=True):
        entry = entries[response.number - 1]
        wanted = plain.plain_credit(
            texts[response.text], entry["truth"], entry["hallu"], associations, data.safe, alike
        )
        assert verdict.credit is not None
        assert (verdict.credit.mentions, verdict.credit.flags, verdict.credit.cover, verdict.credit.cog) == wanted


@pytest.mark.parametrize("name", DESCRIBED)
def test_nltk_nouns(name: str, amber: Path, with_nltk: None) -> None:
    answers = [answer["response"] for answer in read(amber / f"responses/{name}.json.gz")][:300]
    wanted = [entry["nouns"] for entry in read(amber / f"responses/{name}.nouns.json.gz")][:300]
    assert NltkNouns(workers=2).find_batch(answers) == wanted


@pytest.mark.parametrize("name", ["disc_synth_a", "disc_messy_a", "disc_real_sentences_relation"])
def test_questions_to_the_letter(name: str, amber: Path, data: AmberData, expected: dict[str, Any]) -> None:
    scorer = Amber(data, "parity", tagger=Tagged(amber))
    scored = scorer.score(read_responses(amber / f"responses/{name}.json.gz", data, official=True))
    check_yes_no(scored.run.printed, expected[name]["official_script"])


@pytest.mark.parametrize("name", ["disc_messy_a", "disc_real_sentences_relation"])
@pytest.mark.parametrize("mode", ["parity", "embedded"])
def test_questions_by_the_first_word(
    name: str, mode: Any, amber: Path, data: AmberData, expected: dict[str, Any]
) -> None:
    scorer = Amber(data, mode, answers="first-word", tagger=Tagged(amber))
    scored = scorer.score(read_responses(amber / f"responses/{name}.json.gz", data))
    wanted = expected[name]["official_script_after_normaliser"]["first_word"]
    assert scored.run.counts["unparsed"] == wanted["left_unparsed"]
    if mode == "parity":
        check_yes_no(scored.run.printed, wanted)
    found = scored.run.values
    for prefix, task in TASKS.items():
        for figure in ("accuracy", "precision", "recall"):
            value = found[prefix + figure]
            assert value is None or abs(100 * value - wanted[task][figure.capitalize()]) < 0.16
    if name == "disc_real_sentences_relation":
        assert found["existence_accuracy"] is None
        assert found["chair"] is None


def test_verdicts_agree_with_the_counts(amber: Path, data: AmberData) -> None:
    scored = Amber(data).score(read_responses(amber / "responses/disc_synth_a.json.gz", data))
    found = scored.run.values
    for name, right in scored.run.verdicts.items():
        assert sum(right.values()) / len(right) == pytest.approx(found[name])
    assert len(scored.run.verdicts) == 7
    assert len(scored.run.table.image_ids) == 1004


def test_both_tasks_in_one_file(amber: Path, data: AmberData, expected: dict[str, Any], tmp_path: Path) -> None:
    both = [
        answer for name in ("gen_llava_base", "disc_synth_a") for answer in read(amber / f"responses/{name}.json.gz")
    ]
    path = tmp_path / "both.jsonl"
    path.write_text("\n".join(map(json.dumps, both)))
    scorer = Amber(
        data, "parity", similarity=similarity("standin", amber, data), tagger=Tagged(amber, "gen_llava_base")
    )
    scored = scorer.score(read_responses(path, data, official=True))
    wanted = expected["mixed_all_a"]
    check_generative(scored.run.printed, wanted["official_script_standin_vectors"]["generative"])
    check_yes_no(scored.run.printed, wanted["official_script_standin_vectors"])
    assert scored.run.printed["amber_score"] == wanted["amber_score_from_printed_figures"]
    assert scored.run.values["amber_score"] == pytest.approx(84.1, abs=0.05)
    assert scored.run.counts["missing"] == 0
    assert scored.run.notes == ()


def test_a_partial_run_with_repeated_ids(
    amber: Path, data: AmberData, expected: dict[str, Any], with_nltk: None
) -> None:
    path = amber / "responses/partial_a.json.gz"
    scorer = Amber(data, "parity", similarity=similarity("standin", amber, data))
    scored = scorer.score(read_responses(path, data, official=True))
    wanted = expected["partial_a"]["official_script_standin_vectors"]
    check_generative(scored.run.printed, wanted["generative"])
    check_yes_no(scored.run.printed, wanted)
    ids = [answer["id"] for answer in read(path)]
    assert scored.run.counts["duplicate"] == len(ids) - len(set(ids)) > 0
    assert scored.run.counts["missing"] == 15220 - len(set(ids))
    assert any("partial run" in note for note in scored.run.notes)


def test_odd_inputs(amber: Path, data: AmberData, tmp_path: Path, with_nltk: None) -> None:
    """Compares odd inputs. Parity prints the official script's digits, or a one-line message if that script crashes."""
    superset = {"id_string", "float_id", "jsonl", "bom"}  # the script dies on what can be read without doubt
    scorer = Amber(data, "parity", tagger=NltkNouns(workers=1))
    for case in read(amber / "odd_inputs.json")["cases"]:
        if "input" not in case:
            continue
        path = tmp_path / f"{case['name']}.json"
        path.write_text(json.dumps(case["input"]))
        if case["exit_code"] and case["name"] not in superset:
            with pytest.raises(ScapoError) as error:
                read_responses(path, data, official=True)
            assert case["name"] in str(error.value)
            continue
        scored = scorer.score(read_responses(path, data, official=True))
        wanted = case.get("printed", {})
        check_yes_no(scored.run.printed, wanted)
        if "generative" in wanted:
            check_generative(scored.run.printed, wanted["generative"])


@pytest.mark.parametrize("name", DESCRIBED)
def test_embedded_stays_close_to_the_official_script(
    name: str, amber: Path, data: AmberData, expected: dict[str, Any]
) -> None:
    scored = Amber(data).score(read_responses(amber / f"responses/{name}.json.gz", data))
    wanted = expected[name]["official_script_no_vectors"]["counts"]
    official = {
        "chair": wanted["chair_score"] / wanted["chair_num"],
        "cover": wanted["cover_score"] / wanted["cover_num"],
        "hal": 1 - wanted["non_hallu"] / wanted["n"],
        "cog": wanted["cog_score"] / wanted["cog_num"],
    }
    for figure, allowed in {"chair": 0.2, "cover": 0.4, "hal": 1.2, "cog": 0.1}.items():
        assert abs(100 * (scored.run.values[figure] or 0) - 100 * official[figure]) <= allowed, figure
    assert scored.run.printed == {}


def test_spacy_similarities_are_computed_once(
    amber: Path, data: AmberData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spacy = pytest.importorskip("spacy")
    language = spacy.blank("en")
    vectors = read(amber / "standin_vectors.json.gz")
    for word, vector in vectors.items():
        language.vocab.set_vector(word, np.array(vector, dtype=np.float32))
    model = tmp_path / "en_core_web_lg"
    language.to_disk(model)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    computed = Similarity.load(f"spacy:{model}", data.words)
    assert computed.near == similarity("standin", amber, data).near
    assert computed.name.startswith("spacy:en_core_web_lg@")
    monkeypatch.setitem(sys.modules, "spacy", None)
    assert Similarity.load(f"spacy:{model}", data.words) == computed
    (model / "meta.json").write_text((model / "meta.json").read_text() + "\n")
    with pytest.raises(ScapoError, match="spacy"):  # the model has changed: nothing stale is used
        Similarity.load(f"spacy:{model}", data.words)


def test_command_line(amber: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evidence = tmp_path / "evidence.jsonl"
    answers = str(amber / "responses/gen_llava_base.json.gz")
    arguments = ["amber", answers, "--data", str(amber), "--json", "--resamples", "20", "--per-answer", str(evidence)]
    assert cli.main(arguments, standalone_mode=False) == 0
    (system,) = json.loads(capsys.readouterr().out)["systems"]
    assert system["n_captions"] == system["n_images"] == 1004
    assert system["metrics"]["chair"]["value"] == pytest.approx(0.0732, abs=0.002)
    assert system["metrics"]["accuracy"]["value"] is None
    assert system["signature"].startswith("amber|mode:embedded|similarity:none|answers:first-word|data:")
    lines = [json.loads(line) for line in evidence.read_text().splitlines()]
    assert len(lines) == 1004
    assert sum(map(sum, (line["flags"] for line in lines))) == system["counts"]["hallucinated_mentions"]


def test_every_item_has_an_image(data: AmberData) -> None:
    assert data.sizes == {"generative": 1004, "discriminative": 14216}
    assert len(data.words) == 418
    assert data.images is not None
    assert data.images[:3] == ("1", "2", "3")
    assert len(set(data.images)) == 1004
    assert isinstance(data.items[1003], Description)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="AMBER"):
        AmberData.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"relation\.json"):
        AmberData.load(tmp_path)
