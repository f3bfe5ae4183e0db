"""The authors' own program, where it is installed (`pip install claritree` needs the Eigen headers)."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import mixed_data, plxor
from icml26_plugin_claritree import CLARITreeRegressor

official = pytest.importorskip("clari_tree")


@pytest.mark.parametrize(
    ("data", "depth", "n_thresholds"),
    [(plxor(1000, 0), 3, 19), (plxor(500, 7), 4, 10), (mixed_data(3, 300), 3, 12), (mixed_data(4, 200), 4, 6)],
)
@pytest.mark.parametrize("search", ["lookahead", "greedy"])
def test_objective_and_leaves_equal_the_authors_program(
    data: tuple, depth: int, n_thresholds: int, search: str
) -> None:
    X, y = data
    X = X[:, np.ptp(X, axis=0) > 0]  # their program counts a constant column in the automatic leaf size in its own way
    kind = official.CLARITree if search == "lookahead" else official.Greedy
    theirs = kind(1e-4, depth, 1e-3, n_thresholds, "quantile", False, 0)
    objective = theirs.fit(X, y)
    ours = CLARITreeRegressor(depth, 1e-3, 1e-4, n_thresholds, search=search).fit(X, y)
    assert ours.objective_ == pytest.approx(objective, rel=1e-8)
    assert ours.predict(X) == pytest.approx(np.asarray(theirs.predict(X)).ravel(), rel=1e-6, abs=1e-8)
