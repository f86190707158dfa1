"""Requests, completions and the common interface of all engines."""

from __future__ import annotations

import hashlib
import math
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..base.errors import InputError, ScapoError, in_one_line
from ..files.json_text import dump_json

Item = TypeVar("Item")

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation, in which images precede the text.

    Attributes:
        role: Author of the message: ``system``, ``user`` or ``assistant``.
        text: Text of the message.
        images: Paths of the message's image files.
    """

    role: Role
    text: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings, which determine how the next token is chosen.

    Every engine sets all of these settings explicitly, so that no default of a server or a checkpoint
    (``generation_config.json``) has a hidden effect. The default of the server or the checkpoint is used only if a
    setting is None.

    Attributes:
        temperature: Sampling temperature, where 0 always selects the most probable token (greedy decoding).
        top_p: Share of the probability mass to sample from, or 1 to sample from all tokens.
        top_k: Number of most probable tokens to sample from, or 0 to sample from all tokens.
        max_tokens: Maximum length of a completion in tokens.
        seed: Seed for the random number generator. If ``seed`` is None, the engine chooses the seed.
        stop: Texts that end a completion. The completion does not contain the text that ended it.
        min_p: Minimum probability of a token, relative to the most probable token, or 0 for no minimum.
        repetition_penalty: Divisor for positive logits and factor for negative logits of tokens that occur in the
            prompt or the completion, or 1 for no penalty.
        presence_penalty: Value that is subtracted from the logits of tokens that occur in the completion, or 0 for no
            penalty.
        frequency_penalty: Value that is subtracted from a token's logit for each occurrence in the completion, or 0 for
            no penalty.
    """

    temperature: float | None = 0.0
    top_p: float | None = 1.0
    top_k: int | None = 0
    max_tokens: int = 1024
    seed: int | None = 0
    stop: tuple[str, ...] = ()
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0

    @property
    def said(self) -> str:
        """The non-default settings as text, such as ``temperature=0.7 top_p=0.9``, or ``default``."""
        default = Sampling()
        pairs = [(name, getattr(self, name)) for name in self.__slots__]
        return " ".join(f"{name}={value}" for name, value in pairs if value != getattr(default, name)) or "default"

    def sample(self, number: int) -> Sampling:
        """Returns the settings for sample ``number`` of a prompt, counted from 0. The settings of different samples
        differ only in the seed.
        """
        return self if self.seed is None else replace(self, seed=self.seed + number)


CHOICES = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Names of the settings that a checkpoint's ``generation_config.json`` may also contain."""


COMPACT_JSON: Mapping[str, Any] = MappingProxyType({"backend": "xgrammar", "disable_any_whitespace": True})
"""vLLM's setting for JSON that matches a schema: without white space, which some models would repeat endlessly."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request for one completion.

    Attributes:
        turns: Conversation so far, which ends with a user turn.
        sampling: Sampling settings.
        schema: JSON schema that the completion must match. Engines that cannot enforce a schema ignore the field
            ``schema``.
        sample: Number of the completion among several completions of the same prompt, counted from 0.
        choices: Words from which the model chooses with its first token. If words are given, the completion contains
            the probability of each word (:attr:`Completion.masses`), and the sampling settings are :data:`ONE_TOKEN`.
    """

    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    choices: tuple[str, ...] = ()

    @classmethod
    def of(cls, prompt: str, image: str | None = None, sampling: Sampling | None = None, *, sample: int = 0) -> Request:
        """Returns a request with a single user turn, with or without an image."""
        turn = Turn("user", prompt, () if image is None else (image,))
        sampling = sampling or Sampling()
        return cls((turn,), sampling.sample(sample), sample=sample)

    @property
    def images(self) -> tuple[str, ...]:
        """Paths of all images in the request, in order."""
        return tuple(image for turn in self.turns for image in turn.images)

    def key(self, identity: bytes, fingerprint: Callable[[str], str]) -> str:
        """Returns a key of 32 hexadecimal digits, which is determined by everything that affects the completion.

        Args:
            identity: Identity of the engine, as JSON.
            fingerprint: Function that returns a hash of the content of an image file.
        """
        asked: dict[str, Any] = {
            "turns": [(turn.role, turn.text, [fingerprint(image) for image in turn.images]) for turn in self.turns],
            "sampling": asdict(self.sampling),
            "schema": self.schema,
            "sample": self.sample,
        }
        if self.choices:  # the keys of other requests stay unchanged
            asked["choices"] = self.choices
        return hashlib.sha256(identity + b"\n" + dump_json(asked)).hexdigest()[:32]


ONE_TOKEN = Sampling(max_tokens=1)
"""Sampling of requests with choices. Their probabilities are the model's own, before temperature and penalties."""

TOP = 20
"""Number of most probable first tokens whose probabilities are read; servers give no more."""

YES_NO = ("yes", "no")
"""Choices of a yes/no question."""

LEAST_MASS = 0.5
"""Least probability that a model must give to the words yes and no together; below, it answers something else."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer to a request, or the error that prevented the answer.

    Attributes:
        text: Text of the completion. White space around the text is removed, because it differs between engines. The
            text is empty if the completion contains an error.
        finish: Reason why the completion ended: ``stop``, ``length`` (truncated at ``max_tokens``) or another value
            from the server. The value is None if the reason is unknown.
        prompt_tokens: Number of tokens in the prompt and its images, or None if this number is unknown.
        completion_tokens: Number of tokens in the completion, or None if this number is unknown.
        error: Reason why there is no completion, or None if there is a completion.
        masses: For each choice in the request, the probability that the first token is this choice, or None for
            requests without choices.
    """

    text: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None
    masses: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.strip())

    @property
    def probability(self) -> float | None:
        """P(yes) of a yes/no question, as a share of the total probability of "yes" and "no", or None if this total is
        too small.
        """
        if self.masses is None or (mass := sum(self.masses)) < LEAST_MASS:
            return None
        return self.masses[0] / mass


