"""Throughput from a caption file to scores with intervals: captions per second and core, and memory.

    python benchmarks/pipeline.py                                                # synthetic captions and ground truth
    python benchmarks/pipeline.py --captions run.jsonl --truth truth.json.gz     # your own captions and images

The benchmark writes a file with a million captions into a temporary folder. The given captions are repeated with
rotating image ids, so the scores have no meaning. The file is scored with one and with two processes, each time in a
new interpreter that loads vocabulary and ground truth and computes the intervals, and is then removed. The throughput
per core is the number of captions divided by the CPU time of all processes. The memory is the largest resident set of a
process. Then the bootstrap is measured separately, with 1,000 resamples over 5,000 images. The exit code is 1 if a
required value is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from sentences import invented_captions, invented_truth

from scapo_eval import PresenceOracle, Vocabulary
from scapo_eval.benchmarks.capscore import capscore_metrics, score_file
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.files.json_text import dump_json, iter_records
from scapo_eval.results.counts import CountTable
from scapo_eval.results.stats import bootstrap, paired_differences

IMAGES = 5000
PER_CORE = 120_000
MEMORY = 250
BOOTSTRAP = 0.5


def write_captions(path: Path, captions: list[str], image_ids: tuple[str, ...], count: int) -> None:
    """Writes ``count`` records. Captions and images rotate independently."""
    lines = zip(islice(cycle(captions), count), cycle(image_ids), strict=False)
    with path.open("wb") as stream:
        for caption, image in lines:
            stream.write(dump_json({"image_id": image, "caption": caption}) + b"\n")


def score_once(path: str, truth: str, vocabulary: str, workers: int) -> dict[str, float]:
    """Scores the file in this process, and returns the costs."""
    began = time.perf_counter()
    options = ScoringOptions(workers=workers)
    scores = score_file(path, Vocabulary.load(vocabulary), PresenceOracle.load(truth), options)
    assert scores.metrics["cap_score"].low is not None
    wall = time.perf_counter() - began
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    to_mib = 1 / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return {
        "captions": scores.n_records,
        "wall": wall,
        "cpu": sum(part.ru_utime + part.ru_stime for part in parts),
        "parent": parts[0].ru_maxrss * to_mib,
        "worker": parts[1].ru_maxrss * to_mib,
    }


def bootstrap_seconds() -> tuple[float, float]:
    """Returns the CPU seconds for the intervals of one system, and for the paired comparison of two systems, as the
    best of five.
    """
    rng = np.random.default_rng(0)
    metric = capscore_metrics()
    ids = tuple(map(str, range(IMAGES)))
    # rows of independent counts: hardly two are equal, which is the slow case of the bootstrap
    tables = [CountTable(metric.columns, ids, rng.integers(0, 20, (IMAGES, len(metric.columns)))) for _ in range(2)]
    times: list[tuple[float, float]] = []
    for _ in range(5):
        began = time.process_time()
        bootstrap(tables[0], metric)
        middle = time.process_time()
        paired_differences(tables[0], tables[1], metric)
        times.append((middle - began, time.process_time() - middle))
    return min(t[0] for t in times), min(t[1] for t in times)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--captions", nargs="+", metavar="FILE", help="JSON Lines with 'caption'; else invented")
    parser.add_argument("--truth", metavar="FILE", help="whose images go round; else invented")
    parser.add_argument("--vocabulary", default="coco80", metavar="NAME|FILE")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, of which the best counts")
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--once", nargs=2, metavar=("CAPTIONS", "WORKERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        path, workers = options.once
        print(json.dumps(score_once(path, options.truth, options.vocabulary, int(workers))))
        return 0

    vocabulary = Vocabulary.load(options.vocabulary)
    if options.captions:
        captions = [record["caption"] for path in options.captions for _, record in iter_records(path)]
    else:
        captions = invented_captions(vocabulary, 20_000, seed=options.seed)
    reached = []
    with tempfile.TemporaryDirectory(prefix="scapo-benchmark-") as folder:
        truth = options.truth
        if truth is None:
            truth = str(Path(folder) / "truth.json")
            objects = invented_truth(vocabulary, IMAGES, seed=options.seed)
            Path(truth).write_bytes(dump_json({"labels": vocabulary.labels, "objects": objects}))
        image_ids = PresenceOracle.load(truth).image_ids
        path = Path(folder) / "captions.jsonl"
        write_captions(path, captions, image_ids, options.count)
        megabytes = path.stat().st_size / 1e6
        print(
            f"{options.count:,} captions, {megabytes:,.0f} MB, {min(len(image_ids), options.count):,} images; "
            f"{vocabulary.name} with {len(vocabulary.aliases):,} aliases, {len(vocabulary.ignore):,} ignore phrases; "
            f"best of {options.rounds} runs, intervals and start of the interpreter included\n"
        )
        print("| processes | captions/s | captions/s/core | MB/s/core | peak memory, MiB | of each worker |")
        print("|---:|---:|---:|---:|---:|---:|")
        for workers in options.workers:
            command = [sys.executable, __file__, "--truth", truth, "--vocabulary", options.vocabulary]
            command += ["--once", str(path), str(workers)]
            runs = [json.loads(subprocess.check_output(command)) for _ in range(options.rounds)]
            wall, cpu = min(run["wall"] for run in runs), min(run["cpu"] for run in runs)
            parent, worker = (max(run[key] for run in runs) for key in ("parent", "worker"))
            per_core = options.count / cpu
            print(
                f"| {workers} | {options.count / wall:,.0f} | {per_core:,.0f} | {megabytes / cpu:.0f} | {parent:.0f} "
                f"| {f'{worker:.0f}' if workers > 1 else '-'} |"
            )
            if workers == 1:  # several share their caches and copy captions from one to the other
                reached.append(("captions/s/core", per_core, PER_CORE, per_core >= PER_CORE))
            memory = max(parent, worker)
            reached.append((f"MiB, {workers} process{'es' * (workers > 1)}", memory, MEMORY, memory <= MEMORY))
    single, paired = bootstrap_seconds()
    print(f"\n1,000 resamples over {IMAGES:,} images: {single:.3f} s; a difference with its test: {paired:.3f} s\n")
    reached.append(("bootstrap, s", single, BOOTSTRAP, single <= BOOTSTRAP))
    for name, value, limit, good in reached:
        shown = f"{value:,.0f}" if value >= 10 else f"{value:.3f}"
        print(f"{name}: {shown} (limit {limit:,}): {'reached' if good else 'MISSED'}")
    return 0 if all(good for *_, good in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
