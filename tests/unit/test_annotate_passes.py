"""Passes over cells with engines of the test's own: sample, coarse, mine, refine, compare, the final file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

Image = pytest.importorskip("PIL.Image")

from scapo_eval.annotate.agreement import compare  # noqa: E402
from scapo_eval.annotate.coarse import calls_left, coarse, open_or_create  # noqa: E402
from scapo_eval.annotate.coarse import prompts_for as coarse_prompts  # noqa: E402
from scapo_eval.annotate.finalize import finalize, write_prompts  # noqa: E402
from scapo_eval.annotate.mine import confusion, disputed, read_rollouts, suggested  # noqa: E402
from scapo_eval.annotate.passes import Forecast, PassOutcome, journal_of  # noqa: E402
from scapo_eval.annotate.refine import Refinement, all_cells, listed_cells, prompts_for, refine  # noqa: E402
from scapo_eval.annotate.sample import sample, write_sample  # noqa: E402
from scapo_eval.annotate.store import CellProvenance, Store  # noqa: E402
from scapo_eval.base.errors import InputError, InputErrors  # noqa: E402
from scapo_eval.engines import Completion, Request, Sampling  # noqa: E402
from scapo_eval.inference.runner import Session  # noqa: E402
from scapo_eval.inference.sources import ImageFile, find_images, image_ids  # noqa: E402
from scapo_eval.matching.vocabulary import Vocabulary  # noqa: E402
from scapo_eval.truths.oracle import PresenceOracle  # noqa: E402

LABELS = ("dog", "cat", "knife", "fork")
WORLD = Vocabulary.from_mapping({label: [label, f"{label}s"] for label in LABELS}, name="world")
Say = Callable[[str, Request], str]


class Judge:
    """Answers by a function of the image's name and the request."""

    card: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, say: Say, name: str = "judge") -> None:
        self.identity = {"engine": "test", "model": name}
        self.say = say
        self.asked: list[tuple[str, Request]] = []

    def run(self, requests: Iterable[Request], done: Callable[[Request, Completion], None]) -> None:
        """Answers at once."""
        for request in requests:
            name = Path(request.images[0]).stem
            self.asked.append((name, request))
            text = self.say(name, request)
            done(request, Completion(error=text[6:]) if text.startswith("error ") else Completion(text, "stop", 100, 4))

    def close(self) -> None:
        """Nothing to free."""


def truthful(truth: dict[str, set[str]]) -> Say:
    """A judge who sees what is there."""

    def say(image: str, request: Request) -> str:
        assert request.schema is not None
        keys = request.schema["required"]
        if keys != ["present"]:
            return orjson.dumps({label: label in truth[image] for label in keys}).decode()
        label = next(each for each in LABELS if f"Label: {each}\n" in request.turns[-1].text)
        return orjson.dumps({"present": label in truth[image]}).decode()

    return say


