"""Ways to send the policy's weights to a vLLM server (``rollout.transfer``).

With ``files``, the first rank writes the weights, or only the adapters, to a folder that the server can read. With the
name of one of vLLM's engines for weight transfer, such as ``nccl``, vLLM itself sends the weights from the first rank's
GPU to the server's GPUs. For this, vLLM must also be installed with the trainer.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from scapo_eval.base.errors import InputError, MissingExtra, ScapoError, in_one_line

from ..config import Config
from ..families.lora import adapter_weights, save_adapter
from ..families.policy import Policy
from .connection import LOAD, UNLOAD, Server, ServerFault
from .vllm import shapes, weights

WEIGHTS = "weights_of_server"
"""Folder of the weights for the server. Weights are removed when the server has read them, adapters at the next
synchronization.
"""

INCOMPLETE = "incomplete"
"""Version of the server's weights during a transfer, and afterwards if the trainer was killed."""

_PART_BYTES = 4 << 30
"""Maximum size of a weight file, and host memory that writing needs."""

_ADDRESS = "VLLM_HOST_IP"
"""Environment variable with this machine's address for the server, if the derived address is wrong (vLLM's own
name).
"""

_ANSWER_SECONDS = 10.0

_FAULTS = (ScapoError, RuntimeError, ValueError, TypeError, AssertionError, OSError)
"""Errors that vLLM's engines raise on the trainer's side."""


class Sender(Protocol):
    """Way in which a server receives the policy's weights. Only :meth:`gathered` is called on every rank."""

    def connect(self) -> bool:
        """Prepares the server. Returns True if it has only some of the weights that another run sent.

        Raises:
            ScapoError: If the server was not started for this way.
        """

    def gathered(self) -> AbstractContextManager[None]:
        """Returns a context in which all ranks gather the weights, and the first rank calls :meth:`send`."""

    def send(self, version: str) -> None:
        """Has the paused server load the weights.

        Raises:
            ScapoError: If the weights cannot be written or sent, or the server does not load them.
        """

    def close(self) -> None:
        """Releases what the server keeps for this run."""


def make_sender(
    config: Config, policy: Policy, server: Server, name: str, device: torch.device, only_adapters: bool
) -> Sender:
    """Returns the way that the settings select. Adapters alone are always sent as files.

    Args:
        config: Settings of the training run.
        policy: Model whose weights are sent.
        server: Server that receives them.
        name: Name of the server in messages.
        device: Device of the training.
        only_adapters: True if only the adapters are sent.
    """
    if only_adapters:
        return AdapterFiles(config, policy, server, name)
    if config.rollout.transfer == "files":
        return WeightFiles(config, policy, server, name)
    return WeightTransfer(config, policy, server, name, device)


def check_installed(transfer: str, device: torch.device) -> None:
    """Checks that the trainer can send weights with an engine.

    Args:
        transfer: Value of ``rollout.transfer``.
        device: Device of the training.

    Raises:
        InputError: If the engine needs a GPU, and there is none.
        MissingExtra: If vLLM is not installed with the trainer.
    """
    if transfer == "nccl" and device.type != "cuda":
        raise InputError('rollout.transfer = "nccl" needs GPUs for training, not a CPU: set it to "files"')
    if transfer != "files" and find_spec("vllm") is None:
        raise MissingExtra("vllm", f'rollout.transfer = "{transfer}"')


