"""Words that express claims; these words are read once from ``cues.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..base.hashes import digest
from ..files.yaml_text import load_yaml

_FILE = Path(__file__).with_name("cues.yaml")
_EXAMPLES = ("holds", "fails")


@dataclass(frozen=True, eq=False)
class ClaimCue:
    """A group of words that express claims of the same kind and category.

    Attributes:
        group: Name of the list in ``cues.yaml`` that contains the cue.
        value: Canonical word for all words of the cue, or an empty string if each word is its own canonical word.
        category: Category of the claim; see :class:`~scapo_eval.claiming.claim.Claim`.
        agent: True if only people and animals can be the subject of the claim.
        holds: Example texts in which a claim of the cue is marked.
        fails: Example texts without a claim of the cue.
    """

    group: str
    value: str
    category: str
    agent: bool
    holds: tuple[str, ...]
    fails: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ColorCue:
    """Color words that people may use for the same object although the words differ.

    Attributes:
        words: The color words.
        of: Colors of which each word names a shade.
        like: Colors that each word neither implies nor excludes.
        examples: Mapping from ``holds``, ``unknown`` and ``fails`` to pairs of an annotation's and a caption's words.
    """

    words: frozenset[str]
    of: frozenset[str]
    like: frozenset[str]
    examples: Mapping[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class ClaimCues:
    """The content of ``cues.yaml``.

    Attributes:
        cues: Cues in the order of the file.
        words: Nested mapping from group and word to the cue and the value of the word.
        phrases: Words of each relational phrase, together with the cue and the value of the phrase. The longest phrases
            come first.
        sets: Mapping from the name of each word list that is not a cue to the words in the list.
        colors: Color words that overlap in meaning with others.
        fingerprint: Hash of the file's content without examples and comments.
    """

    cues: tuple[ClaimCue, ...]
    words: Mapping[str, Mapping[str, tuple[ClaimCue, str]]]
    phrases: tuple[tuple[tuple[str, ...], ClaimCue, str], ...]
    sets: Mapping[str, frozenset[str]]
    colors: tuple[ColorCue, ...]
    fingerprint: str

    @cached_property
    def color_words(self) -> frozenset[str]:
        """The canonical words for colors."""
        return frozenset(value for cue, value in self.words["attributes"].values() if cue.category == "color")

    @cached_property
    def shades(self) -> Mapping[str, frozenset[str]]:
        """Mapping from each color to the words for its shades, including the color itself."""
        return _related(self.color_words, [(a, word) for cue in self.colors for word in cue.words for a in cue.of])

    @cached_property
    def overlaps(self) -> Mapping[str, frozenset[str]]:
        """Mapping from each color to the words that do not exclude it. The relation is symmetric."""
        pairs = [(a, b) for cue in self.colors for a in cue.words for b in cue.words | cue.of | cue.like]
        return _related(self.color_words, [*pairs, *((b, a) for a, b in pairs)])


def _numbers(tens: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields the numbers from 20 to 99 as digits and as words, given the words for twenty, thirty and so on."""
    ones = "", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
    for number in range(20, 100):
        ten, one = tens[number // 10 - 2], ones[number % 10]
        yield str(number), number
        yield f"{ten}-{one}" if one else ten, number


def _related(colors: frozenset[str], pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Returns a mapping from each color to itself and the words that the pairs relate to it."""
    related = {color: {color} for color in colors}
    for color, word in pairs:
        related[color].add(word)
    return {color: frozenset(words) for color, words in related.items()}


def _color_cue(entry: Mapping[str, Any], colors: frozenset[str]) -> ColorCue:
    words, of, like = (frozenset(entry.get(key, "").split()) for key in ("words", "of", "like"))
    if "any" in like:
        like = colors - like
    examples = {key: tuple(tuple(pair.split(": ")) for pair in entry[key]) for key in ("holds", "unknown", "fails")}
    return ColorCue(words, of, like, examples)


@cache
def shipped_claim_cues() -> ClaimCues:
    """Returns the claim cues that ship with the package."""
    document: Any = load_yaml(_FILE.read_bytes(), _FILE.name)
    cues = list[ClaimCue]()
    words: dict[str, dict[str, tuple[ClaimCue, str]]] = {}
    phrases = list[tuple[tuple[str, ...], ClaimCue, str]]()
    decisive = list[str]()
    sets = dict[str, frozenset[str]]()
    entries_of_colors = document.pop("colors")
    for group, entries in document.items():
        if group in ("at_least", "at_most", "about"):
            sets[group] = frozenset(entries)
        elif isinstance(entries, str):
            sets[group] = frozenset(word.replace("\0", " ") for word in entries.replace("\\ ", "\0").split())
        else:
            for entry in entries:
                category = entry.get("category", {"doing": "state", "posed": "state", "places": "place"}.get(group, ""))
                listed = entry["words"] if isinstance(entry["words"], list) else entry["words"].split()
                first = listed[0] if group == "doing" else ""
                cue = ClaimCue(
                    group,
                    entry.get("value", first),
                    category,
                    entry.get("agent", False),
                    *(tuple(entry[key]) for key in _EXAMPLES),
                )
                cues.append(cue)
                decisive.append(repr({key: value for key, value in entry.items() if key not in _EXAMPLES}))
                if group == "numbers":
                    words[group] = {word: (cue, str(number)) for word, number in _numbers(listed)}
                    continue
                for word in listed:
                    if group == "relations":
                        phrases.append((tuple(word.split()), cue, cue.value or word))
                    words.setdefault(group, {})[word] = cue, cue.value or word
    phrases.sort(key=lambda phrase: -len(phrase[0]))
    known = frozenset(value for cue, value in words["attributes"].values() if cue.category == "color")
    colors = tuple(_color_cue(entry, known) for entry in entries_of_colors)
    decisive += [repr([sorted(part) for part in (cue.words, cue.of, cue.like)]) for cue in colors]
    rest = [f"{name}: {' '.join(sorted(listed))}" for name, listed in sorted(sets.items())]
    return ClaimCues(tuple(cues), words, tuple(phrases), sets, colors, digest([*decisive, *rest]))
