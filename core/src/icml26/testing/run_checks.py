"""Checks that run methods on smoke settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from icml26.catalog import Entry
from icml26.errors import Icml26Error, InputError
from icml26.fingerprints import fingerprint
from icml26.method import can_save
from icml26.records import RunRecord
from icml26.runner import instantiate, problem_fingerprint, score
from icml26.targets import load_target
from icml26.testing.arrays import arrays_of, share_memory
from icml26.testing.garbage import spoil
from icml26.testing.report import Problem
from icml26.testing.static_checks import names_resolve
from icml26.testing.subject import CONFIGURED, Skip, Subject

_RANDOM_FIX = "draw from ctx.rng or ctx.torch_generator() only, and order what is iterated"


def smoke_runs_succeed(subject: Subject) -> Iterator[Problem]:
    """A smoke run of each method ends with scores, within its limit, in a process of its own."""
    if not subject.entries("method"):
        raise Skip("the plugin has no method")
    for pair in subject.pairs():
        record = subject.trial(pair)
        if record.status == "timed-out":
            text = f"does not end within {subject.trial_seconds:.0f} s"
            yield Problem(pair.label, text, "give the method and the dataset smaller smoke settings")
        elif not record.succeeded and not _is_wrong_type(record):
            error = record.error or {}
            trace = (error.get("traceback") or "").strip().splitlines()[-3:]
            yield Problem(
                pair.label, f"{record.status}: {error.get('message')}", " | ".join(trace) or "see its message"
            )
    paired = {pair.method.qualified for pair in subject.pairs()}
    unresolved = {problem.where for problem in names_resolve(subject)}
    for method in subject.entries("method"):
        told = f"method {method.name}" in unresolved or method.spec.extra is not None
        if method.qualified not in paired and not told:
            yield Problem(method.qualified, "fits no dataset that loads without a user's file", "provide one that fits")


def outputs_are_of_the_tasks_type(subject: Subject) -> Iterator[Problem]:
    """What a method returns is what its task says."""
    for pair in subject.pairs():
        record = subject.trial(pair)
        if _is_wrong_type(record):
            yield Problem(pair.label, str((record.error or {}).get("message")), "return the task's output type")


def same_seed_same_output(subject: Subject) -> Iterator[Problem]:
    """The same seed gives the same problem, output and scores, in this process and in another."""
    for pair in subject.usable_pairs():
        first, second, elsewhere = subject.smoke_run(pair), subject.smoke_run(pair, repeat=1), subject.trial(pair)
        if not (first.record.succeeded and second.record.succeeded):
            yield Problem(pair.label, "succeeds in a worker, but not a second time in one process", "keep no state")
        elif first.record.dataset["fingerprint"] != second.record.dataset["fingerprint"]:
            yield Problem(pair.dataset.qualified, "loads another problem for the same config and seed", _RANDOM_FIX)
        elif fingerprint(first.output) != fingerprint(second.output):
            yield Problem(pair.label, "returns another output for the same seed", _RANDOM_FIX)
        elif _values(first.record) != _values(second.record):
            yield Problem(
                pair.label, "scores differ for the same output: a metric is random outside its ctx", _RANDOM_FIX
            )
        elif not _close(_values(first.record), _values(elsewhere), 1e-4):
            text = f"another process gets other scores: {_values(elsewhere)} in place of {_values(first.record)}"
            yield Problem(pair.label, text, "do not depend on the order of sets, on addresses or on the environment")


def other_seed_other_data(subject: Subject) -> Iterator[Problem]:
    """A dataset that says ``seeded`` loads other data for another seed; one that does not, the same."""
    for dataset, config in subject.own_datasets():
        first, other = (problem_fingerprint(subject.load(dataset, config, seed)) for seed in (0, 1))
        if first == other and dataset.spec.seeded and "seed" not in config:
            text = "is declared seeded, but seeds 0 and 1 give the same data"
            yield Problem(dataset.qualified, text, "use ctx.rng, or seeded=False")
        if first != other and not dataset.spec.seeded:
            yield Problem(dataset.qualified, "is declared not seeded, but seeds 0 and 1 differ", "declare seeded=True")


def inputs_hold_no_truth(subject: Subject) -> Iterator[Problem]:
    """No array of the inputs shares memory with one of the truth."""
    for dataset, config in subject.own_datasets():
        problem = subject.load(dataset, config)
        for name_in, name_truth in share_memory(arrays_of(problem.inputs), arrays_of(problem.truth)):
            text = f"inputs{name_in} shares memory with truth{name_truth}"
            yield Problem(dataset.qualified, text, "copy the array in Dataset.load")


def inputs_stay_unchanged(subject: Subject) -> Iterator[Problem]:
    """A run changes neither inputs nor truth."""
    for pair in subject.usable_pairs():
        for text in subject.smoke_run(pair).record.info.get("warnings", []):
            if "changed its inputs" in text:
                yield Problem(pair.method.qualified, "changes the problem that it was given", "copy what is changed")


def truth_is_not_used(subject: Subject) -> Iterator[Problem]:
    """With the truth replaced by garbage a method returns the same output (D12)."""
    for pair in subject.usable_pairs():
        if pair.method.spec.role == "oracle":
            continue
        problem = subject.load(pair.dataset, subject.request(pair).dataset_config)
        if share_memory(arrays_of(problem.inputs), arrays_of(problem.truth)):
            continue  # the check truth-apart speaks of it
        if not spoil(problem.truth, np.random.default_rng(0)):
            continue
        expected = fingerprint(subject.smoke_run(pair).output)
        try:
            found = fingerprint(subject.run_on(pair, problem))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - failing on a spoiled truth is the finding
            found = f"{type(error).__name__}: {error}"
        if found != expected and fingerprint(subject.smoke_run(pair, repeat=1).output) == expected:
            text = "returns another output when the truth is garbage: the inputs lead to it"
            yield Problem(pair.label, text, "hand inputs without references, callables or closures that know the truth")


def metrics_are_finite(subject: Subject) -> Iterator[Problem]:
    """Scores of a smoke run are finite numbers."""
    for pair in subject.usable_pairs():
        for name, entry in subject.trial(pair).metrics.items():
            if "nonfinite" in entry:
                yield Problem(pair.label, f"metric {name} is {entry['nonfinite']}", "mend the metric, or say missing")


def metrics_obey_their_direction(subject: Subject) -> Iterator[Problem]:
    """A perfect output scores no worse than a broken one, and better on the task's primary metric."""
    tried = False
    for dataset, config in subject.own_datasets():
        instance = instantiate(dataset, config)
        problem = subject.load(dataset, config)
        outputs = [instance.perfect(problem), instance.broken(problem)]
        if None in outputs:
            continue
        tried = True
        task = subject.catalog.task(dataset.spec.task)
        for name in task.metrics:
            metric = subject.catalog.find("metric", name, seen_from=dataset.plugin)
            if (
                metric.distribution == subject.plugin.distribution
                and not metric.spec.relative_to
                and not metric.spec.requires
            ):
                yield from _against_direction(metric, outputs, problem.truth, strict=name == task.metrics[0])
    if not tried:
        raise Skip("no dataset of the plugin makes a perfect and a broken output (Dataset.perfect, Dataset.broken)")


