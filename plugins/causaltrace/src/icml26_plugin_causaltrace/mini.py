"""Thirty hand-written sessions in the formats that agents leave: OpenAI and Anthropic messages, OpenTelemetry spans, our lines.

Fourteen are attacks, among them memory and note chains, a hand-over, encoded and split commands. They were written once and
not changed after a detector had seen them.
"""

from __future__ import annotations

import json
from pathlib import Path

from icml26_plugin_causaltrace.readers import iter_traces
from icml26_plugin_causaltrace.trace import Label, Trace

FOLDER = Path(__file__).parent / "mini"


def mini() -> list[tuple[Trace, Label]]:
    """Every session with its label, in order of the files."""
    labels = json.loads((FOLDER / "labels.json").read_text(encoding="utf-8"))
    found = []
    for file in sorted(FOLDER.iterdir()):
        if file.name == "labels.json":
            continue
        for record in iter_traces(file):
            raw = labels[record.trace.id]
            edges = tuple((int(i), int(j), str(kind)) for i, j, kind in raw["edges"])
            label = Label(raw["attack"], raw["kind"], raw["group"], raw["source"], tuple(raw["sinks"]), edges)
            found.append((record.trace, label))
    return found
