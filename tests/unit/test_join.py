"""The join of answers with questions: by id, checked by text, everything left out is counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.base.ids import plain_id
from scapo_eval.base.types import Answer
from scapo_eval.benchmarks.join import join
from scapo_eval.benchmarks.phd import read_phd, read_phd_answers
from scapo_eval.benchmarks.pope import pope_key, read_pope, read_pope_questions
from scapo_eval.benchmarks.provenance import looks_like
from scapo_eval.benchmarks.questions import Question, read_questions
from scapo_eval.benchmarks.yesno import read_yesno
from scapo_eval.readers.parsers import first_word

OBJECTS = ("dog", "cat", "car", "cup", "bus", "bed")


def question(k: int, **fields: Any) -> Question:
    text = f"Is there a {OBJECTS[k % 6]} in the image?"
    return Question(str(k), "yes" if k % 2 else "no", image=f"COCO_val2014_{k // 6:012d}.jpg", text=text, **fields)


QUESTIONS = [question(k) for k in range(60)]


def answer(k: int, response: str = "Yes", **fields: Any) -> Answer:
    return Answer(str(k), response, line=k + 1, **fields)


def write(path: Path, records: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_order_does_not_matter() -> None:
    answers = [answer(k, "Yes" if k % 3 else "No") for k in range(60)]
    forward = join(answers, QUESTIONS, first_word, source="a")
    backward = join(answers[::-1], QUESTIONS, first_word, source="a")
    assert forward == backward
    assert forward.counts == {"unparsed": 0, "missing": 0, "duplicate": 0, "unknown": 0}
    assert forward.notes == ()


def test_what_is_not_scored_is_counted_and_said() -> None:
    answers = [*(answer(k) for k in range(40)), answer(3, "No"), answer(99), answer(40, "Perhaps")]
    run = join(answers, QUESTIONS, first_word, source="a")
    assert run.counts == {"unparsed": 1, "missing": 19, "duplicate": 1, "unknown": 1}
    assert [item.said for item in run.graded if item.question.id == "3"] == ["yes"]  # the first answer counts
    assert run.notes == (
        "partial run: 41 of 60 questions answered (68.3 %)",
        "omitted: 1 answer to unknown questions (first: line 100, id '99')",
        "omitted: 1 repeated answer; only the first answer to a question counts (first: line 4, id '3')",
    )


def test_partial_runs_name_the_parts() -> None:
    questions = [question(k, category="random" if k < 30 else "popular") for k in range(60)]
    run = join([answer(k) for k in range(10)], questions, first_word, source="a")
    assert run.notes == ("partial run: 10 of 60 questions answered (16.7 %): random 10 of 30, popular 0 of 30",)


@pytest.mark.parametrize("written", ["7", " 7", "007", "7.0", "7.00"])
def test_one_id_has_many_spellings(written: str) -> None:
    assert plain_id(written) == "7"
    assert plain_id("v7.1") == "v7.1"


def test_ids_that_count_from_another_start_are_refused() -> None:
    """Without images, an answer cannot be told from its neighbour's but by the text."""
    shifted = [answer(k - 1, question=QUESTIONS[k].text) for k in range(1, 60)]
    with pytest.raises(InputError, match=r"^a:1: 59 of 59 answers have another question .*'Is there a cat"):
        join(shifted, QUESTIONS, first_word, source="a")


def test_image_and_text_find_the_question_where_the_id_counts_something_else() -> None:
    asked = {k: f"{QUESTIONS[k].text} Answer yes or no." for k in range(1, 60)}
    shifted = [answer(k - 1, question=text, image=QUESTIONS[k].image) for k, text in asked.items()]
    run = join(shifted, QUESTIONS, first_word, source="a")
    assert [item.question.id for item in run.graded] == [str(k) for k in range(1, 60)]
    assert run.counts["unknown"] == 0


def test_a_lost_line_near_the_end_leaves_the_rest_out() -> None:
    kept = [k for k in range(60) if k != 57]
    answers = [answer(line, question=QUESTIONS[k].text) for line, k in enumerate(kept)]
    run = join(answers, QUESTIONS, first_word, source="a")
    assert run.counts == {"unparsed": 0, "missing": 3, "duplicate": 0, "unknown": 2}


