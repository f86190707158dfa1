"""Engine and sampling options, and the output (progress, summary and exit code) of commands that use an engine."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console

from ..engines import ENGINES, Engine, Sampling, require
from ..engines.base import CHOICES
from ..files.source import Source
from ..inference.journal import SUFFIX, Journal
from ..inference.runner import RequestCounts
from ..inference.shards import FAILED_SUFFIX, Shard, Share, files_of_output
from .codes import SOME_FAILED
from .echo import echo
from .files import refuse_replacing_inputs
from .numbers import NumberRange, Seed
from .options import Command, with_options

_ENGINES_OF = {
    option: engines
    for engines, options in {
        ("openai",): "--base-url --api-key-env --concurrency --rate --timeout --tries --wait-server",
        ("transformers",): "--batch-size --device --max-pixels",
        ("vllm", "ray", "transformers"): "--revision --dtype",
        ("openai", "vllm", "ray"): "--engine-option",
        ("ray",): "--replicas",
    }.items()
    for option in options.split()
}
"""Option -> engines that it affects. Other options affect all engines."""

_LINE_EVERY = 30.0  # seconds between progress lines without a terminal


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Values of the options that :func:`engine_options` adds."""

    engine: str
    model: str
    base_url: str
    api_key_env: str
    concurrency: int
    rate: float | None
    timeout: float
    tries: int
    wait_server: float | None
    batch_size: int
    replicas: int
    revision: str | None
    dtype: str
    device: str
    max_pixels: int | None
    engine_option: tuple[str, ...]
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    generation_config: str
    max_tokens: int
    seed: int
    restart: bool
    quiet: bool

    def __post_init__(self) -> None:
        context = click.get_current_context(silent=True)
        if context is None:
            return
        used = set(self._engines)
        for param in context.command.params:
            option, source = param.opts[-1], context.get_parameter_source(param.name or "")
            engines = _ENGINES_OF.get(option, ())
            if engines and used.isdisjoint(engines) and source is ParameterSource.COMMANDLINE:
                reason = f"{option} is for --engine {' or '.join(engines)}, not for --engine {self.engine}"
                raise click.UsageError(reason, context)

    @property
    def sampling(self) -> Sampling:
        """Sampling settings. Settings that the user does not specify have neutral values, or the values from the
        checkpoint.
        """
        asked = {name: value for name in CHOICES if (value := getattr(self, name)) is not None}
        left = dict.fromkeys(CHOICES) if self.generation_config == "model" else {}
        return Sampling(max_tokens=self.max_tokens, seed=self.seed, **{**left, **asked})

    def make(self) -> Engine:
        """Creates the engine. The library of the engine is imported only when this method is called."""
        return make_engine(self, self.engine, self.model, self.base_url)

    def warn(self, text: str) -> None:
        """Prints a warning to standard error, unless the option ``--quiet`` is set."""
        if not self.quiet:
            echo(f"scapo-eval: warning: {text}", err=True)

    def require(self) -> None:
        """Checks whether the extras of all engines of the command are installed. Commands call this method before they
        create files.

        Raises:
            MissingExtra: If an extra is missing.
        """
        for engine in self._engines:
            require(engine)

    @property
    def _engines(self) -> list[str]:
        context = click.get_current_context(silent=True)
        verifier = context.params.get("verifier_engine") if context else None
        return [self.engine, *([verifier] if verifier else [])]

    def journal(self, output: str, *others: str) -> Journal:
        """Opens the journal that belongs to an output file.

        Args:
            output: Path of the output file.
            others: Paths of further output files whose run cards and failures are written next to them.

        Raises:
            InputError: If one of the files next to an output is also an input.
            MissingExtra: If the extra of an engine is missing.
        """
        if output == "-":
            raise click.UsageError("-o requires a file, because the journal for resuming is written next to it")
        refuse_replacing_inputs([path for each in (output, *others) for path in files_of_output(each)])
        self.require()
        return Journal(f"{output}{SUFFIX}", fresh=self.restart, warn=self.warn)


