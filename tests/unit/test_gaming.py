"""The page on what can be gamed says what the real reward pays, and its monitors show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gaming
import pytest

from scapo_eval import Vocabulary
from scapo_eval.matching import near
from scapo_eval.matching.near import NearMisses
from scapo_eval.rewarding.batch import log_metrics
from scapo_eval.rewarding.monitor import behavior_metrics, behavior_sums

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_page() -> None:
    page = (ROOT / "docs" / "lab" / "gaming.md").read_text()
    for table in (*gaming.tables().split("\n\n"), gaming.worst_finds()):
        assert table in page


def test_what_the_page_says() -> None:
    pays = gaming.pays()
    honest = pays["honest"]
    gain = {"denial of present objects", "very short pieces", "in the reasoning", "one template", "questions"}
    no_gain = set(pays) - {"honest", "nowhere to be found", *gain}
    assert all(pays[name]["default"] <= honest["default"] for name in no_gain)
    assert pays["the same sentences three times"]["`r_rep=1`"] == 3 * honest["`r_rep=1`"]
    assert pays["denial of present objects"]["`claims=asserted`"] < 0 < pays["denial of present objects"]["default"]
    assert pays["two wrong objects, glued"]["default"] > pays["two wrong objects, apart"]["default"]
    linear = "`lam_g, lam_h=linear`"
    assert pays["two wrong objects, glued"][linear] == pays["two wrong objects, apart"][linear]
    assert pays["in the reasoning"]["`discourse`, `answer_only`"] < 0 < pays["in the reasoning"]["default"]
    assert pays["nothing"]["`level=hal`"] == 1


@pytest.mark.parametrize(
    ("name", "monitor", "sign"),
    [
        *((name, monitor, sign) for name, (monitor, sign) in gaming.ALARMS.items()),
        ("the same sentences three times", "repeated_share", 1),
        ("filler about nothing", "without_label_share", 1),
        ("likely objects in one list", "labels_per_piece", 1),
        ("hedged guesses", "hedge_rate", 1),
        ("denial of absent objects", "denial_rate", 1),
        ("all in one sentence", "words_per_piece", 1),
        ("very short pieces", "words_per_piece", -1),
        ("in the reasoning", "silent_share", 1),
    ],
)
def test_monitors(name: str, monitor: str, sign: int) -> None:
    behavior = gaming.behavior()
    assert sign * (behavior[name][monitor] - behavior["honest"][monitor]) > 0


@pytest.mark.parametrize(
    ("text", "quotes"),
    [
        ("A 'car' and a 'red bus'.", 2),
        ("A \u2018car\u2019 and \u2018two buses\u2019.", 2),
        ("The dog's bowl isn't the dogs' own; it's the '80s.", 0),
        ("The dog\u2019s bowl isn\u2019t the dogs\u2019 own.", 0),
        ("Rock 'n' roll plays.", 1),  # like a quotation
        ("A man is 6' tall, the other 5'.", 0),
        ("The girls' toys ' are ' here.", 0),
        ("He says: 'It reads\nstop'", 0),
    ],
)
def test_quotations_in_single_quotes_are_no_apostrophes(text: str, quotes: int) -> None:
    assert behavior_sums(gaming.reward_of(gaming.SETTINGS["default"]).batch(["1"], [text]))["quotes"] == quotes


def test_general_words_leave_indefinites_without_labels() -> None:
    reward = gaming.reward_of(gaming.SETTINGS["default"])
    named = behavior_sums(reward.batch(["1"], ["A dog sits on a bench. Two men watch."]))
    general = behavior_sums(reward.batch(["1"], ["An animal sits on some furniture. Two things shine."]))
    assert (named["labels"], named["indefinites"]) == (3, 3)
    assert (general["labels"], general["indefinites"]) == (0, 3)


@pytest.mark.parametrize(
    ("text", "denials"),
    [
        ("Dogs run. A dog runs.", 0),
        ("A bench stands here. A dog is here.", 0),
        ("Road signs stand near a dog.", 0),
        ("A man takes part in a race, far from home, and has a hot dog.", 0),
        ("There is no car. There isn't a dog.", 2),
        ("A man is nowhere to be found.", 1),
        ("The shop has run out of dogs.", 1),
        ("There are few signs of people.", 1),
        ("The bench is missing; the room is free of cats.", 2),
    ],
)
def test_denials_are_words_that_deny(text: str, denials: int) -> None:
    assert behavior_sums(gaming.reward_of(gaming.SETTINGS["default"]).batch(["1"], [text]))["denials"] == denials


def test_sums_add_up_and_are_logged() -> None:
    reward = gaming.reward_of(gaming.SETTINGS["default"])
    responses = list(gaming.RESPONSES.values())
    whole = reward.batch(["1"] * len(responses), responses)
    parts = [behavior_sums(reward.batch(["1"], [response])) for response in responses]
    assert behavior_sums(whole) == {name: sum(part[name] for part in parts) for name in parts[0]}
    logged = log_metrics(whole)
    expected = behavior_metrics(behavior_sums(whole))
    assert {name: logged[f"scapo/{name}"] for name in expected} == expected
    assert set(log_metrics(reward.batch([], [])).values()) == {0.0}


def test_no_trick_pays_under_the_robust_preset_and_some_do_under_the_papers() -> None:
    robust = gaming.SETTINGS["`robust()`"]
    assert gaming.attack(robust)[0].gain == 0
    assert gaming.attack(gaming.SETTINGS["default"])[0].gain >= 3
    pays = gaming.pays()
    assert all(own["`robust()`"] <= pays["honest"]["`robust()`"] for own in pays.values())
    assert "preset:robust" in gaming.reward_of(robust).signature
    assert "preset" not in gaming.reward_of(gaming.SETTINGS["default"]).signature


@pytest.mark.parametrize("padded", ["blank lines", "many periods"])
def test_padding_earns_credit_only_with_the_papers_settings(padded: str) -> None:
    texts = [gaming.RESPONSES[name] for name in ("honest", padded)]
    characters = [[(k, k + 1) for k in range(len(text))] for text in texts]
    for setting, paid in (("default", 30.0), ("`robust()`", 0.0)):
        honest, long = gaming.reward_of(gaming.SETTINGS[setting]).batch(["1"] * 2, texts).token_advantages(characters)
        assert long.sum() - honest.sum() == paid


def test_inventions_cost_however_they_are_written() -> None:
    pays = {name: own["`robust()`"] for name, own in gaming.pays().items()}
    assert pays["inventions in quotes"] == pays["honest"] - 4
    assert pays["inventions misspelt"] == pays["inventions in look-alike letters"] == pays["honest"] - 3
    assert pays["hidden text"] < 0
    visual = {name: own["`claims=visual`"] for name, own in gaming.pays().items()}
    assert visual["inventions in quotes"] == visual["honest"] - 2
    written = 'A sign reads "car" beside the bench.'
    reward = gaming.reward_of(gaming.SETTINGS["`claims=visual`"])
    assert reward(["1"], [written])[0].hallucinated == 0
    assert reward(["1"], [written.replace("sign reads", "man sees a")])[0].hallucinated == 1


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("0r4n63", None),
        ("0range", "orange"),
        ("5uitcase", "suitcase"),
        ("bottl3", "bottle"),
        ("ski5", "skis"),
        ("1apt0p", "laptop"),
        ("trucck", "truck"),
        ("botle", "bottle"),
        ("umbrelka", "umbrella"),
        ("elehpant", "elephant"),
        ("imbrella", None),
        ("truch", None),
        ("truck", None),
    ],
)
def test_misspelled_names_are_near_misses(word: str, label: str | None) -> None:
    vocabulary = Vocabulary.load("coco80")
    found = NearMisses(vocabulary).find([f"A {word} here.", f"On the right, a {word}"])
    places = [] if label is None else [(0, 2), (1, 16)]
    assert [(k, start, vocabulary.labels[row]) for k, start, row in found] == [(*place, label) for place in places]


def test_a_word_between_two_names_has_the_same_label_in_every_process() -> None:
    names = [f"{first}{second}bqrtsm" for first in "abcdefgh" for second in "oi"]
    vocabulary = Vocabulary.from_mapping({name: [name] for name in names}, name="pairs")
    found = NearMisses(vocabulary).find(["axbqrtsm bxbqrtsm cxbqrtsm dxbqrtsm exbqrtsm fxbqrtsm gxbqrtsm hxbqrtsm"])
    assert [vocabulary.labels[row] for _, _, row in found] == [f"{first}ibqrtsm" for first in "abcdefgh"]


def test_letters_without_a_space_are_compared_with_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    misses, keys, lengths = NearMisses(Vocabulary.load("coco80")), near._keys, list[int]()

    def counted(word: str) -> Iterator[str]:
        lengths.append(len(word))
        return keys(word)

    monkeypatch.setattr(near, "_keys", counted)
    assert [start for _, start, _ in misses.find(["E" + "lphan" * 1000 + "t elexphant"])] == [5003]
    assert lengths == [len("elexphant")]


def test_a_letter_whose_lower_case_is_longer_hides_no_near_miss() -> None:
    assert [start for _, start, _ in NearMisses(Vocabulary.load("coco80")).find(["A trucck, \u0130."])] == [2]
