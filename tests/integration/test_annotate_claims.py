"""``annotate`` with claims as cells: mined from captions, judged behind a real server, checked by people, exported."""

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

import numpy as np
import orjson
import pytest

pytest.importorskip("aiohttp")
Image = pytest.importorskip("PIL.Image")

from scapo_eval import ClaimExtractor, ClaimOracle, Scenes, Vocabulary  # noqa: E402
from scapo_eval.annotate.coarse import JudgedClaims  # noqa: E402
from scapo_eval.annotate.store import Store  # noqa: E402
from scapo_eval.claiming.claim import KINDS, asked_as  # noqa: E402
from scapo_eval.inference.sources import ImageFile  # noqa: E402

Run = Callable[..., tuple[int, str, str]]
Start = Callable[..., str]

TEXTS = (
    "Two dogs sit on a blue couch.",
    "A red horse and three brown dogs.",
    "A white bus next to a red car.",
    'A stop sign that reads "STOP". A dog on the left.',
)
"""The stand-in judge says no about what is blue, absent about horses, and yes otherwise."""
ZEBRA = "A red zebra."  # the stand-in judge can be read only from the fifth try on
VOCABULARY = Vocabulary.load("coco80")
IMAGES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with small pictures and the captions of two systems, which name each claim about an image twice."""
    (tmp_path / "images").mkdir()
    for k in range(1, IMAGES + 1):
        Image.new("RGB", (8, 8), (k, 7 * k, 0)).save(tmp_path / "images" / f"{k}.png")
    for name, shift in (("a", 0), ("b", 1)):
        records = [{"image_id": k, "caption": TEXTS[(k + shift) % 4]} for k in range(1, IMAGES + 1)]
        records += [{"image_id": k, "caption": TEXTS[k % 4]} for k in range(1, IMAGES + 1)]
        write(tmp_path / f"{name}.jsonl", records)
    return tmp_path


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def coarse(folder: Path, url: str, run: str = "run", model: str = "judge") -> list[object]:
    captions = ["--captions", folder / "a.jsonl", "--captions", folder / "b.jsonl"]
    asked = ["--vocabulary", "coco80", "--model", model, "--base-url", url]
    return ["annotate", "coarse", folder / "images", "-o", folder / run, *captions, *asked]


def said(image: int) -> set[tuple[str, ...]]:
    """The claims that the captions make about an image."""
    claims = ClaimExtractor(VOCABULARY, ("count", "attribute", "relation", "text")).find_batch(
        [TEXTS[image % 4], TEXTS[(image + 1) % 4]]
    )
    return {asked_as(claim) for of_one in claims for claim in of_one}


def expected(claim: tuple[str, ...]) -> int:
    """The state of a claim that the stand-in judge's answer gives."""
    return 0 if "blue" in claim[2] else -1 if "horse" in claim else 1


def stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as reply:
        found: dict[str, int] = json.loads(reply.read())
    return found


def check(run: Run, folder: Path, wrong: Callable[[dict[str, str]], bool], *options: object) -> list[dict[str, str]]:
    """Makes a round in which a person contradicts the judge on some claims. Returns its pairs."""
    assert run("annotate", "qc", "draw", folder / "run", *options)[0] == 0
    rows = list(csv.DictReader(run("annotate", "qc", "export", folder / "run", "-o", "-")[1].splitlines()))
    store = Store.open(folder / "run")
    answers = [{key: row[key] for key in ("image_id", "label", "claim")} for row in rows]
    for row, answer in zip(rows, answers, strict=True):
        cell = store.find(row)
        assert cell is not None
        answer["verdict"] = "yes" if bool(store.matrix[cell]) != wrong(row) else "no"
    given = write(folder / "answers.jsonl", [*answers])
    assert run("annotate", "qc", "import", folder / "run", given, "--by", "Ada")[0] == 0
    assert run("annotate", "qc", "close", folder / "run")[0] == 0
    return rows


