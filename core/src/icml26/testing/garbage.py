"""Make the truth of a problem worthless in place, to see whether a method could have looked at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from icml26.testing.arrays import arrays_of


def spoil(truth: Any, rng: np.random.Generator) -> int:
    """Overwrite arrays and numbers of ``truth`` wherever they lie; how many were changed.

    Models are left alone: a user's model may stand in inputs and truth as one object.
    """
    changed = 0
    for _, array in arrays_of(truth):
        if not array.size or not array.flags.writeable or array.dtype.hasobject:
            continue
        if array.dtype.kind == "f":
            array[...] = rng.standard_normal(array.shape) * 1e3
        elif array.dtype.kind == "b":
            array[...] = ~array
        elif array.dtype.kind in "iu":
            array[...] = rng.permutation(array.ravel()).reshape(array.shape)[..., ::-1]
        else:
            continue
        changed += 1
    return changed + _spoil_numbers(truth, set())


def _spoil_numbers(value: Any, above: set[int]) -> int:
    if id(value) in above:
        return 0
    above = above | {id(value)}
    changed = 0
    if is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            inner = getattr(value, item.name)
            if isinstance(inner, int | float) and not isinstance(inner, bool):
                object.__setattr__(value, item.name, type(inner)(-3 * inner - 17))
                changed += 1
            else:
                changed += _spoil_numbers(inner, above)
    elif isinstance(value, Mapping):
        changed += sum(_spoil_numbers(inner, above) for inner in value.values())
    elif isinstance(value, list | tuple):
        changed += sum(_spoil_numbers(inner, above) for inner in value)
    return changed
