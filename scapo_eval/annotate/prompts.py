"""Asks judges about labels and reads their answers: one strict verdict per label, or none at all.

The texts lie in ``templates/`` and are this project's own, written after the rules of the paper's appendix; those that
the paper prints lie in ``templates/paper/``, word by word. A file of the user's takes the place of any of them: it may
hold ``=== SYSTEM ===`` and ``=== USER ===`` and the fields ``{object}``, ``{definition}``, ``{aliases}``,
``{definitions}`` and ``{answer}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.hashes import digest
from ..engines import Request, Sampling, Turn
from ..files.files import read_text
from ..inference.judge_prompts import fill
from ..matching.vocabulary import Vocabulary
from .store import PassKind

SHIPPED = ("coarse", "coarse_many", "label", "joint")
"""Templates that come with the project: one label, several labels at a time, one refined label,
labels told apart."""

PAPER = {("book",): "book", ("chair", "bench"): "chair_bench"}
"""Labels -> the text that the paper prints for them (Long et al., SCAPO, appendix "Label-Specific Verification
Prompts"); ``coarse`` is its text for every label ("Coarse Annotation Prompt")."""

_PARTS = re.compile(r"^=== *(SYSTEM|USER) *===[ \t]*\n?", re.MULTILINE)
_WRAPPED = re.compile(
    r"\s*(?:<think>.*?</think>\s*)?(?:```(?:json)?\s*\n(?P<fenced>.*?)\n?\s*```|(?P<plain>.*?))\s*\Z", re.S
)
_WORDS = {"supported": 1, "unsupported": 0, "unsure": 0}  # unsure is unsupported: the protocol's own rule
_VERDICT_KEYS = frozenset({"present", "verification"})


@dataclass(frozen=True)
class Template:
    """A prompt before its labels are filled in.

    Attributes:
        name: name of the template, the first part of its prompts' ids.
        system: text of the system turn, empty for none.
        user: text of the user turn.
        source: name of the file it was read from, for messages.
    """

    name: str
    system: str
    user: str
    source: str = ""

    @classmethod
    def shipped(cls, name: str) -> Template:
        """Returns one of ``SHIPPED``."""
        text = (resources.files(__package__) / "templates" / f"{name}.txt").read_text(encoding="utf-8")
        return cls.of(name, text, f"templates/{name}.txt")

    @classmethod
    def published(cls, name: str) -> Template:
        """Returns the prompt ``coarse``, or one of :data:`PAPER`, as the paper prints it."""
        text = (resources.files(__package__) / "templates" / "paper" / f"{name}.txt").read_text(encoding="utf-8")
        return cls.of(f"paper_{name}", text, f"templates/paper/{name}.txt")

    @classmethod
    def read(cls, path: str | Path, name: str) -> Template:
        """Reads a template of the user's.

        Raises:
            InputError: if the file cannot be read, is not UTF-8, or has no user turn.
        """
        return cls.of(name, read_text(path), str(path))

    @classmethod
    def of(cls, name: str, text: str, source: str = "") -> Template:
        """Returns a template from the text of a file.

        Raises:
            InputError: if it has no user turn.
        """
        pieces = _PARTS.split(text.replace("\r\n", "\n"))
        parts = {"USER": pieces[0].strip()} | {
            role: turn.strip() for role, turn in zip(pieces[1::2], pieces[2::2], strict=True)
        }
        if not parts["USER"]:
            raise InputError("the prompt is empty (no text for the user's turn)", path=source or None)
        return cls(name, parts.get("SYSTEM", ""), parts["USER"], source)

    def prompt(self, kind: PassKind, labels: Sequence[str], vocabulary: Vocabulary) -> LabelPrompt:
        """Returns the template for some labels of a vocabulary.

        Raises:
            InputError: if the text does not name a label that it should ask about.
        """
        described = [label_text(label, vocabulary) for label in labels]
        definitions = "\n".join(f"{k}. {entry.label}: {entry.both}" for k, entry in enumerate(described, 1))
        answer = "{" + ", ".join(f"{json.dumps(label)}: true or false" for label in labels) + "}"
        hints = [f"- {hint}" for group, listed in _hints() if set(group) <= set(labels) for hint in listed]
        fields = {
            "object": " / ".join(labels),
            "definition": described[0].definition,
            "aliases": described[0].aliases,
            "definitions": definitions,
            "answer": answer,
            "hints": "".join(f"{line}\n" for line in hints),
        }
        user = fill(self.user, fields)
        if silent := [label for label in labels if label.casefold() not in user.casefold()]:
            reason = f"the prompt never names the label '{silent[0]}' (write it, or {{object}} in its place)"
            raise InputError(reason, path=self.source or self.name)
        return LabelPrompt(self.name, kind, tuple(labels), fill(self.system, fields), user)


@dataclass(frozen=True, slots=True)
class _LabelText:
    """A label as prompts describe it: its definition and its other names."""

    label: str
    definition: str
    aliases: str

    @property
    def both(self) -> str:
        return f"{self.definition} Captions also call it: {self.aliases}." if self.aliases != "-" else self.definition


def label_text(label: str, vocabulary: Vocabulary) -> _LabelText:
    """Returns the definition and further names of a label; plurals of a name that is listed are omitted."""
    aliases = vocabulary.aliases_of(label)
    known = {alias.casefold() for alias in aliases} | {label.casefold()}
    kept = [alias for alias in aliases if alias.casefold() != label.casefold() and not is_plural(alias, known)]
    info = vocabulary.info.get(label)
    definition = (info.definition if info else "") or f"Whatever is called {label}."
    return _LabelText(label, definition, ", ".join(kept) or "-")


def is_plural(alias: str, known: set[str]) -> bool:
    """Returns whether an alias is the regular plural of a known (case-folded) name."""
    text = alias.casefold()
    singulars = {text[:-1], text[:-2], f"{text[:-3]}y", f"{text[:-3]}f", f"{text[:-3]}fe"} if text.endswith("s") else ()
    return bool(known & set(singulars))


@lru_cache(maxsize=1)
def _hints() -> list[tuple[tuple[str, ...], list[str]]]:
    """Returns the label groups that judges confuse, with what tells them apart."""
    data = (resources.files(__package__) / "templates" / "hints.json").read_bytes()
    return [(tuple(entry["labels"]), entry["hints"]) for entry in json.loads(data)]


def known_groups(vocabulary: Vocabulary) -> list[tuple[str, ...]]:
    """Groups with hints whose labels the vocabulary has."""
    return [group for group, _ in _hints() if set(group) <= vocabulary.label_ids.keys()]


@dataclass(frozen=True)
class LabelPrompt:
    """A text that asks about one image, whose answer holds one verdict per label.

    Attributes:
        name: name of the template.
        kind: kind of the question: ``coarse``, ``label`` or ``joint``.
        labels: the labels it asks about, in the order of the verdicts.
        system: text of the system turn, empty for none.
        user: text of the user turn.
    """

    name: str
    kind: PassKind
    labels: tuple[str, ...]
    system: str
    user: str

    @cached_property
    def id(self) -> str:
        """``name@hash``, the hash covering everything that is sent except the image."""
        return f"{self.name}@{digest([self.system, self.user, json.dumps(self.schema, sort_keys=True)])}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer, in the form that the text asks for: the project's own or the published one."""
        evidence = '"evidence"' in self.user
        word = '"verification"' in self.user
        keyed = len(self.labels) > 1 or re.search(rf'"{re.escape(self.labels[0])}"\s*:', self.user) is not None
        verdict = {"type": "string", "enum": ["supported", "unsupported"]} if word else {"type": "boolean"}
        fields = {"verification" if word else "present": verdict}
        fields |= {"evidence": {"type": "string"}} if evidence else {}
        single = _object(fields)
        if not keyed:
            return single
        return _object(dict.fromkeys(self.labels, single if word or evidence else verdict))

    @cached_property
    def _before(self) -> tuple[Turn, ...]:
        return (Turn("system", self.system),) if self.system else ()

    def request(self, image: str, sampling: Sampling) -> Request:
        """Returns the request about one image file."""
        return Request((*self._before, Turn("user", self.user, (image,))), sampling, self.schema)

    def read(self, text: str) -> tuple[int, ...] | None:
        """Returns the verdicts (1 or 0) on every label, in order; None if the answer does not hold exactly these."""
        return read_verdicts(text, self.labels)

    def document(self) -> dict[str, Any]:
        """Returns the prompt's line in a run's ``prompts.jsonl``."""
        return {
            "prompt": self.id, "kind": self.kind, "labels": list(self.labels), "system": self.system,
            "user": self.user, "schema": self.schema,
        }  # fmt: skip


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}


