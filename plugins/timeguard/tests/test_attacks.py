from __future__ import annotations

import numpy as np
import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_timeguard.attacks import injection
from icml26_plugin_timeguard.attacks.backtime import (
    BackTime,
    BackTimeSettings,
    load_attack,
    save_attack,
    spectral_features,
)
from icml26_plugin_timeguard.attacks.injection import PATTERNS, Layout
from icml26_plugin_timeguard.attacks.random import RandomTrigger
from icml26_plugin_timeguard.problem import AttackSettings, SeriesData, Windowing, build_problem, plant, random_attacker
from icml26_plugin_timeguard.synthetic import synthetic_traffic

TRAIN = synthetic_traffic(np.random.default_rng(0), 900, 6)


def planted(settings: AttackSettings = AttackSettings(), seed: int = 0) -> injection.Injection:  # noqa: B008
    layout = Layout()
    rng = np.random.default_rng(seed)
    return plant(TRAIN, Windowing(), settings, layout, rng, random_attacker(settings, layout))[0]


def test_injection_changes_attacked_channels_within_blocks_only() -> None:
    result = planted()
    changed = result.series != TRAIN
    allowed = np.zeros_like(changed)
    for start in result.starts:
        allowed[start : start + 11, result.channels] = True
    assert not changed[~allowed].any()
    assert changed[allowed].mean() > 0.99


def test_pattern_hangs_on_the_last_clean_value_and_the_trigger_is_bounded() -> None:
    result = planted()
    sd = TRAIN.std()
    for start in result.starts:
        anchor = TRAIN[start - 1, result.channels]
        written = result.series[start + 4 : start + 11, result.channels] - anchor
        np.testing.assert_allclose(written, np.outer(np.array(PATTERNS["cone"]) * sd, np.ones(len(result.channels))))
        assert np.abs(result.series[start : start + 4, result.channels] - anchor).max() <= 0.2 * sd + 1e-5


@pytest.mark.parametrize("seed", range(5))
def test_blocks_keep_their_gap_and_their_number_is_the_asked_share(seed: int) -> None:
    result = planted(seed=seed)
    assert np.diff(result.starts).min() >= 4 + 7 + 8
    assert result.starts.min() > 6 and result.starts.max() + 19 <= len(TRAIN)
    assert len(result.starts) == np.ceil(0.03 * (900 - 23))


def test_every_channel_can_be_attacked_and_at_least_one_always_is() -> None:
    assert planted(AttackSettings(alpha_s=1.0)).channels.tolist() == list(range(6))
    assert len(planted(AttackSettings(alpha_s=0.01)).channels) == 1


@pytest.mark.parametrize("channels", [(6,), (-1,), (1, 1), ()])
def test_channel_ids_that_do_not_exist_or_repeat_are_refused(channels: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="attacked_channels"):
        planted(AttackSettings(attacked_channels=channels))


def test_too_many_injections_are_refused_with_the_number_that_fits() -> None:
    with pytest.raises(InputError, match=r"alpha_t asks for 88 injections.*only (3\d|4\d) fit into 900"):
        planted(AttackSettings(alpha_t=0.1))


@pytest.mark.parametrize(("seq_len", "pred_len", "named"), [(9, 12, "seq_len >= 10"), (12, 6, "pred_len >= 7")])
def test_windows_too_short_for_the_trigger_or_pattern_are_refused(seq_len: int, pred_len: int, named: str) -> None:
    settings, layout = AttackSettings(), Layout()
    with pytest.raises(InputError, match=named):
        plant(
            TRAIN,
            Windowing(seq_len, pred_len),
            settings,
            layout,
            np.random.default_rng(0),
            random_attacker(settings, layout),
        )


def test_poisoned_units_are_seven_windows_an_injection_each_with_trigger_behind_and_pattern_ahead() -> None:
    mask = injection.poisoned_units(np.array([100]), np.array([2]), 6, 900, 12, 12, Layout())
    assert mask.sum() == 7 and mask[2].sum() == 7
    for window in np.flatnonzero(mask[2]):
        assert window <= 100 and 104 <= window + 12 < 111


def test_truth_stamps_the_end_of_each_test_history_and_targets_hang_before_it() -> None:
    problem = build_problem(SeriesData(TRAIN, tuple("abcdef")), Windowing(), AttackSettings(), np.random.default_rng(1))
    attack, test = problem.truth.attack, problem.truth.test
    assert attack is not None
    history = test[None, 10:22]
    stamped = attack.triggered(history, slice(10, 11))[0]
    others = np.setdiff1d(np.arange(6), attack.channels)
    np.testing.assert_array_equal(stamped[:, others], history[0][:, others])
    np.testing.assert_array_equal(stamped[:8], history[0][:8])
    offsets = stamped[8:, attack.channels] - history[0][7, attack.channels]
    first = problem.inputs.train[attack.starts[0] : attack.starts[0] + 4, attack.channels]
    assert problem.truth.clean_train is not None
    np.testing.assert_allclose(offsets, first - problem.truth.clean_train[attack.starts[0] - 1, attack.channels])
    np.testing.assert_allclose(attack.target[10, :, 0], history[0][7, attack.channels[0]] + attack.pattern)


