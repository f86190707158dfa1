"""Noun finder of the official AMBER script. The finder uses NLTK's tokens and tags, and WordNet's lemmas.

Tagging takes nearly all of the time in ``--mode parity``. Equal texts are therefore tagged only once. Large runs use
several processes, and the nouns can be cached in a file between runs.
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
"""Minimum number of texts for which starting processes saves time."""

_CACHE_FORMAT = "scapo-amber-nouns/1"


class Tagger(Protocol):
    """Interface of objects that find all nouns in answers. The signature of a run contains the tagger's ``version``."""

    version: str

    def find_batch(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> list[list[str]]:
        """Returns the noun lemmas of every text in order of occurrence, including repetitions."""
        ...


class NltkNouns:
    """Noun finder that uses NLTK and tags each distinct text once.

    Args:
        workers: Number of tagging processes, or None for one per processor.
        cache_file: JSON Lines file that caches nouns between runs. The file is created if it is missing, and discarded
            if the version of NLTK has changed.

    Raises:
        MissingExtra: If NLTK is not installed.
        InputError: If the cache file has a different format.
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
        """Returns the noun lemmas of every text in order of occurrence, including repetitions.

        Args:
            texts: Answers to tag.
            on_progress: Callback that receives the number of characters in each tagged text.

        Raises:
            InputError: If NLTK's data are missing.
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
            nouns_of("two dogs")  # loads the models before forking, and reports missing data
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