@lru_cache(maxsize=1 << 12)
def read_verdicts(text: str, labels: tuple[str, ...]) -> tuple[int, ...] | None:
    """Returns the verdicts of a judge's answer.

    The answer must be one JSON object (a code fence around it and a thinking block before it do no harm) that gives
    one verdict on every label and on nothing else: ``{"present": true}``, ``{"verification": "supported"}``, or
    either of these (or the bare value) under the label's name; ``evidence`` may accompany a verdict. Text around
    the object, both values, another label, a missing label, a refusal: no verdict.

    Args:
        text: the judge's answer.
        labels: the labels that were asked about.

    Returns:
        1 (present) or 0 (absent) per label; None for an answer of any other form.
    """
    match = _WRAPPED.match(text)
    body = (match["fenced"] or match["plain"] or "") if match else ""
    try:
        value = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    if len(labels) == 1 and not value.keys() & set(labels):
        verdicts = [_verdict(value)]
    elif value.keys() == set(labels):
        verdicts = [_verdict(value[label]) for label in labels]
    else:
        return None
    return None if None in verdicts else tuple(verdict for verdict in verdicts if verdict is not None)


def _verdict(value: object) -> int | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return _WORDS.get(value.strip().casefold())
    if not isinstance(value, dict) or value.keys() - _VERDICT_KEYS - {"evidence"}:
        return None
    given = [value[key] for key in value.keys() & _VERDICT_KEYS]
    if len(given) != 1 or isinstance(given[0], dict):
        return None
    return _verdict(given[0])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key appears twice")
    return members
