"""``scapo-eval``: the commands, the default command ``score``, and the handling of errors."""

from __future__ import annotations

import difflib
import io
import os
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from ..base.errors import InputWarning, ScapoError
from ..base.version import __version__
from ..results.benchmark import BENCHMARK_OF, SUMMARIES, VERB_OF, benchmark, benchmarks, other_benchmarks
from .codes import BAD_INPUT, INTERRUPTED
from .context import Context
from .echo import echo

DEFAULT_VERB = "score"

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Score captions": {verb: SUMMARIES[name] for name, verb in VERB_OF.items()}
    | {
        "labels": "List hallucinated and missed objects by label, and labels that are hallucinated together.",
        "power": "Estimate detectable differences, power and required images from results files.",
        "compare": "Compare results files, or raw files (--benchmark NAME), with paired tests.",
        "validate": "Compare metrics with human judgments: correlations, intervals, tests.",
        "protocol": "Show the images, prompt and limits of published numbers, and check files against them.",
        "reward": "Compute SCAPO's reward of every response and subsentence in a rollout file.",
    },
    "Benchmarks": {
        **{name: line for name, line in SUMMARIES.items() if name not in VERB_OF},
    },
    "Generate": {
        "describe": "Have a model describe images (any server, vLLM, transformers).",
        "answer": "Have a model answer a benchmark's questions, plain or with its own descriptions.",
        "judge": "Have a model rate MMHal-Bench answers, verify facts and claims, list objects.",
        "merge": "Combine the shards of describe, answer, judge and annotate coarse (--shard 3/64).",
    },
    "Look": {
        "doctor": "Check the installation: installed and missing packages, with the commands to add them.",
        "example": "Write the shipped example: captions of two systems and the ground truth.",
        "show": "Show captions with colored mentions, verdicts and missed objects, by image or the worst.",
        "report": "Create an HTML page, or the paper's tables in LaTeX, Markdown, CSV.",
        "plot": "Draw frontier, labels and training curves as PNG, SVG or PDF.",
    },
    "Build": {
        "import": "Convert captions, answers and results from other tools.",
        "export": "Export results to the Every Eval Ever schema, one file per system and benchmark.",
        "pairs": "Create preference pairs (DPO) from sampled responses, for TRL, LLaMA-Factory and ms-swift.",
        "vocab": "Check, describe, compare, mine, draft and expand vocabularies.",
        "oracle": "Convert, check, describe and compare ground truth files.",
        "annotate": "Build a presence/absence matrix of your own images with a judge (the DOPA pipeline).",
    },
}
"""Heading -> verb -> one line of help. The module of a verb is imported when the verb is used."""

VERBS = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}

COMPLETE = "_SCAPO_EVAL_COMPLETE"
"""Environment variable with which a shell requests completions (click's protocol)."""


