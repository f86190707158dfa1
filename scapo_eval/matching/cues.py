"""The cues from ``cues.yaml``, parsed into data classes. The file is read once, in the form that ``compiled.py`` keeps,
and each expression is compiled on first use.

A cue is a word that determines the use of the mentions around it, such as "no" or "possibly". The keys are documented
in the file itself, and ``uses.py`` applies the cues to a text. Each cue includes examples, which the tests check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from ..base.hashes import digest
from ..base.types import Use
from ..files.yaml_text import load_yaml
from .compiled import CUES, CUES_FILE, read_compiled

_PART = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, eq=False)
class Cue:
    """A group of words that assign the same use to mentions.

    Attributes:
        words: Cue words in lower case, without apostrophes.
        use: Use that the cue assigns to mentions in its scope.
        after: Expression that must match the text between the word and its scope. The expression is empty if there is
            no such requirement.
        phrase: True if the scope is only a noun phrase.
        behind, not_behind: Expressions that must match, or must not match, the text before the word. The expressions
            are empty if there is no such requirement.
        then: Expression that must match the text after a mention in the scope. The expression is empty if there is no
            such requirement.
        presumes: True if a definite object immediately after the cue counts as a claim: "not sure if THE man holds a
            dog".
        lists: True if the scope continues at an "and" that is followed by an article, as in "a painting of two boats
            and a dog".
        any_item: True if such a list may also contain words that are not mentions: "a mural of a tiger and a dog".
        headed: True if the scope is a list after a heading, such as "Missing: the dog, the cat". The list may continue
            on further lines and may contain definite objects.
        sentence: True if the scope is the rest of the sentence, up to what the caption locates beside the picture: "the
            mural shows a boy who holds a kite".
        only_back: True if the cue applies only to the mention before it.
        back: Names of the rules in ``Cues.backward`` that apply to the mention before the word.
        holds, fails: Example texts in which the mentions in brackets have, or do not have, the use.
    """

    words: tuple[str, ...]
    use: Use
    after: str = ""
    phrase: bool = False
    behind: str = ""
    not_behind: str = ""
    then: str = ""
    presumes: bool = False
    lists: bool = False
    any_item: bool = False
    headed: bool = False
    sentence: bool = False
    only_back: bool = False
    back: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backward:
    """A rule that assigns a use to the mention before a cue.

    Attributes:
        pattern: Expression that matches the text from the end of the mention to the end of the cue.
        within: Maximum number of characters between the mention and the cue.
        plural: True if the rule applies only to plural mentions without an article.
        before: Expression that must match the text before the mention, unless the mention begins the text. The
            expression is empty if there is no such requirement.
        lists: True if the rule also applies to mentions that are joined to this one by "and" or "or" before a plural
            verb.
        subject: True if the cue is about the subject of its clause: "the owner of the bicycle is nowhere around" denies
            the owner.
    """

    pattern: str
    within: int
    plural: bool
    before: str
    lists: bool
    subject: bool


@dataclass(frozen=True)
class Scopes:
    """The words and expressions that end a scope, and the exceptions; see ``cues.yaml``."""

    marks: re.Pattern[str]
    hard: re.Pattern[str]
    ends: frozenset[str]
    phrase_ends: frozenset[str]
    pairs: frozenset[str]
    pair: re.Pattern[str]
    subject: re.Pattern[str]
    predicate: re.Pattern[str]
    leaves: re.Pattern[str]
    joint: re.Pattern[str]
    joint_of_any: re.Pattern[str]
    lines: re.Pattern[str]
    item: re.Pattern[str]
    goes_on: re.Pattern[str]
    definite: frozenset[str]
    granted: frozenset[str]
    not_in_noun_phrase: frozenset[str]
    anew: frozenset[str]
    asks: re.Pattern[str]
    short: int
    taken: re.Pattern[str]
    seeks: re.Pattern[str]


@dataclass(frozen=True)
class Cues:
    """The content of ``cues.yaml``.

    Attributes:
        cues: Cues in file order.
        backward: Rules for mentions before a cue, by name.
        scopes: Words and expressions that delimit scopes.
        signs: Words that indicate that a quotation in the same sentence is visible writing.
        depictions: Words that indicate that a sentence describes what something depicts.
        reach, phrase_reach: Maximum distance, in characters, between a cue word and a mention in its scope, for clauses
            and for noun phrases, respectively.
        fingerprint: Hash of the content without examples and comments.
    """

    cues: tuple[Cue, ...]
    backward: Mapping[str, Backward]
    scopes: Scopes
    signs: frozenset[str]
    depictions: frozenset[str]
    reach: int
    phrase_reach: int
    fingerprint: str


@cache
def shipped_cues() -> Cues:
    """Returns the cues that ship with the package."""
    return read_cues(read_compiled(CUES, dict) or parse_cues())


def parse_cues() -> Any:
    """Returns the content of ``cues.yaml`` as mappings and lists."""
    return load_yaml(CUES_FILE.read_bytes(), CUES_FILE.name)


def read_cues(document: Any) -> Cues:
    """Creates the cues from the content of a file with cues.

    Raises:
        KeyError, ValueError: If the content is not a valid cue file. Tests check the shipped file.
    """
    parts: dict[str, str] = document["parts"]
    cues = tuple(_cue(entry, parts) for entry in document["cues"])
    decisive = [{key: entry[key] for key in entry if key not in ("holds", "fails")} for entry in document["cues"]]
    rest = {key: document[key] for key in document if key != "cues"}
    return Cues(
        cues=cues,
        backward={name: _backward(entry, parts) for name, entry in document["backward"].items()},
        scopes=_scopes(document["scopes"]),
        signs=frozenset(document["signs"].split()),
        depictions=frozenset(document["depictions"].split()),
        reach=document["reach"],
        phrase_reach=document["phrase_reach"],
        fingerprint=digest([repr(decisive), repr(rest)]),
    )


@cache
def compiled(expression: str) -> re.Pattern[str]:
    """Compiles an expression on first use, because compiling all expressions would slow down the import."""
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
        after=after,
        phrase=entry.get("phrase", False),
        behind=_any(_filled(entry["behind"], parts), r"\b(?:{})(?:\s+|\st-)$") if "behind" in entry else "",
        not_behind=_not_behind(entry, parts),
        then=f"(?i:{_filled(entry['then'], parts)})" if "then" in entry else "",
        presumes=entry.get("presumes", False),
        lists=entry.get("lists", False),
        any_item=entry.get("any_item", False),
        headed=entry.get("headed", False),
        sentence=entry.get("sentence", False),
        only_back=entry.get("only_back", False),
        back=tuple(entry.get("back", "").split()),
        holds=tuple(entry["holds"]),
        fails=tuple(entry["fails"]),
    )


def _not_behind(entry: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    words = _any(entry["not_behind"], r"\b(?:{})\s+$") if "not_behind" in entry else ""
    return "|".join(filter(None, (words, _filled(entry.get("unless_before", ""), parts))))


def _any(words: str, within: str) -> str:
    """Returns an expression that matches any of several words or phrases, which are given as a comma-separated list."""
    return within.format("|".join(r"\s+".join(phrase.split()) for phrase in words.split(",")))


def _filled(expression: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda name: parts[name[1]], expression)


def _backward(entry: Mapping[str, Any], parts: Mapping[str, str]) -> Backward:
    return Backward(
        _filled(entry["pattern"], parts),
        entry["within"],
        entry.get("plural", False),
        entry.get("before", ""),
        entry.get("lists", False),
        entry.get("subject", False),
    )


def _scopes(entry: Mapping[str, Any]) -> Scopes:
    expressions = (
        "marks hard pair subject predicate leaves joint joint_of_any lines item goes_on asks taken seeks"
    ).split()
    read: dict[str, Any] = {key: compiled(text) if key in expressions else text for key, text in entry.items()}
    sets: dict[str, Any] = {key: frozenset(words.split()) for key, words in read.items() if isinstance(words, str)}
    return Scopes(**{**read, **sets})
