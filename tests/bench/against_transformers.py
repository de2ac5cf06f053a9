"""Plain decode step and prefill of Transformers against draftsmith's, on the same HF folder, fp32, alternating.

Each round measures Transformers in this process and decode_bench in one of its own. Printed: the best step of each side (the
steadiest figure on a shared machine) and the ratio.
"""

import argparse
import re
import subprocess
import time

import torch
from transformers import AutoModelForCausalLM

CONTEXT = 256


def ours(program, target, tokens):
    """Milliseconds of forward + logits of `tokens` tokens behind CONTEXT cached ones, as decode_bench prints them."""
    out = subprocess.run([program, target, "10", str(CONTEXT), str(tokens)], check=True, capture_output=True, text=True).stdout
    row = next(line for line in out.splitlines() if re.match(rf"\s*{tokens}\s", line))
    return float(re.findall(r"\d+\.\d+|\d+", row)[1]) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.target, dtype=torch.float32)
    ids = torch.randint(0, model.config.vocab_size, (1, CONTEXT))
    with torch.no_grad():
        for tokens, name in ((1, "decode step"), (256, "prefill of 256 tokens")):
            new = torch.randint(0, model.config.vocab_size, (1, tokens))

            def theirs():
                cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
                start = time.perf_counter()
                model(new, past_key_values=cache, use_cache=True)
                return time.perf_counter() - start

            best = [float("inf"), float("inf")]
            for _ in range(arguments.rounds):
                best[0] = min(best[0], min(theirs() for _ in range(3)))
                best[1] = min(best[1], ours(arguments.program, arguments.target, tokens))
            print(f"{name:<24} Transformers {best[0] * 1000:8.1f} ms   draftsmith {best[1] * 1000:8.1f} ms   {best[0] / best[1]:.2f}x")


if __name__ == "__main__":
    main()
