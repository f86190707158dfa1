"""Ignore rules, which are reviewable templates for phrases in which a word does not name its object.

A template is a phrase that contains choices. For example, ``{red|green} light{|s}`` represents four phrases, because an
empty choice adds no text. ``{color}`` represents each word of the list with this name. Each rule states the
class of its phrases and a reason::

    lists:
      color: [red, green, blue]
    ignore:
      - class: color
        reason: The color orange among other colors.
        phrases: ["{color} and orange", "orange and {color}"]

A rule with ``names: last`` (or ``first``) lists compounds whose last (or first) word names the object. For example, a
"baseball cap" is a cap and not a ball, and a "bottle of water" is a bottle and not water. If the vocabulary has no
alias for the words that name the object, the phrase names no label. ``docs/vocabulary.md`` describes the file format,
and ``vocab check`` prints the matches of each rule in given captions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, get_args

from ..base.errors import InputError, short_repr

CLASSES = ("brand", "color", "depiction", "idiom", "material", "modifier", "other sense", "photograph", "verb")
"""Classes of ignore rules. A class describes the function of a word that does not name its object."""

Names = Literal["", "first", "last"]
"""Position of the words that determine the object of a compound. The value is empty if the phrase names nothing."""

LIMIT = 20_000
"""Maximum number of phrases that one template may represent."""

LIMIT_OF_LIST = 50 * LIMIT
"""Maximum number of phrases that a list of templates may represent."""

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """Templates of ignore phrases that share a class and a reason.

    Attributes:
        kind: One of CLASSES, or an empty text for phrases that are listed without a class.
        reason: Explanation of the rule for reviewers.
        templates: Mapping from templates, as written, to the phrases that they represent.
        names: Position (first or last) of the words that determine which object a compound denotes.
    """

    kind: str
    reason: str
    templates: Mapping[str, Sequence[str]]
    names: Names = ""

    @property
    def phrases(self) -> list[str]:
        """The distinct phrases that the templates of the rule represent, in order."""
        return list(dict.fromkeys(phrase for phrases in self.templates.values() for phrase in phrases))


def parse_rules(entries: object, lists: Mapping[str, Sequence[str]]) -> Iterator[IgnoreRule]:
    """Yields the rules of an ``ignore`` list, whose entries are templates or mappings with class, reason and phrases.

    Raises:
        InputError: If an entry has the wrong type, if a class or list is unknown, or if a template is malformed or too
            large.
    """
    if not isinstance(entries, list):
        raise InputError(f"'ignore': expected a list, found {short_repr(entries)}")
    plain = [entry for entry in entries if not isinstance(entry, dict)]
    if plain:
        yield _rule({"phrases": plain}, lists)
    for entry in entries:
        if isinstance(entry, dict):
            unknown = sorted(map(str, set(entry) - {"class", "reason", "names", "phrases"}))
            if unknown:
                raise InputError(f"'ignore': unknown key '{unknown[0]}'; known: class, reason, names, phrases")
            if entry.get("names", "") not in get_args(Names):
                raise InputError(f"'ignore': 'names' must be first or last, found {short_repr(entry['names'])}")
            if entry.get("class") not in CLASSES:
                raise InputError(
                    f"'ignore': unknown class {short_repr(entry.get('class'))}; known: {', '.join(CLASSES)}"
                )
            yield _rule(entry, lists)


def _rule(entry: Mapping[Any, Any], lists: Mapping[str, Sequence[str]]) -> IgnoreRule:
    templates = _expanded("ignore", entry.get("phrases") or [], lists)
    reason = " ".join(text_of("reason", entry.get("reason")).split())
    return IgnoreRule(text_of("class", entry.get("class")), reason, templates, entry.get("names", ""))


def parse_lists(lists: object) -> dict[str, list[str]]:
    """Returns the named word lists in a file. A list may refer to lists that precede it in the file.

    Raises:
        InputError: If ``lists`` is not a mapping from names to lists of words.
    """
    if not isinstance(lists, dict):
        raise InputError(f"'lists': expected names with lists of words, found {short_repr(lists)}")
    parsed: dict[str, list[str]] = {}
    for name, words in lists.items():
        if not isinstance(name, str):
            raise InputError(f"'lists': name {short_repr(name)} is not text; put it in quotes")
        parsed[name] = [word for listed in _expanded(f"list '{name}'", words, parsed).values() for word in listed]
    return parsed


def _expanded(owner: str, words: object, lists: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Returns a mapping from each template to the phrases that it represents."""
    phrases: dict[str, list[str]] = {}
    size = 0
    for template in texts(owner, words):
        phrases[template] = expand(template, lists)
        size += len(phrases[template])
        if size > LIMIT_OF_LIST:
            raise InputError(f"'{owner}' produces more than {LIMIT_OF_LIST:,} phrases")
    return phrases


def expand(template: str, lists: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the phrases that a template represents, in order and with normalized white space.

    Raises:
        InputError: If a brace is unbalanced, if a list is unknown, or if the template represents more than LIMIT
            phrases.
    """
    parts = _CHOICE.split(template)
    if any(c in part for part in parts[::2] for c in "{}|"):
        raise InputError(f"template {short_repr(template)}: a brace without its partner, or a bar outside of braces")
    options: list[Sequence[str]] = []
    size = 1
    for k, part in enumerate(parts):
        if k % 2 == 0:
            options.append((part,))
        elif "|" in part:
            options.append(part.split("|"))
        elif part.strip() in lists:
            options.append(lists[part.strip()])
        else:
            raise InputError(
                f"template {short_repr(template)}: unknown list '{part.strip()}'; known: {', '.join(lists) or 'none'}"
            )
        size *= len(options[-1])
        if size > LIMIT**3:
            break
    if size > LIMIT:
        raise InputError(f"template {short_repr(template)} produces {size:,} phrases; at most {LIMIT:,}")
    even = [[_SPACES.sub(" ", option) for option in part] for part in options]
    phrases = ("".join(choice).strip() for choice in product(*even))
    return list(dict.fromkeys(" ".join(phrase.split()) if "  " in phrase else phrase for phrase in phrases))


def text_of(key: str, value: object) -> str:
    """Returns a value from a vocabulary file as text. A missing value becomes an empty text, and a number becomes its
    decimal digits.

    Raises:
        InputError: If the value is a list, a mapping or a Boolean.
    """
    if value is None:
        return ""
    if isinstance(value, (list, dict, bool)):
        raise InputError(f"'{key}': expected a text, found {short_repr(value)}")
    return str(value)


def texts(owner: str, words: object) -> list[str]:
    """Returns a list of texts from a vocabulary file.

    Raises:
        InputError: If the value is not a list, or if an element is not text.
    """
    if isinstance(words, str) or not hasattr(words, "__iter__"):
        raise InputError(f"'{owner}': expected a list of aliases, found {short_repr(words)}")
    listed = list(words)
    for word in listed:
        if not isinstance(word, str):
            raise InputError(f"'{owner}': {short_repr(word)} is not text; put it in quotes")
    return listed
