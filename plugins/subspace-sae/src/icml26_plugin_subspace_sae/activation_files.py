"""Reading activations from .npy, .npz, .safetensors and .pt files: [rows, d], or [sequences, positions, d] with a mask."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from icml26.errors import InputError

from icml26_plugin_subspace_sae.rank import check_rows

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")
BLOCK = 8192
#: Norms are taken in float32 while training: squares of larger values would not fit.
LARGEST = 1e15


@dataclass(frozen=True)
class Activations:
    """Rows (n, d), a memory map where the file allows one; ``sequence`` (n,) int64 says which sequence a row is of, or None.

    ``dropped`` rows that the mask or ``drop_first`` left out.
    """

    rows: np.ndarray
    sequence: np.ndarray | None
    dropped: int


def read_array(path: Path, key: str | None = None) -> np.ndarray:
    """One array of a file, memory-mapped where the format allows; InputError that says what is wrong and what is there."""
    if not path.is_file():
        found = "is a folder, not a file" if path.is_dir() else "there is no such file"
        raise InputError(f"{path}: {found}.")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: {path.suffix or 'a file without suffix'} is not read; one of {', '.join(SUFFIXES)}.")
    try:
        return reader(path, key)
    except InputError:
        raise
    except MemoryError:
        raise InputError(
            f"{path}: does not fit into memory; save it as .npy, which is read from disk in blocks."
        ) from None
    except Exception as error:
        # Readers of damaged bytes end in whatever their inner parts raise: zlib.error, TokenError, IndexError, AssertionError.
        raise InputError(f"{path}: cannot be read ({_first_line(error)}); was it written completely?") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _npy(path: Path, key: str | None) -> np.ndarray:
    if key is not None:
        raise InputError(f"{path}: key={key!r} names an array of an archive, and a .npy file holds one array only.")
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        # NumPy takes whatever is no array for a pickle.
        if "Python objects" in str(error) or "pickle" in str(error):
            raise InputError(
                f"{path}: cannot be read as an array of numbers: it is damaged, or holds Python objects, which are never "
                "unpickled."
            ) from error
        raise
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{path}: is a zip archive, not a .npy array: give it the suffix .npz or .pt that it was saved as."
        )
    return array


def _npz(path: Path, key: str | None) -> np.ndarray:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: cannot be read as an archive of arrays; was it written completely?")
    with np.load(path, allow_pickle=False) as archive:
        array: np.ndarray = archive[_chosen(path, key, archive.files)]
    return array


def _safetensors(path: Path, key: str | None) -> np.ndarray:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return _as_numpy(path, file.get_tensor(_chosen(path, key, list(file.keys()))))
    except SafetensorError as error:
        raise InputError(f"{path}: is not a complete safetensors file ({error}).") from error


def _torch(path: Path, key: str | None) -> np.ndarray:
    import pickle

    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: holds more than tensors, and anything else is never unpickled. Save the tensor alone: torch.save(x, path)."
        ) from error
    if isinstance(content, torch.Tensor):
        if key is not None:
            raise InputError(f"{path}: key={key!r} is given, and the file holds one tensor without a name.")
        return _as_numpy(path, content)
    if isinstance(content, dict):
        tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
        return _as_numpy(path, tensors[_chosen(path, key, list(tensors))])
    raise InputError(f"{path}: holds a {type(content).__name__}, not a tensor or a dict of tensors.")


def _as_numpy(path: Path, tensor: Any) -> np.ndarray:
    import torch

    if tensor.is_meta or tensor.is_quantized or tensor.layout != torch.strided:
        kind = "meta" if tensor.is_meta else "quantized" if tensor.is_quantized else str(tensor.layout)
        raise InputError(
            f"{path}: holds a {kind} tensor; save an ordinary dense one, e.g. x.dequantize() or x.to_dense()."
        )
    dense = tensor.detach().resolve_conj().resolve_neg()
    if dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64):
        dense = dense.float()  # bfloat16 and the kinds of float8, which NumPy has not
    array: np.ndarray = dense.numpy()
    return array


_READERS: dict[str, Callable[[Path, str | None], np.ndarray]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".pt": _torch,
    ".pth": _torch,
}


def _chosen(path: Path, key: str | None, names: list[str]) -> str:
    listed = ", ".join(sorted(names)) or "nothing"
    if key is not None:
        if key not in names:
            raise InputError(f"{path}: there is no array {key!r}; it holds {listed}.")
        return key
    if len(names) != 1:
        raise InputError(f"{path}: which array? Set key to one of: {listed}.")
    return names[0]


def read_activations(
    path: Path,
    *,
    key: str | None = None,
    mask_path: Path | None = None,
    mask_key: str | None = None,
    drop_first: int = 0,
) -> Activations:
    """Rows of a file of shape [n, d] or [sequences, positions, d].

    ``mask_path`` and ``mask_key`` name a mask [sequences, positions], non-zero where a token is real (an attention mask); it
    may stand in the same archive. ``drop_first`` positions of every sequence are left out: the first is an attention sink in
    most models, with a norm far beyond the others. Raises InputError for any other shape, NaN, infinity, too large values,
    constant activations and fewer than 2 rows. Matrices [n, d] stay on disk; their values are checked in blocks.
    """
    array = read_array(path, key)
    mask = None
    if mask_path is not None or mask_key is not None:
        mask = read_array(mask_path or path, mask_key)
    if array.ndim == 3:
        activations = _flat(path, array, mask, drop_first)
    elif array.ndim == 2:
        if mask is not None or drop_first:
            raise InputError(
                f"{path}: a mask or drop_first goes with [sequences, positions, d]; this array is {array.shape}."
            )
        activations = Activations(array, None, 0)
    else:
        raise InputError(
            f"{path}: activations must be [rows, d] or [sequences, positions, d], not {list(array.shape)}."
        )
    check_activations(activations.rows, str(path))
    return activations


def _flat(path: Path, array: np.ndarray, mask: np.ndarray | None, drop_first: int) -> Activations:
    n, length, _ = array.shape
    if mask is None:
        kept = np.ones((n, length), dtype=bool)
    elif mask.shape != (n, length):
        raise InputError(
            f"{path}: the mask has shape {list(mask.shape)}; [sequences, positions] = {[n, length]} is needed."
        )
    elif mask.dtype.kind not in "biuf" or (mask.dtype.kind == "f" and np.isnan(mask).any()):
        raise InputError(
            f"{path}: the mask holds {mask.dtype}, NaN or no numbers; 1 for a real token and 0 for others is needed."
        )
    else:
        kept = np.array(mask) != 0
    if not 0 <= drop_first < max(length, 1):
        raise InputError(f"{path}: drop_first={drop_first} leaves nothing of {length} positions.")
    if drop_first:
        # Counted from the first real token, so that left-padded sequences lose their sink too.
        kept &= np.cumsum(kept, axis=1) > drop_first
    sequence = np.nonzero(kept)[0].astype(np.int64)
    return Activations(array[kept], sequence, n * length - len(sequence))


def check_activations(rows: np.ndarray, name: str, *, constant: bool = True) -> None:
    """Raise InputError for what no dictionary can be trained on; reads ``rows`` (n, d) once, in blocks.

    ``constant=False`` lets constant rows pass (a small held-out part may be).
    """
    if len(rows) < 2:
        raise InputError(f"{name}: {len(rows)} rows; at least 2 are needed.")
    lowest: np.ndarray | None = None
    highest: np.ndarray | None = None
    for start in range(0, len(rows), BLOCK):
        block = check_rows(rows[start : start + BLOCK], first=start, name=name)
        lowest = block.min(axis=0) if lowest is None else np.minimum(lowest, block.min(axis=0))
        highest = block.max(axis=0) if highest is None else np.maximum(highest, block.max(axis=0))
    assert lowest is not None and highest is not None
    largest = float(max(abs(lowest.min()), abs(highest.max())))
    if largest > LARGEST:
        raise InputError(
            f"{name}: the largest value is {largest:.3g}; squares overflow float32. Scale the activations down."
        )
    if constant and (lowest == highest).all():
        raise InputError(f"{name}: all rows are equal, so there is no variance to explain. Is this the right array?")
