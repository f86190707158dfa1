"""Tensor files in safetensors format, with a JSON index and without pickled data. Any number of ranks can write and
read the files.

``index.json`` contains the number format and shape of each tensor, and the file and checksum of each of its chunks.
PyTorch's planner (``torch.distributed.checkpoint``) assigns reads and writes to ranks. PyTorch's own files, which have
a pickled index, are neither written nor read. No code in a file is executed, and shapes and formats are checked before
tensors are loaded.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from scapo_eval.base.errors import InputError
from scapo_eval.files.json_text import dump_json, read_as

INDEX = "index.json"
_FILE_BYTES = 2**28
"""Size at which a rank writes the tensors in host memory to a file, in bytes."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class _Chunk(msgspec.Struct, forbid_unknown_fields=True):
    file: Annotated[str, msgspec.Meta(pattern=r"^rank-\d+-\d+\.safetensors\Z")]
    offset: list[_Natural]
    shape: list[_Natural]
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] | None = None  # missing in format 1


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    dtype: Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    shape: list[_Natural]
    chunks: list[_Chunk]


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["scapo-tensors/1", "scapo-tensors/2"]
    tensors: dict[str, _Stored]


class Writer(dcp.StorageWriter):
    """Writer that saves the tensors of all ranks in a folder.

    Args:
        folder: Output folder, which is created if necessary.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Does nothing, because no state is shared between checkpoints."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing, because every rank is a writer."""

    def prepare_local_plan(self, plan: dcp.SavePlan) -> dcp.SavePlan:
        """Returns the plan unchanged and creates the folder.

        Raises:
            OSError: If the folder cannot be created.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans: list[dcp.SavePlan]) -> list[dcp.SavePlan]:
        """Returns the plans unchanged."""
        return plans

    def write_data(self, plan: dcp.SavePlan, planner: dcp.SavePlanner) -> Future[list[WriteResult]]:
        """Writes this rank's tensors into files of about 256 MiB.

        Raises:
            OSError: If the disk is full or not writable.
        """
        rank = dist.get_rank() if dist.is_initialized() else 0
        written: list[WriteResult] = []
        held: dict[str, Tensor] = {}
        files = size = 0
        for k, item in enumerate(plan.items, 1):
            tensor = planner.resolve_data(item)
            assert isinstance(tensor, Tensor)
            name = f"rank-{rank}-{files}.safetensors"
            parts = _parts(_key(item.index), tensor.detach()).items()
            copies = {key: part.to("cpu", copy=True).contiguous() for key, part in parts}
            held |= copies
            size += sum(part.nbytes for part in copies.values())
            written.append(WriteResult(item.index, tensor.nbytes, (name, checksum(copies.values()))))
            if size >= _FILE_BYTES or k == len(plan.items):
                _save(held, self.folder / name)
                held, files, size = {}, files + 1, 0
        done: Future[list[WriteResult]] = Future()
        done.set_result(written)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes the index on the first rank."""
        files = {(result.index.fqn, result.index.offset): result.storage_data for rank in results for result in rank}
        tensors = {}
        for name, stored in metadata.state_dict_metadata.items():
            assert isinstance(stored, TensorStorageMetadata)
            chunks = []
            for chunk in stored.chunks:
                file, crc32 = files[name, chunk.offsets]
                chunks.append(_Chunk(file, list(chunk.offsets), list(chunk.sizes), crc32))
            dtype: Any = str(stored.properties.dtype).removeprefix("torch.")
            tensors[name] = _Stored(dtype, list(stored.size), chunks)
        (self.folder / INDEX).write_bytes(dump_json(msgspec.to_builtins(_Index("scapo-tensors/2", tensors))))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns False, because checkpoints are specified by folder and not by id."""
        return False


class Reader(dcp.StorageReader):
    """Reader for files written by :class:`Writer`, which works with any sharding of the model.

    Args:
        folder: Folder of the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._chunks: dict[MetadataIndex, _Chunk] = {}
        self._dtypes: dict[str, torch.dtype] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Does nothing, because no state is shared between checkpoints."""

    def read_metadata(self) -> Metadata:
        """Reads the index, checks that the chunks of every tensor are complete, and returns the index.

        Raises:
            InputError: If the index is damaged.
        """
        path = self.folder / INDEX
        tensors = {}
        for name, stored in read_as(path, _Index).tensors.items():
            if not _whole(stored):
                reason = f"damaged: the chunks of {name!r} do not cover its shape exactly once"
                raise InputError(reason, path=str(path))
            chunks = []
            for record in stored.chunks:
                chunk = ChunkStorageMetadata(torch.Size(record.offset), torch.Size(record.shape))
                self._chunks[MetadataIndex(name, chunk.offsets)] = record
                chunks.append(chunk)
            self._dtypes[name] = getattr(torch, stored.dtype)
            properties = TensorProperties(self._dtypes[name])
            tensors[name] = TensorStorageMetadata(properties, torch.Size(stored.shape), chunks)
        return Metadata(dict(tensors))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing, because every rank is a reader."""

    def prepare_local_plan(self, plan: dcp.LoadPlan) -> dcp.LoadPlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[dcp.LoadPlan]) -> list[dcp.LoadPlan]:
        """Returns the plans unchanged."""
        return plans

    def read_data(self, plan: dcp.LoadPlan, planner: dcp.LoadPlanner) -> Future[None]:
        """Reads the values of this rank's tensors from the files.

        Raises:
            InputError: If a file is missing or damaged, or does not match the index.
        """
        by_file: dict[str, list[Any]] = {}
        for item in plan.items:
            by_file.setdefault(self._chunks[item.storage_index].file, []).append(item)
        for name, items in by_file.items():
            path = self.folder / name
            if not path.is_file():  # reading a pipe would block
                raise InputError("file not found" if not path.exists() else "not a file", path=str(path))
            try:
                with safe_open(path, "pt") as stream:
                    for item in items:
                        target = planner.resolve_tensor(item).detach()
                        key = _key(item.storage_index)
                        chunk = self._chunks[item.storage_index]
                        tensor = _joined(key, target, stream)
                        if list(tensor.shape) != chunk.shape:
                            raise InputError(f"damaged: {key!r} has another shape than in {INDEX}", path=str(path))
                        if tensor.dtype != self._dtypes[item.storage_index.fqn]:
                            raise InputError(f"damaged: {key!r} has another dtype than in {INDEX}", path=str(path))
                        if chunk.crc32 is not None and checksum(_parts(key, tensor).values()) != chunk.crc32:
                            raise InputError(f"damaged: {key!r} has another checksum than in {INDEX}", path=str(path))
                        target.copy_(narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths))
                        planner.commit_tensor(item, target)
            except SafetensorError as error:
                raise InputError(f"damaged: {error}", path=str(path)) from None
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns False, because checkpoints are specified by folder and not by id."""
        return False


def checksum(tensors: Iterable[Tensor]) -> int:
    """Returns the CRC-32 of the concatenated bytes of tensors."""
    crc32 = 0
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous().flatten()
        if plain.numel():
            crc32 = zlib.crc32(plain.view(torch.uint8).numpy(), crc32)
    return crc32


def _key(index: MetadataIndex) -> str:
    """Returns the name of a chunk in its file: the name of the tensor, followed by the offset of the chunk unless the
    offset is 0.
    """
    offset = index.offset or ()
    return index.fqn + (f"@{','.join(map(str, offset))}" if any(offset) else "")


def _parts(key: str, tensor: Tensor) -> dict[str, Tensor]:
    """Returns the ordinary tensors that store a tensor: the tensor itself, or the codes and scales of 8-bit moments."""
    if not is_traceable_wrapper_subclass(tensor):
        return {key: tensor}
    names, _ = tensor.__tensor_flatten__()
    return {f"{key}.{name}": getattr(tensor, name) for name in names}


def _joined(key: str, like: Tensor, stream: Any) -> Tensor:
    """Reads a tensor of the same type as ``like`` from a file. The function is the inverse of :func:`_parts`."""
    if not is_traceable_wrapper_subclass(like):
        tensor: Tensor = stream.get_tensor(key)
        return tensor
    names, context = like.__tensor_flatten__()
    parts = {name: stream.get_tensor(f"{key}.{name}").to(like.device) for name in names}
    joined: Tensor = type(like).__tensor_unflatten__(parts, context, None, None)
    return joined


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _whole(stored: _Stored) -> bool:
    """Returns True if the chunks of a stored tensor are within the tensor's shape, do not overlap, and cover the whole
    tensor.
    """
    inside = all(
        len(chunk.offset) == len(chunk.shape) == len(stored.shape)
        and all(o + s <= end for o, s, end in zip(chunk.offset, chunk.shape, stored.shape, strict=True))
        for chunk in stored.chunks
    )
    if not inside:
        return False
    filled = [chunk for chunk in stored.chunks if math.prod(chunk.shape)]
    volume = sum(math.prod(chunk.shape) for chunk in filled)
    return volume == math.prod(stored.shape) and not any(_overlap(*pair) for pair in combinations(filled, 2))


def _overlap(one: _Chunk, other: _Chunk) -> bool:
    places = zip(one.offset, one.shape, other.offset, other.shape, strict=True)
    return all(a < b + m and b < a + n for a, n, b, m in places)


__all__ = ["INDEX", "Reader", "Writer"]
