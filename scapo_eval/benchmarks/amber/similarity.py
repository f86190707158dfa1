"""Similarity between words in AMBER's closed vocabulary. The similarity can be disabled, read from a file of pairs, or
computed from spaCy's vectors.

The official script calls spaCy for every comparison. Calls to spaCy account for 95 % of the script's run time of 65 to
170 seconds. Only 418 words can be compared, so the matrix of their similarities is computed once and cached.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import InputError, MissingExtra
from ...base.hashes import digest
from ...base.reprs import fields_in_short
from ...files.files import atomic_write
from ...files.json_text import read_json
from .generative import Near

THRESHOLD = 0.8
"""Similarity above which two words count as equal, as in the official script."""

SPACY = "spacy:"


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity relation on the vocabulary.

    Attributes:
        name: Name in the signature, which is ``none`` or consists of the source of the relation and a hash of the
            similar pairs.
        near: Mapping from each word to similar words.
    """

    name: str = "none"
    near: Near = field(default_factory=dict)

    __repr__ = fields_in_short

    @classmethod
    def load(cls, source: str, words: Sequence[str]) -> Similarity:
        """Returns the similarity relation that is selected by a value of ``--similarity``.

        Args:
            source: ``none``, ``spacy:MODEL`` (a package or a folder), or a file of pairs (``{"pairs": [[word, word,
                similarity], ...]}``, or only the inner list).
            words: Closed vocabulary.

        Raises:
            InputError: If the file or the model is not found, or if the file has a different format.
            MissingExtra: If the matrix of the model is not cached and spaCy is not installed.
        """
        if source == "none":
            return cls()
        if source.startswith(SPACY):
            model = source.removeprefix(SPACY)
            matrix = _spacy_matrix(model, words)
            similar = zip(*np.nonzero(matrix > THRESHOLD), strict=True)
            return cls._of(f"{SPACY}{Path(model).name}", ((words[a], words[b]) for a, b in similar))
        known = set(words)
        return cls._of("pairs", (pair for pair in _read_pairs(source) if known.issuperset(pair)))

    @classmethod
    def _of(cls, name: str, pairs: Iterable[tuple[str, str]]) -> Similarity:
        near: dict[str, set[str]] = {}
        for a, b in pairs:
            if a != b:
                near.setdefault(a, set()).add(b)
                near.setdefault(b, set()).add(a)
        listed = digest(f"{a}\t{b}" for a in sorted(near) for b in sorted(near[a]))
        return cls(f"{name}@{listed}", {word: frozenset(others) for word, others in near.items()})


def _read_pairs(path: str) -> list[tuple[str, str]]:
    content = read_json(path)
    pairs = content.get("pairs") if isinstance(content, dict) else content
    if not isinstance(pairs, list):
        raise InputError('expected {"pairs": [[word, word, similarity], ...]}', path=path)
    similar = []
    for number, pair in enumerate(pairs, 1):
        match pair:
            case [str(a), str(b)]:
                similar.append((a, b))
            case [str(a), str(b), int() | float() as value]:
                if value > THRESHOLD:
                    similar.append((a, b))
            case _:
                raise InputError(
                    "expected a pair of words, and their similarity if it is known", path=path, line=number
                )
    return similar


def _spacy_matrix(model: str, words: Sequence[str]) -> NDArray[np.float64]:
    """Returns the (words, words) matrix of similarities from a spaCy model. The matrix is read from the cache if
    possible.
    """
    cached = _cache_folder() / f"amber-{_fingerprint(model, words)}.npy"
    if cached.is_file():
        matrix: NDArray[np.float64] = np.load(cached, allow_pickle=False)
        return matrix
    matrix = _computed(model, words)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cached) as stream:
            np.save(stream, matrix, allow_pickle=False)
    except (OSError, InputError) as error:
        warnings.warn(f"the similarities of {model} could not be cached: {error}", stacklevel=2)
    return matrix


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scapo"


def _fingerprint(model: str, words: Sequence[str]) -> str:
    """Returns a hash that changes with the vocabulary, the spaCy version, and every file of the model."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        spacy_version = version("spacy")
    except PackageNotFoundError:
        spacy_version = "none"
    spec = find_spec(model) if model.isidentifier() else None
    if spec is not None and spec.origin is not None:  # lookup order of spaCy: an installed package, else a folder
        folder = Path(spec.origin).parent
    elif Path(model).is_dir():
        folder = Path(model)
    else:
        get = f"download it with: python -m spacy download {model}" if model.isidentifier() else "folder not found"
        raise InputError(f"spaCy model '{model}' not found; {get}")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    states = (f"{path.relative_to(folder)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
    return digest([spacy_version, str(folder.resolve()), *states, *words])


def _computed(model: str, words: Sequence[str]) -> NDArray[np.float64]:
    try:
        import spacy
    except ImportError:
        raise MissingExtra("spacy", f"--similarity {SPACY}{model}") from None
    try:
        language: Any = spacy.load(model)
    except OSError as error:
        raise InputError(f"spaCy cannot load '{model}': {str(error).splitlines()[0]}") from None
    documents = [language(word) for word in words]
    matrix = np.eye(len(words))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # spaCy warns about every word without a vector
        for a, first in enumerate(documents):
            for b in range(a):
                matrix[a, b] = matrix[b, a] = first.similarity(documents[b])
    return matrix
