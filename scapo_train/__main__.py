"""Run ``torchrun --nproc-per-node N -m scapo_train CONFIG``, or ``python -m scapo_train CONFIG`` for one process."""

from __future__ import annotations

from collections.abc import Sequence

from .config import command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs training and returns the exit code of :func:`scapo_train.loop.command`."""
    given = command_line("scapo_train", __doc__).parse_args(arguments)
    from .loop import command
    from .trainer import Trainer

    return command("scapo_train", Trainer, given)


if __name__ == "__main__":
    code = main()
    from .distributed import leave

    leave(code)
