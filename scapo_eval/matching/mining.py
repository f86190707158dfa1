"""Candidates for a vocabulary: words that are frequent in rollouts but missing from the vocabulary, and drafts of
labels.

The paper builds its vocabulary from rollouts (section 3.1). The authors extract entity mentions, normalize and cluster
them, and curate the result by hand. The function ``mine`` extracts mentions without a model or data. A noun phrase is
the text between a determiner, number or preposition and the next function word. The head of the phrase is its last
word. The rule for noun phrases is reliable for frequent nouns, but only approximate for rare nouns. A spaCy pipeline
can be used instead of the rule for noun phrases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import InputError, MissingExtra
from .lint import inflector, singular_of
from .matcher import AliasMatcher
from .vocabulary import Vocabulary

_OPENERS = frozenset(
    """
    a an the this that these those some any several many few various multiple numerous two three four five six seven
    eight nine ten another other his her its their our my your each every both no of with on in at by near under over
    behind beside and or including like holding wearing riding carrying using
    """.split()
)
_CLOSERS = frozenset(
    """
    is are was were be been being has have had do does did can could may might must shall should will would it he she
    they we you i who which what where when while as if then there here to from for into onto upon about around
    through along across between among against during without within toward towards than but so because such also not
    only just very more most both all one ones them him us me himself herself itself themselves up down out off away
    together apart appear appears appearing seem seems seen make makes making made add adds adding added give gives
    giving create creates creating suggest suggests suggesting indicate indicates indicating show shows showing shown
    feature features featuring depict depicts depicting capture captures capturing contain contains containing include
    includes stand stands standing sit sits sitting lie lies lying hang hangs hanging place placed positioned located
    visible available present ready engaged filled covered surrounded scattered parked walking running playing looking
    enjoying resting waiting eating possibly likely perhaps probably
    """.split()
)
_NOT_OBJECTS = frozenset(
    """
    image picture photo photograph scene background foreground view side left right top bottom center centre middle
    front back edge corner part area space position direction distance way angle perspective time day moment event
    variety group number pair set row lot couple total overall atmosphere setting environment sense presence
    appearance addition activity focus attention color colors colour design style pattern size shape kind type series
    collection arrangement display others someone something everyone anyone nothing everything thing things object
    objects item items detail details element elements main large small big little various different similar own same
    touch portion size combination excitement trick process position experience thrill skill beauty spot essence
    progress mix location nature adventure action performance point focal natural habitat conversation interaction
    ambiance ambience break task jump manner session talent height depth inside outside further closer least third
    above below nearby unique cozy serene casual outdoor indoor enjoy occupy take fun turn surrounding mid-air whom
    black white red blue green yellow brown pink purple next other possible need bond use purpose opportunity mood
    charm contrast quality function importance emphasis charming vibrant colorful fashion order case fact lot
    backdrop meal game sport match competition event occasion gathering trip journey ride
    """.split()
)
_ADJECTIVAL = re.compile(r".+(?:ing|ed|ly|ous|ful|ive|less|able|ible|ish)\Z")
_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d+|\S")
EXAMPLES = 3


@dataclass(slots=True)
class CandidatePhrase:
    """A phrase that the vocabulary does not cover.

    Attributes:
        phrase: Singular form of the phrase, in lower case.
        captions: Number of captions that contain the phrase.
        forms: Mapping from surface forms to the number of occurrences of each form.
        examples: Some contexts of the phrase, for the person who curates the vocabulary.
    """

    phrase: str
    captions: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


def mine(
    texts: Iterable[str], vocabulary: Vocabulary, *, min_captions: int = 3, spacy_model: str | None = None
) -> list[CandidatePhrase]:
    """Returns the noun phrases that a vocabulary does not cover, sorted by decreasing frequency.

    Args:
        texts: Captions or rollouts.
        vocabulary: Existing vocabulary. Phrases that overlap with a mention or an ignore phrase are omitted.
        min_captions: Minimum number of captions in which a phrase must occur.
        spacy_model: Name or path of a spaCy pipeline whose noun chunks are used instead of the built-in rules.

    Raises:
        MissingExtra: If inflect is not installed, or if spaCy is requested but not installed.
        InputError: If the spaCy pipeline cannot be loaded.
    """
    engine = inflector()
    matcher = AliasMatcher(vocabulary)
    phrases = _spacy_phrases(spacy_model) if spacy_model else _phrases
    candidates: dict[str, CandidatePhrase] = {}
    singular: dict[str, str] = {}
    for text in texts:
        covered = bytearray(len(text))  # 1 at the characters of mentions and ignore phrases
        for left, right in (*((m.start, m.end) for m in matcher.find(text)), *matcher.find_ignored(text)):
            covered[left:right] = b"\1" * (right - left)
        seen: set[str] = set()
        for start, end in phrases(text):
            if any(covered[start:end]):
                continue
            surface = " ".join(text[start:end].lower().split())
            if surface not in singular:
                singular[surface] = _singular(engine, surface)
            candidate = candidates.setdefault(singular[surface], CandidatePhrase(singular[surface]))
            candidate.forms[surface] += 1
            if singular[surface] not in seen:
                seen.add(singular[surface])
                candidate.captions += 1
                if len(candidate.examples) < EXAMPLES:
                    left, right = max(0, start - 30), min(len(text), end + 30)
                    candidate.examples.append(" ".join(text[left:right].split()))
    kept = [candidate for candidate in candidates.values() if candidate.captions >= min_captions]
    return sorted(kept, key=lambda candidate: (-candidate.captions, candidate.phrase))


def _singular(engine: Any, phrase: str) -> str:
    *before, last = phrase.split()
    return " ".join([*before, singular_of(engine, last)])


def _phrases(text: str) -> Iterator[tuple[int, int]]:
    """Yields the spans of head nouns and two-word compounds, according to the rule in the docstring of this module."""
    chunk: list[re.Match[str]] = []
    opened = False
    for token in [*_TOKEN.finditer(text), None]:
        word = token.group().lower() if token else ""
        ends = token is None or not word[0].isalpha() or word in _CLOSERS or word in _OPENERS
        if not ends:
            assert token is not None
            chunk.append(token)
            continue
        if opened and chunk:
            yield from _heads(chunk)
        chunk = []
        opened = word in _OPENERS or word.isdigit()


def _heads(chunk: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    while len(chunk) > 1 and _ADJECTIVAL.match(chunk[-1].group().lower()):  # "a dog running" -> dog
        chunk.pop()
    head = chunk[-1].group().lower()
    if head in _NOT_OBJECTS or len(head) < 3 or _ADJECTIVAL.match(head):
        return
    yield chunk[-1].start(), chunk[-1].end()
    if len(chunk) > 1:
        before = chunk[-2].group().lower()
        if before not in _NOT_OBJECTS and not _ADJECTIVAL.match(before):
            yield chunk[-2].start(), chunk[-1].end()


def _spacy_phrases(model: str) -> Any:
    try:
        import spacy
    except ImportError:
        raise MissingExtra("spacy", "mining with a spaCy pipeline") from None
    try:
        pipeline = spacy.load(model, exclude=["ner"])
    except (OSError, ValueError) as error:
        reason = f"spaCy cannot load '{model}': {str(error).splitlines()[0]}"
        raise InputError(reason) from None
    if not pipeline.has_pipe("parser"):
        raise InputError(f"the spaCy pipeline '{model}' has no parser, which noun chunks need")

    def phrases(text: str) -> Iterator[tuple[int, int]]:
        for chunk in pipeline(text).noun_chunks:
            if chunk.root.pos_ == "NOUN" and chunk.root.lower_ not in _NOT_OBJECTS:
                yield chunk.root.idx, chunk.root.idx + len(chunk.root)

    return phrases


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed label: a head noun with its forms, and the compounds that name kinds of this object."""

    label: str
    aliases: list[str]
    captions: int
    examples: list[str]


