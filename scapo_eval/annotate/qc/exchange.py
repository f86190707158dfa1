"""Export of a round's pairs as a table, and import of the answers, for labs that use their own annotation tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

from ...base.errors import FaultList, InputError
from ...base.ids import canonical_image_id
from ...base.text import guarded, unguarded
from ...files.containers import csv_reader
from ...files.files import display_name, not_utf8, read_bytes
from ...files.json_text import records_of
from ..store import Store
from .rounds import PersonAnswer, Round

COLUMNS = ("image_id", "image", "label", "definition", "verdict")

WORDS: dict[str, PersonAnswer] = {
    **dict.fromkeys(("yes", "y", "1", "true", "present", "supported"), "yes"),
    **dict.fromkeys(("no", "n", "0", "false", "absent", "unsupported"), "no"),
    **dict.fromkeys(("unsure", "u", "?"), "unsure"),
    **dict.fromkeys(("missing",), "missing"),
}
"""Mapping from accepted spellings of a verdict, in lower case, to the answer."""


def pairs_table(round_: Round, store: Store) -> bytes:
    """Returns the pairs of a round as CSV, in the order of the questions, with the existing answers.

    The judge's verdicts are omitted.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    pairs = round_.draw.pairs
    for row, label_id, answer in zip(pairs.rows.tolist(), pairs.label_ids.tolist(), round_.answers, strict=True):
        label = store.labels[label_id]
        definition = store.vocabulary.info[label].definition if label in store.vocabulary.info else ""
        writer.writerow(map(guarded, (store.image_ids[row], store.paths[row], label, definition, answer or "")))
    return text.getvalue().encode("utf-8", "surrogatepass")


def read_answers(path: str, round_: Round, store: Store) -> list[tuple[int, PersonAnswer]]:
    """Returns the new answers to a round's pairs, read from CSV (with a header) or JSON Lines with ``image_id, label,
    verdict``.

    Lines without a verdict and answers that the round already contains are skipped.

    Raises:
        InputErrors: If a pair is not in the round, if a verdict is invalid, or if an answer contradicts an earlier
            answer.
    """
    pairs = round_.draw.pairs
    position = {
        (store.image_ids[row], store.labels[label]): pair
        for pair, (row, label) in enumerate(zip(pairs.rows.tolist(), pairs.label_ids.tolist(), strict=True))
    }
    name = display_name(path)
    faults = FaultList()
    answers: dict[int, PersonAnswer] = {}
    for line, record in _records(read_bytes(path), name, faults):
        if missing := [key for key in ("image_id", "label", "verdict") if key not in record]:
            keys = ", ".join(map(str, list(record)[:6]))
            faults.add(InputError(f"missing key '{missing[0]}' (found: {keys})", path=name, line=line))
            continue
        verdict = record["verdict"]
        if verdict is None or not str(verdict).strip():
            continue
        answer = WORDS.get(str(verdict).strip().casefold())
        try:
            pair = position.get((canonical_image_id(record["image_id"]), record["label"]))
        except ValueError as error:
            faults.add(InputError(f"'image_id' {error}", path=name, line=line))
            continue
        if answer is None:
            faults.add(
                InputError(f"'verdict' must be yes, no, unsure or missing, not {verdict!r}", path=name, line=line)
            )
        elif pair is None:
            asked = f"round {round_.number} does not ask for '{record['label']}' in image {record['image_id']}"
            faults.add(InputError(asked, path=name, line=line))
        elif answers.get(pair, round_.answers[pair]) not in (None, answer):
            before = answers.get(pair, round_.answers[pair])
            faults.add(
                InputError(f"the pair is answered already, with '{before}', not '{answer}'", path=name, line=line)
            )
        elif round_.answers[pair] is None:
            answers[pair] = answer
    faults.raise_if_any()
    return list(answers.items())


def _records(data: bytes, name: str, faults: FaultList) -> Iterator[tuple[int, dict[str, Any]]]:
    if data.lstrip()[:1] in (b"{", b"["):
        yield from records_of(data, name, on_error=faults.add)
        return
    if not_utf8(data) is not None:
        raise InputError("not a valid UTF-8 text; save the table as UTF-8", path=name)
    first = data.split(b"\n", 1)[0].decode()
    reader = csv_reader(data, max(",;\t", key=first.count))
    try:
        header = next(reader, [])
        if not {"image_id", "label", "verdict"} <= set(header):
            raise InputError("expected a header line with the columns image_id, label and verdict", path=name, line=1)
        for cells in filter(None, reader):
            yield reader.line_num, dict(zip(header, chain(map(unguarded, cells), repeat("")), strict=False))
    except csv.Error as error:
        raise InputError(f"not a valid CSV file: {error}", path=name, line=reader.line_num) from None
