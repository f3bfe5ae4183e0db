"""Baselines that steer by one auxiliary: ULD subtracts an assistant's logits, WHP what a reinforced model likes better."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from icml26.errors import InputError
from torch import nn
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.modeling_outputs import CausalLMOutputWithPast

from icml26_plugin_divergence_decoding.calling import cache_of, call, refuse_nan
from icml26_plugin_divergence_decoding.finetune import next_token_loss
from icml26_plugin_divergence_decoding.prompts import check_ids, check_left_padded
from icml26_plugin_divergence_decoding.vocabulary import vocabulary_size


@dataclass(frozen=True)
class Offset:
    """``rule`` "uld": l_P - strength * l_a; "whp": l_P - strength * max(0, l_r - l_P).

    The latter compares log-probabilities, so that a constant of a position, which beam search adds, changes nothing.
    ``keep_below``: tokens to which the target gives less than this probability keep its logit (ULD's filter; 0: none).
    """

    rule: Literal["uld", "whp"]
    strength: float
    keep_below: float = 0.0

    def __call__(self, target: torch.Tensor, auxiliary: torch.Tensor) -> torch.Tensor:
        """Adjusted logits (..., V) float32 of logits (..., V)."""
        target, auxiliary = target.float(), auxiliary.float()
        if self.rule == "uld":
            adjusted = target - self.strength * auxiliary
        else:
            gain = torch.log_softmax(auxiliary, -1) - torch.log_softmax(target, -1)
            adjusted = target - self.strength * gain.clamp_min_(0.0)
        if self.keep_below > 0:
            adjusted = torch.where(torch.softmax(target, -1) < self.keep_below, target, adjusted)
        return adjusted


class OffsetModel(nn.Module):
    """A target steered by one ``auxiliary`` of the same vocabulary, with the call signature of a causal language model."""

    def __init__(self, target: Any, auxiliary: Any, offset: Offset) -> None:
        super().__init__()
        self.target, self.auxiliary, self.offset = target, auxiliary, offset
        self.eval()

    @property
    def config(self) -> Any:
        """The target's."""
        return self.target.config

    @property
    def generation_config(self) -> Any:
        """The target's."""
        return self.target.generation_config

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Adjusted logits (B, T, V) at every position; ``labels`` (B, T), -100 where not counted, give the loss.

        Raises InputError for ids and masks that do not fit, embeddings, and pasts, which this model does not keep.
        """
        if any(others.get(name) is not None for name in ("inputs_embeds", "past_key_values", "cache")):
            raise InputError("This model reads whole sequences of ids: neither embeddings nor pasts.")
        check_ids(input_ids, attention_mask, vocabulary_size(self.target))
        both = [
            call(model, input_ids, attention_mask, position_ids=position_ids).logits
            for model in (self.target, self.auxiliary)
        ]
        logits = self.offset(*both)
        return CausalLMOutputWithPast(loss=None if labels is None else next_token_loss(logits, labels), logits=logits)

    @torch.no_grad()
    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **options: Any) -> Any:
        """What the target's ``generate`` gives with the auxiliary beside it; batches are left-padded."""
        check_ids(
            None if options.get("inputs_embeds") is not None else input_ids,
            attention_mask,
            vocabulary_size(self.target),
        )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        check_left_padded(mask)
        others = options.pop("logits_processor", None) or []
        processors = LogitsProcessorList([OffsetProcessor(self.auxiliary, self.offset, mask), *others])
        return self.target.generate(input_ids=input_ids, attention_mask=mask, logits_processor=processors, **options)

    def parts(self) -> dict[str, Any]:
        """The models, as stored."""
        return {"target": self.target, "auxiliary": self.auxiliary}

    def settings(self) -> dict[str, Any]:
        """All else, as JSON values."""
        return {"offset": asdict(self.offset)}

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: dict[str, Any]) -> OffsetModel:
        """The model of :meth:`parts` and :meth:`settings`."""
        return cls(parts["target"], parts["auxiliary"], Offset(**settings["offset"]))


class OffsetProcessor(LogitsProcessor):
    """Adjusts scores in one ``generate``; the auxiliary's cache is kept while rows only grow by new tokens."""

    def __init__(self, auxiliary: Any, offset: Offset, mask: torch.Tensor) -> None:
        self.auxiliary, self.offset, self.mask = auxiliary, offset, mask
        self._past: torch.Tensor | None = None
        self._cache: Any = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (R, V) from scores (R, V) of the token after ``input_ids`` (R, T)."""
        rows, length = input_ids.shape
        prompt = self.mask.repeat_interleave(rows // len(self.mask), 0)
        mask = torch.cat([prompt, prompt.new_ones(rows, length - prompt.shape[1])], 1)
        past = self._past
        longer = self._cache is not None and past is not None and length > past.shape[1]
        grown = longer and past is not None and torch.equal(input_ids[:, : past.shape[1]], past)
        fed = input_ids[:, past.shape[1] :] if grown and past is not None else input_ids
        output = call(self.auxiliary, fed, mask, cache=self._cache if grown else None, use_cache=True, keep=1)
        self._past, self._cache = input_ids, cache_of(output)
        refuse_nan(output.logits[:, -1], "auxiliary", finite=True)
        return torch.log_softmax(self.offset(scores, output.logits[:, -1]), -1)
