"""Direct transcription of the CHAIR scripts, word by word and list by list, as benchmark baseline and test oracle.

The code is written by this project from the ALGORITHM. It keeps the inefficiencies of the scripts: the set of all words
is rebuilt for every word, singular forms are found by searches through word lists, and nothing is cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from scapo_eval.benchmarks.chair import singular
from scapo_eval.benchmarks.chair.synonyms import DOUBLE_WORDS, Synonyms

Tokenize = Callable[[str], list[str]]

ENDINGS = [(re.compile(f"(?:{ending})$"), cut, add) for ending, cut, add in singular.ENDINGS]


def singularize(word: str) -> str:
    """Returns the singular, found by linear search through every list."""
    parts = word.split("-")
    if len(parts) > 1 and parts[1] in list(singular.PREPOSITIONS):
        return singularize(parts[0]) + "-" + "-".join(parts[1:])
    if word.endswith("'"):
        return singularize(word[:-1]) + "'s"
    for unchanged in singular.UNCHANGED:
        if unchanged.endswith(word):
            return word
    for plural in singular.PLURALS_IN_IES:
        if word.endswith(plural):
            return word
    for plural, replacement in singular.IRREGULAR.items():
        if word.endswith(plural):
            return re.sub(f"{plural}$", replacement, word)
    if word[:4] == "oxen":
        return "ox" + word[4:]
    for ending, cut, add in ENDINGS:
        if ending.search(word):
            return word[: len(word) - cut] + add
    return word


class PlainChair:
    """Transcription of the scripts' class.

    Args:
        synonyms: Synonyms of each object.
        truth: Image id -> objects in the image.
        tokenize: Function from a lower-cased caption to tokens.
    """

    def __init__(self, synonyms: Synonyms, truth: Mapping[str, Sequence[str]], tokenize: Tokenize) -> None:
        self.node_words = dict(synonyms.words)
        self.all_words = list(synonyms.words)
        self.truth = truth
        self.tokenize = tokenize

    def objects(self, caption: str) -> tuple[list[str], int]:
        """Returns the node words in text order with multiplicity, and the number of words after merging."""
        found, length = self.words(caption)
        return [self.node_words[word] for word in found], length

    def words(self, caption: str) -> tuple[list[str], int]:
        """Returns the words that name objects, in the script's singular form, and the number of words after merging."""
        words = [singularize(word) for word in self.tokenize(caption.lower())]
        merged: list[str] = []
        i = 0
        while i < len(words):
            pair = " ".join(words[i : i + 2])
            if pair in DOUBLE_WORDS and i + 1 < len(words):
                merged.append(DOUBLE_WORDS[pair])
                i += 2
            else:
                merged.append(words[i])
                i += 1
        kept = merged
        if "toilet" in merged and "seat" in merged:
            kept = [word for word in merged if word != "seat"]
        positions = [i for i, word in enumerate(kept) if word in set(self.all_words)]
        found = [word for word in kept if word in set(self.all_words)]
        assert len(positions) == len(found)
        return found, len(merged)

    def counts(self, image_ids: Sequence[str], captions: Sequence[str]) -> dict[str, int]:
        """Returns the integer counts behind the scripts' figures."""
        names = ("hallucinated_captions", "mentions", "hallucinated_mentions", "covered", "truth", "words")
        counts = dict.fromkeys(names, 0)
        for image, caption in zip(image_ids, captions, strict=True):
            present = self.truth[image]
            objects, length = self.objects(caption)
            hallucinated = [word for word in objects if word not in present]
            counts["mentions"] += len(objects)
            counts["hallucinated_mentions"] += len(hallucinated)
            counts["hallucinated_captions"] += bool(hallucinated)
            counts["covered"] += len({word for word in objects if word in present})
            counts["truth"] += len(present)
            counts["words"] += length
        return counts
