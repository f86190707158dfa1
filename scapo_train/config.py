"""The settings of a training run: typed dataclasses, read from TOML and changed by ``--set section.key=value``.

An unknown key, a value of another type and a choice that does not exist are errors that name the key. What
a training run really used is saved beside its results by :func:`to_toml`, and reads back to the same settings.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import operator
import sys
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from scapo_eval.base.errors import InputError, InputErrors, short_repr
from scapo_eval.base.types import Rule
from scapo_eval.claiming.claim import kinds_of
from scapo_eval.files.files import read_bytes
from scapo_eval.rewarding.reward import RewardConfig
from scapo_eval.rewarding.token_credit import Eos, Truncated

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMES = ("scapo", "object", "grpo", "dapo", "dr_grpo")
"""Who gets the credit: each subsentence, each mention, or the whole response relative to its group."""

Form = Literal["paper", "original"]
"""``paper``: schemes differ in their advantages only. ``original``: each with its own normalizer, clip and KL."""

PUBLISHED: dict[str, dict[str, Any]] = {
    "grpo": {"normaliser": "sequences"},
    "dapo": {"normaliser": "tokens", "clip_low": 0.2, "clip_high": 0.28, "kl": 0.0},
    "dr_grpo": {"normaliser": "constant", "kl": 0.0},
}
"""Scheme -> the settings of its loss with ``credit.form = "original"``."""

ALARMS = ("repetition", "no_claims", "length", "cover", "truncated", "zero_reward", "kl", "mismatch")
"""What can go wrong while training (:mod:`scapo_train.monitoring.alarms`)."""

REQUIRED = ("model.path", "data.train", "data.oracle")
"""What only a user can name."""

SHIPPED = Path(__file__).parent / "configs"

_LARGEST = 2**63
_LONGEST = 2**20  # bytes of a file of settings


@dataclass(frozen=True)
class Run:
    """Length and output of a training run.

    Attributes:
        output: folder of the training run.
        seed: seed of sampling and of the order of prompts (the loop has no other randomness).
        steps: number of optimization steps; 0: ``data.epochs`` passes over the prompts.
        save_every: number of steps between checkpoints; 0: only at the end.
        keep: number of checkpoints that are kept.
        evaluate_every: number of steps between evaluations on ``data.evaluation``; 0: never.
        samples_every: number of steps between writings of ``samples.jsonl`` and the extreme rollouts.
        samples: number of responses of the evaluation (or of the step) that are written each time.
        trackers: further places for the metrics: ``tensorboard``, ``wandb``, ``trackio``.
        export: whether the final weights are written in Hugging Face format.
        keep_best: held-out metric whose best checkpoint is kept in ``best/`` and exported in place of the last;
            empty: none.
        stop_on: names of alarms that end training after a checkpoint, without an export
            (:mod:`scapo_train.monitoring.alarms`).
        patience: number of evaluations without a better ``keep_best`` after which training ends; 0: never.
        max_hours: hours after which training is saved and left (exit code 75), before a job's time is over; 0: never.
    """

    output: str = "runs/scapo"
    seed: int = 0
    steps: int = 0
    save_every: int = 50
    keep: int = 2
    evaluate_every: int = 0
    samples_every: int = 10
    samples: int = 8
    trackers: tuple[str, ...] = ()
    export: bool = True
    keep_best: Literal["", "cap_score", "cover_rate", "hal_rate"] = ""
    patience: int = 0
    stop_on: tuple[str, ...] = ()
    max_hours: float = 0.0


@dataclass(frozen=True)
class Model:
    """The policy.

    Attributes:
        path: folder (or name on a hub) of a model with a vision tower.
        revision: branch, tag or commit of a name on a hub.
        dtype: number format of the computation. The weights that the optimizer changes are float32 at least: of
            updates with a learning rate of 2e-6, bfloat16 weights would lose 96 %. ``float64`` is for comparing
            computations that differ only in rounding.
        gradient_checkpointing: whether only layer inputs are kept, and the rest is computed again in the backward pass.
        reference: where the frozen weights of the KL term live: ``device`` (a second copy in ``dtype``,
            sharded like the first), or ``cpu`` (pinned, on the device while it is used).
        min_pixels: fewest pixels an image is resized to, for processors that know this; 0: the processor's own.
        max_pixels: most pixels an image is resized to, likewise.
    """

    path: str = ""
    revision: str = ""
    dtype: Literal["bfloat16", "float32", "float64"] = "bfloat16"
    gradient_checkpointing: bool = True
    reference: Literal["device", "cpu"] = "device"
    min_pixels: int = 0
    max_pixels: int = 0


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters in place of full training (:mod:`scapo_train.families.lora`).

    The model's weights are frozen in ``model.dtype``, and its reference is the model without the adapters
    (``model.reference`` is without effect).

    Attributes:
        rank: width of the adapters; 0: none, all weights of the language model are trained.
        alpha: what an adapter adds is multiplied with ``alpha / rank``.
        dropout: share of an adapter's inputs that an update sets to 0.
        targets: names of the linear layers with an adapter, such as ``q_proj``; empty: all of the language model.
    """

    rank: int = 0
    alpha: int = 32
    dropout: float = 0.0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Data:
    """Prompts and truth.

    Attributes:
        train: JSON Lines of ``{"image", "image_id", "prompt"}``; several ``images`` and ``messages`` in their place.
        images: folder that image names are relative to; empty: the folder of the file that names them.
        oracle: ground truth file in any format that ``scapo-eval`` reads.
        vocabulary: name of a shipped vocabulary, or a file.
        any_fingerprint: whether to accept a matrix that was made for another vocabulary.
        epochs: number of passes over the prompts.
        prompts_per_step: number of prompts in a step, over all ranks.
        evaluation: file of held-out prompts; empty: no evaluation.
        evaluation_oracle: ground truth file of the held-out images; empty: ``oracle``.
        evaluation_prompts: number of held-out prompts that are used; 0: all.
        evaluation_temperature: sampling temperature of the one response to each; 0: greedy.
        max_bad: number of prompts that may be omitted because their image cannot be read, before training stops;
            less than 1: as a share of the prompts.
        on_unknown_image: what to do with prompts whose image the truth does not know: ``error``, or ``skip`` them.
    """

    train: str = ""
    images: str = ""
    oracle: str = ""
    vocabulary: str = "dopa160"
    any_fingerprint: bool = False
    epochs: int = 8
    prompts_per_step: int = 128
    evaluation: str = ""
    evaluation_oracle: str = ""
    evaluation_prompts: int = 0
    evaluation_temperature: float = 0.0
    max_bad: float = 100.0
    on_unknown_image: Literal["error", "skip"] = "error"