def test_mended_typos_and_added_instructions_are_the_same_question() -> None:
    asked = Question("1", "yes", text="Is there a dog in the imange?")
    answered = answer(1, question="<image>\nis there a dog  in the image? Yes or no?")
    assert len(join([answered], [asked], first_word, source="a").graded) == 1


def test_another_way_to_name_images_is_no_mismatch() -> None:
    answers = [answer(k, image=f"{k}.png", question=QUESTIONS[k].text) for k in range(60)]
    answers = [Answer(a.id, a.response, image=f"file_{a.id}.webp", question=a.question) for a in answers]
    assert len(join(answers, QUESTIONS, first_word, source="a").graded) == 60


def test_the_questions_labels_count() -> None:
    run = join([answer(1, label="no"), *(answer(k) for k in range(2, 60))], QUESTIONS, first_word, source="a")
    assert run.graded[0].correct
    assert "1 answer with another label than the question; the question's label counts" in run.notes


def test_answers_of_another_benchmark_are_named() -> None:
    amber = [Answer(str(k), "Yes", line=k) for k in range(1005, 3000)]
    with pytest.raises(
        InputError, match=r"1,995 of 1,995 answers have an id that is not in the questions .*AMBER's discriminative"
    ):
        join(amber, QUESTIONS, first_word, source="a", benchmark="pope")
    described = [Answer(str(k), "A dog lies on a sofa in a room with a large window and a lamp.") for k in range(1, 61)]
    with pytest.raises(InputError, match=r"only 0 of 59 answers contain yes or no; .*AMBER's descriptions"):
        join(described, QUESTIONS, first_word, source="a", benchmark="pope")


@pytest.mark.parametrize(
    ("answers", "looks"),
    [
        ([Answer("phd/base/1/yes", "Yes")], "phd answers (scapo-eval phd)"),
        ([Answer("1", "Yes", benchmark="POPE")], "pope answers (scapo-eval pope)"),
        ([Answer("1", "Yes", benchmark="MME")], "MME answers"),
        ([Answer("1", "Yes", mode="icc")], "phd answers (scapo-eval phd)"),
        ([Answer("1", "Yes", question="Is there a dog in the imange?")], "pope answers (scapo-eval pope)"),
        ([Answer("a", "word " * 40)], "captions (scapo-eval score)"),
        ([Answer("a", "Yes")], None),
    ],
)
def test_looks_like(answers: list[Answer], looks: str | None) -> None:
    assert looks_like(answers) == looks


def test_own_labels_need_labels(tmp_path: Path) -> None:
    records = [{"id": k, "response": "Yes", "label": "yes"} for k in range(3)]
    path = write(tmp_path / "a.jsonl", [*records, {"id": 3, "response": "No"}])
    with pytest.raises(
        InputError, match=r"a.jsonl:4: 1 of 4 answers have no label yes or no; specify a file of labels"
    ):
        read_yesno(path, None, first_word)


def test_one_id_for_two_questions_is_refused(tmp_path: Path) -> None:
    records = [{"id": 1, "response": "Yes", "label": "yes", "question": text} for text in ("Is it red?", "Is it blue?")]
    with pytest.raises(InputErrors, match=r"a.jsonl:2: id '1' has two different questions"):
        read_yesno(write(tmp_path / "a.jsonl", records), None, first_word)
    apart = [{**record, "category": category} for record, category in zip(records, "xy", strict=True)]
    assert len(read_yesno(write(tmp_path / "b.jsonl", apart), None, first_word).graded) == 2


def test_answers_to_another_benchmark_within_a_file_are_left_out(tmp_path: Path) -> None:
    own = [{"id": f"pope/random/{k}", "response": "Yes", "label": "yes"} for k in range(4)]
    path = write(tmp_path / "a.jsonl", [*own, {"id": "phd/base/1/yes", "response": "Yes", "label": "yes"}])
    assert read_pope(path, None, first_word).counts == {"unparsed": 0, "missing": 0, "duplicate": 0, "unknown": 1}


