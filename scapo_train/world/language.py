"""Language of the small world, which consists of a vocabulary with aliases, a caption grammar, and a small byte-level
tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from scapo_eval import Vocabulary

from .pictures import NOUNS, WORLDS, Scene, World

PROMPT = "Describe this image."

ALIASES = {
    "bottle": "flask", "bowl": "dish", "kettle": "teapot", "oven": "stove", "table": "desk", "flower": "blossom",
    "tree": "pine", "bench": "pew", "bicycle": "bike", "dog": "puppy", "car": "taxi", "lamp": "lantern",
    "umbrella": "parasol", "ball": "football", "boat": "ship", "kite": "glider",
    "cup": "mug", "plate": "saucer", "spoon": "ladle", "pan": "skillet", "jar": "vase", "basket": "hamper",
    "chair": "stool", "sofa": "couch", "bed": "bunk", "pillow": "cushion", "curtain": "drape", "clock": "timer",
    "candle": "taper", "book": "novel", "rug": "mat", "door": "gate", "fence": "hedge", "bucket": "pail",
    "shovel": "spade", "hammer": "mallet", "rope": "cord", "wheel": "tire", "truck": "lorry", "plane": "jet",
    "rocket": "missile", "tent": "marquee", "house": "cottage", "tower": "turret", "bridge": "viaduct",
    "cat": "kitten", "horse": "pony", "cow": "bull", "pig": "hog", "bird": "sparrow", "crab": "lobster",
    "frog": "toad", "bee": "wasp", "spider": "tarantula", "snake": "viper", "bear": "cub", "rabbit": "bunny",
    "lemon": "lime", "cake": "pie", "hat": "bonnet", "coat": "jacket", "glove": "mitten", "drum": "bongo",
    "flag": "banner",
}  # fmt: skip
_PLURALS = {
    "bench": "benches", "dish": "dishes", "puppy": "puppies", "couch": "couches", "lorry": "lorries",
    "pony": "ponies", "bunny": "bunnies",
}  # fmt: skip

ONE = (
    "There is {} in view.", "We can also see {}.", "The picture clearly shows {}.", "It has {} in it.",
    "Here one finds {} too.",
)  # fmt: skip
_TWO = ("There are {} and {} here.", "We can see {} beside {}.", "It shows {} and {} too.")
FILLER = (
    "The light is soft and warm.", "Everything looks calm and quiet.", "The colors are bright and clear.",
    "It is a pleasant view overall.", "The mood is relaxed and friendly.",
)  # fmt: skip

MENTION_CLEAR, MENTION_AMBIGUOUS, MENTION_ABSENT = 0.72, 0.55, 0.15
"""Probabilities that a training caption names a clear object, an ambiguous object, and an absent noun of the scene.
They imitate real describers, which omit and invent objects.
"""

_SENTENCE = re.compile(r"[^.]+\.")
GRAMMAR = re.compile(
    "|".join(re.escape(sentence).replace(r"\{\}", "an? [a-z]+") for sentence in (*ONE, *_TWO, *FILLER))
)

ALIAS_SHARE, _PAIR_SHARE, FILLER_SHARE = 0.25, 0.2, 0.3

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vocabulary(world: World = WORLDS["plain"]) -> Vocabulary:
    """Returns a vocabulary in which the nouns of a world are the labels. The aliases of each label are a synonym and
    the plural forms.
    """
    words = {noun: [noun, ALIASES[noun]] for noun in world.names}
    return Vocabulary.from_mapping(
        {noun: [*known, *map(plural, known)] for noun, known in words.items()},
        name="world",
    )


def plural(word: str) -> str:
    """Returns the plural of a noun or synonym."""
    return _PLURALS.get(word, f"{word}s")


def caption(world: World, scene: Scene, random: np.random.Generator) -> str:
    """Returns a random caption for supervised training.

    The caption consists of sentences with one or two claims each, in the order of the cells, and of filler sentences.
    """
    claimed = [
        noun
        for noun, clear in zip(scene.nouns, scene.clear, strict=True)
        if random.random() < (MENTION_CLEAR if clear else MENTION_AMBIGUOUS)
    ]
    for noun in world.of_scene(scene.kind):
        if noun not in scene.nouns and random.random() < MENTION_ABSENT:
            claimed.insert(int(random.integers(len(claimed) + 1)), noun)
    pieces = []
    while claimed:
        number = 2 if len(claimed) > 1 and random.random() < _PAIR_SHARE else 1
        phrases = [_phrase(noun, random) for noun in claimed[:number]]
        pieces.append(one_of(_TWO if number == 2 else ONE, random).format(*phrases))
        claimed = claimed[number:]
    if not pieces or random.random() < FILLER_SHARE:
        pieces.insert(int(random.integers(len(pieces) + 1)), one_of(FILLER, random))
    return " ".join(pieces)


def listing(scene: Scene, random: np.random.Generator) -> str:
    """Returns a sentence that lists all unambiguous objects of a scene in random order."""
    clear = [noun for noun, is_clear in zip(scene.nouns, scene.clear, strict=True) if is_clear]
    phrases = [_phrase(noun, random) for noun in random.permutation(clear).tolist()]
    return f"There is {' and '.join(phrases) or 'nothing'}."


def sentences(text: str) -> list[str]:
    """Returns the complete sentences of a text in order, without further periods between them."""
    return [sentence.strip() for sentence in _SENTENCE.findall(text)]


def fluency(texts: Sequence[str], grammar: re.Pattern[str] = GRAMMAR) -> float | None:
    """Returns the share of complete sentences that match a grammar, or None if the texts contain no complete
    sentences.
    """
    spoken = [sentence for text in texts for sentence in sentences(text)]
    return sum(map(bool, map(grammar.fullmatch, spoken))) / len(spoken) if spoken else None


def repeats(texts: Sequence[str]) -> float:
    """Returns the share of texts that contain the same sentence more than once."""
    spoken = list(map(sentences, texts))
    return sum(len(set(own)) < len(own) for own in spoken) / len(texts)


def _phrase(noun: int, random: np.random.Generator) -> str:
    name = NOUNS[noun]
    word = ALIASES[name] if random.random() < ALIAS_SHARE else name
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def one_of(choices: Sequence[str], random: np.random.Generator) -> str:
    """Returns one randomly chosen element of ``choices``."""
    return choices[int(random.integers(len(choices)))]


def tokenizer(captions: Sequence[str]) -> Any:
    """Returns a byte-level BPE tokenizer trained on captions, with Qwen's special tokens and chat template."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000, min_frequency=20, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    fast.train_from_iterator([*captions, *[f"user\n{PROMPT}\nassistant\n"] * 20], trainer)
    # the processor of transformers 4 requires Qwen's class
    former = transformers.__version__.startswith("4.")
    cls = transformers.Qwen2TokenizerFast if former else transformers.PreTrainedTokenizerFast
    words = cls(
        tokenizer_object=fast, pad_token="<|endoftext|>", eos_token="<|im_end|>",
        additional_special_tokens=list(SPECIAL[1:]), model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    words.chat_template = _TEMPLATE
    return words