@dataclass(frozen=True)
class Rollout:
    """Settings that decide how responses are sampled.

    Attributes:
        engine: ``transformers`` (the policy itself) or ``vllm`` (colocated, weights synchronized each step).
        group: number of responses per prompt.
        max_new_tokens: number of tokens of the longest response.
        temperature: sampling temperature; the log-probabilities of the update are those at the same temperature.
        prompts_per_batch: number of prompts that the transformers engine generates for at once, per rank.
        gpu_memory: share of the GPU's memory that vLLM may take.
        tensor_parallel: number of ranks that share one vLLM model.
        check_sync: whether to compare vLLM's pixels and log-probabilities with the trainer's, before and after the
            first weight synchronization, and to stop where they differ by more than rounding.
        sleep: whether vLLM gives the GPU's memory up while the policy is updated; it must not on a CPU.
        sleep_level: 2: it forgets the weights, which the policy has; 1: it keeps them on the host.
        mismatch_alarm: mean absolute difference of vLLM's and the trainer's log-probabilities that is warned of.
    """

    engine: Literal["transformers", "vllm"] = "transformers"
    group: int = 8
    max_new_tokens: int = 512
    temperature: float = 1.0
    prompts_per_batch: int = 16
    gpu_memory: float = 0.45
    tensor_parallel: int = 1
    check_sync: bool = True
    sleep: bool = True
    sleep_level: int = 2
    mismatch_alarm: float = 0.05


