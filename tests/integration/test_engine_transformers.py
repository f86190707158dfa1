"""The transformers engine with tiny models, and ``transformers serve`` as a real third-party server."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # forty times faster on tiny models
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
Image = pytest.importorskip("PIL.Image")

from scapo_eval.base.errors import ScapoError  # noqa: E402
from scapo_eval.engines import Completion, Engine, Request, Sampling  # noqa: E402
from scapo_eval.engines.hf import TransformersEngine  # noqa: E402
from scapo_eval.engines.openai_http import OpenAIEngine  # noqa: E402
from scapo_train.config import Model  # noqa: E402
from scapo_train.plan.job import processed  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
]
FAMILIES = ("qwen2_5_vl", "qwen3_vl", "llava")
TIE = 1e-7
"""Difference of log-probabilities below which tokens may change places. Even in float64, norms and rotary embeddings
round to float32.
"""


@pytest.fixture(scope="module")
def images(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns twelve pictures with four widths."""
    folder = tmp_path_factory.mktemp("images")
    tiny.draw(folder, 12)
    return folder


@pytest.fixture(scope="module")
def models(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns a tiny model for every family."""
    root = tmp_path_factory.mktemp("models")
    return {family: tiny.build(root / family, family) for family in (*FAMILIES, "text")}


def run(engine: Engine, requests: list[Request]) -> list[Completion]:
    """Returns the completions in the order of the requests."""
    found: dict[int, Completion] = {}
    engine.run(requests, lambda request, response: found.__setitem__(id(request), response))
    return [found[id(request)] for request in requests]


def some(images: Path, sampling: Sampling) -> list[Request]:
    """Returns requests with prompts of different lengths and pictures of different sizes, including one without a
    picture.
    """
    requests = [
        Request.of("Describe this image ." + " red" * (5 * k % 17), str(images / f"{k}.png"), sampling)
        for k in range(1, 12)
    ]
    return [*requests, Request.of("Is there a dog ?", None, sampling)]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_answers_equal_generate_one_by_one_for_any_batch_size(
    models: dict[str, Path], images: Path, family: str
) -> None:
    sampling = Sampling(max_tokens=16)
    requests = some(images, sampling)
    engine = TransformersEngine(str(models[family]), dtype="float64", device="cpu")
    alone: list[str] = []
    near_ties: list[bool] = []
    for request in requests:
        inputs = engine.inputs([request])
        with torch.inference_mode():
            made = engine.model.generate(
                **inputs, **engine.settings(sampling), return_dict_in_generate=True, output_scores=True
            )
        tokens = made.sequences[0, inputs["input_ids"].shape[1] :]
        alone.append(engine._tokenizer.decode(tokens, skip_special_tokens=True).strip())
        best = torch.stack(made.scores)[:, 0].topk(2).values
        near_ties.append(bool((best[:, 0] - best[:, 1] <= TIE).any()))
    assert sum(near_ties) <= 2
    assert len(set(alone)) > 6
    for batch_size in (1, 2, 5, 12):
        engine.batch_size = batch_size
        texts = [response.text for response in run(engine, requests)]
        assert [t for t, tie in zip(texts, near_ties, strict=True) if not tie] == [
            t for t, tie in zip(alone, near_ties, strict=True) if not tie
        ]


def test_sampled_answers_do_not_depend_on_the_batch_and_hold_no_image_token(
    models: dict[str, Path], images: Path
) -> None:
    engine = TransformersEngine(str(models["qwen2_5_vl"]), dtype="float64", device="cpu")
    sampling = Sampling(temperature=1.5, top_p=0.95, max_tokens=24)
    requests = [Request.of("Describe this image .", str(images / "1.png"), sampling, sample=k) for k in range(24)]
    engine.batch_size = 24
    together = [response.text for response in run(engine, requests)]
    engine.batch_size = 5
    assert [response.text for response in run(engine, requests)] == together
    assert len(set(together)) == 24  # every sample has a seed of its own
    raw = engine.settings(sampling)["suppress_tokens"]
    assert set(raw) == set(engine._tokenizer.convert_tokens_to_ids(
        ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    ))  # fmt: skip


def test_seeded_draws_follow_the_distribution(models: dict[str, Path]) -> None:
    engine = TransformersEngine(str(models["text"]), dtype="float32", device="cpu", batch_size=500)
    sampling = Sampling(temperature=0.7, top_k=3, max_tokens=1)
    inputs = engine.inputs([Request.of("Is there a dog ?")])
    with torch.inference_mode():
        logits = engine.model(**inputs).logits[0, -1].float() / 0.7
    best = logits.topk(3)
    expected = torch.softmax(best.values, -1)
    words = [engine._tokenizer.decode([token], skip_special_tokens=True) for token in best.indices.tolist()]
    texts = [
        r.text for r in run(engine, [Request.of("Is there a dog ?", None, sampling, sample=k) for k in range(1500)])
    ]
    assert set(texts) <= set(words)
    for word, probability in zip(words, expected.tolist(), strict=True):
        spread = (probability * (1 - probability) / 1500) ** 0.5
        assert abs(texts.count(word) / 1500 - probability) < 4.5 * spread + 1e-9


def test_penalties_are_those_of_generate_and_padding_has_none(models: dict[str, Path], tmp_path: Path) -> None:
    engine = TransformersEngine(str(models["text"]), dtype="float64", device="cpu")
    requests = [
        Request.of("Is there a dog ?" + " red" * (3 * k), None, Sampling(max_tokens=12, repetition_penalty=1.7))
        for k in range(6)
    ]
    expected = []
    for request in requests:
        settings = engine.settings(request.sampling) | {"repetition_penalty": 1.7}
        inputs = engine.inputs([request])
        tokens = engine.model.generate(**inputs, **settings)[0, inputs["input_ids"].shape[1] :]
        expected.append(engine._tokenizer.decode(tokens, skip_special_tokens=True).strip())
    assert [response.text for response in run(engine, requests)] == expected
    plain = [Request(request.turns, Sampling(max_tokens=12)) for request in requests]
    assert [response.text for response in run(engine, plain)] != expected
    never_again = Sampling(max_tokens=12, frequency_penalty=1e6)
    for response in run(engine, [Request(request.turns, never_again) for request in requests]):
        assert len(set(response.text.split())) == len(response.text.split())


TRAP = {"do_sample": True, "temperature": 1e-6, "top_k": 1, "repetition_penalty": 1.05, "no_repeat_ngram_size": 1}
"""Sampling settings of checkpoints (Qwen2.5-VL: temperature 1e-6, repetition penalty 1.05), and worse settings."""


@pytest.fixture
def trapped(models: dict[str, Path], tmp_path: Path) -> Path:
    """Returns a model with its own sampling settings."""
    folder = shutil.copytree(models["text"], tmp_path / "trapped")
    own = orjson.loads((folder / "generation_config.json").read_bytes())
    (folder / "generation_config.json").write_bytes(orjson.dumps(own | TRAP))
    return folder


def test_the_settings_of_a_checkpoint_act_only_where_they_are_asked_for(models: dict[str, Path], trapped: Path) -> None:
    plain = TransformersEngine(str(models["text"]), dtype="float64", device="cpu")
    other = TransformersEngine(str(trapped), dtype="float64", device="cpu")
    for sampling in (Sampling(max_tokens=16), Sampling(temperature=1.0, max_tokens=16)):
        requests = [Request.of("Is there a dog ?", None, sampling, sample=k) for k in range(8)]
        texts = [response.text for response in run(other, requests)]
        assert texts == [response.text for response in run(plain, requests)]
    assert len(set(texts)) > 1
    own = Sampling(
        temperature=None, top_p=None, top_k=None, min_p=None, repetition_penalty=None, presence_penalty=None,
        frequency_penalty=None, max_tokens=16,
    )  # fmt: skip
    texts = [each.text for each in run(other, [Request.of("Is there a dog ?", None, own, sample=k) for k in range(8)])]
    assert len(set(texts)) == 1  # top_k = 1
    assert other.card["sampling"] == {
        "temperature": 1e-6, "top_p": 1.0, "top_k": 1, "min_p": 0.0, "repetition_penalty": 1.05,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "max_tokens": 16,
    }  # fmt: skip


def _assert_drawn_from(counts: Counter[str], chances: dict[str, float], number: int) -> None:
    """Checks a sample with Pearson's test at a level of 1e-4. Words with an expected count below five are combined."""
    assert set(counts) <= set(chances)
    common = [word for word, chance in chances.items() if number * chance >= 5]
    cells = [(counts[word], number * chances[word]) for word in common]
    cells.append((number - sum(seen for seen, _ in cells), number - sum(expected for _, expected in cells)))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells if expected > 1e-9)
    freedom = len(cells) - 1
    spread = 2 / (9 * freedom)
    assert freedom >= 4
    assert statistic < freedom * (1 - spread + 3.72 * spread**0.5) ** 3, (statistic, freedom)  # Wilson and Hilferty


