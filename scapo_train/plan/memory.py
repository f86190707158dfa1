"""Memory per GPU, in bytes, at each moment of a step, derived from the tensors that this package keeps."""

from __future__ import annotations

from ..logprob import CHUNK_ELEMENTS
from .hardware import GIB, GPUS_PER_MACHINE, PINNED
from .job import GpuShare, Pass

ASLEEP = 1.5 * GIB
"""Bytes that a sleeping vLLM engine keeps for its context and CUDA graphs."""

GATHERED = 3
"""Number of decoder layers that are unsharded at the same time: the current layer, the next layer, and the buffer that
receives the next layer.
"""

IMAGES = 16
"""Number of images that are encoded at the same time (:func:`scapo_train.rollout.encode`)."""

DRAWING = 2**22 * 32
"""Bytes that token sampling needs in addition to the logits (:func:`scapo_train.rollout._drawn`)."""

MOMENTS = ("vision", "rollout", "logprob", "update")


class Memory(GpuShare):
    """Memory of one GPU, in bytes."""

    def bytes_at(self, moment: str) -> dict[str, float]:
        """Returns the bytes per GPU at a moment of a step, grouped by kind and without zero values."""
        kinds = self._resting()
        if self.job.vllm and moment != "rollout":
            rollout = self.config.rollout
            kinds["vLLM"] = ASLEEP if rollout.sleep else rollout.gpu_memory * self.gpu.memory
        if self.shape.shared:
            features = self.pictures * self.image_tokens * self.shape.hidden * (1 + self.shape.deepstack)
            kinds["picture features"] = features * self.value_bytes
        elif moment in ("logprob", "update"):  # the inputs of all passes are made before the first
            of_step = self.passes[0].responses if self.job.pairs else self.responses
            kinds["pixels"] = of_step * self.picture.pixels
        if self.shape.shared and moment in ("logprob", "update"):
            longest = self.passes[0]
            masks = longest.responses if self.job.pairs else self.responses  # of a pass, or of the whole step
            kinds["masks"] = masks * (longest.length - 1) * (longest.prompt + longest.length - 1)
        if moment == "logprob" and self.job.pairs:  # between the passes of a step
            kinds |= self._gradients()
        kinds |= getattr(self, f"_at_{moment}")()
        return {kind: value for kind, value in kinds.items() if value}

    def _resting(self) -> dict[str, float]:
        """Returns the number of bytes that stay in memory during the whole step."""
        language, trained = self.shape.language / self.shards, self.trained / self.shards
        tower = 0 if self.shape.shared else self.shape.tower  # the reference of the general path encodes images itself
        reference = self.kl and not self.lora and self.config.model.reference == "device"
        wide = self.shape.one_dtype and self.autocast and not self.lora
        here = not self.offload
        return {
            "weights, frozen": self.value_bytes * language if self.lora and here else 0,
            "adapters, float32" if self.lora else "weights, float32": 4 * trained if here else 0,
            "optimizer moments": self._moments() * trained if here else 0,
            "vision tower": (4 if wide else self.value_bytes) * self.shape.tower,
            "reference": self.value_bytes * (language + tower) if reference else 0,
        }

    def _moments(self) -> float:
        """Returns the number of bytes for a weight's moments. The moments are stored either in float32, or in one byte
        each with float32 scales for blocks of 256 (torchao).
        """
        return 8 if self.config.optim.optimizer == "adamw" else 2 + 2 * 4 / 256

    def _gradients(self) -> dict[str, float]:
        return {} if self.offload else {"gradients": 4 * self.trained / self.shards}

    def host_bytes(self) -> float:
        """Returns the number of bytes of host memory that each machine needs for copies of checkpoints and for data
        kept in host memory instead of on the GPUs.
        """
        language, trained = self.shape.language / self.shards, self.trained / self.shards
        kept = 0.0
        if self.offload:
            weights = self.value_bytes * language if self.lora else 0
            kept += PINNED * (weights + 8 * trained) + self._moments() * trained  # gradients are float32, and pinned
        if self.config.run.async_save:
            kept += (4 + self._moments()) * trained
        if self.kl and not self.lora and self.config.model.reference == "cpu":
            kept += PINNED * self.value_bytes * language
        return kept * min(self.count, GPUS_PER_MACHINE)

    def _at_vision(self) -> dict[str, float]:
        patches = min(IMAGES, self.pictures) * self.picture.patches
        # per patch: several copies of the hidden state (width about 1,280) in float32, and the pixels
        return {"activations": patches * (self.value_bytes * 12 * 1280 + 4 * 2 * 1176)}

    def _at_rollout(self) -> dict[str, float]:
        shape, rollout = self.shape, self.config.rollout
        if self.job.vllm:
            return {"vLLM": rollout.gpu_memory * self.gpu.memory}
        run = self.config.run
        if self.job.pairs and not (self.config.data.evaluation and run.evaluate_every) and not run.samples:
            return {}  # otherwise, held-out pictures are described
        prompts = min(rollout.prompts_per_batch, 10**9 if self.job.pairs else self.prompts)
        prompts = prompts if shape.shared else 1
        rows = prompts * (1 if self.job.pairs else rollout.group)
        cache = rows * (self.prompt_tokens + rollout.max_new_tokens) * self.cache_per_token()
        drawing = rows * shape.vocabulary * (self.value_bytes + 4) + DRAWING
        return {
            "working copies": self._whole_copy(),
            "cache of keys and values": cache * (1 + 1 / shape.layers),  # the cache is extended layer by layer
            "activations": max(self._prefill(prompts), drawing),
        }

    def _prefill(self, prompts: int) -> float:
        """Returns the number of bytes needed to process the prompts."""
        return self._mlp(prompts * self.prompt_tokens)

    def _at_logprob(self) -> dict[str, float]:
        if not self.kl and self.config.updates_per_batch == 1:
            return {}
        if self.count > 1:
            copies: float = self.value_bytes * (self.shape.root + GATHERED * self.shape.layer)
        else:
            on_host = self.kl and not self.lora and self.config.model.reference == "cpu"
            copies = max(
                self.value_bytes * self.shape.language if on_host else 0,
                self._whole_copy() if self.config.updates_per_batch > 1 else 0,
            )
        return {"working copies": copies, **self._forward()}

    def _at_update(self) -> dict[str, float]:
        """Returns the memory at the peak of the update: at the end of the forward pass, or in the backward pass of the
        output layer, a decoder layer or the embedding.

        The fused optimizer step needs no additional memory.
        """
        worst = max((self._update_of(batch) for batch in self.passes), key=lambda kinds: sum(kinds.values()))
        return {**self._gradients(), **worst}

    def _update_of(self, batch: Pass) -> dict[str, float]:
        shape, b, checkpointing = self.shape, self.value_bytes, self.config.model.gradient_checkpointing
        stream = 4 if self.autocast and not self.lora else b
        layer, chunk = self._saved(batch), self._chunk(batch)
        kept = shape.layers * (batch.tokens * stream * shape.hidden if checkpointing else layer)
        norm = 25 * batch.tokens * shape.hidden
        backward = self._through_mlp(batch.tokens)
        output, gradient = self._output()
        own_adapters = (self.adapters - self.stack_adapters) / shape.layers
        trained_layer = own_adapters if self.lora else shape.layer - shape.stacked
        copies, waiting, reduced, last = self._copies(output, gradient)
        # autocast frees its copies after the forward pass
        cast, lasting = (output if self.autocast else 0.0), (0.0 if checkpointing and not self.sharded else copies)
        if checkpointing:
            backward += layer + (b * trained_layer if self.autocast else 0)
        moments: list[tuple[float, float, float]] = [  # working copies with waiting gradients, activations, chunk
            (copies + cast, kept, 12 * chunk),
            (lasting + cast, kept, gradient + (output if b < 4 else 0) + (4 + b) * chunk),
            (lasting + reduced + waiting, kept + max(norm, backward), 0),
            (last, 0, 0),
        ]
        copies, activations, chunks = max(moments, key=sum)
        return {"working copies": copies, "activations": activations, "log-softmax chunk": chunks}

    def _output(self) -> tuple[float, float]:
        """Returns the number of bytes of the output layer (in the dtype of the computation) and of its gradient."""
        embedding = 0 if self.lora else self.shape.embedding
        return self.value_bytes * embedding, 4 * embedding

    def _copies(self, output: float, gradient: float) -> tuple[float, float, float, float]:
        """Returns the number of bytes in working copies and gradients before the optimizer step.

        Args:
            output: Size in bytes of the output layer in the dtype of the computation.
            gradient: Size of the gradient of the output layer in bytes.

        Returns:
            Numbers of bytes for the weight copies, the pending gradients of the root, the gradients of a layer, and the
            remaining gradients at the end of the backward pass.
        """
        shape, b = self.shape, self.value_bytes
        if self.sharded:
            layer, root = (self.adapters / shape.layers, 0) if self.lora else (shape.layer, shape.root)
            copies = b * (shape.root + GATHERED * (shape.layer + self.adapters / shape.layers))
            waiting = output  # unsharded gradients of the root's parameters wait for the last of them
            reduced = (b + 4 + 4 / self.shards) * layer  # the gradients of a layer: unreduced, in float32, and reduced
            return copies, waiting, reduced, (b + 4 + 4 / self.shards) * root + output * shape.tied
        reduced = (b + 4) * shape.hidden * shape.inner if self.autocast and not self.lora else 0.0
        return self._whole_copy(), gradient * shape.tied, reduced, gradient * (1 + shape.tied)

    def _whole_copy(self) -> float:
        """Returns the size, in bytes, of the unsharded weights in the dtype of the computation or, on a single GPU, of
        autocast's copies.
        """
        shape = self.shape
        if self.sharded:
            return self.value_bytes * (shape.language + self.adapters)
        if self.lora:
            return self.value_bytes * (self.adapters - self.stack_adapters) if self.autocast else 0
        cast = shape.language - shape.embedding * (not shape.tied) - shape.stacked * shape.layers
        return self.value_bytes * cast if self.autocast else 0

    def _saved(self, batch: Pass) -> float:
        """Returns the bytes that the forward pass of a decoder layer keeps for the backward pass."""
        shape, b = self.shape, self.value_bytes
        attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        # two norms: the input in float32, the normalized input and the output. Under autocast, the residual stream is
        # also float32, and each linear layer casts its own input
        norms = 2 * (4 + 4) + 5 * b if self.autocast else 2 * (4 + 2 * b)
        normed = 4 + b
        if self.lora:  # frozen norms keep no normalized input, and the residual stream has the dtype of the computation
            norms, normed = 2 * (4 + b), 4
        per_token = norms * shape.hidden + 3 * b * attention + 4 * b * shape.inner + 4 * shape.heads + 8
        if shape.qk_norm:
            per_token += normed * (attention + keys) + 4 * (shape.heads + shape.kv_heads)
        adapted = [sizes for name, sizes in shape.adapted(self.config.lora).items() if name in shape.linear]
        per_token += b * self.config.lora.rank * len(adapted)
        if self.config.lora.dropout:  # each adapter has its own mask and input
            per_token += (b + 1) * sum(inputs for _, inputs, _ in adapted)
        return batch.tokens * per_token + 2 * b * (batch.prompts * batch.prompt * keys) + self._read_by_responses(batch)

    def _through_mlp(self, tokens: float) -> float:
        """Returns the number of bytes that the backward pass of an MLP needs in addition to the kept tensors."""
        return tokens * (2 * self.value_bytes * self.shape.inner + 2.5 * self.shape.hidden)

    def _read_by_responses(self, batch: Pass) -> float:
        """Returns the number of bytes of the keys, values and mask that are read when the attention of the responses is
        computed.
        """
        heads = self.shape.heads if self.repeats_keys else self.shape.kv_heads
        return self.value_bytes * (2 * batch.keys * heads * self.shape.head_dim + batch.scores)

    def _forward(self) -> dict[str, float]:
        """Returns the peak memory of a forward pass without gradients. The peak occurs in a layer's MLP, in its
        attention, or at the logits.
        """
        kinds = []
        for batch in self.passes:
            stream = batch.tokens * self.value_bytes * self.shape.hidden
            layer = max(self._mlp(batch.tokens), 6 * stream + 2 * self._read_by_responses(batch))
            kinds += [("activations", layer), ("log-softmax chunk", 12 * self._chunk(batch) + 2 * stream)]
        return dict([max(kinds, key=lambda kind: kind[1])])

    def _mlp(self, tokens: float) -> float:
        """Returns the number of bytes that an MLP needs for a forward pass without gradients. With dropout, each
        adapter output is an additional copy.
        """
        copies = 3 + (self.config.lora.dropout > 0)
        return tokens * self.value_bytes * (copies * self.shape.inner + 4.5 * self.shape.hidden)

    def _chunk(self, batch: Pass) -> float:
        """Returns the number of logits that exist at the same time."""
        at_once = max(self.shape.vocabulary, CHUNK_ELEMENTS["cuda"])
        return min(at_once, batch.responses * batch.length * self.shape.vocabulary)
