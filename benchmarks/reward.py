"""Cost of SCAPO's reward in a training step: 1,024 responses of about 120 tokens, with and without token advantages.

    python benchmarks/reward.py                          # synthetic responses, coco80
    python benchmarks/reward.py --captions captions.jsonl --truth truth.jsonl

The baselines do the same work (labels of every subsentence, Eq. 1) in pure Python, with CHAIR's method of finding words
and with spaCy's PhraseMatcher. They receive the subsentences as input. Times are CPU times of one process, as the best
of interleaved rounds. The token rows use a byte-level tokenizer that was trained on the responses (requires
``transformers``). The last table shows the segmentation time per character for samples of a collapsing policy, compared
with the responses. The exit code is 1 if a required value is missed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from chair_plain import PlainChair
from matching import NotInstalled, spacy_phrase_matcher
from sentences import invented_captions, invented_truth

from scapo_eval import AliasMatcher, PresenceOracle, SubsentenceReward, Vocabulary
from scapo_eval.base.types import Rule
from scapo_eval.benchmarks.chair import Synonyms
from scapo_eval.files.json_text import iter_records
from scapo_eval.rewarding.batch import advantages_for_batch
from scapo_eval.rewarding.tokens import decode_batch, token_offsets
from scapo_eval.segmenting.segment_batch import split_batch

RESPONSES = 1024
WORDS = 90  # 120 tokens of a large vocabulary
STEP = 20.0  # seconds of a training step that the share refers to

COLLAPSED = {
    "!": "!" * 4096,
    "--": "--" * 2048,
    "line ends": "\n" * 4096,
    "a dog, a cat,": "a dog, a cat, " * 2048,
    "a\u2014b": "a\u2014b" * 1365,
    "ab.Cd": "ab.Cd" * 819,
    "1.": "1. " * 1365,
}

Work = Callable[[], object]
Labels = Callable[[Sequence[str], Sequence[Sequence[str]]], list[list[set[str]]]]
"""Function from responses and their pieces to the labels of each piece."""


def best(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Returns the CPU seconds of each workload, as the best of interleaved rounds."""
    seconds = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            began = time.process_time()
            work()
            seconds[name] = min(seconds[name], time.process_time() - began)
    return seconds


