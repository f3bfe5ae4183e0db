"""The base of this plugin's methods: one example in, one attribution out; storing, resuming and drawing are common to all."""

from __future__ import annotations

import hashlib
import json
import zlib
from abc import abstractmethod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from icml26 import InputError, Method, MethodConfig, Problem, RunContext
from pydantic import Field

from icml26_plugin_flashtrace.files import make_folder, write_whole
from icml26_plugin_flashtrace.stop_tokens import STOP_TOKENS
from icml26_plugin_flashtrace.task import Attribution, Example, Inputs, Output, Truth

PICTURES = 4
_ARRAYS = ("scores", "hops", "generation_scores", "residual_ratios", "kept")


class TokenMethodConfig(MethodConfig):
    """What every explainer of tokens understands."""

    stop_tokens: tuple[str, ...] = Field(
        STOP_TOKENS,
        description="Token texts (stripped) that never count: neither as target nor as source; [] keeps all.",
    )
    resume: str | None = Field(
        None, description="Folder that keeps each finished example, so that a run that was stopped goes on from there."
    )


def attribution_of(
    scores: np.ndarray, example: Example, kept: np.ndarray, seconds: dict[str, float] | None = None, peak: int = 0
) -> Attribution:
    """The attribution of a method without hops, from its ``scores`` (N,) or (P,) of the example's tokens.

    Scores of stop tokens become 0. The one residual ratio is the share of the (non-negative) mass on generated tokens, NaN-free.
    """
    full = np.zeros(example.n_tokens, dtype=np.float32)
    full[: len(scores)] = scores
    full[~kept] = 0.0
    p = example.n_prompt
    mass = np.clip(full, 0.0, None)
    total = float(mass.sum())
    ratio = float(mass[p:].sum()) / total if total > 0 else 0.0
    return Attribution(
        scores=full[:p].copy(),
        hops=full[None, :p].copy(),
        generation_scores=full[p:].copy(),
        residual_ratios=np.array([ratio], dtype=np.float32),
        kept=kept,
        seconds=dict(seconds or {}),
        peak_memory_bytes=peak,
    )


