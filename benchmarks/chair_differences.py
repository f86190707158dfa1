"""Differences between CHAIR with the project's own vocabulary and the standalone script, with the words that cause
them.

    python benchmarks/chair_differences.py [CAPTIONS.jsonl... --truth TRUTH --synonyms synonyms.txt]

Without arguments, the captions of ../shared are used. The output is Markdown. The mentions of both methods are aligned
caption by caption, first by their words and then by their labels. A difference is a mention that only one method finds,
and is named by its word: for this project as in the caption, for the script in its derived singular. No caption is
printed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

from chair import SHARED, load_captions, shared_synonyms
from chair_plain import PlainChair

from scapo_eval.benchmarks.chair import Native, Reference, Synonyms, score_chair
from scapo_eval.benchmarks.chair.singular import singularize
from scapo_eval.benchmarks.chair.tokens import tokens
from scapo_eval.matching.matcher import AliasMatcher
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.truths.oracle import PresenceOracle

FIGURES = ("chair_s", "chair_i", "recall")
Cause = tuple[str, str]
"""Label and word."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captions", nargs="*", type=Path, default=sorted(SHARED.glob("captions/*.jsonl")))
    parser.add_argument("--truth", type=Path, default=SHARED / "ground_truth.json.gz")
    parser.add_argument("--synonyms", type=Path)
    parser.add_argument("--vocabulary", default="coco80")
    parser.add_argument("--top", type=int, default=10)
    arguments = parser.parse_args()
    oracle = PresenceOracle.load(arguments.truth)
    synonyms = Synonyms.load(arguments.synonyms) if arguments.synonyms else shared_synonyms()
    vocabulary = Vocabulary.load(arguments.vocabulary)

    print(f"| file | {' | '.join(FIGURES)} |\n| --- |{' --- |' * len(FIGURES)}")
    for path in arguments.captions:
        ours, theirs = (
            score_chair(path, profile, oracle).values for profile in (Native(vocabulary), Reference(synonyms))
        )
        cells = [f"{100 * (ours[n] or 0):.1f} ({100 * ((ours[n] or 0) - (theirs[n] or 0)):+.1f})" for n in FIGURES]
        print(f"| {path.name.removesuffix('.jsonl')} | {' | '.join(cells)} |")

    differences(arguments.captions, oracle, synonyms, vocabulary, arguments.top)


def differences(
    paths: list[Path], oracle: PresenceOracle, synonyms: Synonyms, vocabulary: Vocabulary, top: int
) -> None:
    captions = load_captions(paths)
    matcher, script = AliasMatcher(vocabulary), PlainChair(synonyms, {}, tokens)
    ours_only: Counter[Cause] = Counter()
    theirs_only: Counter[Cause] = Counter()
    absent: Counter[Cause] = Counter()
    shared = 0
    for image, caption in zip(captions.image_ids, captions.captions, strict=True):
        ours = [(m.label, " ".join(m.surface.lower().split())) for m in matcher.find(caption)]
        theirs = [(script.node_words[word], word) for word in script.words(caption)[0]]
        extra, missed = unmatched(ours, theirs)
        shared += len(ours) - len(extra)
        ours_only.update(extra)
        theirs_only.update(missed)
        absent.update(cause for cause in (*extra, *missed) if oracle.state(image, cause[0]) == 0)
    total = ours_only + theirs_only
    print(
        f"\n{shared:,} mentions are the same, {ours_only.total():,} only ours, {theirs_only.total():,} only the "
        f"script's; the {top} most frequent causes are {sum(n for _, n in total.most_common(top)):,} of those "
        f"{total.total():,}.\n"
    )
    print("| word | label | only ours | only the script's | of these not in the image |\n" + "| --- " * 5 + "|")
    for (label, word), _ in total.most_common(top):
        cause = (label, word)
        print(f"| {word} | {label} | {ours_only[cause]:,} | {theirs_only[cause]:,} | {absent[cause]:,} |")


def unmatched(ours: list[Cause], theirs: list[Cause]) -> tuple[list[Cause], list[Cause]]:
    """Returns the mentions that are in only one of two lists. Equal words are paired first, followed by equal labels
    between them.
    """
    same_words = SequenceMatcher(None, [(label, singularize(w)) for label, w in ours], theirs, autojunk=False)
    extra: list[Cause] = []
    missed: list[Cause] = []
    for kind, a, b, c, d in same_words.get_opcodes():
        if kind == "equal":
            continue
        left = Counter(label for label, _ in theirs[c:d])
        for cause in ours[a:b]:
            if left[cause[0]]:
                left[cause[0]] -= 1
            else:
                extra.append(cause)
        for cause in reversed(theirs[c:d]):
            if left[cause[0]]:
                left[cause[0]] -= 1
                missed.append(cause)
    return extra, missed


if __name__ == "__main__":
    main()
