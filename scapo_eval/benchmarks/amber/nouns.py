"""Noun finder that does not require NLTK, for AMBER's closed vocabulary (``--mode embedded``).

The official script tags every word with NLTK, keeps the nouns, lemmatizes them with WordNet, and removes all nouns
outside the 418 words of ``relation.json``. Only the 418 words affect the score, so this finder looks for the words
directly instead of tagging every word. The finder uses a table with the singular and plural forms of the words. For
forms that the tagger often classifies as a verb or an adjective, the finder also checks typical contexts (``to watch
the``, ``a laptop computer``, ``the sheep appears``). ``benchmarks/amber.py`` measures how far the results differ from
those of the script.

Two properties of the official script are reproduced because published values depend on them. Case matters: the script
does not find a tree in ``Trees`` at the start of a sentence. The script uses WordNet's shortest lemma: ``men`` remains
``men``, and ``vases`` becomes ``vas``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_IRREGULAR = {
    "bookshelf": ("bookshelves",),
    "bus": ("buses", "busses"),
    "child": ("children",),
    "goose": ("geese",),
    "knife": ("knives",),
    "man": (),  # "men" is a separate word in WordNet
    "mouse": ("mice",),
    "potato": ("potatoes",),
    "scarf": ("scarves", "scarfs"),
    "shelf": ("shelves",),
    "snowman": ("snowmen",),
    "tomato": ("tomatoes",),
    "vase": (),  # WordNet prefers the shorter "vas"
    "woman": ("women",),
}
"""Irregular plurals, and words whose plural has another lemma."""

_NO_PLURAL = frozenset(
    [
        "TV",
        "air-conditioning",
        "baconic",
        "bedsheet",
        "cann",
        "cathole",
        "closestool",
        "cooktop",
        "doghole",
        "e-book",
        "earing",
        "ebook",
        "electrombile",
        "hot",
        "kiwifruit",
        "leave",
        "paraglider",
        "pissoir",
        "rpoe",
        "sanitizer",
        "scoon",
        "seegull",
        "showerpuff",
        "streetlamp",
        "waterfont",
    ]
)
"""Words without a plural form, because WordNet does not contain them or (``leaves``) has another lemma for the
plural.
"""

_LEMMATISED_AWAY = frozenset(["chopsticks", "earrings", "slippers", "sunglasses"])
"""Plurals in the vocabulary that are never found, because their lemma is a singular outside the vocabulary."""

_NEVER_NOUNS = frozenset(["can", "hot", "net", "sled", "urinal"])
"""Words of the vocabulary that the tagger rarely classifies as nouns."""

_SUBJECTS = frozenset(
    [
        "to",
        "they",
        "They",
        "he",
        "He",
        "she",
        "She",
        "we",
        "We",
        "you",
        "who",
        "I",
        "not",
        "can",
        "could",
        "will",
        "would",
        "may",
        "might",
        "should",
        "must",
    ]
)
_OBJECTS = frozenset(["the", "a", "an", "this", "that", "his", "her", "their", "its", "them", "him", "it", "each"])
"""Objects. Between a subject and an object, every form is a verb."""

_UNFAMILIAR = frozenset(
    [
        "armrest",
        "bear",
        "cafe",
        "couch",
        "elephant",
        "fish",
        "forest",
        "geese",
        "goose",
        "hose",
        "individual",
        "insect",
        "kite",
        "laptop",
        "light",
        "napkin",
        "necktie",
        "oven",
        "paddle",
        "pear",
        "pen",
        "quilt",
        "saddle",
        "sheep",
        "signal",
        "ski",
        "snow",
        "turtle",
        "umbrella",
        "umbrellas",
    ]
)
_PREDICATES = frozenset(
    [
        "appear",
        "appears",
        "come",
        "create",
        "creates",
        "displaying",
        "itself",
        "make",
        "makes",
        "occupies",
        "occupying",
        "provide",
        "provides",
        "serves",
        "spans",
        "stands",
        "suggests",
        "surrounding",
    ]
)
"""Verbs before which the tagger classifies an unfamiliar noun as an adjective."""

_CONTEXTS = """
    bat         | to
    beach       | lively
    bear        | panda | cake close dolls wearing
    bottle      |  | held sits
    bowls       |  | contain containing
    broccoli    | be displaying has to | inside mixed stalks toppings
    brushes     | he she
    camera      | to | angle
    cheese      |  | balls | and_,
    couch       | A | beside can close located next visible | a_, a_situated a_with
    drawing     | , and is are | attention the
    drink       | and they to | from water
    drinks      | he she
    elephant    | stuffed | as down partially standing statue swimming towards toy
    fish        | of orange have two | flavorings swimming
    forest      |  | area below cabins canopy path scene | The_setting the_, the_setting
    geese       | and of | , resting
    individual  | and several their | fruits pieces stands walking standing
    kite        |  | enthusiasts high strings
    knife       |  | creating serving
    laptop      | black open several | computer computers displaying enthusiasts open screen user | A_can a_keyboard
    lemon       |  | slices wedge
    light       | a against multiple or | brown fixture gray pole post shining source sources
    microwave   | and like | convection
    napkin      |  | nearby
    orange      | is are was | ones | and_bus and_cat and_flowers ,_house ,_fox
    oven        | microwave toaster | mounted placed sits sitting situated timer towards | top_, ,_, an_. an_below
    painting    | during is are woman man
    panda       |  | bear
    pen         |  | area extending
    pineapple   |  | design
    range       | they
    ring        | to
    sailing     | , be boats is are seen ship
    sheep       | 14 Both a several thirteen | across closer grazing standing visible
    shore       | to | extending
    signal      | to
    sink        |  | area
    ski         | a another holding several the The they to two wearing | down gear jump lift pole resort slope
    skis        | she he
    snow        |  | covering visible
    soccer      | lively
    string      | its
    surfboard   |  | beneath leaning rack underneath
    table       |  | occupies settings surface | The_setting the_setting a_setting a_next small_next dining_next
    tie         | man | his
    toilet      | two three | | A_paper a_paper
    toy         | several various | duck plane spaceships truck
    tree        | fallen | branch branches providing trunk trunks
    tub         |  | area
    umbrellas   | multiple six | providing visible
    volleyball  | beach
    watch       | and easily others people they to
    watches     |  | the
    waterfront  |  | area
    wine        | A The drinking over several three two Two | bottles cellar tasting tastings
