"""The reward against a literal transcription of Algorithm 1 that shares no code with it, and its contract."""

from __future__ import annotations

import copy
import math
import pickle
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scapo_eval import (
    AliasMatcher,
    InputError,
    InputErrors,
    PresenceOracle,
    RewardConfig,
    SubsentenceReward,
    Vocabulary,
)
from scapo_eval.base.deprecation import ScapoDeprecationWarning
from scapo_eval.base.verdicts import Verdict
from scapo_eval.rewarding.reward import Part
from scapo_eval.segmenting.segment import split_subsentences

# ---- Algorithm 1, lines 8-18, word by word ----

WORDS = {
    "dog": "dog",
    "dogs": "dog",
    "puppy": "dog",
    "cat": "cat",
    "car": "car",
    "cars": "car",
    "tree": "tree",
    "sky": "sky",
}
LABELS = ("dog", "cat", "car", "tree", "sky")


def match_labels(subsentence: str) -> set[str]:
    """MatchLabels: the labels of the one-word aliases of WORDS."""
    return {WORDS[word] for word in re.findall(r"[a-z]+", subsentence.lower()) if word in WORDS}


def algorithm_1(pieces, exists, r_g, r_rep, r_h, r_reg, lambda_g, lambda_h, *, additive=False):
    """``pieces``: the strings s_1 ... s_M; ``exists``: label -> 1 or 0 (E* of the image). Returns r and the counts."""
    out = []
    H = set()
    for s in pieces:
        O = match_labels(s)  # noqa: E741
        P_plus = {label for label in O if exists[label] == 1}
        P_minus = {label for label in O if exists[label] == 0}
        n_new, n_rep, n_hal = len(P_plus - H), len(P_plus & H), len(P_minus)
        known = P_plus | P_minus  # cells that are neither count for nothing
        if n_hal > 0 and not additive:
            r = -r_h * lambda_h(n_hal)
        elif not known:
            r = -r_reg
        else:
            r = r_g * lambda_g(n_new) + r_rep * lambda_g(n_rep)
            if additive and n_hal:
                r = r - r_h * lambda_h(n_hal)
        H = H | P_plus
        out.append((r, n_new, n_rep, n_hal))
    return out


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    aliases = {label: [alias for alias, named in WORDS.items() if named == label] for label in LABELS}
    return Vocabulary.from_mapping(aliases, ignore=["car seat"], name="toy")


SCALINGS = {
    "min1": lambda n: min(n, 1),
    "linear": lambda n: float(n),
    "sqrt": lambda n: n**0.5,
    "log1p": lambda n: math.log(1 + n),
}


