"""``scapo-eval`` as users run it: its output, its files, its exit codes, and every kind of bad input."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from scapo_eval import PresenceOracle, Vocabulary, score_captions

LABELS = ["dog", "cat", "car", "bus", "tree", "couch"]
pytestmark = pytest.mark.usefixtures("warm")
COMMAND = [sys.executable, "-m", "scapo_eval.cli.main"]


def run(
    *arguments: object, cwd: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["scapo-eval", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=600,
        env={**os.environ, **(environment or {})},
    )


def lines_of(records: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def some_captions(seed: int, n: int = 120, images: int = 40) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "image_id": 1 + k % images,
            "caption": "a " + " and a ".join(rng.choices([*LABELS, "house", "dog"], k=rng.randrange(1, 6))),
        }
        for k in range(n)
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a vocabulary, a ground truth of 40 images, and the captions of three systems."""
    folder = tmp_path_factory.mktemp("world")
    rng = random.Random(0)
    objects = {str(k): rng.sample(LABELS[:5], rng.randrange(1, 4)) for k in range(1, 41)}
    (folder / "v.yaml").write_text(
        json.dumps({"name": "mini", "labels": {label: [label, f"{label}s"] for label in LABELS}})
    )
    (folder / "truth.json").write_text(json.dumps({"objects": objects, "labels": LABELS[:5]}))
    for seed, name in enumerate(("a", "b", "c")):
        (folder / f"{name}.jsonl").write_bytes(lines_of(some_captions(seed)))
    return folder


OPTIONS = ("--truth", "truth.json", "--vocabulary", "v.yaml")


def refused(done: subprocess.CompletedProcess[bytes], *words: str, code: int = 2) -> str:
    """Returns the standard error for rejected input, and checks that there is no traceback and no standard output."""
    message = done.stderr.decode(errors="surrogateescape")
    assert done.returncode == code, message
    assert "Traceback" not in message
    assert done.stdout == b""
    for word in words:
        assert word in message
    return message


# ---- what is printed ----


def test_json_has_the_shape_of_the_specification(world: Path) -> None:
    done = run("a.jsonl", "b.jsonl", *OPTIONS, "--json", cwd=world)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"systems", "comparisons", "verdicts"}
    for system, name in zip(found["systems"], "ab", strict=True):
        assert {"name", "signature", "n_captions", "n_images", "metrics", "counts"} <= set(system)
        assert (system["name"], system["n_captions"], system["n_images"]) == (name, 120, 40)
        assert {"hal_rate", "cover_rate", "cap_score", "chair_i", "chair_s"} <= set(system["metrics"])
        for figure in system["metrics"].values():
            assert set(figure) == {"value", "ci_low", "ci_high"}
            assert 0 <= figure["ci_low"] <= figure["value"] <= figure["ci_high"] <= 1
        assert {
            "generated", "hallucinated", "covered", "truth", "mentions", "hallucinated_mentions",
            "hallucinated_captions", "unknown",
        } <= set(system["counts"])  # fmt: skip
        assert all(type(value) is int for value in system["counts"].values())
        assert system["counts"]["unknown"] > 0  # couches, outside the axis
    assert [row["metric"] for row in found["comparisons"]] == list(found["systems"][0]["metrics"])
    for row in found["comparisons"]:
        assert set(row) == {
            "system",
            "baseline",
            "metric",
            "system_value",
            "baseline_value",
            "difference",
            "ci_low",
            "ci_high",
            "p_holm",
            "p_value",
            "test",
            "n_images",
            "n_differing",
            "standard_error",
            "detectable",
        }
        assert (row["system"], row["baseline"], row["n_images"]) == ("b", "a", 40)
        assert 0 < row["p_value"] <= 1


def test_figures_are_those_of_the_library_unrounded(world: Path) -> None:
    found = json.loads(run("score", "a.jsonl", *OPTIONS, "--json", cwd=world).stdout)["systems"][0]
    scores = score_captions(
        some_captions(0), Vocabulary.load(world / "v.yaml"), PresenceOracle.load(world / "truth.json")
    )
    assert {name: figure["value"] for name, figure in found["metrics"].items()} == dict(scores.values)
    assert {name: figure["ci_low"] for name, figure in found["metrics"].items()} == {
        name: metric.low for name, metric in scores.metrics.items()
    }
    assert found["signature"] == str(scores.signature)
    counts = found["counts"]
    assert counts == counts | scores.counts
    assert found["metrics"]["hal_rate"]["value"] == counts["hallucinated"] / counts["generated"]


