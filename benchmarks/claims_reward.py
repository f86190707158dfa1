"""Time of the reward with claims beyond presence, compared with the reward of presence alone, for 1,024 responses.

    python benchmarks/claims_reward.py                                     # invented captions
    python benchmarks/claims_reward.py --captions a.jsonl b.jsonl          # real captions, as JSON Lines

The captions of half of the images are read first, as earlier steps of a run would be. The timed responses are those of
the other half: once as texts that were never read ("new"), then again ("again"), and also with rules that remember
nothing at all ("first"). Scenes are invented. Times are CPU times, and a ratio is the median of rounds in each of which
both rewards are timed. The exit code is 1 if a ratio for all kinds misses its limit.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import zlib
from collections.abc import Sequence
from statistics import median

from sentences import invented_captions

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary
from scapo_eval.base.ids import canonical_image_id
from scapo_eval.claiming.claim import KINDS, ClaimKind
from scapo_eval.claiming.rules import MEMORY
from scapo_eval.files.json_text import iter_records
from scapo_eval.files.records import Records
from scapo_eval.truths.scenes import Scenes

RESPONSES = 1024
LIMIT = 3.0
COLORS = ("red", "white", "black", "brown", "green", "wooden", "large", "standing")
CASES: dict[str, tuple[ClaimKind, ...]] = {
    "count": ("count",),
    "attribute": ("attribute",),
    "relation": ("relation",),
    "text": ("text",),
    "all": KINDS[1:],
}


def invented_scenes(images: Sequence[str], vocabulary: Vocabulary) -> Scenes:
    """Returns scenes with 3 to 12 random objects each."""
    rng = random.Random(3)
    records = []
    for image in images:
        objects = [
            {
                "name": rng.choice(vocabulary.labels),
                "attributes": [rng.choice(COLORS)],
                "box": [rng.randrange(500), rng.randrange(350), 100, 100],
            }
            for _ in range(rng.randrange(3, 13))
        ]
        relations = [{"subject": 0, "predicate": "on", "object": 1}]
        complete = [*vocabulary.labels]
        record = {"image_id": image, "width": 640, "height": 480, "objects": objects, "relations": relations}
        records.append({**record, "complete": complete})
    return Scenes.load(Records("invented", records), vocabulary)


def batches(rows: Sequence[tuple[str, str]]) -> list[tuple[list[str], list[str]]]:
    """Returns image ids and captions in batches."""
    parts = [rows[k : k + RESPONSES] for k in range(0, len(rows), RESPONSES)]
    return [([image for image, _ in part], [text for _, text in part]) for part in parts]


def seconds(reward: SubsentenceReward, ids: Sequence[str], texts: Sequence[str]) -> float:
    """Returns the CPU seconds of the rewards of a batch."""
    began = time.process_time()
    reward.batch(ids, texts)
    return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--captions", nargs="+", metavar="FILE", help="JSON Lines with image_id and caption")
    parser.add_argument("--vocabulary", default="coco80", metavar="NAME|FILE")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--group", type=int, default=1, metavar="N", help="time the first 1,024 / N captions N times")
    options = parser.parse_args()

    vocabulary = Vocabulary.load(options.vocabulary)
    if options.captions:
        records = [record for path in options.captions for _, record in iter_records(path)]
        rows = list({(canonical_image_id(record["image_id"]), str(record["caption"])): None for record in records})
    else:
        rows = [(str(k // 4), text) for k, text in enumerate(invented_captions(vocabulary, 8 * RESPONSES, seed=1))]
    random.Random(5).shuffle(rows)
    earlier = [row for row in rows if zlib.crc32(row[0].encode()) % 2]
    timed = [row for row in rows if not zlib.crc32(row[0].encode()) % 2][: RESPONSES // options.group]
    (ids, texts), *_ = batches(timed * options.group)

    scenes = invented_scenes(sorted({image for image, _ in rows}), vocabulary)
    objects = {image: [thing.label for thing in scene.things] for image, scene in scenes.scenes.items()}
    oracle = PresenceOracle.from_objects(objects, labels=vocabulary.labels)
    plain = SubsentenceReward(vocabulary, oracle)
    mean = sum(map(len, texts)) / len(texts)
    print(
        f"{len(texts):,} responses of {mean:.0f} characters, {len(earlier):,} captions read before; {vocabulary.name}\n"
    )
    print("| kinds | presence, ms | first | new | again | ratio: first | new | again |\n|---|" + "---:|" * 7)
    worst = 0.0
    for name, kinds in CASES.items():
        config = RewardConfig(kinds=("presence", *kinds), scenes=(scenes,))
        times: list[tuple[float, ...]] = []
        for _ in range(options.rounds):
            reward = SubsentenceReward(vocabulary, oracle, config)  # without the verdicts of the round before
            MEMORY.forget()
            first = seconds(reward, ids, texts)
            reward = SubsentenceReward(vocabulary, oracle, config)
            MEMORY.forget()
            for batch in batches(earlier):
                reward.batch(*batch)
            before = seconds(plain, ids, texts)
            new = seconds(reward, ids, texts)
            between = seconds(plain, ids, texts)
            again = seconds(reward, ids, texts)
            presence = median((before, between, seconds(plain, ids, texts)))
            times.append((presence, first, new, again))
        ms = [1e3 * median(column) for column in zip(*times, strict=True)]
        ratios = [median(row[k] / row[0] for row in times) for k in (1, 2, 3)]
        worst = max(worst, ratios[1]) if name == "all" else worst
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in ms)} | {' | '.join(f'{r:.1f}' for r in ratios)} |")
    print(f"\nall kinds, new texts: {worst:.1f} times (limit {LIMIT:g}): {'reached' if worst <= LIMIT else 'MISSED'}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