def random_text(rng: random.Random) -> str:
    """Words, names of objects, all kinds of punctuation; now and then nothing."""
    words = [*WORDS, "a", "the", "is", "Dog", "CARS", "red", "carpet", "und", "3.5", "é", "日本"]
    marks = [". ", ", ", "; ", ": ", "! ", "? ", "\n", " - ", "... ", " ", " ", " ", " ", " ", " ", " "]
    return "".join(rng.choice(words) + rng.choice(marks) for _ in range(rng.choice([0, 1, 3, 8, 20, 40])))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_equals_algorithm_1_on_random_cases(vocabulary: Vocabulary, seed: int) -> None:
    rng = random.Random(seed)
    cases = 0
    for _ in range(40):  # 5 x 40 x 60 = 12,000 responses
        images = {str(k): [label for label in LABELS if rng.random() < 0.5] for k in range(6)}
        unknown_axis = rng.random() < 0.3
        axis = LABELS[:4] if unknown_axis else LABELS  # "sky" is outside the axis: unknown
        oracle = PresenceOracle.from_objects(
            {k: [label for label in present if label in axis] for k, present in images.items()}, labels=axis
        )
        name_g, name_h = rng.choice(list(SCALINGS)), rng.choice(list(SCALINGS))
        r_g, r_rep, r_h, r_reg = (rng.choice([0.0, 0.1, 0.5, 1.0, 2.0]) for _ in range(4))
        r_rep *= rng.choice([1, -1])
        additive = rng.random() < 0.3
        lam_g = name_g if rng.random() < 0.5 else SCALINGS[name_g]
        config = RewardConfig(
            r_g,
            r_rep,
            r_h,
            r_reg,
            lam_g,
            name_h,
            rng.choice(["subsentence", "sentence", "clause", "response"]),
            additive=additive,
        )
        reward = SubsentenceReward(vocabulary, oracle, config)
        ids = [rng.choice(list(images)) for _ in range(60)]
        texts = [random_text(rng) for _ in ids]
        for image, text, result in zip(ids, texts, reward(ids, texts), strict=True):
            spans = split_subsentences(text, config.rule, reward.matcher.find(text))
            exists = {label: 1 if label in images[image] else 0 for label in LABELS} | (
                {"sky": -1} if unknown_axis else {}
            )
            pieces = [text[span.start : span.end] for span in spans]
            expected = algorithm_1(
                pieces, exists, r_g, r_rep, r_h, r_reg, SCALINGS[name_g], SCALINGS[name_h], additive=additive
            )
            assert [(part.start, part.end) for part in result.parts] == [(span.start, span.end) for span in spans]
            assert [(part.new, part.rep, part.hal) for part in result.parts] == [row[1:] for row in expected]
            assert [part.reward for part in result.parts] == pytest.approx([row[0] for row in expected], abs=1e-12)
            claimed = {label for piece in pieces for label in match_labels(piece)}
            assert result.covered == sum(exists[label] == 1 for label in claimed)
            assert result.hallucinated == sum(exists[label] == 0 for label in claimed)
            assert result.unknown == sum(exists[label] == -1 for label in claimed)
            assert result.generated == result.covered + result.hallucinated
            cases += 1
    assert cases >= 2_400


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_the_default_rewards_are_exactly_those_of_algorithm_1(vocabulary: Vocabulary, seed: int) -> None:
    """With the paper's coefficients, bit by bit and on more than 10,000 responses in all."""
    rng = random.Random(1000 + seed)
    images = {str(k): [label for label in LABELS if rng.random() < 0.5] for k in range(50)}
    reward = SubsentenceReward(vocabulary, PresenceOracle.from_objects(images, labels=LABELS))
    ids = [rng.choice(list(images)) for _ in range(6_000)]
    texts = [random_text(rng) for _ in ids]
    for image, text, result in zip(ids, texts, reward(ids, texts), strict=True):
        pieces = [text[span.start : span.end] for span in split_subsentences(text)]
        exists = {label: int(label in images[image]) for label in LABELS}
        one = SCALINGS["min1"]
        expected = algorithm_1(pieces, exists, 1.0, 0.0, 1.0, 0.1, one, one)
        assert [tuple(part[2:]) for part in result.parts] == expected
        assert result.total == pytest.approx(math.fsum(row[0] for row in expected), abs=1e-9)


# ---- Eq. 1 by hand ----


@pytest.fixture(scope="module")
def oracle() -> PresenceOracle:
    return PresenceOracle.from_objects({226988: ["dog", "tree"], 7: ["cat"], 8: []}, labels=LABELS)


def rewards_of(
    vocabulary: Vocabulary, oracle: PresenceOracle, text: str, config: RewardConfig | None = None
) -> list[float]:
    return [part.reward for part in SubsentenceReward(vocabulary, oracle, config)([226988], [text])[0].parts]


STORY = "A dog is here today. A dog and a cat play on. The puppy sits by a tree. It is a nice day."


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RewardConfig(), [1.0, -1.0, 1.0, -0.1]),
        (RewardConfig.ablation("additive"), [1.0, -1.0, 1.0, -0.1]),
        (RewardConfig.ablation("additive", r_rep=0.5), [1.0, -0.5, 1.5, -0.1]),
        (RewardConfig.ablation("full_repeat"), [1.0, -1.0, 2.0, -0.1]),
        (RewardConfig.ablation("no_reg"), [1.0, -1.0, 1.0, 0.0]),
        (RewardConfig(r_g=2, r_h=3, r_reg=0), [2.0, -3.0, 2.0, 0.0]),
    ],
)
def test_equation_1(
    vocabulary: Vocabulary, oracle: PresenceOracle, config: RewardConfig, expected: list[float]
) -> None:
    assert rewards_of(vocabulary, oracle, STORY, config) == pytest.approx(expected)


