"""The conformance kit: what every plugin owes, as checks that authors run on their own.

In a plugin's tests::

    from icml26.testing import assert_conforms

    def test_conformance() -> None:
        assert_conforms("my-plugin")
"""

from __future__ import annotations

from collections.abc import Mapping


def assert_conforms(name: str, *, expected: Mapping[str, str] | None = None) -> None:
    """Fail with the list of problems unless the installed plugin passes every check of severity ``error``."""
    from icml26.testing.kit import check_plugin
    from icml26.testing.report import problems_text

    report = check_plugin(name, expected=expected)
    lines = [f"[{result.id}] {problems_text(result.problems)}" for result in report.failures]
    assert not lines, f"{name} does not conform:\n" + "\n".join(lines)
