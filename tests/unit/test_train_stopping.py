"""``credit.stop = "group"`` against definitions, and against the exact gradient of a world that can be enumerated."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

from scapo_eval import PresenceOracle, SubsentenceReward, Vocabulary  # noqa: E402
from scapo_eval.base.errors import InputError  # noqa: E402
from scapo_eval.rewarding.stopping import stop_advantages  # noqa: E402
from scapo_train.config import Config, from_table  # noqa: E402
from scapo_train.credit import CreditedBatch, credit  # noqa: E402
from scapo_train.data import Response  # noqa: E402

PIECES = ("I can see a dog here.", "I can see a cat here.", "I have a nice day.")
VOCABULARY = Vocabulary.from_mapping({"dog": ["dog"], "cat": ["cat"]})
ORACLE = PresenceOracle.from_objects({"1": ["dog"]}, labels=VOCABULARY.labels)
Sequence = tuple[int, ...]


def config(group: int, **settings: object) -> Config:
    return from_table({"credit": settings, "rollout": {"group": group, "max_new_tokens": 64}})


@pytest.fixture(scope="module")
def tokenizer() -> object:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    made.train_from_iterator([" ".join(PIECES)], trainer)
    return made


def credited(tokenizer: object, made: Config, sequences: list[Sequence], cut: set[int] = frozenset()) -> CreditedBatch:  # type: ignore[assignment]
    responses = []
    for k, sequence in enumerate(sequences):
        ids = tokenizer.encode(" ".join(PIECES[piece] for piece in sequence)).ids  # type: ignore[attr-defined]
        responses.append(Response(ids, False) if k in cut else Response([*ids, 0], True))
    reward = SubsentenceReward(VOCABULARY, ORACLE, made.credit.reward_config())
    return credit(made.credit, reward, tokenizer, ["1"] * len(sequences), responses, made.rollout.group, 64)


def boundaries(tokenizer: object, sequence: Sequence) -> list[int]:
    """The token that opens each piece, and the end."""
    opens, text = [], ""
    for piece in sequence:
        opens.append(len(tokenizer.encode(text).ids))  # type: ignore[attr-defined]
        text += (" " if text else "") + PIECES[piece]
    return [*opens, len(tokenizer.encode(text).ids)]  # type: ignore[attr-defined]


def test_a_boundary_gets_the_return_after_it_less_that_of_the_others() -> None:
    rewards = np.array([1.0, -1.0, 1.0, 1.0, -0.1])  # of four responses: two pieces, one, none, two and cut off
    finished = np.array([True, True, True, False])
    before, at_end = stop_advantages(rewards, np.array([0, 2, 3, 3, 5]), finished, group=4)
    assert before == pytest.approx([0 - 1.9 / 3, -1 - -0.1 / 2, 1 - 0.9 / 3, 0.9 - 1 / 3, -0.1 - -1 / 2])
    assert at_end[:3] == pytest.approx([0.0, -(-1 - 0.1) / 2, -(0 + 1 + 0.9) / 3])  # nobody else ended after two


def test_the_other_tokens_keep_equation_1(tokenizer: object) -> None:
    sequences: list[Sequence] = [(0, 1), (0,), (), (0, 2)]
    plain = credited(tokenizer, config(4), sequences, cut={3})
    stop = credited(tokenizer, config(4, stop="group"), sequences, cut={3})
    before, at_end = stop_advantages(
        plain.columns.reward, plain.columns.indptr, np.array([True, True, True, False]), group=4
    )
    for k, sequence in enumerate(sequences):
        wanted = plain.advantages[k].copy()
        *opens, end = boundaries(tokenizer, sequence)
        first = plain.columns.indptr[k]
        wanted[opens] = before[first : first + len(opens)]
        if k != 3:
            assert end == len(wanted) - 1
            wanted[end] = at_end[k]
        assert stop.advantages[k] == pytest.approx(wanted)
        assert len(sequence) == 0 or (stop.advantages[k] != plain.advantages[k]).any()
    assert (stop.rewards == plain.rewards).all()


def test_a_masked_piece_counts_nowhere(tokenizer: object) -> None:
    made = config(2, stop="group", truncated="mask")
    with_cut = credited(tokenizer, made, [(0, 1), (0, 0)], cut={0}).advantages
    *opens, _ = boundaries(tokenizer, (0, 1))
    assert not with_cut[0][opens[1] :].any()
    assert with_cut[0][0] == pytest.approx(1 - 1)  # the masked piece costs nothing, the repeat pays nothing
    assert with_cut[1][boundaries(tokenizer, (0, 0))[1]] == pytest.approx(0.0)


class Policy:
    """Going on and wording, each with parameters of its own after every prefix; at most ``most`` pieces."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.prefixes = [p for n in range(most) for p in itertools.product(range(len(PIECES)), repeat=n)]
        random = torch.Generator().manual_seed(0)
        self.go = torch.randn(len(self.prefixes), generator=random, dtype=torch.float64, requires_grad=True)
        self.word = torch.randn(
            len(self.prefixes), len(PIECES), generator=random, dtype=torch.float64, requires_grad=True
        )
        self.sequences = [p for n in range(most + 1) for p in itertools.product(range(len(PIECES)), repeat=n)]

    def decisions(self, sequence: Sequence) -> tuple[list[Any], list[Any]]:
        """Log-probabilities of going on or ending at each boundary, and of the words of each piece."""
        go, word = [], []
        for k in range(len(sequence) + 1):
            if k == self.most:
                break  # the end is forced
            at = self.prefixes.index(sequence[:k])
            ends = k == len(sequence)
            go.append(torch.nn.functional.logsigmoid(-self.go[at] if ends else self.go[at]))
            if not ends:
                word.append(self.word[at].log_softmax(0)[sequence[k]])
        return go, word

    def logprob(self, sequence: Sequence) -> Any:
        return sum((x for part in self.decisions(sequence) for x in part), torch.zeros((), dtype=torch.float64))


