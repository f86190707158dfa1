"""Reports of different scoring: ground truths, judges, prompts, captions per image, forged results, gates, merges."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scapo_eval import PresenceOracle, score
from scapo_eval.results.comparison import differences
from scapo_eval.results.results import load_results

Run = Callable[..., "tuple[int, str, str]"]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "results_0_2"

LABELS = ["cat", "dog", "car", "bench"]
TRUTH = {str(k): LABELS[: 1 + k % 4] for k in range(40)}
CAPTIONS = [{"image_id": int(k), "caption": f"A {TRUTH[k][-1]} and a car."} for k in TRUTH]


def write(path: str, records: Iterable[Mapping[str, Any]]) -> str:
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs ``scapo-eval`` in a folder with truth.json and the captions c.jsonl and d.jsonl."""
    monkeypatch.chdir(tmp_path)
    Path("truth.json").write_text(json.dumps({"labels": LABELS, "objects": TRUTH}))
    write("c.jsonl", CAPTIONS)
    write("d.jsonl", [{**each, "caption": "A dog."} for each in CAPTIONS])
    return run


def results(run: Run, captions: str, truth: str, output: str, *more: str) -> str:
    code, _, err = run("score", captions, "--truth", truth, "-o", output, "-q", *more)
    assert code == 0, err
    return output


# ---- truths ----


@pytest.mark.parametrize("ending", ["npz", "parquet", "jsonl", "json"])
def test_a_converted_truth_is_the_same_truth(run: Run, ending: str) -> None:
    code, _, err = run("oracle", "convert", "truth.json", "-o", f"t.{ending}")
    assert code == 0, err
    one, other = (results(run, "c.jsonl", truth, f"{truth}.r.json") for truth in ("truth.json", f"t.{ending}"))
    assert load_results(one)[0].signature == load_results(other)[0].signature
    assert run("compare", one, other)[0] == 0


def test_other_images_in_a_truth_do_not_matter_and_other_labels_of_these_do(run: Run) -> None:
    whole, more, changed = (dict(TRUTH) for _ in range(3))
    more |= {str(k): ["car"] for k in range(100, 150)}
    changed["3"] = ["cat"]
    runs = []
    for name, objects in (("whole", whole), ("more", more), ("changed", changed)):
        shuffled = list(objects.items())
        random.Random(0).shuffle(shuffled)
        Path(f"{name}.json").write_text(json.dumps({"labels": LABELS[::-1], "objects": dict(shuffled)}))
        runs.append(results(run, "c.jsonl", f"{name}.json", f"{name}.r.json"))
    assert run("compare", runs[0], runs[1])[0] == 0
    code, _, err = run("compare", runs[0], runs[2])
    assert code == 2
    assert "(other labels in 1 of 40 shared images)" in err


def test_signatures_and_counts_go_together() -> None:
    """Checks that runs of one file with different counts have different signatures, and that equal ground truths have
    equal ones.
    """
    rng = random.Random(7)
    told = 0
    for _ in range(150):
        truth = {image: list(labels) for image, labels in TRUTH.items()}
        captions, how = list(CAPTIONS), {}
        same = True
        for _ in range(rng.randint(0, 2)):
            change = rng.choice(
                ["order", "more images", "flip", "flip other image", "axis", "claims", "repeat", "matrix"]
            )
            if change == "order":
                truth = dict(rng.sample(list(truth.items()), len(truth)))
            elif change in ("more images", "flip other image"):
                truth[str(rng.randint(100, 200))] = rng.sample(LABELS, 2)
            elif change == "flip":
                image = str(rng.randint(0, 39))
                truth[image] = sorted({*truth[image]} ^ {rng.choice(LABELS)})
                same = False
            elif change == "axis":
                how["labels"], same = [*LABELS, "bus"], False
            elif change == "claims":
                how["claims"], same = "visual", False
            elif change == "repeat":
                captions, same = captions * 2, False
            else:
                how["matrix"] = True
        axis = how.get("labels", LABELS)
        oracle = PresenceOracle.from_objects(truth, labels=axis)
        if how.get("matrix"):
            oracle = PresenceOracle.from_matrix(oracle.matrix(), oracle.image_ids, oracle.labels)
        base = score(CAPTIONS, truth=PresenceOracle.from_objects(TRUTH, labels=LABELS), resamples=0)
        found = score(captions, truth=oracle, claims=how.get("claims", "all"), resamples=0)
        differing = differences(found, base)
        if found.counts != base.counts:
            assert differing
            told += 1
        if same:
            assert not differing
            assert found.counts == base.counts
    assert told > 20