def masses_of(choices: Sequence[str], tokens: Iterable[tuple[str, float]]) -> tuple[float, ...]:
    """Returns the probability of each choice, which is the sum over all tokens that equal the choice regardless of case
    and spacing.

    Args:
        choices: Words whose probabilities are returned.
        tokens: Text and log-probability of each of the :data:`TOP` most probable first tokens.
    """
    masses = dict.fromkeys(choices, 0.0)
    for text, logprob in tokens:
        word = text.strip(_AROUND).casefold()
        if word in masses:
            masses[word] += math.exp(logprob)
    return tuple(round(mass, 9) for mass in masses.values())


_AROUND = " \t\n\u2581\u0120\u010a"
"""White space, and the signs for it in the vocabularies of tokenizers."""


_SECRET = re.compile(
    r"(?:^|[_-])(?:(?:api)?key|token|secret|password|passwd|authorization|credentials?|bearer)$", re.IGNORECASE
)


def without_secrets(value: Any) -> Any:
    """Replaces with ``***`` the values of settings whose names suggest a key, token or password, for use in cards and
    journals.
    """
    if isinstance(value, Mapping):
        return {k: "***" if _SECRET.search(str(k)) else without_secrets(inner) for k, inner in value.items()}
    return [without_secrets(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def secrets_of(value: Any, named: bool = False) -> Iterator[str]:
    """Yields the secret texts that :func:`without_secrets` replaces. If ``named`` is True, all texts in the value are
    treated as secrets.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from secrets_of(inner, named or _SECRET.search(str(key)) is not None)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from secrets_of(inner, named)
    elif named and isinstance(value, str):
        yield value


OnCompletion = Callable[[Request, Completion], None]
"""Callback for each completion, which is called in the caller's thread and in any order."""


class Engine(Protocol):
    """Interface for engines that run a model on requests.

    Attributes:
        identity: All known facts that affect the completions, such as model, weights and processor settings. The
            identity is part of the key of every request.
        card: Additional facts for the run card, such as versions, devices and addresses. After :meth:`run`, the card
            also contains the effective ``sampling`` settings under the names that the engine uses.
    """

    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def card(self) -> Mapping[str, Any]: ...  # noqa: D102

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes each request exactly once, and reads requests only when they are needed.

        If a request cannot be completed, its completion contains an error, and the other requests continue.

        Raises:
            ScapoError: If no request can be completed because the server or the model is not found, or because access
                is denied.
        """
        ...

    def close(self) -> None:
        """Releases the engine's memory and connections."""
        ...


def complete_batch(
    complete: Callable[[Sequence[Item]], Sequence[Completion]],
    items: Sequence[Item],
    faults: tuple[type[Exception], ...],
) -> list[Completion]:
    """Completes a batch. If the batch fails, it is repeatedly split in half until only the faulty items have errors.

    Args:
        complete: Function that completes a batch, or raises one of ``faults`` (for example, if memory is exhausted or a
            prompt is too long).
        items: Items of the batch.
        faults: Types of exceptions that a single item may cause.
    """
    if not items:
        return []
    try:
        return list(complete(items))
    except ScapoError:  # also a ValueError, but one that ends the run
        raise
    except faults as error:
        if len(items) == 1:
            return [Completion(error=f"{type(error).__name__}: {in_one_line(error, 500)}")]
    middle = len(items) // 2
    return complete_batch(complete, items[:middle], faults) + complete_batch(complete, items[middle:], faults)


def check_model(model: str) -> None:
    """Checks that a model can be found, because a library would otherwise spend minutes trying to reach the hub.

    Args:
        model: Name of the model on the hub, or path of its folder.

    Raises:
        InputError: If the name is neither a folder nor a valid name on a hub.
        ScapoError: If the model is neither a folder nor in the hub's cache, and the hub is unreachable.
    """
    if Path(model).is_dir():
        return
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise InputError("folder not found", path=model)
    try:
        from huggingface_hub import constants, try_to_load_from_cache
    except ImportError:
        return
    if constants.HF_HUB_OFFLINE or getproxies() or isinstance(try_to_load_from_cache(model, "config.json"), str):
        return
    address = urlsplit(constants.ENDPOINT)
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), timeout=5).close()
    except OSError as error:
        reason = f"{model}: folder not found, and the hub {constants.ENDPOINT} cannot be reached ({error})"
        raise ScapoError(reason) from None


def cached_commit(model: str) -> str | None:
    """Returns the commit of a model in the hub's cache, from which it was loaded without a revision, or None for a
    folder.
    """
    if Path(model).is_dir():
        return None
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(model, "config.json")
    return Path(found).parent.name if isinstance(found, str) else None


_OF_MODEL = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json", ".jinja", ".model", ".txt")


def weights_hash(model: str) -> str | None:
    """Returns a hash of the weights, settings, tokenizer and chat template of a local model, or None if the name does
    not refer to a folder.

    For a model on the hub, the revision identifies the weights. For a local folder, only the file contents can
    distinguish checkpoints of a training run.
    """
    folder = Path(model)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.iterdir() if path.suffix in _OF_MODEL and path.is_file())
    with ThreadPoolExecutor(4) as pool:  # hashing releases the interpreter's lock
        digests = list(pool.map(_file_hash, files))
    whole = hashlib.sha256()
    for path, file_hash in zip(files, digests, strict=True):
        whole.update(f"{path.name} {file_hash}\n".encode())
    return whole.hexdigest()[:16]


def _file_hash(path: Path) -> str:
    state = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 22):
            state.update(block)
    return state.hexdigest()
