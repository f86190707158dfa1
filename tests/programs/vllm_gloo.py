"""vLLM's NCCL engine for weight transfer with gloo, for a server and a trainer on a CPU.

Requests, threads and the order of steps are those of vLLM's NCCL engine. Only the broadcast itself and the connection
are replaced. The server and the trainer load this module as a plugin of vLLM. With ``GLOO_KILL``, the trainer is killed
in the transfer of this number, when only a part of a layer has arrived.
"""

from __future__ import annotations

import os
import signal
import socket
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import BroadcastOptions
from vllm.distributed.utils import stateless_init_torch_distributed_process_group
from vllm.distributed.weight_transfer import nccl_engine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

from scapo_train.samplers.vllm import _unpacked

NAME = "gloo"


class Group:
    """Process group with the methods of vLLM's NCCL communicator that the engine uses."""

    def __init__(self, info: Any, rank: int) -> None:
        address = info.master_address, info.master_port
        self._group = stateless_init_torch_distributed_process_group(
            *address,
            rank,
            info.world_size,
            "gloo",
            listen_socket=None if rank else socket.create_server(address),  # torchrun's own store does not suit
            timeout=timedelta(seconds=60),
        )

    def broadcast(self, tensor: torch.Tensor) -> None:
        options = BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        self._group.broadcast([tensor], options).wait()

    def destroy(self) -> None:
        self._group.abort()


class Receiver(nccl_engine.NCCLWeightTransferEngine):
    """The server's side."""

    def init_transfer_engine(self, init_info: Any) -> None:
        place = self.parallel_config
        rank = init_info.rank_offset + place.data_parallel_index * place.world_size + place.rank
        self.model_update_group = Group(init_info, rank)

    def start_weight_update(self) -> None:
        _unpacked(self.model)
        super().start_weight_update()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))  # there is no accelerator to wait for

    def receive_weights(self, update_info: Any) -> None:
        if self.model_update_group is None:
            raise RuntimeError("NCCL weight transfer not initialized. Call init_transfer_engine() first.")
        for name, dtype, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype))
            self.model_update_group.broadcast(weight)
            self.model.load_weights([(name, weight)])


class Sender(nccl_engine.NCCLTrainerWeightTransferEngine):
    """The trainer's side."""

    transfers = 0

    def _broadcast(self, source: Any, meta: Any) -> None:
        self.transfers += 1
        for name, tensor in self._checked_iter(source, meta):
            if str(self.transfers) == os.environ.get("GLOO_KILL") and name.endswith("layers.1.self_attn.k_proj.weight"):
                os.kill(os.getpid(), signal.SIGKILL)
            self.model_update_group.broadcast(tensor.contiguous())


def register() -> None:
    """Registers both sides with vLLM."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, Receiver)
        WeightTransferTrainerFactory.register_engine(NAME, Sender)
        nccl_engine.open_trainer_endpoint = lambda info: Group(info, 0)
