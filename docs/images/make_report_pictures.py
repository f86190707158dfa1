"""Takes the pictures of README, gallery and docs, in light and dark: python docs/images/make_report_pictures.py.

A picture of the overview carries its own sentences (PNG text ``sentences``, JSON), which a test compares with what the
code says of the same captions today: a picture that has become stale fails it. The overview shows figures of public
captions (five systems of github.com/yuezih/less-is-more, in ../shared; no text of theirs); the captions page shows
examples/. The report on the site's front page is made of ../public_results.json, the same figures without any text,
which this script writes (``--results``: nothing else). The dark picture of training is dynamics.png with its lightness
turned: one drawn anew would need the runs.
Needs the extras ``report`` and ``test``, and Debian's chromium.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, PngImagePlugin
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
PUBLIC = ROOT.parent / "shared" / "data" / "captions_real"
RESULTS = HERE.parent / "public_results.json"
TITLE = "LLaVA-1.5 on 500 COCO images"
SYSTEMS = {
    "r1_llava15_7b": "LLaVA-1.5-7B",
    "r2_vcd": "LLaVA-1.5-7B + VCD",
    "r3_opera": "LLaVA-1.5-7B + OPERA",
    "r6_lim": "LLaVA-1.5-7B + Less is More",
    "r7_llava15_13b": "LLaVA-1.5-13B",
}


def main() -> None:
    """Writes report_overview, report_captions, frontier, qc and dynamics_dark beside this file, and RESULTS."""
    scapo("score", *public(), "-o", RESULTS, "-q")
    if "--results" in sys.argv:
        return
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        report(folder / "public.html", *public(), "--title", TITLE)
        for dark in ([], ["--dark"]):
            target = HERE / f"frontier{'_dark' * bool(dark)}.svg"
            scapo(
                "plot",
                "frontier",
                *public(),
                "--width",
                "5.5",
                *dark,
                "-o",
                target,
                "-q",
            )
        said = sentences(folder / "public.html")
        captions = [
            EXAMPLES / f"captions_{system}.jsonl"
            for system in ("baseline", "aligned")
        ]
        report(
            folder / "examples.html",
            *captions,
            "--truth",
            EXAMPLES / "truth.json",
        )
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme, ending in (("light", ""), ("dark", "_dark")):
            view = browser.new_page(
                viewport={"width": 1120, "height": 900}, color_scheme=scheme
            )
            opened(view, folder / "public.html", "overview")
            box = view.locator(".first").bounding_box()
            assert box is not None
            clip = {
                "x": 0,
                "y": 0,
                "width": 1120,
                "height": box["y"] + box["height"] + 12,
            }
            picture = HERE / f"report_overview{ending}.png"
            view.screenshot(path=picture, clip=clip)
            carry(picture, said)
            opened(
                view,
                folder / "examples.html",
                "captions&order=disagreement&rewards=1",
            )
            view.set_viewport_size({"width": 1120, "height": 640})
            view.screenshot(path=HERE / f"report_captions{ending}.png")
        quality_control(browser, folder)
        browser.close()
    turned(HERE / "dynamics.png").save(
        HERE / "dynamics_dark.png", optimize=True
    )


def quality_control(browser: Any, folder: Path) -> None:
    """Takes qc.png and qc_grid.png: a round on drawn shapes, one picture at a time and 25 at once."""
    from scapo_eval.annotate.qc.rounds import draw_round
    from scapo_eval.annotate.store import CellProvenance, Store
    from scapo_eval.inference.sources import ImageFile
    from scapo_eval.matching.vocabulary import LabelInfo, Vocabulary

    files, rng = [], np.random.default_rng(5)
    circles = rng.random(60) < 0.2
    for k, circle in enumerate(circles):
        files.append(ImageFile(str(k), f"{k}.png", str(folder / f"{k}.png")))
        shapes(rng, circle=bool(circle)).save(files[-1].path)
    info = {
        "circle": LabelInfo(
            definition="A round shape, whole or cut by the edge. Not squares or triangles."
        )
    }
    with Store.create(
        folder / "RUN",
        files,
        Vocabulary.from_mapping({"circle": ["circle"]}, info=info),
    ) as store:
        cells = np.arange(len(circles)), np.zeros(len(circles), dtype=np.int64)
        store.write(
            *cells,
            circles.astype(np.int64),
            CellProvenance("coarse", "coarse@1a2b3c4d", "judge"),
        )
        draw_round(store, random=40, present=1, at_least=0, seed=4)
    command = [
        sys.executable,
        "-m",
        "scapo_eval.cli.main",
        "annotate",
        "qc",
        "serve",
        str(folder / "RUN"),
    ]
    with subprocess.Popen(
        [*command, "--by", "ann"], stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        view = browser.new_page(
            viewport={"width": 1100, "height": 640}, color_scheme="light"
        )
        view.goto(serving.stdout.readline().strip())
        view.wait_for_selector("#stage[data-pair='0']")
        words = " ".join(view.inner_text("#asking").split())
        view.screenshot(path=HERE / "qc.png")
        view.keyboard.press("g")
        view.wait_for_selector("#grid[data-pairs]")
        asked = view.evaluate(
            "fetch('state').then((reply) => reply.json()).then((round) => round.pairs)"
        )
        for pair in map(int, view.get_attribute("#grid", "data-pairs").split()):
            if circles[asked[pair][0]]:
                view.click(f".mark[data-pair='{pair}']")
        view.screenshot(path=HERE / "qc_grid.png")
        view.close()
        serving.terminate()
    carry(HERE / "qc.png", {"page": words})


def shapes(rng: np.random.Generator, *, circle: bool) -> Image.Image:
    """A picture of some shapes, and of a circle if asked for."""
    picture = Image.new("RGB", (320, 240), "#f0efe6")
    pen = ImageDraw.Draw(picture)
    for k, kind in enumerate(
        [*rng.choice(["square", "triangle"], size=2), *["circle"] * circle]
    ):
        size, color = (
            int(rng.integers(30, 80)),
            tuple(map(int, rng.integers(30, 200, 3))),
        )
        x, y = (
            10 + 105 * k + int(rng.integers(0, 20)),
            int(rng.integers(10, 230 - size)),
        )
        if kind == "circle":
            pen.ellipse((x, y, x + size, y + size), fill=color)
        elif kind == "square":
            pen.rectangle((x, y, x + size, y + size), fill=color)
        else:
            pen.polygon(
                [(x, y + size), (x + size, y + size), (x + size // 2, y)],
                fill=color,
            )
    return picture


def report(path: Path, *arguments: object) -> None:
    """Makes a report."""
    scapo("report", *arguments, "-o", path, "-q")


def scapo(*arguments: object) -> None:
    """Runs a verb of scapo-eval."""
    subprocess.run(
        [sys.executable, "-m", "scapo_eval.cli.main", *map(str, arguments)],
        check=True,
    )


def public() -> list[str]:
    """The public systems and their truth, as the command line takes them."""
    judged = ["--truth", str(PUBLIC / "gt" / "coco_chair_gt.jsonl")]
    return [
        f"{title}={public_captions(system)}"
        for system, title in SYSTEMS.items()
    ] + judged


def public_captions(system: str) -> Path:
    """The captions of one of SYSTEMS."""
    return PUBLIC / f"coco_val2014_lessismore_{system}.jsonl"


def sentences(path: Path) -> dict[str, str]:
    """What a report's overview says of every system against its baseline."""
    packed = re.search(rb'id="data-charts">([^<]+)<', path.read_bytes())
    assert packed is not None
    charts = json.loads(
        gzip.decompress(base64.b85decode(packed[1].replace(b",", b"<")))
    )
    return said_of(charts["arguments"][0])


