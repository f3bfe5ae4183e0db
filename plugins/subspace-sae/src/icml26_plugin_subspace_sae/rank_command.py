"""The command ``python -m icml26_plugin_subspace_sae.rank``: a table of ranks of files or of a model's hook points."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from icml26.errors import EnvironmentError_, Icml26Error, InputError

from icml26_plugin_subspace_sae.activation_files import read_activations
from icml26_plugin_subspace_sae.heads import HeadAttribution, head_attribution
from icml26_plugin_subspace_sae.rank import (
    RankReport,
    Spectrum,
    StreamingCovariance,
    blocks_of,
    covariance_of,
    rank_report,
)

#: Shares of d at which the recovered loss is measured.
LOSS_SHARES = (0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

FIGURES = (".png", ".svg", ".pdf")


@dataclass
class Found:
    """What was measured of one set of activations; ``loss`` pairs of rank and recovered share."""

    report: RankReport
    spectrum: Spectrum
    heads: HeadAttribution | None = None
    loss: list[tuple[int, float]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """JSON values, the spectrum included."""
        content = self.report.as_json() | {"singular_values": self.spectrum.singular_values.tolist()}
        if self.heads is not None:
            content["heads"] = self.heads.as_json()
        if self.loss:
            content["loss_recovered"] = [{"rank": rank, "recovered": value} for rank, value in self.loss]
            content["share_for_90_percent_of_the_loss"] = share_for_loss(self.loss, self.spectrum.width)
        return content


def share_for_loss(points: Sequence[tuple[int, float]], width: int, wanted: float = 0.9) -> float:
    """Smallest share r/d at which ``wanted`` of the loss is recovered, linear between the points measured; 1 at r = d."""
    previous = (0.0, 0.0)
    for rank, value in [*sorted(points), (width, 1.0)]:
        if value >= wanted:
            gap = value - previous[1]
            part = (wanted - previous[1]) / gap if gap > 0 else 1.0
            return float((previous[0] + max(part, 0.0) * (rank - previous[0])) / width)
        previous = (float(rank), value)
    return 1.0


def ranks_of_files(paths: Sequence[Path], *, key: str | None, mask_key: str | None, drop_first: int) -> list[Found]:
    """Ranks of the activations in each file."""
    found = []
    for path in paths:
        rows = read_activations(path, key=key, mask_key=mask_key, drop_first=drop_first).rows
        spectrum = covariance_of(blocks_of(rows), str(path)).spectrum()
        found.append(Found(rank_report(spectrum, path.name), spectrum))
    return found


def ranks_of_model(
    model: Any,
    tokenizer: Any,
    documents: Sequence[str],
    hooks: Sequence[str],
    *,
    context: int = 256,
    tokens: int | None = None,
    batch_size: int = 8,
    heads: bool = False,
    loss_tokens: int = 0,
    loss_hooks: Sequence[str] = (),
) -> list[Found]:
    """Ranks at each hook point, in one pass over the text; d² numbers a hook, whatever the text's length.

    With ``heads`` the attention outputs among ``hooks`` are attributed to heads and W_O. With ``loss_tokens`` the loss recovered
    by the top directions of ``loss_hooks`` is measured on so many tokens at the end of the text, which the spectra do not see.
    """
    from icml26_plugin_subspace_sae.hooks import resolve_hook
    from icml26_plugin_subspace_sae.loss_probe import ModelLossProbe, loss_by_rank
    from icml26_plugin_subspace_sae.model_rows import Windows, capture_rows, check_fits, pack

    points = {name: resolve_hook(model, name) for name in hooks}
    unknown = [name for name in loss_hooks if name not in points]
    if unknown:
        raise InputError(f"the loss at {unknown[0]!r} needs its rank: name it with --hook, too.")
    inner = {name: name.replace(".attn_out", ".heads") for name in hooks if heads and _is_attention(name)}
    points |= {name: resolve_hook(model, name) for name in inner.values()}
    windows = pack(tokenizer, documents, context=context, max_tokens=None if tokens is None else tokens + loss_tokens)
    check_fits(model, windows)
    held = loss_tokens // context
    if held >= len(windows.ids):
        raise InputError(
            f"{len(windows.ids)} windows of {context} tokens leave none beside {held} for the loss: give more text."
        )
    cut = len(windows.ids) - held
    seen: dict[str, StreamingCovariance] = {}
    for batch in capture_rows(model, Windows(windows.ids[:cut], windows.kept[:cut]), points, batch_size=batch_size):
        for name, rows in batch.items():
            seen.setdefault(name, StreamingCovariance(rows.shape[1], name)).update(rows)
    found = []
    for name in hooks:
        spectrum = seen[name].spectrum()
        result = Found(rank_report(spectrum, name), spectrum)
        if name in inner:
            weight = _output_weight(points[name].module)
            result.heads = head_attribution(
                seen[inner[name]].scatter, weight, model.config.num_attention_heads, count=seen[name].count
            )
        if name in loss_hooks and held:
            probe = ModelLossProbe(
                lambda: model, Windows(windows.ids[cut:], windows.kept[cut:]), name, batch_size=batch_size
            )
            ranks = sorted({round(share * spectrum.width) for share in LOSS_SHARES})
            result.loss = loss_by_rank(probe, spectrum, ranks)
        found.append(result)
    return found


def _is_attention(name: str) -> bool:
    return re.fullmatch(r"layers\.\d+\.attn_out", name) is not None


def _output_weight(module: Any) -> np.ndarray:
    """Weight (d, H·d_h) of an output projection; GPT-2's Conv1D keeps it transposed."""
    weight: np.ndarray = module.weight.detach().float().cpu().numpy()
    return weight.T if type(module).__name__ == "Conv1D" else weight


