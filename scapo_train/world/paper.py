"""Command ``python -m scapo_train.world paper TEMPLATE --page PAGE``, which writes a paper about registered trials.

The template is Markdown with placeholders, so that the results of hypotheses are not copied by hand. The registrations
are in the same folder as the template. With the registration file ``frontier.toml``, the following placeholders are
available:

- ``{frontier H1}``: value of a hypothesis with its 95 % interval.
- ``{frontier H1 answer}``: answer to a hypothesis, marked if it is interim.
- ``{frontier trials}``, ``{frontier hours}``: number of finished trials, and the sum of their durations in hours.
- ``{frontier answers}``: table of all hypotheses.
- ``{frontier figure}``: figure of the registration, which the command draws into ``images`` beside the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from scapo_eval.base.errors import InputError
from scapo_eval.files.files import atomic_write, read_text

from .evaluate import Decision, answer_of, decide, decisions_table, draw, value_of
from .grid import Registration, Result, load_registration, read_results

_PLACEHOLDER = re.compile(r"\{(\w+) (\w+)(?: (\w+))?\}")


class Trials:
    """Registration, together with its results and decisions.

    Args:
        path: Path of the registration, which is a TOML file. The results file is in the same folder.
    """

    def __init__(self, path: Path) -> None:
        self.registration: Registration = load_registration(path)
        self.results = results = read_results(path.with_suffix(".jsonl"))
        cells = self.registration.cells
        keys = {key for cell in cells for seed in cell.numbers for key in cell.keys(seed)}
        self.finished: list[Result] = [results[key] for key in sorted(keys & results.keys()) if results[key].measured]
        decisions = decide(self.registration, results)
        self.decisions: dict[str, Decision] = {each.hypothesis.name: each for each in decisions}
        self.picture = f"images/{path.stem}.svg"

    def text(self, what: str, part: str | None) -> str | None:
        """Returns the text of a placeholder, or None if the placeholder is unknown."""
        if what in self.decisions and part in (None, "answer"):
            decision = self.decisions[what]
            return value_of(decision) if part is None else answer_of(decision)
        if part is not None:
            return None
        title = "Hal. and Cover Rate of every scheme, with the seeds behind the means"
        texts = {
            "trials": str(len(self.finished)),
            "hours": f"{sum(result.seconds for result in self.finished) / 3600:.1f}",
            "answers": decisions_table(list(self.decisions.values())),
            "figure": f"![{title}]({self.picture})",
        }
        return texts.get(what)


def paper(template: Path, command: str) -> tuple[str, list[Trials]]:
    """Returns the paper as Markdown, and the trials whose figures it shows.

    Args:
        template: Markdown with placeholders; see the docstring of the module.
        command: Command that writes the paper.

    Raises:
        InputError: If the template cannot be read, a registration does not exist, or a placeholder is unknown. The
            error message states the line number.
    """
    trials: dict[str, Trials] = {}
    shown: dict[str, Trials] = {}
    lines = []
    for number, line in enumerate(read_text(template).splitlines(), start=1):

        def filled(match: re.Match[str], number: int = number) -> str:
            name, what, part = match.groups()
            path = template.with_name(f"{name}.toml")
            if name not in trials:
                if not path.exists():
                    raise InputError(f"there is no registration {path.name}", path=str(template), line=number)
                trials[name] = Trials(path)
            text = trials[name].text(what, part)
            if text is None:
                raise InputError(f"unknown placeholder {match[0]}", path=str(template), line=number)
            if what == "figure":
                shown[name] = trials[name]
            return text

        lines.append(_PLACEHOLDER.sub(filled, line))
    title, _, body = "\n".join(lines).partition("\n")
    return f"{title}\n\n<!-- written by {command} -->\n{body}\n", list(shown.values())


def command(arguments: Sequence[str]) -> int:
    """Runs the command ``paper`` and returns the exit code, which is always 0."""
    parser = argparse.ArgumentParser(prog="scapo_train.world paper", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("template", type=Path, help="Markdown with placeholders, beside the registrations")
    parser.add_argument("--page", type=Path, metavar="FILE", required=True, help="page to write")
    given = parser.parse_args(arguments)
    words = f"python -m scapo_train.world paper {given.template.as_posix()} --page {given.page.as_posix()}"
    text, shown = paper(given.template, words)
    (given.page.parent / "images").mkdir(exist_ok=True)
    for trials in shown:
        draw(given.page.parent / trials.picture, trials.registration, trials.results)
    with atomic_write(given.page) as stream:
        stream.write(text.encode())
    return 0