def test_a_server_and_the_own_engine_draw_alike_whatever_the_checkpoint_says(
    trapped: Path, serve: Callable[[str], str]
) -> None:
    told: list[str] = []
    server = OpenAIEngine(str(trapped), serve(str(trapped)), concurrency=4, warn=told.append)
    here = TransformersEngine(str(trapped), dtype="float32", device="cpu", batch_size=200)
    prompts = ["Is there a dog ?", "Describe this image .", "red cat", "Answer yes or no"]
    greedy = [Request.of(prompt, None, Sampling(max_tokens=12)) for prompt in prompts]
    assert [each.text.split() for each in run(server, greedy)] == [each.text.split() for each in run(here, greedy)]

    sampling = Sampling(temperature=0.8, max_tokens=12)
    assert len({each.text for each in run(server, [Request.of("a", None, sampling, sample=k) for k in range(8)])}) > 4

    number = 400
    draws = [
        Request.of("Is there a dog ?", None, Sampling(temperature=0.8, max_tokens=1), sample=k) for k in range(number)
    ]
    inputs = here.inputs(draws[:1])
    with torch.inference_mode():
        chances = torch.softmax(here.model(**inputs).logits[0, -1].float() / 0.8, -1)
    chance_of: dict[str, float] = {}
    for token, chance in enumerate(chances.tolist()):
        word = here._tokenizer.decode([token], skip_special_tokens=True).strip()
        chance_of[word] = chance_of.get(word, 0.0) + chance
    for engine in (server, here):
        counts = Counter(each.text.strip() for each in run(engine, draws))
        _assert_drawn_from(counts, chance_of, number)
    assert told == []
    assert orjson.loads(server.card["sampling"]["generation_config"]) == {
        "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "num_beams": 1,
        "do_sample": True,
    }  # fmt: skip
    run(server, [Request.of("a", None, Sampling(max_tokens=1, presence_penalty=0.5))])
    assert len(told) == 1
    assert "presence_penalty (0.5 was requested)" in told[0]