@dataclass(frozen=True)
class Credit:
    """Rewards and advantages (docs/specification.md#reward; :class:`scapo_eval.RewardConfig`).

    Attributes:
        scheme: ``scapo``; ``object`` (one piece per mention); ``grpo``, ``dapo``, ``dr_grpo``; or a function of
            your own, ``file.py:name`` (:class:`scapo_train.credit.Sampled`).
        reward: reward of the response-level schemes, which must name it: ``hal`` (1 - Hal. Rate) or ``cap``.
        beta: weight of Cover Rate in ``reward = "cap"``, an F-beta score; 1: the Cap. Score.
        form: whether baselines share SCAPO's normalizer, clip and KL, or take their published ones.
        ablation: ``additive``, ``full_repeat`` or ``no_reg``; empty for none.
        robust: start from :meth:`scapo_eval.RewardConfig.robust`, which resists known tricks; settings of this section
            that are not the defaults take precedence.
        r_g: reward of a piece with a new correct object.
        r_rep: reward of a piece that only repeats; negative: it costs.
        r_h: penalty of a hallucinated object.
        r_reg: penalty of a piece without an object.
        lam_g: how the gain grows with the number of objects in a piece.
        lam_h: how the penalty grows with the number of hallucinated objects in a piece.
        rule: how responses are cut into pieces.
        claims: mentions that count: ``all`` (the paper), ``asserted``, ``certain`` or ``visual``.
        kinds: claims that count: ``presence`` (the paper), and with ``scenes`` also ``count``, ``attribute``,
            ``relation`` and ``text``. Hal. Rate, Cover Rate and Cap. Score in the log stay those of presence.
        scenes: files of what is in the images beyond presence (docs/claims.md), training and held-out ones; of several
            the first that knows decides.
        answer_only: reasoning and tool text (``<think>``, ``<tool_call>``) neither earns nor costs.
        reference_floor: a piece with a token, outside names of objects, to which the reference gives less than this
            probability costs at least ``r_h``; 0 (the paper): no such price. Needs ``loss.kl``.
        stop: ``group``: the first token of each piece, and the end, get the advantage of going on over ending,
            estimated from the group (:mod:`scapo_eval.rewarding.stopping`); empty (the paper): nothing of that kind.
        eos: credit of the end-of-sequence token.
        truncated: whether the last piece of a response that was cut off counts.
        resample: largest number of times that ``dapo`` in its original form draws groups without variance again.
        overlong: number of last tokens of ``max_new_tokens`` over which ``dapo`` in its original form lowers the
            reward by up to 1.
    """

    scheme: str = "scapo"
    reward: Literal["", "hal", "cap"] = ""
    beta: float = 1.0
    form: Form = "paper"
    ablation: Literal["", "additive", "full_repeat", "no_reg"] = ""
    robust: bool = False
    r_g: float = 1.0
    r_rep: float = 0.0
    r_h: float = 1.0
    r_reg: float = 0.1
    lam_g: str = "min1"
    lam_h: str = "min1"
    rule: Rule = "subsentence"
    claims: Literal["all", "asserted", "certain", "visual"] = "all"
    kinds: tuple[str, ...] = ("presence",)
    scenes: tuple[str, ...] = ()
    answer_only: bool = False
    reference_floor: float = 0.0
    stop: Literal["", "group"] = ""
    eos: Eos = "zero"
    truncated: Truncated = "score"
    resample: int = 3
    overlong: int = 0

    @property
    def per_response(self) -> bool:
        """Whether one number per response is the reward."""
        return self.scheme in ("grpo", "dapo", "dr_grpo")

    def reward_config(self) -> RewardConfig:
        """Returns the reward's own settings."""
        settings: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("r_g", "r_rep", "r_h", "r_reg", "lam_g", "lam_h", "claims", "scenes", "answer_only", "beta")
        }
        settings["kinds"] = kinds_of(",".join(self.kinds))
        settings["rule"] = "object" if self.scheme == "object" else self.rule
        settings["level"] = self.reward if self.per_response else "subsentence"
        if self.robust:
            usual = RewardConfig()
            return RewardConfig.robust(**{k: value for k, value in settings.items() if value != getattr(usual, k)})
        return RewardConfig.ablation(self.ablation, **settings) if self.ablation else RewardConfig(**settings)


