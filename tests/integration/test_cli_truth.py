"""``oracle chair``, ``open-images``, ``convert`` and ``stats`` on ground truths from other data sets, and scores with
these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scapo_eval import PresenceOracle

Run = Callable[..., tuple[int, str, str]]

INSTANCES = {
    "images": [{"id": 9}, {"id": 12}],
    "annotations": [{"image_id": 9, "category_id": 1}],
    "categories": [{"id": 1, "name": "dog"}],
}
CAPTIONS = {
    "images": [],
    "annotations": [{"image_id": 9, "caption": "Two men."}, {"image_id": 12, "caption": "A puppy."}],
}
VISUAL_GENOME = [
    {"image_id": 9, "objects": [{"object_id": 1, "names": ["Man"]}, {"object_id": 2, "names": ["tree trunk"]}]},
    {"image_id": 12, "objects": []},
]


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("instances.json").write_text(json.dumps(INSTANCES))
    Path("captions.json").write_text(json.dumps(CAPTIONS))
    Path("synonyms.txt").write_text("dog, puppy\nperson, man\n")
    Path("vg.json").write_text(json.dumps(VISUAL_GENOME))
    Path("labels.csv").write_text(
        "ImageID,Source,LabelName,Confidence\n9,verification,/m/0bt9lr,1\n9,verification,/m/01g317,0\n12,x,/m/0bt9lr,0\n"
    )
    Path("classes.csv").write_text("/m/0bt9lr,Dog\n/m/01g317,Person\n")
    Path("mine.jsonl").write_text(
        '{"image_id": 9, "caption": "A man with a dog."}\n{"image_id": 12, "caption": "A dog and a person."}\n'
    )
    return run


def counts(run: Run, truth: str) -> dict[str, int]:
    code, out, err = run("score", "mine.jsonl", "--truth", truth, "--json", "--resamples", "0")
    assert code == 0, err
    found: dict[str, int] = json.loads(out)["systems"][0]["counts"]
    return {name: found[name] for name in ("covered", "hallucinated", "unknown", "truth")}


def test_chair_truth(run: Run) -> None:
    chair = ("oracle", "chair", "--instances", "instances.json", "--captions", "captions.json", "-o", "truth.json")
    code, _, err = run(*chair, "--synonyms", "synonyms.txt")
    assert (code, err) == (0, "truth.json: 2 images x 2 labels\n")
    document = json.loads(Path("truth.json").read_text())
    assert document == {"objects": {"9": ["dog", "person"], "12": ["dog"]}, "labels": ["dog", "person"]}
    assert counts(run, "truth.json") == {"covered": 3, "hallucinated": 1, "unknown": 0, "truth": 3}
    assert run(*chair, "--profile", "native")[0] == 0
    assert len(json.loads(Path("truth.json").read_text())["labels"]) == 80
    assert run(*chair)[0] == 0  # CHAIR's words come with the project
    assert len(json.loads(Path("truth.json").read_text())["labels"]) == 80


def test_open_images(run: Run) -> None:
    code, _, err = run(
        "oracle", "open-images", "labels.csv", "--classes", "classes.csv", "--vocabulary", "coco80", "-o", "t.npz"
    )
    assert (code, err) == (0, "t.npz: 2 images x 80 labels\n")
    assert counts(run, "t.npz") == {"covered": 1, "hallucinated": 2, "unknown": 1, "truth": 1}
    code, _, err = run("score", "mine.jsonl", "--truth", "labels.csv")
    assert code == 2
    assert "convert them with scapo-eval oracle open-images --classes FILE" in err
    code, _, err = run("oracle", "open-images", "labels.csv", "--classes", "labels.csv", "-o", "u.npz")
    assert code == 2
    assert err.startswith("scapo-eval: labels.csv:1: not a valid file of class names")
    Path("pretty.json").write_text(json.dumps(INSTANCES, indent=1))
    code, _, err = run("oracle", "open-images", "pretty.json", "--classes", "classes.csv", "-o", "u.npz")
    assert (code, err) == (2, "scapo-eval: pretty.json:1: JSON, not a table with at least two columns\n")
    assert not Path("u.npz").exists()


def test_visual_genome(run: Run) -> None:
    assert counts(run, "vg.json") == {"covered": 1, "hallucinated": 3, "unknown": 0, "truth": 1}
    code, _, err = run("oracle", "convert", "vg.json", "-o", "t.json")
    assert code == 0
    assert (
        "t.json cannot store that labels are found by a vocabulary's aliases; select the labels now with --vocabulary"
        in err
    )
    code, _, err = run("oracle", "convert", "vg.json", "--vocabulary", "coco80", "-o", "t.npz")
    assert (code, err) == (0, "t.npz: 2 images x 80 labels\n")
    assert PresenceOracle.load("t.npz").present(9) == {"person"}


@pytest.mark.parametrize(
    ("truth", "world", "unknown"),
    [("instances.json", "closed", 0), ("vg.json", "open-axis", 0), ("labels.csv", "partial", 1)],
)
def test_stats_say_what_absence_means(run: Run, truth: str, world: str, unknown: int) -> None:
    code, out, _ = run("oracle", "stats", truth, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["world"], found["unknown_cells"], found["images"]) == (world, unknown, 2)


def test_stats_of_captions_say_which_labels_may_be_under_annotated(run: Run) -> None:
    truth = {"labels": ["dog", "cat"], "objects": {"1": ["dog"], "2": [], "3": [], "4": ["cat"]}}
    Path("map.json").write_text(json.dumps(truth))
    texts = {"a": ["A dog and a cat.", "A dog.", "A dog, a car."], "b": ["A dog.", "A dog.", "A cat."]}
    for name, captions in texts.items():
        rows = [*({"image_id": k, "caption": text} for k, text in enumerate(captions, 1)),
                {"image_id": 1, "caption": "A cat, a cat."}, {"image_id": 99, "caption": "A dog."}]  # fmt: skip
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = run("oracle", "stats", "map.json", "--captions", "a.jsonl", "--captions", "b.jsonl", "--json")
    assert code == 0, err
    cat, dog = sorted(json.loads(out)["claimed_and_absent"], key=lambda row: row["label"])
    wanted = {
        "label": "dog",
        "annotated": 1,
        "claimed": 3,
        "absent": 2,
        "agreed": 1,
        "share": 2 / 3,
        "images": ["2", "3"],
    }
    assert wanted.items() <= dog.items()
    assert {"annotated": 0, "claimed": 2, "absent": 2, "agreed": 1, "images": ["1", "3"]}.items() <= cat.items()
    assert 0 < dog["low"] < 2 / 3 < dog["high"] < 1
    shown = run("oracle", "stats", "map.json", "--captions", "a.jsonl", "--top", "1")[1]
    assert "claimed and absent, to be checked by a person" in shown
    assert "and 1 more labels" in shown
    assert "claimed_and_absent" not in run("oracle", "stats", "map.json", "--json")[1]


def test_captions_of_coco_are_no_truth(run: Run) -> None:
    code, _, err = run("oracle", "stats", "captions.json")
    assert code == 2
    assert err.startswith("scapo-eval: captions.json: not a valid truth: recognized as reference captions; ")
    assert err.endswith("scapo-eval score CAPTIONS --references captions.json\n")
