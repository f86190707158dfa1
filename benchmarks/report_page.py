"""Costs for the reader of a report on six systems with 5,000 captions each: size, first paint, time to interactive,
heap.

    python benchmarks/report_page.py [--systems 6] [--captions 5000] [--keep report.html]
    python benchmarks/report_page.py --systems 20 --captions 500
    python benchmarks/report_page.py --runs 4 --steps 10000     # training runs in place of captions

The captions are synthetic. Every image has a scene, and every system describes it in its own words. The page is
therefore larger than for real captions, which systems of one family share in part (for five systems of ../shared with
ten times their 500 captions, and one system of another family: 4.0 MB in place of 6.0). Requires the extras ``report``
and ``test``, and chromium. Wall-clock times are unreliable on a machine with other work. The benchmark therefore prints
the best and worst of ``--tries``, and the processor time of the page's main thread.
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


LOGGED = ("hal_rate", "cover_rate", "kl", "reward", "length", "entropy", "loss", "grad_norm")


def caption(rng: random.Random, nouns: list[str], words: int = 90) -> str:
    """Returns a caption about a scene with some of the nouns."""
    said: list[str] = []
    while sum(map(len, said)) < 5.6 * words:
        form = rng.choice(FORMS)
        for slot, choices in (("l", LOOKS), ("n", nouns), ("d", DOES), ("p", PLACES), ("t", THINGS)):
            while f"{{{slot}}}" in form:
                form = form.replace(f"{{{slot}}}", rng.choice(choices), 1)
        said.append(form.replace("{c}", rng.choice(["a", "one", "another"])) + ".")
    return " ".join(said)


def write(folder: Path, systems: int, captions: int) -> tuple[list[Path], Path, float]:
    """Writes the caption files of some systems and their ground truth, and returns their paths and the compressed bytes
    per character.
    """
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


def write_runs(folder: Path, runs: int, steps: int) -> list[Path]:
    """Writes folders of training runs that log eight quantities in every step, and held-out quantities in every 500th
    step.
    """
    rng = random.Random(23)
    paths = []
    for k in range(runs):
        paths.append(folder / f"run_{k + 1}")
        paths[-1].mkdir()
        rows = []
        for step in range(steps):
            row = {name: round(0.5 + 0.4 * rng.random() - step / (4 * steps), 6) for name in LOGGED}
            if step % 500 == 0:
                row |= {f"eval/{name}": row[name] for name in LOGGED[:2]}
            rows.append(json.dumps({"step": step, "seconds": 12.5, "tokens": 40_000, **row}) + "\n")
        (paths[-1] / "metrics.jsonl").write_text("".join(rows))
    return paths


BROWSE = {
    "captions": (
        "captions",
        "#detail .caption",
        """() => { const field = document.querySelector("#captions [name=text]"), began = performance.now();
        field.value = "window"; field.dispatchEvent(new Event("input", { bubbles: true }));
        return performance.now() - began; }""",
    ),
    "training": (
        "training",
        "#training canvas",
        """async () => { const field = document.querySelector("#smoothing"), began = performance.now();
        field.value = "strong"; field.dispatchEvent(new Event("change", { bubbles: true }));
        await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        return performance.now() - began; }""",
    ),
}
"""Content -> page, element that shows that it has been drawn, and a change of its controls (a filter, the
smoothing).
"""


def measure(report: Path) -> dict[str, float]:
    """Returns times in seconds from the start of navigation, and the heap in MB after a garbage collection, in a new
    browser.

    ``processor`` is the processor time of the page's main thread until the page is interactive.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        spent = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        ready = page.evaluate("performance.getEntriesByName('ready')[0].startTime")
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")["usedSize"]
        browse = BROWSE["captions" if page.query_selector("#captions") else "training"]
        page.evaluate(f"location.hash = 'page={browse[0]}'")
        page.wait_for_selector(browse[1])
        changed = page.evaluate(browse[2])
        session.send("HeapProfiler.collectGarbage")
        browsed = session.send("Runtime.getHeapUsage")["usedSize"]
        browser.close()
    return {
        "first_paint, s": painted / 1e3,
        "interactive, s": ready / 1e3,
        "processor, s": spent["TaskDuration"],
        "change, s": changed / 1e3,
        "heap, MB": heap / 1e6,
        "heap browsed, MB": browsed / 1e6,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--systems", type=int, default=6)
    options.add_argument("--captions", type=int, default=5000)
    options.add_argument("--runs", type=int, default=0)
    options.add_argument("--steps", type=int, default=10_000)
    options.add_argument("--tries", type=int, default=5)
    options.add_argument("--keep", type=Path, help="Where to leave the report.")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.runs:
            inputs: list[object] = [*write_runs(Path(folder), given.runs, given.steps)]
            print(f"{given.runs} training runs x {given.steps:,} steps")
        else:
            paths, truth, per_character = write(Path(folder), given.systems, given.captions)
            inputs = [*paths, "--truth", truth]
            print(f"{given.systems} systems x {given.captions:,} captions")
            print(f"text: {per_character:.3f} compressed bytes a character")
        report = (given.keep or Path(folder) / "report.html").resolve()
        command = [sys.executable, "-m", "scapo_eval.cli.main", "report", *map(str, inputs)]
        began = time.perf_counter()
        subprocess.run([*command, "-o", str(report), "-q"], check=True)
        print(f"written in, s    {time.perf_counter() - began:7.2f}")
        print(f"size, MB         {report.stat().st_size / 1e6:7.2f}")
        runs = [measure(report) for _ in range(given.tries)]
        for name in runs[0]:
            values = sorted(run[name] for run in runs)
            print(f"{name:17} {values[0]:6.2f} (worst {values[-1]:.2f})")


if __name__ == "__main__":
    main()
