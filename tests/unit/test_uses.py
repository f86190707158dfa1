"""Which mentions are claims: negation, hedges, their scopes, and the ways into the scores and the reward."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary, score_captions
from scapo_eval.base.errors import InputError
from scapo_eval.files.yaml_text import load_yaml
from scapo_eval.matching.compiled import CUES_FILE
from scapo_eval.matching.context import CLOSED_WORDS, noun_behind
from scapo_eval.matching.cues import Cue, compiled, read_cues, shipped_cues
from scapo_eval.matching.uses import LEFT_OUT, READINGS, USES, Reading, clear_cache, reading_of

THINGS = (
    "person people man dog dogs cat cats bird birds car cars bus buses truck hat phone laptop table bench book lake"
).split()
VOCABULARY = Vocabulary.from_mapping(
    {thing: [thing] for thing in THINGS} | {"bear": ["bear"], "orange": ["orange"], "woman": ["woman", "mother"]},
    name="things",
    heads=["orange"],
    kin=["mother"],
    kin_of=["bear"],
)
MATCHER = AliasMatcher(VOCABULARY)


MATCHERS = {claims: AliasMatcher(VOCABULARY, claims) for claims in READINGS}


def kept(text: str, claims: Reading) -> list[str]:
    columns = MATCHERS[claims].find_batch([text])
    return [text[start:end] for start, end in zip(columns.start.tolist(), columns.end.tolist(), strict=True)]


def uses(text: str) -> list[tuple[str, str]]:
    return [(mention.surface, mention.use) for mention in MATCHER.find(text)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("There are no people on the bench.", ["bench"]),
        ("A man without a hat walks by.", ["man"]),
        ("The absence of people makes it calm.", []),
        ("There is no sign of a dog.", []),
        ("There is not a single car.", []),
        ("The street is devoid of cars.", []),
        ("A lack of cars, and a dog.", ["dog"]),
        ("The road is free of cars.", []),
        ("Neither a dog nor a cat can be seen.", []),
        ("There isn't any dog, but a cat is there.", ["cat"]),
        ("There isn’t any dog.", []),
        ("It cannot be a dog.", []),
        ("No cars, buses, or dogs are in sight.", []),
        ("There are no cars or buses; a dog sleeps.", ["dog"]),
        ("There are no people, and a dog sleeps.", ["dog"]),
        ("There is **no** dog here.\nA cat sleeps.", ["cat"]),
        ("The dog is not visible.", []),
        ("The dog is clearly visible, the cat is absent.", ["dog"]),
        ("A cat rather than a dog.", ["cat"]),
        ("Not a dog but a cat.", ["cat"]),
        ("No one holds a phone.", []),
        ("No people except a man.", ["man"]),
    ],
)
def test_negation(text: str, left: list[str]) -> None:
    assert kept(text, "asserted") == left
    assert kept(text, "certain") == left


@pytest.mark.parametrize(
    "text",
    [
        "Not only a dog but also a cat.",
        "It is no longer a dog.",
        "There is nothing but a dog.",
        "There is no doubt that a dog sleeps.",
        "Without a doubt, a dog.",
        "The man is not far from a dog.",
        "Another dog, a notable cat, a bird in the north.",
        "The man is not looking at the dog.",
        "No. 5 is a dog.",
        "A man in a t-shirt with a dog.",
        "No, the dog with a cat is not on the bench.",
    ],
)
def test_no_negation(text: str) -> None:
    everything = [mention.surface for mention in MATCHER.find(text)]
    assert kept(text, "asserted") == everything


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Possibly a phone or a laptop on the table.", ["table"]),
        ("It might be a dog.", []),
        ("It appears to be a dog with a cat.", ["cat"]),
        ("He appears to be walking a dog.", ["dog"]),
        ("He appears to be wearing a hat.", []),
        ("What looks like a dog sleeps.", []),
        ("Marks, suggesting a car.", []),
        ("A lake, or possibly a bird.", ["lake"]),
        ("A man, likely checking his phone.", ["man", "phone"]),
        ("A dog, possibly a cat, and a bird.", ["dog", "bird"]),
        ("There may be a dog, but a cat sleeps.", ["cat"]),
        ("Toys, suggesting that the dog has a cat.", ["dog"]),
        ("Toys, suggesting a dog or a cat.", []),
        ("A sign, possibly indicating a bus.", []),
        ("It appears to be busy, with a bus.", ["bus"]),
        ("It seems like a dog, a cat, or a bird.", []),
        ("POSSIBLY a dog; a cat.", ["cat"]),
        ("A bench (possibly a **table**) is there.", ["bench"]),
        ("Perhaps, on the left, a dog.", ["dog"]),
        ("Possibly a man who walks a dog.", ["dog"]),
        ("Possibly a man and there is a dog.", ["dog"]),
    ],
)
def test_hedges(text: str, left: list[str]) -> None:
    assert kept(text, "certain") == left
    assert kept(text, "asserted") == [mention.surface for mention in MATCHER.find(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('A sign that reads "BUS STOP" near a bus.', [("BUS", "quoted"), ("bus", "claim")]),
        ("A box with “dog food” on it.", [("dog", "quoted")]),
        ('He said "stop."\nA dog sleeps." ', [("dog", "claim")]),
        ("A truck marked FISH AND BIRDS LTD.", [("truck", "claim"), ("BIRDS", "quoted")]),
        ("A bus route and a bus.", [("bus", "modifier"), ("bus", "claim")]),
        ("The bus stops, the bus waiting, the bus slowly.", [("bus", "claim")] * 3),
        ("The bus window and the dog's tail.", [("bus", "claim"), ("dog", "claim")]),
        (
            "A dog-friendly bench, a cat-like hat.",
            [("dog", "modifier"), ("bench", "claim"), ("cat", "comparison"), ("hat", "claim")],
        ),
        ("People watch a man Roger knows.", [("People", "claim"), ("man", "claim")]),
        ("A bench for people to sit on.", [("bench", "claim"), ("people", "purpose")]),
        ("Shade for the people and a dog.", [("people", "claim"), ("dog", "claim")]),
        ("Nothing except for a dog.", [("dog", "claim")]),
        ("A lake where people can swim.", [("lake", "claim"), ("people", "generic")]),
        ("A lake where two people can swim.", [("lake", "claim"), ("people", "claim")]),
        ("A table typical of cats and dogs.", [("table", "claim"), ("cats", "generic"), ("dogs", "generic")]),
        ("Commonly found near cars.", [("cars", "generic")]),
        ("A bench shaped like a bird on a lake.", [("bench", "claim"), ("bird", "comparison"), ("lake", "claim")]),
        ("A hat the size of a table.", [("hat", "claim"), ("table", "comparison")]),
        ("A man waiting for his bus.", [("man", "claim"), ("bus", "generic")]),
        ("It helps people find a table.", [("people", "purpose"), ("table", "claim")]),
        ("A bench used by people.", [("bench", "claim"), ("people", "purpose")]),
        ("A bench used by two people.", [("bench", "claim"), ("people", "claim")]),
        ("A lake frequented by dogs and cats.", [("lake", "claim"), ("dogs", "purpose"), ("cats", "purpose")]),
        ("A table for picking up cars.", [("table", "claim"), ("cars", "purpose")]),
        ("Shade for the man and dogs.", [("man", "claim"), ("dogs", "claim")]),
        ("Dogs are typically smaller than cars.", [("Dogs", "generic"), ("cars", "comparison")]),
        ("The dogs are often here. It means that people must stop.", [("dogs", "claim"), ("people", "generic")]),
        ("More than a dozen people; a dog larger than the cat.", [(s, "claim") for s in ("people", "dog", "cat")]),
        ("A common bird on cars.", [("bird", "claim"), ("cars", "generic")]),
        ("The bond between people and dogs.", [("people", "generic"), ("dogs", "generic")]),
        ("The bond between the man and dogs.", [("man", "claim"), ("dogs", "claim")]),
        ("Zero people; a dog.", [("people", "negated"), ("dog", "claim")]),
        ("A pet, commonly known as a dog.", [("dog", "claim")]),
        ("A lake where another person can sit.", [("lake", "claim"), ("person", "claim")]),
        ("A lake where birds can be seen.", [("lake", "claim"), ("birds", "claim")]),
        ("They watch the dog play and the man rides a bus.", [(s, "claim") for s in ("dog", "man", "bus")]),
        ("- [x] cat\n- [ ] dog\n- [x] bus", [("cat", "claim"), ("dog", "negated"), ("bus", "claim")]),
        ("| cat | 2 |\n| dog | - |", [("cat", "claim"), ("dog", "negated")]),
        ("~~dog~~ cat", [("dog", "negated"), ("cat", "claim")]),
        ("Dog: n/a\nCat: yes", [("Dog", "negated"), ("Cat", "claim")]),
        ("Dog: N/A\nCat: yes", [("Dog", "negated"), ("Cat", "claim")]),
        ('{"cats": [], "dog": null, "bus": 1}', [("cats", "negated"), ("dog", "negated"), ("bus", "claim")]),
        (
            '{"not_visible": ["cat", "dog"], "visible": ["bus"]}',
            [("cat", "negated"), ("dog", "negated"), ("bus", "claim")],
        ),
        ('{"caption": "Two dogs run."}', [("dogs", "claim")]),
        ("Missing:\n1. the dog\n2. the cat\n\nSeen: a bus", [("dog", "negated"), ("cat", "negated"), ("bus", "claim")]),
        ("Cats chase mice. This cat sleeps.", [("Cats", "claim"), ("cat", "claim")]),
        ("Cats purr. This cat sleeps.", [("Cats", "generic"), ("cat", "claim")]),
        ("Cats purr.", [("Cats", "claim")]),
        ("A man with dog collars.", [("man", "claim"), ("dog", "modifier")]),
        ("A man with a dog collars.", [("man", "claim"), ("dog", "claim")]),
        ("Does the man carry a dog?", [("man", "claim"), ("dog", "question")]),
        ("Why does the man have a dog?", [("man", "claim"), ("dog", "claim")]),
        ("Dogs? Yes, nineteen.", [("Dogs", "claim")]),
        ("**Q:** How many dogs are there?\n**A:** Three.", [("dogs", "claim")]),
        ("How many dogs are there? No dog.", [("dogs", "question"), ("dog", "negated")]),
        ("Is there a dog? Yes and no.", [("dog", "question")]),
        ("A dog chasing it is a blur.", [("dog", "claim")]),
        (
            "Dogs are loyal. - dog: not visible\n- cat: asleep",
            [("Dogs", "generic"), ("dog", "negated"), ("cat", "claim")],
        ),
    ],
)
def test_uses(text: str, expected: list[tuple[str, str]]) -> None:
    assert uses(text) == expected
    assert kept(text, "visual") == [surface for surface, use in expected if use == "claim"]
    assert kept(text, "all") == [surface for surface, _ in expected]


def test_what_is_said_twice_of_a_mention_counts_by_the_stronger() -> None:
    assert uses("There is no bus route.") == [("bus", "negated")]
    assert uses("Possibly a bus route.") == [("bus", "modifier")]
    assert kept("Possibly a bus route.", "certain") == []
    assert kept("Possibly a bus.", "visual") == ["bus"]


def test_colors_and_kin() -> None:
    vocabulary = Vocabulary.from_mapping(
        {"orange": ["orange", "oranges"], "person": ["man", "mother"], "bear": ["bear", "bears"], "cat": ["cat"]},
        heads=["orange"],
        kin=["mother"],
        kin_of=["bear"],
    )
    matcher, visual = AliasMatcher(vocabulary), AliasMatcher(vocabulary, "visual")

    def read(text: str) -> list[tuple[str, str]]:
        found = [(mention.surface, mention.use) for mention in matcher.find(text)]
        columns = visual.find_batch([text, "A cat.", text])
        claimed = [surface for surface, use in found if use == "claim"]
        spans = [text[columns.start[k] : columns.end[k]] for k in range(*columns.indptr[:2])]
        assert spans == claimed == [text[columns.start[k] : columns.end[k]] for k in range(*columns.indptr[2:])]
        return found

    assert read("An orange on orange carrots.") == [("orange", "claim"), ("orange", "modifier")]
    assert read("An orange sits there; orange striped shirts; orange-red.") == [
        ("orange", "claim"),
        ("orange", "modifier"),
        ("orange", "modifier"),
    ]
    colored = "**Red**, **orange**. - Orange\n- Blue. An orange cap, an orange slice, a cat in red or orange."
    assert [use for _, use in read(colored)] == ["modifier", "modifier", "modifier", "claim", "claim", "modifier"]
    assert read("Bears, the mother first.") == [("Bears", "claim"), ("mother", "modifier")]
    assert read("Bears, a man and his mother.") == [("Bears", "claim"), ("man", "claim"), ("mother", "claim")]
    assert read("A cat and a mother.") == [("cat", "claim"), ("mother", "claim")]


def test_the_words_that_the_batch_knows_by_heart_are_no_nouns() -> None:
    assert CLOSED_WORDS
    assert [word for word in CLOSED_WORDS if noun_behind(f"bus {word}", 3)] == []


WORDS = st.sampled_from(
    [*THINGS, "no", "not", "isn't", "isn’t", "without", "a", "the", "his", "or", "and", "but", ",", ".", ";", "\n"]
    + ["possibly", "might be", "appears to be", "looks like", "absence of", "only", "is not visible", "n't", "?t"]
    + ["É", "İ", "\ud800", "\0", "for", "where", "can", "like", "shaped", "route", "stops", "-like", "wheel", "sitting"]
    + ['"', "“", "”", "typical of", "BUSES", "Route", "waiting for", "to", "bear", "orange", "woman", "mother", "狗"]
    + ["[ ]", "[]", "|", "~~", '": [', ":", "Most", "Cats", "purr", "this", "missing", "1.", "neither", "collars"]
)
TEXTS = st.lists(WORDS, max_size=25).map(" ".join)


@given(st.lists(TEXTS | st.text(max_size=40), max_size=6))
@pytest.mark.slow
def test_a_batch_is_its_captions_and_readings_are_nested(texts: list[str]) -> None:
    masks = {}
    for claims in READINGS:
        matcher = MATCHERS[claims]
        columns, masks[claims] = matcher.find_all(texts)
        single = [matcher.find_all([text])[1] for text in texts]
        np.testing.assert_array_equal(masks[claims], np.concatenate([np.zeros(0, dtype=bool), *single]))
        counted = matcher.find_batch(texts)
        np.testing.assert_array_equal(counted.caption, columns.caption[masks[claims]])
        np.testing.assert_array_equal(counted.start, columns.start[masks[claims]])
        np.testing.assert_array_equal(counted.label_id, columns.label_id[masks[claims]])
    assert masks["all"].all()
    assert not (masks["certain"] & ~masks["asserted"]).any()
    assert not (masks["visual"] & ~masks["asserted"]).any()
    for claims in ("asserted", "visual"):  # the only readings that a mention's one use decides
        uses = [mention.use not in LEFT_OUT[claims] for text in texts for mention in MATCHER.find(text)]
        assert uses == masks[claims].tolist()


def test_reach() -> None:
    near = "Possibly one of the small and old and brown and friendly and sleepy and hairy dogs."
    assert kept(near, "certain") == []
    assert kept(near.replace("friendly", "very friendly and lovely"), "certain") == ["dogs"]


def test_remembered_phrases_change_nothing() -> None:
    texts = ["Possibly a dog.", "There is no cat, dog, or bird.", "It appears to be a dog with a cat."]
    clear_cache()
    first, again = (MATCHERS["certain"].find_all(texts)[1] for _ in range(2))
    assert first.tolist() == again.tolist() == [False, False, False, False, False, True]


def test_more_captions_than_one_pass() -> None:
    texts = ["A dog.", "There is no dog.", "", "No cat, but a dog."] * 700
    assert MATCHERS["asserted"].find_all(texts)[1].tolist() == [True, False, False, True] * 700


def test_a_boundary_never_falls_inside_a_mention_that_is_no_claim() -> None:
    vocabulary = Vocabulary.from_mapping({"shop": ["Smith, Jones and Sons"], "cat": ["cat"]}, name="shops")
    oracle = PresenceOracle.from_objects({"1": ["cat"]}, source="test")
    text = "There is not one Smith, Jones and Sons shop in this town. There is a cat in it."
    for claims in READINGS:
        (result,) = SubsentenceReward(vocabulary, oracle, RewardConfig(rule="clause", claims=claims))([1], [text])
        assert [text[part.start : part.end] for part in result.parts] == [text[:58], text[58:]]


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(InputError, match="claims must be one of all, asserted, certain, visual, got 'some'"):
        AliasMatcher(VOCABULARY, "some")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The mural depicts a dog that chases a cat on the lake, and a man walks past it.", ["man"]),
        ("The image shows a painting of a lake while a man waits for a dog.", ["lake", "man"]),
        ("Is the woman angry?", ["woman"]),
        ("On a bench someone sleeps.", ["bench"]),
        ("dog 0.98, cat 0.0, bus 0", ["dog"]),
    ],
)
def test_scopes_and_forms(text: str, left: list[str]) -> None:
    assert [surface for surface, use in uses(text) if use in ("claim", "question")] == left


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("A man and a dog walk along the beach.", ["man", "dog"]),
        ("A dog and a man walk", ["dog", "man"]),
        ("A man and his dog rest.", ["man", "dog"]),
        ("Two cats and a dog climb a hill together.", ["cats", "dog"]),
        ("Man and dog fight.", ["Man", "dog"]),
        ("A dog sits while a cat and a bird watch", ["dog", "cat", "bird"]),
        ("A bus waits while a man and a dog stroll by", ["bus", "man", "dog"]),
        ("A man, a cat, and a small brown dog sleep on a bench.", ["man", "cat", "dog", "bench"]),
        ("A woman as well as a dog swim in the lake.", ["woman", "dog", "lake"]),
        ("A man in a hat or a dog jump over a bench.", ["man", "hat", "dog", "bench"]),
        ("A man and a dog chase birds.", ["man", "dog", "birds"]),
        ("A man in a red hat and a dog walk.", ["man", "hat", "dog"]),
        ("The dog walk is near a bench.", ["bench"]),
        ("A cat fight breaks out.", []),
        ("A man enjoys a bus ride.", ["man"]),
        ("the dog race", []),
        ("a man and a dog walk sign", ["man"]),
        ("A leash and a dog walk are here.", []),
        ("The park offers a bench and a dog walk.", ["bench"]),
        ("There is a bench and a bus stop near the lake.", ["bench", "lake"]),
        ("A bench and a table near a bus ride", ["bench", "table"]),
    ],
)
def test_several_subjects_of_a_verb(text: str, claims: list[str]) -> None:
    """A verb without -s agrees with several subjects, so the last subject does not modify the verb."""
    assert kept(text, "visual") == claims


def test_cues_that_are_mentions_and_guesses() -> None:
    matcher = AliasMatcher("coco80")
    for text, expected in {
        "A cat sits. On the TV, a man waves.": ["claim", "claim", "quoted"],
        "A dog? Perhaps.": ["hedged"],
        '{"possibly_visible": ["dog"], "visible": ["cat"]}': ["hedged", "claim"],
    }.items():
        assert [mention.use for mention in matcher.find(text)] == expected
        assert [USES[use] for use in matcher.find_all_uses([text])[1]] == expected


def test_scores_by_claims() -> None:
    oracle = PresenceOracle.from_objects({"1": ["cat"]}, source="test")
    records = [{"image_id": 1, "caption": "There is no dog. A cat, possibly a bird."}]
    scored = {c: score_captions(records, vocabulary=VOCABULARY, oracle=oracle, claims=c, resamples=0) for c in READINGS}
    assert [scored[c].counts["hallucinated"] for c in READINGS] == [2, 1, 0, 1]
    assert "|claims:all|" in scored["all"].signature
    assert "|claims:asserted|" in scored["asserted"].signature


def test_reward_by_claims() -> None:
    oracle = PresenceOracle.from_objects({"1": ["cat"]}, source="test")
    for claims, rewards in {"all": [-1.0, 1.0], "asserted": [-0.1, 1.0]}.items():
        reward = SubsentenceReward(VOCABULARY, oracle, RewardConfig(claims=claims))  # type: ignore[arg-type]
        for one in (reward, pickle.loads(pickle.dumps(reward))):
            (result,) = one([1], ["There is no dog in it. There is a cat in it."])
            assert [part.reward for part in result.parts] == rewards
        assert ("claims:asserted" in reward.signature) == (claims == "asserted")
    with pytest.raises(InputError, match="claims must be one of"):
        RewardConfig(claims="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("cue", shipped_cues().cues, ids=lambda cue: cue.words[0])
def test_examples_of_cues(cue: Cue) -> None:
    assert cue.holds
    assert cue.fails
    for expression in (cue.after, cue.then):
        compiled(expression)
    for marked, holds in [(text, True) for text in cue.holds] + [(text, False) for text in cue.fails]:
        surfaces = re.findall(r"\[(.*?)\]", marked)
        text = re.sub(r"[][]", "", marked)
        begins = {match.start() - 2 * k for k, match in enumerate(re.finditer(r"\[", marked))}
        read = {mention.start: mention for mention in MATCHER.find(text)}
        assert [read[begin].surface for begin in sorted(begins)] == surfaces, marked
        assert {read[begin].use == cue.use for begin in begins} == {holds}, marked


def test_each_word_is_once_in_a_cue_and_the_hash_is_of_the_rules() -> None:
    cues = shipped_cues()
    assert all(len(cue.words) == len(set(cue.words)) for cue in cues.cues)
    data = CUES_FILE.read_bytes()
    same = data.replace(b"There are no [people] on the bench.", b"No [people] at all.")
    changed = data.replace(b"reach: 70", b"reach: 71")
    fingerprints = [read_cues(load_yaml(content, "cues.yaml")).fingerprint for content in (same, changed)]
    assert fingerprints[0] == cues.fingerprint != fingerprints[1]
    assert reading_of("all") is None
    assert len({reading_of(claims) for claims in READINGS}) == len(READINGS)


@pytest.mark.parametrize(
    "unit",
    ['a "dog" ', "the dog ", "[ ] dog ", "\u2717 dog ", "~~dog~~ ", "| dog ", "Dog "],
    ids=lambda unit: unit.strip(),
)
def test_uses_in_a_long_line_take_linear_time(unit: str) -> None:
    n = 300_000 // len(unit)  # in quadratic time: one minute to half an hour
    assert len(MATCHER.find(unit * n + "?")) == n
