"""Ignore rules: templates, lists, included files, words that count only as heads, and what the rules do in captions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from scapo_eval import AliasMatcher, InputError, InputErrors, Vocabulary
from scapo_eval.cli.main import cli
from scapo_eval.matching.lint import difference, uses_of_rules
from scapo_eval.matching.rules import LIMIT, expand, parse_lists

LISTS = {"color": ["red", "dark green"], "wide": ["x"] * 200}


@pytest.mark.parametrize(
    ("template", "phrases"),
    [
        ("hot dog", ["hot dog"]),
        ("{red|green} light{|s}", ["red light", "red lights", "green light", "green lights"]),
        ("{color} and orange", ["red and orange", "dark green and orange"]),
        ("{|the }camera {|angle}", ["camera", "camera angle", "the camera", "the camera angle"]),
        ("{a|a} b", ["a b"]),
    ],
)
def test_what_a_template_stands_for(template: str, phrases: list[str]) -> None:
    assert expand(template, LISTS) == phrases


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{red|green light", "a brace without its partner"),
        ("red|green light", "a bar outside of braces"),
        ("red} light", "a brace without its partner"),
        ("{colour} light", "unknown list 'colour'; known: color, wide"),
        ("{wide} {a|b|c} {wide}", f"produces 120,000 phrases; at most {LIMIT:,}"),
    ],
)
def test_faulty_templates(template: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(template, LISTS)
    assert reason in str(caught.value)
    assert template in str(caught.value)


def test_a_list_may_use_those_before_it() -> None:
    assert parse_lists({"a": ["x", "y"], "b": ["{a}s", "z"]})["b"] == ["xs", "ys", "z"]


OWN = """
name: pets
labels: {dog: [dog, dogs], orange: [orange, oranges], cat: [cat, cats, house cat]}
ignore:
  - cat walk
  - {class: idiom, reason: No dog., phrases: ["dog {days|ear{}}"]}
include: shared.yaml
"""
SHARED = """
lists: {color: [red, green]}
ignore:
  - {class: color, reason: A color., phrases: ["{color} and orange", "{color} and cyan"]}
  - {class: other sense, reason: No animal., phrases: ["{house|hot} {cat|dog}"]}
heads: [orange, plum]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pets.yaml").write_text(OWN.replace("ear{}", "ear"))
    (tmp_path / "shared.yaml").write_text(SHARED)
    return tmp_path


def test_an_included_file_gives_what_concerns_the_vocabulary(folder: Path) -> None:
    pets = Vocabulary.load(folder / "pets.yaml")
    assert set(pets.ignore) == {
        *("cat walk", "dog days", "dog ear"),
        *("red and orange", "green and orange"),
        *("house dog", "hot cat", "hot dog"),  # "house cat" is an alias, which wins; no alias is in "red and cyan"
    }
    assert pets.heads == ("orange",)
    assert [(rule.kind, rule.reason) for rule in pets.rules] == [
        ("", ""),
        ("idiom", "No dog."),
        ("color", "A color."),
        ("other sense", "No animal."),
    ]
    again = Vocabulary.from_mapping(
        {label: pets.aliases_of(label) for label in pets.labels}, ignore=pets.ignore, heads=pets.heads
    )
    assert again.fingerprint == pets.fingerprint


COMPOUNDS = """
name: kit
labels: {ball: [ball, baseball], hat: [cap, caps], bottle: [bottle], water: [water], wall: [wall], bus: [bus, city bus]}
ignore:
  - {class: modifier, reason: The last words., names: last, phrases: ["baseball {cap{|s}|hoop}", brick wall, city bus]}
  - {class: modifier, reason: The first., names: first, phrases: ["{bottle|glass} of water"]}
  - baseball caps
""".replace("cap{|s}", "cap|caps")


def test_a_compound_is_what_its_head_is(tmp_path: Path) -> None:
    path = tmp_path / "kit.yaml"
    path.write_text(COMPOUNDS)
    kit = Vocabulary.load(path)
    assert kit.compounds == {"baseball cap": "hat", "brick wall": "wall", "bottle of water": "bottle"}
    assert set(kit.ignore) == {"baseball caps", "baseball hoop", "glass of water"}  # no label has a hoop or a glass
    assert len(kit.aliases) == 9
    text = "A baseball cap, a baseball hoop and a baseball-cap lie by a bottle of water on the brick wall; a city bus."
    found = [(mention.label, mention.surface) for mention in AliasMatcher(kit).find(text)]
    assert found == [
        *(("hat", "baseball cap"), ("hat", "baseball-cap"), ("bottle", "bottle of water")),
        *(("wall", "brick wall"), ("bus", "city bus")),
    ]
    assert AliasMatcher(kit).find_batch([text] * 2).label_id.tolist() == [kit.label_ids[to] for to, _ in found] * 2
    uses = {use.template: dict(use.matched) for use in uses_of_rules(kit, [text])}
    assert uses["brick wall"] == {"brick wall": 1}
    assert uses["baseball {cap|caps|hoop}"] == {"baseball cap": 1, "baseball-cap": 1, "baseball hoop": 1}


