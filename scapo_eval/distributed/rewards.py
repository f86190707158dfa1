"""Computation of SCAPO's reward for Arrow tables of responses, and addition of the reward as columns to a distributed
data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import InputError
from ..rewarding.reward import RewardColumns, SubsentenceReward
from .batch import check_columns, pa

BATCH_ROWS = 1024
"""Number of responses per batch, for one pass of the matcher."""

COUNTS = ("generated", "hallucinated", "covered", "unknown")


def reward_fields() -> list[Any]:
    """Returns the pyarrow fields of the columns that are added with the rewards.

    - ``reward``: the sum of the rewards of the response's pieces.
    - ``generated``, ``hallucinated``, ``covered``, ``unknown``: numbers of labels that the response claims,
      hallucinates and covers, and the number of claimed labels whose cell is unknown.
    - ``parts``: for each piece, its ``start`` and ``end`` in characters, its ``reward``, and its numbers of new
      (``new``), repeated (``rep``) and hallucinated (``hal``) labels.
    - ``error``: the reason why a response has no reward (only with ``on_error="zero"``), or null.
    """
    part = [("start", pa.int32()), ("end", pa.int32()), ("reward", pa.float64())]
    part += [(name, pa.int64()) for name in ("new", "rep", "hal")]
    columns = [("reward", pa.float64()), *((name, pa.int64()) for name in COUNTS)]
    return [pa.field(*column) for column in [*columns, ("parts", pa.list_(pa.struct(part))), ("error", pa.string())]]


def check_reward_columns(names: Sequence[str], image_id: str, response: str) -> None:
    """Checks that a data set has the columns with image ids and responses, and no column with the name of a reward
    column.

    Raises:
        InputError: If a required column is missing or a reward column already exists. The error message names the
            column.
    """
    check_columns(names, (image_id, response))
    if hidden := [field.name for field in reward_fields() if field.name in names]:
        raise InputError(f"the data set has a column '{hidden[0]}' already; rename or drop it")


def with_rewards(reward: SubsentenceReward, table: Any, image_id: str, response: str) -> Any:
    """Adds the columns of :func:`reward_fields` to a table of responses.

    Args:
        reward: Reward to compute.
        table: A pyarrow Table or RecordBatch of any size, with one response per row.
        image_id: Name of the column with the image ids.
        response: Name of the column with the responses.

    Returns:
        A pyarrow Table with the same rows in the same order, and the additional columns of :func:`reward_fields`.

    Raises:
        InputError, InputErrors: If rows are invalid, unless the reward was created with ``on_error="zero"``.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    pieces = [table.slice(k, BATCH_ROWS) for k in range(0, table.num_rows, BATCH_ROWS)]
    blocks = [
        _columns(reward.batch(*(piece.column(name).to_pylist() for name in (image_id, response)), whole=False))
        for piece in pieces
    ]
    added = pa.concat_tables(blocks) if blocks else pa.schema(reward_fields()).empty_table()
    for field in reward_fields():
        table = table.append_column(field, added.column(field.name))
    return table


def _columns(columns: RewardColumns) -> Any:
    fields = {field.name: field for field in reward_fields()}
    struct = fields["parts"].type.value_type
    parts = pa.StructArray.from_arrays(
        [pa.array(getattr(columns, member.name), member.type) for member in struct], fields=list(struct)
    )
    values = {
        "reward": columns.total,
        **{name: getattr(columns, name) for name in COUNTS},
        "parts": pa.ListArray.from_arrays(pa.array(columns.indptr, pa.int32()), parts),
        "error": [str(columns.errors[k]) if k in columns.errors else None for k in range(len(columns))],
    }
    return pa.table(values, schema=pa.schema(list(fields.values())))
