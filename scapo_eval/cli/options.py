"""Options that all scoring commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import click

from ..benchmarks.scoring import ScoringOptions
from ..benchmarks.slicing import LENGTH
from ..claiming.claim import KINDS
from ..matching.judged_uses import JudgedUses
from ..matching.uses import READINGS, Reading, ReadingName
from ..readers.formats import name_keys
from ..results.benchmark import BENCHMARK_OF, benchmark, benchmarks, has_benchmark
from ..results.results import Resampling
from ..results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap, IntervalMethod, Test
from ..truths.references import UNNAMED
from .common import completing
from .files import INPUT, OUTPUT, PLAIN, source_of
from .gates import Gate
from .numbers import NumberRange, Seed
from .screen import Screen

Command = TypeVar("Command", bound=Callable[..., Any])

OutputFormat = Literal["table", "tsv", "json", "markdown", "latex"]


@dataclass(frozen=True, kw_only=True)
class Output(Screen):
    """Values of the options that :func:`output_options` adds."""

    form: OutputFormat | None
    as_json: bool
    metrics: tuple[str, ...] | None
    intervals: bool
    output: str | None
    resamples: int
    seed: int
    bootstrap: Bootstrap | None
    interval: IntervalMethod
    test: Test
    equivalence: float | None
    by: str | None
    allow_different: bool
    protocol: str | None
    off_protocol: bool
    beside: bool
    fail_under: tuple[Gate, ...]
    fail_above: tuple[Gate, ...]
    fail_worse: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.as_json and self.form not in (None, "json"):
            raise click.UsageError(f"--json and --format {self.form} exclude each other")
        if (self.off_protocol or self.beside) and not self.protocol:
            raise click.UsageError("--off-protocol and --beside require --protocol NAME")

    @property
    def resampling(self) -> Resampling:
        """Resampling settings for the confidence intervals."""
        return Resampling(self.resamples, self.seed, bootstrap=self.bootstrap, interval=self.interval)

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Bounds that the metrics of all systems must satisfy."""
        return self.fail_under + self.fail_above


