"""Memory at a real size, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
import torch
from icml26_plugin_subspace_sae import Dictionary, Initialisation, Optimisation, TrainingSettings, train

torch.set_num_threads(1)
rng = np.random.default_rng(0)
x = (rng.standard_normal((16384, 64), dtype=np.float32) @ rng.standard_normal((64, 576), dtype=np.float32))
x += 0.1 * rng.standard_normal(x.shape, dtype=np.float32)
settings = TrainingSettings(
    Dictionary(n_features=16384, k=32), Initialisation(q=64), Optimisation(batch_size=4096, steps=3, warmup=0.0)
)
train(x, settings).sae.reconstruct(torch.from_numpy(x))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is asked of the resource module")
def test_16384_features_of_576_dimensions_train_within_4_gib() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 4 * 2**30
