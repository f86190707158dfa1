"""Direct transcription of the official AMBER script's loops, with list scans over slots and words.

The code is written by this project and deliberately slow. It is the oracle of the tests and the baseline of the
benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Alike = Callable[[str, str], bool]


def same_word(a: str, b: str) -> bool:
    """Compares two words without vectors."""
    return a == b


def plain_credit(
    nouns: Sequence[str],
    truth: Sequence[str],
    imagined: Sequence[str],
    associations: Mapping[str, Sequence[str]],
    safe: Sequence[str],
    alike: Alike,
) -> tuple[list[str], list[int], list[int], list[int]]:
    """Scores one description like the official loops, with list scans over slots and words.

    Returns:
        The nouns in the closed vocabulary, a flag for each (1 if hallucinated), the covered slots of the ground truth,
        and the mentioned slots of the imagined words.
    """
    vocabulary = [word for key, others in associations.items() for word in (key, *others)]
    mentions = [noun for noun in nouns if noun in vocabulary]
    lookup_true = [(other, slot) for slot, word in enumerate(truth) for other in associations[word]]
    lookup_true += [(word, slot) for slot, word in enumerate(truth)]
    lookup_imagined = [(other, slot) for slot, word in enumerate(imagined) for other in associations[word]]
    lookup_imagined += [(word, slot) for slot, word in enumerate(imagined)]
    flags, cover, cog = [0] * len(mentions), [0] * len(truth), [0] * len(imagined)
    for k, noun in enumerate(mentions):
        if noun in safe:
            continue
        if noun in [word for word, _ in lookup_true]:
            for word, slot in lookup_true:
                if word == noun:
                    cover[slot] = 1
                    break
            continue
        if noun in [word for word, _ in lookup_imagined]:
            for word, slot in lookup_imagined:
                if word == noun:
                    cog[slot] = 1
                    break
        for word, slot in lookup_imagined:
            if alike(noun, word):
                cog[slot] = 1
                break
        supported = False
        for word, slot in lookup_true:
            if alike(noun, word):
                cover[slot] = 1
                supported = True
                break
        if not supported:
            flags[k] = 1
    return mentions, flags, cover, cog


def plain_scores(credits: Sequence[tuple[list[str], list[int], list[int], list[int]]]) -> dict[str, float]:
    """Returns CHAIR, Cover, Hal and Cog in percent, without the official rounding."""
    mentions = sum(len(flags) for _, flags, _, _ in credits)
    return {
        "chair": 100 * sum(sum(flags) for _, flags, _, _ in credits) / mentions,
        "cover": 100 * sum(sum(c) for _, _, c, _ in credits) / sum(len(c) for _, _, c, _ in credits),
        "hal": 100 * sum(any(flags) for _, flags, _, _ in credits) / len(credits),
        "cog": 100 * sum(sum(c) for _, _, _, c in credits) / sum(len(c) for _, _, _, c in credits),
    }


def official_nouns(text: str) -> list[str]:
    """Returns lemmatized nouns from NLTK's tokens and tags, like the official script."""
    import nltk
    from nltk.stem import WordNetLemmatizer

    lemmatizer = WordNetLemmatizer()
    return [lemmatizer.lemmatize(word) for word, tag in nltk.pos_tag(nltk.word_tokenize(text)) if tag.startswith("NN")]
