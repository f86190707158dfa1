"""Engine that runs transformers in this process, with any image-text-to-text model (Qwen2.5-VL, Qwen3-VL, LLaVA...).

The engine also runs on CPUs. Greedy completions do not depend on the composition of the batch, except for rounding
differences. Sampled completions do not depend on the batch either, because each request has its own random generator.
Therefore, a resumed run produces the same file as an uninterrupted run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..base.errors import ScapoError, in_one_line
from . import images, missing_extra
from .base import (
    CHOICES,
    TOP,
    Completion,
    OnCompletion,
    Request,
    Sampling,
    Turn,
    check_model,
    complete_batch,
    masses_of,
    weights_hash,
)

if TYPE_CHECKING:
    import torch

_WINDOW = 16
"""Number of batches that are sorted by length together, so that long prompts share batches with little padding."""

_IMAGE_TOKEN_NAMES = (
    "image_token_id", "image_token_index", "video_token_id", "video_token_index", "vision_start_token_id",
    "vision_end_token_id", "vision_token_id",
)  # fmt: skip
"""Configuration keys of tokens that represent images. A completion must not contain them, because the forward pass
would fail.
"""

_NEUTRAL = Sampling()

_TEXT_ONLY = "the model is text-only and cannot read images"


class TransformersEngine:
    """Engine that runs a model with transformers' ``generate`` method, in batches of requests of similar length.

    Args:
        model: Name of the model on the hub, or path of its folder.
        revision: Revision of the model on the hub, or None for the newest revision.
        dtype: Data type of the weights: ``auto`` (the data type in the checkpoint), ``float32``, ``bfloat16`` or
            ``float16``.
        device: Device of the model: ``auto`` (a GPU if available), ``cpu``, ``cuda``, ``cuda:1``...
        batch_size: Number of requests per batch.
        max_pixels: Maximum number of pixels per image. If the processor supports such a limit (Qwen), it shrinks images
            that exceed this number of pixels.

    Raises:
        MissingExtra: If torch or transformers is not installed.
        ScapoError: If the model cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        batch_size: int = 8,
        max_pixels: int | None = None,
    ) -> None:
        try:
            import torch
            import transformers
            from safetensors import SafetensorError
        except ImportError:
            raise missing_extra("transformers") from None
        check_model(model)
        self._torch = torch
        self._transformers = transformers
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            config = transformers.AutoConfig.from_pretrained(model, revision=revision)
            self._takes_images = type(config) in transformers.AutoModelForImageTextToText._model_mapping
            loader = (
                transformers.AutoModelForImageTextToText if self._takes_images else transformers.AutoModelForCausalLM
            )
            wanted = dtype if dtype == "auto" else getattr(torch, dtype)
            loaded = loader.from_pretrained(model, revision=revision, dtype=wanted).to(device)
            self._processor = load_processor(model, revision, takes_images=self._takes_images, max_pixels=max_pixels)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # also too little memory
            raise ScapoError(f"transformers cannot load {model}: {in_one_line(error, 400)}") from None
        self.model = loaded.eval()
        self._own = loaded.generation_config
        ids = {name: value for name, value in self._own.to_dict().items() if name.endswith("_token_id")}
        self.model.generation_config = transformers.GenerationConfig(**ids)  # no effect unless requested
        self._tokenizer = getattr(self._processor, "tokenizer", self._processor)
        self._tokenizer.padding_side = "left"
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._context = getattr(config.get_text_config(), "max_position_embeddings", None)
        self._suppressed = image_tokens(config)
        self._ends = end_tokens(self.model.generation_config.eos_token_id, self._tokenizer.eos_token_id)
        self.batch_size = batch_size
        self.identity: Mapping[str, Any] = {
            "engine": "transformers",
            "transformers": transformers.__version__,
            "model": model,
            "revision": revision or getattr(config, "_commit_hash", None),
            "weights": weights_hash(model),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "processor": _settings(getattr(self._processor, "image_processor", None)),
        }
        self.card: dict[str, Any] = {
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "device": str(self.model.device),
            "architecture": type(self.model).__name__,
            "batch_size": batch_size,
        }

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        """Completes all requests, in windows of _WINDOW batches; see :class:`~scapo_eval.engines.base.Engine`."""
        source = iter(requests)
        faults = (ValueError, self._torch.OutOfMemoryError)
        while window := list(islice(source, self.batch_size * _WINDOW)):
            for batch in self._batches(window, done):
                for request, completion in zip(batch, complete_batch(self._generate, batch, faults), strict=True):
                    done(request, completion)

    def close(self) -> None:
        """Releases the model and torch's cached memory."""
        del self.model
        if self._torch.cuda.is_available():
            self._torch.cuda.empty_cache()

    def _batches(self, window: Sequence[Request], done: OnCompletion) -> Iterable[list[Request]]:
        """Yields batches of requests with equal settings, sorted by decreasing length. Requests with unreadable images
        fail immediately.
        """
        groups: dict[tuple[Sampling, tuple[str, ...]], list[Request]] = {}
        for request in window:
            fault = None if self._takes_images or not request.images else _TEXT_ONLY
            try:
                for path in request.images:
                    images.check(path)
            except images.ImageFault as error:
                fault = str(error)
            if fault:
                done(request, Completion(error=fault))
            else:
                groups.setdefault((_without_seed(request.sampling), request.choices), []).append(request)
        for group in groups.values():
            group.sort(key=lambda request: -sum(len(turn.text) for turn in request.turns))
            yield from (group[k : k + self.batch_size] for k in range(0, len(group), self.batch_size))

    def inputs(self, batch: Sequence[Request]) -> Any:
        """Returns the processor's tensors for a batch, padded on the left and placed on the model's device."""
        texts = [self._template(request.turns) for request in batch]
        pictures = [images.load(path) for request in batch for path in request.images]
        if not self._takes_images:
            return self._processor(texts, padding=True, return_tensors="pt", add_special_tokens=False).to(
                self.model.device
            )
        arguments = {"images": pictures} if pictures else {}
        arguments |= without_second_bos(self._processor, texts[0])
        return self._processor(text=texts, padding=True, return_tensors="pt", **arguments).to(self.model.device)

    def settings(self, sampling: Sampling) -> dict[str, Any]:
        """Returns the arguments that make ``generate`` always select the most probable token. For sampling, a logits
        processor adds noise to the scores, so that the argmax is a random sample.
        """
        return {
            "do_sample": False,
            "num_beams": 1,
            "max_new_tokens": sampling.max_tokens,
            "suppress_tokens": self._suppressed or None,
            "pad_token_id": self._tokenizer.pad_token_id,
            "eos_token_id": list(self._ends) or None,
        }

    def _resolved(self, sampling: Sampling) -> Sampling:
        """Returns the sampling settings, with None replaced by the checkpoint's values."""
        checkpoint = {name: value for name in CHOICES if (value := getattr(self._own, name, None)) is not None}
        if not self._own.do_sample:
            checkpoint["temperature"] = 0.0
        neutral = {"temperature": 1.0, **{name: getattr(_NEUTRAL, name) for name in CHOICES if name != "temperature"}}
        asked = {name: value for name in CHOICES if (value := getattr(sampling, name)) is not None}
        resolved = replace(sampling, **(neutral | checkpoint | asked))
        self.card["sampling"] = {name: getattr(resolved, name) for name in (*CHOICES, "max_tokens")}
        return resolved

    def _template(self, turns: Sequence[Turn]) -> str:
        if self._takes_images:
            messages: list[dict[str, Any]] = [
                {
                    "role": turn.role,
                    "content": [*({"type": "image"} for _ in turn.images), {"type": "text", "text": turn.text}],
                }
                for turn in turns
            ]
        else:
            messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        text: str = self._processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _generate(self, batch: Sequence[Request]) -> list[Completion]:
        torch = self._torch
        sampling = self._resolved(batch[0].sampling)
        inputs = self.inputs(batch)
        lengths = inputs["attention_mask"].sum(-1).tolist()
        if self._context and max(lengths) + sampling.max_tokens > self._context:
            raise ValueError(
                f"{max(lengths)} prompt tokens and {sampling.max_tokens} for the completion exceed the model's "
                f"context of {self._context}"
            )
        settings = self.settings(sampling)
        processors: list[Any] = []
        if (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1, 0, 0):
            processors.append(_Penalties(torch, sampling, inputs["attention_mask"]))
        if sampling.temperature:
            seeds = [request.sampling.seed for request in batch]
            processors.append(_SeededSampler(self._transformers, torch, sampling, seeds, self._suppressed))
        settings["logits_processor"] = self._transformers.LogitsProcessorList(processors)
        choices = batch[0].choices
        with torch.inference_mode():
            made = self.model.generate(
                **inputs, **settings, return_dict_in_generate=True, output_logits=bool(choices) or None
            )
        width = inputs["input_ids"].shape[1]
        masses = [masses_of(choices, row) for row in self._first_tokens(made.logits[0])] if choices else None
        return [
            replace(
                self._completion(row[width:].tolist(), length, sampling), masses=None if masses is None else masses[k]
            )
            for k, (row, length) in enumerate(zip(made.sequences, lengths, strict=True))
        ]

    def _first_tokens(self, logits: torch.Tensor) -> list[list[tuple[str, float]]]:
        """Returns the text and log-probability of the most probable tokens for each row of logits of shape (rows,
        vocabulary).
        """
        found = logits.float().log_softmax(-1).topk(min(TOP, logits.shape[-1]))
        return [
            [(self._tokenizer.decode([token]), logprob) for token, logprob in zip(tokens, logprobs, strict=True)]
            for tokens, logprobs in zip(found.indices.tolist(), found.values.tolist(), strict=True)
        ]

    def _completion(self, tokens: list[int], prompt_tokens: int, sampling: Sampling) -> Completion:
        end = next((k for k, token in enumerate(tokens) if token in self._ends), None)
        kept = tokens if end is None else tokens[:end]
        text: str = self._tokenizer.decode(kept, skip_special_tokens=True)
        cuts = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
        finish = "length" if end is None and not cuts and len(kept) >= sampling.max_tokens else "stop"
        return Completion(
            text=text[: min(cuts)] if cuts else text,
            finish=finish,
            prompt_tokens=prompt_tokens,
            completion_tokens=len(kept) + (end is not None),
        )


