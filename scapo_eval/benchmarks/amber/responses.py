"""Reader for a system's answers to AMBER. The reader validates the answers and joins them with AMBER's items by id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import UNFIT, FaultList, InputError, unfit
from ...base.ids import canonical_image_id
from ...base.reprs import fields_in_short
from ...base.types import Answer
from ...files.fields import split_by_import
from ...files.files import display_name
from ...files.json_text import iter_records, json_type
from ...files.records import Readable, Records
from ...files.source import Source
from ...readers.formats import AMBER_DESCRIPTIONS
from ...readers.parsers import Parser, YesNo, amber, contains, first_word
from ...results.benchmark import benchmarks
from ...segmenting.unfinished import without_unfinished
from .data import AmberData, AmberItem, Description

FEW = 20
"""Minimum number of answers to one task for a guess at their benchmark."""


LAST_ID = 15220
"""Highest id among AMBER's queries."""


def recognize(answers: Sequence[Answer]) -> str | None:
    """Returns a name for an answer file, such as "AMBER's descriptions", if its ids and texts can belong to AMBER,
    otherwise None.
    """
    numbers = [int(answer.id) for answer in answers if re.fullmatch(r"\d{1,9}", answer.id, re.ASCII)]
    if not numbers or len(numbers) < len(answers):
        return None
    if min(numbers) > AMBER_DESCRIPTIONS and max(numbers) <= LAST_ID:
        return "AMBER's discriminative answers"
    length = sum(len(answer.response) for answer in answers) / len(answers)
    return "AMBER's descriptions" if max(numbers) <= AMBER_DESCRIPTIONS and length > 60 else None


@dataclass(frozen=True, slots=True)
class AmberResponse:
    """One answer to an item of AMBER.

    Attributes:
        line: Number of the line or array element in the file, starting at 1.
        number: Id of the item.
        item: AMBER item that the answer belongs to.
        text: Text of the answer, or an empty string for a null, which the official script scores as a wrong answer.
    """

    line: int
    number: int
    item: AmberItem
    text: str

    __repr__ = fields_in_short


@dataclass(slots=True)
class Responses:
    """All AMBER answers in one file.

    Attributes:
        scored: Scored answers, in the order of the file.
        duplicate: Number of repeated answers to an item. Repeated answers are omitted, except in the official reading,
            which scores them.
        unknown: Number of answers with an unknown id. They are omitted. In the official reading, ids below 1 are scored
            through Python's negative indexing.
        skipped: Number of omitted faulty records.
        notes: Sentences with facts that a reader of the scores should know.
        unfinished: Number of descriptions from which an unfinished last sentence was removed, or None if removal was
            not requested.
        model: Name of the model, if the records contain it.
    """

    scored: list[AmberResponse] = field(default_factory=list)
    duplicate: int = 0
    unknown: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    unfinished: int | None = None
    model: str | None = None

    __repr__ = fields_in_short

    def without_unfinished(self) -> Responses:
        """Returns a copy in which unfinished last sentences of descriptions are removed."""
        texts = [
            without_unfinished(response.text) if isinstance(response.item, Description) else response.text
            for response in self.scored
        ]
        pairs = list(zip(self.scored, texts, strict=True))
        return replace(
            self,
            scored=[response if response.text is text else replace(response, text=text) for response, text in pairs],
            unfinished=sum(response.text is not text for response, text in pairs),
        )


def read_responses(path: Readable, data: AmberData, *, official: bool = False, skip_bad: bool = False) -> Responses:
    """Reads ``{"id", "response"}`` records from a JSON array or JSON Lines, plain or compressed.

    Args:
        path: Path of the file, ``-`` for standard input, or records in memory.
        data: Annotations and questions of AMBER.
        official: True for the official reading, which accepts everything that the official script accepts. In the
            official reading, repeated items are counted each time, and the ids 0, -1... refer to positions from the
            end. The value true is read as 1, null counts as a wrong answer to a question, and an empty list counts as a
            valid run.
        skip_bad: True to omit and count faulty records.

    Raises:
        InputErrors: If records are faulty and ``skip_bad`` is False. The following are faults: a missing or unknown id,
            a missing text, different answers to one item, an image that does not match the item, and answers from
            several models.
        InputError: If the file does not contain AMBER answers, or if it contains no answers that can be scored.
    """
    name = display_name(path)
    path = path if isinstance(path, Records) else Source.of(path)
    responses = Responses()
    reader = _Reader(name, data, official, responses)
    faults = FaultList((lambda error: _skip(responses)) if skip_bad else None)
    if official and _is_empty_list(path):
        return responses
    for line, record in iter_records(path, on_error=faults.add):
        if not (responses.scored or faults.total or {"id", "response"} <= record.keys()) and (hint := _hint(path)):
            raise InputError(f"not valid AMBER answers{hint}", path=name, line=line)
        try:
            reader.take(line, record)
        except UNFIT as error:
            faults.add(InputError(unfit(error), path=name, line=line))
    if reader.strangers and not responses.scored and len(reader.strangers) == faults.total:
        line, value = reader.strangers[0]
        raise InputError(f"none of the ids is an AMBER id (first: {value}){_hint(path)}", path=name, line=line)
    faults.raise_if_any()
    if not responses.scored:
        raise InputError(f"no answer can be scored, {responses.skipped:,} records are faulty", path=name)
    _refuse_other_benchmarks(name, responses.scored)
    return responses


def _skip(responses: Responses) -> None:
    responses.skipped += 1


def _is_empty_list(path: Readable) -> bool:
    if isinstance(path, Records):
        return not path.rows
    return b"".join(Source.of(path).head[:100].split()) == b"[]"


