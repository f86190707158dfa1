"""Stand-in for a vLLM server that holds the engine of ``stand_in_vllm.py``, for the order of requests and for failures.

It serves the paths that ``scapo_train.samplers.server`` uses on 127.0.0.1, in the test's own process. Like vLLM, it
answers with the version of its weights, and rejects requests for which it was not started (``faults``).
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from safetensors import safe_open

FLAGS = {
    "tensor_parallel_size": 1, "distributed_executor_backend": "uni", "load_format": "auto",
    "mm_processor_kwargs": None, "enable_sleep_mode": False,
}  # fmt: skip


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
        }
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
            if name not in ("health", "version", "server_info"):
                self.calls.append(f"{name} {self.version}" if name == "inference/v1/generate" else name)
            return 200, getattr(self, f"_{name.rpartition('/')[2]}")(body)

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
