from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from icml26 import Problem, RunContext
from icml26.errors import InputError
from icml26_plugin_timeguard.baseline_methods import FinePruning, Pdb
from icml26_plugin_timeguard.baselines import abl, fine_pruning, pdb, spectral
from icml26_plugin_timeguard.baselines.features import last_linear, penultimate
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.forecasters import DLinear, InvertedTransformer, MLPForecaster
from icml26_plugin_timeguard.methods import LossPool, WindowPool
from icml26_plugin_timeguard.session import Session, window_mae
from icml26_plugin_timeguard.settings import Training
from icml26_plugin_timeguard.task import Inputs, Truth
from icml26_plugin_timeguard.trainer import Trainer
from icml26_plugin_timeguard.windows import Scaler
from torch import nn

TRAINING = Training(lr=1e-3, epochs=3, model_selection="last", forecaster_options={"hidden": 16})


def session(small: Problem[Inputs, Truth], training: Training = TRAINING) -> Session:
    return Session.open(small.inputs.train, small.inputs.val, 12, 12, training, seed=3)


@pytest.mark.parametrize(
    ("model", "layer", "shape"),
    [
        (MLPForecaster(12, 12, 4, hidden=16), "head", (337, 16)),
        (DLinear(12, 12, 4), "remainder", (337, 4, 12)),
        (InvertedTransformer(12, 12, 4, d_model=8), "head", (337, 4, 8)),
    ],
)
def test_penultimate_features_are_what_enters_the_last_linear_layer(
    small: Problem[Inputs, Truth], model: nn.Module, layer: str, shape: tuple[int, ...]
) -> None:
    windows = session(small).windows(small.inputs.train)
    assert last_linear(model, windows.history) is getattr(model, layer)
    assert penultimate(model, windows, batch_size=100).shape == shape
    assert not getattr(model, layer)._forward_pre_hooks


def test_a_network_without_a_linear_layer_is_refused(small: Problem[Inputs, Truth]) -> None:
    windows = session(small).windows(small.inputs.train)
    with pytest.raises(InputError, match=r"torch\.nn\.Linear"):
        last_linear(nn.Identity(), windows.history)


def test_spectral_scores_single_out_a_planted_direction() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 10))
    planted = rng.choice(400, 20, replace=False)
    features[planted] += 12 * np.eye(10)[3]
    scores = spectral.outlier_scores(torch.from_numpy(features)).numpy()
    assert set(np.argsort(-scores)[:20]) == set(planted)
    _, _, right = np.linalg.svd(features - features.mean(axis=0))
    np.testing.assert_allclose(scores, ((features - features.mean(axis=0)) @ right[0]) ** 2, rtol=1e-5)


def test_spectral_removes_one_and_a_half_times_the_assumed_rate_of_whole_windows(small: Problem[Inputs, Truth]) -> None:
    _, pool = spectral.spectral_signatures(session(small), spectral.SpectralSettings(0.1))
    assert (pool == pool[0]).all()
    assert (~pool[0]).sum() == int(337 * 0.15)


def test_pruning_takes_silent_units_first_and_stops_at_the_tolerance(small: Problem[Inputs, Truth]) -> None:
    opened = session(small)
    trainer = opened.trainer()
    for _ in range(3):
        trainer.epoch()
    model = trainer.model
    assert isinstance(model, MLPForecaster)
    with torch.no_grad():  # two units that are always zero: GELU of a large negative number
        model.features[2].bias[[4, 9]] = -1e4
    windows = opened.windows(small.inputs.val)
    before = window_mae(trainer.forecast, model, windows)
    pruned = fine_pruning.prune(trainer, windows, windows, 1.02)
    after = window_mae(trainer.forecast, model, windows)
    assert pruned[4] and pruned[9]
    assert before <= after * 1.0001 and after <= before * 1.02
    assert (model.head.weight[:, pruned] == 0).all()
    none = fine_pruning.prune(trainer, windows, windows, 0.5)
    assert not none.any() and window_mae(trainer.forecast, model, windows) == after


def test_pruned_units_stay_pruned_through_fine_tuning(small: Problem[Inputs, Truth]) -> None:
    assert small.inputs.clean is not None
    settings = fine_pruning.FinePruningSettings(tolerance=1.5, epochs=2)
    fitted, count = fine_pruning.fine_pruning(session(small), small.inputs.clean, settings)
    model = fitted.module
    assert isinstance(model, MLPForecaster)
    assert 0 < count <= 16
    assert int((model.head.weight == 0).all(dim=0).sum()) == count


