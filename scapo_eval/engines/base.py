"""What is asked and what comes back: the one interface of all engines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from ..errors import ScapoError
from ..io.files import dump_json

Item = TypeVar("Item")

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation; its images stand before its text.

    Attributes:
        role: who speaks.
        text: what is said.
        images: paths of image files.
    """

    role: Role
    text: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 takes the best token (greedy).
        top_p: share of the probability mass to choose from, 1 for all.
        top_k: number of best tokens to choose from, 0 for all.
        max_tokens: longest answer, in tokens.
        seed: of the draws; None leaves it to the engine.
        stop: texts that end an answer and are not part of it.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 1024
    seed: int | None = 0
    stop: tuple[str, ...] = ()

    def sample(self, number: int) -> Sampling:
        """The settings of a prompt's sample ``number``, counted from 0: the same with a seed of its own."""
        return self if self.seed is None else replace(self, seed=self.seed + number)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One answer that is wanted.

    Attributes:
        turns: the conversation so far, ending with the user.
        sampling: how to answer.
        schema: a JSON schema that the answer should follow; engines that cannot force it ignore it.
        sample: number of the answer among several to one prompt.
    """

    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    schema: Mapping[str, Any] | None = None
    sample: int = 0

    @classmethod
    def of(cls, prompt: str, image: str | None = None, sampling: Sampling | None = None, *, sample: int = 0) -> Request:
        """A single user turn, with or without an image."""
        turn = Turn("user", prompt, () if image is None else (image,))
        sampling = sampling or Sampling()
        return cls((turn,), sampling.sample(sample), sample=sample)

    @property
    def images(self) -> tuple[str, ...]:
        """Paths of all images, in order."""
        return tuple(image for turn in self.turns for image in turn.images)

    def key(self, identity: bytes, fingerprint: Callable[[str], str]) -> str:
        """32 hexadecimal digits that change with everything that decides the answer.

        Args:
            identity: of the engine, as JSON.
            fingerprint: image path -> hash of the image's content.
        """
        asked = {
            "turns": [(turn.role, turn.text, [fingerprint(image) for image in turn.images]) for turn in self.turns],
            "sampling": asdict(self.sampling),
            "schema": self.schema,
            "sample": self.sample,
        }
        return hashlib.sha256(identity + b"\n" + dump_json(asked)).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back.

    Attributes:
        text: the answer, empty where there is an error.
        finish: ``stop``, ``length`` (cut at ``max_tokens``), another word of a server's, None if unknown.
        prompt_tokens: tokens of prompt and images, None if unknown.
        completion_tokens: tokens of the answer, None if unknown.
        error: why there is no answer.
    """

    text: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None


OnCompletion = Callable[[Request, Completion], None]
"""Called in the caller's thread as each answer arrives, in any order."""


class Engine(Protocol):
    """Answers requests.

    Attributes:
        identity: whatever decides the answers and can be known: model, weights, processor settings... It is
            part of every request's key.
        card: further facts for the run card (versions, devices, addresses).
    """

    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def card(self) -> Mapping[str, Any]: ...  # noqa: D102

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Answers all requests, each exactly once, pulling them as it can use them.

        A request that cannot be answered gets a completion with an error, and the others go on.

        Raises:
            ScapoError: nothing can be answered (no such server, no such model, access denied).
        """
        ...

    def close(self) -> None:
        """Frees what the engine holds."""
        ...


def answer_batch(
    answer: Callable[[Sequence[Item]], Sequence[Completion]], items: Sequence[Item], faults: tuple[type[Exception], ...]
) -> list[Completion]:
    """Answers a batch; where it fails as a whole, halves it until only the items at fault have errors.

    Args:
        answer: answers a batch, raising one of ``faults`` (out of memory, too long a prompt).
        items: the batch.
        faults: what may befall a batch.
    """
    if not items:
        return []
    try:
        return list(answer(items))
    except ScapoError:  # a ValueError, too, but one that ends the run
        raise
    except faults as error:
        if len(items) == 1:
            return [Completion(error=_one_line(error))]
    middle = len(items) // 2
    return answer_batch(answer, items[:middle], faults) + answer_batch(answer, items[middle:], faults)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SETTINGS = ("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")


def weights_hash(model: str) -> str | None:
    """Hash of a local model's weights and settings; None for a name that is no folder.

    A revision names what a hub holds, but only the bytes tell which training step a local folder holds.
    """
    folder = Path(model)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS or path.name in _SETTINGS)
    with ThreadPoolExecutor(4) as pool:  # hashing releases the interpreter's lock
        digests = list(pool.map(_file_hash, files))
    whole = hashlib.sha256()
    for path, each in zip(files, digests, strict=True):
        whole.update(f"{path.name} {each}\n".encode())
    return whole.hexdigest()[:16]


def _file_hash(path: Path) -> str:
    state = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 22):
            state.update(block)
    return state.hexdigest()
