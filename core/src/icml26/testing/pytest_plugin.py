"""The pytest plugin of the conformance kit: ``pytest --icml26-plugin NAME`` adds one test for each check of a plugin.

Imported by every pytest of an environment that has icml26, so it imports nothing but pytest until it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("icml26")
    group.addoption(
        "--icml26-plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="add the conformance checks of this installed plugin of icml26 (repeatable)",
    )


class ConformanceItem(pytest.Item):
    """One check of one plugin."""

    def __init__(self, *, check: str, report: Callable[[], Any], **options: Any) -> None:
        super().__init__(**options)
        self.check = check
        self.report = report

    def runtest(self) -> None:
        """Judge the check; all checks of the plugin run once."""
        from icml26.testing import judge

        judge(self.report(), self.check)

    def reportinfo(self) -> tuple[str, int | None, str]:
        """Where pytest says that it is."""
        return "icml26", None, self.name


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks of the plugins that were named."""
    for name in config.getoption("--icml26-plugin"):
        from icml26.testing.kit import IDS, check_plugin

        report = lru_cache(maxsize=1)(lambda name=name: check_plugin(name))
        items += [
            ConformanceItem.from_parent(session, name=f"{name}::{check}", check=check, report=report) for check in IDS
        ]
