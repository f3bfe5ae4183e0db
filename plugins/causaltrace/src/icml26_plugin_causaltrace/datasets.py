"""Data sets of the task: synthetic traces, AgentDojo replays and runs, the user's own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from icml26 import Dataset, DatasetConfig, InputError, Problem, RunContext
from pydantic import Field

from icml26_plugin_causaltrace.readers import iter_traces
from icml26_plugin_causaltrace.task import Inputs, Output, Truth, Verdict
from icml26_plugin_causaltrace.trace import Label, Trace, dumps

Labelled = list[tuple[Trace, Label]]


class Known:
    """A detector that was told the answers, right or wrong: what the kit tells metrics apart with."""

    def __init__(self, truth: Truth, right: bool) -> None:
        labels = truth.labels or ()
        self.right = right
        self._of = {id(t): y for t, y in zip(truth.traces, labels, strict=True)}

    def __fingerprint__(self) -> str:
        return f"known {self.right}"

    def judge(self, trace: Trace) -> Verdict:
        """The label, or its opposite."""
        label = self._of[id(trace)]
        attack = label.attack if self.right else not label.attack
        source = label.source if self.right else None
        sink = label.sinks[-1] if self.right and label.sinks else None
        chain = (source, sink) if source is not None and sink is not None else ()
        edges = label.edges if self.right else ()
        return Verdict(float(attack), attack, source, sink, chain, edges)


class _Traces(Dataset[Inputs, Truth]):
    def perfect(self, problem: Problem[Inputs, Truth]) -> Output | None:
        """The labels themselves."""
        return Output(Known(problem.truth, True)) if problem.truth.labels is not None else None

    def broken(self, problem: Problem[Inputs, Truth]) -> Output | None:
        """The opposite of every label."""
        return Output(Known(problem.truth, False)) if problem.truth.labels is not None else None


def grouped_problem(data: Labelled, test_groups: set[str], info: dict[str, Any]) -> Problem[Inputs, Truth]:
    """A problem whose test traces are those of ``test_groups``; no group stands on both sides."""
    train = [(t, y) for t, y in data if y.group not in test_groups]
    test = [(t, y) for t, y in data if y.group in test_groups]
    if not test:
        raise InputError("no trace is left to judge: the split gave the test side nothing")
    inputs = Inputs(tuple(t for t, _ in train), tuple(y for _, y in train))
    truth = Truth(tuple(t for t, _ in test), tuple(y for _, y in test))
    return Problem(inputs, truth, {"train": len(train), "test": len(test), **info})


def fold_of(groups: Sequence[str], n_folds: int, fold: int, split_seed: int = 0) -> set[str]:
    """The groups of one fold of a split that depends on the names and ``split_seed`` alone."""
    names = sorted(set(groups))
    if len(names) < n_folds:
        raise InputError(f"{n_folds} folds need as many groups, there are {len(names)}")
    order = np.random.default_rng(split_seed).permutation(len(names))
    return {names[k] for position, k in enumerate(order) if position % n_folds == fold}


class Synthetic(_Traces):
    """Made-up agents in an office, with every attack template; nothing to download."""

    class Config(DatasetConfig):
        """Size and split."""

        n_tasks: int = Field(80, ge=4, le=100_000, description="User tasks; each gives up to six traces.")
        test_fraction: float = Field(0.5, gt=0, lt=1, description="Share of the tasks that is judged.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        from icml26_plugin_causaltrace.synthetic import generate

        data = list(generate(self.config.n_tasks, ctx.rng))
        groups = sorted({y.group for _, y in data})
        count = min(len(groups) - 1, max(1, round(self.config.test_fraction * len(groups))))
        test = {groups[k] for k in ctx.rng.permutation(len(groups))[:count]}
        return grouped_problem(data, test, {"kinds": _kinds(data)})


class Mini(_Traces):
    """Hand-written sessions; nothing to learn from, nothing to download."""

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        from icml26_plugin_causaltrace.mini import mini

        data = mini()
        truth = Truth(tuple(t for t, _ in data), tuple(y for _, y in data))
        return Problem(Inputs((), ()), truth, {"test": len(data), "kinds": _kinds(data)})


class FoldConfig(DatasetConfig):
    """A fold of a grouped cross-validation; the run's seed chooses it."""

    n_folds: int = Field(
        5, ge=2, le=100, description="Folds; user tasks stay whole. The fold judged is seed mod n_folds."
    )


