"""Claims beyond presence: the cues' own examples, one text against many, spans and keys."""

from __future__ import annotations

import pickle
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError
from scapo_eval.claiming import tokens
from scapo_eval.claiming.claim import KINDS, count_range
from scapo_eval.claiming.cues import ClaimCue, shipped_claim_cues
from scapo_eval.claiming.extract import ClaimExtractor

EXTRACTOR = ClaimExtractor("open400")
COUNTS = ClaimExtractor("open400", kinds=("presence", "count"))
ATTRIBUTES = ClaimExtractor("open400", kinds=("attribute",))
CUES = shipped_claim_cues().cues
GROUP_KIND = {
    "counts": "count",
    "numbers": "count",
    "collections": "count",
    "attributes": "attribute",
    "doing": "attribute",
    "posed": "attribute",
    "written": "text",
}
MARKS = re.compile(r"[\[\]{}]")


def said(cue: ClaimCue, text: str) -> list[tuple[int, int]]:
    kind = GROUP_KIND.get(cue.group, "relation")
    return [
        (c.start, c.end)
        for c in EXTRACTOR.find(text)
        if c.kind == kind and c.category == cue.category and (not cue.value or c.value == cue.value or kind == "count")
    ]


def places(marked: str, opening: str, closing: str) -> list[tuple[int, int]]:
    found, clean, begin = [], 0, 0
    for character in marked:
        if character == opening:
            begin = clean
        elif character == closing:
            found.append((begin, clean))
        clean += character not in "[]{}"
    return found


@pytest.mark.parametrize(("cue", "marked"), [(cue, text) for cue in CUES for text in cue.holds], ids=str)
def test_a_cue_reads_its_examples(cue: ClaimCue, marked: str) -> None:
    text = MARKS.sub("", marked)
    spans = places(marked, "{", "}")
    claims = [c for c in EXTRACTOR.find(text) if (c.start, c.end) in spans and c.category == cue.category]
    assert [(c.start, c.end) for c in claims] == spans, EXTRACTOR.find(text)
    assert all(sorted((m.start, m.end) for m in c.mentions) == places(marked, "[", "]") for c in claims)
    assert all(c.kind == GROUP_KIND.get(cue.group, "relation") for c in claims)
    if cue.value and cue.group != "counts":
        assert {c.value for c in claims} == {cue.value}


