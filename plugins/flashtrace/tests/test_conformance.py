"""The conformance kit."""

from __future__ import annotations

from icml26.testing import conformance_tests

test_conformance = conformance_tests("flashtrace")
