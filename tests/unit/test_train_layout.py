"""A batch without padding, and its attention against one dense masked attention over all of its tokens."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scapo_train.families import packing  # noqa: E402
from scapo_train.families.packing import (  # noqa: E402
    PackedRow,
    batch_of,
    fuse_norms,
    shared_prompt_attention,
    window_attention,
)
from scapo_train.families.shared import _Cache  # noqa: E402
from scapo_train.rollout import _drawn  # noqa: E402

HERE = torch.device("cpu")


def row(prompt: int, *responses: int, first: int = 100) -> PackedRow:
    """A prompt of so many tokens, and responses of so many; all tokens of a row are different."""
    ids = iter(range(first, first + prompt + sum(responses)))
    tokens = torch.tensor([next(ids) for _ in range(prompt)])
    return PackedRow(
        prompt=tokens,
        positions=torch.arange(prompt).expand(3, -1),
        following=prompt + 5,
        vision=None,
        responses=[[next(ids) for _ in range(size)] for size in responses],
    )


ROWS = [row(7, 4, 1, 6), row(3, 2, first=200), row(5, 1, 3, first=300)]


def test_a_batch_holds_every_token_once_and_no_padding() -> None:
    batch = batch_of(ROWS, HERE)
    ids = batch.ids[0].tolist()
    inputs = [token for each in ROWS for response in each.responses for token in response[:-1]]
    assert ids == [token for each in ROWS for token in each.prompt.tolist()] + inputs
    assert len(ids) == sum(each.length for each in ROWS)
    targets = [token for each in ROWS for response in each.responses for token in response]
    assert batch.targets.tolist() == targets
    before = {
        token: previous
        for each in ROWS
        for response in each.responses
        for token, previous in zip(response, [int(each.prompt[-1]), *response], strict=False)
    }
    assert [ids[k] for k in batch.sources.tolist()] == [before[token] for token in targets]
    third = [ids.index(token) for token in ROWS[0].responses[2][:-1]]
    assert batch.positions[:, 0, third].tolist() == [[12, 13, 14, 15, 16]] * 3


def test_attention_equals_that_of_a_dense_mask() -> None:
    batch = batch_of(ROWS, HERE)
    ids = batch.ids[0].tolist()
    size, heads, groups, dim = len(ids), 4, 2, 8
    sees = torch.zeros(size, size, dtype=torch.bool)
    for each in ROWS:
        prompt = each.prompt.tolist()
        for response in [[0], *each.responses]:
            sequence = [ids.index(token) for token in [*prompt, *response[:-1]]]
            for k, place in enumerate(sequence):
                sees[place, sequence[: k + 1]] = True
    random = torch.Generator().manual_seed(0)
    query = torch.randn(1, heads, size, dim, generator=random, dtype=torch.float64, requires_grad=True)
    key, value = (
        torch.randn(1, heads // groups, size, dim, generator=random, dtype=torch.float64, requires_grad=True)
        for _ in range(2)
    )
    slope = torch.randn(1, size, heads, dim, generator=random, dtype=torch.float64)
    module = torch.nn.Module()
    layout = batch.layout
    found, weights = shared_prompt_attention(module, query, key, value, layout.mask, layout=layout, scaling=0.3)
    scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * 0.3
    dense = scores.masked_fill(~sees, -torch.inf).softmax(-1) @ value.repeat_interleave(groups, 1)
    wanted = dense.transpose(1, 2)
    assert weights is None
    torch.testing.assert_close(found, wanted)
    mine = torch.autograd.grad((found * slope).sum(), (query, key, value))
    theirs = torch.autograd.grad((wanted * slope).sum(), (query, key, value))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_batch_of_responses_of_one_token_has_prompts_only() -> None:
    batch = batch_of([row(4, 1, 1), row(2, 1, first=200)], HERE)
    assert batch.ids.shape == (1, 6)
    assert batch.sources.tolist() == [3, 3, 5]
    query = torch.randn(1, 2, 6, 4)
    layout = batch.layout
    found, _ = shared_prompt_attention(torch.nn.Module(), query, query, query, layout.mask, layout=layout, scaling=1.0)
    assert found.shape == (1, 6, 2, 4)
    torch.testing.assert_close(found[0, [0, 4]], query[0, :, [0, 4]].transpose(0, 1))


@pytest.mark.parametrize("groups", [1, 3])
def test_attention_of_one_token_equals_that_of_repeated_keys(groups: int) -> None:
    query, key, value = (torch.randn(4, heads, length, 8) for heads, length in ((2 * groups, 1), (2, 9), (2, 9)))
    mask = torch.rand(4, 1, 1, 9) < 0.7
    mask[..., 0] = True
    found, _ = shared_prompt_attention(torch.nn.Module(), query, key, value, mask, scaling=0.3)
    repeated = (each.repeat_interleave(groups, 1) for each in (key, value))
    wanted = torch.nn.functional.scaled_dot_product_attention(query, *repeated, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(found, wanted.transpose(1, 2))


@pytest.mark.parametrize("lengths", [[12], [4, 4, 4], [4, 2, 4, 1, 2]])
def test_windows_attend_to_themselves_only(lengths: list[int]) -> None:
    query, key, value = torch.randn(3, 1, 2, sum(lengths), 8)
    ends = torch.tensor([0, *lengths]).cumsum(0).int()
    found, _ = window_attention(torch.nn.Module(), query, key, value, None, cu_seq_lens_q=ends, scaling=0.3)
    windows = zip(*(tensor.split(lengths, 2) for tensor in (query, key, value)), strict=True)
    wanted = [torch.nn.functional.scaled_dot_product_attention(*window, scale=0.3) for window in windows]
    torch.testing.assert_close(found, torch.cat(wanted, 2).transpose(1, 2))


def test_fused_norms_compute_the_model_s_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    qwen = pytest.importorskip("transformers.models.qwen3_vl.modeling_qwen3_vl")
    norm = qwen.Qwen3VLTextRMSNorm(16)
    torch.nn.init.normal_(norm.weight)
    hidden = 5 * torch.randn(7, 16)
    wanted = norm(hidden)
    fuse_norms(norm)
    torch.testing.assert_close(norm(hidden), wanted, rtol=0, atol=0)  # by the model's own code on a CPU
    monkeypatch.setattr(packing, "takes_fused_norms", lambda _: True)
    torch.testing.assert_close(norm(hidden), wanted)
    assert norm(hidden.bfloat16()).dtype == torch.float32  # other dtypes: by the model's own code


def test_a_token_is_drawn_where_the_summed_probabilities_pass_the_chance() -> None:
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]], dtype=torch.float64)
    logits = probabilities.log().float()
    chances = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53], dtype=torch.float64)
    drawn = _drawn(logits.expand(6, -1), chances, 1.0)
    assert drawn.tolist() == [1, 1, 3, 3, 4, 4]
    assert _drawn(logits, chances[:1], 0.0).tolist() == [3]
    cold = _drawn((logits / 2).expand(6, -1), chances, 0.5)
    assert cold.tolist() == drawn.tolist()


def test_the_cache_gives_what_was_written_also_beyond_a_block_and_after_rows_have_left() -> None:
    random = torch.Generator().manual_seed(0)
    cache, group = _Cache(3), 3
    prompts = torch.randn(2, 2, 5, 4, generator=random)
    assert torch.equal(cache.update(prompts, -prompts, 0)[0], prompts)
    wanted = prompts.repeat_interleave(group, 0)
    for t in range(150):
        if t == 100:
            kept = torch.tensor([0, 2, 5])
            cache.keep(kept)
            wanted = wanted[kept]
        new = torch.randn(len(wanted), 2, 1, 4, generator=random)
        wanted = torch.cat([wanted, new], 2)
        keys, values = cache.update(new, -new, 0)
        assert torch.equal(keys, wanted)
        assert torch.equal(values, -wanted)
        assert cache.get_seq_length() == 6 + t
