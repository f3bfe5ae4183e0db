"""Export to, and import from, the layout that SAELens loads: ``cfg.json`` beside ``sae_weights.safetensors``.

Decoder rows are written with unit norm and the encoder takes their lengths, so that the gate by decoder norm is in the weights:
SAELens's activations are our codes times the decoder norms, its reconstructions are ours. A batchtopk autoencoder with its
threshold is a jumprelu one there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from icml26.errors import InputError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from icml26_plugin_subspace_sae.autoencoder import SHORTEST, Architecture, RowScaling, SparseAutoencoder

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
_NORMALISED: dict[RowScaling, str] = {"none": "none", "token": "constant_norm_rescale"}


@torch.no_grad()
def save_saelens(sae: SparseAutoencoder, folder: str | Path, *, source: Mapping[str, Any] | None = None) -> None:
    """Write ``sae`` into ``folder``; ``source`` (JSON values: model, hook) becomes metadata.

    InputError for what SAELens cannot express: batch-wise normalisation, a transcoder between widths, an uncalibrated batchtopk.
    """
    a = sae.architecture
    if a.row_scaling not in _NORMALISED:
        raise InputError(
            f"SAELens has no normalisation like row_scaling={a.row_scaling!r}: train with 'dataset' to export."
        )
    if a.d_in != a.d_out:
        raise InputError(f"A transcoder from {a.d_in} to {a.d_out} dimensions is no autoencoder of SAELens.")
    if a.activation == "batchtopk" and not bool(torch.isfinite(sae.threshold)):
        raise InputError("This batchtopk autoencoder has no inference threshold yet: call calibrate_threshold first.")
    lengths = torch.ones_like(sae.b_enc)
    if a.gate_by_decoder_norm:
        lengths = torch.linalg.vector_norm(sae.W_dec, dim=1)
        lengths = torch.where(lengths > SHORTEST, lengths, 1.0)
    tensors = {
        "W_enc": sae.W_enc * lengths,
        "b_enc": sae.b_enc * lengths,
        "W_dec": sae.W_dec / lengths[:, None],
        "b_dec": sae.b_dec,
    }
    config: dict[str, Any] = {
        "architecture": "jumprelu",
        "d_in": a.d_in,
        "d_sae": a.n_features,
        "dtype": str(sae.W_dec.dtype).removeprefix("torch."),
        "device": "cpu",
        "apply_b_dec_to_input": False,
        "normalize_activations": _NORMALISED[a.row_scaling],
        "reshape_activations": "none",
        "metadata": {"trainer": "icml26-plugin-subspace-sae", **(source or {})},
    }
    if a.activation == "topk":
        config |= {"architecture": "topk", "k": a.k, "rescale_acts_by_decoder_norm": False}
    elif a.activation == "relu":
        config["architecture"] = "standard"
    elif a.activation == "batchtopk":
        tensors["threshold"] = sae.threshold.expand(a.n_features).clamp_min(0)
    else:
        tensors["threshold"] = sae.log_threshold.exp()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_saelens(folder: str | Path) -> SparseAutoencoder:
    """An autoencoder of SAELens (standard, topk, jumprelu) from its folder, with the same reconstructions.

    InputError for other architectures, normalisations that cannot be folded, and settings that are missing: what the weights mean
    is never guessed.
    """
    folder = Path(folder)
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{folder} holds no {CONFIG} with {WEIGHTS} that can be read: {error}.") from None
    activations: dict[str, Any] = {"standard": "relu", "topk": "topk", "jumprelu": "jumprelu"}
    scalings = {name: scaling for scaling, name in _NORMALISED.items()}
    for key, known in (("architecture", activations), ("normalize_activations", scalings)):
        if config.get(key) not in known:
            raise InputError(f"{folder / CONFIG}: {key} is {config.get(key)!r}; only {', '.join(known)} can be read.")
    needed = {"W_enc", "b_enc", "W_dec", "b_dec"} | ({"threshold"} if config["architecture"] == "jumprelu" else set())
    if missing := sorted(needed - set(tensors)):
        raise InputError(f"{folder / WEIGHTS} lacks {', '.join(missing)}.")
    if config["architecture"] == "topk" and "k" not in config:
        raise InputError(f"{folder / CONFIG} does not say k.")
    if "apply_b_dec_to_input" not in config:
        raise InputError(f"{folder / CONFIG} does not say apply_b_dec_to_input.")
    m, d = tensors["W_dec"].shape
    sae = SparseAutoencoder(
        Architecture(
            d_in=d,
            d_out=d,
            n_features=m,
            activation=activations[config["architecture"]],
            k=int(config.get("k", 1)),
            gate_by_decoder_norm=bool(config.get("rescale_acts_by_decoder_norm", False)),
            row_scaling=scalings[config["normalize_activations"]],
        ),
        generator=torch.Generator().manual_seed(0),
        dtype=tensors["W_dec"].dtype,
    )
    with torch.no_grad():
        sae.encoder.copy_(tensors["W_enc"].T)
        sae.W_dec.copy_(tensors["W_dec"])
        sae.b_dec.copy_(tensors["b_dec"])
        # (x - b_D) W_E + b_E = x W_E + (b_E - b_D W_E)
        offset = tensors["b_dec"] @ tensors["W_enc"] if config["apply_b_dec_to_input"] else 0.0
        sae.b_enc.copy_(tensors["b_enc"] - offset)
        if "threshold" in needed:
            # The logarithm is trained; a threshold of 0 is that of ReLU.
            sae.log_threshold.copy_(tensors["threshold"].clamp_min(1e-30).log())
    return sae.requires_grad_(False).eval()
