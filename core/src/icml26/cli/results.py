"""``icml26 results``: what was recorded: query, export, merge, rescore, reindex."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from icml26.result_set import Results

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=False)

_Task = Annotated[list[str] | None, typer.Option("--task", metavar="TASK", help="Only of these tasks.")]
_Method = Annotated[list[str] | None, typer.Option("--method", "-m", metavar="NAME", help="Only of these methods.")]
_Dataset = Annotated[list[str] | None, typer.Option("--dataset", "-d", metavar="NAME", help="Only on these datasets.")]
_Status = Annotated[
    list[str] | None, typer.Option("--status", metavar="END", help="succeeded, failed, refused, timed-out, …")
]
_Role = Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="paper, baseline, reference, oracle.")]
_Seeds = Annotated[str | None, typer.Option("--seeds", metavar="0..4", help="Only these seeds.")]
_Since = Annotated[
    str | None, typer.Option("--since", metavar="DATE", help="Only those started since, e.g. 2026-08-01.")
]
_Id = Annotated[str | None, typer.Option("--id", metavar="ID", help="A record's id or the beginning of it.")]
_All = Annotated[bool, typer.Option("--all", help="Also older runs of the same key.")]
_Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many, the newest.")]
_StoreFile = Annotated[Path | None, typer.Option("--store", metavar="FILE", help="The file of records.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@app.callback(invoke_without_command=True)
def query(
    ctx: typer.Context,
    task: _Task = None,
    method: _Method = None,
    dataset: _Dataset = None,
    status: _Status = None,
    role: _Role = None,
    seeds: _Seeds = None,
    since: _Since = None,
    identity: _Id = None,
    everything: _All = False,
    limit: _Limit = None,
    metrics: Annotated[str | None, typer.Option("--metrics", metavar="A,B", help="Only these columns.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print records as other processes add them, until they are done.")
    ] = False,
    store: _StoreFile = None,
    as_json: _Json = False,
) -> None:
    """List recorded runs, newest first; commands below export, merge, rescore and reindex."""
    if ctx.invoked_subcommand is not None:
        return
    if watch:
        from icml26.cli.watch import watch as follow
        from icml26.errors import UsageError
        from icml26.home import store_file

        if as_json or any((task, method, dataset, status, role, seeds, since, identity, everything, limit, metrics)):
            raise UsageError("--watch goes with --store alone")
        follow(store or store_file())
        return
    from icml26.cli.output import console

    found = _found(task, method, dataset, status, role, seeds, since, identity, everything, limit, store)
    output = console()
    if as_json:
        output.json("results", {"records": [record.to_json() for record in found]})
        return
    from icml26.records import number_of

    wanted = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    keys = wanted or list(
        dict.fromkeys(
            key
            for run in found.runs[:2000]
            for key, entry in run.metrics.items()
            if not entry.get("hidden") and "error_of" not in entry
        )
    )
    lines = []
    for run in found.runs:
        values = [number_of(run.metrics.get(key)) for key in keys]
        cells = ["–" if value is None else f"{value:.4g}" for value in values]
        bare = [name.rpartition("/")[2] for name in (run.method, run.dataset)]
        lines.append([run.started[:19].replace("T", " "), *bare, str(run.seed), run.status, *cells, run.id])
    output.table(["started", "method", "dataset", "seed", "end", *keys, "id"], lines)


def _found(
    task: Any,
    method: Any,
    dataset: Any,
    status: Any,
    role: Any,
    seeds: str | None,
    since: str | None,
    identity: str | None,
    everything: bool,
    limit: int | None,
    store: Path | None,
) -> Results:
    from icml26.errors import UsageError
    from icml26.result_set import STATUSES, results
    from icml26.strict_toml import nearest

    chosen = None
    if seeds is not None:
        from icml26.grid import parse_seeds

        chosen = list(parse_seeds(seeds))
    for name in status or ():
        if name not in STATUSES:
            raise UsageError(f"--status {name!r}{nearest(name, STATUSES)}")
    return results(
        task=task or None,
        method=method or None,
        dataset=dataset or None,
        status=status or None,
        role=role or None,
        seed=chosen,
        since=since,
        id_prefix=identity,
        latest=not everything,
        limit=limit,
        store=store,
    )


@app.command()
def export(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file; its ending says the format.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="csv|json|parquet", help="Without a telling ending.")
    ] = None,
    task: _Task = None,
    method: _Method = None,
    dataset: _Dataset = None,
    status: _Status = None,
    role: _Role = None,
    seeds: _Seeds = None,
    since: _Since = None,
    everything: _All = False,
    limit: _Limit = None,
    store: _StoreFile = None,
) -> None:
    """Export runs as CSV, JSON or Parquet, to a file or (CSV, JSON) to standard output."""
    from icml26.cli.output import console
    from icml26.errors import UsageError

    known = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
    chosen = form or (known.get(output.suffix.lower()) if output is not None else "csv")
    if chosen not in known.values():
        raise UsageError(f"--format {form or (output.name if output else '')!r}; allowed: csv, json, parquet")
    found = _found(task, method, dataset, status, role, seeds, since, None, everything, limit, store)
    text = found.export(output, chosen)  # type: ignore[arg-type]
    if text is not None:
        console().write(text)
    else:
        console().note(f"{len(found)} runs written to {output}")


@app.command()
def merge(
    others: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Files of records, e.g. of other machines.")],
    store: _StoreFile = None,
    as_json: _Json = False,
) -> None:
    """Take in the records of other stores: a union by record id, nothing is overwritten.

    Folders of runs (logs, figures, outputs) are not copied: a record stays linked to where its folder lay. To have those of
    another machine here, copy them and say `icml26 results reindex DIR`, which links the records to them.
    """
    from icml26.cli.output import console
    from icml26.errors import UsageError
    from icml26.home import store_file
    from icml26.store import Store

    target = store or store_file()
    for path in others:
        if not path.is_file():
            raise UsageError(f"{path}: no such store")
    added: dict[str, int] = {}
    absent: dict[str, int] = {}
    with Store.open(target) as ours:
        for path in others:
            with Store.open(path, readonly=True) as theirs:
                added[str(path)] = ours.merge(theirs)
                absent[str(path)] = sum(run.folder is None or not run.folder.is_dir() for run in theirs.query())
        total = ours.count()
    if as_json:
        console().json("results-merge", {"added": added, "total": total, "folders_not_here": absent})
    else:
        for name, count in added.items():
            console().write(f"{name}: {count} new records")
            if absent[name]:
                console().warn(
                    f"{name}: the folders of {absent[name]} of its runs are not on this machine, so their logs, figures and "
                    "outputs are not shown, nor scored again; copy the folders, then `icml26 results reindex DIR`"
                )
        console().note(f"{target} now has {total}")


@app.command()
def reindex(
    runs: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The folder of runs; the usual one without it.")
    ] = None,
    store: _StoreFile = None,
    as_json: _Json = False,
) -> None:
    """Rebuild the store from the record files of the runs: what is missing is taken in, nothing is removed.

    Records whose folder is elsewhere (after `results merge`) are linked to the folder found here.
    """
    from icml26.cli.output import console
    from icml26.errors import UsageError
    from icml26.home import runs_folder, store_file
    from icml26.store import Store

    folder = (runs or runs_folder()).absolute()
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    with Store.open(store or store_file()) as records:
        done = records.reindex(folder)
    for name, reason in done.unreadable.items():
        console().warn(f"{name}: {reason}")
    if as_json:
        body = {"added": done.added, "known": done.known, "linked": done.linked, "unreadable": done.unreadable}
        console().json("results-reindex", body)
    else:
        linked = f", {done.linked} of them linked to their folder again" if done.linked else ""
        console().write(f"{done.added} records taken in, {done.known} were there{linked}")


@app.command()
def rescore(
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="A,B", help="These metrics; else the record's own.")
    ] = None,
    task: _Task = None,
    method: _Method = None,
    dataset: _Dataset = None,
    seeds: _Seeds = None,
    identity: _Id = None,
    store: _StoreFile = None,
    as_json: _Json = False,
) -> None:
    """Score saved outputs again, e.g. with a metric that is new. Runs without a saved output are named and left alone."""
    import tempfile

    from icml26.capture import captured_streams
    from icml26.cli.output import console
    from icml26.errors import UsageError
    from icml26.home import store_file
    from icml26.rescoring import rescore_all
    from icml26.store import Store

    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise UsageError("--metrics names no metric")
    found = _found(task, method, dataset, ["succeeded"], None, seeds, None, identity, False, None, store)
    if not found.runs:
        console().error("no recorded run meets these filters")
        raise typer.Exit(5)
    with (
        Store.open(store or store_file()) as records,
        tempfile.TemporaryDirectory(prefix="icml26-rescore-") as scratch,
        captured_streams(Path(scratch) / "printed.txt"),
    ):
        done = rescore_all(found.runs, records, metrics=names)
    reasons: dict[str, list[str]] = {}
    for record_id, reason in done.refused.items():
        reasons.setdefault(reason, []).append(record_id)
    for reason, ids in reasons.items():
        console().warn(f"{len(ids)} left alone, {ids[0]}{' and others' if len(ids) > 1 else ''}: {reason}")
    if as_json:
        console().json("results-rescore", {"rescored": done.rescored, "refused": done.refused})
    else:
        console().write(f"{len(done.rescored)} runs scored again, {len(done.refused)} left as they were")
    raise typer.Exit(1 if done.refused and not done.rescored else 0)
