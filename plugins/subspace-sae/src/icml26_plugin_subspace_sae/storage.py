"""Dictionaries and outputs on disk: weights as safetensors, what they mean as JSON, curves as npz; nothing pickled."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from icml26_plugin_subspace_sae.autoencoder import Architecture, SparseAutoencoder
from icml26_plugin_subspace_sae.fitted import FittedDictionary
from icml26_plugin_subspace_sae.task import History, Output

WEIGHTS, DESCRIPTION, RECORD, INFO = "sae.safetensors", "sae.json", "record.npz", "info.json"
FORMAT = "icml26-subspace-sae/1"


def save_sae(sae: SparseAutoencoder, folder: str | Path) -> None:
    """Write weights and architecture into ``folder``; the file of one is of no use without the other."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().contiguous() for name, value in sae.state_dict().items()}, folder / WEIGHTS)
    description = {"format": FORMAT, "architecture": sae.architecture.as_json()}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def load_sae(folder: str | Path, *, device: str = "cpu") -> SparseAutoencoder:
    """Read what :func:`save_sae` wrote.

    InputError when the description is missing or another's: activation, k, threshold and gating decide what weights mean, and
    guessing them gives other features.
    """
    folder = Path(folder)
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder / DESCRIPTION} cannot be read ({error}): without it the weights do not say which activation, k, threshold "
            "and gating they were trained with."
        ) from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise InputError(f"{folder / DESCRIPTION} is no description of a dictionary in the format {FORMAT}.")
    known = {field.name for field in fields(Architecture)}
    stored = description.get("architecture")
    if not isinstance(stored, dict) or set(stored) != known:
        raise InputError(f"{folder / DESCRIPTION} must give exactly {', '.join(sorted(known))}.")
    try:
        tensors = load_file(folder / WEIGHTS, device=device)
        sae = SparseAutoencoder(Architecture(**stored), generator=torch.Generator().manual_seed(0))
        sae = sae.to(tensors["W_dec"].dtype).to(device)
        sae.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, RuntimeError, TypeError) as error:
        raise InputError(
            f"{folder / WEIGHTS} does not hold the weights that {DESCRIPTION} describes: {error}."
        ) from None
    return sae.requires_grad_(False).eval()


def save_output(output: Output, folder: Path) -> None:
    """Write a trained method's output."""
    assert isinstance(output.sae, FittedDictionary)
    save_sae(output.sae.module, folder)
    arrays: dict[str, Any] = {}
    if output.history is not None:
        arrays |= {f.name: getattr(output.history, f.name) for f in fields(History)}
    if output.initial_decoder is not None:
        arrays["initial_decoder"] = output.initial_decoder
    with (folder / RECORD).open("wb") as file:
        np.savez(file, **arrays)
    (folder / INFO).write_text(json.dumps(output.info, indent=2) + "\n", encoding="utf-8")


def load_output(folder: Path) -> Output:
    """Read what :func:`save_output` wrote."""
    sae = load_sae(folder)
    try:
        with (folder / RECORD).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"The output in {folder} cannot be read: {error}.") from None
    decoder = arrays.pop("initial_decoder", None)
    history = History(**arrays) if arrays else None
    return Output(FittedDictionary(sae), info, history, decoder)
