#!/usr/bin/env python3
"""Serves an exported pair in llama.cpp's own server and compares it with what `draftsmith evaluate` measured.

    serve_llama_cpp.py --export FOLDER --evaluation evaluation.json [--prompts N] --output served.json [--strict]

FOLDER holds draft.gguf and target-*.gguf (`draftsmith export --for llama.cpp --with-target f16`). The server (PyPI xllamacpp, llama.cpp's server inside
this process) gets one thread. Prompts, token ids and answers are those of evaluation.json, N of them spread over the file. Each prompt is answered greedily with
and without the drafter, in alternating order after a warm-up.

served.json: tau (1 + accepted / drafts, bonus token included), tau_draftsmith (the same quotient from evaluation.json on the same prompts), tokens_per_second_*
(prefill included), identical (answers equal with and without the drafter), identical_to_draftsmith, outputs_total. --strict: exit 1 unless all answers
are identical and the two tau agree within 2 %.
"""

import argparse
import glob
import json
import os
import re
import sys
import urllib.request

TOLERANCE = 0.02  # of tau: the last round of an answer is cut at other places by the two programs


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export", required=True, help="folder with draft.gguf and target-*.gguf")
    parser.add_argument("--target", help="target GGUF, if it stands elsewhere")
    parser.add_argument("--evaluation", required=True, help="evaluation.json of the same drafter")
    parser.add_argument("--prompts", type=int, default=0, help="so many prompts, spread over the file; 0: all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", required=True, help="served.json to write")
    parser.add_argument("--strict", action="store_true", help="exit 1 unless answers are identical and tau agrees within 2 %%")
    return parser.parse_args()


def pair(arguments):
    draft = os.path.join(arguments.export, "draft.gguf")
    targets = [arguments.target] if arguments.target else sorted(glob.glob(os.path.join(arguments.export, "target-*.gguf")))
    if not os.path.exists(draft):
        sys.exit(f"error: {draft} is missing; draftsmith export --for llama.cpp writes it")
    if len(targets) != 1 or not os.path.exists(targets[0]):
        sys.exit(f"error: {arguments.export} holds {len(targets)} target-*.gguf, one is needed; draftsmith export --with-target f16 writes it")
    return targets[0], draft


def start(target, draft, block, context, threads):
    """A server of llama.cpp on a free port of this machine, with the drafter unless `draft` is None."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = target
    params.n_ctx = context
    params.n_parallel = 1
    params.verbosity = 0
    params.endpoint_metrics = True
    params.fit_params = False
    # fp32 keys and values, plain attention: as close to fp32 as the target's weights are.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    pools = [params.cpuparams, params.cpuparams_batch]
    if draft is not None:
        speculative = params.speculative
        speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH]
        speculative.draft.mparams.path = draft
        speculative.draft.n_max = block - 1  # the default of 3 would shorten the block
        speculative.draft.cache_type_k = speculative.draft.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        pools += [speculative.draft.cpuparams, speculative.draft.cpuparams_batch]
    for pool in pools:
        pool.n_threads = threads
    return xllamacpp.Server(params)


def post(server, path, body):
    request = urllib.request.Request(server.listening_address + path, data=json.dumps(body).encode(),
                                     headers={"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def metrics(server):
    """The server's counters of drafts: how many, tokens in them, tokens accepted (also by position)."""
    with urllib.request.urlopen(server.listening_address + "/metrics") as response:
        text = response.read().decode()
    counters = {name: float(value) for name, value in re.findall(r"^llamacpp:spec_decode_num_(\S+) (\S+)$", text, re.M)}
    for name in ("drafts_total", "accepted_tokens_total"):
        if name not in counters:
            sys.exit(f"error: this server's /metrics has no spec_decode_num_{name}; tests/requirements-clients.txt pins one that has")
    return counters


def answer(server, prompt, limit):
    reply = post(server, "/completion", {"prompt": prompt, "n_predict": limit, "temperature": 0, "top_k": 1, "cache_prompt": False,
                                         "return_tokens": True, "seed": 0})
    timings = reply["timings"]
    return {"tokens": reply["tokens"], "text": reply["content"], "predicted": timings["predicted_n"],
            "seconds": (timings["prompt_ms"] + timings["predicted_ms"]) / 1000,
            "drafted": timings.get("draft_n", 0), "accepted": timings.get("draft_n_accepted", 0)}


def check_tokenizer(server, rows):
    for row in rows:
        ids = post(server, "/tokenize", {"content": row["prompt"], "add_special": False, "parse_special": True})["tokens"]
        if ids != row["prompt_tokens"]:
            at = next((i for i, (a, b) in enumerate(zip(ids, row["prompt_tokens"])) if a != b), min(len(ids), len(row["prompt_tokens"])))
            sys.exit(f"error: prompt {row['id']}: llama.cpp's token {at} is not draftsmith's; the tokenizer in the GGUF is not the target's")


