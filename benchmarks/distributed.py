"""Overhead of distributed engines over a single process: CPU time per caption and per reward, on Ray Data and on Spark.

    python benchmarks/distributed.py                                     # a million synthetic captions; Ray and Spark
    python benchmarks/distributed.py --captions 10000000 --engines ray --images 123287 --workers 1 2
    python benchmarks/distributed.py --engines spark files                  # Spark as a DataFrame, and as files
    python benchmarks/distributed.py --rewards --engines ray

The benchmark writes the captions as one Parquet file with row groups into a temporary folder. They are 3,000 synthetic
captions that are repeated with rotating image ids, so the scores have no meaning. They are counted in this process and
on local clusters, each in a new interpreter. CPU time is the sum over all processes: "start" until the cluster is
available, "first" from then until the metrics are computed, including the start of workers, and "again" for a second
run, as for the next checkpoint. The second run determines the overhead, the CPU time of the "driver" (the calling
process), and that of a Ray node's "services", which also run without work and are excluded from the other columns. The
exit code is 1 if counts differ from those of a single process, or the overhead is too large.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sentences import invented_captions, invented_truth

import scapo_eval
from scapo_eval import PresenceOracle, SubsentenceReward, Vocabulary
from scapo_eval.base.hashes import digest
from scapo_eval.results.counts import CountTable

OVERHEAD = 0.25
GROUP = 50_000
TEXTS = 3000
Measured = dict[str, Any]


def write(folder: Path, vocabulary: Vocabulary, captions: int, images: int) -> None:
    """Writes ``captions.parquet`` (with uncompressed texts, as if all captions differed) and ``truth.npz``."""
    PresenceOracle.from_objects(
        invented_truth(vocabulary, images, seed=1), labels=vocabulary.labels, source="invented"
    ).save(folder / "truth.npz")
    ids = np.array(PresenceOracle.load(folder / "truth.npz").image_ids)
    texts = pa.array(invented_captions(vocabulary, TEXTS, seed=0))
    schema = pa.schema([("image_id", pa.string()), ("caption", pa.string())])
    with pq.ParquetWriter(folder / "captions.parquet", schema, use_dictionary=["image_id"]) as writer:
        for first in range(0, captions, GROUP):
            numbers = np.arange(first, min(first + GROUP, captions))
            columns = [pa.array(ids[numbers % len(ids)]), texts.take(pa.array(numbers * 7919 % TEXTS))]
            writer.write_table(pa.table(columns, schema=schema))


SERVICES = re.compile(
    r"^[^\0]*/raylet\0|gcs_server\0|/dashboard/|log_monitor\.py|monitor\.py|runtime_env/agent|^ray::_[A-Z]"
)
"""Command lines of the services of a Ray node, which run independently of the work: programs and Ray's own actors. The
arguments of a worker name the raylet, too, and the tasks of Ray Data have names in lower case.
"""


class Meter(threading.Thread):
    """Thread that reads the CPU time of all child processes twice per second, because engines end workers and lose
    their times.

    Attributes:
        spent: Process -> CPU seconds at the last reading.
        services: Processes that a node runs independently of the work.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.spent, self.services, self._lock = dict[tuple[int, str], float](), set[tuple[int, str]](), threading.Lock()
        self.start()

    def run(self) -> None:
        """Reads CPU times until it is stopped."""
        while True:
            self.look()
            time.sleep(0.5)

    def look(self) -> tuple[float, float]:
        """Returns the CPU seconds so far of the work, and of a node's services."""
        parent, spent, names = dict[int, int](), dict[int, tuple[str, float]](), dict[int, str]()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                names[int(entry)] = Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            parent[int(entry)] = int(fields[1])
            spent[int(entry)] = fields[19], sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        below = {os.getpid()}
        while more := {pid for pid, above in parent.items() if above in below} - below:
            below |= more
        with self._lock:
            for pid in below & spent.keys():
                began, seconds = spent[pid]
                self.spent[pid, began] = seconds
                if SERVICES.search(names[pid]):
                    self.services.add((pid, began))
            served = sum(self.spent[each] for each in self.services)
            return sum(self.spent.values()) - served, served


def one_process(folder: Path, vocabulary: str, rewards: bool, workers: int) -> tuple[Callable[[], Any], None]:
    """Returns the run in a single process, without an engine."""
    if not rewards:
        how: dict[str, Any] = {"workers": workers, "bootstrap": "poisson"}  # the engines'
        return lambda: scapo_eval.score(
            folder / "captions.parquet", truth=folder / "truth.npz", vocabulary=vocabulary, **how
        ), None
    reward = SubsentenceReward(Vocabulary.load(vocabulary), PresenceOracle.load(folder / "truth.npz"))

    def total() -> float:
        from scapo_eval.distributed.rewards import with_rewards

        batches = pq.ParquetFile(folder / "captions.parquet").iter_batches(GROUP)
        return sum(sum(with_rewards(reward, each, "image_id", "caption")["reward"].to_pylist()) for each in batches)

    return total, None


def _nothing(batch: Any) -> Any:
    """Starts a worker."""
    time.sleep(2)
    return batch


