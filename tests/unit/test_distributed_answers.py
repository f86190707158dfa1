"""Answers in any batches and files add up to what one process says of them; no engine is needed for that."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scapo_eval
from scapo_eval import InputError, InputErrors
from scapo_eval.base.odd_texts import OddTexts
from scapo_eval.benchmarks.amber import AmberData
from scapo_eval.benchmarks.hallusionbench import hallusionbench_runs, read_hallusionbench, read_questions
from scapo_eval.benchmarks.phd import prompt_record, read_phd
from scapo_eval.benchmarks.pope import CATEGORIES
from scapo_eval.distributed.amber import AmberCounter
from scapo_eval.distributed.answers import AnswerCounter
from scapo_eval.distributed.batch import merged
from scapo_eval.distributed.files import files_of, parts_of
from scapo_eval.files.records import Records
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.results import Resampling, Run

DRAWN = Resampling(20)
SAYINGS = ("Yes.", "no", "**No**, there is none", "There is a dog.", "Well, yes")


def pope_questions() -> list[dict[str, Any]]:
    return [
        {"id": k, "label": "yes" if k % 3 else "no", "image": f"{k % 30}.jpg", "category": category, "text": f"Is {k}?"}
        for category in CATEGORIES
        for k in range(100)
    ]


def answers(seed: int = 0) -> list[dict[str, Any]]:
    """An answer to most questions, another wording of its question for two, and two of nobody's."""
    rng = random.Random(seed)
    found = [
        {
            "id": f"pope/{question['category']}/{question['id']}",
            "response": rng.choice(SAYINGS),
            "label": question["label"] if rng.random() < 0.98 else "yes",
            "question": question["text"] if rng.random() < 0.99 else "Is it?",
            "model": "m",
        }
        for question in pope_questions()
        if rng.random() < 0.9
    ]
    strangers = [("pope/popular/4711", "no"), ("amber/3", "yes")]
    return [*found, *({"id": name, "response": response, "model": "m"} for name, response in strangers)]


def counter(benchmark: str = "pope", questions: Any = None, **reading: Any) -> AnswerCounter:
    made = AnswerCounter.of("<x>", benchmark, pope_questions() if questions is None else questions, **reading)
    return pickle.loads(pickle.dumps(made))


def said(run: Run) -> dict[str, Any]:
    told = run.account.notes if run.account else []  # an account is kept in one process only
    notes = [note for note in run.notes if note not in told]
    return {**run.to_dict(), "name": "", "account": None, "notes": notes, "evidence": run.evidence()}


