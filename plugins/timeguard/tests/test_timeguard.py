from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from icml26 import Problem
from icml26.errors import InputError
from icml26_plugin_timeguard.embedding import embed_channel
from icml26_plugin_timeguard.neighbours import exact_score
from icml26_plugin_timeguard.scores import contamination
from icml26_plugin_timeguard.selection import drls
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import PoolSettings, Training
from icml26_plugin_timeguard.task import Inputs, Truth
from icml26_plugin_timeguard.timeguard import GuardResult, PoolTraining, by_window, guard, train_plainly
from torch import nn

TRAINING = Training(lr=1e-3, epochs=4, model_selection="last", forecaster_options={"hidden": 16})
SETTINGS = PoolSettings(backcast_epochs=2, warmup_epochs=1, rounds=3, k=8, k_max=24)


def session(small: Problem[Inputs, Truth], training: Training = TRAINING, seed: int = 3) -> Session:
    return Session.open(small.inputs.train, small.inputs.val, 12, 12, training, seed=seed)


def weights(result: GuardResult) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.forecaster.module.parameters()])


@pytest.mark.parametrize("selection", ["last", "val"])
def test_pools_of_everything_equal_plain_training_bit_for_bit(small: Problem[Inputs, Truth], selection: str) -> None:
    opened = session(small, replace(TRAINING, model_selection=selection, epochs=4))  # type: ignore[arg-type]
    everything = replace(SETTINGS, alpha=1.0, beta=1.0, pi=1.0, reset_optimizer=False)
    guarded = guard(opened, everything)
    plain = train_plainly(opened)
    assert guarded.initial_pool.all() and guarded.pool.all()
    for a, b in zip(guarded.forecaster.module.parameters(), plain.module.parameters(), strict=True):
        assert torch.equal(a, b)


