"""CHAIR's word lists: the words of each object, and the pairs of words that the scripts treat as one word.

A caption is represented as a string with one character per word (see :class:`WordReader`). With this representation,
pairs are merged from the left by a single regular-expression substitution. Words are counted by one call of ``len``,
and a word is removed by one call of ``str.replace``. Python runs all of these operations in C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

import msgspec

from ...base.errors import InputError
from ...base.hashes import digest
from ...base.reprs import fields_in_short
from ...files.files import display_name, iter_lines
from ...matching.vocabulary import Vocabulary

_COMPOUNDS = (
    "air plane", "baseball bat", "baseball glove", "cell phone", "fire hydrant", "hair drier", "home plate", "hot dog",
    "laptop computer", "mobile phone", "motor bike", "motor cycle", "parking meter", "potted plant", "sports ball",
    "stop light", "stop sign", "stove top oven", "street light", "suit case", "teddy bear", "tennis racket",
    "traffic light", "traffic signal", "train track", "wine glass",
)  # fmt: skip
_ANIMALS = ("animal", "bear", "bird", "cat", "cow", "cub", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")

DOUBLE_WORDS: Mapping[str, str] = {
    **{words: words for words in _COMPOUNDS},
    **{f"{age} {animal}": animal for age in ("baby", "adult") for animal in _ANIMALS},
    **{f"passenger {vehicle}": vehicle for vehicle in ("jet", "train")},
    "bow tie": "tie",
    "toilet seat": "toilet",
    "wine glas": "wine glass",
}
"""Two words -> the single word that replaces them, a fixed part of the scripts. As a result, ``home plate`` is not a
plate and a baby bird is not a person. ``stove top oven`` has three words and never matches.
"""


class _Words(msgspec.Struct):
    words: dict[str, list[str]]


@dataclass(frozen=True)
class Synonyms:
    """Words for each object, from CHAIR itself or from a user's ``synonyms.txt``.

    Attributes:
        source: Display name of the file.
        words: Mapping from each word, exactly as in the file, to the word that names its object (the first word of the
            line).
    """

    source: str
    words: Mapping[str, str]

    __repr__ = fields_in_short

    @classmethod
    def load(cls, path: str | Path) -> Synonyms:
        """Reads the official format: one object per line, with words separated by a comma and a space. The first word
        of a line names the object.

        Words are used exactly as written. A word with two spaces before it (``, cheesecake``) or with a capital letter
        (``iPhone``) therefore never matches a caption. If a word occurs on two lines, the later line applies.

        Raises:
            InputError: If the file cannot be read, is empty, or has a different format.
        """
        name = display_name(path)
        words: dict[str, str] = {}
        for number, line in iter_lines(path):
            try:
                entries = line.decode("utf-8").strip().split(", ")
            except UnicodeDecodeError:
                raise InputError("not UTF-8; convert the file to UTF-8", path=name, line=number) from None
            for word in entries:
                if not word.strip() or set(word) & set(',{}[]":\t'):
                    reason = (
                        "expected words separated by a comma and a space, the object's name first: person, girl, boy"
                    )
                    raise InputError(reason, path=name, line=number)
                words[word] = entries[0]
        if not words:
            raise InputError("no synonyms: the file is empty", path=name)
        return cls(name, words)

    @classmethod
    def shipped(cls) -> Synonyms:
        """Returns CHAIR's own words for COCO's 80 categories (Rohrbach et al. 2018), which are read from a table in the
        package.
        """
        table = resources.files(__package__) / "words.json"
        words = msgspec.json.decode(table.read_bytes(), type=_Words).words
        return cls("CHAIR's words", {word: node for node, named in words.items() for word in named})

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary whose labels are the first words of the lines, in the order of the file."""
        return Vocabulary(name="synonyms", labels=tuple(dict.fromkeys(self.words.values())), aliases=dict(self.words))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the table of words. The hash does not depend on the order of the lines."""
        return digest(sorted(f"{word}\t{node}" for word, node in self.words.items()))


class WordReader:
    """Converter that maps the singular words of a caption to the caption's objects according to the rules of the
    scripts.

    Every word that can be part of an object's name is represented by its own character. All other words share the
    character ``OTHER``.

    Args:
        synonyms: Table with the words for each object.
    """

    OTHER = "."

    def __init__(self, synonyms: Synonyms) -> None:
        pairs = {pair: tuple(pair.split(" ")) for pair in DOUBLE_WORDS}
        pairs = {pair: words for pair, words in pairs.items() if len(words) == 2}
        matter = {*synonyms.words, *DOUBLE_WORDS.values(), *(word for words in pairs.values() for word in words)}
        self._character = {word: chr(0xE000 + k) for k, word in enumerate(sorted(matter))}
        self._toilet, self._seat = self._character["toilet"], self._character["seat"]
        self._merged = {
            "".join(map(self._character.__getitem__, words)): self._character[DOUBLE_WORDS[pair]]
            for pair, words in pairs.items()
        }
        self._pair = re.compile("|".join(self._merged))
        ids = synonyms.vocabulary.label_ids
        self._object = {self._character[word]: ids[node] for word, node in synonyms.words.items()}

    def encode(self, words: Iterable[str]) -> str:
        """Returns a string with one character per singular word."""
        character = self._character
        return "".join([character.get(word, self.OTHER) for word in words])

    def read(self, encoded: str) -> tuple[list[int], int]:
        """Returns the objects and the length of a caption.

        Args:
            encoded: Caption as returned by :meth:`encode`.

        Returns:
            The label ids in text order, including repetitions, and the number of words after merging pairs.
        """
        merged = self._pair.sub(self._merge, encoded)
        words = merged.replace(self.OTHER, "")
        if self._toilet in words:  # "the seat of the toilet" is not a chair
            words = words.replace(self._seat, "")
        objects = self._object
        return [objects[word] for word in words if word in objects], len(merged)

    def _merge(self, pair: re.Match[str]) -> str:
        return self._merged[pair[0]]
