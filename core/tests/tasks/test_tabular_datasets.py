"""The datasets of core: known numbers, seeds, and a user's table through the config."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icml26 import builtin
from icml26.context import STREAM_DATASET, RunContext
from icml26.dataset import Dataset
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26.task import Problem
from icml26.tasks.tabular_datasets import Diabetes, Friedman, TableDataset, friedman1


def load(dataset: type[Dataset[Any, Any]], run_seed: int = 0, **config: Any) -> Problem[Any, Any]:
    return dataset(dataset.Config(**config)).load(RunContext(run_seed, stream=STREAM_DATASET))


def apart(problem: Problem[Any, Any]) -> bool:
    inputs, truth = problem.inputs, problem.truth
    theirs = (truth.X_test, truth.y_test, truth.X_train, truth.y_train)
    return not any(np.shares_memory(mine, other) for mine in (inputs.X, inputs.y) for other in theirs)


def test_diabetes_is_the_published_table() -> None:
    pytest.importorskip("sklearn")
    problem = load(Diabetes, 3)
    inputs, truth = problem.inputs, problem.truth
    y = np.concatenate([inputs.y, truth.y_test])
    X = np.concatenate([inputs.X, truth.X_test])
    assert X.shape == (442, 10) and len(truth.y_test) == 110
    assert inputs.feature_names[:4] == ("age", "sex", "bmi", "bp")
    assert (y.min(), y.max()) == (25, 346)
    assert y.mean() == pytest.approx(152.13348416289594)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(np.square(X).sum(axis=0), 1)
    raw = load(Diabetes, 3, scaled=False)
    ages = np.concatenate([raw.inputs.X[:, 0], raw.truth.X_test[:, 0]])
    assert (ages.min(), ages.max()) == (19, 79)
    assert apart(problem)


def test_diabetes_without_scikit_learn_is_refused_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"pip install 'icml26\[sklearn\]'"):
        load(Diabetes)


def test_friedmans_function_has_known_values() -> None:
    corners = np.array([[1, 0.5, 0.5, 1, 1], [0, 0, 0, 0, 0], [0.5, 1, 1, 0, 0.2]], dtype=np.float64)
    np.testing.assert_allclose(friedman1(corners), [25, 5, 10 + 5 + 1])


def test_friedmans_noise_has_the_declared_size_and_other_features_say_nothing() -> None:
    problem = load(Friedman, n_rows=40_000, n_features=6, noise=2.0, test_fraction=0.5)
    residual = problem.inputs.y - friedman1(problem.inputs.X)
    assert residual.std() == pytest.approx(2.0, rel=0.02)
    assert abs(residual.mean()) < 0.06
    assert abs(np.corrcoef(problem.inputs.X[:, 5], problem.inputs.y)[0, 1]) < 0.03
    assert load(Friedman, noise=0.0).inputs.y == pytest.approx(friedman1(load(Friedman, noise=0.0).inputs.X))
    assert apart(problem)


def test_friedman_draws_golden_numbers() -> None:
    rng = np.random.default_rng(7)
    X = rng.random((4, 5))
    y = friedman1(X) + rng.standard_normal(4)
    order = rng.permutation(4)
    problem = load(Friedman, n_rows=4, n_features=5, seed=7)
    np.testing.assert_array_equal(problem.truth.y_test, y[order[:1]])
    np.testing.assert_array_equal(problem.inputs.X, X[np.sort(order[1:])])
    assert X[0, 0] == pytest.approx(0.625095466604667, abs=1e-15)


@pytest.mark.parametrize("dataset", [Friedman, Diabetes])
def test_the_runs_seed_decides_unless_the_dataset_has_its_own(dataset: type[Dataset[Any, Any]]) -> None:
    if dataset is Diabetes:
        pytest.importorskip("sklearn")

    def mark(run_seed: int, **config: Any) -> str:
        problem = load(dataset, run_seed, **config)
        return fingerprint((problem.inputs, problem.truth))

    assert mark(0) == mark(0)
    assert mark(0) != mark(1)
    assert mark(0, seed=5) == mark(1, seed=5)


def table(folder: Path, rows: int = 12) -> Path:
    path = folder / "houses.csv"
    lines = [
        f"{index},{'Ulm' if index % 2 else 'Bonn'},{'test' if index % 3 == 0 else 'train'},{index * 1.5}"
        for index in range(rows)
    ]
    path.write_text("size,town,part,price\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_users_table_is_split_by_fraction_or_by_column(tmp_path: Path) -> None:
    options: dict[str, Any] = {"path": table(tmp_path), "target": "price", "categorical": ("town",)}
    by_column = load(TableDataset, split_column="part", **options)
    assert by_column.truth.y_test.tolist() == [0, 4.5, 9, 13.5]
    assert by_column.info == {
        "file": "houses.csv",
        "target": "price",
        "n_train": 8,
        "n_test": 4,
        "n_features": 2,
        "categories": {"town": ["Bonn", "Ulm"]},
        "dropped_test_rows": 0,
    }
    by_fraction = load(TableDataset, drop=("part",), test_fraction=0.5, **options)
    assert len(by_fraction.inputs.y) == len(by_fraction.truth.y_test) == 6
    other = load(TableDataset, 1, drop=("part",), test_fraction=0.5, **options)
    assert fingerprint(by_fraction.inputs) != fingerprint(other.inputs)
    assert apart(by_fraction)


def test_a_target_that_is_huge_or_a_file_that_moved_says_so(tmp_path: Path) -> None:
    path = table(tmp_path)
    path.rename(tmp_path / "Houses 2.csv")
    with pytest.raises(InputError, match=r"houses\.csv: no such file; near it: Houses 2\.csv"):
        load(TableDataset, path=path, target="price")


def test_every_spec_of_core_points_at_what_exists() -> None:
    import importlib

    specs: list[Any] = [*builtin.icml26_methods(), *builtin.icml26_datasets(), *builtin.icml26_metrics()]
    targets = [spec.target for spec in specs]
    for task in builtin.icml26_tasks():
        targets += [task.inputs, task.truth, task.output]
        assert set(task.metrics) <= {spec.name for spec in builtin.icml26_metrics()}
    for target in targets:
        module, _, name = target.partition(":")
        assert hasattr(importlib.import_module(module), name), target
    assert len({(type(spec), spec.name) for spec in specs}) == len(specs)