def test_history_takes_supported_labels_of_a_hallucinating_piece(
    vocabulary: Vocabulary, oracle: PresenceOracle
) -> None:
    parts = SubsentenceReward(vocabulary, oracle)([226988], ["A dog chases a red car now. The dog is very brown."])[
        0
    ].parts
    assert parts == [Part(0, 28, -1.0, 1, 0, 1), Part(28, 50, 0.0, 0, 1, 0)]
    start, end, reward, new, rep, hal = parts[1]
    assert (start, end, reward, new, rep, hal) == (28, 50, 0.0, 0, 1, 0)


def test_scalings_count_labels_not_mentions(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    config = RewardConfig(lam_g="linear", lam_h="sqrt")
    text = "A dog, dogs and a tree. A cat, a car and the blue sky and cars."
    assert rewards_of(vocabulary, oracle, text, config) == pytest.approx([2.0, -math.sqrt(3)])


def test_claims_name_the_labels_behind_the_counts(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    result = SubsentenceReward(vocabulary, oracle)([226988], [STORY])[0]
    new, repeated, absent = Verdict.SUPPORTED, Verdict.REPEATED, Verdict.HALLUCINATED
    assert result.verdicts == [{"dog": new}, {"dog": repeated, "cat": absent}, {"dog": repeated, "tree": new}, {}]
    with pytest.warns(ScapoDeprecationWarning, match="RewardResult.verdicts"):
        assert result.claims[1] == {"dog": "rep", "cat": "hal"}
    assert (result.generated, result.hallucinated, result.covered, result.unknown) == (3, 1, 2, 0)
    assert result.total == pytest.approx(0.9)


def test_response_levels(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    ids, texts = [226988, 226988, 226988, 8], [STORY, "What a nice day.", "", "A dog."]
    hal = SubsentenceReward(vocabulary, oracle, RewardConfig(level="hal"))(ids, texts)
    cap = SubsentenceReward(vocabulary, oracle, RewardConfig(level="cap"))(ids, texts)
    assert [result.total for result in hal] == pytest.approx([2 / 3, 1.0, 1.0, 0.0])  # saying nothing is the shortcut
    assert [result.total for result in cap] == pytest.approx([0.8, 0.0, 0.0, 0.0])  # 2 * 2/3 * 1 / (2/3 + 1)
    assert [len(result.parts) for result in hal] == [1, 1, 1, 1]
    assert hal[0].parts[0][:2] == (0, len(STORY))
    for beta, first in ((0.5, 1.25 * (2 / 3) / (0.25 * 2 / 3 + 1)), (2.0, 5 * (2 / 3) / (4 * 2 / 3 + 1))):
        weighed = SubsentenceReward(vocabulary, oracle, RewardConfig(level="cap", beta=beta))(ids, texts)
        assert [result.total for result in weighed] == pytest.approx(
            [first, 0.0, 0.0, 0.0]
        )  # of precision 2/3, recall 1


def test_unknown_cells_count_for_nothing(vocabulary: Vocabulary) -> None:
    oracle = PresenceOracle.from_objects({1: ["dog"]}, labels=["dog", "cat"])
    result = SubsentenceReward(vocabulary, oracle)([1], ["The sky over a tree is blue. A dog looks at the sky."])[0]
    assert [part.reward for part in result.parts] == [-0.1, 1.0]
    assert (result.generated, result.unknown) == (1, 2)
    unknown = Verdict.UNKNOWN
    assert result.verdicts == [{"tree": unknown, "sky": unknown}, {"dog": Verdict.SUPPORTED, "sky": unknown}]


def test_negated_and_hedged_mentions_can_be_left_out(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    text = "There is no cat in this picture. It is possibly a dog that sits here."
    by_claims = {
        claims: rewards_of(vocabulary, oracle, text, RewardConfig(claims=claims))  # type: ignore[arg-type]
        for claims in ("all", "asserted", "certain")
    }
    assert by_claims == {"all": [-1.0, 1.0], "asserted": [-0.1, 1.0], "certain": [-0.1, -0.1]}


def test_object_rule_and_empty_batch(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    reward = SubsentenceReward(vocabulary, oracle, RewardConfig(rule="object"))
    assert [part[:3] for part in reward([226988], ["A dog and a cat here."])[0].parts] == [(0, 5, 1.0), (5, 21, -1.0)]
    assert reward([], []) == []


# ---- tokens ----


def test_token_advantages_follow_the_owner_rule(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    #       0         1         2
    #       0123456789012345678901234567890
    text = "The dog runs far now.The cat is there too.  "
    result = SubsentenceReward(vocabulary, oracle)([226988], [text])[0]
    assert [part[:3] for part in result.parts] == [(0, 21, 1.0), (21, 44, -1.0)]
    offsets = [(0, 3), (3, 20), (20, 24), (24, 25), (25, 42), (42, 43), (43, 44), (44, 44)]
    assert result.token_advantages(offsets).tolist() == [1, 1, -1, -1, -1, -1, -1, 0]
    assert result.token_advantages(offsets).dtype == np.float32
    # the token "now. " ends in white space: its last other character is the full stop, in the first piece
    text = "The dog runs far now. The cat is there too."
    result = SubsentenceReward(vocabulary, oracle)([226988], [text])[0]
    assert result.token_advantages([(17, 22), (21, 22), (21, 25), (22, 25)]).tolist() == [1, 1, -1, -1]


@pytest.mark.parametrize(
    ("text", "credited"),
    [
        ("A dog is far away... \n\n", "1 111 11 111 11111     "),
        ('A dog,  "far" off - so!!', "1 1111   1111 111   111 "),
        ("A dog, \u4e00\u0301\u00b7\u00b7 caf\u00e9\u3000", "1 1111 111  1111 "),
    ],
)
def test_credit_for_words(vocabulary: Vocabulary, oracle: PresenceOracle, text: str, credited: str) -> None:
    config = RewardConfig(tokens="words")
    [result] = SubsentenceReward(vocabulary, oracle, config)([226988], [text])
    offsets = [(k, k + 1) for k in range(len(text))]
    assert [part.reward for part in result.parts] == [1.0]
    assert result.token_advantages(offsets).tolist() == [float(c == "1") for c in credited]
    [paper] = SubsentenceReward(vocabulary, oracle)([226988], [text])
    assert paper.token_advantages(offsets).tolist() == [1.0] * len(text)


def test_credit_for_words_does_not_depend_on_the_batch(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    texts = ["A dog is far away", "", "...A dog is far away", "", "", "caf\u00e9.. a dog is far away"]
    reward = SubsentenceReward(vocabulary, oracle, RewardConfig(tokens="words"))
    offsets = [[(k, k + 1) for k in range(len(text))] for text in texts]
    together = reward.batch([226988] * len(texts), texts).token_advantages(offsets)
    for text, spans, found in zip(texts, offsets, together, strict=True):
        [alone] = reward([226988], [text])
        assert found.tolist() == alone.token_advantages(spans).tolist()
    assert together[2].tolist()[:4] == [0.0, 0.0, 0.0, 1.0]


def test_tokens_with_credit_are_a_setting(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    text = "A dog is far away. The cat is there.\n"
    [result] = SubsentenceReward(vocabulary, oracle, RewardConfig(tokens="words"))([226988], [text])
    offsets = [(0, 17), (17, 19), (18, 19), (18, 22), (22, 36), (36, 37), (37, 37)]
    assert result.token_advantages(offsets).tolist() == [1, 1, 0, -1, -1, 0, 0]
    assert result.token_advantages(offsets, eos="last").tolist() == [1, 1, 0, -1, -1, 0, -1]
    assert "tokens='words'" in repr(RewardConfig(tokens="words"))
    with pytest.raises(InputError, match="tokens must be"):
        RewardConfig(tokens="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, -0.1, 0, 0]),
        ({"eos": "last"}, [1, -0.1, -0.1, 0]),
        ({"eos": "own"}, [1, -0.1, -0.1, 0]),
        ({"eos": "last", "finished": False}, [1, -0.1, 0, 0]),
        ({"truncated": "mask"}, [1, -0.1, 0, 0]),
        ({"truncated": "mask", "finished": False}, [1, 0, 0, 0]),
        ({"truncated": "score", "finished": False}, [1, -0.1, 0, 0]),
    ],
)
def test_end_of_sequence_and_truncation(
    vocabulary: Vocabulary, oracle: PresenceOracle, options: dict[str, str | bool], expected: list[float]
) -> None:
    result = SubsentenceReward(vocabulary, oracle)([226988], ["A dog is here today. What a nice day it is"])[0]
    offsets = [(0, 21), (21, 42), (42, 42), (0, 0)]  # text, text, end of sequence, padding as other libraries write it
    assert result.token_advantages(offsets, **options).tolist() == pytest.approx(expected)


def test_end_of_sequence_credit_by_choice(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    result = SubsentenceReward(vocabulary, oracle)([226988], ["It is a nice day. A dog is here today."])[0]
    offsets = [(0, 18), (18, 38), (38, 38)]
    by_choice = {eos: result.token_advantages(offsets, eos=eos)[-1] for eos in ("zero", "last", "own")}
    assert by_choice == {"zero": 0.0, "last": 1.0, "own": np.float32(-0.1)}


def test_an_empty_response_has_no_reward(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    columns = SubsentenceReward(vocabulary, oracle).batch([226988, 7], ["", "A cat."])
    empty = columns.results()[0]
    assert (empty.parts, empty.total, columns.n_empty, columns.n_errors) == ([], 0.0, 1, 0)
    assert empty.token_advantages([]).tolist() == []
    assert empty.token_advantages([(0, 0)], eos="last").tolist() == [0.0]


def test_batch_and_single_token_advantages_agree(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    rng = random.Random(3)
    texts = [random_text(rng) for _ in range(200)]
    columns = SubsentenceReward(vocabulary, oracle).batch([rng.choice([7, 8, 226988]) for _ in texts], texts)
    offsets = []
    for text in texts:
        cuts = sorted({0, len(text), *(rng.randrange(len(text) + 1) for _ in range(8))})
        offsets.append([*zip(cuts, cuts[1:], strict=False), (len(text), len(text))])
    finished = [rng.random() < 0.5 for _ in texts]
    together = columns.token_advantages(offsets, eos="last", truncated="mask", finished=finished)
    for result, spans, ended, advantages in zip(columns.results(), offsets, finished, together, strict=True):
        alone = result.token_advantages(spans, eos="last", truncated="mask", finished=ended)
        np.testing.assert_array_equal(alone, advantages)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([(0, 5), (3, 4)], r"offsets: token 1: \(3, 4\) starts before the end of \(0, 5\)"),
        ([(2, 5), (1, 6)], r"offsets: token 1: \(1, 6\) starts before the end of \(2, 5\)"),
        ([(0, 3), (6, 5)], r"offsets: token 1: \(6, 5\) ends before it starts"),
        ([(0, 3), (3, 99)], r"offsets: token 1: \(3, 99\) exceeds the text of 6 characters"),
        ([(0, 2**40)], r"offsets: token 0: \(0, 1099511627776\) exceeds the text of 6 characters"),
        ([(-1, 3)], r"offsets: token 0: \(-1, 3\) exceeds the text"),
        ([(0, 1, 2)], r"offsets of response 0: expected \(start, end\)"),
        ([(0.5, 1.0)], r"offsets of response 0: expected \(start, end\)"),
        ([(0, 1), (1,)], r"offsets of response 0: expected \(start, end\)"),
        ("abc", r"offsets of response 0: expected \(start, end\)"),
    ],
)
def test_bad_offsets_are_named(vocabulary: Vocabulary, oracle: PresenceOracle, offsets: object, message: str) -> None:
    result = SubsentenceReward(vocabulary, oracle)([226988], ["A dog."])[0]
    with pytest.raises(InputError, match=message):
        result.token_advantages(offsets)  # type: ignore[arg-type]


def test_bad_offsets_of_a_batch_name_the_response(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    columns = SubsentenceReward(vocabulary, oracle).batch([7, 7], ["A dog.", "A cat."])
    with pytest.raises(InputError, match=r"offsets: response 1, token 2: \(1, 9\) exceeds the text of 6 characters"):
        columns.token_advantages([[(0, 6)], [(0, 1), (1, 1), (1, 9)]])
    with pytest.raises(InputError, match="offsets of 1 responses for 2 responses"):
        columns.token_advantages([[(0, 6)]])
    with pytest.raises(InputError, match="eos must be one of zero, last, own, got 'none'"):
        columns.token_advantages([[], []], eos="none")  # type: ignore[arg-type]


# ---- contract ----


def test_bad_rows_stop_the_batch_or_are_counted(
    vocabulary: Vocabulary, oracle: PresenceOracle, caplog: pytest.LogCaptureFixture
) -> None:
    ids: list[object] = [226988, 999, "COCO_val2014_000000226988.jpg", np.int64(7), None, 7]
    texts: list[object] = ["A dog.", "A dog.", None, "A cat.", "A cat.", b"A cat."]
    with pytest.raises(InputErrors) as raised:
        SubsentenceReward(vocabulary, oracle)(ids, texts)
    assert str(raised.value).splitlines() == [
        "image_ids[1]: unknown image id 999",
        "responses[2]: must be a string, got None",
        "image_ids[4]: image id must be a number or a string, not null",
        "responses[5]: must be a string, got b'A cat.'",
    ]
    with pytest.raises(InputError, match=r"image_ids\[0\]: unknown image id 999"):
        SubsentenceReward(vocabulary, oracle)([999], ["A dog."])
    columns = SubsentenceReward(vocabulary, oracle, on_error="zero").batch(ids, texts)
    assert "4 of 6 rows get no reward; image_ids[1]: unknown image id 999" in caplog.text
    assert columns.total.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert sorted(columns.errors) == [1, 2, 4, 5]
    assert (columns.n_errors, columns.n_empty) == (4, 0)
    advantages = columns.token_advantages([[(0, 6), (6, 6)]] * 6, eos="own")
    assert [row.tolist() for row in advantages] == [[1, np.float32(-0.1)] if k in (0, 3) else [0, 0] for k in range(6)]
    results = columns.results()
    assert results[1].parts == []
    assert "999" in str(results[1].error)
    assert results[0].error is None


def test_a_batch_without_a_good_row_raises_even_so(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    """The truth is another data set's. One image alone may be faulty: a group of its samples is one bad row."""
    reward = SubsentenceReward(vocabulary, oracle, on_error="zero")
    with pytest.raises(
        InputErrors, match=r"image_ids\[0\]: unknown image id 998\nimage_ids\[1\]: unknown image id 999"
    ):
        reward([998, 999], ["A dog.", "A cat."])
    assert [result.total for result in reward([999, 999], ["A dog.", "A cat."])] == [0.0, 0.0]
    assert len(reward([], [])) == 0


def test_scalars_of_any_library_are_ids(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    torch = pytest.importorskip("torch")
    ids = [7, np.int64(7), np.float64(7), np.array(7), np.array("7"), np.str_("7"), torch.tensor(7), torch.tensor(7.0)]
    assert SubsentenceReward(vocabulary, oracle).batch(ids, ["A cat."] * len(ids)).covered.tolist() == [1] * len(ids)
    with pytest.raises(InputError, match=r"image_ids\[0\]: image id must be a number or a string, not ndarray"):
        SubsentenceReward(vocabulary, oracle)([np.array([7])], ["A cat."])
    with pytest.raises(InputError, match="not true"):
        SubsentenceReward(vocabulary, oracle)([np.bool_(True)], ["A cat."])


def test_levels_give_faulty_rows_nothing(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    reward = SubsentenceReward(vocabulary, oracle, RewardConfig(level="hal"), on_error="zero")
    assert [result.total for result in reward([1, 7], ["A dog.", "A cat."])] == [0.0, 1.0]


def test_the_batch_itself_is_checked(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    reward = SubsentenceReward(vocabulary, oracle)
    with pytest.raises(InputError, match="2 image ids for 1 responses"):
        reward([7, 7], ["A cat."])
    with pytest.raises(InputError, match="found a single string"):
        reward([7], "A cat.")
    for given, found in ((None, "NoneType"), (7, "int")):
        with pytest.raises(InputError, match=f"expected a list of image ids and a list of responses, found {found}"):
            reward.batch(given, ["A cat."])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r_g": -1}, "r_g must be a number >= 0, got -1"),
        ({"r_rep": float("-inf")}, "r_rep must be a number, got -inf"),
        ({"r_h": float("nan")}, "r_h must be a number >= 0, got nan"),
        ({"r_reg": "0.1"}, "r_reg must be a number >= 0, got '0.1'"),
        ({"lam_g": "square"}, "lam_g must be one of min1, linear, sqrt, log1p or a function, got 'square'"),
        ({"rule": "word"}, "rule must be one of"),
        ({"claims": "some"}, "claims must be one of all, asserted, certain, visual, got 'some'"),
        ({"template_discount": True}, "template_discount must be between 0 and 1, got True"),
        ({"beta": 0, "level": "cap"}, "beta must be a number > 0, got 0"),
        ({"beta": 2.0}, "beta requires level 'cap', got level 'subsentence'"),
        ({"level": "token"}, "level must be one of subsentence, hal, cap, got 'token'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RewardConfig(**settings)  # type: ignore[arg-type]


def test_settings_have_one_spelling() -> None:
    assert repr(RewardConfig(r_reg=0, beta=1)) == repr(RewardConfig(r_reg=0.0))
    for name in ("additive", "answer_only", "near_misses"):
        for value in ("false", "no", 1, None):
            with pytest.raises(InputError, match=f"{name} must be True or False, got"):
                RewardConfig(**{name: value})  # type: ignore[arg-type]


def test_functions_with_wrong_results_are_named(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    without = RewardConfig(rule=lambda text: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="response 0: the rule's cuts: expected offsets, got None"):
        SubsentenceReward(vocabulary, oracle, without)([7], ["A dog."])
    text = RewardConfig(piece_reward=lambda result, part: "1")  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="piece_reward must return a finite number, got '1'"):
        SubsentenceReward(vocabulary, oracle, text)([7], ["A dog."])
    large = RewardConfig(response_reward=lambda result: 10**400)
    with pytest.raises(InputError, match="response_reward must return a finite number, got 1000"):
        SubsentenceReward(vocabulary, oracle, large)([7], ["A dog."])


def test_iterators_are_read_once(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    reward = SubsentenceReward(vocabulary, oracle)
    texts = ["A dog.", "A cat."]
    found = reward(iter([7, 7]), iter(texts))  # type: ignore[arg-type]
    assert [each.parts for each in found] == [each.parts for each in reward([7, 7], texts)]
    assert repr(reward).startswith("<SubsentenceReward reward|vocab:")


def test_bad_scalings_are_refused(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    with pytest.raises(
        InputError, match=r"lam_h must be finite and must not decrease: lam_h\(1\) = 1, lam_h\(2\) = 0.5"
    ):
        SubsentenceReward(vocabulary, oracle, RewardConfig(lam_h=lambda n: [0, 1, 0.5, 1, 1, 1][n]))
    with pytest.raises(InputError, match="lam_g must be finite"):
        SubsentenceReward(vocabulary, oracle, RewardConfig(lam_g=lambda n: float("inf") if n > 2 else n))
    for faulty in (lambda n: n / 0, lambda n: [0, 1][n]):
        with pytest.raises(InputError, match="lam_g must be a function of a count"):
            SubsentenceReward(vocabulary, oracle, RewardConfig(lam_g=faulty))
    with pytest.raises(InputError, match="ablation must be one of additive, full_repeat, no_reg, got 'none'"):
        RewardConfig.ablation("none")  # type: ignore[arg-type]


def test_matrix_of_another_vocabulary_is_refused(vocabulary: Vocabulary, tmp_path) -> None:
    path = tmp_path / "matrix.npz"
    np.savez(
        path,
        matrix=np.ones((1, 1), dtype=np.int8),
        image_ids=["1"],
        labels=["dog"],
        vocabulary_fingerprint="0",
        version="1",
    )
    matrix = PresenceOracle.load(path)
    with pytest.raises(InputError, match="fingerprint 0"):
        SubsentenceReward(vocabulary, matrix)
    assert SubsentenceReward(vocabulary, matrix, any_fingerprint=True)([1], ["A dog."])[0].total == 1.0


def test_truth_labels_outside_the_vocabulary_are_reported_once(
    vocabulary: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    reward = SubsentenceReward(vocabulary, PresenceOracle.from_objects({1: ["dog", "zebra"]}))
    assert "1 labels of the ground truth are not in the vocabulary 'toy'" in caplog.text
    assert reward([1], ["A dog."])[0].covered == 1


def test_pickles_and_serves_threads(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    reward = SubsentenceReward(vocabulary, oracle, RewardConfig(lam_g="sqrt"), on_error="zero")
    again = pickle.loads(pickle.dumps(reward))
    assert again.signature == reward.signature
    assert again.on_error == "zero"
    rng = random.Random(5)
    texts = [random_text(rng) for _ in range(300)]
    ids = [rng.choice([7, 8, 226988]) for _ in texts]
    expected = again(ids, texts)
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: reward(ids, texts), range(8)):
            assert [result.parts for result in results] == [result.parts for result in expected]
    one = pickle.loads(pickle.dumps(expected[17]))
    assert (one.parts, one.verdicts, one.total, one.response) == (
        expected[17].parts,
        expected[17].verdicts,
        expected[17].total,
        texts[17],
    )
    assert len(one.columns) == 1


SUBCLASS = """
import copy, multiprocessing, pickle, sys
import numpy as np
from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary

def half(n):
    return n / 2

class Mine(SubsentenceReward):
    def __init__(self, bonus):
        vocabulary = Vocabulary.from_mapping({"dog": ["dog"], "cat": ["cat"]})
        oracle = PresenceOracle.from_objects({1: ["dog"]}, labels=["dog", "cat"])
        super().__init__(vocabulary, oracle, RewardConfig(lam_g=half), on_error="zero")
        self.bonus = bonus

    def _piece_rewards(self, new, rep, hal):
        return super()._piece_rewards(new, rep, hal) + self.bonus

def score(reward):
    return type(reward).__name__, reward([1], ["A dog."])[0].total, reward.on_error

if __name__ == "__main__":
    mine = Mine(bonus=6.5)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(score, (mine,))
    copies = [score(each) for each in (mine, pickle.loads(pickle.dumps(mine)), copy.deepcopy(mine), copy.copy(mine))]
    assert {*copies, spawned} == {("Mine", 7.0, "zero")}, (copies, spawned)
"""


@pytest.mark.slow
def test_subclasses_and_callables_survive_pickle_deepcopy_and_spawn(tmp_path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(SUBCLASS)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Marked(AliasMatcher):
    """A matcher with something of its own."""

    def __init__(self, vocabulary: Vocabulary, *, mark: int) -> None:
        super().__init__(vocabulary)
        self.mark = mark


def test_a_matcher_of_one_s_own_survives_in_a_reward(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")  # what Ray sends objects with
    reward = SubsentenceReward(vocabulary, oracle)
    reward.matcher = Marked(vocabulary, mark=7)
    for found in (pickle.loads(cloudpickle.dumps(reward)), copy.deepcopy(reward)):
        assert type(found.matcher).__name__ == "Marked"
        assert found.matcher.mark == 7
        assert found([7], ["A cat."])[0].covered == 1
    doubled = SubsentenceReward(vocabulary, oracle, RewardConfig(lam_g=lambda n: 2.0 * n))
    assert pickle.loads(cloudpickle.dumps(doubled))([7], ["A cat."])[0].total == 2.0


def test_signature_names_what_decides_the_reward(vocabulary: Vocabulary, oracle: PresenceOracle) -> None:
    line = str(SubsentenceReward(vocabulary, oracle, RewardConfig(r_rep=0.5, level="cap")).signature)
    assert line.startswith(
        f"reward|vocab:toy@{vocabulary.fingerprint}|oracle:{oracle.fingerprint}|world:closed|rule:subsentence|"
    )
    assert "|r_rep:0.5|level:cap|" in line


def test_a_discount_does_not_concern_pieces_without_new_labels() -> None:
    config = RewardConfig(template_discount=0.75, lam_g=lambda n: n + 1.0)
    [result] = SubsentenceReward("coco80", {1: ["dog"]}, config)([1], ["It is a sunny day. It is a sunny day. A dog."])
    assert [part.reward for part in result.parts][:2] == [-0.1, -0.1]
