"""Shipped vocabularies and cues in parsed form, so that a process can start without parsing the YAML files and the
ignore rules.

The following command writes ``vocab/compiled/NAME.json.gz`` from ``vocab/*.yaml`` and ``cues.yaml``::

    python -m scapo_eval.matching.compiled

The command must be run after every change to these files. A test checks that the compiled files are up to date. Each
compiled file contains the hash of its source files. If the hash does not match the source files, the YAML is read
instead.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from ..base.hashes import digest
from ..files.files import atomic_write, shipped_folder

SUFFIX = ".yaml"
SHARED_RULES = "rules"
"""Name of the shipped rules file that vocabularies include. The file is not a vocabulary."""

CUES = "cues"
"""Name of the compiled file with the cues."""

CUES_FILE = Path(__file__).with_name("cues.yaml")

T = TypeVar("T")


def sources_hash(name: str) -> str:
    """Returns the hash of the YAML files that define a shipped vocabulary or the cues."""
    if name == CUES:
        return digest([CUES_FILE.read_bytes()])
    folder = shipped_folder("vocab")
    return digest((folder / f"{stem}{SUFFIX}").read_bytes() for stem in (name, SHARED_RULES))


def read_compiled(name: str, kind: type[T]) -> T | None:
    """Reads a shipped vocabulary or the cues from a compiled file. Returns None if the file is missing or out of date.

    Args:
        name: Name of the vocabulary, or CUES.
        kind: Class of the object to be created.
    """
    try:
        data = gzip.decompress((shipped_folder("vocab") / "compiled" / f"{name}.json.gz").read_bytes())
        made_from, compiled = msgspec.json.decode(data, type=tuple[str, kind])  # type: ignore[valid-type]
    except (OSError, EOFError, zlib.error, msgspec.DecodeError):
        return None
    return compiled if made_from == sources_hash(name) else None


def main() -> None:
    """Writes the compiled files of all shipped vocabularies and of the cues."""
    from .cues import parse_cues
    from .vocabulary import parse_shipped, shipped_vocabularies

    folder = Path(str(shipped_folder("vocab"))) / "compiled"
    folder.mkdir(exist_ok=True)
    parsed = {name: parse_shipped(name) for name in shipped_vocabularies()} | {CUES: parse_cues()}
    for name, content in parsed.items():
        data = msgspec.json.encode((sources_hash(name), content))
        with atomic_write(folder / f"{name}.json.gz") as stream:
            stream.write(data)
        print(f"{folder / name}.json.gz")


if __name__ == "__main__":
    main()