def scattered(rows: list[dict[str, Any]], seed: int) -> list[pa.Table]:
    rng = random.Random(seed)
    cuts = sorted({0, len(rows), *(rng.randrange(len(rows)) for _ in range(seed))})
    pieces = [rows[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    rng.shuffle(pieces)
    return [pa.Table.from_pylist(piece, schema=pa.Table.from_pylist(rows).schema) for piece in pieces]


def of_files(given: Any, made: Any = None, **how: Any) -> Run:
    parts = parts_of(files_of(given), row_groups=False)
    made = made or counter()
    tables = [made.of_parts(parts.slice(k, 1)) for k in range(parts.num_rows + 1)]  # the last has none
    return made.run(merged(tables), "x", resampling=DRAWN, **how)


@pytest.mark.parametrize("reading", [{}, {"unparsed": "drop"}, {"parser": "contains"}])
@pytest.mark.parametrize("batches", [0, 1, 9])
def test_batches_add_up_to_one_process(batches: int, reading: dict[str, Any]) -> None:
    one = scapo_eval.pope(answers(), questions=pope_questions(), resamples=20, **reading)
    assert one.other_counts["unknown"] == 6
    made = counter(**reading)
    tables = [made.of_batches([]), *(made.of_batches([piece]) for piece in scattered(answers(), batches))]
    run = made.run(merged(tables), "x", resampling=DRAWN)
    strangers = [note for note in one.notes if "to unknown questions" in note]
    assert len(strangers) == 1
    here, there = (
        {**said(each), "notes": [note for note in each.notes if note not in strangers]} for each in (run, one)
    )
    if batches:  # lines of a data set are those of its batches
        here["notes"] = [note for note in here["notes"] if not note.startswith("omitted: 6 answers to unknown")]
    assert here == there
    failed = [{"id": f"x{k}", "response": f"Error code: {k}", "model": "m"} for k in (4712, 4711)]
    tables.append(made.of_batches(scattered(failed, 1)))
    account = made.run(merged(tables), "x", resampling=DRAWN).account
    assert account is not None
    assert account.failed == OddTexts(2, "Error code: 4712")


def phd_records(n: int) -> list[dict[str, Any]]:
    texts = {"task": "object", "yes_question": "Is a dog there?", "no_question": "Is a cat there?"}
    return [{**texts, "image_id": str(k), "context": {"sec": "A.", "icc": "B."}} for k in range(n)]


def test_every_benchmark_of_yes_and_no(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps(phd_records(50)))
    rng = random.Random(1)
    rows = [
        {**prompt_record(question), "response": rng.choice(SAYINGS)} for question in read_phd(tmp_path / "data.json")
    ]
    one = scapo_eval.phd(rows, data=tmp_path / "data.json", resamples=20)
    assert any("no answer in mode ccs" in note for note in one.notes)
    made = counter("phd", tmp_path / "data.json")
    tables = [made.of_batches([piece]) for piece in scattered(rows, 5)]
    assert said(made.run(merged(tables), "x", resampling=DRAWN)) == said(one)

    plain = [{"id": k, "label": "yes" if k % 3 else "no"} for k in range(200)]
    rows = [{"id": f"{k:03}", "response": rng.choice(SAYINGS)} for k in range(200)]
    made = counter("yesno", plain, yes=("well",))
    tables = [made.of_batches([piece]) for piece in scattered(rows, 5)]
    run = made.run(merged(tables), "x", resampling=DRAWN)
    assert run.table.counts() != scapo_eval.yesno(rows, questions=plain).table.counts()  # of the further word
    assert "parser:default+well=yes|" in run.signature


@pytest.mark.parametrize("text_only", ["auto", "in", "out"])
@pytest.mark.parametrize("figures", ["all", "some"])
def test_hallusionbench(text_only: str, figures: str, tmp_path: Path) -> None:
    """Whether questions without a figure count is decided of all answers, wherever they were read."""
    rng = random.Random(3)
    ids = [f"V{'DS'[v]}/chart/{v}/{s}/{f}/{q}" for v in (0, 1) for s in range(9) for f in range(3) for q in range(2)]
    questions = [{"id": each, "label": rng.choice(("yes", "no")), "question": f"Is it {each}?"} for each in ids]
    rows = [{"id": each.replace("/", "_"), "response": rng.choice((*SAYINGS, "Who knows?"))} for each in ids]
    if figures == "some":
        rows = [row for row in rows if not (row["id"].startswith("VS") and row["id"].split("_")[4] == "0")][:-3]
    rows.append({"id": "VD/chart/7/77/7/7", "response": "no"})
    asked = read_questions([Records("q", questions)])
    joined = read_hallusionbench(Records("<x>", rows), asked, PARSERS["default"], text_only=text_only)  # type: ignore[arg-type]
    [one] = hallusionbench_runs({"x": joined}, parser="default", resampling=DRAWN)
    out = text_only == "out" or (text_only, figures) == ("auto", "some")
    assert one.signature.fields["text_only"] == ("out" if out else "in")
    made = counter("hallusionbench", questions, text_only=text_only)
    tables = [made.of_batches([piece]) for piece in scattered(rows, 6)]
    run = made.run(merged(tables), "x", resampling=DRAWN)
    here, there = ({**said(each), "notes": [n for n in each.notes if "known question" not in n]} for each in (run, one))
    assert here == there  # but for the line of the stranger, which is that of its batch
    for k, table in enumerate(scattered(rows, 6)):
        pq.write_table(table, tmp_path / f"{k}.parquet")
    assert of_files(tmp_path / "*", made).evidence() == one.evidence()
    pq.write_table(pa.Table.from_pylist(questions), tmp_path / "questions.parquet")
    assert counter("hallusionbench", tmp_path / "questions.parquet", text_only=text_only).questions == made.questions
    (tmp_path / "0.parquet").write_bytes(b"PAR1" + bytes(99))
    (tmp_path / "questions.parquet").unlink()
    left = of_files(tmp_path / "*", made, on_bad_file="skip")
    assert (left.other_counts["bad_files"], left.signature.fields["bad_files"]) == (1, "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The answers in files of three kinds."""
    lines = [json.dumps(row) for row in answers()]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.jsonl").write_text("\n".join(lines[:100]))
    (tmp_path / "a" / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[100:150]).encode()))
    (tmp_path / "a" / "c.json").write_text(f"[{','.join(lines[150:])}]")
    return tmp_path / "a"


def test_files_of_any_layout(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, answers())))
    one = scapo_eval.pope(tmp_path / "all.jsonl", questions=pope_questions(), resamples=20)
    assert said(of_files(tmp_path / "all.jsonl")) == said(one)
    assert of_files(folder / "*").evidence() == one.evidence()


