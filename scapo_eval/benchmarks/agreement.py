"""Detection of captions with wrong image ids, by comparing claims with the ground truth of other images.

Captions that are shifted by one line, or that carry row numbers instead of image ids, cause no error but receive worse
scores. Captions with wrong ids agree with the ground truth of their own images no better than with that of randomly
permuted images. If the captions of a file agree with the ground truth only at this level, other orders of the captions
are tested. If one of these orders fits far better, the ids are considered wrong. If no other order fits, the captions
may come from a collapsed or random policy.

Let c(i, j) be the number of claims of caption i that are present in the image of caption j. Let d(i, j) be c(i, j)
after subtracting the means of row i and column j. Under a random permutation, the sum of d(i, i) has mean 0 and
variance sum d(i, j)^2 / (n - 1) (Hoeffding 1951).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..files.account import IdAgreement
from ..results.counts import CountTable
from ..truths.oracle import Truth

LEAST = 20
"""Minimum number of captions for a check."""

MANY = 100
"""Number of unknown ids that are examined for their probable meaning."""

OF_A_BLOCK = 512
"""Number of captions per block whose claims are stored."""

FITS = 6.0
"""Minimum number of standard deviations above chance at which another order is accepted."""

_BLOCKS = 16  # stored blocks; longer files store every second, fourth, ... block
_MATRIX = 400  # captions for estimating the variance
_SHIFTS = [s for k in range(1, 11) for s in (k, -k)]
_ANY_IDS = "to score them anyway: --any-ids, in Python any_ids=True"


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims in a sequence of captions, as two parallel arrays.

    Attributes:
        n: Number of captions.
        caption: (claims,) index of the caption of each claim.
        label: (claims,) position of each claimed label in the vocabulary of the ground truth.
    """

    n: int
    caption: NDArray[np.int32]
    label: NDArray[np.int32]

    @classmethod
    def of_first(cls, n: int, caption: NDArray[np.integer], label: NDArray[np.integer]) -> Claims:
        """Returns the claims of the first ``OF_A_BLOCK`` captions in a block. The caption indices must be in ascending
        order.
        """
        n = min(n, OF_A_BLOCK)
        end = int(np.searchsorted(caption, n))
        return cls(n, caption[:end].astype(np.int32), label[:end].astype(np.int32))


