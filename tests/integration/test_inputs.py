"""Every kind of input (path, ``-``, ``/dev/stdin``, pipes, gzip, zstandard, Parquet) is opened only once."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

LABELS = ("dog", "cat", "car", "chair", "bus")
N = 1500  # captions: 280 KB, several times what a pipe holds and what is read to recognize a file

Run = Callable[..., tuple[int, str, str]]
Written = list[dict[str, Any]]


def captions_of(name: str) -> Written:
    """Returns captions whose words depend on the number of the image."""
    said = [f"A {LABELS[k % 5]} near a {LABELS[(k * k + len(name)) % 5]}, {'seen by day ' * 10}." for k in range(N)]
    return [{"image_id": k, "caption": text, "model": "m"} for k, text in enumerate(said)]


def answers() -> Written:
    """Returns yes/no answers to questions with POPE's wording."""
    return [
        {
            "id": f"pope/random/{k}", "image": f"{k}.jpg", "question": f"Is there a {LABELS[k % 5]} in the image?",
            "response": ("Yes", "No, not one", "Yes, there is")[k % 3], "label": ("yes", "no")[k % 2],
            "benchmark": "pope", "category": "random", "description": "A dog. " * 20 if k % 7 else None,
        }
        for k in range(N)
    ]  # fmt: skip


RECORDS: dict[str, Written] = {
    "captions": captions_of("captions"),
    "inline": [{**row, "objects": [LABELS[k % 5]]} for k, row in enumerate(captions_of("inline"))],
    "rollouts": [{"image_id": row["image_id"], "response": row["caption"]} for row in captions_of("rollouts")],
    "answers": answers(),
    "claims": [
        {"id": str(k), "image_id": k, "claims": [f"Claim {k}, {'long ' * 30}"], "verified": [k % 2], "descriptive": [1]}
        for k in range(N)
    ],
    "lists": [
        {**row, "caption": f"{k}: {row['caption']}", "extracted": [LABELS[k % 4]], "judge_model": "j"}
        for k, row in enumerate(captions_of("lists"))
    ],
    "ratings": [
        {"id": f"mmhal/{k}", "image": f"{k}.jpg", "question": "Why?", "question_type": ("adversarial", "other")[k % 2],
         "gt_answer": "so", "model_answer": "so", "rating": k % 7, "judge_text": f"Rating: {k % 7}, {'for ' * 40}"}
        for k in range(N)
    ],
    "facts": [{"id": str(k), "facts": [f"Fact {'long ' * 30}", "b"], "verified": [k % 2, 1]} for k in range(N)],
}  # fmt: skip

TRUTH = ("--truth", "truth.json")
VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "score": ("captions", ("score", "x=INPUT", *TRUTH, "--json", "-q")),
    "score, two workers": ("captions", ("score", "x=INPUT", *TRUTH, "--json", "-q", "--workers", "2")),
    "score, inline truth": ("inline", ("score", "x=INPUT", "--json", "-q")),
    "score, as protocol": ("captions", ("x=INPUT", *TRUTH, "--protocol", "chair-opera", "--off-protocol", "-q")),
    "chair": ("captions", ("chair", "x=INPUT", *TRUTH, "--json", "-q")),
    "objhal, captions": ("captions", ("objhal", "x=INPUT", *TRUTH, "--json", "-q")),
    "objhal, lists": ("lists", ("objhal", "x=INPUT", *TRUTH, "--json", "-q")),
    "labels": ("captions", ("labels", "x=INPUT", *TRUTH, "--json", "-q")),
    "show": ("captions", ("show", "x=INPUT", *TRUTH, "--json", "--worst", "3")),
    "show, one image": ("captions", ("show", "x=INPUT", *TRUTH, "--json", "--image", "7")),
    "show, inline truth": ("inline", ("show", "x=INPUT", "--json")),
    "density": ("rollouts", ("density", "INPUT", *TRUTH, "--json", "-q")),
    "reward": ("rollouts", ("reward", "INPUT", *TRUTH)),
    "import, captions": ("captions", ("import", "INPUT", "-q")),
    "import, answers": ("answers", ("import", "INPUT", "-q")),
    "pope": ("answers", ("pope", "x=INPUT", "--json", "-q")),
    "yesno": ("answers", ("yesno", "x=INPUT", "--json", "-q")),
    "augmented": ("answers", ("augmented", "plain=answers.jsonl", "x=INPUT", "--benchmark", "pope", "--json", "-q")),
    "facts": ("claims", ("facts", "x=INPUT", "--json", "-q")),
    "mmhal": ("ratings", ("mmhal", "x=INPUT", "--json", "-q")),
    "faithscore": ("facts", ("faithscore", "x=INPUT", "--json", "-q")),
    "report, captions": ("captions", ("report", "INPUT", *TRUTH, "--name", "SYSTEM=x", "--format", "csv", "-q")),
    "report, answers": ("answers", ("report", "INPUT", "--name", "SYSTEM=x", "-q")),
    "report, claims": ("claims", ("report", "INPUT", "--name", "SYSTEM=x", "-q")),
    "report, ratings": ("ratings", ("report", "INPUT", "--name", "SYSTEM=x", "-q")),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a file of each kind, uncompressed and compressed, and a ground truth."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, records in RECORDS.items():
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
        assert len(data) > 100_000
        (folder / f"{name}.jsonl").write_bytes(data)
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        (folder / f"{name}.zst").write_bytes(zstandard.compress(data))
    truth = {"labels": LABELS, "objects": {k: [LABELS[k % 4]] for k in range(N)}}
    (folder / "truth.json").write_text(json.dumps(truth))
    return folder


