"""Reference values of the block drafters' training step, from the formulas of arXiv 2602.06036 (DFlash), 2606.02091 (DFlare) and 2605.18810 (D-PACE) in plain PyTorch.

Written independently of the C++: one dense mask over [context; all blocks], full logits, autograd for the gradients, fp64 (RoPE tables in fp32, as the model defines
them). Run:  python3 tests/goldens/make_block_drafter_goldens.py   -> tests/goldens/{dflash,dflare}/*.safetensors (weights, inputs, loss, every gradient)
"""
import json
import math
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).parent
H, HEADS, KV, D, INNER, LAYERS, BLOCK, V, MASK, THETA, EPS = 32, 4, 2, 16, 40, 2, 5, 61, 60, 10000.0, 1e-5
TAPS = [1, 3, 4]
S = 41


def parameters(generator, kind):
    def draw(*shape, scale=0.2, mean=0.0):
        return (mean + scale * torch.randn(*shape, generator=generator)).float().double().requires_grad_()

    fusion = {"fc.weight": draw(H, len(TAPS) * H)} if kind == "dflash" else {"layer_fusion_weights": draw(LAYERS, len(TAPS), scale=1.0)}
    p = fusion | {"hidden_norm.weight": draw(H, mean=1.0), "norm.weight": draw(H, mean=1.0)}
    for i in range(LAYERS):
        a = f"layers.{i}."
        p[a + "input_layernorm.weight"] = draw(H, mean=1.0)
        p[a + "post_attention_layernorm.weight"] = draw(H, mean=1.0)
        p[a + "self_attn.q_proj.weight"] = draw(HEADS * D, H)
        p[a + "self_attn.k_proj.weight"] = draw(KV * D, H)
        p[a + "self_attn.v_proj.weight"] = draw(KV * D, H)
        p[a + "self_attn.o_proj.weight"] = draw(H, HEADS * D)
        p[a + "self_attn.q_norm.weight"] = draw(D, mean=1.0)
        p[a + "self_attn.k_norm.weight"] = draw(D, mean=1.0)
        p[a + "mlp.gate_proj.weight"] = draw(INNER, H)
        p[a + "mlp.up_proj.weight"] = draw(INNER, H)
        p[a + "mlp.down_proj.weight"] = draw(H, INNER)
        if kind == "dflare":
            p[a + "self_attn.k_proj_target.weight"] = draw(KV * D, H)
            p[a + "self_attn.v_proj_target.weight"] = draw(KV * D, H)
    return p


def norm(x, w):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * w


