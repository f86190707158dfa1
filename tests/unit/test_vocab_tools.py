"""``scapo-eval vocab``: what check, diff, expand, mine and build say about small vocabularies."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from scapo_eval import InputError, InputErrors, Vocabulary
from scapo_eval.cli.main import cli
from scapo_eval.matching.lint import check, difference, inflector, plural_of, singular_of, uses_of_rules, variants
from scapo_eval.matching.mining import cluster, mine
from scapo_eval.matching.vocabulary import is_word_list

PETS = {"dog": ["dog", "dogs"], "cat": ["cat", "cats"]}


def kinds(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    return [(finding.kind, finding.subject) for finding in check(vocabulary)]


@pytest.mark.slow
def test_clean_vocabulary_has_no_findings() -> None:
    assert kinds(Vocabulary.from_mapping(PETS, ignore=["hot dog", "cat walk", "dog days"])) == []


def test_each_kind_of_finding() -> None:
    vocabulary = Vocabulary.from_mapping(
        {
            "shirt": ["t shirt", "t-shirt", "t shirts"],
            "umbrella": ["umbrella"],
            "orange": ["orange", "oranges"],
            "wine glass": ["wine glass", "wine glasses"],
            "glass of wine": ["glass wine", "glass wines"],
        }
    )
    assert ("duplicate", "t-shirt") in kinds(vocabulary)
    assert ("plural", "umbrella") in kinds(vocabulary)
    assert ("ambiguous", "orange") in kinds(vocabulary)
    assert ("similar", "wine glass / glass wine") in kinds(vocabulary)
    assert {kind for kind, _ in kinds(vocabulary)} == {"duplicate", "plural", "ambiguous", "similar"}


def test_reviewed_findings_are_silent() -> None:
    labels = {"umbrella": ["umbrella"], "orange": ["orange", "oranges"]}
    reviewed = {"plural": ["umbrella"], "ambiguous": ["orange"]}
    assert kinds(Vocabulary.from_mapping(labels, reviewed=reviewed)) == []


@pytest.mark.parametrize(
    ("alias", "plural"),
    [("snowman", "snowmen"), ("toddler boy", "toddler boys"), ("salesperson", "salespeople"), ("german", "germans")],
)
def test_missing_plurals_are_proposed(alias: str, plural: str) -> None:
    assert variants(Vocabulary.from_mapping({"x": [alias]})) == {"x": [plural]}


@pytest.mark.parametrize("alias", ["women", "schoolchildren", "passersby", "crowd of people", "fire crew staff"])
def test_plurals_and_phrases_need_none(alias: str) -> None:
    assert kinds(Vocabulary.from_mapping({"x": [alias]})) == []


def test_difference_names_every_change() -> None:
    old = Vocabulary.from_mapping({**PETS, "bird": ["bird"]}, ignore=["hot dog"])
    new = Vocabulary.from_mapping(
        {"dog": ["dog", "puppy", "cat"], "cat": ["cats"], "fish": ["fish"]}, ignore=["dogfish"]
    )
    changed = difference(old, new)
    assert (changed.labels_added, changed.labels_removed) == (["fish"], ["bird"])
    assert changed.aliases_added == [("fish", "fish"), ("puppy", "dog")]
    assert changed.aliases_removed == [("bird", "bird"), ("dogs", "dog")]
    assert changed.aliases_moved == [("cat", "cat", "dog")]
    assert (changed.ignore_added, changed.ignore_removed) == (["dogfish"], ["hot dog"])
    assert not difference(old, old)


def test_mine_counts_uncovered_nouns_and_keeps_examples() -> None:
    texts = [
        "A dog sits near a wooden fence.",
        "Two fences behind the dog.",
        "There is a fence.",
        "A hot dog on a plate.",
    ]
    found = mine(texts, Vocabulary.from_mapping(PETS, ignore=["hot dog"]), min_captions=1)
    by_phrase = {candidate.phrase: candidate for candidate in found}
    assert by_phrase["fence"].captions == 3
    assert dict(by_phrase["fence"].forms) == {"fence": 2, "fences": 1}
    assert by_phrase["plate"].captions == 1
    assert not {"dog", "hot dog"} & by_phrase.keys()
    assert found[0].phrase == "fence"
    assert "fence" in found[0].examples[0]


def test_mine_keeps_words_with_accents_whole() -> None:
    found = mine(["A piñata hangs near a crème brûlée."], Vocabulary.from_mapping(PETS), min_captions=1)
    assert [candidate.phrase for candidate in found] == ["brûlée", "crème brûlée", "piñata"]


def test_matches_of_rules_are_counted_in_displayed_text() -> None:
    vocabulary = Vocabulary.parse(b"labels: {dog: [dogs], umbrella: [umbrella]}\nignore: [piece of cake]", "mine")
    captions = ["Two dog&#115;, an um\u00adbrella and a pi<b></b>ece of\u00a0cake."]
    matched = sum((use.matched for use in uses_of_rules(vocabulary, captions)), Counter[str]())
    assert matched == {"piece of cake": 1}


def test_cluster_joins_forms_spellings_and_kinds() -> None:
    vocabulary = Vocabulary.from_mapping(PETS)
    texts = ["A fence and a picket fence.", "Some fences.", "A hair dryer.", "A hairdryer.", "A hairdryer here."]
    drafts = {draft.label: draft for draft in cluster(mine(texts, vocabulary, min_captions=1))}
    assert {"fence", "fences", "picket fence", "picket fences"} <= set(drafts["fence"].aliases)
    assert "hair dryer" in drafts["hairdryer"].aliases


@pytest.mark.parametrize(
    ("name", "content", "more"),
    [
        ("own.jsonl", '{"image_id": 1, "caption": "A gizmo near a fence."}', ()),
        ("texts.jsonl", '{"response": "A gizmo near a fence."}', ()),
        ("by_image.json", '{"1.jpg": "A gizmo near a fence."}', ()),
        ("table.csv", "image,text\n1.jpg,A gizmo near a fence.\n", ()),
        (
            "keys.jsonl",
            '{"pic": 1, "x": "A gizmo near a fence."}',
            ("--image-key", "pic", "--caption-key", "x"),
        ),
    ],
)
def test_mine_reads_captions_in_every_layout(tmp_path: Path, name: str, content: str, more: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(content + "\n")
    result = CliRunner().invoke(cli, ["vocab", "mine", str(tmp_path / name), "--min-captions", "1", *more])
    assert [json.loads(line)["phrase"] for line in result.stdout.splitlines()] == ["fence", "gizmo"]


@pytest.mark.parametrize(
    ("second", "reason"),
    [('{"text": "x"}', "missing key 'caption' or 'response' (found: text)"), ("[]", "expected a JSON object")],
)
def test_mine_names_the_line_of_a_record_without_text(tmp_path: Path, second: str, reason: str) -> None:
    (tmp_path / "r.jsonl").write_text('{"response": "A gizmo."}\n' + second + "\n")
    with pytest.raises((InputError, InputErrors), match=re.escape(f"r.jsonl:2: {reason}")):
        CliRunner().invoke(cli, ["vocab", "mine", str(tmp_path / "r.jsonl")], catch_exceptions=False)


def test_mine_and_build_make_a_vocabulary_that_loads(tmp_path: Path) -> None:
    rollouts, candidates, draft = (tmp_path / name for name in ("r.jsonl", "c.jsonl", "d.yaml"))
    rows = [{"image_id": k, "response": f'A red fence near the "no. {k}" sign.'} for k in range(6)]
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = CliRunner()
    mined = run.invoke(cli, ["vocab", "mine", str(rollouts), "-o", str(candidates)])
    assert mined.exit_code == 0, mined.output
    built = run.invoke(cli, ["vocab", "build", str(candidates), "-o", str(draft)])
    assert built.exit_code == 0, built.output
    assert "fence" in Vocabulary.load(draft).labels
    assert "6 captions" in draft.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "phrase", ["traffic\u0085light", "traffic\u2028light", "traffic: light", "no", "0x_", "2001-99-99"]
)
def test_build_reads_what_it_writes(tmp_path: Path, phrase: str) -> None:
    candidates, draft = tmp_path / "c.jsonl", tmp_path / "d.yaml"
    candidates.write_text(json.dumps({"phrase": phrase, "captions": 8, "forms": {phrase: 8}, "examples": []}) + "\n")
    built = CliRunner().invoke(cli, ["vocab", "build", str(candidates), "-o", str(draft)])
    assert built.exit_code == 0, built.output
    assert Vocabulary.load(draft).labels == (phrase,)


def test_fingerprint_ignores_comments_order_and_reviewed(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("name: x\nlabels:\n  dog: [dog, dogs]  # yes\n  cat: [cat]\nignore: [hot dog, cat walk]\n")
    two.write_text(
        "labels:\n  cat: {aliases: [cat]}\n  dog: [dogs, dog]\nignore: [cat-walk, hot dog]\nreviewed: {plural: [cat]}\n"
    )
    assert Vocabulary.load(one).fingerprint == Vocabulary.load(two).fingerprint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("labels:\n  dog: [dog]\n  dog: [dogs]\n", ":3: 'dog' appears twice (lines 2 and 3)"),
        ("labels:\n  dog: [no]\n", "'dog': False is not text; put it in quotes"),
        ("labels: [dog]\nignore: [hot dog]\n", "not a valid vocabulary"),
        ("labels:\n  dog: [dog\n", "not a valid YAML file"),
        ("labels:\n  dog: dog\n", "expected a list of aliases"),
        ("labels:\n  dog: [dog]\nsenses: 5\n", "'senses': expected a list, found 5"),
        ("labels:\n  dog: [dog]\nkin: [dog]\nkin_of: [dgo]\n", "'kin_of' lists 'dgo', which is not a label"),
    ],
)
def test_faulty_files_are_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"v\.yaml") as caught:
        Vocabulary.load(path)
    assert reason in str(caught.value)


def test_labels_of_any_spelling_have_a_fingerprint_and_long_names_are_unknown() -> None:
    label = "dog (animal)"  # not a valid alias
    words = Vocabulary.from_mapping({label: ["dog"]}, kin=["dog"], kin_of=[label])
    assert words.fingerprint != Vocabulary.from_mapping({label: ["dog"]}, kin=["dog"]).fingerprint
    with pytest.raises(InputError, match="unknown vocabulary 'dog, dog"):
        Vocabulary.load("dog, " * 100)
    with pytest.raises(InputError, match="1 is not text"):
        Vocabulary.from_mapping({1: ["dog"]})  # type: ignore[dict-item]


def test_word_lists_may_have_comments() -> None:
    assert is_word_list(b"# animals\ndog\n# more\ncat\n", "labels.txt")
    assert not is_word_list(b"labels:\n  dog: {aliases: [dogs]}\n", "labels.yaml")


def test_every_conflict_is_listed() -> None:
    with pytest.raises(InputErrors) as caught:
        Vocabulary.from_mapping({"a": ["x", "y", ""], "b": ["X", "z"], "c": []}, ignore=["y", "-"])
    text = str(caught.value)
    assert all(
        part in text
        for part in (
            "'x' belongs to 'a' and 'b'",
            "'y' of 'a' is also the ignore phrase",
            "is empty",
            "'c' has no alias",
        )
    )
    assert len(caught.value.errors) == 5


FORMS = {  # singular words in -s, and their plurals
    "bus": "buses", "glass": "glasses", "dress": "dresses", "canvas": "canvases", "cactus": "cactuses",
    "lens": "lenses", "grass": "grasses", "cross": "crosses", "mattress": "mattresses", "compass": "compasses",
    "press": "presses", "octopus": "octopuses", "walrus": "walruses", "hippopotamus": "hippopotamuses",
    "platypus": "platypuses", "rhinoceros": "rhinoceroses", "iris": "irises", "crocus": "crocuses", "lotus": "lotuses",
    "campus": "campuses", "circus": "circuses", "gas": "gases", "atlas": "atlases", "albatross": "albatrosses",
    "hourglass": "hourglasses", "abacus": "abacuses", "axis": "axes", "oasis": "oases", "thermos": "thermoses",
    "trellis": "trellises", "minibus": "minibuses", "waitress": "waitresses", "mantis": "mantises",
    "wine glass": "wine glasses", "bus stop": "bus stops", "necklace": "necklaces", "harness": "harnesses",
    "ski": "skis", "taxi": "taxis", "menu": "menus", "pizza": "pizzas", "sofa": "sofas", "photo": "photos",
    "vase": "vases", "horse": "horses", "knife": "knives", "kiwi": "kiwis", "plateau": "plateaus",
}  # fmt: skip
ONE_FORM = (
    "scissors pants jeans shorts trousers sunglasses binoculars tongs pliers tweezers tights pajamas goggles "
    "tennis chess species series news chassis headquarters debris asparagus"
).split()


def test_singular_words_in_s_have_the_right_plural() -> None:
    engine = inflector()
    assert {word: plural_of(engine, word) for word in FORMS} == FORMS
    last = {plural.split()[-1]: word.split()[-1] for word, plural in FORMS.items() if word not in ("axis", "oasis")}
    assert {plural: singular_of(engine, plural) for plural in last} == last
    assert {plural: plural_of(engine, plural) for plural in last} == dict.fromkeys(last)
    assert [word for word in [*map(str, last.values()), *ONE_FORM] if singular_of(engine, word) != word] == []
    assert [word for word in ONE_FORM if plural_of(engine, word)] == []
