"""A tool t = (n, d, A, R, e) as one text and as one set of signature items, and how compatible two tools are.

A tool is an endpoint of a library; everything here works on integer tool rows. [T] Jaccard of the signatures;
[C] a weighted sum of nine terms, offered beside it (spec/ntilc.md section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from toolshift.data.records import Argument, Capability, Endpoint, Library
from toolshift.data.rendering import clean, operation_words
from toolshift.models.base import BadParameter

Rows = NDArray[np.int64]
Block = NDArray[np.float32]
CompatName = Literal["signature", "code"]
COMPATS: tuple[str, ...] = get_args(CompatName)
TEXT_LIMIT = 400
"""Characters of one description that a rendering keeps: a long one would push the arguments out of the encoder."""
# What the template ``with_operations`` appends: other tools of the capability, which are tools of their own here.
_OPERATIONS = " | operations: "
_BLOCK_ROWS = 512
# An item of at least one tool in so many goes through a dense product: a sparse one would have a full result.
_FREQUENT = 200
_SPARSE_CELLS = 1_000_000
_BLOCK_PAIRS = 262_144


class Compat(Protocol):
    """How well one tool can stand in for another: symmetric, in [0, 1], 1 for a tool and itself. w = 1 - compat."""

    @property
    def n_tools(self) -> int:
        """Number of tools."""
        ...

    @property
    def empty_pairs(self) -> int:
        """Pairs of different tools that count as compatible only because neither says anything about its signature."""
        ...

    def compat(self, rows: Rows, cols: Rows) -> Block:
        """(r, c) compatibility of two lists of tool rows."""
        ...

    def pairs(self, left: Rows, right: Rows) -> Block:
        """(p,) compatibility of given pairs of tool rows."""
        ...

    def compat_blocks(self, *, rows_per_block: int = _BLOCK_ROWS) -> Iterator[tuple[slice, Block]]:
        """The whole (n, n) table in blocks of rows; only one block is in memory."""
        ...


def render_tool(endpoint: Endpoint, capability: Capability) -> str:
    """The one text of a tool: name, description, argument schema, return schema, metadata.

    >>> capability = Capability(capability_id="d/w", dataset="d", name="Weather", text="Weather", domain="Geo")
    >>> endpoint = Endpoint(endpoint_id="d/w/now", capability_id="d/w", operation="get_now", method="GET",
    ...     arguments=(Argument(name="city", type="string", required=True),))
    >>> render_tool(endpoint, capability)
    'Weather | get now | arguments: city (string, required) | method: GET | domain: Geo'
    """
    return render(endpoint, capability_text=capability.text, domain=capability.domain)


def render(endpoint: Endpoint, *, capability_text: str, domain: str) -> str:
    """`render_tool` from the public text of the capability, which holds its name and description."""
    head = shortened(capability_text.partition(_OPERATIONS)[0])
    description = shortened(endpoint.description)
    own = [operation_words(endpoint.operation), "" if description in head else description]
    operation = ": ".join(part for part in own if part)
    arguments = "; ".join(_argument_text(a) for a in endpoint.arguments)
    parts = [
        head,
        "" if operation in head else operation,
        f"arguments: {arguments}" if arguments else "",
        f"returns: {', '.join(map(clean, endpoint.returns))}" if endpoint.returns else "",
        f"method: {endpoint.method}" if endpoint.method else "",
        f"domain: {domain}" if domain else "",
    ]
    return " | ".join(part for part in parts if part)


def shortened(text: str, *, limit: int = TEXT_LIMIT) -> str:
    """White space as single blanks; at most ``limit`` characters, cut between words where there are any."""
    text = clean(text)
    if len(text) <= limit:
        return text
    head = text[: limit + 1]
    return head.rpartition(" ")[0] or head[:limit]


def _argument_text(argument: Argument) -> str:
    notes = [
        n for n in (clean(argument.raw_type) or _known(argument.type), "required" if argument.required else "") if n
    ]
    head = f"{argument.name} ({', '.join(notes)})" if notes else argument.name
    description = shortened(argument.description, limit=80)
    return f"{head}: {description}" if description else head


def signature(endpoint: Endpoint, capability: Capability) -> frozenset[str]:
    """Sig(t) [T]: names and types of the required arguments, returns, metadata.

    [R] items are lower case. Names and types are items of their own, so that a type that differs still leaves the name
    in common. An argument of which the release does not say whether it is required counts; a type that is unknown is no
    item, since two unknown types say nothing about each other.
    """
    return items_of(endpoint, domain=capability.domain)


def items_of(endpoint: Endpoint, *, domain: str) -> frozenset[str]:
    """`signature` from the domain of the capability."""
    items = {f"ret:{_key(value)}" for value in endpoint.returns if _key(value)}
    for argument in endpoint.arguments:
        if argument.required is False:
            continue
        name, kind = _key(argument.name), _known(argument.type)
        items.add(f"arg:{name}")
        if kind:
            items.add(f"type:{name}:{kind}")
    if endpoint.method:
        items.add(f"meta:method={_key(endpoint.method)}")
    if domain:
        items.add(f"meta:domain={_key(domain)}")
    return frozenset(items)


@dataclass(frozen=True)
class Signatures:
    """Signatures of n tools as a boolean table over all items; compat is the Jaccard overlap [T].

    Two empty signatures count as compatible [R]: nothing is known that would set them apart. ``empty_pairs`` counts.
    """

    table: sparse.csr_matrix

    @staticmethod
    def of(library: Library) -> Signatures:
        """Tools are the library's endpoints in their order."""
        return Signatures.of_items(
            signature(e, library.capabilities[library.position[e.capability_id]]) for e in library.endpoints
        )

    @staticmethod
    def of_items(items: Iterable[frozenset[str]]) -> Signatures:
        """Tools by their items."""
        return Signatures(membership(list(items)))

    @property
    def n_tools(self) -> int:
        """Number of tools."""
        return self.table.indptr.size - 1

    @cached_property
    def sizes(self) -> Block:
        """(n,) items of every signature."""
        return np.diff(self.table.indptr).astype(np.float32)

    @property
    def empty_pairs(self) -> int:
        """See `Compat.empty_pairs`."""
        count = int((self.sizes == 0).sum())
        return count * (count - 1) // 2

    def compat(self, rows: Rows, cols: Rows) -> Block:
        """See `Compat.compat`."""
        shared = shared_counts(self.table, rows, cols)
        left, right = self.sizes[rows], self.sizes[cols]
        union = left[:, None] + right[None, :]  # in place from here on: blocks are large
        union -= shared
        np.maximum(union, 1.0, out=union)
        np.divide(shared, union, out=shared)
        shared[np.ix_(left == 0, right == 0)] = 1.0
        return shared

    def pairs(self, left: Rows, right: Rows) -> Block:
        """See `Compat.pairs`."""
        shared = paired_counts(self.table, left, right)
        return _ratio(shared, self.sizes[left] + self.sizes[right] - shared)

    def compat_blocks(self, *, rows_per_block: int = _BLOCK_ROWS) -> Iterator[tuple[slice, Block]]:
        """See `Compat.compat_blocks`."""
        return _blocks(self, rows_per_block)