def rope(x, positions):
    """x [heads, N, D]"""
    frequency = 1.0 / (THETA ** (torch.arange(0, D, 2, dtype=torch.float32) / D))
    angle = positions.float()[:, None] * frequency[None]
    cos, sin = torch.cat([angle, angle], -1).cos().double(), torch.cat([angle, angle], -1).sin().double()
    half = torch.cat([-x[..., D // 2:], x[..., : D // 2]], -1)
    return x * cos + half * sin


def forward(p, kind, embedding, tokens, taps, anchors):
    """States of all slots, [A, B, H]."""
    A = len(anchors)
    ids = torch.full((A, BLOCK), MASK)
    ids[:, 0] = tokens[anchors]
    x = embedding[ids.reshape(-1)]
    block_positions = (anchors[:, None] + torch.arange(BLOCK)).reshape(-1)
    context_positions = torch.arange(S)
    visible = torch.zeros(A * BLOCK, S + A * BLOCK, dtype=torch.bool)
    for j in range(A):
        for o in range(BLOCK):
            visible[j * BLOCK + o, : int(anchors[j])] = True
            visible[j * BLOCK + o, S + j * BLOCK: S + (j + 1) * BLOCK] = True
    for i in range(LAYERS):
        w = lambda name: p[f"layers.{i}.{name}.weight"]
        if kind == "dflash":
            context = norm(taps.reshape(S, -1) @ p["fc.weight"].T, p["hidden_norm.weight"])
            k_name, v_name = "self_attn.k_proj", "self_attn.v_proj"
        else:
            share = torch.softmax(p["layer_fusion_weights"][i], 0)
            context = norm(sum(share[j] * taps[:, j] for j in range(len(TAPS))), p["hidden_norm.weight"])
            k_name, v_name = "self_attn.k_proj_target", "self_attn.v_proj_target"
        y = norm(x, w("input_layernorm"))
        split = lambda z, n: z.reshape(z.shape[0], n, D).transpose(0, 1)
        q = rope(norm(split(y @ w("self_attn.q_proj").T, HEADS), w("self_attn.q_norm")), block_positions)
        k_context = rope(norm(split(context @ w(k_name).T, KV), w("self_attn.k_norm")), context_positions)
        k_block = rope(norm(split(y @ w("self_attn.k_proj").T, KV), w("self_attn.k_norm")), block_positions)
        k = torch.cat([k_context, k_block], 1).repeat_interleave(HEADS // KV, 0)
        v = torch.cat([split(context @ w(v_name).T, KV), split(y @ w("self_attn.v_proj").T, KV)], 1).repeat_interleave(HEADS // KV, 0)
        scores = (q @ k.transpose(1, 2)) / math.sqrt(D)
        attended = torch.softmax(scores.masked_fill(~visible, float("-inf")), -1) @ v
        x = x + attended.transpose(0, 1).reshape(A * BLOCK, HEADS * D) @ w("self_attn.o_proj").T
        y = norm(x, w("post_attention_layernorm"))
        gate, up = y @ w("mlp.gate_proj").T, y @ w("mlp.up_proj").T
        x = x + (gate * torch.sigmoid(gate) * up) @ w("mlp.down_proj").T
    return norm(x, p["norm.weight"]).reshape(A, BLOCK, H)


def loss_of(hidden, head, tokens, mask, anchors, vocabulary, case):
    """Numerator and denominator, slot by slot."""
    numerator, denominator, correct = 0.0, 0.0, []
    for j, a in enumerate(anchors.tolist()):
        slots = []
        for k in range(1, BLOCK):
            if a + k >= S or not mask[a + k]:
                continue
            logits = head @ hidden[j, k]
            label = vocabulary.index(int(tokens[a + k])) if int(tokens[a + k]) in vocabulary else None
            ce = None if label is None else torch.logsumexp(logits, 0) - logits[label]
            slots.append((k, ce))
            correct.append(int(label is not None and int(logits.argmax()) == label))
        if case["weighting"] == "decay":
            weights = [math.exp(-(k - 1) / case["gamma"]) if ce is not None else 0.0 for k, ce in slots]
        else:
            reach, reached = 1.0, []
            for k, ce in slots:
                q = math.exp(-float(ce.detach())) if ce is not None else 0.0
                reach *= (1 - case["alpha"]) * q + case["alpha"]
                reached.append(reach if ce is not None else 0.0)
            weights = [sum(reached[i:]) if slots[i][1] is not None else 0.0 for i in range(len(slots))]
        for (k, ce), w in zip(slots, weights):
            if ce is not None:
                numerator = numerator + w * ce
                denominator += w if case["normalize"] == "weights" else 1.0
    if case["normalize"] == "samples":
        denominator = 1.0
    return numerator, denominator, correct


def make(kind, name, case, seed):
    g = torch.Generator().manual_seed(seed)
    p = parameters(g, kind)
    embedding = torch.randn(V, H, generator=g).float().double()
    full_head = torch.randn(V, H, generator=g).float().double()
    tokens = torch.randint(0, V - 1, (S,), generator=g)
    mask = torch.zeros(S, dtype=torch.uint8)
    mask[9:19] = 1
    mask[24:41] = 1
    taps = torch.randn(S, len(TAPS), H, generator=g).float().double()
    anchors = torch.tensor(case["anchors"])
    vocabulary = sorted(set(tokens[mask.bool()].tolist()) - {int(tokens[i]) for i in case["dropped"]}) if case["reduced"] else list(range(V))
    head = full_head[torch.tensor(vocabulary)]
    numerator, denominator, correct = loss_of(forward(p, kind, embedding, tokens, taps, anchors), head, tokens, mask, anchors, vocabulary, case)
    loss = numerator / denominator
    loss.backward()
    out = {f"parameter.{n}": t.detach().float() for n, t in p.items()}
    out |= {f"gradient.{n}": t.grad.float() for n, t in p.items()}
    out |= {"embedding": embedding.float(), "head": full_head.float(), "tokens": tokens, "loss_mask": mask, "taps": taps.float(), "anchors": anchors,
            "vocabulary": torch.tensor(vocabulary), "loss": loss.detach().reshape(1), "denominator": torch.tensor([denominator], dtype=torch.float64),
            "correct": torch.tensor(correct, dtype=torch.uint8)}
    (OUT / kind).mkdir(exist_ok=True)
    save_file({n: t.contiguous() for n, t in out.items()}, OUT / kind / f"{name}.safetensors", metadata={"case": json.dumps(case | {"kind": kind})})
    print(kind, name, "loss", float(loss.detach()), "denominator", denominator, "slots", len(correct), "vocabulary", len(vocabulary))


if __name__ == "__main__":
    # Anchors: neighbours closer than a block, one before a gap in the mask, one whose block runs past the end.
    make("dflash", "decay", dict(weighting="decay", gamma=4.0, alpha=0.5, normalize="weights", anchors=[9, 11, 12, 17, 25, 33, 39], reduced=False, dropped=[]), 1)
    make("dflash", "dpace", dict(weighting="dpace", gamma=7.0, alpha=0.4, normalize="count", anchors=[9, 10, 16, 24, 30, 31, 38], reduced=True, dropped=[]), 2)
    make("dflash", "unknown", dict(weighting="dpace", gamma=7.0, alpha=0.5, normalize="samples", anchors=[9, 10, 16, 24, 30, 31, 38], reduced=True, dropped=[12, 27, 33]), 3)
    # As speculators trains: data labels, decay 4, divided by the count of supervised slots.
    make("dflash", "count", dict(weighting="decay", gamma=4.0, alpha=0.5, normalize="count", anchors=[10, 13, 27, 28, 36], reduced=False, dropped=[]), 4)
    make("dflare", "decay", dict(weighting="decay", gamma=4.5, alpha=0.5, normalize="weights", anchors=[9, 11, 12, 17, 25, 33, 39], reduced=False, dropped=[]), 5)
    make("dflare", "dpace", dict(weighting="dpace", gamma=7.0, alpha=0.4, normalize="count", anchors=[9, 10, 16, 24, 30, 31, 38], reduced=True, dropped=[]), 6)
