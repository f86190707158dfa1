"""``python -m scapo_train.floor CONFIG``: prints the share of pieces that ``credit.reference_floor`` penalizes.

A floor that suits one model can penalize a third of the pieces of another model. The command samples responses from the
initial model in the same way as in the first training steps. For each piece, the command computes the lowest
probability that the reference assigns to a token outside of object names. The first table shows the floor at which a
given share of pieces is penalized, and the second table shows the share of pieces that a given floor penalizes. The
command does not train the model.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.text import printable
from scapo_eval.rewarding.tokens import decode_with_offsets

from .config import REQUIRED, Config, command_line, load, required
from .credit import Sampled, name_tokens
from .distributed import ProcessGroup, join_process_group, leave
from .monitoring.memory import out_of_memory, remedy_for_memory, with_remedy
from .rollout import encode
from .trainer import Trainer

SHARES = (0.001, 0.005, 0.01, 0.02, 0.05)
FLOORS = (0.1, 0.01, 1e-3, 1e-4, 1e-5)
_DRAWS = 1000


@dataclass(frozen=True)
class LowestProbabilities:
    """The lowest probability that the reference assigns to a token, for each piece.

    Attributes:
        log_probability: (pieces,) lowest log-probability of a token outside of object names. The value is infinite for
            pieces that consist only of object names.
        prompt: (pieces,) number of the prompt to which each piece belongs.
    """

    log_probability: NDArray[np.float64]
    prompt: NDArray[np.int64]

    def floor_of(self, share: float) -> float:
        """Returns the floor at which a given share of the pieces is penalized."""
        return float(np.exp(np.quantile(self.log_probability, share, method="lower")))

    def share_of(self, floor: float) -> tuple[float, float, float]:
        """Returns the share of pieces that a floor penalizes, and the 95 % interval of this share (bootstrap over
        prompts).
        """
        prompts, at = np.unique(self.prompt, return_inverse=True)
        charged = np.bincount(at, weights=self.log_probability < np.log(floor))
        pieces = np.bincount(at)
        drawn = np.random.default_rng(0).multinomial(len(prompts), np.full(len(prompts), 1 / len(prompts)), size=_DRAWS)
        low, high = np.quantile(drawn @ charged / (drawn @ pieces), (0.025, 0.975))
        return float(charged.sum() / pieces.sum()), float(low), float(high)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables and returns the exit code, which is 0, or 2 for invalid input."""
    parser = command_line("scapo_train.floor", (__doc__ or "").partition("\n")[0], resumes=False)
    parser.add_argument("--batches", type=int, default=4, metavar="N", help="training steps to sample (default: 4)")
    given = parser.parse_args(arguments)
    try:
        if given.batches < 1:
            raise InputError("--batches must be at least 1")
        config = load(given.config, given.set)
        required(config, given.config, REQUIRED)
        if config.credit.per_response:
            raise InputError(f'credit.reference_floor applies to rewards of pieces; "{config.credit.scheme}" has none')
        with tempfile.TemporaryDirectory(prefix="scapo-floor-") as folder, join_process_group() as process_group:
            own = ["data.evaluation=", "run.evaluate_every=0", "run.keep_best=", "run.patience=0", "run.trackers=[]"]
            own += [f"run.output={folder}/{process_group.rank}"]
            own += [] if config.loss.kl else ["loss.kl=0.01"]  # without it, no reference is loaded
            found = lowest_probabilities(load(given.config, [*given.set, *own]), process_group, given.batches)
            if process_group.main:
                print(tables(found, config.credit.reference_floor))
    except (ScapoError, OSError) as error:
        print(f"scapo_train.floor: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


def lowest_probabilities(config: Config, process_group: ProcessGroup, batches: int) -> LowestProbabilities:
    """Samples responses from the initial model, and returns, on every rank, the lowest probability in each piece.

    Args:
        config: Settings of the training run, with ``loss.kl`` above 0.
        process_group: Group of all processes.
        batches: Number of training steps whose prompts are used.

    Raises:
        ScapoError: If the memory does not suffice.
    """
    with with_remedy(config):
        trainer = Trainer(config, process_group)
    values, owners = list[NDArray[np.float64]](), list[NDArray[np.int64]]()
    try:
        for number in range(min(batches, trainer.steps)):
            trainer.step = number
            own, of_pieces = _of_batch(trainer)
            values.append(own)
            owners.append(np.asarray(trainer.own_indices(number), dtype=np.int64)[of_pieces])
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ScapoError(remedy_for_memory(trainer.config, trainer.clock.phase, trainer.step + 1, error)) from None
    finally:
        trainer.close()
        if trainer.log is not None:
            trainer.log.close(failed=False)
    everywhere: list[tuple[Any, Any]] = process_group.gather((np.concatenate(values), np.concatenate(owners)))
    return LowestProbabilities(*(np.concatenate(part) for part in zip(*everywhere, strict=True)))


def _of_batch(trainer: Trainer) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns, for each piece in a batch, the lowest log-probability of its tokens and the index of its prompt."""
    encoded = encode(
        trainer.policy, trainer.prompts.take(trainer.own_indices(trainer.step)), trainer.process_group.device
    )
    with trainer.clock("rollout"):
        responses = trainer._sample(encoded, attempt=0)
    mini_batches = trainer.updater.mini_batches(trainer.indices(trainer.step), encoded, responses)
    with trainer.clock("logprob"):
        trainer.updater.add_frozen_logprobs(mini_batches)
    logprobs = partial(trainer.updater.logprobs, mini_batches, [len(response.ids) for response in responses])
    columns = trainer._credit(encoded, responses, logprobs).columns
    decoded = [decode_with_offsets(trainer.tokenizer, response.ids) for response in responses]
    texts, offsets = [text for text, _ in decoded], [spans for _, spans in decoded]
    group = trainer.config.rollout.group
    sampled = Sampled(
        trainer._image_ids(encoded), texts, offsets, np.array([response.finished for response in responses]), columns,
        group, trainer.reward, logprobs,
    )  # fmt: skip
    lowest = np.full(len(columns.reward), np.inf)
    is_name = name_tokens(trainer.reward.matcher, texts, offsets)
    for k, (values, name, piece) in enumerate(zip(logprobs("reference"), is_name, sampled.pieces, strict=True)):
        first, pieces = int(columns.indptr[k]), int(columns.indptr[k + 1] - columns.indptr[k])
        counted = ~name & (piece < pieces)
        np.minimum.at(lowest, first + piece[counted], values[counted])
    response = np.repeat(np.arange(len(responses)), np.diff(columns.indptr))
    return lowest, response // group


def tables(found: LowestProbabilities, floor: float) -> str:
    """Returns the tables as Markdown.

    Args:
        found: Lowest probability in each piece.
        floor: Floor from the configuration, which is added to the second table.
    """
    pieces, prompts = len(found.log_probability), len(np.unique(found.prompt))
    lines = [
        f"{pieces:,} pieces of the start model's responses to {prompts:,} prompts", "",
        "| pieces penalized | credit.reference_floor |", "| ---: | ---: |",
        *(f"| {100 * share:g} % | {found.floor_of(share):.2g} |" for share in SHARES), "",
        "| credit.reference_floor | pieces penalized | 95 % interval |", "| ---: | ---: | ---: |",
    ]  # fmt: skip
    for each in sorted({*FLOORS, *([floor] if floor else [])}, reverse=True):
        share, low, high = found.share_of(each)
        lines.append(f"| {each:g} | {100 * share:.1f} % | {100 * low:.1f} to {100 * high:.1f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    leave(main())
