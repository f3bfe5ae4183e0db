"""Outputs on disk: configs and settings as JSON, weights as safetensors, nothing pickled."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from icml26.errors import InputError

from icml26_plugin_divergence_decoding.loading import causal_model, without_progress_bars
from icml26_plugin_divergence_decoding.task import Output

MODEL, INFO, TENSORS = "model.json", "info.json", "tables.safetensors"
#: Modules of ours that are made of models and settings; no other class is ever imported from a stored name.
_COMPOSED = {
    "divergence": "icml26_plugin_divergence_decoding.model:DivergenceModel",
    "offset": "icml26_plugin_divergence_decoding.baselines.offset:OffsetModel",
}


def save_output(output: Output, folder: Path) -> None:
    """Write ``output`` into ``folder``."""
    (folder / "model").mkdir()
    save_model(output.model, folder / "model")
    (folder / INFO).write_text(json.dumps(output.info, indent=2) + "\n", encoding="utf-8")


def load_output(folder: Path) -> Output:
    """Read what :func:`save_output` wrote; InputError for a damaged folder."""
    folder = Path(folder)
    model = load_model(folder / "model")
    try:
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder} holds no complete output of this task: {error}") from None
    if not isinstance(info, dict):
        raise InputError(f"{folder} holds no complete output of this task: {INFO} is no object.")
    return Output(model, info)


def save_model(model: Any, folder: Path) -> None:
    """Write a model into ``folder``: a transformers model in its own format, ours part by part."""
    from icml26_plugin_divergence_decoding.ngram import NGramModel

    if isinstance(model, NGramModel):
        from safetensors.torch import save_file

        save_file(model.state_dict(), str(folder / TENSORS))
        described: dict[str, Any] = {"kind": "ngram", "vocab_size": model.vocab_size, "backoff": model.backoff}
    elif callable(getattr(model, "parts", None)):
        described = {"kind": _kind(model), "settings": model.settings(), "parts": sorted(model.parts())}
        for name, part in model.parts().items():
            (folder / name).mkdir()
            save_model(part, folder / name)
    elif callable(getattr(model, "save_pretrained", None)):
        with without_progress_bars():
            model.save_pretrained(folder)
        described = {"kind": "transformers"}
    else:
        raise InputError(f"A {type(model).__name__} cannot be stored: run with --no-save.")
    (folder / MODEL).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def load_model(folder: Path) -> Any:
    """Read what :func:`save_model` wrote, in evaluation mode; InputError for a damaged folder."""
    from safetensors import SafetensorError

    folder = Path(folder)
    try:
        described = json.loads((folder / MODEL).read_text(encoding="utf-8"))
        return _built(described, folder)
    except InputError as error:
        if str(folder) in str(error):
            raise
        raise InputError(f"{folder} holds no complete model: {error}") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{folder} holds no complete model: {type(error).__name__}: {error}") from None


def _built(described: dict[str, Any], folder: Path) -> Any:
    kind = described["kind"]
    if kind == "transformers":
        return causal_model(folder)
    if kind == "ngram":
        from safetensors.torch import load_file

        from icml26_plugin_divergence_decoding.ngram import NGramModel, check_tables

        tables = load_file(str(folder / TENSORS))
        check_tables(described["vocab_size"], tables)
        return NGramModel(described["vocab_size"], tables, described["backoff"]).eval()
    module, _, name = _COMPOSED[kind].partition(":")
    cls = getattr(importlib.import_module(module), name)
    parts = {
        part: load_model(folder / part)
        for part in ("target", "forget", "retain", "auxiliary")
        if part in described["parts"]
    }
    return cls.from_parts(parts, described["settings"])


def _kind(model: Any) -> str:
    target = f"{type(model).__module__}:{type(model).__name__}"
    for kind, known in _COMPOSED.items():
        if known == target:
            return kind
    raise InputError(f"A {type(model).__name__} cannot be stored: run with --no-save.")
