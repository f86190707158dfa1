"""Process group of a training run, with the rank of each process, collective operations, and the joint exit of all
processes.

With torchrun, a run has several processes. Without torchrun, a run has one process, and collective operations have no
effect.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from scapo_eval.base.errors import ScapoError

from .monitoring.watch import Interrupted, Watch

TIMEOUT = timedelta(minutes=30)
"""Maximum wait for another rank in a collective operation. It must exceed the rollout time of the slowest rank."""


@dataclass(frozen=True)
class ProcessGroup:
    """Processes of a training run, as seen by one of these processes.

    Attributes:
        rank: Number of this process, starting at 0.
        size: Number of processes.
        device: Device on which this process computes.
        local: Number of processes on this machine, or 0 if all processes are on this machine.
    """

    rank: int
    size: int
    device: torch.device
    local: int = 0

    @property
    def main(self) -> bool:
        """True if this process writes files and messages."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Returns the sum of each value over all ranks, in float64."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return list(total.tolist())

    def max(self, value: int) -> int:
        """Returns the maximum value over all ranks."""
        if self.size == 1:
            return value
        most = torch.tensor(value, device=self.device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks to every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def backend_of(device: torch.device) -> str:
    """Returns the backend for collective operations. On GPUs, tensors in host memory are reduced with gloo."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


@contextmanager
def join_process_group() -> Iterator[ProcessGroup]:
    """Joins the process group of torchrun, and leaves the group when the ``with`` block ends.

    If a process fails, all processes end (:mod:`scapo_train.monitoring.watch`).

    Raises:
        ScapoError: If this machine has fewer GPUs than processes.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if gpus and wanted > gpus:
        raise ScapoError(f"{wanted} processes need a GPU each, but this machine has {gpus}: --nproc-per-node {gpus}")
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
        # by default, convolutions in float32 use TF32, and the patch embedding of every vision tower is a convolution
        torch.backends.cudnn.allow_tf32 = False
    if size == 1:
        yield ProcessGroup(0, 1, device)
        return
    if not dist.is_initialized():
        dist.init_process_group(backend_of(device), timeout=TIMEOUT)
    watch = Watch(rank, size)
    try:
        yield ProcessGroup(rank, size, device, wanted)
    except Interrupted:  # all ranks, after the same step
        watch.farewell()
        raise
    except BaseException as error:
        watch.fail(error)
    watch.farewell()
    if gpus:  # gloo's group exists until the process ends; see leave
        dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code.

    On CPUs, the processes of a group end without unloading their libraries. While the libraries are being unloaded,
    torch 2.13 sometimes aborts in gloo's threads, so that a successful run would be reported as failed.
    """
    if dist.is_initialized():
        atexit._run_exitfuncs()  # exit handlers, such as a tracker's last upload
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
