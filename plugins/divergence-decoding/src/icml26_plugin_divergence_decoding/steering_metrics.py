"""What steering costs."""

from __future__ import annotations

from icml26_plugin_divergence_decoding.task import Output, Truth


def auxiliary_share(output: Output, truth: Truth) -> float:
    """Parameters of the larger auxiliary over those of the target; 0 for n-gram models, which have counts only."""
    return float(output.info["auxiliary_parameters"]) / float(output.info["target_parameters"])
