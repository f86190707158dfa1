"""Command ``python -m scapo_train.world snr``, which measures the signal and noise of each scheme's gradient at the
start model.

Batches of prompts are drawn independently. All schemes assign credit to the same responses. The gradient is that of the
trainer without the KL term, whose gradient is 0 at the start model. The gradient is the sum of three parts, one for
each type of decision that receives credit:

- ``end``: the decision at every token to end or continue, whose log-probability is log p(end) if the response ends, and
  log(1 - p(end)) if it continues.
- ``object``: the tokens of object names, given that the response continues.
- ``wording``: all other tokens, given that the response continues.

Let g_b be the gradient of batch b out of B batches. The squared length of the mean gradient is estimated by the mean of
g_b . g_c over all pairs b != c, which is an unbiased U-statistic. The noise (trace of the covariance) is estimated by
the mean of g_b . g_b minus the estimated squared length. The ratio of the two estimates is the squared signal-to-noise
ratio of one batch. The 95 % confidence intervals are computed with the jackknife over batches for one seed, and with
Student's t distribution for several seeds.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
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
from ..credit import credit, name_tokens, token_weights
from ..data import seed_of
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
"""Decisions into which a gradient is decomposed."""

NAMES = {"all": "all", "end": "going on or ending", "object": "which object", "wording": "wording"}

PROMPTS, BATCHES = 8, 20
"""Default number of prompts per batch, and default number of batches."""


@dataclass(frozen=True)
class Estimate:
    """Value with the half-width of its 95 % confidence interval. A number that cannot be estimated is None."""

    value: float | None
    margin: float | None = None


@dataclass(frozen=True)
class Signal:
    """Signal and noise of one scheme's gradient, or of a part of this gradient, at the start model of one seed.

    Attributes:
        snr: Squared signal-to-noise ratio of one batch.
        signal: Share that the part contributes to the squared length of the whole mean gradient.
        noise: Share that the part contributes to the noise of the whole gradient.
    """

    snr: Estimate
    signal: Estimate
    noise: Estimate


@dataclass(frozen=True)
class Signals:
    """Signal and noise of several schemes for the start model of one seed.

    Attributes:
        seed: Seed for the pictures, the start model, the prompts and the samples.
        schemes: Names of the schemes in the order of the table.
        signals: Nested mapping from the scheme and the part (one of PARTS, or ``all``) to its signal and noise.
        cosines: Nested mapping from two schemes to the cosine between their mean gradients.
    """

    seed: int
    schemes: Sequence[str]
    signals: Mapping[str, Mapping[str, Signal]]
    cosines: Mapping[str, Mapping[str, Estimate]]


def mean_product(gram: Floats) -> float:
    """Returns an unbiased estimate of the scalar product of two mean vectors, from the (B, B) scalar products of the
    batches' vectors.
    """
    batches = len(gram)
    return float((gram.sum() - np.trace(gram)) / (batches * (batches - 1)))


def noise_product(gram: Floats) -> float:
    """Returns an unbiased estimate of the trace of a covariance, from the (B, B) scalar products of the batches'
    vectors.
    """
    return float(np.trace(gram) / len(gram)) - mean_product(gram)


def squared_snr(gram: Floats) -> float:
    """Returns the ratio of the mean's squared length to the trace of the covariance, or NaN if the estimated trace is
    not positive.
    """
    noise = noise_product(gram)
    return mean_product(gram) / noise if noise > 0 else float("nan")


def shares(product: Callable[[Floats], float]) -> Callable[[Floats, Floats], float]:
    """Returns a function of the scalar products of a part with the whole and of the whole with itself, which computes
    the share of the part in a product, or NaN if the estimate for the whole is not positive.
    """

    def share(part: Floats, whole: Floats) -> float:
        total = product(whole)
        return product(part) / total if total > 0 else float("nan")

    return share


def cosine(one: Floats, other: Floats, both: Floats) -> float:
    """Returns the cosine of the angle between two mean vectors, or NaN if the estimate of a squared length is not
    positive.

    Args:
        one, other: (B, B) scalar products of the vectors within each of the two sets.
        both: (B, B) scalar products of the vectors in the first set with those in the second set.
    """
    squares = mean_product(one), mean_product(other)
    return mean_product(both) / float(np.sqrt(squares[0] * squares[1])) if min(squares) > 0 else float("nan")


def jackknife(statistic: Any, *grams: Floats) -> Estimate:
    """Returns a statistic of matrices of scalar products and the jackknife interval of this statistic over batches."""
    value, batches = statistic(*grams), len(grams[0])
    kept = [np.delete(np.arange(batches), k) for k in range(batches)]
    without = np.array([statistic(*(gram[np.ix_(rows, rows)] for gram in grams)) for rows in kept])
    if not np.isfinite(value):
        return Estimate(None)
    spread = float(np.sqrt((batches - 1) * np.var(without)))
    return Estimate(value, student(batches - 1) * spread if np.isfinite(spread) else None)


def signals_of(vectors: NDArray[np.float32], schemes: Sequence[str], seed: int) -> Signals:
    """Returns the signal and noise of all schemes and of all parts of their gradients.

    Args:
        vectors: Gradients, as an array of shape (batches, schemes, parts, parameters).
        schemes: Names of the schemes.
        seed: Seed of the start model.
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
                jackknife(shares(mean_product), with_total, total),
                jackknife(shares(noise_product), with_total, total),
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
    """Gradients of all schemes on the same batches, decomposed into parts.

    Args:
        trainer: Trainer in the state of the start model, with the settings that the schemes share.
        configs: Mapping from the name of each scheme to its settings.
        prompts: Number of prompts per batch.
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
        """Returns the gradients of one batch, with shape (schemes, parts, parameters). A batch depends only on the seed
        and on the batch number.
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
        decoded = [decode_with_offsets(trainer.tokenizer, response.ids) for response in responses]
        texts, offsets = [text for text, _ in decoded], [spans for _, spans in decoded]
        is_name = name_tokens(trainer.reward.matcher, texts, offsets)
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
        """Returns the log-probabilities of the tokens, and those of the decision to end or continue at each token. Both
        are differentiable.
        """
        policy, targets = self.trainer.policy, micro.batch.targets
        (end,) = policy.ends
        logprob = policy(micro.batch).logprob
        ending = policy(replace(micro.batch, targets=torch.full_like(targets, end))).logprob  # type: ignore[type-var]
        going_on = torch.log1p(-ending.exp())
        return logprob, torch.where(targets == end, ending, going_on)


