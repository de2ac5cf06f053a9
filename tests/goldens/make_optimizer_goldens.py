"""Reference steps of AdamW (torch.optim) and Muon (restated from Jordan's note: Nesterov momentum, Newton-Schulz in the textbook order) in fp64 on fp32 inputs.

Run:  python3 tests/goldens/make_optimizer_goldens.py   -> tests/goldens/optimizer.safetensors
"""
import math
import pathlib

import torch
from safetensors.torch import save_file

STEPS, LR, WD, BETAS, EPS = 5, 0.01, 0.1, (0.9, 0.95), 1e-8
MUON_LR, MOMENTUM, ITERATIONS = 0.02, 0.95, 5


def newton_schulz(g, iterations):
    x = g / (g.norm() + 1e-7)
    if x.shape[0] > x.shape[1]:
        return newton_schulz(g.T, iterations).T
    for _ in range(iterations):
        a = x @ x.T
        x = 3.4445 * x - 4.7750 * a @ x + 2.0315 * a @ a @ x
    return x


def main():
    g = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=g)
    out = {}
    for name, shape in (("tall", (90, 75)), ("wide", (24, 40)), ("norm", (40,))):
        start = draw(*shape)
        gradients = [draw(*shape) for _ in range(STEPS)]
        out[f"{name}.start"] = start
        for i, gradient in enumerate(gradients):
            out[f"{name}.gradient{i}"] = gradient
        p = start.double().clone().requires_grad_()
        optimizer = torch.optim.AdamW([p], lr=LR, betas=BETAS, eps=EPS, weight_decay=WD if len(shape) == 2 else 0.0)
        for gradient in gradients:
            p.grad = gradient.double()
            optimizer.step()
        out[f"{name}.adamw"] = p.detach().float()
        if len(shape) == 1:
            continue
        p, momentum = start.double().clone(), torch.zeros(*shape, dtype=torch.float64)
        for gradient in gradients:
            momentum = MOMENTUM * momentum + gradient.double()
            update = newton_schulz(gradient.double() + MOMENTUM * momentum, ITERATIONS)
            p = p * (1 - MUON_LR * WD) - MUON_LR * math.sqrt(max(1.0, shape[0] / shape[1])) * update
        out[f"{name}.muon"] = p.float()
    save_file({n: t.contiguous() for n, t in out.items()}, pathlib.Path(__file__).parent / "optimizer.safetensors")


if __name__ == "__main__":
    main()