@dataclass(frozen=True)
class Loss:
    """The clipped surrogate and the KL term.

    Attributes:
        clip_low: the ratio is kept above ``1 - clip_low``.
        clip_high: the ratio is kept below ``1 + clip_high``.
        kl: weight of the KL term; 0 switches it off, and the reference model with it.
        kl_estimator: estimator of KL(policy || reference) per token.
        normaliser: ``tokens``: all response tokens of the global batch; ``sequences``: the mean over
            responses of each one's token mean; ``constant``: responses x ``rollout.max_new_tokens``.
        mean_per_micro_batch: divide by each micro-batch's own tokens and average (verl's legacy actor),
            for comparisons only: the gradient then depends on how the batch was cut.
        kl_alarm: mean KL per token that is warned of.
        engine_correction: largest importance ratio, of the policy's to the sampling engine's probability of a token,
            that a token's surrogate is multiplied with (2 is usual); 0: no correction.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.01
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    normaliser: Literal["tokens", "sequences", "constant"] = "tokens"
    mean_per_micro_batch: bool = False
    kl_alarm: float = 1.0
    engine_correction: float = 0.0


@dataclass(frozen=True)
class Preference:
    """Losses on pairs of responses (:mod:`scapo_train.preference`); without effect on rollouts and their credit.

    Attributes:
        loss: ``dpo``, ``mdpo`` or ``symmpo`` (:mod:`scapo_train.preference.loss`).
        beta: strength of the implicit KL term.
        symmetric: weight of SymMPO's symmetric pairs.
        consistency: weight of the consistency of their margins.
    """

    loss: Literal["dpo", "mdpo", "symmpo"] = "dpo"
    beta: float = 0.1
    symmetric: float = 0.5
    consistency: float = 1e-4


@dataclass(frozen=True)
class Optim:
    """The optimizer and how a batch is cut for it.

    Attributes:
        optimizer: ``adamw``, or ``adamw8bit`` (torchao), whose moments take a quarter of the memory.
        lr: peak learning rate.
        beta1: decay of the mean of gradients.
        beta2: decay of the mean of squared gradients.
        eps: added to the denominator.
        weight_decay: decoupled weight decay of matrices.
        warmup: number of steps over which the learning rate rises from 0.
        schedule: course of the learning rate after that.
        clip: largest gradient norm; 0 does not clip.
        mini_batches: number of updates per batch and inner epoch; prompts are dealt to them.
        inner_epochs: number of passes over a batch.
        micro_batch_tokens: largest number of tokens of a forward and backward pass per rank; a prompt whose group
            is larger is cut into rows of some responses each. The gradient does not depend on it.
    """

    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    lr: float = 2e-6
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    warmup: int = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    clip: float = 1.0
    mini_batches: int = 1
    inner_epochs: int = 1
    micro_batch_tokens: int = 8192


@dataclass(frozen=True)
class Alarms:
    """Thresholds of a step's metrics beyond which an alarm is raised (``loss.kl_alarm`` and
    ``rollout.mismatch_alarm`` are the others).

    Attributes:
        repeated_share: share of responses that repeat a sentence, or four words in a row three times.
        without_claim_share: share of responses that name no object.
        length_factor: factor between the first step's mean length and the present one, either way.
        cover_share: Cover Rate as a share of the first step's, below which it has collapsed.
        truncated_share: share of responses that were cut off at ``rollout.max_new_tokens``.
        zero_reward_share: share of pieces whose reward is 0.
    """

    repeated_share: float = 0.3
    without_claim_share: float = 0.5
    length_factor: float = 2.0
    cover_share: float = 0.5
    truncated_share: float = 0.5
    zero_reward_share: float = 0.95


@dataclass(frozen=True)
class Config:
    """All settings of a training run, by section."""

    run: Run = field(default_factory=Run)
    model: Model = field(default_factory=Model)
    lora: Lora = field(default_factory=Lora)
    data: Data = field(default_factory=Data)
    rollout: Rollout = field(default_factory=Rollout)
    credit: Credit = field(default_factory=Credit)
    loss: Loss = field(default_factory=Loss)
    preference: Preference = field(default_factory=Preference)
    optim: Optim = field(default_factory=Optim)
    alarms: Alarms = field(default_factory=Alarms)

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps per batch of rollouts; 1: the ratio is 1 in value and no old pass is needed."""
        return self.optim.mini_batches * self.optim.inner_epochs