@pytest.mark.parametrize(("cue", "text"), [(cue, text) for cue in CUES for text in cue.fails], ids=str)
def test_a_cue_leaves_its_counterexamples_alone(cue: ClaimCue, text: str) -> None:
    assert said(cue, text) == [], EXTRACTOR.find(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("About ten dogs.", [("count", "dog", "9-11", "")]),
        ("A dog in the upper left corner.", [("relation", "dog", "top left", "")]),
        ("A dog on the bottom right.", [("relation", "dog", "bottom right", "")]),
        ("2-3 dogs.", [("count", "dog", "2-3", "")]),
        ("2–3 dogs.", [("count", "dog", "2-3", "")]),
        ("Between two and four dogs.", [("count", "dog", "2-4", "")]),
        ("From two to four dogs.", [("count", "dog", "2-4", "")]),
        ("Two or three dogs.", [("count", "dog", "2-3", "")]),
        ("Three or two dogs.", [("count", "dog", "2-3", "")]),
        ("Two or five dogs.", []),
        ("Two out of three dogs.", []),
        ("Two of three dogs.", []),
        ("A hundred and one dogs and two hundred twenty-five cats.", []),
        ("A hundred dogs and two cats.", [("count", "cat", "2", "")]),
        ("A 2 liter bottle.", []),
        ("Three or more dogs.", [("count", "dog", "3+", "")]),
        ("Two dogs or more.", [("count", "dog", "2+", "")]),
        ("Two dogs or more are here.", [("count", "dog", "2+", "")]),
        ("Two dogs or more cats.", [("count", "dog", "2", "")]),
        ("21 dogs.", [("count", "dog", "21", "")]),
        ("Twenty-five dogs.", [("count", "dog", "25", "")]),
        ("There are about 25 dogs.", [("count", "dog", "24-26", "")]),
        ("More than twenty-one dogs.", [("count", "dog", "22+", "")]),
        ("Up to 99 dogs.", [("count", "dog", "1-99", "")]),
        ("Fewer than 60 dogs.", [("count", "dog", "1-59", "")]),
        ("25 dogs or more.", [("count", "dog", "25+", "")]),
        ("More than three dogs.", [("count", "dog", "4+", "")]),
        ("At least three dogs.", [("count", "dog", "3+", "")]),
        ("At most three dogs.", [("count", "dog", "1-3", "")]),
        ("Up to five dogs.", [("count", "dog", "1-5", "")]),
        ("Fewer than five dogs.", [("count", "dog", "1-4", "")]),
        ("No more than two dogs.", [("count", "dog", "1-2", "")]),
        ("No fewer than two dogs.", [("count", "dog", "2+", "")]),
        ("Less than one dog.", []),
        ("Half a dozen eggs.", [("count", "egg", "6", "")]),
        ("Two dozen eggs.", [("count", "egg", "24", "")]),
        ("More than a dozen eggs.", [("count", "egg", "13+", "")]),
        ("Several dozen eggs.", []),
        ("1,000 birds. Two hundred birds.", []),
        ("A wooden table.", [("attribute", "dining table", "wood", "")]),
        ("A golden retriever.", []),
        ("A 3 year old dog. A 2 door car.", []),
        (
            "A man wearing a shirt, shorts and a hat is holding a phone.",
            [
                ("relation", "person", "wearing", "shirt"),
                ("relation", "person", "wearing", "shorts"),
                ("relation", "person", "wearing", "hat"),
                ("relation", "person", "holding", "cell phone"),
            ],
        ),
        (
            "The dog on the couch is brown.",
            [("relation", "dog", "on", "couch"), ("attribute", "dog", "brown", "")],
        ),
        ("The cat's ears are black.", [("relation", "cat", "with", "ear"), ("attribute", "ear", "black", "")]),
        (
            "A cat lies on a couch, with its head up.",
            [
                ("attribute", "head", "up", ""),
                ("attribute", "cat", "lying", ""),
                ("relation", "cat", "on", "couch"),
                ("relation", "cat", "with", "head"),
            ],
        ),
        (
            "A man wearing a hat and standing in front of a car.",
            [
                ("relation", "person", "wearing", "hat"),
                ("attribute", "person", "standing", ""),
                ("relation", "person", "in front of", "car"),
            ],
        ),
        (
            "A man on a beach, throwing a ball, wears a hat.",
            [
                ("relation", "person", "on", "beach"),
                ("relation", "person", "wearing", "hat"),
            ],
        ),
        (
            "A hill is covered with grass and has trees.",
            [
                ("relation", "hill", "filled with", "grass"),
                ("relation", "hill", "with", "tree"),
            ],
        ),
        ("He wears shoes and has a hat.", []),
        (
            "A fence made of wooden poles.",
            [
                ("relation", "fence", "with", "pole"),
                ("attribute", "pole", "wood", ""),
            ],
        ),
        ("A road running along a fence.", [("relation", "street", "along", "fence")]),
        ("A man flying a kite. A bird flying.", [("attribute", "bird", "flying", "")]),
        ("A couch, likely in a house.", [("relation", "couch", "in", "house")]),
        ("A cup can be seen on a table.", [("relation", "cup", "on", "dining table")]),
        (
            "A man in a red hat sitting on a bench.",
            [
                ("relation", "person", "in", "hat"),
                ("attribute", "hat", "red", ""),
                ("attribute", "person", "sitting", ""),
                ("relation", "person", "on", "bench"),
            ],
        ),
        (
            "A man holding a ball in his hand and smiling.",
            [
                ("relation", "person", "holding", "sports ball"),
                ("relation", "sports ball", "in", "hand"),
                ("attribute", "person", "smiling", ""),
            ],
        ),
        (
            "A man wearing a hat, playing tennis on a court.",
            [("relation", "person", "wearing", "hat"), ("relation", "person", "on", "court")],
        ),
        (
            "A bear on a rock with its paws resting on a branch.",
            [
                ("relation", "bear", "on", "rock"),
                ("relation", "bear", "with", "paw"),
                ("attribute", "paw", "resting", ""),
                ("relation", "paw", "on", "branch"),
            ],
        ),
        (
            "A dog is looking to the left, with its mouth open.",
            [("relation", "dog", "with", "mouth"), ("attribute", "mouth", "open", "")],
        ),
        (
            "A horse with its tail on its side in a field.",
            [("relation", "horse", "with", "tail"), ("relation", "tail", "in", "field")],
        ),
        ("The player, who seems to be a male, is wearing a hat.", [("relation", "person", "wearing", "hat")]),
        ("A person performing a trick on a ramp.", [("relation", "person", "on", "ramp")]),
        ("A man in the middle of a game on a field.", [("relation", "person", "on", "field")]),
        ("A man engaged in a soccer game on a field.", [("relation", "person", "on", "field")]),
        ("A man casting a shadow on a field.", []),
        ("A man looking over a fence.", []),
        ("A fence chased by fog.", []),
        ("A dog facing the sea. A man facing the camera.", [("attribute", "person", "facing", "")]),
        ("A frisbee is in the air.", [("attribute", "frisbee", "airborne", "")]),
        (
            "The cow is a mix of black and brown. A house made of red brick.",
            [
                ("attribute", "cow", "black", ""),
                ("attribute", "cow", "brown", ""),
                ("attribute", "house", "red", ""),
                ("attribute", "house", "brick", ""),
            ],
        ),
        (
            "Standing on the bench is a woman wearing pants.",
            [("relation", "person", "on", "bench"), ("relation", "person", "wearing", "pants")],
        ),
        (
            "A woman is the main figure, seated on a bench.",
            [("attribute", "person", "sitting", ""), ("relation", "person", "on", "bench")],
        ),
        (
            "The sheep, presumably an adult, is standing near a rock.",
            [("attribute", "sheep", "standing", ""), ("relation", "sheep", "next to", "rock")],
        ),
        (
            "The dog is in the grass, looking up with its mouth open.",
            [
                ("relation", "dog", "in", "grass"),
                ("relation", "dog", "with", "mouth"),
                ("attribute", "mouth", "open", ""),
            ],
        ),
        (
            "A man on a beach with a surfboard. A dog on a beach with sand.",
            [
                ("relation", "person", "on", "beach"),
                ("relation", "person", "with", "surfboard"),
                ("relation", "dog", "on", "beach"),
                ("relation", "beach", "with", "sand"),
            ],
        ),
        (
            "The skier is wearing a jacket and is in the middle of the scene. The sky above the scene is cloudy.",
            [
                ("relation", "person", "wearing", "jacket"),
                ("relation", "person", "center", ""),
                ("attribute", "sky", "cloudy", ""),
            ],
        ),
        (
            "A wall covered with leaves and branches. A bus parked in a large, modern building.",
            [
                ("relation", "wall", "filled with", "leaf"),
                ("relation", "wall", "filled with", "branch"),
                ("attribute", "bus", "parked", ""),
                ("relation", "bus", "in", "building"),
                ("attribute", "building", "large", ""),
            ],
        ),
        (
            "A man is holding a phone to his ear with their right hand, wearing a cap, with one foot raised.",
            [
                ("relation", "person", "holding", "cell phone"),
                ("relation", "person", "with", "hand"),
                ("relation", "person", "wearing", "hat"),
                ("relation", "person", "with", "foot"),
                ("count", "foot", "1", ""),
                ("attribute", "foot", "raised", ""),
            ],
        ),
        (
            "The person on the left appears to be a male with light skin.",
            [
                ("relation", "person", "left", ""),
                ("relation", "person", "with", "skin"),
                ("attribute", "skin", "light", ""),
            ],
        ),
        ("A man performing a trick at a park.", [("relation", "person", "next to", "park")]),
        (
            "A woman has a bag placed next to her on a bench.",
            [("relation", "person", "with", "bag"), ("relation", "bag", "on", "bench")],
        ),
        ("Next to her on the bench, there is a bag.", [("relation", "bag", "on", "bench")]),
        (
            "Next to the laptop, on the right side, there is a book.",
            [("relation", "book", "next to", "laptop"), ("relation", "book", "right", "")],
        ),
        (
            "In the foreground on the right, there is a bush.",
            [("relation", "bush", "foreground", ""), ("relation", "bush", "right", "")],
        ),
        ("Horses extending into the distance.", [("relation", "horse", "background", "")]),
        ("The floor of the bathroom is tiled.", [("attribute", "floor", "tiled", "")]),
        ("A car, mostly white, is there.", [("attribute", "car", "white", "")]),
        ("The court is a striking black.", [("attribute", "court", "black", "")]),
        (
            "The dog is small, standing on a chair.",
            [
                ("attribute", "dog", "small", ""),
                ("attribute", "dog", "standing", ""),
                ("relation", "dog", "on", "chair"),
            ],
        ),
        (
            "The wall is white and made of brick.",
            [("attribute", "wall", "white", ""), ("attribute", "wall", "brick", "")],
        ),
        (
            "A red, white, and blue flag.",
            [("attribute", "flag", "red", ""), ("attribute", "flag", "white", ""), ("attribute", "flag", "blue", "")],
        ),
        (
            "Two large, modern-looking city transit buses.",
            [("count", "bus", "2", ""), ("attribute", "bus", "large", "")],
        ),
        ("Various kitchen appliances. Various stages.", [("count", "appliance", "2+", "")]),
        (
            "A pasture with a few other horses.",
            [("relation", "field", "with", "horse"), ("count", "horse", "2+", "")],
        ),
        (
            "A dog lies in a field, surrounded by trees.",
            [
                ("attribute", "dog", "lying", ""),
                ("relation", "dog", "in", "field"),
                ("relation", "dog", "surrounded by", "tree"),
            ],
        ),
        (
            "A man in a field, surrounded by trees. Horses in a field, separated by a fence.",
            [
                ("relation", "person", "in", "field"),
                ("relation", "person", "surrounded by", "tree"),
                ("relation", "horse", "in", "field"),
                ("relation", "horse", "separated by", "fence"),
            ],
        ),
        (
            "The bench is small and of a plain design, with metal legs.",
            [
                ("attribute", "bench", "small", ""),
                ("relation", "bench", "with", "leg"),
                ("attribute", "leg", "metal", ""),
            ],
        ),
        (
            "There is a hill, with trees. A dog on a hill, with trees.",
            [("relation", "hill", "with", "tree"), ("relation", "dog", "on", "hill")],
        ),
        (
            "A man wearing a coat, with a hat.",
            [("relation", "person", "wearing", "jacket"), ("relation", "person", "with", "hat")],
        ),
        (
            "A truck, known for its speed, parked on a street.",
            [("attribute", "truck", "parked", ""), ("relation", "truck", "on", "street")],
        ),
        (
            "The horse is calm and gentle, standing quietly on the grass.",
            [
                ("attribute", "horse", "calm", ""),
                ("attribute", "horse", "standing", ""),
                ("relation", "horse", "on", "grass"),
            ],
        ),
        (
            "The lamp is neat and is small, standing upright and appears to be broken.",
            [("attribute", "lamp", word, "") for word in ("small", "standing", "broken")],
        ),
        (
            "The lamp is visible, mounted on the wall. A ball is in mid-air, slightly above the table.",
            [
                ("relation", "lamp", "attached to", "wall"),
                ("attribute", "sports ball", "airborne", ""),
                ("relation", "sports ball", "above", "dining table"),
            ],
        ),
        (
            "A cat lies in the shade under a tree. A cup is on a surface covered with paper.",
            [("attribute", "cat", "lying", ""), ("relation", "cat", "below", "tree")],
        ),
        ("A giraffe in a small area, likely at a zoo.", [("relation", "giraffe", "next to", "park")]),
        ("People playing a game of tennis on a court.", [("relation", "person", "on", "court")]),
        (
            "Two dogs standing next to each other in a field.",
            [
                ("count", "dog", "2", ""),
                ("attribute", "dog", "standing", ""),
                ("relation", "dog", "in", "field"),
            ],
        ),
        (
            "The sky above is a bright blue with clouds.",
            [("attribute", "sky", "blue", ""), ("relation", "sky", "with", "cloud")],
        ),
        ("The wave he is riding is next to a boat.", [("relation", "wave", "next to", "boat")]),
        ("A path that winds through a forest.", [("relation", "path", "through", "forest")]),
        (
            "A bed on which a dog is sleeping.",
            [("relation", "dog", "on", "bed"), ("attribute", "dog", "sleeping", "")],
        ),
        (
            "A chair, likely a couch, has a pillow. A toy, resembling a bear, on a bed.",
            [("relation", "chair", "with", "pillow"), ("relation", "toy", "on", "bed")],
        ),
        (
            "A man wearing a hat, as well as a jacket.",
            [("relation", "person", "wearing", "hat"), ("relation", "person", "wearing", "jacket")],
        ),
        (
            "A man wears a coat with wide cuffs, boots and a hat.",
            [("relation", "person", "wearing", worn) for worn in ("jacket", "shoe", "hat")],
        ),
        (
            "On the table near the door, there is a cup. On his head, he has a hat.",
            [
                ("relation", "dining table", "next to", "door"),
                ("relation", "cup", "on", "dining table"),
                ("relation", "hat", "on", "head"),
            ],
        ),
        (
            "A man is cutting a cake with a knife. He is holding a plate with a fork.",
            [("relation", "person", "with", "knife")],
        ),
        ("A dog with its hand holding a cup.", [("relation", "dog", "with", "hand")]),
        (
            "A duck near the water's edge. A bottle in front of the figure's face.",
            [("relation", "bird", "next to", "water"), ("relation", "bottle", "in front of", "face")],
        ),
        (
            "A street with a fence, which is visible in the background.",
            [("relation", "street", "with", "fence"), ("relation", "fence", "background", "")],
        ),
        ("On the left wall there is a lamp.", [("relation", "lamp", "on", "wall")]),
        (
            "A dog with its head up and its tail down. A hill with trees scattered around.",
            [
                ("relation", "dog", "with", "head"),
                ("attribute", "head", "up", ""),
                ("relation", "dog", "with", "tail"),
                ("attribute", "tail", "down", ""),
                ("relation", "hill", "with", "tree"),
            ],
        ),
        ("The wall is tiled in white.", [("attribute", "wall", "tiled", ""), ("attribute", "wall", "white", "")]),
        ("A wall with a light color.", [("attribute", "wall", "light", "")]),
        ("A locomotive in a distinctive red color scheme. A bench for people to sit.", []),
        ("Through the window, we can see a house.", [("relation", "house", "through", "window")]),
        ("Behind the fence, there appears to be a bench.", [("relation", "bench", "behind", "fence")]),
        ("Behind the trees stands a house.", [("relation", "house", "behind", "tree")]),
        (
            "A man wearing a shirt with the number 7 on the back, a cap.",
            [("relation", "person", "wearing", "hat"), ("relation", "person", "wearing", "shirt")],
        ),
        ("A park with surfaces and possibly some trees.", [("relation", "park", "with", "tree")]),
        (
            "A hill appears flat in the foreground.",
            [("attribute", "hill", "flat", ""), ("relation", "hill", "foreground", "")],
        ),
        (
            "A tree, without leaves, standing on a hill.",
            [("attribute", "tree", "standing", ""), ("relation", "tree", "on", "hill")],
        ),
        ("A tennis court, near a fence.", [("relation", "court", "next to", "fence")]),
        ("They have a watch and are standing near a car. It is red. He is wearing a hat.", []),
        ('A poster says "two red dogs".', [("text", "picture", "two red dogs", "")]),
        (f'A poster says "{"so " * 40}in a word". A sign says "EXIT".', [("text", "sign", "EXIT", "")]),
        ('A poster reads "" and a sign says "EXIT".', [("text", "sign", "EXIT", "")]),
        ("A sign reads STOP\n\nTV and GO", [("text", "sign", "STOP", "")]),
        ("A dog is looking up\n\nwith its mouth open.", [("attribute", "mouth", "open", "")]),
        (
            "At the top in the image on the left, a dog is red.",
            [("relation", "dog", "top", ""), ("relation", "dog", "left", ""), ("attribute", "dog", "red", "")],
        ),
        (
            "A dog on the **left** is red. In  the\t**background** of the *image*, there is a tree.",
            [("relation", "dog", "left", ""), ("attribute", "dog", "red", ""), ("relation", "tree", "background", "")],
        ),
        ("A dog on the left **wall** in the **image**.", [("relation", "dog", "on", "wall")]),
    ],
)
def test_what_is_said(text: str, expected: list[tuple[str, str, str, str]]) -> None:
    assert sorted(c.key for c in EXTRACTOR.find(text) if c.kind != "presence") == sorted(expected)


