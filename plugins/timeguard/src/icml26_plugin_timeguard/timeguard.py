"""TimeGuard: channel-wise pool training (Stage I: initial pool and warm-up; Stage II: DRLS rounds)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from icml26_plugin_timeguard import criteria
from icml26_plugin_timeguard.checkpoint import Checkpoint, check_writable, run_identity
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.isolation import Isolation
from icml26_plugin_timeguard.selection import drls, pool_fraction
from icml26_plugin_timeguard.session import Keeper, Session
from icml26_plugin_timeguard.settings import Log, PoolSettings, Progress, forget, silent
from icml26_plugin_timeguard.trainer import Trainer, stream_seed

POOL = 2
SHORT_SERIES = 8000


@dataclass(frozen=True)
class GuardResult:
    """A defended forecaster and what it was trained on.

    ``initial_pool`` and ``pool`` (C, N) bool: units trusted after Stage I and in the last round; ``rejections`` (C, N):
    in how many of the Stage II rounds a unit was left out; ``selected_epoch``: the epoch whose weights were kept;
    ``warnings``: what the user should know about the data.
    """

    forecaster: FittedForecaster
    initial_pool: np.ndarray
    pool: np.ndarray
    rejections: np.ndarray
    selected_epoch: int
    warnings: tuple[str, ...] = field(default=())


def by_window(scores: np.ndarray) -> np.ndarray:
    """Scores (C, N) averaged over channels and repeated for each: the window-level ablation."""
    return np.broadcast_to(scores.mean(axis=0), scores.shape)


class PoolTraining:
    """The two stages over one session; :func:`guard` runs them in order."""

    def __init__(
        self, session: Session, settings: PoolSettings, *, progress: Progress = silent, log: Log = forget
    ) -> None:
        settings.check(len(session.train), session.seq_len, session.pred_len)
        self.session, self.settings, self.progress, self.log = session, settings, progress, log
        self.warnings: list[str] = []
        if session.n_windows < SHORT_SERIES and settings.beta <= 0.5:
            self.warnings.append(
                f"Only {session.n_windows} training windows: beta={settings.beta}, made for 15,000 and more, may leave the "
                "forecaster too few; the profile small (TimeGuardTrainer.small) is for such series."
            )

    def _unit(self, scores: np.ndarray) -> np.ndarray:
        return by_window(scores) if self.settings.unit == "window" else scores

    def isolation(self) -> Isolation:
        """The neighbour graphs of the training part."""
        s, session = self.settings, self.session
        return Isolation(
            session.train,
            session.seq_len,
            session.pred_len,
            k=s.k,
            k_max=min(s.k_max, session.n_windows - 1),
            sigma=s.sigma,
            metric=s.metric,
            fallback=s.fallback,
            max_graph_mb=s.max_graph_mb,
            progress=self.progress,
        )

    def backcast_loss(self) -> np.ndarray:
        """Unit losses (C, N) of the backcaster after T_b epochs on all windows."""
        trainer = self.session.backcaster()
        for epoch in self.progress(range(self.settings.backcast_epochs), "backcaster"):
            self.log("backcast-loss", trainer.epoch(), epoch)
        return trainer.unit_losses()

    def initial_pool(self, isolation: Isolation) -> np.ndarray:
        """D_rel (C, N): the intersection of the filters that are switched on."""
        s = self.settings
        n_channels, n = self.session.train.shape[1], self.session.n_windows
        if not (s.use_rcf or s.use_ndf):
            # Without any filter nothing is known: a pool of the usual size at random.
            rng = np.random.default_rng(stream_seed(self.session.seed, POOL, 0))
            return criteria.lowest(self._unit(rng.random((n_channels, n))), criteria.quantile_count(n, s.alpha))
        backcast = self._unit(self.backcast_loss()) if s.use_rcf else None
        score = isolation.score() if s.use_ndf else None
        if score is not None:
            self._warn_duplicates(score)
            score = self._unit(score)
        if backcast is None and score is not None:
            return criteria.neighbourhood_diversity_filter(score, s.alpha)
        if score is None and backcast is not None:
            return criteria.reverse_consistency_filter(backcast, s.alpha)
        assert backcast is not None and score is not None
        rcf = criteria.reverse_consistency_filter(backcast, s.alpha)
        ndf = criteria.neighbourhood_diversity_filter(score, s.alpha)
        for channel in criteria.empty_channels(rcf & ndf):
            self.warnings.append(
                f"Channel {channel}: no unit passes both filters at alpha={s.alpha}; warm-up uses the best-ranked one."
            )
        return criteria.initial_pool(rcf, ndf, backcast, score)

    def _warn_duplicates(self, score: np.ndarray) -> None:
        share = (score <= 1e-6).mean(axis=1)
        for channel in np.flatnonzero(share > 0.2):
            self.warnings.append(
                f"Channel {channel}: {share[channel]:.0%} of its windows repeat others exactly (a stuck sensor?); "
                "the diversity filter never selects those."
            )

    def warm_up(self, trainer: Trainer, keeper: Keeper, pool: np.ndarray) -> None:
        """T_1 epochs on the fixed initial pool."""
        for epoch in self.progress(range(self.settings.warmup_epochs), "warm-up"):
            self._epoch(trainer, keeper, pool, epoch)

    def select(self, trainer: Trainer, isolation: Isolation, pool: np.ndarray, round_index: int) -> np.ndarray:
        """The pool (C, N) of a Stage II round from the forecaster's losses and the previous pool."""
        s = self.settings
        if s.stage2 == "fixed":
            return pool
        gamma = pool_fraction(round_index, s.rounds, s.alpha, s.beta)
        loss = self._unit(trainer.unit_losses())
        if s.stage2 == "loss" or s.pi * gamma >= 1:
            return criteria.lowest(loss, criteria.quantile_count(loss.shape[1], gamma))
        # An average over channels needs every score; a channel's own gate only needs to know who passes.
        gate = None if s.unit == "window" else criteria.quantile_count(loss.shape[1], s.pi * gamma)
        return drls(loss, self._unit(isolation.score(~pool, gate=gate)), gamma, s.pi)

    def round(
        self, trainer: Trainer, keeper: Keeper, isolation: Isolation, pool: np.ndarray, round_index: int
    ) -> np.ndarray:
        """One Stage II round: select, then one epoch on the new pool, which is returned."""
        s = self.settings
        pool = self.select(trainer, isolation, pool, round_index)
        lr = self.session.training.lr * s.lr_stage2_factor
        if s.reset_optimizer:
            trainer.reset_optimizer(lr)
        else:
            trainer.set_lr(lr)
        self._epoch(trainer, keeper, pool, s.warmup_epochs + round_index)
        return pool

    def _epoch(self, trainer: Trainer, keeper: Keeper, pool: np.ndarray, epoch: int) -> None:
        self.log("train-loss", trainer.epoch(pool), epoch)
        score = keeper.observe()
        if score is not None:
            self.log("val-mae", score, epoch)


