"""A lean PyTorch loop that aligns a vision-language model with SCAPO or one of its on-policy baselines.

    torchrun --nproc-per-node 8 -m scapo_train configs/qwen2_5_vl_7b.toml

Read ``trainer.py`` first: it is one step from top to bottom, and every other file is one of its phases.
"""

from importlib.util import find_spec as _find_spec

from scapo_eval.errors import MissingExtra as _MissingExtra

if _find_spec("torch") is None or _find_spec("transformers") is None:
    import sys

    _missing = _MissingExtra("train", "scapo_train")
    if sys.argv[0] == "-m":  # what it is while ``python -m scapo_train...`` looks for the module
        print(_missing, file=sys.stderr)
        sys.exit(2)
    raise _missing