def format_options(command: Command) -> Command:
    """Adds ``--format`` and ``--json``, excluding the formats that apply only to tables of metrics."""
    options = [
        click.option("--format", "form", type=click.Choice(["table", "tsv", "json"]), help=_FORMAT_HELP),
        click.option("--json", "as_json", is_flag=True, help="Same as --format json."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


_FORMAT_HELP = "Output format.  [default: table on a terminal, otherwise tsv]"


def _gates(under: bool) -> Callable[[click.Context, click.Parameter, Sequence[str]], tuple[Gate, ...]]:
    return lambda ctx, param, texts: tuple(Gate.parse(text, under=under) for text in texts)


def _listed_metrics(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Converts the values of ``--fail-worse``, each of which is a list separated by commas."""
    return tuple(name for text in texts for name in metric_names(ctx, param, text) or ())


def metric_names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Converts a list of metrics that is separated by commas to a tuple of names."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise click.UsageError(f"{param.opts[0]} accepts names separated by commas, for example hal_rate,chair_s")
    return names


def metrics_of(ctx: click.Context) -> Iterable[str]:
    """Returns the metrics of the command's benchmark (for ``validate``, those of ``score``), or of all benchmarks if
    the command accepts several.
    """
    verb = (ctx.info_name or "").split()[-1]
    name = "capscore" if verb == "validate" else BENCHMARK_OF.get(verb, verb)
    records = [benchmark(name)] if has_benchmark(name) else benchmarks()
    return dict.fromkeys(
        metric for record in records for metric in (*record.headline, *record.metric_names, *record.meanings)
    )


complete_metrics = completing(metrics_of)
complete_kinds = completing(lambda ctx: KINDS)
complete_columns = completing(lambda ctx: [LENGTH])


metrics_option = partial(
    click.option, "--metrics", metavar="A,B", callback=metric_names, shell_complete=complete_metrics
)
"""Option that selects metrics, without its help text."""


def on_bad_record(command: Command) -> Command:
    """Adds ``--on-bad-record``. The command receives its value as ``skip_bad: bool``. The option ``--skip-bad`` of
    earlier versions is hidden.
    """
    options = [
        click.option("--skip-bad", "skip_bad_flag", is_flag=True, is_eager=True, hidden=True),
        click.option(
            "--on-bad-record",
            "skip_bad",
            type=click.Choice(["fail", "skip"]),
            default="fail",
            show_default=True,
            callback=lambda ctx, _, how: bool(ctx.params.pop("skip_bad_flag", False)) or how == "skip",
            help="Faulty records are an error, or are omitted and counted (scores: in the signature).",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def key_options(command: Command) -> Command:
    """Adds ``--image-key`` and ``--caption-key``, which apply to all files that the command reads."""

    def name(ctx: click.Context, param: click.Parameter, key: str | None) -> None:
        if not ctx.resilient_parsing:
            given = ctx.meta.setdefault(f"{__name__}.keys", {})
            given[param.name] = key
            name_keys(given.get("image_key"), given.get("caption_key"))
            ctx.call_on_close(partial(name_keys, None, None))

    options = [
        click.option(
            f"--{what}-key", metavar="KEY", callback=name, is_eager=True, expose_value=False, help=f"{help_text}."
        )
        for what, help_text in (
            ("image", "Key of the image ids, if it is unusual"),
            ("caption", "Key of the captions, if it is unusual"),
        )
    ]
    for option in reversed(options):
        command = option(command)
    return command


bootstrap_option = click.option(
    "--bootstrap",
    type=click.Choice([*get_args(Bootstrap), "streams"]),
    help="Resampling method for --interval percentile. streams (0.2.0) means multinomial.  [default: multinomial,"
    " poisson above 200,000 images and with --engine]",
)

interval_option = click.option(
    "--interval",
    type=click.Choice(get_args(IntervalMethod)),
    default="wilson",
    show_default=True,
    help="Intervals: Wilson with effective sample sizes, or bootstrap percentiles (as in 0.2.0).",
)


def output_options(command: Command) -> Command:
    """Adds the output options of all scoring commands. The command receives them as ``output: Output``."""
    options = [
        click.option("--format", "form", type=click.Choice(get_args(OutputFormat)), help=_FORMAT_HELP),
        click.option(
            "--json", "as_json", is_flag=True, help="Same as --format json: one object with unrounded values."
        ),
        metrics_option(help="Show only these metrics, in this order."),
        click.option("--intervals", is_flag=True, help="With markdown and latex: include intervals."),
        click.option(
            "-o",
            "--output",
            type=OUTPUT,
            metavar="FILE",
            help="Also write a results file (JSON with counts per image) for compare and report. With -, nothing"
            " else is printed.",
        ),
        click.option(
            "--resamples",
            type=click.IntRange(0, 1_000_000),
            default=DEFAULT_RESAMPLES,
            show_default=True,
            help="Number of resamples for tests and percentiles. 0 disables tests and intervals.",
        ),
        click.option("--seed", type=Seed(), default=DEFAULT_SEED, show_default=True, help="Seed of every resampling."),
        bootstrap_option,
        interval_option,
        click.option(
            "--test",
            type=click.Choice(get_args(Test)),
            default="studentized_permutation",
            show_default=True,
            metavar="TEST",
            help="Test of differences to the first system: studentized_permutation, approximate_randomization (as in"
            " 0.2.0), paired_bootstrap or mcnemar.",
        ),
        click.option(
            "--equivalence",
            type=NumberRange(0, min_open=True),
            metavar="POINTS",
            help="Also test equivalence with the first system within this margin (two one-sided tests). A point is a"
            " hundredth of a metric's range, or of the first system's value if it has no range (len).",
        ),
        click.option(
            "--by",
            metavar="COLUMN",
            shell_complete=complete_columns,
            help="Also report results by a column of the records (prompt, scene...), or by length. Captions only.",
        ),
        click.option(
            "--allow-different",
            is_flag=True,
            help="Compare systems that were scored differently (ground truth, vocabulary, claims...), and mark them.",
        ),
        click.option(
            "--protocol",
            type=INPUT,
            metavar="NAME|FILE",
            help="Check images, prompt and limit against a protocol, and use its ground truth and reading by default"
            " (scapo-eval protocol list).",
        ),
        click.option(
            "--beside", is_flag=True, help="Also print the published rows of --protocol together with your rows."
        ),
        click.option("--off-protocol", is_flag=True, help="Continue if a run deviates from --protocol, and mark it."),
        click.option(
            "--fail-under",
            multiple=True,
            callback=_gates(under=True),
            shell_complete=complete_metrics,
            metavar="METRIC=VALUE",
            help="Exit with 3 if a system's metric (a fraction, 0.70) is below VALUE.",
        ),
        click.option(
            "--fail-above",
            multiple=True,
            callback=_gates(under=False),
            shell_complete=complete_metrics,
            metavar="METRIC=VALUE",
            help="Exit with 3 if a system's metric is above VALUE.",
        ),
        click.option(
            "--fail-worse",
            multiple=True,
            callback=_listed_metrics,
            metavar="METRIC,...",
            shell_complete=complete_metrics,
            help="Exit with 3 if a system is significantly worse than the first in a METRIC (or cannot be tested).",
        ),
        click.option("--width", type=click.IntRange(40), help="Width of the table in characters."),
        click.option("--no-color", is_flag=True, help="No colors (NO_COLOR works, too)."),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings."),
    ]
    return with_options(command, options, "output", Output)


def _with_uses(ctx: click.Context, param: click.Parameter, claims: ReadingName) -> Reading:
    """Converts the values of ``--claims`` and ``--uses`` to a reading."""
    given = ctx.params.pop("uses", None)
    return claims if given is None else JudgedUses.load(source_of(given), claims)


def scoring_options(command: Command) -> Command:
    """Adds the options for scoring captions or responses. The command receives them as ``scoring: ScoringOptions``."""
    options = [
        click.option(
            "--claims",
            type=click.Choice(READINGS),
            default="all",
            show_default=True,
            callback=_with_uses,
            help="Mentions that count: all (the paper); asserted: not negated; certain: neither negated nor hedged;"
            " visual: only claims about the image (not negated, quoted, generic, a purpose, comparison or modifier).",
        ),
        click.option(
            "--uses",
            type=PLAIN,
            is_eager=True,
            metavar="FILE",
            help="With --claims: uses of mentions from scapo-eval judge uses, instead of the rules.",
        ),
        on_bad_record,
        click.option(
            "--on-unknown-image",
            type=click.Choice(["error", "skip"]),
            default="error",
            show_default=True,
            help="Treatment of captions whose image has no ground truth.",
        ),
        click.option("--any-fingerprint", is_flag=True, help="Accept a matrix that was made for another vocabulary."),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Number of parsing and matching processes.  [default: 1; one per processor with --profile opera]",
        ),
        click.option(
            "--drop-unfinished",
            is_flag=True,
            help="Remove the last sentence of a text if it is unfinished (cut off by a token limit).",
        ),
        click.option(
            "--strict",
            is_flag=True,
            help="Reject files with repeated, empty or cut off captions, or unequal numbers of captions per image.",
        ),
        click.option(
            "--any-ids",
            is_flag=True,
            help="Score captions even if they seem to belong to other images.",
        ),
        key_options,
    ]
    return with_options(command, options, "scoring", ScoringOptions)


def with_options(
    command: Command, options: Sequence[Callable[[Any], Any]], argument: str, record: type[Any]
) -> Command:
    """Adds options to a command, which receives their values as one dataclass.

    Args:
        command: Function to decorate, which already has the decorators for its own options.
        options: Click options, one per field of the dataclass, in the order of the help text.
        argument: Name of the parameter that receives the dataclass.
        record: Dataclass that contains the values of the options.
    """

    def wrapper(**kwargs: Any) -> Any:
        values = {field.name: kwargs.pop(field.name) for field in fields(record)}
        return command(**{argument: record(**values)}, **kwargs)

    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    decorated: Any = wrapper
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def reference_options(command: Command) -> Command:
    """Adds the options of ``score`` that concern the ground truth: ``references, leave_out_self, unnamed, weights``."""
    told = benchmark("capscore").options
    options = [
        click.option("--references", type=INPUT, metavar="FILE", help=told["references"].help),
        click.option("--leave-out-self", is_flag=True, help=told["leave_out_self"].help),
        click.option("--unnamed", type=click.Choice(UNNAMED), help=told["unnamed"].help),
        click.option("--weights", type=INPUT, metavar="FILE", help=told["weights"].help),
    ]
    for option in reversed(options):
        command = option(command)
    return command