def guard(
    session: Session,
    settings: PoolSettings,
    *,
    progress: Progress = silent,
    log: Log = forget,
    checkpoint: Checkpoint | None = None,
) -> GuardResult:
    """Train a forecaster with TimeGuard on the session's untrusted series.

    With a ``checkpoint`` each round is stored, and a run that was stopped goes on with the next one: same result.
    """
    stages = PoolTraining(session, settings, progress=progress, log=log)
    identity = "" if checkpoint is None else run_identity(session, settings)
    stored = None
    if checkpoint is not None:
        check_writable(checkpoint.path)
        stored = checkpoint.read(identity)
    isolation = stages.isolation()
    trainer = session.trainer()
    keeper = session.keeper(trainer)
    if stored is None:
        initial = pool = stages.initial_pool(isolation)
        rejections = np.zeros(pool.shape, dtype=np.int32)
        stages.warm_up(trainer, keeper, pool)
        first = 0
    else:
        initial, pool, rejections = (stored[name].numpy() for name in ("initial", "pool", "rejections"))
        trainer.restore(stored["trainer"])
        keeper.restore(stored["keeper"])
        stages.warnings = list(stored["warnings"])
        first = int(stored["rounds_done"])
    for round_index in progress(range(first, settings.rounds), "pool rounds", settings.rounds - first):
        pool = stages.round(trainer, keeper, isolation, pool, round_index)
        rejections = rejections + ~pool
        if checkpoint is not None:
            state = {"initial": initial, "pool": pool, "rejections": rejections, "rounds_done": round_index + 1}
            state |= {"trainer": trainer.state(), "keeper": keeper.state(), "warnings": stages.warnings}
            checkpoint.write(identity, state)
    return GuardResult(
        session.fitted(keeper.finish()), initial, pool, rejections, keeper.best_epoch, tuple(stages.warnings)
    )


def train_plainly(
    session: Session,
    series: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    progress: Progress = silent,
    log: Log = forget,
) -> FittedForecaster:
    """Plain training for ``training.epochs`` epochs: on the session's series, another of its length, or under a fixed mask."""
    trainer = session.trainer(series)
    keeper = session.keeper(trainer)
    for epoch in progress(range(session.training.epochs), "training"):
        log("train-loss", trainer.epoch(mask), epoch)
        score = keeper.observe()
        if score is not None:
            log("val-mae", score, epoch)
    return session.fitted(keeper.finish())
