"""Settings of a training run, as typed dataclasses that are read from TOML and can be changed with ``--set
section.key=value``.

Unknown keys, values of a wrong type and invalid choices raise errors that name the key. :func:`to_toml` converts all
settings of a run to TOML, which is written to the folder of the run and can be read again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import operator
import re
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
from scapo_eval.rewarding.token_credit import Credited, Eos, Truncated

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMES = ("scapo", "object", "grpo", "dapo", "dr_grpo")
"""Credit schemes. The credit goes to each subsentence, to each mention, or to the whole response relative to its
group.
"""

Form = Literal["paper", "original"]
"""Form of a baseline. With ``paper``, schemes differ only in their advantages. With ``original``, each scheme has its
own normalizer, clip and KL term.
"""

PUBLISHED: dict[str, dict[str, Any]] = {
    "grpo": {"normaliser": "sequences"},
    "dapo": {"normaliser": "tokens", "clip_low": 0.2, "clip_high": 0.28, "kl": 0.0},
    "dr_grpo": {"normaliser": "constant", "kl": 0.0},
}
"""Scheme -> loss settings for ``credit.form = "original"``."""

ALARMS = ("repetition", "no_claims", "length", "cover", "truncated", "zero_reward", "kl", "mismatch")
"""Names of the alarms for problems in training (:mod:`scapo_train.monitoring.alarms`)."""

REQUIRED = ("model.path", "data.train", "data.oracle")
"""Settings without a default, which the user must specify."""

USUAL_BUDGET = 8192
"""Minimum of ``optim.micro_batch_tokens`` on a CPU, and its value for training on pairs, if the setting is 0."""

SHIPPED = Path(__file__).parent / "configs"

_LARGEST = 2**63
_LONGEST = 2**20  # maximum size of a settings file in bytes


@dataclass(frozen=True)
class Run:
    """Length and output of a training run.

    Attributes:
        output: Folder of the training run.
        seed: Seed for sampling and for the prompt order, which are the only sources of randomness in the loop.
        steps: Number of optimization steps. If the value is 0, training makes ``data.epochs`` passes over the prompts.
        save_every: Number of steps between checkpoints. With 0, only the final state is saved.
        async_save: True to continue training while a checkpoint is written. This setting needs host memory for a copy
            of the weights and moments.
        keep: Number of checkpoints to keep.
        evaluate_every: Number of steps between evaluations on ``data.evaluation``. If the value is 0, there is no
            evaluation.
        samples_every: Interval, in steps, at which responses are written to ``samples.jsonl``, and the best and worst
            rollouts of the first rank to ``extremes.jsonl``.
        samples: Number of responses to write each time. The responses are descriptions of the held-out images or, if
            there are none, of the images of the first training prompts.
        trackers: Names of additional destinations for metrics: ``tensorboard``, ``wandb`` or ``trackio``.
        export: True to write the final weights in Hugging Face format.
        keep_best: Name of a held-out metric, or an empty string. The checkpoint with the best value of this metric is
            kept in ``best/`` and exported instead of the last checkpoint.
        stop_on: Names of alarms that end training. When one of the named alarms is raised, the run writes a checkpoint
            and ends without an export (:mod:`scapo_train.monitoring.alarms`).
        snr_every: Interval, in steps, at which the metric ``gradient_snr`` is computed. This metric is the squared
            signal-to-noise ratio of the step's gradient. It takes as long as two to four updates. If the value is 0,
            the metric is never computed.
        patience: Number of consecutive evaluations without a better value of ``keep_best`` after which training ends.
            If the value is 0, training does not end early.
        max_hours: Number of hours after which training saves its state and exits with code 75 (for jobs with a time
            limit). If the value is 0, the duration of training is not limited.
    """

    output: str = "runs/scapo"
    seed: int = 0
    steps: int = 0
    save_every: int = 50
    async_save: bool = False
    keep: int = 2
    evaluate_every: int = 0
    samples_every: int = 10
    samples: int = 8
    snr_every: int = 0
    trackers: tuple[str, ...] = ()
    export: bool = True
    keep_best: Literal["", "cap_score", "cover_rate", "hal_rate"] = ""
    patience: int = 0
    stop_on: tuple[str, ...] = ()
    max_hours: float = 0.0


@dataclass(frozen=True)
class Model:
    """Policy model.

    Attributes:
        path: Folder of a model with a vision tower, or its name on a model hub.
        revision: Branch, tag or commit, for a model on a hub.
        dtype: Number format of the computation. Trained weights are stored in float32 or wider, because bfloat16
            weights would lose 96 % of the updates at a learning rate of 2e-6. ``float64`` is intended for comparisons
            of computations that differ only in rounding.
        attention: Attention kernel for model families on the general path, which has no shared prompts. At the start,
            log-probabilities are compared with those of ``sdpa``. Families with shared prompts use their own attention
            implementation.
        gradient_checkpointing: True to keep only layer inputs and to recompute all other activations in the backward
            pass.
        reference: Location of the reference model's frozen weights. With ``device``, the weights are kept on the device
            in the format ``dtype``, sharded like the policy. With ``cpu``, the weights are kept in pinned host memory
            and copied to the device when they are used.
        shard_within: Processes that share one copy of the weights. With ``world``, all processes share one copy. With
            ``machine``, the processes of each machine share one copy, and gradients are averaged across machines. The
            value ``machine`` needs more memory but causes less network traffic.
        min_pixels: Minimum number of pixels after resizing, for processors that support a minimum. With 0, the default
            of the processor applies.
        max_pixels: Maximum number of pixels after resizing, for processors that support a maximum. With 0, the default
            of the processor applies.
    """

    path: str = ""
    revision: str = ""
    dtype: Literal["bfloat16", "float32", "float64"] = "bfloat16"
    attention: Literal["sdpa", "eager", "flash_attention_2", "flex_attention"] = "sdpa"
    gradient_checkpointing: bool = True
    reference: Literal["device", "cpu"] = "device"
    shard_within: Literal["world", "machine"] = "world"
    min_pixels: int = 0
    max_pixels: int = 0


@dataclass(frozen=True)
class Lora:
    """Settings for low-rank adapters, which are trained instead of the full weights (:mod:`scapo_train.families.lora`).

    If there are adapters, the weights of the model are frozen and have the dtype ``model.dtype``. The reference is the
    model without its adapters, so ``model.reference`` has no effect.

    Attributes:
        rank: Rank of the adapters' matrices. With 0, there are no adapters, and all weights of the language model are
            trained.
        alpha: Scale of the adapters. The output of an adapter is multiplied by ``alpha / rank``.
        dropout: Share of an adapter's inputs that are set to 0 during updates.
        targets: Names of the linear layers that receive an adapter, such as ``q_proj``. If no names are given, all
            linear layers of the language model receive an adapter.
    """

    rank: int = 0
    alpha: int = 32
    dropout: float = 0.0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Data:
    """Settings for the prompts and the ground truth.

    Attributes:
        train: Path of a JSON Lines file with the keys ``image``, ``image_id`` and ``prompt``. For several images and
            for chats, the keys ``images`` and ``messages`` are used instead.
        images: Folder against which relative image names are resolved, or an empty string for the folder of the prompts
            file.
        oracle: Ground truth file in any format that ``scapo-eval`` reads.
        vocabulary: Name of a shipped vocabulary, or path of a vocabulary file.
        any_fingerprint: True to accept a ground truth matrix that was made for another vocabulary.
        epochs: Number of passes over the prompts.
        prompts_per_step: Number of prompts per step, over all ranks.
        evaluation: Path of the file with held-out prompts, or an empty string for training without evaluation.
        evaluation_oracle: Path of the ground truth file for the held-out images, or an empty string to use ``oracle``.
        evaluation_prompts: Number of held-out prompts to use. If the value is 0, all prompts are used.
        evaluation_temperature: Sampling temperature for the single response to each held-out prompt. If the value is 0,
            decoding is greedy.
        max_bad: Maximum number of prompts that may be omitted because of unreadable images. A value below 1 is
            interpreted as a share of the prompts.
        workers: Number of pictures per process that are read and resized at the same time.
        on_unknown_image: Treatment of prompts whose image is not in the ground truth: ``error`` or ``skip``.
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
    workers: int = 1
    on_unknown_image: Literal["error", "skip"] = "error"


