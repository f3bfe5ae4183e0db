"""From a dataset through a method to scores and pictures: memory maps, streams, transcoders, real and synthetic truths."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icml26 import Problem, RunContext
from icml26_plugin_subspace_sae import figures, metrics, plugin
from icml26_plugin_subspace_sae.datasets import ActivationFile, LowrankSparseData
from icml26_plugin_subspace_sae.hooks import resolve_hook
from icml26_plugin_subspace_sae.model_rows import ModelActivations, capture_rows, pack
from icml26_plugin_subspace_sae.task import Inputs, Truth
from tiny_models import llama, tokenizer

SPECS = {spec.name: spec for spec in plugin.icml26_methods()}
SMALL = {"n_features": 96, "k": 3, "batch_size": 64, "steps": 30, "lr": 3e-3, "warmup": 0.1, "dead_threshold": 500}


def run(name: str, problem: Problem[Any, Any], **options: Any) -> Any:
    module, cls = SPECS[name].target.split(":")
    method = getattr(importlib.import_module(module), cls)
    return method(method.Config(**options)).run(problem.inputs, RunContext(0))


def lowrank(**config: Any) -> Problem[Any, Any]:
    options = {"d": 24, "r": 6, "n_features": 60, "l0": 3.0, "train_rows": 2000, "test_rows": 800, **config}
    return LowrankSparseData(LowrankSparseData.Config(**options)).load(RunContext(0, stream=0))


def test_the_papers_effect_is_there_in_a_second(tmp_path: Path) -> None:
    problem = lowrank()
    base, ours = run("topk-sae", problem, **SMALL), run("subspace-sae", problem, q="6", **SMALL)
    dead = [metrics.dead_fraction(output, problem.truth)[""] for output in (base, ours)]
    assert dead[1] < 0.5 * dead[0]
    assert metrics.fvu(ours, problem.truth) < metrics.fvu(base, problem.truth)
    share = metrics.subspace_share(ours, problem.truth)
    assert share["start"] > 0.99 and metrics.subspace_share(base, problem.truth)["start"] < 0.4
    assert metrics.mechanism(base, problem.truth)[""] > 0.2
    assert 0 < metrics.l0(ours, problem.truth) <= 3
    figures.draw_run(problem, ours, RunContext(0, folder=tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"features.png", "spectrum.png"}


def test_memory_maps_go_all_the_way(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", lowrank().inputs.activations)
    problem = ActivationFile(ActivationFile.Config(path=tmp_path / "a.npy")).load(RunContext(0, stream=0))
    assert not problem.inputs.activations.flags.writeable
    for name in ("subspace-sae", "pca-k", "random-dictionary"):
        output = run(name, problem, **(SMALL if name == "subspace-sae" else {"k": 3}))
        assert 0 < metrics.fvu(output, problem.truth) < 1
        figures.draw_run(problem, output, RunContext(0, folder=tmp_path / name))


def test_transcoders_are_scored_on_their_targets(tmp_path: Path) -> None:
    x = lowrank().inputs.activations
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 24)))[0].astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=x @ turn)
    config = ActivationFile.Config(path=tmp_path / "a.npz", key="x", targets_key="y")
    problem = ActivationFile(config).load(RunContext(0, stream=0))
    output = run("subspace-sae", problem, **{**SMALL, "steps": 120})
    assert metrics.fvu(output, problem.truth) < 0.9


@pytest.mark.parametrize("name", ["subspace-sae", "pca-k", "random-dictionary"])
def test_a_models_stream_is_trained_on_as_it_is_read(name: str) -> None:
    model = llama()
    texts = [
        f"Line {i}: once more {i * 3} birds sat on {i} wires and sang about the number {i * i}. " for i in range(30)
    ]
    windows = pack(tokenizer(), texts, context=64)
    source = ModelActivations(model, windows, "layers.1.attn_out")
    hook = {"": resolve_hook(model, "layers.1.attn_out")}
    rows = np.concatenate([found[""] for found in capture_rows(model, windows, hook)])
    problem = Problem(Inputs(source), Truth(rows))
    output = run(name, problem, **(SMALL | {"steps": 60} if name == "subspace-sae" else {"k": 3}))
    assert metrics.fvu(output, problem.truth) < 1
