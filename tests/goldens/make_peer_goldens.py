"""Loss and gradients of the DFlash objectives of the two public trainers, computed by their own code (tests/bench/peers) on tiny sizes.

Run each in its environment, for example:
    $(tests/bench/peers/install specforge) tests/goldens/make_peer_goldens.py specforge
    $(tests/bench/peers/install speculators) tests/goldens/make_peer_goldens.py speculators
-> tests/goldens/dflash/<peer>_<case>.safetensors, laid out as make_block_drafter_goldens.py lays out its own. `last`, where there is one, is the target's
state after the final norm, from which the labels come. Every position that the peer admits is an anchor, so nothing is drawn at random. The peers
compute in fp32 (their norms always do).
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import Qwen3Config

OUT = pathlib.Path(__file__).parent / "dflash"
H, HEADS, KV, D, INNER, LAYERS, BLOCK, V, MASK = 32, 4, 2, 16, 40, 2, 5, 61, 60
TAPS = [1, 3, 4]
S = 41


def config(**more):
    result = Qwen3Config(vocab_size=V, hidden_size=H, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
                         head_dim=D, rms_norm_eps=1e-5, max_position_embeddings=64, attention_bias=False,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **more)
    result._attn_implementation = "sdpa"
    return result


def inputs(generator):
    mask = torch.zeros(S, dtype=torch.int64)
    mask[9:19] = 1
    mask[24:41] = 1
    return {"embedding": torch.randn(V, H, generator=generator), "head": 0.3 * torch.randn(V, H, generator=generator),
            "tokens": torch.randint(0, V - 1, (S,), generator=generator), "loss_mask": mask, "taps": torch.randn(S, len(TAPS), H, generator=generator)}


def draw_parameters(drafter, generator):
    for name, parameter in drafter.named_parameters():
        if parameter.requires_grad:
            mean = 1.0 if parameter.dim() == 1 else 0.0
            parameter.data = mean + 0.2 * torch.randn(parameter.shape, generator=generator)


def logits_of(head):
    """The head's outputs in the order of its calls."""
    seen = []
    head.register_forward_hook(lambda module, arguments, output: seen.append(output.detach().reshape(-1, V)))
    return seen


def correct_slots(logits, labels, mask, anchors):
    """For every supervised slot behind an anchor, in order: is the most likely token its label?"""
    hit = logits.reshape(len(anchors), BLOCK, V).argmax(-1)
    return [int(hit[j, k] == labels[a + k]) for j, a in enumerate(anchors) for k in range(1, BLOCK) if a + k < S and mask[a + k]]


def save(name, case, drafter, data, anchors, labels, logits, loss, denominator):
    loss.backward()
    correct = correct_slots(logits, labels, data["loss_mask"], anchors)
    out = {f"parameter.{n}": p.detach() for n, p in drafter.named_parameters() if p.requires_grad}
    out |= {f"gradient.{n}": p.grad for n, p in drafter.named_parameters() if p.requires_grad}
    out |= data | {"loss_mask": data["loss_mask"].to(torch.uint8), "anchors": torch.tensor(anchors), "vocabulary": torch.arange(V),
                   "loss": loss.detach().double().reshape(1), "denominator": torch.tensor([denominator], dtype=torch.float64),
                   "correct": torch.tensor(correct, dtype=torch.uint8)}
    save_file({n: t.contiguous().clone() for n, t in out.items()}, OUT / f"{name}.safetensors", metadata={"case": json.dumps(case)})
    print(name, "loss", float(loss.detach()), "denominator", denominator, "slots", len(correct), "correct", sum(correct))
    return sum(correct)


def specforge(case, seed):
    from specforge.algorithms.common.dflash_family_model import OnlineDFlashModel
    from specforge.modeling.draft.dflash import DFlashDraftModel

    g = torch.Generator().manual_seed(seed)
    data = inputs(g)
    drafter = DFlashDraftModel(config(num_target_layers=8, block_size=BLOCK, dflash_config={"target_layer_ids": TAPS, "mask_token_id": MASK}))
    draw_parameters(drafter, g)
    head = torch.nn.Linear(H, V, bias=False)
    head.weight = torch.nn.Parameter(data["head"], requires_grad=False)
    model = OnlineDFlashModel(drafter, head, torch.nn.Embedding.from_pretrained(data["embedding"]), MASK, block_size=BLOCK, attention_backend="sdpa", num_anchors=S,
                              loss_decay_gamma=case["gamma"] or None, loss_type="dpace" if case["weighting"] == "dpace" else "dflash", dpace_alpha=case["alpha"])
    logits = logits_of(head)
    loss, _, metrics = model(data["tokens"][None], data["taps"].reshape(1, S, -1), data["loss_mask"][None])
    mask = data["loss_mask"]
    anchors = [a for a in range(S - 1) if mask[a] and mask[a + 1]]
    right = save(f"specforge_{case['name']}", case, drafter, data, anchors, data["tokens"], logits[0], loss, float(metrics["loss_terms"][1]))
    assert right == int(metrics["ratio_metrics"]["acc"][0])


def speculators(case, seed):
    from speculators.models.dflash import DFlashSpeculatorConfig
    from speculators.models.dflash.core import DFlashDraftModel

    g = torch.Generator().manual_seed(seed)
    data = inputs(g)
    model = DFlashDraftModel(DFlashSpeculatorConfig(transformer_layer_config=config(), draft_vocab_size=V, block_size=BLOCK, aux_hidden_state_layer_ids=TAPS, mask_token_id=MASK))
    draw_parameters(model, g)
    model.embed_tokens.weight.data = data["embedding"]
    model.lm_head.weight.data = model.verifier_lm_head.weight.data = data["head"]
    model.verifier_norm.weight.data = 1 + 0.2 * torch.randn(H, generator=g)
    before_norm = torch.randn(S, H, generator=g)
    data["last"] = model.verifier_norm(before_norm).detach()
    mask = data["loss_mask"]
    anchors = [a for a in range(S - BLOCK) if mask[a]]
    keywords, _ = DFlashDraftModel.get_trainer_kwargs(loss_fn="ce", loss_implementation="eager", max_anchors=len(anchors), dflash_decay_gamma=case["gamma"],
                                                      per_position_loss_weight="dpace" if case["weighting"] == "dpace" else "fixed-exp-decay", dpace_alpha=case["alpha"])
    logits = logits_of(model.lm_head)
    _, loss, metrics = model(data["taps"].reshape(1, S, -1), data["tokens"][None], mask[None], before_norm[None], torch.zeros(1, S, dtype=torch.int64), **keywords)
    labels = torch.roll((data["last"] @ data["head"].T).argmax(-1), 1)
    # Its denominator is the count and 1e-5; draftsmith's is the count. With these 78 slots that is 1.3e-7 of the loss.
    right = save(f"speculators_{case['name']}", case, model, data, anchors, labels, logits[0], loss, float(metrics["full_acc_total"]) + 1e-5)
    assert right == int(metrics["full_acc_sum"])


if __name__ == "__main__":
    if sys.argv[1:] == ["specforge"]:
        specforge(dict(name="decay", weighting="decay", gamma=4.0, alpha=0.5, normalize="weights"), 4)
        specforge(dict(name="dpace", weighting="dpace", gamma=0.0, alpha=0.4, normalize="samples"), 9)
    elif sys.argv[1:] == ["speculators"]:
        speculators(dict(name="decay", weighting="decay", gamma=4.0, alpha=0.5, normalize="count"), 9)
        speculators(dict(name="dpace", weighting="dpace", gamma=4.0, alpha=0.5, normalize="count"), 14)
    else:
        raise SystemExit(__doc__)
