"""Requests, completions and the one interface of all engines."""

from __future__ import annotations

import hashlib
import math
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..base.errors import InputError, ScapoError
from ..files.json_text import dump_json

Item = TypeVar("Item")

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation; its images come before its text.

    Attributes:
        role: whose message it is: ``system``, ``user`` or ``assistant``.
        text: text of the message.
        images: paths of the message's image files.
    """

    role: Role
    text: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings: how the next token is chosen.

    Every engine sets all of them, so that no default of a server or a checkpoint (``generation_config.json``) acts
    unseen. None leaves a setting to these defaults.

    Attributes:
        temperature: sampling temperature; 0 always takes the most probable token (greedy).
        top_p: share of the probability mass to sample from, 1 for all of it.
        top_k: number of most probable tokens to sample from, 0 for all.
        max_tokens: greatest length of a completion, in tokens.
        seed: seed of the random draws; None leaves it to the engine.
        stop: texts that end a completion and are not part of it.
        min_p: least probability of a token, as a share of the most probable one's; 0 for none.
        repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or completion; 1: none.
        presence_penalty: subtracted from the logits of tokens that the completion has; 0: none.
        frequency_penalty: subtracted from a token's logit for each time the completion has it; 0: none.
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
        """The settings that are not the defaults, ``temperature=0.7 top_p=0.9``; ``default`` where all are."""
        default = Sampling()
        pairs = [(name, getattr(self, name)) for name in self.__slots__]
        return " ".join(f"{name}={value}" for name, value in pairs if value != getattr(default, name)) or "default"

    def sample(self, number: int) -> Sampling:
        """Returns the settings for a prompt's sample ``number``, counted from 0: the same, with a seed of its own."""
        return self if self.seed is None else replace(self, seed=self.seed + number)


CHOICES = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Names of the settings that a checkpoint's ``generation_config.json`` may have, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request for one completion.

    Attributes:
        turns: the conversation so far, which ends with the user's turn.
        sampling: sampling settings.
        schema: JSON schema that the completion should follow; engines that cannot enforce it ignore it.
        sample: number of the completion among several of one prompt, from 0.
        choices: words between which the model decides by its first token. If given, the completion has the probability
            of each (:attr:`Completion.masses`), and its sampling is :data:`ONE_TOKEN`.
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
        """Paths of all images, in order."""
        return tuple(image for turn in self.turns for image in turn.images)

    def key(self, identity: bytes, fingerprint: Callable[[str], str]) -> str:
        """Returns 32 hexadecimal digits that change with everything that decides the completion.

        Args:
            identity: the engine's identity, as JSON.
            fingerprint: function from an image's path to a hash of its content.
        """
        asked: dict[str, Any] = {
            "turns": [(turn.role, turn.text, [fingerprint(image) for image in turn.images]) for turn in self.turns],
            "sampling": asdict(self.sampling),
            "schema": self.schema,
            "sample": self.sample,
        }
        if self.choices:  # keys of other requests stay what they were
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
    """A model's answer to a request, or the reason why there is none.

    Attributes:
        text: text of the completion without white space around it, which engines differ in; empty if there is an
            error.
        finish: why it ended: ``stop``, ``length`` (cut at ``max_tokens``) or another word of the server's; None if
            unknown.
        prompt_tokens: number of tokens of prompt and images, None if unknown.
        completion_tokens: number of tokens of the completion, None if unknown.
        error: why there is no completion, None if there is one.
        masses: probability of each of the request's choices as the first token, None of a request without choices.
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
        """P(yes) of a yes/no question, as a share of the two words; None if the model gives them too little mass."""
        if self.masses is None or (mass := sum(self.masses)) < LEAST_MASS:
            return None
        return self.masses[0] / mass


def masses_of(choices: Sequence[str], tokens: Iterable[tuple[str, float]]) -> tuple[float, ...]:
    """Returns the probability of each choice: the sum over the tokens that are this word in any case and spacing.

    Args:
        choices: words.
        tokens: text and log-probability of each of the :data:`TOP` most probable first tokens.
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
    """Returns the same settings with ``***`` for what their names call a key, token or password, for cards and
    journals.
    """
    if isinstance(value, Mapping):
        return {k: "***" if _SECRET.search(str(k)) else without_secrets(inner) for k, inner in value.items()}
    return [without_secrets(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def secrets_of(value: Any, named: bool = False) -> Iterator[str]:
    """Yields the texts that :func:`without_secrets` omits; all of them if the value itself is ``named`` so."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from secrets_of(inner, named or _SECRET.search(str(key)) is not None)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from secrets_of(inner, named)
    elif named and isinstance(value, str):
        yield value


OnCompletion = Callable[[Request, Completion], None]
"""Called in the caller's thread as each completion arrives, in any order."""


class Engine(Protocol):
    """Runs a model on requests.

    Attributes:
        identity: whatever is known to decide the completions: model, weights, processor settings... It is part of
            every request's key.
        card: further facts for the run card: versions, devices, addresses; after :meth:`run` the ``sampling`` that
            was in force, as the engine spells it.
    """

    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def card(self) -> Mapping[str, Any]: ...  # noqa: D102

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes all requests, each exactly once, pulling them as it can use them.

        A request that cannot be completed gets a completion with an error, and the others go on.

        Raises:
            ScapoError: if no request can be completed: the server or the model is not found, or access is denied.
        """
        ...

    def close(self) -> None:
        """Frees the engine's memory and connections."""
        ...


def complete_batch(
    complete: Callable[[Sequence[Item]], Sequence[Completion]],
    items: Sequence[Item],
    faults: tuple[type[Exception], ...],
) -> list[Completion]:
    """Completes a batch; where it fails as a whole, halves it until only the items at fault have errors.

    Args:
        complete: completes a batch, or raises one of ``faults`` (out of memory, prompt too long).
        items: the batch.
        faults: exceptions that a single item may cause.
    """
    if not items:
        return []
    try:
        return list(complete(items))
    except ScapoError:  # a ValueError, too, but one that ends the run
        raise
    except faults as error:
        if len(items) == 1:
            return [Completion(error=_one_line(error))]
    middle = len(items) // 2
    return complete_batch(complete, items[:middle], faults) + complete_batch(complete, items[middle:], faults)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def check_model(model: str) -> None:
    """Refuses a model that cannot be found, before a library tries the hub for minutes.

    Args:
        model: name of the model on the hub, or its folder.

    Raises:
        InputError: if it is neither a folder nor a possible name on a hub.
        ScapoError: if it is not a folder, not in the hub's cache, and the hub cannot be reached.
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


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SETTINGS = ("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")


def weights_hash(model: str) -> str | None:
    """Returns the hash of a local model's weights and settings; None for a name that is not a folder.

    A revision identifies weights on the hub; the training step of a local folder shows only in its bytes.
    """
    folder = Path(model)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS or path.name in _SETTINGS)
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
