"""One module per dialect, found by its name; a module whose name begins with an underscore is none.

A dialect offers ``claims(value) -> bool``, which recognises a tool or a document by its content alone, and
``read(value, *, where, tally) -> Iterator[ToolDoc]``.
"""
