"""The adapters: configs, storage, export, what a run records."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icml26 import MethodSpec, RunContext
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_subspace_sae import load_saelens, storage
from icml26_plugin_subspace_sae.plugin import SMOKE, icml26_methods
from icml26_plugin_subspace_sae.settings import Optimisation, TrainingSettings
from icml26_plugin_subspace_sae.task import Inputs, Output
from pydantic import ValidationError

TINY = {**SMOKE, "steps": 6, "n_features": 48, "init_rows": 300}
SPECS = {spec.name: spec for spec in icml26_methods() if spec.target.startswith("icml26_plugin_subspace_sae.methods:")}


def method_class(spec: MethodSpec) -> Any:
    module, name = spec.target.split(":")
    return getattr(importlib.import_module(module), name)


def inputs(n: int = 600) -> Inputs:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 5)) @ rng.standard_normal((5, 12)) + 0.1 * rng.standard_normal((n, 12))
    return Inputs(x.astype(np.float32), name="toy", source_info={"model": "none"})


def run(name: str = "subspace-sae", seed: int = 0, **options: Any) -> tuple[Any, Output]:
    cls = method_class(SPECS[name])
    method = cls(cls.Config(**{**TINY, **options}))
    return method, method.run(inputs(), RunContext(seed))


def test_the_papers_method_has_the_papers_defaults() -> None:
    cls = method_class(SPECS["subspace-sae"])
    settings = cls.Config().settings()
    default = TrainingSettings()
    assert settings == default
    assert settings.dictionary.k == 50 and settings.optimisation.batch_size == 4096
    assert settings.initialisation.subspace == "init" and settings.optimisation.optimizer == "sparseadam"
    assert settings.optimisation == Optimisation() and settings.sparsity.coefficient == 8e-5


def test_arms_differ_from_the_method_in_what_they_are_named_for() -> None:
    arms = {name: method_class(spec).Config().model_dump() for name, spec in SPECS.items()}
    base = arms.pop("subspace-sae")
    differing = {name: {k: v for k, v in arm.items() if v != base[k]} for name, arm in arms.items()}
    plain = {"subspace": "none", "optimizer": "adam"}
    assert differing == {
        "topk-sae": plain,
        "topk-auxk": {**plain, "auxk": 1 / 32},
        "batchtopk": {**plain, "activation": "batchtopk"},
        "relu-l1": {**plain, "activation": "relu"},
        "jumprelu": {**plain, "activation": "jumprelu", "penalty": "tanh"},
        "asi-only": {"optimizer": "adam"},
        "sparseadam-only": {"subspace": "none"},
    }


def test_numbers_and_texts_of_q_mean_the_same_in_toml_and_on_the_command_line() -> None:
    config = method_class(SPECS["subspace-sae"]).Config
    assert config(q=16).q == config(q="16").q == "16" and config(q=0.99).q == "0.99"


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0},
        {"lr": -1},
        {"activation": "gelu"},
        {"k": 5, "n_features": 4},
        {"k": 8, "initial_k": 4},
        {"unknown": 1},
        {"warmup": -1},
        {"buffer": 1},
    ],
)
def test_options_that_make_no_sense_are_refused_before_any_work(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        method_class(SPECS["subspace-sae"]).Config(**options)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_stored_outputs_are_the_same_dictionary(name: str, tmp_path: Path) -> None:
    method, output = run(name)
    method.save(output, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"sae.safetensors", "sae.json", "record.npz", "info.json"}
    loaded = type(method).load(tmp_path)
    assert fingerprint(loaded) == fingerprint(output) and loaded.info == output.info
    x = inputs().activations[:50]
    assert np.array_equal(loaded.sae.encode(x), output.sae.encode(x))
    decoded = output.sae.decode(output.sae.encode(x), x)
    assert np.allclose(output.sae.reconstruct(x), decoded, atol=1e-4)
    assert output.sae.decoder.shape == (48, 12) and output.initial_decoder.shape == (48, 12)
    assert output.history is not None and output.history.step[-1] == 6 and output.info["rows_seen"] == 6 * 128


@pytest.mark.parametrize("name", ["sae.safetensors", "sae.json", "record.npz", "info.json"])
@pytest.mark.parametrize("how", ["truncated", "empty", "missing"])
def test_damaged_outputs_are_refused(name: str, how: str, tmp_path: Path) -> None:
    method, output = run()
    method.save(output, tmp_path)
    content = (tmp_path / name).read_bytes()
    if how == "missing":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content[: len(content) // 2] if how == "truncated" else b"")
    with pytest.raises(InputError, match=str(tmp_path)):
        storage.load_output(tmp_path)


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    method, output = run()
    method.save(output, tmp_path)
    text = (tmp_path / "sae.json").read_text(encoding="utf-8")
    for old, new in (('"n_features": 48', '"n_features": 47'), ('"gate_by_decoder_norm"', '"gate"'), ("/1", "/9")):
        (tmp_path / "sae.json").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(InputError):
            storage.load_sae(tmp_path)


def test_a_run_exports_to_saelens_and_keeps_a_checkpoint(tmp_path: Path) -> None:
    _, output = run(export_saelens=tmp_path / "lens", checkpoint=tmp_path / "run.pt", checkpoint_every=2)
    assert (tmp_path / "run.pt").is_file()
    x = inputs().activations[:40]
    found = load_saelens(tmp_path / "lens")
    import torch

    assert np.allclose(found.reconstruct(torch.from_numpy(x)).numpy(), output.sae.reconstruct(x), atol=1e-3)


def test_the_run_seed_decides() -> None:
    first, same, other = (run(seed=seed)[1] for seed in (3, 3, 4))
    assert fingerprint(first) == fingerprint(same) != fingerprint(other)


def test_rows_of_another_width_are_refused() -> None:
    _, output = run()
    with pytest.raises(InputError, match="12 dimensions"):
        output.sae.encode(np.zeros((3, 11), np.float32))
    with pytest.raises(InputError, match="shape"):
        output.sae.encode(np.zeros(12, np.float32))
