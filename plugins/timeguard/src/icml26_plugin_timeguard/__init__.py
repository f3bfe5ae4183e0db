"""TimeGuard: train a time series forecaster on poisoned data so that it ignores the hidden trigger.

Native API: :class:`TimeGuardTrainer` on arrays or a network of your own. Everything is
imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "TimeGuardTrainer": "icml26_plugin_timeguard.api",
    "FittedForecaster": "icml26_plugin_timeguard.fitted",
    "GuardResult": "icml26_plugin_timeguard.timeguard",
    "PoolSettings": "icml26_plugin_timeguard.settings",
    "Session": "icml26_plugin_timeguard.session",
    "Training": "icml26_plugin_timeguard.settings",
    "drls": "icml26_plugin_timeguard.selection",
    "guard": "icml26_plugin_timeguard.timeguard",
    "train_plainly": "icml26_plugin_timeguard.timeguard",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from icml26_plugin_timeguard.api import TimeGuardTrainer as TimeGuardTrainer
    from icml26_plugin_timeguard.fitted import FittedForecaster as FittedForecaster
    from icml26_plugin_timeguard.selection import drls as drls
    from icml26_plugin_timeguard.session import Session as Session
    from icml26_plugin_timeguard.settings import PoolSettings as PoolSettings
    from icml26_plugin_timeguard.settings import Training as Training
    from icml26_plugin_timeguard.timeguard import GuardResult as GuardResult
    from icml26_plugin_timeguard.timeguard import guard as guard
    from icml26_plugin_timeguard.timeguard import train_plainly as train_plainly


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
