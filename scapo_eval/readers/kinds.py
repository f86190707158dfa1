"""The kinds of files that the package recognizes, and the command for each kind.

A reader that receives a file of an unexpected kind uses this table to suggest the appropriate command.
:func:`scapo_eval.readers.formats.recognize_file` determines the kind of a file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

_SCORES = "to score them"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        name: Plural noun for the content of the file, such as ``captions``.
        verbs: Commands that accept files of this kind, except benchmarks, which list the accepted kinds in
            ``Benchmark.takes``.
        purpose: Purpose of the command, such as ``to score them``, or an empty string if there is no advice.
        command: Command for a file of this kind, in which the path of the file replaces ``FILE``. The user replaces
            ``TRUTH`` and other capitalized words.
        alone: True if the command needs no other input, so that ``scapo-eval FILE`` can run it.
    """

    name: str
    verbs: tuple[str, ...] = ()
    purpose: str = ""
    command: str = ""
    alone: bool = False

    @property
    def verb(self) -> str:
        """Name of the ``scapo-eval`` subcommand in :attr:`command`, or an empty string if there is no command."""
        return self.command.split()[1] if self.command else ""

    @property
    def option(self) -> str:
        """Option before the file in :attr:`command`, such as ``--truth``, or an empty string if the file is an
        argument.
        """
        word = self.command.partition(" FILE")[0].rpartition(" ")[2]
        return word if word.startswith("--") else ""

    def advice(self, path: object, output: str = "") -> str:
        """Returns the advice that ends an error message, such as ``; to show it: scapo-eval show results.json``, or an
        empty string.

        Args:
            path: Path of the file.
            output: Name of a results file for the option ``-o`` of commands that score, or an empty string.
        """
        scores = output and self.purpose == _SCORES
        if not self.command:
            return f"; {self.purpose}" if self.purpose else ""
        from ..base.installed import runnable  # importlib.metadata takes 20 ms

        purpose, written = (f"{_SCORES} into a results file", f" -o {output}") if scores else (self.purpose, "")
        return f"; {purpose}: {runnable(self.command.replace('FILE', shlex.quote(str(path))) + written)}"


_CAPTIONS = ("labels", "show", "report", "import")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("captions", _CAPTIONS, _SCORES, "scapo-eval score FILE --truth TRUTH"),
        Kind("rollouts", ("reward", "pairs"), "to reward them", "scapo-eval reward FILE --truth TRUTH"),
        Kind(
            "answers",
            ("report", "import"),
            _SCORES,
            "scapo-eval yesno FILE --questions QUESTIONS",
        ),
        Kind("AMBER responses", ("import",), _SCORES, "scapo-eval amber FILE --data AMBER"),
        Kind("ratings", ("report",), _SCORES, "scapo-eval mmhal FILE", alone=True),
        Kind(
            "answers to rate",
            ("judge",),
            "to rate them",
            "scapo-eval judge mmhal FILE --model JUDGE -o ratings.jsonl",
        ),
        Kind("facts", (), _SCORES, "scapo-eval faithscore FILE", alone=True),
        Kind("claims", ("report",), _SCORES, "scapo-eval facts FILE", alone=True),
        Kind("object lists", _CAPTIONS, _SCORES, "scapo-eval objhal FILE --truth TRUTH"),
        Kind("results", ("show", "compare", "report", "plot", "export"), "to show them", "scapo-eval show FILE", True),
        Kind("harness results", ("import",), "to import them", "scapo-eval import FILE -o results.json"),
        Kind("truth", ("oracle",), "to score captions with it", "scapo-eval score CAPTIONS --truth FILE"),
        Kind("scenes", (), "to score claims with them", "scapo-eval claims CAPTIONS --scenes FILE"),
        Kind(
            "vocabulary",
            ("vocab",),
            "to match captions with it",
            "scapo-eval score CAPTIONS --truth TRUTH --vocabulary FILE",
        ),
        Kind(
            "uses",
            (),
            "to score captions with them",
            "scapo-eval score CAPTIONS --truth TRUTH --claims visual --uses FILE",
        ),
        Kind("references", (), "to compare captions with them", "scapo-eval score CAPTIONS --references FILE"),
        Kind(
            "judgements",
            ("validate",),
            "to compare metrics with them",
            "scapo-eval validate FILE --truth TRUTH",
        ),
        Kind("questions", ("answer",), "to score answers with them", "scapo-eval yesno ANSWERS --questions FILE"),
        Kind("PhD questions", ("answer",), "to score answers with them", "scapo-eval phd ANSWERS --data FILE"),
        Kind(
            "prompts",
            ("answer",),
            "to have them answered",
            "scapo-eval answer FILE --images-root IMAGES --model MODEL -o answers.jsonl",
        ),
        Kind("a table without predictions", (), "have a model answer its questions first"),
        Kind("a training run", ("report",), "to look at it", "scapo-eval report FILE -o report.html"),
        Kind("an annotation run", ("annotate",), "to look at it", "scapo-eval annotate status FILE"),
    )
}
"""All kinds of files, by name."""


def kind_of_folder(path: str | os.PathLike[str]) -> Kind | None:
    """Returns the kind of a folder, based on the names of its files, or None if the kind is unknown."""
    known = {"a training run": ("metrics.jsonl",), "an annotation run": ("run.json", "images.jsonl")}
    for name, files in known.items():
        if all(os.path.isfile(os.path.join(path, file)) for file in files):
            return KINDS[name]
    return None
