"""CHAIR's parts, and the fast way held equal to the plain one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError, InputErrors, MissingExtra
from scapo_eval.benchmarks.chair import BENCHMARK, Native, Opera, Reference, Synonyms, score_chair
from scapo_eval.benchmarks.chair.profiles import ObjectColumns, word_counts
from scapo_eval.benchmarks.chair.singular import (
    ENDINGS,
    IRREGULAR,
    PLURALS_IN_IES,
    PREPOSITIONS,
    UNCHANGED,
    singularize,
)
from scapo_eval.benchmarks.chair.synonyms import DOUBLE_WORDS, WordReader
from scapo_eval.benchmarks.chair.tokens import sentence_tokens, split_chunk, tokens
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.cli.verbs import command_of
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.truths.oracle import PresenceOracle

WORDS = {
    "person": ["person", "man", "baby", "people"],
    "dog": ["dog", "puppy"],
    "bird": ["bird"],
    "bus": ["bus"],
    "tie": ["tie", "bow", "bow tie"],
    "knife": ["knife", "knive"],
    "wine glass": ["wine glass"],
    "hot dog": ["hot dog"],
    "traffic light": ["traffic light", "street light"],
    "train": ["train"],
    "toilet": ["toilet"],
    "chair": ["chair", "seat"],
    "cake": ["cake", " cheesecake"],
    "cell phone": ["cell phone", "iPhone", "phone"],
    "dining table": ["dining table", "table"],
}
SYNONYMS = Synonyms("test", {word: node for node, words in WORDS.items() for word in words})


def _plain() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "chair_plain.py"
    spec = importlib.util.spec_from_file_location("chair_plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = _plain()


def objects(profile: Reference | Native, *captions: str) -> list[list[str]]:
    found = profile.find_batch(captions)
    labels = profile.vocabulary.labels
    return [[labels[k] for k in found.label_id[found.row(i)].tolist()] for i in range(len(captions))]


def reference(*captions: str) -> list[list[str]]:
    return objects(Reference(SYNONYMS), *captions)


# --- singular forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dogs", "dog"), ("dog", "dog"), ("glasses", "glass"), ("glass", "glas"), ("bus", "bu"), ("buses", "bus"),
        ("men", "man"), ("women", "woman"), ("hour", "hmy"), ("knives", "knife"), ("gloves", "glove"),
        ("ties", "ty"), ("cookies", "cookies"), ("canoes", "cano"), ("shoes", "shoe"), ("benches", "bench"),
        ("babies", "baby"), ("scissors", "scissors"), ("ears", "ears"), ("oxenen", "oxen"), ("taxi", "taxi"),
        ("cacti", "cactus"), ("mice", "mouse"), ("police", "polouse"), ("dogs'", "dog's"), ("'s", "'"),
        ("iPhones", "iPhone"), ("passers-by", "passer-by"), ("hot-dogs", "hot-dog"), ("s", "s"), ("", ""),
        ("movies", "movie"), ("data", "datum"), ("roses", "rose"), ("bases", "basis"), ("curves", "curf"),
    ],
)  # fmt: skip
def test_singularize(word: str, expected: str) -> None:
    assert singularize(word) == expected
    assert PLAIN.singularize(word) == expected


STEMS = st.text("abcdefghilmnoprstuvwxy'-é|", max_size=5)
ENDS = st.sampled_from(
    [
        "",
        "s",
        "es",
        "ies",
        "ves",
        "ses",
        "oses",
        "ae",
        "ia",
        "ta",
        "i",
        "ice",
        "ices",
        "itis",
        "eaux",
        "oxen",
        "-in-",
        "'",
    ]
    + [*UNCHANGED, *PLURALS_IN_IES, *IRREGULAR, *sorted(PREPOSITIONS)[:5]]
)


@given(st.builds(str.__add__, STEMS, ENDS))
def test_singularize_equals_its_linear_search(word: str) -> None:
    assert singularize(word) == PLAIN.singularize(word)


def test_no_entry_of_the_lists_is_idle() -> None:
    """Each listed word is treated otherwise than the endings alone would treat it."""
    import re

    def by_endings(word: str) -> str:
        for ending, cut, add in ENDINGS:
            if re.search(f"(?:{ending})$", word):
                return word[: len(word) - cut] + add
        return word

    tails = [[word[k:] for k in range(len(word))] for word in UNCHANGED]
    assert all(any(by_endings(tail) != tail for tail in word) for word in tails)
    assert all(by_endings(word) != word for word in PLURALS_IN_IES)
    assert all(by_endings(word) != singular for word, singular in IRREGULAR.items())


# --- tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog. the cat", ["a", "dog", ".", "the", "cat"]),
        ("a dog.", ["a", "dog", "."]),
        ("a dog.) the", ["a", "dog", ".", ")", "the"]),
        ('a "dog." the', ["a", '"', "dog", ".", '"', "the"]),
        ("a dog.” the cat.”", ["a", "dog.", "”", "the", "cat", ".", "”"]),  # only the text's end closes with ”
        ("a dog., the", ["a", "dog.", ",", "the"]),
        ("a dog... the", ["a", "dog", "...", "the"]),
        ("what?! no", ["what", "?", "!", "no"]),
        ("dog.the 3.5 1,000 3:30 a:b", ["dog.the", "3.5", "1,000", "3:30", "a", ":", "b"]),
        ("the dog's and dogs' don't we'll", ["the", "dog", "'s", "and", "dogs", "'", "do", "n't", "we", "'ll"]),
        ("the dog's\nbed", ["the", "dog's", "bed"]),
        ("the dog’s", ["the", "dog", "’", "s"]),
        ("'dog' cannot", ["'dog", "'", "can", "not"]),
        ("hot-dog/cat dog--cat dog—cat", ["hot-dog/cat", "dog", "--", "cat", "dog—cat"]),
        ("**dog** [cat] #1 50%", ["*", "*", "dog", "*", "*", "[", "cat", "]", "#", "1", "50", "%"]),
        ("the 3. dog b. u.s. army", ["the", "3.", "dog", "b.", "u.s.", "army"]),
        ("dog,,cat", ["dog", ",", ",cat"]),
        ("   ", []),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_sentence_tokens_write_quotes_as_nltk_does() -> None:
    assert sentence_tokens('"a dog," he said ("no").') == [
        "``", "a", "dog", ",", "''", "he", "said", "(", "``", "no", "''", ")", "."
    ]  # fmt: skip
    assert sentence_tokens("mr. dog. sat.") == ["mr.", "dog.", "sat", "."]


@given(st.text("ab.,:;'\"()!?-* \n3", max_size=30))
def test_tokens_lose_nothing_but_white_space(text: str) -> None:
    assert "".join(tokens(text)) == "".join(text.split())


def test_split_chunk_depends_on_what_follows() -> None:
    assert split_chunk("dog's") == ["dog", "'s"]
    assert split_chunk("dog's", spaced=False) == ["dog's"]
    assert split_chunk("dog.»") == ["dog.", "»"]
    assert split_chunk("dog.»", last=True) == ["dog", ".", "»"]


# --- word lists -------------------------------------------------------------------------------------------


def test_double_words() -> None:
    assert len(DOUBLE_WORDS) == 55
    assert DOUBLE_WORDS["baby bird"] == "bird"
    assert DOUBLE_WORDS["passenger train"] == "train"
    assert DOUBLE_WORDS["wine glas"] == "wine glass"


def test_synonyms_are_read_as_the_script_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "synonyms.txt"
    path.write_bytes("\ufeffcake,  cheesecake, pancake \r\n\r\ntie, bow, bow tie, bow\n".encode())
    synonyms = Synonyms.load(path)
    assert synonyms.words == {
        "cake": "cake", " cheesecake": "cake", "pancake": "cake", "tie": "tie", "bow": "tie", "bow tie": "tie"
    }  # fmt: skip
    assert synonyms.vocabulary.labels == ("cake", "tie")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no synonyms: the file is empty"),
        (b"person,girl,boy\n", "synonyms.txt:1: expected words separated by a comma and a space"),
        (b'dog, puppy\n{"person": ["girl"]}\n', "synonyms.txt:2: expected words"),
        (b"dog, \xff\n", "synonyms.txt:1: not UTF-8"),
    ],
)
def test_other_files_are_no_synonyms(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "synonyms.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        Synonyms.load(path)


def test_fingerprint_of_synonyms_is_their_content() -> None:
    turned = Synonyms("other", dict(reversed(list(SYNONYMS.words.items()))))
    assert turned.fingerprint == SYNONYMS.fingerprint
    assert Synonyms("other", {**SYNONYMS.words, "pup": "dog"}).fingerprint != SYNONYMS.fingerprint


# --- the reference profile --------------------------------------------------------------------------------


def test_reference_reads_as_the_script_does() -> None:
    assert reference("Two men and a DOG near the dogs' table.") == [["person", "dog", "dog", "dining table"]]
    assert reference("a bus and buses") == [["bus"]]
    assert reference("hot dogs, a hot, dog and a hot-dog") == [["hot dog", "dog"]]
    assert reference("a baby bird, a baby") == [["bird", "person"]]
    assert reference("a baby hot dog") == [["person", "hot dog"]]
    assert reference("wine glasses and a wine glass") == [["wine glass", "wine glass"]]
    assert reference("a bow tie, ties, a tie") == [["tie", "tie"]]
    assert reference("an iPhone and a cheesecake") == [[]]


def test_seats_vanish_where_there_is_a_toilet() -> None:
    assert reference("a seat", "the seat of the toilet, a chair", "a toilet seat and a seat") == [
        ["chair"], ["toilet", "chair"], ["toilet"]
    ]  # fmt: skip


def test_pairs_are_merged_from_the_left() -> None:
    assert reference("adult baby dog") == [["dog"]]
    assert reference("hot dog dog", "hot hot dog") == [["hot dog", "dog"], ["hot dog"]]


def test_length_counts_merged_pairs_once() -> None:
    found = Reference(SYNONYMS).find_batch(["Two hot dogs.", "", "a seat, a toilet"])
    assert found.lengths.tolist() == [3, 0, 5]


PIECES = st.sampled_from(
    [*SYNONYMS.words, *(word for pair in DOUBLE_WORDS for word in pair.split())]
    + ["dogs", "men", "people", "knives", "glasses", "glas", "seats", "x", "The", "İ", "'s", "n't", "'", '"', "’", "—"]
    + [".", ",", "...", "--", "!", ")", "(", "3", "s", "\n", "\t", "\xa0", " ", " ", " ", " ", " ", " "]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_reference_equals_the_plain_loops(caption: str) -> None:
    plain = PLAIN.PlainChair(SYNONYMS, {}, tokens)
    found = Reference(SYNONYMS).find_batch([caption, caption])
    labels = SYNONYMS.vocabulary.labels
    for row in range(2):  # the second time from the table
        words = [labels[k] for k in found.label_id[found.row(row)].tolist()]
        assert (words, found.lengths[row]) == plain.objects(caption)


def test_a_reader_keeps_words_without_meaning_for_the_length() -> None:
    reader = WordReader(SYNONYMS)
    assert reader.read(reader.encode(["a", "hot", "dog", "."])) == ([SYNONYMS.vocabulary.label_ids["hot dog"]], 3)


# --- native, opera ----------------------------------------------------------------------------------------

NATIVE = Native(Vocabulary.from_mapping({"dog": ["dog", "dogs"], "hot dog": ["hot dog"], "bus": ["bus"]}))


def test_native_uses_the_projects_matcher() -> None:
    assert objects(NATIVE, "A bus, dogs and a hot-dog.") == [["bus", "dog", "hot dog"]]


@given(st.lists(st.text("ab .\n\t\x1c\x85\xa0\u3000é😀\ud800", max_size=12), max_size=5))
def test_word_counts_equal_split(texts: list[str]) -> None:
    assert word_counts(texts).tolist() == [len(text.split()) for text in texts]


def test_opera_without_nltk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[nltk\]"):
        Opera(SYNONYMS)


def test_opera_without_data_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk")

    def lacking(text: str) -> list[str]:
        raise LookupError("Resource punkt_tab not found")

    monkeypatch.setattr(nltk, "sent_tokenize", lacking)
    with pytest.raises(InputError, match=r"punkt_tab.*nltk\.downloader.*NLTK_DATA"):
        Opera(SYNONYMS)


# --- counts and figures -----------------------------------------------------------------------------------


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    return write(
        tmp_path / "captions.jsonl",
        [
            {"image_id": 1, "caption": "A dog, a dog and a bird."},
            {"image_id": "COCO_val2014_000000000002.jpg", "caption": "Nothing here."},
            {"image_id": "2", "caption": "A man on a seat, the toilet."},
        ],
    )


TRUTH = PresenceOracle.from_objects({1: ["dog", "person"], 2: ["person"]})


def test_counts_and_figures(captions: Path) -> None:
    run = score_chair(captions, Reference(SYNONYMS), TRUTH)
    counts = run.table.counts()
    assert (counts["captions"], counts["hallucinated_captions"]) == (3, 2)
    assert (counts["mentions"], counts["hallucinated_mentions"]) == (5, 2)
    assert (counts["covered"], counts["truth"], counts["generated"], counts["hallucinated"]) == (2, 4, 4, 2)
    assert run.values == {
        "chair_s": 2 / 3, "chair_i": 2 / 5, "recall": 1 / 2, "precision": 1 / 2, "f1": 1 / 2,
        "len": (9 + 3 + 9) / 3, "hal_rate": 1 / 2,
    }  # fmt: skip
    assert run.printed == {"chair_s": 66.7, "chair_i": 40.0, "recall": 50.0}
    assert run.table.image_ids == ("1", "2")
    assert "|profile:reference|synonyms:" in run.signature


def test_no_object_means_no_value(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", [{"image_id": 3, "caption": ""}])
    run = score_chair(path, Reference(SYNONYMS), PresenceOracle.from_objects({3: [], 4: ["dog"]}))
    assert run.values == {
        "chair_s": 0.0, "chair_i": None, "recall": None, "precision": None, "f1": None, "len": 0.0, "hal_rate": None
    }  # fmt: skip
    assert run.printed == {"chair_s": 0.0}


def test_unknown_cells_count_nowhere(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", [{"image_id": 1, "caption": "a dog and a bus and buses"}])
    truth = PresenceOracle.from_objects({1: ["dog"]}, labels=["dog"])
    counts = score_chair(path, NATIVE, truth).table.counts()
    assert (counts["mentions"], counts["hallucinated_mentions"], counts["unknown"]) == (1, 0, 1)


def test_unknown_images_stop_or_are_counted(captions: Path) -> None:
    truth = PresenceOracle.from_objects({2: ["person"]})
    with pytest.raises(InputErrors, match=r"captions.jsonl:1: unknown image id '1'"):
        score_chair(captions, Reference(SYNONYMS), truth)
    run = score_chair(captions, Reference(SYNONYMS), truth, ScoringOptions(on_unknown_image="skip"))
    assert run.n_records == 2
    assert run.other_counts == {"skipped": 0, "unknown_images": 1}
    assert "|skip:1|" in run.signature


def test_faulty_lines_stop_or_are_counted(captions: Path) -> None:
    with captions.open("a") as stream:
        stream.write('{"image_id": 1}\n')
    with pytest.raises(InputErrors, match=r"captions.jsonl:4: missing key 'caption'"):
        score_chair(captions, Reference(SYNONYMS), TRUTH)
    assert score_chair(captions, Reference(SYNONYMS), TRUTH, ScoringOptions(skip_bad=True)).counts["skipped"] == 1


def test_columns_of_no_captions() -> None:
    empty = ObjectColumns.of_words([])
    assert len(empty) == 0
    assert empty.lengths.tolist() == []


# --- command line -----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, captions: Path) -> list[str]:
    synonyms = tmp_path / "synonyms.txt"
    synonyms.write_text("\n".join(", ".join(words) for words in WORDS.values()))
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({"1": ["dog", "person"], "2": ["person"]}))
    return [str(captions), "--truth", str(truth), "--synonyms", str(synonyms)]


def test_command_prints_the_results_object(files: list[str], tmp_path: Path) -> None:
    lists = tmp_path / "lists.jsonl"
    run = CliRunner().invoke(
        command_of(BENCHMARK),
        [*files, "--profile", "reference", "--json", "--per-caption", str(lists)],
        standalone_mode=False,
    )
    assert run.exception is None
    (system,) = json.loads(run.stdout)["systems"]
    assert system["name"] == "captions"
    assert list(system["metrics"]) == ["chair_s", "chair_i", "recall", "precision", "f1", "len", "hal_rate"]
    assert system["metrics"]["chair_i"]["value"] == 2 / 5
    records = [json.loads(line) for line in lists.read_text().splitlines()]
    assert [(r["image_id"], r["generated"], r["hallucinated"], r["missed"]) for r in records] == [
        ("1", ["dog", "dog", "bird"], ["bird"], ["person"]),
        ("2", [], [], ["person"]),
        ("2", ["person", "toilet"], ["toilet"], []),
    ]


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (["--profile", "native"], "synonyms require"),
        (["--profile", "opera", "--vocabulary", "coco80"], "a vocabulary requires"),
    ],
)
def test_options_of_another_profile_are_refused(files: list[str], extra: list[str], reason: str) -> None:
    run = CliRunner().invoke(command_of(BENCHMARK), [*files, *extra])
    assert isinstance(run.exception, InputError)
    assert reason in str(run.exception)


def test_chairs_own_words_come_along(files: list[str]) -> None:
    run = CliRunner().invoke(command_of(BENCHMARK), [*files[:3], "--profile", "reference", "--json"])
    assert "|profile:reference|synonyms:df6224a3|" in json.loads(run.stdout)["systems"][0]["signature"]
    words = Synonyms.shipped()
    assert (len(words.vocabulary.labels), words.words["puppy"], words.words["taxi"]) == (80, "dog", "car")
