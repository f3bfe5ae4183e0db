"""Model folders whose weight file was cut off are refused, not failed."""

import pytest
import torch
from icml26 import InputError
from icml26_plugin_flashtrace.models import _load_weights
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.mark.parametrize("length", [0, 4, 2000])
def test_a_truncated_weight_file_is_refused(tmp_path, length):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes)).to(torch.float32).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(InputError, match="cannot be loaded"):
        _load_weights(str(tmp_path), {"local_files_only": True}, "float32", "eager")
