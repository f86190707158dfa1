"""Scorers inside other harnesses and tables for viewers: the values are those of ``scapo-eval chair``."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

import scapo_eval
from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.integrations import lmms_eval, viewers, vlmevalkit
from scapo_eval.integrations.counting import CaptionCounter
from scapo_eval.results.results import load_results

ROOT = Path(__file__).resolve().parents[2]
CAPTIONS, TRUTH = ROOT / "examples" / "captions_baseline.jsonl", ROOT / "examples" / "truth.json"
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in CAPTIONS.read_text().splitlines()]


@pytest.fixture(scope="module")
def run() -> scapo_eval.Run:
    return scapo_eval.chair(CAPTIONS, truth=TRUTH, resamples=0)


def test_one_caption_at_a_time(run: scapo_eval.Run) -> None:
    counter = CaptionCounter.of(TRUTH)
    counts = [counter.counts(record["image_id"], record["caption"]) for record in RECORDS]
    assert counter.values(counts) == pytest.approx(run.values)
    assert counter.evidence(RECORDS[0]["image_id"], "A unicorn and a zebra.")["hallucinated"] == ["zebra"]
    with pytest.raises(InputErrors, match="unknown image id 'nowhere'"):
        counter.counts("nowhere", "A dog.")
    with pytest.raises(InputError, match="truth or protocol is missing"):
        CaptionCounter.of()
    with pytest.raises(InputError, match="'phd' contains no ground truth"):
        CaptionCounter.of(protocol="phd")
    assert "757" in CaptionCounter.of(protocol="chair-opera", profile="reference").scorer.truths[0].oracle.index


def test_lmms_evals_task(run: scapo_eval.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAPO_TRUTH", str(TRUTH))
    folder = ROOT / "examples" / "recipes" / "lmms_eval"
    spec = importlib.util.spec_from_file_location("utils", folder / "utils.py")
    assert spec is not None
    assert spec.loader is not None
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)

    class Loader(yaml.SafeLoader):
        """As lmms-eval's: ``!function file.name`` is a function of a file beside the YAML."""

    Loader.add_constructor(
        "!function", lambda loader, node: getattr(utils, loader.construct_scalar(node).split(".")[1])
    )
    task = yaml.load((folder / "scapo_captions.yaml").read_text(), Loader)
    samples = [task["process_results"]({"image_id": r["image_id"]}, [r["caption"]]) for r in RECORDS]
    for metric in task["metric_list"]:
        name = metric["metric"].removeprefix("scapo_")
        assert metric["aggregation"]([sample[metric["metric"]] for sample in samples]) == run.values[name], name
        assert metric["higher_is_better"] == run.metric_set.higher_is_better.get(name, True)
    with pytest.raises(KeyError, match="the sample contains no image id"):
        lmms_eval.process_results({"text": "x"}, ["A dog."])


def test_lmms_eval_follows_a_given_protocol_with_another_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAPO_TRUTH", str(TRUTH))
    monkeypatch.delenv("SCAPO_PROTOCOL", raising=False)
    assert lmms_eval.counter() is lmms_eval._counter(str(TRUTH), None, None)
    plain = lmms_eval.counter().scorer
    monkeypatch.setenv("SCAPO_PROTOCOL", "chair-opera")
    followed, expected = lmms_eval.counter().scorer, CaptionCounter.of(TRUTH, protocol="chair-opera").scorer
    assert followed.profile.name == expected.profile.name != plain.profile.name
    assert followed.truths[0].oracle.index == expected.truths[0].oracle.index