def test_from_captions_to_a_claim_matrix_that_scores_and_rewards(run: Run, start: Start, folder: Path) -> None:
    url = start()
    code, _, told = run(*coarse(folder, url))
    number = sum(len(said(k)) for k in range(1, IMAGES + 1))
    assert code == 0, told
    assert f"{number} calls to make" in told
    assert stats(url)["distinct"] == stats(url)["requests"] == number  # each distinct claim of an image once
    store = Store.open(folder / "run")
    found = {(image, claim) for image, claim in zip(store.image_ids, store.claims, strict=True)}
    assert found == {(str(k), claim) for k in range(1, IMAGES + 1) for claim in said(k)}
    assert store.labels == ("count", "attribute", "relation", "text")
    states = store.matrix[store.cells].tolist()
    assert states == [expected(claim) for claim in store.claims]
    assert (store.matrix[~store.cells] == -1).all()
    assert not len(store.open_cells())  # a claim about an absent object is undecided, but not open
    status = orjson.loads(run("annotate", "status", folder / "run", "--json")[1])
    assert (status["claims"], status["true"], status["open"]) == (number, states.count(1), 0)
    history = run("annotate", "history", folder / "run", 1, "attribute")[1].splitlines()
    assert [line.split("\t")[5] for line in history if "horse" in line] == ["absent"]

    rows = check(run, folder, lambda row: "white" in row["claim"], "--random", 200, "--present", 200)
    assert [row["label"] for row in rows] == sorted((row["label"] for row in rows), key=store.labels.index)
    assert len(rows) == number - states.count(-1)  # every decided claim is drawn, and no undecided one
    summary = orjson.loads(run("annotate", "qc", "status", folder / "run", "--json")[1])
    white = sum('"white"' in row["claim"] for row in rows)
    assert summary["labels"]["attribute"]["present"]["wrong"] == white > 0
    assert summary["labels"]["relation"]["present"]["wrong"] == 0
    assert summary["refine"] == ["attribute"]
    assert summary["overall"]["false_positive"]["high"] == 0  # all have been checked, and the wrong ones corrected
    shown = run("annotate", "qc", "status", folder / "run")[1]
    assert "called true, but false" in shown
    assert "refine" not in shown

    target = folder / "claims.npz"
    code, _, told = run("annotate", "finalize", folder / "run", "-o", target, "--license", "CC0-1.0")
    assert code == 0, told
    card = orjson.loads((folder / "claims.npz.card.json").read_bytes())
    assert card["claims"]["attribute"]["claims"] == sum(claim[0] == "attribute" for claim in store.claims)
    assert card["cells"]["present"] == states.count(1) - white
    assert card["people"] == {"Ada": len(rows)}
    assert "| called true | wrong / checked |" in (folder / "claims.npz.card.md").read_text()
    scenes = Scenes.load(target, VOCABULARY)
    oracle = ClaimOracle(VOCABULARY, scenes=(scenes,))
    (claim,) = (claim for claim in ClaimExtractor(VOCABULARY, ("attribute",)).find("A white bus."))
    assert [oracle.state(k, claim) for k in (1, 2)] == [0, 0]
    for k in range(1, IMAGES + 1):
        assert scenes.scenes[str(k)].answers == {
            claim: 0 if "white" in claim[2] else expected(claim) for claim in said(k)
        }

    code, scored, told = run("claims", folder / "a.jsonl", "--scenes", target, "--kinds", "attribute", "--json")
    assert code == 0, told
    counts = orjson.loads(scored)["systems"][0]["counts"]
    assert counts["hallucinated_attribute"] == sum(
        claim[0] == "attribute" and (expected(claim) == 0 or "white" in claim[2])
        for k in range(1, IMAGES + 1)
        for claim in said(k)
    )
    truth = write(folder / "truth.jsonl", [{"image_id": k, "objects": ["dog"]} for k in range(1, IMAGES + 1)])
    rewarding = ("reward", folder / "a.jsonl", "--truth", truth, "--scenes", target, "--kinds", "presence,attribute")
    code, rewarded, told = run(*rewarding)
    assert code == 0, told
    assert "bus: white" in rewarded


