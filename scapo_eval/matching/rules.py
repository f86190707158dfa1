"""Ignore rules: phrases in which a word does not name its thing, written as templates that a person can review.

A template is a phrase with choices: ``{red|green} light{|s}`` stands for four phrases, an empty choice for nothing, and
``{color}`` for the words of a named list. Each rule says its class and its reason::

    lists:
      color: [red, green, blue]
    ignore:
      - class: color
        reason: The color orange among other colors.
        phrases: ["{color} and orange", "orange and {color}"]

A rule with ``names: last`` (or ``first``) is of compounds that are what their last (first) words are: a "baseball
cap" is a hat to a vocabulary with caps, a "bottle of water" a bottle, and neither is a ball or water. To a vocabulary
without a word for it, such a phrase names nothing, as any other.

``docs/vocabulary.md`` describes the file; ``vocab check`` shows what each rule matched in given captions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, get_args

from ..base.errors import InputError, short_repr

CLASSES = ("brand", "color", "depiction", "idiom", "material", "modifier", "other sense", "photograph", "verb")
"""What the word does in place of naming its thing."""

Names = Literal["", "first", "last"]
"""The end of a phrase whose thing it is; empty if it names nothing."""

LIMIT = 20_000
"""Phrases that one template may stand for."""

LIMIT_OF_LIST = 50 * LIMIT
"""Phrases that a list of templates may stand for."""

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """Templates that share a class and a reason.

    Attributes:
        kind: one of CLASSES; empty for phrases listed without one.
        reason: a sentence for the person who reviews it.
        templates: each as written, with the phrases that it stands for.
        names: which of its words says what each phrase is.
    """

    kind: str
    reason: str
    templates: Mapping[str, Sequence[str]]
    names: Names = ""

    @property
    def phrases(self) -> list[str]:
        """The phrases of the templates, in order."""
        return list(dict.fromkeys(phrase for phrases in self.templates.values() for phrase in phrases))


def parse_rules(entries: object, lists: Mapping[str, Sequence[str]]) -> Iterator[IgnoreRule]:
    """Yields the rules of an ``ignore`` list: templates, and mappings of class, reason and phrases.

    Raises:
        InputError: for another type, an unknown class or list, or a malformed or too large template.
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
                raise InputError(f"'ignore': 'names' is first or last, found {short_repr(entry['names'])}")
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
    """Returns the named word lists of a file; a list may use those before it.

    Raises:
        InputError: if it is not a mapping of names to lists of words.
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
    """Returns a mapping: template -> the phrases it stands for."""
    phrases: dict[str, list[str]] = {}
    size = 0
    for template in texts(owner, words):
        phrases[template] = expand(template, lists)
        size += len(phrases[template])
        if size > LIMIT_OF_LIST:
            raise InputError(f"'{owner}' stands for more than {LIMIT_OF_LIST:,} phrases")
    return phrases


def expand(template: str, lists: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the phrases that a template stands for, in order; white space is that of a phrase.

    Raises:
        InputError: for a brace without its partner, an unknown list, or more than LIMIT phrases.
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
        raise InputError(f"template {short_repr(template)} stands for {size:,} phrases; at most {LIMIT:,}")
    even = [[_SPACES.sub(" ", option) for option in part] for part in options]
    phrases = ("".join(choice).strip() for choice in product(*even))
    return list(dict.fromkeys(" ".join(phrase.split()) if "  " in phrase else phrase for phrase in phrases))


def text_of(key: str, value: object) -> str:
    """Returns a text of a vocabulary file, empty if there is none; an unquoted number becomes its digits.

    Raises:
        InputError: for a list, a mapping or a Boolean.
    """
    if value is None:
        return ""
    if isinstance(value, (list, dict, bool)):
        raise InputError(f"'{key}': expected a text, found {short_repr(value)}")
    return str(value)


def texts(owner: str, words: object) -> list[str]:
    """Returns a list of texts of a vocabulary file.

    Raises:
        InputError: if it is not a list, or contains anything but text.
    """
    if isinstance(words, str) or not hasattr(words, "__iter__"):
        raise InputError(f"'{owner}': expected a list of aliases, found {short_repr(words)}")
    listed = list(words)
    for word in listed:
        if not isinstance(word, str):
            raise InputError(f"'{owner}': {short_repr(word)} is not text; put it in quotes")
    return listed