# ---- judges ----

RATINGS = [{"image_id": k, "rating": k % 7} for k in range(40)]
FACTS = [{"id": k, "facts": ["a", "b"], "verified": [1, k % 2]} for k in range(40)]
CLAIMS = [{"image_id": k, "claims": ["a"], "descriptive": [1], "verified": [1], "answers": None} for k in range(40)]
LISTS = [{**each, "extracted": ["car"]} for each in CAPTIONS]


@pytest.mark.parametrize("field", ["judge_model", "judge_prompt", "judge_sampling", "verifier_model"])
@pytest.mark.parametrize(
    ("verb", "records", "options"),
    [
        ("mmhal", RATINGS, []),
        ("faithscore", FACTS, []),
        ("facts", CLAIMS, []),
        ("objhal", LISTS, ["--truth", "truth.json"]),
    ],
)
def test_two_judges_are_not_compared(
    run: Run, verb: str, records: list[dict[str, Any]], options: list[str], field: str
) -> None:
    told = {"judge_model": "j", "judge_prompt": "p", "judge_sampling": "default", "verifier_model": "v"}
    one = write("one.jsonl", [{**record, **told} for record in records])
    other = write("other.jsonl", [{**record, **told, field: "another"} for record in records])
    assert run(verb, one, one.replace("one", "./one"), *options)[0] == 0
    code, _, err = run(verb, one, other, *options)
    assert code == 2
    assert "were scored differently" in err
    assert "another" in err


# ---- captions ----


def test_captions_of_two_prompts_and_of_other_numbers_per_image_are_not_compared(run: Run) -> None:
    write("p.jsonl", [{**each, "prompt": "Describe."} for each in CAPTIONS])
    write("q.jsonl", [{**each, "prompt": "Name what you see."} for each in CAPTIONS])
    write("l.jsonl", [{**each, "prompt": "Describe.", "max_tokens": 64} for each in CAPTIONS])
    write("four.jsonl", [each for each in CAPTIONS for _ in range(4)])
    assert "asked_with: " in run("score", "p.jsonl", "q.jsonl", "--truth", "truth.json")[2]
    assert "asked_with: " in run("score", "p.jsonl", "l.jsonl", "--truth", "truth.json")[2]
    assert run("score", "c.jsonl", "p.jsonl", "--truth", "truth.json")[0] == 0  # not every file tells
    code, _, err = run("score", "c.jsonl", "four.jsonl", "--truth", "truth.json")
    assert code == 2
    assert "per_image: 4 against 1" in err


@pytest.mark.parametrize("array", [False, True])
def test_a_key_given_twice_is_refused(run: Run, array: bool) -> None:
    line = '{"image_id": 1, "caption": "A dog.", "caption": "A cat."}'
    Path("x").write_text(f"[{line}]" if array else f"{line}\n")
    code, _, err = run("score", "x", "--truth", "truth.json")
    assert code == 2
    assert "x:1: not valid JSON: key 'caption' appears twice" in err
    Path("x").write_text('{"image_id": 1, "caption": "The sign says \\"caption\\" and \\"image_id\\"."}\n')
    assert run("score", "x", "--truth", "truth.json")[0] == 0


def test_ids_are_one_in_any_spelling(run: Run) -> None:
    write("x", [{"id": i, "image_id": k, "caption": "A dog."} for k, i in enumerate([7, "7", 7.0])])
    code, _, err = run("score", "x", "--truth", "truth.json")
    assert code == 2
    assert "x:2: the same id appears twice (lines 1 and 2)" in err
    assert "x:3: the same id appears twice (lines 2 and 3)" in err


# ---- results files ----


def document(run: Run) -> dict[str, Any]:
    results(run, "c.jsonl", "truth.json", "r.json")
    found: dict[str, Any] = json.loads(Path("r.json").read_text())
    return found


def _row(document: dict[str, Any], column: str, value: int) -> None:
    """Changes a count of a row, and the sum in the system."""
    evidence = document["per_image"][0]
    at = evidence["columns"].index(column)
    document["systems"][0]["counts"][column] += value - evidence["rows"][0][at]
    evidence["rows"][0][at] = value