def test_score_is_the_default_verb(world: Path) -> None:
    assert run("a.jsonl", *OPTIONS, cwd=world).stdout == run("score", "a.jsonl", *OPTIONS, cwd=world).stdout != b""


def test_piped_output_is_plain_tsv(world: Path) -> None:
    done = run("a.jsonl", "b.jsonl", *OPTIONS, cwd=world, environment={"COLUMNS": "40"})
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert rows[0][:5] == ["system", "metric", "value", "ci_low", "ci_high"]
    assert {len(row) for row in rows} == {18}
    assert [row[:2] for row in rows[1:6]] == [
        ["a", m] for m in ("hal_rate", "cover_rate", "cap_score", "chair_i", "chair_s")
    ]
    exact = json.loads(run("a.jsonl", *OPTIONS, "--json", cwd=world).stdout)["systems"][0]["metrics"]
    assert [row[2] for row in rows[1:6]] == [f"{100 * figure['value']:.1f}" for figure in exact.values()]
    assert b"\x1b" not in done.stdout
    assert "…" not in done.stdout.decode()


def test_the_same_run_gives_the_same_bytes(world: Path, tmp_path: Path) -> None:
    runs = []
    for seed in ("0", "1"):
        done = run(
            "a.jsonl",
            "b.jsonl",
            *OPTIONS,
            "--json",
            "-o",
            tmp_path / f"{seed}.json",
            cwd=world,
            environment={"PYTHONHASHSEED": seed},
        )
        runs.append((done.returncode, done.stdout, done.stderr, (tmp_path / f"{seed}.json").read_bytes()))
    assert runs[0] == runs[1]
    assert runs[0][0] == 0