def draw(folder: Path, number: int) -> list[ImageFile]:
    """Pictures 1, 2..., each of its own."""
    folder.mkdir(exist_ok=True)
    for k in range(1, number + 1):
        Image.new("RGB", (4, 4), (k % 256, k // 256, 7)).save(folder / f"{k}.png")
    return find_images([str(folder)])


def truth_of(number: int) -> dict[str, set[str]]:
    """Every label in some images."""
    return {str(k): {label for j, label in enumerate(LABELS) if k % (j + 2) == 0} for k in range(1, number + 1)}


def ask(store: Store, judge: Judge, per_call: int = 1, **more: Any) -> PassOutcome:
    """A coarse pass."""
    with journal_of(store) as journal:
        return coarse(store, Session(judge, journal), coarse_prompts(store.vocabulary, per_call), **more)


def expected(store: Store, truth: dict[str, set[str]]) -> list[list[int]]:
    """The matrix of the truth."""
    return [[int(label in truth[image]) for label in LABELS] for image in store.image_ids]


@pytest.mark.parametrize("per_call", [1, 3, 8])
def test_coarse_fills_every_cell_once(tmp_path: Path, per_call: int) -> None:
    truth, found = truth_of(30), draw(tmp_path / "images", 30)
    judge = Judge(truthful(truth))
    told: list[Forecast] = []
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        outcome = ask(store, judge, per_call, report=told.append)
        assert store.matrix.tolist() == expected(store, truth)
        assert (outcome.cells, outcome.present, outcome.flawed) == (120, int((store.matrix == 1).sum()), False)
        assert calls_left(store, coarse_prompts(WORLD, per_call)) == 0
    calls = 30 * -(-4 // per_call)
    assert len(judge.asked) == calls == told[-1].total == told[-1].done
    assert told[0].done == min(64, calls)
    assert told[-1].cost(1000, 2.0, 10.0) == pytest.approx(1000 * (100 * 2 + 4 * 10) / 1e6)
    again = Judge(truthful(truth))
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, again, per_call)
        source = store.provenance_of(0, 0)
        assert source is not None
        assert (source.kind, source.round) == ("coarse", 0)
        assert source.judge.startswith("judge@")
        assert store.prompts[source.prompt]["user"] == judge.asked[0][1].turns[-1].text
        (card,) = store.lines("passes.jsonl")
        assert card["counts"]["requests"] == calls
    assert again.asked == []


def test_a_forecast_asks_the_first_few_calls_only_and_they_count(tmp_path: Path) -> None:
    truth, found = truth_of(40), draw(tmp_path / "images", 40)
    judge = Judge(truthful(truth))
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, judge, only_first=True)
        assert len(judge.asked) == 64
        ask(store, judge)
        assert len(judge.asked) == 160
        assert store.matrix.tolist() == expected(store, truth)


BAD = {
    "no JSON": "I think there is one.",
    "refusal": "Sorry, I cannot help with that.",
    "both values": '{"present": true, "present": false}',
    "other label": '{"unicorn": true}',
    "empty": "",
}


@pytest.mark.parametrize("bad", BAD)
def test_unreadable_answers_are_asked_again_then_listed(tmp_path: Path, bad: str) -> None:
    truth, found = truth_of(6), draw(tmp_path / "images", 6)
    honest = truthful(truth)

    def say(image: str, request: Request) -> str:
        stubborn = "Label: cat\n" in request.turns[-1].text and image in ("2", "3")
        once = image == "1" and request.sample == 0
        return BAD[bad] if stubborn or once else honest(image, request)

    judge = Judge(say)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        with journal_of(store) as journal:
            session = Session(judge, journal)
            outcome = coarse(store, session, coarse_prompts(WORLD))
        assert session.tally.repeated == 4 + 2 * 2  # one image's cells once, two cells twice
        assert len(judge.asked) == 24 + 8
        assert {(row["image_id"], row["label"], row["answer"]) for row in outcome.unread} == {
            ("2", "cat", BAD[bad]), ("3", "cat", BAD[bad]),
        }  # fmt: skip
        assert outcome.flawed
        wanted = expected(store, truth)
        wanted[store.image_ids.index("2")][1] = wanted[store.image_ids.index("3")][1] = -1
        assert store.matrix.tolist() == wanted
        assert [row["image_id"] for row in store.lines("unread.jsonl")] == ["2", "3"]
        with pytest.raises(InputErrors, match=r"2 cells are open: 2 without a readable verdict \(listed in") as error:
            finalize(store, str(tmp_path / "m.npz"))
        assert "image 2, cat: no verdict from coarse@" in str(error.value)
        card = finalize(store, str(tmp_path / "m.npz"), allow_unknown=True)
        assert card["cells"]["unknown"] == 2
        assert PresenceOracle.load(tmp_path / "m.npz").state("2", "cat") == -1
        before = len(store)
        ask(store, judge)  # the journal answers: nothing is asked, nothing written twice
        assert (len(judge.asked), len(store)) == (32, before)
        ask(store, Judge(honest, "another judge"))
        assert store.matrix.tolist() == expected(store, truth)
        assert store.lines("unread.jsonl") == []


def test_cells_without_an_answer_stay_open_and_are_asked_again(tmp_path: Path) -> None:
    truth, found = truth_of(5), draw(tmp_path / "images", 5)
    honest = truthful(truth)
    down = True

    def say(image: str, request: Request) -> str:
        return "error HTTP 500" if down and image == "4" else honest(image, request)

    judge = Judge(say)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        outcome = ask(store, judge)
        assert [row["error"] for row in outcome.failed] == ["HTTP 500"] * 4
        assert store.provenance_of(store.image_ids.index("4"), 0) is None
        assert len(store.lines("unread.jsonl")) == 4
        with pytest.raises(InputErrors, match=r"4 never judged \(run `annotate coarse` again\)"):
            finalize(store, str(tmp_path / "m.npz"))
    down = False
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        assert not ask(store, judge).flawed
        assert store.matrix.tolist() == expected(store, truth)


def test_images_that_do_not_load_are_excluded_never_absent(tmp_path: Path) -> None:
    truth, found = truth_of(4), draw(tmp_path / "images", 4)
    broken = tmp_path / "images" / "3.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:40])
    judge = Judge(truthful(truth))
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        outcome = ask(store, judge)
        assert outcome.excluded == ["3"]
        assert "not a valid image" in store.excluded["3"]
        assert {image for image, _ in judge.asked} == {"1", "2", "4"}
        assert (store.matrix[store.image_ids.index("3")] == -1).all()
        card = finalize(store, str(tmp_path / "m.npz"))
        assert card["images"]["n"] == 3
        assert [each["image_id"] for each in card["images"]["excluded"]] == ["3"]
        assert "3" not in PresenceOracle.load(tmp_path / "m.npz").index
        assert "1 images could not be loaded and are omitted: 3." in (tmp_path / "m.npz.card.md").read_text()
        broken.write_bytes(whole)
        ask(store, judge)
        assert store.excluded == {}
        assert store.matrix.tolist() == expected(store, truth)
        broken.unlink()
        for name in ("1", "2", "4"):
            (tmp_path / "images" / f"{name}.png").unlink()
        with journal_of(store) as journal:
            prompts = prompts_for(WORLD, ["dog"], own={}, groups={})
            refine(store, Session(judge, journal), Refinement(prompts, all_cells(store, prompts), "again"))
        assert len(store.excluded) == 4
        with pytest.raises(InputError, match="every image is excluded"):
            finalize(store, str(tmp_path / "m.npz"))


def test_the_same_picture_twice_is_asked_once(tmp_path: Path) -> None:
    draw(tmp_path / "images", 3)
    (tmp_path / "images" / "9.png").write_bytes((tmp_path / "images" / "2.png").read_bytes())
    truth = truth_of(9) | {"9": truth_of(2)["2"]}
    judge = Judge(truthful(truth))
    with open_or_create(str(tmp_path / "run"), find_images([str(tmp_path / "images")]), WORLD) as store:
        ask(store, judge)
        assert len(judge.asked) == 12
        rows = [store.image_ids.index(each) for each in ("2", "9")]
        assert (store.matrix[rows[0]] == store.matrix[rows[1]]).all()
        assert (store.matrix != -1).all()


def test_a_run_is_about_its_images_and_its_vocabulary(tmp_path: Path) -> None:
    found = draw(tmp_path / "images", 3)
    open_or_create(str(tmp_path / "run"), found, WORLD).close()
    with pytest.raises(InputError, match="1 of its 3 are not in the list, 0 of the list are not in it"):
        open_or_create(str(tmp_path / "run"), found[:2], WORLD)
    with pytest.raises(InputError, match="in another order"):
        open_or_create(str(tmp_path / "run"), found[::-1], WORLD)
    other = Vocabulary.from_mapping({"dog": ["dog", "puppy"]})
    with pytest.raises(InputError, match="labels or aliases have changed"):
        open_or_create(str(tmp_path / "run"), found, other)
    open_or_create(str(tmp_path / "run"), found, WORLD).close()  # a refusal leaves no lock


def test_refinement_asks_the_affected_cells_and_keeps_every_version(tmp_path: Path) -> None:
    truth, found = truth_of(12), draw(tmp_path / "images", 12)
    honest = truthful(truth)

    def confused(image: str, request: Request) -> str:
        """Takes a knife for a fork, unless both are asked for together."""
        if "Label: fork\n" in request.turns[-1].text and "knife" in truth[image]:
            return '{"present": true}'
        return honest(image, request)

    judge = Judge(confused)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, judge)
        wrong = [image for image in truth if "knife" in truth[image] and "fork" not in truth[image]]
        row = store.image_ids.index(wrong[0])
        store.write([store.image_ids.index(wrong[1])], [3], [1], CellProvenance("human", "", "me"))
        judge.asked.clear()
        prompts = prompts_for(WORLD, [], own={}, groups={("knife", "fork"): None})
        refinement = Refinement(prompts, all_cells(store, prompts), "knives are taken for forks", 1)
        with journal_of(store) as journal:
            outcome = refine(store, Session(judge, journal), refinement)
            assert len(judge.asked) == 12
            assert outcome.changed == len(wrong) - 1
            assert refine(store, Session(judge, journal), refinement).calls == 0
        wanted = expected(store, truth)
        wanted[store.image_ids.index(wrong[1])][3] = 1  # what a person said stays
        assert store.matrix.tolist() == wanted
        history = store.history(row, 3)
        assert [(verdict, source.kind, source.round, source.reason) for verdict, source in history] == [
            (1, "coarse", 0, ""), (0, "joint", 1, "knives are taken for forks"),
        ]  # fmt: skip
        assert calls_left(store, coarse_prompts(WORLD)) == 0
        listed = tmp_path / "cells.jsonl"
        listed.write_text('{"image_id": "1", "label": "dog", "evidence": 3}\n{"image_id": "2", "label": "dog"}\n')
        prompts = prompts_for(WORLD, ["dog"], own={}, groups={})
        judge.asked.clear()
        with journal_of(store) as journal:
            refine(store, Session(judge, journal), Refinement(prompts, listed_cells(store, str(listed)), "listed"))
        assert [image for image, _ in judge.asked] == ["1", "2"]
        listed.write_text('{"image_id": "77", "label": "dog"}\n')
        with pytest.raises(InputError, match=r"cells\.jsonl:1: expected an image_id and a label of the run"):
            listed_cells(store, str(listed))
        card = finalize(store, str(tmp_path / "m.npz"), license="CC0-1.0")
        assert card["cells"]["by_kind"] == {"coarse": 24 - 2, "joint": 23, "human": 1, "label": 2}
        assert card["cells"]["changed_since_first_verdict"] == len(wrong) - 1
        assert {each["kind"] for each in card["prompts"]} == {"coarse", "label", "joint"}
        assert all(each["user"] and "@" in each["prompt"] for each in card["prompts"])