def process(*arguments: object) -> subprocess.Popen[str]:
    """Starts ``scapo-eval`` as a process that can be killed."""
    command = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)


def test_a_killed_run_and_its_shards_give_the_bytes_of_an_undisturbed_one(run: Run, start: Start, folder: Path) -> None:
    finalize = ("annotate", "finalize", "--license", "CC0-1.0")
    fast = start()
    assert run(*coarse(folder, fast), "-q")[0] == 0
    assert run(*finalize, folder / "run", "-o", folder / "clean.npz")[0] == 0
    expected_bytes = (folder / "clean.npz").read_bytes()

    url, journal = start("--delay", "0.05"), folder / "killed" / "answers.journal"
    slowly = (*coarse(folder, url, "killed"), "--concurrency", 4, "-q")
    for answers in (10, 30):
        running = process(*slowly)
        while not journal.exists() or journal.read_bytes().count(b"\n") < answers:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
    code, _, told = run(*finalize, folder / "killed", "-o", folder / "killed.npz")
    assert code == 2
    assert "cells are open" in told
    assert run(*slowly)[0] == 0
    assert run(*finalize, folder / "killed", "-o", folder / "killed.npz")[0] == 0
    assert (folder / "killed.npz").read_bytes() == expected_bytes
    assert stats(url)["requests"] <= stats(url)["distinct"] + 2 * 4  # only what was in flight is asked again

    for k in (1, 2):
        assert run(*coarse(folder, fast, "part"), "--shard", f"{k}/2", "-q")[0] == 0
    parts = sorted(path for path in folder.iterdir() if path.name.startswith("part"))
    assert run("merge", *parts, "-o", folder / "whole")[0] == 0
    assert run(*finalize, folder / "whole", "-o", folder / "whole.npz")[0] == 0
    assert (folder / "whole.npz").read_bytes() == expected_bytes

    swapped = {folder / "a.jsonl": folder / "b.jsonl", folder / "b.jsonl": folder / "a.jsonl"}
    turned = [swapped.get(each, each) for each in coarse(folder, "http://127.0.0.1:9/v1")]  # type: ignore[call-overload]
    assert run(*turned, "-q")[0] == 0  # the order of the captions changes nothing, and nothing is left to ask


def test_judged_claims_and_an_earlier_matrix_are_not_asked_again(run: Run, start: Start, folder: Path) -> None:
    url, images = start(), folder / "images"
    asking = ("--vocabulary", "coco80", "--model", "judge", "--base-url", url, "-q")
    judging = ("judge", "claims", folder / "a.jsonl", folder / "b.jsonl", "--images-root", images)
    assert run(*judging, "-o", folder / "judged.jsonl", *asking)[0] == 0
    asked = stats(url)["requests"]
    onto = ("annotate", "coarse", images, "--judged", folder / "judged.jsonl", *asking)
    assert run(*onto, "-o", folder / "run")[0] == 0
    assert run(*onto, "-o", folder / "run")[0] == 0  # nothing is left to ask or to take over
    store = Store.open(folder / "run")
    assert store.matrix[store.cells].tolist() == [expected(claim) for claim in store.claims]
    assert len(store) == len(store.claims)
    undecided = sum(expected(claim) == -1 for claim in store.claims)
    assert stats(url)["requests"] == asked + undecided
    judges = {source.judge.partition("@")[0] for source in store.provenances}
    assert judges == {"judged.jsonl", "judge"}
    check(run, folder, lambda row: "white" in row["claim"], "--random", 200)
    assert run("annotate", "finalize", folder / "run", "-o", folder / "old.npz")[0] == 0
    by_file_name = [ImageFile(name := f"val/{k}.jpg", name, name) for k in range(1, IMAGES + 1)]
    of_files = JudgedClaims.load(str(folder / "judged.jsonl"), by_file_name, VOCABULARY, KINDS)
    assert sum(map(len, of_files.states.values())) == len(store.claims)

    write(folder / "c.jsonl", [{"image_id": 1, "caption": "A green car."}])
    more = ("annotate", "coarse", images, "--captions", folder / "c.jsonl", "--judged", folder / "old.npz")
    asked = stats(url)["requests"]
    assert run(*more, "-o", folder / "more", *asking)[0] == 0
    assert stats(url)["requests"] == asked + 1 + undecided
    assert run("annotate", "finalize", folder / "more", "-o", folder / "new.npz")[0] == 0
    old, new = (Scenes.load(folder / name, VOCABULARY).scenes for name in ("old.npz", "new.npz"))
    assert new["1"].answers == {**(old["1"].answers or {}), ("attribute", "car", "green", ""): 1}
    assert new["2"].answers == old["2"].answers

    for k in (1, 2):
        assert run(*onto, "-o", folder / "part", "--shard", f"{k}/2")[0] == 0
    parts = sorted(path for path in folder.iterdir() if path.name.startswith("part"))
    assert run("merge", *parts, "-o", folder / "whole")[0] == 0
    assert Store.open(folder / "whole").matrix[store.cells].tolist() == [expected(claim) for claim in store.claims]

    nothing = write(folder / "scenes.jsonl", [{"image_id": 1, "objects": [{"name": "dog"}]}])
    code, _, told = run("annotate", "coarse", images, "--judged", nothing, "-o", folder / "none", *asking)
    assert code == 2
    assert f"{nothing}: no judged claims about the images (kinds: count, attribute, relation, text)" in told


