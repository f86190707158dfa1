"""Consistency checks for prompts and aliases. A judge must count every object that the matcher assigns to the label.

For example, the word "stool" in a caption is a claim of ``chair``. If a prompt excludes subtypes or stools, the matrix
marks ``chair`` as absent although claims that refer to stools are true. The checks report the following kinds of
findings:

- ``excluded``: the prompt lists an alias of the label among the objects that do not count.
- ``both``: the prompt lists an alias both among the objects to count and among the objects not to count. A prompt with
  this finding is often correct ("stools used as tables"), so a person should read the sentence.
- ``subtype``: the prompt excludes subtypes and never lists the alias among the objects that count.
- ``unnamed``: a label-specific or joint prompt never mentions the alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..matching.matcher import AliasMatcher
from ..matching.vocabulary import Vocabulary
from .prompts import LabelPrompt, is_plural
from .store import PassKind

_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d+[.)])\s+")
_EXCLUDES = re.compile(
    r"(?:\A|: )(?:not|no|never|neither)\b"
    r"|\b(?:do|does|must|should)(?: not|n't) (?:be )?(?:count|include|support|accept)"
    r"|\bnot counted\b|\bexclud(?:e|es|ed|ing)\b|\bsupports? (?:neither|none)\b|\bare neither\b",
    re.IGNORECASE,
)
_HEADING_EXCLUDES = re.compile(r"\b(?:not|never|exclu\w+)\b", re.IGNORECASE)
_SUBTYPES = re.compile(r"\b(?:subtypes?|sub-types?|kinds of it|hyponyms?)\b", re.IGNORECASE)
_ABOUT = re.compile(r"\s*(?:For (?:the label )?)?[\"'\u201c]?([^:\"'\u201d]{1,60})[\"'\u201d]?:", re.IGNORECASE)
_ENDS = re.compile(r"(?<=[.;!?])\s+")


@dataclass(frozen=True, slots=True)
class PromptFinding:
    """Aliases of a label whose objects a judge may fail to count if the judge follows a prompt.

    Attributes:
        kind: ``excluded``, ``both``, ``subtype`` or ``unnamed``; see the docstring of this module.
        prompt: Id of the prompt.
        label: Label of the aliases.
        aliases: Aliases as written in the vocabulary.
        text: Sentence in the prompt that causes the finding, or an empty string if the prompt does not mention the
            aliases.
    """

    kind: str
    prompt: str
    label: str
    aliases: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a prompt, with a flag that is True if the sentence excludes objects, and the label that the
    sentence refers to ("" for all labels).
    """

    text: str
    excludes: bool
    label: str


def lint(prompts: Iterable[LabelPrompt], vocabulary: Vocabulary) -> list[PromptFinding]:
    """Returns all contradictions between prompts and the aliases of a vocabulary.

    Args:
        prompts: Prompts for specific labels.
        vocabulary: Vocabulary whose aliases determine the claims in captions.
    """
    matcher = AliasMatcher(vocabulary)
    return [finding for prompt in prompts for label in prompt.labels for finding in _check(prompt, label, matcher)]


def _check(prompt: LabelPrompt, label: str, matcher: AliasMatcher) -> Iterator[PromptFinding]:
    vocabulary = matcher.vocabulary
    sentences = [sentence for sentence in _sentences(prompt.user, prompt.labels) if sentence.label in ("", label)]
    counted = {
        alias for sentence in sentences if not sentence.excludes for alias in _named(sentence.text, label, matcher)
    }
    excluded: dict[str, str] = {}
    for sentence in sentences:
        if sentence.excludes:
            for alias in _named(sentence.text, label, matcher):
                excluded.setdefault(alias, sentence.text)
    synonyms = [alias for alias in vocabulary.aliases_of(label) if not _same(alias, label)]
    for text in dict.fromkeys(excluded.values()):
        in_sentence = [alias for alias in synonyms if excluded.get(_folded(alias)) == text]
        for kind, aliases in (
            ("excluded", [alias for alias in in_sentence if _folded(alias) not in counted]),
            ("both", [alias for alias in in_sentence if _folded(alias) in counted]),
        ):
            if aliases:
                yield PromptFinding(kind, prompt.id, label, tuple(aliases), text)
    silent = [alias for alias in synonyms if _folded(alias) not in counted | excluded.keys()]
    known = {*map(_folded, synonyms)} - {*map(_folded, silent)}
    silent = [alias for alias in silent if not is_plural(alias, known | {_folded(other) for other in silent})]
    forbids = next(
        (sentence.text for sentence in sentences if sentence.excludes and _SUBTYPES.search(sentence.text)), None
    )
    kinds: tuple[PassKind, ...] = ("label", "joint")
    if silent and (forbids is not None or prompt.kind in kinds):
        kind = "subtype" if forbids is not None else "unnamed"
        yield PromptFinding(kind, prompt.id, label, tuple(silent), forbids or "")


def _sentences(text: str, labels: Sequence[str]) -> Iterator[_Sentence]:
    """Yields the sentences of a prompt. A heading such as "Do not count:" applies until the next heading."""
    excluding = False
    for paragraph in _paragraphs(text):
        match = _ABOUT.match(paragraph)
        label = next((candidate for candidate in labels if match and _same(match[1].strip(), candidate)), "")
        if paragraph.endswith(":") and not label:
            excluding = bool(_HEADING_EXCLUDES.search(paragraph))
            continue
        for sentence in _ENDS.split(paragraph[match.end() :] if match and label else paragraph):
            before, unless, behind = sentence.strip().partition(" unless ")
            yield _Sentence(before, excluding or bool(_EXCLUDES.search(before)), label)
            if unless:
                yield _Sentence(behind, False, label)


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the bullet points and lines of a prompt, each joined with its continuation lines."""
    gathered = ""
    for line in text.splitlines():
        bullet = _BULLET.match(line)
        continues = gathered and not bullet and line[:1].isspace() and line.strip()
        if continues:
            gathered += " " + line.strip()
            continue
        if gathered:
            yield gathered
        gathered = line[bullet.end() :].strip() if bullet else line.strip()
    if gathered:
        yield gathered


def _named(text: str, label: str, matcher: AliasMatcher) -> set[str]:
    """Returns the case-folded aliases of a label that a text names in the singular or plural."""
    surfaces = {_folded(m.surface) for m in matcher.find(text) if m.label == label}
    return {
        _folded(alias)
        for alias in matcher.vocabulary.aliases_of(label)
        if not _same(alias, label) and any(_same(alias, surface) for surface in surfaces)
    }


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _same(a: str, b: str) -> bool:
    """Returns True if two names are equal, or if one is the plural of the other."""
    a, b = _folded(a), _folded(b)
    return a == b or is_plural(a, {b}) or is_plural(b, {a})
