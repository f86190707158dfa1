"""Without arguments, ``scapo-eval`` lists the files of recognized kinds in a folder and suggests the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import ScapoError
from ..base.installed import runnable
from ..base.version import __version__
from ..files.files import read_bytes
from ..matching.vocabulary import is_word_list
from ..readers.captions_foreign import read_foreign_captions
from ..readers.data_set import files_at
from ..readers.formats import recognize_file, verb_of_questions

_LOOKED_AT = 60
"""Maximum number of files in a folder that are opened for recognition."""

_ENDINGS = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".yaml", ".npz", ".txt", ".gz", ".zst")
_SHOWN = 4
_COMPARED = 500  # captions of a file
_TAKEN = ("captions", "truth", "results", "answers", "rollouts", "vocabulary", "questions", "references", "facts")


class _Found(NamedTuple):
    """Name of a recognized file or folder, and its first record, which is empty for some kinds."""

    name: str
    record: Mapping[str, Any]


def what_next(folder: Path) -> list[str]:
    """Returns at most ten lines that list recognized files and commands for them.

    Args:
        folder: Folder to inspect. A subfolder is listed if it holds only captions or only results files.
    """
    known = _known_files(folder)
    lines = [f"scapo-eval {__version__}: how faithful and how informative image descriptions are", ""]
    for kind in (kind for kind in _TAKEN if kind in known):
        names = [file.name for file in known[kind]]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"{kind + ':':<12} {', '.join(names[:_SHOWN])}{more}")
    commands = _commands(known, folder)
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
    return [*lines, *map(runnable, commands[:3]), "scapo-eval --help                   # all verbs"][:10]


def _known_files(folder: Path) -> dict[str, list[_Found]]:
    """Returns the recognized files in a folder by kind. If there are questions, captions that consist of yes or no
    count as answers.
    """
    known: dict[str, list[_Found]] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return {}
    for path in paths[:_LOOKED_AT]:
        kind, record = _recognized_folder(path) if path.is_dir() else _recognized(path)
        if kind is not None:
            name = f"./{path.name}" if path.name.startswith("-") else path.name
            known.setdefault(kind, []).append(_Found(f"{name}/" if path.is_dir() else name, record))
    return known


def _recognized(path: Path) -> tuple[str | None, Mapping[str, Any]]:
    """Returns the kind and the first record of a file, or None and an empty record if the file is not recognized."""
    if not path.name.endswith(_ENDINGS):
        return None, {}
    try:
        file = recognize_file(path)
        if file is None and path.suffix == ".txt" and is_word_list(read_bytes(path), path.name):
            return "vocabulary", {}
    except (ScapoError, OSError):
        return None, {}
    return (file.kind.name, file.layout.rows.first if file.layout else {}) if file else (None, {})


def _recognized_folder(path: Path) -> tuple[str | None, Mapping[str, Any]]:
    """Returns ``captions`` or ``results`` if all files of a folder are of this kind, otherwise None."""
    try:
        kinds = {_recognized(Path(file))[0] for file in files_at(str(path))[1:][:_LOOKED_AT]}
    except OSError:
        return None, {}
    kind = kinds.pop() if len(kinds) == 1 else None
    return (kind if kind in ("captions", "results") else None), {}


def _of_same_images(folder: Path, names: Sequence[str]) -> list[str]:
    """Returns the first readable caption file, and the other caption files that describe some of its images. Only the
    beginning of each file is read, and folders are not read.
    """
    images = {name: _images(folder / name) for name in names}
    first = next((name for name in names if images[name]), None)
    if first is None:
        return [name for name in names if images[name] is None][:1]
    return [name for name in names if (images[name] or set()) & (images[first] or set())]


def _images(path: Path) -> set[str] | None:
    """Returns the image ids at the beginning of a caption file. The set is empty for a faulty file. Returns None for a
    folder.
    """
    if path.is_dir():
        return None
    try:
        captions = read_foreign_captions(path, warn=lambda message: None)
        return {image for _, image, _ in islice(captions, _COMPARED)}
    except (ScapoError, OSError):
        return set()


def _commands(known: Mapping[str, Sequence[_Found]], folder: Path) -> list[str]:
    def shell(*words: str) -> str:
        return shlex.join(["scapo-eval", *words])

    names = {kind: [file.name for file in files[:_SHOWN]] for kind, files in known.items()}
    captions, results = _of_same_images(folder, names.get("captions", [])), names.get("results", [])
    given = ["--truth", names["truth"][0]] if "truth" in names else []
    given += ["--vocabulary", names["vocabulary"][0]] if given and len(names.get("vocabulary", ())) == 1 else []
    if "questions" in names and "answers" in names:
        questions = known["questions"][0]
        return [shell(verb_of_questions(questions.record), names["answers"][0], "--questions", questions.name)]
    if captions and given:
        return [
            shell(*captions, *given),
            shell("show", captions[0], *given),
            shell("report", *captions, *given, "-o", "report.html"),
        ]
    if captions:
        return [f"{shell(*captions, '--truth')} TRUTH"]
    if results:
        systems = sum(len(file.record.get("systems", "..")) for file in known["results"][:_SHOWN])
        return [shell("compare" if systems > 1 else "show", *results), shell("report", *results, "-o", "report.html")]
    if "answers" in names:
        return [shell(names["answers"][0])]
    return [shell("oracle", "check", names["truth"][0])] if given else []
