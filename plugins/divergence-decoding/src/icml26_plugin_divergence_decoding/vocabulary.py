"""Whether models can be combined token by token: one vocabulary in one order, padding of embeddings apart."""

from __future__ import annotations

from typing import Any

from icml26.errors import InputError


def vocabulary_size(model: Any) -> int:
    """How many logits a model gives at a position, its embedding's padding included.

    Raises InputError when it does not tell, and for an encoder-decoder: its ids are not a continuation of the prompt's.
    """
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) is True:
        raise InputError(f"{type(model).__name__} is an encoder-decoder; causal language models are combined here.")
    for owner in (config, model):
        size = getattr(owner, "vocab_size", None)
        if isinstance(size, int):
            return size
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is None:
        raise InputError(
            f"{type(model).__name__} does not tell its vocabulary's size: give it a config with vocab_size."
        )
    return int(head.weight.shape[0])


def common_vocabulary(target: Any, *auxiliaries: Any, tokenizers: tuple[Any, ...] = ()) -> int:
    """How many leading tokens all models share: V, or the tokenizer's length where embeddings are padded differently.

    Raises InputError when tokenizers differ in content, when sizes differ and no tokenizer says what they have in
    common, or when a model has fewer logits than the tokenizer has tokens.
    """
    known = [tokenizer for tokenizer in tokenizers if tokenizer is not None]
    for other in known[1:]:
        check_same(known[0], other)
    sizes = [vocabulary_size(model) for model in (target, *auxiliaries)]
    length = max(known[0].get_vocab().values()) + 1 if known else None
    if length is not None and min(sizes) < length:
        raise InputError(
            f"The tokenizer has {length} tokens, the models {_listed(sizes)} logits: "
            "an auxiliary of another vocabulary cannot steer."
        )
    if len(set(sizes)) == 1:
        return sizes[0]
    if length is None:
        raise InputError(
            f"The models have {_listed(sizes)} logits. Pass the tokenizers: they tell which are tokens and which are padding."
        )
    return length


def _listed(sizes: list[int]) -> str:
    return ", ".join(str(size) for size in sizes[:-1]) + f" and {sizes[-1]}"


def check_same(one: Any, other: Any, where: str = "") -> None:
    """InputError, beginning with ``where``, unless two tokenizers have the same tokens in the same order."""
    first, second = one.get_vocab(), other.get_vocab()
    if first == second:
        return
    differing = sorted(t for t in first.keys() | second.keys() if first.get(t) != second.get(t))
    shown = ", ".join(repr(token) for token in differing[:3])
    raise InputError(
        f"{where}The tokenizers differ in {len(differing)} tokens ({shown}{', …' if len(differing) > 3 else ''}): "
        "target and auxiliaries must share one vocabulary in one order. Take auxiliaries of the target's family."
    )
