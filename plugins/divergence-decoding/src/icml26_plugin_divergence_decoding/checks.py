"""What is wrong with a problem before any work is done on it."""

from __future__ import annotations

from typing import Any

from icml26.errors import InputError

from icml26_plugin_divergence_decoding.encoding import Encoded, encode_all
from icml26_plugin_divergence_decoding.task import QA, Inputs, Row


def checked_sequences(inputs: Inputs) -> tuple[list[Encoded], list[Encoded], list[Encoded]]:
    """The sequences of rows to be forgotten, to be kept, and of the background.

    Raises InputError when there is nothing to forget, when a row is to be forgotten and kept at once, or when an answer
    is too long.
    """
    if not inputs.forget:
        raise InputError("There is nothing to forget: the forget rows are empty.")
    if not inputs.retain:
        raise InputError("There is nothing to keep: the retain rows are empty, and forgetting all needs no method.")
    kept = {_identity(row) for row in (*inputs.retain, *inputs.background)}
    both = {_identity(row) for row in inputs.forget} & kept
    if both:
        shown = str(next(iter(sorted(both, key=repr))))[:120]
        raise InputError(f"{len(both)} rows are to be forgotten and to be kept at once, among them {shown}.")
    forget, retain, background = (
        encode_all(rows, inputs.tokenizer, inputs.format) for rows in (inputs.forget, inputs.retain, inputs.background)
    )
    return forget, retain, background


def _identity(row: Row) -> Any:
    if isinstance(row, QA):
        return row.question, row.answer
    return row if isinstance(row, str) else tuple(int(i) for i in row)
