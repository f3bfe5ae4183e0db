"""FlashTrace: which prompt tokens a reasoning model's answer came from, through its chain of thought.

Native API: ``FlashTrace(model, tokenizer).attribute(prompt, generation, output_span=…)``. Everything is imported when it
is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Block": "icml26_plugin_flashtrace.kernel",
    "Chars": "icml26_plugin_flashtrace.spans",
    "FlashTrace": "icml26_plugin_flashtrace.api",
    "LAST_BOXED": "icml26_plugin_flashtrace.spans",
    "Regex": "icml26_plugin_flashtrace.spans",
    "STOP_TOKENS": "icml26_plugin_flashtrace.stop_tokens",
    "Settings": "icml26_plugin_flashtrace.tracing",
    "TraceResult": "icml26_plugin_flashtrace.api",
    "capture_blocks": "icml26_plugin_flashtrace.capture",
    "load_model": "icml26_plugin_flashtrace.models",
    "proximity": "icml26_plugin_flashtrace.kernel",
    "span_shares": "icml26_plugin_flashtrace.kernel",
    "token_shares": "icml26_plugin_flashtrace.kernel",
    "token_wise": "icml26_plugin_flashtrace.tracing",
    "trace": "icml26_plugin_flashtrace.tracing",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from icml26_plugin_flashtrace.api import FlashTrace as FlashTrace
    from icml26_plugin_flashtrace.api import TraceResult as TraceResult
    from icml26_plugin_flashtrace.capture import capture_blocks as capture_blocks
    from icml26_plugin_flashtrace.kernel import Block as Block
    from icml26_plugin_flashtrace.kernel import proximity as proximity
    from icml26_plugin_flashtrace.kernel import span_shares as span_shares
    from icml26_plugin_flashtrace.kernel import token_shares as token_shares
    from icml26_plugin_flashtrace.models import load_model as load_model
    from icml26_plugin_flashtrace.spans import LAST_BOXED as LAST_BOXED
    from icml26_plugin_flashtrace.spans import Chars as Chars
    from icml26_plugin_flashtrace.spans import Regex as Regex
    from icml26_plugin_flashtrace.stop_tokens import STOP_TOKENS as STOP_TOKENS
    from icml26_plugin_flashtrace.tracing import Settings as Settings
    from icml26_plugin_flashtrace.tracing import token_wise as token_wise
    from icml26_plugin_flashtrace.tracing import trace as trace


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
