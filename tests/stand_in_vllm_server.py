"""Stand-in for a vLLM server that holds the engine of ``stand_in_vllm.py``, for the order of requests and for failures.

It serves the paths that ``scapo_train.samplers`` uses on 127.0.0.1, in the test's own process. Like vLLM, it
answers with the version of its weights, and rejects requests for which it was not started (``faults``).
"""

from __future__ import annotations

import base64
import io
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import ModuleSpec
from pathlib import Path
from queue import Full, Queue
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from safetensors import safe_open

FLAGS = {
    "tensor_parallel_size": 1, "distributed_executor_backend": "uni", "load_format": "auto",
    "mm_processor_kwargs": None, "enable_sleep_mode": False,
}  # fmt: skip


class Transfer:
    """Stand-in for the trainer's side of vLLM's engine for weight transfer: a queue to the server in the same process.

    Attributes:
        made: All engines.
    """

    made: list[Transfer]

    def __init__(self, settings: Any, client: Any, source: Any) -> None:
        if settings.backend != "queue":
            raise ValueError(f"Invalid weight transfer backend: {settings.backend}. Available trainer engines: []")
        self.settings, self.client, self.source = settings, client, source
        self.queue: Queue[Any] = Queue(1)
        self.closed = False
        self.made.append(self)
        client.init_weight_transfer_engine({"world_size": settings.world_size})

    @classmethod
    def trainer_init(cls, settings: Any, *, client: Any, source: Any) -> Transfer:
        return cls(settings, client, source)

    def send_weights(self) -> None:
        """Sends the weights while the server receives them, as vLLM does."""
        meta = self.source.metadata()
        self.client.start_weight_update()
        names = {"names": [each.name for each in meta], "shapes": [list(each.shape) for each in meta]}
        with ThreadPoolExecutor(1) as threads:
            received = threads.submit(self.client.update_weights, names)
            for (name, weight), each in zip(self.source, meta, strict=True):
                assert (name, weight.dtype, weight.shape) == (each.name, each.dtype, each.shape)
                while True:
                    if self.closed:  # as vLLM's, whose connection is None then
                        raise AttributeError("'NoneType' object has no attribute 'broadcast'")
                    with suppress(Full):
                        self.queue.put((name, weight), timeout=0.01)
                        break
            received.result()
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        self.closed = True


def install_transfer(put: Callable[[dict[str, ModuleType], str, ModuleType], None]) -> type[Transfer]:
    """Installs the stand-in for what the trainer imports from vLLM."""
    engine = type("Transfer", (Transfer,), {"made": []})
    contents: dict[str, dict[str, Any]] = {
        "vllm": {"__spec__": ModuleSpec("vllm", None)},
        "vllm.plugins": {"load_general_plugins": lambda: None},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {},
        "vllm.distributed.weight_transfer.factory": {"WeightTransferTrainerFactory": engine},
        "vllm.distributed.weight_transfer.nccl_engine": {
            "NCCLTrainerInitInfo": lambda address, port, size, rank: SimpleNamespace(
                master_address=address, master_port=port, world_size=size, rank=rank
            )
        },
    }
    for name, attributes in contents.items():
        module = ModuleType(name)
        module.__dict__.update(attributes)
        put(sys.modules, name, module)
    return engine


