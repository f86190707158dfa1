"""A training step with random weights: seconds per phase, MFU, and peak memory compared with the planner.

    python benchmarks/train_step.py --model Qwen/Qwen2.5-VL-3B-Instruct
    torchrun --nproc-per-node 8 benchmarks/train_step.py --model Qwen/Qwen2.5-VL-7B-Instruct
    python benchmarks/train_step.py --tiny                            # smoke test on any machine, in seconds

The step is :meth:`scapo_train.trainer.Trainer.train_step` itself. Only the parts that need files are replaced: weights
are random (at the same cost as trained weights), pictures are noise, and advantages are drawn randomly. With random
weights, no response ends early, so all responses have ``--response`` tokens. The reward needs text and is measured in
``benchmarks/reward.py``. ``--layers`` shortens a model that is too large for the GPU. This affects neither the MFU nor
the time per layer. The GPU draws all weights at once, including those that are then kept in host memory.

The MFU is the number of FLOPs in the forward and backward pass (including attention, without recomputation) per second
of the update (including the optimizer step), relative to the bfloat16 rate of a single matrix product on the same GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers

from scapo_train.config import Config, Data, Lora, Loss, Model, Optim, Rollout, Run
from scapo_train.credit import CreditedBatch, Logprobs, no_logprobs
from scapo_train.data import Prompt, PromptRecord, Response
from scapo_train.distributed import ProcessGroup, join_process_group
from scapo_train.families.policy import EncodedPrompt
from scapo_train.loop import Models, Task
from scapo_train.metrics import Metrics
from scapo_train.model import load_policy
from scapo_train.plan.hardware import GIB, GPUS
from scapo_train.plan.job import Job, Workload
from scapo_train.plan.planner import plan
from scapo_train.plan.seconds import Seconds
from scapo_train.plan.shapes import model_config, shape_of
from scapo_train.plan.small import small_config
from scapo_train.trainer import Trainer
from scapo_train.update import UpdateResult

END = 151645


def shortened(name: str, folder: Path, layers: int | None) -> Path:
    """Writes the configuration of a model to a folder, optionally with fewer layers, and returns the folder."""
    config = model_config(name)
    text = config.get_text_config()
    if layers:
        text.num_hidden_layers = layers
        if getattr(text, "layer_types", None):
            text.layer_types = text.layer_types[:layers]
    config.save_pretrained(folder)
    return folder


def tiny(folder: Path) -> Path:
    """Writes the configuration of a Qwen2.5-VL with a million parameters to a folder, and returns the folder."""
    small_config().save_pretrained(folder)
    return folder


@contextmanager
def random_weights(device: torch.device, *, on_host: bool) -> Iterator[None]:
    """Makes transformers create random weights within the context, instead of reading them.

    Args:
        device: Device on which the weights are drawn. A GPU needs milliseconds, and the host a minute.
        on_host: True to return them in host memory, like weights that are read from files.
    """

    def made(path: str, *, dtype: Any, attn_implementation: str, **_: Any) -> Any:
        with torch.device(device):
            vlm = transformers.AutoModelForImageTextToText.from_config(
                model_config(path),
                dtype=torch.bfloat16 if dtype == "auto" else dtype,
                attn_implementation=attn_implementation,
            )
        vlm.generation_config.eos_token_id = min(END, vlm.config.get_text_config().vocab_size - 1)
        return vlm.cpu() if on_host else vlm

    with mock.patch.object(transformers.AutoModelForImageTextToText, "from_pretrained", made):
        yield


class NoisePrompts:
    """Prompts with noise pictures of equal size.

    Args:
        job: Job with the sizes and lengths.
        number: Number of prompts.
    """

    def __init__(self, job: Job, number: int) -> None:
        config = model_config(job.config.model.path)
        vision, (width, height) = config.vision_config, job.work.image
        channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
        side = job.shape.token_side
        self.sources = [PromptRecord.of([], str(k), "Describe this image.") for k in range(number)]
        self.bad: set[int] = set()
        self.refused: dict[int, Exception] = {}
        self._grid = torch.tensor([1, round(height / side) * 2, round(width / side) * 2])
        self._dim = channels * vision.temporal_patch_size * vision.patch_size**2
        text = torch.randint(100, 1000, (job.work.prompt_tokens - 2,), generator=torch.Generator().manual_seed(0))
        picture = [
            config.vision_start_token_id,
            *[config.image_token_id] * job.image_tokens,
            config.vision_end_token_id,
        ]
        self._ids = torch.cat([text[:5], torch.tensor(picture), text[5:]])

    def close(self) -> None:
        """Does nothing, because there are no resources to release."""

    def check_bad(self) -> None:
        """Does nothing, because no pictures are read."""

    def take(self, indices: Sequence[int], _: Sequence[int] = (), *, check: bool = True) -> list[Prompt]:
        """Implements :meth:`scapo_train.data.Prompts.take`."""
        patches = int(self._grid.prod())
        found = []
        for k in indices:
            inputs = {"pixel_values": torch.randn(patches, self._dim), "image_grid_thw": self._grid[None]}
            found.append(Prompt(k, self.sources[k], self._ids, inputs))
        return found


class RandomResponses:
    """Sampler for ``--no-rollout``."""

    sleeping_memory, longest, versions = 0, None, dict[str, str]()

    def __init__(self, vocabulary: int, length: int) -> None:
        self._range, self._length = (100, vocabulary - 1000), length

    def sync(self) -> None:
        """Does nothing, because there are no weights."""

    def close(self) -> None:
        """Does nothing, because there are no resources to release."""

    def sample(self, prompts: Sequence[EncodedPrompt], seed: int, group: int, _: float) -> list[Response]:
        """Implements ``sample`` of :class:`scapo_train.rollout.Sampler`."""
        drawn = np.random.default_rng(seed).integers(*self._range, (len(prompts) * group, self._length))
        return [Response(row, False) for row in drawn.tolist()]


class RandomTrainer(Trainer):
    """Trainer with random weights, prompts and advantages.

    Args:
        job: Configuration and lengths.
        process_group: Group of all processes in the training run.
        rollout: True if the policy samples the responses.
    """

    def __init__(self, job: Job, process_group: ProcessGroup, *, rollout: bool = True) -> None:
        self._job, self._rollout = job, rollout
        self._noise: Any = NoisePrompts(job, 4 * job.config.data.prompts_per_step)
        super().__init__(job.config, process_group)

    def read(self) -> Task:
        """Returns the noise prompts."""
        return Task(self._noise.sources)

    def load_models(self) -> Models:
        """Returns models with random weights."""
        config, group = self.config, self.process_group
        with random_weights(group.device, on_host=config.optim.offload):
            policy = load_policy(config.model, 1.0, group, lora=config.lora, offload=config.optim.offload)
        if not self.compares:
            return Models(None, policy, None)
        if config.lora.rank > 0:
            return Models(None, policy, policy)
        with random_weights(group.device, on_host=config.model.reference == "cpu"):
            return Models(None, policy, load_policy(config.model, 1.0, group, reference=True))

    def make_prompts(self, sources: Sequence[PromptRecord], models: Models) -> Any:
        """Returns the noise prompts."""
        return self._noise

    def make_sampler(self, models: Models) -> Any:
        """Returns a sampler with the policy, or with random tokens."""
        length = self.config.rollout.max_new_tokens
        return super().make_sampler(models) if self._rollout else RandomResponses(self._job.shape.vocabulary, length)

    def facts(self) -> dict[str, Any]:
        """Returns no facts."""
        return {}

    def _credit(
        self, encoded: Sequence[EncodedPrompt], responses: Sequence[Response], logprobs: Logprobs = no_logprobs
    ) -> CreditedBatch:
        draw = np.random.default_rng(self.step)
        advantages = [draw.choice([-1.0, 0.0, 1.0], len(each.ids)).astype(np.float32) for each in responses]
        rewards = np.array([each.sum() for each in advantages], dtype=np.float64)
        return CreditedBatch(advantages, SimpleNamespace(), rewards, np.ones(len(encoded), dtype=bool))  # type: ignore[arg-type]

    def _metrics(self, *arguments: Any) -> Metrics:
        self.step += 1
        update: UpdateResult = arguments[-1]
        return {**self.clock.take(), "loss": update.loss, "tokens": update.tokens}


@dataclass(frozen=True)
class Measured:
    """Costs of a step.

    Attributes:
        seconds: Seconds by phase.
        rate: FLOPs per second of a bfloat16 matrix product on this device. 0 on a CPU.
        mfu: Model FLOPs utilization as defined in the module. 0 on a CPU.
        peak, planned: Measured and planned peak in bytes. ``peak`` is 0 on a CPU.
        loss: Loss of the step.
    """

    seconds: dict[str, float]
    rate: float
    mfu: float
    peak: float
    planned: float
    loss: float


def matmul_rate(device: torch.device, size: int = 8192, repeats: int = 20) -> float:
    """Returns the FLOPs per second of a bfloat16 matrix product, as the best of five."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            left @ right
        end.record()
        torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 * repeats / (start.elapsed_time(end) / 1000))
    return best


