"""NLTK's tagger and lemmas for the modes that reproduce published scripts, and messages about missing NLTK data."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

NLTK_DATA = ("punkt_tab", "averaged_perceptron_tagger_eng", "wordnet")
"""NLTK data packages that the scripts require."""


def processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def tagger() -> Any:
    """Returns NLTK's part-of-speech tagger, which is loaded on the first call.

    Raises:
        LookupError: If the tagger's data is not installed.
    """
    from nltk.tag import PerceptronTagger

    return PerceptronTagger()


@cache
def _lemmatizer() -> Any:
    from nltk.stem import WordNetLemmatizer

    return WordNetLemmatizer()


@cache
def lemma(word: str, pos: str = "n") -> str:
    """Returns WordNet's lemma of a word as a noun or another part of speech (``a``, ``v`` or ``r``).

    Raises:
        LookupError: If WordNet is not installed.
    """
    lemmatized: str = _lemmatizer().lemmatize(word, pos)
    return lemmatized


def absent_data() -> list[str]:
    """Returns the names of the data packages in :data:`NLTK_DATA` that NLTK does not find."""
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
    """Returns a message that names missing NLTK data and the command that downloads the data."""
    wanted = next((name for name in NLTK_DATA if name in str(error)), "")
    return (
        f"NLTK data not found{f' ({wanted})' if wanted else ''}; download them with "
        f"'python -m nltk.downloader {' '.join(NLTK_DATA)}', or set NLTK_DATA to their folder"
    )