class Server:
    """A running server.

    Args:
        engine: Class of the engine, ``vllm.LLM`` of the stand-in.
        model: Folder of its model.
        dtype: Number format of its weights.
        rank: Maximum rank of adapters, or 0 to start without adapters.

    Attributes:
        calls: Path of each request, with the version of the weights for requests to sample.
        drawn: Tokens of the responses, with the version of the weights and the prompt's tokens.
        faults: Path -> status and message of its next replies.
        version: Version of the weights.
        senders: Engines of the trainers that transfer weights.
        connected: True if a trainer is connected for transfers.
        updating: True during a transfer.
        before: Function that is called before each request to sample is answered.
    """

    def __init__(self, engine: Any, model: str, dtype: str, rank: int = 0) -> None:
        flags = {**FLAGS, "max_model_len": 200, "logprobs_mode": "processed_logprobs"}
        if rank:
            flags |= {"enable_lora": True, "max_lora_rank": rank, "lora_target_modules": None}
        self.engine = engine(model=model, dtype=dtype, **flags)
        self.info: dict[str, Any] = {
            "lora_config": {"max_lora_rank": rank} if rank else None,
            "parallel_config": {"data_parallel_size": 1},
            "device_config": {"device": "cpu"},
            "weight_transfer_config": None,
        }
        self.senders: list[Transfer] = []
        self.connected = self.updating = False
        self.environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": True}
        self.adapters: dict[str, Any] = {}
        self.settings = {"dtype": f"torch.{dtype}", "logprobs_mode": "processed_logprobs", "max_model_len": 200}
        self.version = "default"
        self.paused = False
        self.calls: list[str] = []
        self.drawn: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        self.faults: dict[str, tuple[int, str]] = {}
        self.before: Callable[[], None] = lambda: None
        self.edit: Callable[[dict[str, Any]], None] = lambda reply: None
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # of a client that has left
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stops the server. Later requests are refused."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Returns the status and the body of a reply."""
        name = path.partition("?")[0].strip("/")
        if name in self.faults:
            status, message = self.faults[name]
            return status, {"error": {"message": message, "code": status}}
        if name == "inference/v1/generate":
            self.before()
        if (model := body.get("model")) is not None and model not in self.adapters:
            return 404, {"error": {"message": f"The model `{model}` does not exist.", "code": 404}}
        with self._lock, torch.no_grad():
            if name not in ("health", "version", "server_info", "weight_info", "get_world_size"):
                self.calls.append(f"{name} {self.version}" if name == "inference/v1/generate" else name)
            try:
                return 200, getattr(self, f"_{name.rpartition('/')[2]}")(body)
            except RuntimeError as error:
                return 500, {"error": {"message": str(error), "code": 500}}

    def _health(self, body: Any) -> None:
        return None

    def _version(self, body: Any) -> Any:
        return {"version": "0.32.0"}

    def _server_info(self, body: Any) -> Any:
        return {"vllm_config": {"model_config": self.settings, **self.info}, "vllm_env": self.environment}

    def _pause(self, body: Any) -> Any:
        self.paused = True
        return {"status": "paused"}

    def _resume(self, body: Any) -> Any:
        self.paused = False
        return {"status": "resumed"}

    def _collective_rpc(self, body: Any) -> Any:
        assert self.paused
        assert body["method"] == "reload_weights"
        files = sorted(Path(body["kwargs"]["weights_path"]).glob("*.safetensors"))
        assert files
        self.counts["files"] = len(files)
        weights = []
        for file in files:
            with safe_open(file, "pt") as opened:
                weights += [(name, opened.get_tensor(name)) for name in opened.keys()]  # noqa: SIM118
        self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        return {"results": [None]}

    def _weight_info(self, body: Any) -> Any:
        return {"weight_version": self.version}

    def _get_world_size(self, body: Any) -> Any:
        return {"world_size": 2}

    def _init_weight_transfer_engine(self, body: Any) -> None:
        assert body["init_info"] == {"world_size": 3}
        self.connected = True

    def _start_weight_update(self, body: Any) -> None:
        self.expects(not self.updating, "start_weight_update called while a weight update is already active.")
        self.updating = True

    def _update_weights(self, body: Any) -> None:
        self.expects(self.updating, "start_weight_update must be called before update_weights.")
        try:
            self.expects(self.connected, "NCCL weight transfer not initialized.")
            assert self.paused
            sent = body["update_info"]
            for name, shape in zip(sent["names"], sent["shapes"], strict=True):
                received, weight = self.senders[-1].queue.get(timeout=60)
                assert (received, list(weight.shape)) == (name, shape)
                self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": [(name, weight)]})
        except BaseException:
            self.updating = False
            raise

    def _finish_weight_update(self, body: Any) -> None:
        self.expects(self.updating, "finish_weight_update called without a matching start_weight_update.")
        self.updating = False

    def _shutdown_weight_transfer_engine(self, body: Any) -> None:
        self.expects(not self.updating, "Cannot release a trainer connection during a weight update")
        self.connected = False

    def expects(self, met: bool, message: str) -> None:
        """Rejects a request unless a condition is met."""
        if not met:
            raise RuntimeError(message)

    def _load_lora_adapter(self, body: Any) -> str:
        assert self.paused
        assert body["lora_name"] not in self.adapters
        self.counts["adapters"] += 1
        self.adapters[body["lora_name"]] = SimpleNamespace(lora_int_id=self.counts["adapters"], **body)
        self.engine.add_lora(self.adapters[body["lora_name"]])
        return "Success: added"

    def _unload_lora_adapter(self, body: Any) -> str:
        del self.adapters[body["lora_name"]]
        return "Success: removed"

    def _reset_prefix_cache(self, body: Any) -> Any:
        return {"success": self.engine.reset_prefix_cache()}

    def _reset_encoder_cache(self, body: Any) -> None:
        self.engine.llm_engine.reset_encoder_cache()

    def _update_weight_version(self, body: Any) -> Any:
        self.version = body["new_version"]
        return {"success": True}

    def _generate(self, body: Any) -> Any:
        assert not self.paused
        settings = dict(body["sampling_params"])
        settings["logit_bias"] = {int(token): bias for token, bias in settings["logit_bias"].items()}
        (part,) = body["content_parts"]
        data = base64.b64decode(part["url"].partition(",")[2])
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        prompt = {"prompt_token_ids": body["token_ids"], "multi_modal_data": {"image": picture}}
        adapter = self.adapters.get(body["model"])
        (made,) = self.engine.generate([prompt], [SimpleNamespace(**settings)], lora_request=adapter)
        self.drawn += [(self.version, tuple(made.prompt_token_ids), each.token_ids) for each in made.outputs]
        reply = {
            "prompt_token_ids": list(made.prompt_token_ids),
            "choices": [
                {
                    "index": each.index,
                    "finish_reason": each.finish_reason,
                    "token_ids": list(each.token_ids),
                    "weight_versions": [{"version": self.version, "start": 0, "end": len(each.token_ids)}],
                    "logprobs": {
                        "content": [
                            {"token_id": token, "logprob": place[token].logprob}
                            for token, place in zip(each.token_ids, each.logprobs, strict=True)
                        ]
                    },
                }
                for each in reversed(made.outputs)
            ],
        }
        self.edit(reply)
        return reply


class _Handler(BaseHTTPRequestHandler):
    owner: Server

    def do_GET(self) -> None:
        self._reply({})

    def do_POST(self) -> None:
        self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _reply(self, body: Any) -> None:
        status, content = self.owner.answer(self.path, body)
        text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Stays silent."""
