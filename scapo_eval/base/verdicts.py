"""Verdicts on claimed labels, coded in the same way in oracles, rewards and reports."""

from __future__ import annotations

from enum import IntEnum

PRESENT, ABSENT, UNKNOWN = 1, 0, -1
"""States of an (image, label) cell in an oracle."""


class Verdict(IntEnum):
    """The verdict on one claim. The first three codes equal the states of a cell, so arrays of states are also
    verdicts.

    ``REPEATED`` refines ``SUPPORTED`` if the order of the pieces matters (the reward). ``NOT_COUNTED`` marks, in
    evidence for people, an ignore phrase or a mention that the chosen reading omits.
    """

    UNKNOWN = UNKNOWN
    HALLUCINATED = ABSENT
    SUPPORTED = PRESENT
    REPEATED = 2
    NOT_COUNTED = 3

    @property
    def word(self) -> str:
        """The verdict in words, as in files, tables and pages: ``supported``, ``not counted``."""
        return self.name.lower().replace("_", " ")