def measure(job: Job, process_group: ProcessGroup, *, rollout: bool, steps: int) -> Measured:
    """Measures the last of several steps."""
    gpu = process_group.device.type == "cuda"
    rate = matmul_rate(process_group.device) if gpu else 0.0
    trainer = RandomTrainer(job, process_group, rollout=rollout)
    for _ in range(steps):
        if gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(process_group.device)
        values = trainer.train_step()
    seconds = {name.removeprefix("seconds_"): value for name, value in values.items() if name.startswith("seconds_")}
    return Measured(
        seconds={name: float(value or 0) for name, value in seconds.items()},
        rate=rate,
        mfu=Seconds(job).update_flops / float(seconds["update"] or 0) / rate if rate else 0.0,
        peak=float(torch.cuda.max_memory_allocated(process_group.device)) if gpu else 0.0,
        planned=planned_peak(job, rollout=rollout),
        loss=float(values["loss"] or 0),
    )


def planned_peak(job: Job, *, rollout: bool) -> float:
    """Returns the planner's peak over the moments that are run."""
    memory = plan(job).memory
    return max(sum(kinds.values()) for moment, kinds in memory.items() if rollout or moment != "rollout")


def kind_of(device: torch.device) -> str:
    """Returns the planner's name of this GPU, or the H100's for an unknown GPU or a CPU."""
    name = torch.cuda.get_device_name(device).replace(" ", "") if device.type == "cuda" else ""
    return next((kind for kind in GPUS if kind.partition("-")[0] in name), "H100")


