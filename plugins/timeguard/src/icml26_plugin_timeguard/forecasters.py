"""Forecasters (B, L_in, C) -> (B, L_out, C) on normalised values, made by factories ``build(seq_len, pred_len, channels)``.

The defence never looks inside one; it builds two, the second with swapped lengths as the backcaster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

Build = Callable[[int, int, int], nn.Module]


class MLPForecaster(nn.Module):
    """Residual forecaster: last value + shared linear skip + an MLP over all channels' flattened history.

    The MLP sees deviations from the last value times ``input_scale``: small triggers must be visible for it to learn
    from them, which is what makes this the network on which the attack bites.
    """

    def __init__(
        self, seq_len: int, pred_len: int, channels: int, *, hidden: int = 256, depth: int = 2, input_scale: float = 3.0
    ) -> None:
        super().__init__()
        self.pred_len, self.channels, self.input_scale = pred_len, channels, input_scale
        self.skip = nn.Linear(seq_len, pred_len)
        layers: list[nn.Module] = []
        width = seq_len * channels
        for _ in range(depth):
            layers += [nn.Linear(width, hidden), nn.GELU()]
            width = hidden
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width, pred_len * channels)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        last = history[:, -1:, :]
        deviation = history - last
        linear = self.skip(deviation.transpose(1, 2)).transpose(1, 2)
        joint = self.head(self.features(deviation.flatten(1) * self.input_scale))
        return last + linear + joint.view(-1, self.pred_len, self.channels)


class DLinear(nn.Module):
    """Trend and remainder, each forecast by a linear map shared by all channels (Zeng et al., 2023)."""

    def __init__(self, seq_len: int, pred_len: int, channels: int, *, kernel: int = 5) -> None:
        super().__init__()
        # A window longer than the history would be padding only; an even one is not centred.
        kernel = min(kernel, seq_len)
        self.kernel = kernel if kernel % 2 else max(1, kernel - 1)
        self.trend = nn.Linear(seq_len, pred_len)
        self.remainder = nn.Linear(seq_len, pred_len)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        series = history.transpose(1, 2)
        pad = self.kernel // 2
        padded = nn.functional.pad(series, (pad, pad), mode="replicate")
        trend = nn.functional.avg_pool1d(padded, self.kernel, stride=1)
        return (self.trend(trend) + self.remainder(series - trend)).transpose(1, 2)


class InvertedTransformer(nn.Module):
    """A small inverted transformer: each channel's history is one token, attention runs over channels (Liu et al., 2024)."""

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        channels: int,
        *,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(seq_len, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, 2 * d_model, dropout=dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, n_layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.head = nn.Linear(d_model, pred_len)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        last = history[:, -1:, :]
        spread = torch.sqrt((history - last).square().mean(dim=1, keepdim=True) + 1e-5)
        tokens = self.embed(((history - last) / spread).transpose(1, 2))
        return last + self.head(self.encoder(tokens)).transpose(1, 2) * spread


FORECASTERS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLPForecaster,
    "dlinear": DLinear,
    "itransformer": InvertedTransformer,
}


def factory(name: str, options: dict[str, Any] | None = None) -> Build:
    """The ``build(seq_len, pred_len, channels)`` of a built-in forecaster with its keyword options bound."""
    return partial(FORECASTERS[name], **(options or {}))


def build_seeded(build: Build, seq_len: int, pred_len: int, channels: int, seed: int) -> nn.Module:
    """Build a module whose initial weights depend on ``seed`` only; the caller's global RNG is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(seq_len, pred_len, channels)