def segmentation(
    matcher: AliasMatcher, texts: Sequence[str], rule: Rule, rounds: int
) -> dict[str, tuple[float, float]]:
    """Returns the nanoseconds per character for the responses and for each collapsed text, individually and in a
    batch.
    """
    kinds = {RESPONSES_ROW: list(texts)} | {
        name: [text] * max(2, sum(map(len, texts)) // len(text)) for name, text in COLLAPSED.items()
    }
    works: dict[str, Work] = {}
    sizes: dict[str, int] = {}
    for name, batch in kinds.items():
        few = batch[:64] if name == RESPONSES_ROW else batch[:1]
        alone, columns = [([text], matcher.find_batch([text])) for text in few], matcher.find_batch(batch)
        works[name] = lambda alone=alone: [split_batch(text, rule, found) for text, found in alone]
        works[name + BATCH] = lambda batch=batch, columns=columns: split_batch(batch, rule, columns)
        sizes |= {name: sum(map(len, few)), name + BATCH: sum(map(len, batch))}
    seconds = best(works, rounds)
    each = {name: 1e9 * value / sizes[name] for name, value in seconds.items()}
    return {name: (each[name], each[name + BATCH]) for name in kinds}


def plain_rewards(
    labels: Labels, texts: Sequence[str], pieces: Sequence[Sequence[str]], present: Sequence[frozenset[str]]
) -> list[list[float]]:
    """Computes Eq. 1 with loops, from the labels of each piece."""
    rewards = []
    for claimed, truth in zip(labels(texts, pieces), present, strict=True):
        seen: set[str] = set()
        row = []
        for claims in claimed:
            supported = {label for label in claims if label in truth}
            new = supported - seen
            seen |= supported
            row.append(-1.0 if claims - supported else -0.1 if not claims else float(bool(new)))
        rewards.append(row)
    return rewards


def chair_labels(vocabulary: Vocabulary) -> Labels:
    """Returns the labels by CHAIR's word lists, searched word by word."""
    synonyms = Synonyms("vocabulary", {alias.lower(): label for alias, label in vocabulary.aliases.items()})
    chair = PlainChair(synonyms, {}, re.compile(r"[\w'-]+").findall)
    return lambda texts, pieces: [[set(chair.objects(piece)[0]) for piece in row] for row in pieces]


def spacy_labels(vocabulary: Vocabulary) -> Labels:
    """Returns the labels by spaCy's spans in whole responses, which are assigned to the pieces."""
    (method,) = spacy_phrase_matcher(vocabulary)
    assert method.find is not None
    find = method.find

    def labels(texts: Sequence[str], pieces: Sequence[Sequence[str]]) -> list[list[set[str]]]:
        out = []
        for found, row in zip(find(texts), pieces, strict=True):
            ends = np.cumsum([len(piece) for piece in row])
            claimed: list[set[str]] = [set() for _ in row]
            for start, _, label in found:
                claimed[int(np.searchsorted(ends, start, side="right"))].add(label)
            out.append(claimed)
        return out

    return labels


def tokenizer_of(texts: Sequence[str]) -> Any:
    """Returns a byte-level tokenizer like Qwen's, with 8,000 tokens."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        raise NotInstalled("pip install transformers") from None
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=8000, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=special[0], pad_token=special[1])


def of_length(texts: Sequence[str], words: int) -> list[str]:
    """Concatenates or truncates texts at word borders, so that each text has about ``words`` words."""
    pool = " ".join(texts).split(" ")
    return [" ".join(pool[k * words : (k + 1) * words]) for k in range(len(pool) // words)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--captions", metavar="FILE", help="JSON Lines with image_id and caption; else invented")
    parser.add_argument("--truth", metavar="FILE", help="what is in their images")
    parser.add_argument("--vocabulary", default="coco80", metavar="NAME|FILE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--plain", type=int, default=64, help="responses that the CHAIR-style loop gets, scaled up")
    options = parser.parse_args()

    vocabulary = Vocabulary.load(options.vocabulary)
    if options.captions:
        records = [record for _, record in iter_records(options.captions)]
        records = (records * (RESPONSES // len(records) + 1))[:RESPONSES]
        ids, texts = [record["image_id"] for record in records], [record["caption"] for record in records]
        oracle = PresenceOracle.load(options.truth)
    else:
        texts = of_length(invented_captions(vocabulary, 4 * RESPONSES, seed=1), WORDS)[:RESPONSES]
        images = invented_truth(vocabulary, 128, seed=1)
        ids = [str(k // 8 + 1) for k in range(RESPONSES)]
        oracle = PresenceOracle.from_objects(images, labels=vocabulary.labels)
    reward = SubsentenceReward(vocabulary, oracle)

    mentions = reward.matcher.find_batch(texts)
    spans = split_batch(texts, "subsentence", mentions)
    columns = reward.batch(ids, texts)
    works: dict[str, Work] = {
        "matching alone": lambda: reward.matcher.find_batch(texts),
        "segmentation alone": lambda: split_batch(texts, "subsentence", mentions),
        COLUMNS: lambda: reward.batch(ids, texts),
        RESULTS: lambda: reward(ids, texts),
        ONE: lambda: [reward([image], [text]) for image, text in zip(ids[:50], texts[:50], strict=True)],
    }
    notes = []
    tokens = "no tokenizer"
    try:
        tokenizer = tokenizer_of(texts)
    except NotInstalled as missing:
        notes.append(f"token advantages: {missing}")
    else:
        sequences = [np.array([*tokenizer.encode(text), 0]) for text in texts]
        tokens = f"{np.mean([len(ids) for ids in sequences]):.0f} tokens"
        padded = np.full((RESPONSES, max(map(len, sequences))), tokenizer.pad_token_id)
        for row, sequence in zip(padded, sequences, strict=True):
            row[: len(sequence)] = sequence

        def one_by_one() -> list[Any]:
            offsets = [token_offsets(tokenizer, sequence) for sequence in sequences]
            return [r.token_advantages(o) for r, o in zip(reward(ids, texts), offsets, strict=True)]

        works["ids to text and spans alone"] = lambda: decode_batch(tokenizer, sequences)
        works[TOKENS] = lambda: advantages_for_batch(ids, padded, tokenizer, reward)
        works["... the same, response by response"] = one_by_one

    present = [oracle.present(image) for image in ids]
    pieces = [
        [text[a:b] for a, b in zip(spans.start[low:high].tolist(), spans.end[low:high].tolist(), strict=True)]
        for text, (low, high) in zip(texts, pairwise(spans.indptr.tolist()), strict=True)
    ]
    few = slice(0, options.plain)
    plain = chair_labels(vocabulary)
    baselines: dict[str, Work] = {CHAIR: lambda: plain_rewards(plain, texts[few], pieces[few], present[few])}
    try:
        phrases = spacy_labels(vocabulary)
        baselines[SPACY] = lambda: plain_rewards(phrases, texts, pieces, present)
        ours = [result.parts for result in columns.results()]
        theirs = plain_rewards(phrases, texts, pieces, present)
        same = sum([p.reward for p in a] == b for a, b in zip(ours, theirs, strict=True))
        notes.append(f"{SPACY}: {same:,} of {RESPONSES:,} responses get the same rewards")
    except NotInstalled as missing:
        notes.append(f"{SPACY}: {missing}")

    if SPACY in baselines and TOKENS in works:

        def encoded_again() -> list[list[float]]:
            rewards = plain_rewards(phrases, texts, pieces, present)
            spans = tokenizer(texts, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
            found = []
            for row, own, tokens in zip(rewards, pieces, spans, strict=True):
                ends = list(accumulate(map(len, own)))
                found.append([row[bisect_right(ends, end - 1)] for _, end in tokens])
            return found

        baselines[SPACY_TOKENS] = encoded_again

    for work in works.values():
        work()
    seconds = best(works, options.rounds) | best(baselines, 3)
    seconds[ONE] /= 50
    seconds[CHAIR] *= RESPONSES / options.plain

    words = sum(len(text.split()) for text in texts) / RESPONSES
    print(
        f"{RESPONSES:,} responses, {words:.0f} words and {tokens} each, {len(columns.reward) / RESPONSES:.1f} pieces; "
        f"{vocabulary.name}; best of {options.rounds} interleaved rounds, CPU time\n"
    )
    print(f"| work | ms | us a response | share of a {STEP:.0f} s step |\n|---|---:|---:|---:|")
    for name, value in seconds.items():
        each = 1 if name == ONE else RESPONSES
        share = "-" if name == ONE else f"{100 * value / STEP:.3f} %"
        print(f"| {name} | {1e3 * value:,.2f} | {1e6 * value / each:,.1f} | {share} |")
    for note in notes:
        print(f"\n{note}")
    worst = 0.0
    in_batch: dict[Rule, float] = {}
    print("\n| segmentation, ns a character | rule | one text | x responses | in a batch | x responses |")
    print("|---|---|---:|---:|---:|---:|")
    for rule in RULES_ROWS:
        each_character = segmentation(reward.matcher, texts, rule, options.rounds)
        usual = each_character[RESPONSES_ROW]
        in_batch[rule] = usual[1]
        for name, (one, many) in each_character.items():
            worst = max(worst, one / usual[0], many / usual[1])
            print(f"| {name} | `{rule}` | {one:.1f} | {one / usual[0]:.2f} | {many:.1f} | {many / usual[1]:.2f} |")
    print()
    limits = [
        ("1,024 responses", 1e3 * seconds[RESULTS], 10.0, " ms"),
        ("one response", 1e3 * seconds[ONE], 0.4, " ms"),
        ("segmentation of collapsed text beside responses", worst, 3.0, "x"),
        ("rule discourse beside subsentence, in a batch", in_batch["discourse"] / in_batch["subsentence"], 2.5, "x"),
        ("CHAIR-style, times slower (at least)", -seconds[CHAIR] / seconds[RESULTS], -100.0, "x"),
    ]
    if TOKENS in seconds:
        limits.insert(1, ("1,024 responses with token advantages", 1e3 * seconds[TOKENS], 25.0, " ms"))
    if SPACY_TOKENS in seconds:
        ratio = -seconds[SPACY_TOKENS] / seconds[TOKENS]
        limits.append(("spaCy and encoding again, times slower (at least)", ratio, -10.0, "x"))
    for name, value, limit, unit in limits:
        print(
            f"{name}: {abs(value):,.3g}{unit} (limit {abs(limit):g}{unit}): {'reached' if value <= limit else 'MISSED'}"
        )
    return 0 if all(value <= limit for _, value, limit, _ in limits) else 1


RULES_ROWS: tuple[Rule, ...] = ("subsentence", "discourse")
RESPONSES_ROW = "responses"
BATCH = ", in a batch"
COLUMNS = "rewards as columns (matching, segmentation, Eq. 1)"
RESULTS = "rewards as readable results"
ONE = "one response alone"
TOKENS = "padded ids to token advantages, all in all"
CHAIR = "CHAIR-style word lists, plain Python"
SPACY = "spaCy PhraseMatcher, plain Python"
SPACY_TOKENS = "the same, and the responses encoded again for spans of tokens"


if __name__ == "__main__":
    sys.exit(main())
