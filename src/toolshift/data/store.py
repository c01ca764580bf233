"""The record store: raw files are read once per content, then loaded from parquet.

Layout, under ``<cache>/records/<dataset>/``::

    report.json                      of the records loaded last (architecture.md section 2)
    <fingerprint[:12]>/              capabilities.parquet endpoints.parquet tasks.parquet apart.parquet report.json
                                     meta.json
    raw/<signature[:16]>.json        remembers the content fingerprint of raw files whose sizes and times are unchanged

The tables of tasks are read a row group at a time (``TaskFile``), so records take as much memory as the library does.
A fingerprint names the bytes of the raw files, the adapter's options, and the code that turns one into the other. A
store folder appears by one rename and is checked against the hashes in its ``meta.json`` on every load; one that fails
is rebuilt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolshift.data.errors import AdapterError
from toolshift.data.records import Capability, Endpoint, Library, RecordError, Records, Report, Section
from toolshift.data.tables import LIBRARY, fields_of, table_of
from toolshift.data.task_file import TaskFile, write_tasks
from toolshift.runs.files import sha256_file, stable_hash, write_json

_LOG = logging.getLogger(__name__)
_LAYOUT = 3
_TASK_FILES = ("tasks", "apart")
_CODE = (
    "catalog",
    "files",
    "json_schema",
    "lines",
    "names",
    "records",
    "rendering",
    "rows",
    "spool",
    "store",
    "tables",
    "tally",
    "task_file",
    "types",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRecords:
    """Records and their origin. ``seconds`` is the wall time of this load, ``rebuilt`` whether it read raw files."""

    records: Records
    fingerprint: str
    folder: Path
    seconds: float
    rebuilt: bool


class StoreError(AdapterError):
    """A store folder is damaged: the message names the file and what is wrong with it."""


def load_records(
    *, dataset: str, adapter: str, root: Path, cache: Path, options: object = None, strict: bool = False
) -> LoadedRecords:
    """Return the records of a dataset, from the store where its fingerprint is there, else from the raw files.

    Args:
        dataset: name of the dataset; the adapter must yield records of it.
        adapter: "module:function"; the function takes ``(root, *, options, strict)``. Its module may define ``Options``
            (a dataclass) and ``inputs(root, *, options)`` (the raw files it opens; default: all below root/dataset).
        root: folder that holds ``<dataset>/`` in the upstream layout.
        cache: folder of the store.
        options: the module's ``Options``, a mapping of its fields, or None for the defaults.
        strict: turn any dropped row into an error, also for records that a lenient run stored.

    Raises:
        AdapterError: if the adapter, its options or the raw files are unusable; see the adapter.
    """
    started = time.perf_counter()
    module, read = _resolve(adapter)
    options = _options(module, options)
    home = cache / "records" / dataset
    raw = raw_fingerprint(_inputs(module, root, dataset=dataset, options=options), root=root, memo=home / "raw")
    fingerprint = record_fingerprint(raw, adapter=adapter, options=options)
    folder = home / fingerprint[:12]
    records = _stored(folder, fingerprint=fingerprint)
    rebuilt = records is None or (strict and bool(records.report.dropped))
    if records is None or rebuilt:
        records = read(root, options=options, strict=strict)
        if records.dataset != dataset:
            raise AdapterError(f"adapter {adapter} yields records of {records.dataset!r}, not of dataset={dataset!r}")
        write_records(records, folder, fingerprint=fingerprint)
        if any(isinstance(tasks, TaskFile) for tasks in (records.tasks, records.apart)):
            records = read_records(folder, fingerprint=fingerprint)  # frees the adapter's temporary file
    _publish_report(records.report, home / "report.json")
    seconds = time.perf_counter() - started
    return LoadedRecords(records=records, fingerprint=fingerprint, folder=folder, seconds=seconds, rebuilt=rebuilt)


# ------------------------------------------------------------------------------------------------------- fingerprints


def raw_fingerprint(paths: Sequence[Path], *, root: Path, memo: Path) -> str:
    """Return the hex sha256 over (relative path, size, content hash) of all files, sorted by path.

    Hashing is skipped where no file's size or modification time changed since ``memo`` recorded the answer.
    """
    prefix = len(os.fspath(root / "x")) - 1  # slicing: Path.relative_to on every file costs more than their stat calls
    entries = sorted((os.fspath(path)[prefix:].replace(os.sep, "/"), path) for path in paths)
    signature = hashlib.sha256(str(root.resolve()).encode())
    for name, path in entries:
        state = path.stat()
        signature.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    note = memo / f"{signature.hexdigest()[:16]}.json"
    remembered = _remembered(note, signature.hexdigest())
    if remembered:
        return remembered
    content = hashlib.sha256()
    for name, path in entries:
        line = f"{name}\0{path.stat().st_size}\0{sha256_file(path)}\n"
        content.update(line.encode("utf-8", "surrogateescape"))
    write_json(note, {"signature": signature.hexdigest(), "content": content.hexdigest(), "files": len(entries)})
    return content.hexdigest()


def record_fingerprint(raw: str, *, adapter: str, options: object = None) -> str:
    """Return the hex sha256 of everything records depend on: raw content, adapter code, options and store layout."""
    module, _ = _resolve(adapter)
    package = Path(__file__).parent
    main = Path(str(module.__file__))
    # An adapter may keep parts of itself beside it, in private modules named after it.
    private = sorted(main.parent.glob(f"_{main.stem}_*.py"))
    sources = [*(package / f"{name}.py" for name in _CODE), main, *private]
    parts = {
        "adapter": adapter,
        "code": [sha256_file(path) for path in sources],
        "layout": _LAYOUT,
        "options": _plain(options),
        "raw": raw,
    }
    return stable_hash(parts)


def _remembered(note: Path, signature: str) -> str | None:
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        return str(content["content"]) if content["signature"] == signature else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plain(options: object) -> object:
    if dataclasses.is_dataclass(options) and not isinstance(options, type):
        return dataclasses.asdict(options)
    return options


# ------------------------------------------------------------------------------------------------------------ adapter


def _resolve(adapter: str) -> tuple[ModuleType, Callable[..., Records]]:
    name, _, attribute = adapter.partition(":")
    try:
        module = importlib.import_module(name)
        return module, getattr(module, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise AdapterError(f"adapter {adapter!r} cannot be used ({error}); expected 'module:function'") from error


def _options(module: ModuleType, options: object) -> object:
    factory = getattr(module, "Options", None)
    if factory is None or isinstance(options, factory):
        return options
    given = {} if options is None else options
    if not isinstance(given, Mapping):
        raise AdapterError(
            f"dataset.options must be a mapping or {module.__name__}.Options, not {type(options).__name__}"
        )
    known = {field.name for field in dataclasses.fields(factory)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise AdapterError(f"dataset.options: unknown key {unknown[0]!r}; expected one of {', '.join(sorted(known))}")
    return factory(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


def _inputs(module: ModuleType, root: Path, *, dataset: str, options: object) -> list[Path]:
    declared = getattr(module, "inputs", None)
    if declared is not None:
        return list(declared(root, options=options))
    base = root / dataset
    if not base.is_dir():
        raise AdapterError(f"{base}: no such folder; expected the raw files of dataset={dataset} there")
    return sorted(path for path in base.rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------------------------ writing


def write_records(records: Records, folder: Path, *, fingerprint: str) -> None:
    """Write a store folder; it appears complete or not at all, and replaces a damaged one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        library = {"capabilities": records.library.capabilities, "endpoints": records.library.endpoints}
        for name, schema in LIBRARY.items():
            pq.write_table(table_of(library[name], schema), temporary / f"{name}.parquet", compression="zstd")
        for name, tasks in (("tasks", records.tasks), ("apart", records.apart)):
            write_tasks(temporary / f"{name}.parquet", tasks)
        write_json(temporary / "report.json", records.report.as_dict())
        files = {path.name: sha256_file(path) for path in sorted(temporary.iterdir())}
        meta = {
            "dataset": records.dataset,
            "unscorable": records.unscorable,
            "fingerprint": fingerprint,
            "layout": _LAYOUT,
            "files": files,
        }
        write_json(temporary / "meta.json", meta)
        temporary.chmod(0o755)
        _swap(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(temporary: Path, folder: Path) -> None:
    try:
        temporary.replace(folder)
    except OSError:
        # A folder that is not empty cannot be replaced: move the old one (damaged, or another process's equal) away.
        discarded = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".old."))
        folder.replace(discarded / folder.name)
        temporary.replace(folder)
        shutil.rmtree(discarded, ignore_errors=True)