def gradients(
    start: Path, schemes: Sequence[str], seed: int, prompts: int
) -> Generator[NDArray[np.float32], None, None]:
    """Yields the gradients of consecutive batches for the start model of a seed; see :meth:`Gradients.batch`."""
    with tempfile.TemporaryDirectory() as folder, join_process_group() as process_group:
        shared = [f"run.seed={seed}", f"run.output={folder}/run", "loss.kl=0.01"]
        shared += ["data.evaluation=", "run.evaluate_every=0"]
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
    """Measures the signal and noise for all seeds, writes ``snr.json``, and returns the tables.

    Args:
        world: Rules for drawing the pictures.
        output: Folder of the experiment. Existing start models are reused, and missing models are trained.
        schemes: Names of schemes in SCHEMES, except schemes that train on pairs.
        seeds: Seeds for the pictures, the start models, the prompts and the samples.
        lessons: Length of the start models' training.
        batches: Number of batches.
        prompts: Number of prompts per batch.

    Raises:
        InputError: If the folder contains the files of another world.
    """
    of_seeds = []
    torch.set_num_threads(1)
    for seed in seeds:
        start = prepare(world, output, lessons, seed)
        drawn = gradients(start, schemes, seed, prompts)
        first = next(drawn)
        vectors = np.empty((batches, *first.shape), dtype=np.float32)  # one large array, without a list of parts
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
    """Returns Markdown tables with signal and noise by scheme and part, and with the cosines between the schemes' mean
    gradients.
    """
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
    """Returns the estimate for a single seed with its own interval, or the mean over several seeds with the interval of
    the mean.
    """
    known = [each for each in estimates if each.value is not None]
    if not known:
        return "n/a" if estimates else ""
    if len(known) == 1:
        value, margin = known[0].value, known[0].margin
    else:
        value, margin = mean_and_margin(each.value for each in known if each.value is not None)
    return f"{value:.2f}" + ("" if margin is None else f" ± {margin:.2f}")