class _AllWeights:
    """Common part of the ways that send all weights."""

    def __init__(self, config: Config, policy: Policy, server: Server, name: str) -> None:
        self._config, self._policy, self._server, self._name = config, policy, server, name
        self._dtype: torch.dtype = getattr(torch, config.model.dtype)
        self._weights: Iterator[tuple[str, Tensor]] = iter(())

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Implements ``gathered`` of :class:`Sender`. The weights that have not been read are gathered at the end,
        because all ranks gather each weight together: the other ranks do not read them, and the first may have failed.
        """
        self._weights = weights(self._policy, self._dtype)
        try:
            yield
        finally:
            for _ in self._weights:
                pass


class WeightFiles(_AllWeights):
    """Safetensors files, which the server reads and the trainer then removes."""

    def __init__(self, config: Config, policy: Policy, server: Server, name: str) -> None:
        super().__init__(config, policy, server, name)
        self._folder = Path(config.rollout.weights_folder or config.run.output).absolute() / WEIGHTS

    def connect(self) -> bool:
        """Implements ``connect`` of :class:`Sender`."""
        return False

    def send(self, version: str) -> None:
        """Implements ``send`` of :class:`Sender`."""
        try:
            with self._emptied():
                self._write()
            self._ask_to_read("collective_rpc", method="reload_weights", kwargs={"weights_path": str(self._folder)})
        finally:
            self._remove()

    def close(self) -> None:
        """Implements ``close`` of :class:`Sender`."""
        self._remove()

    def _write(self) -> None:
        part, number = dict[str, Tensor](), 0
        for name, weight in self._weights:
            part[name] = weight.to("cpu").contiguous()
            if sum(tensor.nbytes for tensor in part.values()) >= _PART_BYTES:
                number += 1
                save_file(part, self._folder / f"model-{number:05d}.safetensors", {"format": "pt"})
                part.clear()
        if part:
            save_file(part, self._folder / f"model-{number + 1:05d}.safetensors", {"format": "pt"})

    @contextmanager
    def _emptied(self) -> Iterator[None]:
        """Empties the folder (adapters of the previous synchronization, or files of a run that was killed), and
        describes errors of writing to it in the ``with`` block.
        """
        self._remove()
        try:
            self._folder.mkdir(parents=True)
            yield
        except (OSError, SafetensorError) as error:
            reason = f"the weights for the server cannot be written: {in_one_line(error)}"
            raise ScapoError(f"{self._folder}: {reason}") from None

    def _ask_to_read(self, path: str, **body: Any) -> None:
        try:
            self._server.post(path, [body])
        except ServerFault as error:
            raise ScapoError(
                f"{self._name} does not load the policy's weights from {self._folder}: {error.why}; the server must "
                "have the same model, and see this folder (rollout.weights_folder)"
            ) from None

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class AdapterFiles(WeightFiles):
    """Files of the adapters, which the server adds to its own weights. They exist until the next adapters are sent,
    because vLLM reads adapters again if it has removed them from its memory.
    """

    def __init__(self, config: Config, policy: Policy, server: Server, name: str) -> None:
        super().__init__(config, policy, server, name)
        self._adapters: dict[str, Tensor] = {}
        self._loaded: str | None = None

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Implements ``gathered`` of :class:`Sender`."""
        self._adapters = adapter_weights(self._policy.vlm, self._dtype)
        yield
        self._adapters.clear()

    def send(self, version: str) -> None:
        """Implements ``send`` of :class:`Sender`."""
        model = self._config.model
        with self._emptied():
            save_adapter(self._adapters, self._policy.vlm, model.path, model.revision, self._folder)
        self._ask_to_read(LOAD, lora_name=version, lora_path=str(self._folder))
        previous, self._loaded = self._loaded, version
        if previous is not None:
            self._ask_to_read(UNLOAD, lora_name=previous)

    def close(self) -> None:
        """Removes the adapters from the server, which would end if a request named adapters without files."""
        if self._loaded is not None:
            with suppress(ScapoError):
                self._server.post(UNLOAD, [{"lora_name": self._loaded}])
        self._remove()


