from __future__ import annotations

import numpy as np
import pytest
import torch
from icml26 import Problem
from icml26_plugin_timeguard.forecasters import DLinear, InvertedTransformer, MLPForecaster, build_seeded, factory
from icml26_plugin_timeguard.loss import masked_mean, unit_loss
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import Training
from icml26_plugin_timeguard.task import Inputs, Truth
from icml26_plugin_timeguard.timeguard import train_plainly
from icml26_plugin_timeguard.trainer import Optimisation, Trainer
from icml26_plugin_timeguard.windows import Scaler, backcast_windows, forecast_windows, n_windows
from torch import nn

LAST = Training(lr=1e-3, epochs=2, model_selection="last", forecaster_options={"hidden": 16})


def session_of(small: Problem[Inputs, Truth], selection: str) -> Session:
    training = Training(lr=1e-3, model_selection=selection, forecaster_options={"hidden": 16})  # type: ignore[arg-type]
    return Session.open(small.inputs.train, small.inputs.val, 12, 12, training, seed=0)


def losses(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    forecast = torch.randn(5, 12, 3, generator=generator, dtype=torch.float64).requires_grad_()
    return forecast, torch.randn(5, 12, 3, generator=generator, dtype=torch.float64)


def test_an_all_ones_mask_gives_the_plain_smooth_l1_mean() -> None:
    forecast, future = losses()
    masked = masked_mean(unit_loss(forecast, future), torch.ones(5, 3, dtype=torch.float64))
    torch.testing.assert_close(masked, nn.functional.smooth_l1_loss(forecast, future), rtol=1e-8, atol=0)


def test_a_partial_mask_gives_the_mean_over_what_it_selects() -> None:
    forecast, future = losses()
    mask = torch.zeros(5, 3, dtype=torch.float64)
    mask[1, 2] = mask[4, 0] = 1
    per_unit = unit_loss(forecast, future)
    torch.testing.assert_close(masked_mean(per_unit, mask), (per_unit[1, 2] + per_unit[4, 0]) / 2, rtol=1e-7, atol=0)


def test_an_empty_mask_gives_zero_loss_and_zero_gradients() -> None:
    forecast, future = losses()
    loss = masked_mean(unit_loss(forecast, future), torch.zeros(5, 3, dtype=torch.float64))
    loss.backward()
    assert loss.item() == 0.0
    assert forecast.grad is not None and (forecast.grad == 0).all()


def test_unselected_units_get_exactly_no_gradient() -> None:
    forecast, future = losses()
    mask = torch.zeros(5, 3, dtype=torch.float64)
    mask[1, 2] = mask[4, 0] = 1
    masked_mean(unit_loss(forecast, future), mask).backward()
    assert forecast.grad is not None
    touched = (forecast.grad != 0).any(dim=1)
    assert touched.nonzero().tolist() == [[1, 2], [4, 0]]


def test_one_sgd_step_under_an_all_ones_mask_equals_plain_training() -> None:
    steps = []
    for masked in (True, False):
        model = build_seeded(factory("mlp", {"hidden": 8}), 12, 12, 3, seed=1).double()
        history, future = torch.randn(2, 7, 12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        output = model(history)
        plain = nn.functional.smooth_l1_loss(output, future)
        loss = masked_mean(unit_loss(output, future), torch.ones(7, 3, dtype=torch.float64)) if masked else plain
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        steps.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(steps[0], steps[1], rtol=1e-7, atol=1e-12)


def test_windows_pair_each_history_with_the_steps_after_it() -> None:
    series = np.arange(80.0).reshape(40, 2) ** 1.5
    scaler = Scaler.fit(series)
    windows = forecast_windows(series, scaler, 5, 3, dtype=torch.float64)
    assert len(windows) == n_windows(40, 5, 3) == 33
    for t in (0, 17, 32):
        np.testing.assert_allclose(windows.history[t].numpy(), scaler.normalize(series[t : t + 5]))
        np.testing.assert_allclose(windows.future[t].numpy(), series[t + 5 : t + 8])


def test_backcast_window_t_is_window_t_reversed_in_time() -> None:
    series = np.random.default_rng(0).normal(size=(40, 2))
    scaler = Scaler.fit(series)
    backward = backcast_windows(series, scaler, 5, 3, dtype=torch.float64)
    assert backward.history.shape == (33, 3, 2) and backward.future.shape == (33, 5, 2)
    for t in (0, 17, 32):
        np.testing.assert_allclose(backward.history[t].numpy(), scaler.normalize(series[t + 5 : t + 8][::-1]))
        np.testing.assert_allclose(backward.future[t].numpy(), series[t : t + 5][::-1])


@pytest.mark.parametrize("build", [MLPForecaster, DLinear, InvertedTransformer])
@pytest.mark.parametrize("sizes", [(12, 7, 3), (7, 12, 1), (1, 1, 2)])
def test_forecasters_map_any_lengths_and_one_channel_and_a_batch_of_one(
    build: type[nn.Module], sizes: tuple[int, int, int]
) -> None:
    seq_len, pred_len, channels = sizes
    model = build(seq_len, pred_len, channels)
    assert model(torch.randn(1, seq_len, channels)).shape == (1, pred_len, channels)


@pytest.mark.parametrize("build", [MLPForecaster, DLinear, InvertedTransformer])
def test_forecasters_follow_a_shift_of_level(build: type[nn.Module]) -> None:
    model = build(12, 6, 3).double().eval()
    history = torch.randn(4, 12, 3, dtype=torch.float64)
    if build is DLinear:
        for part in (model.trend, model.remainder):
            part.weight.data = part.weight / part.weight.sum(dim=1, keepdim=True)
    torch.testing.assert_close(model(history + 5), model(history) + 5)


@pytest.mark.parametrize("kind", ["mlp", "itransformer"])
def test_training_is_bit_identical_for_a_seed_and_leaves_the_global_rng_alone(
    small: Problem[Inputs, Truth], kind: str
) -> None:
    training = Training(forecaster=kind, lr=1e-3, epochs=2, model_selection="last")
    before = torch.random.get_rng_state()
    runs = []
    for seed, noise in ((3, 0), (3, 99), (4, 0)):
        torch.manual_seed(noise)
        state = torch.random.get_rng_state()
        session = Session.open(small.inputs.train, None, 12, 12, training, seed=seed)
        runs.append(train_plainly(session).predict(small.inputs.val[None, :12]))
        assert torch.equal(torch.random.get_rng_state(), state)
    torch.random.set_rng_state(before)
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_last_batch_of_one_and_a_single_channel_train() -> None:
    series = np.sin(np.arange(88.0))[:, None]
    session = Session.open(series, None, 12, 12, LAST, seed=0)
    assert session.n_windows % 64 == 1
    assert np.isfinite(train_plainly(session).predict(series[None, :12])).all()


def test_unit_losses_are_the_eval_mode_loss_of_each_unit(small: Problem[Inputs, Truth]) -> None:
    session = Session.open(small.inputs.train, None, 12, 12, LAST, seed=0)
    trainer = session.trainer()
    found = trainer.unit_losses()
    forecaster = session.fitted(trainer.model)
    error = forecaster.predict(small.inputs.train[None, 5:17])[0] - small.inputs.train[17:29]
    smooth = np.where(np.abs(error) < 1, 0.5 * error**2, np.abs(error) - 0.5).mean(axis=0)
    np.testing.assert_allclose(found[:, 5], smooth, rtol=1e-4)


def test_validation_selection_keeps_the_best_epoch(small: Problem[Inputs, Truth]) -> None:
    training = Training(lr=0.02, epochs=8, model_selection="val", forecaster_options={"hidden": 16})
    session = Session.open(small.inputs.train, small.inputs.val, 12, 12, training, seed=0)
    seen: dict[int, float] = {}
    fitted = train_plainly(session, log=lambda n, v, s=None: seen.update({s: v}) if n == "val-mae" else None)
    windows = np.lib.stride_tricks.sliding_window_view(small.inputs.val, 24, axis=0).transpose(0, 2, 1)
    mae = np.abs(fitted.predict(windows[:, :12]) - windows[:, 12:]).mean()
    assert len(set(seen.values())) > 1
    assert mae == pytest.approx(min(seen.values()), rel=1e-4)


def test_selection_goes_back_to_the_better_weights(small: Problem[Inputs, Truth]) -> None:
    opened = session_of(small, "val")
    trainer = opened.trainer()
    keeper = opened.keeper(trainer)
    trainer.epoch()
    good = [p.detach().clone() for p in trainer.model.parameters()]
    first = keeper.observe()
    trainer.epochs_done += 1
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.fill_(1.0)
    second = keeper.observe()
    assert first is not None and second is not None and first < second
    for kept, before in zip(keeper.finish().parameters(), good, strict=True):
        assert torch.equal(kept, before)
    assert keeper.best_epoch == 1


def test_every_epoch_has_its_own_order(small: Problem[Inputs, Truth]) -> None:
    trainer = session_of(small, "last").trainer()
    orders: list[list[int]] = [[], []]
    for order in orders:

        def note(losses: torch.Tensor, index: torch.Tensor, seen: list[int] = order) -> torch.Tensor:
            seen.extend(index.tolist())
            return losses.mean()

        trainer.epoch(batch_loss=note)
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(337))
    assert orders[0] != orders[1]


def test_restored_trainer_continues_as_if_never_stopped(small: Problem[Inputs, Truth]) -> None:
    session = Session.open(small.inputs.train, None, 12, 12, LAST, seed=0)
    straight, stopped, resumed = session.trainer(), session.trainer(), session.trainer()
    for _ in range(3):
        straight.epoch()
    stopped.epoch()
    resumed.restore(stopped.state())
    for _ in range(2):
        resumed.epoch()
    for a, b in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_a_reversible_series_is_as_easy_backwards() -> None:
    """x_t = sin(w t): forecaster and backcaster reach the same loss within 10 % (MLP, equal lengths)."""
    series = 50 * np.sin(0.21 * np.arange(1200.0))[:, None]
    series = series + 2.0 * np.random.default_rng(0).normal(size=series.shape)
    session = Session.open(series, None, 12, 12, Training(lr=1e-3, model_selection="last"), seed=0)
    means = []
    for trainer in (session.trainer(), session.backcaster()):
        for _ in range(40):
            trainer.epoch()
        means.append(trainer.unit_losses().mean())
    assert means[0] == pytest.approx(means[1], rel=0.1)


def test_windows_are_views_of_the_series() -> None:
    series = np.random.default_rng(0).normal(size=(5000, 4))
    windows = forecast_windows(series, Scaler.fit(series), 96, 96)
    assert windows.history.untyped_storage().nbytes() == 5000 * 4 * 4
    trainer = Trainer(nn.Linear(1, 1), windows, Optimisation(), seed=0)
    assert trainer.windows is windows
