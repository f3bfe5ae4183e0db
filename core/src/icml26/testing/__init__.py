"""The conformance kit: what every plugin owes, as checks that authors run on their own.

In a plugin's tests, either all at once::

    from icml26.testing import assert_conforms

    def test_conformance() -> None:
        assert_conforms("my-plugin")

or one test a check::

    from icml26.testing import conformance_tests

    test_conformance = conformance_tests("my-plugin", expected={"metric-direction": "the reason, which is shown"})

Without any code: ``pytest --icml26-plugin my-plugin``; on the command line: ``icml26 check-plugin my-plugin``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26.testing.report import CheckResult, Report


def assert_conforms(name: str, *, expected: Mapping[str, str] | None = None) -> None:
    """Fail with the list of problems unless the installed plugin passes every check of severity ``error``."""
    from icml26.testing.kit import check_plugin
    from icml26.testing.report import problems_text

    report = check_plugin(name, expected=expected)
    lines = [f"[{result.id}] {problems_text(result.problems)}" for result in report.failures]
    assert not lines, f"{name} does not conform:\n" + "\n".join(lines)


def conformance_tests(name: str, *, expected: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """A pytest function with one case a check; all checks run once, when the first case does."""
    import pytest

    from icml26.testing.kit import IDS

    @lru_cache(maxsize=1)
    def report() -> Report:
        from icml26.testing.kit import check_plugin

        return check_plugin(name, expected=expected)

    @pytest.mark.parametrize("check", IDS)
    def test_conformance(check: str) -> None:
        judge(report(), check)

    return test_conformance


def judge(report: Report, check: str) -> None:
    """Turn the outcome of one check into the outcome of a pytest test: pass, fail, skip, xfail, or a warning."""
    import warnings

    import pytest

    from icml26.testing.report import problems_text

    listed: CheckResult = report.results[0]
    result = next((item for item in report.results if item.id == check), None)
    if result is None:
        pytest.skip(f"not judged: {problems_text(listed.problems)}")
    if result.outcome == "skipped":
        pytest.skip(result.note)
    if result.outcome == "expected":
        pytest.xfail(f"{result.note}: {problems_text(result.problems)}")
    if result.outcome == "failed" and result.severity == "error":
        pytest.fail(f"[{result.id}] {result.reason}\n{problems_text(result.problems)}", pytrace=False)
    if result.outcome == "failed":
        warnings.warn(f"[{result.id}] {problems_text(result.problems)}", stacklevel=2)
