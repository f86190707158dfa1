"""``annotate`` with real components: a judge that reads pixels behind a real server, kills, bad judges, bad input."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import pytest

pytest.importorskip("aiohttp")
Image = pytest.importorskip("PIL.Image")

from scapo_eval import PresenceOracle, Vocabulary  # noqa: E402
from scapo_eval.annotate.store import CellProvenance, Store  # noqa: E402
from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_eval.cli.main import main  # noqa: E402

Start = Callable[..., str]


class Said(NamedTuple):
    """Output of a command."""

    stdout: str
    stderr: str


Cli = Callable[..., Said]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs ``scapo-eval`` in this process (a separate process costs a second), and checks that it ends with
    ``code``.
    """

    def run(*arguments: object, code: int = 0) -> Said:
        monkeypatch.setattr(sys, "argv", ["scapo-eval", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = Said(*capsys.readouterr())
        assert (end.value.code or 0) == code, said.stderr
        return said

    return run


def process(*arguments: object) -> subprocess.Popen[str]:
    """Starts ``scapo-eval`` as a process that can be killed."""
    command = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)


def draw(folder: Path, number: int) -> Path:
    """Draws small, different pictures 1.png, 2.png..."""
    folder.mkdir()
    for k in range(1, number + 1):
        Image.new("RGB", (8, 8), (k % 256, 7 * k % 256, 0)).save(folder / f"{k}.png")
    return folder


def stats(url: str) -> dict:
    """Returns the counts of the loopback server."""
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as reply:
        return json.loads(reply.read())


def test_people_check_the_judge_is_asked_again_and_the_card_tells_both(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, run, url = draw(tmp_path / "images", 12), tmp_path / "run", start()
    asking = ("--model", "verdicts", "--base-url", url, "-q")
    cli("annotate", "coarse", folder, "-o", run, "--vocabulary", "coco80", *asking)
    store = Store.open(run)
    before = store.matrix.copy()

    def round_of(wrong: set[str]) -> None:
        """Makes a round in which a person contradicts the judge on some labels, and confirms all others."""
        cli("annotate", "qc", "draw", run, "--random", 2, "--present", 1, "--at-least", 1)
        rows = list(csv.DictReader(cli("annotate", "qc", "export", run, "-o", "-").stdout.splitlines()))
        now = Store.open(run)
        with open(tmp_path / "answers.csv", "w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("image_id", "label", "verdict"))
            for row in rows:
                cell = now.image_ids.index(row["image_id"]), now.vocabulary.label_ids[row["label"]]
                said = bool(now.matrix[cell]) != (row["label"] in wrong)
                writer.writerow((row["image_id"], row["label"], "yes" if said else "no"))
        cli("annotate", "qc", "import", run, tmp_path / "answers.csv", "--by", "Ada")
        cli("annotate", "qc", "close", run)

    round_of({"fork", "knife"})
    store = Store.open(run)
    people = np.argwhere(store.matrix != before).tolist()
    assert {store.labels[column] for _, column in people} == {"fork", "knife"}
    cli("annotate", "refine", run, "--joint", "knife,fork", *asking)
    store = Store.open(run)
    assert all(store.provenance_of(row, column).judge == "Ada" for row, column in people)  # type: ignore[union-attr]
    asked_again = [source for source in store.provenances if source.kind == "joint"]
    assert [source.round for source in asked_again] == [1]
    cli("annotate", "finalize", run, "-o", tmp_path / "m.npz", "--license", "CC0-1.0")
    card = orjson.loads((tmp_path / "m.npz.card.json").read_bytes())
    assert card["people"].keys() == {"Ada"}
    assert [each.partition("@")[0] for each in card["judges"]] == ["verdicts"]
    assert card["cells"]["by_kind"]["human"] == card["people"]["Ada"]
    quality = card["quality_control"]
    assert len(quality["rounds"]) == 1
    assert quality["overall"] is None  # the judge has been asked again since: what the round bounded is gone
    assert set(quality["stale"]) <= {"fork", "knife"}
    assert "Ada" in (tmp_path / "m.npz.card.md").read_text()


def test_probabilities_of_every_cell_reach_the_matrix_and_a_kill_loses_none(
    cli: Cli, start: Start, tmp_path: Path
) -> None:
    folder, run, url = draw(tmp_path / "images", 12), tmp_path / "run", start()
    asking = ("--vocabulary", "coco80", "--model", "probabilities", "--probability", "--base-url", url, "-q")
    cli("annotate", "coarse", folder, "-o", run, *asking, code=4)
    store = Store.open(run)
    open_cells = store.matrix == -1
    assert stats(url)["distinct"] == stats(url)["requests"] == 12 * 80  # what gives no verdict is not asked again
    assert 20 < open_cells.sum() < 120
    assert (run / "unread.jsonl").read_bytes().count(b"\n") == open_cells.sum()
    p = store.probabilities
    assert (np.isnan(p) == open_cells).all()
    assert ((p >= 0.5) == (store.matrix == 1)).all()
    assert len(np.unique(p[~open_cells])) > 100

    slow, killed = start("--delay", "0.02"), tmp_path / "killed"
    again = ("annotate", "coarse", folder, "-o", killed, *asking[:-2], slow, "--concurrency", 4, "-q")
    running = process(*again)
    journal = killed / "answers.journal"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 300:
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    cli(*again, code=4)
    assert np.array_equal(Store.open(killed).probabilities, p, equal_nan=True)
    assert stats(slow)["requests"] < 12 * 80 + 8  # at most what was in flight

    cli("annotate", "finalize", run, "-o", tmp_path / "m.npz", code=2)
    for name in ("m.npz", "m.parquet"):
        finalize = ("annotate", "finalize", run, "-o", tmp_path / name, "--allow-unknown", "--license", "CC0-1.0")
        cli(*finalize, "--absent-below", 0.25, "--present-from", 0.75)
        found = PresenceOracle.load(tmp_path / name)
        expected = np.where(open_cells, -1, np.where(p >= 0.75, 1, np.where(p < 0.25, 0, -1)))
        assert (found.matrix() == expected).all()
        assert np.array_equal(found.probabilities, p, equal_nan=True)
        assert (found.decided(0.5, 0.5).matrix() == store.matrix).all()
        card = orjson.loads((tmp_path / f"{name}.card.json").read_bytes())["probabilities"]
        assert card["cells"] == sum(card["by_tenth"]) == (~open_cells).sum()
        assert card["between"] == ((p >= 0.25) & (p < 0.75)).sum()
        assert "absent below 0.25, present from 0.75" in (tmp_path / f"{name}.card.md").read_text()
    cli(*finalize, "--absent-below", 0.8, code=2)


def test_a_person_s_verdict_and_one_in_words_have_no_probability(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, run, url = draw(tmp_path / "images", 4), tmp_path / "run", start()
    cli(
        "annotate", "coarse", folder, "-o", run, "--vocabulary", "coco80", "--model", "probabilities", "--probability",
        "--base-url", url, "-q", code=4,
    )  # fmt: skip
    before = Store.open(run).probabilities
    cli("annotate", "refine", run, "--labels", "dog", "--model", "verdicts", "--base-url", url, "-q", code=4)
    after = Store.open(run)
    dog = after.vocabulary.label_ids["dog"]
    assert np.isnan(after.probabilities[:, dog]).all()
    others = np.arange(80) != dog
    assert np.array_equal(after.probabilities[:, others], before[:, others], equal_nan=True)
    with Store.open(run, write=True) as store:
        store.write([0], [0], [1], CellProvenance("human", "", "Ada"))
        assert np.isnan(store.probabilities[0, 0])
    (run / "probabilities.log").write_bytes((run / "probabilities.log").read_bytes() + b"half")
    assert np.array_equal(Store.open(run).probabilities[1:], after.probabilities[1:], equal_nan=True)
    (run / "probabilities.log").write_bytes(b"\xff" * 14)
    with pytest.raises(InputError, match="a probability refers to row 4294967295"):
        Store.open(run)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--labels-per-call", 2), "a one-word answer about one label per call"),
        (("--prompts", "paper"), "a one-word answer about one label per call"),
        (("--prompt", "json.txt"), "one label with a one-word answer, yes or no"),
        (("--model", "plain"), "returns no token probabilities (the reply has no 'top_logprobs')"),
        (("--model", "no-logprobs"), "returns no token probabilities (HTTP 400: logprobs are not supported"),
    ],
)
def test_what_gives_no_probability_is_said_at_once(
    cli: Cli, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.txt").write_text('Is there a {object}, yes or no? Say {"present": true} or {"present": false}')
    model = () if "--model" in more else ("--model", "probabilities")
    asking = ("--vocabulary", "coco80", *model, "--base-url", start(), "-q", *more)
    got = cli("annotate", "coarse", draw(tmp_path / "images", 2), "-o", "run", "--probability", *asking, code=2)
    assert said in got.stderr
    assert "Traceback" not in got.stderr


def test_statistics_are_the_papers_tables_5_and_6(cli: Cli, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load("dopa160")
    frequency = [50] * 76 + [250] * 59 + [700] * 11 + [1964] * 13 + [1968]
    matrix = np.zeros((5000, 160), dtype=np.int8)
    for column, number in enumerate(frequency):
        matrix[np.random.default_rng(column).permutation(5000)[:number], column] = 1
    truth = tmp_path / "dopa.npz"
    PresenceOracle.from_matrix(
        matrix, [str(k) for k in range(5000)], vocabulary.labels, vocabulary_fingerprint=vocabulary.fingerprint
    ).save(truth)
    found = orjson.loads(cli("oracle", "stats", truth, "--json").stdout)
    assert (found["images"], found["labels"], found["aliases"]) == (5000, 160, 894)
    assert f"{found['aliases_per_label']:.2f}" == "5.59"
    assert f"{found['positives_per_image']:.2f}" == "10.75"
    assert found["label_frequency_classes"] == {"<100": 76, "100-499": 59, "500-999": 11, ">=1000": 14}
    shown = cli("oracle", "stats", truth).stdout
    for line in ("5.59", "10.75", "47.5%", "36.9%", "6.9%", "8.8%", "100.0%"):
        assert line in shown


def test_a_killed_run_ends_with_the_matrix_of_an_undisturbed_one(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder = draw(tmp_path / "images", 40)

    def command(url: str, run: Path) -> list[object]:
        return [
            "annotate", "coarse", folder, "-o", run, "--vocabulary", "coco80", "--model", "verdicts", "--base-url", url,
            "--concurrency", 32, "-q",
        ]  # fmt: skip

    clean, killed = tmp_path / "clean", tmp_path / "killed"
    cli(*command(start(), clean))
    cli("annotate", "finalize", clean, "-o", tmp_path / "clean.npz")

    url = start("--delay", "0.05")
    journal = killed / "answers.journal"
    for answers in (20, 700, 1500):  # in the first block, and in the next
        running = process(*command(url, killed))
        while not journal.exists() or journal.read_bytes().count(b"\n") < answers:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
    kept = journal.read_bytes().count(b"\n")
    assert 1500 <= kept < 3200
    with open(journal, "ab") as stream:
        stream.write(b'{"key":"half a li')
    (log,) = killed.glob("verdicts.*.log")
    with open(log, "ab") as stream:
        stream.write(b"half")
    refused = cli("annotate", "finalize", killed, "-o", tmp_path / "killed.npz", code=2)
    assert "cells are open" in refused.stderr
    cli(*command(url, killed))
    cli("annotate", "finalize", killed, "-o", tmp_path / "killed.npz")
    assert (tmp_path / "killed.npz").read_bytes() == (tmp_path / "clean.npz").read_bytes()
    counted = stats(url)
    assert counted["distinct"] == 3200
    assert counted["repeated"] <= 3 * 32  # only what was in flight is asked again
    lines = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
    assert len(lines) == len({line["key"] for line in lines}) == 3200
    url = "http://127.0.0.1:9/v1"
    cli(*command(url, killed))  # nothing is left to ask: no server is needed


def test_two_processes_on_one_run(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, run, url = draw(tmp_path / "images", 10), tmp_path / "run", start("--hold")
    arguments = [
        "annotate",
        "coarse",
        folder,
        "-o",
        run,
        "--vocabulary",
        "coco80",
        "--model",
        "verdicts",
        "--base-url",
        url,
    ]
    first = process(*arguments, "--concurrency", 80, "-q")
    while not (run / "answers.journal").exists():
        time.sleep(0.02)
    second = cli(*arguments, code=2)
    assert f"process {first.pid} is writing this run; wait for it, or stop it" in second.stderr
    cli("annotate", "status", run)  # reading is free
    assert first.poll() is None
    urllib.request.urlopen(url.replace("/v1", "/release")).close()
    assert first.wait(600) == 0
    cli("annotate", "finalize", run, "-o", tmp_path / "m.npz")


def test_a_mumbling_judge_is_counted_listed_and_refused(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, run, url = draw(tmp_path / "images", 6), tmp_path / "run", start()
    asked = ("annotate", "coarse", folder, "-o", run, "--vocabulary", "coco80", "--base-url", url)
    done = cli(*asked, "--model", "mumbling-verdicts", code=4)
    listed = [orjson.loads(line) for line in (run / "unread.jsonl").read_bytes().splitlines()]
    assert f"{len(listed)} without a readable verdict" in done.stderr
    assert "repeated because they were unreadable" in done.stderr
    store = Store.open(run)
    assert {(row["image_id"], row["label"]) for row in listed} == {
        (store.image_ids[row], store.labels[column]) for row, column in store.open_cells().tolist()
    }
    assert 0.05 * store.matrix.size < len(listed) < 0.25 * store.matrix.size  # half of all answers, three times over
    assert "" in {row["answer"] for row in listed}
    refused = cli("annotate", "finalize", run, "-o", tmp_path / "m.npz", code=2)
    assert f"{len(listed)} cells are open" in refused.stderr
    assert not (tmp_path / "m.npz").exists()
    cli("annotate", "finalize", run, "-o", tmp_path / "m.npz", "--allow-unknown")
    assert PresenceOracle.load(tmp_path / "m.npz").world == "total"
    other_seed = cli(*asked, "--model", "mumbling-verdicts", "--seed", 10, code=4)
    assert len(Store.open(run).open_cells()) < 0.3 * len(listed)
    assert "warning" not in other_seed.stderr
    finished = cli(*asked, "--model", "verdicts")
    assert "this run has coarse verdicts of mumbling-verdicts@" in finished.stderr
    assert (run / "unread.jsonl").read_bytes() == b""


def test_several_labels_per_call_are_cheaper_and_measured_against_one(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, url = draw(tmp_path / "images", 5), start()
    asked = ("annotate", "coarse", folder, "--vocabulary", "coco80", "--model", "verdicts", "--base-url", url)
    prices = ("--price-in", "0.5", "--price-out", "2")
    one = cli(*asked, "-o", tmp_path / "one", *prices, "--forecast")
    assert "400 calls to make" in one.stderr
    assert "64 of 400 calls" in one.stderr
    assert "tokens per call" in one.stderr
    assert "cost 0.0" in one.stderr
    assert stats(url)["requests"] == 64
    cli(*asked, "-o", tmp_path / "one", *prices)
    assert stats(url)["requests"] == 400
    many = cli(*asked, "-o", tmp_path / "many", "--labels-per-call", 9)
    assert "45 calls to make" in many.stderr
    found = orjson.loads(cli("annotate", "compare", tmp_path / "many", tmp_path / "one", "--json").stdout)
    first, second = (Store.open(tmp_path / name).matrix for name in ("many", "one"))
    assert found["cells"] == 400
    assert found["differ"] == int((first != second).sum())
    assert found["shares"]["disagreement"]["value"] == found["differ"] / 400
    assert cli("annotate", "compare", tmp_path / "many", tmp_path / "one").stdout.startswith("share\tvalue")


def test_disjointness_across_the_splits(cli: Cli, tmp_path: Path) -> None:
    train, evaluation = tmp_path / "train.jsonl", tmp_path / "eval.json"
    train.write_text(
        '{"image_id": "000000000042", "image": "train2017/000000000042.jpg"}\n{"image_id": 7, "image": "7.jpg"}\n'
    )
    evaluation.write_bytes(
        orjson.dumps({"COCO_val2014_000000000042.jpg": ["dog"], "COCO_val2014_000000000043.jpg": []})
    )
    done = cli("oracle", "overlap", train, evaluation, code=2)
    assert "1 shared images (42)" in done.stdout
    found = orjson.loads(cli("oracle", "overlap", train, evaluation, "--json", code=2).stdout)
    assert found["evaluation"] == [{"source": str(evaluation), "images": 2, "shared": 1, "shared_ids": ["42"]}]
    evaluation.write_bytes(orjson.dumps({"COCO_val2014_000000000043.jpg": []}))
    assert "disjoint" in cli("oracle", "overlap", train, evaluation).stdout


def test_what_users_get_wrong(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, run, url = draw(tmp_path / "images", 2), tmp_path / "run", start()
    asked = ("annotate", "coarse", folder, "-o", run, "--model", "verdicts", "--base-url", url)
    assert "unknown vocabulary 'coco'" in cli(*asked, "--vocabulary", "coco", code=2).stderr
    assert "choose another folder" in cli(*asked, "--restart", code=2).stderr
    assert "annotation run not found" in cli("annotate", "status", folder, code=2).stderr
    cli(*asked, "--vocabulary", "coco80")
    assert "labels or aliases have changed" in cli(*asked, "--vocabulary", "dopa160", code=2).stderr
    assert "other images" in cli(*asked, "--vocabulary", "coco80", "--limit", 1, code=2).stderr
    refine = ("annotate", "refine", run, "--model", "verdicts", "--base-url", url)
    assert "nothing to ask" in cli(*refine, code=2).stderr
    assert "unknown label 'sofa'" in cli(*refine, "--labels", "sofa", code=2).stderr
    assert "expected --prompt LABEL=FILE" in cli(*refine, "--prompt", "book", code=2).stderr
    assert "file not found" in cli(*refine, "--prompt", "book=none.txt", code=2).stderr
    assert "at least two labels" in cli(*refine, "--joint", "fork", code=2).stderr
    assert "unknown image id '77'" in cli("annotate", "history", run, 77, "dog", code=2).stderr
    assert "unknown label 'sofa'" in cli("annotate", "history", run, 1, "sofa", code=2).stderr
    strangers = tmp_path / "captions.jsonl"
    strangers.write_text('{"image_id": 99, "caption": "A dog."}\n')
    assert "rollouts of the images of" in cli("annotate", "mine", run, strangers, code=2).stderr
    assert (
        f"{folder}: cannot draw 5 images"
        in cli("annotate", "sample", folder, "-n", 5, "-o", tmp_path / "s.jsonl", code=2).stderr
    )
    prompt = tmp_path / "coarse.txt"
    prompt.write_text("Entity: {object}\nDo not count a subtype.")
    elsewhere = (tmp_path / "own" if word == run else word for word in asked)
    warned = cli(*elsewhere, "--vocabulary", "dopa160", "--prompt", prompt, "--forecast")
    assert "labels have aliases that their prompt does not count (" in warned.stderr
    prompt.write_text("Is it there?")
    assert "does not contain the label" in cli(*asked, "--vocabulary", "coco80", "--prompt", prompt, code=2).stderr
    (tmp_path / "chair.txt").write_text("Count a chair. Do not count stools.")
    linted = cli("annotate", "lint", "--prompt", f"chair={tmp_path / 'chair.txt'}", code=2)
    assert "chair: excluded: stool, stools: counts as the label in captions, but not in the prompt" in linted.stdout
