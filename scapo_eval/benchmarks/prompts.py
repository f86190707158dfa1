"""The protocol's exact prompts: what a measured system is asked (the paper's appendix; docs/specification.md#protocol).

These strings are inputs of the measured system, so a changed character is another measurement.
"""

from __future__ import annotations

DESCRIBE = "Describe this image."
"""Training and generative evaluation: Cap. Score, Hal. Rate, Cover Rate."""

DESCRIBE_IN_DETAIL = "Describe this image objectively and in detail. Focus only on visible content."
"""First stage of description-augmented answering."""

FOLLOW_THE_IMAGE = (
    "In case there is an inconsistency between the context and the image content, you should follow the image."
)
"""Stands between context and question in PhD's modes with a context (sec, icc)."""


def with_context(context: str, question: str) -> str:
    """Returns PhD's prompt in its modes ``sec`` and ``icc``: the context, the instruction, the question."""
    return f"{context} {FOLLOW_THE_IMAGE} {question}"


def with_description(description: str, question: str) -> str:
    """Returns the second stage of description-augmented answering; the image itself is sent along.

    Args:
        description: the same weights' answer to ``DESCRIBE_IN_DETAIL``, unchanged.
        question: the whole prompt that would be asked without a description.
    """
    return (
        f"The same model previously described this image as follows:\n{description}\n\n"
        f"Now answer the question based on the image and the description above.\n{question}"
    )