def test_gradient_flooring_pushes_small_losses_up() -> None:
    losses = torch.tensor([[1.0, 1.0], [5.0, 5.0], [9.0, 9.0]], requires_grad=True)
    abl._Floor(0.5)(losses, torch.arange(3)).backward()
    assert losses.grad is not None
    assert (losses.grad[2] > 0).all() and (losses.grad[0] < 0).all() and (losses.grad[1] == 0).all()


def test_abl_isolates_the_asked_share_and_unlearning_raises_its_loss(small: Problem[Inputs, Truth]) -> None:
    opened = session(small, replace(TRAINING, epochs=6))
    _, pool = abl.anti_backdoor_learning(opened, abl.AblSettings(2, isolation=0.05, unlearn_epochs=1))
    assert (~pool[0]).sum() == int(337 * 0.05) and (pool == pool[0]).all()
    trainer = opened.trainer()
    for _ in range(3):
        trainer.epoch()
    before = trainer.unit_losses().mean(axis=0)
    isolated = np.arange(0, 337, 20)
    abl.unlearn(trainer, pool, isolated, 1e-3, 2)
    change = trainer.unit_losses().mean(axis=0) - before
    assert change[isolated].mean() > np.delete(change, isolated).mean()


class Echo(nn.Module):
    """Forecasts the last value, whatever the stamp: the ideal student of PDB without its shift."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        return self.scale * history[:, -1:, :].expand(-1, 3, -1)


def test_pdb_stamps_the_history_and_takes_the_shift_back() -> None:
    stamp = pdb.defender_stamp(pdb.PdbSettings(offset=3.0, stamp_steps=2), 2)
    np.testing.assert_array_equal(stamp, [[3.0, 3.0], [-3.0, -3.0]])
    scaler = Scaler(np.array([10.0]), np.array([2.0]))
    fitted = FittedForecaster(Echo(), scaler, 5, 3, 2, stamp=stamp, output_shift=1.0)
    history = np.full((1, 5, 2), 20.0)
    # Normalised 5, stamped 5 - 3 = 2, shift taken back 1, physical 12.
    np.testing.assert_allclose(fitted.predict(history), 12.0)
    np.testing.assert_array_equal(history, 20.0)


def test_pdb_learns_its_shift_and_is_stored_with_its_stamp(small: Problem[Inputs, Truth], tmp_path: Path) -> None:
    config = Pdb.Config(epochs=25, lr=3e-3, model_selection="last", forecaster_options={"hidden": 32}, shift=2.0)
    output = Pdb(config).run(small.inputs, RunContext(0))
    fitted = output.forecaster
    assert isinstance(fitted, FittedForecaster) and small.inputs.clean is not None
    clean = small.inputs.clean
    right = np.abs(fitted.predict(clean.history) - clean.future).mean()
    fitted.output_shift = 0.0
    assert right < 0.5 * np.abs(fitted.predict(clean.history) - clean.future).mean()
    fitted.output_shift = 2.0
    Pdb(config).save(output, tmp_path)
    loaded = Pdb.load(tmp_path).forecaster
    np.testing.assert_array_equal(loaded.predict(clean.history), fitted.predict(clean.history))


@pytest.mark.parametrize("method", [Pdb, FinePruning])
def test_defences_that_need_clean_windows_say_so(small: Problem[Inputs, Truth], method: type[Pdb]) -> None:
    inputs = replace(small.inputs, clean=None)
    with pytest.raises(InputError, match="trusted clean windows"):
        method(method.Config()).run(inputs, RunContext(0))


def test_ablations_are_timeguard_with_one_switch() -> None:
    loss, window = LossPool.Config(), WindowPool.Config()
    assert (loss.use_ndf, loss.stage2, loss.unit) == (False, "loss", "channel")
    assert (window.use_ndf, window.stage2, window.unit) == (True, "drls", "window")


def test_a_fresh_trainer_on_clean_windows_uses_the_sessions_scale(small: Problem[Inputs, Truth]) -> None:
    opened = session(small)
    assert small.inputs.clean is not None
    windows = opened.window_set(small.inputs.clean.history, small.inputs.clean.future)
    trainer = Trainer(opened.module(), windows, opened.optimisation, seed=0)
    physical = trainer.forecast(windows.history)
    assert physical.shape == windows.future.shape
    np.testing.assert_allclose(
        (windows.history * windows.std + windows.mean).numpy(), small.inputs.clean.history, rtol=1e-5
    )