def test_files_without_records_are_shards_of_nothing(folder: Path) -> None:
    one = of_files(folder / "*")
    pq.write_table(
        pa.table({"id": pa.array([], pa.string()), "response": pa.array([], pa.string())}), folder / "0.parquet"
    )
    (folder / "1.jsonl").write_bytes(b"")
    assert said(of_files(folder / "*")) == said(one)
    with pytest.raises(InputError, match=r"0\.parquet: the file contains no record"):
        of_files(folder / "[0-9]*")


def test_a_corrupt_file_among_many_is_named_or_left_out(folder: Path) -> None:
    data = (folder / "b.jsonl.gz").read_bytes()
    (folder / "b.jsonl.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputErrors, match=r"b\.jsonl\.gz: damaged or truncated"):
        of_files(folder / "*")
    left = of_files(folder / "*", on_bad_file="skip")
    one = scapo_eval.pope(answers()[:100] + answers()[150:], questions=pope_questions(), resamples=20)
    assert left.table.counts() == one.table.counts()
    assert (left.other_counts["bad_files"], left.signature.fields["bad_files"]) == (1, "1")
    assert "b.jsonl.gz" in left.notes[0]
    for file in folder.iterdir():
        file.write_bytes(b"\0")
    with pytest.raises(InputError, match="the file contains no answers"):
        of_files(folder / "*", on_bad_file="skip")


def test_faulty_records_are_named_by_file_and_line(folder: Path) -> None:
    with (folder / "a.jsonl").open("a") as stream:
        stream.write('\n{"id": 3}\n{broken\n')
    with pytest.raises(InputErrors) as one:
        scapo_eval.pope(folder / "a.jsonl", questions=pope_questions())
    with pytest.raises(InputErrors) as caught:
        of_files(folder / "*")
    assert str(caught.value) == str(one.value)
    assert "a.jsonl:102" in str(one.value)
    left = of_files(folder / "*", on_bad_file="skip")  # its file is omitted, counted and named; the others count
    kept = scapo_eval.pope(answers()[100:], questions=pope_questions(), resamples=20)
    assert left.table.counts() == kept.table.counts()
    assert left.other_counts["bad_files"] == 1
    assert "a.jsonl" in left.notes[0]
    [record] = phd_records(1)
    made = counter("phd", [record])
    batch = pa.Table.from_pylist([{"id": "9", "response": "yes"}])
    with pytest.raises(InputErrors, match=r"\(a batch that begins with id 9\):1: missing key 'mode' \(id '9'\)"):
        made.run(made.of_batches([batch]), "x", on_bad_file="skip", resampling=DRAWN)


def test_a_question_that_is_answered_twice(folder: Path) -> None:
    rows = [row for row in answers() if "pope" in row["id"]]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, [*rows[:100], {**rows[0], "response": "Yes."}])))
    one = scapo_eval.pope(folder / "a.jsonl", questions=pope_questions(), resamples=20)
    within = of_files(folder / "a.jsonl")  # one file has an order: the first answer counts
    assert (within.evidence(), within.other_counts) == (one.evidence(), one.other_counts)
    assert within.other_counts["duplicate"] == 1
    (folder / "d.jsonl").write_text(json.dumps(rows[0]))
    with pytest.raises(InputError, match="1 questions are answered twice, in different files"):
        of_files(folder / "*")
    made = counter()
    batch = pa.Table.from_pylist(rows)
    for tables in ([made.of_batches([batch, batch])], [made.of_batches([batch])] * 2):
        with pytest.raises(InputError, match="258 questions are answered twice, in different files or in a"):
            made.run(merged(tables), "x", resampling=DRAWN)


def test_what_one_process_refuses(tmp_path: Path) -> None:
    made = counter()
    other = [{**row, "question": "Is it another one?"} for row in answers()[:200]]
    with pytest.raises(
        InputError, match=r"of adversarial have another question than the question with their id \('pope/adv"
    ):
        made.run(merged([made.of_batches([piece]) for piece in scattered(other, 3)]), "x", resampling=DRAWN)
    strange = [{"id": f"amber/{k}", "response": "yes"} for k in range(9)]
    with pytest.raises(InputError, match=r"<x>:1: 9 of 9 answers have an id that is not in the questions"):
        made.run(made.of_batches([pa.Table.from_pylist(strange)]), "x", resampling=DRAWN)
    two = [made.of_batches([pa.Table.from_pylist([{**row, "model": m} for row in answers()[:9]])]) for m in "ab"]
    with pytest.raises(InputError, match=r"several models in one file \('a', 'b'\); score the answers of each"):
        made.run(merged(two), "x", resampling=DRAWN)
    with pytest.raises(InputError, match="the file contains no answers"):
        made.run(made.of_batches([]), "x", resampling=DRAWN)
    with pytest.raises(InputError, match="answers to 'amber' are not counted on an engine"):
        counter("amber")
    with pytest.raises(InputError, match="parser"):
        counter(parser="mine")
    with pytest.raises(InputError, match="option of pope must be one of unparsed, got 'text_only'"):
        counter(text_only="in")
    with pytest.raises(InputError, match="text_only must be one of auto, in, out, got 'no'"):
        counter("hallusionbench", [], text_only="no")


