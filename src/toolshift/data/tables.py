"""Records as Arrow tables: the schemas of the store, and both directions between records and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from toolshift.data.records import Argument

_STRINGS = pa.list_(pa.string())
ARGUMENT_TYPE = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("raw_type", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("required", pa.bool_()),
        pa.field("description", pa.string(), nullable=False),
    ]
)
_ARGUMENT_FIELDS = tuple(field.name for field in ARGUMENT_TYPE)


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


TASKS = _schema(
    ("task_id", pa.string()),
    ("dataset", pa.string()),
    ("domain", pa.string()),
    ("text", pa.string()),
    ("gold_capability_ids", _STRINGS),
    ("gold_endpoint_ids", _STRINGS),
    ("ordered", pa.bool_()),
    ("calls", _STRINGS),
    ("given_candidate_ids", _STRINGS),
    ("split", pa.string()),
    ("source", pa.string()),
    ("no_gold", pa.string()),
)

LIBRARY: Mapping[str, pa.Schema] = {
    "capabilities": _schema(
        ("capability_id", pa.string()),
        ("dataset", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("domain", pa.string()),
        ("text", pa.string()),
        ("schema_source", pa.string()),
    ),
    "endpoints": _schema(
        ("endpoint_id", pa.string()),
        ("capability_id", pa.string()),
        ("operation", pa.string()),
        ("description", pa.string()),
        ("method", pa.string()),
        ("arguments", pa.list_(pa.field("item", ARGUMENT_TYPE, nullable=False))),
        ("returns", _STRINGS),
        ("text", pa.string()),
        ("source", pa.string()),
    ),
}


def table_of(records: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Records, of which each field of the schema is an attribute, as a table of as many rows."""
    columns = []
    for field in schema:
        values = [getattr(record, field.name) for record in records]
        if field.name == "arguments":
            values = [[{name: getattr(a, name) for name in _ARGUMENT_FIELDS} for a in group] for group in values]
        columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def fields_of(table: pa.Table) -> list[dict[str, Any]]:
    """The fields of each row's record by name; lists as tuples, ``arguments`` as ``Argument``."""
    columns = {field.name: _column(table[field.name], field.type) for field in table.schema}
    names = tuple(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _column(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    """Python values of a column; lists become tuples through their offsets, which is far faster than row by row."""
    if not pa.types.is_list(kind):
        return column.to_pylist()
    values: list[Any] = []
    for chunk in column.chunks:
        flat = chunk.flatten()
        items = _arguments(flat) if pa.types.is_struct(kind.value_type) else flat.to_pylist()
        offsets = chunk.offsets.to_numpy()
        offsets = (offsets - offsets[0]).tolist() if len(offsets) else []
        values.extend(tuple(items[a:b]) for a, b in pairwise(offsets))
    return values


def _arguments(flat: pa.StructArray) -> list[Argument]:
    columns = [flat.field(name).to_pylist() for name in _ARGUMENT_FIELDS]
    return [
        Argument(name=name, raw_type=raw, type=coarse, required=required, description=description)
        for name, raw, coarse, required, description in zip(*columns, strict=True)
    ]
