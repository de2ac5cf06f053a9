"""Start-up of draftsmith's real command: `draftsmith train` on a small feature store of SmolLM2, from its start to the end after one step.

    python start_up.py --draftsmith build/draftsmith --target FOLDER

The command loads the target's tables and the store, trains one step at 512/64/16 and writes checkpoint and export; all of that is counted, so
the figure is an upper bound of what compare.py states for the peers, which read no files.
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

WORDS = "the a small river runs under every old stone bridge and people walk over it with bread books letters or nothing at all".split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draftsmith", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        words = random.Random(1)
        rows = [{"messages": [{"role": "user", "content": "Tell a story."}, {"role": "assistant", "content": " ".join(words.choices(WORDS, k=700))}]} for _ in range(4)]
        (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

        def draftsmith(*words):
            result = subprocess.run([arguments.draftsmith, *map(str, words)], capture_output=True, text=True)
            if result.returncode:
                raise SystemExit(f"error: draftsmith {words[0]} ended with {result.returncode}\n{result.stderr[-2000:]}")

        target = ("--target", arguments.target)
        draftsmith("prepare", *target, "--input", work / "rows.jsonl", "--output", work / "corpus.h5", "--max-length", 512, "--mask", "template")
        draftsmith("capture", *target, "--corpus", work / "corpus.h5", "--output", work / "features", "--taps", "1,8,14,20,27")
        seconds = []
        for turn in range(arguments.rounds):
            settings = {"target.folder": arguments.target, "data.store": work / "features", "data.validation_fraction": 0, "data.anchors": 64,
                        "schedule.max_steps": 1, "schedule.samples_per_step": 1, "output.run": work / f"run-{turn}"}
            begin = time.perf_counter()
            draftsmith("train", "--config", "configs/recipes/smollm2-135m-dflash.yaml", *(f"--set={key}={value}" for key, value in settings.items()))
            seconds.append(time.perf_counter() - begin)
    print(f"draftsmith train at 512/64/16, whole command with one step, checkpoint and export: {min(seconds):.1f} s (n {len(seconds)})")


if __name__ == "__main__":
    main()
