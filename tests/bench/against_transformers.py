"""Transformers against draftsmith on the same HF folder, fp32, alternating: decode step, prefill, capture.

Each round measures Transformers in this process and ours in one of its own. Printed: the best of each side (the steadiest figure on a
shared machine) and the ratio.
"""

import argparse
import pathlib
import re
import subprocess
import time

import torch
from transformers import AutoModelForCausalLM

CONTEXT = 256
ROWS, LENGTH = 16, 256


def run(program, *arguments):
    return subprocess.run([str(program), *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def our_step(benches, target):
    """Seconds of one token's forward + logits behind CONTEXT cached ones."""
    out = run(benches / "decode_bench", target, 10, CONTEXT, 1)
    row = next(line for line in out.splitlines() if re.match(r"\s*1\s", line))
    return float(re.findall(r"\d+\.\d+|\d+", row)[1]) / 1000


def our_rows(benches, target):
    """Tokens/s of prefill and of capture."""
    out = run(benches / "capture_bench", target, 1, ROWS, LENGTH)
    return [float(re.search(rf"{what} (\d+) tokens/s", out)[1]) for what in ("prefill", "capture")]


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benches", required=True, type=pathlib.Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.target, dtype=torch.float32)
    vocabulary = model.config.vocab_size
    batch = torch.randint(0, vocabulary, (ROWS, LENGTH))
    step = [float("inf")] * 2
    prefill, capture = [0.0] * 2, [0.0] * 2
    with torch.no_grad():
        for _ in range(arguments.rounds):
            cache = model(batch[:1], use_cache=True, logits_to_keep=1).past_key_values
            for _ in range(10):
                token = torch.randint(0, vocabulary, (1, 1))
                step[0] = min(step[0], timed(lambda: model(token, past_key_values=cache, use_cache=True)))
                cache.crop(-1)
            step[1] = min(step[1], our_step(arguments.benches, arguments.target))
            seconds = timed(lambda: model.model(batch, use_cache=True))
            prefill[0] = max(prefill[0], ROWS * LENGTH / seconds)
            seconds = timed(lambda: model.model(batch, use_cache=False, output_hidden_states=True))
            capture[0] = max(capture[0], ROWS * LENGTH / seconds)
            ours = our_rows(arguments.benches, arguments.target)
            prefill[1], capture[1] = max(prefill[1], ours[0]), max(capture[1], ours[1])
    print(f"{'decode step':<24} Transformers {step[0] * 1000:8.1f} ms         draftsmith {step[1] * 1000:8.1f} ms         {step[0] / step[1]:.2f}x")
    for name, (theirs, ours) in (("prefill", prefill), ("capture", capture)):
        print(f"{name:<24} Transformers {theirs:8.0f} tokens/s   draftsmith {ours:8.0f} tokens/s   {ours / theirs:.2f}x")


if __name__ == "__main__":
    main()
