"""The cues of uses as data: what ``cues.yaml`` says, read once and compiled when first met.

A cue is a word that says what a caption does with the mentions around it. The file explains its keys; ``uses.py`` says
what they mean for a text. Each cue carries examples, which are its tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from ..base.hashes import digest
from ..base.types import Use
from ..files.yaml_text import load_yaml

_FILE = Path(__file__).with_name("cues.yaml")
_PART = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, eq=False)
class Cue:
    """The use that some words begin.

    Attributes:
        words: in lower case, without apostrophes.
        use: of the mentions in its scope.
        after: what must follow the word, up to where its scope begins, as an expression; empty for anything.
        phrase: whether the scope is a noun phrase only.
        behind, not_behind: what must stand, and what may not stand before the word, as expressions; empty for anything.
        then: what must follow a mention in its scope, as an expression; empty for anything.
        back: what it says of the mention before it: names in ``Cues.backward``.
        holds, fails: texts in which mentions in brackets have, and have not, the use.
    """

    words: tuple[str, ...]
    use: Use
    after: str = ""
    phrase: bool = False
    behind: str = ""
    not_behind: str = ""
    then: str = ""
    back: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backward:
    """The use that a cue behind a mention gives it.

    Attributes:
        pattern: matches from the end of the mention to behind the cue.
        within: characters between the mention and the cue, at most.
        plural: whether it speaks of mentions in the plural without an article only.
        before: what must stand before such a mention, if anything does.
    """

    pattern: re.Pattern[str]
    within: int
    plural: bool
    before: re.Pattern[str] | None


@dataclass(frozen=True)
class Scopes:
    """The ends of a scope, and its exceptions; see ``cues.yaml``."""

    marks: re.Pattern[str]
    ends: frozenset[str]
    phrase_ends: frozenset[str]
    pairs: frozenset[str]
    pair: re.Pattern[str]
    item: re.Pattern[str]
    goes_on: re.Pattern[str]
    definite: frozenset[str]
    granted: frozenset[str]
    not_in_noun_phrase: frozenset[str]
    anew: frozenset[str]
    asks: re.Pattern[str]
    short: int


@dataclass(frozen=True)
class Cues:
    """The content of ``cues.yaml``.

    Attributes:
        cues: in order.
        backward: by name.
        scopes: what scopes are made of.
        signs: words of a sentence that say that what it quotes is written somewhere.
        reach, phrase_reach: characters behind a cue word within which a mention in its scope begins; where the scope
            is a noun phrase.
        fingerprint: hash of everything but examples and comments.
    """

    cues: tuple[Cue, ...]
    backward: Mapping[str, Backward]
    scopes: Scopes
    signs: frozenset[str]
    reach: int
    phrase_reach: int
    fingerprint: str


@cache
def shipped_cues() -> Cues:
    """Returns the cues that come with the project."""
    return read_cues(_FILE.read_bytes())


def read_cues(data: bytes) -> Cues:
    """Returns the cues of a file's content.

    Raises:
        KeyError, ValueError: if the file is not a file of cues; tests check the project's own file.
    """
    document: Any = load_yaml(data, _FILE.name)
    parts: dict[str, str] = document["parts"]
    cues = tuple(_cue(entry, parts) for entry in document["cues"])
    decisive = [{key: entry[key] for key in entry if key not in ("holds", "fails")} for entry in document["cues"]]
    rest = {key: document[key] for key in document if key != "cues"}
    return Cues(
        cues=cues,
        backward={name: _backward(entry, parts) for name, entry in document["backward"].items()},
        scopes=_scopes(document["scopes"]),
        signs=frozenset(document["signs"].split()),
        reach=document["reach"],
        phrase_reach=document["phrase_reach"],
        fingerprint=digest([repr(decisive), repr(rest)]),
    )


@cache
def compiled(expression: str) -> re.Pattern[str]:
    """Returns an expression of the file, compiled when it is first met: all would take as long as an import."""
    return re.compile(expression, re.VERBOSE)


def _cue(entry: Mapping[str, Any], parts: Mapping[str, str]) -> Cue:
    if entry["use"] not in get_args(Use):
        raise ValueError(f"unknown use '{entry['use']}'")
    after = _any(entry["unless"], r"(?!\s+(?:{})\b)") if "unless" in entry else ""
    after += _any(entry["after"], r"\s+(?:{})\b") if "after" in entry else ""
    after += _filled(entry.get("pattern", ""), parts)
    return Cue(
        words=tuple(entry["words"].split()),
        use=entry["use"],
        after=_NEVER if entry.get("only_back") else after,
        phrase=entry.get("phrase", False),
        behind=_any(entry["behind"], r"\b(?:{})\s+$") if "behind" in entry else "",
        not_behind=_not_behind(entry),
        then=f"(?i:{entry['then']})" if "then" in entry else "",
        back=tuple(entry.get("back", "").split()),
        holds=tuple(entry["holds"]),
        fails=tuple(entry["fails"]),
    )


_NEVER = "(?!)"


def _not_behind(entry: Mapping[str, Any]) -> str:
    words = _any(entry["not_behind"], r"\b(?:{})\s+$") if "not_behind" in entry else ""
    return "|".join(filter(None, (words, entry.get("unless_before", ""))))


def _any(words: str, within: str) -> str:
    """Returns an expression for each of some words or phrases, with commas between them."""
    return within.format("|".join(r"\s+".join(phrase.split()) for phrase in words.split(",")))


def _filled(expression: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda name: parts[name[1]], expression)


def _backward(entry: Mapping[str, Any], parts: Mapping[str, str]) -> Backward:
    before = entry.get("before")
    return Backward(
        compiled(_filled(entry["pattern"], parts)),
        entry["within"],
        entry.get("plural", False),
        compiled(before) if before else None,
    )


def _scopes(entry: Mapping[str, Any]) -> Scopes:
    expressions = ("marks", "pair", "item", "goes_on", "asks")
    read: dict[str, Any] = {key: compiled(text) if key in expressions else text for key, text in entry.items()}
    sets: dict[str, Any] = {key: frozenset(words.split()) for key, words in read.items() if isinstance(words, str)}
    return Scopes(**{**read, **sets})
