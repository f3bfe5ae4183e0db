"""The conformance kit; every method runs in several processes that import torch, so it is no part of the quick tests."""

from __future__ import annotations

import pytest
from icml26.testing import conformance_tests

pytestmark = pytest.mark.slow

test_conformance = conformance_tests("flashtrace")