def test_inputs_and_truth_share_no_memory() -> None:
    problem = build_problem(SeriesData(TRAIN, tuple("abcdef")), Windowing(), AttackSettings(), np.random.default_rng(1))
    for name in ("train", "val"):
        for other in (problem.truth.test, problem.truth.clean_train):
            assert other is not None and not np.shares_memory(getattr(problem.inputs, name), other)


def test_random_trigger_is_one_offset_for_all_places() -> None:
    trigger = RandomTrigger.draw(np.random.default_rng(0), 4, 2, bound=3.0)
    before = np.random.default_rng(1).normal(size=(5, 6, 2))
    offsets = trigger(before) - before[:, -1:, :]
    np.testing.assert_allclose(offsets, np.broadcast_to(offsets[0], offsets.shape))
    assert np.abs(offsets).max() <= 3.0


def test_spectral_features_rank_the_bins_of_each_channel() -> None:
    steps = np.arange(200)
    series = np.stack([3 * np.sin(2 * np.pi * steps * 10 / 200), np.cos(2 * np.pi * steps * 40 / 200)], axis=1)
    features = spectral_features(series, 5)
    assert features.shape == (2, 15)
    np.testing.assert_allclose(features[:, 0], 1.0)
    np.testing.assert_allclose(features[:, 10], [10 / 200, 40 / 200])
    assert spectral_features(series, 500).shape == (2, 300)


def backtime(channels: list[int] | None = None, **options: float) -> BackTime:
    settings = BackTimeSettings(surrogate_epochs=2, warmup_epochs=1, surrogate_lr=1e-3, **options)  # type: ignore[arg-type]
    chosen = np.array(channels or [1, 4])
    return BackTime(TRAIN, chosen, np.array(PATTERNS["cone"]) * TRAIN.std(), 12, 12, settings, seed=5)


def test_backtime_triggers_stay_within_eps_and_depend_on_what_came_before() -> None:
    attack = backtime()
    starts, trigger = attack.run(10, np.random.default_rng(0))
    assert len(starts) == 10 and (np.diff(starts) >= 19).all()
    before = TRAIN[starts[:, None] + np.arange(-6, 0)][:, :, [1, 4]]
    offsets = trigger(before) - before[:, -1:, :]
    assert np.abs(offsets).max() <= 0.2 * TRAIN.std() + 1e-4
    assert offsets.std(axis=0).max() > 0


def test_backtime_is_deterministic_survives_storage_and_runs_on_one_channel(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "attack.npz"
    first = backtime([3])
    starts, trigger = first.run(10, np.random.default_rng(0))
    save_attack(starts, trigger, path)
    loaded_starts, loaded = load_attack(backtime([3]), path)
    again_starts, again = backtime([3]).run(10, np.random.default_rng(0))
    before = TRAIN[None, 50:56][:, :, [3]]
    np.testing.assert_array_equal(starts, loaded_starts)
    np.testing.assert_array_equal(starts, again_starts)
    np.testing.assert_array_equal(trigger(before), loaded(before))
    np.testing.assert_array_equal(trigger(before), again(before))


def test_backtime_generator_learns_against_a_fixed_surrogate() -> None:
    attack = backtime()
    starts = np.arange(40, 800, 40)
    optimizer = torch.optim.Adam(attack.trigger.generator.parameters(), lr=0.005)
    before = float(attack._generator_loss(starts, 8, 31).detach())
    for epoch in range(15):
        attack._generator_epoch(starts, optimizer, epoch)
    assert float(attack._generator_loss(starts, 8, 31).detach()) < before
    assert all(p.requires_grad for p in attack.surrogate.model.parameters())


def test_backtime_reaches_eps_and_no_further_when_its_network_saturates() -> None:
    generator = backtime().trigger.generator
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.mul_(1e4)
    perturbation = generator.perturbation(torch.randn(50, 6, 2, generator=torch.Generator().manual_seed(0)))
    assert 0.15 < perturbation.abs().max().item() <= 0.2 + 1e-6


def test_backtime_graph_is_symmetric_and_normalised() -> None:
    graph = backtime().trigger.generator.adjacency().detach()
    torch.testing.assert_close(graph, graph.T)
    assert float(torch.linalg.eigvalsh(graph).max()) <= 1 + 1e-5
