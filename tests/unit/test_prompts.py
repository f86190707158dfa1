"""The protocol's prompts, to the letter (SPEC section 5)."""

from __future__ import annotations

from scapo_eval.benchmarks import prompts


def test_description_prompts() -> None:
    assert prompts.DESCRIBE == "Describe this image."
    assert prompts.DESCRIBE_IN_DETAIL == "Describe this image objectively and in detail. Focus only on visible content."


def test_context_instruction_and_question_are_one_space_apart() -> None:
    assert prompts.with_context("A park.", "Is there a dog?") == (
        "A park. In case there is an inconsistency between the context and the image content, you should follow the "
        "image. Is there a dog?"
    )


def test_description_comes_before_the_question_unchanged() -> None:
    assert prompts.with_description(" A {dog}.\n", "Is there a cat?") == (
        "The same model previously described this image as follows:\n A {dog}.\n\n\n"
        "Now answer the question based on the image and the description above.\nIs there a cat?"
    )
