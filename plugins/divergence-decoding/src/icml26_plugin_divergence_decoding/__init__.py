"""Divergence Decoding: make a language model forget at inference time, by two small auxiliary models."""

from __future__ import annotations

__version__ = "0.1.0"
