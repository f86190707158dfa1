"""The closed-vocabulary noun finder: forms, borders of words, and what is read as another part of speech."""

from __future__ import annotations

import pytest

from scapo_eval.benchmarks.amber.nouns import NounFinder, noun_forms

WORDS = (
    "air-conditioning bookshelf box brush bus can chopsticks couch drawing glass hot knife laptop leave man painting "
    "person sand sheep sky table tie toy tree TV vase watch wine woman"
).split()


@pytest.fixture(scope="module")
def finder() -> NounFinder:
    return NounFinder(WORDS)


def test_forms() -> None:
    forms = noun_forms(WORDS)
    plurals = "bookshelves boxes brushes buses glasses knives skies toys women trees".split()
    words = "bookshelf box brush bus glass knife sky toy woman tree".split()
    assert [forms[plural] for plural in plurals] == words
    assert all(forms[word] == word for word in WORDS if word != "chopsticks")
    # WordNet: "men" is a word, "vases" becomes "vas", "leaves" becomes "leaf", "TVs" is unknown
    assert forms.keys().isdisjoint({"men", "mans", "vases", "leaves", "TVs", "chopsticks", "hots"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A woman and two women at a table.", ["woman", "woman", "table"]),
        ('the woman\'s tables, (trees) and "skies"; boxes!', ["woman", "table", "tree", "sky", "box"]),
        ("Trees. TABLE. A TV and air-conditioning", ["TV", "air-conditioning"]),
        ("a tree-lined, carpet-sand table/box and table_box", []),
        ("table.The tree", ["tree"]),
        ("a bird's-eye table's-eye view", []),
        ("**table** *tree* 'sand' ‘sky’ “box”", ["table", "tree", "sand", "sky", "box"]),
        ("table, tree,sand:box... glass--toy", ["table", "tree", "sand", "box", "glass", "toy"]),
        ("table,3 tables", ["table"]),
        ("", []),
        ("\x00 table \ud800 \n\n tree", ["table", "tree"]),
    ],
)
def test_borders(finder: NounFinder, text: str, words: list[str]) -> None:
    assert finder.find(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("People can watch the hot wine tasting", []),
        ("a watch on his wrist", ["watch"]),
        ("they table the toy", ["toy"]),
        ("he brushes the table", ["table"]),
        ("the brushes on the table", ["brush", "table"]),
        ("a laptop computer", []),
        ("the laptop is open", ["laptop"]),
        ("the sheep appears to rest", []),
        ("the sheep in the sand", ["sheep", "sand"]),
        ("a tree branch", []),
        ("the box, drawing attention", ["box"]),
        ("a drawing of a box", ["drawing", "box"]),
        ("a woman painting, and the painting", ["woman", "painting"]),
    ],
)
def test_parts_of_speech(finder: NounFinder, text: str, words: list[str]) -> None:
    assert finder.find(text) == words


def test_one_finder_for_many_answers(finder: NounFinder) -> None:
    once = [finder.find("a table. (tree)") for _ in range(2)]
    assert once == [["table", "tree"]] * 2
