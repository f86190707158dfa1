"""Prompts for judges: what they say, and how strictly their answers are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.annotate.prompt_lint import lint
from scapo_eval.annotate.prompts import SHIPPED, LabelPrompt, Template, known_groups, read_verdicts
from scapo_eval.annotate.refine import prompts_for
from scapo_eval.base.errors import InputError
from scapo_eval.engines import Sampling
from scapo_eval.matching.vocabulary import LabelInfo, Vocabulary

DOPA = Vocabulary.load("dopa160")
SMALL = Vocabulary.from_mapping(
    {
        "chair": ["chair", "chairs", "stool", "stools", "armchair", "armchairs"],
        "bench": ["bench", "benches", "pew", "pews"],
    },
    info={"chair": LabelInfo("A seat for one. Not benches.")},
)

PUBLISHED_COARSE = """=== SYSTEM ===
You are a verifier.

=== USER ===
Entity: {object}

Rules:
- Return "supported" if the entity is visible.
- Do not count a related object, subtype, parent class, or text mention
  unless the entity is visible.

Output exactly this JSON schema:
{"verification": "supported" or "unsupported"}
"""
PUBLISHED_LABEL = """=== USER ===
Is the label "chair" visible?

Do not count:
- benches, or armchairs of any kind.

Output:
{"chair": {"verification": "supported" or "unsupported", "evidence": "short or empty"}}
"""


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"present": true}', 1),
        (' {"present":false}\n', 0),
        ('```json\n{"present": true}\n```', 1),
        ('<think>{"present": false}? no.</think>\n\n{"present": true}', 1),
        ('{"verification": "supported"}', 1),
        ('{"verification": "unsupported", "evidence": "none"}', 0),
        ('{"verification": "unsure"}', 0),
        ('{"chair": true}', 1),
        ('{"chair": {"present": false}}', 0),
        ('{"chair": {"verification": "Supported", "evidence": "four legs"}}', 1),
        ("", None),
        ("yes", None),
        ("true", None),
        ("[true]", None),
        ("Sorry, I cannot help with that.", None),
        ('Sure: {"present": true}', None),
        ('{"present": true} {"present": false}', None),
        ('{"present": true, "present": false}', None),
        ('{"present": true, "verification": "supported"}', None),
        ('{"present": true, "absent": false}', None),
        ('{"bench": true}', None),
        ('{"chair": true, "bench": true}', None),
        ('{"chair": {"bench": true}}', None),
        ('{"present": "true"}', None),
        ('{"present": 1}', None),
        ('{"present": null}', None),
        ('{"present": {"present": true}}', None),
        ('{"verification": "supported or unsupported"}', None),
        ('{"evidence": "a chair"}', None),
        ("{}", None),
        ('{"present": tr', None),
        ("[" * 100_000, None),
    ],
)
def test_one_verdict_or_none(text: str, verdict: int | None) -> None:
    assert read_verdicts(text, ("chair",)) == (None if verdict is None else (verdict,))


def test_one_verdict_for_each_label_of_a_call() -> None:
    pair = ("knife", "fork")
    assert read_verdicts('{"fork": false, "knife": true}', pair) == (1, 0)
    assert read_verdicts('{"knife": {"verification": "supported"}, "fork": {"present": false}}', pair) == (1, 0)
    for text in (
        '{"knife": true}', '{"knife": true, "fork": false, "spoon": true}', '{"knife": true, "fork": null}',
        '{"present": true}', '{"knife": true, "fork": true, "fork": false}',
    ):  # fmt: skip
        assert read_verdicts(text, pair) is None


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    assert read_verdicts(text, ("chair",)) in (None, (0,), (1,))


def test_the_projects_prompts_say_what_the_protocol_asks() -> None:
    for name in SHIPPED:
        labels = ["chair", "bench"] if name in ("coarse_many", "joint") else ["chair"]
        prompt = Template.shipped(name).prompt("coarse", labels, DOPA)
        text = f"{prompt.system}\n{prompt.user}"
        assert "stool" in text  # what captions call a chair, the judge must count
        assert DOPA.info["chair"].definition in text
        assert "not sure" in text
        assert "JSON" in text
        assert "{" not in prompt.user.split("nswer with")[0]  # no field is left open
    coarse = Template.shipped("coarse").prompt("coarse", ["picture"], DOPA).user
    for rule in ("not itself a picture", "Clothing", "Regions of a scene", "small or distant", "recognise"):
        assert rule in coarse
    joint = Template.shipped("joint").prompt("joint", ["knife", "fork"], DOPA).user
    assert "tines" in joint  # the pair's own hint
    assert "one undivided seat" not in joint
    assert ("knife", "fork") in known_groups(DOPA)


def test_the_answers_form_follows_the_prompts_text() -> None:
    def of(text: str, *labels: str) -> LabelPrompt:
        return Template.of("own", text).prompt("label", labels, SMALL)

    own = of("Is there a {object}?", "chair")
    assert own.schema["required"] == ["present"]
    assert own.system == ""
    assert [turn.role for turn in own.request("x.png", Sampling()).turns] == ["user"]
    coarse = of(PUBLISHED_COARSE, "chair")
    assert coarse.system == "You are a verifier."
    assert "Entity: chair" in coarse.user
    assert '{"verification": "supported" or "unsupported"}' in coarse.user
    assert coarse.schema["properties"]["verification"]["enum"] == ["supported", "unsupported"]
    request = coarse.request("x.png", Sampling())
    assert [(turn.role, turn.images) for turn in request.turns] == [("system", ()), ("user", ("x.png",))]
    assert request.schema == coarse.schema
    label = of(PUBLISHED_LABEL, "chair")
    assert list(label.schema["properties"]["chair"]["properties"]) == ["verification", "evidence"]
    joint = of("{definitions} {answer}", "chair", "bench")
    assert joint.schema["properties"] == {"chair": {"type": "boolean"}, "bench": {"type": "boolean"}}
    assert '{"chair": true or false, "bench": true or false}' in joint.user
    assert joint.schema["additionalProperties"] is False


def test_a_prompts_identity_changes_with_every_character() -> None:
    def identity(text: str, vocabulary: Vocabulary = SMALL) -> str:
        return Template.of("coarse", text).prompt("coarse", ["chair"], vocabulary).id

    other = Vocabulary.from_mapping({"chair": ["chair"]}, info={"chair": LabelInfo("Another definition.")})
    texts = [
        "{object}: {definition}",
        "{object}: {definition}!",
        "=== SYSTEM ===\nX\n=== USER ===\n{object}: {definition}",
    ]
    assert len({*map(identity, texts), identity(texts[0], other)}) == 4
    assert identity(texts[0]) == identity(texts[0])
    assert identity(texts[0]).startswith("coarse@")


def test_bad_prompt_files(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    for content, reason in (
        (b"", "the prompt is empty"),
        (b"=== SYSTEM ===\nonly this", "no text for the user's turn"),
        (b"caf\xe9", "not a valid UTF-8 text"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=reason):
            Template.read(file, "coarse")
    file.write_text("Is it there?")
    with pytest.raises(InputError, match=r"prompt\.txt: the prompt does not contain the label 'chair'"):
        Template.read(file, "coarse").prompt("coarse", ["chair"], SMALL)
    with pytest.raises(InputError, match="file not found"):
        Template.read(tmp_path / "none.txt", "coarse")


def test_refinements_name_each_label_once(tmp_path: Path) -> None:
    file = tmp_path / "chair.txt"
    file.write_text("Count chairs.")
    found = prompts_for(DOPA, ["book"], own={"chair": str(file)}, groups={("knife", "fork"): None})
    assert [(each.kind, each.labels) for each in found] == [
        ("label", ("book",)), ("label", ("chair",)), ("joint", ("knife", "fork")),
    ]  # fmt: skip
    assert found[1].user == "Count chairs."
    with pytest.raises(InputError, match="unknown label 'sofa'"):
        prompts_for(DOPA, ["sofa"], own={}, groups={})
    with pytest.raises(InputError, match="two prompts ask about 'knife'"):
        prompts_for(DOPA, ["knife"], own={}, groups={("knife", "fork"): None})
    with pytest.raises(InputError, match="at least two labels"):
        prompts_for(DOPA, [], own={}, groups={("knife",): None})


def findings(template: str, vocabulary: Vocabulary = SMALL, *labels: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """What lint says of a template."""
    kind = "coarse" if "{object}" in template else "label"
    prompt = Template.of("own", template).prompt(kind, labels or ("chair",), vocabulary)  # type: ignore[arg-type]
    return [(each.kind, each.label, each.aliases) for each in lint([prompt], vocabulary)]


def test_lint_finds_what_the_alias_map_contradicts() -> None:
    assert findings(PUBLISHED_COARSE) == [("subtype", "chair", ("stool", "armchair"))]
    assert findings(PUBLISHED_COARSE.replace("Entity: {object}", "Entity: {object}, also a stool or armchair")) == []
    assert findings(PUBLISHED_LABEL) == [
        ("excluded", "chair", ("armchair", "armchairs")),
        ("unnamed", "chair", ("stool",)),
    ]
    assert findings("A chair, armchair or stool. Not stools used as tables.") == [
        ("both", "chair", ("stool", "stools"))
    ]
    assert findings("A chair, armchair or stool. Do not count furniture unless it is a stool.") == []
    text = (
        "1. chair: chairs, stools, armchairs.\n2. bench: benches, pews.\n- For bench: do not count armchairs.\n{answer}"
    )
    assert findings(text, SMALL, "chair", "bench") == []
    assert findings(text.replace("For bench", "For chair"), SMALL, "chair", "bench") == [
        ("both", "chair", ("armchair", "armchairs"))
    ]


@pytest.mark.slow
def test_the_projects_own_prompts_count_every_alias() -> None:
    prompts = [Template.shipped("coarse").prompt("coarse", [label], DOPA) for label in DOPA.labels]
    prompts += prompts_for(DOPA, DOPA.labels, own={}, groups={})
    prompts += [
        prompt for group in known_groups(DOPA) for prompt in prompts_for(DOPA, [], own={}, groups={group: None})
    ]
    assert {finding.kind for finding in lint(prompts, DOPA)} <= {"both"}


def test_lint_of_the_published_prompts(shared: Path) -> None:
    paper = (shared / "paper" / "scapo_paper.tex").read_text()
    coarse, book, joint = (part.split("]\n", 1)[1].split("\\end{Verbatim}")[0] for part in paper.split("\\begin{Verbatim}")[1:4])  # fmt: skip # noqa: E501
    prompt = Template.of("coarse", coarse).prompt("coarse", ["chair"], DOPA)
    (found,) = lint([prompt], DOPA)
    assert (found.kind, found.label) == ("subtype", "chair")
    assert "stool" in found.aliases
    assert prompt.schema["properties"]["verification"]["enum"] == ["supported", "unsupported"]
    assert Template.of("book", book).prompt("label", ["book"], DOPA).schema["required"] == ["book"]
    both = Template.of("joint", joint).prompt("joint", ["chair", "bench"], DOPA)
    assert both.schema["required"] == ["chair", "bench"]
    assert {"chair": "both"}.items() <= {
        each.label: each.kind for each in lint([both], DOPA) if each.kind == "both"
    }.items()


def test_the_papers_texts_are_word_by_word(shared: Path) -> None:
    appendix = (shared / "paper" / "scapo_paper.tex").read_text()
    printed = re.findall(r"\\begin\{Verbatim\}\[[^\]]*\]\n(.*?)\\end\{Verbatim\}", appendix, re.DOTALL)
    for name, text in zip(("coarse", "book", "chair_bench"), printed, strict=False):
        assert Template.published(name) == Template.of(f"paper_{name}", text, f"templates/paper/{name}.txt")


def test_the_papers_texts_ask_and_are_read() -> None:
    coarse = Template.published("coarse").prompt("coarse", ["dog"], DOPA)
    assert "Entity: dog\n" in coarse.user
    assert coarse.schema["required"] == ["verification"]
    book, both = prompts_for(DOPA, ["book"], own={}, groups={("chair", "bench"): None}, published=True)
    assert (book.name, both.name) == ("paper_book", "paper_chair_bench")
    assert book.read('{"book": {"verification": "supported", "evidence": "spines"}}') == (1,)
    said = '{"chair": {"verification": "supported", "evidence": ""}, "bench": {"verification": "unsupported"}}'
    assert both.read(said) == (1, 0)
    for labels, groups in ((["dog"], {}), ([], {("knife", "fork"): None})):
        with pytest.raises(InputError, match=r"the paper contains no prompt for .*only for book; chair, bench"):
            prompts_for(DOPA, labels, own={}, groups=groups, published=True)