def on_ray(folder: Path, vocabulary: str, rewards: bool, workers: int) -> tuple[Callable[[], Any], Any]:
    """Returns the run on a local Ray cluster."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # a busy machine
    import ray

    from scapo_eval.distributed import ray as engine

    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.range(workers, override_num_blocks=workers).map_batches(_nothing).materialize()
    if not rewards:
        return lambda: engine.score(
            folder / "captions.parquet", truth=folder / "truth.npz", vocabulary=vocabulary
        ), ray.shutdown
    reward = SubsentenceReward(Vocabulary.load(vocabulary), PresenceOracle.load(folder / "truth.npz"))
    data = ray.data.read_parquet(str(folder / "captions.parquet"))
    return lambda: engine.reward(data, reward, response="caption").sum("reward"), ray.shutdown


def on_spark(
    folder: Path, vocabulary: str, rewards: bool, workers: int, files: bool = False
) -> tuple[Callable[[], Any], Any]:
    """Returns the run on a local Spark, in which Spark or its Python workers read the captions."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from scapo_eval.distributed import spark as engine

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "3g", "spark.driver.host": "127.0.0.1"}
    session = SparkSession.builder.master(f"local[{workers}]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.range(1).count()
    data = session.read.parquet(str(folder / "captions.parquet"))
    if not rewards:
        given = folder / "captions.parquet" if files else data
        return lambda: engine.score(given, truth=folder / "truth.npz", vocabulary=vocabulary), session.stop
    reward = SubsentenceReward(Vocabulary.load(vocabulary), PresenceOracle.load(folder / "truth.npz"))
    return lambda: engine.reward(data, reward, response="caption").agg({"reward": "sum"}).first()[0], session.stop


ENGINES = {"none": one_process, "ray": on_ray, "spark": on_spark, "files": partial(on_spark, files=True)}


def measure(engine: str, folder: Path, vocabulary: str, rewards: bool, workers: int) -> Measured:
    """Measures one run in this process."""
    meter = Meter()
    run, stop = ENGINES[engine](folder, vocabulary, rewards, workers)
    measured: Measured = {"start": sum(meter.look())}
    for name in ("first", "again"):
        (worked, served), wall, own = meter.look(), time.perf_counter(), time.process_time()
        found = run()
        if not rewards:
            assert found.metrics["cap_score"].low is not None
        measured |= {"wall": time.perf_counter() - wall, "driver": time.process_time() - own}
        work, services = meter.look()
        measured |= {name: work - worked, "services": services - served}
    measured["said"] = round(found, 3) if rewards else _digest(found.table)
    if stop:
        stop()
    return measured


def _digest(table: CountTable) -> str:
    return digest([*table.image_ids, table.rows.astype("<i8").tobytes()])


def in_fresh_interpreter(*given: str) -> Measured:
    """Returns the result of :func:`measure` in a separate process."""
    done = subprocess.run([sys.executable, __file__, "--measure", *given], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: Measured = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def model(one: Measured, several: Measured, workers: int) -> str:
    """Returns the expected speed of several workers based on one worker, and the measured speed.

    The time of the driver is spent once. All other CPU time is that of the workers. It does not grow with their number,
    and is shared evenly. Wall-clock time is also measured, but is only meaningful if enough cores are idle.
    """
    work = one["again"] - one["driver"]
    parts = (f"{n} workers {one['driver'] + work / n:.2f} s" for n in (1, workers, 64))
    found = several["again"] / one["again"] - 1
    return (
        f"  one worker lets expect {', '.join(parts)} of clock and {one['again']:.2f} s of CPU for any number; with "
        f"{workers} it took {several['wall']:.2f} s of clock, {several['again']:.2f} s of CPU ({found:+.1%})"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=1_000_000)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--vocabulary", default="coco80")
    parser.add_argument("--engines", nargs="*", default=["ray", "spark"], choices=["ray", "spark", "files"])
    parser.add_argument("--workers", nargs="*", type=int, default=[2])
    parser.add_argument("--rewards", action="store_true", help="SCAPO's rewards in place of scores")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        engine, folder, vocabulary, rewards, workers = args.measure
        print(json.dumps(measure(engine, Path(folder), vocabulary, rewards == "True", int(workers))))
        return
    missed, fitted = False, dict[str, Measured]()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), Vocabulary.load(args.vocabulary), args.captions, args.images)
        print(f"{args.captions:,} captions of {args.images:,} images, {args.vocabulary}")
        columns = ("start s", "first s", "again s", "us/caption", "overhead", "driver s", "services s", "wall s")
        print("engine workers", *(f"{column:>10}" for column in columns), flush=True)
        alone: Measured | None = None
        for engine, workers in [("none", 1), *((engine, n) for engine in args.engines for n in args.workers)]:
            found = in_fresh_interpreter(engine, name, args.vocabulary, str(args.rewards), str(workers))
            alone = alone or found
            overhead = found["again"] / alone["again"] - 1
            same = found["said"] == alone["said"]
            missed |= overhead > OVERHEAD or not same
            seconds = [f"{found[column]:10.1f}" for column in ("start", "first", "again")]
            later = [f"{found[column]:10.1f}" for column in ("driver", "services", "wall")]
            each = f"{found['again'] / args.captions * 1e6:10.2f} {overhead:10.1%}"
            print(f"{engine:6} {workers:7}", *seconds, each, *later, "" if same else "OTHER COUNTS", flush=True)
            if workers == 1:
                fitted[engine] = found
            elif engine in fitted:
                print(model(fitted[engine], found, workers))
    sys.exit(missed)


if __name__ == "__main__":
    main()
