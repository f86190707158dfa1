"""The policy: a vision-language model in which pictures are encoded once and a group shares its prompt.

The tokens of a forward pass are ``[prompt | prompt | ... | response | response | ...]`` without any padding.
A prompt sees itself, a response sees its prompt and itself, so eight responses to a picture cost one prompt and
not eight; the numbers are those of eight separate sequences. The picture's features come from outside: the tower
is frozen, so rollouts, reference and policy share one encoding of it.

For models built like Qwen2-VL, Qwen2.5-VL and Qwen3-VL in transformers: ``.model.visual``,
``.model.language_model``, ``.model.get_rope_index`` and ``.lm_head``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from scapo_eval.engines.hf import end_tokens, image_tokens
from scapo_eval.errors import ScapoError

from .config import Model
from .distributed import World
from .logprob import TokenStatistics, token_statistics


@dataclass(frozen=True)
class Vision:
    """What the tower sees in one picture.

    Attributes:
        embeds: (n, hidden) in place of its n image tokens.
        deepstack: further (n, hidden), added after the first decoder layers (Qwen3-VL; else empty).
    """

    embeds: Tensor
    deepstack: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Row:
    """One prompt and some of its responses.

    Attributes:
        prompt: (P,) ids; positions: (3, P) of them; following: the position after the last.
        vision: of its picture; None only in a row that fills up a rank without work.
        responses: ids of each response, at least one token.
    """

    prompt: Tensor
    positions: Tensor
    following: int
    vision: Vision | None
    responses: Sequence[Sequence[int]]

    @property
    def length(self) -> int:
        """Tokens of the forward pass: the last one of each response predicts nothing that is wanted."""
        return len(self.prompt) + sum(len(response) - 1 for response in self.responses)


@dataclass(frozen=True)
class Layout:
    """Where attention finds the tokens of a batch: B prompts of up to P tokens, N responses of up to R.

    Attributes:
        prompts: (B, P) places of each prompt's tokens among the T of the batch; any place in the padding.
        responses: (N, R) likewise.
        owners: (N,) the prompt of each response.
        mask: (N, 1, R, P + R) bool, what a response's token sees of its prompt and of the response.
        back: (T,) place of each token in ``prompts`` and ``responses``, flattened and put together.
    """

    prompts: Tensor
    responses: Tensor
    owners: Tensor
    mask: Tensor
    back: Tensor


@dataclass(frozen=True)
class Batch:
    """Rows as tensors: the T tokens of all prompts, then those of all responses.

    Attributes:
        ids: (1, T); positions: (3, 1, T).
        layout: of prompts and responses.
        vision: of the rows in order.
        sources: (M,) places of the hidden states that predict the M response tokens.
        targets: (M,) those tokens, response by response.
    """

    ids: Tensor
    positions: Tensor
    layout: Layout
    vision: Sequence[Vision]
    sources: Tensor
    targets: Tensor


def batch_of(rows: Sequence[Row], device: torch.device) -> Batch:
    """Lays rows out as tensors."""
    responses = [response for row in rows for response in row.responses]
    sizes = torch.tensor([len(row.prompt) for row in rows])
    inner = torch.tensor([len(response) - 1 for response in responses])
    owners = torch.repeat_interleave(torch.tensor([len(row.responses) for row in rows]))
    prompt_width, width = int(sizes.max()), max(1, int(inner.max()))  # 0 where every response is its end alone
    of_prompt = torch.arange(prompt_width) < sizes[:, None]
    of_response = torch.arange(width) < inner[:, None]
    real = torch.cat([of_prompt.flatten(), of_response.flatten()])
    places = (real.cumsum(0) - 1).clamp(min=0)
    places_of_prompts, places_of_responses = places.split([of_prompt.numel(), of_response.numel()])
    prompts, answers = places_of_prompts.view(-1, prompt_width), places_of_responses.view(-1, width)

    following = torch.tensor([row.following for row in rows])[owners, None] + torch.arange(width)
    # the prompt's last token predicts the first of every response, and each response token the one after it
    sources = torch.cat([(sizes.cumsum(0) - 1)[owners, None], answers], 1)
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    mask = torch.cat([of_prompt[owners, None].expand(-1, width, -1), causal.expand(len(responses), -1, -1)], 2)
    inputs = torch.tensor([token for response in responses for token in response[:-1]], dtype=torch.long)
    return Batch(
        ids=torch.cat([*(row.prompt for row in rows), inputs])[None].to(device),
        positions=torch.cat([*(row.positions for row in rows), following[of_response].expand(3, -1)], 1)[:, None].to(
            device
        ),
        layout=Layout(*(each.to(device) for each in (prompts, answers, owners, mask[:, None], real.nonzero()[:, 0]))),
        vision=[row.vision for row in rows if row.vision is not None],
        sources=sources[torch.arange(width + 1) <= inner[:, None]].to(device),
        targets=torch.tensor([token for response in responses for token in response], device=device),
    )


def shared_prompt_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout | None = None,
    **settings: Any,
) -> tuple[Tensor, Any]:
    """Attention of a :class:`Batch`; without a layout that of transformers.

    Prompts see themselves, and responses their prompt and themselves: one call each, so nothing is computed
    between tokens of different responses.

    Args:
        module: the layer.
        query: (1, heads, T, dim); key, value: (1, key heads, T, dim).
        attention_mask: that of the layout.
        layout: of the batch.
        settings: ``scaling`` is used.

    Returns:
        (1, T, heads, dim), and no weights.
    """
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    tokens = [each[0].transpose(0, 1) for each in (query, key, value)]

    def at(places: Tensor) -> list[Tensor]:
        """(rows, heads, tokens, dim) of each."""
        return [each.index_select(0, places.flatten()).unflatten(0, places.shape).transpose(1, 2) for each in tokens]

    scale = settings["scaling"]
    query, key, value = at(layout.prompts)
    found = [_attend(query, key, value, None, scale)]
    if layout.responses.shape[1]:
        own = at(layout.responses)
        key = torch.cat([key.index_select(0, layout.owners), own[1]], 2)
        value = torch.cat([value.index_select(0, layout.owners), own[2]], 2)
        found.append(_attend(own[0], key, value, layout.mask, scale))
    together = torch.cat([each.transpose(1, 2).flatten(0, 1) for each in found])
    return together.index_select(0, layout.back)[None], None


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Softmax attention; causal where there is no mask."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and query.is_cuda and mask is not None:  # the fast kernel that takes a mask knows no groups
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=groups > 1
    )


ATTENTION = "scapo_train"
"""The name under which transformers finds it."""

AttentionInterface.register(ATTENTION, shared_prompt_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class Policy(nn.Module):
    """A vision-language model with the three calls of a training step.

    ``forward`` (statistics of given tokens), ``decode`` (logits of the next token, with a cache) and
    ``encode`` (a picture's features; never sharded).

    Args:
        vlm: the Hugging Face model.
        ends: ids that end a response.
        temperature: of sampling.

    Raises:
        ScapoError: the model is not built as this module needs it.
    """

    def __init__(self, vlm: Any, ends: Sequence[int], temperature: float) -> None:
        super().__init__()
        self.vlm = vlm
        self.image_token: int = _checked(vlm)
        vlm.model.language_model.set_attn_implementation(ATTENTION)
        self.ends = sorted(ends)
        self.never = [token for token in image_tokens(vlm.config) if token not in ends]
        self.temperature = temperature
        self.compute = nullcontext  # autocast, where the parameters are not in the dtype of the computation

    def forward(self, batch: Batch) -> TokenStatistics:
        """Statistics of the batch's N response tokens."""
        with self.compute():
            mask, layout = batch.layout.mask, batch.layout
            hidden = self._hidden(batch.ids, batch.positions, mask, batch.vision, None, layout=layout)[0]
            weight = self.vlm.lm_head.weight
            dtype = torch.get_autocast_dtype(weight.device.type) if _autocasting(weight) else hidden.dtype
        device = hidden.device
        return token_statistics(
            hidden.index_select(0, batch.sources).to(dtype),
            weight.to(dtype),
            batch.targets,
            never=torch.tensor(self.never, dtype=torch.long, device=device),
            ends=torch.tensor(self.ends, device=device),
            temperature=self.temperature,
        )

    def decode(self, ids: Tensor, positions: Tensor, mask: Tensor, vision: Sequence[Vision], cache: Any) -> Tensor:
        """(B, V) logits, float32 or wider, of the token after the last of ``ids`` (B, T); ``cache`` is extended."""
        hidden = self._hidden(ids, positions, mask, vision, cache)
        logits = self.vlm.lm_head(hidden[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    @torch.no_grad()
    def encode(self, pixels: Tensor, grids: Tensor) -> list[Vision]:
        """The features of several pictures.

        Args:
            pixels: (patches of all, dim) as Qwen's processor packs them.
            grids: (pictures, 3) patches in time, height and width.
        """
        with self.compute():
            found = self.vlm.model.get_image_features(pixels, grids)
        sizes = (grids.prod(-1) // self.vlm.config.vision_config.spatial_merge_size**2).tolist()
        if hasattr(found, "pooler_output"):  # transformers 5
            embeds, deep = found.pooler_output, getattr(found, "deepstack_features", None) or ()
        elif len(found) == 2 and isinstance(found[1], (list, tuple)):  # transformers 4, Qwen3-VL
            embeds, deep = found
        else:
            embeds, deep = found, ()
        layers = [layer.split(sizes) if isinstance(layer, Tensor) else layer for layer in deep]
        return [Vision(each, tuple(layer[k] for layer in layers)) for k, each in enumerate(embeds)]

    def prompt_positions(self, ids: Tensor, grid: Tensor) -> tuple[Tensor, int]:
        """The (3, P) positions of a prompt with one picture, and the position after it."""
        index = self.vlm.model.get_rope_index
        extra: dict[str, Any] = {}
        if "mm_token_type_ids" in inspect.signature(index).parameters:
            # transformers 5: left out, positions would silently be those of plain text
            extra["mm_token_type_ids"] = (ids == self.image_token).int()[None]
        positions, delta = index(ids[None], image_grid_thw=grid[None], **extra)
        return positions[:, 0], len(ids) + int(delta)

    def _hidden(
        self, ids: Tensor, positions: Tensor, mask: Tensor, vision: Sequence[Vision], cache: Any, **extra: Any
    ) -> Tensor:
        embeds = self.vlm.get_input_embeddings()(ids)
        if vision:
            places = ids == self.image_token
            features = torch.cat([each.embeds for each in vision]).to(embeds.dtype)
            embeds = embeds.masked_scatter(places[..., None], features)
            if vision[0].deepstack:
                deep = zip(*(each.deepstack for each in vision), strict=True)
                extra |= {"visual_pos_masks": places, "deepstack_visual_embeds": [torch.cat(layer) for layer in deep]}
        found = self.vlm.model.language_model(
            inputs_embeds=embeds,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=cache is not None,
            **extra,
        )
        return found.last_hidden_state


@contextmanager
def loading(path: str) -> Iterator[None]:
    """Says what could not be loaded, and why.

    Raises:
        ScapoError: instead of the many errors of transformers.
    """
    try:
        yield
    except ScapoError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ScapoError(f"cannot load {path}: {' '.join(str(error).split())[:400]}") from None


def load_policy(settings: Model, temperature: float, world: World, *, reference: bool = False) -> Policy:
    """The policy, or its frozen reference, from a Hugging Face model.

    One process holds plain parameters: float32 or wider for the policy, computed with under autocast. Several shard
    them (FSDP2); the frozen tower is on every rank, because a rank without a picture must not wait for it.

    Raises:
        ScapoError: it cannot be loaded, or is no model of a supported kind.
    """
    import transformers

    dtype = getattr(torch, settings.dtype)
    plain = torch.promote_types(dtype, torch.float32) if not reference else dtype
    with loading(settings.path):
        described = transformers.AutoConfig.from_pretrained(settings.path, revision=settings.revision or None)
        if not hasattr(described, "vision_config"):
            raise ScapoError(f"{settings.path} ({described.model_type}) has no vision tower: pictures need one")
        vlm = transformers.AutoModelForImageTextToText.from_pretrained(
            settings.path,
            revision=settings.revision or None,
            dtype=plain if world.size == 1 else "auto",
            attn_implementation="sdpa",
        )
    policy = Policy(vlm, sorted(end_tokens(vlm.generation_config.eos_token_id)), temperature)
    for parameter in vlm.parameters() if reference else vlm.model.visual.parameters():
        parameter.requires_grad_(False)
    if reference:
        vlm.model.visual = None  # it sees through the policy's tower, which is frozen
    elif settings.gradient_checkpointing:
        # transformers 4 knows the second name only
        enable = getattr(vlm, "activation_checkpointing_enable", vlm.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
    if world.size > 1:
        _shard(policy, dtype, world, offload=reference and settings.reference == "cpu")
        if not reference:
            policy.to(plain)
    if vlm.model.visual is not None:
        vlm.model.visual.to(dtype)
    if not (reference and settings.reference == "cpu"):
        policy.to(world.device)
    if world.size == 1 and plain != dtype:
        policy.compute = lambda: torch.autocast(world.device.type, dtype)  # type: ignore[assignment]
    return policy.eval()


@contextmanager
def on_device(reference: Policy, settings: Model, world: World) -> Iterator[None]:
    """Brings an unsharded reference from pinned host memory to the device, and frees it there again."""
    if settings.reference != "cpu" or world.size > 1 or world.device.type == "cpu":
        yield
        return
    host = [parameter.data for parameter in reference.parameters()]
    for k, parameter in enumerate(reference.parameters()):
        host[k] = host[k] if host[k].is_pinned() else host[k].pin_memory()
        parameter.data = host[k].to(world.device, non_blocking=True)
    for name, buffer in list(reference.named_buffers()):
        if buffer.device != world.device:
            owner = reference.get_submodule(name.rpartition(".")[0])
            setattr(owner, name.rpartition(".")[2], buffer.to(world.device))
    try:
        yield
    finally:
        for parameter, data in zip(reference.parameters(), host, strict=True):
            parameter.data = data


@contextmanager
def gathered(policy: Policy) -> Iterator[None]:
    """Holds the whole unsharded model while responses are decoded: one gathering, not one per token."""
    modules = [module for module in policy.modules() if isinstance(module, FSDPModule)]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        with policy.compute():
            yield
    finally:
        for module in modules:
            module.reshard()
            module.set_reshard_after_forward(module is not policy, recurse=False)


def _shard(policy: Policy, dtype: torch.dtype, world: World, *, offload: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(world.device.type, (world.size,))
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.promote_types(dtype, torch.float32))
    visual = policy.vlm.model.visual
    ignored = set() if visual is None else set(visual.parameters())
    settings: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": precision,
        "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
    }
    for layer in policy.vlm.model.language_model.layers:
        fully_shard(layer, **settings)
    fully_shard(policy, ignored_params=ignored, **settings)
    register_fsdp_forward_method(policy, "decode")


def _checked(vlm: Any) -> int:
    """The id of the image token of a model that has all that this module needs."""
    name, inner = type(vlm).__name__, getattr(vlm, "model", None)
    missing = [part for part in ("visual", "language_model", "get_rope_index") if not hasattr(inner, part)]
    missing += ["lm_head"] if not hasattr(vlm, "lm_head") else []
    if missing:
        known = "Qwen2-VL, Qwen2.5-VL and Qwen3-VL"
        raise ScapoError(f"{name} is built differently (no {', '.join(missing)}); supported are {known}")
    return int(vlm.config.image_token_id)


def _autocasting(tensor: Tensor) -> bool:
    return torch.is_autocast_enabled(tensor.device.type)
