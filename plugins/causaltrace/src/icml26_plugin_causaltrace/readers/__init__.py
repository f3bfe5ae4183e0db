"""Traces from files: AgentDojo runs, chat messages, OpenTelemetry GenAI spans, Inspect logs, our own JSONL, CausalBench."""

from __future__ import annotations

from icml26_plugin_causaltrace.readers.files import FORMATS, Record, detect_format, iter_traces, read_traces

__all__ = ["FORMATS", "Record", "detect_format", "iter_traces", "read_traces"]
