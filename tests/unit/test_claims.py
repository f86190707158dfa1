"""Which mentions are claims: negation, hedges, their scopes, and the ways into the scores and the reward."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary, score_captions
from scapo_eval.claims import CLAIMS, Claims, claim_mask, claim_mask_batch, clear_cache, cue_words, find_claims
from scapo_eval.errors import InputError

THINGS = (
    "person people man dog dogs cat cats bird birds car cars bus buses truck hat phone laptop table bench book lake"
).split()
VOCABULARY = Vocabulary.from_mapping({thing: [thing] for thing in THINGS}, name="things")
MATCHER = AliasMatcher(VOCABULARY)


def kept(text: str, claims: Claims) -> list[str]:
    mentions = MATCHER.find(text)
    return [m.surface for m, stays in zip(mentions, claim_mask(text, mentions, claims), strict=True) if stays]


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


WORDS = st.sampled_from(
    [*THINGS, "no", "not", "isn't", "isn’t", "without", "a", "the", "his", "or", "and", "but", ",", ".", ";", "\n"]
    + ["possibly", "might be", "appears to be", "looks like", "absence of", "only", "is not visible", "n't", "?t"]
    + ["É", "İ", "\ud800", "\0"]
)
TEXTS = st.lists(WORDS, max_size=25).map(" ".join)


@given(st.lists(TEXTS | st.text(max_size=40), max_size=6))
def test_a_batch_is_its_captions_and_readings_are_nested(texts: list[str]) -> None:
    columns = MATCHER.find_batch(texts)
    matchers = {claims: AliasMatcher(VOCABULARY, cue_words(claims)) for claims in CLAIMS}
    masks = {claims: claim_mask_batch(texts, *matchers[claims].find_watched(texts)) for claims in CLAIMS}
    for claims, mask in masks.items():
        single = [claim_mask(text, MATCHER.find(text), claims) for text in texts]
        np.testing.assert_array_equal(mask, np.concatenate([np.zeros(0, dtype=bool), *single]))
        left = find_claims(matchers[claims], texts)
        np.testing.assert_array_equal(left.caption, columns.caption[mask])
        np.testing.assert_array_equal(left.start, columns.start[mask])
        np.testing.assert_array_equal(left.label_id, columns.label_id[mask])
    assert masks["all"].all()
    assert not (masks["certain"] & ~masks["asserted"]).any()


def test_reach() -> None:
    near = "Possibly one of the small and old and brown and friendly and sleepy and hairy dogs."
    assert kept(near, "certain") == []
    assert kept(near.replace("friendly", "very friendly and lovely"), "certain") == ["dogs"]


def test_remembered_phrases_change_nothing() -> None:
    texts = ["Possibly a dog.", "There is no cat, dog, or bird.", "It appears to be a dog with a cat."]
    matcher = AliasMatcher(VOCABULARY, cue_words("certain"))
    clear_cache()
    first, again = (claim_mask_batch(texts, *matcher.find_watched(texts)) for _ in range(2))
    assert first.tolist() == again.tolist() == [False, False, False, False, False, True]


def test_more_captions_than_one_pass() -> None:
    texts = ["A dog.", "There is no dog.", "", "No cat, but a dog."] * 700
    mask = claim_mask_batch(texts, *AliasMatcher(VOCABULARY, cue_words("asserted")).find_watched(texts))
    assert mask.tolist() == [True, False, False, True] * 700


def test_a_boundary_never_falls_inside_a_mention_that_is_no_claim() -> None:
    vocabulary = Vocabulary.from_mapping({"shop": ["Smith, Jones and Sons"], "cat": ["cat"]}, name="shops")
    oracle = PresenceOracle.from_objects({"1": ["cat"]}, source="test")
    text = "There is not one Smith, Jones and Sons shop in this town. There is a cat in it."
    for claims in CLAIMS:
        (result,) = SubsentenceReward(vocabulary, oracle, RewardConfig(rule="clause", claims=claims))([1], [text])
        assert [text[part.start : part.end] for part in result.parts] == [text[:58], text[58:]]


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(InputError, match="claims must be one of all, asserted, certain, got 'some'"):
        claim_mask("a dog", MATCHER.find("a dog"), "some")  # type: ignore[arg-type]


def test_scores_by_claims() -> None:
    oracle = PresenceOracle.from_objects({"1": ["cat"]}, source="test")
    records = [{"image_id": 1, "caption": "There is no dog. A cat, possibly a bird."}]
    scored = {c: score_captions(records, vocabulary=VOCABULARY, oracle=oracle, claims=c, resamples=0) for c in CLAIMS}
    assert [scored[c].counts["hallucinated"] for c in CLAIMS] == [2, 1, 0]
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