def test_a_joint_prompt_changes_only_listed_cells(tmp_path: Path) -> None:
    truth, found = truth_of(6), draw(tmp_path / "images", 6)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, Judge(truthful(truth)))
        opposite = Judge(truthful({image: set(LABELS) - labels for image, labels in truth.items()}))
        prompts = prompts_for(WORLD, [], own={}, groups={("knife", "fork"): None})
        cells = np.zeros(store.matrix.shape, dtype=bool)
        cells[store.image_ids.index("3"), 2] = True
        with journal_of(store) as journal:
            outcome = refine(store, Session(opposite, journal), Refinement(prompts, cells, "listed"))
        assert (len(opposite.asked), outcome.cells, outcome.changed) == (1, 1, 1)
        wanted = expected(store, truth)
        wanted[store.image_ids.index("3")][2] ^= 1
        assert store.matrix.tolist() == wanted


def test_unreadable_answers_of_a_refinement_are_asked_again_with_another_seed(tmp_path: Path) -> None:
    truth, found = truth_of(4), draw(tmp_path / "images", 4)
    honest = truthful(truth)
    mumbles = True
    judge = Judge(lambda image, request: "hm" if mumbles else honest(image, request))
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, Judge(honest))
        prompts = prompts_for(WORLD, ["dog"], own={}, groups={})
        refinement = Refinement(prompts, all_cells(store, prompts), "again")
        with journal_of(store) as journal:
            assert len(refine(store, Session(judge, journal), refinement, sampling=Sampling(seed=0)).unread) == 4
            asked = len(judge.asked)
            assert len(refine(store, Session(judge, journal), refinement, sampling=Sampling(seed=0)).unread) == 4
            assert len(judge.asked) == asked  # the journal has these answers
            mumbles = False
            assert not refine(store, Session(judge, journal), refinement, sampling=Sampling(seed=5)).flawed
        assert len(judge.asked) == asked + 4
        assert store.matrix.tolist() == expected(store, truth)