def test_categories_and_numbers_of_pope() -> None:
    rows = [row for row in answers() if "pope" in row["id"]]
    questions = [question for question in pope_questions() if question["category"] == "popular"]
    one = scapo_eval.pope(rows, questions=questions, resamples=20)
    made = counter(questions=questions)
    run = made.run(merged([made.of_batches([piece]) for piece in scattered(rows, 4)]), "x", resampling=DRAWN)
    assert said(run)["evidence"] == said(one)["evidence"]
    assert run.other_counts == one.other_counts
    assert run.notes[0] == one.notes[0]
    assert run.notes[0].endswith("answers omitted: no question file for adversarial, random")
    numbers = [[{"id": k, "response": "no"}] for k in (7, 20_000_007)]  # LLaVA's, of which the first tells nothing
    with pytest.raises(InputError, match="ids are counted through all categories and within one category in different"):
        made.run(merged([made.of_batches([pa.Table.from_pylist(each)]) for each in numbers]), "x", resampling=DRAWN)


@pytest.fixture(scope="module")
def amber_data(tmp_path_factory: pytest.TempPathFactory) -> AmberData:
    """A small AMBER: two images to describe, forty questions."""
    folder = tmp_path_factory.mktemp("amber")
    described = [{"id": k, "type": "generative", "truth": ["dog", "car"], "hallu": ["cat"]} for k in (1, 2)]
    asked = [
        {"id": k, "type": "discriminative-attribute-state", "truth": "yes" if k % 3 else "no"} for k in range(3, 43)
    ]
    (folder / "annotations.json").write_text(json.dumps([*described, *asked]))
    (folder / "relation.json").write_text(json.dumps({"dog": ["puppy"], "car": [], "cat": []}))
    (folder / "safe_words.txt").write_text("sky\n")
    return AmberData.load(folder)


@pytest.mark.parametrize("reading", [{}, {"drop_unfinished": True, "skip_bad": True}, {"parser": "exact"}])
@pytest.mark.parametrize("batches", [1, 6])
def test_amber(amber_data: AmberData, reading: dict[str, Any], batches: int, tmp_path: Path) -> None:
    rng = random.Random(2)
    rows = [{"id": 1, "response": "A dog and a cat. A car"}, {"id": 2, "response": "A puppy below the sky."}]
    rows += [{"id": k, "response": rng.choice(SAYINGS)} for k in range(3, 40)]
    one = scapo_eval.amber(rows, data=amber_data, resamples=20, **reading)
    made: AmberCounter = pickle.loads(pickle.dumps(AmberCounter.of("<x>", amber_data, **reading)))
    tables = [made.of_batches([piece]) for piece in [*scattered(rows, batches)]]
    run = made.run(merged([*tables, made.of_batches([])]), "x", resampling=DRAWN)
    assert said(run) == said(one)

    for k in range(3):
        (tmp_path / f"{k}.jsonl").write_text("\n".join(map(json.dumps, rows[k::3])))
    assert of_files(tmp_path / "*", made).evidence() == one.evidence()
    (tmp_path / "1.jsonl").write_bytes(b"\x1f\x8b" + bytes(9))
    left = of_files(tmp_path / "*", made, on_bad_file="skip")
    assert (left.n_records, left.other_counts["bad_files"]) == (26, 1)
    (tmp_path / "1.jsonl").write_text(json.dumps(rows[0]))
    with pytest.raises(InputError, match="1 questions are answered twice"):
        of_files(tmp_path / "*", made)
    (tmp_path / "1.jsonl").write_text('{"id": 4711, "response": "no"}\n' + json.dumps(rows[1]))
    if "skip_bad" in reading:
        assert of_files(tmp_path / "*", made).other_counts["skipped"] == 1
    else:
        with pytest.raises(InputErrors, match=r"1\.jsonl:1: id 4711 is not an AMBER id"):
            of_files(tmp_path / "*", made)
    with pytest.raises(InputError, match="no answer can be scored"):
        made.run(made.of_batches([]), "x", resampling=DRAWN)
