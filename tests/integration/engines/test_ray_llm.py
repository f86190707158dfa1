"""``ray.data.llm`` in a real Ray with a stand-in for vLLM, to check the engine's requests and the reading of results.

Chat template, tokenizer and detokenizer are Ray's own stages. Run with ``bash .ci/engines ray_llm``. In other
environments, the tests are skipped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # a busy machine
ray = pytest.importorskip("ray", reason="ray is not installed: bash .ci/engines ray_llm")
pytest.importorskip("ray.data.llm", reason="not all that ray.data.llm wants is installed", exc_type=ImportError)
pytest.importorskip("torch", reason="torch is not installed: bash .ci/engines ray_llm")

from scapo_eval.engines import Completion, Request, Sampling  # noqa: E402
from scapo_eval.engines.base import ONE_TOKEN, YES_NO  # noqa: E402
from scapo_eval.engines.ray_vllm import RayVllmEngine  # noqa: E402

DECLARED = Path(__file__).resolve().parents[2] / "unit" / "vllm_signatures.json"
LONGEST = 40
STAND_IN = """
import dataclasses, json, sys, types
from types import SimpleNamespace as N

DECLARED, SEEN, LONGEST = {declared!r}, {seen!r}, {longest}


def module(name, **parts):
    made = types.ModuleType("vllm." + name)
    made.__dict__.update(parts)
    sys.modules["vllm." + name] = made
    setattr(sys.modules[__name__], name.partition(".")[0], sys.modules["vllm." + name.partition(".")[0]])

class SamplingParams:
    def __init__(self, **given):
        unknown = set(given) - set(DECLARED)
        assert not unknown, unknown
        self.__dict__.update(given)

class StructuredOutputsParams:
    def __init__(self, json):
        self.json = json

@dataclasses.dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None

class RequestOutput:
    def __init__(self, **given):
        self.__dict__.update(given)

class AsyncEngineArgs:
    def __init__(self, **given):
        assert given["dtype"] == "auto" and given["seed"] == 0, given

    def create_engine_config(self):
        return N(scheduler_config=N(max_num_seqs=4), parallel_config=N(pipeline_parallel_size=1))

class AsyncLLMEngine:
    @classmethod
    def from_engine_args(cls, args, stat_loggers=None):
        return cls()

    async def do_log_stats(self):
        pass

    async def generate(self, request_id, prompt, sampling_params, lora_request=None):
        ids = list(prompt["prompt_token_ids"])
        if len(ids) > LONGEST:
            raise ValueError("prompt too long")
        schema = sampling_params.structured_outputs
        with open(SEEN, "a") as stream:
            said = dict(sampling_params.__dict__, structured_outputs=schema and schema.json)
            stream.write(json.dumps(said) + "\\n")
        kept = getattr(sampling_params, "logprobs", None)
        first = {{7: Logprob(-0.5, 1, " Yes"), 3: Logprob(-1.5, 2, "no"), 9: Logprob(-9.0, (kept or 0) + 1, "no")}}
        made = N(token_ids=ids[-sampling_params.max_tokens:], text="", logprobs=[first] if kept else None)
        yield RequestOutput(
            finished=True, prompt=None, prompt_token_ids=ids, metrics=None, prompt_logprobs=None, outputs=[made]
        )

for name in ("v1", "v1.metrics"):
    module(name)
module("v1.metrics.ray_wrappers", RayPrometheusStatLogger=object)
module("outputs", RequestOutput=RequestOutput, PoolingRequestOutput=type("PoolingRequestOutput", (), {{}}))
module("inputs", TokensPrompt=dict, TextPrompt=dict)
module("sampling_params", StructuredOutputsParams=StructuredOutputsParams)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields the file of the stand-in's requests, on a cluster that believes that it has a GPU."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "vllm").mkdir()
    declared = json.loads(DECLARED.read_bytes())["SamplingParams"]
    text = STAND_IN.format(declared=list(declared), seen=str(folder / "seen.jsonl"), longest=LONGEST)
    (folder / "vllm" / "__init__.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        ray.init("local", num_cpus=8, num_gpus=1, include_dashboard=False, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield folder / "seen.jsonl"
        ray.shutdown()


def test_requests_go_through_rays_stages(seen: Path, tiny: ModuleType, tmp_path: Path) -> None:
    engine = RayVllmEngine(str(tiny.build(tmp_path / "model", "text")))
    sampling = Sampling(max_tokens=4, seed=7, stop=("x",))
    asked = [Request.of("A dog .", sampling=sampling), Request.of("A cat . " * 30, sampling=sampling)]
    asked.append(replace(asked[0], schema={"type": "object"}))
    asked += [replace(each, sampling=ONE_TOKEN, choices=YES_NO) for each in asked[:2]]
    found: dict[int, Completion] = {}
    engine.run(asked, lambda request, completion: found.setdefault(asked.index(request), completion))
    for k in (0, 2):
        assert found[k].error is None
        assert (found[k].finish, found[k].completion_tokens) == ("length", 4)
        assert found[k].prompt_tokens is not None
        assert "assistant" in found[k].text  # the end of what the chat template makes of the request
    assert "prompt too long" in str(found[1].error)
    assert found[3].masses == pytest.approx((math.exp(-0.5), math.exp(-1.5)))
    assert found[0].masses is None
    assert "prompt too long" in str(found[4].error)
    told: list[dict[str, Any]] = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(told) == 3
    assert all("logprobs" in each for each in told)  # in all, because columns of a dataset have one structure
    plain = [each for each in told if each["max_tokens"] > 1]
    assert [(each["max_tokens"], each["seed"], each["stop"]) for each in plain] == [(4, 7, ["x"])] * 2
    schemas = {each["structured_outputs"] for each in told}
    assert schemas == {None, json.dumps({"type": "object"}, separators=(",", ":"))}
