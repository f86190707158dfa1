"""Requests to a vLLM server."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scapo_eval.base.errors import MissingExtra, ScapoError, in_one_line
from scapo_eval.files.json_text import dump_json, parse_json

from ..distributed import TIMEOUT

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs --dtype DTYPE"
"""Command that starts a server for the trainer."""

KEY = "VLLM_API_KEY"
"""Environment variable with the server's key, if it has one (vLLM's own name)."""

LOAD, UNLOAD = "v1/load_lora_adapter", "v1/unload_lora_adapter"
"""Paths for adapters. The replies are plain text."""

_CONNECT_SECONDS = 10.0


class ServerFault(ScapoError):
    """Error that is raised if a server rejects a request.

    Attributes:
        status: HTTP status.
        why: Reason from the server.
    """

    def __init__(self, message: str, status: int, why: str) -> None:
        super().__init__(message)
        self.status, self.why = status, why


class Server:
    """Connection to a vLLM server.

    Args:
        url: Address, ``http://HOST:PORT``.

    Raises:
        MissingExtra: If aiohttp is not installed.
    """

    def __init__(self, url: str) -> None:
        if find_spec("aiohttp") is None:
            raise MissingExtra("http", "rollout.server")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY, "").strip():
            self._headers["Authorization"] = f"Bearer {key}"

    def post(self, path: str, bodies: Sequence[dict[str, Any]] = ({},)) -> list[Any]:
        """Sends requests to a path at the same time, and returns the parsed replies in the order of the requests.

        Raises:
            ServerFault: If the server rejects a request.
            ScapoError: If the server cannot be reached or does not answer.
        """
        return asyncio.run(self._all("POST", path, bodies))

    def get(self, path: str) -> list[Any]:
        """Requests a path. Returns a list with the parsed reply. Raises the same errors as :meth:`post`."""
        return asyncio.run(self._all("GET", path, [{}]))

    def wait(self, seconds: float) -> None:
        """Waits until the server answers.

        Raises:
            ScapoError: If the server has not answered after the given time.
        """
        end, told = time.monotonic() + seconds, False
        while True:
            try:
                self.get("health")
                return
            except ServerFault:
                raise
            except ScapoError as error:
                if time.monotonic() >= end:
                    remedy = f"start it with {START}, or wait for longer (rollout.wait_server)"
                    raise ScapoError(f"{error}; {remedy}") from None
                if not told:
                    _log.info("%s; waiting for it, up to %.0f s (rollout.wait_server)", error, seconds)
                told = True
                time.sleep(1)

    def own_address(self) -> str:
        """Returns the IPv4 address of this machine in the network through which it reaches the server.

        Raises:
            ScapoError: If the server has no IPv4 address.
        """
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:  # connecting it sends nothing
                route.connect((urlsplit(self.url).hostname or "", 1))
                return str(route.getsockname()[0])
        except OSError as error:
            raise ScapoError(f"{self.url}: this machine has no IPv4 address for it ({in_one_line(error)})") from None

    async def _all(self, method: str, path: str, bodies: Sequence[dict[str, Any]]) -> list[Any]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=TIMEOUT.total_seconds(), sock_connect=_CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=self._headers
        ) as session:
            return await asyncio.gather(*(self._one(session, method, path, body) for body in bodies))

    async def _one(self, session: aiohttp.ClientSession, method: str, path: str, body: dict[str, Any]) -> Any:
        import aiohttp

        data = dump_json(body) if method == "POST" else None
        try:
            async with session.request(method, f"{self.url}/{path}", data=data, allow_redirects=False) as reply:
                content = await reply.read()
        except aiohttp.ClientConnectorError as error:
            raise ScapoError(f"no vLLM server at {self.url} ({in_one_line(error)})") from None
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError) as error:
            raise ScapoError(f"the vLLM server at {self.url} did not answer ({in_one_line(error)})") from None
        if reply.status != 200:
            why = _reason(content) or str(reply.reason)
            message = f"the vLLM server at {self.url} rejects {path.partition('?')[0]} (HTTP {reply.status}: {why})"
            if reply.status in (403, 404):
                message += f"; start it with {START}"
            elif reply.status == 401:
                message += f"; set {KEY}"
            raise ServerFault(message, reply.status, why)
        try:
            return parse_json(content) if content and path not in (LOAD, UNLOAD) else None
        except ValueError:
            raise ScapoError(f"{self.url}/{path.partition('?')[0]}: not JSON; is it a vLLM server?") from None


def _reason(content: bytes) -> str:
    """Returns the message in the body of an error."""
    try:
        body = parse_json(content)
    except ValueError:
        return ""
    error = body.get("error", body.get("detail")) if isinstance(body, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return in_one_line(error) if error else ""
