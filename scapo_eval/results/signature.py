"""Makes a score reproducible and two scores comparable, in one line beside every score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.reprs import one_line
from ..base.version import __version__

SAMPLE = frozenset(
    {
        *("n", "ids", "asked", "settings", "skip", "skipped", "missing", "unrated", "no_facts", "empty", "truth"),
        *("model", "file", "bad_files"),
    }
)
"""Fields that say which records were scored, and whose, not how: runs that differ in them alone are compared, on the
images that they share."""

TRUTH = frozenset({"oracle", "world", "dagger_oracle"})
"""Fields that name a truth, whatever it says of the images that were scored."""

WHERE_KNOWN = frozenset({"asked_with", "sampling"})
"""Fields that differ only where both signatures have them: not every file tells, older ones do not."""

DRAWN = frozenset({"bs", "seed", "ci", "bootstrap", "drawn", "interval", "test"})
"""Fields of the intervals and tests, which are drawn anew with every comparison."""

IMPLIED = {"claims": "all", "unparsed": "wrong"}
"""What a signature means that does not name the field (older results files)."""


JUDGED = ("faithscore",)
"""Metric sets of judged values whose older signatures name no judge."""


@dataclass(frozen=True, slots=True)
class Signature:
    """``metric_set|key:value|...|v:VERSION``: one line beside every score.

    Attributes:
        metric_set: name of the metric set (``capscore``, ``chair``...).
        fields: what decides the values, in the order of printing; ``v`` is the version that made the counts.
    """

    metric_set: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, metric_set: str, **fields: object) -> Signature:
        """Returns the signature of counts made by this version; fields whose value is None are omitted."""
        named = {key: str(value).replace("|", "/") for key, value in fields.items() if value is not None}
        return cls(metric_set, {**named, "v": __version__})

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Returns the inverse of ``str()``.

        Raises:
            ValueError: if it is not a valid signature.
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
        """Returns the text with the fields of the intervals: ``bs`` resamples, ``seed``, ``interval``, and ``ci``,
        ``bootstrap``, ``test``, ``drawn`` if there is something to say.

        ``drawn`` is the version that drew the intervals, if it is not the one that made the counts. A signature
        without ``interval`` is of a version that knew percentiles alone.
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
        """Returns a mapping: field -> both values, for every field in which two ways of scoring differ.

        Fields of the sample (how many records, which images), of the intervals and the version do not count.
        """
        ours, theirs = self._decisive(), other._decisive()
        names = [*ours, *(name for name in theirs if name not in ours)]
        differing = {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}
        for name in WHERE_KNOWN & differing.keys():
            if None in differing[name]:
                del differing[name]
        if "claims" in differing:  # two readings have two hashes
            differing.pop("reading", None)
        return differing

    def _decisive(self) -> dict[str, Any]:
        passed_over = SAMPLE | DRAWN | {"v"}
        named = {key: value for key, value in self.fields.items() if key not in passed_over}
        implied = {**IMPLIED, "judge": "unnamed"} if self.metric_set in JUDGED else IMPLIED
        return {"metrics": self.metric_set, **implied, **named}