class WeightTransfer(_AllWeights):
    """Transfer by one of vLLM's engines from the first rank to all processes of the server.

    The class implements vLLM's ``WeightSource`` (:meth:`metadata` and iteration) and ``VLLMWeightSyncClient`` (the four
    requests), so that vLLM's requests have the key and the time limits of all others.
    """

    def __init__(self, config: Config, policy: Policy, server: Server, name: str, device: torch.device) -> None:
        super().__init__(config, policy, server, name)
        self._backend, self._device = config.rollout.transfer, device
        self._engine: Any = None
        self._fault: ScapoError | None = None  # of a request, perhaps in another thread
        self._answered = Event()
        self._answered.set()

    def connect(self) -> bool:
        """Implements ``connect`` of :class:`Sender`. A connection or a transfer of a run that was killed is ended."""
        (info,) = self._server.get("server_info?config_format=json")
        if (info["vllm_config"].get("weight_transfer_config") or {}).get("backend") != self._backend:
            option = json.dumps({"backend": self._backend})
            raise ScapoError(
                f'{self._name} was not started for rollout.transfer = "{self._backend}": start it with '
                f"--weight-transfer-config '{option}'"
            )
        try:
            from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
            from vllm.plugins import load_general_plugins
        except ImportError:
            raise ScapoError(
                f'rollout.transfer = "{self._backend}" needs vLLM 0.32 or later with the trainer: '
                "pip install -U 'vllm>=0.32'"
            ) from None
        interrupted = self._server.get("weight_info")[0]["weight_version"] == INCOMPLETE
        if interrupted:  # without this, vLLM rejects weights of layers that arrived in part
            for path in ("start_weight_update", "finish_weight_update"):
                with suppress(ServerFault):  # depends on how far it came
                    self._server.post(path)
        self._server.post("shutdown_weight_transfer_engine")
        size = self._server.get("get_world_size")[0]["world_size"]
        address = os.environ.get(_ADDRESS) or self._server.own_address()
        load_general_plugins()  # which register other engines
        with self._described(f"cannot connect to the trainer at {address} (another address: {_ADDRESS})"):
            with socket.create_server((address, 0)) as free:
                port = free.getsockname()[1]
            settings = NCCLTrainerInitInfo(address, port, 1 + size, rank=0)
            settings.backend = self._backend
            self._engine = WeightTransferTrainerFactory.trainer_init(settings, client=self, source=self)
        return interrupted

    def send(self, version: str) -> None:
        """Implements ``send`` of :class:`Sender`."""
        if self._device.type == "cuda":  # the engine reads the weights on its own streams
            torch.cuda.synchronize(self._device)
        self._server.post("update_weight_version", [{"new_version": INCOMPLETE}])
        with self._described("does not receive the policy's weights"):
            self._engine.send_weights()

    def close(self) -> None:
        """Implements ``close`` of :class:`Sender`."""
        if self._engine is not None:
            self._engine.shutdown()
            with suppress(ScapoError):
                self._server.post("shutdown_weight_transfer_engine")

    def metadata(self) -> list[Any]:
        """Returns the name, number format and shape of each weight, as iteration yields them."""
        return [SimpleNamespace(name=name, dtype=self._dtype, shape=shape) for name, shape in shapes(self._policy)]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, weight.to(self._device)) for name, weight in self._weights)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the server connect to the trainer."""
        self._ask("init_weight_transfer_engine", init_info=init_info)

    def start_weight_update(self) -> None:
        """Prepares the server's model."""
        self._ask("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        """Has the server receive the weights, while the engine sends them in another thread."""
        try:
            self._ask("update_weights", update_info=update_info)
        except ScapoError:
            self._engine.shutdown()  # the other thread would wait for the server without end
            raise

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Has the server complete its model."""
        self._ask("finish_weight_update")

    def _ask(self, path: str, **body: Any) -> None:
        self._answered.clear()
        try:
            self._server.post(path, [body])
        except ScapoError as error:
            self._fault = error
            raise
        finally:
            self._answered.set()

    @contextmanager
    def _described(self, problem: str) -> Iterator[None]:
        """Describes errors of vLLM's engine in the ``with`` block. The server then no longer waits for weights."""
        try:
            yield
        except (*_FAULTS, AttributeError) as error:
            if self._engine is not None:
                self._engine.shutdown()
            self._answered.wait(_ANSWER_SECONDS)  # if a connection breaks, the server knows why
            if isinstance(error, AttributeError) and self._fault is None:
                raise
            # an engine that was shut down because the server rejected the weights lacks its connection
            own = None if isinstance(error, AttributeError) else error
            reasons = dict.fromkeys(in_one_line(each) for each in (own, self._fault) if each is not None)
            raise ScapoError(f"{self._name} {problem} by {self._backend}: {'; '.join(reasons)}") from None
