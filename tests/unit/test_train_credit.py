"""Advantages and weights of every scheme against literal definitions."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

from scapo_eval import PresenceOracle, SubsentenceReward, Vocabulary  # noqa: E402
from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_train.config import Config, from_table  # noqa: E402
from scapo_train.credit import credit, resamples, token_weights  # noqa: E402
from scapo_train.data import Response  # noqa: E402
from scapo_train.metrics import response_sums  # noqa: E402

VOCABULARY = Vocabulary.from_mapping({"dog": ["dog"], "cat": ["cat"], "car": ["car"], "tree": ["tree"]})
ORACLE = PresenceOracle.from_objects({"1": ["dog", "tree"], "2": ["car"]}, labels=VOCABULARY.labels)
TEXTS = [
    "I can see a dog here. There is also a cat there. It is a very nice day.",
    "I can see a dog here. Behind it stands a tree.",
    "It is a very nice day.",
    "There is a dog here.",
    "I can see a car here.",
    "I can see a car here.",
    "I can see a car here.",
    "I can see a car here.",
]
IMAGES = ["1"] * 4 + ["2"] * 4


@pytest.fixture(scope="module")
def tokenizer() -> object:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


def config(**settings: object) -> Config:
    return from_table({"credit": settings, "rollout": {"group": 4, "max_new_tokens": 64}})


def responses(tokenizer: object, *, unfinished: int | None = None) -> list[Response]:
    found = []
    for k, text in enumerate(TEXTS):
        ids = tokenizer.encode(text).ids  # type: ignore[attr-defined]
        found.append(Response(ids, False) if k == unfinished else Response([*ids, 0], True))
    return found


def credited(tokenizer: object, made: Config, given: list[Response], *logprobs):  # type: ignore[no-untyped-def]
    reward = SubsentenceReward(VOCABULARY, ORACLE, made.credit.reward_config())
    rollout = made.rollout
    return credit(made.credit, reward, tokenizer, IMAGES, given, rollout.group, rollout.max_new_tokens, *logprobs)


def test_scapo_broadcasts_each_piece_to_its_own_tokens_and_nothing_to_the_end(tokenizer: object) -> None:
    found = credited(tokenizer, config(), responses(tokenizer))
    text, ids = TEXTS[0], responses(tokenizer)[0].ids
    begins = [0, text.index("There"), text.index("It is")]
    at = 0
    for k, token in enumerate(ids[:-1]):
        at += len(tokenizer.decode([token], skip_special_tokens=False))  # type: ignore[attr-defined]
        piece = sum(at > begin for begin in begins) - 1
        assert found.advantages[0][k] == pytest.approx([1.0, -1.0, -0.1][piece]), (k, at)
    assert found.advantages[0][-1] == 0.0
    assert found.rewards[:4] == pytest.approx([-0.1, 2.0, -0.1, 1.0])


@pytest.mark.parametrize(("floor", "day"), [(0.01, -1.0), (0.001, -0.1)])
def test_what_the_reference_would_hardly_say_costs_an_invention_unless_it_is_a_name(
    tokenizer: object, floor: float, day: float
) -> None:
    given, text = responses(tokenizer), TEXTS[0]
    begins, dog, nice = [0, text.index("There"), text.index("It is")], text.index("dog"), text.index("nice")
    found: list[np.ndarray] = [np.full(len(each.ids), 0.5) for each in given]
    piece, at = [], 0
    for k, token in enumerate(given[0].ids[:-1]):
        before, at = at, at + len(tokenizer.decode([token], skip_special_tokens=False))  # type: ignore[attr-defined]
        piece.append(sum(at > begin for begin in begins) - 1)
        if before < dog + 3 and at > dog:
            found[0][k] = 1e-9
        if before < nice + 4 and at > nice:
            found[0][k] = 0.005
    found[0][-1] = 1e-9  # of the end, which is of no piece
    found[1][:] = 0.02
    asked = []

    def logprobs(whose: str) -> list[np.ndarray]:
        asked.append(whose)
        return [np.log(each) for each in found]

    made = credited(tokenizer, config(reference_floor=floor), given, logprobs)
    assert asked == ["reference"]
    assert made.advantages[0] == pytest.approx([*([1.0, -1.0, day][k] for k in piece), 0.0])
    assert made.rewards[0] == pytest.approx(day)
    plain = credited(tokenizer, config(), given)
    assert all((a == b).all() for a, b in zip(made.advantages[1:], plain.advantages[1:], strict=True))


@pytest.mark.parametrize(("ratio", "day"), [(20.0, -1.0), (30.0, -0.1)])
def test_wording_that_the_policy_says_far_more_often_than_the_reference_is_charged(
    tokenizer: object, ratio: float, day: float
) -> None:
    """The last piece is 25 times as probable under the policy; names do not count, and rare words alone neither."""
    given, text = responses(tokenizer), TEXTS[0]
    begins, dog = [0, text.index("There"), text.index("It is")], text.index("dog")
    policy: list[np.ndarray] = [np.full(len(each.ids), 1e-6) for each in given]
    reference = [each.copy() for each in policy]
    piece, at = [], 0
    for k, token in enumerate(given[0].ids[:-1]):
        before, at = at, at + len(tokenizer.decode([token], skip_special_tokens=False))  # type: ignore[attr-defined]
        piece.append(sum(at > begin for begin in begins) - 1)
        if before < dog + 3 and at > dog:
            policy[0][k] = 1.0
    last = [k for k, number in enumerate(piece) if number == 2]
    policy[0][last[0]] *= 50
    policy[0][last[1]] /= 2
    policy[0][-1] = 1.0  # of the end, which is of no piece
    by_model = {"policy": policy, "reference": reference}

    made = credited(
        tokenizer, config(reference_ratio=ratio), given, lambda whose: [np.log(each) for each in by_model[whose]]
    )
    assert made.advantages[0] == pytest.approx([*([1.0, -1.0, day][k] for k in piece), 0.0])
    plain = credited(tokenizer, config(), given)
    assert all((a == b).all() for a, b in zip(made.advantages[1:], plain.advantages[1:], strict=True))
    same = credited(tokenizer, config(reference_ratio=1.01), given, lambda _: [np.log(each) for each in policy])
    assert all((a == b).all() for a, b in zip(same.advantages, plain.advantages, strict=True))


def test_limits_of_the_reference_need_one_and_pieces() -> None:
    for table, reason in (
        ({"credit": {"reference_ratio": 100.0}, "loss": {"kl": 0.0}}, r"requires loss\.kl > 0"),
        ({"credit": {"reference_ratio": 100.0, "scheme": "grpo", "reward": "hal"}}, "rewards responses"),
        ({"credit": {"reference_ratio": 1.0}}, "must be 0 .no limit. or above 1"),
        ({"credit": {"reference_floor": 0.01}, "loss": {"kl": 0.0}}, r"requires loss\.kl > 0"),
        ({"credit": {"reference_floor": 0.01, "scheme": "grpo", "reward": "hal"}}, "rewards responses"),
        ({"credit": {"reference_floor": 1.0}}, "must be less than 1"),
    ):
        with pytest.raises(InputError, match=reason):
            from_table(table)


@pytest.mark.parametrize(("name", "rewards"), [("hal", [0.5, 1.0, 1.0, 1.0]), ("cap", [0.5, 1.0, 0.0, 2 / 3])])
@pytest.mark.parametrize("scheme", ["grpo", "dapo", "dr_grpo"])
def test_response_level_schemes_compare_with_the_group(
    tokenizer: object, scheme: str, name: str, rewards: list[float]
) -> None:
    given = responses(tokenizer)
    found = credited(tokenizer, config(scheme=scheme, reward=name), given)
    assert found.rewards[:4] == pytest.approx(rewards)
    mean, spread = statistics.mean(rewards), statistics.stdev(rewards) + 1e-6
    for k, value in enumerate(rewards):
        wanted = value - mean if scheme == "dr_grpo" else (value - mean) / spread
        assert len(found.advantages[k]) == len(given[k].ids)  # the end of sequence included
        assert found.advantages[k] == pytest.approx(np.full(len(given[k].ids), wanted), abs=1e-6)
    assert found.has_variance.tolist() == [True, False]
    assert all(not found.advantages[k].any() for k in range(4, 8))


def test_saying_nothing_is_perfect_under_hal_and_worthless_under_cap(tokenizer: object) -> None:
    given = responses(tokenizer)
    hal = credited(tokenizer, config(scheme="grpo", reward="hal"), given)
    cap = credited(tokenizer, config(scheme="grpo", reward="cap"), given)
    assert hal.rewards[2] == 1.0
    assert hal.advantages[2][0] > 0 > cap.advantages[2][0]


def test_object_level_ends_each_piece_at_its_mention(tokenizer: object) -> None:
    found = credited(tokenizer, config(scheme="object"), responses(tokenizer))
    assert [list(part)[2] for part in found.columns.results()[0].parts] == [1.0, -1.0]


@pytest.mark.parametrize(
    ("settings", "total"), [({"ablation": "no_reg"}, 0.0), ({"r_reg": 0.5}, -0.5), ({"r_h": 2.0}, -1.1)]
)
def test_coefficients_reach_the_reward(tokenizer: object, settings: dict[str, object], total: float) -> None:
    assert credited(tokenizer, config(**settings), responses(tokenizer)).rewards[0] == pytest.approx(total)


def test_a_truncated_tail_can_be_masked(tokenizer: object) -> None:
    given = responses(tokenizer, unfinished=1)
    scored = credited(tokenizer, config(), given).advantages[1]
    masked = credited(tokenizer, config(truncated="mask"), given).advantages[1]
    half = len(masked) // 3
    assert scored[-1] == 1.0
    assert masked[-1] == 0.0
    assert masked[:half] == pytest.approx(scored[:half])
    whole = credited(tokenizer, config(scheme="grpo", reward="cap", truncated="mask"), given)
    assert not whole.advantages[1].any()
    assert whole.advantages[0].any()


def test_weights_of_the_three_normalizers_add_up() -> None:
    lengths = np.array([3, 5, 2])
    loss = config().loss
    assert (token_weights(loss, lengths, 10, 3, 64) * lengths).sum() == pytest.approx(1.0)
    grpo = config(scheme="grpo", reward="cap", form="original").loss
    assert token_weights(grpo, lengths, 10, 3, 64) * lengths == pytest.approx([1 / 3] * 3)
    dr_grpo = config(scheme="dr_grpo", reward="cap", form="original").loss
    assert token_weights(dr_grpo, lengths, 10, 3, 64) == pytest.approx([1 / (3 * 64)] * 3)
    assert dr_grpo.kl == 0.0


def test_published_forms_differ_and_the_papers_do_not() -> None:
    for scheme in ("grpo", "dapo", "dr_grpo"):
        assert config(scheme=scheme, reward="hal").loss == config().loss
    dapo = config(scheme="dapo", reward="hal", form="original")
    assert (dapo.loss.clip_low, dapo.loss.clip_high, dapo.loss.kl) == (0.2, 0.28, 0.0)
    assert resamples(dapo) == 3
    assert resamples(config(scheme="dapo", reward="hal")) == 0


def test_overlong_answers_lose_reward_in_the_published_dapo(tokenizer: object) -> None:
    given = responses(tokenizer)
    longest = max(len(each.ids) for each in given)
    plain = from_table({"credit": {"scheme": "dapo", "reward": "hal"}, "rollout": {"group": 4}})
    settings = {"scheme": "dapo", "reward": "hal", "form": "original", "overlong": 10}
    shaped = from_table({"credit": settings, "rollout": {"group": 4, "max_new_tokens": longest}})
    before, after = credited(tokenizer, plain, given).rewards, credited(tokenizer, shaped, given).rewards
    for k, each in enumerate(given):
        penalty = min(1.0, max(0.0, (len(each.ids) - (longest - 10)) / 10))
        assert before[k] - after[k] == pytest.approx(penalty)
    assert (before != after).any()


def test_response_sums_are_those_of_the_sets(tokenizer: object) -> None:
    given = responses(tokenizer)
    found = credited(tokenizer, config(), given)
    present = np.array([2] * 4 + [1] * 4)
    total = response_sums(found, given, present)
    assert (total["generated"], total["hallucinated"], total["covered"], total["present"]) == (9, 1, 8, 12)
    assert total["reward_hal"] == -1.0
    assert total["reward_reg"] == pytest.approx(-0.2)
    assert total["reward"] == pytest.approx(total["reward_new"] + total["reward_hal"] + total["reward_reg"])
    assert math.isclose(total["pieces"], 3 + 2 + 1 + 1 + 4)


def test_an_empty_response_is_counted_and_gets_no_reward(tokenizer: object) -> None:
    given = responses(tokenizer)
    given[0] = Response([0], True)
    found = credited(tokenizer, config(), given)
    assert found.advantages[0].tolist() == [0.0]
    assert response_sums(found, given, np.ones(8, dtype=np.int64))["without_text"] == 1.0


LAST_PIECE_ONLY = """
import numpy as np

