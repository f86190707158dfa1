"""Command ``python -m scapo_train.preference CONFIG``, which trains with DPO, mDPO or SymMPO on the pairs that
``scapo-eval pairs`` writes.

Training on pairs uses the same models, adapters, evaluation, checkpoints and log as training on rollouts.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from scapo_eval.base.errors import InputError
from scapo_eval.engines.images import load as load_picture

from ..config import USUAL_BUDGET, command_line
from ..data import PreferencePair, PromptRecord, Prompts, read_pairs, seed_of
from ..families.policy import EncodedPrompt
from ..loop import Loop, Models, Task, command
from ..metrics import Metrics, ratio
from ..rollout import encode
from ..update import check_finite, descend
from .update import Example, PairUpdater

SHOWN = 0.2
"""Maximum share of a picture that mDPO's other picture shows (in the paper, a crop of 0 to 20 %)."""


class PreferenceTrainer(Loop):
    """Training run on pairs; see :class:`~scapo_train.loop.Loop`."""

    required = ("model.path", "data.train")

    def read(self) -> Task:
        """Reads the pairs.

        Raises:
            InputError: If pairs or settings are incompatible with the loss.
        """
        config = self.config
        if config.run.stop_on:
            raise InputError("run.stop_on refers to alarms about rollouts, which preference training does not make")
        if config.run.snr_every:
            raise InputError("run.snr_every applies to rollouts; preference training requires 0")
        if config.updates_per_batch > 1:
            raise InputError(
                "optim.mini_batches and optim.inner_epochs apply to rollouts; preference training requires 1"
            )
        self.pairs = read_pairs(config.data.train, config.data.images)
        sources = [pair.source for pair in self.pairs]
        loss = config.preference.loss
        for pair in self.pairs:
            if loss != "dpo" and not pair.source.pictures:
                reason = f'preference.loss = "{loss}" requires a picture in each pair'
                raise InputError(reason, path=config.data.train, line=pair.line)
        if loss == "symmpo" and len({source.pictures for source in sources}) < 2:
            raise InputError(f'preference.loss = "{loss}" requires pairs about two pictures', path=config.data.train)
        return Task(sources, answers=[(pair.chosen, pair.rejected) for pair in self.pairs])

    def make_prompts(self, sources: Sequence[PromptRecord], models: Models) -> Prompts:
        """Returns the prompts without limiting their length. Lengths are checked later, together with the responses."""
        return Prompts(sources, models.processor, self.config.data.max_bad, workers=self.config.data.workers)

    def prepare(self) -> None:
        """Prepares the pairs, the cropped pictures and the updater. Log-probabilities are computed over all tokens of
        the vocabulary, as in the published losses.
        """
        if not self.config.optim.micro_batch_tokens:  # pairs are never divided
            self.config = self.config.with_budget(USUAL_BUDGET)
        self.policy.leaves_out_never = False
        if self.reference is not None:
            self.reference.leaves_out_never = False
        data = self.config.data
        self.cropped = Prompts(self.prompts.sources, self.processor, data.max_bad, look=cropped, workers=data.workers)
        self.cropped.bad = self.prompts.bad
        self.responses = [self._tokens(pair) for pair in self.pairs]
        assert self.reference is not None
        self.updater = PairUpdater(self.config, self.policy, self.reference, self.process_group)

    def facts(self) -> dict[str, Any]:
        """Returns the number of pairs, for the run card."""
        return {"pairs": len(self.pairs)}

    def close(self) -> None:
        """Shuts down threads and the sampler."""
        super().close()
        self.cropped.close()

    def train_step(self) -> Metrics:
        """Performs one update and returns its metrics.

        ``loss`` is the mean loss over the pairs. ``accuracy`` is the share of pairs whose preferred response has the
        larger log-ratio. ``margin`` is the mean difference between the two log-ratios, multiplied by beta. ``chosen``
        and ``rejected`` are the mean log-ratios.
        """
        config, group = self.config, self.process_group
        with self.clock("data"):
            examples = self.examples(self.step)
            self.check_pictures()
        (count,) = group.sum(float(len(examples)))
        if config.lora.dropout:  # the only use of torch's global generator
            torch.manual_seed(seed_of(config.run.seed, self.step, group.rank))
        with self.clock("update"):
            sums = self.updater.backward(examples, count) if count else [0.0] * 5
            loss, accuracy, margin, chosen, rejected = (ratio(total, count) for total in group.sum(*sums))
            norm = None
            if loss is not None:  # a picture of the step was readable on some rank
                norm = descend(config.optim, self.optimizer, loss, self.step, self.steps)
        self.policy.eval()
        check_finite(self.trainable, group, self.step + 1)
        return {
            "loss": loss,
            "accuracy": accuracy,
            "margin": None if margin is None else config.preference.beta * margin,
            "chosen": chosen,
            "rejected": rejected,
            "grad_norm": norm,
            "updates_left_out": float(norm is None),
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "prompts_left_out": float(len(self.prompts.bad)),
            **self.clock.take(),
        }

    def examples(self, step: int) -> list[Example]:
        """Returns this rank's pairs of a step, except those with unreadable pictures. Pairs that are too long for the
        model are omitted and recorded as refused.
        """
        loss = self.config.preference.loss
        indices, following = self.own_indices(step), self.own_indices(step + 1)
        other = self._others(step)
        seen = self._encoded(self.prompts, [*indices, *other.values()], [*following, *self._others(step + 1).values()])
        unseen = self._encoded(self.cropped, indices, following) if loss == "mdpo" else {}
        examples = []
        for k in indices:
            if k not in seen or other.get(k, k) not in seen or (loss == "mdpo" and k not in unseen):
                continue
            chosen, rejected = self.responses[k]
            given = [(seen[k], [chosen, rejected])]
            if loss == "mdpo":
                given.append((unseen[k], [chosen]))
            elif loss == "symmpo":
                its = self.responses[other[k]][0]
                given = [(seen[k], [chosen, rejected, its]), (seen[other[k]], [its, chosen])]
            longest = max(len(prompt.prompt.ids) + max(map(len, responses)) for prompt, responses in given)
            if self.positions is not None and longest > self.positions:
                reason = f"prompt and response have {longest} tokens, and the model has positions for {self.positions}"
                self.prompts.refused[k] = InputError(reason, path=self.config.data.train, line=self.pairs[k].line)
                continue
            lengths = [len(response) for _, responses in given for response in responses]
            examples.append(Example([prompt.row(responses) for prompt, responses in given], lengths))
        return examples

    def _tokens(self, pair: PreferencePair) -> list[list[int]]:
        """Returns the token ids of the preferred and the rejected response, each with an end-of-sequence token.

        Raises:
            InputError: If a text contains a token that represents a picture or ends a response.
        """
        ends, never = self.policy.ends, self.policy.never
        end = self.tokenizer.eos_token_id if self.tokenizer.eos_token_id in ends else ends[0]
        responses = []
        for name in ("chosen", "rejected"):
            ids = self.tokenizer(getattr(pair, name), add_special_tokens=False)["input_ids"]
            if signs := [token for token in ids if token in ends or token in never]:
                reason = (
                    f"'{name}' holds {self.tokenizer.convert_ids_to_tokens(signs[0])}, a special token of the model"
                )
                raise InputError(reason, path=self.config.data.train, line=pair.line)
            responses.append([*ids, end])
        return responses

    def _others(self, step: int) -> dict[int, int]:
        """Returns, for each of this rank's pairs, the next pair with another picture, from the same step if
        possible.
        """
        if self.config.preference.loss != "symmpo" or step >= self.steps:
            return {}
        indices, others = self.indices(step), {}
        for at, k in enumerate(indices):
            mine = self.pairs[k].source.pictures
            rest = [*indices[at:], *indices[:at], *range(len(self.pairs))]
            others[k] = next(other for other in rest if self.pairs[other].source.pictures != mine)
        return {k: others[k] for k in self.own_indices(step)}

    def _encoded(self, prompts: Prompts, indices: Sequence[int], following: Sequence[int]) -> dict[int, EncodedPrompt]:
        taken = prompts.take(list(dict.fromkeys(indices)), list(dict.fromkeys(following)), check=False)
        return {prompt.prompt.index: prompt for prompt in encode(self.policy, taken, self.process_group.device)}


def cropped(path: str) -> Any:
    """Returns a random crop of a picture, resized to the size of the picture. The crop contains at most the share
    :data:`SHOWN` of the picture and depends only on the file name.
    """
    picture = load_picture(path)
    draw = random.Random(zlib.crc32(Path(path).name.encode()))
    side = math.sqrt(draw.uniform(0, SHOWN))
    width, height = (max(1, round(side * length)) for length in picture.size)
    left, top = draw.randint(0, picture.width - width), draw.randint(0, picture.height - height)
    return picture.resize(picture.size, box=(left, top, left + width, top + height))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs training and returns the exit code of :func:`scapo_train.loop.command`."""
    given = command_line("scapo_train.preference", __doc__).parse_args(arguments)
    return command("scapo_train.preference", PreferenceTrainer, given)
