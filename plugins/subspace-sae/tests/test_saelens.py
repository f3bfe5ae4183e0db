"""Exchange with SAELens: the files it reads, and (slow, where it is installed) what it makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from icml26.errors import EnvironmentError_, InputError
from icml26_plugin_subspace_sae import Architecture, SparseAutoencoder, load_saelens, save_saelens
from safetensors.torch import load_file, save_file

ACTIVATIONS = ("topk", "batchtopk", "relu", "jumprelu")


def sae_of(activation: str = "topk", gate: bool = True, scaling: str = "none", d_out: int = 16) -> SparseAutoencoder:
    g = torch.Generator().manual_seed(0)
    a = Architecture(16, d_out, 64, activation=activation, k=4, gate_by_decoder_norm=gate, row_scaling=scaling)  # type: ignore[arg-type]
    sae = SparseAutoencoder(a, generator=g, initial_threshold=0.7)
    with torch.no_grad():
        sae.W_dec.mul_(torch.rand(64, 1, generator=g) + 0.5)
        sae.b_enc.normal_(generator=g)
        sae.b_dec.normal_(generator=g)
        if activation == "batchtopk":
            sae.threshold.fill_(2.0)
    return sae


def rows() -> torch.Tensor:
    return torch.randn(50, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gate", [True, False])
def test_files_have_the_names_shapes_and_settings_that_saelens_reads(
    activation: str, gate: bool, tmp_path: Path
) -> None:
    sae = sae_of(activation, gate)
    save_saelens(sae, tmp_path, source={"model_name": "tiny"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cfg.json", "sae_weights.safetensors"]
    config = json.loads((tmp_path / "cfg.json").read_text(encoding="utf-8"))
    names = {"topk": "topk", "batchtopk": "jumprelu", "relu": "standard", "jumprelu": "jumprelu"}
    assert config["architecture"] == names[activation] and (config["d_in"], config["d_sae"]) == (16, 64)
    assert config["apply_b_dec_to_input"] is False and config["normalize_activations"] == "none"
    assert config["dtype"] == "float32" and config["metadata"]["model_name"] == "tiny"
    assert config.get("k") == (4 if activation == "topk" else None)
    tensors = load_file(tmp_path / "sae_weights.safetensors")
    shapes = {"W_enc": (16, 64), "b_enc": (64,), "W_dec": (64, 16), "b_dec": (16,)}
    if names[activation] == "jumprelu":
        shapes["threshold"] = (64,)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == shapes
    if gate:
        assert torch.allclose(tensors["W_dec"].norm(dim=1), torch.ones(64), atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("scaling", ["none", "token"])
def test_what_is_written_is_read_back_with_the_same_reconstructions(
    activation: str, gate: bool, scaling: str, tmp_path: Path
) -> None:
    sae = sae_of(activation, gate, scaling)
    save_saelens(sae, tmp_path)
    assert torch.allclose(load_saelens(tmp_path).reconstruct(rows()), sae.reconstruct(rows()), atol=2e-5)


def test_a_bias_subtracted_from_the_input_is_folded_on_reading(tmp_path: Path) -> None:
    sae = sae_of("relu", gate=False)
    save_saelens(sae, tmp_path)
    config = json.loads((tmp_path / "cfg.json").read_text(encoding="utf-8"))
    (tmp_path / "cfg.json").write_text(json.dumps({**config, "apply_b_dec_to_input": True}), encoding="utf-8")
    h = torch.relu((rows() - sae.b_dec) @ sae.W_enc + sae.b_enc)
    assert torch.allclose(load_saelens(tmp_path).encode(rows()), h.detach(), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "gated"}, "architecture is 'gated'"),
        ({"normalize_activations": "layer_norm"}, "normalize_activations is 'layer_norm'"),
        ({"k": None}, "does not say k"),
        ({"apply_b_dec_to_input": None}, "does not say apply_b_dec_to_input"),
        ({"architecture": "jumprelu"}, "lacks threshold"),
    ],
)
def test_files_that_do_not_say_what_weights_mean_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    save_saelens(sae_of(), tmp_path)
    config = json.loads((tmp_path / "cfg.json").read_text(encoding="utf-8")) | change
    config = {key: value for key, value in config.items() if value is not None}
    (tmp_path / "cfg.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load_saelens(tmp_path)


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can be read"):
        load_saelens(tmp_path)
    save_saelens(sae_of(), tmp_path)
    (tmp_path / "sae_weights.safetensors").write_bytes(b"rubbish")
    with pytest.raises(InputError, match="can be read"):
        load_saelens(tmp_path)
    save_file({"W_enc": torch.zeros(16, 64)}, tmp_path / "sae_weights.safetensors")
    with pytest.raises(InputError, match="lacks W_dec"):
        load_saelens(tmp_path)


def test_what_saelens_cannot_express_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row_scaling"):
        save_saelens(sae_of(scaling="batch"), tmp_path)
    with pytest.raises(InputError, match="transcoder"):
        save_saelens(sae_of(d_out=5), tmp_path)
    sae = sae_of("batchtopk")
    sae.threshold.fill_(float("nan"))
    with pytest.raises(InputError, match="threshold"):
        save_saelens(sae, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("scaling", ["none", "token"])
def test_saelens_loads_them_and_reconstructs_the_same(
    activation: str, gate: bool, scaling: str, tmp_path: Path
) -> None:
    """Run by ``nox -s saelens``, in an environment of its own."""
    lens_of: Any = pytest.importorskip("sae_lens").SAE
    sae = sae_of(activation, gate, scaling)
    save_saelens(sae, tmp_path, source={"model_name": "tiny", "hook_name": "layers.1.attn_out"})
    lens = lens_of.load_from_disk(str(tmp_path))
    with torch.no_grad():
        codes = lens.encode(rows())
        assert torch.allclose(lens.decode(codes), sae.reconstruct(rows()), atol=2e-5)
        assert torch.allclose(codes, sae.encode(rows()) * sae.decoder_norms(), atol=2e-5)


@pytest.mark.slow
def test_an_autoencoder_of_saelens_starts_inside_the_subspace() -> None:
    lens: Any = pytest.importorskip("sae_lens")
    from icml26_plugin_subspace_sae import initialise_weights

    g = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 5, generator=g) @ torch.randn(5, 16, generator=g)
    sae = lens.TopKTrainingSAE(lens.TopKTrainingSAEConfig(d_in=16, d_sae=64, k=4))
    report = initialise_weights(sae, x, q=5, k=4)
    basis = torch.from_numpy(report.active.basis)
    w = sae.W_dec.detach()
    assert float((w - w @ basis @ basis.T).norm()) < 1e-4 * float(w.norm())
    assert torch.equal(sae.W_enc.detach(), w.T)


def test_a_folder_that_cannot_be_written_is_told_and_an_older_export_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(EnvironmentError_, match="cannot be written"):
        save_saelens(sae_of(), tmp_path / "file")
    folder = tmp_path / "sae"
    save_saelens(sae_of(), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match="JSON values"):
        save_saelens(sae_of("relu"), folder, source={"x": object()})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "cfg.json").unlink()
    (folder / "cfg.json").mkdir()
    with pytest.raises(EnvironmentError_, match="is a folder"):
        save_saelens(sae_of("relu"), folder)
    assert (folder / "sae_weights.safetensors").read_bytes() == before["sae_weights.safetensors"]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": "4"}, "k is '4'"),
        ({"k": 2.7}, "k is 2.7"),
        ({"apply_b_dec_to_input": "false"}, "neither true nor false"),
        ({"architecture": ["topk"]}, "architecture is"),
        ({"d_in": 77}, "d_in is 77"),
        ({"d_sae": 7}, "d_sae is 7"),
    ],
)
def test_settings_of_wrong_kinds_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    save_saelens(sae_of(), tmp_path)
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match=words):
        load_saelens(tmp_path)


def test_settings_that_are_no_object_are_refused(tmp_path: Path) -> None:
    save_saelens(sae_of(), tmp_path)
    (tmp_path / "cfg.json").write_text("[1]")
    with pytest.raises(InputError, match="holds a list"):
        load_saelens(tmp_path)


@pytest.mark.parametrize("name", ["W_dec", "b_dec", "b_enc", "W_enc"])
@pytest.mark.parametrize("damage", ["short", "nan", "integers"])
def test_weights_that_would_be_broadcast_or_are_no_numbers_are_refused(name: str, damage: str, tmp_path: Path) -> None:
    save_saelens(sae_of(), tmp_path)
    tensors = load_file(tmp_path / "sae_weights.safetensors")
    value = tensors[name]
    tensors[name] = {"short": value[:1], "nan": value * torch.nan, "integers": value.long()}[damage].clone()
    save_file(tensors, tmp_path / "sae_weights.safetensors")
    with pytest.raises(InputError, match="does not fit" if damage == "short" else f"{name} holds"):
        load_saelens(tmp_path)
