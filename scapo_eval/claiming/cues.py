"""Words that express claims; these words are read once from ``cues.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
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


@dataclass(frozen=True)
class ClaimCues:
    """The content of ``cues.yaml``.

    Attributes:
        cues: Cues in the order of the file.
        words: Nested mapping from group and word to the cue and the value of the word.
        phrases: Words of each relational phrase, together with the cue and the value of the phrase. The longest phrases
            come first.
        sets: Mapping from the name of each word list that is not a cue to the words in the list.
        fingerprint: Hash of the file's content without examples and comments.
    """

    cues: tuple[ClaimCue, ...]
    words: Mapping[str, Mapping[str, tuple[ClaimCue, str]]]
    phrases: tuple[tuple[tuple[str, ...], ClaimCue, str], ...]
    sets: Mapping[str, frozenset[str]]
    fingerprint: str


@cache
def shipped_claim_cues() -> ClaimCues:
    """Returns the claim cues that ship with the package."""
    document: Any = load_yaml(_FILE.read_bytes(), _FILE.name)
    cues = list[ClaimCue]()
    words: dict[str, dict[str, tuple[ClaimCue, str]]] = {}
    phrases = list[tuple[tuple[str, ...], ClaimCue, str]]()
    decisive = list[str]()
    sets = dict[str, frozenset[str]]()
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
                for word in listed:
                    if group == "relations":
                        phrases.append((tuple(word.split()), cue, cue.value or word))
                    words.setdefault(group, {})[word] = cue, cue.value or word
    phrases.sort(key=lambda phrase: -len(phrase[0]))
    rest = [f"{name}: {' '.join(sorted(listed))}" for name, listed in sorted(sets.items())]
    return ClaimCues(tuple(cues), words, tuple(phrases), sets, digest([*decisive, *rest]))