def engine_options(max_tokens: int) -> Callable[[Command], Command]:
    """Adds the options for the engine and for sampling. The command receives them as ``settings: EngineSettings``.

    Args:
        max_tokens: Default of the option ``--max-tokens``.
    """
    option = partial(click.option, show_default=True)
    options: list[Callable[[Any], Any]] = [
        option("--engine", type=click.Choice(ENGINES), default="openai", help="Engine that runs the model."),
        option(
            "--model", required=True, metavar="NAME", help="Name of the model on the server or the hub, or its folder."
        ),
        option(
            "--base-url",
            default="http://127.0.0.1:8000/v1",
            envvar="OPENAI_BASE_URL",
            help="openai: the server, up to /v1.",
        ),
        option(
            "--api-key-env",
            default="OPENAI_API_KEY",
            metavar="NAME",
            help="openai: environment variable with the key.",
        ),
        option("--concurrency", type=click.IntRange(1), default=64, help="openai: number of concurrent requests."),
        option("--rate", type=NumberRange(0, min_open=True), help="openai: maximum number of requests per second."),
        option(
            "--timeout",
            type=NumberRange(0, min_open=True),
            default=600.0,
            help="openai: timeout of one attempt, in seconds.",
        ),
        option("--tries", type=click.IntRange(1), default=8, help="openai: number of attempts per request."),
        option(
            "--wait-server",
            type=NumberRange(0),
            metavar="SECONDS",
            help="openai: maximum wait for an unavailable server.  [default: 300 after its first answer, 0 before]",
        ),
        option("--batch-size", type=click.IntRange(1), default=8, help="transformers: requests per batch."),
        option("--replicas", type=click.IntRange(1), default=1, help="ray: copies of the model on the cluster."),
        option("--revision", metavar="REV", help="vllm, ray, transformers: revision of a model on the hub."),
        option(
            "--dtype",
            type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
            default="auto",
            help="vllm, ray, transformers: type of the weights.",
        ),
        option("--device", default="auto", help="transformers: cpu, cuda, cuda:1..."),
        option(
            "--max-pixels",
            type=click.IntRange(1),
            help="transformers: maximum number of pixels; larger images are shrunk (Qwen).",
        ),
        option(
            "--engine-option",
            multiple=True,
            metavar="KEY=JSON",
            help="openai: additional field of every request (null removes a field); vllm, ray: argument of vLLM.",
        ),
        option("--temperature", type=NumberRange(0), help="0, the default, is greedy."),
        option("--top-p", type=NumberRange(0, 1, min_open=True), help="Probability mass to sample from; default 1."),
        option("--top-k", type=click.IntRange(0), help="Number of tokens to sample from; default 0, all."),
        option("--min-p", type=NumberRange(0, 1), help="Minimum probability relative to the best token; default 0."),
        option(
            "--repetition-penalty",
            type=NumberRange(0, min_open=True),
            help="Penalty for tokens in prompt or completion; default 1, none.",
        ),
        option("--presence-penalty", type=NumberRange(-2, 2), help="Penalty for tokens in the completion; default 0."),
        option(
            "--frequency-penalty",
            type=NumberRange(-2, 2),
            help="Penalty for each occurrence in the completion; default 0.",
        ),
        option(
            "--generation-config",
            type=click.Choice(["neutral", "model"]),
            default="neutral",
            help="Defaults of sampling: neutral, or from the checkpoint (generation_config.json).",
        ),
        option("--max-tokens", type=click.IntRange(1), default=max_tokens, help="Maximum length of a completion."),
        option("--seed", type=Seed(), default=0, help="Seed of the sampling."),
        option("--restart", is_flag=True, help="Discard the completions of an earlier run for this output."),
        option("-q", "--quiet", is_flag=True, help="No progress, no warnings, no summary."),
    ]

    def decorate(command: Command) -> Command:
        return with_options(command, options, "settings", EngineSettings)

    return decorate


class _ShardType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        """Converts a text such as ``3/64`` to a shard."""
        try:
            return value if isinstance(value, Shard) else Shard.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


shard_option = click.option(
    "--shard",
    type=_ShardType(),
    metavar="I/N",
    help="Process only this part, and insert .I-of-N into the output name. scapo-eval merge combines the parts.",
)
"""Option such as ``--shard 3/64``. The command receives ``shard: Shard | None``."""

Item = TypeVar("Item")


def shared(
    shard: Shard | None, output: str, items: list[Item], key: Callable[[Item], str]
) -> tuple[str, list[Item], Share[Item] | None]:
    """Returns the output file, the items to process, and the share of all items that belongs to the shard. Without a
    shard, these are the complete output file, all items, and None.

    Args:
        shard: Shard, or None.
        output: Name of the complete output file.
        items: All items.
        key: Function that returns the text by which an item is identified; see
            :meth:`~scapo_eval.inference.shards.Shard.share`.
    """
    if shard is None:
        return output, items, None
    share = shard.share(items, key)
    return shard.path(output), share.items, share


