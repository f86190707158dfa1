"""Singular forms as in the reference CHAIR script, including the errors of ``singularize`` from pattern.en 3.6, which
the script uses.

The rules are the project's own description of the behavior of ``singularize``. Words that follow the regular rules are
not listed, so each list of exceptions is as short as possible and still gives the same result for every lower-case
word. Published values depend on the errors: ``bus`` -> ``bu`` (a caption with "a bus" therefore mentions no bus),
``glass`` -> ``glas``, ``ties`` -> ``ty``, ``canoes`` -> ``cano``, ``hour`` -> ``hmy``.
"""

from __future__ import annotations

import re

UNCHANGED = (
    "breeches", "britches", "chassis", "christmas", "clippers", "contretemps", "corps", "debris", "diabetes",
    "gallows", "georgia", "graffiti", "happiness", "headquarters", "herpes", "high-jinks", "innings", "jackanapes",
    "mathematics", "measles", "mews", "mumps", "news", "pincers", "pliers", "proceedings", "progress", "rabies",
    "scissors", "series", "shears", "species", "swiss",
)  # fmt: skip
"""Unchanged words. Every ending of such a word is also unchanged, for example ``ears`` because of ``shears``."""

PLURALS_IN_IES = (
    "alergies", "aunties", "beanies", "birdies", "bogies", "bombies", "collies", "cookies", "cuties", "doggies",
    "eyries", "freebies", "goonies", "groupies", "hankies", "hippies", "hoagies", "hotties", "indies", "junkies",
    "laddies", "laramies", "lingeries", "meanies", "newbies", "nighties", "oldies", "pixies", "quickies",
    "reveries", "rookies", "softies", "sorties", "stoolies", "sweeties", "techies", "toughies", "valkyries",
    "veggies", "weenies", "yuppies", "zombies",
)  # fmt: skip
"""Words in -ie that are returned in the plural. ``cookies`` remains unchanged and therefore never matches
``cookie``.
"""

IRREGULAR = {
    "atlantes": "atlas", "atlases": "atlas", "axes": "axe", "beeves": "beef", "brethren": "brother",
    "children": "child", "corpora": "corpus", "corpuses": "corpus", "ephemerides": "ephemeris", "feet": "foot",
    "ganglia": "ganglion", "geese": "goose", "genera": "genus", "genii": "genie", "graffiti": "graffito",
    "helves": "helve", "kine": "cow", "loaves": "loaf", "men": "man", "monies": "money", "mythoi": "mythos",
    "numena": "numen", "occipita": "occiput", "octopodes": "octopus", "opera": "opus", "opuses": "opus",
    "our": "my", "oxen": "ox", "penes": "penis", "penises": "penis", "people": "person", "teeth": "tooth",
    "zoa": "zoon",
}  # fmt: skip
"""Irregular endings (not only whole words) and their replacements, as in ``women``, ``grandchildren`` and, wrongly,
``hour``.
"""

PREPOSITIONS = frozenset((
    "about", "above", "across", "after", "among", "around", "at", "athwart", "before", "behind", "below", "beneath",
    "beside", "besides", "between", "betwixt", "beyond", "but", "by", "during", "except", "for", "from", "in",
    "into", "near", "of", "off", "on", "onto", "out", "over", "since", "till", "to", "under", "until", "unto",
    "upon", "with",
))  # fmt: skip
"""Prepositions. After a hyphen, they mark the preceding noun for conversion: ``passers-by`` -> ``passer-by``."""

ENDINGS: tuple[tuple[str, int, str], ...] = (
    # the first pattern that matches the end applies: (pattern, number of removed letters, added letters)
    (".ae", 1, ""),
    (".itis", 0, ""),
    (".eaux", 1, ""),
    ("quizzes", 3, ""),
    ("matrices", 4, "ix"),
    ("(?:ap|vert|ind)ices", 4, "ex"),
    ("[ciotprv|]i", 1, "us"),
    ("crises|testes", 2, "is"),
    ("shoes|.ombies|movies", 1, ""),
    ("(?:alias|status|bus|o|x|ch|ss|sh)es", 2, ""),
    ("[lm|]ice", 3, "ouse"),
    ("series|news", 0, ""),
    ("(?:[^aeiouy]|qu)ies", 3, "y"),
    ("erves", 1, ""),
    ("[lr]ves|[^d]eaves", 3, "f"),
    ("[aeo]ves|[hst]ives", 1, ""),
    ("[^f]ves", 3, "fe"),
    (".analyses", 3, "asis"),
    ("(?:ba|diagno|parenthe|progno|the)ses|.(?:op|y)ses", 2, "is"),
    ("(?:[bdhnopr]|cl)oses", 1, ""),
    (".oses", 2, "is"),
    ("[ti]a", 1, "um"),
    ("s", 1, ""),
)

_UNCHANGED_TAILS = frozenset(word[k:] for word in UNCHANGED for k in range(len(word)))
_IRREGULAR = tuple(IRREGULAR)
_ENDINGS = [(re.compile(f"(?:{ending})$"), cut, add) for ending, cut, add in ENDINGS]


def singularize(word: str) -> str:
    """Returns the singular of a lower-case word as pattern.en 3.6 returns it, including wrong results.

    Args:
        word: Lower-case token of a caption. Words that are not plurals are usually returned unchanged.
    """
    noun, hyphen, rest = word.partition("-")
    if hyphen and rest.partition("-")[0] in PREPOSITIONS:
        return f"{singularize(noun)}-{rest}"
    if word.endswith("'"):
        return singularize(word[:-1]) + "'s"
    if word in _UNCHANGED_TAILS or word.endswith(PLURALS_IN_IES):
        return word
    if word.endswith(_IRREGULAR):
        plural = next(ending for ending in IRREGULAR if word.endswith(ending))
        return word.removesuffix(plural) + IRREGULAR[plural]
    if word.startswith("oxen"):
        return "ox" + word[4:]
    for ending, cut, add in _ENDINGS:
        if ending.search(word):
            return word[: len(word) - cut] + add
    return word