@dataclass(frozen=True)
class CodeCompat:
    """The public code's score [C]: 0.30 same interface, 0.10 same parent, 0.20 F1 of required names, 0.15 F1 of all
    names, 0.10 share of equal types on shared names, 0.05 each for the closeness of the two counts, 0.05 enumerations.

    [R] interface: the endpoint's method; parent: its capability. Two empty sets are equal. Records hold no enumerated
    values, so that the last term is 1 for every pair.
    """

    method: Rows
    parent: Rows
    required: sparse.csr_matrix
    names: sparse.csr_matrix
    typed: sparse.csr_matrix

    @staticmethod
    def of(library: Library) -> CodeCompat:
        """Tools are the library's endpoints in their order."""
        return CodeCompat.of_endpoints(library.endpoints)

    @staticmethod
    def of_endpoints(endpoints: Sequence[Endpoint]) -> CodeCompat:
        """Tools by their endpoints."""
        # Of a name that is repeated the first argument counts, else more types than names could agree.
        schemas = [{_key(a.name): a.type for a in reversed(e.arguments)} for e in endpoints]
        return CodeCompat(
            method=_codes([_key(e.method) for e in endpoints]),
            parent=_codes([e.capability_id for e in endpoints]),
            required=membership([frozenset(_key(a.name) for a in e.required_arguments) for e in endpoints]),
            names=membership([frozenset(schema) for schema in schemas]),
            typed=membership([frozenset(f"{n}:{t}" for n, t in schema.items()) for schema in schemas]),
        )

    @property
    def n_tools(self) -> int:
        """Number of tools."""
        return int(self.method.size)

    @property
    def empty_pairs(self) -> int:
        """See `Compat.empty_pairs`."""
        count = int((np.diff(self.names.indptr) == 0).sum())
        return count * (count - 1) // 2

    def compat(self, rows: Rows, cols: Rows) -> Block:
        """See `Compat.compat`."""
        return self._score(lambda t: shared_counts(t, rows, cols), left=rows[:, None], right=cols[None, :])

    def pairs(self, left: Rows, right: Rows) -> Block:
        """See `Compat.pairs`."""
        return self._score(lambda t: paired_counts(t, left, right), left=left, right=right)

    def compat_blocks(self, *, rows_per_block: int = _BLOCK_ROWS) -> Iterator[tuple[slice, Block]]:
        """See `Compat.compat_blocks`."""
        return _blocks(self, rows_per_block)

    def _score(self, shared: Callable[[sparse.csr_matrix], Block], *, left: Rows, right: Rows) -> Block:
        def sizes(table: sparse.csr_matrix) -> tuple[Block, Block]:
            counts = np.diff(table.indptr).astype(np.float32)
            return counts[left], counts[right]

        def f1(table: sparse.csr_matrix) -> Block:
            a, b = sizes(table)
            return _ratio(2.0 * shared(table), a + b)

        def closeness(table: sparse.csr_matrix) -> Block:
            a, b = sizes(table)
            return np.asarray(1.0 - np.abs(a - b) / np.maximum(np.maximum(a, b), 1.0), np.float32)

        a, b = sizes(self.names)
        common = shared(self.names)
        types = np.where((a + b) > 0, shared(self.typed) / np.maximum(common, 1.0), 1.0)
        score = 0.30 * (self.method[left] == self.method[right]) + 0.10 * (self.parent[left] == self.parent[right])
        score = score + 0.20 * f1(self.required) + 0.15 * f1(self.names) + 0.10 * types
        score = score + 0.05 * closeness(self.required) + 0.05 * closeness(self.names) + 0.05
        return np.minimum(score, 1.0).astype(np.float32)