def test_images_that_have_moved_are_found_again(tmp_path: Path) -> None:
    truth, found = truth_of(3), draw(tmp_path / "images", 3)
    with open_or_create(str(tmp_path / "run"), found, WORLD):
        pass
    (tmp_path / "images").rename(tmp_path / "moved")
    with open_or_create(str(tmp_path / "run"), find_images([str(tmp_path / "moved")]), WORLD) as store:
        assert not ask(store, Judge(truthful(truth))).flawed
        assert store.matrix.tolist() == expected(store, truth)
    with Store.open(tmp_path / "run") as store:
        assert [Path(path).parent.name for path in store.paths] == ["moved"] * 3


def test_mining_ranks_what_rollouts_contradict(tmp_path: Path) -> None:
    truth, found = truth_of(60), draw(tmp_path / "images", 60)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, Judge(truthful(truth)))
        row = {image: k for k, image in enumerate(store.image_ids)}
        missed, invented = row["10"], row["7"]  # 10 has a dog, 7 has nothing
        store.write([missed, invented], [0, 2], [0, 1], CellProvenance("coarse", "coarse@0", "judge"))
    rollouts = tmp_path / "rollouts.jsonl"
    with open(rollouts, "wb") as stream:
        for image, shown in truth.items():
            for sample_number in range(4):
                said = sorted(shown)[: 4 if sample_number else 1]
                row_of = {"image_id": image, "response": f"There is {' and '.join(said) or 'a unicorn'}.", "sample": 1}
                stream.write(orjson.dumps(row_of) + b"\n")
        stream.write(orjson.dumps({"image_id": "999", "response": "A dog."}) + b"\n")
    witness = read_rollouts(store, [str(rollouts)])
    assert (witness.rollouts == 4).all()
    assert witness.unknown == 1
    assert len(witness.texts) == 240
    cells = disputed(store, witness)
    assert {(cells[0].row, cells[0].column), (cells[1].row, cells[1].column)} == {(missed, 0), (invented, 2)}
    assert [each.evidence for each in cells] == sorted((each.evidence for each in cells), reverse=True)
    claimed = next(each for each in cells if each.row == missed)
    assert (claimed.verdict, claimed.claims, claimed.rollouts) == (0, int(witness.claims[missed, 0]), 4)
    assert disputed(store, witness, min_rollouts=5) == []
    labels = {each.label: each for each in confusion(store, witness, cells)}
    assert labels["dog"].claimed_absent == 1
    assert labels["knife"].silent_present == 1
    assert labels["dog"].claim_rate_present > 0.9 > 0.1 > labels["dog"].claim_rate_absent
    assert suggested(list(labels.values())) == []
    assert [each.label for each in suggested(list(labels.values()), least=1)] != []


