"""A hash of the content of inputs, truths and outputs, for determinism checks and to tell data apart."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any


def fingerprint(value: Any) -> str:
    """``sha256:…`` of dataclass fields, mappings, sequences, arrays (dtype, shape, bytes) and ``state_dict()`` contents.

    Other objects and callables count by their type, unless they have ``__fingerprint__() -> str | bytes``.
    """
    sha = hashlib.sha256()
    _feed(sha, value, set())
    return "sha256:" + sha.hexdigest()


def _mark(sha: Any, tag: str, text: str = "") -> None:
    data = text.encode("utf-8", "surrogatepass")
    sha.update(f"{tag}:{len(data)}:".encode())
    sha.update(data)


def _feed(sha: Any, value: Any, above: set[int]) -> None:
    if value is None or isinstance(value, bool | int | float | complex | str | PurePath):
        _mark(
            sha,
            type(value).__name__ if not isinstance(value, PurePath) else "path",
            str(value) if not isinstance(value, float) else repr(value),
        )
        return
    if isinstance(value, bytes | bytearray | memoryview):
        _mark(sha, "bytes")
        sha.update(bytes(value))
        return
    if id(value) in above:
        _mark(sha, "cycle")
        return
    above = above | {id(value)}
    own = getattr(value, "__fingerprint__", None)
    if own is not None and not isinstance(value, type):
        result = own()
        _mark(sha, "own", result if isinstance(result, str) else bytes(result).hex())
    elif _is_array(value):
        _feed_array(sha, value, above)
    elif _is_tensor(value):
        _feed_array(sha, _tensor_bytes(value), above)
    elif is_dataclass(value) and not isinstance(value, type):
        _mark(sha, "dataclass", type(value).__qualname__)
        for item in fields(value):
            _mark(sha, "field", item.name)
            _feed(sha, getattr(value, item.name), above)
    elif isinstance(value, Mapping):
        _mark(sha, "mapping", str(len(value)))
        for key in sorted(value, key=repr):
            _feed(sha, key, above)
            _feed(sha, value[key], above)
    elif isinstance(value, Set):
        _mark(sha, "set", ",".join(sorted(fingerprint(item) for item in value)))
    elif isinstance(value, Sequence):
        _mark(sha, "sequence", str(len(value)))
        for item in value:
            _feed(sha, item, above)
    elif callable(getattr(value, "state_dict", None)) and not isinstance(value, type):
        _mark(sha, "state", type(value).__qualname__)
        _feed(sha, value.state_dict(), above)
    else:
        _mark(sha, "object", f"{type(value).__module__}.{type(value).__qualname__}")


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _tensor_bytes(value: Any) -> Any:
    import torch

    dense = value.detach().to("cpu").contiguous()
    if dense.dtype is torch.bfloat16:
        dense = dense.view(torch.int16)
    return dense.numpy()


def _feed_array(sha: Any, value: Any, above: set[int]) -> None:
    import numpy as np

    array = np.asarray(value)
    _mark(sha, "array", f"{array.dtype.str}{array.shape}")
    if array.dtype.hasobject:
        for item in array.ravel().tolist():
            _feed(sha, item, above)
    else:
        sha.update(np.ascontiguousarray(array).tobytes())