@contextmanager
def written(data: bytes, descriptor: int) -> Iterator[None]:
    """Writes data to a pipe in a thread, like another program."""

    def write() -> None:
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
        except BrokenPipeError:
            pass

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


@contextmanager
def standard_input(reader: int) -> Iterator[None]:
    """Makes a descriptor the standard input of this process."""
    before, stream = os.dup(0), sys.stdin
    os.dup2(reader, 0)
    os.close(reader)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False))  # noqa: SIM115
    try:
        yield
    finally:
        sys.stdin = stream
        os.dup2(before, 0)
        os.close(before)


@contextmanager
def given(way: str, path: Path, packed: str) -> Iterator[str]:
    """Yields the name under which a command reads a file."""
    source = path.with_suffix(packed)
    if way == "path":
        yield str(source)
    elif way == "fifo":
        fifo = path.with_suffix(".fifo")
        os.mkfifo(fifo)
        opened: list[int] = []
        opener = threading.Thread(target=lambda: opened.append(os.open(fifo, os.O_WRONLY)))
        opener.start()

        def write() -> None:
            opener.join(60)
            try:
                with os.fdopen(opened[0], "wb") as stream:
                    stream.write(source.read_bytes())
            except BrokenPipeError:
                pass

        writer = threading.Thread(target=write)
        writer.start()
        yield str(fifo)
        writer.join(60)
        assert not writer.is_alive()
        fifo.unlink()
    elif way == "redirected":
        with standard_input(os.open(source, os.O_RDONLY)):
            yield "/dev/stdin"
    else:
        reader, writer_end = os.pipe()
        with written(source.read_bytes(), writer_end):
            if way == "substituted":
                yield f"/dev/fd/{reader}"
                os.close(reader)
            else:
                with standard_input(reader):
                    yield way


WAYS = [("path", ".gz"), ("path", ".zst"), ("-", ".jsonl"), ("-", ".gz"), ("/dev/stdin", ".jsonl"),
        ("/dev/stdin", ".zst"), ("redirected", ".jsonl"), ("fifo", ".jsonl"), ("substituted", ".jsonl")]  # fmt: skip


def said(run: Run, words: tuple[str, ...], path: str) -> str:
    """Returns the output of a command for an input, and checks that the command succeeds."""
    from scapo_eval.results.results import system_names

    system = system_names([path])[0]
    code, out, err = run(*(word.replace("INPUT", path).replace("SYSTEM", system) for word in words))
    assert code == 0, err
    return out


