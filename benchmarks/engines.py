"""Client overhead of the HTTP engine: processor time per request for a server that answers immediately.

    python benchmarks/engines.py [--requests 20000] [--images 0]

The server runs in a separate process, and only the time of the client process counts. The result is therefore the
number of requests per second and core. With ``--images N``, every request contains one of N pictures (640 x 480 JPEG).
The time then includes reading, checking and encoding the pictures in threads. The peak memory shows the effect of the
number of requests.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scapo_eval.engines import Request
from scapo_eval.engines.openai_http import OpenAIEngine
from scapo_eval.inference.journal import Journal
from scapo_eval.inference.runner import Session

SERVER = Path(__file__).resolve().parent.parent / "tests" / "servers" / "loopback.py"


def requests(number: int, images: list[str]) -> Iterator[Request]:
    for k in range(number):
        yield Request.of(f"Is there a dog in picture {k}?", images[k * len(images) // number] if images else None)


def draw(folder: Path, number: int) -> list[str]:
    from PIL import Image

    paths = []
    for k in range(number):
        path = folder / f"{k}.jpg"
        Image.effect_noise((640, 480), 20 + k % 50).convert("RGB").save(path, quality=85)
        paths.append(str(path))
    return paths


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--images", type=int, default=0)
    options.add_argument("--concurrency", type=int, default=64)
    given = options.parse_args()
    server = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    try:
        with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal") as journal:
            images = draw(Path(folder), given.images)
            engine = OpenAIEngine("plain", url, concurrency=given.concurrency)
            bare = engine_only(engine, given.requests, images)
            before, began = time.process_time(), time.perf_counter()
            Session(engine, journal).ask(requests(given.requests, images))
            used, wall = time.process_time() - before, time.perf_counter() - began
            assert len(journal) == given.requests
    finally:
        server.terminate()
        server.wait()
    result = {
        "requests": given.requests,
        "images": given.images,
        "concurrency": given.concurrency,
        "engine_requests_per_core_second": round(given.requests / bare),
        "run_requests_per_core_second": round(given.requests / used),
        "run_ms_per_request": round(1000 * used / given.requests, 3),
        "run_requests_per_wall_second": round(given.requests / wall),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(result))


def engine_only(engine: OpenAIEngine, number: int, images: list[str]) -> float:
    before = time.process_time()
    engine.run(requests(number, images), lambda request, response: None)
    return time.process_time() - before


if __name__ == "__main__":
    main()
