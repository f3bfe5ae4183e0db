"""What a call asks of the machine: a seed that generators take, a device that is there, memory for the weights."""

from __future__ import annotations

import os
from numbers import Integral

import torch
from icml26.errors import InputError

# Weights, gradients and Adam's two moments.
COPIES_IN_TRAINING = 4


def checked_seed(seed: int) -> int:
    """``seed`` as an int; InputError unless it is a whole number from 0 on."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed={seed!r} must be a whole number from 0 on.")
    return int(seed)


def checked_device(device: str | torch.device) -> torch.device:
    """The device, on which a tensor could be made; InputError otherwise."""
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:  # torch raises all three
        raise InputError(f"device={device!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return found


def check_memory(n_features: int, width: int, itemsize: int, device: torch.device) -> None:
    """InputError when training a dictionary cannot fit into the machine's memory; CUDA reports its own."""
    needed = COPIES_IN_TRAINING * n_features * width * itemsize
    if device.type != "cpu" or not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there > 0:
        raise InputError(
            f"Training {n_features} features takes {needed / 2**30:.3g} GiB for weights, gradients and moments; the machine has "
            f"{there / 2**30:.3g}. Lower n_features or expansion."
        )
