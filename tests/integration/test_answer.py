"""``answer``, ``augmented`` and ``judge`` from end to end with a loopback server, followed by the scoring commands."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import fastjsonschema
import orjson
import pytest

pytest.importorskip("aiohttp")
Image = pytest.importorskip("PIL.Image")

from scapo_eval.benchmarks.prompts import DESCRIBE_IN_DETAIL, with_context, with_description  # noqa: E402

Start = Callable[..., str]


class Said(NamedTuple):
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Said]


@pytest.fixture
def cli(run: Callable[..., tuple[int, str, str]]) -> Cli:
    """Runs ``scapo-eval`` in this process (a separate process costs a second)."""

    def call(*arguments: object) -> Said:
        return Said(*run(*arguments))

    return call


@pytest.fixture
def ok(cli: Cli) -> Cli:
    """Runs ``scapo-eval`` in this process, and checks that it succeeds."""

    def call(*arguments: object) -> Said:
        done = cli(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    return call


def rows(path: Path | str) -> list[dict]:
    """Returns the records in a JSON Lines file."""
    return [orjson.loads(line) for line in Path(path).read_bytes().splitlines()]


def write(path: Path, records: list[dict]) -> Path:
    """Writes records as JSON Lines."""
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


def draw(folder: Path, *names: str) -> Path:
    """Draws pictures with these names, each in its own color."""
    for k, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (k * 37 % 256, 9, 200 - k)).save(folder / name)
    return folder


def test_amber_plain_and_augmented_into_the_paper_s_table_4(
    cli: Cli, ok: Cli, start: Start, shared: Path, tmp_path: Path
) -> None:
    queries = json.loads(gzip.decompress((shared / "data/amber/query/query_all.json.gz").read_bytes()))
    images = [f"AMBER_{k}.jpg" for k in range(1, 41)]
    chosen = [query for query in queries if query["image"] in images]
    questions = tmp_path / "query_some.json"
    questions.write_text(json.dumps(chosen))
    folder = draw(tmp_path / "image", *images)
    common = ["--images-root", folder, "--model", "yes", "--base-url", start(), "-q"]
    plain, augmented = tmp_path / "plain.jsonl", tmp_path / "augmented.jsonl"
    ok("answer", questions, "-o", plain, *common)
    ok("answer", questions, "-o", augmented, "--describe", *common)

    written = rows(plain)
    assert [row["id"] for row in written] == [query["id"] for query in chosen]
    assert not any("description" in row for row in written)
    described = {row["image"]: row for row in rows(f"{augmented}.descriptions.jsonl")}
    assert set(described) == set(images)  # one description per image
    assert {row["prompt"] for row in described.values()} == {DESCRIBE_IN_DETAIL}
    for row, query in zip(rows(augmented), chosen, strict=True):
        if query["query"] == "Describe this image.":
            assert "description" not in row
        else:
            assert row["description"] == described[query["image"]]["caption"]
            assert row["response"] == "Yes"

    data = ["--data", shared / "data/amber"]
    figures = orjson.loads(ok("amber", plain, *data, "--json", "--resamples", 0).stdout)["systems"][0]
    table = ok("augmented", plain, augmented, *data, "--json", "--resamples", 200)
    found = orjson.loads(table.stdout)
    assert list(found["systems"][0]["metrics"]) == ["accuracy", "precision", "recall", "f1"]
    for name in ("accuracy", "precision", "recall", "f1"):
        assert found["systems"][0]["metrics"][name]["value"] == figures["metrics"][name]["value"]
    assert [row["metric"] for row in found["comparisons"]] == ["accuracy", "precision", "recall", "f1"]
    assert found["comparisons"][0]["n_images"] == 40
    assert found["comparisons"][2]["difference"] == -figures["metrics"]["recall"]["value"]  # it never says no
    assert "description in the prompt" in table.stderr
    reversed_order = cli("augmented", augmented, plain, *data, "--resamples", 0)
    assert "list the answers without descriptions first" in reversed_order.stderr


def test_prompts_reach_the_model_to_the_letter(ok: Cli, start: Start, tmp_path: Path) -> None:
    folder = draw(tmp_path / "images", "COCO_val2014_000000000007.jpg", "CCS_images/7.png")
    phd = [
        {
            "image_id": "7", "task": "object", "yes_question": "Is it A?", "no_question": "Is it B?",
            "context": {"sec": "Some say B.", "icc": "It is B."},
        },
        {"image_id": "7", "ccs_description": "odd", "yes_question": "Is it C?", "no_question": "Is it D?"},
    ]  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(phd))
    common = ["--images-root", folder, "--model", "echo", "--base-url", start(), "-q"]
    ok("answer", tmp_path / "data.json", "-o", tmp_path / "plain.jsonl", *common)
    plain = {row["id"]: row["response"] for row in rows(tmp_path / "plain.jsonl")}
    assert plain == {
        "phd/base/7/yes": "Is it A?",
        "phd/base/7/no": "Is it B?",
        "phd/sec/7/yes": with_context("Some say B.", "Is it A?"),
        "phd/sec/7/no": with_context("Some say B.", "Is it B?"),
        "phd/icc/7/yes": with_context("It is B.", "Is it A?"),
        "phd/icc/7/no": with_context("It is B.", "Is it B?"),
        "phd/ccs/7/yes": "Is it C?",
        "phd/ccs/7/no": "Is it D?",
    }
    ok("answer", tmp_path / "data.json", "-o", tmp_path / "augmented.jsonl", "--describe", *common)
    augmented = {row["id"]: row["response"] for row in rows(tmp_path / "augmented.jsonl")}
    assert augmented == {key: with_description(DESCRIBE_IN_DETAIL, prompt) for key, prompt in plain.items()}
    assert len(rows(tmp_path / "augmented.jsonl.descriptions.jsonl")) == 2  # the ccs picture 7 is another picture
    scored = ok("phd", tmp_path / "plain.jsonl", "--data", tmp_path / "data.json", "--json", "--resamples", 0)
    assert orjson.loads(scored.stdout)["systems"][0]["counts"]["missing"] == 0


def test_pope_and_own_questions(ok: Cli, start: Start, shared: Path, tmp_path: Path) -> None:
    files, names = [], set()
    for category in ("adversarial", "popular"):
        questions = rows(shared / f"data/pope/coco_pope_{category}.json")[:12]
        names |= {question["image"] for question in questions}
        files.append(write(tmp_path / f"coco_pope_{category}.json", questions))
    folder = draw(tmp_path / "val2014", *sorted(names))
    common = ["--images-root", folder, "--model", "yes", "--base-url", start(), "-q"]
    output = tmp_path / "pope.jsonl"
    ok("answer", *files, "-o", output, *common)
    scored = ok("pope", output, "--questions", *files, "--json", "--resamples", 0)
    system = orjson.loads(scored.stdout)["systems"][0]
    assert (system["n_captions"], system["counts"]["missing"], system["counts"]["unknown"]) == (24, 0, 0)
    assert {"adversarial_f1", "popular_f1"} <= set(system["metrics"])

    own = write(
        tmp_path / "own.jsonl",
        [
            {"id": "a", "image": sorted(names)[0], "question": "Is it red?", "label": "no"},
            {"id": "b", "question": "Is water wet?", "label": "yes"},
        ],
    )
    given = write(tmp_path / "described.jsonl", [{"image_id": sorted(names)[0], "caption": "It is blue."}])
    ok("answer", own, "-o", tmp_path / "own_answers.jsonl", "--descriptions", given, *common)
    first, second = rows(tmp_path / "own_answers.jsonl")
    assert (first["description"], first["response"], first["label"]) == ("It is blue.", "Yes", "no")
    assert "description" not in second
    scored = ok("yesno", tmp_path / "own_answers.jsonl", "--questions", own, "--json", "--resamples", 0)
    assert orjson.loads(scored.stdout)["systems"][0]["n_captions"] == 2
    table = ok(
        "augmented", output, output, "--benchmark", "pope", "--questions", files[0], "--questions", files[1], "--json",
        "--resamples", 0,
    )  # fmt: skip
    assert orjson.loads(table.stdout)["comparisons"][0]["difference"] == 0


def test_a_question_without_description_fails_and_is_never_asked_plainly(
    cli: Cli, start: Start, tmp_path: Path
) -> None:
    folder = draw(tmp_path / "images", "a.png")
    questions = write(
        tmp_path / "q.jsonl",
        [{"id": k, "image": name, "question": "Is it?"} for k, name in enumerate((["a.png"], "gone.png"))],
    )
    output = tmp_path / "o.jsonl"
    done = cli(
        "answer",
        questions,
        "-o",
        output,
        "--describe",
        "--images-root",
        folder,
        "--model",
        "yes",
        "--base-url",
        start(),
    )
    assert done.returncode == 4
    assert [row["id"] for row in rows(output)] == [0]
    assert rows(f"{output}.failed.jsonl")[0]["error"] == "its image has no description"
    twice = write(tmp_path / "twice.jsonl", [{"id": 1, "question": "Is it?"}] * 2)
    refused = cli("answer", twice, "-o", output, "--model", "m")
    assert refused.returncode == 2
    assert "the id 1 appears twice" in refused.stderr


def test_mmhal_from_questions_to_figures(cli: Cli, ok: Cli, start: Start, tmp_path: Path) -> None:
    folder = draw(tmp_path / "images", *(f"{k}_o.jpg" for k in range(8)))
    questions = [
        {
            "question_type": "attribute", "question_topic": "food", "image_id": f"{k:016x}f", "image_src": f"https://x/{k}_o.jpg",
            "image_content": ["Dog", "Chair"], "question": "mumble" if k == 3 else f"What colour is dog {k}?",
            "gt_answer": "Brown.", "model_answer": "",
        }
        for k in range(8)
    ]  # fmt: skip
    (tmp_path / "response_template.json").write_text(json.dumps(questions))
    url = start()
    answers, ratings = tmp_path / "answers.jsonl", tmp_path / "ratings.jsonl"
    ok(
        "answer", tmp_path / "response_template.json", "-o", answers, "--images-root", folder, "--model", "plain",
        "--base-url", url, "-q",
    )  # fmt: skip
    assert len({row["response"] for row in rows(answers)}) == 8  # every picture was found and seen
    judged = cli("judge", "mmhal", answers, "-o", ratings, "--model", "judge", "--base-url", url)
    assert judged.returncode == 4
    assert "1 unreadable (the first: rating not found in the verdict on mmhal/4); --retry repeats" in judged.stderr
    found = rows(ratings)
    assert [row["rating"] for row in found] == [5, 5, 5, None, 5, 5, 5, 5]
    assert found[3]["unread"] == "Sounds good."
    refused = tmp_path / "refused.jsonl"
    assert cli("judge", "mmhal", answers, "-o", refused, "--model", "no-choice", "--base-url", url).returncode == 4
    assert (rows(refused), len(rows(f"{refused}.failed.jsonl"))) == ([], 8)
    scored = ok("mmhal", ratings, "--json", "--resamples", 0)
    system = orjson.loads(scored.stdout)["systems"][0]
    assert system["metrics"]["mmhal_score"]["value"] == 5
    assert system["counts"]["unparsed"] == 1


@pytest.mark.parametrize("model", ["judge", "no-schema"])
def test_faithscore_from_captions_to_figures(cli: Cli, ok: Cli, start: Start, tmp_path: Path, model: str) -> None:
    folder = draw(tmp_path / "images", "1.png", "2.png", "3.png", "4.png")
    captions = write(
        tmp_path / "captions.jsonl",
        [
            {"image_id": 1, "caption": "There is a dog. There is a dragon. It is perhaps a fairy tale with mist."},
            {"image_id": 2, "caption": "A dog in the mist."},
            {"image_id": 3, "caption": "It is perhaps late."},
            {"image_id": 9, "caption": "A dog."},
        ],
    )
    facts = tmp_path / "facts.jsonl"
    judged = cli(
        "judge", "faithscore", captions, "-o", facts, "--images-root", folder, "--model", model, "--base-url", start(),
        "--setting", "detailed",
    )  # fmt: skip
    assert judged.returncode == 4, judged.stderr
    first, second, third = rows(facts)
    assert first["facts"] == ["There is a dog.", "There is a dragon."]
    assert first["categories"] == ["entities", "entities"]
    assert first["verified"] == [1, 0]
    assert (second["facts"], second["verified"], second["unverified"]) == (
        ["There is a dog."],
        [1],
        ["There is a mist."],
    )
    assert third["facts"] == []
    (failed,) = rows(f"{facts}.failed.jsonl")
    assert "file not found" in failed["error"]
    scored = ok("faithscore", facts, "--json", "--resamples", 0)
    metrics = orjson.loads(scored.stdout)["systems"][0]["metrics"]
    assert metrics["faithscore"]["value"] == pytest.approx(0.75, abs=1e-12)
    assert metrics["avg_facts"]["value"] == 1.0
    assert metrics["detailed_avg_facts"]["value"] == 1.0
    card = orjson.loads(Path(f"{facts}.run.json").read_bytes())
    assert card["judge"] == model
    assert card["verifier"]["model"] == model


def described(path: Path, texts: list[str]) -> Path:
    """Writes captions of images 1, 2... with these texts."""
    return write(path, [{"image_id": k, "caption": text} for k, text in enumerate(texts, 1)])


def test_objects_listed_by_a_judge_into_object_halbench(cli: Cli, ok: Cli, start: Start, tmp_path: Path) -> None:
    captions = described(
        tmp_path / "captions.jsonl",
        ["Plain: a dog and a cat.", "Fenced: a car, nothing else.", "A dog.", "Repeated: a dog, here.",
         "Refused: a dog is there.", "Cut: a dog is there.", "Mumbling: a cat is there."],
    )  # fmt: skip
    objects, truth, url = tmp_path / "objects.jsonl", tmp_path / "truth.json", start()
    truth.write_text(json.dumps({str(k): ["dog"] for k in range(1, 8)}))
    judge = ["judge", "objhal", captions, "-o", objects, "--model", "judge", "--base-url", url]
    judged = cli(*judge)
    assert judged.returncode == 4, judged.stderr
    assert "3 unreadable (the first: objects not found in what the judge says of line 5); --retry" in judged.stderr
    found = [row["extracted"] for row in rows(objects)]
    assert found == [["dog", "The cat"], ["car"], [], ["dog"], None, None, None]
    assert rows(objects)[4]["unread"] == "I'm sorry, but I can't help with that."
    scored = orjson.loads(ok("objhal", objects, "--truth", truth, "--json", "--resamples", 0).stdout)["systems"][0]
    assert scored["metrics"]["chair_s"]["value"] == 2 / 4
    assert scored["metrics"]["chair_s_refined"]["value"] == 2 / 3
    assert scored["metrics"]["chair_i"]["value"] == 2 / 4
    assert scored["counts"]["unread"] == 3

    retried = cli(*judge, "--retry")
    assert "2 unreadable" in retried.stderr
    assert [row["extracted"] for row in rows(objects)][6] == ["The cat"]
    assert "2 unreadable" in cli(*judge).stderr  # and what is known now stays known
    assert [row["extracted"] for row in rows(objects)][6] == ["The cat"]
    assert orjson.loads(Path(f"{objects}.run.json").read_bytes())["counts"]["unread"] == 2


def test_judged_uses_are_scored(cli: Cli, ok: Cli, start: Start, tmp_path: Path) -> None:
    texts = ["Plain: there may be no dog, but maybe a cat.", "Fenced: no car.", "Nothing.", "Mumbling: painted dog.",
             "Plain: a fake dog, a maybe cat and a car.", "Plain: there may be no dog, but maybe a cat."]  # fmt: skip
    captions, uses, url = described(tmp_path / "captions.jsonl", texts), tmp_path / "uses.jsonl", start()
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({"labels": ["dog", "cat", "car"], "objects": {str(k): ["car"] for k in range(1, 7)}}))
    judge = ["judge", "uses", captions, "-o", uses, "--model", "judge", "--base-url", url]
    judged = cli(*judge)
    assert judged.returncode == 4, judged.stderr
    assert "4 texts judged" in judged.stderr
    assert "1 unreadable (the first: uses not found in what the judge says of text 4); --retry" in judged.stderr
    found = [row["uses"] and [use["use"] for use in row["uses"]] for row in rows(uses)]
    assert found == [["negated", "claim"], ["negated"], [], None, ["none", "hedged", "claim"]]
    assert orjson.loads(Path(f"{uses}.run.json").read_bytes())["vocabulary"] == rows(uses)[0]["vocabulary"]

    score = ["score", captions, "--truth", truth, "--uses", uses, "--json", "--resamples", 0]
    scored = ok(*score, "--claims", "certain")
    [system] = orjson.loads(scored.stdout)["systems"]
    assert system["counts"]["unjudged"] == 1
    assert "1 of 6 captions are not in the file of --uses" in scored.stderr
    assert (system["counts"]["generated"], system["counts"]["hallucinated"]) == (4, 3)  # cat; car; the rules: dog
    assert "+judge " in system["signature"]
    asserted = orjson.loads(ok(*score, "--claims", "asserted").stdout)["systems"][0]
    assert (asserted["counts"]["generated"], asserted["counts"]["hallucinated"]) == (5, 4)
    assert cli(*judge, "--retry").returncode == 0
    assert [use["use"] for use in rows(uses)[3]["uses"]] == ["quoted"]
    [system] = orjson.loads(ok(*score, "--claims", "visual").stdout)["systems"]
    assert (system["counts"]["unjudged"], system["counts"]["hallucinated"]) == (0, 3)
    # a reward also charges an absent label that is quoted where no sign or picture is spoken of
    rewarded = ok("reward", captions, "--truth", truth, "--uses", uses, "--claims", "visual")
    assert [row["hallucinated"] for row in map(orjson.loads, rewarded.stdout.splitlines())] == [1, 0, 0, 1, 1, 1]
    assert "|uses:" in rewarded.stderr
    chair = ok("chair", captions, "--truth", truth, "--uses", uses, "--claims", "visual", "--json", "--resamples", 0)
    assert "|uses:" in chair.stdout

    for options, reason in (
        ([], "uses.jsonl: the reading all counts every mention and needs no uses"),
        (["--claims", "visual", "--vocabulary", "dopa160"], "uses.jsonl: the uses are those of mentions of coco80@"),
    ):
        refused = cli(*score, *options)
        assert (refused.returncode, reason in refused.stderr) == (2, True), refused.stderr
    lines = uses.read_text().splitlines()
    uses.write_text("\n".join([*lines[:2], lines[0].replace("negated", "denied"), lines[3][:-9]]))
    refused = cli(*score, "--claims", "visual")
    assert refused.returncode == 2
    assert "uses.jsonl:3: unknown use 'denied'; known: claim, hedged," in refused.stderr
    assert "uses.jsonl:4: " in refused.stderr


def test_a_killed_judge_ends_with_the_objects_of_an_undisturbed_one(cli: Cli, start: Start, tmp_path: Path) -> None:
    texts = [f"{word}: number {k}, a dog and a car." for k in range(40) for word in ("Plain", "Mumbling")]
    captions = described(tmp_path / "captions.jsonl", texts)

    def judge(output: Path, url: str) -> list[object]:
        return ["judge", "objhal", captions, "-o", output, "--model", "judge", "--base-url", url, "--concurrency", 4]

    clean, killed = tmp_path / "clean.jsonl", tmp_path / "killed.jsonl"
    assert cli(*judge(clean, start())).returncode == 4
    journal = Path(f"{killed}.journal")
    command = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, judge(killed, start("--delay", "0.03")))]
    for answers in (20, 100):
        running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not journal.exists() or journal.read_bytes().count(b"\n") < answers:
            assert running.poll() is None
            time.sleep(0.01)
        running.kill()
        running.wait()
    assert not killed.exists()
    assert 100 <= journal.read_bytes().count(b"\n") < 160
    assert cli(*judge(killed, start())).returncode == 4
    assert killed.read_bytes() == clean.read_bytes()


def test_claims_judged_against_references_and_image(cli: Cli, ok: Cli, start: Start, tmp_path: Path) -> None:
    captions = described(
        tmp_path / "captions.jsonl",
        ["A dog. A dragon. It is sad.", "", "Refused. A dog.", "Mumbling. A dog.", "Repeated. A dog."],
    )
    references = write(
        tmp_path / "references.jsonl", [{"image_id": k, "claims": ["A dog.", "A cat."]} for k in range(1, 5)]
    )
    folder, verdicts, url = draw(tmp_path / "images", *(f"{k}.png" for k in range(1, 6))), tmp_path / "v.jsonl", start()
    judge = ["judge", "facts", captions, "--images-root", folder, "--references", references, "-o", verdicts,
             "--model", "judge", "--base-url", url]  # fmt: skip
    judged = cli(*judge)
    assert judged.returncode == 4, judged.stderr
    assert "2 unreadable (the first: the verdict of step decompose on 3); --retry repeats these" in judged.stderr
    first, empty, refused, mumbled, repeated = rows(verdicts)
    schema = Path(__file__).resolve().parents[2] / "docs" / "schema" / "evidence-1.schema.json"
    published = fastjsonschema.compile(orjson.loads(schema.read_bytes()))
    for row in rows(verdicts):
        published(row)
    assert {key: first[key] for key in ("claims", "descriptive", "verified", "matched", "answers", "against")} == {
        "claims": ["A dog.", "A dragon.", "It is sad."], "descriptive": [1, 1, 0], "verified": [1, 0, 1],
        "matched": [0, None, None], "answers": ["yes", "unsaid"], "against": "both",
    }  # fmt: skip
    assert (empty["claims"], empty["verified"], empty["answers"]) == ([], [], ["unsaid", "unsaid"])
    assert refused["claims"] is None
    assert refused["unread"] == {"decompose": "I'm sorry, but I can't help with that."}
    assert mumbled["unread"] == {"decompose": "It says a lot."}
    assert repeated["claims"] == ["Repeated.", "A dog."]
    assert (repeated["against"], repeated["verified"]) == ("image", [1, 1])  # its image has no reference claims
    scored = orjson.loads(ok("facts", verdicts, "--json", "--resamples", 0).stdout)["systems"][0]
    # the first: 2 of 3 claims true; the dog and, beyond the two references, the sadness
    assert scored["metrics"]["precision"]["value"] == pytest.approx((2 / 3 + 1) / 2)
    assert scored["metrics"]["recall"]["value"] == pytest.approx((2 / 3 + 0) / 2)
    assert scored["counts"]["unread"] == 2
    assert scored["counts"]["asked"] == 4 * 2  # also of those whose claims are unread

    assert "1 unreadable" in cli(*judge, "--retry").stderr
    assert rows(verdicts)[3]["claims"] == ["Mumbling.", "A dog."]
    page = ok("report", verdicts, "--format", "html", "-o", tmp_path / "report.html")
    assert page.returncode == 0
    packed = re.findall(r'id="data-\w+">([^<]+)</script>', (tmp_path / "report.html").read_text())
    payloads = [gzip.decompress(base64.b85decode(each.replace(",", "<"))) for each in packed]
    assert any(b"A dragon." in payload for payload in payloads)


def test_a_killed_judge_of_claims_ends_as_an_undisturbed_one(cli: Cli, start: Start, tmp_path: Path) -> None:
    texts = [f"{word}. Number {k}. A dog. A dragon." for k in range(15) for word in ("Plain", "Mumbling")]
    captions = described(tmp_path / "captions.jsonl", texts)
    references = write(
        tmp_path / "references.jsonl", [{"image_id": k + 1, "claims": ["A dog."]} for k in range(len(texts))]
    )

    def judge(output: Path, url: str) -> list[object]:
        common = ["--model", "judge", "--base-url", url, "--concurrency", 4, "--references", references]
        return ["judge", "facts", captions, "-o", output, *common]

    clean, killed = tmp_path / "clean.jsonl", tmp_path / "killed.jsonl"
    assert cli(*judge(clean, start())).returncode == 4
    journal = Path(f"{killed}.journal")
    command = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, judge(killed, start("--delay", "0.03")))]
    for answers in (10, 75):  # while claims are split, and while they are verified
        running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not journal.exists() or journal.read_bytes().count(b"\n") < answers:
            assert running.poll() is None
            time.sleep(0.01)
        running.kill()
        running.wait()
    assert not killed.exists()
    assert cli(*judge(killed, start())).returncode == 4
    assert killed.read_bytes() == clean.read_bytes()
    assert rows(killed)[0]["verified"] == [1, 1, 1, 0]


def test_usage_errors(cli: Cli, tmp_path: Path) -> None:
    folder = draw(tmp_path / "images", "1.png")
    for arguments, message in (
        (["describe", folder, "-o", "x.jsonl", "--model", "m", "--samples", 2], "temperature above 0"),
        (["describe", folder, "-o", "-", "--model", "m"], "requires a file"),
        (["describe", tmp_path / "none", "-o", "x", "--model", "m"], "file or folder not found"),
        (["describe", str(tmp_path / "*.jpg"), "-o", "x", "--model", "m"], "images not found"),
        (["describe", folder, folder, "-o", "x", "--model", "m"], "has the same image id '1'"),
        (["answer", tmp_path / "none.json", "-o", "x", "--model", "m"], "file not found"),
        (["augmented", "a.jsonl"], "list the answers without descriptions first, then the augmented ones"),
    ):
        done = cli(*arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_claims_judged_once_are_scenes_for_claims(cli: Cli, ok: Cli, start: Start, tmp_path: Path) -> None:
    folder = draw(tmp_path / "images", "COCO_val2014_000000000007.jpg", "8.jpg")
    one = write(tmp_path / "one.jsonl", [{"image_id": 7, "caption": "A blue car. Two dogs. A red zebra."}])
    texts = ["A blue car.", "A black car. A brown horse."]
    two = write(tmp_path / "two.jsonl", [{"image_id": k, "caption": text} for k, text in enumerate(texts, 7)])
    judged, url = tmp_path / "judged.jsonl", start()
    judge = ["judge", "claims", one, two, "-o", judged, "--images-root", folder, "--model", "judge", "--base-url", url]
    first = cli(*judge, "--kinds", "count,attribute")
    assert first.returncode == 4, first.stderr
    assert "4 claims judged" in first.stderr
    assert "1 unreadable (the first: neither yes nor no to 'Is there a zebra in the image for which" in first.stderr
    found = {row["image_id"]: [(c["label"], c["value"], c["answer"]) for c in row["claims"]] for row in rows(judged)}
    assert found == {
        "7": [("car", "blue", "no"), ("dog", "2", "yes"), ("zebra", "red", None)],
        "8": [("car", "black", "yes"), ("horse", "brown", "absent")],
    }
    assert "7 replies from an earlier run" in cli(*judge, "--kinds", "count,attribute").stderr
    retried = cli(*judge, "--kinds", "count,attribute", "--retry")
    assert retried.returncode == 0, retried.stderr

    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({"7": ["car", "dog", "zebra"], "8": ["car"]}))
    scored = ok("claims", one, two, "--truth", truth, "--scenes", judged, "--json", "--resamples", 0, "-q").stdout
    systems = orjson.loads(scored)["systems"]
    rates = [[system["metrics"][f"hal_rate_{kind}"]["value"] for kind in ("count", "attribute")] for system in systems]
    assert rates == [[0, 1 / 2], [None, 1 / 2]]


def test_shards_of_judged_claims_are_the_whole(cli: Cli, ok: Cli, start: Start, tmp_path: Path) -> None:
    folder = draw(tmp_path / "images", *(f"{k}.jpg" for k in range(1, 6)))
    captions = described(tmp_path / "captions.jsonl", ["A blue car.", "A car.", "Two dogs.", "A red bus.", "A dog."])
    judge = ["judge", "claims", captions, "--images-root", folder, "--model", "judge", "--base-url", start()]
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    ok(*judge, "-o", whole)
    for shard in ("1/2", "2/2"):
        ok(*judge, "-o", parts, "--shard", shard)
    ok("merge", *sorted(tmp_path.glob("parts.*-of-2.jsonl")), "-o", parts)
    assert parts.read_bytes() == whole.read_bytes()
    assert [row["image_id"] for row in rows(whole)] == ["1", "3", "4"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--kinds", "color"], "not a kind of claim: 'color'"),
        (["--kinds", "text"], "no claim of text in the captions"),
        (["--prompt-file", "prompt.txt"], "the prompt has no {question}"),
    ],
)
def test_claims_that_cannot_be_asked_about(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompt.txt").write_text("Is it true?")
    write(Path("c.jsonl"), [{"image_id": 7, "caption": "A blue car."}])
    done = cli("judge", "claims", "c.jsonl", "-o", "j.jsonl", "--images-root", ".", "--model", "judge", *options)
    assert done.returncode == 2
    assert reason in done.stderr
