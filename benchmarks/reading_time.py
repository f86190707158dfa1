"""Time that a reading adds to the matching of a batch.

    python benchmarks/reading_time.py                                   # synthetic captions, coco80
    python benchmarks/reading_time.py --captions run1.jsonl run2.jsonl  # your own captions

One process matches 1,024 captions per call, by the reading ``all`` and by another one in turn. The first half of the
captions is read 20 times before, as in a training run that has taken some steps. The table shows CPU times for captions
that are read for the first time, and for the same captions when they are read again: the median over the batches, or
over the rounds, of the difference between the two readings per 500 characters, its quartiles, and the ratio of the two.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from statistics import median, quantiles

from sentences import invented_captions

from scapo_eval import AliasMatcher, Vocabulary
from scapo_eval.files.json_text import iter_records

BATCH = 1024


def seconds(matcher: AliasMatcher, texts: Sequence[str]) -> float:
    """Returns the CPU time of one batch."""
    began = time.process_time()
    matcher.find_all(texts)
    return time.process_time() - began


def print_row(name: str, pairs: Sequence[tuple[float, float, int]]) -> None:
    """Prints the differences for pairs of times, each with the number of characters that were read."""
    added = [(reading - base) / characters * 500 * 1e6 for base, reading, characters in pairs]
    ratio = median(reading / base for base, reading, _ in pairs)
    low, _, high = quantiles(added * 2, n=4)  # defined for one value, too
    print(f"| {name} | {median(added):.2f} | {low:.2f} to {high:.2f} | {ratio:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--captions", nargs="+", metavar="FILE", help="JSON Lines with 'caption'; else synthetic")
    parser.add_argument("--vocabulary", default="coco80", metavar="NAME|FILE")
    parser.add_argument("--claims", default="visual", metavar="READING")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=12345)
    options = parser.parse_args()
    vocabulary = Vocabulary.load(options.vocabulary)
    if options.captions:
        captions = [record["caption"] for path in options.captions for _, record in iter_records(path)]
        random.Random(options.seed).shuffle(captions)
    else:
        captions = invented_captions(vocabulary, 20_000, seed=options.seed)
    captions = [*dict.fromkeys(captions)]
    base, reading = AliasMatcher(vocabulary), AliasMatcher(vocabulary, options.claims)
    batches = [captions[k : k + BATCH] for k in range(0, len(captions), BATCH)]
    half = len(batches) // 2
    for batch in batches[:half] * 20:
        base.find_all(batch)
        reading.find_all(batch)

    print(f"{len(captions):,} different captions, `{options.claims}` over `all`, microseconds per 500 characters\n")
    print("| captions | added | quartiles | ratio |\n|---|---:|---:|---:|")
    new = batches[half:]
    print_row("new", [(seconds(base, batch), seconds(reading, batch), sum(map(len, batch))) for batch in new])
    again = [
        (sum(seconds(base, batch) for batch in new), sum(seconds(reading, batch) for batch in new))
        for _ in range(options.rounds)
    ]
    characters = sum(len(text) for batch in new for text in batch)
    print_row("again", [(*pair, characters) for pair in again])


if __name__ == "__main__":
    main()
