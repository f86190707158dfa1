"""Prompts that ask a judge about labels, and a strict parser that returns, for each answer, either one verdict per
label or none at all.

The project's own prompts are in ``templates/`` and follow the rules in the paper's appendix. ``templates/paper/``
contains verbatim copies of the prompts that are printed in the paper. A user's file can replace any template. A
template file may contain the sections ``=== SYSTEM ===`` and ``=== USER ===`` and the fields ``{object}``,
``{definition}``, ``{aliases}``, ``{definitions}``, ``{answer}``, ``{form}`` and ``{verdict}``.
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
from ..claiming.claim import ClaimKey, question_of
from ..engines import ONE_TOKEN, YES_NO, Request, Sampling, Turn
from ..files.files import read_text
from ..inference.judge_claims import CLAIM_TASK, read_answer
from ..inference.judge_prompts import fill
from ..matching.vocabulary import Vocabulary
from ..truths.scenes import state_of
from .store import PassKind

SHIPPED = ("coarse", "coarse_many", "label", "joint")
"""Names of the shipped templates: one label, several labels per call, one refined label, and labels to distinguish."""

PAPER = {("book",): "book", ("chair", "bench"): "chair_bench"}
"""Labels -> name of the prompt that the paper prints for them.

The source is the appendix "Label-Specific Verification Prompts" of SCAPO (Long et al.). ``coarse`` is the paper's
prompt for every label ("Coarse Annotation Prompt").
"""

_PARTS = re.compile(r"^=== *(SYSTEM|USER) *===[ \t]*\n?", re.MULTILINE)
_WRAPPED = re.compile(
    r"\s*(?:<think>.*?</think>\s*)?(?:```(?:json)?\s*\n(?P<fenced>.*?)\n?\s*```|(?P<plain>.*?))\s*\Z", re.S
)
_WORDS = {"supported": 1, "unsupported": 0, "unsure": 0}  # the protocol treats "unsure" as unsupported
_FORMS = {
    False: (
        "You answer with one JSON object and nothing else: no explanation, no markdown.",
        'Answer with exactly one of these two lines:\n{"present": true}\n{"present": false}',
    ),
    True: ("You answer with one word, yes or no.", "Is it present? Answer with one word: yes or no."),
}
"""Whether the answer is one word -> how it should look, for the system turn and the user turn."""

_VERDICT_KEYS = frozenset({"present", "verification"})


@dataclass(frozen=True)
class Template:
    """A prompt with placeholders for labels.

    Attributes:
        name: Name of the template, which is the first part of the ids of its prompts.
        system: Text of the system turn, or an empty string if the prompt has no system turn.
        user: Text of the user turn.
        source: Name of the template's file, for error messages.
    """

    name: str
    system: str
    user: str
    source: str = ""

    @classmethod
    def shipped(cls, name: str) -> Template:
        """Returns one of the templates in ``SHIPPED``."""
        text = (resources.files(__package__) / "templates" / f"{name}.txt").read_text(encoding="utf-8")
        return cls.of(name, text, f"templates/{name}.txt")

    @classmethod
    def published(cls, name: str) -> Template:
        """Returns the prompt ``coarse`` or one of the prompts in :data:`PAPER`, as printed in the paper."""
        text = (resources.files(__package__) / "templates" / "paper" / f"{name}.txt").read_text(encoding="utf-8")
        return cls.of(f"paper_{name}", text, f"templates/paper/{name}.txt")

    @classmethod
    def read(cls, path: str | Path, name: str) -> Template:
        """Reads a user's template.

        Raises:
            InputError: If the file cannot be read, is not UTF-8, or has no user turn.
        """
        return cls.of(name, read_text(path), str(path))

    @classmethod
    def of(cls, name: str, text: str, source: str = "") -> Template:
        """Parses a template from the text of a file.

        Raises:
            InputError: If the text has no user turn.
        """
        pieces = _PARTS.split(text.replace("\r\n", "\n"))
        parts = {"USER": pieces[0].strip()} | {
            role: turn.strip() for role, turn in zip(pieces[1::2], pieces[2::2], strict=True)
        }
        if not parts["USER"]:
            raise InputError("the prompt is empty (no text for the user's turn)", path=source or None)
        return cls(name, parts.get("SYSTEM", ""), parts["USER"], source)

    def prompt(
        self, kind: PassKind, labels: Sequence[str], vocabulary: Vocabulary, *, one_word: bool = False
    ) -> LabelPrompt:
        """Fills in the template for labels of a vocabulary.

        Args:
            kind: Kind of the question.
            labels: Labels in the question.
            vocabulary: Vocabulary that defines the labels.
            one_word: True to ask for only the word "yes" or "no", instead of JSON, and to store its probability.

        Raises:
            InputError: If a label is missing from the text, or if the text asks for several verdicts or JSON although
                ``one_word`` is true.
        """
        form, verdict = _FORMS[one_word]
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
            "form": form,
            "verdict": verdict,
        }
        user = fill(self.user, fields)
        if silent := [label for label in labels if label.casefold() not in user.casefold()]:
            reason = (
                f"the prompt does not contain the label '{silent[0]}' (write the label, or the placeholder {{object}})"
            )
            raise InputError(reason, path=self.source or self.name)
        if one_word and (len(labels) > 1 or '{"' in user or not {"yes", "no"} <= set(re.findall(r"\w+", user.lower()))):
            reason = "a probability requires a prompt about one label with a one-word answer, yes or no ({verdict})"
            raise InputError(reason, path=self.source or self.name)
        return LabelPrompt(self.name, kind, tuple(labels), fill(self.system, fields), user, YES_NO if one_word else ())


@dataclass(frozen=True, slots=True)
class _LabelText:
    """Description of a label in prompts: its definition and its other names."""

    label: str
    definition: str
    aliases: str

    @property
    def both(self) -> str:
        return f"{self.definition} Captions also call it: {self.aliases}." if self.aliases != "-" else self.definition


def label_text(label: str, vocabulary: Vocabulary) -> _LabelText:
    """Returns the definition and the other names of a label. Plurals of listed names are omitted."""
    aliases = vocabulary.aliases_of(label)
    known = {alias.casefold() for alias in aliases} | {label.casefold()}
    kept = [alias for alias in aliases if alias.casefold() != label.casefold() and not is_plural(alias, known)]
    info = vocabulary.info.get(label)
    definition = (info.definition if info else "") or f"Whatever is called {label}."
    return _LabelText(label, definition, ", ".join(kept) or "-")


def is_plural(alias: str, known: set[str]) -> bool:
    """Returns True if an alias is the regular plural of a known name. The known names must be case-folded."""
    text = alias.casefold()
    singulars = {text[:-1], text[:-2], f"{text[:-3]}y", f"{text[:-3]}f", f"{text[:-3]}fe"} if text.endswith("s") else ()
    return bool(known & set(singulars))


@lru_cache(maxsize=1)
def _hints() -> list[tuple[tuple[str, ...], list[str]]]:
    """Returns the groups of labels that judges confuse, with hints on how to distinguish the labels."""
    data = (resources.files(__package__) / "templates" / "hints.json").read_bytes()
    return [(tuple(entry["labels"]), entry["hints"]) for entry in json.loads(data)]


def known_groups(vocabulary: Vocabulary) -> list[tuple[str, ...]]:
    """Returns the groups of confusable labels that have hints and whose labels are all in the vocabulary."""
    return [group for group, _ in _hints() if set(group) <= vocabulary.label_ids.keys()]


@dataclass(frozen=True)
class LabelPrompt:
    """A prompt about one image, to which the answer is one verdict per label.

    Attributes:
        name: Name of the template.
        kind: Kind of the question: ``coarse``, ``label`` or ``joint``.
        labels: Labels in the question, in the order of the verdicts.
        system: Text of the system turn, or an empty string if the prompt has no system turn.
        user: Text of the user turn.
        choices: The words "yes" and "no" if the prompt asks for one of these words. The tuple is empty if the prompt
            asks for JSON.
    """

    name: str
    kind: PassKind
    labels: tuple[str, ...]
    system: str
    user: str
    choices: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Id of the prompt, in the form ``name@hash``. The hash covers the entire request except the image."""
        form = self.choices or self.schema
        return f"{self.name}@{digest([self.system, self.user, json.dumps(form, sort_keys=True)])}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer that the prompt requests: the project's own schema or the schema from the paper."""
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
        """Returns the request that sends the prompt with one image file."""
        turns = (*self._before, Turn("user", self.user, (image,)))
        if self.choices:
            return Request(turns, ONE_TOKEN, choices=self.choices)
        return Request(turns, sampling, self.schema)

    def read(self, text: str) -> tuple[int, ...] | None:
        """Returns the verdicts (1 or 0) on all labels in order, or None if the answer is malformed."""
        return read_verdicts(text, self.labels)

    def document(self) -> dict[str, Any]:
        """Returns the record that represents the prompt in the run's file ``prompts.jsonl``."""
        return {
            "prompt": self.id, "kind": self.kind, "labels": list(self.labels), "system": self.system,
            "user": self.user, **({"choices": list(self.choices)} if self.choices else {"schema": self.schema}),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClaimPrompt:
    """The prompt about one claim, which is identical to the prompt in ``scapo-eval judge claims``.

    Attributes:
        id: The text ``claim@hash``. All claims share the id, because their prompts differ only in the question.
        claim: Claim in the question.
        task: Text of the user turn, with the placeholder ``{question}``.
        choices: The words "yes" and "no" if P(yes) is read from the answer, or an empty tuple otherwise. Otherwise, the
            value is empty.
    """

    id: str
    claim: ClaimKey
    task: str
    choices: tuple[str, ...] = ()

    @property
    def kind(self) -> PassKind:
        """Kind of the question."""
        return "coarse"

    def request(self, image: str, sampling: Sampling) -> Request:
        """Returns the request about one image file."""
        turns = (Turn("user", fill(self.task, {"question": question_of(self.claim)}), (image,)),)
        return Request(turns, ONE_TOKEN, choices=self.choices) if self.choices else Request(turns, sampling)

    def read(self, text: str) -> tuple[int, ...] | None:
        """Returns the state of the claim (1, 0 or -1), or None if the answer is malformed."""
        answer = read_answer(text)
        return None if answer is None else (state_of(self.claim[0], answer),)

    def document(self) -> dict[str, Any]:
        """Returns the record that represents the prompt in the run's file ``prompts.jsonl``."""
        record = {"prompt": self.id, "kind": self.kind, "labels": [], "system": "", "user": self.task}
        return {**record, "choices": list(self.choices)} if self.choices else record


def claim_prompts(claims: Sequence[ClaimKey], task: str = CLAIM_TASK, *, one_word: bool = False) -> list[ClaimPrompt]:
    """Returns a prompt for each claim.

    Args:
        claims: Claims to ask about.
        task: Text of the user turn, with the placeholder ``{question}``.
        one_word: True to read the probabilities of the words yes and no instead of an answer.
    """
    choices = YES_NO if one_word else ()
    name = f"claim@{digest([task, json.dumps(choices)])}"
    return [ClaimPrompt(name, claim, task, choices) for claim in claims]


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}


@lru_cache(maxsize=1 << 12)
def read_verdicts(text: str, labels: tuple[str, ...]) -> tuple[int, ...] | None:
    """Parses the verdicts in a judge's answer.

    The answer must be a single JSON object with exactly one verdict for every label. A code fence around the object and
    a preceding thinking block are allowed. In an answer about a single label, the object can be the verdict itself:
    ``{"present": true}`` or ``{"verification": "supported"}``. In all other answers, the name of each label is a key
    whose value is the verdict, or only the value of the verdict, such as ``true``. A verdict may be accompanied by the
    key ``evidence``. An answer yields no verdict if it is a refusal, contains other text, contains both keys, or has
    additional or missing labels.

    Args:
        text: Answer of the judge.
        labels: Labels in the question.

    Returns:
        1 (present) or 0 (absent) for each label, or None if the answer is invalid.
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
