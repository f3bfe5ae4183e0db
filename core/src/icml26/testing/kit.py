"""Run the checks of the conformance kit on an installed plugin."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from icml26.testing import packaging_checks, run_checks, static_checks
from icml26.testing.report import CheckResult, Problem, Report, Severity
from icml26.testing.subject import TRIAL_SECONDS, Skip, Subject


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its id, why it exists, and the function that yields what is wrong."""

    id: str
    reason: str
    function: Callable[[Subject], Iterator[Problem]]
    severity: Severity = "error"


CHECKS = (
    Check("listed", "what cannot be listed cannot be used", static_checks.listed_cleanly),
    Check("light-hook-module", "listing twenty plugins must not import torch", static_checks.light_hook_module),
    Check("light-types", "a task is used by plugins that lack its libraries", static_checks.types_are_light),
    Check("names-portable", "names are typed, and become files and folders", static_checks.names_are_portable),
    Check("names-resolve", "a name that leads nowhere fails only at the user's", static_checks.names_resolve),
    Check("targets-import", "a spec whose target is gone fails only at the user's", static_checks.targets_import),
    Check("index-agrees", "users see the index, not the hooks", static_checks.index_agrees),
    Check("config-documented", "options are shown with meaning and default", static_checks.configs_are_documented),
    Check(
        "config-bounded", "a value that makes no sense is refused early", static_checks.numbers_are_bounded, "warning"
    ),
    Check("overrides-valid", "a profile that does not apply fails at the user's", static_checks.overrides_are_valid),
    Check("recipes-valid", "a claim that cannot be measured is no claim", static_checks.recipes_can_be_read),
    Check("offline-dataset", "a task must be tried without asking for data", static_checks.tasks_have_offline_data),
    Check("no-pickle", "reading a pickle runs code", static_checks.nothing_is_unpickled),
    Check("no-print", "standard output belongs to the command", static_checks.libraries_do_not_print, "warning"),
    Check("metadata", "installers and people read it", packaging_checks.metadata_is_complete),
    Check("no-core-cap", "a cap blocks every plugin at the next core", packaging_checks.core_is_required_without_a_cap),
    Check("bad-config-refused", "a wrong option is told by name before work", run_checks.bad_config_is_refused),
    Check("smoke-run", "each method runs on tiny settings, within its limit", run_checks.smoke_runs_succeed),
    Check("output-type", "metrics rely on the task's types", run_checks.outputs_are_of_the_tasks_type),
    Check("same-seed-same-output", "results can be repeated", run_checks.same_seed_same_output),
    Check("other-seed-other-data", "seeds are replications", run_checks.other_seed_other_data),
    Check("truth-apart", "a method must not reach the truth", run_checks.inputs_hold_no_truth),
    Check("truth-unused", "a result that needs the truth is none", run_checks.truth_is_not_used),
    Check("inputs-unchanged", "the next method gets the same problem", run_checks.inputs_stay_unchanged),
    Check("metrics-finite", "NaN compares with nothing", run_checks.metrics_are_finite),
    Check("metric-direction", "a table sorted the wrong way round misleads", run_checks.metrics_obey_their_direction),
    Check("output-stored", "stored outputs are scored again later", run_checks.outputs_survive_storing),
    Check("figures-drawn", "a run is looked at", run_checks.figures_are_drawn),
    Check("writes-inside", "runs share a machine", run_checks.nothing_is_written_elsewhere),
    Check("no-network", "a smoke run works on a train", run_checks.no_network),
    Check("global-rng", "a run must not change what others draw", run_checks.global_generators_stay),
    Check(
        "smoke-scores", "results that moved unseen are not comparable", run_checks.smoke_scores_stand_still, "warning"
    ),
)
IDS = tuple(check.id for check in CHECKS)
WHEEL_CHECK = "wheel-complete"


