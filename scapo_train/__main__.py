"""``torchrun --nproc-per-node N -m scapo_train CONFIG``, or ``python -m scapo_train CONFIG`` for one process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from scapo_eval.errors import ScapoError
from scapo_eval.text import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains; returns the exit code: 0 done, 2 bad input, 130 asked to leave (and saved), 75 a rank has died."""
    parser = argparse.ArgumentParser(prog="scapo_train", description=__doc__)
    parser.add_argument("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--resume", choices=["auto", "never"], default="never", help="go on from the newest checkpoint")
    parser.add_argument(
        "--accept-changes", action="store_true", help="go on also with another reward, scheme, loss or seed than before"
    )
    given = parser.parse_args(arguments)
    from . import config, trainer, watch

    try:
        settings = config.load(given.config, given.set)
        config.required(settings, given.config)
        trainer.train(settings, resume=given.resume == "auto", accept_changes=given.accept_changes)
    except (ScapoError, KeyboardInterrupt) as error:
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:  # before the ranks have met, a fault may be one machine's
            print(f"scapo_train: {printable(str(error)) or 'interrupted'}", file=sys.stderr)
        return watch.exit_code(error)
    return 0


if __name__ == "__main__":
    code = main()
    from .distributed import leave

    leave(code)
