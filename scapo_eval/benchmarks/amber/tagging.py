"""All nouns of an answer as the official AMBER script finds them: NLTK's tokens and tags, WordNet's lemmas.

Tagging is nearly all the time of ``--mode parity``. So equal texts are tagged once, long runs are spread over
processes, and a file can keep the nouns from run to run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from ...base.errors import InputError, MissingExtra
from ...base.nltk_tools import lemma, missing_data, processors, tagger
from ...base.processes import process_pool
from ...files.files import atomic_write
from ...files.json_text import dump_json, iter_records

PARALLEL_FROM = 200
"""Texts to tag below which processes cost more than they save."""

_CACHE_FORMAT = "scapo-amber-nouns/1"


class Tagger(Protocol):
    """Finds all nouns of answers; ``version`` goes into the signature."""

    version: str

    def find_batch(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> list[list[str]]:
        """Returns the noun lemmas of every text, in order, with repetitions."""
        ...


class NltkNouns:
    """Finds nouns with NLTK, each distinct text once.

    Args:
        workers: processes that tag; None: one per processor.
        cache_file: JSON Lines file that keeps nouns between runs; made if it is missing, begun anew when NLTK's version
            has changed.

    Raises:
        MissingExtra: if NLTK is not installed.
        InputError: if the cache file holds something else.
    """

    def __init__(self, workers: int | None = None, cache_file: str | Path | None = None) -> None:
        try:
            self.version = version("nltk")
        except PackageNotFoundError:
            raise MissingExtra("nltk", "amber --mode parity") from None
        self._header = {"format": _CACHE_FORMAT, "nltk": self.version}
        self._workers = workers or processors()
        self._cache_file = Path(cache_file) if cache_file else None
        self._known: dict[str, list[str]] = self._read_cache() if self._cache_file else {}

    def find_batch(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> list[list[str]]:
        """Returns the noun lemmas of every text, in order, with repetitions.

        Args:
            texts: the answers.
            on_progress: called with the number of characters of each text that has been tagged.

        Raises:
            InputError: if NLTK's data are missing.
        """
        keys = [_key(text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if new:
            for (key, text), nouns in zip(new.items(), self._tag(list(new.values())), strict=True):
                self._known[key] = nouns
                if on_progress:
                    on_progress(len(text))
            if self._cache_file:
                self._write_cache(self._cache_file)
        return [self._known[key] for key in keys]

    def _tag(self, texts: Sequence[str]) -> Iterator[list[str]]:
        try:
            nouns_of("two dogs")  # loads the models before processes are forked, and shows what is missing
        except LookupError as error:
            raise InputError(missing_data(error)) from None
        if self._workers == 1 or len(texts) < PARALLEL_FROM:
            yield from map(nouns_of, texts)
            return
        with process_pool(self._workers) as pool:
            yield from pool.map(nouns_of, texts, chunksize=32)

    def _read_cache(self) -> dict[str, list[str]]:
        assert self._cache_file is not None
        if not self._cache_file.exists():
            return {}
        records = iter_records(self._cache_file)
        _, header = next(records)
        if header.get("format") != _CACHE_FORMAT:
            raise InputError(
                "not a valid noun cache: --noun-cache did not write it", path=str(self._cache_file), line=1
            )
        return {record["text"]: record["nouns"] for _, record in records} if header == self._header else {}

    def _write_cache(self, path: Path) -> None:
        with atomic_write(path) as stream:
            stream.write(dump_json(self._header) + b"\n")
            stream.writelines(dump_json({"text": key, "nouns": nouns}) + b"\n" for key, nouns in self._known.items())


def nouns_of(text: str) -> list[str]:
    """Returns the noun lemmas of one text."""
    import nltk

    return [lemma(word) for word, tag in tagger().tag(nltk.word_tokenize(text)) if tag.startswith("NN")]


def _key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