def table(found: Iterable[Found]) -> str:
    """The measures as text, one line each, shares of d in brackets."""
    rows: list[tuple[str, ...]] = [
        ("activations", "rows", "d", "effective rank", "99 % of variance", "participation ratio")
    ]
    notes: list[str] = []
    for item in found:
        r = item.report
        measures = ((r.effective_rank, ".1f"), (r.directions_99, "d"), (r.participation_ratio, ".1f"))
        cells = [f"{value:{form}} ({value / r.width:.3f})" for value, form in measures]
        rows.append((r.name, str(r.rows), str(r.width), *cells))
        notes += [f"{r.name}: {warning}" for warning in r.warnings]
        notes += _notes(item)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *notes]) + "\n"


def _notes(item: Found) -> list[str]:
    notes, name = [], item.report.name
    if item.heads is not None:
        h = item.heads
        notes.append(
            f"{name}: effective rank / d of the heads {h.before / h.width_before:.3f}, of W_O "
            f"{h.projection / min(h.width_before, h.width_after):.3f}, after it {h.after / h.width_after:.3f}; overlap "
            f"{h.overlap:.3f}, squared cosine between heads {h.mean_squared_cosine:.3f} (chance {h.chance_squared_cosine:.3f})"
        )
    if item.loss:
        measured = ", ".join(f"{rank}: {value:.3f}" for rank, value in item.loss)
        share = share_for_loss(item.loss, item.spectrum.width)
        notes.append(f"{name}: loss recovered by the top directions {measured}; 0.9 at {share:.3f} d")
    return notes


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m icml26_plugin_subspace_sae.rank",
        description="Effective rank of activations: of files, or of the hook points of a transformers model on a text.",
    )
    options.add_argument("files", nargs="*", type=Path, help=".npy, .npz, .safetensors or .pt files")
    options.add_argument("--key", help="name of the array in an archive")
    options.add_argument("--mask-key", help="name of the mask [sequences, positions] in the archive")
    options.add_argument("--drop-first", type=int, default=0, help="positions to drop of each sequence of a 3-D file")
    options.add_argument(
        "--model", help="model folder, .gguf file or hub id (from the local cache); 'smollm2' for the wheel's"
    )
    options.add_argument("--gguf-file", help="GGUF file in the model's folder")
    options.add_argument("--allow-download", action="store_true", help="fetch a hub id that is not in the cache")
    options.add_argument("--text", type=Path, help="text or JSONL file; default: Python's help topics")
    options.add_argument("--text-field", default="text", help="key of the text in a JSONL line")
    options.add_argument(
        "--hook", action="append", default=[], help="hook point such as layers.12.attn_out; repeatable"
    )
    options.add_argument("--tokens", type=int, help="tokens to read at most")
    options.add_argument("--context", type=int, default=256, help="tokens in a window")
    options.add_argument("--batch-size", type=int, default=8, help="windows in a forward pass")
    options.add_argument("--device", default="cpu", help="device of the model")
    options.add_argument("--heads", action="store_true", help="attribute attention outputs to heads and W_O")
    options.add_argument("--loss-tokens", type=int, default=0, help="tokens to measure the recovered loss on")
    options.add_argument("--loss-hook", action="append", default=[], help="hook point whose recovered loss is measured")
    options.add_argument("--json", type=Path, help="file for all numbers, spectra included")
    options.add_argument("--figure", type=Path, help="file for the spectra, .png, .svg or .pdf")
    return options


def measure(options: argparse.Namespace) -> list[Found]:
    """What the options ask for; InputError when they ask for nothing or for both."""
    if bool(options.files) == bool(options.model):
        raise InputError("name files of activations, or --model with --hook: one of the two.")
    if options.files:
        return ranks_of_files(options.files, key=options.key, mask_key=options.mask_key, drop_first=options.drop_first)
    if not options.hook:
        raise InputError("--model needs at least one --hook, for instance --hook layers.12.attn_out.")
    from icml26_plugin_subspace_sae import models

    documents = models.help_texts() if options.text is None else models.read_documents(options.text, options.text_field)
    source = models.smollm2_file() if options.model == "smollm2" else options.model
    model, tokenizer = models.load_model(
        source, gguf_file=options.gguf_file, device=options.device, allow_download=options.allow_download
    )
    return ranks_of_model(
        model, tokenizer, documents, options.hook, context=options.context, tokens=options.tokens,
        batch_size=options.batch_size, heads=options.heads, loss_tokens=options.loss_tokens, loss_hooks=options.loss_hook,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; write JSON and figure where asked. Exit code 2 for unusable input, 4 for unwritable output."""
    options = parser().parse_args(arguments)
    try:
        _check_outputs(options)
        found = measure(options)
        sys.stdout.write(table(found))
        _write_outputs(options, found)
    except Icml26Error as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written before anything is measured: a model may take minutes."""
    for name, path in (("--json", options.json), ("--figure", options.figure)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            what = "is a folder" if path.is_dir() else f"cannot be written: there is no folder {path.parent}"
            raise InputError(f"{name} {path} {what}.")
    if options.figure is not None and options.figure.suffix.lower() not in FIGURES:
        raise InputError(f"--figure {options.figure}: the name must end in one of {', '.join(FIGURES)}.")


def _write_outputs(options: argparse.Namespace, found: list[Found]) -> None:
    try:
        if options.json is not None:
            _write(options.json, json.dumps([item.as_json() for item in found], indent=1) + "\n")
        if options.figure is not None:
            from icml26_plugin_subspace_sae.figures import spectrum_figure

            spectrum_figure([item.spectrum for item in found], [item.report.name for item in found], options.figure)
    except OSError as error:
        raise EnvironmentError_(f"The output cannot be written: {error}.") from None


def _write(path: Path, content: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)
