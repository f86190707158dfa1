"""Takes the README's pictures of the report, in light and dark: python docs/images/make_report_pictures.py.

The overview shows figures of public captions (five systems of github.com/yuezih/less-is-more, in ../shared; no text of
theirs); the captions page shows examples/. The dark picture of training is dynamics.png with its lightness turned: one
drawn anew would need the runs. Needs the extras ``report`` and ``test``, and Debian's chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
PUBLIC = ROOT.parent / "shared" / "data" / "captions_real"
SYSTEMS = {
    "r1_llava15_7b": "LLaVA-1.5-7B",
    "r2_vcd": "LLaVA-1.5-7B + VCD",
    "r3_opera": "LLaVA-1.5-7B + OPERA",
    "r6_lim": "LLaVA-1.5-7B + Less is More",
    "r7_llava15_13b": "LLaVA-1.5-13B",
}


def main() -> None:
    """Writes report_overview, report_captions and dynamics_dark beside this file."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        public = [PUBLIC / f"coco_val2014_lessismore_{system}.jsonl" for system in SYSTEMS]
        names = [f"--name={path.stem}={title}" for path, title in zip(public, SYSTEMS.values(), strict=True)]
        truth = PUBLIC / "gt" / "coco_chair_gt.jsonl"
        report(folder / "public.html", *public, "--truth", truth, *names, "--title", "LLaVA-1.5 on 500 COCO images")
        captions = [EXAMPLES / f"captions_{system}.jsonl" for system in ("baseline", "aligned")]
        report(folder / "examples.html", *captions, "--truth", EXAMPLES / "truth.json")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme, ending in (("light", ""), ("dark", "_dark")):
            view = browser.new_page(viewport={"width": 1120, "height": 900}, color_scheme=scheme)
            opened(view, folder / "public.html", "overview")
            box = view.locator(".first").bounding_box()
            assert box is not None
            clip = {"x": 0, "y": 0, "width": 1120, "height": box["y"] + box["height"] + 12}
            view.screenshot(path=HERE / f"report_overview{ending}.png", clip=clip)
            opened(view, folder / "examples.html", "captions&order=disagreement&rewards=1")
            view.set_viewport_size({"width": 1120, "height": 640})
            view.screenshot(path=HERE / f"report_captions{ending}.png")
        browser.close()
    turned(HERE / "dynamics.png").save(HERE / "dynamics_dark.png", optimize=True)


def report(path: Path, *arguments: object) -> None:
    """Makes a report."""
    command = [sys.executable, "-m", "scapo_eval.cli.main", "report", *map(str, arguments), "-o", str(path), "-q"]
    subprocess.run(command, check=True)


def opened(view: Any, path: Path, page: str) -> None:
    """Opens a page of a report and waits until it is drawn."""
    view.goto(f"{path.as_uri()}#page={page}")
    view.wait_for_selector("html[data-ready]")


def turned(path: Path) -> Image.Image:
    """A picture whose light parts are dark and the other way round, hues kept."""
    color = np.asarray(Image.open(path).convert("RGB"), dtype=np.int16)
    shift = 255 - color.max(axis=2, keepdims=True) - color.min(axis=2, keepdims=True)
    return Image.fromarray(np.clip(color + shift, 18, 245).astype(np.uint8))


if __name__ == "__main__":
    main()
