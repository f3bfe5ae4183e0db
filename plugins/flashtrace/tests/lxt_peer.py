"""Print AttnLRP relevance by the package lxt for one tiny random Llama: run in a process of its own, since lxt patches modules.

lxt 2.1 was written for transformers 4: of its families only Llama's is loaded here, and its table of attention functions gets the
method that transformers 5 asks for. Its rules are untouched.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch
from random_models import random_model
from transformers.models.llama import modeling_llama


class Table(dict[str, Any]):
    def get_interface(self, name: str, default: Any) -> Any:
        return self.get(name, default)


def main() -> None:
    for name, inner in (("bert", "modeling_bert"), ("gpt2", "modeling_gpt2"), ("gemma3", "modeling_gemma3")):
        _without(name, inner)
    _without("vit_torch", "vision_transformer")
    from lxt.efficient import monkey_patch

    monkey_patch(modeling_llama)
    modeling_llama.ALL_ATTENTION_FUNCTIONS = Table(modeling_llama.ALL_ATTENTION_FUNCTIONS)
    model = random_model("llama")
    ids = np.array(json.loads(sys.argv[1]))
    n_prompt, place = int(sys.argv[2]), int(sys.argv[3])
    embedding = model.get_input_embeddings()(torch.from_numpy(ids)[None]).detach().requires_grad_()
    logits = model(inputs_embeds=embedding, use_cache=False).logits[0]
    logits[n_prompt + place - 1, ids[n_prompt + place]].backward()
    print(json.dumps((embedding * embedding.grad).sum(-1)[0].tolist()))


def _without(name: str, inner: str) -> None:
    module: Any = ModuleType(f"lxt.efficient.models.{name}")
    module.attnLRP, module.cp_LRP = {}, {}
    setattr(module, inner, ModuleType(inner))
    sys.modules[module.__name__] = module


if __name__ == "__main__":
    main()
