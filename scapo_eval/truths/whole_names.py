"""Names that denote all objects with a label, as opposed to narrower words.

A vocabulary maps "couch", "couches" and "sofa" to *couch*, but also "man" to *person*. "No man" does not mean that an
image shows no person, so annotations of a narrower word do not complete its label.
"""

from __future__ import annotations

from functools import lru_cache

from ..matching.vocabulary import tokenize_alias

_SYNONYMS = """
airplane, plane, aeroplane; baseball glove, baseball mitt; bicycle, bike; bow tie, bowtie; car, automobile;
cell phone, cellphone, mobile phone, cellular telephone, cellular phone; couch, sofa; donut, doughnut;
frisbee, flying disc; hair drier, hair dryer, hairdryer; handbag, hand bag; hot dog, hotdog; motorcycle, motorbike;
person, human, human being, individual; refrigerator, fridge; remote, remote control; skate park, skatepark;
surfboard, surf board; tie, necktie; toothbrush, tooth brush; trash can, garbage can, trash bin;
tv, television, television set; wine glass, wineglass
"""
_GROUP_OF = {name.strip(): group for group in _SYNONYMS.replace("\n", " ").split(";") for name in group.split(",")}
_IRREGULAR = {
    **{"people": "person", "peoples": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse"},
    **{"geese": "goose", "teeth": "tooth", "feet": "foot", "oxen": "ox", "knives": "knife", "wolves": "wolf"},
    **{"leaves": "leaf", "shelves": "shelf", "loaves": "loaf", "calves": "calf", "scarves": "scarf"},
    **{"bookshelves": "bookshelf", "hooves": "hoof", "movies": "movie", "cookies": "cookie", "pies": "pie"},
}


@lru_cache(maxsize=1 << 16)
def singular(name: str) -> str:
    """Returns a name in lower case, with its last word in the singular, so that "Dogs" and "dog" are equal."""
    try:
        words = [*tokenize_alias(name)]
    except ValueError:  # a name that cannot be an alias
        words = name.split()
    if words:
        words[-1] = _singular_word(words[-1])
    return " ".join(words)


def _singular_word(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("ss", "us", "is")) or not word.endswith("s"):
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")) else word[:-1]


def names_all(name: str, label: str) -> bool:
    """Returns True if a name denotes every object with a label: the label itself, its plural, or a plain synonym.

    Example:
        >>> names_all("sofas", "couch"), names_all("people", "person"), names_all("man", "person")
        (True, True, False)
    """
    name, label = singular(name), singular(label)
    return name == label or (name in _GROUP_OF and _GROUP_OF[name] == _GROUP_OF.get(label))