def cluster(candidates: Iterable[CandidatePhrase]) -> list[Draft]:
    """Groups candidates into draft labels.

    A draft combines singular and plural forms, spellings as one word or two words, and compounds with the same head
    noun.

    Args:
        candidates: Candidates from :func:`mine`.

    Returns:
        The drafts, sorted by decreasing frequency. A person decides which drafts to keep (paper, section 3.1).
    """
    ranked = sorted(candidates, key=lambda c: (-c.captions, c.phrase))
    glued = {c.phrase.replace(" ", "").replace("-", ""): c.phrase for c in reversed(ranked)}
    heads = {c.phrase for c in ranked if " " not in c.phrase}
    groups: dict[str, list[CandidatePhrase]] = {}
    for candidate in ranked:
        name = glued[candidate.phrase.replace(" ", "").replace("-", "")]
        head = name.split()[-1]
        groups.setdefault(head if head in heads else name, []).append(candidate)
    engine = inflector()
    drafts = []
    for label, members in groups.items():
        forms = {form for member in members for form in (*member.forms, member.phrase)}
        for member in members:
            forms.add(str(engine.plural_noun(member.phrase)))
        representative = next((m for m in members if m.phrase == label), members[0])
        drafts.append(Draft(label, [label, *sorted(forms - {label})], representative.captions, representative.examples))
    return sorted(drafts, key=lambda draft: (-draft.captions, draft.label))
