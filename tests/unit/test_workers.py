"""Several processes give what one gives: counts, values, evidence and faults."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval import InputError, InputErrors, PresenceOracle, RewardConfig, ScapoError, SubsentenceReward, Vocabulary
from scapo_eval.base.errors import FaultList
from scapo_eval.benchmarks import scoring
from scapo_eval.benchmarks.capscore import CaptionScorer, score_file
from scapo_eval.benchmarks.chair import Native, Reference, Synonyms, score_chair
from scapo_eval.benchmarks.density import score_density
from scapo_eval.benchmarks.rollouts import reward_file
from scapo_eval.benchmarks.scoring import ScoringOptions, tally
from scapo_eval.files import files
from scapo_eval.files import source as input_source
from scapo_eval.files.mapped import Mapped
from scapo_eval.files.source import Source, Span
from scapo_eval.readers import captions as caption_files
from scapo_eval.readers.captions import Captions, iter_blocks
from scapo_eval.results.counts import in_few_bytes
from scapo_eval.results.results import Resampling, Run
from scapo_eval.segmenting.segment import RULES
from scapo_eval.truths.oracle import Truth

LABELS = ("dog", "cat", "car", "bus")
VOCABULARY = Vocabulary.from_mapping({label: [label] for label in LABELS}, name="four")
SYNONYMS = Synonyms("four", {label: label for label in LABELS})
TRUTH = PresenceOracle.from_objects({k: [LABELS[k % 4]] for k in range(50)}, labels=LABELS)
DRAWN = Resampling(30)
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on, where NumPy has threads


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than two blocks of a file, with faulty lines in several of them."""
    rng = random.Random(0)
    path = tmp_path_factory.mktemp("workers") / "captions.jsonl"
    with path.open("w") as stream:
        for k in range(16_000):
            text = " and ".join(f"a {rng.choice(LABELS)} in a big green garden" for _ in range(rng.randrange(5)))
            record = {"caption": text} if k % 4000 == 1000 else {"image_id": rng.randrange(50), "caption": text}
            stream.write(json.dumps(record) + "\n")
    return path


def scores(path: Path, options: ScoringOptions) -> list[Run]:
    return [score_file(path, VOCABULARY, TRUTH, options, resampling=DRAWN)]


def native(path: Path, options: ScoringOptions) -> list[Run]:
    return [score_chair(path, Native(VOCABULARY), TRUTH, options, resampling=DRAWN)]


def reference(path: Path, options: ScoringOptions) -> list[Run]:
    return [score_chair(path, Reference(SYNONYMS), TRUTH, options, resampling=DRAWN)]


def densities(path: Path, options: ScoringOptions) -> list[Run]:
    return score_density(path, [(VOCABULARY, TRUTH)], RULES[:2], options, resampling=DRAWN)


@pytest.mark.slow
def test_processes_that_inherit_nothing_map_the_arrays(
    captions: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = scores(captions, ScoringOptions(skip_bad=True))[0]
    method = multiprocessing.get_start_method()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    multiprocessing.set_start_method("spawn", force=True)
    try:
        two = scores(captions, ScoringOptions(skip_bad=True, workers=2))[0]
    finally:
        multiprocessing.set_start_method(method, force=True)
    assert two.to_dict() == one.to_dict()
    assert list(tmp_path.glob("scapo-*")) == []

    with Mapped({"states": TRUTH.matrix(), "labels": LABELS}) as shared:
        again = [pickle.loads(pickle.dumps(shared)).value for _ in range(2)]
        assert len(list(tmp_path.glob("scapo-*"))) == 1
    for value in again:
        assert value["labels"] == LABELS
        assert np.array_equal(value["states"], TRUTH.matrix())
        assert not value["states"].flags.writeable
        assert not value["states"].flags.owndata


@pytest.mark.parametrize(("name", "mark"), [("c.jsonl", b""), ("c.jsonl", b"\xef\xbb\xbf"), ("c.jsonl.gz", b"")])
def test_blocks_of_plain_files_travel_as_their_place(captions: Path, tmp_path: Path, name: str, mark: bytes) -> None:
    data = captions.read_bytes()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else mark + data)
    sent = [pickle.dumps(block) for block in iter_blocks(path)]
    lines = [pickle.loads(each).lines for each in sent]
    assert len(lines) > 1
    assert b"".join(each.read() if isinstance(each, Span) else each for each in lines) == data
    assert max(map(len, sent)) > 500_000 if name.endswith(".gz") else max(map(len, sent)) < 1000


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_changes_while_it_is_read(captions: Path, tmp_path: Path, workers: int) -> None:
    def cut() -> None:
        with path.open("r+b") as stream:
            stream.truncate(100)

    def replace() -> None:
        (tmp_path / "new").write_bytes(data)
        (tmp_path / "new").replace(path)

    path, data = tmp_path / "c.jsonl", captions.read_bytes()
    scorer = CaptionScorer.of(Truth.of(TRUTH, VOCABULARY), None, ScoringOptions())
    for change, said in (cut, "was cut off"), (replace, "was replaced"), (path.unlink, "file not found"):
        path.write_bytes(data)
        blocks = list(iter_blocks(path))
        change()
        with pytest.raises(InputError, match=rf"^{re.escape(str(path))}: {said}"):
            tally(lambda _: blocks, scorer, ScoringOptions(skip_bad=True, workers=workers), source="x")  # noqa: B023