def test_unreadable_answers_are_listed_and_never_guessed(run: Run, start: Start, folder: Path) -> None:
    write(folder / "b.jsonl", [{"image_id": 1, "caption": ZEBRA}])
    url, target = start(), folder / "claims.npz"
    code, _, told = run(*coarse(folder, url))
    assert code == 4
    assert "1 without a readable verdict" in told
    (listed,) = (orjson.loads(line) for line in (folder / "run" / "unread.jsonl").read_bytes().splitlines())
    assert (listed["image_id"], listed["label"], listed["answer"]) == ("1", "attribute", "There is no telling.")
    assert "zebra" in listed["claim"]
    code, _, told = run("annotate", "finalize", folder / "run", "-o", target)
    assert code == 2
    assert 'image 1, Is there a zebra in the image for which this is true: "red"?: no verdict' in told
    assert run("annotate", "finalize", folder / "run", "-o", target, "--allow-unknown")[0] == 0
    answers = Scenes.load(target, VOCABULARY).scenes["1"].answers
    assert answers is not None
    assert answers["attribute", "zebra", "red", ""] == -1
    assert run(*coarse(folder, url), "--seed", 10)[0] == 0
    assert (folder / "run" / "unread.jsonl").read_bytes() == b""


def test_probabilities_reach_the_matrix_and_thresholds_decide(run: Run, start: Start, folder: Path) -> None:
    code, _, told = run(*coarse(folder, start(), model="probabilities"), "--probability", "-q")
    assert code in (0, 4), told  # some claims may have no probability
    store = Store.open(folder / "run")
    p = store.probabilities[store.cells]
    known = ~np.isnan(p)
    assert known.sum() > 0.7 * len(p)
    finalize = ("annotate", "finalize", folder / "run", "-o", folder / "claims.npz", "--allow-unknown")
    assert run(*finalize, "--absent-below", 0.25, "--present-from", 0.75)[0] == 0
    scenes = Scenes.load(folder / "claims.npz", VOCABULARY).scenes
    states = np.array([(scenes[i].answers or {})[c] for i, c in zip(store.image_ids, store.claims, strict=True)])
    assert (states == np.where(known, np.where(p >= 0.75, 1, np.where(p < 0.25, 0, -1)), -1)).all()
    card = orjson.loads((folder / "claims.npz.card.json").read_bytes())["probabilities"]
    assert card["between"] == ((p >= 0.25) & (p < 0.75)).sum() > 0


