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
from ..truths.oracle import PresenceOracle

_LOOKED_AT = 60
"""Maximum number of files in a folder that are opened for recognition."""

_ENDINGS = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".yaml", ".npz", ".txt", ".gz", ".zst")
_LARGEST_TRUTH = 32 << 20  # bytes of a ground truth that is read
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
    if not path.name.endswith(_ENDINGS) or not path.is_file():  # a pipe would block
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


def _by_images(folder: Path, names: Sequence[str]) -> list[list[str]]:
    """Returns groups of readable caption files, such that the files of a group describe some of the images of its first
    file. Only the beginning of each file is read, and folders are not read.
    """
    images = {name: _images(folder / name) for name in names}
    groups: list[list[str]] = []
    for name in (name for name in names if images[name]):
        for group in groups:
            if (images[group[0]] or set()) & (images[name] or set()):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups or [[name] for name in names if images[name] is None][:1]


def _contains(truth: Path, captions: Path) -> bool:
    """Returns True if a ground truth contains an image of a caption file, or if this is unknown."""
    try:
        images = _images(captions)
        if images is None or truth.is_dir() or truth.stat().st_size > _LARGEST_TRUTH:
            return True
        return bool((PresenceOracle.load(truth).find_rows(sorted(images)) >= 0).any())
    except (ScapoError, OSError):
        return False


def _pairs(folder: Path, groups: Sequence[list[str]], truths: Sequence[str]) -> list[tuple[list[str], str]]:
    """Returns the groups of caption files that have a ground truth, each with its ground truth. If there is one group
    and one ground truth, they are not read.
    """
    if len(groups) == len(truths) == 1:
        return [(groups[0], truths[0])]
    found = [
        (group, next((truth for truth in truths if _contains(folder / truth, folder / group[0])), None))
        for group in groups
    ]
    return [(group, truth) for group, truth in found if truth is not None]


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
    groups, results = _by_images(folder, names.get("captions", [])), names.get("results", [])
    truths = names.get("truth", [])
    more = ["--vocabulary", names["vocabulary"][0]] if len(names.get("vocabulary", ())) == 1 else []
    if "questions" in names and "answers" in names:
        questions = known["questions"][0]
        return [shell(verb_of_questions(questions.record), names["answers"][0], "--questions", questions.name)]
    if groups and truths:
        pairs = _pairs(folder, groups, truths) or [(groups[0], truths[0])]
        captions, truth = pairs[0]
        given = ["--truth", truth, *more]
        scored = [shell(*group, "--truth", other, *more) for group, other in pairs]
        looked = [shell("show", captions[0], *given), shell("report", *captions, *given, "-o", "report.html")]
        without = [name for group in groups if group not in [pair[0] for pair in pairs] for name in group]
        left = [f"# without a ground truth for their images: {', '.join(without)}"] if without else []
        return [*[*scored, *looked][: 3 - len(left)], *left]
    if groups:
        return [f"{shell(*groups[0], '--truth')} TRUTH"]
    if results:
        systems = sum(len(file.record.get("systems", "..")) for file in known["results"][:_SHOWN])
        return [shell("compare" if systems > 1 else "show", *results), shell("report", *results, "-o", "report.html")]
    if "answers" in names:
        return [shell(names["answers"][0])]
    return [shell("oracle", "check", truths[0])] if truths else []
