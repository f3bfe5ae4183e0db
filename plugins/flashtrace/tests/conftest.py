"""One thread: the models are tiny, and runs are compared bit by bit."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
