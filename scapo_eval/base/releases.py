"""Comparison of versions of packages."""

from __future__ import annotations

import re


def fits(installed: str, wanted: str) -> bool:
    """Returns True if a version is within a range such as ``>=2.9,<2.14``. Only the numeric parts of the version are
    compared.
    """
    for bound in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(>=|<=|==|!=|~=|<|>)\s*([\w.+]+)", bound)
        if match is None:
            continue
        numbers, limit = release_of(installed), release_of(match[2])
        kept = {
            ">=": numbers >= limit,
            "~=": numbers >= limit,
            "<=": numbers <= limit,
            "==": numbers == limit,
            "!=": numbers != limit,
            "<": numbers < limit,
            ">": numbers > limit,
        }
        if not kept[match[1]]:
            return False
    return True


def release_of(text: str) -> tuple[int, ...]:
    """Returns the numeric parts of a version, extended with zeros to at least four numbers."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(number) for number in release.group().split(".")] if release else []
    return tuple(numbers + [0] * (4 - len(numbers)))
