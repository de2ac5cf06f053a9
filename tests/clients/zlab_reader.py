#!/usr/bin/env python3
"""Decodes with a z-lab folder in plain torch on Transformers' target, and compares with evaluation.json.

    zlab_reader.py --target HF --drafter FOLDER --evaluation evaluation.json

An independent reading of the format, written from the description of the reference loop (shared/research/dflash.md 1.2-1.7 and 3.1): prefill, draft a block of
masked slots against the fused features of all committed tokens, verify greedily, crop. No cache for the drafter: its context is projected anew each round. Exit 1
unless every answer has the tokens of evaluation.json and every round accepted as many drafted tokens.
"""

import argparse
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, positions, theta):
    """x [heads, n, head_dim], halves rotated against each other."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float32) * 2 / x.shape[-1])
    angle = positions.float()[:, None] * frequency
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


class Drafter:
    def __init__(self, folder, embedding, head):
        with open(f"{folder}/config.json") as file:
            self.config = json.load(file)
        self.weights = {name: tensor.float() for name, tensor in load_file(f"{folder}/model.safetensors").items()}
        assert len(self.weights) == 3 + 11 * self.config["num_hidden_layers"], sorted(self.weights)
        self.embedding, self.head = embedding, head
        self.block = self.config["block_size"]
        self.taps = self.config["dflash_config"]["target_layer_ids"]
        self.mask = self.config["dflash_config"]["mask_token_id"]

    def heads(self, x, count):
        return x.view(x.shape[0], count, self.config["head_dim"]).transpose(0, 1)

    def layer(self, i, x, context, eps):
        w = {name.removeprefix(f"layers.{i}."): tensor for name, tensor in self.weights.items() if name.startswith(f"layers.{i}.")}
        count, kv_count, theta = self.config["num_attention_heads"], self.config["num_key_value_heads"], self.config["rope_theta"]
        past = context.shape[0]
        positions = torch.arange(past + x.shape[0])
        normed = rms_norm(x, w["input_layernorm.weight"], eps)
        both = torch.cat([context, normed])
        q = self.heads(normed @ w["self_attn.q_proj.weight"].T, count)
        k = self.heads(both @ w["self_attn.k_proj.weight"].T, kv_count)
        v = self.heads(both @ w["self_attn.v_proj.weight"].T, kv_count)
        q = rotate(rms_norm(q, w["self_attn.q_norm.weight"], eps), positions[past:], theta)
        k = rotate(rms_norm(k, w["self_attn.k_norm.weight"], eps), positions, theta)
        k, v = (t.repeat_interleave(count // kv_count, 0) for t in (k, v))
        attended = (q @ k.transpose(1, 2) / self.config["head_dim"] ** 0.5).softmax(-1) @ v
        x = x + attended.transpose(0, 1).reshape(x.shape[0], -1) @ w["self_attn.o_proj.weight"].T
        normed = rms_norm(x, w["post_attention_layernorm.weight"], eps)
        gated = F.silu(normed @ w["mlp.gate_proj.weight"].T) * (normed @ w["mlp.up_proj.weight"].T)
        return x + gated @ w["mlp.down_proj.weight"].T

    def propose(self, features, anchor, tokens):
        """features [n, T * H] of all committed tokens before the anchor."""
        eps = self.config["rms_norm_eps"]
        context = rms_norm(features @ self.weights["fc.weight"].T, self.weights["hidden_norm.weight"], eps)
        x = self.embedding[torch.tensor([anchor] + [self.mask] * (self.block - 1))]
        for i in range(self.config["num_hidden_layers"]):
            x = self.layer(i, x, context, eps)
        logits = rms_norm(x, self.weights["norm.weight"], eps) @ self.head.T
        return logits[1:1 + tokens].argmax(-1).tolist()


def decode(model, drafter, prompt, limit, stop):
    """Greedy answer and the number of accepted tokens of each round."""
    def run(tokens):
        out = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
        features = torch.cat([out.hidden_states[tap + 1][0] for tap in drafter.taps], -1)
        return out.logits[0], features

    logits, features = run(prompt)
    answer, accepted = [logits[-1].argmax().item()], []
    while len(answer) < limit and answer[-1] not in stop:
        wanted = min(drafter.block - 1, limit - len(answer) - 1)
        past = len(prompt) + len(answer) - 1
        draft = drafter.propose(features[:past], answer[-1], wanted) if wanted > 0 else []
        logits, features = run(prompt + answer + draft)
        choice = logits[past:].argmax(-1).tolist()
        count = 0
        while count < len(draft) and draft[count] == choice[count]:
            count += 1
        took = 0
        for token in choice[:count + 1]:
            answer.append(token)
            took += 1
            if token in stop:
                break
        accepted.append(min(count, took))
    return answer, accepted


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--target", "--drafter", "--evaluation"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with open(arguments.evaluation) as file:
        evaluation = json.load(file)
    model = AutoModelForCausalLM.from_pretrained(arguments.target, dtype=torch.float32).eval()
    eos = model.generation_config.eos_token_id or model.config.eos_token_id
    stop = set(eos if isinstance(eos, list) else [eos])
    drafter = Drafter(arguments.drafter, model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    wrong = 0
    for row in evaluation["rows"]:
        answer, accepted = decode(model, drafter, row["prompt_tokens"], evaluation["settings"]["max_new_tokens"], stop)
        same = answer == row["output_tokens"] and accepted == row["accepted"]
        wrong += not same
        print(f"{row['id']}: {'same' if same else 'DIFFERENT'} tokens, accepted {accepted} (draftsmith {row['accepted']})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
