"""Saves, loads and exports with real process groups. The checkpoint tests start this program with torchrun.

    torchrun --nproc-per-node N checkpoint_ranks.py FOLDER ACTION...

Actions, in order:

- ``within:machine`` shards the models of later actions within machines of two ranks.
- ``save:NAME`` makes two steps of a toy model, saves a checkpoint, and writes its tensors to NAME.pt.
- ``later:NAME`` is ``save:NAME`` in the background. Further steps are made before the end of the writing.
- ``load:NAME:OUT`` loads the checkpoint into a toy with other values, and writes tensors and state to OUT.pt.
- ``full:NAME`` saves while the second rank cannot write, and again when it can, and writes both results of ``save`` to
  NAME.pt.
- ``export:MODEL:OUT:DTYPE`` shards a Hugging Face folder and exports it.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from scapo_train.checkpoint.save import Checkpoints, export
from scapo_train.distributed import ProcessGroup, leave
from scapo_train.model import mesh_of


class Toy(nn.Module):
    """Toy model with a frozen tower, uneven sizes, and an output layer that is tied to the input."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.tower = nn.Linear(3, 5)
        self.embed = nn.Embedding(7, 5)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.tower.requires_grad_(False)

    def forward(self, ids: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids) + self.tower(pixels)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return self.head(hidden)


def made(seed: int, within: str = "world") -> tuple[Toy, torch.optim.Optimizer]:
    """Returns a toy model, sharded if there are several ranks, and its optimizer. Imagined machines have two ranks."""
    toy = Toy(seed)
    if dist.is_initialized() and dist.get_world_size() > 1:
        group = ProcessGroup(dist.get_rank(), dist.get_world_size(), torch.device("cpu"), 2)
        mesh = mesh_of(group, within)
        for layer in toy.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(toy, mesh=mesh, ignored_params=set(toy.tower.parameters()))
    return toy, torch.optim.AdamW([p for p in toy.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)


def train(toy: Toy, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    """Makes several steps on the same numbers."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        ids, pixels = torch.randint(0, 7, (4,), generator=generator), torch.randn(4, 3, generator=generator)
        toy(ids, pixels).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def tensors(toy: Toy, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Returns the unsharded parameters and moments."""
    found = {}
    for name, parameter in toy.named_parameters():
        for key, value in {"value": parameter, **optimizer.state.get(parameter, {})}.items():
            found[f"{name}.{key}"] = (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
    return found


def main() -> None:
    """Runs the actions."""
    folder = Path(sys.argv[1])
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    within = "world"
    for action in sys.argv[2:]:
        verb, *names = action.split(":")
        if verb == "within":
            within = names[0]
            continue
        result: Any = None
        if verb == "save":
            toy, optimizer = made(0, within)
            train(toy, optimizer)
            assert Checkpoints(folder / names[0], 2).save(2, toy, optimizer, {"sampler": [1, 2]})
            result = tensors(toy, optimizer)
        elif verb == "later":
            toy, optimizer = made(0, within)
            train(toy, optimizer)
            result = tensors(toy, optimizer)
            checkpoints = Checkpoints(folder / names[0], 2, background=True)
            assert checkpoints.save(2, toy, optimizer, {"sampler": [1, 2]}, wait=False)
            train(toy, optimizer)
            checkpoints.close()
        elif verb == "load":
            toy, optimizer = made(5, within)
            checkpoints = Checkpoints(folder / names[0], 2)
            latest = checkpoints.latest()
            assert latest is not None
            state = checkpoints.load(latest, toy, optimizer)
            result = {**tensors(toy, optimizer), "state": state}
        elif verb == "full":
            toy, optimizer = made(0, within)
            train(toy, optimizer)
            if rank == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
            result = Checkpoints(folder / names[0], 2).save(3, toy, optimizer, {})
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            result = result, Checkpoints(folder / names[0], 2).save(4, toy, optimizer, {})
        else:
            from transformers import AutoModelForImageTextToText

            model = AutoModelForImageTextToText.from_pretrained(folder / names[0], dtype=torch.float32)
            for layer in model.model.language_model.layers:
                fully_shard(layer)
            fully_shard(model, ignored_params=set(model.model.visual.parameters()))
            assert isinstance(model, FSDPModule)
            export(model, folder / names[0], folder / names[1], getattr(torch, names[2]))
        if rank == 0:
            torch.save(result, folder / f"{names[-1] if verb != 'export' else 'export'}.pt")
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    main()
    leave(0)
