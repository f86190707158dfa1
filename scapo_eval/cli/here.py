"""Without arguments, ``scapo-eval`` lists the files of recognized kinds in a folder and suggests the next commands."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..base.errors import ScapoError
from ..base.version import __version__
from ..readers.formats import recognize_file

_LOOKED_AT = 60
"""Maximum number of files in a folder that are opened for recognition."""

_ENDINGS = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".yaml", ".npz", ".gz", ".zst")
_SHOWN = 4
_TAKEN = ("captions", "truth", "results", "answers", "rollouts", "vocabulary", "questions", "references", "facts")


def what_next(folder: Path) -> list[str]:
    """Returns at most ten lines that list recognized files and commands for them.

    Args:
        folder: Folder to inspect. Subfolders are ignored, except for ``examples``.
    """
    known = _known_files(folder)
    lines = [f"scapo-eval {__version__}: how faithful and how informative image descriptions are", ""]
    for kind in (kind for kind in _TAKEN if kind in known):
        names = known[kind]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"{kind + ':':<12} {', '.join(names[:_SHOWN])}{more}")
    commands = _commands(known)
    if not commands:
        where = "examples/" if (folder / "examples" / "captions_baseline.jsonl").exists() else ""
        first = [] if where else ["scapo-eval example                  # writes examples/"]
        commands = [
            *first,
            "scapo-eval examples/captions_baseline.jsonl --truth examples/truth.json",
            "scapo-eval YOUR_CAPTIONS.jsonl --truth instances_val2014.json",
        ]
        lines[1:] = ["", "No captions or results in this folder. To begin:"]
    elif known:
        lines.append("")
    return [*lines, *commands[:3], "scapo-eval --help                   # all verbs"][:10]


def _known_files(folder: Path) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS and path.is_file())
    except OSError:
        return {}
    for path in paths[:_LOOKED_AT]:
        try:
            file = recognize_file(path)
        except ScapoError:
            continue
        if file is not None:
            known.setdefault(file.kind.name, []).append(path.name)
    return known


def _commands(known: dict[str, list[str]]) -> list[str]:
    def shell(*words: str) -> str:
        return shlex.join(["scapo-eval", *words])

    captions, results = known.get("captions", [])[:_SHOWN], known.get("results", [])[:_SHOWN]
    truth = known["truth"][0] if "truth" in known else None
    commands = []
    if captions and truth:
        commands += [
            shell(*captions, "--truth", truth),
            shell("show", captions[0], "--truth", truth),
            shell("report", *captions, "--truth", truth, "-o", "report.html"),
        ]
    elif captions:
        commands += [shell(captions[0], "--truth") + " TRUTH", shell("chair", captions[0], "--protocol", "chair-opera")]
    elif results:
        commands += [shell("compare", *results), shell("report", *results, "-o", "report.html")]
    elif "answers" in known:
        commands += [shell(known["answers"][0])]
    elif truth:
        commands += [shell("oracle", "check", truth)]
    return commands
