"""Takes the README's two pictures of the report, from examples/ only: python docs/images/make_report_pictures.py.

Needs the extras ``report`` and ``test``, and Debian's chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"


def main() -> None:
    """Writes report_frontier.png and report_captions.png beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        captions = [EXAMPLES / f"captions_{name}.jsonl" for name in ("baseline", "aligned")]
        arguments = [*captions, "--truth", EXAMPLES / "truth.json", "-o", report, "--title", "scapo report", "-q"]
        subprocess.run([sys.executable, "-m", "scapo_eval.cli.main", "report", *map(str, arguments)], check=True)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for page, height in (("frontier", 800), ("captions&order=disagreement&rewards=1", 640)):
                view = browser.new_page(viewport={"width": 1100, "height": height})
                view.goto(f"{report.as_uri()}#page={page}")
                view.wait_for_selector("html[data-ready]")
                view.screenshot(path=HERE / f"report_{page.split('&')[0]}.png")
            browser.close()


if __name__ == "__main__":
    main()