def unpacked(out: str) -> str:
    """Returns the output without the number of bytes and their hash, which depend on compression."""
    return re.sub(r'"(bytes|crc32)":(\d+|null|"\w+")', r'"\1":"?"', out)


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="the system has no /dev/fd")
@pytest.mark.parametrize("verb", VERBS)
def test_every_way_of_giving_a_file_gives_the_same_bytes(
    verb: str, world: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    name, words = VERBS[verb]
    expected = said(run, words, f"{name}.jsonl")
    assert len(expected) > 100
    for way, packed in WAYS:
        with given(way, world / f"{name}.jsonl", packed) as path:
            out = said(run, words, path)
        if packed == ".jsonl":
            assert out == expected, way
        assert unpacked(out) == unpacked(expected), (way, packed)


@pytest.mark.parametrize("verb", ["score", "score, two workers", "chair", "labels", "show", "import, captions"])
def test_parquet_gives_the_same_bytes_from_a_file_and_through_a_pipe(
    verb: str, world: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(world)
    parquet.write_table(pa.Table.from_pylist(RECORDS["captions"]), world / "captions.parquet")
    _, words = VERBS[verb]
    expected = said(run, words, "captions.jsonl")
    for way in ("path", "-", "/dev/stdin", "fifo", "substituted"):
        with given(way, world / "captions.jsonl", ".parquet") as path:
            assert unpacked(said(run, words, path)) == unpacked(expected), way


def test_more_than_is_kept_of_a_pipe(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that inline ground truth, which needs two passes, works for 9 MB through a pipe as for a file."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"image_id": k, "caption": "A dog. " + "x " * 500, "objects": ["dog"]}) for k in range(9000)]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    words = ("score", "x=INPUT", "--json", "-q", "--resamples", "0")
    expected = said(run, words, "c.jsonl")
    for way in ("/dev/stdin", "fifo"):
        with given(way, tmp_path / "c.jsonl", ".jsonl") as path:
            assert said(run, words, path) == expected


# --- opened once ----------------------------------------------------------------------------------------------------

WATCHED: set[str] = set()
LOG: list[int] = []


def count_open(event: str, arguments: tuple[Any, ...]) -> None:
    """Writes the name of every watched file that is opened, in any process, as an audit hook."""
    if event == "open" and LOG and isinstance(arguments[0], (str, bytes)):
        path = os.fsdecode(os.path.realpath(arguments[0]))
        if path in WATCHED:
            os.write(LOG[0], path.encode() + b"\n")


@cache
def install_hook() -> None:
    """Installs the hook once per process, because hooks cannot be removed."""
    sys.addaudithook(count_open)


@pytest.fixture(scope="module")
def hook() -> None:
    """Installs the hook for the counts of opened files."""
    install_hook()


@contextmanager
def opened(folder: Path, *names: str) -> Iterator[Callable[[], list[str]]]:
    """Yields a function that returns the watched files opened so far, with repetitions, by this process or its
    workers.
    """
    log = folder / "opened.log"
    LOG.append(os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND))
    WATCHED.update(str((folder / name).resolve()) for name in names)
    try:
        yield lambda: sorted(Path(line).name for line in log.read_text().splitlines())
    finally:
        WATCHED.clear()
        os.close(LOG.pop())


@pytest.mark.usefixtures("hook")
@pytest.mark.parametrize("packed", [".jsonl", ".gz"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_input_is_opened_once(
    verb: str, packed: str, world: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    name, words = VERBS[verb]
    files = {f"{name}{packed}", *({"truth.json", "answers.jsonl"} & {word.split("=")[-1] for word in words})}
    with opened(world, *files) as counted:
        said(run, words, f"{name}{packed}")
        assert counted() == sorted(files)


@pytest.mark.usefixtures("hook")
def test_results_are_opened_once(world: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    for name in ("a", "b"):
        assert run("captions.jsonl", *TRUTH, "-q", "-o", f"{name}.json")[0] == 0
    for words in (
        ("show", "a.json"), ("a.json",), ("compare", "x=a.json", "y=b.json"), ("report", "a.json", "b.json", "-q"),
        ("export", "a.json", "--to", "eee", "-o", "out/"),
    ):  # fmt: skip
        with opened(world, "a.json", "b.json") as counted:
            code, _, err = run(*words)
            assert code == 0, err
            assert counted() == sorted(word.split("=")[-1] for word in words if word.endswith(".json"))


def test_standard_output_takes_one_thing(world: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    code, out, _ = run("captions.jsonl", *TRUTH, "-q", "-o", "-", "--json")
    assert (code, json.loads(out)["format"]) == (0, "scapo-results/1")
    (world / "a.json").write_text(out)
    code, _, err = run("export", "a.json", "a.json", "--to", "eee", "-o", "-")
    assert code == 2
    assert "-o - takes one system" in err
    assert not [*world.glob("-*")]


@pytest.mark.usefixtures("hook")
def test_a_faulty_file_is_opened_once_too(world: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    (world / "bad.jsonl").write_text('{"image_id": 1, "caption": "A dog."}\n{"image_id": 2}\n')
    for words in (("bad.jsonl", *TRUTH), ("score", "answers.jsonl", *TRUTH), ("pope", "captions.jsonl"),
                  ("score", "captions.jsonl", "--truth", "answers.jsonl"), ("compare", "captions.jsonl", "bad.jsonl"),
                  ("amber", "captions.jsonl", "--data", "."), ("report", "bad.jsonl")):  # fmt: skip
        with opened(world, "bad.jsonl", "captions.jsonl", "answers.jsonl") as counted:
            assert run(*words)[0] == 2
            assert len(counted()) == len(set(counted())), words


# --- what cannot be read so -----------------------------------------------------------------------------------------


def test_one_pipe_given_twice_is_two_systems_or_refused(world: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    with given("-", world / "captions.jsonl", ".jsonl") as path:
        code, out, err = run("score", f"a={path}", f"b={path}", *TRUTH, "--json", "-q")
        assert code == 0, err
        assert [system["n_captions"] for system in json.loads(out)["systems"]] == [N, N]
    with given("/dev/stdin", world / "captions.jsonl", ".jsonl") as path:
        code, _, err = run("score", path, "--truth", path)
        assert code == 2
        assert "can be read only once" in err or "not a valid truth" in err