def trimmed(tokens, reference):
    """Without the stop token at the end, which draftsmith counts as output and the server does not return."""
    return tokens[:-1] if len(tokens) == len(reference) + 1 and tokens[:len(reference)] == reference else tokens


def main():
    arguments = parse()
    target, draft = pair(arguments)
    with open(arguments.evaluation) as file:
        evaluation = json.load(file)
    settings, rows = evaluation["settings"], evaluation["rows"]
    if settings["temperature"] != 0:
        sys.exit(f"error: {arguments.evaluation} was not measured greedily")
    if 0 < arguments.prompts < len(rows):
        rows = [rows[i * len(rows) // arguments.prompts] for i in range(arguments.prompts)]
    block, limit = settings["block"], settings["max_new_tokens"]
    context = max(len(row["prompt_tokens"]) for row in rows) + limit + 2 * block

    plain = start(target, None, block, context, arguments.threads)
    drafting = start(target, draft, block, context, arguments.threads)
    check_tokenizer(plain, rows)
    for server in (plain, drafting):
        answer(server, rows[0]["prompt_tokens"], 16)
    before = metrics(drafting)

    results = []
    for i, row in enumerate(rows):
        order = [(plain, "plain"), (drafting, "drafting")]
        replies = {name: answer(server, row["prompt"], limit) for server, name in (order if i % 2 == 0 else order[::-1])}
        one, two = replies["plain"], replies["drafting"]
        results.append({"id": row["id"], "category": row["category"], "identical": one["tokens"] == two["tokens"],
                        "identical_to_draftsmith": trimmed(row["output_tokens"], two["tokens"]) == two["tokens"],
                        "predicted": two["predicted"], "drafted": two["drafted"], "accepted": two["accepted"],
                        "seconds_plain": one["seconds"], "seconds_speculative": two["seconds"],
                        "predicted_plain": one["predicted"], "text": two["text"]})
    counters = {name: value - before.get(name, 0) for name, value in metrics(drafting).items()}

    def total(key):
        return sum(result[key] for result in results)

    drafts, accepted = counters["drafts_total"], counters["accepted_tokens_total"]
    # draftsmith's rounds that drafted: without the last one of an answer that had room for one more token only.
    ours = [taken for row in rows for asked, taken in zip(row["proposed"], row["accepted"]) if asked > 0]
    served = {
        "tau": 1 + accepted / max(1, drafts),
        "tau_definition": "1 + accepted / drafts in llama.cpp's server, bonus token included",
        "tau_draftsmith": 1 + sum(ours) / max(1, len(ours)),
        "tokens_per_second_plain": total("predicted_plain") / total("seconds_plain"),
        "tokens_per_second_speculative": total("predicted") / total("seconds_speculative"),
        "identical": total("identical"),
        "identical_to_draftsmith": total("identical_to_draftsmith"),
        "outputs_total": len(results),
        "drafts": drafts, "drafted": total("drafted"), "accepted": accepted,
        "target": os.path.basename(target), "block": block, "threads": arguments.threads, "runtime": runtime(),
        "counters": counters, "rows": results,
    }
    served["speedup"] = served["tokens_per_second_speculative"] / served["tokens_per_second_plain"]
    served["tau_difference"] = served["tau"] / served["tau_draftsmith"] - 1
    with open(arguments.output + ".part", "w") as file:
        json.dump(served, file, indent=1)
        file.write("\n")
    os.replace(arguments.output + ".part", arguments.output)

    print(f"llama.cpp  {served['target']}, {arguments.threads} thread(s): tau {served['tau']:.3f} (draftsmith on the same prompts {served['tau_draftsmith']:.3f}, "
          f"{100 * served['tau_difference']:+.1f} %)")
    print(f"tokens/s   plain {served['tokens_per_second_plain']:.1f}, with the drafter {served['tokens_per_second_speculative']:.1f} "
          f"({served['speedup']:.2f}x, prefill included)")
    print(f"identical  {served['identical']} of {len(results)} with and without the drafter, {served['identical_to_draftsmith']} to draftsmith's")
    agreed = (served["identical"] == served["identical_to_draftsmith"] == len(results) and abs(served["tau_difference"]) <= TOLERANCE)
    if not agreed:
        print(f"warning: llama.cpp and draftsmith do not agree; see {arguments.output}", file=sys.stderr)
    sys.exit(0 if agreed or not arguments.strict else 1)


def runtime():
    import importlib.metadata

    return "xllamacpp " + importlib.metadata.version("xllamacpp")


if __name__ == "__main__":
    main()
