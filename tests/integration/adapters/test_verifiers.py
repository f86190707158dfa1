"""The recipe's taskset in verifiers itself, which is found by name and scores traces with SCAPO's reward."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed here; .ci/adapters verifiers installs it")

from verifiers.v1.cli.eval.main import main as vf_eval  # noqa: E402
from verifiers.v1.utils.loaders import load_taskset  # noqa: E402

from scapo_eval import InputError, reward_fn  # noqa: E402

RECIPES = Path(__file__).parents[3] / "examples" / "recipes"


@pytest.fixture
def taskset(tmp_path: Path, truth_file: Path, vocabulary_file: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(RECIPES))
    (tmp_path / "1.png").write_bytes(b"picture")
    rows = [{"image_id": 1, "image": "1.png"}, {"image_id": 2, "image": "https://x/2.jpg", "prompt": "What is it?"}]
    (tmp_path / "images.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"truth": str(truth_file), "vocabulary": str(vocabulary_file), "reward": {"r_h": 2.0}}
    import scapo_captions

    config = {"id": "scapo-captions", "data": tmp_path / "images.jsonl", "task": task}
    return load_taskset(scapo_captions.CaptionConfig.model_validate(config))


def test_a_trace_gets_the_reward_and_its_counts(taskset: Any, truth_file: Path, vocabulary_file: Path) -> None:
    expected = reward_fn(str(vocabulary_file), str(truth_file), r_h=2.0)
    for task, text in zip(taskset, ("A dog and a tree. A car is there.", "A cat. A cat."), strict=True):
        traced = vf.TraceTask(type="CaptionTask", data=task.data)
        trace = vf.Trace(task=traced, agent=vf.AgentInfo(config=vf.AgentConfig()), root_reply=text)
        asyncio.run(task.score(trace))
        assert trace.reward == expected(completion=text, info={"image_id": task.data.image_id})
        assert trace.metrics["hallucinated"] == text.count("car")


def test_pictures_travel_inside_the_prompt(taskset: Any) -> None:
    (first, second) = (task.data.prompt[0].content for task in taskset)
    assert first[1].image_url.url == "data:image/png;base64," + base64.b64encode(b"picture").decode()
    assert (second[0].text, second[1].image_url.url) == ("What is it?", "https://x/2.jpg")


def test_the_command_of_the_recipe_sets_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.chdir(tmp_path)
    import scapo_captions

    text = str(scapo_captions.__doc__).replace("\\\n", "").replace(" ...", " --dry-run")
    [command] = [line for line in text.splitlines() if "scapo-captions" in line]
    name, *arguments = command.split()[1:]
    assert name == "vf-eval"
    vf_eval(arguments)
    [written] = tmp_path.rglob("eval.json")
    taskset = json.loads(written.read_text())["env"]["taskset"]
    assert (taskset["data"], taskset["task"]["truth"]) == ("images.jsonl", "truth.npz")
    with pytest.raises(InputError, match=r"set --env\.taskset\.data and --env\.taskset\.task\.truth"):
        list(load_taskset(scapo_captions.CaptionConfig(id="scapo-captions")))
