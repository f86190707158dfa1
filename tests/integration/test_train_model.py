"""Forward pass with shared prompts and the sampler, compared with transformers' own functions on real architectures."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from scapo_eval.base.errors import ScapoError  # noqa: E402
from scapo_eval.engines.hf import load_processor  # noqa: E402
from scapo_train.config import Model  # noqa: E402
from scapo_train.data import Prompt, Prompts, Response, read_prompts  # noqa: E402
from scapo_train.distributed import ProcessGroup  # noqa: E402
from scapo_train.families.packing import batch_of  # noqa: E402
from scapo_train.families.shared import SharedPolicy, SharedPrompt  # noqa: E402
from scapo_train.model import load_policy  # noqa: E402
from scapo_train.rollout import PolicySampler, encode  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs
PROCESS_GROUP = ProcessGroup(0, 1, torch.device("cpu"))
GROUP, LONGEST = 4, 20
SAME = 1e-8
"""In float64 computations differ by 1e-13; the tower's rotary embedding alone rounds to float32, where one number in
1e8 may fall to the other side. Two tokens whose log-probabilities are closer than this may change places."""


@dataclass
class Case:
    """Model with prompts of several lengths, each with up to two pictures of several sizes, and sampled responses."""

    path: Path
    policy: SharedPolicy
    prompts: list[Prompt]
    encoded: list[SharedPrompt]
    responses: list[Response]

    def sampler(self, prompts_per_batch: int = 3) -> PolicySampler:
        return PolicySampler(self.policy, PROCESS_GROUP.device, LONGEST, prompts_per_batch)

    def whole(self, k: int, ids: list[int]) -> torch.Tensor:
        """Returns transformers' (T, V) log-probabilities after every token of a prompt with a response."""
        prompt = self.prompts[k]
        tokens = torch.cat([prompt.ids, torch.tensor(ids, dtype=torch.long)])[None]
        logits = self.policy.vlm(input_ids=tokens, attention_mask=torch.ones_like(tokens), **self.pictures(tokens, k))
        allowed = logits.logits[0].index_fill(1, torch.tensor(self.policy.never), -torch.inf)
        return allowed.log_softmax(1)

    def pictures(self, tokens: torch.Tensor, k: int) -> dict[str, torch.Tensor]:
        prompt = self.prompts[k]
        given = {name: prompt.inputs[name] for name in ("pixel_values", "image_grid_thw") if name in prompt.inputs}
        if "mm_token_type_ids" in inspect.signature(self.policy.vlm.forward).parameters:
            given["mm_token_type_ids"] = (tokens == self.policy.image_token).int()
        return given


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl", "qwen2_vl", "qwen3_vl_moe"])
def case(
    request: pytest.FixtureRequest,
    tiny: ModuleType,
    exact_norms: Callable[[Any], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Case:
    root = tmp_path_factory.mktemp("case")
    path = tiny.build(root / request.param, request.param)
    tiny.draw(root / "images", 6)
    with open(root / "train.jsonl", "w") as stream:
        for k in range(1, 7):
            text = "Describe this image ." + " red" * (5 * k % 11)
            line: dict[str, Any] = {"images": [f"images/{k}.png"], "image_id": k, "prompt": text}
            if k == 4:  # two pictures, text between them, and a system prompt
                parts = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
                chat = [{"role": "system", "content": "Describe objectively"}, {"role": "user", "content": parts}]
                line = {"images": ["images/4.png", "images/2.png"], "image_id": k, "messages": chat}
            if k == 6:
                line["images"] = []
            stream.write(json.dumps(line) + "\n")
    policy = load_policy(Model(path=str(path), dtype="float64", gradient_checkpointing=False), 1.0, PROCESS_GROUP)
    exact_norms(policy)
    if "moe" in request.param:  # the grouped kernel of experts has no float64
        policy.vlm.set_experts_implementation("eager")
    prompts = Prompts(read_prompts(root / "train.jsonl"), load_processor(str(path)), 0).take(range(6))
    encoded = encode(policy, prompts, PROCESS_GROUP.device, at_once=4)
    made = Case(path, policy, prompts, encoded, [])
    made.responses = made.sampler().sample(encoded, 11, GROUP, 1.0)
    return made


def test_shared_prompts_give_the_log_probabilities_of_separate_sequences(case: Case) -> None:
    rows = [
        encoded.row([each.ids for each in case.responses[GROUP * k : GROUP * (k + 1)]])
        for k, encoded in enumerate(case.encoded)
    ]
    with torch.no_grad():
        found = case.policy(batch_of(rows, PROCESS_GROUP.device))
        wanted, ends, entropy = [], [], []
        for i, response in enumerate(case.responses):
            logprobs = case.whole(i // GROUP, response.ids)[len(case.prompts[i // GROUP].ids) - 1 : -1]
            wanted.append(logprobs.gather(1, torch.tensor(response.ids)[:, None])[:, 0])
            ends.append(logprobs[:, case.policy.ends].exp().sum(1))
            kept = logprobs.masked_fill(logprobs == -torch.inf, 0.0)
            entropy.append(-(logprobs.exp() * kept).sum(1))
    assert len({len(response.ids) for response in case.responses}) > 1
    torch.testing.assert_close(found.logprob, torch.cat(wanted), rtol=0, atol=SAME)
    torch.testing.assert_close(found.end, torch.cat(ends), rtol=0, atol=SAME)
    torch.testing.assert_close(found.entropy, torch.cat(entropy), rtol=0, atol=SAME)


def test_gradients_equal_those_of_separate_sequences_also_with_recomputation(case: Case) -> None:
    chosen = case.responses[:GROUP]
    slope = torch.linspace(-1, 1, sum(len(each.ids) for each in chosen), dtype=torch.float64)
    parameters = [each for each in case.policy.parameters() if each.requires_grad]
    assert 0 < len(parameters) < len(list(case.policy.parameters()))  # the tower is frozen

    def gradient() -> list[torch.Tensor]:
        found = case.policy(batch_of([case.encoded[0].row([each.ids for each in chosen])], PROCESS_GROUP.device))
        return list(torch.autograd.grad((found.logprob * slope).sum(), parameters))

    together = gradient()
    n = len(case.prompts[0].ids)
    separate = [case.whole(0, each.ids)[n - 1 : -1].gather(1, torch.tensor(each.ids)[:, None])[:, 0] for each in chosen]
    wanted = torch.autograd.grad((torch.cat(separate) * slope).sum(), parameters)
    again = load_policy(Model(path=str(case.path), dtype="float64"), 1.0, PROCESS_GROUP)
    again.train()
    if hasattr(case.policy.vlm.config.get_text_config(), "num_experts_per_tok"):
        again.vlm.set_experts_implementation("eager")
    assert again.vlm.is_gradient_checkpointing
    case.policy, plain = again, case.policy
    parameters = [each for each in again.parameters() if each.requires_grad]
    recomputed = gradient()
    case.policy = plain
    for mine, theirs, third in zip(together, wanted, recomputed, strict=True):
        assert (mine - theirs).norm() <= SAME * (theirs.norm() + 1e-3)
        assert (third - mine).norm() <= SAME * (mine.norm() + 1e-3)


def test_samples_depend_on_seed_and_prompt_and_not_on_the_batch(case: Case) -> None:
    for prompts_per_batch in (1, 2, 6):
        again = case.sampler(prompts_per_batch).sample(case.encoded, 11, GROUP, 1.0)
        assert [each.ids for each in again] == [each.ids for each in case.responses]
    alone = case.sampler().sample(case.encoded[2:3], 11, GROUP, 1.0)
    assert [each.ids for each in alone] == [each.ids for each in case.responses[2 * GROUP : 3 * GROUP]]
    other = case.sampler().sample(case.encoded, 12, GROUP, 1.0)
    assert sum(a.ids == b.ids for a, b in zip(other, case.responses, strict=True)) < len(other) // 2
    forbidden = set(case.policy.never)
    assert forbidden
    assert not any(forbidden & set(each.ids) for each in (*case.responses, *other))


def test_greedy_answers_equal_generate(case: Case) -> None:
    found = case.sampler().sample(case.encoded, 0, 1, 0.0)
    ties = 0
    for k, response in enumerate(found):
        tokens = case.prompts[k].ids[None]
        settings = {"max_new_tokens": LONGEST, "do_sample": False, "suppress_tokens": case.policy.never}
        with torch.no_grad():
            made = case.policy.vlm.generate(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), **case.pictures(tokens, k), **settings
            )
            best = case.whole(k, response.ids)[len(case.prompts[k].ids) - 1 : -1].topk(2).values
        if (best[:, 0] - best[:, 1]).min() <= SAME:
            ties += 1
            continue
        assert response.ids == made[0, tokens.shape[1] :].tolist()
        assert response.finished == (response.ids[-1] in case.policy.ends)
    assert ties <= 2


def test_the_cache_is_passed_by_position(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name differs between releases of transformers, and a name that a release does not know is ignored."""
    forward, names = case.policy.language_model.forward, set()

    def recorded(*args: Any, **given: Any) -> Any:
        names.update(given)
        return forward(*args, **given)

    monkeypatch.setattr(case.policy.language_model, "forward", recorded)
    case.sampler().sample(case.encoded[:1], 0, 1, 0.0)
    assert "use_cache" in names
    assert not names & {"cache", "past_key_values"}


def test_drawn_tokens_have_the_frequencies_of_the_distribution(case: Case) -> None:
    drawn = PolicySampler(case.policy, PROCESS_GROUP.device, 1, 1).sample(case.encoded[:1], 5, 4000, 1.0)
    counts = torch.bincount(
        torch.tensor([each.ids[0] for each in drawn]), minlength=case.policy.vlm.lm_head.out_features
    )
    with torch.no_grad():
        expected = case.whole(0, [])[-1].exp() * 4000
    common = expected > 20
    assert common.sum() > 5
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum() / common.sum()
    assert 0.5 < statistic < 1.6
    assert counts[expected == 0].sum() == 0


def test_temperature_is_that_of_the_update_too(case: Case) -> None:
    warm = SharedPolicy(case.policy.vlm, case.policy.ends, 0.5)
    row = case.encoded[1].row([case.responses[GROUP].ids])
    with torch.no_grad():
        found = warm(batch_of([row], PROCESS_GROUP.device)).logprob
        plain = case.whole(1, case.responses[GROUP].ids)[len(case.prompts[1].ids) - 1 : -1]
    wanted = (plain / 0.5).log_softmax(1).gather(1, torch.tensor(case.responses[GROUP].ids)[:, None])[:, 0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=SAME)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("LlamaConfig", "llama cannot be trained: it has no vision tower"),
        ("VipLlavaConfig", "vipllava cannot be trained: its log-probabilities were not compared"),
    ],
)
def test_other_kinds_of_models_are_refused(tmp_path: Path, config: str, reason: str) -> None:
    getattr(transformers, config)().save_pretrained(tmp_path)
    with pytest.raises(ScapoError, match=f"{reason}.*; supported are Qwen2-VL, Qwen2.5-VL"):
        load_policy(Model(path=str(tmp_path), dtype="float32"), 1.0, PROCESS_GROUP)


def test_hybrid_and_windowed_attention_is_refused_by_name_before_weights_are_read(tmp_path: Path) -> None:
    hybrid = getattr(transformers, "Qwen3_5Config", None)
    configs = {} if hybrid is None else {"qwen3_5": (hybrid(), "linear_attention")}
    windowed = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "num_hidden_layers": 2}
    configs["qwen2_5_vl"] = (transformers.Qwen2_5_VLConfig(text_config=windowed), "sliding_attention")
    for kind, (config, layers) in configs.items():
        config.save_pretrained(tmp_path / kind)
        with pytest.raises(ScapoError, match=f"{kind} cannot be trained: its layers of {layers} cannot have responses"):
            load_policy(Model(path=str(tmp_path / kind), dtype="float32"), 1.0, PROCESS_GROUP)
