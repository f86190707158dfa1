"""``python -m scapo_train.preference CONFIG``: DPO, mDPO and SymMPO on the pairs that ``scapo-eval pairs`` writes.

The baselines of the loop beside it: the same models, log-probabilities, adapters, optimizer, checkpoints and log.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scapo_eval.engines.images import load as load_picture
from scapo_eval.errors import InputError, ScapoError
from scapo_eval.text import printable

from . import preference_loss
from .checkpoint import Checkpoints, export
from .config import Config, load, to_toml
from .data import Prompts, check_pictures, indices_of_step, read_pairs, seed_of
from .distributed import ProcessGroup, join_process_group, leave
from .log import Clock, Log, open_folder, show_messages
from .model import as_reference, load_policy, processor_of, source_folder
from .policy import EncodedPrompt, Policy, Row
from .resume import check_changes, check_not_deleted, known_state
from .rollout import encode
from .update import check_finite, learning_rate, optimizer_of, set_learning_rate

_log = logging.getLogger(__name__)

SHOWN = 0.2
"""Largest share of a picture that mDPO's other picture shows (the paper: a crop of 0 to 20 %)."""

RATIOS = {"dpo": 2, "mdpo": 3, "symmpo": 5}
"""Loss -> log-ratios of a pair that it compares."""


@dataclass(frozen=True)
class Example:
    """A pair as the model reads it.

    Attributes:
        rows: prompts with responses.
        lengths: tokens of each response, row by row.
    """

    rows: list[Row]
    lengths: list[int]