def test_two_runs_are_compared_where_both_have_judged(tmp_path: Path) -> None:
    truth, found = truth_of(40), draw(tmp_path / "images", 40)
    honest = truthful(truth)

    def hasty(image: str, request: Request) -> str:
        said = orjson.loads(honest(image, request))
        return orjson.dumps(said | {"dog": True}).decode()

    with open_or_create(str(tmp_path / "one"), found, WORLD) as one:
        ask(one, Judge(honest))
    with open_or_create(str(tmp_path / "many"), found, WORLD) as many:
        ask(many, Judge(hasty), 4)
        many.write([0], [1], [-1], CellProvenance("coarse", "x@1", "judge"))
    found_out = compare(many, one, resamples=200)
    without = sum("dog" not in shown for shown in truth.values())
    assert (found_out.images, found_out.cells, found_out.differ) == (40, 159, without)
    assert found_out.labels[0] == ("dog", 40, without, 0)
    value, interval = found_out.shares["disagreement"]
    assert value == pytest.approx(without / 159)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < without / 159 < interval.high
    assert found_out.shares["only_second_of_present"][0] == 0.0
    other = [ImageFile("other", "1.png", str(tmp_path / "images" / "1.png"))]
    with (
        open_or_create(str(tmp_path / "other"), other, WORLD) as third,
        pytest.raises(InputError, match="has no image or no label in common"),
    ):
        compare(third, one)


def test_training_prompts_are_of_the_images_that_are_not_excluded(tmp_path: Path) -> None:
    truth, found = truth_of(6), draw(tmp_path / "images", 6)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        ask(store, Judge(truthful(truth)))
        store.exclude("3", "damaged")
        finalize(store, str(tmp_path / "m.npz"))
        assert write_prompts(store, str(tmp_path / "train.jsonl")) == 5
        (tmp_path / "elsewhere").mkdir()
        write_prompts(store, str(tmp_path / "elsewhere" / "train.jsonl"), "Look.")
    rows = [orjson.loads(line) for line in (tmp_path / "train.jsonl").read_bytes().splitlines()]
    assert [row["image_id"] for row in rows] == ["1", "2", "4", "5", "6"]
    assert rows[0] == {"image": "images/1.png", "image_id": "1", "prompt": "Describe this image."}
    oracle = PresenceOracle.load(tmp_path / "m.npz")
    assert all(row["image_id"] in oracle.index and (tmp_path / row["image"]).is_file() for row in rows)
    (first, *_) = (tmp_path / "elsewhere" / "train.jsonl").read_bytes().splitlines()
    assert orjson.loads(first)["image"] == str(tmp_path / "images" / "1.png")


