"""Defines the verdicts on a claimed label, in one code from the oracle to the page of a report."""

from __future__ import annotations

from enum import IntEnum

PRESENT, ABSENT, UNKNOWN = 1, 0, -1
"""States of a cell (image, label) of an oracle."""


class Verdict(IntEnum):
    """The verdict on one claim. The first three are the states of its cell, so arrays of states are verdicts.

    ``REPEATED`` refines ``SUPPORTED`` where the order of the pieces counts (the reward); ``NOT_COUNTED`` is a mention
    that the chosen reading omits, or an ignore phrase (evidence for people).
    """

    UNKNOWN = UNKNOWN
    HALLUCINATED = ABSENT
    SUPPORTED = PRESENT
    REPEATED = 2
    NOT_COUNTED = 3

    @property
    def word(self) -> str:
        """Returns the verdict as files, tables and pages write it: ``supported``, ``not counted``."""
        return self.name.lower().replace("_", " ")