def test_two_workers_equal_one(world: Path, tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_bytes(lines_of(some_captions(7, n=60_000)))  # about four blocks
    runs = []
    for workers in (1, 2):
        evidence = tmp_path / f"{workers}.jsonl"
        done = run(
            tmp_path / "long.jsonl", "--truth", world / "truth.json", "--vocabulary", world / "v.yaml", "--json",
            "--workers", workers, "--per-caption", evidence, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        runs.append((done.stdout, evidence.read_bytes()))
    assert runs[0] == runs[1]
    assert runs[0][1].count(b"\n") == 60_000


def test_per_caption_evidence(world: Path, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(
        lines_of(
            [
                {
                    "image_id": "COCO_val2014_000000000001.jpg",
                    "caption": "Two DOGS,\ncaf\u00e9 dogs and a couch",
                    "id": "x",
                },
                {"image_id": 1, "caption": "\ud800 nothing"},
            ]
        )
    )
    truth = tmp_path / "t.json"
    truth.write_text(json.dumps({"objects": {"1": ["cat", "dog"]}, "labels": LABELS[:5]}))
    done = run(
        "c.jsonl", "--truth", truth, "--vocabulary", world / "v.yaml", "--per-caption", "e.jsonl.gz", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in gzip.decompress((tmp_path / "e.jsonl.gz").read_bytes()).splitlines())
    assert (first["line"], first["image_id"], first["id"]) == (1, "1", "x")
    assert [(m["label"], m["verdict"], first["caption"][m["start"] : m["end"]]) for m in first["mentions"]] == [
        ("dog", "supported", "DOGS"),
        ("dog", "supported", "dogs"),
        ("couch", "unknown", "couch"),
    ]
    assert first["missed"] == ["cat"]
    assert first["counts"]["generated"] == 1
    assert second["caption"] == "\ud800 nothing"
    assert second["mentions"] == []
    assert second["missed"] == ["dog", "cat"]


def test_three_systems_are_compared_with_the_first(world: Path) -> None:
    found = json.loads(run("a.jsonl", "b.jsonl", "c.jsonl", *OPTIONS, "--json", cwd=world).stdout)
    assert [system["name"] for system in found["systems"]] == ["a", "b", "c"]
    assert {(row["system"], row["baseline"]) for row in found["comparisons"]} == {("b", "a"), ("c", "a")}
    assert all(row["p_holm"] >= row["p_value"] for row in found["comparisons"])


def test_systems_on_different_images(world: Path, tmp_path: Path) -> None:
    few = [record for record in some_captions(1) if record["image_id"] <= 29]
    (tmp_path / "few.jsonl").write_bytes(lines_of(few))
    found = json.loads(run("a.jsonl", tmp_path / "few.jsonl", *OPTIONS, "--json", cwd=world).stdout)
    for row in found["comparisons"]:
        assert (row["n_images"], row["p_value"], row["test"]) == (29, None, None)
        assert row["difference"] is None  # 29 of 60 images say nothing about the systems' own values


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        (("--fail-under", "cap_score=0.01"), 0),
        (("--fail-under", "cap_score=0.99"), 3),
        (("--fail-above", "hal_rate=0.01"), 3),
        (("--fail-above", "hal_rate=0.99", "--fail-under", "cover_rate=0.01"), 0),
        (("--fail-under", "cap_score=0.01", "--fail-above", "chair_s=0.01"), 3),
    ],
)
def test_gates(world: Path, gate: tuple[str, ...], code: int) -> None:
    done = run("a.jsonl", *OPTIONS, *gate, cwd=world)
    assert done.returncode == code
    assert done.stdout.startswith(b"system\t")  # the figures are printed either way
    assert (b"gate missed" in done.stderr) == (code == 3)


def test_a_figure_without_value_misses_its_gate(world: Path, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines_of([{"image_id": 1, "caption": "a house"}]))
    done = run(tmp_path / "c.jsonl", *OPTIONS, "--fail-above", "hal_rate=0.5", "--json", cwd=world)
    assert done.returncode == 3
    assert b"has no value" in done.stderr
    assert json.loads(done.stdout)["systems"][0]["metrics"]["hal_rate"] == {
        "value": None,
        "ci_low": None,
        "ci_high": None,
    }
    assert b"n/a" in run(tmp_path / "c.jsonl", *OPTIONS, cwd=world).stdout


def test_warnings_are_one_line_on_standard_error(world: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"1": ["dog", "couchs", "zebra"]}))
    (tmp_path / "c.jsonl").write_bytes(lines_of([{"image_id": 1, "caption": "a dog"}]))
    arguments = ("c.jsonl", "--truth", "t.json", "--vocabulary", world / "v.yaml")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    warnings = done.stderr.decode().splitlines()
    assert len([line for line in warnings if "are ignored" in line]) == 1
    assert "did you mean 'couch' for 'couchs'" in done.stderr.decode()
    assert run(*arguments, "-q", cwd=tmp_path).stderr == b""


# ---- what must be read ----


def test_standard_input_compressed_or_not(world: Path) -> None:
    data = (world / "a.jsonl").read_bytes()
    expected = json.loads(run("a.jsonl", *OPTIONS, "--json", cwd=world).stdout)["systems"][0]["metrics"]
    for packed in (data, gzip.compress(data), zstandard.compress(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))):
        done = run("-", *OPTIONS, "--json", cwd=world, stdin=packed)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["systems"][0]["metrics"] == expected


def test_strange_captions_are_read(world: Path, tmp_path: Path) -> None:
    records = [
        {"image_id": 1, "caption": "a\0dog \ud800 [/] [red]caf\u00e9[/red] \U0001f436"},
        {"image_id": "000000000001", "caption": ""},
        {
            "image_id": "1.jpg",
            "caption": "\n",
            "id": "1",
            "image": "x",
            "prompt": "p",
            "model": "m",
            "sample": 3,
            "meta": {},
        },
    ]
    (tmp_path / "[red]x[b].json").write_bytes(json.dumps(records, indent=1).encode())
    done = run(tmp_path / "[red]x[b].json", *OPTIONS, "--json", cwd=world)
    assert done.returncode == 0, done.stderr
    (system,) = json.loads(done.stdout)["systems"]
    assert (system["n_captions"], system["n_images"], system["counts"]["mentions"]) == (3, 1, 1)
    table = run(tmp_path / "[red]x[b].json", *OPTIONS, "--width", 100, cwd=world)
    assert table.returncode == 0
    assert b"[red]x[b]" in table.stdout