class AgentDojoReplay(_Traces):
    """AgentDojo's ground-truth calls, attacked and benign, replayed in its own environments."""

    class Config(FoldConfig):
        """What is replayed."""

        suites: tuple[str, ...] = Field(
            ("workspace", "banking", "slack", "travel"), description="Suites of AgentDojo v1.2.2."
        )
        injections_per_task: int = Field(3, ge=1, le=20, description="Injection tasks drawn for each user task.")
        replay_seed: int = Field(0, ge=0, description="Seed of the draw of injection tasks and templates.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        from icml26_plugin_causaltrace.agentdojo_replay import replay

        c = self.config

        def build(folder: Path) -> None:
            with (folder / "replay.jsonl").open("w", encoding="utf-8") as file:
                for trace, label in replay(c.suites, c.injections_per_task, c.replay_seed):
                    file.write(dumps(trace, label) + "\n")

        # The seed only chooses the fold: the replays follow ``replay_seed``.
        folder = ctx.cached("replay", build, seeded=False)
        data = [(r.trace, r.label) for r in iter_traces(folder / "replay.jsonl", "icml26") if r.label is not None]
        return _fold_problem(data, c.n_folds, ctx.seed)


class Traces(_Traces):
    """Your own traces: a file or folder of AgentDojo runs, chat messages, OpenTelemetry spans, Inspect logs or our JSONL."""

    #: Beyond this many traces memory would not be bounded; the native ``iter_traces`` streams any number.
    LIMIT: ClassVar[int] = 1_000_000

    class Config(DatasetConfig):
        """Where the traces are, and whether they are labelled."""

        path: str = Field(description="A .json, .jsonl or .eval file, or a folder of them.")
        format: str | None = Field(
            None, description="icml26, agentdojo, openai, otel, inspect or causalbench; recognised when not given."
        )
        labelled: bool = Field(False, description="All traces carry labels (AgentDojo runs, our JSONL): score them.")
        chains: bool = Field(
            False, description="The labels of our JSONL also name injected steps, harmful calls and edges."
        )
        n_folds: int = Field(
            0, ge=0, le=100, description="0: judge all, learn from none; else the fold seed mod n_folds."
        )

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        c = self.config
        data: Labelled = []
        for record in iter_traces(c.path, c.format):
            if c.labelled and record.label is None:
                raise InputError(
                    f"{record.path}: trace {record.trace.id!r} has no label; set labelled = false to judge only"
                )
            data.append((record.trace, record.label or Label(False)))
            if len(data) > self.LIMIT:
                raise InputError(f"{c.path} holds more than {self.LIMIT} traces; judge it in parts")
        if not data:
            raise InputError(f"{c.path} holds no trace with a tool call")
        if c.n_folds and c.labelled:
            return _fold_problem(data, c.n_folds, ctx.seed)
        if c.n_folds:
            raise InputError("n_folds needs labelled = true: there is nothing to learn from otherwise")
        labels = tuple(y for _, y in data) if c.labelled else None
        return Problem(Inputs((), ()), Truth(tuple(t for t, _ in data), labels), {"test": len(data)})


def _fold_problem(data: Labelled, n_folds: int, seed: int) -> Problem[Inputs, Truth]:
    fold = seed % n_folds
    test = fold_of([y.group for _, y in data], n_folds, fold)
    return grouped_problem(data, test, {"fold": fold, "kinds": _kinds(data)})


def _kinds(data: Labelled) -> dict[str, int]:
    kinds = [y.kind for _, y in data]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
