"""``python -m scapo_train.world snr``: signal and noise of each scheme's gradient at the start model.

Batches of prompts are drawn independently; every scheme credits the same responses, so that schemes differ in their
credit alone. The gradient is the trainer's own, less its KL term (whose gradient at the start is 0). It is the sum of
three parts, by the decision that is credited:

- ``end``: going on or ending, at every token: log p(end), or log(1 - p(end)) where the response goes on;
- ``object``: the tokens of names, given that the response goes on;
- ``wording``: all other tokens, given that the response goes on.

With g_b the gradient of batch b of B, the squared length of the mean gradient is estimated by the mean of g_b . g_c
over all pairs b != c (a U-statistic: unbiased), the noise (trace of the covariance) by the mean of g_b . g_b less that.
Their ratio is the squared signal-to-noise ratio of one batch. Intervals are 95 %: of one seed by the jackknife over
batches, of several seeds by Student's t over seeds.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.rewarding.reward import SubsentenceReward
from scapo_eval.rewarding.tokens import decode_with_offsets
from scapo_eval.truths.oracle import PresenceOracle

from ..config import Config, load
from ..credit import credit, token_weights
from ..data import Response, seed_of
from ..distributed import join_process_group
from ..rollout import encode
from ..trainer import Trainer
from ..update import MicroBatch
from .experiment import SCHEMES, prepare
from .pictures import World
from .pretrain import Lessons
from .report import markdown, mean_and_margin, student

_log = logging.getLogger(__name__)

Floats = NDArray[np.float64]

PARTS = ("end", "object", "wording")
"""The decisions that a gradient is decomposed by."""

NAMES = {"all": "all", "end": "going on or ending", "object": "which object", "wording": "wording"}

PROMPTS, BATCHES = 8, 20
"""Default number of prompts in a batch, and of batches."""


@dataclass(frozen=True)
class Estimate:
    """A value with half the width of its 95 % interval; None if it cannot be estimated."""

    value: float | None
    margin: float | None = None


@dataclass(frozen=True)
class Signal:
    """The gradient of one scheme, or one part of it, at the start model of one seed.

    Attributes:
        snr: squared signal-to-noise ratio of one batch.
        signal: share of the whole gradient's squared mean that is this part's.
        noise: share of the whole gradient's noise that is this part's.
    """

    snr: Estimate
    signal: Estimate
    noise: Estimate


@dataclass(frozen=True)
class Signals:
    """Signal and noise of several schemes at the start model of one seed.

    Attributes:
        seed: of pictures, start model, prompts and samples.
        schemes: names, in the order of the table.
        signals: scheme -> part of PARTS, or ``all`` -> signal and noise.
        cosines: scheme -> scheme -> cosine of their mean gradients.
    """

    seed: int
    schemes: Sequence[str]
    signals: Mapping[str, Mapping[str, Signal]]
    cosines: Mapping[str, Mapping[str, Estimate]]


def mean_product(gram: Floats) -> float:
    """Returns the unbiased estimate of the product of two means from (B, B) products of the batches' vectors."""
    batches = len(gram)
    return float((gram.sum() - np.trace(gram)) / (batches * (batches - 1)))


def noise_product(gram: Floats) -> float:
    """Returns the unbiased estimate of the trace of a covariance from (B, B) products of the batches' vectors."""
    return float(np.trace(gram) / len(gram)) - mean_product(gram)


def squared_snr(gram: Floats) -> float:
    """Squared length of the mean over the trace of the covariance; not a number if there is no noise."""
    noise = noise_product(gram)
    return mean_product(gram) / noise if noise > 0 else float("nan")


def cosine(one: Floats, other: Floats, both: Floats) -> float:
    """Returns the cosine of two means; not a number if the estimate of a squared length is not positive.

    Args:
        one, other: (B, B) products of each with itself.
        both: (B, B) products of one with the other.
    """
    squares = mean_product(one), mean_product(other)
    return mean_product(both) / float(np.sqrt(squares[0] * squares[1])) if min(squares) > 0 else float("nan")


def jackknife(statistic: Any, *grams: Floats) -> Estimate:
    """Returns the statistic of the products, and its interval by leaving out each batch."""
    value, batches = statistic(*grams), len(grams[0])
    kept = [np.delete(np.arange(batches), k) for k in range(batches)]
    without = np.array([statistic(*(gram[np.ix_(rows, rows)] for gram in grams)) for rows in kept])
    if not np.isfinite(value):
        return Estimate(None)
    spread = float(np.sqrt((batches - 1) * np.var(without)))
    return Estimate(value, student(batches - 1) * spread if np.isfinite(spread) else None)


