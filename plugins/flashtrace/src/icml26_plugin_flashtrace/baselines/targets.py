"""What every baseline explains: the log-probability of the answer's content tokens under the model."""

from __future__ import annotations

import numpy as np
from icml26 import InputError

from icml26_plugin_flashtrace.task import Example, Inputs


def answer_weights(example: Example, kept: np.ndarray) -> np.ndarray:
    """(G,) float64, 1 on kept tokens of the output span, else 0; InputError when only stop tokens are left."""
    weights = np.zeros(example.n_tokens - example.n_prompt)
    lo, hi = example.output_span
    weights[lo : hi + 1] = kept[example.n_prompt + lo : example.n_prompt + hi + 1]
    if not weights.any():
        raise InputError(
            f"example {example.id!r}: the output span {[lo, hi]} holds only stop tokens; widen it, or set stop_tokens=[]"
        )
    return weights


def ids_of(example: Example, inputs: Inputs) -> np.ndarray:
    """The example's ids (N,), checked; InputError when there is no model to ask."""
    from icml26_plugin_flashtrace.models import check_ids, check_length

    if inputs.model is None or example.input_ids is None:
        raise InputError(f"example {example.id!r}: this method asks the model; the dataset gives none")
    check_length(inputs.model, example.n_tokens, what=f"example {example.id!r}")
    check_ids(inputs.model, example.input_ids, what=f"example {example.id!r}")
    return example.input_ids