"""
"""Tokens beside which NLTK classifies a form as a verb or an adjective: form | before | after | before_after."""

_QUOTES_AND_SIGNS = r"""\[\](){}<>;@#$%&?!*"«»“”‘’„`‒-―"""
_CLITIC = r"'(?:s|S|m|M|d|D|ll|LL|re|RE|ve|VE)(?![\w'-])"
_TOKEN = re.compile(
    rf"{_CLITIC}|\.\.+|--|[:,](?!\d)|[{_QUOTES_AND_SIGNS}]|'|\.(?=[{_QUOTES_AND_SIGNS}']*$)"
    rf"|(?:[^{_QUOTES_AND_SIGNS}:,.'-]|(?<!^)[:,](?=\d)|\.(?!\.|[{_QUOTES_AND_SIGNS}']*$)|-(?!-)|(?!{_CLITIC})'(?=\w))+|."
)
"""Pattern for the tokens of a white-space chunk that can be words of the vocabulary or their neighbors."""


@dataclass(frozen=True, slots=True)
class _Context:
    """Neighboring words that show that a form is not used as a noun."""

    before: frozenset[str]
    after: frozenset[str]
    between: frozenset[tuple[str, str]]


def _read_contexts(table: str) -> dict[str, _Context]:
    contexts = {}
    for line in table.strip().splitlines():
        form, before, after, between = (*(part.split() for part in line.split("|")), [], [])[:4]
        pairs = frozenset((left, right) for left, _, right in (pair.partition("_") for pair in between))
        contexts[form[0]] = _Context(frozenset(before), frozenset(after), pairs)
    return contexts


def noun_forms(words: Iterable[str]) -> dict[str, str]:
    """Returns all forms that the official script maps to a word of the vocabulary.

    Args:
        words: Closed vocabulary.

    Returns:
        A mapping from each form, as written in an answer, to its word.
    """
    forms: dict[str, str] = {}
    for word in words:
        if word in _LEMMATISED_AWAY:
            continue
        for plural in () if word in _NO_PLURAL else _IRREGULAR.get(word, (_regular_plural(word),)):
            forms.setdefault(plural, word)
        forms[word] = word
    return forms


def _regular_plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


class NounFinder:
    """Finder that locates nouns from the vocabulary in answers. One finder can process many answers.

    Args:
        words: Closed vocabulary.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._forms = {form: word for form, word in noun_forms(words).items() if form not in _NEVER_NOUNS}
        self._contexts = _read_contexts(_CONTEXTS)
        self._tokens: dict[str, Sequence[str]] = {}

    def find(self, text: str) -> list[str]:
        """Returns the words of the vocabulary that an answer uses as nouns, in order, including repetitions."""
        tokens = [""]
        known = self._tokens
        for chunk in text.split():
            parts = known.get(chunk)
            if parts is None:
                parts = known[chunk] = (chunk,) if chunk.isalpha() else tuple(_TOKEN.findall(chunk))
            tokens += parts
        tokens.append("")
        forms = self._forms
        return [
            forms[token]
            for k, token in enumerate(tokens)
            if token in forms and self._is_noun(tokens[k - 1], token, tokens[k + 1])
        ]

    def _is_noun(self, before: str, form: str, after: str) -> bool:
        if before in _SUBJECTS and after in _OBJECTS:
            return False
        if after in _PREDICATES and form in _UNFAMILIAR:
            return False
        context = self._contexts.get(form)
        return context is None or not (
            before in context.before or after in context.after or (before, after) in context.between
        )