class Fit:
    """Collector that records the image of every caption in a file, and the claims in a sample of the captions."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.int32]] = []
        self._kept: list[tuple[int, Claims]] = []
        self._blocks = self._n = 0
        self._stride = 1

    def add(self, rows: NDArray[np.integer], claims: Claims) -> None:
        """Adds a block of captions; blocks must be added in the order of the file.

        Args:
            rows: (captions,) row of each caption's image in the ground truth.
            claims: Claims of the block's first captions.
        """
        if self._blocks % self._stride == 0:
            self._kept.append((self._n, claims))
            if len(self._kept) > _BLOCKS:
                self._kept, self._stride = self._kept[::2], 2 * self._stride
        self._rows.append(rows.astype(np.int32))
        self._blocks += 1
        self._n += len(rows)

    def agreement(self, truth: Truth) -> tuple[IdAgreement | None, str | None]:
        """Measures the agreement of the captions with the ground truth of their images.

        Returns:
            The agreement and, if another order of the captions fits far better, a description of that order. The
            agreement is None if fewer than LEAST captions contain a claim, or if all images have the same states for
            the claimed labels. The description is None if no order fits far better.
        """
        sample = [np.arange(begin, begin + claims.n) for begin, claims in self._kept]
        if not sample or not len(truth.vocabulary.labels):
            return None, None
        kept = _Sample.of(self._kept, np.concatenate(sample), np.concatenate(self._rows), truth)
        if kept is None:
            return None, None
        sum_own, sd, confirmed = kept.fit(kept.own)
        chance = kept.chance
        if not sd and kept.images_alike:  # all orders yield the same values
            return None, None
        z = float(sum_own / sd) if sd else 0.0
        agreement = IdAgreement(round(confirmed, 4), round(chance, 4), round(z, 2))
        if not sd or not agreement.at_chance:
            return agreement, None
        best: tuple[float, str, float] | None = None
        for how, at, images in _orders(kept, truth):
            if len(at) < LEAST // 2 or np.mean(images == kept.own[at]) > 0.9:
                continue
            other, sd_other, share = kept.fit(images, at)
            if (
                sd_other > 0
                and other / sd_other > FITS + max(0.0, z)
                and (
                    not best or other > best[0] - 1e-6  # among equal orders, the last is the most specific
                )
            ):
                best = (other, how, share)
        if best is None:
            return agreement, None
        return agreement, (
            f"the captions do not belong to the images with their ids: {confirmed:.0%} of their claims are "
            f"true, {chance:.0%} by chance, and {best[2]:.0%} {best[1]}; {_ANY_IDS}"
        )


def agreement_of_sums(mentioned: NDArray[np.int64], table: CountTable, truth: Truth) -> IdAgreement | None:
    """Measures how well captions agree with the ground truth. Only sums are used, because a cluster returns only sums.

    Unlike :meth:`Fit.agreement`, this function tests no other orders of the captions. For each label, the chance level
    is the share of images that contain the label. The standard deviation of the agreement is estimated from the
    difference between each image's agreement and the chance level, assuming that images are independent.

    Args:
        mentioned: (labels,) number of mentions of each label.
        table: Numbers of mentions and captions per image.
        truth: Ground truth.

    Returns:
        The agreement, or None if fewer than LEAST images have a mention or if the states of the
        mentioned labels are the same for all images.
    """
    columns = [table.rows[:, table.columns.index(name)] for name in ("captions", "mentions", "hallucinated_mentions")]
    captions, mentions, wrong = columns
    if np.count_nonzero(mentions) < LEAST or not mentioned.any():
        return None
    present, known = np.zeros(len(mentioned)), np.zeros(len(mentioned))
    rows = truth.rows(table.image_ids)
    for k in range(0, len(rows), 2048):
        states, weight = truth.states[rows[k : k + 2048]], captions[k : k + 2048]
        present += weight @ (states == 1)
        known += weight @ (states >= 0)
    share = np.divide(present, known, out=np.zeros(len(known)), where=known > 0)
    if np.isin(share[mentioned > 0], (0, 1)).all():
        return None
    chance = float(mentioned @ share / mentioned.sum())
    beyond = mentions - wrong - chance * mentions
    spread = float(np.sqrt(np.square(beyond).sum()))
    z = float(beyond.sum()) / spread if spread else 0.0
    return IdAgreement(round(1 - float(wrong.sum() / mentions.sum()), 4), round(chance, 4), round(z, 2))


@dataclass(frozen=True, slots=True)
class _Sample:
    """Sample of captions with claims.

    Attributes:
        at: (n,) positions of the sampled captions in the file.
        rows: (captions,) ground-truth row of the image of each caption in the file.
        caption, label: (claims,) indices of the caption and the label of each distinct claim.
        truth: Ground truth.
        named: (labels,) array with the share of the captions that claim each label.
        has: (labels,) array with the share of the captions whose image contains each label.
        spread: Mean square of the values d(i, j) defined in the module's docstring.
    """

    at: NDArray[np.int64]
    rows: NDArray[np.int32]
    caption: NDArray[np.int64]
    label: NDArray[np.int64]
    truth: Truth
    named: NDArray[np.float64]
    has: NDArray[np.float64]
    spread: float

    @classmethod
    def of(
        cls, kept: Sequence[tuple[int, Claims]], at: NDArray[np.int64], rows: NDArray[np.int32], truth: Truth
    ) -> _Sample | None:
        width = len(truth.vocabulary.labels)
        firsts = np.cumsum([0, *(claims.n for _, claims in kept)])
        keys = [
            (claims.caption.astype(np.int64) + first) * width + claims.label
            for first, (_, claims) in zip(firsts.tolist(), kept, strict=False)
        ]
        caption, label = np.divmod(np.unique(np.concatenate(keys)), width)
        claiming, caption = np.unique(caption, return_inverse=True)
        n = len(claiming)
        if n < LEAST:
            return None
        at = at[claiming]
        named = np.bincount(label, minlength=width) / n
        has = np.zeros(width)
        for k in range(0, n, 2048):
            has += (truth.states[rows[at[k : k + 2048]]] == 1).sum(axis=0)
        has /= n
        some = _by_content(truth, rows[at], caption, label)
        some = some[np.unique(np.linspace(0, n - 1, min(n, _MATRIX)).astype(np.int64))]
        claims = np.zeros((n, width), dtype=bool)
        claims[caption, label] = True
        used = np.flatnonzero(named > 0)
        present = (truth.states[rows[at[some]]][:, used] == 1).astype(np.float32)
        c = claims[some][:, used].astype(np.float32) @ present.T
        d = c - c.mean(axis=1, keepdims=True) - c.mean(axis=0) + c.mean()
        spread = float((d.astype(np.float64) ** 2).mean())
        return cls(at, rows, caption, label, truth, named, has, spread if spread > 1e-9 else 0.0)

    @property
    def images_alike(self) -> bool:
        """True if the claimed labels have the same states in all images, so that all orders of the captions fit equally
        well.
        """
        has = self.has[self.named > 0]
        return bool(((has == 0) | (has == 1)).all())

    @property
    def own(self) -> NDArray[np.int64]:
        """(n,) ground-truth row of each caption's image."""
        return self.rows[self.at].astype(np.int64)

    @property
    def chance(self) -> float:
        """Share of claims that are present in the image of a random caption."""
        return float(self.named @ self.has / self.named.sum())

    def fit(self, images: NDArray[np.integer], of: NDArray[np.integer] | None = None) -> tuple[float, float, float]:
        """Measures how well the captions fit given images.

        Args:
            images: (k,) ground-truth row of the image assigned to each of k captions.
            of: (k,) array with the indices of the captions in the sample, or None for all captions.

        Returns:
            The sum of d(i, i) over the captions, the standard deviation of this sum under a random permutation, and the
            share of claims that are present in the images.
        """
        n = len(self.at)
        image = np.full(n, -1, dtype=np.int64)
        image[slice(None) if of is None else of] = images
        chosen = image[self.caption] >= 0
        label = self.label[chosen]
        held = int((self.truth.states[image[self.caption[chosen]], label] == 1).sum())
        by_caption = float(self.has[label].sum())  # row means of c
        by_image = 0.0  # column means of c
        for k in range(0, len(images), 2048):
            by_image += float(((self.truth.states[images[k : k + 2048]] == 1) @ self.named).sum())
        k = len(images)
        total = held - by_caption - by_image + k * float(self.named @ self.has)
        return total, float(np.sqrt(self.spread * k * k / max(1, k - 1))), held / max(1, len(label))


