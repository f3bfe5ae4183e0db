"""Replays and scripted runs of the real AgentDojo package (extra ``agentdojo``); the environments take a while to load."""

from __future__ import annotations

import json

import pytest
from icml26.errors import InputError
from icml26_plugin_causaltrace import CausalTrace, read_traces
from icml26_plugin_causaltrace.agentdojo_replay import replay
from icml26_plugin_causaltrace.agentdojo_runs import write_runs

pytestmark = pytest.mark.slow
pytest.importorskip("agentdojo")


def test_replays_have_every_kind_and_a_and_b3_share_their_steps():
    made = list(replay(("banking",), injections_per_task=1))
    by_id = {t.id: (t, y) for t, y in made}
    kinds = [y.kind for _, y in made]
    assert {kinds.count(k) for k in ("A", "B1", "B2", "B3")} == {16} and kinds.count("B0") == 16
    for trace, label in made:
        if label.kind != "A":
            assert not label.attack
            continue
        wish, _ = by_id[trace.id.removesuffix("/A") + "/B3"]
        assert wish.steps == trace.steps and wish.turns != trace.turns
        assert label.source is not None and min(label.sinks) == label.source + 1
    again = list(replay(("banking",), injections_per_task=1))
    assert again == made


def test_agentdojo_itself_says_that_the_obedient_agent_did_harm(tmp_path):
    assert write_runs(tmp_path, ("banking",), users_per_suite=2) == 10
    records = read_traces(tmp_path)
    assert len(records) == 10
    right = 0
    for record in records:
        obedient = json.loads(record.path.read_text())["pipeline_name"].endswith("obedient")
        assert record.label.attack == obedient
        right += CausalTrace().analyze(record.trace).is_attack == obedient
    # Over all suites 11 % of the benign runs raise an alarm and 6 % of the attacks raise none: see the README.
    assert right >= 8


def test_unknown_suites_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown suites"):
        write_runs(tmp_path, ("moonbase",))
