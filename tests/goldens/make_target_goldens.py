"""Reference logits and hidden states of targets, computed by Transformers in fp32 on a CPU.

Writes, beside this file, targets/<name>/ (a tiny random HF folder and reference.safetensors), and with --smollm2 FOLDER targets/smollm2.safetensors.
Needs torch, transformers and safetensors:  python make_target_goldens.py [--smollm2 FOLDER]
"""
import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen3Config

HERE = Path(__file__).resolve().parent
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)

# head_dim differs from hidden_size / heads (8) everywhere but in llama-linear-f32; every one groups 4 heads over 2 or 1 key heads.
COMMON = dict(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
TINY = {
    "llama-tied-f32": (LlamaConfig(**COMMON, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=10000.0), "float32", None),
    "llama-untied-llama3-f16-sharded": (
        LlamaConfig(**COMMON, num_key_value_heads=1, head_dim=24, tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3), "float16", "20KB"),
    "llama-linear-f32": (LlamaConfig(**COMMON, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False, rope_parameters=LINEAR), "float32", None),
    "qwen3-tied-bf16-sharded": (Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1000000.0), "bfloat16", "20KB"),
    "qwen3-untied-yarn-bf16": (Qwen3Config(**COMMON, num_key_value_heads=1, head_dim=20, tie_word_embeddings=False, attention_bias=True, rope_parameters=YARN), "bfloat16", None),
}


def run(model, tokens):
    """fp32 logits [B, S, V], residual stream after every layer [B, S, L, H] and the final-normed state [B, S, H]."""
    taps = []
    hooks = [layer.register_forward_hook(lambda _, __, out: taps.append(out[0] if isinstance(out, tuple) else out)) for layer in model.model.layers]
    with torch.no_grad():
        out = model(tokens, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    return out.logits, torch.stack(taps, dim=2), out.hidden_states[-1]


def tiny(name, config, dtype, shard):
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / "targets" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            elif parameter.dim() == 1:
                parameter.normal_(0, 0.3)
            else:  # larger than the usual 0.02: attention and logits must be far from flat
                parameter.normal_(0, 1.5 / parameter.shape[1] ** 0.5)
    model.to(getattr(torch, dtype)).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.randint(3, config.vocab_size, (2, 48))
    logits, taps, hidden = run(model, tokens)
    save_file({"tokens": tokens, "logits": logits, "taps": taps.contiguous(), "hidden": hidden.contiguous()}, folder / "reference.safetensors")
    print(name, "largest logit", float(logits.abs().max()), "largest tap", float(taps.abs().max()))


PROMPTS = ["Explain in three sentences why the sky is blue.", "Write a Python function that returns the n-th Fibonacci number.", "A train covers 180 km in 2.5 hours. What is its mean speed?",
           "Turn this into JSON with the keys name and city: Greta moved to Lyon.", "List five uses of a paper clip.", "Rewrite politely: send me the file now."]


def smollm2(folder):
    """512 tokens of chats with the model's own greedy answers; every 192nd logit at all positions, all logits at the last, states at a few."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = []
    for prompt in PROMPTS:
        chat = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
        chat = tokenizer(chat, add_special_tokens=False, return_tensors="pt")["input_ids"]
        ids += model.generate(chat, max_new_tokens=80, do_sample=False)[0].tolist()
    tokens = torch.tensor([ids[:512]])
    assert tokens.shape == (1, 512)
    logits, taps, hidden = run(model, tokens)
    positions, layers = torch.tensor([0, 1, 63, 255, 511]), torch.tensor([0, 1, 14, 28, 29])
    top = logits[0].topk(2).values
    save_file({
        "tokens": tokens, "argmax": logits[0].argmax(-1), "gap": (top[:, 0] - top[:, 1]).contiguous(), "logits_every_192": logits[0, :, ::192].contiguous(),
        "last_logits": logits[0, -1].contiguous(), "positions": positions, "layers": layers,
        "taps": taps[0, positions][:, layers].contiguous(), "hidden": hidden[0, positions].contiguous(),
    }, HERE / "targets" / "smollm2.safetensors")
    print("smollm2: smallest gap between the two best logits", float((top[:, 0] - top[:, 1]).min()), "largest logit", float(logits.abs().max()), "largest tap", float(taps.abs().max()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--smollm2", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, (config, dtype, shard) in TINY.items():
        tiny(name, config, dtype, shard)
    if options.smollm2:
        smollm2(options.smollm2)