def known_compat(name: str, *, model: str) -> None:
    """Check a model's parameter.

    Raises:
        BadParameter: for a name that is not in ``COMPATS``.
    """
    if name not in COMPATS:
        raise BadParameter(f"{model}: compat={name!r}; expected one of {', '.join(COMPATS)}")


def membership(sets: Sequence[frozenset[str]]) -> sparse.csr_matrix:
    """(n, items) float32 table of 0 and 1; the items are sorted."""
    column = {item: i for i, item in enumerate(sorted({item for some in sets for item in some}))}
    indices = np.array([c for some in sets for c in sorted(column[item] for item in some)], np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(some) for some in sets])]).astype(np.int32)
    return sparse.csr_matrix(
        (np.ones(indices.size, np.float32), indices, indptr), shape=(len(sets), max(len(column), 1))
    )


def shared_counts(table: sparse.csr_matrix, rows: Rows, cols: Rows) -> Block:
    """(r, c) items in common, by a sparse product; in a large block the few frequent items by a dense one."""
    left, right = table[rows], table[cols]
    if rows.size * cols.size <= _SPARSE_CELLS:
        return (left @ right.T).toarray()
    frequent = np.bincount(right.indices, minlength=right.shape[1]) * _FREQUENT >= cols.size
    rare = (left[:, ~frequent] @ right[:, ~frequent].T).toarray()
    rare += left[:, frequent].toarray() @ right[:, frequent].toarray().T
    return rare


def paired_counts(table: sparse.csr_matrix, left: Rows, right: Rows) -> Block:
    """(p,) items in common of given pairs, in chunks."""
    result = np.empty(left.size, np.float32)
    for start in range(0, left.size, _BLOCK_PAIRS):
        part = slice(start, start + _BLOCK_PAIRS)
        result[part] = np.asarray(table[left[part]].multiply(table[right[part]]).sum(axis=1)).ravel()
    return result


def _blocks(compat: Compat, rows_per_block: int) -> Iterator[tuple[slice, Block]]:
    every = np.arange(compat.n_tools)
    for start in range(0, compat.n_tools, rows_per_block):
        part = slice(start, min(start + rows_per_block, compat.n_tools))
        yield part, compat.compat(every[part], every)


def _ratio(part: Block, whole: Block) -> Block:
    return np.where(whole > 0, part / np.maximum(whole, 1.0), 1.0).astype(np.float32)


def _codes(names: Sequence[str]) -> Rows:
    return np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1].ravel().astype(np.int64)


def _key(text: str) -> str:
    return clean(text).lower()


def _known(kind: str) -> str:
    return "" if kind == "unknown" else kind
