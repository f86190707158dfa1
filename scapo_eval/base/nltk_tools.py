"""Contains what the modes that repeat NLTK-based scripts share: tagger, lemmas, processes, and a message for missing
data.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

NLTK_DATA = ("punkt_tab", "averaged_perceptron_tagger_eng", "wordnet")
"""Packages of NLTK's data that the scripts need."""


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def tagger() -> Any:
    """Returns NLTK's part-of-speech tagger, loaded once.

    Raises:
        LookupError: if its data are missing.
    """
    from nltk.tag import PerceptronTagger

    return PerceptronTagger()


@cache
def _lemmatizer() -> Any:
    from nltk.stem import WordNetLemmatizer

    return WordNetLemmatizer()


@cache
def lemma(word: str, pos: str = "n") -> str:
    """Returns WordNet's lemma of a word as a noun, or as another part of speech (``a v r``).

    Raises:
        LookupError: if WordNet is missing.
    """
    lemmatized: str = _lemmatizer().lemmatize(word, pos)
    return lemmatized


def absent_data() -> list[str]:
    """Returns the packages of :data:`NLTK_DATA` that NLTK does not find."""
    from nltk.data import find

    def is_there(name: str) -> bool:
        for folder in ("tokenizers", "taggers", "corpora"):
            for path in (f"{folder}/{name}", f"{folder}/{name}.zip"):
                try:
                    find(path)
                except LookupError:
                    continue
                return True
        return False

    return [name for name in NLTK_DATA if not is_there(name)]


def missing_data(error: LookupError) -> str:
    """Returns the message for NLTK data that cannot be found."""
    wanted = next((name for name in NLTK_DATA if name in str(error)), "")
    return (
        f"NLTK does not find its data{f' ({wanted})' if wanted else ''}; get them with "
        f"'python -m nltk.downloader {' '.join(NLTK_DATA)}', or set NLTK_DATA to the folder that has them"
    )
