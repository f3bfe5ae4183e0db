"""FlashTrace: which prompt tokens a reasoning model's answer came from, through its chain of thought.

Native API: ``FlashTrace(model, tokenizer).attribute(prompt, generation, output_span=…)``. Everything is imported when it
is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME: dict[str, str] = {}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