def _by_content(
    truth: Truth, rows: NDArray[np.int32], caption: NDArray[np.int64], label: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the indices of captions in the order of their image ids and claims, which does not depend on the order of
    the lines in a file.

    Args:
        truth: Ground truth.
        rows: (n,) row of each caption's image in the ground truth.
        caption, label: (claims,) indices of the caption and the label of each claim.
    """
    ids = np.unique([truth.oracle.image_ids[row] for row in rows.tolist()], return_inverse=True)[1]
    claims = np.zeros(len(rows), dtype=np.int64)
    keys = np.random.default_rng(0).integers(2**40, size=len(truth.vocabulary.labels))
    np.add.at(claims, caption, keys[label])
    return np.lexsort((claims, ids))


def _orders(kept: _Sample, truth: Truth) -> Iterator[tuple[str, NDArray[np.integer], NDArray[np.integer]]]:
    """Yields plausible wrong orders of the captions. Each order consists of a description, the indices of sampled
    captions, and the ground-truth row of the image that each of these captions would have.
    """
    n = len(kept.rows)
    for shift in _SHIFTS:
        place = kept.at + shift
        at = np.flatnonzero((place >= 0) & (place < n))
        further = f"{abs(shift)} line{'s' * (abs(shift) > 1)} further {'down' if shift > 0 else 'up'}"
        said = f"of the captions fit the image {further} (a line is missing or too many)"
        yield said, at, kept.rows[place[at]].astype(np.int64)
    everything = np.arange(len(kept.at))
    scored = np.array(list(dict.fromkeys(kept.rows.tolist())), dtype=np.int64)
    ids = truth.oracle.image_ids
    names = [ids[row] for row in scored.tolist()]
    orders = {
        "of the file": scored,
        "of the file, from its end": scored[::-1],
        "of the truth": np.sort(scored),
        "of sorted ids": scored[sorted(range(len(scored)), key=names.__getitem__)],
        "of sorted numbers": scored[sorted(range(len(scored)), key=lambda k: (len(names[k]), names[k]))],
    }
    rank = np.full(len(ids), -1, dtype=np.int64)
    for name, order in orders.items():
        rank[order] = np.arange(len(order))
        for other, images in orders.items():
            if name != other:
                yield (
                    f"if the ids, in the order {name}, are put in the order {other} (were captions made in one order, "
                    "and ids listed in another?)",
                    everything,
                    images[rank[kept.own]],
                )
    own_ids = [ids[row] for row in kept.own.tolist()]
    numbered = np.flatnonzero([name.isdecimal() and len(name) < 16 for name in own_ids])
    numbers = np.array([int(own_ids[k]) for k in numbered.tolist()], dtype=np.int64)
    of_truth = {
        "the truth's": np.arange(len(ids)),
        "sorted": np.array(sorted(range(len(ids)), key=ids.__getitem__)),
        "numbered": np.array(sorted(range(len(ids)), key=lambda k: (len(ids[k]), ids[k]))),
    }
    for first in (0, 1):
        inside = (numbers >= first) & (numbers < len(ids) + first)
        for name, order in of_truth.items():
            said = f"if the ids are row numbers, from {first}, of {name} images"
            yield said, numbered[inside], order[numbers[inside] - first]


def likely_ids(unknown: Sequence[str], known: Sequence[str]) -> str | None:
    """Returns a phrase that states what unknown ids probably are, or None if there is no likely explanation.

    Args:
        unknown: Sample of unknown caption ids.
        known: Image ids in a ground truth.
    """
    for what, read in _READINGS.items():
        meant = {read(image): image for image in known}
        meant.pop("", None)
        readable = [(image, meant[read(image)]) for image in unknown if read(image) in meant]
        if 2 * len(readable) > len(unknown):
            return f"; {what} match: is '{readable[0][0]}' the image '{readable[0][1]}'? If so, use that id"
    numbers = sorted(int(image) for image in unknown if image.isdecimal() and len(image) < 16)
    if len(numbers) == len(unknown) > 2 and numbers[-1] - numbers[0] < 2 * len(numbers) and numbers[0] < len(numbers):
        return "; they look like row numbers, not ids"
    return None


def _file_name(image: str) -> str:
    name = re.split(r"[/\\]", image.casefold())[-1]
    return re.sub(r"\.[a-z]{3,4}$", "", name)


def _last_number(image: str) -> str:
    numbers = re.findall(r"[0-9]+", _file_name(image))
    return numbers[-1].lstrip("0") or "0" if numbers else ""


_READINGS: dict[str, Callable[[str], str]] = {
    "names of files without folder and ending": _file_name,
    "numbers in them": _last_number,
}


def checked(fit: Fit, truth: Truth, source: str, *, any_ids: bool) -> IdAgreement | None:
    """Returns the agreement between the captions in a file and the ground truth.

    Args:
        fit: Collected captions of the file.
        truth: Ground truth.
        source: Name of the file in messages.
        any_ids: True to score the captions even if another order fits far better.

    Raises:
        InputError: If a different order fits far better than the given one, unless ``any_ids`` is set.
    """
    if not isinstance(truth, Truth):  # ground truth with probabilities
        return None
    found, reason = fit.agreement(truth)
    if reason is not None and not any_ids:
        raise InputError(reason, path=source)
    return found