def bad_config_is_refused(subject: Subject) -> Iterator[Problem]:
    """An unknown option and a value of the wrong type are refused with the option's name."""
    for kind in CONFIGURED:
        for entry in subject.entries(kind):
            yield from _refused(entry, {"no-such-option": 1}, "no-such-option")
            options = (entry.config_schema or {}).get("properties", {})
            number = next((name for name, item in options.items() if item.get("type") in ("number", "integer")), None)
            if number is not None:
                yield from _refused(entry, {number: "not a number"}, number)


def nothing_is_written_elsewhere(subject: Subject) -> Iterator[Problem]:
    """A run writes below its own folder, the temporary folder and caches only."""
    for pair in subject.usable_pairs():
        for path in subject.seen(pair).written:
            yield Problem(pair.label, f"writes {path}", "write through ctx.artifact(name), tempfile or ctx.cached")


def no_network(subject: Subject) -> Iterator[Problem]:
    """A smoke run opens no connection to another host."""
    for pair in subject.usable_pairs():
        for address in dict.fromkeys(subject.seen(pair).connections):
            yield Problem(pair.label, f"connects to {address}", "the smoke setting must work offline")


def global_generators_stay(subject: Subject) -> Iterator[Problem]:
    """A run leaves the global random generators as it found them."""
    for pair in subject.usable_pairs():
        for name in subject.seen(pair).moved:
            yield Problem(
                pair.label,
                f"moves or seeds the global generator of {name}",
                "use ctx.rng; torch.random.fork_rng() for torch",
            )


