"""What a report of six systems with 5,000 captions each costs its reader: size, first paint, interactive, heap.

    python benchmarks/report_page.py [--systems 6] [--captions 5000] [--keep report.html]

The captions are invented: every image has a scene, every system writes about it in its own words. Their text takes as
many bytes after compression as that of real captions (about 0.24 a character). Needs the extras ``report`` and
``test``, and chromium. The clock of a machine that does other things says little: look at ``--tries`` best ones.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from scapo_eval import Vocabulary

PLACES = "left right corner middle foreground background top bottom edge center side back front rear".split()
LOOKS = """wooden small large white red bright dark old modern blue green round long empty busy plain colorful tall
narrow wide striped glossy worn clean dusty curved square heavy light yellow gray brown orange pink
purple black""".split()
DOES = """stands lies rests leans sits waits hangs appears shines rises stays floats remains faces dominates fills
occupies touches crosses catches""".split()
THINGS = """street kitchen field beach room market park station garden office square hall yard harbor road path shelf
wall floor window door counter hill river forest stage studio lobby porch meadow""".split()
FORMS = (
    "The image shows a {l} {n} that {d} in the {p} of a {l} {t}",
    "There is a {n} near the {p}, and a {l} {n} {d} beside it",
    "In the {p}, a {l} {n} {d} close to the {t}",
    "A {n}, a {n} and a {l} {n} can be seen on the {p} of the {t}",
    "The {t} is {l} and {l}, with a {n} that {d} on its {p}",
    "Additionally, {c} {n} {d} around the {t}, adding to the {l} atmosphere",
    "Towards the {p}, a {l} {n} {d} while a {n} {d} further away",
    "Some of the {t} is visible behind the {l} {n}, which {d} at the {p}",
    "The scene takes place in a {l} {t}, where a {n} {d} next to a {n}",
    "Overall, the {l} {t} gives a sense of a {l} day",
)


def caption(rng: random.Random, nouns: list[str], words: int = 90) -> str:
    """One caption about a scene with some of these things."""
    said: list[str] = []
    while sum(map(len, said)) < 5.6 * words:
        form = rng.choice(FORMS)
        for slot, choices in (("l", LOOKS), ("n", nouns), ("d", DOES), ("p", PLACES), ("t", THINGS)):
            while f"{{{slot}}}" in form:
                form = form.replace(f"{{{slot}}}", rng.choice(choices), 1)
        said.append(form.replace("{c}", rng.choice(["a", "one", "another"])) + ".")
    return " ".join(said)


def write(folder: Path, systems: int, captions: int) -> tuple[list[Path], Path, float]:
    """Caption files of some systems, their truth, and the compressed bytes of a character."""
    vocabulary = Vocabulary.load("coco80")
    labels, aliases = list(vocabulary.labels), {name: vocabulary.aliases_of(name) for name in vocabulary.labels}
    rng = random.Random(19)
    scenes = [rng.sample(labels, 7) for _ in range(captions)]
    truth = folder / "truth.json"
    truth.write_text(json.dumps({str(500_000 + k): scene[:5] for k, scene in enumerate(scenes)}))
    paths, size, length = [], 0, 0
    for s in range(systems):
        rows = [
            {
                "image_id": 500_000 + k,
                "caption": caption(rng, [rng.choice(aliases[name]) for name in scene[: 5 + s % 3]]),
            }
            for k, scene in enumerate(scenes)
        ]
        text = "\n".join(row["caption"] for row in rows)
        size, length = size + len(zlib.compress(text.encode(), 9)), length + len(text)
        paths.append(folder / f"system_{s + 1}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths, truth, size / length


def measure(report: Path) -> dict[str, float]:
    """Times in seconds from the start of navigation, heap in MB after a garbage collection, of one fresh browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        session = page.context.new_cdp_session(page)
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        ready = page.evaluate("performance.getEntriesByName('ready')[0].startTime")
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")["usedSize"]
        page.evaluate("location.hash = 'page=captions'")
        page.wait_for_selector("#detail .caption")
        filtering = page.evaluate(
            """() => { const field = document.querySelector("#captions [name=text]"), began = performance.now();
            field.value = "window"; field.dispatchEvent(new Event("input", { bubbles: true }));
            return performance.now() - began; }"""
        )
        session.send("HeapProfiler.collectGarbage")
        browsed = session.send("Runtime.getHeapUsage")["usedSize"]
        browser.close()
    return {
        "first_paint": painted / 1e3, "interactive": ready / 1e3, "filter": filtering / 1e3, "heap": heap / 1e6,
        "heap_captions": browsed / 1e6,
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--systems", type=int, default=6)
    options.add_argument("--captions", type=int, default=5000)
    options.add_argument("--tries", type=int, default=5)
    options.add_argument("--keep", type=Path, help="Where to leave the report.")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths, truth, per_character = write(Path(folder), given.systems, given.captions)
        report = (given.keep or Path(folder) / "report.html").resolve()
        command = [sys.executable, "-m", "scapo_eval.cli.main", "report", *map(str, paths), "--truth", str(truth)]
        began = time.perf_counter()
        subprocess.run([*command, "-o", str(report), "-q"], check=True)
        print(
            f"{given.systems} systems x {given.captions:,} captions, {per_character:.3f} compressed bytes a character"
        )
        print(f"written in    {time.perf_counter() - began:6.1f} s")
        print(f"size          {report.stat().st_size / 1e6:6.2f} MB")
        runs = [measure(report) for _ in range(given.tries)]
        for name, unit in (("first_paint", "s"), ("interactive", "s"), ("filter", "s"), ("heap", "MB"),
                           ("heap_captions", "MB")):  # fmt: skip
            values = sorted(run[name] for run in runs)
            print(f"{name:13} {values[0]:6.2f} {unit} (best of {given.tries}; worst {values[-1]:.2f})")


if __name__ == "__main__":
    main()
