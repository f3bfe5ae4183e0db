"""Run the checks of the conformance kit on an installed plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from icml26.testing import run_checks, static_checks
from icml26.testing.report import CheckResult, Problem, Report, Severity
from icml26.testing.subject import Subject


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its id, why it exists, and the function that yields what is wrong."""

    id: str
    reason: str
    function: Callable[[Subject], Iterator[Problem]]
    severity: Severity = "error"


CHECKS = (
    Check("light-hook-module", "listing twenty plugins must not import torch", static_checks.light_hook_module),
    Check("names-portable", "names are typed, and become files and folders", static_checks.names_are_portable),
    Check("targets-import", "a spec whose target is gone fails only at the user's", static_checks.targets_import),
    Check("index-agrees", "users see the index, not the hooks", static_checks.index_agrees),
    Check("config-documented", "options are shown with meaning and default", static_checks.configs_are_documented),
    Check("overrides-valid", "a profile that does not apply fails at the user's", static_checks.overrides_are_valid),
    Check("offline-dataset", "a task must be tried without asking for data", static_checks.tasks_have_offline_data),
    Check("bad-config-refused", "a wrong option is told by name before work", run_checks.bad_config_is_refused),
    Check("smoke-run", "each method runs on tiny settings", run_checks.smoke_runs_succeed),
    Check("same-seed-same-output", "results can be repeated", run_checks.same_seed_same_output),
    Check("other-seed-other-data", "seeds are replications", run_checks.other_seed_other_data),
    Check("truth-apart", "a method must not reach the truth", run_checks.inputs_hold_no_truth),
)


def check_plugin(
    name: str,
    *,
    only: Iterable[str] | None = None,
    expected: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Report:
    """Check an installed plugin.

    ``only`` restricts the checks by id. ``expected`` maps ids of checks that may fail to the reason, which is shown.
    Raises UsageError for an unknown plugin or check.
    """
    from icml26.catalog import unknown
    from icml26.errors import UsageError

    ids = [check.id for check in CHECKS]
    for wanted in [*(only or ()), *(expected or ())]:
        if wanted not in ids:
            raise UsageError(unknown("check", wanted, ids))
    subject = Subject.of(name, folder=folder)
    chosen = [check for check in CHECKS if only is None or check.id in set(only)]
    return Report(subject.plugin.name, tuple(_perform(check, subject, expected or {}) for check in chosen))


def _perform(check: Check, subject: Subject, expected: Mapping[str, str]) -> CheckResult:
    try:
        problems = tuple(check.function(subject))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin under test may do anything; that is a finding
        problems = (Problem(subject.plugin.name, f"the check itself met {type(error).__name__}: {error}"),)
    if not problems:
        return CheckResult(check.id, check.reason, check.severity, "passed")
    note = expected.get(check.id, "")
    return CheckResult(check.id, check.reason, check.severity, "expected" if note else "failed", problems, note)