class _Penalties:
    """Logits processor that applies the repetition, presence and frequency penalties in the same way as vLLM. Padding
    tokens are not counted as earlier tokens.

    Args:
        module: The torch module.
        sampling: Sampling settings that contain the penalties.
        prompt: (rows, width) mask of the prompts' tokens, which is 0 for padding.
    """

    def __init__(self, module: Any, sampling: Sampling, prompt: torch.Tensor) -> None:
        self._torch, self._sampling, self._prompt = module, sampling, prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Applies the penalties to an array of (rows, vocabulary) logits."""
        sampling, width = self._sampling, self._prompt.shape[1]
        made = input_ids[:, width:]
        counts = self._torch.zeros_like(scores).scatter_add_(1, made, self._torch.ones_like(made, dtype=scores.dtype))
        before = counts.scatter_add(1, input_ids[:, :width], self._prompt.to(scores.dtype)) > 0
        factor = sampling.repetition_penalty
        scores = self._torch.where(before, self._torch.where(scores > 0, scores / factor, scores * factor), scores)
        lowered: torch.Tensor = scores - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts
        return lowered


class _SeededSampler:
    """Logits processor that samples with the Gumbel-max trick: it adds noise to the scores, with one random generator
    per row, so that the argmax is a sample.
    """

    def __init__(
        self, transformers: Any, torch: Any, sampling: Sampling, seeds: Sequence[int | None], suppressed: Sequence[int]
    ) -> None:
        self._torch = torch
        self._warpers = [transformers.TemperatureLogitsWarper(sampling.temperature)]
        if sampling.top_k:
            self._warpers.append(transformers.TopKLogitsWarper(sampling.top_k))
        if sampling.top_p is not None and sampling.top_p < 1:
            self._warpers.append(transformers.TopPLogitsWarper(sampling.top_p))
        if sampling.min_p:
            self._warpers.append(transformers.MinPLogitsWarper(sampling.min_p))
        self._suppressed = list(suppressed)
        self._generators = []
        for seed in seeds:
            generator = torch.Generator("cpu")
            if seed is None:
                generator.seed()
            else:
                generator.manual_seed(seed)
            self._generators.append(generator)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Adds noise to (rows, vocabulary) scores, so that the argmax of each row is a sample."""
        scores = scores.float()
        scores[:, self._suppressed] = -float("inf")
        for warp in self._warpers:
            scores = warp(input_ids, scores)
        draws = [
            self._torch.rand(scores.shape[1], generator=generator, dtype=self._torch.float64)
            for generator in self._generators
        ]
        noise = -self._torch.log(-self._torch.log(self._torch.stack(draws).clamp_min(1e-300)))
        noisy: torch.Tensor = scores + noise.to(scores.device, scores.dtype)
        return noisy