def signals_of(vectors: NDArray[np.float32], schemes: Sequence[str], seed: int) -> Signals:
    """Returns the signal and noise from the gradients' parts.

    Args:
        vectors: (batches, schemes, parts, parameters).
        schemes: names of the schemes.
        seed: of the start model.
    """
    batches, _, parts, size = vectors.shape
    flat = vectors.reshape(-1, size)
    gram = (flat @ flat.T).astype(np.float64).reshape(batches, len(schemes), parts, batches, len(schemes), parts)
    whole = gram.sum((2, 5))  # products of whole gradients
    signals: dict[str, dict[str, Signal]] = {}
    for s, scheme in enumerate(schemes):
        total = whole[:, s, :, s]
        one = Estimate(1.0)
        signals[scheme] = {"all": Signal(jackknife(squared_snr, total), one, one)}
        for p, part in enumerate(PARTS):
            with_total = gram[:, s, p, :, s].sum(2)
            signals[scheme][part] = Signal(
                jackknife(squared_snr, gram[:, s, p, :, s, p]),
                jackknife(lambda a, b: mean_product(a) / mean_product(b), with_total, total),
                jackknife(lambda a, b: noise_product(a) / noise_product(b), with_total, total),
            )
    cosines = {
        one_name: {
            other_name: jackknife(cosine, whole[:, a, :, a], whole[:, b, :, b], whole[:, a, :, b])
            for b, other_name in enumerate(schemes)
            if b != a
        }
        for a, one_name in enumerate(schemes)
    }
    return Signals(seed, list(schemes), signals, cosines)


