"""Console script, which handles Ctrl-C even while modules are being imported."""

from __future__ import annotations

import os
import signal
from types import FrameType


def run() -> None:
    """Runs ``scapo-eval``. An interrupt during the imports ends the program with the same message as a later
    interrupt.
    """
    before = signal.signal(signal.SIGINT, _leave)
    from .main import main

    signal.signal(signal.SIGINT, before)
    main()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"scapo-eval: interrupted; nothing was half-written, run the same command again\n")
    os._exit(130)