def test_two_judges_are_compared_claim_by_claim(run: Run, start: Start, folder: Path) -> None:
    url = start()
    assert run(*coarse(folder, url), "-q")[0] == 0
    assert run(*coarse(folder, url, "other", "probabilities"), "--probability", "-q")[0] in (0, 4)
    code, out, told = run("annotate", "compare", folder / "other", folder / "run", "--json")
    assert code == 0, told
    found, first, second = orjson.loads(out), Store.open(folder / "other"), Store.open(folder / "run")
    both = (first.matrix >= 0) & (second.matrix >= 0)
    assert found["cells"] == both.sum()
    assert found["differ"] == ((first.matrix != second.matrix) & both).sum() > 0
    assert found["images"] == IMAGES


def test_what_users_get_wrong(run: Run, start: Start, folder: Path) -> None:
    url = start()
    asked = coarse(folder, url)

    def refused(*arguments: object) -> str:
        code, _, told = run(*arguments)
        assert code == 2
        assert "Traceback" not in told
        return told

    assert "'colour'" in refused(*asked, "--kinds", "colour")
    assert "one claim per call" in refused(*asked, "--labels-per-call", 2)
    (folder / "prompt.txt").write_text("Is it so?")
    assert "the prompt has no {question}" in refused(*asked, "--prompt", folder / "prompt.txt")
    broken = folder / "broken.jsonl"
    broken.write_text('{"image_id": 1, "caption": "Two dogs."}\n{"image_id": 2}\n')
    assert f"{broken}:2: " in refused(*asked, "--captions", broken)
    strangers = write(folder / "strangers.jsonl", [{"image_id": 99, "caption": "Two dogs."}])
    nothing = ("annotate", "coarse", folder / "images", "-o", folder / "none", "--captions", strangers)
    told = refused(*nothing, "--vocabulary", "coco80", "--model", "judge", "--base-url", url)
    assert "1 captions of images that are not in the list" in told
    assert "no claim about its images" in told
    assert not (folder / "run").exists()
    assert not (folder / "none").exists()

    assert run(*asked, "-q")[0] == 0
    assert "started with other claims" in refused(*asked, "--kinds", "count")
    labels = (
        "annotate",
        "coarse",
        folder / "images",
        "--vocabulary",
        "coco80",
        "--model",
        "verdicts",
        "--base-url",
        url,
    )
    assert "was started with claims, not with labels" in refused(*labels, "-o", folder / "run")
    assert run(*labels, "-o", folder / "labels", "-q")[0] == 0
    assert "started with labels, not with claims" in refused(*coarse(folder, url, "labels"))
    for verb in (("mine", folder / "run", folder / "a.jsonl"), ("lint", folder / "run")):
        assert "the cells of this run are claims" in refused("annotate", *verb)
    refine = ("annotate", "refine", folder / "run", "--labels", "dog", "--model", "judge", "--base-url", url)
    assert "the cells of this run are claims" in refused(*refine)
    assert "unknown label 'dog'" in refused("annotate", "qc", "draw", folder / "run", "--labels", "dog")
    assert "must end in .npz" in refused("annotate", "finalize", folder / "run", "-o", folder / "claims.parquet")
    assert run("annotate", "finalize", folder / "run", "-o", folder / "claims.npz")[0] == 0
    assert "use it with --scenes" in refused("score", folder / "a.jsonl", "--truth", folder / "claims.npz")
    assert run("annotate", "qc", "draw", folder / "run")[0] == 0
    answers = write(
        folder / "answers.jsonl", [{"image_id": 1, "label": "count", "claim": "Is it so?", "verdict": "yes"}]
    )
    told = refused("annotate", "qc", "import", folder / "run", answers, "--by", "Ada")
    assert "answers.jsonl:1: round 1 does not contain 'Is it so?' in image 1" in told
    missing = write(folder / "missing.jsonl", [{"image_id": 1, "label": "count", "verdict": "yes"}])
    assert "missing key 'claim'" in refused("annotate", "qc", "import", folder / "run", missing, "--by", "Ada")