def test_each_of_many_texts_is_on_the_nearest_object_of_its_sentence() -> None:
    text = "A dog and a sign " + 'says "a" ' * 3000 + '. It says "b". A cup says "c", a poster of a cat says "d"'
    texts = [(c.value, c.label) for c in EXTRACTOR.find(text) if c.kind == "text"]
    assert texts == [("a", "sign")] * 3000 + [("b", ""), ("c", "cup"), ("d", "cat")]


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("The dog is not brown.", "negated"),
        ("The dog appears to be brown.", "hedged"),
        ("Possibly a man holding a phone.", "hedged"),
        ("A red or blue car.", "hedged"),
        ("A man without a red hat.", "negated"),
    ],
)
def test_use(text: str, use: str) -> None:
    assert use in {c.use for c in EXTRACTOR.find(text) if c.kind != "presence"}


@pytest.mark.parametrize(
    ("text", "guessed"),
    [
        ("A red or blue car.", {"red", "blue"}),
        ("A red, blue, or dark green car.", {"red", "blue", "green"}),
        ("The car is red or blue.", {"red", "blue"}),
        ("A man holding a phone or a cup.", {"holding"}),
        ("A man in a blue hat holding a phone or a cup.", {"holding"}),
    ],
)
def test_everything_that_or_joins_is_guessed(text: str, guessed: set[str]) -> None:
    claims = [c for c in EXTRACTOR.find(text) if c.kind in ("attribute", "relation")]
    assert {c.value for c in claims if c.use == "hedged"} == guessed
    assert guessed.isdisjoint(c.value for c in claims if c.use == "claim")