def job_of(args: argparse.Namespace, folder: Path, process_group: ProcessGroup) -> Job:
    if args.tiny:
        args.prompts, args.response, args.image = 4, 24, "112x112"
    path = tiny(folder) if args.tiny else shortened(args.model, folder, args.layers)
    width, height = (int(each) for each in args.image.split("x"))
    config = Config(
        run=Run(output=str(folder / "run"), steps=1000, samples=0, export=False),
        model=Model(path=str(path), reference=args.reference, gradient_checkpointing=not args.no_checkpointing),
        lora=Lora(rank=args.lora),
        data=Data(prompts_per_step=args.prompts * process_group.size),
        rollout=Rollout(max_new_tokens=args.response, group=args.group),
        optim=Optim(optimizer=args.optimizer, micro_batch_tokens=args.micro_batch_tokens, offload=args.offload),
        loss=Loss(kl=0.01 if args.kl else 0.0),
    )
    work = Workload((width, height), 30, args.response, config.data.prompts_per_step)
    return Job(config, shape_of(str(path)), kind_of(process_group.device), process_group.size, work)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-VL-3B-Instruct", help="a name of scapo_train.plan.shapes")
    parser.add_argument("--layers", type=int, help="fewer decoder layers")
    parser.add_argument("--prompts", type=int, default=16, help="per rank and step")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--response", type=int, default=192, help="tokens of every response")
    parser.add_argument("--image", default="640x480")
    parser.add_argument("--micro-batch-tokens", type=int, default=8192)
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="adapters of this rank")
    parser.add_argument("--optimizer", choices=["adamw", "adamw8bit"], default="adamw")
    parser.add_argument("--offload", action="store_true", help="trained weights and moments in host memory")
    parser.add_argument("--reference", choices=["device", "cpu"], default="device")
    parser.add_argument("--kl", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--rollout", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--steps", type=int, default=2, help="the last one is measured")
    parser.add_argument("--tiny", action="store_true", help="a model of a million parameters")
    return parser


def main() -> int:
    args = options().parse_args()
    with join_process_group() as process_group, tempfile.TemporaryDirectory() as folder:
        job = job_of(args, Path(folder), process_group)
        found = measure(job, process_group, rollout=args.rollout, steps=args.steps)
        if not process_group.main:
            return 0
        expected = plan(replace(job, assume=replace(job.assume, longest=1.0))).seconds
        work = f"{args.prompts} prompts x {args.group} responses of {args.response} tokens a rank"
        print(f"{args.model if not args.tiny else 'tiny'}, {job.shape.total:,} parameters, {job.shape.layers} layers")
        print(f"{process_group.size} x {process_group.device.type}; {work}; loss {found.loss:.4f}\n")
        print(f"{'phase':<10}{'seconds':>10}" + (f"{'planned':>10}" if found.rate else ""))
        for phase, seconds in found.seconds.items():
            planned = f"{expected.get(phase, 0):>10.3f}" if found.rate else ""
            print(f"{phase:<10}{seconds:>10.3f}{planned}")
        if not found.rate:
            return 0
        difference = found.peak / found.planned - 1
        print(f"\nbfloat16 matrix products: {found.rate / 1e12:.0f} TFLOP/s; update: {found.mfu:.1%} of it (40 %)")
        print(f"peak: {found.peak / GIB:.2f} GiB, planned {found.planned / GIB:.2f}: {difference:+.1%} (10 %)")
        return int(found.mfu < 0.4 or abs(difference) > 0.1)


if __name__ == "__main__":
    sys.exit(main())
