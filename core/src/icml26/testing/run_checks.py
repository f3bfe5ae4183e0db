"""Checks that run methods on smoke settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from icml26.catalog import Entry
from icml26.errors import Icml26Error, InputError
from icml26.fingerprint import fingerprint
from icml26.runner import instantiate
from icml26.testing.arrays import arrays_of, share_memory
from icml26.testing.report import Problem
from icml26.testing.subject import Subject


def smoke_runs_succeed(subject: Subject) -> Iterator[Problem]:
    """A smoke run of each method ends with scores."""
    tried = set()
    for method, dataset in subject.pairs():
        tried.add(method.qualified)
        record = subject.smoke_run(method, dataset).record
        if not record.succeeded:
            message = (record.error or {}).get("message")
            yield Problem(f"{method.qualified} on {dataset.qualified}", f"{record.status}: {message}", "see its log")
    for method in subject.entries("method"):
        if method.qualified not in tried and method.spec.extra is None:
            yield Problem(method.qualified, "fits no dataset that loads without a user's file", "provide one that fits")


def same_seed_same_output(subject: Subject) -> Iterator[Problem]:
    """The same seed gives the same problem, output and scores."""
    for method, dataset in subject.pairs():
        first, second = subject.smoke_run(method, dataset), subject.smoke_run(method, dataset, repeat=1)
        if not (first.record.succeeded and second.record.succeeded):
            continue
        where = f"{method.qualified} on {dataset.qualified}"
        fix = "draw from ctx.rng or ctx.torch_generator() only, and order what is iterated"
        if first.record.dataset["fingerprint"] != second.record.dataset["fingerprint"]:
            yield Problem(dataset.qualified, "loads another problem for the same config and seed", fix)
        elif fingerprint(first.output) != fingerprint(second.output):
            yield Problem(where, "returns another output for the same seed", fix)
        elif _values(first.record.metrics) != _values(second.record.metrics):
            yield Problem(where, "scores differ for the same output: a metric is random outside its ctx", fix)


def other_seed_other_data(subject: Subject) -> Iterator[Problem]:
    """A dataset that says ``seeded`` loads other data for another seed; one that does not, the same."""
    for method, dataset in subject.pairs():
        if dataset.distribution != subject.plugin.distribution:
            continue
        first, other = subject.smoke_run(method, dataset), subject.smoke_run(method, dataset, seed=1)
        if first.problem is None or other.problem is None:
            continue
        same = first.record.dataset["fingerprint"] == other.record.dataset["fingerprint"]
        if same and dataset.spec.seeded:
            yield Problem(
                dataset.qualified,
                "is declared seeded, but seed 0 and 1 give the same data",
                "use ctx.rng, or seeded=False",
            )
        if not same and not dataset.spec.seeded:
            yield Problem(dataset.qualified, "is declared not seeded, but seed 0 and 1 differ", "declare seeded=True")


def inputs_hold_no_truth(subject: Subject) -> Iterator[Problem]:
    """No array of the inputs shares memory with one of the truth, and a run changes neither."""
    for method, dataset in subject.pairs():
        execution = subject.smoke_run(method, dataset)
        if execution.problem is None:
            continue
        shared = share_memory(arrays_of(execution.problem.inputs), arrays_of(execution.problem.truth))
        for name_in, name_truth in shared:
            yield Problem(
                dataset.qualified,
                f"inputs{name_in} shares memory with truth{name_truth}",
                "copy the array in Dataset.load",
            )
        for text in execution.record.info.get("warnings", []):
            if "changed its inputs" in text:
                yield Problem(method.qualified, text, "copy what is changed")


def bad_config_is_refused(subject: Subject) -> Iterator[Problem]:
    """An unknown option and a value of the wrong type are refused with the option's name."""
    for kind in ("method", "dataset"):
        for entry in subject.entries(kind):
            yield from _refused(entry, {"no-such-option": 1}, "no-such-option")
            options = (entry.config_schema or {}).get("properties", {})
            number = next(
                (name for name, option in options.items() if option.get("type") in ("number", "integer")), None
            )
            if number is not None:
                yield from _refused(entry, {number: "not a number"}, number)


def _refused(entry: Entry, config: dict[str, Any], option: str) -> Iterator[Problem]:
    required = dict.fromkeys((entry.config_schema or {}).get("required", ()), "x")
    try:
        instantiate(entry, {**required, **config})
    except InputError as error:
        if option not in str(error):
            yield Problem(entry.qualified, f"the refusal of {config} does not name the option: {error}", "name it")
    except Icml26Error as error:
        yield Problem(entry.qualified, f"{config}: {error}", "let pydantic refuse it")
    else:
        yield Problem(entry.qualified, f"accepts {config}", "type the option, and keep extra='forbid'")


def _values(metrics: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: (entry.get("value"), entry.get("nonfinite")) for name, entry in metrics.items()}
