"""The claim matrix, a compact file that states whether each claim about an image is true, false or unknown.

``docs/annotate_claims.md#use-the-matrix`` describes the file.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import InputError
from ..base.hashes import digest
from ..base.ids import canonical_image_id
from ..base.reprs import one_line
from ..base.types import State
from ..claiming.claim import KINDS, ClaimKey, count_range
from ..files.containers import check_archive
from ..files.files import atomic_write, decoding
from ..files.json_text import dump_json, parse_json
from .truth_matrix import npz_bytes

FORMAT = "scapo-claims/1"

_COLUMNS = {"kind": np.uint8, "label": np.uint32, "value": np.uint32, "other": np.uint32, "state": np.int8}


@dataclass(frozen=True, repr=False)
class ClaimMatrix:
    """Claims about images, with the state of each claim.

    Attributes:
        image_ids: Canonical ids of the images.
        starts: (images + 1,) array with the position of the first claim of each image, followed by the number of all
            claims.
        labels: Distinct labels, to which the columns ``label`` and ``other`` refer. The first label is the empty
            string.
        values: Distinct values, to which the column ``value`` refers.
        columns: Mapping from column names to (claims,) arrays: ``kind`` (position in ``KINDS``), ``label``, ``value``,
            ``other`` and ``state`` (1 true, 0 false, -1 unknown).
        probabilities: (claims,) float32 values of P(true), NaN for claims without a probability, or None if no claim
            has one.
        vocabulary_fingerprint: Fingerprint of the vocabulary whose labels the claims name.
    """

    image_ids: tuple[str, ...]
    starts: NDArray[np.int64]
    labels: tuple[str, ...]
    values: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    probabilities: NDArray[np.float32] | None = None
    vocabulary_fingerprint: str = ""

    def __repr__(self) -> str:
        return one_line(self, f"{len(self):,} claims about {len(self.image_ids):,} images")

    def __len__(self) -> int:
        """Returns the number of claims."""
        return len(self.columns["state"])

    @classmethod
    def of(
        cls,
        image_ids: Sequence[str],
        claims: Sequence[ClaimKey],
        states: ArrayLike,
        *,
        probabilities: ArrayLike | None = None,
        vocabulary_fingerprint: str = "",
    ) -> ClaimMatrix:
        """Builds a matrix from n claims and their states.

        Args:
            image_ids: Canonical image id of each claim. Claims about the same image are adjacent.
            claims: The n claims, which are distinct for each image.
            states: (n,) states: 1 true, 0 false, -1 unknown.
            probabilities: (n,) array of P(true), with NaN for claims without a probability, or None.
            vocabulary_fingerprint: Fingerprint of the vocabulary whose labels the claims name.

        Raises:
            ValueError: If an argument is invalid, for example if a probability is outside [0, 1].
        """
        states = np.asarray(states)
        if states.shape != (len(claims),) or len(image_ids) != len(claims) or not np.isin(states, (-1, 0, 1)).all():
            raise ValueError(f"states must be {len(claims)} values, each 1, 0 or -1, with an image id for each claim")
        for image in dict.fromkeys(image_ids):
            if canonical_image_id(image) != image:
                raise ValueError(f"image id {image!r} is not canonical: use {canonical_image_id(image)!r}")
        for key in claims:
            if len(key) != 4 or key[0] not in KINDS:
                raise ValueError(f"a claim must be (kind, label, value, other) with a kind of {KINDS}, got {key!r}")
        if len(set(zip(image_ids, claims, strict=True))) < len(claims):
            raise ValueError("a claim appears twice for an image")
        sizes = [(image, sum(1 for _ in group)) for image, group in groupby(image_ids)]
        kinds = {kind: k for k, kind in enumerate(KINDS)}
        labels, values = {"": 0}, dict[str, int]()
        rows = [
            (
                kinds[kind],
                labels.setdefault(label, len(labels)),
                values.setdefault(value, len(values)),
                labels.setdefault(other, len(labels)),
            )
            for kind, label, value, other in claims
        ]
        columns = dict(zip(_COLUMNS, [*np.array(rows).reshape(-1, 4).T, states], strict=True))
        matrix = cls(
            tuple(image for image, _ in sizes),
            np.cumsum([0, *(size for _, size in sizes)], dtype=np.int64),
            tuple(labels),
            tuple(values),
            {name: columns[name].astype(form) for name, form in _COLUMNS.items()},
            None if probabilities is None else np.asarray(probabilities, dtype=np.float32),
            vocabulary_fingerprint,
        )
        matrix._check(FORMAT)
        return matrix

    @property
    def fingerprint(self) -> str:
        """Hash of the matrix in its file format."""
        return digest([self._bytes()])

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Mapping from each image id to its position in ``image_ids``."""
        return {image: row for row, image in enumerate(self.image_ids)}

    def states(self, image_id: str) -> dict[ClaimKey, State]:
        """Returns the claims about an image with their states.

        Raises:
            KeyError: If the matrix does not contain the image.
        """
        of_image = self._of(image_id)
        return dict(zip(self._keys(of_image), self.columns["state"][of_image].tolist(), strict=True))

    def chances(self, image_id: str) -> dict[ClaimKey, float]:
        """Returns the claims about an image that have a probability, with P(true).

        Raises:
            KeyError: If the matrix does not contain the image.
        """
        of_image = self._of(image_id)
        if self.probabilities is None:
            return {}
        chances = dict(zip(self._keys(of_image), self.probabilities[of_image].tolist(), strict=True))
        return {key: chance for key, chance in chances.items() if not math.isnan(chance)}

    def _of(self, image_id: str) -> slice:
        row = self.rows[image_id]
        return slice(int(self.starts[row]), int(self.starts[row + 1]))

    def _keys(self, rows: slice) -> list[ClaimKey]:
        columns = (self.columns[name][rows].tolist() for name in ("kind", "label", "value", "other"))
        labels, values = self.labels, self.values
        return [(KINDS[a], labels[b], values[c], labels[d]) for a, b, c, d in zip(*columns, strict=True)]

    def with_labels(self, labels: Sequence[str | None]) -> ClaimMatrix:
        """Returns the matrix with renamed labels, omitting the claims about labels whose name is None."""
        gone = np.array([label is None for label in labels])
        kept = ~(gone[self.columns["label"]] | gone[self.columns["other"]])
        return replace(
            self,
            starts=np.concatenate([[0], np.cumsum(kept)])[self.starts],
            labels=tuple(label or "" for label in labels),
            columns={name: column[kept] for name, column in self.columns.items()},
            probabilities=None if self.probabilities is None else self.probabilities[kept],
        )

    def save(self, path: str | Path) -> None:
        """Writes the matrix. Equal matrices yield identical files.

        Raises:
            InputError: If the file cannot be written.
            ValueError: If the matrix is invalid, for example if a probability is outside [0, 1].
        """
        self._check(FORMAT)
        with atomic_write(path) as stream:
            stream.write(self._bytes())

    def _bytes(self) -> bytes:
        names = {
            "format": FORMAT,
            "vocabulary": self.vocabulary_fingerprint,
            "images": self.image_ids,
            "labels": self.labels,
            "values": self.values,
        }
        arrays: dict[str, NDArray[Any]] = {
            "names": np.frombuffer(dump_json(names), np.uint8),
            "starts": self.starts,
            **self.columns,
        }
        if self.probabilities is not None:
            arrays["p"] = self.probabilities
        return npz_bytes(arrays)

    @classmethod
    def load(cls, data: bytes, source: str) -> ClaimMatrix:
        """Reads a claim matrix from the bytes of a file that :meth:`save` wrote.

        Raises:
            InputError: If the data is not a valid claim matrix.
        """
        with decoding("claim matrix", source):
            stream = io.BytesIO(data)
            check_archive(stream, source)
            with np.load(stream, allow_pickle=False) as arrays:
                missing = {"names", "starts", *_COLUMNS} - set(arrays.files)
                if missing:
                    raise InputError(f"not a valid claim matrix: missing {', '.join(sorted(missing))}", path=source)
                names = parse_json(arrays["names"].tobytes())
                columns = {name: arrays[name] for name in _COLUMNS}
                starts, p = arrays["starts"], arrays["p"] if "p" in arrays.files else None
            images, labels, values = (tuple(names[key]) for key in ("images", "labels", "values"))
            matrix = cls(images, starts, labels, values, columns, p, str(names.get("vocabulary", "")))
            matrix._check(names.get("format"))
        return matrix

    def _check(self, form: object) -> None:
        """Raises a ValueError if the arrays are invalid or inconsistent with each other."""
        n, columns = len(self), self.columns
        if form != FORMAT:
            raise ValueError(f"the format is {form!r}, expected {FORMAT!r}")
        if not all(isinstance(text, str) for text in (*self.image_ids, *self.labels, *self.values)):
            raise ValueError("images, labels and values must be texts")
        if self.labels[:1] != ("",) or not all(label.strip() for label in self.labels[1:]):
            raise ValueError("the first label must be empty, and no other")
        if len(set(self.image_ids)) < len(self.image_ids):
            raise ValueError("an image appears twice")
        if any(columns[name].shape != (n,) or columns[name].dtype != kind for name, kind in _COLUMNS.items()):
            raise ValueError("a column is of another type or size")
        starts = self.starts
        if starts.dtype != np.int64 or starts.shape != (len(self.image_ids) + 1,) or starts[0] or starts[-1] != n:
            raise ValueError("'starts' does not divide the claims among the images")
        if (np.diff(starts) < 0).any():
            raise ValueError("'starts' does not increase")
        p = self.probabilities
        if p is not None and (p.shape != (n,) or p.dtype != np.float32):
            raise ValueError(f"'p' must be probabilities: expected {n} float32 values")
        if p is not None and (wrong := np.flatnonzero((p < 0) | (p > 1))).size:
            k = int(wrong[0])
            image = self.image_ids[int(np.searchsorted(starts, k, side="right")) - 1]
            raise ValueError(f"'p' must be probabilities: claim {k} (image {image!r}) has {p[k]:g}")
        if not n:
            return
        if columns["kind"].max() >= len(KINDS) or not np.isin(columns["state"], (-1, 0, 1)).all():
            raise ValueError("a kind or state is unknown")
        if max(columns["label"].max(), columns["other"].max()) >= len(self.labels):
            raise ValueError("a claim refers to a label that does not exist")
        if columns["value"].max() >= len(self.values):
            raise ValueError("a claim refers to a value that does not exist")
        for value in np.unique(columns["value"][columns["kind"] == KINDS.index("count")]).tolist():
            count_range(self.values[value])