class Verbs(click.Group):
    """Group of commands that imports the module of a command only when it is used. If the first word on the command
    line is not a command, it is treated as a file to score.
    """

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands in the order of the help page."""
        return [*VERBS, *other_benchmarks()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Returns a command, which is created from a benchmark record or imported from its module."""
        from .common import add_common_options

        if (scored := _benchmark_of(name)) is not None:
            from .verbs import command_of

            command = command_of(benchmark(scored))
        elif name in VERBS:
            command = import_module(f".{'import_' if name == 'import' else name}", __package__).command
        else:
            return None
        add_common_options(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb, and ensures that error messages name the affected input files."""
        from .files import naming_inputs

        with naming_inputs(ctx):
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the lists of commands, importing only the commands from other packages."""
        others = {record.name: record.summary for record in benchmarks(other_benchmarks())}
        width = max(map(len, (*VERBS, *others)))
        for heading, verbs in ({**GROUPS, "Benchmarks from other packages": others} if others else GROUPS).items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), line) for verb, line in verbs.items()])
        with formatter.section("Train (extra 'train')"):
            formatter.write_text("python -m scapo_train CONFIG, and before it python -m scapo_train.plan CONFIG")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the commands that complete the text (without importing these commands), or files for the default
        command if no command completes the text.
        """
        verbs = [CompletionItem(verb, help=line) for verb, line in VERBS.items() if verb.startswith(incomplete)]
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        verbs += [CompletionItem(verb) for verb in other_benchmarks() if verb.startswith(incomplete)]
        return verbs or [CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts the default command if the first word is not a command."""
        from .common import with_help

        args = with_help(args)
        if args and not _is_verb(args[0]) and args[0] not in ("--help", "-h", "--version"):
            word = args[0]
            close = difflib.get_close_matches(word, VERBS, n=1, cutoff=0.7)
            if word.isalpha() and not Path(word).exists() and not ctx.resilient_parsing:
                meant = f"did you mean '{close[0]}'?" if close else "scapo-eval --help lists the verbs"
                meant = "write NAME=FILE without spaces" if args[1:2] == ["="] else meant
                raise click.UsageError(f"file or verb '{word}' not found; {meant}", ctx)
            args = [self._verb_of(ctx, args), *args]
        return super().parse_args(ctx, args)

    def _verb_of(self, ctx: click.Context, args: list[str]) -> str:
        """Returns the command for files that are given without a command: the command for the kind of the first file,
        or else the default command.
        """
        from .files import first_file

        score = self.get_command(ctx, DEFAULT_VERB)
        assert score is not None
        first = first_file(args, score, ctx)
        if first is None:
            return DEFAULT_VERB
        source, known = first
        verb = known.kind.verb if known.kind.alone else None
        if known.kind.name == "answers" and not os.path.isdir(source):
            from ..report.answers import answers_in

            verb = answers_in(source, known)
        if verb is None:
            return DEFAULT_VERB
        if not {"-q", "--quiet"} & set(args):
            echo(
                f"scapo-eval: {source.name}: {known.title}; interpreted as: scapo-eval {verb} {' '.join(args)}",
                err=True,
            )
        return verb


def _benchmark_of(verb: str) -> str | None:
    """Returns the benchmark that a command scores. Installed packages are searched only if the word can be a
    command.
    """
    if verb in VERBS:
        return BENCHMARK_OF.get(verb, verb if verb in SUMMARIES else None)
    return verb if verb.replace("-", "_").isidentifier() and verb in other_benchmarks() else None


def _is_verb(word: str) -> bool:
    return word in VERBS or (not Path(word).exists() and _benchmark_of(word) is not None)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, package_name="scapo")
def cli() -> None:
    """Measure how faithful and how informative image descriptions are.

    scapo-eval captions.jsonl --truth instances_val2014.json
    """


def main() -> None:
    """Runs the command line. Every failure results in one message and an exit code."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (lives as long as the process)
    if sys.stdout is None:
        click.echo("scapo-eval: standard output is closed", err=True)
        sys.exit(BAD_INPUT)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # unencodable characters are replaced
    if instruction := os.environ.get(COMPLETE):
        sys.exit(shell_complete(cli, {}, "scapo-eval", COMPLETE, instruction))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", InputWarning)
            warnings.showwarning = _show_warning
            sys.exit(_run())
    except BrokenPipeError:  # the reader of the output has exited (| head): nothing to report or flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


_show = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Prints the project's own warnings in the same format as the other messages of the command line."""
    if not issubclass(category, InputWarning):
        _show(message, category, *where, **more)
    elif not {"-q", "--quiet"} & set(sys.argv):
        echo(f"scapo-eval: warning: {message}", err=True)


def _run() -> int:
    try:
        # not cli.main(), which converts a closed pipe to exit code 1
        with cli.make_context("scapo-eval", sys.argv[1:]) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:  # --help, --version
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as help_text:
        if len(sys.argv) > 1:
            echo(help_text.format_message())
            return BAD_INPUT
        from .here import what_next

        echo("\n".join(what_next(Path.cwd())))
        return 0
    except click.ClickException as error:
        from .mistakes import explained

        explained(error).show()
        return BAD_INPUT
    except ScapoError as error:
        echo(f"scapo-eval: {error}" if "\n" not in str(error) else str(error), err=True)
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        echo("scapo-eval: interrupted; no incomplete output was written; run the same command again", err=True)
        return INTERRUPTED
    except MemoryError:
        echo("scapo-eval: the input does not fit into memory", err=True)
        return BAD_INPUT
    except BrokenPipeError:
        raise
    except OSError as error:  # the results cannot be written (disk full)
        if error.filename is not None:
            echo(f"scapo-eval: {error.filename}: {error.strerror}", err=True)
            return BAD_INPUT
        echo(f"scapo-eval: cannot write the output: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BAD_INPUT


if __name__ == "__main__":
    main()