def test_several_models_in_one_file(tmp_path: Path) -> None:
    records = [{"id": k, "response": "Yes", "label": "yes", "model": "ab"[k % 2]} for k in range(4)]
    path = write(tmp_path / "a.jsonl", records)
    with pytest.raises(InputError, match=r"'a', 'b'.*--model"):
        read_yesno(path, None, first_word)
    assert len(read_yesno(path, None, first_word, model="b").graded) == 2
    with pytest.raises(InputError, match="'c'"):
        read_yesno(path, None, first_word, model="c")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"image": "x", "label": "yes"}, "missing key 'question_id' or 'id'"),
        ({"id": 1, "text": "Is it?"}, "missing key 'label'"),
        ({"id": 1, "label": "perhaps"}, "must be yes or no, not 'perhaps'"),
    ],
)
def test_question_files_that_are_none(tmp_path: Path, record: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=rf"q.jsonl:1: .*{reason}"):
        read_questions(write(tmp_path / "q.jsonl", [record]))


def test_question_ids_occur_once(tmp_path: Path) -> None:
    with pytest.raises(InputErrors, match=r"q.jsonl:2: the id '1' appears twice"):
        read_questions(write(tmp_path / "q.jsonl", [{"id": 1, "label": "yes"}, {"id": "1", "label": "no"}]))


class TestPope:
    @pytest.fixture
    def files(self, tmp_path: Path) -> list[str]:
        return [
            write(
                tmp_path / f"coco_pope_{category}.json",
                (
                    {
                        "question_id": k,
                        "image": f"{image}.jpg",
                        "text": f"Is there a {name} in the image?",
                        "label": "yes",
                    }
                    for k, name in enumerate(OBJECTS, 1)
                ),
            )
            for image, category in enumerate(("adversarial", "popular", "random"))
        ]

    def test_every_way_to_name_a_question(self, files: list[str]) -> None:
        questions = read_pope_questions(files)
        ways = {
            "adversarial/3": Answer("3", ""),
            "random/3": Answer("10000003", ""),
            "popular/3": Answer("20000003", ""),
            "popular/4": Answer("pope/popular/4", ""),
            "random/4": Answer("4", "", category="random"),
            "random/5": Answer("POPE_Random_5", ""),
        }
        key = pope_key(list(ways.values()), questions)
        assert [key(way) for way in ways.values()] == list(ways)

    def test_one_question_file_or_the_file_name_gives_the_category(self, files: list[str]) -> None:
        answers = [Answer(str(k), "Yes") for k in range(1, 7)]
        assert pope_key(answers, read_pope_questions(files[1:2]))(answers[0]) == "popular/1"
        assert pope_key(answers, read_pope_questions(files), "out/answers_random.json")(answers[0]) == "random/1"

    def test_answers_without_a_question_file_are_left_out_and_counted(self, files: list[str], tmp_path: Path) -> None:
        both = [{"id": f"pope/{part}/{k}", "response": "Yes"} for part in ("random", "popular") for k in range(1, 7)]
        run = read_pope(write(tmp_path / "a.jsonl", both), read_pope_questions(files[1:2]), first_word)
        assert run.counts == {"unparsed": 0, "missing": 0, "duplicate": 0, "unknown": 6}
        assert run.notes == ("6 answers omitted: no question file for random",)
        with pytest.raises(InputError, match="nothing to score: 6 answers omitted"):
            read_pope(write(tmp_path / "b.jsonl", both[:6]), read_pope_questions(files[1:2]), first_word)

    def test_categories_of_the_users_own(self, tmp_path: Path) -> None:
        asked = {"id": 1, "category": "gqa_random", "text": "Is there a dog in the image?", "label": "yes"}
        questions = read_pope_questions([write(tmp_path / "q.jsonl", [asked])])
        answers = [{"id": 1, "response": "Yes", "category": "gqa_random"}]
        assert len(read_pope(write(tmp_path / "a.jsonl", answers), questions, first_word).graded) == 1

    def test_two_data_sets_are_not_mixed(self, files: list[str]) -> None:
        with pytest.raises(InputError, match="'random/1' appears in two question file"):
            read_pope_questions([*files, files[2]])

    def test_other_questions_are_refused(self, tmp_path: Path) -> None:
        other = [{"id": 1, "response": "Yes", "label": "yes", "question": "Is the left circle larger?"}]
        with pytest.raises(InputError, match="not POPE's questions"):
            read_pope(write(tmp_path / "a.jsonl", other), None, first_word)


