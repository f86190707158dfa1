"""The shipped vocabularies as they are after parsing, so that a process starts without reading YAML and rules.

    python -m scapo_eval.matching.compiled

writes ``vocab/compiled/NAME.json.gz`` from ``vocab/*.yaml``; run it after every change there (a test asks for it). Each
file carries the hash of what it was made from: one that does not fit is not used, and the YAML is read.
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
"""Name of the shipped file that vocabularies include; no vocabulary itself."""

T = TypeVar("T")


def sources_hash(name: str) -> str:
    """Returns the hash of the files of a shipped vocabulary."""
    folder = shipped_folder("vocab")
    return digest((folder / f"{stem}{SUFFIX}").read_bytes() for stem in (name, SHARED_RULES))


def read_compiled(name: str, kind: type[T]) -> T | None:
    """Returns a shipped vocabulary from its compiled file, None if there is none or the YAML has changed.

    Args:
        name: of the vocabulary.
        kind: its class.
    """
    try:
        data = gzip.decompress((shipped_folder("vocab") / "compiled" / f"{name}.json.gz").read_bytes())
        made_from, compiled = msgspec.json.decode(data, type=tuple[str, kind])  # type: ignore[valid-type]
    except (OSError, EOFError, zlib.error, msgspec.DecodeError):
        return None
    return compiled if made_from == sources_hash(name) else None


def main() -> None:
    """Writes all compiled files."""
    from .vocabulary import parse_shipped, shipped_vocabularies

    folder = Path(str(shipped_folder("vocab"))) / "compiled"
    folder.mkdir(exist_ok=True)
    for name in shipped_vocabularies():
        data = msgspec.json.encode((sources_hash(name), parse_shipped(name)))
        with atomic_write(folder / f"{name}.json.gz") as stream:
            stream.write(data)
        print(f"{folder / name}.json.gz")


if __name__ == "__main__":
    main()
