"""Stored runs as a collection that can be asked, exported and scored anew."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from icml26.errors import EnvironmentError_, UsageError
from icml26.home import store_file
from icml26.keys import canonical, jsonable
from icml26.labels import flatten
from icml26.records import RunRecord, Status, number_of
from icml26.store import Names, Store, StoredRun

if TYPE_CHECKING:
    import pandas

Format: TypeAlias = Literal["csv", "json", "parquet"]
STATUSES: tuple[Status, ...] = ("succeeded", "failed", "refused", "timed-out", "out-of-memory", "killed")


@dataclass(frozen=True, slots=True)
class Results(Sequence[RunRecord]):
    """Stored runs, newest first unless asked otherwise; a sequence of records."""

    runs: tuple[StoredRun, ...]

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> RunRecord | Results:
        if isinstance(index, slice):
            return Results(self.runs[index])
        return self.runs[index].record

    def __iter__(self) -> Iterator[RunRecord]:
        return (run.record for run in self.runs)

    def folders(self) -> list[Path | None]:
        """The folder of each run, None where the store does not know it."""
        return [run.folder for run in self.runs]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a run: identity, seconds, memory, ``metric.KEY``, ``config.KEY``, ``dataset.KEY`` columns."""
        return [flat_row(run.record) for run in self.runs]

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame (needs pandas, the extra ``data``)."""
        return frame(self.rows())

    def export(self, path: Path | None, form: Format) -> str | None:
        """Write the runs as CSV, JSON or Parquet; without a path the text comes back (not for Parquet).

        JSON keeps whole records, CSV and Parquet the flat rows.
        """
        if form == "parquet":
            _parquet(self, path)
            return None
        text = self._json() if form == "json" else _csv(self.rows())
        if path is None:
            return text
        _write(path, text.encode("utf-8"))
        return None

    def _json(self) -> str:
        body = {"schema": "icml26.results/1", "records": [record.to_json() for record in self]}
        return json.dumps(body, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def results(
    *,
    task: Names = None,
    method: Names = None,
    dataset: Names = None,
    status: Names = None,
    role: Names = None,
    seed: Names = None,
    id_prefix: str | None = None,
    since: str | None = None,
    latest: bool = False,
    limit: int | None = None,
    store: Path | str | None = None,
) -> Results:
    """The stored runs that meet all filters, newest first; each filter takes a value or several.

    ``method`` and ``dataset`` are bare or qualified names; ``latest`` keeps the newest run of each key. ``store`` None takes
    ``ICML26_HOME``'s. A store that is not there yet is empty.
    """
    with Store.open(Path(store) if store is not None else store_file(), readonly=True) as records:
        found = records.query(
            task=task,
            method=qualified_names(records, "method", method),
            dataset=qualified_names(records, "dataset", dataset),
            status=status,
            role=role,
            seed=seed,
            id_prefix=id_prefix,
            since=since,
            latest=latest,
            limit=limit,
        )
        return Results(tuple(found))


def qualified_names(store: Store, column: Literal["method", "dataset"], names: Names) -> list[str] | None:
    """Bare names as the qualified ones that the store holds; raises UsageError with the nearest for an unknown one."""
    if names is None:
        return None
    from icml26.strict_toml import nearest

    known = [str(row[0]) for row in store.database.read(f"SELECT DISTINCT {column} FROM records ORDER BY {column}")]
    found: list[str] = []
    for name in [names] if isinstance(names, str) else [str(name) for name in names]:  # type: ignore[union-attr]
        matches = [item for item in known if name in (item, item.rpartition("/")[2])]
        if not matches:
            shown = known if "/" in name else [item.rpartition("/")[2] for item in known]
            raise UsageError(f"the store has no runs of {column} {name!r}{nearest(name, shown)}")
        found += matches
    return found


def flat_row(record: RunRecord) -> dict[str, Any]:
    """A record as one flat row."""
    error = record.error or {}
    row: dict[str, Any] = {
        "id": record.id,
        "key": record.key,
        "started": record.provenance.get("started"),
        "task": record.task,
        "method": record.method.get("name"),
        "role": record.method.get("role"),
        "profile": record.method.get("profile"),
        "dataset": record.dataset.get("name"),
        "seed": record.seed,
        "status": record.status,
        "error": error.get("message"),
        "seconds": record.seconds.get("run", record.seconds.get("total")),
        "peak_memory_bytes": record.peak_memory_bytes,
        "host": record.provenance.get("host"),
    }
    row |= {f"metric.{key}": number_of(entry) for key, entry in record.metrics.items()}
    for part, name in ((record.method, "config"), (record.dataset, "dataset")):
        config = part.get("config")
        row |= {
            f"{name}.{key}": _cell(value)
            for key, value in flatten(config if isinstance(config, Mapping) else {}).items()
        }
    return row


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a pandas data frame; raises EnvironmentError_ that says how to get pandas."""
    try:
        import pandas
    except ImportError as error:
        raise EnvironmentError_("to_pandas needs pandas: pip install 'icml26[data]'") from error
    return pandas.DataFrame(list(rows), columns=columns(rows))


def columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns of rows, in order of appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _cell(value: Any) -> Any:
    """A config value as one cell: numbers and texts as they are, lists as JSON."""
    if isinstance(value, Mapping) and set(value) == {"nonfinite"}:
        return float(value["nonfinite"])
    return value if value is None or isinstance(value, bool | int | float | str) else canonical(value)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    from io import StringIO

    text = StringIO()
    writer = csv.DictWriter(text, columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    """Texts that a spreadsheet would take for a formula get an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _parquet(found: Results, path: Path | None) -> None:
    if path is None:
        raise UsageError("Parquet is not text: name a file with --output")
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise EnvironmentError_("Parquet needs pyarrow: pip install 'icml26[data]'") from error
    rows = found.rows()
    names = columns(rows)
    arrays = [_arrow_column([row.get(name) for row in rows], pyarrow) for name in names]
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(dict(zip(names, arrays, strict=True))), sink)
    _write(path, sink.getvalue().to_pybytes())


def _arrow_column(values: list[Any], pyarrow: Any) -> Any:
    """A typed column; values of several types become their JSON text."""
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        whole = all(isinstance(value, int) for value in given)
        return pyarrow.array(values if whole else [None if v is None else float(v) for v in values])
    if len({type(value) for value in given}) > 1:
        return pyarrow.array(
            [None if v is None else v if isinstance(v, str) else json.dumps(jsonable(v)) for v in values]
        )
    return pyarrow.array(values)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise EnvironmentError_(f"{path} cannot be written ({error.strerror or error})") from error