@pytest.mark.parametrize(
    ("text", "restricted"),
    [
        ("There are two dogs.", False),
        ("Two brown dogs.", True),
        ("Two dogs on a couch.", True),
        ("Two dogs, one dog.", True),
        ("There are **two** *dogs*.", False),
    ],
)
def test_a_count_of_some_only(text: str, restricted: bool) -> None:
    assert {c.restricted for c in EXTRACTOR.find(text) if c.kind == "count"} == {restricted}


WORDS = st.sampled_from(
    'two|a|the|red|,|and|of|group|dog|dogs|man|hat|on|is|not|wearing|"STOP"|reads|.|\n|in|background|with|\'s|–'.split(
        "|"
    )
)


@given(st.lists(st.lists(WORDS, max_size=25).map(" ".join) | st.text(max_size=40), max_size=4))
def test_many_texts_as_one(texts: list[str]) -> None:
    found = EXTRACTOR.find_batch(texts)
    assert found == [EXTRACTOR.find(text) for text in texts]
    for text, claims in zip(texts, found, strict=True):
        assert all(0 <= c.start < c.end <= len(text) and c.kind in KINDS for c in claims)


WORDS = (
    "the a dog cat dog man hat cats street is are red dark light , and or not made of in on image left right top which "
    "who with its his two one another flying standing can be seen possibly likely each . \n - left-hand ' 's \" reads "
    "STOP “ ” is n't"
).split(" ")


