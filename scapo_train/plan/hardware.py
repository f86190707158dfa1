"""Data-sheet values for the memory and rates of the GPUs that are known to the planner and the metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scapo_eval.base.errors import InputError

GIB = 2**30


@dataclass(frozen=True)
class Gpu:
    """Usable memory and data-sheet rates of a GPU type.

    Attributes:
        memory: Total memory in bytes as reported by ``torch.cuda.mem_get_info``.
        flops: Floating-point operations per second in dense bfloat16 matrix products.
        bandwidth: Bytes per second between the GPU and its memory.
        link: Bytes per second to the other GPUs of the same machine, in one direction.
    """

    memory: float
    flops: float
    bandwidth: float
    link: float


GPUS = {
    "A100-40": Gpu(39.4 * GIB, 312e12, 1.56e12, 300e9),
    "A100-80": Gpu(79.2 * GIB, 312e12, 2.04e12, 300e9),
    "H100": Gpu(79.2 * GIB, 989e12, 3.35e12, 450e9),
    "H200": Gpu(139.8 * GIB, 989e12, 4.8e12, 450e9),
    "B200": Gpu(178.0 * GIB, 2250e12, 7.7e12, 900e9),
    "L40S": Gpu(44.4 * GIB, 362e12, 0.864e12, 25e9),
    "L20": Gpu(44.4 * GIB, 119.5e12, 0.864e12, 25e9),
    "A6000": Gpu(47.4 * GIB, 155e12, 0.768e12, 25e9),
    "RTX4090": Gpu(23.5 * GIB, 165e12, 1.01e12, 25e9),
    "RTX5090": Gpu(31.4 * GIB, 209e12, 1.79e12, 50e9),
}
"""GPU kinds by name, from NVIDIA's data sheets (the SXM version if there are several). The L cards and the RTX cards
communicate over PCIe.
"""

GPUS_PER_MACHINE = 8
NETWORK = 50e9
"""Bytes per second and GPU between machines, for a 400 Gbit/s adapter per GPU."""
HOST_LINK = 25e9
"""Bytes per second between a GPU and the memory of its host, over PCIe 4."""
HOST_SUM = 2.6e9
"""Bytes per second at which gradients of a GPU are copied to pageable host memory and added there, as measured on an
H100 next to other jobs (docs/lab/training.md)."""
HOST_MEMORY = 300e9
"""Bytes per second between the processors of a machine and its memory."""
PINNED = 1.44
"""Mean ratio of the size of pinned host memory to its contents, because PyTorch rounds sizes up to powers of two."""


def kind_of(device_name: str) -> str | None:
    """Returns the GPU type in :data:`GPUS` that matches a name from PyTorch, or None for an unknown GPU."""
    words = re.findall(r"[A-Z]*[0-9]+[A-Z]*", re.sub(r"RTX (?=[0-9])", "RTX", device_name))
    kinds = [kind for kind in GPUS if kind.partition("-")[0] in words]
    return max(kinds, key=lambda kind: f"{kind.partition('-')[2]}GB" in words, default=None)


def matrix_rate(device_name: str) -> float | None:
    """Returns the bfloat16 FLOPs per second of a GPU, given its PyTorch name, or None for an unknown GPU."""
    kind = kind_of(device_name)
    return None if kind is None else GPUS[kind].flops


def parse_gpus(text: str) -> tuple[int, str]:
    """Parses a text such as ``8xH100`` into (8, "H100"). The default number is 1.

    Raises:
        InputError: If the text is not in the expected format, or if the GPU type is not in :data:`GPUS`.
    """

    def plain(name: str) -> str:
        return re.sub(r"[^a-z0-9]|^rtx|gb$", "", name.lower())

    match = re.fullmatch(r"\s*(?:([0-9]+)\s*[x*])?\s*(.+)", text, re.IGNORECASE)
    kinds = [name for name in GPUS if match and plain(name) == plain(match[2])]
    if match is None or not kinds or (match[1] and int(match[1]) < 1):
        raise InputError(f"--gpus expects COUNTxKIND, such as 8xH100, got {text!r} (kinds: {', '.join(GPUS)})")
    return int(match[1] or 1), kinds[0]
