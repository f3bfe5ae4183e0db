"""Run AgentDojo's real suites with scripted agents; AgentDojo writes the run files and judges who was harmed.

``obedient`` carries out the injected task as soon as a result holds its goal, ``resistant`` never does, both do the user's
task by AgentDojo's ground truth. Attacks are AgentDojo's own. Needs the extra ``agentdojo``; no language model takes part.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from icml26.errors import InputError

from icml26_plugin_causaltrace.agentdojo_replay import SUITES, VERSION, _calls, _Environments, _letters, _number

ATTACKS = ("direct", "ignore_previous", "system_message", "injecagent", "important_instructions")
AGENTS = ("obedient", "resistant")
#: AgentDojo's attacks derive a model's name from the pipeline's.
PIPELINE = "local-scripted-{agent}"


def write_runs(
    folder: Path,
    suites: Sequence[str] = SUITES,
    *,
    injections_per_task: int = 2,
    attacks: Sequence[str] = ATTACKS,
    seed: int = 0,
    users_per_suite: int | None = None,
) -> int:
    """Write one JSON file a run below ``folder``; returns their number. One attack per pair, drawn with ``seed``."""
    from agentdojo.attacks import load_attack
    from agentdojo.task_suite.load_suites import get_suites

    unknown = sorted(set(suites) - set(SUITES)) + sorted(set(attacks) - set(ATTACKS))
    if unknown:
        raise InputError(f"unknown suites or attacks: {', '.join(unknown)}")
    rng = np.random.default_rng(seed)
    written = 0
    for name in suites:
        suite = get_suites(VERSION)[name]
        environments = _Environments(suite)
        pipeline = _scripted("obedient", None, None)
        ready = {a: load_attack(a, suite, pipeline) for a in attacks}
        injections = environments.executable_injections()
        users = sorted(suite.user_tasks, key=_number)[:users_per_suite]
        for user_id in users:
            user = suite.user_tasks[user_id]
            vectors = environments.seen_vectors(user)
            if not vectors:
                continue
            written += _run(folder, environments, user, None, {}, "none", "resistant")
            drawn = rng.choice(len(injections), size=min(injections_per_task, len(injections)), replace=False)
            for position in drawn:
                injection = suite.injection_tasks[injections[int(position)]]
                attack = ready[attacks[int(rng.integers(len(attacks)))]]
                # The attack asks which vectors the user's calls bring up; that is known, and asking again costs a second.
                attack.get_injection_candidates = lambda task, known=tuple(vectors): list(known)
                texts = dict(attack.attack(user, injection))
                for agent in AGENTS:
                    written += _run(folder, environments, user, injection, texts, attack.name, agent)
    return written


def _run(
    folder: Path, environments: _Environments, user: Any, injection: Any, texts: dict[str, str], attack: str, agent: str
) -> int:
    from agentdojo.logging import NullLogger, TraceLogger

    suite = environments.suite
    pipeline = _scripted(agent, user, injection)
    with NullLogger() as delegate:
        delegate.logdir = str(folder)
        with (
            TraceLogger(
                delegate=delegate,
                suite_name=suite.name,
                user_task_id=user.ID,
                injection_task_id=None if injection is None else injection.ID,
                injections=texts,
                attack_type=attack,
                pipeline_name=pipeline.name,
                benchmark_version=VERSION,
            ) as logger,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            utility, security = suite.run_task_with_pipeline(
                pipeline, user, injection, texts, environment=environments.plain(texts)
            )
            logger.set_contextarg("utility", utility)
            logger.set_contextarg("security", security)
    return 1


def _scripted(agent: str, user: Any, injection: Any) -> Any:
    """A pipeline element of AgentDojo that follows the ground truth."""
    from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
    from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
    from agentdojo.functions_runtime import FunctionCall
    from agentdojo.logging import Logger
    from agentdojo.types import (
        ChatAssistantMessage,
        ChatToolResultMessage,
        ChatUserMessage,
        text_content_block_from_string,
    )

    class Scripted(BasePipelineElement):
        name = PIPELINE.format(agent=agent)

        def query(self, query, runtime, env, messages=(), extra_args=None):  # type: ignore[no-untyped-def]
            done = [*messages, ChatUserMessage(role="user", content=[text_content_block_from_string(query)])]
            waiting = _calls(user, env.model_copy(deep=True))
            goal = [] if injection is None or agent != "obedient" else _calls(injection, env.model_copy(deep=True))
            number = 0
            while waiting:
                planned = waiting.pop(0)
                call = FunctionCall(function=planned.function, args=dict(planned.args), id=f"call_{number}")
                number += 1
                done.append(ChatAssistantMessage(role="assistant", content=None, tool_calls=[call]))
                result, error = runtime.run_function(env, call.function, dict(call.args))
                text = tool_result_to_str(result)
                done.append(
                    ChatToolResultMessage(
                        role="tool",
                        content=[text_content_block_from_string(text)],
                        tool_call_id=call.id,
                        tool_call=call,
                        error=error,
                    )
                )
                if goal and _letters(injection.GOAL) in _letters(text):
                    waiting, goal = [*goal, *waiting], []
                Logger.get().log(done)
            final = user.GROUND_TRUTH_OUTPUT or "Done."
            done.append(
                ChatAssistantMessage(role="assistant", content=[text_content_block_from_string(final)], tool_calls=None)
            )
            Logger.get().log(done)
            return query, runtime, env, done, extra_args or {}

    return Scripted()


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m icml26_plugin_causaltrace.agentdojo_runs FOLDER``: run the suites."""
    import argparse

    parser = argparse.ArgumentParser(description="Run AgentDojo's suites with scripted agents; one JSON file a run.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=SUITES)
    parser.add_argument("--injections-per-task", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    write_runs(options.folder, options.suites, injections_per_task=options.injections_per_task, seed=options.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
