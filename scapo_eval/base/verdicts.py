"""Verdicts on claimed labels, with integer codes that oracles, rewards and reports share."""

from __future__ import annotations

from enum import IntEnum

PRESENT, ABSENT, UNKNOWN = 1, 0, -1
"""States of an (image, label) cell in an oracle."""


class Verdict(IntEnum):
    """Verdict on one claim. The first three codes equal the states of a cell, so that an array of states can be used as
    an array of verdicts.

    In the reward, which depends on the order of the pieces, ``REPEATED`` replaces ``SUPPORTED`` for a label that an
    earlier piece already claims. In evidence for human readers, ``NOT_COUNTED`` marks an ignore phrase or a mention
    that the selected reading omits.
    """

    UNKNOWN = UNKNOWN
    HALLUCINATED = ABSENT
    SUPPORTED = PRESENT
    REPEATED = 2
    NOT_COUNTED = 3

    @property
    def word(self) -> str:
        """Verdict in words, as written in files, tables and pages, for example ``supported`` or ``not counted``."""
        return self.name.lower().replace("_", " ")
