"""Prompts for the judges of MMHal-Bench and FaithScore, in this project's own wording.

A judge's scores depend on its prompt, so the run card contains a hash of the prompt. The published prompts can be
supplied in a file (``--prompt-file``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engines import Turn

MMHAL_TASK = """\
You rate answers that a vision-language model gave to questions about images. You do not see the image. You are \
given a list of what is in it, the question, a correct answer written by a person, and the model's answer.

An answer hallucinates if it claims something about the image that neither the list nor the correct answer \
supports or allows to conclude. General knowledge and reasoning that does not contradict the image is no \
hallucination. The list may be incomplete: do not punish harmless details that are plausible given the list and the \
correct answer, but do punish claims that contradict them.

Ratings:
6: very informative, with good analysis or reasoning, no hallucination
5: very informative, no hallucination
4: somewhat informative, no hallucination
3: not informative, no hallucination
2: very informative, with hallucination
1: somewhat informative, with hallucination
0: not informative, with hallucination

Explain in two or three sentences what the answer claims and whether the image supports it. Then end with one line:
Rating: N"""

MMHAL_CASE = """\
Image contents: {image_content}
Question: {question}
Correct answer: {gt_answer}
Model's answer: {response}"""

MMHAL_EXAMPLES = (
    (
        {
            "image_content": "Bicycle, Bicycle wheel, Brick wall, Basket",
            "question": "What colour is the basket on the bicycle?",
            "gt_answer": "The basket is brown.",
            "response": "The bicycle leaning against the wall carries a brown wicker basket above its front wheel.",
        },
        "The answer names the colour correctly. That the basket is wicker and sits above the front wheel is plausible "
        "and contradicts nothing that is known of the image.\nRating: 5",
    ),
    (
        {
            "image_content": "Table, Plate, Pizza, Fork, Window",
            "question": "What is the man at the table drinking?",
            "gt_answer": "There is no man in the image. There is only a table with a pizza on it.",
            "response": "The man at the table is drinking a glass of red wine with his pizza.",
        },
        "The image holds no man and no glass. The answer accepts the question's false assumption and adds red wine, "
        "both of which are made up.\nRating: 1",
    ),
    (
        {
            "image_content": "Boat, Lake, Mountain, Tree",
            "question": "How many boats are on the lake?",
            "gt_answer": "There are three boats on the lake.",
            "response": "I cannot tell.",
        },
        "The answer claims nothing about the image, so it invents nothing, but it does not help either.\nRating: 3",
    ),
)
"""Example cases and verdicts: a correct answer, an invented answer and an evasive answer."""

LABEL_TASK = """\
You are given the numbered sentences of an answer about an image. Label each sentence:
D (descriptive) if it states something that can be checked by looking at the image;
A (analytical) if it is an opinion, a guess, advice, general knowledge, or only speaks of the answer itself.

Answer with one line per sentence, its number, a colon and the letter. Example:
1: D
2: A"""

FACTS_TASK = """\
You split sentences that describe an image into atomic facts. An atomic fact is one short statement that says a \
single thing and can be checked on its own. Sort the facts into five categories:
entities: that something is there ("There is a dog.")
relations: how two things stand to each other, or what one does with another ("The dog lies on a couch.")
colors: what colour something has ("The couch is red.")
counting: how many there are ("There are two cushions.")
others: any other visible property: size, shape, material, state, text ("The cushion is striped.")

Replace pronouns by what they stand for. Add nothing that the sentences do not say, and state every fact once. \
Answer with one JSON object: {"entities": [...], "relations": [...], "colors": [...], "counting": [...], \
"others": [...]}"""

FACTS_EXAMPLE = (
    "Two cats sleep on a green sofa. It is covered with a woollen blanket.",
    '{"entities": ["There are cats.", "There is a sofa.", "There is a blanket."], "relations": ["The cats sleep on the '
    'sofa.", "The blanket covers the sofa."], "colors": ["The sofa is green."], "counting": ["There are two cats."], '
    '"others": ["The blanket is woollen."]}',
)

CATEGORIES = ("entities", "relations", "colors", "counting", "others")

FACTS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {category: {"type": "array", "items": {"type": "string"}} for category in CATEGORIES},
    "required": list(CATEGORIES),
    "additionalProperties": False,
}

VERIFY = "Statement: {fact}\nIs this statement true of the image? Answer with yes or no."


def mmhal_turns(case: Mapping[str, str], task: str = MMHAL_TASK) -> tuple[Turn, ...]:
    """Returns the conversation that requests a rating. The conversation consists of the task, worked examples, and the
    case.

    Args:
        case: Texts for the placeholders ``image_content``, ``question``, ``gt_answer`` and ``response``.
        task: Instruction to the judge. If the instruction contains ``{response}``, it is a complete prompt and is sent
            alone.
    """
    if "{response}" in task:
        return (Turn("user", fill(task, case)),)
    shown = (
        turn
        for example, verdict in MMHAL_EXAMPLES
        for turn in (Turn("user", fill(MMHAL_CASE, example)), Turn("assistant", verdict))
    )
    return (Turn("system", task), *shown, Turn("user", fill(MMHAL_CASE, case)))


def label_turns(sentences: list[str]) -> tuple[Turn, ...]:
    """Returns the conversation that asks the judge to label sentences as descriptive or analytical."""
    numbered = "\n".join(f"{k}. {' '.join(sentence.split())}" for k, sentence in enumerate(sentences, 1))
    return (Turn("system", LABEL_TASK), Turn("user", numbered))


def facts_turns(text: str) -> tuple[Turn, ...]:
    """Returns the conversation that asks for the atomic facts contained in descriptive sentences."""
    question, verdict = FACTS_EXAMPLE
    return (Turn("system", FACTS_TASK), Turn("user", question), Turn("assistant", verdict), Turn("user", text))


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Replaces each ``{name}`` in a template in one pass, so that braces in the inserted texts remain unchanged."""
    import re

    return re.sub(r"\{(\w+)\}", lambda match: fields.get(match.group(1), match.group()), template)
