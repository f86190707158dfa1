"""``python -m scapo_train.export RUN --step N``: export of a training checkpoint in Hugging Face format.

LoRA adapters are merged into the weights, or, with ``--adapter``, exported separately.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.text import printable

from .checkpoint.best import Best, best_of
from .checkpoint.save import Checkpoints, export, export_adapter, step_of
from .config import load
from .distributed import ProcessGroup
from .model import load_policy, source_folder
from .monitoring.log import CONFIG

BEST = "best"
"""Subfolder of the training run for the best checkpoint by ``run.keep_best``."""


def export_step(
    run: Path,
    step: int | None,
    output: Path | None,
    dtype: str = "bfloat16",
    *,
    best: bool = False,
    adapter: bool = False,
) -> Path:
    """Writes the weights of a checkpoint in Hugging Face format.

    Args:
        run: Folder of the training run.
        step: Step number of the checkpoint, or None to select the newest checkpoint.
        output: Path of the output folder, or None to select ``model-STEP`` (or ``adapter-STEP``) in the folder of the
            training run.
        dtype: Number format of the weights in the files.
        best: True to select the checkpoint with the best value of the metric ``run.keep_best``.
        adapter: True to write only the adapters, in peft's format.

    Returns:
        The output folder.

    Raises:
        InputError: If the checkpoint or the base model is not found, the output folder already exists or cannot be
            written, or adapters are requested but the checkpoint has none.
    """
    if not (run / CONFIG).is_file():
        raise InputError(f"not the folder of a training run: it has no {CONFIG}", path=str(run))
    config = load(run / CONFIG)
    if adapter and not config.lora.rank:
        raise InputError("has no adapters (lora.rank = 0): export it without --adapter", path=str(run))
    checkpoints = Checkpoints(run / (BEST if best else "checkpoints"), 1)
    complete = {step_of(path): path for path in checkpoints.complete()}
    if not complete or (step is not None and step not in complete):
        steps = ", ".join(map(str, complete)) or "none"
        raise InputError(f"checkpoint not found (found: {steps})", path=str(checkpoints.folder))
    if step is None:
        step = best_of(checkpoints, Best(config.run.keep_best, 0)) if best else max(complete)
    output = output or run / f"{'adapter' if adapter else 'model'}-{step:06d}"
    if output.exists():
        raise InputError("exists: choose another folder with -o", path=str(output))
    group = ProcessGroup(0, 1, torch.device("cpu"))
    policy = load_policy(config.model, config.rollout.temperature, group, lora=config.lora)
    checkpoints.load_weights(complete[step], policy)
    if adapter:
        export_adapter(policy.vlm, config.model.path, config.model.revision, output, getattr(torch, dtype))
    else:
        export(policy.vlm, source_folder(config.model), output, getattr(torch, dtype))
    return output


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the export and returns the exit code, which is 0 for success and 2 for invalid input."""
    parser = argparse.ArgumentParser(prog="scapo_train.export", description=__doc__)
    parser.add_argument("run", help="folder of a training run (run.output)")
    parser.add_argument("--step", type=int, help="step of the checkpoint (default: the newest)")
    parser.add_argument("--best", action="store_true", help="the best checkpoint by run.keep_best")
    parser.add_argument("--adapter", action="store_true", help="the adapters alone, not merged into the weights (LoRA)")
    parser.add_argument("-o", "--output", help="folder to write (default: RUN/model-STEP, or RUN/adapter-STEP)")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="type of the weights")
    given = parser.parse_args(arguments)
    try:
        output = Path(given.output) if given.output else None
        run = Path(given.run)
        print(export_step(run, given.step, output, given.dtype, best=given.best, adapter=given.adapter))
    except ScapoError as error:
        print(f"scapo_train: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
