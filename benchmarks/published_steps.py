"""Published training steps of other trainers, compared with the planner's estimate of seconds.

    python benchmarks/published_steps.py          # prints the table of docs/lab/training.md
    python benchmarks/published_steps.py --fit    # fits the two constants to the rows that are marked "fitted"

Two constants of :class:`~scapo_train.plan.job.Assumptions` are fitted: ``efficiency`` to the published utilization of
two rows, and ``response`` to their seconds. All other rows test the estimate. The sources publish the model, the GPUs,
the number of responses and of tokens, and the seconds of a step. They do not publish the number of prompt tokens, which
is an assumption here, and the length of the longest response, which is taken to be the limit.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scapo_train.plan.hardware import GPUS
from scapo_train.plan.job import Assumptions
from scapo_train.plan.seconds import decode_seconds
from scapo_train.plan.shapes import shape_of

EASYR1 = "github.com/hiyouga/EasyR1, assets/baselines.md (f9e34640, version 0.3.2)"
NEMO = "github.com/NVIDIA-NeMo/RL, docs/about/performance-summary.md (06beed91, version 0.4)"
NEMO_DRAFT = "github.com/NVIDIA-NeMo/RL, docs/about/performance-summary.md (an earlier commit, version 0.4)"

VALUE_BYTES = 2


@dataclass(frozen=True)
class Decoder:
    """Sizes of a language model.

    Attributes:
        layers: Number of layers.
        layer: Number of weights per layer that a token is multiplied with.
        embedding: Number of weights of the output layer.
        width: Width of all query heads together.
        cache: Number of key and value numbers per token and layer.
        experts: Number of weights per layer in the experts that a token is multiplied with.
        idle: Number of weights per layer that other tokens are multiplied with: the other experts.
    """

    layers: int
    layer: float
    embedding: float
    width: int
    cache: int
    experts: float = 0
    idle: float = 0

    @property
    def weights(self) -> float:
        """Number of weights that a token is multiplied with."""
        return self.layers * self.layer + self.embedding


def qwen(path: str) -> Decoder:
    """Returns the language model of a published model."""
    shape = shape_of(path)
    width = shape.heads * shape.head_dim
    return Decoder(shape.layers, shape.layer, shape.embedding, width, 2 * shape.kv_heads * shape.head_dim)


def dense(layers: int, hidden: int, inner: int, heads: int, kv_heads: int, vocabulary: int) -> Decoder:
    """Returns a dense language model with heads of 128 numbers from the sizes in its ``config.json``."""
    width, kv = 128 * heads, 128 * kv_heads
    return Decoder(layers, hidden * (2 * width + 2 * kv + 3 * inner), hidden * vocabulary, width, 2 * kv)


LLAMA_8B = dense(32, 4096, 14336, 32, 8, 128256)
LLAMA_70B = dense(80, 8192, 28672, 64, 8, 128256)
QWEN3_32B = dense(64, 5120, 25600, 64, 8, 151936)
_EXPERT = 3 * 2048 * 768
QWEN3_30B_A3B = replace(dense(48, 2048, 8 * 768, 32, 4, 151936), experts=8 * _EXPERT, idle=120 * _EXPERT)


@dataclass(frozen=True)
class Step:
    """One published step.

    Attributes:
        name: Model and GPUs.
        source: Repository, file and commit.
        model: Sizes of the language model.
        kind: Kind of GPU.
        gpus: Number of GPUs.
        responses: Number of responses per step.
        tokens: Average number of tokens of a prompt with its response.
        limit: Maximum number of response tokens.
        micro: Number of sequences per micro-batch in the update, and without gradients.
        generation: GPUs per engine of the rollout.
        seconds: Published seconds per step.
        mfu: Published utilization in the update, as a share of the data sheet's rate.
        parallel: Tensor and pipeline parallelism of the training.
        recompute: True if the update recomputes activations.
        mini: Number of responses per optimizer step.
        prompt: Assumed number of prompt tokens.
        fitted: True if constants were fitted to this row.
    """

    name: str
    source: str
    model: Decoder
    kind: str
    gpus: int
    responses: int
    tokens: float
    limit: int
    micro: tuple[int, int]
    generation: int
    seconds: float
    mfu: float | None = None
    parallel: tuple[int, int] = (1, 1)
    recompute: bool = True
    mini: int = 640
    prompt: int = 350
    fitted: bool = False


def easyr1(
    size: str, kind: str, throughput: float, micro: tuple[int, int], tp: int, seconds: float, mfu: float
) -> Step:
    """Returns a row of EasyR1: 512 prompts with 5 responses of at most 2,048 tokens, on 8 GPUs.

    ``throughput`` is the published number of tokens per second and GPU, from which the number of tokens follows.
    """
    tokens = throughput * seconds * 8 / 2560
    name = f"Qwen2.5-VL-{size}, 8 x {kind}, micro-batches of {micro[0]} and {micro[1]}"
    model = qwen(f"Qwen/Qwen2.5-VL-{size}-Instruct")
    return Step(name, EASYR1, model, kind, 8, 2560, tokens, 2048, micro, tp, seconds, mfu)


def published() -> list[Step]:
    """Returns all rows, those first that constants are fitted to."""
    return [
        replace(easyr1("7B", "H100", 1600, (1, 2), 2, 145, 0.160), fitted=True),
        replace(easyr1("7B", "H100", 2000, (4, 8), 2, 120, 0.232), fitted=True),
        easyr1("3B", "H100", 1800, (1, 2), 2, 120, 0.081),
        easyr1("32B", "H100", 620, (1, 2), 8, 530, 0.258),
        easyr1("7B", "L20", 410, (1, 2), 2, 580, 0.265),
        Step(
            "Llama-3.1-8B, 16 x H100, Megatron", NEMO, LLAMA_8B, "H100", 16, 2048, 1060, 4096, (1, 2), 1, 97.7,
            parallel=(1, 2), mini=512, prompt=150,
        ),
        Step(
            "Llama-3.1-8B, 16 x H100, PyTorch", NEMO_DRAFT, LLAMA_8B, "H100", 16, 2048, 1056, 4096, (1, 2), 1, 115,
            mini=512, prompt=150,
        ),
        Step(
            "Llama-3.1-70B, 32 x H100, Megatron", NEMO_DRAFT, LLAMA_70B, "H100", 32, 512, 675, 4096, (1, 1), 8, 106,
            parallel=(4, 8), mini=512, prompt=150,
        ),
        Step(
            "Qwen3-32B, 32 x H100, Megatron", NEMO, QWEN3_32B, "H100", 32, 2048, 3206, 4096, (1, 1), 4, 393,
            parallel=(4, 4), recompute=False, mini=512, prompt=150,
        ),
        Step(
            "Qwen3-30B-A3B, 32 x H100, Megatron", NEMO, QWEN3_30B_A3B, "H100", 32, 2048, 3154, 4096, (1, 1), 4, 225,
            parallel=(2, 1), recompute=False, mini=512, prompt=150,
        ),
    ]  # fmt: skip


def phases(step: Step, assume: Assumptions) -> dict[str, float]:
    """Returns the estimated seconds per phase, by the formulas of :mod:`scapo_train.plan.seconds`.

    Unlike this package's trainer, all trainers here read a prompt once per response, and one process handles all
    responses on the host.
    """
    gpu, model, (tensor, pipeline) = GPUS[step.kind], step.model, step.parallel
    rate, bandwidth = gpu.flops * assume.efficiency, gpu.bandwidth * assume.bandwidth
    ranks = step.gpus // (tensor * pipeline)
    attention = 2 * step.tokens**2 * model.width * model.layers
    slower = (1 / assume.experts - 1) * model.layers * model.experts
    forward = (2 * (model.weights + slower) * step.tokens + attention) / (tensor * pipeline)

    def of_passes(micro: int, launches: int, flops: float) -> float:
        per_mini = step.mini / ranks / micro
        bubble = (per_mini + pipeline - 1) / per_mini
        launch = launches * assume.launch * model.layers / pipeline
        return step.responses / ranks / micro * bubble * (launch + micro * flops / rate)

    engines = step.gpus // step.generation
    mean = step.tokens - step.prompt
    row = (step.prompt + mean / 2) * model.layers * model.cache * VALUE_BYTES / bandwidth + 2 * model.weights / rate
    return {
        "rollout": decode_seconds(
            responses=step.responses / engines,
            mean=mean,
            longest=step.limit,
            at_once=math.inf,
            step=VALUE_BYTES * (model.weights + model.layers * model.idle) / step.generation / bandwidth
            + assume.vllm_step,
            row=row / step.generation,
        ),
        "logprob": 2 * of_passes(step.micro[1], 1, forward),
        "update": of_passes(step.micro[0], 2 + step.recompute, (3 + step.recompute) * forward),
        "host": assume.response * step.responses,
    }


def fit(steps: Sequence[Step]) -> Assumptions:
    """Fits ``efficiency`` to the published utilization, and then ``response`` to the seconds."""
    rows = [step for step in steps if step.fitted]

    def off(efficiency: float) -> float:
        assume = replace(Assumptions(), efficiency=efficiency)
        return sum(math.log(phases(step, assume)["update"] / update_seconds(step)) ** 2 for step in rows)

    best = min((k / 1000 for k in range(200, 600)), key=off)
    assume = replace(Assumptions(), efficiency=best, response=0.0)
    missing = [(step.seconds - sum(phases(step, assume).values())) / step.responses for step in rows]
    return replace(assume, response=sum(missing) / len(missing))


def update_seconds(step: Step) -> float:
    """Returns the seconds of the update that follow from the published utilization."""
    assert step.mfu is not None
    attention = 6 * step.tokens**2 * step.model.width * step.model.layers
    flops = step.responses * (6 * step.model.weights * step.tokens + attention)
    return flops / (step.gpus * GPUS[step.kind].flops * step.mfu)


def table(steps: Sequence[Step], assume: Assumptions) -> str:
    """Returns the table of published and estimated seconds."""
    lines = [
        "| Step | Rollout | Log-probabilities | Update | Host | Estimated | Published | Error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for step in steps:
        parts = phases(step, assume)
        total = sum(parts.values())
        error = "fitted" if step.fitted else f"{total / step.seconds - 1:+.1%}"
        cells = " | ".join(f"{seconds:.0f}" for seconds in (*parts.values(), total))
        lines.append(f"| {step.name} | {cells} | {step.seconds:.0f} | {error} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table, and the fitted constants if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit the constants anew")
    steps = published()
    assume = Assumptions()
    if parser.parse_args().fit:
        assume = fit(steps)
        print(f"efficiency {assume.efficiency:.3f}, response {assume.response * 1000:.1f} ms\n")
    print(table(steps, assume))
    return 0


if __name__ == "__main__":
    sys.exit(main())