class PreferenceTrainer:
    """A training run on pairs: everything that lives longer than a step.

    Args:
        config: settings of the training run.
        process_group: this process and the others of the training run.
        resume: go on from the newest checkpoint, if there is one.
        accept_changes: go on also where the objective is another than before.
    """

    def __init__(
        self, config: Config, process_group: ProcessGroup, *, resume: bool = False, accept_changes: bool = False
    ) -> None:
        self.config, self.process_group = config, process_group
        self.folder = Path(config.run.output)
        if process_group.main:
            open_folder(self.folder, resume=resume)
        data, model = config.data, config.model
        self.pairs = read_pairs(data.train, data.images)
        sources = [pair.source for pair in self.pairs]
        check_pictures(sources)
        loss = config.preference.loss
        if loss != "dpo" and not all(source.pictures for source in sources):
            raise InputError(f'preference.loss = "{loss}" needs a picture in each pair', path=data.train)
        if loss == "symmpo" and len({source.pictures for source in sources}) < 2:
            raise InputError(f'preference.loss = "{loss}" needs pairs about two pictures or more', path=data.train)
        self.steps = config.run.steps or data.epochs * (len(self.pairs) // data.prompts_per_step)
        indices_of_step(0, len(self.pairs), data.prompts_per_step, config.run.seed)
        processor = processor_of(model)
        tokenizer = getattr(processor, "tokenizer", processor)
        read = partial(load_policy, model, 1.0, process_group)
        self.policy = read(lora=config.lora, seed=config.run.seed)
        self.reference = self.policy if config.lora.rank else read(reference=True)
        self.policy.never = self.reference.never = []  # as published: the distribution is over all tokens
        end = tokenizer.eos_token_id if tokenizer.eos_token_id in self.policy.ends else self.policy.ends[0]
        self.responses = [
            [[*tokenizer(text, add_special_tokens=False)["input_ids"], end] for text in (pair.chosen, pair.rejected)]
            for pair in self.pairs
        ]
        self.prompts = Prompts(sources, processor, data.max_bad)
        self.cropped = Prompts(sources, processor, data.max_bad, look=cropped)
        self.trainable = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        self.optimizer = optimizer_of(config, self.policy)
        self.clock = Clock(process_group.device)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", config.run.keep)
        self.step = self._resume(accept_changes) if resume else 0
        card = {
            "ranks": process_group.size,
            "steps": self.steps,
            "pairs": len(self.pairs),
            "parameters": sum(parameter.numel() for parameter in self.policy.parameters()),
            "trainable": sum(parameter.numel() for parameter in self.trainable),
        }
        self.log = Log(self.folder, config, card, self.step or -1) if process_group.main else None

    def run(self) -> Path:
        """All remaining steps, and the export."""
        every = self.config.run.save_every
        try:
            while self.step < self.steps:
                values = self.train_step()
                self.step += 1
                if self.log is not None:
                    self.log.metrics(self.step, self.steps, values)
                if self.step == self.steps or (every and self.step % every == 0):
                    state = {"step": self.step, "bad": sorted(self.prompts.bad), "config": to_toml(self.config)}
                    self.checkpoints.save(self.step, self.policy, self.optimizer, state)
            if self.config.run.export:
                export(self.policy.vlm, source_folder(self.config.model), self.folder / "model")
        finally:
            self.prompts.close()
            self.cropped.close()
            if self.log is not None:
                self.log.close(failed=sys.exc_info()[0] is not None)
        return self.folder

    def train_step(self) -> dict[str, float | None]:
        """One update; returns its metrics.

        ``loss`` is the mean over pairs, ``accuracy`` the share whose preferred response has the greater log-ratio,
        ``margin`` their mean difference times beta, ``chosen`` and ``rejected`` the mean log-ratios.
        """
        config, group = self.config, self.process_group
        with self.clock("data"):
            indices = indices_of_step(self.step, len(self.pairs), config.data.prompts_per_step, config.run.seed)
            examples = self.examples(indices)
            for prompts in (self.prompts, self.cropped):
                prompts.bad.update(*group.gather(prompts.bad))
        (count,) = group.sum(float(len(examples)))
        if not count:
            raise InputError(f"not one pair of step {self.step + 1} has a picture that can be read")
        sums = [0.0] * 5
        if config.lora.dropout:  # the one thing that draws from torch's own generator
            torch.manual_seed(seed_of(config.run.seed, self.step, group.rank))
        with self.clock("update"):
            micros = self._micro_batches(examples)
            for _ in range(group.max(len(micros)) - len(micros)):
                micros.append([])
            for micro in micros:
                ratios = self._ratios(micro)
                losses = self.losses(ratios) if micro else ratios
                (losses.sum() / count * group.size).backward()  # FSDP averages over ranks
                if micro:
                    chosen, rejected = ratios.detach()[:, 0], ratios.detach()[:, 1]
                    found = (losses.detach(), (chosen > rejected).float(), chosen - rejected, chosen, rejected)
                    sums = [before + float(each.sum()) for before, each in zip(sums, found, strict=True)]
            norm = torch.nn.utils.clip_grad_norm_(self.trainable, config.optim.clip or math.inf)
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            loss, accuracy, margin, chosen_mean, rejected_mean = (each / count for each in group.sum(*sums))
            if math.isfinite(loss) and math.isfinite(float(norm)):
                set_learning_rate(self.optimizer, learning_rate(config.optim, self.step, self.steps))
                self.optimizer.step()
            else:
                _log.warning("step %d: loss %g, gradient norm %g: update left out", self.step + 1, loss, norm)
            self.optimizer.zero_grad(set_to_none=True)
        self.policy.eval()
        check_finite(self.trainable, group, self.step + 1)
        return {
            "loss": loss,
            "accuracy": accuracy,
            "margin": config.preference.beta * margin,
            "chosen": chosen_mean,
            "rejected": rejected_mean,
            "grad_norm": float(norm),
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "prompts_left_out": float(len(self.prompts.bad)),
            **self.clock.take(),
        }

    def examples(self, indices: Sequence[int]) -> list[Example]:
        """The pairs of a step that are this rank's, without those whose pictures cannot be read.

        Args:
            indices: the step's pairs over all ranks.
        """
        own = indices[self.process_group.rank :: self.process_group.size]
        loss = self.config.preference.loss
        other = {k: self._other(k, indices) for k in own} if loss == "symmpo" else {}
        seen = self._encoded(self.prompts, [*own, *other.values()])
        unseen = self._encoded(self.cropped, own) if loss == "mdpo" else {}
        found = []
        for k in own:
            if k not in seen or other.get(k, k) not in seen or (loss == "mdpo" and k not in unseen):
                continue
            chosen, rejected = self.responses[k]
            given = [(seen[k], [chosen, rejected])]
            if loss == "mdpo":
                given.append((unseen[k], [chosen]))
            elif loss == "symmpo":
                its = self.responses[other[k]][0]
                given = [(seen[k], [chosen, rejected, its]), (seen[other[k]], [its, chosen])]
            lengths = [len(each) for _, responses in given for each in responses]
            found.append(Example([prompt.row(responses) for prompt, responses in given], lengths))
        return found

    def losses(self, ratios: Tensor) -> Tensor:
        """(B,) losses of pairs with (B, R) log-ratios."""
        settings = self.config.preference
        weights = (settings.symmetric, settings.consistency) if settings.loss == "symmpo" else ()
        found: Tensor = getattr(preference_loss, settings.loss)(*ratios.unbind(1), settings.beta, *weights)
        return found

    def _other(self, index: int, indices: Sequence[int]) -> int:
        """The next pair of the step, else of all, that is about another picture."""
        at = indices.index(index)
        rest = [*indices[at:], *indices[:at], *range(len(self.pairs))]
        mine = self.pairs[index].source.pictures
        return next(k for k in rest if self.pairs[k].source.pictures != mine)

    def _encoded(self, prompts: Prompts, indices: Sequence[int]) -> dict[int, EncodedPrompt]:
        found = prompts.take(list(dict.fromkeys(indices)))
        return {each.prompt.index: each for each in encode(self.policy, found, self.process_group.device)}

    def _micro_batches(self, examples: Sequence[Example]) -> list[list[Example]]:
        """Pairs by the budget of tokens; one at a time where rows do not pack."""
        found: list[list[Example]] = []
        length = 0
        for example in examples:
            more = sum(row.length for row in example.rows)
            if not found or not self.policy.packs or length + more > self.config.optim.micro_batch_tokens:
                found.append([])
                length = 0
            found[-1].append(example)
            length += more
        return found

    def _ratios(self, micro: Sequence[Example]) -> Tensor:
        """(B, R) log-ratios, with gradient; without pairs a rank takes part in the others' passes."""
        with torch.no_grad(), as_reference(self.reference, self.config.model, self.process_group):
            self.policy.eval()
            reference = self._sums(self.reference, micro)
        self.policy.train()
        return (self._sums(self.policy, micro) - reference).view(-1, RATIOS[self.config.preference.loss])

    def _sums(self, model: Policy, micro: Sequence[Example]) -> Tensor:
        """Log-probabilities of all responses."""
        device = self.process_group.device
        rows = [row for example in micro for row in example.rows]
        if rows:
            parts = [rows] if model.packs else [[row] for row in rows]
            tokens = torch.cat([model(model.batch(part, device)).logprob for part in parts])
            return torch.stack([each.sum() for each in tokens.split([n for each in micro for n in each.lengths])])
        idle = 1 if model.packs or self.config.preference.loss == "dpo" else 2
        passes = torch.stack([model(model.idle_batch(device)).logprob.sum() for _ in range(idle)])
        return (0.0 * passes.sum()).expand(RATIOS[self.config.preference.loss])

    def _resume(self, accept_changes: bool) -> int:
        newest = self.checkpoints.latest()
        if newest is None:
            check_not_deleted(self.folder, self.config.run.save_every)
            return 0
        state = known_state(self.checkpoints.load(newest, self.policy, self.optimizer), newest)
        self.prompts.bad.update(state["bad"])
        check_changes(state["config"], self.config, (None, ""), accept=accept_changes, path=newest)
        return int(state["step"])


def cropped(path: str) -> Any:
    """A window of a picture with at most :data:`SHOWN` of it, as large as the whole; always the same one."""
    picture = load_picture(path)
    draw = random.Random(zlib.crc32(Path(path).name.encode()))
    side = math.sqrt(draw.uniform(0, SHOWN))
    width, height = (max(1, round(side * each)) for each in picture.size)
    left, top = draw.randint(0, picture.width - width), draw.randint(0, picture.height - height)
    return picture.resize(picture.size, box=(left, top, left + width, top + height))


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains; returns the exit code: 0 done, 2 bad input, 75 a rank has died."""
    parser = argparse.ArgumentParser(prog="scapo_train.preference", description=__doc__)
    parser.add_argument("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--resume", choices=["auto", "never"], default="never", help="go on from the newest checkpoint")
    parser.add_argument("--accept-changes", action="store_true", help="go on also with another objective than before")
    given = parser.parse_args(arguments)
    from .watch import exit_code

    try:
        config = load(given.config, given.set)
        for name, value in (("model.path", config.model.path), ("data.train", config.data.train)):
            if not value:
                raise InputError(f"{name} is not set: --set {name}=...", path=given.config)
        with join_process_group() as process_group:
            show_messages(process_group.rank)
            PreferenceTrainer(
                config, process_group, resume=given.resume == "auto", accept_changes=given.accept_changes
            ).run()
    except (ScapoError, KeyboardInterrupt) as error:
        print(f"scapo_train.preference: {printable(str(error)) or 'interrupted'}", file=sys.stderr)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    leave(main())
