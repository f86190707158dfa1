"""An input that is opened once: what it gives, as often as it can, and what it refuses."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from scapo_eval import score
from scapo_eval.base.errors import InputError
from scapo_eval.files import source as source_module
from scapo_eval.files.source import HEAD, Source

DATA = b"".join(b'{"image_id": %d, "caption": "a dog"}\n' % k for k in range(20_000))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_the_head_and_any_number_of_readings(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "c"
    path.write_bytes(pack(b"\xef\xbb\xbf" + DATA))
    source = Source(path)
    assert source.head == DATA[: HEAD - 3]
    assert source.packed == (pack is not bytes)
    assert source.size == (len(DATA) + 3 if pack is bytes else None)
    with source.stream() as one, source.stream() as other:  # two at once do not disturb each other
        assert one.read(1000) == other.read(1000)
        assert one.read() == other.read() == DATA[997:]
    with source.file() as file:
        assert file.seek(0, io.SEEK_END) == len(DATA) + 3
    assert source.read() == b"\xef\xbb\xbf" + DATA


def piped(data: bytes) -> tuple[Source, threading.Thread]:
    """A source at the end of a pipe that a thread writes to."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as stream:
            stream.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    source = Source(f"/dev/fd/{reader}")
    assert source.head == data[:HEAD]
    os.close(reader)
    return source, thread


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="the system has no /dev/fd")
def test_a_pipe_is_read_once_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_ALWAYS_KEPT", 2 * HEAD)
    source, thread = piped(DATA)
    assert source.size is None
    assert source.read() == DATA  # from its beginning, though the head has been read
    with pytest.raises(InputError, match=r"/dev/fd/\d+: can be read only once"):
        source.read()
    with pytest.raises(InputError, match="can be read only once"):
        source.keep()
    thread.join()
    source, thread = piped(DATA)
    source.keep()
    assert [source.read() for _ in range(3)] == [DATA] * 3
    thread.join()


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="the system has no /dev/fd")
def test_nobody_reads_the_rest_of_a_pipe_for_the_whole() -> None:
    """What one reader has taken of a pipe is lost to the next: that one is refused, not given fewer records."""
    reader, writer = os.pipe()
    os.write(writer, b'{"image_id": 1, "caption": "a dog"}\n' * 100)
    os.close(writer)
    first = Source(f"/dev/fd/{reader}")
    assert first.head
    first.close()
    with pytest.raises(InputError, match="is a pipe that has already been read"):
        _ = Source(f"/dev/fd/{reader}").head
    os.close(reader)


def test_standard_input_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(DATA))))
    source = Source("-")
    assert (source.name, str(source), source.packed) == ("<stdin>", "-", True)
    assert source.read() == DATA
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="<stdin>: standard input is closed"):
        _ = Source("-").head


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"{}\n")


def rewrite(path: Path) -> None:
    """Other bytes of the same number, in place, later."""
    with path.open("r+b") as stream:
        stream.write(b'{"image_id": 9')
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def cut(path: Path) -> None:
    os.truncate(path, 100)


def replace(path: Path) -> None:
    (path.parent / "new").write_bytes(path.read_bytes())
    (path.parent / "new").replace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (grow, r"was written to while it was read \(it is 3 bytes longer\)"),
        (rewrite, r"was written to while it was read \(it is as long as before\)"),
        (cut, "was cut off while it was read"),
        (replace, "was replaced while it was read"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, change: Callable[[Path], None], said: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "c"
    path.write_bytes(pack(DATA))
    source = Source(path)
    with pytest.raises(InputError, match=f"{path}: {said}"), source.stream() as stream:  # noqa: PT012
        stream.read(10)
        change(path)
        stream.read(10)
    if change is replace or pack is not bytes:
        return
    path.write_bytes(DATA)
    spans = list(Source(path).spans(1000))
    change(path)
    with pytest.raises(InputError, match=f"{path}: {said}"):
        _ = [span.read() for span in spans]


@pytest.mark.parametrize("change", [grow, rewrite])
@pytest.mark.slow
def test_scoring_a_file_that_is_being_written(tmp_path: Path, change: Callable[[Path], None]) -> None:
    from scapo_eval import PresenceOracle, Vocabulary
    from scapo_eval.benchmarks.capscore import score_file

    path = tmp_path / "c.jsonl"
    path.write_bytes(DATA * 3)
    oracle = PresenceOracle.from_objects({k: ["dog"] for k in range(20_000)}, source="truth")
    assert score(str(path), truth=oracle, resamples=0).n_records == 60_000
    with pytest.raises(InputError, match=r"c\.jsonl: was written to while it was read"):
        score_file(path, Vocabulary.load("coco80"), oracle, on_progress=lambda size: change(path))


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "is a directory, not a file"),
        (tmp_path / "x", "file not found"),
        ("a\0b", r"not a valid file name \(it contains a NUL\)"),
        ("/dev/null", ""),
    ):
        if not said:
            assert Source(path).read() == b""
            continue
        with pytest.raises(InputError, match=said):
            _ = Source(path).head
