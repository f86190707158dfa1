"""Learned alternative to the rules of claims.py: a small tagger, measured by leaving one model out.

    python benchmarks/use_tagger.py

The tagger is a logistic regression over the words around a mention (its last word, two words on each side, endings,
capitals, quotation marks, pairs of neighbors). It is trained on the gold set without one model's captions, and measured
on these captions. Only mentions that a shipped vocabulary matches count. The two classes are the mentions that the
reading `visual` omits and those that it counts. The rules are measured on the same mentions. The captions of
LLaVA-NeXT-34B were unread when the rules were first measured (docs/vocabulary.md), and all other values of the rules
are in-sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from matcher_quality import GoldCaption, GoldMention, model_of, overlap, read_gold, read_uses
from numpy.typing import NDArray

from scapo_eval.matching.matcher import AliasMatcher
from scapo_eval.matching.uses import LEFT_OUT
from scapo_eval.matching.vocabulary import Vocabulary

SIZE = 1 << 16
"""Number of weights, to which features are hashed."""


def features(text: str, mention: GoldMention) -> Iterator[str]:
    """Yields the features of one mention."""
    surface = text[mention.start : mention.end]
    before = re.findall(r"[\w']+|[^\w\s]", text[max(0, mention.start - 60) : mention.start].lower())[-4:]
    after = re.findall(r"[\w']+|[^\w\s]", text[mention.end : mention.end + 40].lower())[:3]
    before, after = ["^"] * (4 - len(before)) + before, after + ["$"] * (3 - len(after))
    head = surface.lower().split()[-1]
    yield from (f"head {head}", f"ending {head[-2:]}", f"after {after[0]}", f"after ending {after[0][-3:]}")
    yield from (f"before {before[-1]}", f"before2 {before[-2]}", f"before3 {before[-3]}", f"after2 {after[1]}")
    yield from (f"{head} {after[0]}", f"{before[-1]} {head}", f"{before[-2]} {before[-1]}", f"{after[0]} {after[1]}")
    yield from (
        f"capital {surface[:1].isupper()}",
        f"capitals {surface.isupper()}",
        f"glued {text[mention.end : mention.end + 1]}",
    )
    so_far = text[: mention.start]
    yield f"quotes {so_far.count(chr(34)) % 2 or so_far.count('“') > so_far.count('”')}"


def rows(captions: list[GoldCaption]) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Returns the hashed features of all annotated mentions, and a mask of those that ``visual`` omits."""
    import zlib

    found, out = [], []
    for caption in captions:
        for mention in caption.mentions:
            found.append(np.array([zlib.crc32(f.encode()) % SIZE for f in features(caption.text, mention)]))
            out.append(mention.use in LEFT_OUT["visual"])
    return found, np.array(out)


def train(found: list[NDArray[np.int64]], out: NDArray[np.bool_], epochs: int = 12) -> NDArray[np.float64]:
    """Returns the weights from AdaGrad over shuffled mentions, with L2 regularization and a fixed seed."""
    rng = np.random.default_rng(0)
    weights, squares = np.zeros(SIZE), np.full(SIZE, 1e-8)
    for _ in range(epochs):
        for k in rng.permutation(len(found)):
            at = found[k]
            error = 1 / (1 + np.exp(-weights[at].sum())) - out[k]
            gradient = error + 1e-4 * weights[at]
            squares[at] += gradient**2
            weights[at] -= 0.3 * gradient / np.sqrt(squares[at])
    return weights


def score(read: NDArray[np.bool_], out: NDArray[np.bool_]) -> str:
    """Returns precision, recall and F1 of the omitted mentions, in percent."""
    hit = (read & out).sum()
    precision, recall = hit / max(read.sum(), 1), hit / max(out.sum(), 1)
    return f"{100 * precision:5.1f} {100 * recall:6.1f} {200 * precision * recall / max(precision + recall, 1e-9):5.1f}"


def main() -> None:
    matchers = [AliasMatcher(Vocabulary.load(name)) for name in ("coco80", "dopa160")]
    by_model: dict[str, list[GoldCaption]] = {}
    for caption in read_gold():
        found = [mention for matcher in matchers for mention in matcher.find(caption.text)]
        matched = tuple(m for m in caption.mentions if any(overlap(m, other) > 0 for other in found))
        by_model.setdefault(model_of(caption), []).append(caption._replace(mentions=matched))
    print(f"{'left out, percent':<18}{'tagger: P      R    F1':>26}{'rules: P      R    F1':>26}")
    every: list[list[NDArray[np.bool_]]] = [[], [], []]
    for model, captions in by_model.items():
        weights = train(*rows([caption for other, rest in by_model.items() if other != model for caption in rest]))
        found, out = rows(captions)
        tagged = np.array([weights[at].sum() > 0 for at in found])
        ruled = np.array([use in LEFT_OUT["visual"] for c in captions for use in read_uses(c.text, c.mentions)])
        print(f"{model:<18}{score(tagged, out):>26}{score(ruled, out):>26}")
        for column, values in zip(every, (tagged, ruled, out), strict=True):
            column.append(values)
    tagged, ruled, out = (np.concatenate(column) for column in every)
    print(f"{'all':<18}{score(tagged, out):>26}{score(ruled, out):>26}")


if __name__ == "__main__":
    main()
