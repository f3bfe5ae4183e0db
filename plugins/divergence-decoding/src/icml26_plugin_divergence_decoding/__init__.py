"""Divergence Decoding: make a language model forget at inference time, by two small auxiliary models.

Native API: :class:`DivergenceModel` and :class:`DivergenceLogitsProcessor` over a model and two auxiliaries of your own.
Everything is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AuxiliaryData": "icml26_plugin_divergence_decoding.auxiliaries",
    "Distillation": "icml26_plugin_divergence_decoding.distillation",
    "DivergenceLogitsProcessor": "icml26_plugin_divergence_decoding.processor",
    "DivergenceModel": "icml26_plugin_divergence_decoding.model",
    "Fusion": "icml26_plugin_divergence_decoding.fusion",
    "NGramModel": "icml26_plugin_divergence_decoding.ngram",
    "Training": "icml26_plugin_divergence_decoding.trainer",
    "count_auxiliaries": "icml26_plugin_divergence_decoding.auxiliaries",
    "distill": "icml26_plugin_divergence_decoding.distillation",
    "encode_all": "icml26_plugin_divergence_decoding.encoding",
    "fuse": "icml26_plugin_divergence_decoding.fusion",
    "train_auxiliaries": "icml26_plugin_divergence_decoding.auxiliaries",
    "warn_if_swapped": "icml26_plugin_divergence_decoding.auxiliaries",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from icml26_plugin_divergence_decoding.auxiliaries import AuxiliaryData as AuxiliaryData
    from icml26_plugin_divergence_decoding.auxiliaries import count_auxiliaries as count_auxiliaries
    from icml26_plugin_divergence_decoding.auxiliaries import train_auxiliaries as train_auxiliaries
    from icml26_plugin_divergence_decoding.auxiliaries import warn_if_swapped as warn_if_swapped
    from icml26_plugin_divergence_decoding.distillation import Distillation as Distillation
    from icml26_plugin_divergence_decoding.distillation import distill as distill
    from icml26_plugin_divergence_decoding.encoding import encode_all as encode_all
    from icml26_plugin_divergence_decoding.fusion import Fusion as Fusion
    from icml26_plugin_divergence_decoding.fusion import fuse as fuse
    from icml26_plugin_divergence_decoding.model import DivergenceModel as DivergenceModel
    from icml26_plugin_divergence_decoding.ngram import NGramModel as NGramModel
    from icml26_plugin_divergence_decoding.processor import DivergenceLogitsProcessor as DivergenceLogitsProcessor
    from icml26_plugin_divergence_decoding.trainer import Training as Training


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
