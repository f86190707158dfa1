"""Computes the memory per GPU at each moment of a training step, and the duration of each phase, before a run starts.

    python -m scapo_train.plan qwen2_5_vl_7b --gpus 8xH100

The model is built on the meta device, so that sizes are exact and nothing is downloaded. The memory use is derived from
the tensors that this package keeps. The memory use of a layer was determined from the tensors that autograd keeps for
the backward pass. ``tests/unit/test_train_plan.py`` compares the estimates with the measured peak of an entire pass.
The durations are computed from the FLOPs, the bandwidth and the efficiencies in
:class:`~scapo_train.plan.job.Assumptions`. The duration of a step is printed as a range, which
``benchmarks/published_steps.py`` compares with the published step times of other trainers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.text import printable

from ..config import load
from .hardware import GIB, GPUS, parse_gpus
from .job import Assumptions, GpuShare, Job, Workload
from .memory import MOMENTS
from .planner import Plan, plan, with_advice
from .shapes import shape_of
from .verify import Measured, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan and returns the exit code: 0 if the job fits, 3 if it does not fit, 2 for invalid input."""
    work, assume = Workload(), Assumptions()
    parser = argparse.ArgumentParser(prog="python -m scapo_train.plan", description=(__doc__ or "").partition("\n")[0])
    option = parser.add_argument
    option("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    option("--gpus", required=True, metavar="8xH100", help=f"how many of which: {', '.join(GPUS)}")
    option("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    option("--lora", type=int, metavar="RANK", help="adapters of this rank: lora.rank=RANK")
    option("--pairs", action="store_true", help="of python -m scapo_train.preference: preference.loss on pairs")
    option("--image", default="640x480", metavar="WxH", help="pixels of a picture (%(default)s)")
    option("--prompt-tokens", type=int, default=work.prompt_tokens, help="of its text, with the template (%(default)s)")
    option("--response-tokens", type=int, default=work.response_tokens, help="of an average response (%(default)s)")
    option("--prompts", type=int, default=work.prompts, help="of the training file (%(default)s)")
    option("--efficiency", type=float, default=assume.efficiency, help="of matrix products (%(default)s)")
    option("--verify", action="store_true", help="measure memory too: the real step on tensors without data, minutes")
    option("--json", action="store_true", help="print one JSON object, bytes and seconds unrounded")
    given = parser.parse_args(arguments)
    try:
        count, kind = parse_gpus(given.gpus)
        work = Workload(_size(given.image), given.prompt_tokens, given.response_tokens, given.prompts)
        for name in ("prompt_tokens", "response_tokens", "prompts"):
            if getattr(work, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} must be at least 1")
        if not 0 < given.efficiency <= 1:
            raise InputError("--efficiency must be above 0 and at most 1")
        config = load(given.config, given.set + ([f"lora.rank={given.lora}"] if given.lora is not None else []))
        if not config.model.path:
            raise InputError("model.path is not set: --set model.path=...", path=given.config)
        assume = dataclasses.replace(assume, efficiency=given.efficiency)
        job = Job(config, shape_of(config.model.path), kind, count, work, assume, given.pairs)
        if not job.steps:
            per_step = config.data.prompts_per_step
            raise InputError(f"--prompts is {work.prompts}, but data.prompts_per_step is {per_step}")
        measured = measure(job) if given.verify else None
        planned = with_advice(job, plan(job))
    except ScapoError as error:
        print(f"scapo_train.plan: {printable(str(error))}", file=sys.stderr)
        return 2
    try:
        print(
            json.dumps(_table(job, planned, measured), indent=2) if given.json else _text(job, planned, measured),
            flush=True,
        )
    except BrokenPipeError:  # the reader has closed the pipe (| head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if planned.fits else 3


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)[x*]([1-9][0-9]*)", text.strip())
    if match is None:
        raise InputError(f"--image expects WIDTHxHEIGHT, such as 640x480, got {text!r}")
    return int(match[1]), int(match[2])


def _range(value: float, error: float) -> str:
    """Returns the range of an estimate, rounded to two digits."""
    low, high = (float(f"{value * (1 + sign * error):.2g}") for sign in (-1, 1))
    return f"{low:g} to {high:g}"


def _table(job: Job, planned: Plan, measured: Measured | None) -> dict[str, Any]:
    total = sum(planned.seconds.values())
    return {
        "model": job.config.model.path,
        "gpus": {"count": job.count, "kind": job.kind, **asdict(job.gpu)},
        "shape": asdict(job.shape),
        "workload": asdict(job.work),
        "assumptions": asdict(job.assume),
        **asdict(planned),
        "seconds": planned.seconds if math.isfinite(total) else None,
        "fits": planned.fits,
        "measured": asdict(measured) if measured else None,
        "steps": job.steps,
    }


def _text(job: Job, planned: Plan, measured: Measured | None) -> str:
    def row(name: str, cells: Sequence[float]) -> str:
        return f"{name:<26}" + "".join(f"{cell / GIB:>11.2f}" if cell else f"{'-':>11}" for cell in cells)

    data, work, memory = job.config.data, job.work, planned.memory
    step = f"{data.prompts_per_step} prompts x {job.config.rollout.group} responses a step"
    if job.pairs:
        step = f"{data.prompts_per_step} pairs a step ({job.config.preference.loss})"
    kinds = dict.fromkeys(kind for moment in MOMENTS for kind in memory[moment])
    verdict = "fits" if planned.fits else "DOES NOT FIT"
    lines = [
        f"{job.config.model.path}: {job.shape.total:,} parameters, {GpuShare(job).trained:,} trained",
        f"{job.count} x {job.kind}; {step}; "
        f"{work.image[0]}x{work.image[1]} pixels: {job.image_tokens} tokens; "
        f"responses of {work.response_tokens} on average",
        "",
        f"{'GiB per GPU':<26}" + "".join(f"{moment:>11}" for moment in MOMENTS),
        *(row(kind, [memory[moment].get(kind, 0) for moment in MOMENTS]) for kind in kinds),
        row("together", [sum(memory[moment].values()) for moment in MOMENTS]),
        "",
        f"peak {planned.peak / GIB:.1f} GiB ({planned.peak_moment}), with context and fragmentation "
        f"{planned.needed / GIB:.1f} of {planned.available / GIB:.1f} GiB: {verdict}",
        *([f"host memory: {planned.host / GIB:.0f} GiB per machine"] if planned.host else []),
        *(f"  note: {note}" for note in planned.notes),
    ]
    if not planned.fits:
        lines += [f"  would fit: {way}" for way in planned.remedies] or [
            "  no setting that this plan considers would help"
        ]
    total = sum(planned.seconds.values())
    if math.isfinite(total):
        shown = {
            phase: f"{value:.{'0f' if value >= 10 else '2g'}}" for phase, value in planned.seconds.items() if value
        }
        phases = ", ".join(f"{phase} {seconds}" for phase, seconds in shown.items())
        lines += [
            "",
            f"{_range(total, job.assume.error)} seconds per step ({phases}); "
            f"{job.steps} steps in {_range(job.steps * total / 3600, job.assume.error)} hours",
            *(
                [f"  faster: {planned.faster}: {_range(planned.faster_seconds, job.assume.error)} seconds per step"]
                if planned.faster
                else []
            ),
            f"  assumed: {job.assume.efficiency:.0%} of {job.gpu.flops / 1e12:.0f} TFLOP/s and "
            f"{job.assume.bandwidth:.0%} of bandwidths; an update without recomputation counts {planned.mfu:.0%}",
        ]
    if measured is not None:
        lines += ["", f"measured on tensors without data in {measured.seconds:.0f} s, without vLLM:"]
        for moment in ("logprob", "update"):
            counted, thought = getattr(measured, moment), planned.without_vllm(moment)
            share = f"{thought / counted - 1:+.1%}"
            lines.append(f"  {moment}: {counted / GIB:.2f} GiB, planned {thought / GIB:.2f} ({share})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
