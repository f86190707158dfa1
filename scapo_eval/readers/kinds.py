"""Lists the kinds of files: the name of each, and what to do with it.

Whoever is handed a file of another kind than it reads says so in the words of this table; which kind a file is,
:func:`scapo_eval.readers.formats.recognize_file` says.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        name: what it holds, in the plural: ``captions``.
        verbs: those that take such files beside the benchmarks whose records do (``Benchmark.takes``).
        purpose: what its command is for; empty if there is none.
        command: what to do with a file, ``FILE``; ``TRUTH`` and other words in capitals are the user's to fill in.
        alone: whether that is all it takes, so that ``scapo-eval FILE`` does it.
    """

    name: str
    verbs: tuple[str, ...] = ()
    purpose: str = ""
    command: str = ""
    alone: bool = False

    @property
    def verb(self) -> str:
        """The verb of its command, empty if there is none."""
        return self.command.split()[1] if self.command else ""

    def advice(self, path: object) -> str:
        """Returns ``; to show it: scapo-eval show results.json``, or nothing if there is nothing to be done.

        Args:
            path: of the file.
        """
        if not self.command:
            return f"; {self.purpose}" if self.purpose else ""
        return f"; {self.purpose}: {self.command.replace('FILE', shlex.quote(str(path)))}"


_CAPTIONS = ("labels", "show", "report", "import")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("captions", _CAPTIONS, "to score them", "scapo-eval score FILE --truth TRUTH"),
        Kind("rollouts", ("reward", "pairs"), "to reward them", "scapo-eval reward FILE --truth TRUTH"),
        Kind(
            "answers",
            ("report", "import"),
            "to score them",
            "scapo-eval yesno FILE --questions QUESTIONS",
        ),
        Kind("AMBER responses", ("import",), "to score them", "scapo-eval amber FILE --data AMBER"),
        Kind("ratings", ("report",), "to score them", "scapo-eval mmhal FILE", alone=True),
        Kind(
            "answers to rate",
            ("judge",),
            "to rate them",
            "scapo-eval judge mmhal FILE --model JUDGE -o ratings.jsonl",
        ),
        Kind("facts", (), "to score them", "scapo-eval faithscore FILE", alone=True),
        Kind("claims", ("report",), "to score them", "scapo-eval facts FILE", alone=True),
        Kind("object lists", _CAPTIONS, "to score them", "scapo-eval objhal FILE --truth TRUTH"),
        Kind("results", ("show", "compare", "report", "plot", "export"), "to show them", "scapo-eval show FILE", True),
        Kind("harness results", ("import",), "to import them", "scapo-eval import FILE -o results.json"),
        Kind("truth", ("oracle",), "to score captions by it", "scapo-eval score CAPTIONS --truth FILE"),
        Kind(
            "vocabulary",
            ("vocab",),
            "to match captions with it",
            "scapo-eval score CAPTIONS --truth TRUTH --vocabulary FILE",
        ),
        Kind("references", (), "to hold captions against them", "scapo-eval score CAPTIONS --references FILE"),
        Kind(
            "judgements",
            ("validate",),
            "to hold metrics against them",
            "scapo-eval validate FILE --truth TRUTH",
        ),
        Kind("questions", ("answer",), "to score answers by them", "scapo-eval yesno ANSWERS --questions FILE"),
        Kind("PhD questions", ("answer",), "to score answers by them", "scapo-eval phd ANSWERS --data FILE"),
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
"""Name -> kind."""


def kind_of_folder(path: str | os.PathLike[str]) -> Kind | None:
    """Returns the kind of a folder, as far as the files in it allow."""
    known = {"a training run": ("metrics.jsonl",), "an annotation run": ("run.json", "images.jsonl")}
    for name, files in known.items():
        if all(os.path.isfile(os.path.join(path, file)) for file in files):
            return KINDS[name]
    return None
