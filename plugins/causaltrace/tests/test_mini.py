"""The hand-written sessions: complete, in every format, and labelled as their own steps say."""

from __future__ import annotations

import json
from collections import Counter

from icml26 import RunContext
from icml26_plugin_causaltrace import CausalTrace
from icml26_plugin_causaltrace.datasets import Mini
from icml26_plugin_causaltrace.mini import FOLDER, mini


def test_every_label_has_its_session_in_one_of_four_formats():
    data = mini()
    labels = json.loads((FOLDER / "labels.json").read_text(encoding="utf-8"))
    assert sorted(t.id for t, _ in data) == sorted(labels) and len(data) == 30
    assert Counter(y.kind for _, y in data) == {"A": 14, "B0": 5, "B1": 5, "B2": 2, "B3": 3, "B4": 1}
    formats = Counter(file.name.split(".")[1] for file in FOLDER.iterdir())
    assert all(formats[name] >= 3 for name in ("openai", "anthropic", "otel")) and formats["jsonl"] == 1


def test_labels_name_steps_that_can_be_what_they_say():
    for item, label in mini():
        assert label.attack == (label.kind == "A") == bool(label.sinks)
        for sink in label.sinks:
            assert label.source < sink < len(item.steps) and not item.steps[sink].error
            assert item.steps[label.source].result


def test_the_problem_has_nothing_to_learn_from_and_no_seed():
    first, second = (Mini(Mini.Config()).load(RunContext(seed=seed, stream=0)) for seed in (0, 1))
    assert first.inputs.traces == () and first.truth == second.truth and len(first.truth.traces) == 30


def test_a_session_with_a_chain_through_memory_is_found_with_its_origin():
    item = next(t for t, _ in mini() if t.id == "memory-obeyed")
    analysis = CausalTrace().analyze(item)
    assert analysis.is_attack and analysis.pair.source == 0 and analysis.finding.step == 4
