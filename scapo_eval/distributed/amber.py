"""Conversion of AMBER responses in Arrow tables to summable counts per image and to answers per question."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..base.errors import InputError, check_choice
from ..base.reprs import fields_in_short
from ..benchmarks.amber import ANSWERS, Amber, AmberCounts, AmberData, Mode, NltkNouns, Similarity, read_responses
from ..benchmarks.amber.formulas import METRICS
from ..benchmarks.join import SAYS
from ..files.records import Readable
from ..results.results import Resampling, Run
from .answers import Replies, packed_answers
from .batch import OnBadFile, of_kind, pa

if TYPE_CHECKING:
    from typing_extensions import Unpack


_TOTALS = ("duplicate", "unknown", "skipped", "unfinished")


class AmberReading(TypedDict, total=False):
    """Settings that determine how responses are read, as in :func:`scapo_eval.amber`."""

    mode: Mode
    parser: str | None
    skip_bad: bool
    drop_unfinished: bool


@dataclass(frozen=True)
class AmberCounter(Replies):
    """Converter from AMBER responses to tables of counts.

    Attributes:
        data: Queries and annotations of the benchmark.
        mode, similarity, parser, skip_bad, drop_unfinished: Arguments of :func:`scapo_eval.amber`.
    """

    data: AmberData
    mode: Mode = "embedded"
    similarity: Similarity = field(default_factory=Similarity)
    parser: str | None = None
    skip_bad: bool = False
    drop_unfinished: bool = False

    read = ("id", "response", "image", "model", "model_id")

    __repr__ = fields_in_short

    @classmethod
    def of(
        cls,
        source: str,
        data: AmberData | str | Path,
        similarity: Similarity | str = "none",
        **reading: Unpack[AmberReading],
    ) -> AmberCounter:
        """Returns a counter of AMBER responses. The arguments are those of :func:`scapo_eval.amber`.

        Raises:
            InputError: If the benchmark's data cannot be read, or the mode, the similarity or the parser is unknown.
            MissingExtra: If parity mode is requested without NLTK.
        """
        if (rule := reading.get("parser")) is not None:
            check_choice("parser", rule, list(ANSWERS))
        benchmark = data if isinstance(data, AmberData) else AmberData.load(data)
        if not isinstance(similarity, Similarity):
            similarity = Similarity.load(similarity, benchmark.words)
        counter = cls(source, benchmark, similarity=similarity, **reading)
        assert counter._amber  # created here, so that missing packages are reported here
        return counter

    @cached_property
    def _amber(self) -> Amber:
        tagger = NltkNouns(1) if self.mode == "parity" else None
        return Amber(self.data, self.mode, similarity=self.similarity, answers=self.parser, tagger=tagger)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the count columns; see :class:`Counted`."""
        return METRICS.columns

    def part(self, source: Readable, kind: str) -> Any:
        """Implements ``part`` of :class:`Replies`."""
        read = read_responses(source, self.data, official=self.mode == "parity", skip_bad=self.skip_bad)
        read = read.without_unfinished() if self.drop_unfinished else read
        amber_counts = self._amber.counted(read, self._amber.verdicts(read.scored))
        totals = {name: getattr(amber_counts, name) or 0 for name in _TOTALS}
        rows = [("total", name.encode(), n) for name, n in totals.items()]
        rows += [("note", note.encode(), 1) for note in amber_counts.notes]
        rows += [("model", (read.model or "").encode(), 1)]
        codes = np.array([SAYS.index(answer) for _, answer in amber_counts.answers], dtype=np.uint8)
        rows += [(kind, packed_answers([number for number, _ in amber_counts.answers], codes), 1)]
        return pa.concat_tables([self.images(amber_counts.table), self.table(rows)])

    def run(self, counts: Any, name: str, *, on_bad_file: OnBadFile = "fail", resampling: Resampling) -> Run:
        """Implements ``run`` of :class:`Counted`."""
        bad_files = self.bad_files(counts, on_bad_file)
        totals = of_kind(counts, "total")
        answers = self.answers(counts, refuse_twice=self.mode != "parity")
        if not len(answers):
            raise InputError("no answer can be scored", path=self.source)
        left = {kind: totals.get(kind.encode(), 0) for kind in _TOTALS}
        amber_counts = AmberCounts(
            table=self.summed_images(counts),
            answers=[(number, SAYS[code]) for number, code in answers.tolist()],
            duplicate=left["duplicate"],
            unknown=left["unknown"],
            skipped=left["skipped"],
            unfinished=left["unfinished"] if self.drop_unfinished else None,
            notes=sorted(note.decode() for note in of_kind(counts, "note")),
        )
        run = self._amber.run(amber_counts, name, bad_files=bad_files, resampling=resampling)
        return self.accounted(counts, run)