class _Reader:
    """Reader for single records; it remembers the items that have already been answered."""

    def __init__(self, name: str, data: AmberData, official: bool, responses: Responses) -> None:
        self.strangers: list[tuple[int, str]] = []
        self._name, self._data, self._official, self._responses = name, data, official, responses
        self._first: dict[int, AmberResponse] = {}

    def take(self, line: int, record: Mapping[str, Any]) -> None:
        """Adds the answer in a record to the answers read so far.

        Raises:
            ValueError: If the record cannot be used. The message states the reason.
        """
        number = self._number(line, record)
        item = self._data.items[number - 1]
        response = AmberResponse(line, number, item, self._text(record, item))
        if not self._official:
            self._check(record, number)
        earlier = self._first.setdefault(number, response)
        if earlier is not response:
            if earlier.text != response.text and not self._official:
                raise ValueError(f"id {number} has another answer on line {earlier.line}")
            self._responses.duplicate += 1
            if not self._official:
                return
        self._responses.scored.append(response)

    def _number(self, line: int, record: Mapping[str, Any]) -> int:
        value = _value(record, "id")
        number = int(value) if isinstance(value, bool) and self._official else _whole_number(value)
        n = len(self._data.items)
        if number is not None and 1 <= number <= n:
            return number
        self._responses.unknown += 1
        if number is None or not -n < number < 1 or not self._official:
            self.strangers.append((line, repr(value)))
            raise ValueError(f"id {value!r} is not an AMBER id (1 to {n:,})")
        note = f"ids below 1 count from the end (0 is {n:,}), as in the official script"
        if note not in self._responses.notes:
            self._responses.notes.append(note)
        return n + number

    def _text(self, record: Mapping[str, Any], item: AmberItem) -> str:
        value = _value(record, "response")
        if isinstance(value, str):
            return value
        if self._official and not isinstance(item, Description):
            return ""
        raise ValueError(f"'response' must be a string, found {json_type(value)}")

    def _check(self, record: Mapping[str, Any], number: int) -> None:
        image = record.get("image")
        if isinstance(image, str) and self._data.images and canonical_image_id(image) != self._data.images[number - 1]:
            raise ValueError(
                f"id {number} is a question about image {self._data.images[number - 1]}, "
                f"but this answer is about {image}"
            )
        model = record.get("model", record.get("model_id"))
        if model is not None and self._responses.model not in (None, str(model)):
            first = f"answers from two models, {self._responses.model!r} and {model!r}"
            raise ValueError(f"{first}; {split_by_import(self._name)}")
        if model is not None:
            self._responses.model = str(model)


def _value(record: Mapping[str, Any], key: str) -> Any:
    try:
        return record[key]
    except KeyError:
        raise ValueError(f"missing key {key!r} (found: {', '.join(record) or 'nothing'})") from None


def _whole_number(value: object) -> int | None:
    """Converts ``7``, ``7.0``, ``"7"`` and ``"007"`` to the integer 7. Returns None for values that are not
    integers.
    """
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,9}\s*", value, re.ASCII):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _hint(path: Readable) -> str:
    """Returns a phrase that states what the file probably is, or an empty string."""
    from ..provenance import file_looks_like

    looks = file_looks_like(path)
    return f"; they look like {looks}" if looks else ""


def _refuse_other_benchmarks(name: str, scored: Sequence[AmberResponse]) -> None:
    """Raises an error if the ids belong to AMBER but the texts cannot be answers to AMBER's items."""
    described = [r.text for r in scored if isinstance(r.item, Description)]
    if len(described) >= FEW and _share(described, _is_bare_yes_or_no) > 0.5:
        reason = (
            "most answers to 'Describe this image.' (ids 1 to 1004) are a bare yes or no: these look like the answers"
        )
        raise InputError(f"{reason} of a yes/no benchmark (scapo-eval {_others()})", path=name)
    answered = [r.text for r in scored if not isinstance(r.item, Description) and r.text]
    if len(answered) >= FEW and _share(answered, lambda text: contains(text) is None and len(text) > 100) > 0.5:
        reason = (
            "most answers to yes/no questions (ids from 1005) are long and contain neither: these look like captions"
        )
        raise InputError(f"{reason} (scapo-eval score or chair)", path=name)


def _share(texts: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, texts)) / len(texts)


def _is_bare_yes_or_no(text: str) -> bool:
    return len(text) < 20 and first_word(text) is not None


_LETTERS = re.compile(r"[A-Za-z]+")
_SAID: Mapping[str, YesNo] = {"yes": "yes", "no": "no"}


def first_letters(response: str) -> YesNo | None:
    """Returns the first run of ASCII letters in an answer if this run is "yes" or "no", regardless of case. ``1.
    ``**Yes**, there is`` is parsed as "yes".
    """
    match = _LETTERS.search(response)
    return _SAID.get(match.group().lower()) if match else None


ANSWERS: Mapping[str, Parser] = {"exact": amber, "first-word": first_letters}
"""Parsing rules for yes/no answers: an exact match as in the official script, or the first word."""


def coverage(answered: Iterable[int], data: AmberData) -> Iterator[str]:
    """Yields one sentence for each task that was only partly answered. ``answered`` contains the distinct ids of the
    answered items.
    """
    described = [isinstance(data.items[number - 1], Description) for number in answered]
    for task, n in {"generative": sum(described), "discriminative": described.count(False)}.items():
        size = data.sizes[task]
        if 0 < n < size:
            yield f"partial run: {n:,} of {size:,} {task} items answered ({100 * n / size:.1f} %)"


def _others() -> str:
    """Returns the commands for the other benchmarks with yes/no answers."""
    *most, last = (benchmark.verb for benchmark in benchmarks() if benchmark.augmented and benchmark.name != "amber")
    return f"{', '.join(most)} or {last}"