def test_inline_objects(world: Path, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(
        lines_of([{"image_id": 1, "caption": "a dog, a cat", "objects": ["dog", "car"]}])
    )
    counts = json.loads(run(tmp_path / "c.jsonl", "--vocabulary", "v.yaml", "--json", cwd=world).stdout)["systems"][0][
        "counts"
    ]
    assert (counts["covered"], counts["hallucinated"], counts["truth"]) == (1, 1, 2)


# ---- bad input ----

REMEDY = "to omit faulty records: --on-bad-record skip (in Python: skip_bad=True)"
GOOD = b'{"image_id": 1, "caption": "a dog"}\n'
BAD: dict[str, tuple[bytes, str]] = {
    "broken json": (GOOD + b'{"image_id": 1, "capt\n', "bad.jsonl:2: not valid JSON"),
    "no object": (GOOD + b"[1]\n", "bad.jsonl:2: expected a JSON object, found an array"),
    "missing caption": (GOOD + b'{"image_id": 1}\n', "bad.jsonl:2: missing key 'caption' (found: image_id)"),
    "missing image_id": (b'{"caption": "x"}\n' + GOOD, "bad.jsonl:1: missing key 'image_id' (found: caption)"),
    "wrong caption": (b'{"image_id": 1, "caption": null}\n', "bad.jsonl:1: 'caption' must be a string, found null"),
    "wrong id": (b'{"image_id": [1], "caption": ""}\n', "bad.jsonl:1: 'image_id' must be a number or a string"),
    "empty": (b"", "bad.jsonl: the file contains no record"),
    "blank lines": (b"\n  \n\r\n", "bad.jsonl: the file contains no record"),
    "empty array": (b"[]", "bad.jsonl: the file contains no record"),
    "utf-16": (GOOD.decode().encode("utf-16"), "bad.jsonl:1: is UTF-16"),
    "utf-16 without mark": (GOOD.decode().encode("utf-16-le"), "bad.jsonl:1: is UTF-16"),
    "latin-1": (GOOD + b'{"image_id": 1, "caption": "caf\xe9"}\n', "bad.jsonl:2: not UTF-8"),
    "nan id": (b'{"image_id": NaN, "caption": "x"}\n', "bad.jsonl:1: not valid JSON: NaN is not JSON"),
    "nan text": (GOOD + b'{"image_id": 1, "caption": NaN}\n', "bad.jsonl:2: not valid JSON: NaN is not JSON"),
    "duplicate id": (b'{"id": 5, "image_id": 1, "caption": ""}\n' * 2, "bad.jsonl:2: the same id appears twice"),
    "unknown image": (
        GOOD + b'{"image_id": 999, "caption": "x"}\n',
        "bad.jsonl:2: unknown image id '999' (not in truth.json)",
    ),
    "cut gz": (gzip.compress(GOOD * 100)[:-10], "bad.jsonl: damaged or truncated compressed file"),
    "cut zst": (zstandard.compress(GOOD * 100)[:-10], "bad.jsonl: damaged or truncated compressed file"),
    "long line": (GOOD + b'{"caption": "' + b"x" * 50_000_000 + b'"}', "bad.jsonl:2: a line of more than 16 MiB"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_captions(world: Path, tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    for file in ("truth.json", "v.yaml"):
        (tmp_path / file).write_bytes((world / file).read_bytes())
    (tmp_path / "bad.jsonl").write_bytes(content)
    (tmp_path / "e.jsonl").write_bytes(b"old evidence")
    done = run("bad.jsonl", *OPTIONS, "--per-caption", "e.jsonl", "-o", "results.json", cwd=tmp_path)
    refused(done, message)
    assert (tmp_path / "e.jsonl").read_bytes() == b"old evidence"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.jsonl", "e.jsonl", "truth.json", "v.yaml"]


def test_twenty_different_faults_are_shown_in_order_and_all_counted(world: Path, tmp_path: Path) -> None:
    faults = [b'{"image_id": 999, "caption": "x"}\n', b"{}\n", b"xx\n"]
    (tmp_path / "bad.jsonl").write_bytes(GOOD + b"".join(faults[k % 3] for k in range(50)))
    for workers in (1, 2):
        done = run(tmp_path / "bad.jsonl", *OPTIONS, "--workers", workers, cwd=world)
        *shown, remedy = refused(done).splitlines()
        assert remedy == REMEDY
        assert [line.split(":")[1] for line in shown] == ["2", "3", "4"]  # each kind once, with its count
        assert [line.rpartition(" (")[2] for line in shown] == [
            "17 records, lines 2-50)", "17 records, lines 3-51)", "16 records, lines 4-49)",
        ]  # fmt: skip
    lines = b"".join(b'{"image_id": -%d, "caption": "x"}\n' % k for k in range(1000, 1050))
    (tmp_path / "bad.jsonl").write_bytes(GOOD + lines)
    shown = refused(run(tmp_path / "bad.jsonl", *OPTIONS, cwd=world)).splitlines()
    assert [line.split(":")[1] for line in shown[:20]] == [str(k) for k in range(2, 22)]
    assert shown[20:] == ["... and 30 more errors (50 in total)", REMEDY]


def test_bad_lines_can_be_skipped_and_are_counted_in_the_signature(world: Path, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(GOOD + b'xx\n{"image_id": 1}\n{"image_id": 999, "caption": "x"}\n')
    refused(run(tmp_path / "c.jsonl", *OPTIONS, "--on-unknown-image", "skip", cwd=world), "c.jsonl:2", "c.jsonl:3")
    done = run(
        tmp_path / "c.jsonl", *OPTIONS, "--on-bad-record", "skip", "--on-unknown-image", "skip", "--json", cwd=world
    )
    also = run(tmp_path / "c.jsonl", *OPTIONS, "--skip-bad", "--on-unknown-image=skip", "--json", cwd=world)
    assert also.stdout == done.stdout
    (system,) = json.loads(done.stdout)["systems"]
    assert system["n_captions"] == 1
    assert (system["counts"]["skipped"], system["counts"]["unknown_images"]) == (2, 1)
    assert "|skip:3|" in system["signature"]


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (b'{"1": ["zebra", "sofa"]}', "no label of this ground truth is in the vocabulary 'mini'"),
        (b'{"1": ["couchs"]}', "did you mean 'couch' for 'couchs'?"),
        (b"{}", "the ground truth has no images"),
        (b"", "the file is empty"),
        (b'{"1": ["dog"', "t:1: not valid JSON"),
        (b"PK\x03\x04" + bytes(50), "npz file"),
    ],
)
def test_bad_truths(world: Path, tmp_path: Path, truth: bytes, message: str) -> None:
    (tmp_path / "t").write_bytes(truth)
    refused(
        run("a.jsonl", "--truth", tmp_path / "t", "--vocabulary", "v.yaml", cwd=world), message, f"{tmp_path / 't'}"
    )


def test_bad_vocabularies(world: Path, tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text("labels: {dog: [dog, x], cat: [X, y], car: [Y, '']}")
    message = refused(run("a.jsonl", "--truth", "truth.json", "--vocabulary", tmp_path / "v.yaml", cwd=world))
    assert len(message.splitlines()) == 3
    assert message.count(str(tmp_path / "v.yaml")) == 3
    refused(
        run("a.jsonl", "--truth", "truth.json", "--vocabulary", "coco08", cwd=world),
        "unknown vocabulary 'coco08'",
        "coco80",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.jsonl", *OPTIONS), "none.jsonl: file not found"),
        ((".", *OPTIONS), "the files of one data set are of one kind"),
        (("a.jsonl", "--truth", ".", "--vocabulary", "v.yaml"), "the files of one data set are of one kind"),
        (("a.jsonl", "--truth", "none.json", "--vocabulary", "v.yaml"), "none.json: file not found"),
        (
            ("a.jsonl", "--vocabulary", "v.yaml"),
            "a.jsonl:1: missing ground truth: use --truth FILE (in Python truth=), or add 'objects' to every record",
        ),
        (("-", "--vocabulary", "v.yaml"), "<stdin>: the file contains no record"),
        (("scoer", *OPTIONS), "did you mean 'score'?"),
        (("a.jsonl", *OPTIONS, "--no-such-option"), "No such option"),
        (("a.jsonl", *OPTIONS, "--workers", "0"), "--workers"),
        (("a.jsonl", *OPTIONS, "--fail-under", "cap_score"), "expected METRIC=VALUE"),
        (("a.jsonl", "b.jsonl", *OPTIONS, "--per-caption", "x"), "--per-caption accepts only one caption file"),
        (("a.jsonl", *OPTIONS, "--per-caption", "no/such/folder/x"), "no/such/folder/x: cannot be written"),
        (("a.jsonl", *OPTIONS, "-o", "no/such/folder/x"), "no/such/folder/x: cannot be written"),
        (("a.jsonl", *OPTIONS, "--per-caption", "/dev/full"), "/dev/full: cannot be written: No space left"),
        (("a.jsonl", *OPTIONS, "-o", "/dev/full"), "/dev/full: cannot be written: No space left"),
    ],
)
def test_bad_arguments(world: Path, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(p.name for p in world.iterdir())
    refused(run(*arguments, cwd=world), message)
    assert sorted(p.name for p in world.iterdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(world: Path, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(GOOD)
    (tmp_path / "c.jsonl").chmod(0)
    refused(run(tmp_path / "c.jsonl", *OPTIONS, cwd=world), "no permission to read it")


# ---- output that cannot be taken, and interruption ----


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("extra", [(), ("--json",), ("--width", "80")])
def test_a_full_disk(world: Path, extra: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "a.jsonl", *OPTIONS, *extra], cwd=world, stdout=full, stderr=subprocess.PIPE, timeout=600
        )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1] == "scapo-eval: cannot write the output: No space left on device"
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def piped_to_a_reader_that_leaves(arguments: Sequence[object], cwd: Path) -> tuple[int, bytes]:
    """Returns exit code and standard error of a command whose standard output is closed after the first line."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    return process.wait(600), errors


def test_a_closed_pipe(world: Path) -> None:
    assert piped_to_a_reader_that_leaves(["a.jsonl", "b.jsonl", *OPTIONS, "-q"], world) == (0, b"")


def test_a_pipe_closed_in_the_middle_of_a_long_output(world: Path, tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_bytes(lines_of(some_captions(7, n=20_000)))
    assert piped_to_a_reader_that_leaves([tmp_path / "long.jsonl", *OPTIONS, "--per-caption", "-", "-q"], world) == (
        0,
        b"",
    )


def test_closed_standard_streams(world: Path) -> None:
    shell = "exec " + " ".join(f"'{part}'" for part in [*COMMAND, "%s", *OPTIONS])
    done = subprocess.run(["sh", "-c", shell % "-" + " <&-"], cwd=world, capture_output=True, timeout=600)
    refused(done, "<stdin>: standard input is closed")
    done = subprocess.run(["sh", "-c", shell % "a.jsonl" + " 2>&-"], cwd=world, capture_output=True, timeout=600)
    assert done.returncode == 0
    assert done.stdout.startswith(b"system\t")


def test_standard_output_that_is_closed(world: Path) -> None:
    shell = "exec " + " ".join(f"'{part}'" for part in [*COMMAND, "a.jsonl", *OPTIONS]) + " >&-"
    done = subprocess.run(["sh", "-c", shell], cwd=world, capture_output=True, timeout=600)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c(world: Path, tmp_path: Path, workers: int) -> None:
    """Sends the interrupt to the whole process group while the command waits for more input."""
    evidence = tmp_path / "e.jsonl"
    evidence.write_bytes(b"old")
    process = subprocess.Popen(
        [*COMMAND, "-", *OPTIONS, "--workers", str(workers), "--per-caption", evidence, "-o", tmp_path / "r.json"],
        cwd=world, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    for _ in range(8):  # eight blocks: returns once all but the pipe's own buffer has been read
        process.stdin.write(lines_of(some_captions(3, n=14_000)))
    process.stdin.flush()
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob(".e.jsonl.*.part")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert out == b""
    assert errors.decode().splitlines()[-1].startswith("scapo-eval: interrupted")
    assert b"Traceback" not in errors
    assert evidence.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["e.jsonl"]


def test_without_a_truth_a_faulty_line_is_still_named(world: Path) -> None:
    (world / "x.jsonl").write_text('{"x": 1}\n')
    done = subprocess.run([*COMMAND, "x.jsonl"], cwd=world, capture_output=True, timeout=600)
    assert done.returncode == 2
    assert b"x.jsonl:1: missing key 'image_id' (found: x)" in done.stderr
    assert b"Traceback" not in done.stderr