def check_plugin(
    name: str,
    *,
    only: Iterable[str] | None = None,
    expected: Mapping[str, str] | None = None,
    folder: Path | None = None,
    wheel: Path | None = None,
    trial_seconds: float = TRIAL_SECONDS,
) -> Report:
    """Check an installed plugin.

    ``only`` restricts the checks by id. ``expected`` maps ids of checks that may fail to the reason, which is shown.
    ``wheel`` is a built wheel of the plugin, which is checked too. A plugin that cannot be listed fails the check
    ``listed``. Raises UsageError for an unknown plugin or check.
    """
    from icml26.catalog import unknown
    from icml26.errors import UsageError

    expected = dict(expected or {})
    for wanted in [*(only or ()), *expected]:
        if wanted not in (*IDS, WHEEL_CHECK):
            hint = unknown("check", wanted, IDS).partition("; see ")[0]
            raise UsageError(f"{hint}; the checks: {', '.join((*IDS, WHEEL_CHECK))}")
    chosen = [check for check in CHECKS if only is None or check.id in set(only)]
    fault = _fault(name)
    if fault is not None:
        names = tuple(static_checks.names_in_index(fault.folder))
        id_ = "names-portable" if names else "listed"
        check = next(check for check in CHECKS if check.id == id_)
        return Report(name, (_judged(check, names or (fault.problem,), expected),))
    own_folder = folder is None
    place = folder or Path(tempfile.mkdtemp(prefix="icml26-check-"))
    subject = Subject.of(name, folder=place, trial_seconds=trial_seconds)
    try:
        results = [_perform(check, subject, expected) for check in chosen]
        if wheel is not None:
            package = subject.plugin.module.partition(":")[0].split(".")[0]
            check = Check(WHEEL_CHECK, "what is released is what was checked", lambda _: iter(()))
            results.append(_judged(check, tuple(packaging_checks.wheel_is_complete(wheel, package)), expected))
        return Report(subject.plugin.name, tuple(results))
    finally:
        subject.close()
        if own_folder:
            shutil.rmtree(place, ignore_errors=True)


def smoke_scores(name: str, trial_seconds: float = TRIAL_SECONDS) -> tuple[dict[str, object], dict[str, str]]:
    """Scores of each method's smoke run, as the index stores them; and for each method without any the reason."""
    with tempfile.TemporaryDirectory(prefix="icml26-check-") as folder:
        subject = Subject.of(name, folder=Path(folder), trial_seconds=trial_seconds)
        try:
            return run_checks.smoke_scores(subject)
        finally:
            subject.close()


@dataclass(frozen=True, slots=True)
class _Unlisted:
    problem: Problem
    folder: str


def _fault(name: str) -> _Unlisted | None:
    """Why the plugin cannot be listed at all, None when it can."""
    from icml26.distributions import scan
    from icml26.plugins import Candidate, load_catalog, locate

    catalog = load_catalog(probe="fresh")
    if any(name in (plugin.name, plugin.distribution) for plugin in catalog.plugins):
        return None
    for fault in catalog.faults:
        if name in (fault.plugin, fault.distribution):
            found = [locate(item) for item in scan().distributions if item.name == fault.distribution]
            folder = found[0].folder if found and isinstance(found[0], Candidate) else ""
            return _Unlisted(Problem(fault.plugin, fault.reason, fault.fix), folder)
    return None


def _perform(check: Check, subject: Subject, expected: Mapping[str, str]) -> CheckResult:
    try:
        problems = tuple(dict.fromkeys(check.function(subject)))
    except Skip as skip:
        return CheckResult(check.id, check.reason, check.severity, "skipped", note=str(skip))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin under test may do anything; that is a finding
        problems = (Problem(subject.plugin.name, f"the check itself met {type(error).__name__}: {error}"),)
    return _judged(check, problems, expected)


def _judged(check: Check, problems: tuple[Problem, ...], expected: Mapping[str, str]) -> CheckResult:
    note = expected.get(check.id, "")
    if not problems:
        words = f"was expected to fail ({note}) and passes: take the expectation away" if note else ""
        return CheckResult(check.id, check.reason, check.severity, "passed", note=words)
    return CheckResult(check.id, check.reason, check.severity, "expected" if note else "failed", problems, note)