@pytest.mark.parametrize(("group", "most"), [(2, 3), (3, 2)])
def test_the_expected_gradient_is_the_exact_one(tokenizer: object, group: int, most: int) -> None:
    policy = Policy(most)
    single = credited(tokenizer, config(1), policy.sequences).columns
    rewards = {s: torch.tensor(single.reward[a:b]) for s, a, b in
               zip(policy.sequences, single.indptr[:-1], single.indptr[1:], strict=True)}  # fmt: skip
    chances = torch.stack([policy.logprob(s).exp() for s in policy.sequences])
    assert float(chances.detach().sum()) == pytest.approx(1)

    expected_return = sum(p * rewards[s].sum() for p, s in zip(chances, policy.sequences, strict=True))
    (exact_go,) = torch.autograd.grad(expected_return, policy.go, retain_graph=True)
    # Eq. 1 asks each piece for its own reward only: the prefix is held fixed
    myopic = sum(
        p.detach() * (word * reward)
        for p, s in zip(chances, policy.sequences, strict=True)
        for word, reward in zip(policy.decisions(s)[1], rewards[s], strict=True)
    )
    (exact_word,) = torch.autograd.grad(myopic, policy.word, retain_graph=True)

    groups = list(itertools.product(range(len(policy.sequences)), repeat=group))
    flat = [policy.sequences[k] for members in groups for k in members]
    weights = chances.detach()[torch.tensor(groups)].prod(1) / group

    def estimated(stop: str) -> tuple[Any, Any]:
        advantages = credited(tokenizer, config(group, stop=stop), flat).advantages
        # the mean advantage of each decision over all groups, then one gradient
        totals = {s: np.zeros(2 * len(s) + 1) for s in policy.sequences}
        for k, sequence in enumerate(flat):
            *opens, end = boundaries_of[sequence]
            inside = [at + 1 for at in opens]
            totals[sequence] += float(weights[k // group]) * advantages[k][[*opens, end, *inside]]
        loss = torch.zeros((), dtype=torch.float64)
        for sequence, total in totals.items():
            go, word = policy.decisions(sequence)
            values = torch.tensor(total)
            loss = loss + sum(a * g for a, g in zip(values[: len(sequence) + 1], go, strict=False))
            loss = loss + sum(a * w for a, w in zip(values[len(sequence) + 1 :], word, strict=True))
        go, word = torch.autograd.grad(loss, (policy.go, policy.word))
        return go, word

    boundaries_of = {s: boundaries(tokenizer, s) for s in policy.sequences}
    go, word = estimated("group")
    torch.testing.assert_close(go, exact_go, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(word, exact_word, rtol=1e-5, atol=1e-6)
    paper_go, paper_word = estimated("")
    torch.testing.assert_close(paper_word, exact_word, rtol=1e-5, atol=1e-6)
    assert float((paper_go - exact_go).abs().max()) > 0.01  # the paper's end never learns what follows


def test_settings_that_contradict_it_are_refused() -> None:
    for settings, reason in (
        ({"scheme": "grpo", "reward": "cap"}, "rewards of pieces"),
        ({"eos": "last"}, r'credit\.eos must be "zero"'),
    ):
        with pytest.raises(InputError, match=reason):
            config(4, stop="group", **settings)
    with pytest.raises(InputError, match="group must be 2 or more"):
        config(1, stop="group")
    with pytest.raises(InputError, match="expected one of '', 'group'"):
        config(4, stop="all")
