"""Cost of annotation at full size: disk, memory, processor time per verdict, and the time to load the final matrix.

    python benchmarks/annotate.py [--images 5000] [--vocabulary dopa160] [--http-images 100]

First, all cells are annotated by a judge in this process that answers immediately, so that only keys, journal, parsing
and storage are measured. Then, requests are sent through the HTTP engine to a server in a separate process, with 160
questions for each 640 x 480 JPEG. This measures the complete client side of a verdict. Only the processor time of this
process counts, on one core.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from scapo_eval.annotate.coarse import coarse, open_or_create, prompts_for
from scapo_eval.annotate.finalize import finalize
from scapo_eval.annotate.passes import PassOutcome, journal_of
from scapo_eval.annotate.store import Store
from scapo_eval.engines import Completion, Engine, Request
from scapo_eval.engines.openai_http import OpenAIEngine
from scapo_eval.inference.runner import Session
from scapo_eval.inference.sources import find_images
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.truths.oracle import PresenceOracle

SERVER = Path(__file__).resolve().parent.parent / "tests" / "servers" / "loopback.py"


class Instant:
    """Engine that immediately answers "present" for one cell in fifteen."""

    identity: Mapping[str, Any] = {"engine": "instant", "model": "instant"}
    card: Mapping[str, Any] = {}

    def run(self, requests: Iterable[Request], done: Callable[[Request, Completion], None]) -> None:
        """Answers all requests."""
        for k, request in enumerate(requests):
            said = "true" if k % 15 == 0 else "false"
            done(request, Completion(f'{{"present": {said}}}', "stop", 812, 7))

    def close(self) -> None:
        """Does nothing, because there are no resources to release."""


def draw(folder: Path, number: int, size: tuple[int, int], ending: str) -> None:
    from PIL import Image

    folder.mkdir()
    for k in range(number):
        small = size[0] < 100
        colour = (k % 256, k // 256, 0)
        image = Image.new("RGB", size, colour) if small else Image.effect_noise(size, 20 + k % 50).convert("RGB")
        image.save(folder / f"{k}.{ending}", **({} if small else {"quality": 85}))


def annotate(run: Path, images: Path, vocabulary: Vocabulary, engine: Engine) -> tuple[PassOutcome, float]:
    found = find_images([str(images)])
    began = time.process_time()
    with open_or_create(str(run), found, vocabulary) as store, journal_of(store) as journal:
        outcome = coarse(store, Session(engine, journal), prompts_for(vocabulary))
    return outcome, time.process_time() - began


def best(function: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--images", type=int, default=5000)
    options.add_argument("--vocabulary", default="dopa160")
    options.add_argument("--http-images", type=int, default=100)
    given = options.parse_args()
    vocabulary = Vocabulary.load(given.vocabulary)
    with tempfile.TemporaryDirectory() as name:
        folder, run = Path(name), Path(name) / "run"
        draw(folder / "small", given.images, (8, 8), "png")
        outcome, seconds = annotate(run, folder / "small", vocabulary, Instant())
        print(f"{outcome.cells:,} verdicts: {1e3 * seconds / outcome.cells:.3f} ms of processor time each")
        sizes = {path.name: path.stat().st_size / 1e6 for path in sorted(run.iterdir())}
        print(
            f"on disk {sum(sizes.values()):.1f} MB: " + ", ".join(f"{k} {v:.1f}" for k, v in sizes.items() if v > 0.05)
        )
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        print(f"opening the run {1e3 * best(lambda: Store.open(run)):.0f} ms")
        _, again = annotate(run, folder / "small", vocabulary, Instant())
        print(f"the same command again, nothing left to ask: {again:.1f} s")
        for ending in ("npz", "parquet"):
            matrix = folder / f"matrix.{ending}"
            finalize(Store.open(run), str(matrix))
            size, load = matrix.stat().st_size / 1e6, best(lambda matrix=matrix: PresenceOracle.load(matrix))
            print(f"final .{ending}: {size:.2f} MB, loads in {1e3 * load:.1f} ms")
        if given.http_images:
            draw(folder / "large", given.http_images, (640, 480), "jpg")
            server = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            try:
                engine = OpenAIEngine("verdicts", f"http://127.0.0.1:{int(server.stdout.readline())}/v1")
                outcome, seconds = annotate(folder / "http", folder / "large", vocabulary, engine)
            finally:
                server.terminate()
                server.wait()
            size = sum(path.stat().st_size for path in (folder / "large").iterdir()) / given.http_images
            each = 1e3 * seconds / outcome.cells
            print(f"over HTTP with pictures of {size / 1e3:.0f} kB: {outcome.cells:,} verdicts, {each:.3f} ms each")


if __name__ == "__main__":
    main()