def load_processor(model: str, revision: str | None = None, *, takes_images: bool = True, **options: int | None) -> Any:
    """Loads the processor of a model. If torchvision is not installed, a processor without video support is loaded.

    Args:
        model: Name of the model on the hub, or path of its folder.
        revision: Revision of the model on the hub, or None for the newest revision.
        takes_images: True if the model accepts images, or False to load only its tokenizer.
        options: Settings of the image processor, such as ``max_pixels``. A setting in ``options`` whose value is None
            keeps the processor's own value.
    """
    import transformers

    if not takes_images:
        return transformers.AutoTokenizer.from_pretrained(model, revision=revision)
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return transformers.AutoProcessor.from_pretrained(model, revision=revision, **given)
    except (ImportError, OSError):  # torchvision is or was missing: no video settings in the folder
        pass
    image_processor = transformers.AutoImageProcessor.from_pretrained(model, revision=revision, **given)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, revision=revision)
    config = transformers.AutoConfig.from_pretrained(model, revision=revision)
    names = transformers.models.auto.processing_auto.PROCESSOR_MAPPING_NAMES
    whole = getattr(transformers, names[type(config).model_type])
    parts = ["image_processor", "tokenizer"]  # transformers 4 reads the attribute, transformers 5 calls the method
    reduced = type(whole.__name__, (whole,), {"attributes": parts, "get_attributes": classmethod(lambda cls: parts)})
    return reduced(image_processor=image_processor, tokenizer=tokenizer, chat_template=tokenizer.chat_template)


