"""``torchrun --nproc-per-node N -m scapo_train CONFIG``, or ``python -m scapo_train CONFIG`` for one process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from scapo_eval.errors import ScapoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains; returns the exit code: 0 done, 2 bad input, 130 asked to leave (and saved)."""
    parser = argparse.ArgumentParser(prog="scapo_train", description=__doc__)
    parser.add_argument("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--resume", choices=["auto", "never"], default="never", help="go on from the newest checkpoint")
    given = parser.parse_args(arguments)
    try:
        from . import config, trainer

        trainer.train(config.load(given.config, given.set), resume=given.resume == "auto")
    except ScapoError as error:
        if int(os.environ.get("RANK", "0")) == 0:
            print(f"scapo_train: {error}", file=sys.stderr)
        return 130 if type(error).__name__ == "Interrupted" else 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
