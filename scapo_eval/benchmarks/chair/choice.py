"""A profile by its name, with what it needs."""

from __future__ import annotations

from pathlib import Path

from ...base.errors import InputError, check_choice
from ...matching.uses import Reading
from ...matching.vocabulary import Vocabulary
from .opera import Opera
from .profiles import PROFILES, Native, Profile, Reference
from .synonyms import Synonyms

DEFAULT_VOCABULARY = "coco80"


def profile(
    name: str = "native",
    *,
    vocabulary: Vocabulary | str | Path | None = None,
    synonyms: Synonyms | str | Path | None = None,
    claims: Reading = "all",
    workers: int | None = None,
) -> Profile:
    """Returns the profile that reads captions.

    Args:
        name: one of PROFILES.
        vocabulary: of ``native``; None takes coco80.
        synonyms: of ``reference`` and ``opera``: a list in the form of CHAIR's ``synonyms.txt``; None: CHAIR's own.
        claims: which mentions count, for ``native``.
        workers: processes of ``opera``'s tagger; None: one per processor.

    Raises:
        InputError: for an unknown profile, or something that belongs to another profile.
        MissingExtra: if ``opera`` is requested without NLTK.
    """
    check_choice("profile", name, PROFILES)
    if name == "native":
        if synonyms is not None:
            raise InputError("synonyms belong to the profiles 'reference' and 'opera'; 'native' has a vocabulary")
        labels = vocabulary or DEFAULT_VOCABULARY
        return Native(labels if isinstance(labels, Vocabulary) else Vocabulary.load(labels), claims)
    if vocabulary is not None:
        raise InputError(f"a vocabulary belongs to the profile 'native'; '{name}' has synonyms")
    if claims != "all":
        raise InputError(f"claims belong to the profile 'native'; '{name}' counts every mention")
    if synonyms is None:
        synonyms = Synonyms.shipped()
    words = synonyms if isinstance(synonyms, Synonyms) else Synonyms.load(synonyms)
    return Reference(words) if name == "reference" else Opera(words, workers)