def without_second_bos(processor: Any, text: str) -> dict[str, Any]:
    """Returns the argument that keeps a processor from adding the beginning-of-sequence token to a text in which the
    chat template has already placed it, as ``apply_chat_template(tokenize=True)`` of transformers does.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    bos = getattr(tokenizer, "special_tokens_map", {}).get("bos_token")
    return {"add_special_tokens": False} if bos and text.startswith(bos) else {}


def image_tokens(config: Any) -> list[int]:
    """Returns the ids of tokens that represent images and videos in a model's input. The model must never sample
    these placeholder tokens.
    """
    tokens = {getattr(part, name, None) for part in (config, config.get_text_config()) for name in _IMAGE_TOKEN_NAMES}
    return sorted(token for token in tokens if isinstance(token, int))


def end_tokens(*values: int | list[int] | None) -> frozenset[int]:
    """Returns the union of the given ids of end-of-sequence tokens. Each argument is a single id, a list of ids, or
    None.
    """
    return frozenset(
        token for value in values if value is not None for token in (value if isinstance(value, list) else [value])
    )


def _settings(image_processor: Any) -> dict[str, Any] | None:
    """Returns those settings of the image processor whose values have JSON types."""
    if image_processor is None:
        return None
    plain = (str, int, float, bool, list, dict)
    return {key: value for key, value in sorted(image_processor.to_dict().items()) if isinstance(value, plain)}


def _without_seed(sampling: Sampling) -> Sampling:
    return replace(sampling, seed=None)
