"""Recognition of texts that contain more or something else than a caption or an answer: markup of reasoning and chat
templates, and the error messages and refusals that inference scripts save in place of a response.

Both rules are conservative, because a caption may describe an error message on a screen. Neither rule changes a score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

ODD = ("failed", "markup")
"""Kinds of odd texts, which are also the names of their fields in an account."""

REASONING_TAGS = "think|thinking|thought|reasoning|reflection"
"""Names of the tags around reasoning, as alternatives of a regular expression."""

TOOL_TAGS = "tool|tool_call|tool_response|tool_result|function_call|function_response"
"""Names of the tags around tool calls and their results, as alternatives of a regular expression."""

_MARKUP = re.compile(
    rf"[<\u25c1]/?(?:{REASONING_TAGS}|{TOOL_TAGS}|answer)[>\u25b7]|<\|[a-z_]{{2,30}}\|>|</?s>|<<SYS>>|"
    r"<(?:pad|bos|eos|image|start_of_turn|end_of_turn)>",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"\s*(?:#{2,4} ?(?:assistant|response) ?(?::|\n)|(?:assistant|gpt) ?(?::|\n)|model\n|\[/?INST\])", re.IGNORECASE
)
_CANNOT = r"(?:can(?:['\u2019]t|not|[ ]not)|could[ ]?n(?:['\u2019]t|ot)|won['\u2019]t|will[ ]not)"
_UNABLE = r"(?:unable|not[ ]able)[ ]to"
_PICTURE = r"(?:images?|pictures?|photos?|visuals?|files?|links?|urls?|attachments?)"
_ERROR = re.compile(
    rf"""[\s*_`$"']*(?:
      (?:(?:api|fatal|network|server|system|runtime|http|internal|request)[ ])?error[ ]?(?:code[ ]?)?:
      | error[ ]code\b | network[ ]error | internal[ ]server[ ]error | error[$*`]*\s*\Z
      | an?[ ](?:\w+[ ])?error[ ](?:has[ ])?occurred
      | \[(?:blocked|errors?|filtered|content[ _]?filter\w*|refused|refusal|no[ ]response|failed|timeout|timed[ ]out)\b
      | (?:blocked|failed|refused|timeout|timed[ ]out|content_filter|no[ ]response)[.!*]*\s*\Z
      | traceback[ ]\(most[ ]recent | <(?:!doctype|html|head|body|\?xml)\b | \{{\s*["']?(?:error|detail)["']?\s*:
      | (?:cuda|hip|gpu)[ ](?:error|out[ ]of[ ]memory) | out[ ]of[ ]memory\b
      | failed[ ]to[ ](?:obtain|get|generate|call|connect|load|open|process|parse|fetch|download|read)\b
      | (?:http[ ]?)?[45]\d\d[ ](?:client|server|bad|unauthorized|forbidden|not[ ]found|too[ ]many|internal|service
          |gateway)
      | too[ ]many[ ]requests | rate[ ]limit | (?:the[ ])?request[ ]timed[ ]out | connection[ ](?:error|refused|reset)
      | the[ ]response[ ]was[ ](?:filtered|blocked)
      | (?:there[ ](?:is|was)[ ])?no[ ]{_PICTURE}[ ](?:(?:is|was|were|has[ ]been)[ ])?(?:attached|provided|uploaded)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_EXCEPTION = re.compile(r"\s*(?:[a-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Timeout)(?:: |\()")
_REFUSAL = re.compile(
    rf"""\b(?:i|we)(?:[ ]?['\u2019](?:m|re)|[ ]am|[ ]are)?(?:[ ](?:afraid|sorry|currently|simply|just)[ ,]*)*[ ](?:
      (?:{_CANNOT}|{_UNABLE})[ ](?:\w+[ ])?(?:help(?![ ]but)|assist|provide|process|analy[sz]e|describe|comply
        |fulfil\w*|do[ ]that|interpret|answer|respond|discuss|continue|generate|caption
        |(?:see|view|access|open)\b[^.]*\b{_PICTURE})
      | do[ ]?n(?:['\u2019]t|ot)[ ](?:have|see)[ ](?:\w+[ ]){{0,4}}(?:access|ability|{_PICTURE}[ ](?:attached|provided))
      )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_DESCRIBES = re.compile(
    r"\b(?:image|picture|photo|photograph|scene|it|there)\b[^.]{0,20}\b(?:shows?|depicts?|features?|contains?|captures?"
    r"|appears?|is an?|are)\b",
    re.IGNORECASE,
)
_BEGIN = re.compile(
    rf"""[\s*_`$"'#]*(?:
      \Z | [\[<{{\u25c1] | [45]\d\d
      | err|exce|api|fatal|netw|serv|syst|runt|http|inte|requ|an?[ ](?:\w+[ ])?err|blo|fai|ref|tim|conn|conte|trac
      | cuda|hip|gpu|out[ ]of|too|rate|the[ ]re[qs]|no[ ](?:resp|{_PICTURE})|there[ ](?:is|was)[ ]no
      | i(?:[ ]?['\u2019]m|[ ](?:am|can|could|do|won|will|apol))|we(?:[ ]?['\u2019]re|[ ](?:are|can))|apol|my[ ]apo
      | sorry|unfo|as[ ]an?[ ](?:ai|lan|tex|lar)|assistant|gpt|response|model\n
      | (?-i:[a-z_]\w*\.|[a-z_]{{12}}|[A-Z]+[a-z]+[A-Z])
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_BEGINNING = 12
_LONGEST_REFUSAL = 400
_EXCERPT = 60


_NOTES = {
    "failed": (
        "are error messages or refusals, which count like any other text",
        "if requests failed, generate these texts again or remove the records",
    ),
    "markup": (
        "contain reasoning or tags of a chat template, which are scored as well",
        "remove the tags and everything up to </think> first",
    ),
}


@dataclass(frozen=True, slots=True)
class OddTexts:
    """The number of texts of one kind in a file, and the first of these texts.

    Attributes:
        records: Number of texts.
        text: Beginning of the first text.
        line: Number of its line, or None if the order of the records is unknown.
        image_id: Canonical id of its image, or None if the texts are not captions.
    """

    records: int
    text: str
    line: int | None = None
    image_id: str | None = None

    @classmethod
    def of(cls, text: str, records: int, line: int | None, image_id: str | None) -> OddTexts:
        """Creates the record of texts, the first of which is ``text``. Only the beginning of the text is kept."""
        text = " ".join(text[: 4 * _EXCERPT].split()).encode("utf-8", "backslashreplace").decode()
        return cls(records, text if len(text) <= _EXCERPT else text[: _EXCERPT - 3] + "...", line, image_id)

    def note(self, kind: str, records: int) -> str:
        """Returns a sentence that states the number of texts of a kind, the first of them, and the remedy.

        Args:
            kind: ``failed`` or ``markup``.
            records: Number of all records in the file.
        """
        place = {"line": self.line, "image": self.image_id}
        told = ", ".join(f"{name} {value}" for name, value in place.items() if value is not None)
        what, remedy = _NOTES[kind]
        shown = f"(first: {told}{': ' if told else ''}{self.text!r})"
        return f"{self.records:,} of {records:,} texts {what} {shown}; {remedy}"

    def plus(self, later: OddTexts | None) -> OddTexts:
        """Returns the sum of these texts and the texts in a later part of the file."""
        return self if later is None else replace(self, records=self.records + later.records)

    def behind(self, lines: int) -> OddTexts:
        """Returns a copy whose line number is increased by ``lines``."""
        return self if self.line is None else replace(self, line=self.line + lines)


def odd_texts(
    texts: Sequence[str], lines: Sequence[int] | None = None, image_ids: Sequence[str] | None = None
) -> dict[str, OddTexts]:
    """Returns the odd texts by kind: ``failed`` and ``markup``. Kinds without a text are omitted.

    Texts with markup contain tags of reasoning, tool calls or a chat template, or begin with a role. Failed texts are
    error messages, web pages and refusals in place of a response. A refusal that goes on to describe the image is no
    failure.

    Args:
        texts: Captions or responses.
        lines: Line number of each text, if known.
        image_ids: Canonical image id of each text, if known.
    """
    tagged = [k for k, text in enumerate(texts) if "<" in text]
    suspicious = {begin for begin in {text[:_BEGINNING] for text in texts} if _may_be_odd(begin)}
    begun = [k for k, text in enumerate(texts) if text[:_BEGINNING] in suspicious] if suspicious else []
    markup = {k for k in tagged + begun if _MARKUP.search(texts[k]) or _ROLE.match(texts[k])}
    positions = [k for k in begun if _is_failure(texts[k])], sorted(markup)
    return {
        kind: OddTexts.of(
            texts[at[0]],
            len(at),
            None if lines is None else lines[at[0]],
            None if image_ids is None else image_ids[at[0]],
        )
        for kind, at in zip(ODD, positions, strict=True)
        if at
    }


@lru_cache(maxsize=1 << 16)
def _may_be_odd(beginning: str) -> bool:
    """Returns True if a text with this beginning can be odd without containing a tag."""
    return _BEGIN.match(beginning) is not None


def _is_failure(text: str) -> bool:
    if _ERROR.match(text) is not None or _EXCEPTION.match(text) is not None:
        return True
    if len(text) > _LONGEST_REFUSAL or _REFUSAL.search(text) is None:
        return False
    return _DESCRIBES.search(text) is None
