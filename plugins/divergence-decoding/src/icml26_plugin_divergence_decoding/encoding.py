"""Rows to token sequences: one place, so that training, scoring and generation see the same ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from icml26.errors import InputError

from icml26_plugin_divergence_decoding.task import QA, Format, Row

IGNORED = -100


class Encoded(NamedTuple):
    """A sequence: ``ids`` (n,), and at which position ``start`` its answer begins; ids from there on are learnt and
    scored.
    """

    ids: list[int]
    start: int


def encode(row: Row, tokenizer: Any, form: Format) -> list[Encoded]:
    """The sequences of a row: one for a ``QA`` or ids, one for each block of at most ``max_length`` tokens of a text.

    Raises InputError for an answer that does not fit into ``max_length``: it must not be cut unseen.
    """
    if isinstance(row, QA):
        return [encode_answer(row.question, row.answer, tokenizer, form)]
    if isinstance(row, str):
        ids = tokenizer(row, add_special_tokens=False)["input_ids"]
        bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        size = form.max_length - len(bos)
        blocks = [bos + ids[at : at + size] for at in range(0, len(ids), size)]
        return [Encoded(block, 1) for block in blocks if len(block) > 1]
    ids = [int(i) for i in row]
    if len(ids) > form.max_length:
        raise InputError(f"A row of {len(ids)} token ids exceeds max_length={form.max_length}.")
    return [Encoded(ids, 1)]


def encode_prompt(question: str, tokenizer: Any, form: Format) -> list[int]:
    """The ids of a question, up to where its answer begins; they start with the tokenizer's BOS where it has one."""
    if form.chat:
        messages = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        return [int(i) for i in ids]
    ids = tokenizer(form.prompt.format(question=question), add_special_tokens=False)["input_ids"]
    return ([] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]) + list(ids)


def encode_answer(question: str, answer: str, tokenizer: Any, form: Format) -> Encoded:
    """The ids of a question, its answer, and the tokenizer's EOS where it has one."""
    prompt = encode_prompt(question, tokenizer, form)
    ids = prompt + list(tokenizer(form.answer.format(answer=answer), add_special_tokens=False)["input_ids"])
    if tokenizer.eos_token_id is not None:
        ids.append(tokenizer.eos_token_id)
    if len(ids) > form.max_length:
        raise InputError(
            f"The question {question!r} with its answer takes {len(ids)} tokens; max_length is {form.max_length}: raise it, "
            "or take the row out."
        )
    return Encoded(ids, len(prompt))


def encode_all(rows: Iterable[Row], tokenizer: Any, form: Format) -> list[Encoded]:
    """The sequences of many rows, in order."""
    return [sequence for row in rows for sequence in encode(row, tokenizer, form)]


class Batch(NamedTuple):
    """Padded sequences: ``ids``, ``mask`` and ``labels`` (B, T) int64; labels are -100 outside answers."""

    ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


def collate(sequences: Sequence[Encoded], *, pad: int = 0, device: str = "cpu") -> Batch:
    """Right-padded tensors of sequences."""
    length = max(len(s.ids) for s in sequences)
    ids = torch.full((len(sequences), length), pad, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for i, sequence in enumerate(sequences):
        n = len(sequence.ids)
        ids[i, :n] = torch.tensor(sequence.ids)
        mask[i, :n] = 1
        labels[i, sequence.start : n] = ids[i, sequence.start : n]
    return Batch(ids.to(device), mask.to(device), labels.to(device))


def left_pad(
    prompts: Sequence[Sequence[int]], *, pad: int = 0, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Left-padded prompts and their mask (B, T), as generation wants them."""
    length = max(len(p) for p in prompts)
    ids = torch.full((len(prompts), length), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, length - len(prompt) :] = torch.tensor(list(prompt))
        mask[i, length - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def pad_id(tokenizer: Any) -> int:
    """The id to pad with; any will do, since it is masked."""
    for name in ("pad_token_id", "eos_token_id"):
        found = getattr(tokenizer, name, None)
        if found is not None:
            return int(found)
    return 0


def candidate_ids(rows: Iterable[Row], tokenizer: Any, form: Format) -> np.ndarray:
    """The sorted ids that occur in any row, prompts included: a candidate vocabulary."""
    return np.unique([i for sequence in encode_all(rows, tokenizer, form) for i in sequence.ids])
