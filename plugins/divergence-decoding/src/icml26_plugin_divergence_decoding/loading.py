"""Models and tokenizers from folders or, where asked for, the hub: whole ones only, and no code that comes with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from icml26.errors import InputError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def causal_model(place: str | Path, *, dtype: str = "auto", hub: bool = False) -> Any:
    """A causal language model in evaluation mode.

    Raises InputError when ``place`` holds none, when it is damaged, and when weights are missing: transformers would fill
    them with random numbers. Global generators stay as they were.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        with torch.random.fork_rng(devices=[]), without_progress_bars():
            model, told = AutoModelForCausalLM.from_pretrained(
                place,
                dtype=dtype,
                local_files_only=not hub,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{place} holds no causal language model in transformers format: {error}") from error
    missing = sorted(map(str, told["missing_keys"]))
    if missing:
        raise InputError(f"{place} holds no whole model: {len(missing)} weights are missing, among them {missing[0]}.")
    return model.eval()


def tokenizer_of(place: str | Path, *, hub: bool = False) -> Any:
    """The tokenizer that belongs to a model, padding on the left. Raises InputError when there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            place, local_files_only=not hub, padding_side="left", trust_remote_code=False
        )
    except Exception as error:  # the tokenizers' own errors are bare Exceptions
        raise InputError(f"{place} holds no tokenizer: {error}") from error


def refuse_other_tokenizer(place: str | Path, tokenizer: Any, *, hub: bool = False) -> None:
    """InputError when a model comes with a tokenizer of its own whose tokens are not those of ``tokenizer``."""
    from icml26_plugin_divergence_decoding.vocabulary import check_same

    folder = Path(place)
    if tokenizer is None or (folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZER_FILES)):
        return
    try:
        own = tokenizer_of(place, hub=hub)
    except InputError:
        if folder.is_dir():
            raise
        return  # a model on the hub without a tokenizer is taken as it is
    check_same(tokenizer, own, f"{place}: ")


@contextlib.contextmanager
def without_progress_bars() -> Iterator[None]:
    """Silence transformers' bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
