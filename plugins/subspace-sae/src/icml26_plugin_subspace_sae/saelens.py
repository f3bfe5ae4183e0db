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
from icml26.errors import EnvironmentError_, InputError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from icml26_plugin_subspace_sae.autoencoder import SHORTEST, Architecture, RowScaling, SparseAutoencoder

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
_NORMALISED: dict[RowScaling, str] = {"none": "none", "token": "constant_norm_rescale"}


@torch.no_grad()
def save_saelens(sae: SparseAutoencoder, folder: str | Path, *, source: Mapping[str, Any] | None = None) -> None:
    """Write ``sae`` into ``folder``; ``source`` (JSON values: model, hook) becomes metadata.

    InputError for what SAELens cannot express: batch-wise normalisation, a transcoder between widths, an uncalibrated batchtopk;
    EnvironmentError_ for a folder that cannot be written, where an older export stays whole.
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
    try:
        text = json.dumps(config, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"source must hold JSON values only: {error}.") from None
    _write(Path(folder), {n: v.detach().cpu().contiguous().clone() for n, v in tensors.items()}, text)


def _write(folder: Path, tensors: dict[str, torch.Tensor], config: str) -> None:
    """Both files beside their places first, so that a failure leaves an older export whole."""
    parts = {name: folder / f"{name}.part" for name in (WEIGHTS, CONFIG)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in parts:
            if (folder / name).is_dir():
                raise IsADirectoryError(f"{folder / name} is a folder")
        try:
            save_file(tensors, parts[WEIGHTS])
            parts[CONFIG].write_text(config, encoding="utf-8")
            for name, part in parts.items():
                part.replace(folder / name)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise EnvironmentError_(f"The autoencoder cannot be written into {folder}: {error}.") from None


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
    if not isinstance(config, dict):
        raise InputError(f"{folder / CONFIG} holds a {type(config).__name__}, not settings.")
    activations: dict[str, Any] = {"standard": "relu", "topk": "topk", "jumprelu": "jumprelu"}
    scalings = {name: scaling for scaling, name in _NORMALISED.items()}
    for key, known in (("architecture", activations), ("normalize_activations", scalings)):
        if not isinstance(config.get(key), str) or config[key] not in known:
            raise InputError(f"{folder / CONFIG}: {key} is {config.get(key)!r}; only {', '.join(known)} can be read.")
    needed = {"W_enc", "b_enc", "W_dec", "b_dec"} | ({"threshold"} if config["architecture"] == "jumprelu" else set())
    if missing := sorted(needed - set(tensors)):
        raise InputError(f"{folder / WEIGHTS} lacks {', '.join(missing)}.")
    if config["architecture"] == "topk" and "k" not in config:
        raise InputError(f"{folder / CONFIG} does not say k.")
    if "apply_b_dec_to_input" not in config:
        raise InputError(f"{folder / CONFIG} does not say apply_b_dec_to_input.")
    m, d = _checked_shapes(folder, config, {name: tensors[name] for name in needed})
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


def _checked_shapes(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> tuple[int, int]:
    """(m, d) of the weights; InputError for weights and settings that do not fit, which broadcasting could hide."""
    k = config.get("k", 1)
    if isinstance(k, bool) or not isinstance(k, int):
        raise InputError(f"{folder / CONFIG}: k is {k!r}, not a whole number.")
    for key in ("apply_b_dec_to_input", "rescale_acts_by_decoder_norm"):
        if not isinstance(config.get(key, False), bool):
            raise InputError(f"{folder / CONFIG}: {key} is {config[key]!r}, neither true nor false.")
    m, d = tensors["W_dec"].shape if tensors["W_dec"].ndim == 2 else (0, 0)
    shapes = {"W_dec": (m, d), "W_enc": (d, m), "b_enc": (m,), "b_dec": (d,), "threshold": (m,)}
    for name, value in tensors.items():
        if value.shape != shapes[name] or value.numel() == 0:
            raise InputError(f"{folder / WEIGHTS}: {name} {tuple(value.shape)} does not fit W_dec (m, d) = {(m, d)}.")
        if value.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise InputError(f"{folder / WEIGHTS}: {name} holds {value.dtype}; convert it to float32.")
        if not bool(torch.isfinite(value).all()):
            raise InputError(f"{folder / WEIGHTS}: {name} holds values that are not finite.")
    for key, value in (("d_in", d), ("d_sae", m)):
        if config.get(key, value) != value:
            raise InputError(f"{folder / CONFIG}: {key} is {config[key]!r}, but the weights say {value}.")
    return m, d
