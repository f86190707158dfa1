"""The pictures of the docs show what the code says today of the same captions."""

from __future__ import annotations

import importlib.util
import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.report.gather import Settings, gather
from scapo_eval.report.overview import overview

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
MAKER = IMAGES / "make_report_pictures.py"


@pytest.fixture(scope="module")
def maker() -> Any:
    """The script that takes the pictures."""
    pytest.importorskip("playwright", reason="the script drives a browser")
    spec = importlib.util.spec_from_file_location("make_report_pictures", MAKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def quietly(what: str, size: int | None) -> Any:
    yield lambda done: None


@pytest.fixture(scope="module")
def said(maker: Any, shared: Path) -> dict[str, str]:
    """What the overview says of the public systems."""
    folder = shared / "data" / "captions_real"
    paths = [str(folder / f"coco_val2014_lessismore_{system}.jsonl") for system in maker.SYSTEMS]
    names = {Path(path).stem: name for path, name in zip(paths, maker.SYSTEMS.values(), strict=True)}
    settings = Settings(truth=str(folder / "gt" / "coco_chair_gt.jsonl"), names=names)
    report = gather(paths, settings, progress=quietly, warn=lambda text: None)
    found: dict[str, str] = maker.said_of(overview(report)[0])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report_overview.png", "report_overview_dark.png"])
def test_a_picture_of_the_overview_says_what_the_code_says(said: dict[str, str], name: str) -> None:
    image = pytest.importorskip("PIL.Image")
    with image.open(IMAGES / name) as picture:
        carried = json.loads(picture.info["sentences"])
    assert carried == said, "the picture is stale: python docs/images/make_report_pictures.py"


def test_the_script_makes_every_picture_that_pages_show(maker: Any) -> None:
    text = MAKER.read_text("utf-8") + (IMAGES / "make_score_picture.py").read_text("utf-8")
    drawn_elsewhere = {"dynamics", "qc"}  # of a training run, and of the tool for checking verdicts
    for path in IMAGES.iterdir():
        name = path.stem.removesuffix("_dark")
        if path.suffix in {".png", ".svg"} and name not in drawn_elsewhere:
            assert name in text, path.name
