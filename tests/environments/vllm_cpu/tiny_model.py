"""Write a tiny checkpoint in the shape of Qwen3.6-MoE that real vLLM serves on a CPU. Run by install.py inside .live/vllm.

The shape is the real one in small: linear attention (GDN) and full attention layers, mixture of experts, a vision tower,
one MTP layer. The weights make it predictable: the output head is set so that every token has exactly one likely successor,
so a greedy answer is the same on every run, and the MTP head predicts that successor too. `--noise` disturbs the MTP head:
0 accepts every draft, 0.17 gives a mean acceptance length of about 3.85 at k = 3. `--drop-mtp` ships no mtp.* tensor while
the config still promises one, as some quantised checkpoints do.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForConditionalGeneration

SEED = 0
VOCABULARY = 1024
HIDDEN = 64
CONTEXT = 32768
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
RESERVED = 16  # token ids below this are special or kept free: an ordinary token never leads to one
# Line breaks stand inside the printed strings, because the template engine drops those that follow a block tag.
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n<think>\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '\\n</think>\\n\\n' }}{% endif %}"
    "{% endif %}"
)


def token(name: str) -> int:
    return SPECIAL.index(name)


def model_config() -> dict[str, Any]:
    text = {
        "model_type": "qwen3_5_moe_text",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "max_position_embeddings": CONTEXT,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "full_attention_interval": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 64,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 64,
        "mamba_ssm_dtype": "float32",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "bos_token_id": token("<|endoftext|>"),
        "eos_token_id": token("<|im_end|>"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
    }
    vision = {
        "model_type": "qwen3_5_moe",
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "in_channels": 3,
        "hidden_act": "gelu_pytorch_tanh",
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [],
    }
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": vision,
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_tokenizer(out: Path) -> None:
    """One token for each byte, the rest of the vocabulary filled with words nobody types; no merges."""
    names = [*SPECIAL, *(f"<|reserved_{i}|>" for i in range(len(SPECIAL), RESERVED))]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    names += [f"\u0120w{i:x}" for i in range(len(names), VOCABULARY)]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(out / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }
    write_json(out / "tokenizer_config.json", tokenizer_config)
    stops = [token("<|im_end|>"), token("<|endoftext|>")]
    pad = token("<|endoftext|>")
    write_json(out / "generation_config.json", {"eos_token_id": stops, "pad_token_id": pad, "do_sample": False})


def write_processor(out: Path) -> None:
    processor = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "size": {"longest_edge": 65536, "shortest_edge": 4096},
    }
    write_json(out / "preprocessor_config.json", processor)


def predictable(weights: dict[str, torch.Tensor]) -> None:
    """Set embedding and output head so that each ordinary token has one likely successor."""
    embedding = torch.randn(VOCABULARY, HIDDEN)
    successor = RESERVED + torch.randperm(VOCABULARY - RESERVED)
    head = 0.005 * torch.randn(VOCABULARY, HIDDEN)
    head[successor] += 0.1 * embedding[RESERVED:]
    [name] = [key for key in weights if key.endswith("embed_tokens.weight")]
    weights[name] = embedding.to(torch.bfloat16)
    weights["lm_head.weight"] = head.to(torch.bfloat16)


def add_mtp_head(weights: dict[str, torch.Tensor], noise: float) -> None:
    """The MTP layer copies the last layer; its projection passes the token's embedding through, disturbed by `noise`."""
    last = ".layers.3."
    for key in [key for key in weights if last in key]:
        weights["mtp.layers.0." + key.split(last)[1]] = weights[key].clone()
    projection = torch.zeros(HIDDEN, 2 * HIDDEN)
    projection[:, :HIDDEN] = torch.eye(HIDDEN) + noise * torch.randn(HIDDEN, HIDDEN)
    weights["mtp.fc.weight"] = projection.to(torch.bfloat16)
    for norm in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        weights[f"mtp.{norm}.weight"] = torch.zeros(HIDDEN, dtype=torch.bfloat16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--noise", type=float, default=0.0, help="how far the MTP head is from the target (0: never wrong)")
    parser.add_argument("--drop-mtp", action="store_true", help="promise an MTP head, ship none")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    write_json(out / "config.json", model_config())
    model = Qwen3_5MoeForConditionalGeneration(AutoConfig.from_pretrained(out)).to(torch.bfloat16)
    model.save_pretrained(out)
    weights = load_file(out / "model.safetensors")
    predictable(weights)
    if not arguments.drop_mtp:
        add_mtp_head(weights, arguments.noise)
    tensors = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", model_config())  # save_pretrained wrote its own
    write_tokenizer(out)
    write_processor(out)


if __name__ == "__main__":
    main()