def _signed(field: str, value: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        system = document["systems"][0]
        pairs = [part.partition(":") for part in system["signature"].split("|")]
        system["signature"] = "|".join(f"{k}{c}{value if k == field else v}" for k, c, v in pairs)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_signed("ids", "00000000"), "ids:00000000, but the rows say "),
        (_signed("n", "41"), "n_captions: 40, but the signature says n:41"),
        (_signed("truth", "00000000"), "truth:00000000, but the rows say "),
        (lambda d: d["per_image"][0]["image_ids"].__setitem__(3, "renamed"), "other images than those"),
        (lambda d: d["systems"][0].update(n_captions=5000), "n_captions: 5000, but the signature says n:40"),
        (lambda d: d["systems"][0].update(n_images=8), "n_images: 8, but the rows say 40"),
        (lambda d: d["per_image"][0]["image_ids"].__setitem__(1, "00"), "(at 0 and 1, again as '00')"),
        (lambda d: _row(d, "generated", 4), r"hallucinated 1 + covered 1 is not generated 4"),
        (lambda d: d["per_image"][0]["truth"].__setitem__(0, "0" * 16), "but the rows say "),
        (lambda d: d["per_image"][0].pop("truth"), "but the rows say None"),
        (lambda d: d["systems"][0]["account"].update(captions_per_image=[1, 4]), "captions_per_image: [1, 4], but"),
        (lambda d: d["systems"][0].update(signature=d["systems"][0]["signature"].replace("capscore", "chair", 1)),
         "chair, but the rows say capscore"),
    ],
)  # fmt: skip
def test_a_forged_results_file_is_refused(run: Run, change: Callable[[dict[str, Any]], None], reason: str) -> None:
    found = document(run)
    change(found)
    Path("r.json").write_text(json.dumps(found))
    code, _, err = run("compare", "r.json", "r.json")
    assert code == 2
    assert reason in err


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_results_files_of_0_2_are_shown_as_they_were(run: Run, name: str) -> None:
    """Checks files of version 0.2.0 (commit f9537d7), in which every value that is still shown must be unchanged."""
    written = json.loads((GOLDEN / f"{name}.json").read_text())["systems"]
    runs = load_results(GOLDEN / f"{name}.json")
    for system, each in zip(written, runs, strict=True):
        kept = {metric: found for metric, found in each.values.items() if metric in system["metrics"]}
        assert kept
        assert kept == {metric: system["metrics"][metric]["value"] for metric in kept}
    assert run("show", GOLDEN / f"{name}.json")[0] == 0


# ---- gates ----


def test_gates_have_a_direction(run: Run) -> None:
    for option, metric, other in (("under", "hal_rate", "above"), ("above", "cap_score", "under")):
        code, _, err = run("score", "c.jsonl", "--truth", "truth.json", f"--fail-{option}", f"{metric}=0.1")
        assert code == 2
        assert f"did you mean --fail-{other} {metric}=0.1?" in err


def test_a_system_that_is_worse_than_the_baseline_fails(run: Run) -> None:
    gate = ["--fail-worse", "cover_rate"]
    code, _, err = run("score", "c.jsonl", "d.jsonl", "--truth", "truth.json", *gate)
    assert code == 3
    assert "gate missed: d: cover_rate is worse than c's (0." in err
    assert run("score", "d.jsonl", "c.jsonl", "--truth", "truth.json", *gate)[0] == 0
    assert run("score", "c.jsonl", "c.jsonl", "--truth", "truth.json", *gate)[0] == 0
    assert "give the baseline before it" in run("score", "c.jsonl", "--truth", "truth.json", *gate)[2]
    write("few.jsonl", CAPTIONS[:5])
    code, _, err = run("score", "c.jsonl", "few.jsonl", "--truth", "truth.json", *gate)
    assert code == 3
    assert "few: cover_rate cannot be tested against c (5 shared images)" in err


# ---- files ----


def test_an_output_keeps_its_permissions_and_stays_a_link(run: Run) -> None:
    Path("real.json").write_text("{}")
    os.chmod("real.json", 0o640)
    Path("link.json").symlink_to("real.json")
    results(run, "c.jsonl", "truth.json", "link.json")
    assert Path("link.json").is_symlink()
    assert os.stat("real.json").st_mode & 0o777 == 0o640
    assert load_results("real.json")[0].n_records == 40


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("https://example.org/c.jsonl", "curl -LO 'https://example.org/c.jsonl'"),
        ("hf://datasets/n/x/*.jsonl", "hf download "),
        ("foo://x/y", "s3://, gs://, abfs://, hdfs:// and file:// are"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(run: Run, uri: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, _, err = run("score", uri, "--truth", "truth.json")
    assert code == 2
    assert remedy in err
    assert "Traceback" not in err
