"""CausalTrace: which injected text caused the harm? ``CausalTrace().analyze(trace)``; everything is imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    name: f"icml26_plugin_causaltrace.{module}"
    for module, names in {
        "trace": "Label Step ToolInfo Trace Turn",
        "detector": "Analysis Call CausalTrace Finding Monitor Pair Result UserMessage events explain",
        "graph": "CausalGraph Edge Slice bidirectional_slice",
        "policy": "Policy read_policy",
        "readers": "read_traces iter_traces",
        "scm": "Effect NoisyOr deterministic_effect noisy_or",
        "supervised": "SupervisedDetector",
        "ensemble": "Ballot Ensemble",
        "adjudicate": "Adjudicator",
        "drawing": "draw_html draw_svg",
    }.items()
    for name in names.split()
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from icml26_plugin_causaltrace.adjudicate import Adjudicator as Adjudicator
    from icml26_plugin_causaltrace.detector import Analysis as Analysis
    from icml26_plugin_causaltrace.detector import Call as Call
    from icml26_plugin_causaltrace.detector import CausalTrace as CausalTrace
    from icml26_plugin_causaltrace.detector import Finding as Finding
    from icml26_plugin_causaltrace.detector import Monitor as Monitor
    from icml26_plugin_causaltrace.detector import Pair as Pair
    from icml26_plugin_causaltrace.detector import Result as Result
    from icml26_plugin_causaltrace.detector import UserMessage as UserMessage
    from icml26_plugin_causaltrace.detector import events as events
    from icml26_plugin_causaltrace.detector import explain as explain
    from icml26_plugin_causaltrace.drawing import draw_html as draw_html
    from icml26_plugin_causaltrace.drawing import draw_svg as draw_svg
    from icml26_plugin_causaltrace.ensemble import Ballot as Ballot
    from icml26_plugin_causaltrace.ensemble import Ensemble as Ensemble
    from icml26_plugin_causaltrace.graph import CausalGraph as CausalGraph
    from icml26_plugin_causaltrace.graph import Edge as Edge
    from icml26_plugin_causaltrace.graph import Slice as Slice
    from icml26_plugin_causaltrace.graph import bidirectional_slice as bidirectional_slice
    from icml26_plugin_causaltrace.policy import Policy as Policy
    from icml26_plugin_causaltrace.policy import read_policy as read_policy
    from icml26_plugin_causaltrace.readers import iter_traces as iter_traces
    from icml26_plugin_causaltrace.readers import read_traces as read_traces
    from icml26_plugin_causaltrace.scm import Effect as Effect
    from icml26_plugin_causaltrace.scm import NoisyOr as NoisyOr
    from icml26_plugin_causaltrace.scm import deterministic_effect as deterministic_effect
    from icml26_plugin_causaltrace.scm import noisy_or as noisy_or
    from icml26_plugin_causaltrace.supervised import SupervisedDetector as SupervisedDetector
    from icml26_plugin_causaltrace.trace import Label as Label
    from icml26_plugin_causaltrace.trace import Step as Step
    from icml26_plugin_causaltrace.trace import ToolInfo as ToolInfo
    from icml26_plugin_causaltrace.trace import Trace as Trace
    from icml26_plugin_causaltrace.trace import Turn as Turn


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
