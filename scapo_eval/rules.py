"""Ignore rules: phrases in which a word does not name its thing, written as templates that a person can review.

A template is a phrase with choices: ``{red|green} light{|s}`` stands for four phrases, an empty choice for nothing, and
``{color}`` for the words of a named list. Each rule says its class and its reason::

    lists:
      color: [red, green, blue]
    ignore:
      - class: color
        reason: The color orange among other colors.
        phrases: ["{color} and orange", "orange and {color}"]

``docs/vocabulary.md`` describes the file; ``vocab check`` shows what each rule matched in given captions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from .errors import InputError

CLASSES = ("brand", "color", "depiction", "idiom", "material", "modifier", "other sense", "photograph", "verb")
"""What the word does in place of naming its thing."""

LIMIT = 20_000
"""Phrases that one template may stand for."""

_CHOICE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """Templates that share a class and a reason.

    Attributes:
        kind: one of CLASSES; empty for phrases listed without one.
        reason: a sentence for the person who reviews it.
        templates: each as written, with the phrases that it stands for.
    """

    kind: str
    reason: str
    templates: Mapping[str, Sequence[str]]

    @property
    def phrases(self) -> list[str]:
        """What the templates stand for, in order."""
        return list(dict.fromkeys(phrase for phrases in self.templates.values() for phrase in phrases))


def parse_rules(entries: object, lists: Mapping[str, Sequence[str]]) -> Iterator[IgnoreRule]:
    """The rules of an ``ignore`` list: templates, and mappings of class, reason and phrases.

    Raises:
        InputError: something else stands there, an unknown class or list, a malformed or too large template.
    """
    if not isinstance(entries, list):
        raise InputError(f"'ignore': expected a list, found {entries!r}")
    plain = [entry for entry in entries if not isinstance(entry, dict)]
    if plain:
        yield _rule({"phrases": plain}, lists)
    for entry in entries:
        if isinstance(entry, dict):
            unknown = sorted(map(str, set(entry) - {"class", "reason", "phrases"}))
            if unknown:
                raise InputError(f"'ignore': unknown key '{unknown[0]}'; known: class, reason, phrases")
            if entry.get("class") not in CLASSES:
                raise InputError(f"'ignore': unknown class {entry.get('class')!r}; known: {', '.join(CLASSES)}")
            yield _rule(entry, lists)


def _rule(entry: Mapping[Any, Any], lists: Mapping[str, Sequence[str]]) -> IgnoreRule:
    templates = {template: expand(template, lists) for template in texts("ignore", entry.get("phrases") or [])}
    return IgnoreRule(str(entry.get("class") or ""), " ".join(str(entry.get("reason") or "").split()), templates)


def parse_lists(lists: object) -> dict[str, list[str]]:
    """The named word lists of a file; a list may use those before it.

    Raises:
        InputError: not a mapping of names to lists of words.
    """
    if not isinstance(lists, dict):
        raise InputError(f"'lists': expected names with lists of words, found {lists!r}")
    parsed: dict[str, list[str]] = {}
    for name, words in lists.items():
        if not isinstance(name, str):
            raise InputError(f"'lists': name {name!r} is not text; put it in quotes")
        parsed[name] = [word for template in texts(f"list '{name}'", words) for word in expand(template, parsed)]
    return parsed


def expand(template: str, lists: Mapping[str, Sequence[str]]) -> list[str]:
    """The phrases that a template stands for, in order; white space is that of a phrase.

    Raises:
        InputError: a brace without its partner, an unknown list, or more than LIMIT phrases.
    """
    parts = _CHOICE.split(template)
    if any(c in part for part in parts[::2] for c in "{}|"):
        raise InputError(f"template '{template}': a brace without its partner, or a bar outside of braces")
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
                f"template '{template}': unknown list '{part.strip()}'; known: {', '.join(lists) or 'none'}"
            )
        size *= len(options[-1])
    if size > LIMIT:
        raise InputError(f"template '{template}' stands for {size:,} phrases; at most {LIMIT:,}")
    return list(dict.fromkeys(" ".join("".join(choice).split()) for choice in product(*options)))


def texts(owner: str, words: object) -> list[str]:
    """A list of texts as it stands in a vocabulary file.

    Raises:
        InputError: it is not a list, or holds something else than text.
    """
    if isinstance(words, str) or not hasattr(words, "__iter__"):
        raise InputError(f"'{owner}': expected a list of aliases, found {words!r}")
    listed = list(words)
    for word in listed:
        if not isinstance(word, str):
            raise InputError(f"'{owner}': {word!r} is not text; put it in quotes")
    return listed
