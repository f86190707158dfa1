"""Claims scored by kind: presence as the Cap. Score has it, the rest as a count claim by claim says."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import scapo_eval
from scapo_eval import ClaimExtractor, ClaimOracle, InputError, Vocabulary
from scapo_eval.base.errors import InputErrors
from scapo_eval.benchmarks.claimscore import PARTS, claim_metrics, score_claims
from scapo_eval.claiming.claim import KINDS
from scapo_eval.cli.main import main
from scapo_eval.files.records import Records
from scapo_eval.truths.claim_oracle import fact_of, presence_in
from scapo_eval.truths.oracle import Truth
from scapo_eval.truths.scenes import Scenes

ROOT = Path(__file__).parents[2]
VOCABULARY = Vocabulary.load("open400")
DOG_ON_COUCH: dict[str, Any] = {
    "image_id": 7,
    "width": 640,
    "height": 480,
    "complete": ["dog", "couch"],
    "objects": [
        {"name": "dog", "attributes": ["brown"], "box": [60, 100, 200, 150]},
        {"name": "couch", "attributes": ["red"], "box": [0, 200, 400, 280]},
    ],
    "relations": [{"subject": 0, "predicate": "on", "object": 1}],
}


def made_up(seed: int, n: int = 60) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pictures, and captions that say of them what is true and what is not."""
    rng = random.Random(seed)
    names, colors = ("dog", "cat", "car", "couch", "bus"), ("red", "blue", "brown", "white")
    scenes, captions = [], []
    for image in range(n):
        things = [
            {"name": name, "attributes": [rng.choice(colors)], "box": [rng.randrange(80), rng.randrange(80), 20, 20]}
            for name in rng.choices(names, k=rng.randrange(1, 6))
        ]
        ends = rng.randrange(len(things)), rng.randrange(len(things))
        scenes.append(
            {
                "image_id": image, "width": 100, "height": 100, "objects": things,
                "complete": rng.sample(names, k=rng.randrange(6)),
                "relations": [{"subject": ends[0], "predicate": "on", "object": ends[1]}],
            }
        )  # fmt: skip
        said = [
            rng.choice(
                (
                    f"There are {rng.choice(('two', 'three', 'several'))} {rng.choice(names)}s.",
                    f"A {rng.choice(colors)} {rng.choice(names)} is on the {rng.choice(names)}.",
                    f"The {rng.choice(names)} is not {rng.choice(colors)}.",
                    f"On the left, there is a {rng.choice(names)}.",
                )
            )
            for _ in range(rng.randrange(7))
        ]
        captions.append({"image_id": image, "caption": " ".join(said)})
    return scenes, captions


def one_by_one(scenes: list[dict[str, Any]], captions: list[dict[str, Any]]) -> dict[str, int]:
    """The counts, claim by claim."""
    known = Scenes.load(Records("s", scenes), VOCABULARY)
    oracle = ClaimOracle(VOCABULARY, presence_in([known], VOCABULARY), (known,))
    counts = dict.fromkeys((f"{part}_{kind}" for kind in KINDS for part in PARTS), 0)
    for record in captions:
        claims = ClaimExtractor(VOCABULARY).find(record["caption"])
        for kind in KINDS:
            said = {claim.key: oracle.state(record["image_id"], claim) for claim in claims if claim.kind == kind}
            true = {fact_of(c) for c in claims if c.kind == kind and oracle.state(record["image_id"], c) == 1}
            facts = oracle.facts(record["image_id"], kind)
            counts[f"generated_{kind}"] += sum(state != -1 for state in said.values())
            counts[f"hallucinated_{kind}"] += sum(state == 0 for state in said.values())
            counts[f"unknown_{kind}"] += sum(state == -1 for state in said.values())
            counts[f"covered_{kind}"] += len(facts & true)
            counts[f"truth_{kind}"] += len(facts)
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_one_claim_after_the_other(seed: int) -> None:
    scenes, captions = made_up(seed)
    run = scapo_eval.claimscore(captions, scenes=scenes, vocabulary="open400", resamples=0)
    counts = run.table.counts()
    expected = one_by_one(scenes, captions)
    assert {name: counts[name] for name in expected} == expected
    assert min(expected[f"hallucinated_{kind}"] for kind in KINDS if kind != "text") > 0
    for part in PARTS:
        assert counts[part] == sum(expected[f"{part}_{kind}"] for kind in KINDS)


def test_presence_alone_is_the_cap_score() -> None:
    given: dict[str, Any] = {"truth": str(ROOT / "examples" / "truth.json")}
    captions = str(ROOT / "examples" / "captions_baseline.jsonl")
    ours = scapo_eval.claimscore(captions, kinds="presence", **given)
    theirs = scapo_eval.score(captions, **given)
    for name in ("hal_rate", "cover_rate", "cap_score"):
        assert ours.values[name] == theirs.values[name]
        for bound in ("low", "high"):  # of the same counts, by another order of sums
            assert getattr(ours.metrics[name], bound) == pytest.approx(getattr(theirs.metrics[name], bound), rel=1e-6)
        assert name == "cap_score" or ours.metrics[f"{name}_presence"].value == theirs.values[name]
    assert ours.table.image_ids == theirs.table.image_ids


def test_a_caption_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenes.jsonl").write_text(json.dumps(DOG_ON_COUCH) + "\n")
    Path("c.jsonl").write_text(json.dumps({"image_id": 7, "caption": "Two dogs sleep on a blue couch."}) + "\n")

    def told(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["scapo-eval", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    given = ("claims", "c.jsonl", "--scenes", "scenes.jsonl", "--vocabulary", "open400")
    code, out, err = told(*given, "--json", "-o", "r.json", "--per-caption", "e.jsonl")
    values = {name: metric["value"] for name, metric in json.loads(out)["systems"][0]["metrics"].items()}
    assert code == 0
    assert [values[f"hal_rate_{kind}"] for kind in KINDS] == [0, 1, 1, 0, None]
    assert [values[f"cover_rate_{kind}"] for kind in KINDS] == [1, 0, 0, 1, None]
    assert "undecided claims, which are not counted: 1 of 2 of attribute" in err  # asleep
    (record,) = map(json.loads, Path("e.jsonl").read_text().splitlines())
    said = [(claim["kind"], claim["value"], claim["verdict"]) for claim in record["claims"]]
    assert ("count", "2", "hallucinated") in said
    assert ("relation", "on", "supported") in said
    told(*given, "--kinds", "count", "-o", "count.json")
    code, _, err = told("compare", "r.json", "count.json")
    assert (code, "kinds: " in err) == (2, True)
    assert told("report", "r.json", "-o", "r.html", "-q")[0] == 0
    assert "Hal. Rate, count" in Path("r.html").read_text()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "missing ground truth: use --truth, --scenes, or both"),
        (
            {"truth": {7: ["dog"]}, "kinds": "count"},
            "--kinds count requires --scenes: COCO's instances or a scene graph",
        ),
        ({"scenes": [DOG_ON_COUCH], "kinds": "colors"}, "not a kind of claim: 'colors'"),
        ({"scenes": [DOG_ON_COUCH], "kinds": " "}, "not a kind of claim: none"),
    ],
)
def test_options_that_say_nothing_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason.replace("?", r"\?")):
        scapo_eval.claimscore([{"image_id": 7, "caption": "A dog."}], **given)


def test_captions_that_are_all_faulty_are_named() -> None:
    with pytest.raises(InputErrors, match="missing key 'caption'"):
        scapo_eval.claimscore([{"image_id": 7}], scenes=[DOG_ON_COUCH])


def test_presence_by_scenes_asks_the_first_that_has_the_picture() -> None:
    counted = {"image_id": 8, "objects": [], "counts": {"sheep": 2, "cat": 0}}
    first = Scenes.load(Records("a", [DOG_ON_COUCH]), VOCABULARY)
    second = Scenes.load(Records("b", [{**DOG_ON_COUCH, "complete": ["cat"]}, counted]), VOCABULARY)
    presence = presence_in([first, second], VOCABULARY)
    states = {image: [presence.state(image, label) for label in ("dog", "couch", "cat", "sheep")] for image in "78"}
    assert states == {"7": [1, 1, -1, -1], "8": [-1, -1, 0, 1]}


