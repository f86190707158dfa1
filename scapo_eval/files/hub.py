"""Data sets on the Hugging Face Hub or in a local folder, which the package ``datasets`` reads:
``hf://datasets/NAMESPACE/NAME[/CONFIG][:SPLIT]``.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from importlib.util import find_spec
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..base.errors import InputError, in_one_line
from .fields import MEDIA, plain_value
from .json_text import dump_json
from .source import HUB_REMEDY

_DATASET = re.compile(r"hf://datasets/(?P<path>[^:]+?)(?::(?P<split>[^:/]+))?", re.IGNORECASE)
_PAGE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/datasets/(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:/(?:blob|resolve|raw|tree|viewer)/(?P<revision>[^/?#]+)(?P<file>/[^?#]+)?)?[/?#]?.*",
    re.IGNORECASE,
)
_WITHOUT_DATASETS = re.compile(
    r"hf://(?!datasets/|spaces/|models/|buckets/)(?P<name>[\w.-]+(?:/[\w.-]+)?)(?P<split>:[^:/]+)?/?", re.IGNORECASE
)
_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")  # settings under which the package uses only its cache
_IN_MEMORY = 64 * 2**20


def is_hub_dataset(uri: str) -> bool:
    """Returns True if a URI names a whole data set instead of a file in a repository."""
    match = _DATASET.fullmatch(uri)
    if match is None:
        return False
    path = match["path"]
    local = os.path.isdir(path) or (os.path.isabs(path) and os.path.isdir(os.path.dirname(path)))
    return local or (path.count("/") <= 2 and not re.search(r"/[^/]+/[^/]*[.*][^/]*$", path))


def refuse_other_forms(uri: str) -> None:
    """Raises an error for the address of a data set's page, and for ``hf://NAMESPACE/NAME``.

    Raises:
        InputError: If the URI names a data set in one of these forms. The error contains the URI in the right form.
    """
    if page := _PAGE.fullmatch(uri):
        file, revision = page["file"] or "", page["revision"]
        at = f"@{revision}" if file and revision not in (None, "main") else ""
        raise InputError(f"is the address of a web page; write hf://datasets/{page['name']}{at}{file}", path=uri)
    if (match := _WITHOUT_DATASETS.fullmatch(uri)) is not None:
        name = match["name"] if "/" in match["name"] else f"NAMESPACE/{match['name']}"
        raise InputError(f"is not a data set; write hf://datasets/{name}{match['split'] or ''}", path=uri)


def refuse_without_packages(uri: str) -> None:
    """Raises an error if packages for a URI of the Hub are missing.

    Raises:
        InputError: If packages are missing. The error contains the command that installs all of them.
    """
    missing = [name for name in ("pyarrow", "huggingface_hub") if find_spec(name) is None]
    if missing and uri[:5].lower() == "hf://":
        raise InputError(f"hf:// needs further packages: pip install {' '.join(missing)}", path=uri)


def open_hub_dataset(uri: str) -> BinaryIO:
    """Loads a data set and returns its rows as JSON Lines. Images and audio are not decoded. Only their paths are read.

    Raises:
        InputError: If the package ``datasets`` is not installed, or if the data set or its split cannot be loaded.
    """
    try:
        import datasets
    except ImportError:
        raise InputError("a data set of the Hub needs the package datasets: pip install datasets", path=uri) from None
    match = _DATASET.fullmatch(uri)
    assert match is not None
    name, config, revision = _parts(match["path"])
    if not os.path.isdir(name):
        _refuse_without_network(uri)
    try:
        loaded = datasets.load_dataset(name, config, split=match["split"], revision=revision)
    except Exception as error:  # of the package or of any library behind it: no such data set, no network, no rights
        remedy = HUB_REMEDY if not os.path.isdir(name) else ""
        raise InputError(f"cannot be loaded ({in_one_line(error)}){remedy}", path=uri) from None
    if isinstance(loaded, dict):
        if len(loaded) > 1:
            named = ", ".join(f"{uri}:{split}" for split in loaded)
            raise InputError(f"has several splits; give one: {named}", path=uri)
        loaded = next(iter(loaded.values()))
    return _as_lines(loaded)


def _refuse_without_network(uri: str) -> None:
    """Raises an error if the name of the Hub's server is unknown, because the package would retry for two minutes.

    Raises:
        InputError: If the name is unknown, no proxy is set, and the package may use the network.
    """
    if getproxies() or {os.environ.get(name, "0").upper() for name in _OFFLINE} - {"", "0", "OFF", "NO", "FALSE"}:
        return
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname or ""
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        reason = f"{host} cannot be reached ({error.strerror}); to read only the cache: export HF_HUB_OFFLINE=1"
        raise InputError(reason, path=uri) from None


def _parts(path: str) -> tuple[str, str | None, str | None]:
    """Returns the name of the repository or the path of the folder, the configuration, and the revision."""
    if os.path.isdir(path):
        return path, None, None
    folder, _, last = path.rpartition("/")
    if os.path.isdir(folder):
        return folder, last, None
    name, config = (folder, last) if path.count("/") == 2 else (path, None)
    name, _, revision = name.partition("@")
    return name, config, revision or None


def _as_lines(dataset: Any) -> BinaryIO:
    stream = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 (its reader closes it)
    for batch in dataset.with_format("arrow").iter(1024):
        columns = {name: _column(batch.column(name)) for name in batch.column_names}
        for row in zip(*columns.values(), strict=True):
            stream.write(dump_json(dict(zip(columns, row, strict=True))) + b"\n")
    stream.seek(0)
    return stream


def _column(column: Any) -> list[Any]:
    """Returns the values of a column. Of images and other media, only the paths are read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type) and {field.name for field in column.type} == MEDIA:
        column = pc.struct_field(column, "path")
    return list(map(plain_value, column.to_pylist()))
