"""Engine for any OpenAI-compatible server, such as vLLM, SGLang, ``transformers serve`` and hosted services.

The engine uses aiohttp, which needs 0.17 ms of processor time per request, whereas the openai client needs 1.7 to 4.2
ms. Each completion is a separate request, so that it can be retried and resumed. The field ``n`` of the request is not
used, because servers ignore it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ..base.errors import ScapoError, short_repr
from ..files.fields import message_text
from ..files.json_text import dump_json, parse_json
from . import images, missing_extra
from .base import (
    CHOICES,
    TOP,
    Completion,
    OnCompletion,
    Request,
    Sampling,
    masses_of,
    secrets_of,
    without_secrets,
)

if TYPE_CHECKING:
    import aiohttp

DEFAULT_URL = "http://127.0.0.1:8000/v1"
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
DENIED = frozenset({401, 403, 404})
"""Status codes for a rejected key, or for a model or path that is not found. With these codes, no request can
succeed.
"""

BACKOFF, LONGEST_BACKOFF, LONGEST_RETRY_AFTER = 0.5, 30.0, 600.0
"""First and maximum wait between tries, and maximum wait requested by a server, in seconds. A longer requested wait
ends the run.
"""

PATIENCE = 300.0
"""Seconds for which a server may refuse connections after its first answer. The start of a server with a 7B model takes
minutes.
"""

CONNECT_WITHIN, CHECK_WITHIN = 30.0, 10.0
"""Seconds after which a server that does not answer a connection attempt counts as unavailable (for example behind a
firewall), and maximum duration of the request for the list of models.
"""

_TOLD_FROM = 10.0  # minimum wait in seconds for a warning
_LONGEST_REPLY = 32 << 20  # bytes
_REASONING = ("reasoning", "reasoning_content")  # names under which servers return the reasoning before an answer
_SHORTEST_SECRET = 4  # characters; a shorter one would match in every text

_SENT = (*CHOICES, "seed", "max_tokens")
_WRAPPED, _UNWRAPPABLE = ("top_k", "min_p", "repetition_penalty"), ("presence_penalty", "frequency_penalty")
_TRANSFORMERS_SERVE = re.compile(r"Unexpected (fields|keys) in the request")
_REFUSAL = re.compile(
    r"^HTTP 4\d\d: .*(unexpected|unrecogni[sz]ed|unsupported|not supported|does not support|unknown|not permitted|"
    r"extra_forbidden|not allowed)", re.IGNORECASE | re.DOTALL,
)  # fmt: skip

_CHUNK = 32  # number of requests prepared (and images hashed) per call to a thread
_KEPT_IMAGES = 64  # number of cached encoded images, since a benchmark's questions are ordered by image


class OpenAIEngine:
    """Engine that sends many simultaneous requests to a server.

    Args:
        model: Name of the model on the server.
        base_url: Address of the server up to and including ``/v1``.
        api_key: Key that is sent as a bearer token, or None to send no key.
        concurrency: Maximum number of simultaneous requests.
        rate: Maximum number of requests per second (bursts of up to one second are allowed), or None for no limit.
        timeout: Maximum duration of one attempt in seconds.
        attempts: Maximum number of attempts per request.
        backoff: Base of the exponential backoff in seconds. Before attempt k+1, the client waits a random time of up to
            ``backoff * 2**k`` seconds.
        wait_server: Seconds to wait for a server that cannot be reached. Waiting does not count as an attempt. If
            ``wait_server`` is None, the server must be available at the start. After its first answer, it may be
            unreachable for up to :data:`PATIENCE` seconds.
        extra: Additional fields in the body of every request. A value of None removes a field that a server rejects.
        warn: Callback that receives a warning if the server rejects a sampling setting, which is then omitted.

    Raises:
        MissingExtra: If aiohttp is not installed.
    """

    def __init__(
        self,
        model: str,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        concurrency: int = 64,
        rate: float | None = None,
        timeout: float = 600.0,
        attempts: int = 8,
        backoff: float = BACKOFF,
        wait_server: float | None = None,
        extra: Mapping[str, Any] = MappingProxyType({}),
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        try:
            import aiohttp
        except ImportError:
            raise missing_extra("openai") from None
        self.model = model
        self._url, login = _split_url(base_url)
        self.identity: Mapping[str, Any] = {"engine": "openai", "model": model, "extra": without_secrets(dict(extra))}
        self.card: dict[str, Any] = {"base_url": self._url, "aiohttp": aiohttp.__version__, "concurrency": concurrency}
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        api_key = (api_key or "").strip()
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ScapoError("the API key (--api-key-env) contains a line break or another invalid character")
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        elif login:
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        sent = self._headers.get("Authorization", "").partition(" ")[2]
        secrets = (api_key, login.partition(":")[2], sent, *secrets_of(extra))
        self._secrets = [secret.encode() for secret in secrets if len(secret) >= _SHORTEST_SECRET]
        self._concurrency = concurrency
        self._bucket = _TokenBucket(rate) if rate else None
        self._timeout = timeout
        self._attempts = attempts
        self._backoff = backoff
        self._wait_server = wait_server
        self._away_since: float | None = None
        self._extra = dict(extra)
        self._encoded = images.Cache(images.data_url, _KEPT_IMAGES)
        self._not_before = 0.0  # a server's Retry-After applies to all requests
        self._failed_in_a_row = 0
        self._schema_refused = False
        self._refused: set[str] = set()  # settings that the server does not support
        self._told: set[str] = set()
        self._wraps = False  # True for ``transformers serve``
        self._warn = warn

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes all requests; see :class:`~scapo_eval.engines.base.Engine`. In an event loop, such as that of a
        training framework, the requests run in another thread, and the loop waits for them.
        """
        work = self._run(iter(requests), done)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(work)
        else:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, work).result()

    def close(self) -> None:
        """Does nothing, because no resources are kept between runs."""

    async def _run(self, requests: Iterator[Request], done: OnCompletion) -> None:
        import aiohttp

        first = await asyncio.to_thread(next, requests, None)
        if first is None:  # all requests were completed earlier, so no server is needed
            return
        requests = chain([first], requests)
        connector = aiohttp.TCPConnector(limit=self._concurrency)
        timeout = _limits(self._timeout)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers, auto_decompress=False
        ) as session:
            await self._check_server(session)
            queue: asyncio.Queue[Request | None] = asyncio.Queue(maxsize=self._concurrency)
            tasks = [asyncio.create_task(self._feed(requests, queue))]
            tasks += [asyncio.create_task(self._work(session, queue, done)) for _ in range(self._concurrency)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, requests: Iterator[Request], queue: asyncio.Queue[Request | None]) -> None:
        """Reads requests in a thread, because creating a request may read a file."""
        while chunk := await asyncio.to_thread(lambda: list(islice(requests, _CHUNK))):
            for request in chunk:
                await queue.put(request)
        for _ in range(self._concurrency):
            await queue.put(None)

    async def _work(
        self, session: aiohttp.ClientSession, queue: asyncio.Queue[Request | None], done: OnCompletion
    ) -> None:
        while (request := await queue.get()) is not None:
            done(request, await self._answer(session, request))

    async def _check_server(self, session: aiohttp.ClientSession) -> None:
        """Requests the server's list of models to check that the server is available, and records the server's metadata
        about the model.
        """
        import aiohttp

        attempt = 0
        while True:
            try:
                asked = session.get(f"{self._url}/models", timeout=_limits(CHECK_WITHIN), allow_redirects=False)
                async with asked as reply:
                    self.card["server"] = reply.headers.get("Server")
                    listed = parse_json(await self._read(reply)) if reply.status == 200 else None
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
                attempt += 1
                if self._wait_server:
                    await self._wait(str(error), self._wait_server)
                elif attempt == 3:
                    raise self._not_found(error) from None
                else:
                    await asyncio.sleep(self._backoff)
            except aiohttp.InvalidURL as error:
                raise self._not_found(error) from None
            except (aiohttp.ClientError, asyncio.TimeoutError, ValueError):
                return  # a server without this list, or with a temporary error: the requests will show its state
            else:
                self._away_since = None
                models = listed.get("data") if isinstance(listed, dict) else None
                for entry in models if isinstance(models, list) else ():
                    if isinstance(entry, dict) and entry.get("id") == self.model:
                        entry = {key: entry[key] for key in ("id", "root", "owned_by", "max_model_len") if key in entry}
                        self.card["served_model"] = entry
                        if entry.get("owned_by") == "vllm" and (version := await self._server_version(session)):
                            # --served-model-name gives the checkpoints of a training run the same name
                            root = entry.get("root") or self.model
                            self.card["server_version"] = version + (f" with {root}" if root != self.model else "")
                return

    async def _server_version(self, session: aiohttp.ClientSession) -> str | None:
        """Returns the version of a vLLM server, such as ``vLLM 0.32.0``, or None for other servers."""
        import aiohttp

        try:
            url = self._url.removesuffix("/v1") + "/version"
            async with session.get(url, timeout=_limits(CHECK_WITHIN), allow_redirects=False) as reply:
                document = parse_json(await self._read(reply)) if reply.status == 200 else None
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError):
            return None
        told = document.get("version") if isinstance(document, dict) else None
        return f"vLLM {told}" if isinstance(told, str) else None

    def _not_found(self, error: Exception) -> ScapoError:
        return ScapoError(
            f"server not found at {self._url} ({error}); start it, set --base-url, or wait for it (--wait-server)"
        )

    async def _wait(self, reason: str, longest: float) -> None:
        """Waits a moment while the server is unavailable.

        Raises:
            ScapoError: If the server has been unavailable for too long.
        """
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._warn(
                f"the server does not respond ({reason}); waiting for it, up to {longest:,.0f} s (--wait-server)"
            )
        if now - self._away_since > longest:
            raise ScapoError(
                f"server not found at {self._url} for {longest:,.0f} s ({reason}); what was completed is kept, run the "
                "same command again, or wait for longer (--wait-server)"
            )
        await asyncio.sleep(random.uniform(0.5, 1.5) * min(1.0, longest / 10))

    async def _answer(self, session: aiohttp.ClientSession, request: Request) -> Completion:
        """Completes one request, with several attempts if necessary."""
        forced = request.schema is not None and not self._schema_refused
        settings = self._settings(request.sampling)
        try:
            body = await self._body(request, settings)
        except images.ImageFault as error:
            return Completion(error=str(error))
        reason, attempt = "", 0
        while attempt < self._attempts:
            if attempt:
                await asyncio.sleep(random.uniform(0, min(LONGEST_BACKOFF, self._backoff * 2 ** (attempt - 1))))
            while (wait := self._not_before - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            if self._bucket:
                await self._bucket.take()
            try:
                outcome = await self._attempt(session, body, request.choices)
            except _Away as away:
                await self._wait(str(away), PATIENCE if self._wait_server is None else self._wait_server)
                continue
            attempt += 1
            if isinstance(outcome, Completion):
                if forced and _refuses_schema(outcome.error):
                    self._schema_refused = True
                    return await self._answer(session, request)
                if self._adapt(outcome.error, settings, request.sampling):
                    return await self._answer(session, request)
                self._failed_in_a_row = 0
                return outcome
            reason = outcome
        self._failed_in_a_row += 1
        answers_at_all = reason.startswith("HTTP ")
        if self._failed_in_a_row >= (max(100, 4 * self._concurrency) if answers_at_all else max(8, self._concurrency)):
            raise ScapoError(
                f"{self._failed_in_a_row} requests in a row failed at {self._url} (the last: {reason}); what was "
                "completed is kept, run the same command again"
            )
        return Completion(error=f"gave up after {self._attempts} tries: {reason}")

    async def _attempt(
        self, session: aiohttp.ClientSession, body: bytes, choices: tuple[str, ...] = ()
    ) -> Completion | str:
        """Makes one attempt and returns a completion, which may contain a final error, or the reason for another
        attempt as a string.

        Raises:
            _Away: If the server cannot be reached.
            ScapoError: If the server redirects, refuses the key, or returns no log-probabilities for choices.
        """
        import aiohttp

        try:
            url = f"{self._url}/chat/completions"
            async with session.post(url, data=io.BytesIO(body), allow_redirects=False) as reply:
                data = await self._read(reply)
                status, retry_after = reply.status, reply.headers.get("Retry-After")
                location = reply.headers.get("Location")
            self._away_since = None
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:  # refused, or no connection in time
            if self._wait_server == 0:
                return f"{type(error).__name__}: {error}"
            raise _Away(error) from None
        except asyncio.TimeoutError:
            return f"no answer within {self._timeout:g} s"
        except aiohttp.ClientError as error:
            return f"{type(error).__name__}: {error}"
        except ValueError as error:  # the reply is too long
            return Completion(error=str(error))
        if status == 200:
            try:
                return _completion(parse_json(data), choices)
            except _NoProbabilities as missing:
                raise self._no_probabilities(str(missing)) from None
            except ValueError as error:
                return f"not a valid completion ({error})"
        if location and 300 <= status < 400:
            raise ScapoError(
                f"{self._url} redirects to {_split_url(location)[0][:200]}: not followed, because the key and the "
                "pictures would be sent there; specify the address with --base-url"
            )
        message = f"HTTP {status}: {_message(data)}"
        if status in RETRIED or status >= 500:
            wait = seconds_to_wait(retry_after) if retry_after else 0.0
            if wait > LONGEST_RETRY_AFTER:
                raise ScapoError(
                    f"{self._url} asks to wait {wait:,.0f} s ({message}); what was completed is kept, run the same "
                    "command again then"
                )
            if wait >= _TOLD_FROM and self._not_before < time.monotonic():
                self._warn(f"the server asks to wait {wait:,.0f} s before the next request ({message})")
            self._not_before = max(self._not_before, time.monotonic() + wait)
            return message
        if status in DENIED:
            raise ScapoError(f"{self._url} refuses: {message}")
        if choices and "logprobs" in message:
            raise self._no_probabilities(message)
        return Completion(error=message)

    def _no_probabilities(self, reason: str) -> ScapoError:
        return ScapoError(f"{self._url} returns no token probabilities ({reason}); judge without --probability")

    async def _read(self, reply: aiohttp.ClientResponse) -> bytes:
        """Returns the body of a reply, with secrets replaced. Raises ValueError if the body is too long."""
        parts, size = [], 0
        async for part in reply.content.iter_chunked(1 << 16):
            parts.append(part)
            size += len(part)
            if size > _LONGEST_REPLY:
                reply.close()
                raise ValueError(f"the server's reply is longer than {_LONGEST_REPLY >> 20} MiB")
        data = b"".join(parts)
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        return data

    def _settings(self, sampling: Sampling) -> dict[str, Any]:
        """Returns the sampling settings with explicit values, in the server's format and without those that the server
        has rejected.
        """
        settings = {name: getattr(sampling, name) for name in _SENT}
        if settings["top_k"] == 0:
            settings["top_k"] = -1  # all tokens: vLLM accepts 0 or -1, SGLang only -1
        settings |= {name: value for name, value in self._extra.items() if name in _SENT}
        settings = {name: value for name, value in settings.items() if value is not None and name not in self._refused}
        if "max_tokens" in self._refused:
            settings["max_completion_tokens"] = sampling.max_tokens
        if self._wraps:
            for name in _UNWRAPPABLE:
                if settings.get(name):
                    self._tell_lost(name, settings[name], "transformers serve")
            settings = _wrapped(settings)
        self.card["sampling"] = {name: value for name, value in settings.items() if name != "seed"}
        return settings

    def _adapt(self, error: str | None, sent: Mapping[str, Any], sampling: Sampling) -> bool:
        """Returns True if the request should be repeated without the settings that the server has just rejected."""
        if error is None or not _REFUSAL.search(error):
            return False
        if _TRANSFORMERS_SERVE.search(error):
            self._wraps = True
            return "generation_config" not in sent
        lost = {name for name in sent if name in _SENT and re.search(rf"\b{name}\b", error)}
        if "max_completion_tokens" not in error:
            lost.discard("max_tokens")
        self._refused |= lost
        for name in sorted(lost - {"max_tokens"}):
            self._tell_lost(name, getattr(sampling, name), error)
        return bool(lost)

    def _tell_lost(self, name: str, value: object, why: str) -> None:
        """Warns once that the server does not support a setting and that its own value or the checkpoint's applies
        instead.
        """
        if name not in self._told:
            self._told.add(name)
            self._warn(
                f"the server does not accept {name} ({value} was requested), so it is omitted; the value of the server "
                f"or the checkpoint applies, and texts may differ from those of other engines ({why})"
            )

    async def _body(self, request: Request, settings: Mapping[str, Any]) -> bytes:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "messages": await self._messages(request),
            "stream": False,
            **settings,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if request.choices:
            body |= {"logprobs": True, "top_logprobs": TOP}
        if request.schema is not None and not self._schema_refused:
            schema = {"name": "answer", "schema": dict(request.schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body |= {name: value for name, value in self._extra.items() if name not in _SENT}
        return dump_json({key: value for key, value in body.items() if value is not None})

    async def _messages(self, request: Request) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        for turn in request.turns:
            if not turn.images:
                messages.append({"role": turn.role, "content": turn.text})
                continue
            urls = [await asyncio.to_thread(self._encoded, path) for path in turn.images]
            parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            messages.append({"role": turn.role, "content": [*parts, {"type": "text", "text": turn.text}]})
        return messages


def _limits(total: float) -> aiohttp.ClientTimeout:
    """Returns the time limits of a request in aiohttp's format, of which at most half is for connecting."""
    import aiohttp

    return aiohttp.ClientTimeout(total=total, sock_connect=min(CONNECT_WITHIN, total / 2))


class _Away(Exception):
    """Error that is raised if a server refuses connections or does not answer connection attempts."""


class _NoProbabilities(Exception):
    """An error for a reply that lacks the requested log-probabilities."""


class _TokenBucket:
    """Token-bucket rate limiter that allows an average of ``rate`` requests per second, with bursts of at most one
    second's worth of requests.
    """

    def __init__(self, rate: float) -> None:
        self._interval = 1.0 / rate
        self._burst = max(0.0, 1.0 - self._interval)
        self._next = time.monotonic()

    async def take(self) -> None:
        """Waits until a request is permitted."""
        now = time.monotonic()
        at = max(self._next, now - self._burst)
        self._next = at + self._interval
        if at > now:
            await asyncio.sleep(at - now)


def seconds_to_wait(retry_after: str, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> float:
    """Returns the waiting time in a Retry-After header (seconds or a date) in seconds, or 0 if the
    header is invalid.
    """
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            when = parsedate_to_datetime(retry_after)
        except (ValueError, TypeError, OverflowError):
            return 0.0
        seconds = (when.replace(tzinfo=when.tzinfo or timezone.utc) - now()).total_seconds()
    return max(seconds, 0.0) if seconds == seconds else 0.0


def _split_url(url: str) -> tuple[str, str]:
    """Splits an address into two parts: the address without login, query and fragment (which may be secret), and the
    login (``user:password``).
    """
    try:
        parts = urlsplit(url.strip())
        host, login = parts.netloc.rpartition("@")[2], f"{parts.username or ''}:{parts.password or ''}"
    except ValueError:
        raise ScapoError("not a valid address of a server (--base-url)") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ScapoError("not a valid address of a server (--base-url): it must begin with http:// or https://")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), unquote(login) if login != ":" else ""


def _completion(data: Any, words: tuple[str, ...] = ()) -> Completion:
    """Returns the first choice in a reply as a completion, with the probability of each requested word.

    Raises:
        ValueError: If the JSON is not a chat completion.
        _NoProbabilities: If probabilities are requested but missing.
    """
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list):
        # OpenRouter and others report errors of their providers with HTTP 200
        told = isinstance(data, dict) and data.get("error")
        raise ValueError(f"the server reports {_error_message(data)}" if told else "missing key 'choices'")
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        return Completion(error="the server's reply contains no message")
    content = message.get("content")
    if not isinstance(content, (str, list, type(None))):
        return Completion(error=f"the content of the server's reply is {short_repr(content)}, not text")
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    text = message_text(content)
    if not text.strip() and any(message.get(name) for name in _REASONING):
        return Completion(
            error="the reply contains only reasoning and no answer; increase --max-tokens, or turn reasoning off"
        )
    return Completion(
        text=text,
        finish=finish if isinstance(finish := choices[0].get("finish_reason"), str) else None,
        prompt_tokens=_tokens(usage.get("prompt_tokens")),
        completion_tokens=_tokens(usage.get("completion_tokens")),
        masses=masses_of(words, _first_tokens(choices[0])) if words else None,
    )


def _first_tokens(choice: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Returns the text and log-probability of each of the most probable first tokens.

    Raises:
        _NoProbabilities: If the choice contains no log-probabilities.
    """
    try:
        return [(entry["token"], float(entry["logprob"])) for entry in choice["logprobs"]["content"][0]["top_logprobs"]]
    except (KeyError, IndexError, TypeError, ValueError):
        raise _NoProbabilities("the reply has no 'top_logprobs'") from None


def _tokens(number: object) -> int | None:
    """Returns a valid number of tokens unchanged, and None for any other value."""
    return number if type(number) is int and 0 <= number < 2**53 else None


def _message(data: bytes) -> str:
    """Returns the message from an error reply in any of the common formats."""
    try:
        value: Any = parse_json(data)
    except ValueError:
        value = data.decode("utf-8", "replace")
    return _error_message(value)


def _error_message(value: Any) -> str:
    """Returns the message of an error from a reply."""
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    return " ".join(str(value).split())[:500] or "no message"


def _wrapped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in the format of ``transformers serve``, in which settings outside OpenAI's interface are
    passed as JSON text.

    ``transformers serve`` ignores a presence penalty, and interprets a frequency penalty as a repetition penalty.
    """
    inner = {name: settings[name] for name in _WRAPPED if name in settings}
    if inner.get("top_k") == -1:
        inner["top_k"] = 0
    if "repetition_penalty" in settings:  # otherwise the checkpoint's values apply
        inner |= {"no_repeat_ngram_size": 0, "num_beams": 1}
    if "temperature" in settings:  # the server disables sampling at temperature 0, but never enables it
        inner["do_sample"] = settings["temperature"] > 0
    outer = {name: value for name, value in settings.items() if name not in (*_WRAPPED, *_UNWRAPPABLE)}
    return {**outer, "generation_config": dump_json(inner).decode()}


def _refuses_schema(error: str | None) -> bool:
    return error is not None and any(word in error for word in ("response_format", "json_schema", "guided", "grammar"))
