"""PyTorch training loop that aligns a vision-language model with SCAPO or one of its on-policy baselines.

    torchrun --nproc-per-node 8 -m scapo_train configs/qwen2_5_vl_7b.toml

To understand the code, start with ``trainer.py``, which contains one optimization step. Each phase of the step has its
own file.
"""

import os as _os
import signal as _signal
import sys as _sys
from importlib.util import find_spec as _find_spec

_program = _sys.argv[0] == "-m"  # the value while ``python -m scapo_train...`` looks for the module


def _leave(number: int, frame: object) -> None:
    _os.write(2, b"scapo_train: interrupted\n")
    _os._exit(130)


def interrupts_are_errors() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt again after PyTorch has been imported. During the import of PyTorch, Ctrl-C
    ends the process without a traceback.
    """
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


if _program and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # unless the signal is ignored
    _signal.signal(_signal.SIGINT, _leave)  # PyTorch takes seconds to import

from scapo_eval.base.errors import MissingExtra as _MissingExtra  # noqa: E402

if _find_spec("torch") is None or _find_spec("transformers") is None:
    _missing = _MissingExtra("train", "scapo_train")
    if _program:
        print(_missing, file=_sys.stderr)
        _sys.exit(2)
    raise _missing
