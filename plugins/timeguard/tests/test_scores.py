from __future__ import annotations

import numpy as np
import pytest
from icml26 import Problem
from icml26_plugin_timeguard import metrics, scores
from icml26_plugin_timeguard.task import Inputs, Output, Pool, Truth
from icml26_plugin_timeguard.windows import sliding


class Oracle:
    """Forecasts what it is told, window by window."""

    def __init__(self, forecasts: np.ndarray) -> None:
        self.forecasts, self.position = forecasts, 0

    def predict(self, history: np.ndarray) -> np.ndarray:
        start, self.position = self.position, self.position + len(history)
        return self.forecasts[start : self.position]


def test_mae_c_is_zero_for_the_true_future_and_counts_every_entry(
    small: Problem[Inputs, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "CHUNK", 40)
    future = np.array(sliding(small.truth.test, 24)[:, 12:])
    assert metrics.mae_c(Output(Oracle(future)), small.truth) == 0.0
    off = future.copy()
    off[-1, 0, 0] += future.size
    assert metrics.mae_c(Output(Oracle(off)), small.truth) == pytest.approx(1.0)


def test_mae_p_is_zero_for_a_model_that_outputs_the_target(small: Problem[Inputs, Truth]) -> None:
    attack = small.truth.attack
    assert attack is not None
    forecasts = np.array(sliding(small.truth.test, 24)[:, 12:])
    forecasts[:, :7, attack.channels] = attack.target
    assert metrics.mae_p(Output(Oracle(forecasts)), small.truth) == 0.0
    forecasts[:, 7:] += 100
    others = np.setdiff1d(np.arange(4), attack.channels)
    forecasts[:, :, others] += 100
    assert metrics.mae_p(Output(Oracle(forecasts)), small.truth) == 0.0
    forecasts[:, :7, attack.channels] += 3.0
    assert metrics.mae_p(Output(Oracle(forecasts)), small.truth) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("mae_c", "mae_p", "expected"),
    [
        (10, 9, 0.5),
        (10, 18, 0.75),
        (20, 9, 0.25),
        (5, 4, 0.5),
        (10, 0, 0.5),
        (0, 9, 0.5),
        (1e9, 9, 0.0),
        (10, 9e9, 1.0),
    ],
)
def test_fder_of_known_cases(mae_c: float, mae_p: float, expected: float) -> None:
    assert metrics.fder({"mae-c": mae_c, "mae-p": mae_p}, {"mae-c": 10, "mae-p": 9}) == pytest.approx(
        expected, abs=1e-7
    )


def test_contamination_and_coverage_count_units() -> None:
    poisoned = np.array([[True, True, False, False], [False, False, False, False]])
    pool = np.array([[True, False, True, False], [True, True, False, False]])
    assert scores.contamination(pool, poisoned) == 0.25
    assert scores.coverage(pool, poisoned) == 0.5
    assert np.isnan(scores.contamination(np.zeros_like(pool), poisoned))


def test_pool_contamination_is_relative_to_the_base_rate(small: Problem[Inputs, Truth]) -> None:
    attack = small.truth.attack
    assert attack is not None
    everything, clean = np.ones_like(attack.poisoned), ~attack.poisoned
    output = Output(Oracle(np.empty(0)), Pool(everything, clean, np.zeros_like(clean, dtype=int), 1))
    values = metrics.pool_contamination(output, small.truth)
    assert values == {"": 0.0, "initial": pytest.approx(1.0), "base-rate": attack.poisoned.mean()}
    assert metrics.pool_coverage(output, small.truth) == 1.0
