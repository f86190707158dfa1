"""Eq. 1 over claims of several kinds: against a slow version, what is new, what is refused, what adapters pass on."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.base.errors import InputError
from scapo_eval.claiming.claim import KINDS, Claim
from scapo_eval.claiming.extract import ClaimExtractor
from scapo_eval.claiming.rules import MEMORY
from scapo_eval.cli.main import main
from scapo_eval.files.records import Records
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.rewarding.batch import log_metrics, reward_from_environment
from scapo_eval.rewarding.functions import reward_fn
from scapo_eval.rewarding.monitor import behavior_metrics, behavior_sums
from scapo_eval.rewarding.reward import RewardConfig, SubsentenceReward
from scapo_eval.truths.claim_oracle import ClaimOracle
from scapo_eval.truths.oracle import PresenceOracle
from scapo_eval.truths.scenes import Scenes

GRAPH = {
    "image_id": 7,
    "width": 100,
    "height": 100,
    "complete": ["dog", "couch", "car"],
    "objects": [
        {"name": "dog", "attributes": ["brown", "sleeping"], "box": [0, 40, 20, 20]},
        {"name": "dog", "attributes": ["black"], "box": [20, 40, 20, 20]},
        {"name": "couch", "attributes": ["red"], "box": [60, 40, 30, 30]},
        {"name": "sign", "text": "STOP"},
    ],
    "relations": [
        {"subject": 0, "predicate": "sitting on", "object": 2},
        {"subject": 2, "predicate": "under", "object": 0},
        {"subject": 3, "predicate": "standing next to", "object": 0},
    ],
}


@pytest.fixture(scope="module", name="files")
def _files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("world")
    (folder / "scenes.jsonl").write_text(json.dumps(GRAPH) + "\n")
    (folder / "truth.json").write_text(json.dumps({"7": ["dog", "couch", "sign"], "8": ["car"]}))
    return {"truth": str(folder / "truth.json"), "scenes": str(folder / "scenes.jsonl")}


def reward_of(files: dict[str, str], **settings: object) -> SubsentenceReward:
    settings = {"kinds": KINDS, "scenes": files["scenes"], **settings}
    return SubsentenceReward("open400", PresenceOracle.load(files["truth"]), RewardConfig(**settings))


def linear(files: dict[str, str], text: str, **settings: object) -> list[tuple[int, int, int]]:
    reward = reward_of(files, lam_g="linear", lam_h="linear", **settings)
    return [(part.new, part.rep, part.hal) for part in reward([7], [text])[0].parts]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Two dogs.", [(2, 0, 0)]),
        ("Three dogs.", [(1, 0, 1)]),
        ("Two dogs. A pair of dogs.", [(2, 0, 0), (0, 2, 0)]),
        ("A few dogs.", [(2, 0, 0)]),
        ("At least one dog.", [(1, 0, 0)]),
        ("Up to ten dogs.", [(1, 0, 0)]),
        ("A red couch. The couch is red.", [(2, 0, 0), (0, 2, 0)]),
        ("A blue couch. The couch is blue.", [(1, 0, 1), (0, 1, 1)]),
        ("A dog to the left of a couch. A couch to the right of the dog.", [(3, 0, 0), (0, 3, 0)]),
        ("A dog to the right of a couch.", [(2, 0, 1)]),
        ("A dog is on a couch. A couch is beneath a dog.", [(3, 0, 0), (0, 3, 0)]),
        ("A dog is next to a sign. A sign is next to a dog.", [(3, 0, 0), (0, 3, 0)]),
        ('A sign that reads "STOP".', [(2, 0, 0)]),
        ("A wooden couch.", [(1, 0, 0)]),
        ("A tall car.", [(0, 0, 1)]),
        ("Nothing else.", [(0, 0, 0)]),
    ],
)
def test_what_is_new_and_what_is_false(files: dict[str, str], text: str, counts: list[tuple[int, int, int]]) -> None:
    assert linear(files, text) == counts


def test_a_reading_leaves_claims_out(files: dict[str, str]) -> None:
    text = "A couch that may be blue."
    assert linear(files, text) == [(1, 0, 1)]
    assert linear(files, text, claims="certain") == [(1, 0, 0)]


WORDS = st.sampled_from(
    "two three a the red blue brown dogs dog couch car . , and on left of is sleeping several STOP sign".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=30).map(" ".join), min_size=1, max_size=4)


def unit(claim: Claim, state: int) -> tuple[object, ...]:
    """What a claim counts as, written once more and slowly."""
    if claim.kind == "presence" or state != 1:
        return claim.key, state == 1 or claim.restricted
    if claim.kind == "count":
        return "count", claim.label
    if claim.value in ("right of", "below"):
        return {"right of": "left of", "below": "above"}[claim.value], claim.other, claim.label
    if claim.value == "on":
        return "above", claim.label, claim.other
    if claim.value == "next to":
        return claim.value, *sorted((claim.label, claim.other))
    return claim.value.casefold(), claim.label * (claim.kind != "text"), claim.other


@given(TEXTS, st.sampled_from(["all", "visual"]), st.sampled_from(["subsentence", "discourse"]))
def test_the_slow_way(files: dict[str, str], texts: list[str], claims: str, rule: str) -> None:
    vocabulary = Vocabulary.load("open400")
    presence = PresenceOracle.load(files["truth"])
    oracle = ClaimOracle(vocabulary, presence, (Scenes.load(files["scenes"], vocabulary),))
    reward = reward_of(files, lam_g="linear", lam_h="linear", claims=claims, rule=rule, r_rep=0.25)
    left_out = ("hedged", "negated", "question", "quoted", "generic", "purpose", "comparison", "modifier")
    for text, result in zip(texts, reward([7] * len(texts), texts), strict=True):
        said: set[tuple[object, ...]] = set()
        for part, silent in zip(result.parts, result.columns.silent[result._pieces], strict=True):
            units: dict[tuple[object, ...], int] = {}
            for claim in ClaimExtractor(vocabulary).find(text):
                if claim.value == "1+" or (claims == "visual" and claim.use in left_out):
                    continue
                if part.start <= claim.start < part.end:
                    state = oracle.state(7, claim)
                    units[unit(claim, state)] = state
            new = sum(state == 1 and key not in said for key, state in units.items())
            rep = sum(state == 1 and key in said for key, state in units.items())
            hal = sum(state == 0 for state in units.values())
            said |= units.keys()
            assert (part.new, part.rep, part.hal) == (new, rep, hal), text
            expected = -hal if hal else new + 0.25 * rep if new + rep else -0.1
            assert part.reward == pytest.approx(0 if silent else expected)


def test_verdicts_name_claims_and_results_travel(files: dict[str, str]) -> None:
    reward = pickle.loads(pickle.dumps(reward_of(files)))
    result = pickle.loads(pickle.dumps(reward([7], ["Two dogs on a blue couch. A dog on a red couch."])[0]))
    other = reward([7, 7], ["A blue couch. Five dogs.", "A red couch. Two dogs."])[1]
    assert pickle.loads(pickle.dumps(other)).verdicts == other.verdicts
    assert {unit.name for unit in pickle.loads(pickle.dumps(other)).columns.units} == {"couch: red", "number of dog"}
    said = [{name: verdict.word for name, verdict in part.items()} for part in result.verdicts]
    assert said == [
        {"couch": "supported", "dog": "supported", "number of dog": "supported", "dog on couch": "supported",
         "couch: blue": "hallucinated"},
        {"couch": "repeated", "dog": "repeated", "dog on couch": "repeated", "couch: red": "supported"},
    ]  # fmt: skip
    assert "couch: blue" in str(result.explain())
    assert (result.covered, result.hallucinated, result.unknown) == (5, 1, 0)


def test_presence_alone_is_the_default(files: dict[str, str]) -> None:
    texts = ["Two dogs on a blue couch.", "A car.", ""]
    plain = SubsentenceReward("open400", PresenceOracle.load(files["truth"]))
    named = SubsentenceReward("open400", PresenceOracle.load(files["truth"]), RewardConfig(kinds="presence"))
    assert plain.signature == named.signature
    assert "kinds" not in str(plain.signature)
    assert plain.config == RewardConfig(kinds=["presence"])
    assert (plain.batch([7] * 3, texts).reward == named.batch([7] * 3, texts).reward).all()
    assert "kinds:presence+count|" in str(reward_of(files, kinds=["count", "presence"]).signature)


def test_images_without_a_scene_are_scored_by_presence(files: dict[str, str]) -> None:
    reward, plain = reward_of(files), SubsentenceReward("open400", PresenceOracle.load(files["truth"]))
    text = "Two red cars on a couch."
    assert reward([8], [text])[0].total == plain([8], [text])[0].total
    assert reward([8], [text])[0].unknown == 3


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("texts", [[""], ["A dog."], ["A dog.", ""], []])
def test_texts_without_claims_beyond_presence_in_a_new_process(
    files: dict[str, str], kind: str, texts: list[str]
) -> None:
    """Values that earlier texts left in the memory of the process must not be needed."""
    MEMORY.forget()
    reward = reward_of(files, kinds=["presence", kind])
    plain = SubsentenceReward("open400", PresenceOracle.load(files["truth"]))
    ids = [7] * len(texts)
    assert reward.batch(ids, texts).reward.tolist() == plain.batch(ids, texts).reward.tolist()


def test_a_response_by_its_hal_rate(files: dict[str, str]) -> None:
    assert reward_of(files, level="hal")([7], ["Three dogs on a blue couch."])[0].total == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kinds": "presence,color", "scenes": "x"}, "not a kind of claim: 'color'"),
        ({"kinds": "count", "scenes": "x"}, "kinds must contain 'presence'"),
        ({"kinds": 3}, "kinds must be names"),
        ({"kinds": "presence,count"}, "require scenes"),
        ({"kinds": "presence,count", "scenes": 7}, "scenes must be files or Scenes objects, got 7"),
        ({"scenes": "x"}, "scenes require kinds beyond presence"),
        ({"kinds": "presence,count", "scenes": "x", "level": "cap"}, "level 'cap'"),
    ],
)
def test_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        RewardConfig(**settings)


def test_rates_by_kind_add_up(files: dict[str, str]) -> None:
    reward = reward_of(files, kinds="presence,count,attribute")
    texts = ["Three dogs and a car.", "Two dogs on a red couch.", ""]
    whole = behavior_sums(reward.batch([7] * 3, texts))
    parts = [behavior_sums(reward.batch([7], [text])) for text in texts]
    assert whole == {name: sum(part[name] for part in parts) for name in parts[0]}
    rates = behavior_metrics(whole)
    assert (rates["hal_rate_presence"], rates["hal_rate_count"], rates["hal_rate_attribute"]) == (1 / 4, 1 / 2, 0)
    assert (rates["claims_presence"], rates["claims_count"]) == (4 / 3, 2 / 3)
    assert "hal_rate_presence" not in behavior_metrics(
        behavior_sums(SubsentenceReward("open400", PresenceOracle.load(files["truth"])).batch([7], ["A dog."]))
    )


def test_adapters_pass_kinds_on(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Three dogs."
    expected = reward_of(files, kinds=("presence", "count"))([7], [text])[0].total
    function = reward_fn("open400", files["truth"], kinds="presence,count", scenes=files["scenes"])
    assert function([text], image_id=[7]) == [expected] == [-1.0]
    monkeypatch.setenv("SCAPO_TRUTH", files["truth"])
    monkeypatch.setenv("SCAPO_VOCABULARY", "open400")
    settings = {"kinds": ["presence", "count"], "scenes": [files["scenes"]]}
    monkeypatch.setenv("SCAPO_REWARD", json.dumps(settings))
    columns = reward_from_environment().batch([7], [text])
    assert columns.total.tolist() == [expected]
    assert log_metrics(columns)["scapo/hal_rate_count"] == 1.0


def test_a_faulty_row_has_no_claims(files: dict[str, str]) -> None:
    config = RewardConfig(kinds=KINDS, scenes=files["scenes"])
    reward = SubsentenceReward("open400", PresenceOracle.load(files["truth"]), config, on_error="zero")
    columns = reward.batch([None, 7], ["Two dogs.", "Two dogs."])
    assert columns.total.tolist() == [0.0, 1.0]
    assert list(columns.errors) == [0]


def test_missing_scenes_are_named(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.json"):
        reward_of(files, scenes=tmp_path / "nowhere.json")


def test_the_command_takes_kinds(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text(json.dumps({"image_id": 7, "response": "Three dogs. A red couch."}) + "\n")

    def told(*further: str) -> tuple[int, str, str]:
        given = ["reward", str(rollouts), "--truth", files["truth"], "--vocabulary", "open400", *further]
        monkeypatch.setattr("sys.argv", ["scapo-eval", *given])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    code, out, err = told("--kinds", "presence,count,attribute", "--scenes", files["scenes"])
    record = json.loads(out)
    assert code == 0
    assert [part["reward"] for part in record["parts"]] == [-1.0, 1.0]
    assert record["parts"][0]["claims"] == {"dog": "new", "dog: 3": "hal"}
    assert record["parts"][1]["claims"] == {"couch": "new", "couch: red": "new"}
    assert "kinds:presence+count+attribute" in err
    code, _, err = told("--kinds", "presence,count")
    assert (code, "require scenes" in err) == (2, True)
    code, _, err = told("--kinds", "colour")
    assert (code, "not a kind of claim: 'colour'" in err) == (2, True)


@pytest.mark.parametrize("config", [None, RewardConfig.robust(), RewardConfig(additive=True)])
def test_probabilities_of_labels_that_no_response_claims(config: RewardConfig | None) -> None:
    reward = SubsentenceReward("coco80", {"1": {"dog": 0.9, "cat": 0.2}}, config or RewardConfig())
    texts = ["A nice day.", "A horse.", "", "A nice day. It rains."]
    totals = [result.total for result in reward(["1"] * 4, texts)]
    assert totals == pytest.approx([-0.1, -0.1, 0, -0.2])
    assert [reward(["1"], [text])[0].total for text in texts] == pytest.approx(totals)
    mixed = reward(["1"] * 2, ["A nice day.", "A dog. A horse."])
    assert mixed[1].total == pytest.approx(reward(["1"], ["A dog. A horse."])[0].total)


@pytest.mark.parametrize(("present", "hal"), [(["bus"], 1), (["bus", "dog"], 2)])
def test_attributes_and_relations_of_absent_objects_are_not_penalized(present: list[str], hal: int) -> None:
    answers = [
        {"kind": "attribute", "label": "dog", "value": "brown", "answer": "no"},
        {"kind": "relation", "label": "dog", "value": "on", "other": "bus", "answer": "no"},
    ]
    scenes = Records("judge", [{"image_id": 7, "objects": [], "claims": answers}])
    config = RewardConfig(kinds=KINDS, scenes=scenes)
    truth = PresenceOracle.from_objects({7: present}, labels=["bus", "dog"])
    (result,) = SubsentenceReward("open400", truth, config)([7], ["A brown dog on a bus."])
    assert sum(part.hal for part in result.parts) == hal
