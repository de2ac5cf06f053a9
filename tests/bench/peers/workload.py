"""The fixed training step that everybody is measured on: SmolLM2-135M's dimensions, a DFlash drafter of 3 layers, one row, all tokens supervised.

tests/bench/train_bench.cpp states the same sizes for draftsmith. Weights and features are random: a step's time does not depend on their values.
"""

import dataclasses
import os

THREADS = 2
os.environ["OMP_NUM_THREADS"] = str(THREADS)  # read when torch is imported
# A bench, not a download: nothing here may wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402

torch.set_num_threads(THREADS)

VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 49152, 576, 9, 3, 64, 1536
TARGET_LAYERS, DRAFT_LAYERS, TAPS, MASK_TOKEN = 30, 3, [1, 8, 14, 20, 27], 16
EXPECTED_PARAMETERS, EXPECTED_TENSORS = 12_280_704, 36


@dataclasses.dataclass(frozen=True)
class Point:
    """Tokens of the row, anchors, block (the anchor and the slots behind it)."""

    tokens: int
    anchors: int
    block: int

    def __str__(self):
        return f"{self.tokens}/{self.anchors}/{self.block}"


DEFAULT_POINTS = ["512/64/8", "512/64/16", "2048/64/16"]


def parse_point(text):
    sizes = text.split("/")
    if len(sizes) != 3 or not all(size.isdigit() for size in sizes):
        raise SystemExit(f"error: {text} is no tokens/anchors/block, for example 512/64/16")
    return Point(*map(int, sizes))


def drafter_config(**more):
    """The drafter's layers as a Qwen3 config of Transformers, which both peers build on."""
    from transformers import Qwen3Config

    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=DRAFT_LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, rms_norm_eps=1e-5, max_position_embeddings=8192, attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, **more)
    config._attn_implementation = "sdpa"  # flex_attention, the default of both, has no backward pass on a CPU in torch 2.11
    return config


def target_table():
    """Input embedding and output head of the target (tied), [V, H]."""
    return torch.randn(VOCABULARY, HIDDEN) * 0.02


def features(point):
    """One captured row: tokens [1, S], states of the taps [1, S, 5 H], the target's last state [1, S, H]."""
    tokens = torch.randint(17, VOCABULARY, (1, point.tokens))
    return tokens, torch.randn(1, point.tokens, len(TAPS) * HIDDEN), torch.randn(1, point.tokens, HIDDEN)


def check_size(parameters):
    """Refuses a drafter that is not the workload's: then the times would compare different work. Returns what the report states."""
    parameters = [p for p in parameters if p.requires_grad]
    count = sum(p.numel() for p in parameters)
    if (count, len(parameters)) != (EXPECTED_PARAMETERS, EXPECTED_TENSORS):
        raise SystemExit(f"error: {count} trainable parameters in {len(parameters)} tensors, the workload has {EXPECTED_PARAMETERS} in {EXPECTED_TENSORS}")
    if any(p.dtype != torch.float32 for p in parameters):
        raise SystemExit("error: the workload is fp32")
    return {"parameters": count, "tensors": len(parameters)}
