"""AMBER's rules on a benchmark of five images, made here: credit, figures, reading, and what is refused."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError
from scapo_eval.benchmarks.amber import Amber, AmberData, NltkNouns, Run, Similarity, read_responses
from scapo_eval.benchmarks.amber.data import Description
from scapo_eval.benchmarks.amber.formulas import COLUMNS, METRICS, printed
from scapo_eval.benchmarks.amber.generative import credit
from scapo_eval.benchmarks.amber.responses import first_letters
from scapo_eval.cli.main import cli

RELATION = {"beach": ["sand", "shore"], "dog": [], "sand": ["beach"], "cat": [], "sky": [], "line": ["rope"]}
DESCRIPTIONS = [
    {"truth": ["beach", "sand", "dog"], "hallu": ["cat", "sky"]},
    {"truth": ["sky"], "hallu": ["sand", "beach"]},
    {"truth": ["dog", "dog"], "hallu": []},
]
QUESTIONS = [
    ("discriminative-hallucination", "no"),
    ("discriminative-attribute-state", "yes"),
    ("discriminative-attribute-state", "no"),
    ("discriminative-attribute-number", "no"),
    ("discriminative-attribute-action", "yes"),
    ("discriminative-relation", "yes"),
    ("relation", "no"),
]
N = len(DESCRIPTIONS) + len(QUESTIONS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "AMBER" / "data"
    (root / "query").mkdir(parents=True)
    entries: list[dict[str, Any]] = [{"type": "generative", **entry} for entry in DESCRIPTIONS]
    entries += [{"type": kind, "truth": truth} for kind, truth in QUESTIONS]
    (root / "annotations.json").write_text(json.dumps([{"id": k, **entry} for k, entry in enumerate(entries, 1)]))
    (root / "relation.json.gz").write_bytes(gzip.compress(json.dumps(RELATION).encode()))
    (root / "safe_words.txt").write_text("line")
    queries = [{"id": k, "image": f"AMBER_{1 + k % 3}.jpg", "query": "?"} for k in range(1, N + 1)]
    (root / "query" / "query_all.json").write_text(json.dumps(queries))
    return tmp_path / "AMBER"


@pytest.fixture
def data(folder: Path) -> AmberData:
    return AmberData.load(folder)


Write = Callable[[Iterable[Any]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writer(records: Iterable[Any]) -> Path:
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(json.dumps(record) for record in records))
        return path

    return writer


class Words:
    """A tagger that calls every word a noun."""

    version = "words"

    def find_batch(self, texts: Sequence[str], on_progress: object = None) -> list[list[str]]:
        return [text.split() for text in texts]


def answer(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"id": number, "response": response} for number, response in pairs]


def parity(data: AmberData, path: Path, **options: Any) -> Run:
    return Amber(data, "parity", tagger=Words(), **options).score(read_responses(path, data, official=True))


# --- data -----------------------------------------------------------------------------------------------------------


def test_data_of_a_checkout_and_of_its_data_folder(folder: Path) -> None:
    data = AmberData.load(folder)
    assert data == AmberData.load(folder / "data")
    assert data.words == ("beach", "cat", "dog", "line", "rope", "sand", "shore", "sky")
    assert data.sizes == {"generative": 3, "discriminative": 7}
    assert data.images == ("2", "3", "1", "2", "3", "1", "2", "3", "1", "2")


def test_without_queries_every_item_is_its_own_unit(folder: Path, write: Write) -> None:
    (folder / "data" / "query" / "query_all.json").unlink()
    data = AmberData.load(folder)
    assert data.images is None
    scored = Amber(data).score(read_responses(write(answer((1, "A dog."), (4, "No"))), data))
    assert scored.run.table.image_ids == ("item 1", "item 4")
    assert any("query" in note for note in scored.run.notes)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"id": 2, "type": "generative", "truth": [], "hallu": []}, "id 2 is at position 1"),
        ({"id": 1, "type": "generative", "truth": ["unicorn"], "hallu": []}, "unicorn"),
        ({"id": 1, "type": "relation", "truth": "maybe"}, "yes or no"),
        ({"id": 1, "type": "new", "truth": "yes"}, "new"),
        ([], "TypeError"),
    ],
)
def test_broken_annotations(folder: Path, entry: Any, reason: str) -> None:
    (folder / "data" / "annotations.json").write_text(json.dumps([entry]))
    with pytest.raises(InputError, match=reason) as error:
        AmberData.load(folder)
    assert error.value.line == 1


# --- credit ---------------------------------------------------------------------------------------------------------


def description(data: AmberData, number: int) -> Description:
    item = data.items[number - 1]
    assert isinstance(item, Description)
    return item


def test_associated_words_are_looked_up_first(data: AmberData) -> None:
    """``sand`` is annotated as the second word, yet credits ``beach``, whose associations come first."""
    found = credit(description(data, 1), ["sand"], data.safe, {})
    assert (found.flags, found.cover, found.cog) == ([0], [1, 0, 0], [0, 0])


def test_a_repeated_annotation_is_covered_once(data: AmberData) -> None:
    assert credit(description(data, 3), ["dog", "dog"], data.safe, {}).cover == [1, 0]


def test_safe_words_are_mentions_that_credit_nothing(data: AmberData) -> None:
    found = credit(description(data, 3), ["line", "rope"], data.safe, {})
    assert (found.flags, found.cover) == ([0, 1], [0, 0])


def test_similar_words(data: AmberData) -> None:
    """A similar annotation saves from the flag; the expected word is credited as itself and by similarity."""
    near = {"cat": frozenset({"dog", "sky"}), "sky": frozenset({"cat"})}
    found = credit(description(data, 1), ["cat"], data.safe, near)
    assert (found.flags, found.cover, found.cog) == ([0], [0, 0, 1], [1, 0])
    found = credit(description(data, 1), ["sky"], data.safe, near)
    assert (found.flags, found.cog) == ([1], [1, 1])


# --- figures --------------------------------------------------------------------------------------------------------


def test_values_and_digits(data: AmberData, write: Write) -> None:
    path = write(answer((1, "sand cat"), (2, "dog"), (4, "No"), (5, "No"), (6, "Yes"), (9, "Yes"), (10, "No")))
    scored = parity(data, path)
    found = scored.run.values
    assert found["chair"] == pytest.approx(2 / 3)
    assert found["cover"] == pytest.approx(1 / 4)
    assert found["hal"] == 1
    assert found["cog"] == pytest.approx(1 / 4)
    assert found["cap_score"] == pytest.approx(2 / 7)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["amber_score"] == pytest.approx(50)
    assert found["existence_f1"] == 1
    assert found["number_accuracy"] is None
    assert found["attribute_accuracy"] == 0
    assert found["state_precision"] == 0
    digits = scored.run.printed
    assert [digits[name] for name in ("chair", "cover", "hal", "cog")] == [66.6, 25.0, 100.0, 25.0]
    assert {digits[f"existence_{name}"] for name in ("accuracy", "precision", "recall", "f1")} == {99.9}
    assert digits["number_accuracy"] == 0.0
    assert "cap_score" not in digits


def test_no_value_over_nothing(data: AmberData, write: Write) -> None:
    """No mention at all: the official script prints 0.0, here CHAIR has no value."""
    scored = parity(data, write(answer((1, "nothing here"))))
    found = scored.run.values
    assert found["chair"] is None
    assert found["cap_score"] is None
    assert found["hal"] == 0
    assert found["accuracy"] is None
    assert (scored.run.printed["chair"], scored.run.printed["hal"], scored.run.printed["accuracy"]) == (0.0, 0.1, 0.0)


def test_names_of_the_figures() -> None:
    yes_no = ["accuracy", "precision", "recall", "f1"]
    dimensions = ["existence", "attribute", "state", "number", "action", "relation"]
    assert set(METRICS.formulas) == {
        *("chair", "cover", "hal", "cog", "cap_score", "amber_score", *yes_no),
        *(f"{dimension}_{name}" for dimension in dimensions for name in yes_no),
    }
    assert METRICS.plain_numbers == {"amber_score"}
    assert set(METRICS.formulas) - {"cap_score"} == set(printed(dict.fromkeys(COLUMNS, 1)))


def test_the_unit_is_the_image(data: AmberData, write: Write) -> None:
    """Items 1, 4 and 7 ask about the same image."""
    scored = Amber(data).score(read_responses(write(answer((1, "A dog."), (4, "No"), (7, "Yes"))), data))
    assert scored.run.table.image_ids == ("2",)
    assert scored.run.n_records == 3


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("**No**, yes", "no"),
        ("1. Yes", "yes"),
        ("Yesterday", None),
        ("I think yes", None),
        ("", None),
        ("是", None),
    ],
)
def test_first_word(text: str, said: str | None) -> None:
    assert first_letters(text) == said


def test_modes_read_answers_differently(data: AmberData, write: Write) -> None:
    path = write(answer((4, "no, there is none"), (5, "Yes"), (6, "Who knows?")))
    loose, strict = (Amber(data, answers=rule).score(read_responses(path, data)) for rule in (None, "exact"))
    assert loose.run.counts["unparsed"] == 1
    assert strict.run.counts["unparsed"] == 2
    assert loose.run.table.counts()["existence_correct"] == 1
    assert strict.run.table.counts()["existence_correct"] == 0
    assert any("count as wrong" in note for note in loose.run.notes)
    assert "answers:first-word" in loose.run.signature
    assert "answers:exact" in strict.run.signature
    assert parity(data, path).run.counts["unparsed"] == 2


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 1.0, "1", " 001 "])
def test_spellings_of_an_id(data: AmberData, write: Write, number: Any) -> None:
    (response,) = read_responses(write(answer((number, "A dog."))), data).scored
    assert response.number == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": 11, "response": "Yes"}, "id 11 is not an AMBER id"),
        ({"id": 0, "response": "Yes"}, "id 0 is not an AMBER id"),
        ({"id": True, "response": "Yes"}, "id True is not an AMBER id"),
        ({"id": 1.5, "response": "Yes"}, "id 1.5 is not an AMBER id"),
        ({"id": "x", "response": "Yes"}, "id 'x' is not an AMBER id"),
        ({"id": 4}, "missing key 'response'"),
        ({"response": "Yes"}, "missing key 'id'"),
        ({"id": 4, "response": None}, "found null"),
        ({"id": 1, "response": ["A dog."]}, "found an array"),
        ({"id": 1, "response": "A cat."}, "another answer on line 1"),
        ({"id": 2, "response": "A cat.", "image": "AMBER_1.jpg"}, "about AMBER_1.jpg"),
    ],
)
def test_faulty_records(data: AmberData, write: Write, record: Any, reason: str) -> None:
    path = write([*answer((1, "A dog.")), record])
    with pytest.raises(ScapoError, match=reason) as error:
        read_responses(path, data)
    assert f"{path}:2: " in str(error.value)
    skipped = read_responses(path, data, skip_bad=True)
    assert (len(skipped.scored), skipped.skipped) == (1, 1)
    assert skipped.unknown == ("is not an" in reason)


def test_nothing_but_faults(data: AmberData, write: Write) -> None:
    path = write([{"id": 1}, *answer((99, "A dog."))])
    with pytest.raises(ScapoError, match="missing key 'response'"):
        read_responses(path, data)
    with pytest.raises(InputError, match="no answer can be scored, 2 records are faulty"):
        read_responses(path, data, skip_bad=True)


def test_several_models_in_one_file(data: AmberData, write: Write) -> None:
    path = write([{"id": k, "response": "Yes", "model": model} for k, model in ((4, "a"), (5, "b"))])
    with pytest.raises(ScapoError, match="answers from two models, 'a' and 'b'"):
        read_responses(path, data)


def test_equal_repetitions_count_once_and_officially_each_time(data: AmberData, write: Write) -> None:
    path = write(answer((1, "dog"), (1, "dog"), (4, "No")))
    once = read_responses(path, data)
    assert (len(once.scored), once.duplicate) == (2, 1)
    assert Amber(data).score(once).run.counts["missing"] == 2 + 6
    scored = parity(data, path)
    assert scored.run.table.counts()["descriptions"] == 2
    assert scored.run.counts["duplicate"] == 1
    assert scored.run.counts["missing"] == 2 + 6


def test_official_reading_of_strange_ids(data: AmberData, write: Write) -> None:
    path = write(answer((0, "No"), (-1, "Yes"), (True, "dog"), (4, None)))
    found = read_responses(path, data, official=True)
    assert [response.number for response in found.scored] == [N, N - 1, 1, 4]
    assert found.unknown == 2
    assert any("count from the end" in note for note in found.notes)
    with pytest.raises(ScapoError, match="not an AMBER id"):
        read_responses(write(answer((1, "dog"), (-N, "Yes"))), data, official=True)


def test_an_empty_list_is_a_run_only_for_the_official_script(data: AmberData, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("[]")
    assert read_responses(path, data, official=True).scored == []
    with pytest.raises(InputError, match="no record"):
        read_responses(path, data)


def test_partial_runs_say_their_share(data: AmberData, write: Write) -> None:
    scored = Amber(data).score(read_responses(write(answer((1, "A dog."), (4, "No"))), data))
    assert "partial run: 1 of 3 generative items answered (33.3 %)" in scored.run.notes
    assert "partial run: 1 of 7 discriminative items answered (14.3 %)" in scored.run.notes
    assert scored.run.counts["missing"] == 8
    assert "|missing:8|" in scored.run.signature


def test_a_task_that_is_absent_is_not_missing(data: AmberData, write: Write) -> None:
    scored = Amber(data).score(read_responses(write(answer((1, "A dog."), (2, "A sky."), (3, "A dog."))), data))
    assert scored.run.counts["missing"] == 0
    assert scored.run.notes == ()


# --- files of other benchmarks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "looks"),
    [
        ([{"image_id": 7, "caption": "A dog."}], "own captions"),
        ([{"question_id": 7, "prompt": "?", "text": "A dog.", "model_id": "m"}], "LLaVA answers"),
        (
            [{"id": "pope/adversarial/1", "response": "Yes"}, {"id": "pope/adversarial/2", "response": "No"}],
            "pope answers",
        ),
        ([{"id": 1, "image": "AMBER_1.jpg", "query": "Describe this image."}], "AMBER queries"),
    ],
)
def test_other_layouts_are_named(data: AmberData, write: Write, records: list[Any], looks: str) -> None:
    with pytest.raises(InputError, match=looks):
        read_responses(write(records), data)


def test_texts_that_cannot_answer_the_items(tmp_path: Path, write: Write) -> None:
    root = tmp_path / "big"
    root.mkdir()
    entries = [{"id": k, "type": "generative", "truth": ["dog"], "hallu": []} for k in range(1, 31)]
    entries += [{"id": k, "type": "relation", "truth": "yes"} for k in range(31, 61)]
    (root / "annotations.json").write_text(json.dumps(entries))
    (root / "relation.json").write_text(json.dumps(RELATION))
    (root / "safe_words.txt").write_text("")
    data = AmberData.load(root)
    with pytest.raises(InputError, match="pope"):
        read_responses(write(answer(*((k, "Yes.") for k in range(1, 31)))), data)
    caption = "The image features a dog on the beach beside several people who enjoy the sun. " * 2
    with pytest.raises(InputError, match="captions"):
        read_responses(write(answer(*((k, caption) for k in range(31, 61)))), data)


# --- similarity -----------------------------------------------------------------------------------------------------


def test_pairs_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    words = ["cat", "dog", "sky"]
    path.write_text(json.dumps({"pairs": [["cat", "dog", 0.81], ["dog", "sky", 0.8], ["cat", "sun"], ["sky", "sky"]]}))
    found = Similarity.load(str(path), words)
    assert found.near == {"cat": {"dog"}, "dog": {"cat"}}
    path.write_text(json.dumps([["dog", "cat"]]))
    assert Similarity.load(str(path), words) == found
    assert found.name.startswith("pairs@")
    assert Similarity.load("none", words) == Similarity()


@pytest.mark.parametrize("content", ['{"pairs": 1}', '[["a"]]', '["ab"]', '[["a", "b", "0.9"]]'])
def test_broken_pairs(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(content)
    with pytest.raises(InputError):
        Similarity.load(str(path), ["a", "b"])


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="python -m spacy download no_such_model"):
        Similarity.load("spacy:no_such_model", [])
    with pytest.raises(InputError, match="folder not found"):
        Similarity.load(f"spacy:{tmp_path / 'nowhere'}", [])


# --- tagging --------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """NLTK replaced by a tagger that calls every word a noun and remembers what it was asked."""
    from scapo_eval.benchmarks.amber import tagging

    asked: list[str] = []

    def nouns_of(text: str) -> list[str]:
        asked.append(text)
        return text.split()

    monkeypatch.setattr(tagging, "nouns_of", nouns_of)
    monkeypatch.setattr(tagging, "version", lambda package: "1.0")
    return asked


def test_texts_are_tagged_once(counted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "nouns.jsonl.gz"
    tagger = NltkNouns(cache_file=cache)
    seen: list[int] = []
    assert tagger.find_batch(["a dog", "a cat", "a dog"], seen.append) == [["a", "dog"], ["a", "cat"], ["a", "dog"]]
    assert tagger.find_batch(["a cat"]) == [["a", "cat"]]
    assert NltkNouns(cache_file=cache).find_batch(["a dog", "\ud83d"])[0] == ["a", "dog"]
    assert [text for text in counted if text != "two dogs"] == ["a dog", "a cat", "\ud83d"]
    assert seen == [5, 5]

    from scapo_eval.benchmarks.amber import tagging

    monkeypatch.setattr(tagging, "version", lambda package: "2.0")
    counted.clear()
    NltkNouns(cache_file=cache).find_batch(["a dog"])
    assert "a dog" in counted  # another NLTK may find other nouns


def test_a_cache_that_is_something_else(counted: list[str], tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": 1, "response": "A dog."}\n')
    with pytest.raises(InputError, match="noun"):
        NltkNouns(cache_file=path)
    assert "A dog." in path.read_text()


def test_without_nltk(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    from scapo_eval.benchmarks.amber import tagging

    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(tagging, "version", missing)
    with pytest.raises(MissingExtra, match=r"\[nltk\]"):
        NltkNouns()


@pytest.mark.skipif(importlib.util.find_spec("nltk") is None, reason="needs NLTK")
def test_without_nltk_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import nltk

    from scapo_eval.base import nltk_tools

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk_tools.tagger.cache_clear()  # another test may have loaded it
    with pytest.raises(InputError, match=r"nltk\.downloader punkt_tab"):
        NltkNouns(workers=1).find_batch(["Four words, never tagged."])


# --- command line ---------------------------------------------------------------------------------------------------


def test_two_systems(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("first", "A cat."), ("second", "A dog.")):
        (tmp_path / f"{name}.json").write_text(json.dumps(answer((1, text), (4, "No"), (5, "yes"))))
    paths = [str(tmp_path / f"{name}.json") for name in ("first", "second")]
    assert cli.main(["amber", *paths, "--data", str(folder), "--json"], standalone_mode=False) == 0
    found = json.loads(capsys.readouterr().out)
    assert [system["name"] for system in found["systems"]] == ["first", "second"]
    (chair,) = (row for row in found["comparisons"] if row["metric"] == "chair")
    assert (chair["difference"], chair["p_value"]) == (-1, None)


def test_few_events_are_those_of_all_kinds(data: AmberData, tmp_path: Path) -> None:
    path = tmp_path / "a.json"  # no wrong "no" about existence, but a wrong one about attributes and relations
    path.write_text(json.dumps(answer((4, "No"), (5, "No"), (6, "No"), (8, "No"), (9, "No"))))
    metrics = Amber(data).score(read_responses(path, data)).run.to_dict()["metrics"]
    events = {name: metrics[name]["events"] for name in ("precision", "f1", "existence_precision")}
    assert events == {"precision": 2, "f1": 0, "existence_precision": 0}


def test_the_verdicts_are_in_the_order_of_the_answers(data: AmberData, tmp_path: Path) -> None:
    """Checks that results files do not depend on Python's random hashes."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(answer((5, "No"), (4, "No"), (7, "No"))))
    verdicts = Amber(data).score(read_responses(path, data)).run.verdicts
    assert list(verdicts) == [
        "accuracy", "attribute_accuracy", "state_accuracy", "existence_accuracy", "number_accuracy",
    ]  # fmt: skip


def test_systems_with_different_items(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, number in (("first", 4), ("second", 5)):
        (tmp_path / f"{name}.json").write_text(json.dumps(answer((1, "A dog."), (number, "No"))))
    paths = [str(tmp_path / f"{name}.json") for name in ("first", "second")]
    assert cli.main(["amber", *paths, "--data", str(folder)], standalone_mode=False) == 0
    assert "second and first answer different items" in capsys.readouterr().err


def test_neither_nltk_nor_spacy_is_imported(folder: Path, tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "a.json").write_text(json.dumps(answer((1, "A dog."))))
    program = (
        "import sys; from scapo_eval.cli.main import cli\n"
        f"cli.main(['amber', {str(tmp_path / 'a.json')!r}, '--data', {str(folder)!r}, '-q'], standalone_mode=False)\n"
        "assert not {'nltk', 'spacy', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "chair" in done.stdout
