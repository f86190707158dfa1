"""User-facing exceptions, whose one-line messages state where a problem is and how to fix it."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType


class ScapoError(ValueError):
    """Base class of all errors that the user can fix. The command-line programs print the error and exit with code 2.

    Example:
        >>> import scapo_eval
        >>> try:
        ...     scapo_eval.score("no_such_file.jsonl", truth={1: ["dog"]})
        ... except scapo_eval.ScapoError as error:
        ...     print(error)
        no_such_file.jsonl: file not found
    """


_LONGEST = 2000  # maximum length of a message, because quoted input can be of any length


def in_short(text: str) -> str:
    """Returns a text, truncated if it is too long for a message."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def misspelled(
    keys: Iterable[object], known: Sequence[str], other_names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """Yields the unknown keys of a record that resemble a known key or are another name of it, each with the known key.

    Args:
        keys: Keys of the record, which determine the order.
        known: Known keys.
        other_names: Mapping from other names of known keys, in lower case, to the known keys.
    """
    for key in map(str, keys):
        word = key.casefold()
        meant = [other_names[word]] if word in other_names else get_close_matches(word, known, n=1, cutoff=0.75)
        if key not in known and meant and meant[0] in known:
            yield key, meant[0]


def in_one_line(error: object, longest: int = 300) -> str:
    """Returns the text of an exception on one line, truncated to a number of characters. For an exception without a
    text, the result is the name of its type.
    """
    return " ".join(str(error).split())[:longest] or type(error).__name__


class InputError(ScapoError):
    """An error for unusable input, printed as ``path:line: reason``.

    Args:
        reason: Description of the problem and its remedy.
        path: Name of the file with the problem, ``<stdin>``, or the name of another source. The value is None if the
            problem has no source.
        line: Line number, counted from 1. The value is None if the source has no lines.

    Example:
        >>> import scapo_eval
        >>> try:
        ...     scapo_eval.score([{"caption": "A dog."}], truth={1: ["dog"]})
        ... except scapo_eval.InputErrors as error:
        ...     print(error.errors[0].reason[:24])
        missing key 'image_id' (
    """

    alike: str = ""
    """Summary message that replaces further errors of the same kind after the first three. The value is empty if each
    error is reported.
    """

    def __init__(self, reason: str, *, path: str | os.PathLike[str] | None = None, line: int | None = None) -> None:
        self.reason = in_short(reason)
        self.path = None if path is None else str(path)
        self.line = line
        place = ":".join(str(part) for part in (self.path and in_short(self.path), line) if part is not None)
        super().__init__(f"{place}: {self.reason}" if place else self.reason)

    def behind(self, lines: int) -> InputError:
        """Returns the same error with its line number increased by ``lines``."""
        if not lines or self.line is None:
            return self
        return type(self)(self.reason, path=self.path, line=self.line + lines)

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[()]]:
        return partial(type(self), self.reason, path=self.path, line=self.line), ()


class NoRecords(InputError):
    """An error for a file without records. Among several files of one system, such a file is not an error."""


class InputWarning(UserWarning):
    """A warning about input that is usable but may not be what the user intended. The command-line programs print the
    warning on one line.
    """


class OptionError(InputError):
    """An error for options that cannot be combined with each other or with the scored input."""


