"""``python -m scapo_train.launch --nproc-per-node N CONFIG``: runs torchrun and returns the exit code of the ranks.

torchrun itself returns 1 for every failure of its processes. Schedulers need the exit code of the ranks to restart a
job after code 75 (a rank has died, or ``--max-hours`` have passed) but not after code 2 (invalid input). The arguments
are those of torchrun, followed by those of ``python -m scapo_train``. For training on pairs, use ``-m
scapo_train.preference``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .monitoring.watch import LOST


def main(arguments: Sequence[str] | None = None) -> int:
    """Starts the ranks and returns the exit code of the first rank that failed, or 75 if this rank was killed, or 130
    after SIGTERM or SIGINT.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import get_args_parser, run

    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if given else 2
    if "-m" not in given and "--module" not in given:
        at = _first_positional(given)
        given[at:at] = ["-m", "scapo_train"]
    try:
        run(get_args_parser().parse_args(given))
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        return LOST if code < 0 else code
    except SignalException as error:
        print(f"scapo_train.launch: interrupted by {error.sigval.name}", file=sys.stderr)
        return 130
    except ValueError as error:  # torchrun reads --nproc-per-node only now
        print(f"scapo_train.launch: {error}", file=sys.stderr)
        return 2
    return 0


def _first_positional(given: Sequence[str]) -> int:
    """Returns the index of the first argument after torchrun's own options."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    alone = {name for action in parser._actions if action.nargs == 0 for name in action.option_strings}
    at = 0
    while at < len(given) and given[at].startswith("-"):
        at += 1 if given[at] in alone or "=" in given[at] else 2
    return at


if __name__ == "__main__":
    sys.exit(main())