def test_what_cannot_be_answered_fails_alone(models: dict[str, Path], images: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes((images / "1.png").read_bytes()[:60])
    sampling = Sampling(max_tokens=4)
    engine = TransformersEngine(str(models["qwen2_5_vl"]), dtype="float32", device="cpu", batch_size=4)
    good, missing, broken, long, also = run(
        engine,
        [
            Request.of("Describe", str(images / "1.png"), sampling),
            Request.of("Describe", str(tmp_path / "none.png"), sampling),
            Request.of("Describe", str(tmp_path / "broken.png"), sampling),
            Request.of("red " * 600, str(images / "2.png"), sampling),
            Request.of("Describe", str(images / "3.png"), sampling),
        ],
    )
    assert good.error is None
    assert also.error is None
    assert good.completion_tokens == 4
    assert good.finish == "length"
    assert "file not found" in str(missing.error)
    assert "damaged" in str(broken.error)
    assert "exceed the model's context of 512" in str(long.error)
    blind = TransformersEngine(str(models["text"]), dtype="float32", device="cpu")
    seen, said = run(blind, [Request.of("Describe", str(images / "1.png"), sampling), Request.of("Is", None, sampling)])
    assert "text-only" in str(seen.error)
    assert said.error is None
    with pytest.raises(ScapoError, match="cannot load"):
        TransformersEngine(str(tmp_path), device="cpu")


def test_damaged_weights_and_too_little_memory_are_one_line(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = shutil.copytree(models["llava"], tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    said = f"transformers cannot load {broken}: Error while deserializing header"
    with pytest.raises(ScapoError, match=re.escape(said)):
        TransformersEngine(str(broken), dtype="float32", device="cpu")

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr("transformers.LlavaForConditionalGeneration.to", full)
    with pytest.raises(ScapoError, match=r"llava: CUDA out of memory\. Tried to allocate 2 GiB"):
        TransformersEngine(str(models["llava"]), dtype="float32", device="cpu")


def test_out_of_memory_halves_the_batch(models: dict[str, Path], images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TransformersEngine(str(models["llava"]), dtype="float64", device="cpu", batch_size=8)
    requests = some(images, Sampling(max_tokens=4))[:8]
    expected = run(engine, requests)
    sizes: list[int] = []
    whole = engine.model.generate

    def small(**inputs: Any) -> Any:
        sizes.append(len(inputs["input_ids"]))
        if len(inputs["input_ids"]) > 2:
            raise torch.OutOfMemoryError("too much")
        return whole(**inputs)

    monkeypatch.setattr(engine.model, "generate", small)
    assert run(engine, requests) == expected
    assert max(sizes) == 8


def test_the_identity_tells_models_apart(models: dict[str, Path], tiny: ModuleType, tmp_path: Path) -> None:
    def identity(folder: Path) -> Any:
        return TransformersEngine(str(folder), dtype="float32", device="cpu").identity

    same = shutil.copytree(models["llava"], tmp_path / "same")
    other = tiny.build(tmp_path / "other", "llava", seed=1)
    assert identity(same)["weights"] == identity(models["llava"])["weights"]
    assert identity(other)["weights"] != identity(models["llava"])["weights"]
    assert identity(same)["processor"]["crop_size"] == {"height": 56, "width": 56}


def environment() -> dict[str, str]:
    """Returns environment variables for one thread and no hub."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture
def served(models: dict[str, Path], serve: Callable[[str], str]) -> tuple[str, str]:
    """Returns the base URL and the model of ``transformers serve`` with a tiny model."""
    # the server's loader asks for Qwen's video processor, which needs torchvision
    model = str(models["qwen2_5_vl" if importlib.util.find_spec("torchvision") else "llava"])
    return serve(model), model


def test_describes_with_transformers_serve_and_gets_what_the_own_engine_gets(
    served: tuple[str, str], images: Path, tmp_path: Path
) -> None:
    url, model = served
    command = [
        sys.executable,
        "-m",
        "scapo_eval.cli.main",
        "describe",
        str(images),
        "--model",
        model,
        "--max-tokens",
        "8",
    ]
    remote, local = tmp_path / "remote.jsonl", tmp_path / "local.jsonl"
    asked = [*command, "-o", str(remote), "--base-url", url, "--concurrency", "2"]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment(), timeout=600)
    own = [*command, "-o", str(local), "--engine", "transformers", "--device", "cpu", "--dtype", "float32"]
    done_here = subprocess.run(own, capture_output=True, text=True, env=environment(), timeout=600)
    theirs, ours = ([orjson.loads(line) for line in path.read_bytes().splitlines()] for path in (remote, local))
    for process, rows in ((done, theirs), (done_here, ours)):  # random weights may say nothing but white space
        assert process.returncode == (0 if all(row["caption"] for row in rows) else 4), process.stderr
    assert [row["image_id"] for row in theirs] == [row["image_id"] for row in ours]
    assert len(theirs) == 12
    same = sum(a["caption"].split() == b["caption"].split() for a, b in zip(theirs, ours, strict=True))
    assert same >= 10  # it does not suppress image tokens, and may break near ties otherwise
    assert remote.read_bytes() == _again(asked, remote)
    card = orjson.loads(Path(f"{local}.run.json").read_bytes())
    assert card["environment"]["architecture"].endswith("ForConditionalGeneration")
    assert len(card["engine"]["weights"]) == 16


def _again(command: list[str], output: Path) -> bytes:
    """Returns the output file of a new run."""
    output.unlink()
    subprocess.run([*command, "--restart"], capture_output=True, env=environment(), timeout=600)
    return output.read_bytes()


def test_the_recipe_runs_as_it_is_written(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "examples/describe_and_score/README.md").read_text()
    commands = text.split("<!-- recipe -->\n```bash\n")[1].split("```")[0]
    (tmp_path / "examples").symlink_to(root / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=tmp_path, env={**environment(), "PATH": path},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len((tmp_path / "work/captions.jsonl").read_bytes().splitlines()) == 12
    assert "hal_rate" in done.stdout
    assert (tmp_path / "work/report.html").stat().st_size > 1000


@pytest.mark.parametrize("begins", ["", "{{ bos_token }}"])
def test_the_beginning_of_sequence_occurs_once(tiny: ModuleType, images: Path, tmp_path: Path, begins: str) -> None:
    """Chat templates may contain the token, and tokenizers may add it. With Gemma 3, both is the case."""
    path = tiny.build(tmp_path / "model", "llava")
    words = transformers.AutoTokenizer.from_pretrained(path, bos_token="<unk>")
    bos = words.convert_tokens_to_ids("<unk>")
    words.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<unk> $A", special_tokens=[("<unk>", bos)]
    )
    words.chat_template = begins + words.chat_template
    words.save_pretrained(path)
    engine = TransformersEngine(str(path), dtype="float32", device="cpu")
    request = Request.of("Describe this image .", str(images / "1.png"), Sampling())
    for made in (engine.inputs([request]), processed(Model(path=str(path)), 56, 56)):
        assert (made["input_ids"][0, :2] == bos).tolist() == [True, False]