def last_piece(sampled):
    found = []
    for k, spans in enumerate(sampled.offsets):
        parts = sampled.columns.results()[k].parts
        own = (spans[:, 1] > parts[-1].start) & (spans[:, 1] > spans[:, 0])
        found.append(np.where(own, parts[-1].reward, 0.0))
    return found

def too_short(sampled):
    return [[0.0] for _ in sampled.texts]
"""


def test_a_scheme_of_ones_own(tokenizer: object, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(LAST_PIECE_ONLY)
    found = credited(tokenizer, config(scheme=f"{file}:last_piece"), responses(tokenizer))
    scapo = credited(tokenizer, config(), responses(tokenizer))
    assert found.advantages[0][0] == 0.0
    assert found.advantages[0][-2] == pytest.approx(-0.1)
    assert (found.advantages[3] == scapo.advantages[3]).all()
    with pytest.raises(InputError, match="one finite number for each token"):
        credited(tokenizer, config(scheme=f"{file}:too_short"), responses(tokenizer))
    with pytest.raises(InputError, match="function 'nothing' not found"):
        credited(tokenizer, config(scheme=f"{file}:nothing"), responses(tokenizer))
    file.write_text("import nothing_like_this\n")
    with pytest.raises(InputError, match="the file cannot be run: No module named 'nothing_like_this'"):
        credited(tokenizer, config(scheme=f"{file}:last_piece"), responses(tokenizer))
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n\n"
        f"@dataclass\nclass Settings:\n    weight: float = 1.0\n{LAST_PIECE_ONLY}"
    )
    own = credited(tokenizer, config(scheme=f"{file}:last_piece"), responses(tokenizer))
    assert all((a == b).all() for a, b in zip(own.advantages, found.advantages, strict=True))
    with pytest.raises(InputError, match="Python file not found"):
        credited(tokenizer, config(scheme=f"{tmp_path / 'other.py'}:mine"), responses(tokenizer))
    with pytest.raises(InputError, match=r"credit\.scheme: expected scapo, object"):
        config(scheme="scappo")


def test_the_scheme_of_the_documentation_runs(tokenizer: object, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "schemes.md").read_text()
    file = tmp_path / "mine.py"
    file.write_text(text.split("```python\n")[1].split("```")[0])
    found = credited(tokenizer, config(scheme=f"{file}:fading"), responses(tokenizer))
    scapo = credited(tokenizer, config(), responses(tokenizer))
    for mine, theirs in zip(found.advantages, scapo.advantages, strict=True):
        assert mine == pytest.approx(theirs)  # no response has more than three pieces