def test_texts_that_end_anywhere_are_read() -> None:
    rng = random.Random(39)
    texts = ["The dog is red,", "The dog is dark", "A dog made of", "dog and", "", "The dog is resting or possibly"]
    texts += [" ".join(rng.choices(WORDS, k=rng.randrange(14))) for _ in range(3000)]
    found = EXTRACTOR.find_batch(texts)
    assert sum(map(len, found)) > 3000
    for text, claims in zip(texts, found, strict=True):
        assert all(0 <= claim.start < claim.end <= len(text) for claim in claims)
        for only in (COUNTS, ATTRIBUTES):
            assert only.find(text) == [claim for claim in claims if claim.kind in only.kinds]


def test_presence_is_the_mentions() -> None:
    text = "Two dogs and no cat near a red car."
    claims = ClaimExtractor("open400", kinds=("presence",)).find(text)
    assert [claim.mentions for claim in claims] == [(mention,) for mention in EXTRACTOR.matcher.find(text)]
    assert pickle.loads(pickle.dumps(EXTRACTOR)).find(text) == EXTRACTOR.find(text)


@pytest.mark.parametrize(("value", "expected"), [("2", (2, 2)), ("3+", (3, None)), ("2-3", (2, 3))])
def test_count_range(value: str, expected: tuple[int, int | None]) -> None:
    assert count_range(value) == expected


@pytest.mark.parametrize("value", ["", "two", "-1", "2-", "+"])
def test_no_count(value: str) -> None:
    with pytest.raises(ValueError, match="not a count"):
        count_range(value)


def test_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, {})
    shown = capsys.readouterr().out
    assert "count dog 2" in shown
    assert "count 2 0" in shown
    assert "attribute blue 0" in shown
    assert "relation on 1" in shown


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(InputError, match="colour"):
        ClaimExtractor("open400", kinds=("count", "colour"))  # type: ignore[arg-type]


def test_the_table_of_words_has_room() -> None:
    """Random factors place all words without a collision with a probability of exp(-words ** 2 / 2 / places)."""
    codes = tokens.codes()
    assert len(codes._length) ** 2 / 2 / len(codes._entry) < 2