def test_the_final_file_is_read_by_everyone_and_says_how_it_was_made(tmp_path: Path) -> None:
    truth, found = truth_of(20), draw(tmp_path / "images", 20)
    with open_or_create(str(tmp_path / "run"), found, WORLD) as store:
        store.keep_pool({"pool": {"images": 99, "sources": ["train"], "hash": "x"}, "seed": 5, "excluded": []})
        ask(store, Judge(truthful(truth)))
        for name in ("m.npz", "m.parquet"):
            card = finalize(store, str(tmp_path / name), license="CC-BY-4.0", note="A note.")
            oracle = PresenceOracle.load(tmp_path / name)
            assert oracle.vocabulary_fingerprint == WORLD.fingerprint
            assert all(oracle.present(image) == shown for image, shown in truth.items())
            assert oracle.fingerprint == card["fingerprint"]
        assert orjson.loads((tmp_path / "m.npz.card.json").read_bytes())["licence"] == "CC-BY-4.0"
        text = (tmp_path / "m.npz.card.md").read_text()
        for part in (
            "A note.",
            "CC-BY-4.0",
            "Drawn with seed 5 from 99 images of train",
            "no person has checked",
            "judge@",
        ):
            assert part in text
        with pytest.raises(InputError, match=r"it must end in \.npz or \.parquet"):
            finalize(store, str(tmp_path / "m.json"))
        assert np.load(tmp_path / "m.npz")["matrix"].dtype == np.int8


def test_a_sample_depends_on_seed_and_ids_only() -> None:
    pool = [ImageFile(str(k), f"{k}.jpg", f"{k}.jpg") for k in range(1000)]
    drawn = [each.image_id for each in sample(pool, 100, seed=3)]
    assert [each.image_id for each in sample(pool[::-1], 100, seed=3)] == drawn
    assert [each.image_id for each in sample(pool, 40, seed=3)] == drawn[:40]
    assert [each.image_id for each in sample(pool, 100, seed=4)] != drawn
    assert 350 < np.mean([int(each) for each in drawn]) < 650
    without = sample(pool, 100, seed=3, exclude=frozenset(drawn[:50]))
    assert [each.image_id for each in without[:50]] == drawn[50:]
    with pytest.raises(InputError, match="cannot draw 101 images: the pool has 1,000, of which 900 are excluded"):
        sample(pool, 101, exclude=frozenset(map(str, range(900))))


def test_what_is_evaluated_on_is_kept_out_across_the_splits(tmp_path: Path) -> None:
    pool = tmp_path / "train2017.json"
    images = [{"id": k, "file_name": f"{k:012d}.jpg"} for k in range(1, 9)]
    pool.write_bytes(orjson.dumps({"images": images, "annotations": []}))
    evaluation = tmp_path / "val2014.jsonl"
    evaluation.write_text(
        '{"image_id": "COCO_val2014_000000000003.jpg", "caption": "A dog."}\n{"image_id": 3, "caption": "A cat."}\n'
        '{"image_id": 5, "caption": "A bus."}\n'
    )
    truth = tmp_path / "truth.json"
    truth.write_bytes(orjson.dumps({"000000000007": ["dog"]}))
    questions = tmp_path / "pope.jsonl"
    questions.write_text('{"question_id": 1, "image": "COCO_val2014_000000000008.jpg", "text": "?", "label": "no"}\n')
    assert image_ids(str(pool)) == {str(k) for k in range(1, 9)}
    assert image_ids(str(questions)) == {"8"}
    answers = tmp_path / "answers.jsonl"  # the id is that of the answer
    answers.write_text('{"id": "7", "response": "Yes", "image": "COCO_val2014_000000000008.jpg"}\n')
    assert image_ids(str(answers)) == {"8"}
    output = tmp_path / "sample.jsonl"
    card = write_sample(
        str(output), find_images([str(pool)]), 4, seed=0, exclude=[str(evaluation), str(truth), str(questions)],
        sources=[str(pool)],
    )  # fmt: skip
    assert {each.image_id for each in find_images([str(output)])} == {"1", "2", "4", "6"}
    assert [(each["images"], each["in_pool"]) for each in card["excluded"]] == [(2, 2), (1, 1), (1, 1)]
    assert orjson.loads(Path(f"{output}.card.json").read_bytes()) == card
    (tmp_path / "none.jsonl").write_text('{"text": 1}\n')
    with pytest.raises((InputError, InputErrors), match="missing key 'image"):
        image_ids(str(tmp_path / "none.jsonl"))
