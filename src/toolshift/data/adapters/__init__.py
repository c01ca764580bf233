"""One module per dataset.

An adapter module offers ``read(root, *, options, strict) -> Records``, a frozen ``Options`` dataclass (keyword fields,
part of the record fingerprint) and ``inputs(root, *, options) -> list[Path]``, the raw files it opens.
"""