def test_compounds_count_for_identity_and_difference_and_are_written(tmp_path: Path) -> None:
    path = tmp_path / "kit.yaml"
    path.write_text(COMPOUNDS)
    kit = Vocabulary.load(path)
    (tmp_path / "again.json").write_text(json.dumps(kit.document()))
    again = Vocabulary.load(tmp_path / "again.json")
    assert (again.compounds, again.fingerprint) == (dict(kit.compounds), kit.fingerprint)
    path.write_text(COMPOUNDS.replace("names: first, ", ""))
    without = Vocabulary.load(path)
    assert without.fingerprint != kit.fingerprint
    changed = difference(without, kit)
    assert (changed.ignore_added, changed.ignore_removed) == (["bottle of water -> bottle"], ["bottle of water"])


def test_a_compound_has_to_name_a_label() -> None:
    with pytest.raises(InputErrors, match=r"compound 'dog house' refers to 'house', which is not a label"):
        Vocabulary.from_mapping({"dog": ["dog"]}, compounds={"dog house": "house"})


def test_a_malformed_alias_hides_no_malformed_compound() -> None:
    kit = COMPOUNDS.replace("ball: [ball,", "ball: ['-ball',").replace("brick wall", "brick wall-")
    with pytest.raises(InputErrors) as faults:
        Vocabulary.parse(kit.encode(), "kit.yaml")
    assert [fault.reason for fault in faults.value.errors] == [
        "label 'ball': alias '-ball' must begin and end with a letter or digit",
        "ignore phrase 'brick wall-' must begin and end with a letter or digit",
    ]


def test_a_head_is_a_modifier_where_a_noun_follows(folder: Path) -> None:
    matcher = AliasMatcher(Vocabulary.load(folder / "pets.yaml"), "visual")
    text = "An orange is by an orange cat in an orange hat."
    uses = [(mention.label, mention.start, mention.use) for mention in matcher.find(text)]
    assert uses == [
        ("orange", 3, "claim"),
        ("orange", 19, "modifier"),
        ("cat", 26, "claim"),
        ("orange", 36, "modifier"),
    ]
    assert matcher.find_batch([text, text]).start.tolist() == [3, 26, 3, 26]


@pytest.mark.parametrize(
    ("old", "new", "file", "reason"),
    [
        ('phrases: ["dog', 'phrase: ["dog', "pets", "unknown key 'phrase'; known: class, reason, names, phrases"),
        ("class: idiom", "class: joke", "pets", "unknown class 'joke'; known: brand, color"),
        ("include: shared", "heads: [fox]\ninclude: shared", "pets", "'heads' lists 'fox', which is not an alias"),
        ("{color} and orange", "{colors} and orange", "shared", "unknown list 'colors'"),
        ("lists: {color: [red, green]}", "lists: [red]", "shared", "'lists': expected names with lists of words"),
        ("heads: [orange, plum]", "heads: orange", "shared", "'heads': expected a list of aliases"),
        ("include: shared.yaml", "include: missing.yaml", "missing", "not found"),
    ],
)
def test_faults_name_their_file(folder: Path, old: str, new: str, file: str, reason: str) -> None:
    for path in folder.iterdir():
        path.write_text(path.read_text().replace(old, new))
    with pytest.raises((InputError, InputErrors)) as caught:
        Vocabulary.load(folder / "pets.yaml")
    assert f"{file}.yaml" in str(caught.value)
    assert reason in str(caught.value)


CAPTIONS = ["A hot dog and a Hot-Dog on a cat walk.", "An orange hat, green and orange; dogs."]


def test_what_each_template_matched(folder: Path) -> None:
    uses = uses_of_rules(Vocabulary.load(folder / "pets.yaml"), CAPTIONS)
    assert [(use.rule.kind, use.template, dict(use.matched)) for use in uses] == [
        ("", "cat walk", {"cat walk": 1}),
        ("idiom", "dog {days|ear}", {}),
        ("color", "{color} and orange", {"green and orange": 1}),
        ("other sense", "{house|hot} {cat|dog}", {"hot dog": 1, "hot-dog": 1}),
    ]


@pytest.mark.slow
def test_the_commands_know_rules_and_heads(folder: Path) -> None:
    pets, captions = str(folder / "pets.yaml"), folder / "captions.jsonl"
    captions.write_text("".join(json.dumps({"image_id": k, "caption": text}) + "\n" for k, text in enumerate(CAPTIONS)))
    run = CliRunner()
    checked = run.invoke(cli, ["vocab", "check", pets, "--captions", str(captions)]).output
    assert "other sense: No animal.\n      2  {house|hot} {cat|dog}  <- hot dog 1, hot-dog 1\n" in checked
    assert "      0  dog {days|ear}  <- matched nothing\n" in checked
    assert "1 of 4 templates matched nothing in 2 captions" in checked
    stats = json.loads(run.invoke(cli, ["vocab", "stats", pets, "--json"]).output)
    assert (stats["ignore"], stats["rules"], stats["heads"]) == (8, 4, 1)
    assert '"house cats"' in run.invoke(cli, ["vocab", "expand", pets]).output
    plain = Vocabulary.from_mapping({"dog": ["dog"]})
    assert difference(plain, Vocabulary.load(pets)).heads_added == ["orange"]
    (folder / "plain.yaml").write_text("labels: {dog: [dog]}\n")
    assert "+ head orange" in run.invoke(cli, ["vocab", "diff", str(folder / "plain.yaml"), pets]).output