class TokenMethod(Method[Inputs, Output]):
    """An explainer: subclasses implement ``explain``."""

    class Config(TokenMethodConfig):
        """No further options."""

    @abstractmethod
    def explain(self, example: Example, inputs: Inputs, ctx: RunContext) -> Attribution:
        """Explain one example."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Explain every example, taking finished ones from the ``resume`` folder."""
        store = None if self.config.resume is None else ResumeFolder(Path(self.config.resume), self, inputs, ctx.seed)
        done = []
        for example in ctx.progress(inputs.examples, "examples"):
            found = None if store is None else store.get(example)
            if found is None:
                found = self.explain(example, inputs, ctx)
                if store is not None:
                    store.put(example, found)
            done.append(found)
        return Output(tuple(done))

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Heat maps (HTML and PNG) of the first examples, and every score as JSON lines."""
        from icml26_plugin_flashtrace.heatmap import draw_png, html_page

        examples, gold = problem.inputs.examples, problem.truth.gold
        with ctx.artifact("attributions.jsonl").open("w", encoding="utf-8", errors="replace") as file:
            for example, attribution in zip(examples, output.attributions, strict=True):
                file.write(json.dumps(as_json(example, attribution), ensure_ascii=False) + "\n")
        for k, (example, attribution) in enumerate(zip(examples[:PICTURES], output.attributions, strict=False)):
            known = gold[k] if k < len(gold) else None
            page = html_page(
                example.tokens,
                example.n_prompt,
                attribution,
                title=example.id,
                gold=known,
                output_span=example.output_span,
            )
            ctx.artifact(f"heatmap-{k + 1}.html").write_text(page, encoding="utf-8")
            if k == 0:
                draw_png(ctx.artifact("heatmap-1.png"), example.tokens, example.n_prompt, attribution, gold=known)

    def save(self, output: Output, folder: Path) -> None:
        """One ``.npz`` an example."""
        for k, attribution in enumerate(output.attributions):
            save_attribution(folder / f"{k:05d}.npz", attribution)

    @classmethod
    def load(cls, folder: Path) -> Output:
        """What ``save`` wrote."""
        paths = sorted(folder.glob("*.npz"))
        if not paths or [path.name for path in paths] != [f"{k:05d}.npz" for k in range(len(paths))]:
            raise InputError(
                f"{folder} is not a stored output: 00000.npz and so on, one an example, are expected there"
            )
        return Output(tuple(load_attribution(path) for path in paths))


def as_json(example: Example, attribution: Attribution) -> dict[str, Any]:
    """An attribution as JSON values, with the tokens it speaks of."""
    return {
        "id": example.id,
        "tokens": list(example.tokens),
        "n_prompt": example.n_prompt,
        "output_span": list(example.output_span),
        "reasoning_span": None if example.reasoning_span is None else list(example.reasoning_span),
        "scores": [round(float(x), 7) for x in attribution.scores],
        "hops": [[round(float(x), 7) for x in hop] for hop in attribution.hops],
        "generation_scores": [round(float(x), 7) for x in attribution.generation_scores],
        "residual_ratios": [round(float(x), 7) for x in attribution.residual_ratios],
        "seconds": attribution.seconds,
        "peak_memory_bytes": attribution.peak_memory_bytes,
    }


def save_attribution(path: Path, attribution: Attribution) -> None:
    """Write one attribution as ``.npz``."""
    names = sorted(attribution.seconds)
    with path.open("wb") as file:
        np.savez(
            file,
            **{name: getattr(attribution, name) for name in _ARRAYS},
            second_names=np.array(names, dtype="U32"),
            second_values=np.array([attribution.seconds[name] for name in names], dtype=np.float64),
            peak_memory_bytes=np.array(attribution.peak_memory_bytes, dtype=np.int64),
        )


def load_attribution(path: Path) -> Attribution:
    """Read what ``save_attribution`` wrote; raises InputError when the file is something else, cut off, or misfits."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:  # numpy leaves a damaged file open
            arrays = {name: data[name] for name in _ARRAYS}
            seconds = dict(zip(data["second_names"].tolist(), data["second_values"].tolist(), strict=True))
            found = Attribution(**arrays, seconds=seconds, peak_memory_bytes=int(data["peak_memory_bytes"]))
        _check_stored(found)
    # A cut-off archive is BadZipFile or EOFError, an array without archive a TypeError, a damaged stream a zlib.error.
    except (
        OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise InputError(f"{path} is not a stored attribution ({error}); remove it to compute it again") from error
    return found


def _check_stored(found: Attribution) -> None:
    """Raise ValueError unless the arrays are those of one attribution."""
    p, g = found.scores.size, found.generation_scores.size
    shapes = {"scores": (p,), "hops": (found.residual_ratios.size, p), "generation_scores": (g,), "kept": (p + g,)}
    for name, shape in shapes.items():
        if getattr(found, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(found, name).shape}, not {shape}")
    if found.kept.dtype != np.bool_:
        raise ValueError(f"kept is {found.kept.dtype}")
    for name in _ARRAYS[:-1]:
        array = getattr(found, name)
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is no finite float32")


class ResumeFolder:
    """Finished attributions of one method with one config on the examples of one model and seed."""

    def __init__(self, folder: Path, method: TokenMethod, inputs: Inputs, seed: int) -> None:
        self.folder = folder
        config = method.config.model_dump(mode="json", exclude={"resume"})
        what = json.dumps([type(method).__name__, config, seed, _model_mark(inputs.model)], sort_keys=True)
        self.key = hashlib.sha256(what.encode()).digest()
        make_folder(folder, "resume")

    def get(self, example: Example) -> Attribution | None:
        """The stored attribution of an example, None when there is none yet."""
        path = self._path(example)
        if not path.is_file():
            return None
        found = load_attribution(path)
        if found.scores.size != example.n_prompt or found.kept.size != example.n_tokens:
            raise InputError(f"{path} is of another example; remove it to compute it again")
        return found

    def put(self, example: Example, attribution: Attribution) -> None:
        """Store it whole or not at all."""
        write_whole(self._path(example), lambda half: save_attribution(half, attribution))

    def _path(self, example: Example) -> Path:
        sha = hashlib.sha256(self.key)
        sha.update(repr((example.id, example.tokens, example.n_prompt)).encode("utf-8", "surrogatepass"))
        sha.update(repr((example.output_span, example.reasoning_span)).encode())
        if example.input_ids is not None:
            sha.update(example.input_ids.tobytes())
        if example.captures is not None:
            for layer in example.captures.layers:
                sha.update(np.ascontiguousarray(layer.x_mid).tobytes())
        return self.folder / f"{sha.hexdigest()[:32]}.npz"


def _model_mark(model: Any) -> str:
    """A hash of the parameters' ends: the same weights in another process, other weights under the same name."""
    if model is None:
        return ""
    sha = hashlib.sha256(type(model).__name__.encode())
    for name, parameter in model.named_parameters():
        flat = parameter.detach().reshape(-1)
        ends = [float(flat[k]) for k in (0, flat.numel() // 2, -1)] if flat.numel() else []
        sha.update(repr((name, tuple(parameter.shape), str(parameter.dtype), ends)).encode())
    return sha.hexdigest()
