"""Checkpoints and exports: bit-equal on any number of ranks, atomic, and intact if the disk is full."""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_train.checkpoint.save import Checkpoints, export  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "checkpoint_ranks.py"


spec = importlib.util.spec_from_file_location("checkpoint_ranks", PROGRAM)
assert spec is not None
assert spec.loader is not None
toys = importlib.util.module_from_spec(spec)
spec.loader.exec_module(toys)


def ranks(number: int, folder: Path, *actions: str) -> None:
    """Runs the program's actions in a number of processes."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number), "--no-python"]
    done = subprocess.run(
        ["python", *torchrun, "python", str(PROGRAM), str(folder), *actions],
        capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def read(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def trainable(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in found.items() if "tower" not in name}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def trained() -> tuple[Any, Any]:
    """Returns a toy model after two steps, and its optimizer."""
    toy, optimizer = toys.made(0)
    toys.train(toy, optimizer)
    return toy, optimizer


@pytest.mark.usefixtures("warm")
def test_any_number_of_ranks_reads_what_any_number_wrote(trained: tuple[Any, Any], tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "one", 2).save(2, *trained, {"sampler": [1, 2]})
    one = toys.tensors(*trained)
    ranks(2, tmp_path, "save:two", "load:one:one_on_two", "load:two:two_on_two")
    two = read(tmp_path / "two.pt")
    assert len(one) == len(two) == 2 + 7 * 4  # the tower's two, seven trainable ones with their moments and step
    for name in ("one_on_two", "two_on_two"):
        loaded = read(tmp_path / f"{name}.pt")
        assert loaded.pop("state") == {"step": 2, "sampler": [1, 2]}
        written = one if name.startswith("one") else two
        assert equal(trainable(loaded), trainable(written))
    toy, optimizer = toys.made(5)
    assert Checkpoints(tmp_path / "two", 2).load(tmp_path / "two" / "step-000002", toy, optimizer)["step"] == 2
    tower = toy.tower.weight.clone()
    loaded = toys.tensors(toy, optimizer)
    assert equal(trainable(loaded), trainable(two))
    assert torch.equal(toy.tower.weight, tower)
    assert toy.head.weight is toy.embed.weight


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("number", [1, 2])
def test_training_goes_on_while_a_checkpoint_is_written(number: int, tmp_path: Path) -> None:
    ranks(number, tmp_path, "save:now", "later:later", "load:later:loaded")
    loaded = read(tmp_path / "loaded.pt")
    assert loaded.pop("state") == {"step": 2, "sampler": [1, 2]}
    assert equal(trainable(loaded), trainable(read(tmp_path / "now.pt")))
    folders = [tmp_path / name / "step-000002" for name in ("now", "later")]
    assert len({tuple((path.name, path.read_bytes()) for path in sorted(each.iterdir())) for each in folders}) == 1


@pytest.mark.usefixtures("warm")
def test_shards_of_a_machine_and_of_all_ranks_read_each_other(tmp_path: Path) -> None:
    ranks(4, tmp_path, "save:world", "within:machine", "save:machine", "load:world:from_world", "within:world",
          "load:machine:from_machine")  # fmt: skip
    for name in ("world", "machine"):
        loaded = read(tmp_path / f"from_{name}.pt")
        assert loaded.pop("state")["step"] == 2
        assert equal(trainable(loaded), trainable(read(tmp_path / f"{name}.pt")))


def test_training_goes_on_bit_equal(trained: tuple[Any, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(2, *trained, {})
    toys.train(*trained, 3)
    toy, optimizer = toys.made(0)
    optimizer.param_groups[0]["lr"] = 0.5
    latest = checkpoints.latest()
    assert latest is not None
    checkpoints.load(latest, toy, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.5  # settings are the configuration's
    optimizer.param_groups[0]["lr"] = 0.1
    toys.train(toy, optimizer, 3)
    assert equal(toys.tensors(toy, optimizer), toys.tensors(*trained))


def test_a_checkpoint_before_the_first_update_is_read(tmp_path: Path) -> None:
    checkpoints, (toy, optimizer) = Checkpoints(tmp_path, 1), toys.made(0)
    assert checkpoints.save(1, toy, optimizer, {})
    again = toys.made(0)  # the frozen tower is not saved
    toys.train(*again)  # its moments must not remain
    checkpoints.load(tmp_path / "step-000001", *again)
    assert not again[1].state
    for each in ((toy, optimizer), again):
        toys.train(*each)
    assert equal(toys.tensors(toy, optimizer), toys.tensors(*again))


def test_the_newest_complete_ones_are_kept(trained: tuple[Any, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "deep" / "er", 2)
    assert checkpoints.latest() is None
    for step in (9, 10, 1_000_000):
        assert checkpoints.save(step, *trained, {"at": step})
    names = ["step-000010", "step-1000000"]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == names
    shutil.copytree(checkpoints.folder / names[0], checkpoints.folder / "step-2000000.part")  # a killed save
    (checkpoints.folder / "step-3000000").mkdir()  # no state: something else's
    (checkpoints.folder / "step-of-mine.txt").write_text("")
    assert checkpoints.latest() == checkpoints.folder / names[1]
    assert checkpoints.save(1_000_000, *trained, {"at": "again"})
    assert checkpoints.load(checkpoints.folder / names[1], *trained) == {"step": 1_000_000, "at": "again"}
    assert not list(checkpoints.folder.glob("*.part"))


class Death(BaseException):
    """Exception that no handler catches."""


def mortal(real: Callable[..., Any], calls: Iterator[int]) -> Callable[..., Any]:
    """Wraps a function so that it fails after a number of calls."""

    def call(*arguments: Any, **named: Any) -> Any:
        if next(calls, None) is None:
            raise Death
        return real(*arguments, **named)

    return call


def test_death_at_any_moment_of_a_save_leaves_a_complete_checkpoint(
    trained: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Checkpoints(tmp_path, 1).save(0, *trained, {})
    found = [0]
    for last in itertools.count():
        calls = iter(range(last))
        step = found[-1] + 1
        with monkeypatch.context() as patched:
            for name in ("fsync", "rename", "replace", "rmdir"):
                patched.setattr(os, name, mortal(getattr(os, name), calls))
            try:
                done = Checkpoints(tmp_path, 1).save(step, *trained, {})
            except (Death, CheckpointException):
                done = False
        latest = Checkpoints(tmp_path, 1).latest()
        assert latest is not None
        toy, optimizer = toys.made(5)
        found.append(Checkpoints(tmp_path, 1).load(latest, toy, optimizer)["step"])
        assert found[-1] in (step, step - 1)
        assert equal(trainable(toys.tensors(toy, optimizer)), trainable(toys.tensors(*trained)))
        if done:
            break
    assert last > 8  # moments of death
    assert found.count(0) > 4  # before the new one was complete
    assert [path.name for path in tmp_path.iterdir()] == [f"step-{step:06d}"]


def test_a_full_disk_leaves_the_last_good_checkpoint(
    trained: tuple[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(1, *trained, {})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for limit in (0, 500, 2000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            with caplog.at_level(logging.WARNING):
                caplog.clear()
                assert not checkpoints.save(2, *trained, {"long": "x" * 1000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert "step 2 was not saved" in caplog.text
        assert "File too large" in caplog.text
        assert f"the last good one is {tmp_path / 'step-000001'}" in caplog.text
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert checkpoints.save(2, *trained, {})
    assert checkpoints.latest() == tmp_path / "step-000002"


def test_a_folder_that_cannot_be_made_is_a_warning(
    trained: tuple[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert not Checkpoints(tmp_path / "file" / "checkpoints", 1).save(1, *trained, {})
    assert "there is no earlier one" in caplog.text


@pytest.mark.usefixtures("warm")
def test_all_ranks_hear_that_one_could_not_write(tmp_path: Path) -> None:
    ranks(2, tmp_path, "save:run", "full:run")
    assert read(tmp_path / "run.pt") == (False, True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-000002", "step-000004"]


@pytest.mark.parametrize("damage", ["truncated", "another model", "no state"])
def test_what_cannot_be_read_is_named(trained: tuple[Any, Any], tmp_path: Path, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(1, *trained, {})
    path = tmp_path / "step-000001"
    toy, optimizer = toys.made(5)
    if damage == "truncated":
        shard = path / "rank-0-0.safetensors"
        shard.write_bytes(shard.read_bytes()[:1500])
    elif damage == "no state":
        (path / "state.json").unlink()
    else:
        toy.layers.append(torch.nn.Linear(2, 2))
        optimizer.add_param_group({"params": list(toy.layers[-1].parameters())})
    with pytest.raises(InputError, match="file not found" if damage == "no state" else "is damaged, or of another"):
        checkpoints.load(path, toy, optimizer)


def test_flipped_bits_are_found(trained: tuple[Any, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(1, *trained, {})
    path = tmp_path / "step-000001"
    shard = path / "rank-0-0.safetensors"
    whole = shard.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for at in np.random.default_rng(0).integers(header, len(whole), 20).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        shard.write_bytes(damaged)
        with pytest.raises(InputError, match="has another checksum than"):
            checkpoints.load(path, *toys.made(5))
    shard.write_bytes(whole)
    checkpoints.load(path, *toys.made(5))


def test_flipped_bits_of_the_state_are_found(trained: tuple[Any, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    state = {"bad": [3], "best": {"value": 0.1 + 0.2}, "ahead": {"7": {"ids": [[5, 2**40]], "logprobs": [[-1e-7]]}}}
    assert checkpoints.save(1, *trained, state)
    path = tmp_path / "step-000001"
    file = path / "state.json"
    whole = file.read_bytes()
    for at in range(whole.index(b',"crc32"')):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 4
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"state\.json"):
            checkpoints.state(path)
    file.write_bytes(whole.partition(b',"crc32"')[0] + b"}")  # as an earlier version wrote it
    assert checkpoints.state(path) == {"step": 1, **state}
    file.write_bytes(whole)
    assert checkpoints.state(path) == {"step": 1, **state}
    file.write_bytes(whole.replace(b"[[5,", b"[[4,"))
    with pytest.raises(
        InputError, match=r"state\.json: damaged: its crc32 is another; remove the checkpoint to resume"
    ):
        checkpoints.load(path, *toys.made(5))


def test_chunks_that_overlap_are_damage(trained: tuple[Any, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(1, *trained, {})
    index = tmp_path / "step-000001" / "index.json"
    table = json.loads(index.read_text())
    entry = table["tensors"]["model.embed.weight"]
    (chunk,) = entry["chunks"]
    rows, width = entry["shape"]
    halves = [{**chunk, "offset": [at, 0], "shape": [rows // 2, width]} for at in (0, 1)]
    last = {**chunk, "offset": [rows - 1, 0], "shape": [rows - 2 * (rows // 2), width]}
    entry["chunks"] = [*halves, last]  # of the volume of the whole, but one row twice and another never
    index.write_text(json.dumps(table))
    with pytest.raises(InputError, match="do not cover its shape exactly once"):
        checkpoints.load(tmp_path / "step-000001", *toys.made(5))


def test_a_chunk_of_another_dtype_is_damage(trained: tuple[Any, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    assert checkpoints.save(1, *trained, {})
    index = tmp_path / "step-000001" / "index.json"
    table = json.loads(index.read_text())
    entry = table["tensors"]["model.embed.weight"]
    entry["dtype"] = {"float32": "int32", "bfloat16": "float16"}[entry["dtype"]]  # as wide: sizes and bytes fit
    index.write_text(json.dumps(table))
    with pytest.raises(InputError, match="has another dtype than in"):
        checkpoints.load(tmp_path / "step-000001", *toys.made(5))


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForImageTextToText

    model, report = AutoModelForImageTextToText.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return model


def pair(model: Any) -> dict[str, Any]:
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("tied", [False, True])
def test_exports_load_as_they_were(tiny: ModuleType, tmp_path: Path, family: str, tied: bool) -> None:
    from transformers import AutoModelForImageTextToText

    tiny.build(tmp_path / "base", family)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "base", dtype=torch.float32)
    if tied:
        model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = True
        model.lm_head.weight = model.model.language_model.embed_tokens.weight
    for dtype in (torch.float32, torch.bfloat16):
        export(model, tmp_path / "base", tmp_path / "out", dtype)
        again = loaded(tmp_path / "out")
        assert again.dtype == dtype
        assert (again.lm_head.weight.data_ptr() == again.model.language_model.embed_tokens.weight.data_ptr()) == tied
        assert equal(pair(again), {name: tensor.to(dtype) for name, tensor in pair(model).items()})
        assert model.dtype == torch.float32
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "out"]
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    try:
        with pytest.raises(InputError, match=r"out: cannot be written: .*File too large"):
            export(model, tmp_path / "base", tmp_path / "out", torch.float32)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    assert loaded(tmp_path / "out").dtype == torch.bfloat16


@pytest.mark.usefixtures("warm")
def test_a_sharded_model_exports_the_same_bytes(tiny: ModuleType, tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    tiny.build(tmp_path / "base", "qwen2_5_vl")
    ranks(2, tmp_path, "export:base:two:float32")
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "base", dtype=torch.float32)
    export(model, tmp_path / "base", tmp_path / "one", torch.float32)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