class TestPhd:
    @pytest.fixture
    def data(self, tmp_path: Path) -> str:
        plain = {"image_id": "9", "task": "object", "context": {"iac": "Dogs like parks.", "icc": "There is a dog."}}
        records = [
            {**plain, "yes_question": "Is there a cat?", "no_question": "Is there a dog?"},
            {**plain, "task": "counting", "yes_question": "Are there two?", "no_question": "Are there three?"},
            {
                "image_id": "9",
                "task": "Object",
                "ccs_description": "",
                "yes_question": "Is it odd?",
                "no_question": "Even?",
            },
        ]
        path = tmp_path / "data.json"
        path.write_text(json.dumps(records))
        return str(path)

    def test_prompts_of_all_modes(self, data: str) -> None:
        questions = {question.id: question for question in read_phd(data)}
        assert len(questions) == 2 * (3 + 3 + 1)
        assert questions["phd/base/9/no"].prompt == "Is there a dog?"
        assert questions["phd/sec/9/yes"].prompt == (
            "Dogs like parks. In case there is an inconsistency between the context and the image content, you should "
            "follow the image. Is there a cat?"
        )
        assert questions["phd/icc/9.2/no"].prompt.endswith(" you should follow the image. Are there three?")
        assert questions["phd/ccs/9/yes"].prompt == "Is it odd?"
        assert questions["phd/ccs/9/yes"].image == "CCS_images/9.png"
        assert questions["phd/ccs/9/yes"].task == "object"

    def test_a_generated_image_is_no_coco_image(self, data: str) -> None:
        assert {question.image_id for question in read_phd(data)} == {"9", "ccs/9"}

    def test_repeated_images_are_told_apart_by_the_text(self, data: str, tmp_path: Path) -> None:
        answers = [
            {"id": "phd/iac/9/yes", "response": "Yes", "mode": "PhD-iac", "image": "000000000009.jpg", "question": text}
            for text in ("Is there a cat?", "Are there two?")
        ]
        run = read_phd_answers(write(tmp_path / "a.jsonl", answers), read_phd(data), first_word)
        assert [item.question.id for item in run.graded] == ["phd/sec/9/yes", "phd/sec/9.2/yes"]
        assert run.counts == {"unparsed": 0, "missing": 12, "duplicate": 0, "unknown": 0}
        assert run.notes[-1] == "no answer in mode base, icc, ccs, so phd_all (the mean of the four modes) has no value"

    @pytest.mark.parametrize(
        ("records", "reason"),
        [
            (
                [{"question_id": 1, "text": "?"}],
                "data.json:1: not a valid record of PhD's data.json: missing .*'yes_question'",
            ),
            ([{"image_id": "1", "yes_question": "?"}], "data.json:1: .* missing key 'no_question'"),
            (
                [{"image_id": "1", "yes_question": "?", "no_question": "?", "context": {"xyz": ""}}],
                "unknown PhD mode 'xyz'",
            ),
        ],
    )
    def test_other_data(self, tmp_path: Path, records: list[dict[str, Any]], reason: str) -> None:
        path = tmp_path / "data.json"
        path.write_text(json.dumps(records))
        with pytest.raises(InputError, match=reason):
            read_phd(path)

    def test_answers_without_a_mode(self, data: str, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [{"id": k, "response": "Yes"} for k in range(3)])
        with pytest.raises(InputError, match=r"a.jsonl:1: missing key 'mode' \(id '0'\)"):
            read_phd_answers(path, read_phd(data), first_word)
        path = write(tmp_path / "b.jsonl", [{"id": k, "response": "Yes"} for k in range(1005, 1100)])
        with pytest.raises(
            InputError, match=r"no answer contains a PhD mode; the file looks like AMBER's discriminative"
        ):
            read_phd_answers(path, read_phd(data), first_word)
