"""The types and metrics of regression.tabular, by hand-computed values."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26 import builtin
from icml26.context import RunContext
from icml26.errors import InputError, PluginError
from icml26.fingerprints import fingerprint
from icml26.metric import as_scores
from icml26.tasks import tabular_metrics
from icml26.tasks.mean import Mean
from icml26.tasks.tabular import Inputs, Output, Truth

SPECS = {spec.name: spec for spec in builtin.icml26_metrics()}


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)[:, None]


def make_truth() -> Truth:
    return Truth(
        X_test=column(0, 1, 2, 3),
        y_test=np.array([0.0, 1.0, 2.0, 5.0]),
        X_train=column(0, 1),
        y_train=np.array([1.0, 1.0]),
    )


def score(name: str, output: Output, truth: Truth) -> dict[str, float]:
    function = getattr(tabular_metrics, SPECS[name].target.partition(":")[2])
    return as_scores(SPECS[name], function(output, truth))


def test_metrics_of_the_identity_match_hand_computed_values() -> None:
    output = Output(predict=lambda X: X[:, 0], info={"n_parameters": 2})
    truth = make_truth()
    assert score("mse", output, truth) == {"mse": 1.0}
    assert score("mae", output, truth) == {"mae": 0.5}
    assert score("r2", output, truth) == {"r2": pytest.approx(1 - 4 / 14)}
    assert score("train-mse", output, truth) == {"train-mse": 0.5}
    assert score("n-parameters", output, truth) == {"n-parameters": 2.0}


def test_metrics_average_over_replicates_and_add_the_standard_error() -> None:
    shifts = np.array([0.0, 1.0, 2.0])
    output = Output(predict=lambda X: X[:, 0], replicates=lambda X: X[:, 0] + shifts[:, None])
    truth = Truth(column(0, 1), np.array([0.0, 1.0]), column(0, 1), np.array([0.0, 1.0]))
    errors = shifts**2
    expected = {"mse": errors.mean(), "mse-se": np.std(errors, ddof=1) / math.sqrt(3)}
    assert score("mse", output, truth) == pytest.approx(expected)
    assert score("mae", output, truth) == pytest.approx({"mae": 1.0, "mae-se": 1 / math.sqrt(3)})
    assert score("r2", output, truth)["r2"] == pytest.approx(np.mean(1 - errors * 2 / 0.5))
    assert set(score("train-mse", output, truth)) == {"train-mse", "train-mse-se"}


def test_one_replicate_has_no_standard_error() -> None:
    output = Output(predict=lambda X: X[:, 0], replicates=lambda X: X[None, :, 0])
    assert score("mse", output, make_truth()) == {"mse": 1.0}


def test_r2_of_a_constant_target_is_not_a_number() -> None:
    for y in ([0.1, 0.1, 0.1], [0.0, 5e-324, 0.0]):
        truth = Truth(column(0, 1, 2), np.array(y), column(0), np.array([1.0]))
        assert math.isnan(score("r2", Output(predict=lambda X: X[:, 0]), truth)["r2"])


def test_a_prediction_that_is_not_finite_gives_a_score_that_is_not_finite() -> None:
    assert math.isnan(score("mse", Output(predict=lambda X: X[:, 0] * np.nan), make_truth())["mse"])


@pytest.mark.parametrize(
    "predict",
    [lambda X: X, lambda X: X[:1, 0], lambda X: 0.0, lambda X: X[:, 0] + 1j, lambda X: ["a"] * len(X)],
)
def test_predictions_of_another_shape_or_kind_are_the_methods_fault(predict: Callable[[Any], Any]) -> None:
    with pytest.raises(PluginError, match=r"predict must return numbers of shape \(4\)"):
        tabular_metrics.mse(Output(predict=predict), make_truth())


def test_replicates_of_another_shape_are_the_methods_fault() -> None:
    for replicates in (lambda X: X[:, 0], lambda X: X[:0].T, lambda X: np.zeros((0, 4))):
        with pytest.raises(PluginError, match=r"replicates must return numbers of shape \(R, 4\)"):
            tabular_metrics.mse(Output(predict=lambda X: X[:, 0], replicates=replicates), make_truth())


@pytest.mark.parametrize("info", [{}, {"n_parameters": True}, {"n_parameters": 1.5}, {"n_parameters": -1}])
def test_a_missing_count_of_parameters_is_the_methods_fault(info: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match="n_parameters"):
        tabular_metrics.n_parameters(Output(predict=lambda X: X[:, 0], info=info), make_truth())


def test_a_predictor_that_writes_into_its_argument_cannot_change_the_truth() -> None:
    def predict(X: np.ndarray) -> np.ndarray:
        X += 1
        return X[:, 0]

    truth = make_truth()
    before = fingerprint(truth)
    tabular_metrics.mse(Output(predict=predict), truth)
    tabular_metrics.train_mse(Output(predict=predict), truth)
    assert fingerprint(truth) == before


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=30),
    st.floats(-100, 100),
)
def test_mse_is_at_least_the_square_of_mae_and_r2_is_at_most_one(
    pairs: list[tuple[float, float]], shift: float
) -> None:
    y, f = (np.array(values) for values in zip(*pairs, strict=True))
    truth = Truth(f[:, None], y, f[:, None], y)
    output = Output(predict=lambda X: X[:, 0] + shift)
    squared, absolute = tabular_metrics.mse(output, truth), tabular_metrics.mae(output, truth)
    assert isinstance(squared, float) and isinstance(absolute, float)
    assert squared * (1 + 1e-9) + 1e-12 >= absolute**2
    r2 = tabular_metrics.r2(output, truth)
    assert isinstance(r2, float) and (math.isnan(r2) or r2 <= 1)


GOOD: dict[str, Any] = {"X": np.zeros((2, 2)), "y": np.zeros(2), "feature_names": ("a", "b")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"X": np.zeros((2, 2), dtype=np.float32)},
            r"X must be a float64 array of shape \(n, d\), got float32 \(2, 2\)",
        ),
        ({"X": np.zeros(2)}, r"X must be .* got float64 \(2,\)"),
        ({"X": [[0.0, 0.0]]}, "X must be .* got list"),
        ({"y": np.zeros((2, 1))}, r"y must be .* shape \(n,\), got float64 \(2, 1\)"),
        ({"y": np.zeros(3)}, "X has 2 rows, y has 3"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "X is empty"),
        ({"X": np.zeros((2, 0)), "feature_names": ()}, "X is empty"),
        ({"X": np.array([[0, 0], [0, np.nan]])}, "X holds nan in row 1, column 'b'"),
        ({"X": np.array([[0, 0], [np.inf, 0]])}, "X holds inf in row 1, column 'a'"),
        ({"y": np.array([-np.inf, 0])}, "y holds -inf in row 0"),
        ({"feature_names": ("a",)}, "2 columns but there are 1 feature names"),
        ({"feature_names": ("a", "a")}, "twice: 'a'"),
        ({"categorical": (2,)}, "column indices below 2"),
        ({"categorical": (1, 0)}, "increasing"),
        ({"categorical": (1,), "X": np.array([[0, 0.5], [0, 1]])}, "'b' must hold codes"),
        ({"categorical": (1,), "X": np.array([[0, -1.0], [0, 1]])}, "'b' must hold codes"),
        ({"sample_weight": np.ones(3)}, r"shape \(2,\), got float64 \(3,\)"),
        ({"sample_weight": np.array([1.0, -1.0])}, "not negative"),
        ({"sample_weight": np.zeros(2)}, "not all zero"),
        ({"sample_weight": np.array([1.0, np.nan])}, "finite"),
    ],
)
def test_inputs_that_break_the_contract_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    Inputs(**GOOD)
    with pytest.raises(InputError, match=message):
        Inputs(**(GOOD | change))


def test_truth_with_other_columns_than_the_training_rows_is_refused() -> None:
    with pytest.raises(InputError, match="X_test has 1 columns, X_train 2"):
        Truth(np.zeros((2, 1)), np.zeros(2), np.zeros((2, 2)), np.zeros(2))


def test_mean_predicts_the_weighted_mean() -> None:
    y = np.array([0.0, 4.0])
    plain = Mean(Mean.Config()).run(Inputs(np.zeros((2, 1)), y, ("a",)), RunContext())
    weighted = Mean(Mean.Config()).run(
        Inputs(np.zeros((2, 1)), y, ("a",), sample_weight=np.array([3.0, 1.0])), RunContext()
    )
    assert plain.predict(np.zeros((3, 1))).tolist() == [2.0, 2.0, 2.0]
    assert weighted.predict(np.zeros((1, 1))).tolist() == [1.0]
    assert fingerprint(plain) != fingerprint(weighted)


def test_types_and_hooks_import_nothing_heavier_than_numpy() -> None:
    code = (
        "import sys, icml26.tasks.tabular, icml26.tasks.tabular_metrics\n"
        "print(sorted({'pandas', 'pyarrow', 'sklearn', 'scipy', 'torch', 'pydantic'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_the_hook_module_imports_no_numpy() -> None:
    code = "import sys, icml26.builtin; print('numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )
