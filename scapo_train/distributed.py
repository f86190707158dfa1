"""The processes of a training run: this one's rank, sums over all of them, and leaving together.

Under torchrun there are several; without it there is one, and every operation does nothing.
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
"""Longest wait for another rank in a collective operation: a rollout of the slowest one fits in."""


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training run, seen from one of them.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        device: device that this process computes on.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Returns each value summed over all ranks, in float64."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return list(total.tolist())

    def max(self, value: int) -> int:
        """Returns the largest of all ranks' values."""
        if self.size == 1:
            return value
        most = torch.tensor(value, device=self.device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def gather(self, value: Any) -> list[Any]:
        """Returns every rank's value, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


@contextmanager
def join_process_group() -> Iterator[ProcessGroup]:
    """Joins the processes that torchrun started, and leaves them at the end.

    One that fails ends all of them (:mod:`scapo_train.monitoring.watch`).

    Raises:
        ScapoError: if there are more processes on this machine than GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if gpus and wanted > gpus:
        raise ScapoError(f"{wanted} processes want a GPU each, but this machine has {gpus}: --nproc-per-node {gpus}")
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    if size == 1:
        yield ProcessGroup(0, 1, device)
        return
    if not dist.is_initialized():
        dist.init_process_group("nccl" if gpus else "gloo", timeout=TIMEOUT)
    watch = Watch(rank, size)
    try:
        yield ProcessGroup(rank, size, device)
    except Interrupted:  # all ranks, after the same step
        watch.farewell()
        raise
    except BaseException as error:
        watch.fail(error)
    watch.farewell()
    if gpus:  # gloo's group lasts as long as the process, see leave
        dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """Ends the process.

    One of several on CPUs ends without unloading its libraries: torch 2.13 sometimes aborts in the threads of gloo, and
    a run that is done and saved would be reported as failed.
    """
    if dist.is_initialized():
        atexit._run_exitfuncs()  # what others do at the end, such as a tracker's last upload
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
