"""Export of a round's pairs as a table, and import of the answers, for labs that use their own annotation tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
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
"""Columns of the pairs. In a run of claims, ``label`` is the kind, and ``claim`` replaces ``definition``."""

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
    writer.writerow("claim" if store.claims and name == "definition" else name for name in COLUMNS)
    pairs = round_.draw.pairs
    for row, label_id, answer in zip(pairs.rows.tolist(), pairs.label_ids.tolist(), round_.answers, strict=True):
        cell, info = store.name_of(row, label_id), store.vocabulary.info.get(store.labels[label_id])
        asked = cell.get("claim", info.definition if info else "")
        writer.writerow(map(guarded, (cell["image_id"], store.paths[row], cell["label"], asked, answer or "")))
    return text.getvalue().encode("utf-8", "surrogatepass")


def read_answers(path: str, round_: Round, store: Store) -> list[tuple[int, PersonAnswer]]:
    """Reads the new answers to a round's pairs from CSV (with a header) or JSON Lines. The fields are ``image_id,
    label, verdict`` and, in a run of claims, ``claim``.

    Lines without a verdict and answers that the round already contains are skipped.

    Raises:
        InputErrors: If a pair is not in the round, if a verdict is invalid, or if an answer contradicts an earlier
            answer.
    """
    pairs = round_.draw.pairs
    cells = [*zip(pairs.rows.tolist(), pairs.label_ids.tolist(), strict=True)]
    position = {cell: pair for pair, cell in enumerate(cells)}
    needed = [*store.name_of(*cells[0]), "verdict"]
    name = display_name(path)
    faults = FaultList()
    answers: dict[int, PersonAnswer] = {}
    for line, record in _records(read_bytes(path), name, needed, faults):
        if missing := [key for key in needed if key not in record]:
            keys = ", ".join(map(str, list(record)[:6]))
            faults.add(InputError(f"missing key '{missing[0]}' (found: {keys})", path=name, line=line))
            continue
        verdict = record["verdict"]
        if verdict is None or not str(verdict).strip():
            continue
        answer = WORDS.get(str(verdict).strip().casefold())
        try:
            cell = store.find({**record, "image_id": canonical_image_id(record["image_id"])})
            pair = None if cell is None else position.get(cell)
        except ValueError as error:
            faults.add(InputError(f"'image_id' {error}", path=name, line=line))
            continue
        if answer is None:
            faults.add(
                InputError(f"'verdict' must be yes, no, unsure or missing, not {verdict!r}", path=name, line=line)
            )
        elif pair is None:
            what = record.get("claim") if store.claims else record["label"]
            asked = f"round {round_.number} does not contain '{what}' in image {record['image_id']}"
            faults.add(InputError(asked, path=name, line=line))
        elif answers.get(pair, round_.answers[pair]) not in (None, answer):
            before = answers.get(pair, round_.answers[pair])
            faults.add(InputError(f"the pair already has the answer '{before}', not '{answer}'", path=name, line=line))
        elif round_.answers[pair] is None:
            answers[pair] = answer
    faults.raise_if_any()
    return list(answers.items())


def _records(data: bytes, name: str, needed: Sequence[str], faults: FaultList) -> Iterator[tuple[int, dict[str, Any]]]:
    if data.lstrip()[:1] in (b"{", b"["):
        yield from records_of(data, name, on_error=faults.add)
        return
    if not_utf8(data) is not None:
        raise InputError("not a valid UTF-8 text; save the table as UTF-8", path=name)
    first = data.split(b"\n", 1)[0].decode()
    reader = csv_reader(data, max(",;\t", key=first.count))
    try:
        header = next(reader, [])
        if not {*needed} <= set(header):
            columns = f"{', '.join(needed[:-1])} and {needed[-1]}"
            raise InputError(f"expected a header line with the columns {columns}", path=name, line=1)
        if twice := [column for column in needed if header.count(column) > 1]:
            raise InputError(f"the column '{twice[0]}' appears twice", path=name, line=1)
        for cells in filter(None, reader):
            if len(cells) > len(header):
                reason = f"the line has {len(cells)} cells, but the header has {len(header)}"
                faults.add(InputError(reason, path=name, line=reader.line_num))
                continue
            yield reader.line_num, dict(zip(header, chain(map(unguarded, cells), repeat("")), strict=False))
    except csv.Error as error:
        raise InputError(f"not a valid CSV file: {error}", path=name, line=reader.line_num) from None
