"""Extraction of the answer from a response that also contains reasoning, tool calls or tool results."""

from __future__ import annotations

import re

from ..base.odd_texts import REASONING_TAGS, TOOL_TAGS

_TAG = re.compile(
    rf"[<\u25c1](?P<close>/?)(?:(?P<reasoning>{REASONING_TAGS})|(?P<tool>{TOOL_TAGS})|answer)(?:\s[^<>\u25c1\u25b7]{{0,200}})?"
    r"[>\u25b7]\s*",
    re.IGNORECASE,
)


def spans_besides_answer(text: str) -> list[tuple[int, int]]:
    """Returns the spans of a response that lie outside its answer. Each span includes the white space that follows it.

    The spans are blocks such as ``<think>...</think>`` and ``<tool_call>...</tool_call>``, including their tags, as
    well as the tags of ``<answer>...</answer>``. An unclosed block extends to the end of the response. If the opening
    tag of the reasoning is in the prompt and the response contains only the closing tag, the reasoning starts at the
    beginning of the response.

    Args:
        text: Text of the response.

    Returns:
        Sorted, disjoint ``(start, end)`` spans.
    """
    if "<" not in text and "\u25c1" not in text:
        return []
    spans: list[tuple[int, int]] = []
    opened: tuple[str, int] | None = None
    for tag in _TAG.finditer(text):
        name = (tag["reasoning"] or tag["tool"] or "").lower()
        if opened is not None:
            if tag["close"] and name == opened[0]:
                spans.append((opened[1], tag.end()))
                opened = None
        elif name and not tag["close"]:
            opened = name, tag.start()
        elif tag["reasoning"]:
            spans = [(0, tag.end())]
        else:
            spans.append(tag.span())
    if opened is not None:
        spans.append((opened[1], len(text)))
    return spans


def only_answer(text: str, spans: list[tuple[int, int]]) -> str:
    """Returns a text of the same length in which newlines replace the characters in the spans."""
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], "\n" * (end - start)]
        at = end
    return "".join([*pieces, text[at:]])


def answer_of(text: str) -> str:
    """Returns a response in which newlines replace everything besides its answer."""
    return only_answer(text, spans_besides_answer(text))
