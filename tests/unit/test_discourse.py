"""The rule for modern text, what of a response is its answer, and what both mean for the reward."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary, split_subsentences
from scapo_eval.segmenting import discourse, segment_batch
from scapo_eval.segmenting.reasoning import only_answer, spans_besides_answer
from scapo_eval.segmenting.segment_batch import split_batch

VOCABULARY = Vocabulary.from_mapping({"dog": ["dog", "hot dog"], "cat": ["cat"], "car": ["car"]})
MATCHER = AliasMatcher(VOCABULARY)
ORACLE = PresenceOracle.from_objects({"1": ["dog", "cat"]}, labels=VOCABULARY.labels)


def pieces(text: str) -> list[str]:
    return [text[s.start : s.end] for s in split_subsentences(text, "discourse", MATCHER.find(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # noun phrases, subject and verb, fronted phrases and lists stay whole
        ("On the left, near a very old wall, there is a rectangular, dark-stained table.", 1),
        ("The tallest woman, with a long coat over her arm, stands near the door.", 1),
        ("On the table in the middle there are waffles with syrup, fresh broccoli, and a big bowl of salad.", 1),
        ("He reads a sign that says \"one, two, three four five, six seven eight nine ten\".", 1),
        ("The lid (round, with a rather small handle on its top, and red) is made of wood.", 1),
        ("In the lobby the tables, the chairs, the lamps, and the sofa are all made of wood.", 1),
        # clauses and modifiers with claims of their own do not
        ("The cat sleeps on the sofa, and the dog is waiting at the door.", 2),
        ("While the dog is looking out of the window, the cat is asleep on the sofa.", 2),
        ("The dog is running across the lawn, chasing a small red ball, which rolls away very fast.", 3),
        ("The dog is small and brown, with a red collar around its neck.", 2),
        ("A dog is on the lawn; a cat is on the roof of the shed.", 2),
        ("The room is dark and silent \u2014 the only lamp is not switched on.", 2),
        ("The cat is on the roof, but in the garden below, a dog is looking at it.", 2),
        ("Many toys are lying here, with a dog on the left, a cat in the middle, and a car on the right.", 4),
        # short pieces are merged
        ("It is dark, which is odd, and the dog is looking for its bowl.", 2),
        # lines
        ("A dog is lying on the old wooden floor of a\nkitchen and looks at the cat.", 1),
        ("The big brown dog is lying on the kitchen floor\nand looks at the cat.", 1),
        ("A dog\nA cat\n", 2),
        ("a dog\n\na cat", 2),
        ("# The scene\n\nA dog sleeps.\n", 1),
        ("**The dog:**\nIt sleeps on the floor.\n\n**The cat:**\nIt does not.", 2),
        ("- **Dog:** brown\n- **Cat:** black\n\nThat is all.", 3),
        ("Objects:\n1. dog\n2. cat", 2),
        ("| Object | Color |\n|---|---|\n| Dog | brown, white |\n| Cat | black |\n", 2),
        ("```json\n{\"a\": 1}\n```\n", 3),
        ("A dog.\n\n---\n\nA cat.", 3),
        ("> A dog sleeps here.\n> A cat does not.", 2),
        # other scripts
        ("\u4e00\u53ea\u68d5\u8272\u7684\u72d7\u5750\u5728\u5927\u6c99\u53d1\u4e0a\uff0c\u65c1\u8fb9\u6709\u4e00"
         "\u4e2a\u5f88\u5927\u7684\u7ea2\u8272\u7684\u7403\u3002\u8fd8\u6709\u4e00\u53ea\u732b\uff01", 3),
        ("\u7ea2\u3001\u9ec4\u3001\u84dd\u3001\u767d\u3001\u9ed1\u3001\u7eff\u3001\u7d2b\u3001\u7070\u3002", 1),
        ("\u0643\u0644\u0628 \u0628\u0646\u064a \u064a\u062c\u0644\u0633 \u0639\u0644\u0649 "
         "\u0627\u0644\u0623\u0631\u064a\u0643\u0629\u060c \u0648\u0642\u0637\u0629 \u0633\u0648\u062f\u0627\u0621 "
         "\u062a\u0646\u0627\u0645 \u0639\u0644\u0649 \u0627\u0644\u0623\u0631\u0636\u061f "
         "\u0646\u0639\u0645\u06d4", 3),
        ("\u090f\u0915 \u0915\u0941\u0924\u094d\u0924\u093e\u0964 "
         "\u090f\u0915 \u092c\u093f\u0932\u094d\u0932\u0940\u0964", 2),
        # nothing to say
        ("...", 1),
        ("!\n!\n", 2),
        ("A dog. \U0001f415", 1),
    ],
)  # fmt: skip
def test_number_of_pieces(text: str, expected: int) -> None:
    assert len(pieces(text)) == expected, pieces(text)


def test_where_it_cuts() -> None:
    text = "In the yard, a dog is running very fast, chasing a black, long-haired cat. It is late."
    assert pieces(text) == [
        "In the yard, a dog is running very fast, ",
        "chasing a black, long-haired cat. ",
        "It is late.",
    ]


PROSE = [
    "The dog is small, with a red collar around its neck. The cat, the car, and the dog are all outside. It naps.",
    "The dog is running across the lawn, chasing a small red ball.\n\nThe cat is on the roof, which is very old.",
    'He reads a sign that says "one, two, three four five, six seven" and the dog is waiting, looking at the cat.',
    "The lid (round, which is odd, and red) is made of wood, and the dog is looking for its bowl.",
    "The cat sleeps on the sofa, and the dog is waiting at the door\u2014it is not far. Then. !",
    'etc.,  !looking at the cat:  \u2014,  etc.looking at the cat is on the sofa ?  *," !',
    'A cat says "no, the dog is here." and the dog, with a long red coat, is on the lawn of the house.',
    "The cat is on a hot\ndog, which is very odd, and the dog is waiting at the door.",
]


def test_batch_of_prose_is_cut_like_each_text() -> None:
    batch = PROSE * 2
    spans = split_batch(batch, "discourse", MATCHER.find_batch(batch))
    expected = [split_subsentences(text, "discourse", MATCHER.find(text)) for text in batch]
    assert spans.end.tolist() == [piece.end for of_text in expected for piece in of_text]
    assert np.diff(spans.indptr).max() > 2


def _invented(count: int, seed: int, *, lines: bool) -> list[str]:
    """Returns texts of listed words, words with their endings, and marks in random order, on one or several lines."""
    rng = random.Random(seed)
    listed = {word for value in vars(discourse).values() if isinstance(value, frozenset) for word in value}
    words = sorted(word for word in listed if isinstance(word, str) and word.isascii() and len(word) > 1)
    others = "dogs A The red nicely walked sitting hot\ndog spans x 3 ing ed ly s glass it's well-lit".split(" ")
    marks = [
        ", ",
        ". ",
        "; ",
        ": ",
        "--",
        "\u2014",
        " \u2014 ",
        "! ",
        "\n",
        "\n\n",
        " \n ",
        "\r\n",
        ".\n",
        '." ',
        '"',
        "(",
        ") ",
    ]
    marks += [
        "`",
        "\u201c",
        '. "',
        ',"',
        "' ",
        "\t",
        "   ",
        "*",
        "_",
        ":\n",
        ".)",
        ",, ",
        "caf\u00e9 ",
        "\u2026 ",
        "\n" * 9,
        "\x07",
    ]

    others += ["caf\u00e9s", "\u00c9", "\u00e9ing", "stra\u00dfe", "\u0130x", "Pixel\u00ae", "\U0001f600"]
    marks += ['?" ', ".) ", ".\u201d ", '."', " \u00a9 ", "\n- ", "\n2. ", ".\n\n**Dogs:** ", "\u24d0", ".\u00bb "]
    marks = [mark for mark in marks if lines or mark == mark.strip("\r\n")]
    others = [word for word in others if lines or "\n" not in word]

    def part() -> str:
        word = rng.choice(words if rng.random() < 0.7 else others)
        return word + (" " if rng.random() < 0.75 else rng.choice(marks))

    return ["".join(part() for _ in range(rng.randint(0, 60))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_of_invented_texts_is_cut_like_each_text(seed: int) -> None:
    batch = _invented(150, seed, lines=seed % 2 > 0)
    for with_mentions in (False, True):
        spans = split_batch(batch, "discourse", MATCHER.find_batch(batch) if with_mentions else None)
        for k, text in enumerate(batch):
            mentions = MATCHER.find(text) if with_mentions else None
            expected = [piece.end for piece in split_subsentences(text, "discourse", mentions)]
            assert spans.end[spans.indptr[k] : spans.indptr[k + 1]].tolist() == expected, text


@pytest.mark.parametrize("characters", [1, 400, 5000])
def test_passes_change_nothing(characters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ["", *_invented(40, 5, lines=True), "", ""]
    mentions = MATCHER.find_batch(batch)
    expected = [split_batch(batch, "discourse", m).end.tolist() for m in (None, mentions)]
    monkeypatch.setattr(segment_batch, "_PASS", characters)
    assert [split_batch(batch, "discourse", m).end.tolist() for m in (None, mentions)] == expected


def test_a_batch_without_clause_marks() -> None:
    batch = ["A dog sleeps. A cat is here", "no marks", "", "a, b"]
    spans = split_batch(batch, "discourse")
    assert spans.end.tolist() == [s.end for text in batch for s in split_subsentences(text, "discourse")]


def test_a_sentence_with_too_many_marks_is_not_cut_in_a_batch() -> None:
    clause = "the dog is on the lawn, "
    batch = [f"It is here, and {clause * n}end." for n in (5, discourse.MOST_MARKS - 1, discourse.MOST_MARKS + 1)]
    spans = split_batch(batch, "discourse")
    assert spans.end.tolist() == [s.end for text in batch for s in split_subsentences(text, "discourse")]
    assert np.diff(spans.indptr).tolist()[::2] == [spans.indptr[1], 1]


MARKDOWN = ["# ", "## A dog", "|", "| a | dog |", "|---|---|", "```", "```json", "**", "- ", "1. ", "> ", "\n", "\n\n"]
WORDS = ["a dog", "hot\ndog", "the cat", "is", "which is", "with a", "looking at", "and", "while", "there are", "it's"]
MARKS = [", ", ". ", ": ", "; ", " \u2014 ", "\u2014", "! ", "\uff0c", "\u3002", "(", ") ", '"', "\u201c", "\u201d"]


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(MARKDOWN + WORDS + MARKS + [" ", "\u0130", "x"]), max_size=30), max_size=3))
@pytest.mark.slow
def test_pieces_of_markdown_partition_it(parts: list[list[str]]) -> None:
    batch = ["".join(part) for part in parts]
    spans = split_batch(batch, "discourse", MATCHER.find_batch(batch))
    assert spans.end.tolist() == [
        s.end for text in batch for s in split_subsentences(text, "discourse", MATCHER.find(text))
    ]
    for text in batch:
        cuts = [s.start for s in split_subsentences(text, "discourse", MATCHER.find(text))][1:]
        assert "".join(pieces(text)) == text
        assert not any(m.start < cut < m.end for cut in cuts for m in MATCHER.find(text))
        assert not any(text[cut].isspace() for cut in cuts)


@pytest.mark.parametrize("unit", ["!\n", "a, ", "a\u2014", "# a\n", "(", '"', "`", "a.\n", "| a |\n", "\uff0ca", "<"])
@pytest.mark.slow
def test_long_collapsed_texts_take_no_time(unit: str) -> None:
    """Minutes, if the time grew with the square of the length."""
    text = unit * (100_000 // len(unit))
    assert len(split_subsentences(text, "discourse")) <= len(text)
    assert spans_besides_answer(text) == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("A dog.", "A dog."),
        ("<think>A car?</think>\nA dog.", "A dog."),
        ("A car?</think>A dog.", "A dog."),
        ("<think>A car", ""),
        ("<THINK >a <b> c</think> A dog <tool_call>{}</tool_call><tool_response>car</tool_response> is.", "A dog is."),
        ("<think>a</think><answer>A dog.</answer>", "A dog."),
        ("<think>a<think>b</think>A dog.", "A dog."),
        ("\u25c1think\u25b7a\u25c1/think\u25b7A dog.", "A dog."),
        ("1 < 2 and <thinking_cap> > 0", "1 < 2 and <thinking_cap> > 0"),
        ("A dog.</tool_call> A cat.", "A dog.A cat."),
    ],
)
def test_answer(text: str, answer: str) -> None:
    spans = spans_besides_answer(text)
    assert spans == sorted(spans)
    kept = only_answer(text, spans)
    assert len(kept) == len(text)
    assert kept.replace("\n", "") == answer.replace("\n", "")


def test_unclosed_tags_take_no_time() -> None:
    assert len(spans_besides_answer("<think>" * 20_000)) == 1
    assert len(spans_besides_answer("</think>" * 20_000)) == 1
    assert len(spans_besides_answer("<think " * 20_000)) == 0


def test_reward_of_the_answer_alone() -> None:
    text = "<think>A car.</think> A dog is here. Nothing else.<tool_call>cat</tool_call>"
    config = RewardConfig(answer_only=True)
    result = SubsentenceReward(VOCABULARY, ORACLE, config)(["1"], [text])[0]
    assert [(text[p.start : p.end], p.reward) for p in result.parts] == [
        ("<think>A car.</think> ", 0.0),
        ("A dog is here. ", 1.0),
        ("Nothing else.", -0.1),
        ("<tool_call>cat</tool_call>", 0.0),
    ]
    assert (result.generated, result.hallucinated) == (1, 0)
    assert result.columns.silent.tolist() == [True, False, False, True]
    assert "answer_only:True" in str(SubsentenceReward(VOCABULARY, ORACLE, config).signature)
    offsets = np.array([(k, k + 1) for k in range(len(text))])
    advantages = result.token_advantages(offsets)
    assert set(advantages[: text.index(" A dog") + 1].tolist()) == {0.0}
    assert advantages[text.index("dog")] == 1.0
    assert pickle.loads(pickle.dumps(result)).parts == result.parts
    own = RewardConfig(answer_only=True, piece_reward=lambda result, part: 5.0)
    assert SubsentenceReward(VOCABULARY, ORACLE, own)(["1"], [text])[0].total == 10.0
    for level, expected in (("hal", 1.0), ("cap", 2 / 3)):
        whole = SubsentenceReward(VOCABULARY, ORACLE, RewardConfig(answer_only=True, level=level))(["1"], [text])[0]
        assert [part.reward for part in whole.parts] == pytest.approx([expected])


def test_pieces_without_a_word_neither_earn_nor_cost() -> None:
    reward = SubsentenceReward(VOCABULARY, ORACLE, RewardConfig(rule="discourse"))
    paper = SubsentenceReward(VOCABULARY, ORACLE)
    text = "A dog.\n\n---\n\n```json\nA cat.\n```"
    assert [part.reward for part in reward(["1"], [text])[0].parts] == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert [part.reward for part in paper(["1"], [text])[0].parts] == [1.0, -0.1, -0.1, 1.0, -0.1]
    # a response without any word is no way out
    assert [part.reward for part in reward(["1"], ["---\n***"])[0].parts] == [-0.1, -0.1]