class Gradients:
    """Draws batches from a start model and takes the gradient of every scheme, in parts.

    Args:
        trainer: at the start model, with the settings that the schemes share.
        configs: scheme -> settings.
        prompts: number of prompts in a batch.
    """

    def __init__(self, trainer: Trainer, configs: Mapping[str, Config], prompts: int) -> None:
        self.trainer, self.configs, self.prompts = trainer, configs, prompts
        self.rewards = {
            scheme: SubsentenceReward(
                Vocabulary.load(config.data.vocabulary),
                PresenceOracle.load(config.data.oracle),
                config.credit.reward_config(),
            )
            for scheme, config in configs.items()
        }

    def batch(self, number: int) -> NDArray[np.float32]:
        """Returns the (schemes, parts, parameters) gradients of the batch of this number, which others do not depend
        on.
        """
        trainer = self.trainer
        config, trainer.step = trainer.config, number
        seed = seed_of(config.run.seed, number, 37)
        random = np.random.default_rng(seed)
        order = random.choice(len(trainer.prompts.sources), size=self.prompts, replace=False).tolist()
        encoded = encode(trainer.policy, trainer.prompts.take(order), trainer.process_group.device)
        responses = trainer.sampler.sample(encoded, seed, config.rollout.group, config.rollout.temperature)
        mini = trainer.updater.mini_batches(order, encoded, responses)
        trainer.updater.add_frozen_logprobs(mini)
        lengths = np.array([len(response.ids) for response in responses], dtype=np.int64)
        logprobs = partial(trainer.updater.logprobs, mini, lengths.tolist())
        image_ids = [each.prompt.source.image_id for each in encoded for _ in range(config.rollout.group)]
        is_name = self._names(responses)
        longest = config.rollout.max_new_tokens
        shares = []  # scheme -> per response, (T_i,) minus advantage times weight: the slope of the loss
        for scheme, own in self.configs.items():
            given = credit(
                own.credit, self.rewards[scheme], trainer.tokenizer, image_ids, responses, own.rollout.group, longest,
                logprobs,
            )  # fmt: skip
            weights = token_weights(own.loss, lengths, float(lengths.sum()), float(len(lengths)), longest)
            shares.append([-a * w for a, w in zip(given.advantages, weights, strict=True)])
        trained = trainer.trainable
        sums = np.zeros((len(shares), len(PARTS), sum(p.numel() for p in trained)), dtype=np.float32)
        for micro in (micro for each in mini for micro in each):
            names = torch.from_numpy(np.concatenate([is_name[k] for k in micro.owners]))
            logprob, end = self._decisions(micro)
            flat = [torch.from_numpy(np.concatenate([of[k] for k in micro.owners])) for of in shares]
            for s, share in enumerate(flat):
                zero = torch.zeros_like(share)
                losses = (
                    (share * end).sum(),
                    (torch.where(names, share, zero) * (logprob - end)).sum(),
                    (torch.where(names, zero, share) * (logprob - end)).sum(),
                )
                for p, loss in enumerate(losses):
                    gradients = torch.autograd.grad(loss, trained, retain_graph=True)
                    sums[s, p] += torch.cat([g.flatten() for g in gradients]).numpy()
        return sums

    def _decisions(self, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the log-probabilities of the tokens, and of ending or continuing at each, both with gradient."""
        policy, targets = self.trainer.policy, micro.batch.targets
        (end,) = policy.ends
        logprob = policy(micro.batch).logprob
        ending = policy(replace(micro.batch, targets=torch.full_like(targets, end))).logprob  # type: ignore[type-var]
        going_on = torch.log1p(-ending.exp())
        return logprob, torch.where(targets == end, ending, going_on)

    def _names(self, responses: Sequence[Response]) -> list[NDArray[np.bool_]]:
        """Returns for each response (T_i,) whether a token is of an object's name."""
        decoded = [decode_with_offsets(self.trainer.tokenizer, response.ids) for response in responses]
        mentions = self.trainer.reward.matcher.find_batch([text for text, _ in decoded])
        names = list[NDArray[np.bool_]]()
        for k, (_, spans) in enumerate(decoded):
            start, end = mentions.start[mentions.row(k)], mentions.end[mentions.row(k)]
            names.append(np.any((spans[:, :1] < end) & (spans[:, 1:] > start), axis=1))
        return names


def gradients(
    start: Path, schemes: Sequence[str], seed: int, prompts: int
) -> Generator[NDArray[np.float32], None, None]:
    """Gradients of batch after batch at the start model of a seed; see :meth:`Gradients.batch`."""
    with tempfile.TemporaryDirectory() as folder, join_process_group() as process_group:
        shared = [f"run.seed={seed}", f"run.output={folder}/run", "loss.kl=0.01", "data.evaluation="]
        configs = {
            scheme: load(start / "world.toml", [setting.format(world=start) for setting in SCHEMES[scheme].settings])
            for scheme in schemes
        }
        trainer = Trainer(load(start / "world.toml", shared), process_group)
        made = Gradients(trainer, configs, prompts)
        try:
            number = 0
            while True:
                yield made.batch(number)
                number += 1
        finally:
            trainer.close()
            if trainer.log is not None:
                trainer.log.close(failed=False)


def measure(
    world: World,
    output: Path,
    schemes: Sequence[str],
    seeds: Sequence[int],
    lessons: Lessons,
    batches: int,
    prompts: int,
) -> str:
    """Measures every seed, writes ``snr.json``, and returns the tables.

    Args:
        world: rules of the pictures.
        output: folder of the experiment; start models that it holds are taken, others are made.
        schemes: names in SCHEMES, none of them on pairs.
        seeds: of pictures, start model, prompts and samples.
        lessons: how long start models are taught.
        batches: number of batches.
        prompts: number of prompts in a batch.

    Raises:
        InputError: if the folder holds another world.
    """
    of_seeds = []
    torch.set_num_threads(1)
    for seed in seeds:
        start = prepare(world, output, lessons, seed)
        drawn = gradients(start, schemes, seed, prompts)
        first = next(drawn)
        vectors = np.empty((batches, *first.shape), dtype=np.float32)  # the one large array: not also a list of parts
        vectors[0] = first
        for number in range(1, batches):
            vectors[number] = next(drawn)
        drawn.close()
        of_seeds.append(signals_of(vectors, schemes, seed))
        _log.info("gradients of seed %d: %d batches of %d prompts", seed, batches, prompts)
        summary = {"world": asdict(world), "batches": batches, "prompts": prompts, "seeds": list(map(asdict, of_seeds))}
        with atomic_write(output / world.name / "snr.json") as stream:
            stream.write(dump_json(summary) + b"\n")
    return tables(of_seeds)


def tables(found: Sequence[Signals]) -> str:
    """Returns Markdown: signal and noise of every scheme and part, and cosines of the schemes' mean gradients."""
    schemes = found[0].schemes
    lines = []
    for scheme in schemes:
        for part, name in NAMES.items():
            of_part = [each.signals[scheme][part] for each in found]
            columns = [[signal.snr for signal in of_part]]
            columns += [[s.signal for s in of_part], [s.noise for s in of_part]] if part != "all" else [[], []]
            lines.append([SCHEMES[scheme].title if part == "all" else "", name, *map(_cell, columns)])
    first = markdown(["", "decision", "squared SNR", "share of signal", "share of noise"], lines, 2)
    cosines = [
        [SCHEMES[one].title]
        + ["" if one == other else _cell([each.cosines[one][other] for each in found]) for other in schemes]
        for one in schemes
    ]
    second = markdown(["cosine of mean gradients", *(SCHEMES[scheme].title for scheme in schemes)], cosines, 1)
    return f"{first}\n\n{second}"


def _cell(estimates: Sequence[Estimate]) -> str:
    """Returns one seed's estimate with its own interval, or the mean over seeds with theirs."""
    known = [each for each in estimates if each.value is not None]
    if not known:
        return "n/a" if estimates else ""
    if len(known) == 1:
        value, margin = known[0].value, known[0].margin
    else:
        value, margin = mean_and_margin(each.value for each in known if each.value is not None)
    return f"{value:.2f}" + ("" if margin is None else f" ± {margin:.2f}")
