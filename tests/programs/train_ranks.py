"""Trains with one or more ranks, and writes the values that the tests compare. Started by torchrun.

    torchrun --nproc-per-node N train_ranks.py OUT.pt CONFIG [SECTION.KEY=VALUE,...]...

For each list of changes, in order, the program makes a run without checkpoints. It writes the gradient of the first
update, the responses of the first step (by the index of their prompt), the ratios of signal to noise, and the final
weights. RANKS_PER_MACHINE divides the ranks among imagined machines.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from exact import exact_norms
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.tensor import DTensor
from transformers import AutoModelForImageTextToText

from scapo_train import config, trainer
from scapo_train.distributed import ProcessGroup, join_process_group, leave


def whole(tensor: Any) -> torch.Tensor:
    """Returns an unsharded copy of a tensor."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def run(settings: config.Config, process_group: ProcessGroup) -> dict[str, Any]:
    """Makes all steps of a run."""
    made = trainer.Trainer(settings, process_group)
    exact_norms(made.policy)
    with torch.no_grad():
        for parameter in made.trainable:  # away from the reference, where the KL term has a gradient
            parameter *= 1.02
    found: dict[str, Any] = {"gradient": {}, "responses": {}, "snr": []}
    sample, step = made.sampler.sample, made.train_step

    def keep_gradient(*_: Any) -> None:
        if not found["gradient"]:
            named = [(name, each) for name, each in made.policy.named_parameters() if each.requires_grad]
            found["gradient"] = {name: whole(each.grad) for name, each in named}

    def keep_responses(encoded: Any, *rest: Any) -> Any:
        drawn = sample(encoded, *rest)
        if made.step == 0:
            group = settings.rollout.group
            pairs = [(each.prompt.index, drawn[k * group : (k + 1) * group]) for k, each in enumerate(encoded)]
            pairs = [(index, [response.ids for response in own]) for index, own in pairs]
            found["responses"] = dict(pair for rank in process_group.gather(pairs) for pair in rank)
        return drawn

    def keep_ratio() -> Any:
        metrics = step()
        found["snr"] += [metrics["gradient_snr"]] if "gradient_snr" in metrics else []
        return metrics

    made.train_step = keep_ratio  # type: ignore[method-assign]
    made.optimizer.register_step_pre_hook(keep_gradient)
    made.sampler.sample = keep_responses  # type: ignore[method-assign]
    made.run()
    found["mesh"] = [list(each.device_mesh.shape) for each in made.trainable if isinstance(each, DTensor)][:1]
    found["mesh"] = found["mesh"][0] if found["mesh"] else []
    found["offloads"] = [
        isinstance(module._get_fsdp_state()._fsdp_param_group.offload_policy, CPUOffloadPolicy)
        for module in made.policy.modules()
        if isinstance(module, FSDPModule)
    ]
    found["weights"] = {name: whole(each) for name, each in made.policy.named_parameters() if each.requires_grad}
    return found


def _refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("only the first rank reads the weights")


def main() -> None:
    """Runs every list of changes."""
    out, path, *changes = sys.argv[1:]
    os.environ["LOCAL_WORLD_SIZE"] = os.environ.get("RANKS_PER_MACHINE", os.environ.get("LOCAL_WORLD_SIZE", "1"))
    with join_process_group() as process_group:
        if not process_group.main:  # the first rank reads the weights and sends the shards
            AutoModelForImageTextToText.from_pretrained = _refuse
        found = []
        for k, each in enumerate(changes):
            extra = ["run.samples=0", "run.export=false", f"run.output={out}.{process_group.size}.{k}"]
            found.append(run(config.load(path, [*filter(None, each.split(",")), *extra]), process_group))
        if process_group.main:
            torch.save(found, Path(out))


if __name__ == "__main__":
    main()
    leave(0)