def load(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a configuration.

    Args:
        source: a TOML file, or the name of a shipped one (``qwen2_5_vl_7b``; its folder and suffix may stand).
        overrides: ``section.key=value``, the value as TOML or as a bare word.

    Raises:
        InputError: for any fault, with the file and the key; several at once: InputErrors.
    """
    path = Path(source)
    if not path.exists() and (SHIPPED / f"{path.stem}.toml").exists():
        path = SHIPPED / f"{path.stem}.toml"
    if not path.exists():
        names = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
        raise InputError(f"configuration not found (shipped: {names})", path=str(source))
    data = read_bytes(path)
    if len(data) > _LONGEST:
        raise InputError(f"not a valid TOML file: more than {_LONGEST >> 10} KiB", path=str(source))
    table = parse_toml(data, str(source))
    for override in overrides:
        section, value = _override(override)
        inner = table.setdefault(section[0], {})
        if isinstance(inner, dict):
            inner[section[1]] = value
    return from_table(table, str(source))


def from_table(table: dict[str, Any], source: str | None = None) -> Config:
    """Returns the configuration that nested dictionaries describe; errors as of :func:`load`."""
    faults: list[InputError] = []
    sections = {section.name: section for section in fields(Config)}
    settings: dict[str, Any] = {}
    for name, values in table.items():
        if name not in sections:
            faults.append(InputError(f"unknown section [{name}]; known: {', '.join(sections)}", path=source))
        elif not isinstance(values, dict):
            faults.append(InputError(f"{name} is a section: write [{name}]", path=source))
        else:
            kind = sections[name].default_factory
            settings[name] = _section(kind, name, values, source, faults)
    if not faults:
        config = Config(**settings)
        if config.credit.form == "original":
            published = PUBLISHED.get(config.credit.scheme, {})
            faults += _against_published(config, published, table.get("loss", {}), source)
            config = dataclasses.replace(config, loss=dataclasses.replace(config.loss, **published))
        faults += _contradictions(config, source)
    if faults:
        raise faults[0] if len(faults) == 1 else InputErrors(faults)
    return config


def _against_published(
    config: Config, published: dict[str, Any], given: dict[str, Any], source: str | None
) -> list[InputError]:
    """Returns the settings of the loss that were given and are not those of the scheme's published form."""
    scheme = config.credit.scheme
    if not published:
        return [InputError(f'credit.form = "original" is of {", ".join(PUBLISHED)}, not of "{scheme}"', path=source)]
    return [
        InputError(
            f'loss.{name} = {given[name]} contradicts credit.form = "original" of "{scheme}", which has {value}: '
            "set it to that, or leave it out",
            path=source,
        )
        for name, value in published.items()
        if name in given and given[name] != value
    ]


def from_toml(text: str) -> Config:
    """Returns the configuration that :func:`to_toml` wrote; errors as of :func:`load`."""
    return from_table(parse_toml(text.encode("utf-8", "surrogatepass")))


def parse_toml(data: bytes, source: str | None = None) -> dict[str, Any]:
    """Returns the tables of a TOML file.

    Raises:
        InputError: if it is not valid TOML, or nested so deeply, or numbers so long, that Python does not read them.
    """
    try:
        return tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        raise InputError("not a valid TOML file: nested too deeply", path=source) from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are such, and int's on too many digits
        raise InputError(f"not a valid TOML file: {error}", path=source) from None


def to_toml(config: Config) -> str:
    """Returns the configuration as TOML, every value of it."""
    lines: list[str] = []
    for section in fields(config):
        lines.append(f"[{section.name}]")
        values = getattr(config, section.name)
        lines += [f"{setting.name} = {_toml(getattr(values, setting.name))}" for setting in fields(values)]
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _override(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    section = key.strip().split(".")
    if not equals or len(section) != 2:
        raise InputError(f"--set takes section.key=value, got {short_repr(text)}")
    try:
        return section, parse_toml(f"value = {value}".encode("utf-8", "surrogatepass"))["value"]
    except InputError:
        return section, value.strip()


def _section(kind: Any, name: str, values: dict[str, Any], source: str | None, faults: list[InputError]) -> Any:
    hints = typing.get_type_hints(kind)
    taken: dict[str, Any] = {}
    for key, value in values.items():
        if key not in hints:
            faults.append(InputError(f"unknown key {name}.{key}; known: {', '.join(hints)}", path=source))
            continue
        try:
            taken[key] = _typed(value, hints[key])
        except ValueError as error:
            faults.append(InputError(f"{name}.{key}: {error}", path=source))
    return dataclasses.replace(kind(), **taken)


def _typed(value: Any, hint: Any) -> Any:
    """Returns the value as the hint wants it.

    Raises:
        ValueError: if it is of another type, or none of the choices.
    """
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if not isinstance(value, str) or value not in choices:
            raise ValueError(
                f"expected one of {', '.join(repr(choice) for choice in choices)}, got {short_repr(value)}"
            )
        return value
    if origin is tuple:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"expected a list of strings, got {short_repr(value)}")
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise ValueError(f"expected {hint.__name__}, got {short_repr(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value}")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise ValueError("expected a number below 2**63")
    if isinstance(value, str) and any(c < " " or c == "\x7f" for c in value):
        raise ValueError(f"expected a text without control characters, got {short_repr(value)}")
    return value


_POSITIVE = {
    "data": ("prompts_per_step", "epochs"),
    "rollout": ("group", "max_new_tokens", "prompts_per_batch", "tensor_parallel", "temperature"),
    "optim": ("mini_batches", "inner_epochs", "micro_batch_tokens", "lr"),
    "run": ("keep",),
    "alarms": ("length_factor",),
}
_BELOW_ONE = {"optim": ("beta1", "beta2"), "loss": ("clip_low",), "credit": ("reference_floor",)}
_MAY_BE_NEGATIVE = ("r_rep",)
_TRACKERS = ("tensorboard", "wandb", "trackio")


def _contradictions(config: Config, source: str | None) -> list[InputError]:
    """Returns the contradictions between values that are valid one by one."""
    reasons: list[str] = []
    for section, keys in _POSITIVE.items():
        for key in keys:
            if getattr(getattr(config, section), key) <= 0:
                reasons.append(f"{section}.{key} must be greater than 0")
    for section, keys in _BELOW_ONE.items():
        for key in keys:
            if (value := getattr(getattr(config, section), key)) >= 1:
                reasons.append(f"{section}.{key} must be less than 1, got {value}")
    for part in fields(config):
        values = getattr(config, part.name)
        for setting in fields(values):
            value = getattr(values, setting.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and not value >= 0 and setting.name not in _MAY_BE_NEGATIVE:
                reasons.append(f"{part.name}.{setting.name} must not be negative, got {value}")
    credit = config.credit
    if credit.scheme not in SCHEMES and ":" not in credit.scheme:
        reasons.append(f"credit.scheme: expected {', '.join(SCHEMES)} or file.py:function, got {credit.scheme!r}")
    if credit.per_response and not credit.reward:
        reasons.append(f'credit.scheme = "{credit.scheme}" needs credit.reward: "hal" or "cap"')
    if not credit.per_response and credit.reward:
        reasons.append(f'credit.reward is of grpo, dapo and dr_grpo; "{credit.scheme}" rewards pieces')
    if credit.beta != 1 and credit.reward != "cap":
        reasons.append('credit.beta is of credit.reward = "cap"')
    if credit.per_response and credit.ablation:
        reasons.append(f'credit.ablation is of the rewards of pieces; "{credit.scheme}" rewards responses')
    if credit.robust and (credit.per_response or credit.ablation or credit.scheme == "object"):
        reasons.append('credit.robust is of the rewards of pieces: no credit.ablation, credit.scheme = "scapo" or own')
    if credit.per_response and credit.reference_floor:
        reasons.append(f'credit.reference_floor is of the rewards of pieces; "{credit.scheme}" rewards responses')
    if credit.reference_floor and not config.loss.kl:
        reasons.append("credit.reference_floor looks at the reference, which needs loss.kl > 0")
    if credit.stop and credit.scheme != "scapo":
        reasons.append(f'credit.stop is of the rewards of pieces: credit.scheme = "scapo", got "{credit.scheme}"')
    if credit.stop and credit.eos != "zero":
        reasons.append(f'credit.stop credits the end of sequence: credit.eos must be "zero", got "{credit.eos}"')
    if credit.stop and config.rollout.group < 2:
        reasons.append(f'credit.stop = "{credit.stop}" compares responses: rollout.group must be 2 or more')
    if credit.per_response and config.rollout.group < 2:
        reasons.append(f'credit.scheme = "{credit.scheme}" compares responses: rollout.group must be 2 or more')
    if config.optim.mini_batches > config.data.prompts_per_step:
        reasons.append("optim.mini_batches is greater than data.prompts_per_step")
    if credit.overlong and (credit.scheme, credit.form) != ("dapo", "original"):
        reasons.append('credit.overlong is of credit.scheme = "dapo" with credit.form = "original"')
    if credit.overlong > config.rollout.max_new_tokens:
        reasons.append("credit.overlong is greater than rollout.max_new_tokens")
    if config.rollout.gpu_memory >= 1:
        reasons.append(f"rollout.gpu_memory is a share of the GPU, less than 1, got {config.rollout.gpu_memory}")
    if config.rollout.sleep_level not in (1, 2):
        reasons.append(f"rollout.sleep_level is 1 or 2 (rollout.sleep = false: none), got {config.rollout.sleep_level}")
    if config.run.keep_best and not (config.data.evaluation and config.run.evaluate_every):
        reasons.append("run.keep_best needs data.evaluation and run.evaluate_every")
    if config.lora.dropout >= 1:
        reasons.append(f"lora.dropout is a share of inputs, less than 1, got {config.lora.dropout}")
    if config.lora.rank and not config.lora.alpha:
        reasons.append("lora.alpha must be greater than 0: adapters would add nothing")
    if config.loss.engine_correction and config.rollout.engine == "transformers":
        reasons.append('loss.engine_correction is of an engine that is not the policy: rollout.engine = "vllm"')
    unheard = [name for name in config.run.stop_on if name not in ALARMS]
    if unheard:
        reasons.append(f"run.stop_on: unknown {', '.join(unheard)}; known: {', '.join(ALARMS)}")
    if config.run.patience and not config.run.keep_best:
        reasons.append("run.patience needs run.keep_best")
    unknown = [name for name in config.run.trackers if name not in _TRACKERS]
    if unknown:
        reasons.append(f"run.trackers: unknown {', '.join(unknown)}; known: {', '.join(_TRACKERS)}")
    faults = [InputError(reason, path=source) for reason in reasons]
    if not reasons:
        try:
            credit.reward_config()
        except InputError as error:
            faults.append(InputError(f"credit: {error.reason}", path=source))
    return faults


def required(config: Config, source: str | None = None, names: Sequence[str] = REQUIRED) -> None:
    """Refuses to train without what only a user can name.

    Args:
        config: settings of the training run.
        source: where they come from.
        names: those settings.

    Raises:
        InputErrors: if some of them are empty.
    """
    missing = [
        InputError(f"{name} is not set: --set {name}=...", path=source)
        for name in names
        if not operator.attrgetter(name)(config)
    ]
    if missing:
        raise missing[0] if len(missing) == 1 else InputErrors(missing)


def command_line(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Returns the arguments of a command that trains."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    option = parser.add_argument
    option("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    option("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    option("--resume", choices=["auto", "never"], default="never", help="go on from the newest checkpoint")
    option("--max-hours", type=float, metavar="HOURS", help="save and leave in time, exit code 75: run.max_hours=HOURS")
    option("--accept-changes", action="store_true", help="go on also with another objective or seed than before")
    return parser


__all__ = ["SCHEMES", "Config", "Form", "command_line", "from_table", "from_toml", "load", "required", "to_toml"]
