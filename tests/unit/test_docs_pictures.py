"""The pictures of the docs show what the code says today of the same captions."""

from __future__ import annotations

import importlib.util
import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval.annotate import qc
from scapo_eval.report.gather import Settings, gather
from scapo_eval.report.overview import overview

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
RESULTS = IMAGES.parent / "public_results.json"
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
    drawn_elsewhere = {"dynamics"}  # of a training run
    for path in IMAGES.iterdir():
        name = path.stem.removesuffix("_dark")
        if path.suffix in {".png", ".svg"} and name not in drawn_elsewhere:
            assert name in text, path.name


def test_the_front_page_is_a_report_of_figures_without_text() -> None:
    report = gather([str(RESULTS)], Settings(), progress=quietly, warn=lambda text: None)
    argument = overview(report)[0]
    assert [entry["name"] for entry in argument["systems"]] == [
        each["name"] for each in json.loads(RESULTS.read_bytes())["systems"]
    ]
    assert sum(entry is not None for entry in argument["against"][0]) == len(argument["systems"]) - 1
    assert not report.captions
    assert 'src="live.html"' in (IMAGES.parent / "index.md").read_text("utf-8")


@pytest.mark.slow
def test_the_front_page_has_todays_figures_of_the_public_systems(maker: Any, shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "captions_real"
    text = RESULTS.read_text("utf-8")
    runs = []
    for system, name in maker.SYSTEMS.items():
        captions = folder / f"coco_val2014_lessismore_{system}.jsonl"
        runs.append(scapo_eval.score(captions, truth=folder / "gt" / "coco_chair_gt.jsonl", name=name))
        assert json.loads(captions.read_text("utf-8").splitlines()[0])["caption"][:40] not in text
    scapo_eval.compare(runs).save(tmp_path / "now.json")
    kept, now = json.loads(text), json.loads((tmp_path / "now.json").read_bytes())
    for part in ("per_image", "comparisons", "verdicts"):
        assert kept[part] == now[part], "stale: python docs/images/make_report_pictures.py --results"


def test_the_picture_of_quality_control_has_the_pages_words() -> None:
    image = pytest.importorskip("PIL.Image")
    with image.open(IMAGES / "qc.png") as picture:
        words = json.loads(picture.info["sentences"])["page"]
    page = Path(qc.__file__).with_name("page.html").read_text("utf-8")
    for button in re.findall(
        r"<button [^>]*>(.*?)</button>", page[page.index('id="answers"') : page.index("<details")]
    ):
        assert " ".join(re.sub("<[^>]+>", "", button).split()) in words, "stale: docs/images/make_report_pictures.py"