class InputErrors(ScapoError):
    """Several errors in one input. The first 20 errors are printed, and all errors are counted.

    Args:
        errors: Errors in the order in which they were found.
        total: Number of errors, if larger than the length of ``errors``.
        said: Total number of errors that the entries of ``errors`` represent, if some entries represent several errors.
        remedy: Text at the end of the message, or an empty string for no text. After several errors, the text is
            printed on its own line.

    Example:
        >>> import scapo_eval
        >>> try:
        ...     scapo_eval.score([{"image_id": 1}, {"caption": "A dog."}], truth={1: ["dog"]})
        ... except scapo_eval.InputErrors as errors:
        ...     print(errors.total, [error.line for error in errors.errors])
        2 [1, 2]
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
        super().__init__(("; " if len(lines) == 1 else "\n").join([*lines, remedy] if remedy else lines))

    def __reduce__(self) -> tuple[type[InputErrors], tuple[list[InputError], int, int, str]]:
        return type(self), (self.errors, self.total, self.said, self.remedy)


MAX_FAULTS = 100_000
"""Number of faults in one input after which reading stops."""


_ALIKE = 3


class FaultList:
    """Collector that either groups faults by file and reason or passes each fault to a callback."""

    def __init__(self, on_error: Callable[[InputError], None] | None = None) -> None:
        self.total = 0
        # first and last line of each message, and the number of repetitions
        self._lines: dict[tuple[str | None, str], list[int]] = {}
        self._first: list[InputError] = []
        self._on_error = on_error

    @property
    def errors(self) -> list[InputError]:
        """The first distinct faults that were collected. A fault that occurs on several lines is listed once, with its
        number of occurrences.
        """
        return [self._said(error) for error in self._first]

    @property
    def records(self) -> list[int]:
        """Number of faulty records that each entry of :attr:`errors` represents."""
        return [self._lines[error.path, error.reason][2] for error in self._first]

    def add(self, error: InputError) -> None:
        """Adds a fault to the list, or passes the fault to the callback if there is one."""
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
        if count == 1:
            return error
        counted = f" ({count:,} records, lines {first}-{last})" if error.line else f" ({count:,} records)"
        reason, _, remedy = error.reason.rpartition("; ")
        said = f"{reason}{counted}; {remedy}" if ": scapo-eval " in remedy else f"{error.reason}{counted}"
        return InputError(said, path=error.path, line=first if error.line else error.line)

    def raise_if_any(self, remedy: str = "") -> None:
        """Raises InputErrors if faults were collected.

        Args:
            remedy: Text that ends the message.
        """
        if self._first:
            raise InputErrors(self.errors, self.total, sum(self.records), remedy)


class MissingExtra(ScapoError):
    """An error for a missing optional dependency, with the command that installs it.

    Args:
        extra: Name of the extra in pyproject.toml.
        needed_for: Feature that requires the extra.

    Example:
        >>> import scapo_eval
        >>> error = scapo_eval.MissingExtra("nltk", "the reading of OPERA's script")
        >>> str(error).startswith("the reading of OPERA's script needs the extra 'nltk'")
        True
    """

    def __init__(self, extra: str, needed_for: str) -> None:
        from .installed import install_command  # importlib.metadata takes 20 ms

        self.extra = extra
        self.needed_for = needed_for
        super().__init__(f"{needed_for} needs the extra '{extra}': {install_command(extra)}")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.extra, self.needed_for)


def check_choice(name: str, value: object, allowed: Sequence[str], more: str = "") -> None:
    """Raises an InputError if the value of a setting is not allowed.

    Args:
        name: Name of the setting.
        value: Value of the setting.
        allowed: Allowed values.
        more: Description of further allowed values, which is added to the message.
    """
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}{more}, got {value!r}")


def cause(error: Exception) -> str:
    """Returns the original cause of an engine failure as one line. Exceptions from Ray or PySpark that wrap the cause
    are omitted. In a trace of Java without an exception of Python, the first cause names the failed task.
    """
    text = str(error)
    match = re.search(r"^(?!ray\.|pyspark\.)[\w.]*(?:Error|Exception):\s+\S.*$", text, re.MULTILINE)
    match = match or re.search(r"(?<=^Caused by: ).+$", text, re.MULTILINE)
    lines = text.strip().splitlines() or [type(error).__name__]
    return " ".join(match[0].split()) if match else lines[-1]


UNFIT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that can occur when a record with an unexpected structure is read."""


def unfit(error: Exception) -> str:
    """Returns a message text that states why a record cannot be read.

    For a ValueError, the reason is the text of the exception. For other exceptions, the reason includes the type of the
    exception.
    """
    return str(error) if isinstance(error, ValueError) else f"not a valid record ({type(error).__name__}: {error})"


def short_repr(value: object) -> str:
    """Returns the ``repr`` of a value, truncated to 60 characters. Only the beginning of a large or nested value is
    formatted.
    """
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 60, 60, 60
