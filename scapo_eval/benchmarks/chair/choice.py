"""Functions that create a profile from its name and settings."""

from __future__ import annotations

from pathlib import Path

from ...base.errors import InputError, check_choice
from ...matching.uses import Reading
from ...matching.vocabulary import Vocabulary, VocabularyGiven
from .opera import Opera
from .profiles import PROFILES, Native, Profile, Reference
from .synonyms import Synonyms

DEFAULT_VOCABULARY = "coco80"


def profile(
    name: str = "native",
    *,
    vocabulary: VocabularyGiven | None = None,
    synonyms: Synonyms | str | Path | None = None,
    claims: Reading = "all",
    workers: int | None = None,
) -> Profile:
    """Returns a profile that reads captions.

    Args:
        name: Name of the profile, one of PROFILES.
        vocabulary: Vocabulary of the profile ``native``. None selects coco80.
        synonyms: File with the words for ``reference`` and ``opera``, in the format of CHAIR's ``synonyms.txt``, or
            None for CHAIR's own words.
        claims: Reading, which selects the mentions to count with the profile ``native``.
        workers: Number of tagging processes for ``opera``, or None for one per processor.

    Raises:
        InputError: If the profile is unknown, or a setting does not apply to the profile.
        MissingExtra: If ``opera`` is requested and NLTK is not installed.
    """
    check_choice("profile", name, PROFILES)
    if name == "native":
        if synonyms is not None:
            raise InputError("synonyms require the profile 'reference' or 'opera'; 'native' uses a vocabulary")
        return Native(Vocabulary.of(DEFAULT_VOCABULARY if vocabulary is None else vocabulary), claims)
    if vocabulary is not None:
        raise InputError(f"a vocabulary requires the profile 'native'; '{name}' uses synonyms")
    if claims != "all":
        raise InputError(f"claims require the profile 'native'; '{name}' counts every mention")
    if synonyms is None:
        synonyms = Synonyms.shipped()
    words = synonyms if isinstance(synonyms, Synonyms) else Synonyms.load(synonyms)
    return Reference(words) if name == "reference" else Opera(words, workers)
