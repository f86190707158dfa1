"""Signatures, which make scores reproducible and determine which scores can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.reprs import one_line
from ..base.version import __version__

SAMPLE = frozenset(
    {
        *("n", "ids", "asked", "settings", "skip", "skipped", "missing", "unrated", "no_facts", "empty", "truth"),
        *("model", "file", "bad_files", "uses"),
    }
)
"""Fields that identify the scored records and their source. Runs that differ only in these fields can be compared on
their shared images.
"""

TRUTH = frozenset({"oracle", "world", "dagger_oracle"})
"""Fields that name a ground truth, independent of its cells for the scored images."""

WHERE_KNOWN = frozenset({"asked_with", "sampling"})
"""Fields that are compared only if both signatures contain them, because some files and older versions omit them."""

DRAWN = frozenset({"bs", "seed", "ci", "bootstrap", "drawn", "interval", "test"})
"""Fields of intervals and tests, which are recomputed for every comparison."""

IMPLIED = {"claims": "all", "unparsed": "wrong"}
"""Field -> value that older results files imply if their signature omits the field."""


JUDGED = ("faithscore",)
"""Metric sets of judged values whose older signatures name no judge."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Line of the form ``metric_set|key:value|...|v:VERSION`` that accompanies every score.

    Attributes:
        metric_set: Name of the metric set (``capscore``, ``chair``...).
        fields: Settings that determine the values, in the order in which they are printed. The field ``v`` is the
            version with which the counts were computed.
    """

    metric_set: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, metric_set: str, **fields: object) -> Signature:
        """Returns the signature for counts that this version computed. Fields with the value None are omitted."""
        named = {key: str(value).replace("|", "/") for key, value in fields.items() if value is not None}
        return cls(metric_set, {**named, "v": __version__})

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Parses the text of a signature, which ``str()`` returns.

        Raises:
            ValueError: If the text is not a valid signature.
        """
        metric_set, *fields = text.split("|")
        pairs = [field.partition(":") for field in fields]
        if not metric_set or any(not key or not colon for key, colon, _ in pairs):
            raise ValueError(f"not a valid signature: {text!r:.200}")
        return cls(metric_set, {key: value for key, _, value in pairs})

    def __str__(self) -> str:
        return "|".join([self.metric_set, *(f"{key}:{value}" for key, value in self.fields.items())])

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __contains__(self, text: str) -> bool:
        return text in str(self)

    def __hash__(self) -> int:
        return hash((self.metric_set, frozenset(self.fields.items())))

    def drawn(
        self,
        *,
        resamples: int,
        seed: int,
        confidence: float = 0.95,
        bootstrap: str = "multinomial",
        interval: str = "wilson",
        test: str | None = None,
    ) -> Signature:
        """Returns a signature to which the fields of the intervals are added: ``bs`` (resamples), ``seed`` and
        ``interval``.

        The fields ``ci``, ``bootstrap``, ``test`` and ``drawn`` are added if their values differ from the defaults.
        ``drawn`` is the version with which the intervals were computed. The field ``drawn`` is present only if its
        version differs from the version with which the counts were computed. Signatures without the field ``interval``
        were written by versions that supported only percentile intervals.
        """
        fields = {key: value for key, value in self.fields.items() if key not in DRAWN and key != "v"}
        fields |= {"bs": str(resamples), "seed": str(seed)}
        if confidence != 0.95:
            fields["ci"] = f"{confidence:g}"
        if resamples:
            fields["interval"] = interval
            if bootstrap != "multinomial" and (interval == "percentile" or test == "paired_bootstrap"):
                fields["bootstrap"] = bootstrap
            if test is not None:
                fields["test"] = test
        made = self.fields.get("v", __version__)
        fields["v"] = made
        return Signature(self.metric_set, fields if made == __version__ else {**fields, "drawn": __version__})

    def differences(self, other: Signature) -> dict[str, tuple[str | None, str | None]]:
        """Returns a mapping from each scoring field that differs between two signatures to the two values of the field.

        The following are ignored: the version, the fields of the sample (for example the number of records), and the
        fields of the intervals.
        """
        ours, theirs = self._decisive(), other._decisive()
        names = [*ours, *(name for name in theirs if name not in ours)]
        differing = {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}
        for name in WHERE_KNOWN & differing.keys():
            if None in differing[name]:
                del differing[name]
        if "claims" in differing:  # two readings always have two hashes
            differing.pop("reading", None)
        return differing

    def _decisive(self) -> dict[str, Any]:
        passed_over = SAMPLE | DRAWN | {"v"}
        named = {key: value for key, value in self.fields.items() if key not in passed_over}
        implied = {**IMPLIED, "judge": "unnamed"} if self.metric_set in JUDGED else IMPLIED
        return {"metrics": self.metric_set, **implied, **named}