def test_vlmevalkits_evaluate(run: scapo_eval.Run, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    path = tmp_path / "model_COCOChair.json"
    rows = [
        {"index": k, "question": "?", "image_path": f"{r['image_id']}.jpg", "prediction": r["caption"]}
        for k, r in enumerate(RECORDS)
    ]
    path.write_text(json.dumps(rows))
    [found] = vlmevalkit.evaluate(path, truth=TRUTH, resamples=0).to_dict("records")
    assert found["chair_s"] == 100 * (run.values["chair_s"] or 0)
    assert found["len"] == run.values["len"]
    assert load_results(tmp_path / "model_COCOChair_scapo.json")[0].values == run.values


class Sample(dict[str, Any]):
    """A sample of FiftyOne, as far as it is used."""

    def __init__(self, filepath: str) -> None:
        super().__init__()
        self.filepath = filepath
        self.saved = False

    def save(self) -> None:
        self.saved = True


EVIDENCE = [
    {"image_id": RECORDS[0]["image_id"], "caption": "A dog.", "hallucinated": ["dog"], "missed": ["cat", "cup"]}
]


def test_fields_of_fiftyone(run: scapo_eval.Run) -> None:
    images = [record["image_id"] for record in run.per_image()]
    data = [Sample(f"/data/{image}.jpg") for image in [*images[:3], "stranger"]]
    assert viewers.to_fiftyone(data, run, evidence=EVIDENCE) == 3
    assert [sample.saved for sample in data] == [True, True, True, False]
    first = run.per_image()[0]
    assert data[0]["scapo_chair_s"] == first["chair_s"]
    named = next(sample for sample in data if "scapo_missed" in sample)
    assert (named["scapo_hallucinated"], named["scapo_missed"]) == (["dog"], ["cat", "cup"])
    with pytest.raises(InputError, match="none of the data set's images"):
        viewers.to_fiftyone([Sample("x.jpg")], run)


def test_images_of_fiftyone_are_found_by_the_end_of_their_path() -> None:
    captions = [{"image_id": name, "caption": "A dog."} for name in ("cat.jpg", "dogs/one.jpg", "bird")]
    run = scapo_eval.score(captions, truth={name["image_id"]: ["dog"] for name in captions}, vocabulary="coco80")
    data = [Sample(f"/data/{name}") for name in ("images/cat.jpg", "dogs/one.jpg", "bird.png", "dogs/cat.png")]
    assert viewers.to_fiftyone(data, run) == 3
    assert [sample.saved for sample in data] == [True, True, True, False]


def test_a_table_of_wandb(run: scapo_eval.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("wandb")
    module.Table = lambda columns, data: SimpleNamespace(columns=columns, data=data)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    table = viewers.wandb_table(run, evidence=EVIDENCE)
    assert table.columns == ["image_id", *run.metric_set.formulas, "caption", "hallucinated", "missed"]
    assert len(table.data) == run.n_images
    [row] = [row for row in table.data if row[-1]]
    assert row[-3:] == ["A dog.", "dog", "cat, cup"]
    assert viewers.wandb_table(run).columns == ["image_id", *run.metric_set.formulas]


INSPECT = """
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.solver import solver
from scapo_eval.integrations.inspect_ai import caption_scorer

@solver
def say():
    async def solve(state, generate):
        state.output = ModelOutput.from_content("m", state.metadata["caption"])
        return state
    return solve

records = [*map(json.loads, open(sys.argv[1])), {"image_id": "nowhere", "caption": "A dog."}]
data = [Sample(input="Describe.", id=k, metadata=dict(record)) for k, record in enumerate(records, 1)]
task = Task(dataset=data, solver=say(), scorer=caption_scorer(sys.argv[2]))
[log] = eval(task, model="mockllm/model", display="none")
print(json.dumps([log.status, {k: m.value for score in log.results.scores for k, m in score.metrics.items()}]))
"""
"""A real evaluation; the solver says the captions, so that no model is asked."""


def test_the_scorer_for_inspect_ai(run: scapo_eval.Run, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    command = [sys.executable, "-W", "ignore", "-c", INSPECT, str(CAPTIONS), str(TRUTH)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    status, found = json.loads(done.stdout.splitlines()[-1])
    assert status == "success"
    assert found == pytest.approx({name: run.values[name] for name in lmms_eval.METRICS})  # the stranger is unscored
