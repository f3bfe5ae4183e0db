"""The kit: every method on its smoke setting, several times over."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_plugin_conforms() -> None:
    from icml26.testing import assert_conforms

    assert_conforms("divergence-decoding")
