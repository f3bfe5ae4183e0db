"""Sparse autoencoders without dead features on low-rank activations: Active Subspace Initialization and a sparse-aware Adam.

Native API: :func:`train` on arrays or streams, :class:`SparseAutoencoder`, :func:`initialise_weights` for autoencoders of other
libraries, :class:`SparseAdam`, :class:`ModelActivations` of a transformers model. Everything is imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "ActiveSubspace": "icml26_plugin_subspace_sae.subspace",
    "Architecture": "icml26_plugin_subspace_sae.autoencoder",
    "Dictionary": "icml26_plugin_subspace_sae.settings",
    "FittedDictionary": "icml26_plugin_subspace_sae.fitted",
    "Initialisation": "icml26_plugin_subspace_sae.initialisation",
    "ModelActivations": "icml26_plugin_subspace_sae.model_rows",
    "Optimisation": "icml26_plugin_subspace_sae.settings",
    "Revival": "icml26_plugin_subspace_sae.settings",
    "SparseAdam": "icml26_plugin_subspace_sae.optimizers",
    "SparseAutoencoder": "icml26_plugin_subspace_sae.autoencoder",
    "Sparsity": "icml26_plugin_subspace_sae.settings",
    "Trainer": "icml26_plugin_subspace_sae.trainer",
    "TrainingSettings": "icml26_plugin_subspace_sae.settings",
    "active_subspace": "icml26_plugin_subspace_sae.subspace",
    "effective_rank": "icml26_plugin_subspace_sae.rank",
    "initialise_weights": "icml26_plugin_subspace_sae.initialisation",
    "load_sae": "icml26_plugin_subspace_sae.storage",
    "load_saelens": "icml26_plugin_subspace_sae.saelens",
    "save_sae": "icml26_plugin_subspace_sae.storage",
    "save_saelens": "icml26_plugin_subspace_sae.saelens",
    "train": "icml26_plugin_subspace_sae.api",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from icml26_plugin_subspace_sae.api import train as train
    from icml26_plugin_subspace_sae.autoencoder import Architecture as Architecture
    from icml26_plugin_subspace_sae.autoencoder import SparseAutoencoder as SparseAutoencoder
    from icml26_plugin_subspace_sae.fitted import FittedDictionary as FittedDictionary
    from icml26_plugin_subspace_sae.initialisation import Initialisation as Initialisation
    from icml26_plugin_subspace_sae.initialisation import initialise_weights as initialise_weights
    from icml26_plugin_subspace_sae.model_rows import ModelActivations as ModelActivations
    from icml26_plugin_subspace_sae.optimizers import SparseAdam as SparseAdam
    from icml26_plugin_subspace_sae.rank import effective_rank as effective_rank
    from icml26_plugin_subspace_sae.saelens import load_saelens as load_saelens
    from icml26_plugin_subspace_sae.saelens import save_saelens as save_saelens
    from icml26_plugin_subspace_sae.settings import Dictionary as Dictionary
    from icml26_plugin_subspace_sae.settings import Optimisation as Optimisation
    from icml26_plugin_subspace_sae.settings import Revival as Revival
    from icml26_plugin_subspace_sae.settings import Sparsity as Sparsity
    from icml26_plugin_subspace_sae.settings import TrainingSettings as TrainingSettings
    from icml26_plugin_subspace_sae.storage import load_sae as load_sae
    from icml26_plugin_subspace_sae.storage import save_sae as save_sae
    from icml26_plugin_subspace_sae.subspace import ActiveSubspace as ActiveSubspace
    from icml26_plugin_subspace_sae.subspace import active_subspace as active_subspace
    from icml26_plugin_subspace_sae.trainer import Trainer as Trainer


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