def test_same_seed_gives_bit_identical_masks_and_weights(small: Problem[Inputs, Truth]) -> None:
    first, second, other = (guard(session(small, seed=seed), SETTINGS) for seed in (3, 3, 4))
    for name in ("initial_pool", "pool", "rejections"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert torch.equal(weights(first), weights(second))
    assert not np.array_equal(first.pool, other.pool)


def test_every_round_keeps_the_scheduled_number_of_units_per_channel(small: Problem[Inputs, Truth]) -> None:
    opened = session(small)
    stages = PoolTraining(opened, SETTINGS)
    isolation = stages.isolation()
    pool = stages.initial_pool(isolation)
    trainer = opened.trainer()
    keeper = opened.keeper(trainer)
    sizes = []
    for index in range(3):
        pool = stages.round(trainer, keeper, isolation, pool, index)
        sizes.append(set(pool.sum(axis=1).tolist()))
    assert opened.n_windows == 337
    assert sizes == [{int(337 * 0.2)}, {int(337 * 0.35)}, {int(337 * 0.5)}]


def test_a_round_gates_by_the_distance_from_the_previous_rounds_rejects(small: Problem[Inputs, Truth]) -> None:
    opened = session(small)
    stages = PoolTraining(opened, SETTINGS)
    isolation = stages.isolation()
    trainer = opened.trainer()
    previous = np.random.default_rng(0).random((4, 337)) < 0.5
    chosen = stages.select(trainer, isolation, previous, 1)
    embedded = [embed_channel(small.inputs.train[:, c], 12, 12, 2.0, "euclidean") for c in range(4)]
    scores = np.stack([exact_score(u, ~kept, 8) for u, kept in zip(embedded, previous, strict=True)])
    np.testing.assert_array_equal(chosen, drls(trainer.unit_losses(), scores, 0.35, 1.25))
    other = np.stack([exact_score(u, kept, 8) for u, kept in zip(embedded, previous, strict=True)])
    assert not np.array_equal(chosen, drls(trainer.unit_losses(), other, 0.35, 1.25))


def test_window_level_ablation_selects_whole_windows(small: Problem[Inputs, Truth]) -> None:
    result = guard(session(small), replace(SETTINGS, unit="window"))
    for pool in (result.initial_pool, result.pool):
        assert (pool == pool[0]).all()
    scores = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_array_equal(by_window(scores), [[2.0, 4.0], [2.0, 4.0]])


@pytest.mark.parametrize(
    "change",
    [
        {"use_rcf": False},
        {"use_ndf": False},
        {"use_rcf": False, "use_ndf": False},
        {"stage2": "loss"},
        {"stage2": "fixed"},
        {"metric": "one_minus_r"},
        {"fallback": "inf", "k_max": 8},
        {"reset_optimizer": False, "lr_stage2_factor": 10.0},
        {"rounds": 1},
        {"rounds": 0},
    ],
)
def test_every_switch_trains_and_changes_what_is_learnt(
    small: Problem[Inputs, Truth], change: dict[str, object]
) -> None:
    base, changed = guard(session(small), SETTINGS), guard(session(small), replace(SETTINGS, **change))  # type: ignore[arg-type]
    assert np.isfinite(changed.forecaster.predict(small.inputs.val[None, :12])).all()
    assert not torch.equal(weights(base), weights(changed))


def test_fixed_stage_two_keeps_the_initial_pool_and_no_filter_draws_one_of_its_size(
    small: Problem[Inputs, Truth],
) -> None:
    fixed = guard(session(small), replace(SETTINGS, stage2="fixed"))
    np.testing.assert_array_equal(fixed.pool, fixed.initial_pool)
    blind = guard(session(small), replace(SETTINGS, use_rcf=False, use_ndf=False))
    assert set(blind.initial_pool.sum(axis=1).tolist()) == {67}


def test_rejections_count_the_rounds_outside_the_pool(small: Problem[Inputs, Truth]) -> None:
    result = guard(session(small), replace(SETTINGS, rounds=1))
    np.testing.assert_array_equal(result.rejections, (~result.pool).astype(int))


def test_a_users_own_network_is_trained_through_its_factory(small: Problem[Inputs, Truth]) -> None:
    built: list[tuple[int, int, int]] = []

    class Mine(nn.Module):
        def __init__(self, seq_len: int, pred_len: int, channels: int) -> None:
            super().__init__()
            built.append((seq_len, pred_len, channels))
            self.linear = nn.Linear(seq_len, pred_len)

        def forward(self, history: torch.Tensor) -> torch.Tensor:
            return self.linear(history.transpose(1, 2)).transpose(1, 2)

    opened = Session.open(small.inputs.train, None, 12, 7, TRAINING, seed=0, build=Mine)
    result = guard(opened, SETTINGS)
    assert sorted(built) == [(7, 12, 4), (12, 7, 4)]
    assert result.forecaster.predict(small.inputs.val[None, :12]).shape == (1, 7, 4)


def test_one_channel_is_enough_for_attack_and_defence() -> None:
    from conftest import traffic
    from icml26_plugin_timeguard.problem import AttackSettings, Windowing, build_problem

    problem = build_problem(traffic(600, 1), Windowing(), AttackSettings(), np.random.default_rng(0))
    result = guard(session(problem), SETTINGS)
    assert problem.truth.attack is not None and problem.truth.attack.poisoned.shape == result.pool.shape == (1, 337)


def test_a_short_series_under_the_papers_settings_is_pointed_to_the_small_profile(
    small: Problem[Inputs, Truth],
) -> None:
    for beta, warned in ((0.5, True), (0.8, False)):
        result = guard(session(small), replace(SETTINGS, beta=beta, rounds=1))
        assert any("Only 337 training windows" in text for text in result.warnings) == warned


def test_stuck_sensors_are_reported(small: Problem[Inputs, Truth]) -> None:
    series = small.inputs.train.copy()
    series[100:250, 1] = 7.0
    result = guard(Session.open(series, None, 12, 12, TRAINING, seed=0), SETTINGS)
    assert any("Channel 1" in text and "stuck sensor" in text for text in result.warnings)


def test_an_empty_intersection_is_reported_and_still_trains(small: Problem[Inputs, Truth]) -> None:
    tiny = replace(SETTINGS, alpha=0.004)
    result = guard(session(small), tiny)
    assert (result.initial_pool.sum(axis=1) == 1).all()
    assert any("no unit passes both filters" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"alpha": 0.6}, "alpha=0.6 and beta=0.5"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"beta": 1.5}, "beta=1.5"),
        ({"pi": 0.9}, "pi=0.9"),
        ({"k": 30}, "k_max=24 must be at least k=30"),
        ({"k": 336, "k_max": 400}, "have|has 360 steps|need"),
        ({"alpha": 0.001}, "alpha=0.001 of 337"),
    ],
)
def test_hyper_parameters_that_do_not_fit_are_named_before_training(
    small: Problem[Inputs, Truth], change: dict[str, float], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        PoolTraining(session(small), replace(SETTINGS, **change))  # type: ignore[arg-type]


def test_k_max_beyond_the_number_of_windows_is_capped(small: Problem[Inputs, Truth]) -> None:
    result = guard(session(small), replace(SETTINGS, k_max=5000, rounds=1))
    assert result.pool.any()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda x: np.where(np.arange(x.size).reshape(x.shape) == 41, np.nan, x), "1 values.*channel 1 at step 10"),
        (lambda x: x * np.inf, "not finite"),
        (lambda x: x.astype(str) + "a", "not numeric"),
        (lambda x: x[:20], "has 20 steps, fewer than seq_len \\+ pred_len = 24"),
        (lambda x: np.full_like(x, 3.0), "constant"),
        (lambda x: x[None], "shape"),
    ],
)
def test_bad_series_are_refused_before_training(small: Problem[Inputs, Truth], change: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Session.open(change(small.inputs.train), None, 12, 12, TRAINING, seed=0)  # type: ignore[operator]


def test_validation_data_must_match_and_suffice(small: Problem[Inputs, Truth]) -> None:
    chosen = replace(TRAINING, model_selection="val")
    with pytest.raises(InputError, match="model_selection='val' needs a validation part"):
        Session.open(small.inputs.train, small.inputs.val[:23], 12, 12, chosen, seed=0)
    with pytest.raises(InputError, match="has 3 channels, the training part has 4"):
        Session.open(small.inputs.train, small.inputs.val[:, :3], 12, 12, chosen, seed=0)


def test_unknown_forecasters_and_options_are_named(small: Problem[Inputs, Truth]) -> None:
    with pytest.raises(InputError, match="'lstm' is unknown; built in: dlinear, itransformer, mlp"):
        session(small, replace(TRAINING, forecaster="lstm"))
    with pytest.raises(InputError, match="width"):
        session(small, replace(TRAINING, forecaster_options={"width": 3})).trainer()


def test_a_constant_channel_is_refused_only_where_it_must_be_scaled(small: Problem[Inputs, Truth]) -> None:
    series = small.inputs.train.copy()
    series[:, 2] = 5.0
    with pytest.raises(InputError, match=r"Channels \[2\] are constant"):
        Session.open(series, None, 12, 12, replace(TRAINING, normalize="per_channel"), seed=0)
    guard(Session.open(series, None, 12, 12, TRAINING, seed=0), replace(SETTINGS, rounds=1))


def test_per_channel_scaling_forecasts_in_data_units(small: Problem[Inputs, Truth]) -> None:
    mixed = small.inputs.train * np.array([1.0, 1e3, 1e-3, 1.0])
    training = replace(TRAINING, normalize="per_channel", dtype="float64")
    forecast = train_plainly(Session.open(mixed, None, 12, 12, training, seed=0)).predict(mixed[None, :12])
    assert (np.abs(forecast.mean(axis=(0, 1)) / mixed.mean(axis=0) - 1) < 0.8).all()


@pytest.mark.slow
def test_backdoor_is_learnt_without_and_resisted_with_timeguard() -> None:
    """The headline effect on one seed of the default problem, about a minute."""
    from conftest import traffic
    from icml26_plugin_timeguard import metrics
    from icml26_plugin_timeguard.plugin import icml26_methods
    from icml26_plugin_timeguard.problem import AttackSettings, Windowing, build_problem
    from icml26_plugin_timeguard.task import Output

    small_profile = next(spec for spec in icml26_methods() if spec.name == "timeguard").profiles["small"]
    chosen = {k: v for k, v in small_profile.items() if k not in ("lr", "model_selection")}
    problem = build_problem(traffic(3600, 10, seed=1), Windowing(), AttackSettings(), np.random.default_rng(1))
    opened = Session.open(problem.inputs.train, None, 12, 12, Training(lr=1e-3, model_selection="last"), seed=1)
    plain, guarded = Output(train_plainly(opened)), guard(opened, PoolSettings(**chosen))
    assert metrics.mae_p(Output(guarded.forecaster), problem.truth) > 1.5 * metrics.mae_p(plain, problem.truth)
    attack = problem.truth.attack
    assert attack is not None
    assert contamination(guarded.initial_pool, attack.poisoned) < 0.75 * attack.poisoned.mean()


@pytest.mark.slow
def test_window_level_criteria_let_in_the_poison_that_channel_wise_ones_keep_out() -> None:
    """Three of ten channels are poisoned: averaged over channels the signal drowns. About a minute."""
    from conftest import traffic
    from icml26_plugin_timeguard.problem import AttackSettings, Windowing, build_problem

    problem = build_problem(traffic(3600, 10, seed=1), Windowing(), AttackSettings(), np.random.default_rng(1))
    opened = Session.open(problem.inputs.train, None, 12, 12, Training(lr=1e-3, model_selection="last"), seed=1)
    attack = problem.truth.attack
    assert attack is not None
    channel, window = (
        contamination(guard(opened, PoolSettings(unit=unit)).pool, attack.poisoned) / attack.poisoned.mean()
        for unit in ("channel", "window")
    )
    assert channel < 0.6 < window
    assert window > 1.3 * channel
