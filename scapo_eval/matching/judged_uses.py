"""Uses of mentions that a judge has determined, such as a language model or a person.

The rules in ``uses.py`` determine uses from fixed lists of words. A judge reads the whole caption and therefore makes
fewer errors in unusual captions. ``scapo-eval judge uses`` asks a language model and writes the file that this module
reads. Uses belong to a text and to the spans of its mentions, so the same file serves all captions with this text.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import UNFIT, FaultList, InputError, check_choice, short_repr, unfit
from ..base.hashes import digest
from ..base.reprs import one_line
from ..base.types import Use
from ..files.containers import open_rows
from ..files.files import display_name
from ..files.records import Given, readable
from .uses import NO_MENTION, READINGS, UNJUDGED, USES, ReadingName

NO_USE = "none"
"""Word for a mention that the judge does not consider a mention of its label."""

JUDGED_USES: tuple[str, ...] = (*get_args(Use), NO_USE)
"""Words that a file of uses may contain."""

CODE_OF = {use: k for k, use in enumerate(USES)} | {NO_USE: NO_MENTION}
"""Code of each word, as in :meth:`~scapo_eval.matching.uses.JudgedReading.uses_of`."""


class JudgedMention(msgspec.Struct, frozen=True):
    """Mention in a file of uses.

    Attributes:
        start, end: Span of the mention in the caption.
        use: Use of the mention, one of :data:`JUDGED_USES`.
        label: Label of the mention, for readers of the file.
    """

    start: int
    end: int
    use: str
    label: str | None = None


class JudgedCaption(msgspec.Struct, frozen=True):
    """Record of a file of uses.

    Attributes:
        caption: Text of the caption.
        vocabulary: Identity of the vocabulary whose mentions were judged.
        uses: All mentions in the caption, or None if the judge's answer could not be read.
        judge_model: Name of the judge.
        judge_prompt: Hash of the judge's prompt.
        judge_sampling: Sampling settings of the judge.
    """

    caption: str
    vocabulary: str
    uses: tuple[JudgedMention, ...] | None
    judge_model: str = "unnamed"
    judge_prompt: str | None = None
    judge_sampling: str | None = None


@dataclass(frozen=True, eq=False)
class JudgedUses:
    """A reading whose uses a judge has determined. It can be passed as ``claims`` instead of the name of a reading.

    The rules determine the uses in texts that were not judged. Scores state the number of these texts.

    Attributes:
        name: Name of the reading, which determines the uses that are omitted.
        vocabulary: Identity of the vocabulary whose mentions were judged.
        judge: Judge and its settings, for use in signatures.
        fingerprint: Hash of all judged uses.
        source: Name of the file.
        spans: Mapping from the hash of each text to start, end and code of each of its mentions, one after the other.

    Example:
        >>> import scapo_eval
        >>> vocabulary = scapo_eval.Vocabulary.of("coco80")
        >>> caption = "A cat sits where a dog slept last year."
        >>> uses = [{"start": 2, "end": 5, "use": "claim"}, {"start": 19, "end": 22, "use": "generic"}]
        >>> row = {"caption": caption, "vocabulary": vocabulary.identity, "uses": uses, "judge_model": "a person"}
        >>> judged = scapo_eval.JudgedUses.load([row], claims="visual")
        >>> run = scapo_eval.score([{"image_id": 1, "caption": caption, "objects": ["cat"]}], claims=judged)
        >>> run.hal_rate, run.other_counts["unjudged"]
        (0.0, 0)
    """

    name: ReadingName
    vocabulary: str
    judge: str
    fingerprint: str
    source: str
    spans: Mapping[bytes, array[int]]

    def __repr__(self) -> str:
        return one_line(self, f"{self.source}: {self.name}, {len(self.spans):,} captions judged by {self.judge}")

    @classmethod
    def load(cls, given: Given, claims: ReadingName = "visual") -> JudgedUses:
        """Reads uses from the output of ``scapo-eval judge uses`` or from a file of your own in the same format.

        Args:
            given: File, or records in memory.
            claims: Name of the reading, which determines the uses that are omitted: ``asserted``, ``certain`` or
                ``visual``.

        Raises:
            InputError: If the reading is unknown or counts every mention, or if the file contains no uses.
            InputErrors: If records are faulty. The error lists the faults by line.
        """
        check_choice("claims", claims, READINGS)
        path = readable(given)
        source, faults = display_name(path), FaultList()
        if claims == "all":
            reason = "the reading all counts every mention and needs no uses; choose visual, certain or asserted"
            raise InputError(f"{reason} (--claims visual)", path=source)
        spans: dict[bytes, array[int]] = {}
        lines = dict[bytes, int]()
        vocabularies, judges, unread = dict[str, int](), set[tuple[str, ...]](), 0
        for line, record in open_rows(path, on_error=faults.add):
            try:
                row = msgspec.convert(record, JudgedCaption)
                mentions = _checked(row)
            except UNFIT as error:
                faults.add(InputError(unfit(error), path=source, line=line))
                continue
            vocabularies.setdefault(row.vocabulary, line)
            judges.add(tuple(filter(None, (row.judge_model, row.judge_prompt, row.judge_sampling))))
            if mentions is None:
                unread += 1
                continue
            key = key_of(row.caption)
            if spans.setdefault(key, mentions) != mentions:
                reason = f"the caption appears twice with different uses (lines {lines[key]} and {line})"
                faults.add(InputError(reason, path=source, line=line))
            lines.setdefault(key, line)
        if len(vocabularies) > 1:
            (first, at), (other, line), *_ = vocabularies.items()
            reason = f"the uses belong to two vocabularies, {first} (line {at}) and {other}"
            faults.add(InputError(reason, path=source, line=line))
        faults.raise_if_any()
        if not spans:
            raise InputError("no caption with readable uses" + (" (all are null)" if unread else ""), path=source)
        judge = "+".join(sorted({" ".join(part for part in parts if part != "default") for parts in judges}))
        contents = (part for key in sorted(spans) for part in (key, spans[key].tobytes()))
        return cls(claims, next(iter(vocabularies)), judge, digest(contents), source, spans)

    def uses_of(self, texts: Sequence[str], mentions: MentionColumns) -> NDArray[np.int64]:
        """Implements ``uses_of``; see :class:`~scapo_eval.matching.uses.JudgedReading`.

        Raises:
            InputError: If a judged text contains a mention that was not judged.
        """
        codes = np.full(len(mentions.start), UNJUDGED, dtype=np.int64)
        bounds = mentions.indptr.tolist()
        for text, begin, stop in zip(texts, bounds, bounds[1:], strict=False):
            if begin == stop or (spans := self.spans.get(key_of(text))) is None:
                continue
            judged = dict(zip(zip(spans[::3], spans[1::3], strict=True), spans[2::3], strict=True))
            found = zip(mentions.start[begin:stop].tolist(), mentions.end[begin:stop].tolist(), strict=True)
            for k, span in enumerate(found, begin):
                if (code := judged.get(span)) is None:
                    at = f"the mention {text[slice(*span)]!r} at position {span[0]} of {short_repr(text)}"
                    reason = f"{at} has no use; judge the captions again with this version"
                    raise InputError(reason, path=self.source)
                codes[k] = code
        return codes

    def unjudged(self, texts: Iterable[str]) -> int:
        """Returns the number of texts that were not judged."""
        return sum(key_of(text) not in self.spans for text in texts)


def key_of(text: str) -> bytes:
    """Returns the hash by which a text is looked up."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _checked(row: JudgedCaption) -> array[int] | None:
    """Returns start, end and code of each mention, or None if the uses are unreadable.

    Raises:
        ValueError: If a use is unknown or a span lies outside the caption.
    """
    if row.uses is None:
        return None
    spans = array("i")
    for mention in row.uses:
        if mention.use not in CODE_OF:
            raise ValueError(f"unknown use {short_repr(mention.use)}; known: {', '.join(JUDGED_USES)}")
        if not 0 <= mention.start < mention.end <= len(row.caption):
            raise ValueError(f"the span {mention.start} to {mention.end} lies outside the caption")
        spans.extend((mention.start, mention.end, CODE_OF[mention.use]))
    return spans
