"""The words by which captions make claims, as data: what ``cues.yaml`` says, read once."""

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


@dataclass(frozen=True)
class ClaimCue:
    """Some words and what they claim.

    Attributes:
        group: its list in the file.
        value: what they say in one word; empty if each says itself.
        category: see :class:`~scapo_eval.claiming.claim.Claim`.
        agent: whether only people and animals do it.
        holds, fails: texts with a claim of the cue marked, and without one.
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
        cues: in the file's order.
        words: group -> word -> its cue and value.
        phrases: words of each relation -> its cue and value, the longest first.
        sets: the lists that are no cues, by name.
        fingerprint: hash of everything but examples and comments.
    """

    cues: tuple[ClaimCue, ...]
    words: Mapping[str, Mapping[str, tuple[ClaimCue, str]]]
    phrases: tuple[tuple[tuple[str, ...], ClaimCue, str], ...]
    sets: Mapping[str, frozenset[str]]
    fingerprint: str


@cache
def shipped_claim_cues() -> ClaimCues:
    """Returns the cues that come with the project."""
    document: Any = load_yaml(_FILE.read_bytes(), _FILE.name)
    cues = list[ClaimCue]()
    words: dict[str, dict[str, tuple[ClaimCue, str]]] = {}
    phrases = list[tuple[tuple[str, ...], ClaimCue, str]]()
    decisive = list[str]()
    sets = dict[str, frozenset[str]]()
    for group, entries in document.items():
        if group in ("at_least", "about"):
            sets[group] = frozenset(entries)
        elif isinstance(entries, str):
            sets[group] = frozenset(word.replace("\0", " ") for word in entries.replace("\\ ", "\0").split())
        else:
            for entry in entries:
                category = entry.get("category", {"doing": "state", "places": "place"}.get(group, ""))
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