@given(
    st.lists(st.sampled_from([b"", b" \t", b"{}", b"x" * 40, b"y" * 7]), min_size=1), st.integers(1, 60), st.booleans()
)
def test_spans_are_whole_lines(lines: list[bytes], size: int, ended: bool) -> None:
    data = b"\n".join([b"start", *lines]) + b"\n" * ended
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        path.write_bytes(data)
        spans = list(Source(path).spans(size))
        parts = [span.read() for span in spans]
        assert b"".join(parts) == data
        assert all(part.endswith(b"\n") and size <= len(part) <= size + 40 for part in parts[:-1])
        assert [span.left for span in spans] == [len(data) - span.begin - span.size for span in spans]


def test_spans_and_streams_refuse_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(read: Callable[[], Iterable[bytes]]) -> bytes | str:
        try:
            return b"".join(read())
        except InputError as error:
            return str(error)

    monkeypatch.setattr(files, "MAX_LINE", 50)
    monkeypatch.setattr(input_source, "MAX_LINE", 50)
    path, refused = tmp_path / "c", 0
    for before, length, ended in product(range(45), (49, 50, 51, 52, 70, 120), (True, False)):
        data = b"start\n" + b"a" * before + b"\n" + b"b" * length + b"\nc" * ended
        path.write_bytes(gzip.compress(data))
        stream = outcome(lambda: (part for _, part in files.iter_line_blocks(path, 20)))
        path.write_bytes(data)
        spans = outcome(lambda: (span.read() for span in Source(path).spans(20)))
        assert spans == stream
        assert spans == (data if length <= 50 else f"{path}:3: a line of more than 0 MiB is not a valid record")
        refused += spans != data
    assert refused == 45 * 4 * 2


def test_counts_travel_in_few_bytes() -> None:
    for numbers, kind in (
        ([], "uint8"),
        ([0, 255], "uint8"),
        ([256], "uint16"),
        ([-1, 200], "int16"),
        ([2**40], "uint64"),
    ):
        small = in_few_bytes(np.array(numbers, dtype=np.int64))
        assert (small.tolist(), small.dtype) == (numbers, np.dtype(kind))


@pytest.mark.slow
def test_a_link_to_standard_input_is_the_same_file_in_every_process(captions: Path, tmp_path: Path) -> None:
    if not os.path.exists("/dev/stdin"):
        pytest.skip("the system has no /dev/stdin")
    (tmp_path / "truth.json").write_text(json.dumps({k: [LABELS[k % 4]] for k in range(50)}))
    found = []
    for workers in "1", "2":
        command = [
            str(Path(sys.executable).with_name("scapo-eval")),
            "/dev/stdin",
            "--truth",
            str(tmp_path / "truth.json"),
            "--json",
        ]
        with captions.open("rb") as stream:
            done = subprocess.run(
                [*command, "--skip-bad", "-q", "--workers", workers], stdin=stream, capture_output=True, check=True
            )
        found.append(json.loads(done.stdout)["systems"])
    assert found[0] == found[1]
    assert found[0][0]["counts"]["captions"] == 15_996


def test_a_task_holds_many_blocks_and_few_at_the_end(captions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caption_files, "BLOCK_BYTES", 8192)
    blocks = list(iter_blocks(captions))
    for workers in (2, 4):
        tasks = list(scoring._tasks(blocks, workers))
        assert [block for task in tasks for block in task] == blocks
        sizes = [len(task) for task in tasks]
        assert sizes == sorted(sizes, reverse=True)
        assert (sizes[0], sizes[-1]) == (8, 1)
        assert sizes.count(1) >= 4 * workers
    assert list(map(len, scoring._tasks([Deadly()] * 3, 2))) == [1, 1, 1]


Score = Callable[[Path, ScoringOptions], "list[Run]"]


@pytest.mark.parametrize("score", [scores, native, reference, densities])
@pytest.mark.slow
def test_runs_are_the_same(score: Score, captions: Path) -> None:
    one, two = (score(captions, ScoringOptions(skip_bad=True, workers=workers)) for workers in (1, 2))
    assert [run.to_dict() for run in two] == [run.to_dict() for run in one]
    for run, other in zip(one, two, strict=True):
        assert np.array_equal(run.table.rows, other.table.rows)
        assert run.table.image_ids == other.table.image_ids
        assert (run.n_records, run.counts["skipped"]) == (15_996, 4)


@pytest.mark.parametrize("score", [scores, reference, densities])
@pytest.mark.slow
def test_faults_are_the_same(score: Score, captions: Path) -> None:
    messages = []
    for workers in (1, 2):
        with pytest.raises(InputErrors) as error:
            score(captions, ScoringOptions(workers=workers))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    (message,) = messages[0].splitlines()  # one fault, four times
    assert message.split(":")[1] == "1001"
    assert "(4 records, lines 1001-13001); to omit" in message