def outputs_survive_storing(subject: Subject) -> Iterator[Problem]:
    """What a method saves can be loaded again, is the same output, and holds no pickle."""
    tried = False
    for pair in subject.usable_pairs():
        cls = load_target(pair.method.spec.target, owner=pair.method.qualified)
        execution = subject.smoke_run(pair)
        if not can_save(cls) or execution.problem is None or execution.record.output is None:
            continue
        tried = True
        folder = subject.folder / execution.record.id / execution.record.output
        for path in sorted(folder.rglob("*")):
            if path.is_file() and _is_pickle(path.read_bytes()[:4], path.suffix):
                text = f"stores {path.relative_to(folder)}, which is a pickle"
                yield Problem(pair.method.qualified, text, "safetensors, JSON, or npz without objects")
        try:
            loaded = cls.load(folder)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the finding
            yield Problem(
                pair.method.qualified, f"cannot load what it saved: {type(error).__name__}: {error}", "mend load()"
            )
            continue
        if fingerprint(loaded) != fingerprint(execution.output):
            yield Problem(
                pair.method.qualified, "loads another output than it saved", "save every field, with its dtype"
            )
    if not tried:
        raise Skip("no method of the plugin stores its output")


def figures_are_drawn(subject: Subject) -> Iterator[Problem]:
    """``visualize`` of each method that has one works."""
    for pair in subject.usable_pairs():
        for text in subject.trial(pair).info.get("warnings", []):
            if "figures could not be drawn" in text:
                yield Problem(
                    pair.method.qualified, text, "mend visualize(); a run without figures has lost its picture"
                )


def smoke_scores_stand_still(subject: Subject) -> Iterator[Problem]:
    """Smoke scores are those of the index, unless ``results_version`` rose."""
    stored = subject.stored_smoke()
    if not stored:
        raise Skip("the index holds no smoke scores; write them: icml26 check-plugin NAME --write-index --smoke")
    fix = "raise results_version when results change on purpose, then write the index with --smoke"
    for pair in subject.usable_pairs():
        entry = stored.get(pair.method.name)
        if not isinstance(entry, dict) or entry.get("results_version") != pair.method.spec.results_version:
            continue
        then, now = dict(entry.get("metrics", {})), _values(subject.trial(pair))
        if entry.get("dataset") == pair.dataset.qualified and not _close(then, now, 1e-4):
            yield Problem(pair.label, f"scores were {then} and are {now} at the same results_version", fix)


def smoke_scores(subject: Subject) -> tuple[dict[str, Any], dict[str, str]]:
    """What ``--write-index --smoke`` stores: the scores of each method's smoke run, finite ones only.

    The second result says for each method without scores why it has none.
    """
    found: dict[str, Any] = {}
    without: dict[str, str] = {}
    paired = {pair.method.qualified: pair for pair in subject.pairs()}
    for method in subject.entries("method"):
        pair = paired.get(method.qualified)
        if pair is None:
            extra = f" (is its extra {method.spec.extra!r} installed?)" if method.spec.extra else ""
            without[method.name] = f"fits no dataset that loads without a user's file{extra}"
            continue
        record = subject.trial(pair)
        if not record.succeeded:
            without[method.name] = f"{record.status}: {(record.error or {}).get('message') or 'no reason is recorded'}"
            continue
        found[method.name] = {
            "results_version": method.spec.results_version,
            "dataset": pair.dataset.qualified,
            "metrics": {name: value for name, value in _values(record).items() if value is not None},
        }
    return found, without


def _against_direction(metric: Entry, outputs: list[Any], truth: Any, *, strict: bool) -> Iterator[Problem]:
    from icml26.context import STREAM_METRIC, RunContext

    perfect, broken = (score(metric, output, truth, RunContext(0, stream=STREAM_METRIC)) for output in outputs)
    for name, entry in perfect.items():
        sign = {"lower": 1.0, "higher": -1.0}.get(str(entry.get("direction")))
        best, worst = entry.get("value"), broken.get(name, {}).get("value")
        if sign is None or worst is None:
            continue
        if best is None:
            yield Problem(
                metric.qualified, f"{name} of a perfect output is {entry.get('nonfinite')}", "mend the metric"
            )
        elif sign * best > sign * worst or (strict and best == worst):
            text = (
                f"{name} ({entry['direction']} is better) is {best:g} for a perfect output, {worst:g} for a broken one"
            )
            yield Problem(metric.qualified, text, "correct the direction, or the metric")


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


def _is_wrong_type(record: RunRecord) -> bool:
    error = record.error or {}
    return error.get("type") == "PluginError" and f"; task {record.task} expects " in str(error.get("message"))


def _is_pickle(head: bytes, suffix: str) -> bool:
    return suffix in (".pkl", ".pickle", ".joblib") or (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05")


def _values(record: RunRecord) -> dict[str, float | None]:
    return {name: entry.get("value") for name, entry in record.metrics.items()}


def _close(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> bool:
    if set(one) != set(other):
        return False
    for name, value in one.items():
        if (value is None) != (other[name] is None):
            return False
        if value is not None and not math.isclose(value, other[name], rel_tol=tolerance, abs_tol=1e-9):
            return False
    return True
