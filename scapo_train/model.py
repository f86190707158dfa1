"""The policy: a vision-language model whose images are encoded once, loaded, sharded, and ready for three calls.

The vision tower is frozen, so rollouts, reference and policy share one encoding of an image (:class:`Vision`), and a
forward pass takes responses that share their prompt (:mod:`scapo_train.packing`).

For models of :data:`FAMILIES`, which have in transformers ``.model.visual``, ``.model.language_model``,
``.model.get_rope_index`` and ``.lm_head``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
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

from scapo_eval.engines.base import check_model
from scapo_eval.engines.hf import end_tokens, image_tokens
from scapo_eval.errors import ScapoError

from .config import Lora, Model
from .distributed import ProcessGroup
from .logprob import TokenStatistics, token_statistics
from .lora import adapters_off, add_adapters, has_adapters
from .packing import ATTENTION, Batch, Vision


@dataclass(frozen=True)
class Family:
    """A kind of model whose log-probabilities and greedy answers here equal those of transformers.

    Attributes:
        name: its name.
    """

    name: str


FAMILIES: Mapping[str, Family] = {
    "qwen2_vl": Family("Qwen2-VL"),
    "qwen2_5_vl": Family("Qwen2.5-VL"),
    "qwen3_vl": Family("Qwen3-VL"),
    "qwen3_vl_moe": Family("Qwen3-VL-MoE"),
}
"""``model_type`` of a config -> its family. ``tests/integration/test_train_model.py`` compares each."""


class Policy(nn.Module):
    """A vision-language model with the three calls of a training step.

    ``forward`` (statistics of given tokens), ``decode`` (logits of the next token, with a cache) and
    ``encode`` (a picture's features; never sharded).

    Args:
        vlm: the Hugging Face model.
        ends: token ids that end a response.
        temperature: sampling temperature.

    Raises:
        ScapoError: the model is of a kind that is not supported.
    """

    def __init__(self, vlm: Any, ends: Sequence[int], temperature: float) -> None:
        super().__init__()
        self.vlm = vlm
        check_family(vlm.config)
        self.image_token = int(vlm.config.image_token_id)
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
    check_model(path)
    try:
        yield
    except ScapoError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ScapoError(f"cannot load {path}: {' '.join(str(error).split())[:400]}") from None


def source_folder(settings: Model) -> Path:
    """The folder with the files of a model that was loaded; of a name on a hub its folder in the cache."""
    if Path(settings.path).is_dir():
        return Path(settings.path)
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py"]
    revision = settings.revision or None
    try:
        return Path(snapshot_download(settings.path, revision=revision, allow_patterns=patterns))
    except OSError:  # offline: what was loaded is there
        return Path(snapshot_download(settings.path, revision=revision, local_files_only=True))


def load_policy(
    settings: Model,
    temperature: float,
    process_group: ProcessGroup,
    *,
    reference: bool = False,
    lora: Lora = Lora(),  # noqa: B008  frozen
    seed: int = 0,
) -> Policy:
    """The policy, or its frozen reference, from a Hugging Face model.

    One process holds plain parameters: what is trained in float32 or wider, computed with under autocast. Several
    shard them (FSDP2); the frozen tower is on every rank, because a rank without a picture must not wait for it.

    Args:
        settings: which model, and how it is computed.
        temperature: sampling temperature.
        process_group: this process and the others.
        reference: whether nothing of it is trained.
        lora: the policy's adapters; with any, only they are trained.
        seed: seed of the adapters' first values.

    Raises:
        ScapoError: it cannot be loaded, or is not a supported model.
    """
    import transformers

    dtype = getattr(torch, settings.dtype)
    frozen = reference or lora.rank > 0
    plain = dtype if frozen else torch.promote_types(dtype, torch.float32)
    with loading(settings.path):
        described = transformers.AutoConfig.from_pretrained(settings.path, revision=settings.revision or None)
        check_family(described)
        vlm = transformers.AutoModelForImageTextToText.from_pretrained(
            settings.path,
            revision=settings.revision or None,
            dtype=plain if process_group.size == 1 or frozen else "auto",
            attn_implementation="sdpa",
        )
    policy = Policy(vlm, sorted(end_tokens(vlm.generation_config.eos_token_id)), temperature)
    for parameter in vlm.parameters() if frozen else vlm.model.visual.parameters():
        parameter.requires_grad_(False)
    if lora.rank and not reference:
        add_adapters(vlm, lora, seed)
    if reference:
        vlm.model.visual = None  # it sees through the policy's tower, which is frozen
    elif settings.gradient_checkpointing:
        # transformers 4 knows the second name only
        enable = getattr(vlm, "activation_checkpointing_enable", vlm.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
    if process_group.size > 1:
        _shard(policy, dtype, process_group, offload=reference and settings.reference == "cpu")
        if not frozen:
            policy.to(plain)
    if vlm.model.visual is not None:
        vlm.model.visual.to(dtype)
    if not (reference and settings.reference == "cpu"):
        policy.to(process_group.device)
    if process_group.size == 1 and any(each.dtype != dtype for each in policy.parameters() if each.requires_grad):
        policy.compute = lambda: torch.autocast(process_group.device.type, dtype)  # type: ignore[assignment]
    return policy.eval()


@contextmanager
def as_reference(model: Policy, settings: Model, process_group: ProcessGroup) -> Iterator[None]:
    """Makes the reference ready for passes without gradient.

    A policy with adapters is its own reference, without them. An unsharded model in pinned host memory is brought to
    the device, and freed there again.
    """
    if has_adapters(model):
        with adapters_off(model):
            yield
        return
    if settings.reference != "cpu" or process_group.size > 1 or process_group.device.type == "cpu":
        yield
        return
    host = [parameter.data for parameter in model.parameters()]
    for k, parameter in enumerate(model.parameters()):
        host[k] = host[k] if host[k].is_pinned() else host[k].pin_memory()
        parameter.data = host[k].to(process_group.device, non_blocking=True)
    for name, buffer in list(model.named_buffers()):
        if buffer.device != process_group.device:
            owner = model.get_submodule(name.rpartition(".")[0])
            setattr(owner, name.rpartition(".")[2], buffer.to(process_group.device))
    try:
        yield
    finally:
        for parameter, data in zip(model.parameters(), host, strict=True):
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


def _shard(policy: Policy, dtype: torch.dtype, process_group: ProcessGroup, *, offload: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(process_group.device.type, (process_group.size,))
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


def check_family(config: Any) -> Family:
    """The family of a model that this module computes rightly.

    Args:
        config: the model's config.

    Raises:
        ScapoError: the model is of another kind, with the reason why it is refused.
    """
    kind, text = config.model_type, config.get_text_config()
    other = sorted(set(getattr(text, "layer_types", None) or ()) - {"full_attention"})
    if not hasattr(config, "vision_config"):
        reason = "it has no vision tower, and pictures need one"
    elif other:
        reason = f"its layers of {', '.join(other)} cannot have responses share a prompt: probabilities would be wrong"
    elif kind not in FAMILIES:
        reason = "its log-probabilities were not compared with those of transformers"
    else:
        return FAMILIES[kind]
    known = ", ".join(family.name for family in FAMILIES.values())
    raise ScapoError(f"models of the kind {kind} cannot be trained: {reason}; supported are {known}")


def _autocasting(tensor: Tensor) -> bool:
    return torch.is_autocast_enabled(tensor.device.type)
