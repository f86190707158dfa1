"""Segmentation: what every rule promises, literal examples, and the batch way equal to the plain."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scapo_eval import AliasMatcher, InputError, Mention, Vocabulary, split_subsentences
from scapo_eval.base.types import Rule
from scapo_eval.segmenting.segment import RULES
from scapo_eval.segmenting.segment_batch import split_batch

MATCHER = AliasMatcher(
    Vocabulary.from_mapping(
        {
            "dog": ["dog", "St. Bernard", "dogs"],
            "cat": ["cat", "tom, cat"],
            "sign": ["no. parking", "stop! sign", "caf\u00e9"],
            "hot dog": ["hot dog"],
        },
        ["cat food"],
    )
)
PLAIN_RULES: tuple[Rule, ...] = ("subsentence", "sentence", "clause", "response")

FRAGMENTS = [
    "a", "The", "the", "dog", "DOG", "hot dog", "hot", "cat", "tom, cat", "St. Bernard", "St", "no. parking",
    "stop! sign", "caf\u00e9", "and", "I", "J", "Smith", "on", "it's", "3", "3.5", "1,000", "10:30", "1,000,000.5",
    "e.g.", "i.e.", "Mr.", "Mrs.", "Dr.", "vs.", "etc.", "a.m.", "U.S.", "No.", "approx.", "1.", "12)", "https://a.b/c.d",
    "http://x.org/a,b;c--d", "www.ex-ample.com/Q.Html?a=1!b", "...", "\u2026", "....", ". . .", ".", "!", "?", "?!",
    ",", ";", ":", "-", "--", "---", "\u2013", "\u2014", "\"", "'", ")", "(", "]", "\u201d", "\u2019", "*", "_", "`",
    "\n", "\n\n", "\r\n", "\r", "\u2028", "\t", "\u00a0", "\0", "\x1f", "\x0b", "\u3002", "\uff01", "\ud800",
    "\u732b", "e\u0301",
]  # fmt: skip
SPACES = st.sampled_from([" ", " ", " ", " ", "", "", "  "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    size = draw(st.integers(0, 24))
    return "".join(draw(st.sampled_from(FRAGMENTS)) + draw(SPACES) for _ in range(size))


any_text = st.one_of(
    texts(), st.text(st.sampled_from("ab AB.,;:!?-\n\r\0'\")1\u2014\u2026\u3002 "), max_size=30), st.text(max_size=20)
)

PROTECTED = {
    "number": re.compile(r"(?<![\w.,:])\d+(?:[.,:]\d+)+"),
    "ellipsis": re.compile(r"\.{2,}|\u2026+"),
    "abbreviation": re.compile(r"(?<![\w.])(?:e\.g\.|i\.e\.|a\.m\.|U\.S\.|Mr\.|Dr\.|etc\.)"),
    "url": re.compile(r"(?<!\w)(?:https?://|www\.)[A-Za-z0-9./?=,;!-]*[A-Za-z0-9/]"),
}


def pieces(text: str, rule: Rule = "subsentence", mentions: list[Mention] | None = None) -> list[str]:
    return [text[s.start : s.end] for s in split_subsentences(text, rule, mentions)]


def cuts(text: str, rule: Rule, mentions: list[Mention] | None = None) -> list[int]:
    return [s.end for s in split_subsentences(text, rule, mentions)][:-1]


@settings(max_examples=400)
@given(any_text)
@pytest.mark.slow
def test_spans_partition_the_text_and_protect_what_must_not_be_cut(text: str) -> None:
    mentions = MATCHER.find(text)
    for rule in RULES:
        spans = split_subsentences(text, rule, mentions)
        assert "".join(text[s.start : s.end] for s in spans) == text
        assert [s.start for s in spans] == [0, *(s.end for s in spans)][: len(spans)]
        assert all(s.start < s.end for s in spans)
        for cut in (s.end for s in spans[:-1]):
            assert not any(m.start < cut < m.end for m in mentions), (rule, "mention", cut)
            if rule == "object":
                continue
            assert not text[cut].isspace(), "white space belongs to the span before it"
            for what, pattern in PROTECTED.items():
                assert not any(m.start() < cut < m.end() for m in pattern.finditer(text)), (rule, what, cut)


@settings(max_examples=400)
@given(st.lists(any_text, max_size=6))
@example(["A dog.\0A cat", "a\0b c d e, f g h i j", "", "dog."])
@example(["", "\0", " ", "."])
@example(
    ["x hot. ... 3", "It\u2019s a dog \u2014 a big one\u2026 \u201cyes\u201d\u00a0\u2013 no", "a\u2014b", "a - \u00e9"]
)
@pytest.mark.slow
def test_a_batch_equals_one_by_one(batch: list[str]) -> None:
    columns = MATCHER.find_batch(batch)
    found = [MATCHER.find(text) for text in batch]
    for rule in RULES:
        spans = split_batch(batch, rule, columns)
        assert len(spans) == len(batch)
        got = [
            list(zip(spans.start[a:b].tolist(), spans.end[a:b].tolist(), strict=True))
            for a, b in zip(spans.indptr[:-1].tolist(), spans.indptr[1:].tolist(), strict=True)
        ]
        assert got == [
            [(s.start, s.end) for s in split_subsentences(text, rule, mentions)]
            for text, mentions in zip(batch, found, strict=True)
        ], rule
        if rule != "object":
            free = split_batch(batch, rule)
            assert free.end.tolist() == [s.end for text in batch for s in split_subsentences(text, rule)]


# ---- the plain definition: every mark is asked about by itself, in time that grows with the square of a run ----

SENTENCE_END = ".!?\u2026\u3002\uff01\uff1f"
DASHES = "-\u2013\u2014"
CLOSERS = "\"'\u201d\u2019)]}\u00bb*_`"
NEVER_LAST = frozenset("mr mrs ms dr prof st mt vs eg ie e.g i.e cf ca approx incl".split())
LAST_BEFORE_A_CAPITAL = frozenset("etc jr sr inc ltd co corp al ft fig vol no a.m p.m u.s u.k d.c".split())
OPENERS = frozenset("a an the this that it its he she they there these in on at to one two".split())
URL = re.compile(r"(?:https?://|www\.)\S*[^\s.,;:!?)\]}'\"]")


def plain_spans(text: str, rule: Rule, mentions: list[Mention]) -> list[tuple[int, int]]:
    """Spans of the pieces under a rule that cuts at punctuation."""
    found: dict[int, bool] = {}
    for at in range(len(text)):
        boundary = plain_boundary(text, at)
        if boundary is not None:
            found[boundary[0]] = found.get(boundary[0], False) or boundary[1]
    first_word = len(text) - len(text.lstrip())
    inner = [
        (offset, sentence)
        for offset, sentence in sorted(found.items())
        if first_word < offset < len(text) and not any(m.start < offset < m.end for m in mentions)
    ]
    if rule == "subsentence":
        inner = plain_merged(text, inner)
    chosen = [offset for offset, sentence in inner if sentence or rule != "sentence"]
    return [(a, b) for a, b in zip([0, *chosen], [*chosen, len(text)], strict=True) if a < b]


def plain_merged(text: str, inner: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    kept, words, begin = [], 0, 0
    for (offset, sentence), end in zip(inner, [*(offset for offset, _ in inner), len(text)][1:], strict=True):
        words += len(text[begin:offset].split())
        if sentence or (words >= 5 and len(text[offset:end].split()) >= 5):
            kept.append((offset, sentence))
        words, begin = (0 if sentence else words), offset
    return kept


def plain_boundary(text: str, at: int) -> tuple[int, bool] | None:
    """``(offset after the white space, ends a sentence)`` if the character at ``at`` closes a piece."""
    character = text[at]
    if character in "\n\r\u2028\u2029":
        return after_space(text, at), True
    if character in DASHES:
        return plain_dash(text, at)
    if character not in SENTENCE_END + ",;:":
        return None
    end = at + 1
    single = end == len(text) or text[end] not in SENTENCE_END
    if character in SENTENCE_END:
        while end < len(text) and text[end] in SENTENCE_END:
            end += 1
        if at and text[at - 1] in SENTENCE_END:
            return None
    while end < len(text) and text[end] in CLOSERS:
        end += 1
    glued = end < len(text) and not text[end].isspace()
    if character in ",;:":
        return None if glued else (after_space(text, end), False)
    if glued and character not in "\u3002\uff01\uff1f":
        word = text[max(0, at - 2) : at]
        if not (len(word) == 2 and word.isalpha() and word.islower() and text[end].isupper()) or in_url(text, at):
            return None
    if character == "." and single and plain_abbreviation(text, at):
        return None
    return after_space(text, end), True


def after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def plain_dash(text: str, at: int) -> tuple[int, bool] | None:
    end = at + 1
    while end < len(text) and text[end] in DASHES:
        end += 1
    before = text[:at].rstrip(" \t")[-1:]
    if (at and text[at - 1] in DASHES) or not before or before.isspace() or end == len(text) or in_url(text, at):
        return None
    long = text[at] == "\u2014" or end - at == 2
    digits = text[at - 1].isdigit() and text[end].isdigit()
    spaced = text[at - 1].isspace() and text[end].isspace() and end - at == 1
    return (after_space(text, end), False) if (long and not digits) or spaced else None


def in_url(text: str, at: int) -> bool:
    return any(match.start() <= at < match.end() for match in URL.finditer(text))


def plain_abbreviation(text: str, at: int) -> bool:
    begin = at
    while begin and (text[begin - 1].isalnum() or text[begin - 1] == "."):
        begin -= 1
    word = text[begin:at].lower().lstrip(".")
    if not word:
        return False
    if word.isdecimal():
        line = text[:begin].rstrip(" \t*#(")
        return not line or line[-1] in "\n\r"
    following = re.compile(r"\W*(\w+)").match(text, at + 1)
    name = following.group(1) if following else ""
    if word in LAST_BEFORE_A_CAPITAL:
        return bool(name) and not name[0].isupper()
    initial = len(word) == 1 and text[at - 1].isupper() and word != "i"
    return word in NEVER_LAST or (initial and name[:1].isupper() and name.lower() not in OPENERS)


@st.composite
def collapsed(draw: st.DrawFn) -> str:
    """A few fragments again and again, as a collapsing policy writes them."""
    unit = "".join(draw(st.lists(st.sampled_from([*FRAGMENTS, " "]), min_size=1, max_size=4)))
    return draw(texts()) + unit * draw(st.integers(2, 40)) + draw(texts())


@settings(max_examples=300)
@given(st.one_of(any_text, collapsed()))
@example("ab.Cd" * 9 + "......ab.Cd")
@example("12345678. a\n..1. b. x...mr. ...mr. e.g.e.g. 1.2. Mr")
@example("a \n - \n b--\n--c ,\n, www.a--b.c--d \u2014 e\t-\u00a0f")
@pytest.mark.slow
def test_one_by_one_equals_the_plain_definition(text: str) -> None:
    mentions = MATCHER.find(text)
    for rule in ("subsentence", "sentence", "clause"):
        for given_mentions in ([], mentions):
            spans = split_subsentences(text, rule, given_mentions)
            assert [(s.start, s.end) for s in spans] == plain_spans(text, rule, given_mentions), rule


@settings(max_examples=100)
@given(st.lists(st.one_of(any_text, collapsed()), min_size=2, max_size=5))
@pytest.mark.slow
def test_a_batch_of_collapsed_texts_equals_one_by_one(batch: list[str]) -> None:
    columns = MATCHER.find_batch(batch)
    for rule in RULES:
        spans = split_batch(batch, rule, columns)
        assert spans.end.tolist() == [s.end for t in batch for s in split_subsentences(t, rule, MATCHER.find(t))], rule


@pytest.mark.parametrize(
    ("unit", "n_pieces"),
    [("!", 1), ("--", 1), ("\n", 1), (" \n", 1), (". ", 100_000), ("\u2014a", 100_000), ("ab.Cd", 40_001)]
    + [("a dog, a cat, ", 28_570), ("1. ", 66_665), ("a--", 66_666), ("www.", 1), ("etc. ", 1)],
)  # fmt: skip
@pytest.mark.slow
def test_long_collapsed_texts_take_no_time(unit: str, n_pieces: int) -> None:
    """Minutes, if the time grew with the square of the length."""
    text = unit * (200_000 // len(unit))
    mentions = MATCHER.find_batch([text, text])
    spans = split_batch([text, text], "clause", mentions)
    assert spans.end.tolist() == 2 * [s.end for s in split_subsentences(text, "clause", MATCHER.find(text))]
    assert len(spans.end) == 2 * n_pieces


def merged_by_the_letter(text: str, mentions: list[Mention]) -> list[str]:
    """The rule on merging short pieces, applied piece by piece on lists of strings."""
    sentence_cuts = [0, *cuts(text, "sentence", mentions), len(text)]
    clause_cuts = cuts(text, "clause", mentions)
    out: list[str] = []
    for begin, end in zip(sentence_cuts, sentence_cuts[1:], strict=False):
        inner = [begin, *(c for c in clause_cuts if begin < c < end), end]
        groups: list[list[str]] = []
        for piece in (text[a:b] for a, b in zip(inner, inner[1:], strict=False)):
            if len(piece.split()) < 5 and groups:
                groups[-1].append(piece)
            else:
                groups.append([piece])
        if len(groups) > 1 and sum(len(piece.split()) for piece in groups[0]) < 5:
            groups[:2] = [groups[0] + groups[1]]
        out += ["".join(group) for group in groups]
    return [piece for piece in out if piece]


@settings(max_examples=400)
@given(any_text)
@example("On a bench in the park, a dog, a cat, and a man with a hat are sitting; it rains very hard today.")
@pytest.mark.slow
def test_short_pieces_are_merged_by_the_letter(text: str) -> None:
    mentions = MATCHER.find(text)
    assert pieces(text, "subsentence", mentions) == merged_by_the_letter(text, mentions)


@given(any_text)
def test_rules_refine_each_other(text: str) -> None:
    mentions = MATCHER.find(text)
    sentence, sub, clause = (set(cuts(text, rule, mentions)) for rule in ("sentence", "subsentence", "clause"))
    assert sentence <= sub <= clause
    assert cuts(text, "response") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog. A cat.", ["A dog. ", "A cat."]),
        ("A dog.  \n\n A cat.\n", ["A dog.  \n\n ", "A cat.\n"]),
        ("Stop! Who is it? A dog\u2026 Or a cat", ["Stop! ", "Who is it? ", "A dog\u2026 ", "Or a cat"]),
        ('He said "stop." Then he left.', ['He said "stop." ', "Then he left."]),
        ("(A dog.) A cat.", ["(A dog.) ", "A cat."]),
        ("A dog.\u201d A cat.", ["A dog.\u201d ", "A cat."]),
        ("**A dog.** A cat.", ["**A dog.** ", "A cat."]),
        ("A dog\nA cat", ["A dog\n", "A cat"]),
        ("A dog\r\nA cat", ["A dog\r\n", "A cat"]),
        ("It is 3.5 m long. It costs 1,000 dollars.", ["It is 3.5 m long. ", "It costs 1,000 dollars."]),
        ("There are 3. The cat", ["There are 3. ", "The cat"]),
        ("Fruits, e.g. apples. Good.", ["Fruits, e.g. apples. ", "Good."]),
        ("Mr. Smith and Dr. Who. They sit.", ["Mr. Smith and Dr. Who. ", "They sit."]),
        ("J. R. Smith sits. He eats.", ["J. R. Smith sits. ", "He eats."]),
        ("At 5 p.m. a dog barks.", ["At 5 p.m. a dog barks."]),
        ("At 5 p.m. The dog barks.", ["At 5 p.m. ", "The dog barks."]),
        ("Cups, forks, etc. on a table.", ["Cups, forks, etc. on a table."]),
        ("Cups, forks, etc. The table is red.", ["Cups, forks, etc. ", "The table is red."]),
        ("Fruit (apples, bananas, etc.) and a vase.", ["Fruit (apples, bananas, etc.) and a vase."]),
        ("A dog... and a cat. Good", ["A dog... ", "and a cat. ", "Good"]),
        ("A dog ...and a cat", ["A dog ...and a cat"]),
        ("Really?! Yes...!", ["Really?! ", "Yes...!"]),
        ("See https://a.b/c.d?x=1 now. Yes.", ["See https://a.b/c.d?x=1 now. ", "Yes."]),
        ("See www.a.org. Yes.", ["See www.a.org. ", "Yes."]),
        ("on a table.The cat sits.", ["on a table.", "The cat sits."]),
        ("file.Name and readme.md", ["file.", "Name and readme.md"]),
        ("1. A dog\n2. A cat", ["1. A dog\n", "2. A cat"]),
        ("\u72ac\u3002\u732b\u3002", ["\u72ac\u3002", "\u732b\u3002"]),
        ("  A dog.", ["  A dog."]),
        ("\n\nA dog.", ["\n\nA dog."]),
        ("A dog, a cat; a bird: a fish", ["A dog, a cat; a bird: a fish"]),
        ("...", ["..."]),
        ("   ", ["   "]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert pieces(text, "sentence") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog, a cat; a bird: a fish.", ["A dog, ", "a cat; ", "a bird: ", "a fish."]),
        (
            "A dog \u2014 a cat\u2014a bird -- a fish - ok",
            ["A dog \u2014 ", "a cat\u2014", "a bird -- ", "a fish - ", "ok"],
        ),
        ("t-shirt, 1990\u20131995, 3\u20144", ["t-shirt, ", "1990\u20131995, ", "3\u20144"]),
        ("at 10:30, 1,000 dogs", ["at 10:30, ", "1,000 dogs"]),
        ('"A dog," he said', ['"A dog," ', "he said"]),
        ("- a dog\n- a cat", ["- a dog\n", "- a cat"]),
        ("A dog. A cat", ["A dog. ", "A cat"]),
    ],
)
def test_clauses(text: str, expected: list[str]) -> None:
    assert pieces(text, "clause") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # list items stay together
        (
            "The table holds a plate, a cup, a fork, and a knife.",
            ["The table holds a plate, a cup, a fork, and a knife."],
        ),
        # five words on both sides: a boundary
        ("A dog sits on grass, while a cat sleeps nearby.", ["A dog sits on grass, ", "while a cat sleeps nearby."]),
        # four words: merged into the piece before
        ("A dog sits on grass, a cat sleeps nearby.", ["A dog sits on grass, a cat sleeps nearby."]),
        # a short first piece goes into the next
        (
            "Here, a dog sits on grass, while a cat sleeps nearby.",
            ["Here, a dog sits on grass, ", "while a cat sleeps nearby."],
        ),
        # never across a sentence end
        ("A dog. A cat sleeps.", ["A dog. ", "A cat sleeps."]),
        ("It is a big dog. Yes, it is a big dog.", ["It is a big dog. ", "Yes, it is a big dog."]),
    ],
)
def test_subsentences(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
    assert pieces(text, "response") == [text]


def test_no_boundary_inside_a_mention() -> None:
    text = "A St. Bernard. Then a tom, cat sits; no. parking here"
    mentions = MATCHER.find(text)
    assert [m.surface for m in mentions] == ["St. Bernard", "tom, cat", "no. parking"]
    assert pieces(text, "clause", mentions) == ["A St. Bernard. ", "Then a tom, cat sits; ", "no. parking here"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog and a cat, there", ["a dog", " and a cat, there"]),
        ("a dog there", ["a dog there"]),
        ("no mention. at all", ["no mention. at all"]),
        ("dog", ["dog"]),
        ("", []),
    ],
)
def test_objects(text: str, expected: list[str]) -> None:
    assert pieces(text, "object", MATCHER.find(text)) == expected


@pytest.mark.parametrize("spans", [[(9, 12), (2, 5)], [(2, 5), (50, 55)], [(2, 5), (4, 7)], [(2, 2)], [(-2, 1)]])
def test_mentions_of_another_text_are_refused(spans: list[tuple[int, int]]) -> None:
    mentions = [Mention(start, end, "dog", "dog") for start, end in spans]
    with pytest.raises(InputError, match="the mentions must be inside the text, in its order"):
        split_subsentences("a dog, a cat, there", "object", mentions)
    with pytest.raises(InputError, match="mentions must be Mention objects, got"):
        split_subsentences("a dog, a cat, there", "object", spans)  # type: ignore[arg-type]


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown segmentation rule 'word'; known: subsentence, sentence"):
        split_subsentences("a", "word")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"a text must be a string, got \['A dog.'\]"):
        split_subsentences(["A dog."])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="requires the mentions"):
        split_subsentences("a", "object")
    with pytest.raises(InputError, match="requires the mentions"):
        split_batch(["a"], "object")


def test_a_batch_of_none_and_of_thousands() -> None:
    assert split_batch([]).indptr.tolist() == [0]
    many = ["A dog, a cat.", "", "caf\u00e9. A dog", "a\nb", "dog\0. Cat"] * 700
    spans = split_batch(many, "clause")
    assert spans.end.tolist() == [s.end for text in many for s in split_subsentences(text, "clause")]
    assert spans.text.tolist() == [k for k, text in enumerate(many) for _ in split_subsentences(text, "clause")]


@pytest.mark.parametrize("rule", PLAIN_RULES)
def test_mentions_are_optional(rule: Rule) -> None:
    assert pieces("A dog, here. A cat", rule) == pieces("A dog, here. A cat", rule, [])
