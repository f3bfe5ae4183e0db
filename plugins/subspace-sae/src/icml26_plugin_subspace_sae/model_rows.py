"""Activations of a model as rows: packed windows of tokens, and what of them is kept (section 10)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError

from icml26_plugin_subspace_sae.hooks import HookPoint, resolve_hook, run_captured


@dataclass(frozen=True)
class Windows:
    """Packed text: ``ids`` of each window (S_i,) int64 and ``kept`` (S_i,) bool, the positions whose activations are rows.

    All windows but the last have the same length.
    """

    ids: tuple[np.ndarray, ...]
    kept: tuple[np.ndarray, ...]

    @property
    def rows(self) -> int:
        """Number of rows that activations of these windows give."""
        return int(sum(kept.sum() for kept in self.kept))

    @property
    def dropped(self) -> int:
        """Number of tokens that give no row."""
        return sum(map(len, self.ids)) - self.rows

    def batches(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and kept positions (B, S) of at most ``size`` windows of one length, in order."""
        start = 0
        while start < len(self.ids):
            stop = start
            while stop < min(start + size, len(self.ids)) and len(self.ids[stop]) == len(self.ids[start]):
                stop += 1
            yield np.stack(self.ids[start:stop]), np.stack(self.kept[start:stop])
            start = stop


def pack(
    tokenizer: Any, documents: Sequence[str], *, context: int = 256, max_tokens: int | None = None, drop_first: int = 1
) -> Windows:
    """Tokenise documents, join them with the end-of-text token and cut windows of ``context`` tokens.

    Special tokens and the first ``drop_first`` positions of each window give no rows: models put an attention sink of outlying
    norm there. Raises InputError when no rows are left.
    """
    if context < 2 or not 0 <= drop_first < context:
        raise InputError(f"context={context} must be at least 2 and above drop_first={drop_first}.")
    end = tokenizer.eos_token_id
    stream: list[int] = []
    for document in documents:
        # verbose=False: no warning about texts beyond the model's context, which are cut below.
        stream += tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        if end is not None:
            stream.append(end)
        if max_tokens is not None and len(stream) >= max_tokens:
            break
    ids = np.array(stream[:max_tokens], dtype=np.int64)
    special = np.array(sorted(set(tokenizer.all_special_ids)), dtype=np.int64)
    windows = [ids[start : start + context] for start in range(0, len(ids), context)]
    windows = [window for window in windows if len(window) > max(drop_first, 1)]
    kept = [~np.isin(window, special) & (np.arange(len(window)) >= drop_first) for window in windows]
    found = Windows(tuple(windows), tuple(kept))
    if found.rows == 0:
        raise InputError(f"{len(documents)} documents give no tokens to take activations of: is the text empty?")
    return found


def split_documents(documents: Sequence[str], fraction: float, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Training and held-out documents, whole; about ``fraction`` of the characters is held out, at least one document."""
    if len(documents) < 2:
        raise InputError(
            f"{len(documents)} documents cannot be split: give at least 2 (JSONL lines, or parts parted by two blank lines)."
        )
    wanted = fraction * sum(map(len, documents))
    held: set[int] = set()
    size = 0
    for index in rng.permutation(len(documents)).tolist():
        # A document that would overshoot by far stays in training.
        if len(held) < len(documents) - 1 and size + len(documents[index]) <= 1.5 * wanted:
            held.add(index)
            size += len(documents[index])
        if size >= wanted:
            break
    if not held:
        held = {min(range(len(documents)), key=lambda i: len(documents[i]))}
    train = [document for index, document in enumerate(documents) if index not in held]
    return train, [documents[index] for index in sorted(held)]


def check_fits(model: Any, windows: Windows) -> None:
    """Raise InputError when windows exceed the model's context or hold ids that it does not know."""
    limit = getattr(model.config, "max_position_embeddings", None)
    longest = max(map(len, windows.ids))
    if isinstance(limit, int) and limit > 0 and longest > limit:
        raise InputError(f"context={longest} exceeds the model's {limit} positions.")
    rows = model.get_input_embeddings().weight.shape[0]
    highest = max(int(window.max()) for window in windows.ids)
    if highest >= rows:
        raise InputError(
            f"token id {highest} is beyond the model's {rows} embeddings: the tokenizer is another model's."
        )


def capture_rows(
    model: Any, windows: Windows, hooks: Mapping[str, HookPoint], *, batch_size: int = 8
) -> Iterator[dict[str, np.ndarray]]:
    """Rows (n, d) float32 of each hook, batch after batch of windows; the same positions for all hooks."""
    device = next(model.parameters()).device
    for ids, kept in windows.batches(batch_size):
        seen = run_captured(model, torch.from_numpy(ids).to(device), hooks)
        mask = torch.from_numpy(kept).to(device)
        yield {key: value[mask].to(torch.float32).cpu().numpy() for key, value in seen.items()}


class ModelActivations:
    """An :class:`~icml26_plugin_subspace_sae.task.ActivationSource` that runs the model while it is read.

    ``hook`` is a name of :func:`.hooks.resolve_hook`. Memory is that of one batch of windows.
    """

    def __init__(self, model: Any, windows: Windows, hook: str, *, batch_size: int = 8) -> None:
        self._model, self._windows, self._batch_size = model, windows, batch_size
        self._hook = resolve_hook(model, hook)
        check_fits(model, windows)
        device = next(model.parameters()).device
        probe = torch.from_numpy(windows.ids[0][None, :2]).to(device)
        self._width = int(run_captured(model, probe, {"": self._hook})[""].shape[-1])

    @property
    def width(self) -> int:
        """Number of dimensions d."""
        return self._width

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return self._windows.rows

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Blocks (≤ size, d) float32 in order."""
        return self.blocks_from(size, 0)

    def blocks_from(self, size: int, row: int) -> Iterator[np.ndarray]:
        """Blocks from ``row`` on; windows before it are not run."""
        skipped, first = 0, 0
        for kept in self._windows.kept:
            count = int(kept.sum())
            if skipped + count > row:
                break
            skipped, first = skipped + count, first + 1
        rest = Windows(self._windows.ids[first:], self._windows.kept[first:])
        skip = row - skipped
        for found in capture_rows(self._model, rest, {"": self._hook}, batch_size=self._batch_size):
            rows = found[""][skip:]
            skip = max(0, skip - len(found[""]))
            for start in range(0, len(rows), size):
                yield rows[start : start + size]

    def __fingerprint__(self) -> str:
        """Hash of the tokens, the hook and the model's weights."""
        sha = hashlib.sha256(self._hook.name.encode())
        for ids, kept in zip(self._windows.ids, self._windows.kept, strict=True):
            sha.update(ids.tobytes() + kept.tobytes())
        for name, parameter in self._model.named_parameters():
            sha.update(name.encode() + parameter.detach().cpu().float().numpy().tobytes())
        return sha.hexdigest()
