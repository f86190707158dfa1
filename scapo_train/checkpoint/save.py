"""Checkpoints for resuming a run, and exports in Hugging Face format.

A checkpoint is a folder ``step-000123`` with ``state.json``, the trainable parameters and the optimizer's moments. Each
rank writes a part of the checkpoint, and the checkpoint can be loaded on any number of ranks. The files contain no
executable code (``tensor_files.py``). Frozen parameters are not saved, because the base model contains them. All files
are written to a folder with a temporary name and synchronized to the disk. The folder is then renamed, so that a folder
with its final name is always complete. If several machines are used, the folder must be on a shared file system.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException

from scapo_eval.base.errors import InputError, in_one_line
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json, read_json

from ..families.experts import has_stacks
from ..families.lora import adapter_weights, merged_weights, save_adapter, unwrapped
from .tensor_files import INDEX, Reader, Writer

logger = logging.getLogger(__name__)

STATE = "state.json"
_CHECKSUM = "crc32"  # of the state without this field, which earlier checkpoints lack
_PICKLED = ".metadata"  # index of checkpoints before version 0.2
_NAME = re.compile(r"step-(\d+)")
_COPIED = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
_TEMPLATES = "additional_chat_templates"
_PART = ".part"
"""Suffix of folders that are incomplete or about to be deleted."""


class Checkpoints:
    """Checkpoints of a training run. All ranks must create this object and make the same calls.

    Args:
        folder: Folder for the checkpoints, which is created when the first checkpoint is saved.
        keep: Number of checkpoints to keep, or 0 to keep all. While a checkpoint is being saved, the disk must
            have room for one additional checkpoint.
        background: True to write files from a copy of the tensors in host memory while training continues.
    """

    def __init__(self, folder: Path, keep: int, *, background: bool = False) -> None:
        self.folder = folder
        self.keep = keep
        self._thread = ThreadPoolExecutor(1) if background else None
        self._pending: Future[bool] | None = None
        self.seconds = 0.0
        """Duration of the last save, including a save in the background."""
        # the thread and the training have different collective operations at the same time
        self._group = dist.new_group(backend="gloo") if background and dist.is_initialized() else None

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: Mapping[str, Any],
        *,
        wait: bool = True,
    ) -> bool:
        """Writes a checkpoint, removes incomplete folders from interrupted saves, and removes the oldest checkpoints
        until ``keep`` are left.

        Args:
            step: Number of completed steps. An existing checkpoint of the same step is replaced.
            model: Model whose trainable parameters are written, with or without sharding (DTensor).
            optimizer: Optimizer of the trainable parameters.
            state: Additional state for resuming, as JSON.
            wait: False to write in the background. The next call first waits until the write operation has finished.

        Returns:
            True if the checkpoint was written; always True if it is written in the background. If the disk is full or
            not writable, the result is False, a warning is logged, and earlier checkpoints remain unchanged.
        """
        self.wait()
        tensors, whole = _tensors(model, optimizer), {"step": step, **state}
        content = dump_json({**whole, _CHECKSUM: zlib.crc32(dump_json(whole))})
        if wait or self._thread is None:
            return self._save(step, tensors, content)
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self._pending = self._thread.submit(self._save, step, copies, content)
        return True

    def wait(self) -> None:
        """Waits until the last checkpoint is written."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Waits until the last checkpoint is written, and ends the thread."""
        self.wait()
        if self._thread is not None:
            self._thread.shutdown()

    def _save(self, step: int, tensors: dict[str, Tensor], content: bytes) -> bool:
        target = self.folder / f"step-{step:06d}"
        part, began = target.with_name(target.name + _PART), time.monotonic()
        try:
            _on_first_rank(self._remove_unfinished, self._group)
            _write(tensors, part, self._group)
            _on_first_rank(partial(_publish, part, target, {STATE: content}), self._group)
        except OSError as error:
            _on_first_rank(self._remove_unfinished, self._group, ignore_errors=True)
            if _rank() == 0:
                last = self.latest()
                kept = f"the last good one is {last}" if last else "there is no earlier one"
                logger.warning("step %d was not saved to %s: %s; %s", step, self.folder, error, kept)
            return False
        _on_first_rank(self._remove_oldest, self._group, ignore_errors=True)
        self.seconds = time.monotonic() - began
        return True

    def latest(self) -> Path | None:
        """Returns the folder of the newest complete checkpoint, or None if there is none."""
        complete = self.complete()
        return complete[-1] if complete else None

    def state(self, path: Path) -> dict[str, Any]:
        """Returns the state of a checkpoint, including the number of completed steps as ``step``.

        Raises:
            InputError: If the file with the state is damaged.
        """
        state = read_json(path / STATE)
        checksum = state.pop(_CHECKSUM, None) if isinstance(state, dict) else None
        if checksum not in (None, zlib.crc32(dump_json(state))):
            reason = f"damaged: its {_CHECKSUM} is another; remove the checkpoint to resume from an earlier one"
            raise InputError(reason, path=str(path / STATE))
        if not isinstance(state, dict) or type(state.get("step")) is not int:
            raise InputError("damaged: not the state of a checkpoint", path=str(path / STATE))
        return state

    def load(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Loads parameters and moments in place, on any number of ranks.

        Args:
            path: Folder of a checkpoint.
            model: Model with the same structure as the model that was saved.
            optimizer: Optimizer of the same type as the saved one. The settings of this optimizer, such as the learning
                rate, remain unchanged.

        Returns:
            The saved state; see :meth:`state`.

        Raises:
            InputError: If the checkpoint is damaged, or belongs to another model or optimizer.
        """
        state = self.state(path)
        optimizer.state.clear()
        if _has_moments(path):
            make_moments(optimizer)
        _read(_tensors(model, optimizer), path)
        return state

    def load_weights(self, path: Path, model: nn.Module) -> None:
        """Loads the parameters in place, without an optimizer.

        Raises:
            InputError: If the checkpoint is damaged, or belongs to another model.
        """
        weights = {
            f"model.{name}": parameter.detach()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        _read(weights, path)

    def complete(self) -> list[Path]:
        """Returns the folders of the complete checkpoints, oldest first."""
        named = [path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name)]
        return sorted((path for path in named if (path / STATE).is_file()), key=step_of)

    def _remove_unfinished(self) -> None:
        for path in self.folder.glob(f"step-*{_PART}"):
            shutil.rmtree(path)

    def retain(self, steps: Callable[[], Collection[int]]) -> None:
        """Removes all checkpoints except those of some steps. All ranks must call this function.

        Args:
            steps: Function that returns the steps whose checkpoints are kept. It is called on the first rank.
        """

        def remove_others() -> None:
            kept = steps()
            _remove(path for path in self.complete() if step_of(path) not in kept)

        _on_first_rank(remove_others, self._group, ignore_errors=True)

    def _remove_oldest(self) -> None:
        _remove(self.complete()[: -self.keep])


def step_of(path: Path) -> int:
    """Returns the number of completed steps of a checkpoint, from the name of its folder."""
    return int(path.name.removeprefix("step-"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        doomed = path.with_name(path.name + _PART)  # an incomplete checkpoint must not have a final name
        path.rename(doomed)
        shutil.rmtree(doomed)


def export(model: Any, source: Path, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Merges the adapters and writes all weights in Hugging Face format. All ranks must call this function.

    ``AutoModelForImageTextToText`` and vLLM can read the result. The files of the processor, the tokenizer, the chat
    template and the generation configuration are copied unchanged from the source. If these files were saved again,
    they would lack parts that the environment cannot load, such as a video processor if torchvision is not installed.

    Args:
        model: Hugging Face model, whose parameters may be sharded (DTensor).
        source: Folder of the initial model.
        folder: Output folder. An existing folder is replaced when the new folder is complete.
        dtype: Number format of the floating-point weights in the files.

    Raises:
        InputError: If the disk is full or not writable. An existing folder remains unchanged.
    """
    weights: dict[str, Tensor] = {}
    persistent = model.state_dict().keys()
    buffers = (
        (name, buffer.to(dtype if buffer.is_floating_point() else buffer.dtype))
        for name, buffer in model.named_buffers()
        if name in persistent
    )
    for name, tensor in chain(merged_weights(model, dtype), buffers):
        if _rank() == 0:
            weights[name] = tensor.to("cpu").contiguous()

    # transformers converts stacks of experts back if they have the layout of the hub
    as_given = {"save_original_format": False} if has_stacks(model) else {}

    def write(part: Path) -> dict[str, bytes]:
        with unwrapped(model):
            model.save_pretrained(part, state_dict=weights, **as_given)
        for path in source.iterdir():
            if path.name != "config.json" and path.suffix in _COPIED and not path.name.endswith(".index.json"):
                shutil.copyfile(path, part / path.name)
        if (source / _TEMPLATES).is_dir():
            shutil.copytree(source / _TEMPLATES, part / _TEMPLATES)
        return {"config.json": _with_dtype(part / "config.json", dtype)}

    _write_folder(folder, write)


def export_adapter(model: Any, base: str, revision: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Writes only the adapters, in peft's format. All ranks must call this function.

    Args:
        model: Hugging Face model with adapters.
        base: Path or name of the base model, which is written to the adapter configuration.
        revision: Branch, tag or commit of the base model, or an empty string for the default branch.
        folder: Output folder, which is treated as in :func:`export`.
        dtype: Number format of the weights in the file.

    Raises:
        InputError: If the disk is full or not writable. An existing folder remains unchanged.
    """
    weights = adapter_weights(model, dtype)

    def write(part: Path) -> dict[str, bytes]:
        save_adapter(weights, model, base, revision, part)
        return {}

    _write_folder(folder, write)


def _write_folder(folder: Path, write: Callable[[Path], Mapping[str, bytes]]) -> None:
    """Writes a new folder, and replaces an existing folder when the new folder is complete.

    Args:
        folder: Folder to replace.
        write: Function that fills a temporary folder on the first rank, and returns the names and contents of the files
            that are written last.

    Raises:
        InputError: If rank 0 cannot write the files. The error is raised on every rank.
    """
    part = folder.with_name(folder.name + _PART)

    def fill() -> None:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            files = write(part)
        except SafetensorError as error:
            raise OSError(str(error)) from None
        _publish(part, folder, files)

    try:
        _on_first_rank(fill)
    except OSError as error:
        _on_first_rank(partial(shutil.rmtree, part), ignore_errors=True)
        raise InputError(f"cannot be written: {error}", path=str(folder)) from None


def _read(tensors: dict[str, Tensor], path: Path) -> None:
    if (path / _PICKLED).exists() and not (path / INDEX).exists():
        why = "is a pickled checkpoint of a version before 0.2, which this version cannot read"
        raise InputError(f"{why}; finish the run with the version that wrote it, or start a new one", path=str(path))
    try:
        with _quiet():
            dcp.load(tensors, storage_reader=Reader(path))
    except CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        why = f"is damaged, or of another model or optimizer ({in_one_line(cause)})"
        raise InputError(f"{why}; remove it to resume from an earlier one", path=str(path)) from None


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns the trainable parameters and their moments by name. Tied weights are listed only once."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            tensors[f"model.{name}"] = parameter.detach()
            for key, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{name}.{key}"] = value
    return tensors


def _has_moments(path: Path) -> bool:
    """Returns False if a checkpoint contains no moments because it was saved before the first update."""
    try:
        return any(name.startswith("optimizer.") for name in Reader(path).read_metadata().state_dict_metadata)
    except InputError:  # reported when the tensors are read
        return True


def make_moments(optimizer: torch.optim.Optimizer) -> None:
    """Creates the optimizer's moments by taking one step. :meth:`Checkpoints.load` overwrites the results."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _write(tensors: dict[str, Tensor], part: Path, group: Any = None) -> None:
    """Writes the tensors of each rank to a folder.

    Raises:
        OSError: If a rank cannot write. The error is raised on every rank.
    """
    try:
        with _quiet():
            dcp.save(tensors, storage_writer=Writer(part), process_group=group)
    except CheckpointException as error:
        for rank, (cause, _) in error.failures.items():
            if isinstance(cause, OSError):
                raise OSError(f"rank {rank}: {in_one_line(cause)}") from None
        raise


def _publish(part: Path, target: Path, files: Mapping[str, bytes]) -> None:
    """Adds the last files to a folder, synchronizes all files to the disk, and renames the folder to its final name."""
    for name, content in files.items():
        try:
            with atomic_write(part / name) as stream:
                stream.write(content)
        except InputError as error:
            raise OSError(str(error)) from None
    for path in (*part.rglob("*"), part):
        _synchronize(path)
    old = target.with_name(target.name + ".old" + _PART)
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    part.rename(target)
    _synchronize(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _synchronize(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _with_dtype(path: Path, dtype: torch.dtype) -> bytes:
    """Returns the model's configuration file, with the dtype of the exported weights instead of the dtype in memory."""
    import orjson

    def changed(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        name = str(dtype).removeprefix("torch.")
        return {key: name if key in ("dtype", "torch_dtype") else changed(inner) for key, inner in value.items()}

    return orjson.dumps(changed(read_json(path)), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _on_first_rank(action: Callable[[], object], group: Any = None, *, ignore_errors: bool = False) -> None:
    """Runs an action on the first rank while the other ranks of a group (default: all) wait.

    Raises:
        OSError: If the action fails on the first rank. The error is raised on every rank.
    """
    outcome: list[str | None] = [None]
    if _rank() == 0:
        try:
            action()
        except OSError as error:
            outcome = [in_one_line(error)]
    if dist.is_initialized():
        dist.broadcast_object_list(outcome, src=0, group=group)
    if outcome[0] is not None and not ignore_errors:
        raise OSError(outcome[0])


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses torch's warning about a single process, and its log entries for errors that are also raised as
    exceptions.
    """
    root = logging.getLogger()
    root.addFilter(_not_of_the_loader)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    finally:
        root.removeFilter(_not_of_the_loader)


def _not_of_the_loader(record: logging.LogRecord) -> bool:
    return record.module != "state_dict_loader"


__all__ = ["Checkpoints", "export", "export_adapter"]