def test_presence_that_only_a_judge_decides_is_counted() -> None:
    answers = [
        {"kind": "presence", "label": label, "answer": answer} for label, answer in (("cat", "no"), ("bus", "yes"))
    ]
    scenes = [{"image_id": 8, "objects": [{"name": "dog"}]}], [{"image_id": 8, "objects": [], "claims": answers}]
    known = [Scenes.load(Records("s", records), VOCABULARY) for records in scenes]
    truth = Truth.of(presence_in(known, VOCABULARY), VOCABULARY)
    captions = Records("c", [{"image_id": 8, "caption": "A dog, a cat, a cat, a bus and a sheep."}])
    counts = score_claims(captions, truth, known, ("presence",)).table.counts()
    assert [counts[f"{part}_presence"] for part in PARTS] == [3, 1, 1, 1, 1]


def test_metrics_of_some_kinds() -> None:
    assert "hal_rate_text" not in claim_metrics(("presence", "count")).formulas


JUDGED = [{"kind": "presence", "label": "dog", "answer": "yes"}, {"kind": "presence", "label": "bus", "answer": "no"}]


@pytest.mark.parametrize("judge_first", [False, True])
def test_answers_of_a_judge_hide_no_annotations(judge_first: bool) -> None:
    """The facts to cover, and the presence that scenes state, come from the first source with annotations."""
    sources = [[DOG_ON_COUCH], [{"image_id": 7, "objects": [], "claims": JUDGED}]]
    known = [Scenes.load(Records("s", records), VOCABULARY) for records in sources]
    ordered = known[::-1] if judge_first else known
    presence = presence_in(ordered, VOCABULARY)
    assert [presence.state(7, label) for label in ("dog", "couch", "bus")] == [1, 1, -1]
    oracle = ClaimOracle(VOCABULARY, scenes=tuple(ordered))
    assert oracle.facts(7, "presence") == {("dog",), ("couch",)}
    run = score_claims(
        Records("c", [{"image_id": 7, "caption": "A dog and a bus."}]), Truth.of(presence, VOCABULARY), ordered
    )
    assert run.values["cover_rate_presence"] == 0.5
    assert run.values["hal_rate_presence"] == 0.5
    assert not [note for note in run.notes if "have no ground truth" in note]
    without = score_claims(
        Records("c", [{"image_id": 7, "caption": "A dog."}]), Truth.of(presence, VOCABULARY), known[:1]
    )
    assert [note for note in without.notes if "have no ground truth" in note]


def test_annotations_are_found_by_the_name_of_the_file() -> None:
    """A judge's answers name the image with its extension, and the scene graph names it without."""
    judged = [{"image_id": "val/7.jpg", "objects": [], "claims": JUDGED}]
    sources = [Scenes.load(Records("s", records), VOCABULARY) for records in (judged, [DOG_ON_COUCH])]
    presence = presence_in(sources, VOCABULARY)
    assert [presence.state("val/7.jpg", label) for label in ("dog", "couch", "bus")] == [1, 1, -1]
    assert [presence.state(7, label) for label in ("dog", "couch", "bus")] == [1, 1, -1]


def test_answers_about_colors_say_nothing_about_presence() -> None:
    red = {"kind": "attribute", "label": "dog", "value": "red", "answer": "no"}
    records = [[DOG_ON_COUCH], [{"image_id": 7, "objects": [], "claims": [red]}]]
    known = [Scenes.load(Records("s", each), VOCABULARY) for each in records]
    truth = Truth.of(presence_in(known, VOCABULARY), VOCABULARY)
    run = score_claims(Records("c", [{"image_id": 7, "caption": "A red dog."}]), truth, known)
    assert [note for note in run.notes if "have no ground truth" in note]
