"""Exact prompts that the protocol prescribes for evaluated systems (appendix of the paper;
docs/specification.md#protocol).

The prompts determine the answers of the evaluated system, so results obtained with prompts that differ in even a single
character are not comparable.
"""

from __future__ import annotations

DESCRIBE = "Describe this image."
"""Prompt for training and generative evaluation (Cap. Score, Hal. Rate, Cover Rate)."""

DESCRIBE_IN_DETAIL = "Describe this image objectively and in detail. Focus only on visible content."
"""Prompt for the first stage of description-augmented answering."""

FOLLOW_THE_IMAGE = (
    "In case there is an inconsistency between the context and the image content, you should follow the image."
)
"""Instruction between context and question in the PhD modes with a context (sec, icc)."""


def with_context(context: str, question: str) -> str:
    """Returns PhD's prompt for the modes ``sec`` and ``icc``, which consists of the context, the instruction and the
    question.
    """
    return f"{context} {FOLLOW_THE_IMAGE} {question}"


def with_description(description: str, question: str) -> str:
    """Returns the prompt for the second stage of description-augmented answering, in which the model answers a question
    with its own description in the prompt. The image is sent together with this prompt.

    Args:
        description: Unchanged answer of the same model to the prompt ``DESCRIBE_IN_DETAIL``.
        question: Complete prompt that would be used without a description.
    """
    return (
        f"The same model previously described this image as follows:\n{description}\n\n"
        f"Now answer the question based on the image and the description above.\n{question}"
    )
