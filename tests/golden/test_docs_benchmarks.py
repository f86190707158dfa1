"""Commands of the pages on benchmarks, protocols and claims, run on shared data with the file names of the pages."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scapo_eval import Vocabulary
from scapo_eval.results.benchmark import SUMMARIES, VERB_OF

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = "".join((CHECKOUT / "docs" / name).read_text() for name in ("benchmarks.md", "protocols.md", "claims.md"))
BLOCKS = [block for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if "pip install" not in block]
LINKS = {
    "base.jsonl": "coco_chair/captions/llava-1.5_greedy.jsonl",
    "ours.jsonl": "coco_chair/captions/llava-1.5_ours.jsonl",
    "chair_truth.json.gz": "coco_chair/ground_truth.json.gz",
    "AMBER/data": "amber",
    "amber_descriptions.json": "amber/responses/gen_llava_base.json.gz",
    "amber_answers.json": "amber/responses/disc_messy_a.json.gz",
    "POPE": "pope",
    "pope_answers.jsonl": "pope/llava-v1.5-13b.answers.jsonl",
    "PhD/data.json": "phd/phd_synthetic.json",
    "phd_answers.jsonl": "phd/phd_synthetic_answers.jsonl",
    "verbose_answers.jsonl": "pope/hallusionbench_verbose_254.jsonl",
    "hallusionbench_answers.jsonl": "pope/hallusionbench_verbose_254.jsonl",
    "objhal_truth.json": "objhal/coco_objects.json",
    "vlmevalkit_POPE.xlsx": "pope/formats/vlmevalkit_LLaVA-13B_POPE.xlsx",
}


@pytest.fixture(scope="module")
def folder(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the files that a user of the page has."""
    folder = tmp_path_factory.mktemp("user")
    for name, target in LINKS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to((shared / "data" / target).resolve())
    aliases = json.loads((shared / "data" / "coco_chair" / "vocabulary.json").read_text())["aliases"]
    for name in ("synonyms.txt", "synonyms_refine.txt"):
        (folder / name).write_text("\n".join(", ".join(words) for words in aliases.values()))
    objects = json.loads((folder / "objhal_truth.json").read_text())["objects"]
    described = [
        {"image_id": k, "caption": f"Here one sees a {' and a '.join(v)}, or a cat."} for k, v in objects.items()
    ]
    (folder / "objhal_captions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in described))
    keys = ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id")
    answers = map(json.loads, (folder / "hallusionbench_answers.jsonl").read_text().splitlines())
    questions = [
        {**dict(zip(keys, each["id"].split("/"), strict=True)), "gt_answer": str(int(each["label"] == "yes"))}
        for each in answers
    ]
    (folder / "HallusionBench.json").write_text(json.dumps(questions))
    ratings = [{"image_id": f"{k}.jpg", "judge_text": f"Rating: {k % 7}"} for k in range(96)]
    (folder / "mmhal_ratings.jsonl").write_text("".join(json.dumps(rating) + "\n" for rating in ratings))
    for name in ("facts_detailed.jsonl", "facts_coarse.jsonl"):
        (folder / name).write_text(json.dumps({"id": "1", "facts": ["a", "b"], "verified": [True, False]}) + "\n")
    claim = {"id": "1", "claims": ["a"], "verified": [1], "matched": [None], "references": ["b"], "answers": ["unsaid"]}
    (folder / "claims.jsonl").write_text(json.dumps(claim) + "\n")
    present = json.loads(gzip.decompress((folder / "chair_truth.json.gz").read_bytes()))["objects"]
    categories = {label: k for k, label in enumerate(Vocabulary.load("coco80").labels, 1)}
    annotations = [{"image_id": int(k), "category_id": categories[label]} for k, v in present.items() for label in v]
    named = [{"id": k, "name": label} for label, k in categories.items()]
    instances = {"images": [{"id": int(k)} for k in present], "annotations": annotations, "categories": named}
    (folder / "instances_val2014.json").write_text(json.dumps(instances))
    picture = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    (folder / "images").mkdir()
    for k in present:
        (folder / "images" / f"{k}.png").write_bytes(picture)
    graphs = ({"image_id": k, "objects": [{"name": label} for label in v]} for k, v in present.items())
    (folder / "scene_graphs.jsonl").write_text("".join(json.dumps(graph) + "\n" for graph in graphs))
    return folder


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    """Yields the address, up to /v1, of a server with a judge that lists objects."""
    pytest.importorskip("aiohttp")
    server = [sys.executable, str(CHECKOUT / "tests" / "servers" / "loopback.py")]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield f"http://127.0.0.1:{int(running.stdout.readline())}/v1"
        running.terminate()


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("commands", BLOCKS, ids=lambda block: " ".join(block.split()[1:3]))
def test_commands_of_the_page(commands: str, folder: Path, shared: Path, request: pytest.FixtureRequest) -> None:
    if "opera" in commands or "parity" in commands:
        pytest.importorskip("nltk")
    if "xlsx" in commands:
        pytest.importorskip("openpyxl")
    server = request.getfixturevalue("judge") if "judge " in commands else ""
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        env={
            **os.environ,
            "NLTK_DATA": str(shared / "nltk_data"),
            "OPENAI_BASE_URL": server,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_has_every_benchmark() -> None:
    verbs = {line.split()[1] for block in BLOCKS for line in block.splitlines() if line.startswith("scapo-eval ")}
    others = {"import", "compare", "judge", "protocol", "report"}
    scored = {VERB_OF.get(name, name) for name in SUMMARIES}
    assert verbs == {*scored, *others} - {"score", "density", "augmented"}  # docs/inference.md has the last