@dataclass(frozen=True)
class Rollout:
    """Settings for the sampling of responses.

    Attributes:
        engine: Engine that samples the responses. With ``transformers``, the policy itself does the sampling. With
            ``vllm``, vLLM samples on the training GPUs and receives the policy's weights in each step.
        group: Number of responses per prompt.
        max_new_tokens: Maximum number of tokens in a response.
        temperature: Sampling temperature. The log-probabilities in the update are computed with the same temperature.
        prompts_per_batch: Number of prompts per rank that the transformers engine processes at the same time.
        gpu_memory: Share of the GPU's memory that vLLM may use.
        tensor_parallel: Number of ranks that share one vLLM model.
        check_sync: True to compare vLLM's pixels and log-probabilities with those of the trainer, before and after the
            first weight synchronization. Training stops if the differences exceed rounding errors.
        sleep: True if vLLM releases the GPU's memory during the update of the policy. On a CPU, the value must be
            False.
        sleep_level: Sleep level of vLLM during the update. Level 2 discards vLLM's weights, which are later copied from
            the policy. Level 1 keeps vLLM's weights in host memory.
        mismatch_alarm: Mean absolute difference between vLLM's and the trainer's log-probabilities above which an alarm
            is raised. Responses that are one update old (``lookahead``) are not compared.
        server: Address of a vLLM server (``http://HOST:PORT``) that samples the responses on other GPUs
            (:mod:`scapo_train.samplers.server`). If the value is empty, vLLM runs on the training GPUs. With a server,
            ``gpu_memory``, ``tensor_parallel`` and ``sleep`` have no effect.
        wait_server: Number of seconds to wait for the server at the start of the run.
        transfer: Way in which the server receives the policy's weights (:mod:`scapo_train.samplers.transfer`): as
            ``files``, or from GPU to GPU with ``nccl``, vLLM's engine for weight transfer. The name of another engine
            that is registered with vLLM and has NCCL's settings is also possible.
        weights_folder: Folder in which the weights for the server are written in each step. The folder must have the
            same path on the server's machine, and must not be used by another run. If the value is empty,
            ``run.output`` is used.
        lookahead: Number of steps, 0 or 1, by which sampling is ahead of the updates. With 1, the responses of the next
            step are sampled with the present weights while the policy is updated. The value 1 requires ``server`` and
            ``loss.engine_correction``.
        adapters: Form in which vLLM receives adapters (``lora.rank``). With ``request``, only the adapters are sent
            after an update, and vLLM adds them to its own copy of the base weights. With ``merge``, all weights are
            sent, with the adapters merged into them. With ``auto``, adapters are sent alone if vLLM supports this
            (:mod:`scapo_train.samplers.adapters`); otherwise, they are merged, and the reason is logged.
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
    server: str = ""
    wait_server: float = 600.0
    transfer: str = "files"
    weights_folder: str = ""
    lookahead: int = 0
    adapters: Literal["auto", "merge", "request"] = "auto"


_REWARD_SETTINGS = (
    "r_g", "r_rep", "r_h", "r_reg", "lam_g", "lam_h", "claims", "scenes", "answer_only", "tokens", "beta",
)  # fmt: skip
"""Settings of the credit that :class:`scapo_eval.RewardConfig` has under the same names."""


@dataclass(frozen=True)
class Credit:
    """Settings for rewards and advantages (docs/specification.md#reward; :class:`scapo_eval.RewardConfig`).

    Attributes:
        scheme: Name of the scheme, or a custom function ``file.py:name`` (:class:`scapo_train.credit.Sampled`). The
            schemes are ``scapo``, ``object`` (one piece per mention), ``grpo``, ``dapo`` and ``dr_grpo``.
        reward: Reward of the response-level schemes, ``hal`` (``1 - hal_rate``) or ``cap`` (``cap_score``).
            Response-level schemes require this setting.
        beta: Weight of ``cover_rate`` relative to ``1 - hal_rate`` in the F-beta score that ``reward = "cap"`` uses. If
            the value is 1, the score is ``cap_score``.
        form: Source of the loss settings for the baselines. With ``paper``, baselines use SCAPO's normalizer, clip and
            KL term. With ``original``, baselines use their published settings.
        ablation: Name of an ablation of SCAPO (``additive``, ``full_repeat`` or ``no_reg``), or an empty string for no
            ablation.
        robust: True to use the settings of :meth:`scapo_eval.RewardConfig.robust`, which resist known methods of gaming
            the reward. Non-default settings in this section take precedence.
        r_g: Reward of a piece with a new correct object.
        r_rep: Reward for correct objects that earlier pieces have already named. A negative value is a penalty.
        r_h: Penalty for a hallucinated object.
        r_reg: Penalty for a piece without an object.
        lam_g: Name of the function that scales the number of new correct objects in a piece, such as ``min1`` or
            ``linear``.
        lam_h: Name of the function that scales the number of hallucinated objects in a piece.
        rule: Segmentation rule, which divides responses into pieces.
        claims: Mentions that count: ``all`` (as in the paper), ``asserted``, ``certain`` or ``visual``.
        kinds: Kinds of claims that count. The paper uses ``presence``. If ``scenes`` is given, ``count``,
            ``attribute``, ``relation`` and ``text`` are also possible. In the log, ``hal_rate``, ``cover_rate`` and
            ``cap_score`` refer only to presence.
        scenes: Paths of files with ground truth beyond presence for the training and held-out images (docs/claims.md).
            If several files contain an image, the first one is used.
        answer_only: True to exclude reasoning and tool text (``<think>``, ``<tool_call>``) from rewards and penalties.
        tokens: Tokens that get the reward of their piece: ``all`` (as in the paper) or ``words``. With ``all``, further
            periods or line breaks after a correct piece are rewarded, and long runs may learn to write nothing else
            (docs/gaming.md).
        reference_floor: Minimum probability that the reference model must assign to tokens outside of object names. The
            penalty for a piece with a less probable token is at least ``r_h``. If the value is 0, as in the paper,
            improbable tokens are not penalized. A value above 0 requires ``loss.kl``.
        reference_ratio: Maximum ratio of the policy's to the reference's joint probability for the tokens of a piece,
            excluding object names. The penalty of a piece with a larger ratio is at least ``r_h``. At the start, the
            ratio is 1. If the value is 0, as in the paper, the ratio is not limited. A value above 0 requires
            ``loss.kl``.
        stop: Credit for the decisions to continue or to end. With ``group``, the first token of each piece gets the
            advantage of continuing, and the end-of-sequence token gets that of ending. Both are estimated from the
            group (:mod:`scapo_eval.rewarding.stopping`). If this value is empty, as in the paper, the decisions to
            continue or to end receive no separate credit.
        eos: Method that determines the credit of the end-of-sequence token.
        truncated: Treatment of the last piece of a truncated response.
        resample: Maximum number of times that ``dapo`` in its original form resamples groups whose rewards are all
            equal.
        overlong: Length, in tokens, of the interval before ``max_new_tokens`` in which the length penalty of the
            original ``dapo`` grows from 0 to 1.
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
    tokens: Credited = "all"
    reference_floor: float = 0.0
    reference_ratio: float = 0.0
    stop: Literal["", "group"] = ""
    eos: Eos = "zero"
    truncated: Truncated = "score"
    resample: int = 3
    overlong: int = 0

    @property
    def per_response(self) -> bool:
        """True if the reward is one number per response."""
        return self.scheme in ("grpo", "dapo", "dr_grpo")

    @property
    def charges_wording(self) -> bool:
        """True if pieces whose wording departs from the reference are penalized."""
        return bool(self.reference_floor or self.reference_ratio)

    def reward_config(self) -> RewardConfig:
        """Returns the settings of the reward as a :class:`scapo_eval.RewardConfig`."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in _REWARD_SETTINGS}
        settings["kinds"] = kinds_of(",".join(self.kinds))
        settings["rule"] = "object" if self.scheme == "object" else self.rule
        settings["level"] = self.reward if self.per_response else "subsentence"
        if self.robust:
            usual = RewardConfig()
            return RewardConfig.robust(**{k: value for k, value in settings.items() if value != getattr(usual, k)})
        return RewardConfig.ablation(self.ablation, **settings) if self.ablation else RewardConfig(**settings)


@dataclass(frozen=True)
class Loss:
    """Settings of the clipped surrogate and the KL term.

    Attributes:
        clip_low: Lower clip range. Probability ratios below ``1 - clip_low`` are clipped.
        clip_high: Upper clip range. Probability ratios above ``1 + clip_high`` are clipped.
        kl: Weight of the KL term. If the value is 0, neither the term nor the reference model is used.
        kl_estimator: Estimator of KL(policy || reference) per token.
        normaliser: Number by which the loss is divided. With ``tokens``, the sum over tokens is divided by the number
            of response tokens in the global batch. With ``sequences``, the loss is averaged first over the tokens of
            each response and then over responses. With ``constant``, the sum over tokens is divided by the number of
            responses times ``rollout.max_new_tokens``.
        mean_per_micro_batch: True to divide by the number of tokens in each micro-batch and to average over
            micro-batches, as in verl's legacy actor. Use True only for comparisons, because the gradient then depends
            on the division into micro-batches.
        kl_alarm: Mean KL estimate per token above which an alarm is raised.
        engine_correction: Maximum importance ratio between the policy's and the sampling engine's probability of a
            token. The surrogate of each token is multiplied by the token's ratio, truncated at the maximum importance
            ratio (usually 2). If the value is 0, the surrogate is not corrected.
        correction_level: Unit of the importance ratio, ``token`` or ``sequence``. With ``sequence``, every token of a
            response has the ratio of the probabilities of the whole response.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.01
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    normaliser: Literal["tokens", "sequences", "constant"] = "tokens"
    mean_per_micro_batch: bool = False
    kl_alarm: float = 1.0
    engine_correction: float = 0.0
    correction_level: Literal["token", "sequence"] = "token"


@dataclass(frozen=True)
class Preference:
    """Settings for the losses on pairs of responses (:mod:`scapo_train.preference`); these settings have no effect on
    training with rollouts.

    Attributes:
        loss: Name of the loss, ``dpo``, ``mdpo`` or ``symmpo`` (:mod:`scapo_train.preference.loss`).
        beta: Weight of the implicit KL term in the loss.
        symmetric: Weight of the symmetric pairs in SymMPO's loss.
        consistency: Weight of the squared difference between the margins of the symmetric pairs in SymMPO's loss.
    """

    loss: Literal["dpo", "mdpo", "symmpo"] = "dpo"
    beta: float = 0.1
    symmetric: float = 0.5
    consistency: float = 1e-4


@dataclass(frozen=True)
class Optim:
    """Settings for the optimizer and for the division of batches into mini-batches and micro-batches.

    Attributes:
        optimizer: Name of the optimizer, ``adamw`` or ``adamw8bit`` (from torchao). The moments of ``adamw8bit`` need a
            quarter of the memory that those of ``adamw`` need.
        lr: Peak learning rate.
        beta1: Decay rate of the running mean of gradients.
        beta2: Decay rate of the running mean of squared gradients.
        eps: Constant that is added to the denominator of the update.
        weight_decay: Decoupled weight decay, which applies to matrices only.
        warmup: Number of steps over which the learning rate increases from 0 to ``lr``.
        schedule: Name of the learning-rate schedule after the warm-up.
        clip: Maximum gradient norm. If the value is 0, gradients are not clipped.
        mini_batches: Number of updates per batch and inner epoch. Each update uses a part of the prompts.
        inner_epochs: Number of passes over each batch of rollouts.
        micro_batch_tokens: Maximum number of tokens per rank in one forward and backward pass. Groups with more tokens
            are divided into several rows. The gradient does not depend on the token limit. With 0, the limit is derived
            from the model, the longest prompt, the group, the maximum length of a response, the number of processes and
            the memory of the GPU (:mod:`scapo_train.plan.budget`), and a resumed run keeps the limit if it fits. On a
            CPU and for training on pairs, the limit is 8,192 tokens, or a whole group if that is larger.
        offload: True to keep trained weights, gradients and moments in host memory and to update them there. A layer's
            weights are moved to the GPU only when the layer is used.
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
    micro_batch_tokens: int = 0
    offload: bool = False


@dataclass(frozen=True)
class Alarms:
    """Thresholds at which metrics of a training step raise an alarm, in addition to ``loss.kl_alarm`` and
    ``rollout.mismatch_alarm``.

    Attributes:
        repeated_share: Share of responses that repeat a sentence, or that contain the same four words three times.
        without_claim_share: Share of responses that name no object.
        length_factor: Maximum factor by which the mean response length may exceed or fall below that of the first step.
        cover_share: Minimum ratio of ``cover_rate`` to its value in the first step. A smaller ratio means that coverage
            has collapsed.
        truncated_share: Share of responses that were truncated at ``rollout.max_new_tokens``.
        zero_reward_share: Share of pieces with reward 0.
    """

    repeated_share: float = 0.3
    without_claim_share: float = 0.5
    length_factor: float = 2.0
    cover_share: float = 0.5
    truncated_share: float = 0.5
    zero_reward_share: float = 0.95


@dataclass(frozen=True)
class Config:
    """All settings of a training run, with one attribute per section."""

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
        """Number of optimizer steps per batch of rollouts. With a value of 1, all probability ratios are 1, and no
        forward pass for the old log-probabilities is needed.
        """
        return self.optim.mini_batches * self.optim.inner_epochs

    def with_budget(self, tokens: int) -> Config:
        """Returns the settings with another value of ``optim.micro_batch_tokens``."""
        return dataclasses.replace(self, optim=dataclasses.replace(self.optim, micro_batch_tokens=tokens))


def load(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a configuration.

    Args:
        source: Path of a TOML file, or name of a shipped configuration (such as ``qwen2_5_vl_7b``, with or without the
            folder ``configs`` and the suffix).
        overrides: Settings in the form ``section.key=value``, with the value in TOML or as a bare word.

    Raises:
        InputError: If the configuration has a fault. The error names the file and the key.
        InputErrors: If the configuration has several faults.
    """
    path = Path(source)
    if not path.is_file() and path.parent in _NAMES_SHIPPED and (SHIPPED / f"{path.stem}.toml").exists():
        path = SHIPPED / f"{path.stem}.toml"
    if not path.exists():
        names = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
        raise InputError(f"configuration not found (shipped: {names})", path=str(source))
    data = read_bytes(path)
    if len(data) > _LONGEST:
        raise InputError(f"not a valid TOML file: more than {_LONGEST >> 10} KiB", path=str(source))
    table = parse_toml(data, str(source))
    overridden = []
    for override in overrides:
        section, value = _override(override)
        overridden.append(".".join(section))
        inner = table.setdefault(section[0], {})
        if isinstance(inner, dict):
            inner[section[1]] = value
    try:
        return from_table(table, str(source))
    except InputError as error:
        raise _at_override(error, overridden) from None
    except InputErrors as errors:
        raise InputErrors([_at_override(error, overridden) for error in errors.errors]) from None


def _at_override(error: InputError, overridden: Sequence[str]) -> InputError:
    """Returns the error with the source ``--set`` if it is about a setting that was given on the command line."""
    is_own = any(re.search(rf"(?<!\S){re.escape(key)}(?![\w.])", error.reason) for key in overridden)
    return InputError(error.reason, path="--set") if is_own else error


def from_table(table: dict[str, Any], source: str | None = None) -> Config:
    """Converts nested dictionaries to a configuration. Raises the same errors as :func:`load`."""
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
    """Returns an error for each loss setting that contradicts the published form of the scheme."""
    scheme = config.credit.scheme
    if not published:
        return [
            InputError(f'credit.form = "original" exists for {", ".join(PUBLISHED)}, not for "{scheme}"', path=source)
        ]
    return [
        InputError(
            f'loss.{name} = {given[name]} contradicts credit.form = "original" of "{scheme}", which has {value}: '
            "use this value, or omit the setting",
            path=source,
        )
        for name, value in published.items()
        if name in given and given[name] != value
    ]


def from_toml(text: str) -> Config:
    """Parses the output of :func:`to_toml`. Raises the same errors as :func:`load`."""
    return from_table(parse_toml(text.encode("utf-8", "surrogatepass")))


def parse_toml(data: bytes, source: str | None = None) -> dict[str, Any]:
    """Parses a TOML file.

    Raises:
        InputError: If the TOML is invalid, or if its nesting is too deep or its numbers are too long for Python.
    """
    try:
        return tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        raise InputError("not a valid TOML file: nested too deeply", path=source) from None
    except ValueError as error:  # includes TOMLDecodeError, UnicodeDecodeError, and errors of int about too many digits
        raise InputError(f"not a valid TOML file: {error}", path=source) from None


def to_toml(config: Config) -> str:
    """Returns the complete configuration as TOML."""
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
        raise InputError(f"--set expects section.key=value, got {short_repr(text)}")
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
    """Converts a value to the type that a hint specifies.

    Raises:
        ValueError: If the value has another type, or is not one of the choices.
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
        raise ValueError(f"expected a string without control characters, got {short_repr(value)}")
    return value


_POSITIVE = {
    "data": ("prompts_per_step", "epochs", "workers"),
    "rollout": ("group", "max_new_tokens", "prompts_per_batch", "tensor_parallel", "temperature"),
    "optim": ("mini_batches", "inner_epochs", "lr"),
    "run": ("keep",),
    "alarms": ("length_factor",),
    "preference": ("beta",),
}
_BELOW_ONE = {"optim": ("beta1", "beta2"), "loss": ("clip_low",), "credit": ("reference_floor",)}
_MAY_BE_NEGATIVE = ("r_rep",)
_LOWEST_TEMPERATURE = 0.01
_NAMES_SHIPPED = (Path("."), Path("configs"), Path("scapo_train/configs"))
_TRACKERS = ("tensorboard", "wandb", "trackio")


def _contradictions(config: Config, source: str | None) -> list[InputError]:
    """Returns an error for each contradiction between values that are valid individually."""
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
            allowed = (*_MAY_BE_NEGATIVE, *_POSITIVE.get(part.name, ()))  # reported above
            if is_number and not value >= 0 and setting.name not in allowed:
                reasons.append(f"{part.name}.{setting.name} must not be negative, got {value}")
    credit = config.credit
    if credit.scheme not in SCHEMES and ":" not in credit.scheme:
        reasons.append(f"credit.scheme: expected {', '.join(SCHEMES)} or file.py:function, got {credit.scheme!r}")
    if credit.per_response and not credit.reward:
        reasons.append(f'credit.scheme = "{credit.scheme}" needs credit.reward: "hal" or "cap"')
    if not credit.per_response and credit.reward:
        reasons.append(f'credit.reward applies to grpo, dapo and dr_grpo; "{credit.scheme}" rewards pieces')
    if credit.beta != 1 and credit.reward != "cap":
        reasons.append('credit.beta requires credit.reward = "cap"')
    if credit.per_response and credit.ablation:
        reasons.append(f'credit.ablation applies to rewards of pieces; "{credit.scheme}" rewards responses')
    if credit.robust and (credit.per_response or credit.ablation or credit.scheme == "object"):
        reasons.append(
            'credit.robust applies to rewards of pieces: it requires credit.scheme = "scapo" or your own, '
            "without credit.ablation"
        )
    if credit.per_response and credit.tokens != "all":
        reasons.append(f'credit.tokens applies to rewards of pieces; "{credit.scheme}" rewards responses')
    for name in ("reference_floor", "reference_ratio"):
        if credit.per_response and getattr(credit, name):
            reasons.append(f'credit.{name} applies to rewards of pieces; "{credit.scheme}" rewards responses')
        if getattr(credit, name) and not config.loss.kl:
            reasons.append(f"credit.{name} uses the reference model, which requires loss.kl > 0")
    if 0 < credit.reference_ratio <= 1:
        reasons.append(f"credit.reference_ratio must be 0 (no limit) or above 1, got {credit.reference_ratio:g}")
    if credit.stop and credit.scheme != "scapo":
        reasons.append(
            f'credit.stop applies to rewards of pieces: credit.scheme must be "scapo", got "{credit.scheme}"'
        )
    if credit.stop and credit.eos != "zero":
        reasons.append(f'credit.stop credits the end of sequence: credit.eos must be "zero", got "{credit.eos}"')
    if credit.stop and config.rollout.group < 2:
        reasons.append(f'credit.stop = "{credit.stop}" compares responses: rollout.group must be 2 or more')
    if credit.per_response and config.rollout.group < 2:
        reasons.append(f'credit.scheme = "{credit.scheme}" compares responses: rollout.group must be 2 or more')
    if config.model.attention == "flash_attention_2" and config.model.dtype != "bfloat16":
        reasons.append(f'model.attention = "flash_attention_2" computes in bfloat16, not in {config.model.dtype}')
    if config.optim.mini_batches > config.data.prompts_per_step > 0:
        reasons.append("optim.mini_batches is greater than data.prompts_per_step")
    if credit.overlong and (credit.scheme, credit.form) != ("dapo", "original"):
        reasons.append('credit.overlong requires credit.scheme = "dapo" with credit.form = "original"')
    if credit.overlong > config.rollout.max_new_tokens:
        reasons.append("credit.overlong is greater than rollout.max_new_tokens")
    if config.rollout.gpu_memory >= 1:
        reasons.append(f"rollout.gpu_memory must be a share of the GPU, less than 1, got {config.rollout.gpu_memory}")
    if config.rollout.sleep_level not in (1, 2):
        reasons.append(
            f"rollout.sleep_level must be 1 or 2 (rollout.sleep = false: none), got {config.rollout.sleep_level}"
        )
    if 0 < config.rollout.temperature < _LOWEST_TEMPERATURE:
        reasons.append(
            f"rollout.temperature must be at least {_LOWEST_TEMPERATURE}, got {config.rollout.temperature:g}: "
            "with less, the responses of a group hardly differ"
        )
    if 0 < config.model.max_pixels < config.model.min_pixels:
        reasons.append("model.min_pixels is greater than model.max_pixels")
    if config.run.evaluate_every and not config.data.evaluation:
        reasons.append("run.evaluate_every needs data.evaluation, the prompts file of the held-out images")
    if config.run.keep_best and not (config.data.evaluation and config.run.evaluate_every):
        reasons.append("run.keep_best needs data.evaluation and run.evaluate_every")
    if config.run.snr_every and config.data.prompts_per_step < 2:
        reasons.append("run.snr_every compares prompts: data.prompts_per_step must be 2 or more")
    if config.run.snr_every and (config.loss.mean_per_micro_batch or config.lora.dropout):
        reasons.append("run.snr_every requires loss.mean_per_micro_batch = false and lora.dropout = 0")
    if config.lora.dropout >= 1:
        reasons.append(f"lora.dropout must be a share of inputs, less than 1, got {config.lora.dropout}")
    if config.lora.rank and not config.lora.alpha:
        reasons.append("lora.alpha must be greater than 0: adapters would add nothing")
    if config.loss.engine_correction and config.rollout.engine == "transformers":
        reasons.append('loss.engine_correction requires an engine that is not the policy: rollout.engine = "vllm"')
    if config.loss.mean_per_micro_batch and not config.optim.micro_batch_tokens:
        reasons.append(
            "loss.mean_per_micro_batch makes the gradient depend on optim.micro_batch_tokens: set it, such as to "
            f"{USUAL_BUDGET}"
        )
    if config.loss.correction_level == "sequence" and not config.loss.engine_correction:
        reasons.append("loss.correction_level requires loss.engine_correction, the maximum importance ratio")
    server, lookahead = config.rollout.server, config.rollout.lookahead
    if server and config.rollout.engine != "vllm":
        reasons.append('rollout.server requires rollout.engine = "vllm"')
    if server and not server.startswith(("http://", "https://")):
        reasons.append(f"rollout.server must be an address such as http://127.0.0.1:8000, got {short_repr(server)}")
    if config.rollout.transfer != "files" and not server:
        reasons.append(f"rollout.transfer = {short_repr(config.rollout.transfer)} requires rollout.server")
    if lookahead > 1:
        reasons.append(f"rollout.lookahead must be 0 or 1, got {lookahead}")
    if lookahead and not server:
        reasons.append("rollout.lookahead requires rollout.server: on the training GPUs, vLLM sleeps during updates")
    if lookahead and not config.loss.engine_correction:
        reasons.append("rollout.lookahead requires loss.engine_correction (usually 2): responses are one update old")
    if config.rollout.adapters == "request" and not (config.lora.rank and config.rollout.engine == "vllm"):
        reasons.append('rollout.adapters = "request" requires lora.rank and rollout.engine = "vllm"')
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
    """Checks that settings without a default value are specified.

    Args:
        config: Settings of the training run.
        source: Name of the file with the settings, for messages.
        names: Names of the required settings.

    Raises:
        InputErrors: If required settings are empty.
    """
    missing = [
        InputError(f"{name} is not set: --set {name}=...", path=source)
        for name in names
        if not operator.attrgetter(name)(config)
    ]
    if missing:
        raise missing[0] if len(missing) == 1 else InputErrors(missing)


def command_line(prog: str, description: str | None, *, resumes: bool = True) -> argparse.ArgumentParser:
    """Returns the argument parser of a command that reads a configuration.

    Args:
        prog: Name of the command.
        description: Description of the command.
        resumes: True for training commands, which also have options for resuming.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    option = parser.add_argument
    option("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    option("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    if not resumes:
        return parser
    option("--resume", choices=["auto", "never"], default="never", help="resume from the newest checkpoint")
    option("--max-hours", type=float, metavar="HOURS", help="save and exit in time, exit code 75: run.max_hours=HOURS")
    option("--accept-changes", action="store_true", help="resume even if the objective or the seed has changed")
    return parser


__all__ = ["SCHEMES", "Config", "Form", "command_line", "from_table", "from_toml", "load", "required", "to_toml"]
