"""The supervised variant: a random forest on graph and counterfactual features, and the choice of a threshold."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from icml26.errors import InputError

from icml26_plugin_causaltrace.detector import Analysis, CausalTrace
from icml26_plugin_causaltrace.features import CAUSAL_FEATURES, GRAPH_FEATURES, features
from icml26_plugin_causaltrace.forest import Forest
from icml26_plugin_causaltrace.trace import Trace

#: A saved forest beyond this is refused before it is unpacked.
MAX_FOREST = 1024**3
SCHEMA = "icml26.causaltrace-forest/1"
_FOREST = ("n_estimators", "max_depth", "random_state")


@contextmanager
def _global_random_kept() -> Iterator[None]:
    """Importing scikit-learn's trees draws from Python's global generator: put it back."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The threshold with the best F1 on (n,) scores: midway between the scores beside it; ties go to the higher one."""
    s, y = np.asarray(scores, dtype=float), np.asarray(labels, dtype=bool)
    if not y.any() or y.all():
        raise InputError("a threshold needs traces of both classes")
    levels = np.unique(s)
    best, cut = -1.0, 0.5
    for position, level in enumerate(levels):
        alarm = s >= level
        f1 = 2 * (alarm & y).sum() / (alarm.sum() + y.sum())
        if f1 >= best:
            best, cut = f1, level if position == 0 else (level + levels[position - 1]) / 2
    return float(min(max(cut, 1e-9), 1.0))


@dataclass
class SupervisedDetector:
    """Random forest over the features of :class:`CausalTrace`'s analysis.

    ``causal=False`` leaves the counterfactual and task features out (an ablation). Defaults of the forest are the authors'.
    ``fit(traces, labels, groups)`` sets ``forest_`` and ``tau_``; the threshold is chosen on out-of-fold scores that keep
    groups together.
    """

    detector: CausalTrace = field(default_factory=CausalTrace)
    n_estimators: int = 100
    max_depth: int = 20
    causal: bool = True
    random_state: int = 42
    forest_: Forest | None = None
    tau_: float = 0.5

    def _row(self, trace: Trace, analysis: Analysis | None = None) -> np.ndarray:
        return features(analysis or self.detector.analyze(trace), trace, causal=self.causal)

    def _forest(self, X: np.ndarray, y: np.ndarray) -> Forest:
        with _global_random_kept():
            from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(
            n_estimators=self.n_estimators, max_depth=self.max_depth, random_state=self.random_state
        )
        return Forest.of(model.fit(X, y))

    def fit(
        self, traces: Sequence[Trace], labels: Sequence[bool], groups: Sequence[str] | None = None
    ) -> SupervisedDetector:
        """Fit forest and threshold; ``groups`` name what must not be split (user tasks)."""
        y = np.asarray(labels, dtype=bool)
        if len(traces) != len(y) or (groups is not None and len(groups) != len(y)):
            raise InputError(f"{len(traces)} traces, {len(y)} labels and their groups differ in number")
        if not y.any() or y.all():
            raise InputError("training needs traces of both classes")
        X = np.stack([self._row(t) for t in traces])
        self.tau_ = self._threshold(X, y, groups)
        self.forest_ = self._forest(X, y)
        return self

    def _threshold(self, X: np.ndarray, y: np.ndarray, groups: Sequence[str] | None) -> float:
        names = np.asarray(groups if groups is not None else [str(k) for k in range(len(y))])
        kinds = np.unique(names)
        folds = min(5, len(kinds))
        if folds < 2:
            return 0.5
        order = np.random.default_rng(self.random_state).permutation(len(kinds))
        fold_of = dict(zip(kinds[order], np.arange(len(kinds)) % folds, strict=True))
        fold = np.array([fold_of[name] for name in names])
        out = np.full(len(y), np.nan)
        for k in range(folds):
            train = fold != k
            if y[train].any() and not y[train].all():
                out[~train] = self._forest(X[train], y[train]).predict(X[~train])
        known = ~np.isnan(out)
        return best_threshold(out[known], y[known]) if y[known].any() and not y[known].all() else 0.5

    def predict(self, trace: Trace, analysis: Analysis | None = None) -> float:
        """P(attack) of a trace."""
        if self.forest_ is None:
            raise InputError("this detector is not fitted: call fit(traces, labels) or load(folder) first")
        return float(self.forest_.predict(self._row(trace, analysis)[None])[0])

    score = predict

    def save(self, folder: Path) -> None:
        """Write ``forest.npz`` and ``detector.json``; no pickle."""
        if self.forest_ is None:
            raise InputError("this detector is not fitted: there is nothing to save")
        if not Path(folder).is_dir():
            raise InputError(f"{folder} is no folder: make it first")
        with (Path(folder) / "forest.npz").open("wb") as file:
            np.savez_compressed(file, **self.forest_.arrays())  # type: ignore[arg-type]
        names = (*GRAPH_FEATURES, *CAUSAL_FEATURES) if self.causal else GRAPH_FEATURES
        d = self.detector
        body = {
            "schema": SCHEMA,
            "tau": self.tau_,
            "causal": self.causal,
            "features": list(names),
            "forest": {name: getattr(self, name) for name in _FOREST},
            "detector": {
                "tau": d.tau,
                "mode": d.mode,
                "leak": d.leak,
                "beta_injection": d.beta_injection,
                "policy": {
                    "sensitive": dict(d.policy.sensitive),
                    "trusted_tools": sorted(d.policy.trusted_tools),
                    "trusted_domains": sorted(d.policy.trusted_domains),
                },
            },
        }
        (Path(folder) / "detector.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> SupervisedDetector:
        """Read what ``save`` wrote; InputError for a damaged folder or another version's features."""
        from icml26_plugin_causaltrace.policy import policy_of

        folder = Path(folder)
        try:
            body = json.loads((folder / "detector.json").read_text(encoding="utf-8"))
            if body["schema"] != SCHEMA:
                raise ValueError(f"schema {body['schema']!r} is not {SCHEMA}")
            names = (*GRAPH_FEATURES, *CAUSAL_FEATURES) if body["causal"] else GRAPH_FEATURES
            if body["features"] != list(names):
                raise ValueError("it was made with other features: fit it again")
            options = dict(body["detector"])
            detector = CausalTrace(**{**options, "policy": policy_of(options["policy"], str(folder))})
            with zipfile.ZipFile(folder / "forest.npz") as archive:
                if sum(entry.file_size for entry in archive.infolist()) > MAX_FOREST:
                    raise ValueError(f"forest.npz unpacks to more than {MAX_FOREST} bytes")
            with np.load(folder / "forest.npz", allow_pickle=False) as arrays:
                forest = Forest.from_arrays(arrays, len(names))
            tau = float(body["tau"])
            if not 0.0 <= tau <= 1.0:
                raise ValueError(f"its threshold {tau} is not in [0, 1]")
            options = {name: int(body["forest"][name]) for name in _FOREST}
        except (
            OSError,
            EOFError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            zipfile.BadZipFile,
        ) as error:
            raise InputError(f"{folder} holds no fitted detector: {error}") from None
        return cls(detector, causal=bool(body["causal"]), forest_=forest, tau_=tau, **options)
