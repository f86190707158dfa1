"""Errors that users see: one line each, with the place and the remedy."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial


class ScapoError(ValueError):
    """Base of every error that is the user's to mend; the command line prints it and exits with 2."""


_LONGEST = 2000  # characters of a message: what it quotes may be of any length


def in_short(text: str) -> str:
    """Returns the beginning of a text that is too long for a message."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class InputError(ScapoError):
    """Input that cannot be used, printed as ``path:line: reason``.

    Args:
        reason: what is wrong, in words that say how to mend it.
        path: file (or ``<stdin>``, or any name of a source) where the fault lies; None if there is none.
        line: 1-based line number, None if a file has no lines.

    Example:
        >>> import scapo_eval
        >>> try:
        ...     scapo_eval.score([{"caption": "A dog."}], truth={1: ["dog"]})
        ... except scapo_eval.InputErrors as error:
        ...     print(error.errors[0].reason[:24])
        missing key 'image_id' (
    """

    alike: str = ""
    """What is said of faults of one kind after the first three, with their number; empty: each for itself."""

    def __init__(self, reason: str, *, path: str | os.PathLike[str] | None = None, line: int | None = None) -> None:
        self.reason = in_short(reason)
        self.path = None if path is None else str(path)
        self.line = line
        place = ":".join(str(part) for part in (self.path and in_short(self.path), line) if part is not None)
        super().__init__(f"{place}: {self.reason}" if place else self.reason)

    def behind(self, lines: int) -> InputError:
        """Returns the same fault behind so many lines."""
        if not lines or self.line is None:
            return self
        return type(self)(self.reason, path=self.path, line=self.line + lines)

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[()]]:
        return partial(type(self), self.reason, path=self.path, line=self.line), ()


class InputWarning(UserWarning):
    """Input that can be used and was perhaps meant otherwise; the command line prints it in one line."""


class OptionError(InputError):
    """Options that do not go together, or not with what is scored."""


class InputErrors(ScapoError):
    """Several faults of one input: the first 20 are printed, all are counted.

    Args:
        errors: the faults in reading order.
        total: how many there were, if more than ``errors`` holds.
        said: how many of them ``errors`` stands for, where one of it stands for several.
        remedy: last line of the message; empty for none.
    """

    SHOWN = 20

    def __init__(
        self, errors: Iterable[InputError], total: int | None = None, said: int | None = None, remedy: str = ""
    ) -> None:
        self.errors = list(errors)
        self.total = max(total or 0, len(self.errors))
        self.said = said if said is not None else min(len(self.errors), self.SHOWN)
        lines = [str(error) for error in self.errors[: self.SHOWN]]
        if self.total > self.said:
            lines.append(f"... and {self.total - self.said} more errors ({self.total} in total)")
        self.remedy = remedy
        super().__init__("\n".join([*lines, remedy] if remedy else lines))

    def __reduce__(self) -> tuple[type[InputErrors], tuple[list[InputError], int, int, str]]:
        return type(self), (self.errors, self.total, self.said, self.remedy)


MAX_FAULTS = 100_000
"""Faults of one input after which reading stops."""


_ALIKE = 3


class FaultList:
    """Collects faults, or hands each to a callback; raises what it collected, one fault per file and reason."""

    def __init__(self, on_error: Callable[[InputError], None] | None = None) -> None:
        self.total = 0
        self._lines: dict[tuple[str | None, str], list[int]] = {}  # first and last line of each, and how many
        self._first: list[InputError] = []
        self._on_error = on_error

    @property
    def errors(self) -> list[InputError]:
        """The first faults that were collected; one that occurs in several lines is there once, with its count."""
        return [self._said(error) for error in self._first]

    @property
    def records(self) -> list[int]:
        """The number of records that each of :attr:`errors` represents."""
        return [self._lines[error.path, error.reason][2] for error in self._first]

    def add(self, error: InputError) -> None:
        """Takes a fault."""
        self.total += 1
        if self._on_error is not None:
            self._on_error(error)
            return
        if error.alike and sum(known.alike == error.alike for known in self._first) == _ALIKE:
            error = InputError(error.alike, path=error.path, line=error.line)
        key = (error.path, error.reason)
        line = error.line or 0
        if known := self._lines.get(key):
            known[:] = min(known[0], line), max(known[1], line), known[2] + 1
        elif len(self._lines) < InputErrors.SHOWN:
            self._lines[key] = [line, line, 1]
            self._first.append(error)
        if self.total >= MAX_FAULTS:
            self.raise_if_any()

    def _said(self, error: InputError) -> InputError:
        first, last, count = self._lines[error.path, error.reason]
        if count == 1 or not error.line:
            return error
        return InputError(f"{error.reason} ({count:,} records, lines {first}-{last})", path=error.path, line=first)

    def raise_if_any(self, remedy: str = "") -> None:
        """Raises InputErrors when faults were collected.

        Args:
            remedy: last line of the message.
        """
        if self._first:
            raise InputErrors(self.errors, self.total, sum(self.records), remedy)


class MissingExtra(ScapoError):
    """A missing optional part, with the command that installs it.

    Args:
        extra: name of the extra in pyproject.toml.
        needed_for: what the user asked for.
    """

    def __init__(self, extra: str, needed_for: str) -> None:
        from .installed import install_command  # importlib.metadata takes 20 ms

        self.extra = extra
        self.needed_for = needed_for
        super().__init__(f"{needed_for} needs the extra '{extra}': {install_command(extra)}")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.extra, self.needed_for)


def check_choice(name: str, value: object, allowed: Sequence[str], more: str = "") -> None:
    """Raises InputError where a setting is none of the allowed values.

    Args:
        name: of the setting.
        value: its value.
        allowed: the values that there are.
        more: what else is allowed, for the message.
    """
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}{more}, got {value!r}")


def cause(error: Exception) -> str:
    """Returns the first cause of an engine's failure as one line: an error, without the names of its workers."""
    match = re.search(r"^(?!ray\.|pyspark\.)[\w.]*(?:Error|Exception):\s+\S.*$", str(error), re.MULTILINE)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(match[0].split()) if match else lines[-1]


UNFIT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a record leads to that has not the form it should have."""


def unfit(error: Exception) -> str:
    """Returns why a record cannot be read, for a message: the text of a ValueError, and for another error its type,
    too.
    """
    return str(error) if isinstance(error, ValueError) else f"not a valid record ({type(error).__name__}: {error})"


def short_repr(value: object) -> str:
    """Returns the ``repr`` of a value in 60 characters, for a message; of a deep or huge one only the beginning is
    read.
    """
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 60, 60, 60
