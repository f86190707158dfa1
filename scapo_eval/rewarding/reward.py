"""SCAPO's reward, which assigns one reward to each subsentence, based on its mentions and the ground truth.

The reward is Equation 1 of the paper. ``docs/specification.md#reward`` defines the cases that the equation leaves open.
The rewards of a batch are stored in columns, and the readable result of one response is a view of these columns. The
module ``token_credit.py`` assigns the rewards to tokens. The module requires neither a model nor torch. Reward objects
have no mutable state, so they can be pickled and shared between threads.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.columns import MentionColumns, SpanColumns
from ..base.deprecation import warn_deprecated
from ..base.errors import UNFIT, InputError, InputErrors, check_choice, short_repr
from ..base.reprs import fields_in_short, one_line
from ..base.types import Rule
from ..base.verdicts import Verdict
from ..claiming.claim import ClaimKind, kinds_of
from ..files.records import Readable, Records
from ..matching.matcher import AliasMatcher
from ..matching.near import NearMisses
from ..matching.uses import USES, Reading, check_reading, is_written, left_out_codes, name_of, reading_hashes, unjudged
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from ..results.metric import harmonic_mean
from ..results.signature import Signature
from ..segmenting.discourse import has_words
from ..segmenting.reasoning import answer_of, only_answer, spans_besides_answer
from ..segmenting.segment import RULES
from ..segmenting.segment_batch import split_batch, split_batch_by, with_cuts
from ..truths.oracle import Truth
from ..truths.oracles import AnyOracle, truth_of
from ..truths.scenes import Scenes
from .explain import Explanation
from .novelty import fresh_share
from .token_credit import Credited, Eos, TextCredit, Truncated

if TYPE_CHECKING:
    from .claim_units import Unit, UnitColumns, UnitReader

Level = Literal["subsentence", "hal", "cap"]
"""Unit of the reward: each piece (Eq. 1), or the whole response, rewarded by 1 - Hal. Rate or by the Cap. Score."""

OnError = Literal["raise", "zero"]
"""Treatment of a faulty row: raise an error for the batch, or count the row and give it no reward."""

Weighting: TypeAlias = Callable[[int], float]

Cuts: TypeAlias = Callable[[str], Iterable[int]]
"""A custom segmentation rule: maps a text to the increasing offsets, inside the text, at which a new piece begins."""

PieceReward: TypeAlias = "Callable[[RewardResult, Part], float]"
"""A custom reward per piece. The function receives the response's result and the piece with its reward from Eq. 1."""

ResponseReward: TypeAlias = "Callable[[RewardResult], float]"
"""A custom reward term per response."""

LAMBDAS: Mapping[str, Weighting] = {
    "min1": lambda n: min(n, 1),
    "linear": float,
    "sqrt": math.sqrt,
    "log1p": math.log1p,
}
"""Named functions that scale a count."""