def make_engine(settings: EngineSettings, engine: str, model: str, base_url: str) -> Engine:
    """Creates an engine and imports its library.

    Args:
        settings: Engine options.
        engine: Name of the engine.
        model: Name of the model, or its folder.
        base_url: Address of the server (for the engine ``openai``).

    Raises:
        MissingExtra: If the library is not installed.
        ScapoError: If the model cannot be loaded.
    """
    extra = _extra(settings.engine_option)
    if engine == "openai":
        from ..engines.openai_http import OpenAIEngine

        return OpenAIEngine(
            model, base_url, api_key=os.environ.get(settings.api_key_env), concurrency=settings.concurrency,
            rate=settings.rate, timeout=settings.timeout, attempts=settings.tries,
            wait_server=settings.wait_server, extra=extra, warn=settings.warn,
        )  # fmt: skip
    if engine == "vllm":
        from ..engines.vllm_offline import VllmEngine

        return VllmEngine(model, revision=settings.revision, dtype=settings.dtype, seed=settings.seed, extra=extra)
    if engine == "ray":
        from ..engines.ray_vllm import RayVllmEngine

        return RayVllmEngine(
            model, revision=settings.revision, dtype=settings.dtype, seed=settings.seed, replicas=settings.replicas,
            extra=extra,
        )  # fmt: skip
    from ..engines.hf import TransformersEngine

    return TransformersEngine(
        model, revision=settings.revision, dtype=settings.dtype, device=settings.device, batch_size=settings.batch_size,
        max_pixels=settings.max_pixels,
    )  # fmt: skip


def _extra(options: Sequence[str]) -> dict[str, Any]:
    arguments = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            shown = key if equals else "an option without ="  # the value may be a secret
            raise click.UsageError(f"expected --engine-option KEY=JSON, for example max_model_len=8192, got {shown!r}")
        if key in arguments:
            raise click.UsageError(f"--engine-option {key} is given twice")
        try:
            arguments[key] = json.loads(value)
        except (ValueError, RecursionError):
            if value[:1] in ("{", "[", '"'):
                raise click.UsageError(f"--engine-option {key}: not valid JSON") from None
            arguments[key] = value  # a bare word
    return arguments


ASKED_AGAIN = "run the same command to repeat them"


@contextmanager
def accounted(path: str, *, quiet: bool = False) -> Iterator[Source]:
    """Yields an input, and at the end prints notes about unusual records to standard error."""
    source = Source(path)
    source.count()
    yield source
    for note in source.counts.notes if source.counts is not None and not quiet else ():
        echo(f"note: {source.name}: {note}", err=True)


def finish(tally: RequestCounts, what: str, output: str, settings: EngineSettings, *, again: str = ASKED_AGAIN) -> int:
    """Prints a summary of the requests to standard error.

    Args:
        tally: Counts of the requests.
        what: Description of the items in the output, for the summary.
        output: Path of the output.
        settings: Engine options.
        again: Advice for items that failed.

    Returns:
        The exit code, which is 4 if some items failed or are empty, and 0 otherwise.
    """
    if not settings.quiet:
        echo(f"{output}: {tally.summary(what)}", err=True)
        if tally.failed and Path(f"{output}{FAILED_SUFFIX}").exists():
            echo(f"{output}{FAILED_SUFFIX}: the failed ones; {again}", err=True)
    return SOME_FAILED if tally.flawed else 0


@contextmanager
def completion_progress(
    settings: EngineSettings, description: str, total: int | None
) -> Iterator[Callable[[int], None]]:
    """Displays the number of completions, their rate and the remaining time on standard error.

    The display is a progress bar if the output is a terminal, otherwise an occasional line for a log file.
    """
    if settings.quiet:
        yield lambda number: None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(description, total).advance
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total, rate="")

        def advance(number: int) -> None:
            bar.advance(task, number)
            bar.update(task, rate=f"{bar.tasks[0].completed / max(time.monotonic() - began, 1e-9):,.1f}/s")

        yield advance


class _Lines:
    """Progress display for log files."""

    def __init__(self, description: str, total: int | None) -> None:
        self._description = description
        self._total = total
        self._done = 0
        self._began = self._last = time.monotonic()

    def advance(self, number: int) -> None:
        """Counts completions, and prints a line every ``_LINE_EVERY`` seconds."""
        self._done += number
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY:
            self._last = now
            rate = self._done / (now - self._began)
            left = f", {(self._total - self._done) / rate:,.0f} s left" if self._total and rate else ""
            of = f"/{self._total:,}" if self._total else ""
            print(f"{self._description}: {self._done:,}{of}, {rate:,.1f}/s{left}", file=sys.stderr, flush=True)