def _publish_report(report: Report, path: Path) -> None:
    """Write the contract's report.json, and only where it differs, so that reading leaves files alone."""
    content = report.as_dict()
    try:
        if json.loads(path.read_text(encoding="utf-8")) == content:
            return
    except (OSError, ValueError):
        pass
    write_json(path, content)


# ------------------------------------------------------------------------------------------------------------ reading


def read_records(folder: Path, *, fingerprint: str | None = None) -> Records:
    """Load a store folder.

    Raises:
        StoreError: if a file is missing, its bytes changed since it was written, its schema is another one, or (where
            given) the fingerprint differs.
    """
    meta = _verified_meta(folder, fingerprint=fingerprint)
    tables = {name: _read_table(folder / f"{name}.parquet", schema) for name, schema in LIBRARY.items()}
    tasks, apart = (_open_tasks(folder / f"{name}.parquet") for name in _TASK_FILES)
    try:
        capabilities = tuple(Capability(**row) for row in fields_of(tables["capabilities"]))
        endpoints = tuple(Endpoint(**row) for row in fields_of(tables["endpoints"]))
        report = _report(json.loads((folder / "report.json").read_text(encoding="utf-8")))
        return Records(
            dataset=str(meta["dataset"]),
            library=Library(capabilities, endpoints),
            tasks=tasks,
            report=report,
            apart=apart,
            unscorable=str(meta["unscorable"]),
        )
    except (RecordError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{folder}: the stored records break the data model ({error}); delete the folder") from error


def _stored(folder: Path, *, fingerprint: str) -> Records | None:
    if not folder.exists():
        return None
    try:
        return read_records(folder, fingerprint=fingerprint)
    except StoreError as error:
        _LOG.warning("%s; reading the raw files again", error)
        return None


def _verified_meta(folder: Path, *, fingerprint: str | None) -> Mapping[str, Any]:
    path = folder / "meta.json"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        files = dict(meta["files"])
        found = str(meta["fingerprint"])
        layout = meta["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: missing or damaged ({error})") from error
    if layout != _LAYOUT or (fingerprint is not None and found != fingerprint):
        raise StoreError(f"{path}: written for fingerprint {found[:12]} and layout {layout}, not for this one")
    for name in (*(f"{table}.parquet" for table in (*LIBRARY, *_TASK_FILES)), "report.json"):
        if not (folder / name).is_file():
            raise StoreError(f"{folder / name}: missing from the record store")
        if sha256_file(folder / name) != files.get(name):
            raise StoreError(f"{folder / name}: its bytes changed since it was written")
    return meta


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path}: not a readable parquet file ({error})") from error
    if not table.schema.equals(schema):
        raise StoreError(f"{path}: its schema is not the one of this version")
    return table


def _open_tasks(path: Path) -> TaskFile:
    try:
        return TaskFile(path)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path}: not a readable parquet file ({error})") from error
    except ValueError as error:
        raise StoreError(str(error)) from error


def _report(content: Mapping[str, Any]) -> Report:
    sections = {name: Section(**values) for name, values in content["sections"].items()}
    totals = ("tasks", "capabilities", "endpoints", "gold_pairs", "domains", "ordered_tasks")
    return Report(sections=sections, notes=content["notes"], **{name: content[name] for name in totals})