Ablation = Literal["additive", "full_repeat", "no_reg"]
"""The paper's ablations of the reward."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RewardConfig:
    """The settings of Eq. 1 in the paper. The defaults are the settings of the paper's training runs.

    Attributes:
        r_g: Gain for new supported labels.
        r_rep: Gain for supported labels that the response has already named. A negative value penalizes repetition.
        r_h: Penalty for hallucinated labels.
        r_reg: Penalty for a piece without any label.
        lam_g: Function that scales the number of supported labels, given as a name in LAMBDAS or as a non-decreasing
            function.
        lam_h: Function that scales the number of hallucinated labels, given in the same way as ``lam_g``.
        rule: Segmentation rule: a name, or a function from a text to the offsets at which pieces begin.
        level: Unit of the reward. ``subsentence`` assigns one reward to each piece. ``hal`` (1 minus the hallucination
            rate) and ``cap`` (the paper's Cap score) give one reward per response. With ``hal``, a response without
            claims gets the reward 1; this is the shortcut that the paper warns against. The coefficients and ``rule``
            have no effect on these two rewards.
        additive: If true, the reward of a piece with hallucinations is its gain minus its penalty. By default, the
            reward of a piece with hallucinations is only its penalty.
        claims: Mentions to count: ``all`` of them (as in the paper), or only those that a reading keeps. A reading may
            omit negated or hedged mentions, for example (:mod:`scapo_eval.matching.uses`), and its uses may come from a
            judge (:class:`~scapo_eval.matching.judged_uses.JudgedUses`).
        piece_reward: Custom function that replaces Eq. 1. ``piece_reward`` is called once per piece (with
            ``answer_only``, once per piece of the answer), with the result of the response and the piece as arguments.
        response_reward: Custom function whose return value is added to the reward of every piece, and thus to the
            reward of every token with text. ``response_reward`` is called once per response, with the result as its
            argument.
        answer_only: If true, only claims in the answer count. Pieces of reasoning and tool text (``<think>``,
            ``<tool_call>``; see :func:`~scapo_eval.segmenting.reasoning.spans_besides_answer`) get the reward 0.
        template_discount: Fraction by which a piece's gain for new labels is reduced if its remaining words repeat an
            earlier piece of the response. The fraction ranges from 0 (the paper's choice) to 1.
        near_misses: If true, misspelled names of absent labels ("a carr") are penalized like the labels themselves.
        tokens: Tokens that get the reward of their piece. With ``all`` (the paper's choice), each further period or
            line break after a correct piece is rewarded, too. With ``words``, only words and the punctuation directly
            after a word get the reward.
        kinds: Claim kinds that Eq. 1 counts: only ``presence`` (the paper's choice), or also ``count``, ``attribute``,
            ``relation`` and ``text`` (docs/claims.md). The kinds can be given as a list or as a string of
            comma-separated names.
        scenes: Ground truth for claim kinds other than presence, as files or :class:`~scapo_eval.truths.scenes.Scenes`
            objects, which are searched in the given order.
        beta: Weight of Cover Rate in the reward of level ``cap``. This reward is the F-beta score of Cover Rate and 1
            minus the hallucination rate. If ``beta`` is 1, the reward is the paper's Cap score. If ``beta`` is below 1,
            hallucinations have a larger effect; if ``beta`` is above 1, coverage has a larger effect.

    Raises:
        InputError: If a coefficient is negative, if a name is unknown, if a value has another type than its field, or
            if kinds and scenes do not match.

    Example:
        >>> import scapo_eval
        >>> scapo_eval.RewardConfig(r_h=2.0).r_h, scapo_eval.RewardConfig().r_reg
        (2.0, 0.1)
    """

    r_g: float = 1.0
    r_rep: float = 0.0
    r_h: float = 1.0
    r_reg: float = 0.1
    lam_g: str | Weighting = "min1"
    lam_h: str | Weighting = "min1"
    rule: Rule | Cuts = "subsentence"
    level: Level = "subsentence"
    additive: bool = False
    claims: Reading = "all"
    piece_reward: PieceReward | None = None
    response_reward: ResponseReward | None = None
    answer_only: bool = False
    template_discount: float = 0.0
    near_misses: bool = False
    tokens: Credited = "all"
    kinds: tuple[ClaimKind, ...] = ("presence",)
    scenes: tuple[Readable | Scenes, ...] = ()
    beta: float = 1.0

    def __new__(cls, *_: object, **settings: object) -> RewardConfig:
        """Rejects an unknown setting, and suggests the most similar known name."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
                raise InputError(f"unknown setting of the reward '{name}'{hint}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, least in (("r_g", 0.0), ("r_rep", -math.inf), ("r_h", 0.0), ("r_reg", 0.0)):
            value = getattr(self, name)
            is_number = _is_number(value)
            if not is_number or not max(least, -_LARGEST) <= value <= _LARGEST:
                limit = "" if least else " >= 0"
                too_large = f" and at most {_LARGEST:g}" if is_number and _LARGEST < abs(value) < math.inf else ""
                raise InputError(f"{name} must be a number{limit}{too_large}, got {value!r}")
        for name in ("additive", "answer_only", "near_misses"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, got {short_repr(getattr(self, name))}")
        if not _is_number(self.template_discount) or not 0 <= self.template_discount <= 1:
            raise InputError(f"template_discount must be between 0 and 1, got {self.template_discount!r}")
        for name in ("lam_g", "lam_h"):
            value = getattr(self, name)
            if not callable(value):
                check_choice(name, value, tuple(LAMBDAS), " or a function")
        if not callable(self.rule):
            check_choice("rule", self.rule, RULES, " or a function")
        check_choice("level", self.level, get_args(Level))
        check_choice("tokens", self.tokens, get_args(Credited))
        is_number = _is_number(self.beta)
        if not is_number or not 0 < self.beta <= _LARGEST:
            too_large = f" and at most {_LARGEST:g}" if is_number and _LARGEST < self.beta < math.inf else ""
            raise InputError(f"beta must be a number > 0{too_large}, got {self.beta!r}")
        if self.beta != 1 and self.level != "cap":
            raise InputError(f"beta requires level 'cap', got level '{self.level}'")
        for name in ("r_g", "r_rep", "r_h", "r_reg", "template_discount", "beta"):
            object.__setattr__(self, name, float(getattr(self, name)))  # whole numbers would make rewards whole numbers
        check_reading(self.claims)
        for name in ("piece_reward", "response_reward"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise InputError(f"{name} must be a function, got {short_repr(value)}")
        object.__setattr__(self, "kinds", kinds_of(self.kinds))
        if "presence" not in self.kinds:
            raise InputError("kinds must contain 'presence': the other kinds describe present objects")
        is_one = isinstance(self.scenes, (str, os.PathLike, Records, Scenes))
        if not is_one and self.scenes is not None and not isinstance(self.scenes, Iterable):
            raise InputError(f"scenes must be files or Scenes objects, got {short_repr(self.scenes)}")
        object.__setattr__(self, "scenes", (self.scenes,) if is_one else tuple(self.scenes or ()))
        beyond = len(self.kinds) > 1
        if beyond and not self.scenes:
            raise InputError(f"kinds {', '.join(self.kinds)} require scenes: COCO's instances or a scene graph")
        if self.scenes and not beyond:
            raise InputError("scenes require kinds beyond presence; list them in kinds")
        if beyond and self.level == "cap":
            raise InputError("level 'cap' supports only the kind presence")

    @classmethod
    def ablation(cls, name: Ablation, **settings: Any) -> RewardConfig:
        """Returns the settings of one of the paper's ablations of the reward.

        Args:
            name: ``additive``, ``full_repeat`` (r_rep = r_g) or ``no_reg`` (r_reg = 0).
            settings: Further fields of the configuration.
        """
        check_choice("ablation", name, get_args(Ablation))
        config = cls(**settings)
        if name == "additive":
            return replace(config, additive=True)
        return replace(config, r_rep=config.r_g) if name == "full_repeat" else replace(config, r_reg=0.0)

    @classmethod
    def robust(cls, **settings: Any) -> RewardConfig:
        """Returns settings under which no known writing style earns a higher reward than its content justifies
        (docs/gaming.md).

        Each new fact yields a gain. The gain is smaller in a sentence that repeats the wording of an earlier sentence.
        Each hallucinated object is penalized, even if its name is quoted or misspelled. Objects that are denied, asked
        about, quoted or used in a comparison yield no gain. Only claims in the answer are counted, not claims in the
        reasoning. Punctuation and white space get no credit, except for punctuation directly after a word.

        Args:
            settings: Further fields of the configuration. The fields in ``settings`` override the settings for
                robustness.
        """
        return cls(**{**_ROBUST, **settings})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.described().items())})"

    @property
    def is_robust(self) -> bool:
        """True if the configuration includes all settings of :meth:`robust`."""
        given = {**vars(self), "claims": name_of(self.claims)}
        return all(given[name] == value for name, value in _ROBUST.items())

    def described(self) -> dict[str, object]:
        """Returns the segmentation rule and all non-default settings, for use in a signature."""
        settings: dict[str, object] = {}
        for setting in sorted(fields(self), key=lambda field: field.name != "rule"):
            value = name_of(self.claims) if setting.name == "claims" else getattr(self, setting.name)
            if setting.name == "rule" or value != setting.default:
                named = getattr(value, "__qualname__", type(value).__qualname__) if callable(value) else value
                settings[setting.name] = "+".join(map(str, value)) if isinstance(value, tuple) else named
        return settings


_ROBUST: Mapping[str, Any] = {
    "claims": "visual",
    "rule": "discourse",
    "answer_only": True,
    "lam_g": "linear",
    "lam_h": "linear",
    "template_discount": 0.75,
    "near_misses": True,
    "tokens": "words",
}


class Part(NamedTuple):
    """One piece of a response and its reward.

    Attributes:
        start: Offset of the first character of the piece in the response.
        end: Offset after the last character of the piece.
        reward: Reward of the piece, by default from Eq. 1.
        new: Number of new supported labels. If the reward also counts claims beyond presence, ``new``, ``rep`` and
            ``hal`` include these claims.
        rep: Number of repeated supported labels.
        hal: Number of hallucinated labels.
    """

    start: int
    end: int
    reward: float
    new: int
    rep: int
    hal: int


@dataclass(frozen=True)
class RewardColumns:
    """The rewards of a batch, stored in columns. The pieces ``indptr[i]:indptr[i + 1]`` belong to response ``i``.

    Attributes:
        image_ids: The n image ids, exactly as the caller passed them.
        responses: n texts. The text of a faulty row is empty.
        indptr: (n + 1,) int64 bounds of the responses in the columns that have one row per piece.
        start: (pieces,) int32 start offset of each piece in its response.
        end: (pieces,) int32 end offset of each piece in its response.
        reward: (pieces,) float64 reward of each piece.
        new: (pieces,) int64 number of new supported labels in each piece. A label with a probability of at least 1/2
            counts as present.
        rep: (pieces,) int64 number of repeated supported labels in each piece.
        hal: (pieces,) int64 number of hallucinated labels in each piece.
        generated: (n,) int64 number of distinct labels that each response claims and whose state is known.
        hallucinated: (n,) int64 number of distinct labels that each response claims and that are absent.
        covered: (n,) int64 number of distinct labels that each response claims and that are present.
        unknown: (n,) int64 number of distinct labels that each response claims and whose state is unknown.
        silent: (pieces,) bool mask of the pieces that have neither gain nor penalty. A piece is silent if it lies
            outside the answer (``answer_only``) or, under the rule ``discourse``, if it contains no word.
        claim_part: (claims,) index of the piece that contains each claim.
        claim_label: (claims,) index in ``labels`` of the label that each claim names.
        claim_verdict: (claims,) int8 code of the verdict on each claim; see :class:`~scapo_eval.base.verdicts.Verdict`.
            The verdict is ``REPEATED`` if the label is supported and an earlier piece of the response names it.
        labels: Labels of the vocabulary.
        r_reg: Penalty for the end-of-sequence token if ``eos="own"``.
        tokens: Tokens that get the reward of their piece.
        errors: Mapping from the index of each faulty row to its error, if ``on_error="zero"``.
        kinds: Kinds of claims that are counted in Eq. 1. If kinds of claims other than presence are counted, all counts
            include the claims of these kinds.
        units: Distinct claims that go beyond the presence of an object. In ``claim_label``, the value ``len(labels) +
            k`` refers to ``units[k]``.
    """

    image_ids: Sequence[object]
    responses: Sequence[str]
    indptr: NDArray[np.int64]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    reward: NDArray[np.float64]
    new: NDArray[np.int64]
    rep: NDArray[np.int64]
    hal: NDArray[np.int64]
    silent: NDArray[np.bool_]
    generated: NDArray[np.int64]
    hallucinated: NDArray[np.int64]
    covered: NDArray[np.int64]
    unknown: NDArray[np.int64]
    claim_part: NDArray[np.int64]
    claim_label: NDArray[np.int64]
    claim_verdict: NDArray[np.int8]
    labels: Sequence[str]
    r_reg: float
    tokens: Credited = "all"
    errors: Mapping[int, InputError] = field(default_factory=dict)
    kinds: tuple[ClaimKind, ...] = ("presence",)
    units: Sequence[Unit] = ()

    __repr__ = fields_in_short

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def claims(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Two (claims,) arrays with the response index and the label index of each presence claim."""
        named = self.claim_label < len(self.labels)
        return np.searchsorted(self.indptr, self.claim_part[named], "right") - 1, self.claim_label[named].astype(
            np.int32
        )

    def of_presence(self) -> Mapping[str, NDArray[np.int64]]:
        """Returns the (n,) counts ``generated``, ``hallucinated``, ``covered`` and ``unknown``, restricted to presence
        claims.
        """
        names = ("generated", "hallucinated", "covered", "unknown")
        if len(self.kinds) == 1:
            return {name: getattr(self, name) for name in names}
        response, label = self.claims
        verdict = self.claim_verdict[self.claim_label < len(self.labels)]
        _, first = np.unique(response * len(self.labels) + label, return_index=True)

        def of(*verdicts: Verdict) -> NDArray[np.int64]:
            return np.bincount(response[first][np.isin(verdict[first], verdicts)], minlength=len(self))

        covered, hallucinated = of(Verdict.SUPPORTED, Verdict.REPEATED), of(Verdict.HALLUCINATED)
        return dict(zip(names, (covered + hallucinated, hallucinated, covered, of(Verdict.UNKNOWN)), strict=True))

    def name_of(self, label: int) -> str:
        """Returns the name for a value of ``claim_label``: a label, or a text such as ``dog: 3`` for a claim beyond
        presence.
        """
        n = len(self.labels)
        return self.labels[label] if label < n else self.units[label - n].name

    @cached_property
    def total(self) -> NDArray[np.float64]:
        """(n,) array with the sum of each response's piece rewards."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        return np.bincount(owner, weights=self.reward, minlength=len(self)).astype(np.float64, copy=False)

    @property
    def n_empty(self) -> int:
        """Number of empty responses. Faulty rows are not counted."""
        return sum(not text for text in self.responses) - len(self.errors)

    @property
    def n_errors(self) -> int:
        """Number of faulty rows in the batch."""
        return len(self.errors)

    def results(self) -> list[RewardResult]:
        """Returns one readable result per response. All results are views of the columns in this object."""
        return list(map(RewardResult, repeat(self), range(len(self))))

    def token_advantages(
        self,
        offsets: SpanColumns | Sequence[ArrayLike],
        *,
        eos: Eos = "zero",
        truncated: Truncated = "score",
        finished: bool | Sequence[bool] | NDArray[np.bool_] = True,
    ) -> list[NDArray[np.float32]]:
        """Returns the advantages of all tokens of every response; see :meth:`RewardResult.token_advantages`.

        Args:
            offsets: Character spans of the tokens of each response, as (T_i, 2) arrays or as columns.
            eos: Credit for the end-of-sequence token; see :meth:`RewardResult.token_advantages`.
            truncated: Treatment of the last piece of an unfinished response; see
                :meth:`RewardResult.token_advantages`.
            finished: True for responses that ended on their own, given as a single value or as one value per response.
        """
        flat, indptr = self.flat_token_advantages(offsets, eos=eos, truncated=truncated, finished=finished)
        bounds = indptr.tolist()
        return [flat[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)]

    def flat_token_advantages(
        self,
        offsets: SpanColumns | Sequence[ArrayLike],
        *,
        eos: Eos = "zero",
        truncated: Truncated = "score",
        finished: bool | Sequence[bool] | NDArray[np.bool_] = True,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the advantages of :meth:`token_advantages` as one array, and the (n + 1,) bounds of the responses."""
        return self._credit.token_advantages(offsets, range(len(self)), eos=eos, truncated=truncated, finished=finished)

    @cached_property
    def _credit(self) -> TextCredit:
        pieces = SpanColumns(self.indptr, self.start, self.end)
        return TextCredit.of(
            self.responses,
            pieces,
            self.reward,
            r_reg=self.r_reg,
            tokens=self.tokens,
            faulty=self.errors,
        )


@dataclass(slots=True, eq=False)  # not frozen, because frozen dataclasses take three times as long to create
class RewardResult:
    """The reward of one response, which is a view of one row of :class:`RewardColumns`.

    Example:
        >>> import scapo_eval
        >>> [result] = scapo_eval.SubsentenceReward("coco80", {7: ["dog"]})([7], ["There is a dog. A cat sleeps."])
        >>> result.total, result.covered, result.hallucinated
        (0.0, 1, 1)
    """

    columns: RewardColumns
    row: int

    def __repr__(self) -> str:
        pieces = int(self.columns.indptr[self.row + 1] - self.columns.indptr[self.row])
        counts = f"{self.covered} of {self.generated} labels supported, {self.hallucinated} hallucinated"
        return one_line(self, f"total={self.total:g}: {pieces} pieces, {counts}")

    def __reduce__(self) -> tuple[type[RewardResult], tuple[RewardColumns, int]]:
        return type(self), (_row_of(self.columns, self.row), 0)

    @property
    def image_id(self) -> object:
        """The image id, exactly as the caller passed it."""
        return self.columns.image_ids[self.row]

    @property
    def response(self) -> str:
        """The text of the response."""
        return self.columns.responses[self.row]

    @property
    def parts(self) -> list[Part]:
        """The pieces of the response in order, which together cover the entire response."""
        rows = self._pieces
        columns = (getattr(self.columns, name)[rows].tolist() for name in Part._fields)
        return [Part(*values) for values in zip(*columns, strict=True)]

    @property
    def verdicts(self) -> list[dict[str, Verdict]]:
        """One mapping from labels to verdicts for each piece. The verdict is ``REPEATED`` if the label is supported and
        an earlier piece names it.
        """
        columns, rows = self.columns, self._pieces
        verdicts: list[dict[str, Verdict]] = [{} for _ in range(rows.stop - rows.start)]
        low, high = np.searchsorted(columns.claim_part, (rows.start, rows.stop)).tolist()
        for k in range(low, high):
            label = columns.name_of(columns.claim_label[k])
            verdicts[columns.claim_part[k] - rows.start][label] = Verdict(columns.claim_verdict[k])
        return verdicts

    @property
    def claims(self) -> list[dict[str, str]]:
        """The :attr:`verdicts` under the names ``new``, ``rep``, ``hal`` and ``unknown`` (deprecated)."""
        warn_deprecated("RewardResult.claims", instead="RewardResult.verdicts", removed_in="0.4.0")
        return [{label: FILE_WORDS[verdict] for label, verdict in part.items()} for part in self.verdicts]

    @property
    def total(self) -> float:
        """Sum of the rewards of all pieces."""
        return float(self.columns.total[self.row])

    @property
    def generated(self) -> int:
        """Number of distinct claimed labels whose state in the image is known."""
        return int(self.columns.generated[self.row])

    @property
    def hallucinated(self) -> int:
        """Number of distinct claimed labels that are absent from the image."""
        return int(self.columns.hallucinated[self.row])

    @property
    def covered(self) -> int:
        """Number of distinct claimed labels that are present in the image."""
        return int(self.columns.covered[self.row])

    @property
    def unknown(self) -> int:
        """Number of distinct claimed labels whose state in the image is unknown."""
        return int(self.columns.unknown[self.row])

    @property
    def error(self) -> InputError | None:
        """The error of a row that was skipped because of ``on_error="zero"``, or None for a valid row."""
        return self.columns.errors.get(self.row)

    def token_advantages(
        self, offsets: ArrayLike, *, eos: Eos = "zero", truncated: Truncated = "score", finished: bool = True
    ) -> NDArray[np.float32]:
        """Returns the advantage of every generated token (Algorithm 1, line 17).

        A token gets the reward of the piece that contains its last non-space character. A token that consists of white
        space gets the reward of the piece that contains its first character. With the setting ``tokens="words"``, white
        space and punctuation get 0, except for punctuation directly after a word. A token without text (a special token
        or padding, with an empty span) gets the advantage 0.

        Args:
            offsets: (T, 2) character spans of the generated tokens in the response, as
                :func:`scapo_eval.rewarding.tokens.token_offsets` returns them. Tokens that share a character have
                overlapping spans. Special tokens have empty spans, which may be at any position.
            eos: Credit for the end-of-sequence token, which is the first token without text after the last token with
                text. With ``zero``, the token gets 0; with ``last``, the reward of the last piece; with ``own``,
                ``-r_reg``.
            truncated: Treatment of the last piece of an unfinished response. With ``score``, the last piece of the
                response keeps its reward; with ``mask``, its tokens get 0.
            finished: True if the response ended on its own. An unfinished response has no end-of-sequence token.

        Returns:
            (T,) float32 advantages.

        Raises:
            InputError: If the offsets decrease or exceed the length of the text. The message names the index and the
                value.
        """
        credit, rows = self.columns._credit, range(self.row, self.row + 1)
        return credit.token_advantages([offsets], rows, eos=eos, truncated=truncated, finished=finished)[0]

    def explain(self) -> Explanation:
        """Returns an explanation of the reward of each piece. The explanation can be printed or displayed in a
        notebook.
        """
        return Explanation.of(self)

    @property
    def _pieces(self) -> slice:
        return slice(int(self.columns.indptr[self.row]), int(self.columns.indptr[self.row + 1]))


class SubsentenceReward:
    """SCAPO's reward for responses to images.

    The object is immutable, so it can be shared between threads and pickled. The attributes of subclasses are included
    in the pickle. If a setting such as ``lam_g`` is a lambda, pickling requires cloudpickle, which Ray uses.

    Args:
        vocabulary: Labels that count as objects, in any form that :meth:`scapo_eval.Vocabulary.of` accepts.
        oracle: Ground truth, given as a file, a PresenceOracle, or any other type that :mod:`scapo_eval.truths.oracles`
            lists.
        config: Settings of the reward (Eq. 1).
        on_error: Treatment of a faulty row, for example a row whose image has no ground truth or whose response is not
            a string. If ``on_error`` is ``raise``, an error is raised. If ``on_error`` is ``zero``, the row gets no
            reward, the fault is counted and a warning is logged, so that a single faulty row does not end a run. An
            error is always raised if a batch with several images contains no valid row, because the ground truth then
            belongs to another data set.
        any_fingerprint: True to accept a presence matrix that was made for another vocabulary; see :meth:`Truth.of`.

    Raises:
        InputError: If vocabulary and oracle do not match, or if a scaling function is decreasing.

    Example:
        >>> import scapo_eval
        >>> reward = scapo_eval.SubsentenceReward("coco80", {7: ["dog"]})
        >>> [result] = reward([7], ["There is a dog. A cat sleeps."])
        >>> [(part.new, part.hal, part.reward) for part in result.parts]
        [(1, 0, 1.0), (0, 1, -1.0)]
    """

    def __init__(
        self,
        vocabulary: VocabularyGiven,
        oracle: AnyOracle | str | Path,
        config: RewardConfig | None = None,
        *,
        on_error: OnError = "raise",
        any_fingerprint: bool = False,
    ) -> None:
        check_choice("on_error", on_error, get_args(OnError))
        self.config = RewardConfig() if config is None else config
        if not isinstance(self.config, RewardConfig):
            raise InputError(f"config must be a RewardConfig, got {short_repr(config)}")
        self.on_error = on_error
        self.any_fingerprint = any_fingerprint
        vocabulary = Vocabulary.of(vocabulary)
        self.truth = truth_of(oracle, vocabulary, any_fingerprint=any_fingerprint)
        if self.truth.warning:
            _log.warning(self.truth.warning)
        self.matcher = AliasMatcher(vocabulary, self.config.claims)
        most = len(vocabulary.labels)
        self._units: UnitReader | None = None
        if len(self.config.kinds) > 1:
            from .claim_units import UnitReader  # its rules take a while to load

            scenes = [
                given if isinstance(given, Scenes) else Scenes.load(given, vocabulary) for given in self.config.scenes
            ]
            self._units = UnitReader(vocabulary, self.config.kinds[1:], self.config.claims, scenes)
            most += _MOST_UNITS
        self._near = NearMisses(vocabulary) if self.config.near_misses else None
        self._lam_g = _scaling_table("lam_g", self.config.lam_g, most)
        self._lam_h = _scaling_table("lam_h", self.config.lam_h, most)

    def unjudged(self, responses: Sequence[str]) -> int | None:
        """Returns the number of responses that a judge of the uses of mentions has not judged, or None if the rules
        determine all uses.
        """
        answers = map(answer_of, responses) if self.config.answer_only else responses
        return unjudged(self.config.claims, answers)

    def __repr__(self) -> str:
        return one_line(self, str(self.signature))

    @property
    def scenes(self) -> tuple[Scenes, ...]:
        """The ground truth for claims beyond presence, or an empty tuple if only presence counts."""
        return () if self._units is None else self._units.oracle.scenes

    @property
    def signature(self) -> Signature:
        """The one-line signature, which makes the rewards reproducible."""
        oracle, world = self.truth.identity
        preset = "robust" if self.config.is_robust else None
        settings = {"preset": preset, **self.config.described(), **reading_hashes(self.config.claims)}
        if self._units is not None:
            settings["scenes"] = self._units.signature
        return Signature.of("reward", vocab=self.truth.vocabulary.identity, oracle=oracle, world=world, **settings)

    def __call__(self, image_ids: Sequence[object], responses: Sequence[object]) -> list[RewardResult]:
        """Returns the rewards of n responses; see :meth:`batch`."""
        return self.batch(image_ids, responses).results()

    def batch(self, image_ids: Sequence[object], responses: Sequence[object], *, whole: bool = True) -> RewardColumns:
        """Returns the rewards of n responses as columns.

        Args:
            image_ids: The n image ids in any spelling that :func:`~scapo_eval.base.ids.canonical_image_id` accepts.
            responses: n strings.
            whole: True if the rows form a complete batch, or False if they are only part of a larger batch. All rows of
                a partial batch may be faulty, but a complete batch with several images must contain at least one valid
                row.

        Raises:
            InputError: If the inputs differ in length, or if a row is faulty (InputErrors if several rows are faulty).
                With ``on_error="zero"``, faulty rows raise an error only if a complete batch with several images
                contains no valid row. The message names the index and the value.
        """
        for given in (image_ids, responses):
            if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
                found = "a single string" if isinstance(given, (str, bytes)) else type(given).__name__
                raise InputError(f"expected a list of image ids and a list of responses, found {found}")
        image_ids, responses = (
            rows if isinstance(rows, (list, tuple)) else list(rows) for rows in (image_ids, responses)
        )  # a Series is indexed by its labels, not by position
        if len(image_ids) != len(responses):
            raise InputError(f"{len(image_ids)} image ids for {len(responses)} responses")
        rows, texts, errors = self._checked(image_ids, responses)
        hopeless = whole and len(errors) == len(texts) and len({str(image) for image in image_ids}) > 1
        if errors and (self.on_error == "raise" or hopeless):
            raise next(iter(errors.values())) if len(errors) == 1 else InputErrors(errors.values())
        if errors:
            _log.warning("%d of %d rows get no reward; %s", len(errors), len(texts), next(iter(errors.values())))
        columns = self._rewards(image_ids, rows, texts, errors)
        if self.config.piece_reward is None and self.config.response_reward is None:
            return columns
        return self._with_own_rewards(columns)

    def _checked(
        self, image_ids: Sequence[object], responses: Sequence[object]
    ) -> tuple[NDArray[Any], list[str], dict[int, InputError]]:
        """Returns the ground-truth row of each image, the texts, and a mapping from faulty rows to their errors.

        For a faulty row, row 0 and an empty text are returned.
        """
        index, errors = self.truth.index, dict[int, InputError]()
        rows, texts = list[Any](), list[str]()
        for k, (image, response) in enumerate(zip(image_ids, responses, strict=True)):
            kind = type(image)
            # canonical ids are looked up unchanged, because the pattern of canonical_image_id takes 2 us
            row = index.get(image) if kind is str else index.get(str(image)) if kind is int else None  # type: ignore[call-overload]
            try:
                if row is None:
                    row = self.truth.row(image)
                if not isinstance(response, str):
                    raise InputError(f"must be a string, got {short_repr(response)}")
            except InputError as error:
                place = "image_ids" if row is None else "responses"
                errors[k] = InputError(f"{place}[{k}]: {error.reason}")
                row, response = 0, ""
            rows.append(row)
            texts.append(response)
        return np.array(rows, dtype=self.truth.row_type), texts, errors

    def _rewards(
        self, image_ids: Sequence[object], rows: NDArray[Any], texts: list[str], errors: dict[int, InputError]
    ) -> RewardColumns:
        whole = self.config.level != "subsentence"
        read = self._read(texts)
        spans = _whole_responses(texts, errors) if whole else self._cut(read)
        owner = np.repeat(np.arange(len(texts)), np.diff(spans.indptr))
        silent = np.zeros(len(owner), dtype=bool)
        if not whole:
            silent = _silent(read.answers, spans, wordless=self.config.rule == "discourse", of=read.besides)
        truth = self.truth.for_batch()
        claims = self._claims(truth, texts, read, spans, owner, rows)
        units: Sequence[Unit] = ()
        if self._units is not None:
            beyond = self._units.read(
                image_ids,
                read.answers,
                read.mentions,
                read.all_uses,
                lambda text, label: _states(truth, rows[text], label),
            )
            claims, units = claims.beside(beyond, spans, owner, texts, len(self.truth.vocabulary.labels)), beyond.units
        n_pieces = len(owner)
        new, rep = (
            claims.count_of(claims.supported & claims.first, n_pieces),
            claims.count_of(claims.supported & ~claims.first, n_pieces),
        )
        hal = claims.count_of(claims.absent, n_pieces)
        if whole:
            reward = self._response_rewards(truth, *claims.present_and_absent(n_pieces), rows[owner])
        else:
            share = self._paid_share(read, spans)
            if claims.probability is None:
                reward = self._piece_rewards(new, rep, hal)
                paid = (new > 0) & ((hal == 0) | self.config.additive)
                reward[paid] -= ((1 - share) * self.config.r_g * self._lam_g[new])[paid]
            else:
                reward = self._expected_rewards(claims, share, n_pieces)
        reward[silent] = 0.0

        def per_response(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
            return np.bincount(owner[claims.piece[chosen & claims.first]], minlength=len(texts))

        covered, hallucinated = per_response(claims.supported), per_response(claims.absent)
        listed = ~claims.charged | claims.absent
        return RewardColumns(
            image_ids=image_ids,
            responses=texts,
            indptr=spans.indptr,
            start=spans.start,
            end=spans.end,
            reward=reward,
            new=new,
            rep=rep,
            hal=hal,
            silent=silent,
            generated=covered + hallucinated,
            hallucinated=hallucinated,
            covered=covered,
            unknown=per_response(claims.state == -1),
            claim_part=claims.piece[listed],
            claim_label=claims.label[listed],
            claim_verdict=claims.verdict[listed],
            labels=self.truth.vocabulary.labels,
            r_reg=self.config.r_reg,
            tokens=self.config.tokens,
            errors=errors,
            kinds=self.config.kinds,
            units=units,
        )

    def _read(self, texts: list[str]) -> _Read:
        """Extracts the answers from responses and finds the mentions in the answers."""
        besides = dict[int, list[tuple[int, int]]]()
        if self.config.answer_only:
            besides = {k: spans for k, text in enumerate(texts) if (spans := spans_besides_answer(text))}
        answers = [only_answer(text, besides[k]) if k in besides else text for k, text in enumerate(texts)]
        if self._units is not None:
            return _Read(answers, besides, *self.matcher.find_both_uses(answers, self._units.uses))
        mentions, uses = self.matcher.find_left_out(answers)
        return _Read(answers, besides, mentions, uses, uses)

    def _cut(self, read: _Read) -> SpanColumns:
        """Segments responses into pieces. No boundary falls inside a mention, even if the mention is not a claim."""
        if callable(self.config.rule):
            return with_cuts(split_batch_by(read.answers, self.config.rule), read.besides)
        return with_cuts(split_batch(read.answers, self.config.rule, read.mentions), read.besides)

    def _claims(
        self,
        truth: Truth,
        texts: Sequence[str],
        read: _Read,
        spans: SpanColumns,
        owner: NDArray[np.int64],
        rows: NDArray[Any],
    ) -> _Claims:
        """Returns the labels of each piece with their verdicts, without duplicates and in text order.

        Args:
            truth: Ground truth.
            texts: n responses.
            read: Answers and mentions of the responses.
            spans: Pieces of the responses.
            owner: (pieces,) response index of each piece.
            rows: (n,) ground-truth row index of each response's image.
        """
        n, n_labels = len(texts), len(truth.vocabulary.labels)
        caption, start, label, is_charged = self._counted(truth, read, rows)
        piece = _piece_at(texts, spans, owner, caption, start)
        key, charged = np.divmod(np.sort(2 * (piece * n_labels + label) + is_charged), 2)  # claims before charges
        distinct = np.ones(len(key), dtype=bool)
        distinct[1:] = key[1:] != key[:-1]
        (piece, label), charged = np.divmod(key[distinct], n_labels), charged[distinct] == 1
        caption = owner[piece]
        state = truth.values(rows[caption], label)
        probability = None
        if state.dtype != np.int8:  # an oracle on demand, whose values may be probabilities
            probability, state = state, np.where(state < 0, -1, state >= 0.5)
        # H: a claim is new if no earlier piece of its response contains the label. Because it is written
        # backwards, the table keeps the first position of every (response, label). Charged labels come first only if
        # the response does not claim them.
        position = np.arange(len(piece))
        key = caption * n_labels + label
        first_at = np.empty(n * n_labels, dtype=np.int64)
        for of in (position[charged], position[~charged]):
            first_at[key[of[::-1]]] = of[::-1]
        return _Claims(piece, label, state, probability, first_at[key] == position, charged)

    def _counted(
        self, truth: Truth, read: _Read, rows: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.bool_]]:
        """Returns four (mentions,) arrays with the text index, start offset and label id of the counted mentions, and
        whether a mention is charged, which means that it is only counted if its label is absent.

        All mentions that the reading includes are counted. Questions and quotations are charged, because otherwise
        hallucinations in quotation marks would not be penalized. With ``near_misses``, misspelled names are charged,
        too.
        """
        mentions, left_out = read.mentions, left_out_codes(self.config.claims)[read.uses]
        caption, start, label = mentions.caption, mentions.start, mentions.label_id.astype(np.int64)
        counted = ~left_out
        excused = (left_out & _CHARGED[read.uses]).nonzero()[0]
        if len(excused):
            written = [is_written(read.answers[k], at) for k, at in zip(caption[excused], start[excused], strict=True)]
            excused = excused[~np.array(written)]
            counted[excused] = _may_be_absent(truth, rows[caption[excused]], label[excused])
        columns: list[NDArray[Any]] = [caption[counted], start[counted], label[counted], left_out[counted]]
        if self._near is not None:
            near = np.array(self._near.find(read.answers), dtype=np.int64).reshape(-1, 3)
            near = near[_may_be_absent(truth, rows[near[:, 0]], near[:, 2])]
            missed = [*near.T, np.ones(len(near), dtype=bool)]
            columns = [np.concatenate(pair) for pair in zip(columns, missed, strict=True)]
        return columns[0], columns[1], columns[2], columns[3]

    def _paid_share(self, read: _Read, spans: SpanColumns) -> NDArray[np.float64] | float:
        """Returns, for each piece, the share of its gain for new labels that it receives, or a single share for all
        pieces.
        """
        discount = self.config.template_discount
        if not discount:
            return 1.0
        fresh = fresh_share(read.answers, spans, read.mentions)
        return 1 - discount * (1 - np.minimum(1, 2 * fresh))

    def _piece_rewards(
        self,
        new: NDArray[np.int64],
        rep: NDArray[np.int64],
        hal: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Computes the rewards of all pieces according to Eq. 1."""
        config = self.config
        gain = config.r_g * self._lam_g[new] + config.r_rep * self._lam_g[rep]
        penalty = config.r_h * self._lam_h[hal]
        reward = np.where(hal > 0, gain - penalty if config.additive else -penalty, gain)
        reward[new + rep + hal == 0] = -config.r_reg
        return reward

    def _expected_rewards(self, claims: _Claims, share: NDArray[np.float64] | float, n: int) -> NDArray[np.float64]:
        """Returns the expected value of Eq. 1, where each label is present with a given probability, independently of
        all other labels.

        Args:
            claims: Claims of the pieces. A probability of -1 means that the state of the label is unknown.
            share: Share of the gain for new labels, as one value per piece or one value for all pieces.
            n: Number of pieces.
        """
        config = self.config
        reward = np.full(n, -config.r_reg)
        shares = np.broadcast_to(np.asarray(share, dtype=np.float64), (n,))
        probability = claims.known_probability
        known = np.flatnonzero(probability >= 0)  # claims are in the order of their pieces
        pieces, starts = np.unique(claims.piece[known], return_index=True)
        claims_of = np.split(known, starts)[1:]  # without the empty part before the first piece
        for k, of_piece in zip(pieces.tolist(), claims_of, strict=True):
            absent = _distribution(1 - probability[of_piece])
            penalty = config.r_h * float(absent[1:] @ self._lam_h[1 : len(absent)])
            of_piece = of_piece[~claims.charged[of_piece]]
            p, is_first = probability[of_piece], claims.first[of_piece]
            r_g = config.r_g * float(shares[k])
            if not len(of_piece):
                gain = -config.r_reg * absent[0]
            elif config.additive:
                new, rep = _distribution(p[is_first]), _distribution(p[~is_first])
                gain = r_g * float(new @ self._lam_g[: len(new)])
                gain += config.r_rep * float(rep @ self._lam_g[: len(rep)])
            else:
                n_new = int(is_first.sum())
                gain = r_g * self._lam_g[n_new] + config.r_rep * self._lam_g[len(of_piece) - n_new]
                gain *= absent[0]
            reward[k] = gain - penalty
        return reward

    def _with_own_rewards(self, columns: RewardColumns) -> RewardColumns:
        """Returns the rewards after the user's custom functions have been applied.

        ``piece_reward`` replaces Eq. 1, and the value of ``response_reward`` is added to the reward of every piece.
        """
        piece_reward, response_reward = self.config.piece_reward, self.config.response_reward
        rewards = list[float]()
        for result in columns.results():
            parts = result.parts
            piece_rewards = [part.reward for part in parts]
            if piece_reward is not None:
                silent = columns.silent[result._pieces].tolist()
                piece_rewards = [
                    0.0 if is_silent else _number("piece_reward", piece_reward(result, part))
                    for part, is_silent in zip(parts, silent, strict=True)
                ]
            if response_reward is not None and parts:
                term = _number("response_reward", response_reward(result))
                piece_rewards = [reward + term for reward in piece_rewards]
            rewards += piece_rewards
        return replace(columns, reward=np.array(rewards, dtype=np.float64))

    def _response_rewards(
        self, truth: Truth, covered: NDArray[Any], hallucinated: NDArray[Any], rows: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Returns the reward of each response: 1 minus the hallucination rate, or the F-beta score (by default, the Cap
        score).
        """
        faithful = 1 - hallucinated / np.maximum(covered + hallucinated, 1)
        if self.config.level == "hal":
            return np.asarray(faithful, dtype=np.float64)
        cover = covered / np.maximum(truth.present_counts(rows), 1)
        if self.config.beta == 1:
            return np.asarray(harmonic_mean(faithful, cover), dtype=np.float64)
        square = self.config.beta**2
        scores: NDArray[np.float64] = (1 + square) * faithful * cover / np.maximum(square * faithful + cover, 1e-300)
        return scores


class _Read(NamedTuple):
    """The answers in n responses and the mentions in these answers.

    Attributes:
        answers: The n responses, in which newlines replace all text outside the answer.
        besides: Mapping from response indices to the spans of text outside the answer, for responses that contain such
            text.
        mentions: Mentions in the answers.
        uses: (mentions,) code of each mention's use if the reading omits the mention, otherwise 0.
        all_uses: (mentions,) code of each mention's use if claims beyond presence count, otherwise the same as
            ``uses``.
    """

    answers: list[str]
    besides: Mapping[int, list[tuple[int, int]]]
    mentions: MentionColumns
    uses: NDArray[np.uint8]
    all_uses: NDArray[np.uint8]


class _Claims(NamedTuple):
    """The distinct labels that each piece claims.

    Attributes:
        piece: (claims,) index of the piece that contains each claim, in text order.
        label: (claims,) index of the label of each claim.
        state: (claims,) state of each claim: 1 for present, 0 for absent and -1 for unknown.
        probability: (claims,) probability that the label is present (-1 if unknown), or None if all states are certain.
        first: (claims,) mask of the claims whose label is not named in any earlier piece of the response.
        charged: (claims,) mask of the labels that the piece only asks about, quotes or misspells. They are penalized if
            they are absent, and do not count if they are present.
    """

    piece: NDArray[np.int64]
    label: NDArray[np.int64]
    state: NDArray[Any]
    probability: NDArray[np.float64] | None
    first: NDArray[np.bool_]
    charged: NDArray[np.bool_]

    def beside(
        self, found: UnitColumns, spans: SpanColumns, owner: NDArray[np.int64], texts: Sequence[str], n_labels: int
    ) -> _Claims:
        """Returns these claims merged with the claims beyond presence, without duplicates within a piece.

        The label indices of claims beyond presence start after those of the labels.
        """
        n_facts = int(found.fact.max(initial=0)) + 1
        key = _piece_at(texts, spans, owner, found.text, found.start) * n_facts + found.fact
        key, at = np.unique(key, return_index=True)
        piece, fact = np.divmod(key, n_facts)
        unit, state = found.unit[at], found.state[at]
        is_first = np.zeros(len(key), dtype=bool)
        is_first[np.unique(owner[piece] * n_facts + fact, return_index=True)[1]] = True
        pieces = np.concatenate([self.piece, piece])
        order = np.argsort(pieces, kind="stable")
        probability = None if self.probability is None else np.concatenate([self.probability, state])[order]
        return _Claims(
            pieces[order],
            np.concatenate([self.label, unit + n_labels])[order],
            np.concatenate([self.state, state])[order],
            probability,
            np.concatenate([self.first, is_first])[order],
            np.concatenate([self.charged, np.zeros(len(key), dtype=bool)])[order],
        )

    @property
    def supported(self) -> NDArray[np.bool_]:
        """(claims,) mask of the claims whose label is present in the image."""
        is_supported: NDArray[np.bool_] = (self.state == Verdict.SUPPORTED) & ~self.charged
        return is_supported

    @property
    def absent(self) -> NDArray[np.bool_]:
        """(claims,) mask of the claims whose label is absent from the image."""
        is_absent: NDArray[np.bool_] = self.state == Verdict.HALLUCINATED
        return is_absent

    @property
    def known_probability(self) -> NDArray[np.float64]:
        """(claims,) array with the probability that the label of each claim is present, or -1 if this probability is
        unknown.
        """
        return self.state.astype(np.float64) if self.probability is None else self.probability

    @property
    def verdict(self) -> NDArray[np.int8]:
        """(claims,) codes of the verdicts; see :class:`~scapo_eval.base.verdicts.Verdict`."""
        return np.where(self.supported & ~self.first, Verdict.REPEATED, self.state).astype(np.int8)

    def count_of(self, chosen: NDArray[np.bool_], n_pieces: int) -> NDArray[np.int64]:
        """Returns the (pieces,) number of selected claims in each piece."""
        return np.bincount(self.piece[chosen], minlength=n_pieces)

    def present_and_absent(self, n_pieces: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns two (pieces,) arrays for response-level rewards: the expected number of present labels and the
        expected number of absent labels.
        """
        probability = self.known_probability
        known = probability >= 0
        present, absent = (
            np.bincount(self.piece[of], weights=weights[of], minlength=n_pieces).astype(np.float64)
            for of, weights in ((known & ~self.charged, probability), (known, 1 - probability))
        )
        return present, absent


_CHARGED = np.array([use in ("question", "quoted") for use in USES])
"""(uses,) mask of questions and quotations, whose absent labels are charged although a reading omits these uses."""

FILE_WORDS = {
    Verdict.SUPPORTED: "new",
    Verdict.REPEATED: "rep",
    Verdict.HALLUCINATED: "hal",
    Verdict.UNKNOWN: "unknown",
}
"""The words for verdicts in the files that ``scapo-eval reward`` writes."""


_LARGEST = 1e100
"""Largest coefficient of a reward, so that sums of rewards and squares are finite."""
_MOST_UNITS = 10_000
"""Maximum number of claims beyond presence in one piece for which scaling values are computed."""


def _piece_at(
    texts: Sequence[str],
    spans: SpanColumns,
    owner: NDArray[np.int64],
    text: NDArray[np.int64],
    start: NDArray[Any],
) -> NDArray[np.int64]:
    """Returns a (places,) array with the index of the piece that contains each place. A place consists of a text index
    and a character offset.
    """
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    base = np.cumsum(lengths + 1) - lengths  # + 1, so that an empty text has its own position
    piece: NDArray[np.int64] = np.searchsorted(base[owner] + spans.start, base[text] + start, side="right") - 1
    return piece


def _states(truth: Truth, rows: NDArray[Any], label: NDArray[np.int64]) -> NDArray[np.int8]:
    """Returns the (cells,) states of cells: 1 for present, 0 for absent, -1 for unknown."""
    value = truth.values(rows, label)
    return np.where(value >= 0, value >= 0.5, -1).astype(np.int8)


def _may_be_absent(truth: Truth, rows: NDArray[Any], label: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns a (cells,) mask of the cells whose label is absent from the image with a probability above 0."""
    value = truth.values(rows, label)
    may_be: NDArray[np.bool_] = (value >= 0) & (value < 1)
    return may_be


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(name: str, value: object) -> float:
    """Returns the value of a user's function, converted to a float.

    Raises:
        InputError: If the value is not a finite number.
    """
    try:
        number = math.nan if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must return a finite number, got {short_repr(value)}")
    return number


def _distribution(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the (n + 1,) probabilities that exactly 0, 1, ..., n of n independent events occur."""
    distribution = np.ones(1)
    for p in probability.tolist():
        distribution = np.convolve(distribution, (1 - p, p))
    return distribution


def _scaling_table(name: str, scaling: str | Weighting, most: int) -> NDArray[np.float64]:
    """Returns the values of a scaling function for 0 to ``most`` labels.

    Raises:
        InputError: If the function fails, is decreasing, or returns a non-finite value.
    """
    function = LAMBDAS[scaling] if isinstance(scaling, str) else scaling
    try:
        table = np.array([float(function(n)) for n in range(most + 1)])
    except UNFIT as error:
        raise InputError(f"{name} must be a function of a count: {error}") from None
    falls = np.flatnonzero(~(table[1:] >= table[:-1]))
    if len(falls) or not np.isfinite(table).all():
        k = int(falls[0]) if len(falls) else 0
        values = f"{name}({k}) = {table[k]:g}, {name}({k + 1}) = {table[k + 1]:g}"
        raise InputError(f"{name} must be finite and must not decrease: {values}")
    return table


def _silent(
    answers: Sequence[str], spans: SpanColumns, *, wordless: bool, of: Mapping[int, object]
) -> NDArray[np.bool_]:
    """Returns a (pieces,) mask of the pieces that have neither gain nor penalty.

    Args:
        answers: The n responses, in which newlines replace all text outside the answer.
        spans: Pieces of the responses.
        wordless: If true, pieces without a word have neither gain nor penalty, provided that another piece of the
            response has words.
        of: Indices of the responses that contain text outside the answer.
    """
    silent = np.zeros(len(spans.start), dtype=bool)
    for k, answer in enumerate(answers) if wordless or of else ():
        begin, end = int(spans.indptr[k]), int(spans.indptr[k + 1])
        if k not in of and (not wordless or end - begin < 2):
            continue
        pieces = [answer[spans.start[j] : spans.end[j]] for j in range(begin, end)]
        nothing = np.array([piece.isspace() for piece in pieces], dtype=bool)
        if wordless and any(map(has_words, pieces)):
            nothing |= [not has_words(piece) for piece in pieces]
        silent[begin:end] = nothing
    return silent


def _whole_responses(texts: Sequence[str], errors: Mapping[int, InputError]) -> SpanColumns:
    """Returns one piece for each valid response. Empty responses are included, because they get a response-level
    reward.
    """
    rows = [k for k in range(len(texts)) if k not in errors]
    indptr = np.zeros(len(texts) + 1, dtype=np.int64)
    indptr[np.array(rows, dtype=np.int64) + 1] = 1
    ends = np.array([len(texts[k]) for k in rows], dtype=np.int32)
    return SpanColumns(np.cumsum(indptr), np.zeros(len(rows), dtype=np.int32), ends)


def _row_of(columns: RewardColumns, row: int) -> RewardColumns:
    """Returns a copy of the columns that contains only one response."""
    parts = slice(int(columns.indptr[row]), int(columns.indptr[row + 1]))
    low, high = np.searchsorted(columns.claim_part, (parts.start, parts.stop)).tolist()
    rows = slice(row, row + 1)
    label, n_labels = columns.claim_label[low:high], len(columns.labels)
    used = np.unique(label[label >= n_labels])
    if len(used):
        label = np.where(label < n_labels, label, n_labels + np.searchsorted(used, label))
    return RewardColumns(
        image_ids=columns.image_ids[rows],
        responses=columns.responses[rows],
        indptr=np.array([0, parts.stop - parts.start]),
        **{name: getattr(columns, name)[parts] for name in (*Part._fields, "silent")},
        **{name: getattr(columns, name)[rows] for name in ("generated", "hallucinated", "covered", "unknown")},
        claim_part=columns.claim_part[low:high] - parts.start,
        claim_label=label,
        claim_verdict=columns.claim_verdict[low:high],
        labels=columns.labels,
        r_reg=columns.r_reg,
        tokens=columns.tokens,
        errors={0: columns.errors[row]} if row in columns.errors else {},
        kinds=columns.kinds,
        units=[columns.units[at] for at in (used - n_labels).tolist()],
    )