MESSAGES = {
    "blank lines": (lambda n: b"\n" if n % 3 else b'{"caption": "x"}\r\n', r"c:1503: missing.*, lines 1503-2400\)"),
    "not json": (lambda n: b"{\n" if n == 700 else line(n), r"^[^:]*c:700: not valid JSON: .*\Z"),
    "not utf-8": (lambda n: b"\xff\n" if n == 701 else line(n), r"^[^:]*c:701: not UTF-8 \(byte 0xff at column 1\)"),
    "unknown image": (lambda n: line(n, image_id=99 if n > 688 else 1), r"c:689: unknown .*'99'.*, lines 689-900\)"),
    "an id twice": (lambda n: line(n, id=n % 897), r"c:898: the same id appears twice \(lines 1 and 898\)"),
    "models": (lambda n: line(n, model="a" if n < 555 else "b"), r"c:555: several models in one file \('a', 'b'\)"),
    "a long line": (lambda n: line(n, x="x" * 5000 * (n == 650)), r"c:650: a line of more than 0 MiB is not a valid"),
    "nothing": (lambda n: b" \n", r"c: the file contains no record"),
}  # fmt: skip


def line(n: int, **more: Any) -> bytes:
    return json.dumps({"image_id": n % 50, "caption": "a dog", **more}).encode() + b"\n"


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.slow
def test_messages_name_the_line_whoever_reads_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caption_files, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(files, "MAX_LINE", 4000)
    monkeypatch.setattr(input_source, "MAX_LINE", 4000)
    make, said = MESSAGES[name]
    data = b"\n" * 1500 * (name == "blank lines") + b"".join(make(n) for n in range(1, 901))
    found = set()
    for pack in (bytes, gzip.compress):  # a gzip is read in this process
        (tmp_path / "c").write_bytes(pack(data))
        for workers in (1, 2, 3):
            with pytest.raises(ScapoError, match=said) as error:
                scores(tmp_path / "c", ScoringOptions(workers=workers))
            found.add(str(error.value))
    assert len(found) == 1


@pytest.mark.slow
def test_rewards_are_the_same(captions: Path) -> None:
    reward = SubsentenceReward(VOCABULARY, TRUTH, RewardConfig())
    found = []
    for workers in (1, 2):
        records: list[dict[str, Any]] = []
        notes: list[str] = []
        options = ScoringOptions(skip_bad=True, workers=workers)
        tally, total = reward_file(captions, reward, options, write=records.append, warn=notes.append)
        found.append((records, total, tally.table.counts(), tally.n_records, tally.skipped, notes))
    assert found[0] == found[1]
    assert len(found[0][0]) == found[0][3] == 15_996


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("score", [scores, native, densities])
@pytest.mark.slow
def test_unknown_images_are_not_bad_records(score: Score, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"image_id": 1, "caption": "a dog"}\n{"image_id": 77, "caption": "a dog"}\n{}\n')
    with pytest.raises(InputErrors, match=r"c.jsonl:2: unknown image id '77'") as error:
        score(path, ScoringOptions(skip_bad=True, workers=workers))
    assert ":3:" not in str(error.value)
    (run, *_) = score(path, ScoringOptions(skip_bad=True, on_unknown_image="skip", workers=workers))
    assert run.other_counts == {"skipped": 1, "unknown_images": 1}
    assert "|skip:2|" in run.signature


class Deadly:
    """A block that kills the process which parses it, as the kernel does when memory is short."""

    name, size = "x", 0

    def parse(self, faults: FaultList) -> Captions:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_a_killed_process_is_one_error() -> None:
    scorer = CaptionScorer.of(Truth.of(TRUTH, VOCABULARY), None, ScoringOptions())
    with pytest.raises(ScapoError, match="one of 2 worker processes was killed, usually because the memory was full"):
        tally(lambda _: [Deadly()] * 9, scorer, ScoringOptions(workers=2), source="x")


ORPHANS = """
import multiprocessing, os, sys, time
from scapo_eval.base.processes import process_pool
if __name__ == "__main__":
    with process_pool(1, mp_context=multiprocessing.get_context(sys.argv[1])) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, method: str) -> None:
    (tmp_path / "parent.py").write_text(ORPHANS)
    command = [sys.executable, str(tmp_path / "parent.py"), method]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 60
    while _is_running(worker):
        assert time.monotonic() < until, "the worker goes on without its parent"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


INTERRUPTED = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from scapo_eval.base.processes import process_pool
def work(path):
    Path(path + ".begun").touch()
    time.sleep(600)
    Path(path).touch()
if __name__ == "__main__":
    with process_pool(2, mp_context=multiprocessing.get_context("fork")) as pool:
        for k in range(6):
            pool.submit(work, f"{sys.argv[1]}/{k}")
        while not Path(f"{sys.argv[1]}/0.begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
"""


def test_an_interrupt_ends_running_tasks(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "parent.py"), str(tmp_path)], capture_output=True, text=True, timeout=300
    )  # a task takes longer
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name.isdigit()]
