"""Prompts for the judges of MMHal-Bench, FaithScore and uses of mentions, in this project's own wording.

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

USES_TASK = """\
You read a text that somebody wrote about ONE picture. You do not see the picture. In the text, words that may name \
an object are marked as [[number:word]], and a list states which kind of object each of them may name. Decide for \
each marked word: does the text assert that such an object can be seen in the picture? Whether this is true or likely \
does not matter. Answer with one of these words per mark. If several apply, the one that comes first in this list is \
right; but what the last paragraph says about presupposed and confirmed objects takes precedence over negated, \
question and hedged.

none: the word does not name such an object here.
- Another sense, a verb, a name, a brand, an idiom, a means: a bat (the animal) for a baseball bat, an orange vest, \
the train of a dress, the bowl of a stadium, they train, an Apple laptop, the Bull Inn, a piece of cake (easy), by \
phone.
- It only says what kind another thing is: bus stop, dog bed, bird cage, apple juice, banana bread, pizza box, cat \
hair. Likewise an indefinite possessor: a man's watch. But a part, portion or group of the object counts as claim: \
bicycle wheel, bus window, slice of pizza, herd of cows, the woman's bag. A compound for a person names the person: \
bus driver.
- Hidden text: HTML comments, hidden elements, addresses of links and images. Everything else is read as displayed, \
also JSON, tables, code, alternative texts and reasoning.
negated: denied. No dogs, without a tie, hardly a car, instead of a fork, free of cars, it is not a dog, not quite a \
couch, the dog is nowhere to be seen; entries with no, 0, false, null, a cross or an empty box, or under "not \
visible"; struck words; what a correction takes back (two cats - no, two dogs; but two dogs - no, three of them: \
claim).
question: asked without an answer, offered, requested or advised. A question that the text answers itself has the use \
of the answer (Sheep? Yes. -> claim; Is there a dog? No. -> negated; I cannot tell. -> question).
quoted: represented, pretended or reported, even if the list says that such things are not meant. Objects in a \
picture, on a screen, sign, logo, clothes or tattoo; a statue, toy, wooden figure, balloon, cutout, decoration, \
emoji, shadow or dream; costumes and roles (dressed as a bear, a broom serves as a horse); words on signs, labels and \
screens, and what other people, users, legends, titles or file names say and the text does not confirm. This holds as \
long as the text describes the same representation. Exceptions that are claims: what carries the representation, \
teddy bears, what is seen in a mirror, through a window or as the silhouette of something real, the contents of the \
described picture itself even if it is a painting, cartoon, screenshot or collage, and names of real things in \
quotation marks.
comparison: shaped like an apple, the size of a football, as quiet as a mouse, more cake than hat; looks like a \
sheep, if the text says what the thing really is (if it does not, hedged).
generic: spoken of in general (zebras have stripes, typical of dogs, proverbs, statistics; but this zebra: claim), or \
not in this picture: another time or place, out of frame, only in the mind or conditional (a dog was here, the next \
train, its owner is out of frame, if there were a cat), or known only from traces (a ring left by a cup).
purpose: for whom or what something is meant, used or sold, or what somebody waits or looks for (a hook for \
backpacks, a stand that sells hot dogs, waiting for the bus, a bowl for the dog), unless the text shows the object \
elsewhere or says where it is. What somebody handles is a claim (a man sells hot dogs).
hedged: its existence or identity is uncertain. Possibly a dog, what looks like a bus, there may be a cat, I think, \
must be, it seems, (?), low confidence; alternatives for one thing (a dog or a wolf: both; but people sit on chairs \
or benches: claims); the guessed name of a known thing (a man, possibly a tourist: only tourist); a guess about what \
is held, worn, carried, eaten or contained (appears to be holding a phone); something hidden inside the picture. If \
only the number, action, place or property is guessed, the object is a claim (perhaps three dogs, a dog, maybe \
asleep, appears to be walking a dog). What would not be visible in any case is generic or purpose.
claim: everything else that the text says is there, in whatever form: sentences, headings, lists, table rows, JSON, \
check marks, past tense, cut-off, blurred or half-eaten objects. Also if something else about it is negated (the dog \
isn't barking, a man without a hat), if it is presupposed in a negation, question or guess (no people on the bench; \
what is the woman holding?; possibly checking his phone), and if it is confirmed (not only a dog but also a cat, \
nothing but chairs, no fewer than three dogs).

Read the whole text before you decide, because a later sentence can deny, confirm or correct an earlier one. Answer \
with one JSON object that contains every number, and with nothing else: {"1": "claim", "2": "none"}"""

USES_CASE = """\
Text:
{caption}

Marked words and the objects that they may name:
{mentions}"""

USES_EXAMPLE = (
    {
        "caption": "Two [[1:dogs]] sleep under a poster of a [[2:cat]], possibly near a [[3:couch]]. There is no "
        "[[4:person]] at the [[5:bus]] stop.",
        "mentions": "1. dogs: dog\n2. cat: cat\n3. couch: couch\n4. person: person\n5. bus: bus",
    },
    '{"1": "claim", "2": "quoted", "3": "hedged", "4": "negated", "5": "none"}',
)
"""Example case and answer."""

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