def said_of(argument: dict[str, Any]) -> dict[str, str]:
    """System -> verdict and sentence against the first system, of one of the overview's arguments."""
    entries = zip(argument["systems"], argument["against"][0], strict=True)
    return {
        system[
            "name"
        ]: f"{entry['verdict']}: {''.join(piece['text'] for piece in entry['said'])}."
        for system, entry in entries
        if entry
    }


def carry(path: Path, said: dict[str, str]) -> None:
    """Writes into a picture what stands on it."""
    text = PngImagePlugin.PngInfo()
    text.add_text("sentences", json.dumps(said, ensure_ascii=True))
    with Image.open(path) as picture:
        picture.load()
        picture.save(path, optimize=True, pnginfo=text)


def opened(view: Any, path: Path, page: str) -> None:
    """Opens a page of a report and waits until it is drawn."""
    view.goto(f"{path.as_uri()}#page={page}")
    view.wait_for_selector("html[data-ready]")


def turned(path: Path) -> Image.Image:
    """A picture whose light parts are dark and the other way round, hues kept."""
    color = np.asarray(Image.open(path).convert("RGB"), dtype=np.int16)
    shift = (
        255
        - color.max(axis=2, keepdims=True)
        - color.min(axis=2, keepdims=True)
    )
    return Image.fromarray(np.clip(color + shift, 18, 245).astype(np.uint8))


if __name__ == "__main__":
    main()
