"""Names that denote all objects with a label, as opposed to narrower words.

A vocabulary maps "couch", "couches" and "sofa" to *couch*, but also "man" to *person*. "No man" does not mean that an
image shows no person, so annotations of a narrower word do not complete its label.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from ..files.yaml_text import load_yaml
from ..matching.vocabulary import tokenize_alias

_FILE = Path(__file__).with_name("whole_names.yaml")


@cache
def _words() -> tuple[dict[str, int], dict[str, str]]:
    """Returns a mapping from each synonym to the number of its group, and a mapping from irregular plurals."""
    document = load_yaml(_FILE.read_bytes(), str(_FILE))
    groups = {name: k for k, names in enumerate(document["synonyms"]) for name in names}
    return groups, document["plurals"]


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
    irregular = _words()[1]
    if word in irregular:
        return irregular[word]
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
    groups = _words()[0]
    return name == label or (name in groups and groups[name] == groups.get(label))
