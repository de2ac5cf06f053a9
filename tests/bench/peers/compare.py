"""draftsmith and the peers on the same training step, each measurement in a process of its own, interleaved: ours, peer, ours, peer ...

    python compare.py --ours build/tests/bench/train_bench --specforge PYTHON --speculators PYTHON [--rounds N] [--steps N] [S/A/B]...

A peer that is not given is left out, and the table says so. CPU-seconds are the figure to look at: walls of a shared machine are anybody's.

Each peer is measured twice: as it comes, where libgomp's threads spin while they wait for each other, and with OMP_WAIT_POLICY=passive, where they
sleep (draftsmith settles that for itself at launch). On cores that somebody else uses too, spinning multiplies a peer's time; the ratio that says
something about the programs is the one to the better of the two.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
POINTS = ["512/64/8", "512/64/16", "2048/64/16"]
SIZE = (12_280_704, 36)  # trainable parameters and tensors of the workload


def pin():
    """Two CPUs for this process and all that it starts. Returns what happened, in words."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return f"one CPU only ({allowed[0]}): two threads share it"
    try:
        os.sched_setaffinity(0, allowed[:2])
    except OSError as error:
        return f"not pinned, this machine does not allow it ({error.strerror}): {len(allowed)} CPUs"
    return f"pinned to CPUs {allowed[0]} and {allowed[1]} of {os.cpu_count()}"


def measure(command, waits):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if waits == "passive":
        environment["OMP_WAIT_POLICY"] = "passive"
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or len(lines) != 1:
        raise SystemExit(f"error: no figures from {' '.join(command)} (exit status {result.returncode})\n{result.stderr[-2000:]}")
    figures = json.loads(lines[0])
    if (figures["parameters"], figures["tensors"]) != SIZE:
        raise SystemExit(f"error: {figures['who']} trained {figures['parameters']} parameters in {figures['tensors']} tensors, the workload has {SIZE[0]} in {SIZE[1]}")
    return figures


def sides(arguments, point):
    """Name -> (command, how its threads wait), in the order in which they take turns."""
    steps = ["--steps", str(arguments.steps), point]
    peers = {}
    if arguments.specforge:
        peers["specforge"] = [arguments.specforge, str(HERE / "specforge_step.py"), *steps]
    if arguments.speculators:
        for loss in arguments.losses.split(","):
            peers[f"speculators {loss}"] = [arguments.speculators, str(HERE / "speculators_step.py"), "--loss", loss, *steps]
    chosen = {"draftsmith": ([str(arguments.ours), "--json", *steps], "its own")}
    for name, command in peers.items():
        for waits in arguments.waits.split(","):
            chosen[f"{name}, {waits}"] = (command, waits)
    return chosen


def joined(runs):
    """All rounds of one side as one set of figures."""
    cpu, wall = [[value for run in runs for value in run[key]] for key in ("cpu", "wall")]
    return {"cpu": min(cpu), "cpu_median": statistics.median(cpu), "wall": min(wall), "wall_median": statistics.median(wall), "n": len(cpu),
            "peak": max(run["peak_rss"] for run in runs), "before": max(run["rss_before"] for run in runs), "start": min(run["start_up"] for run in runs),
            "loss": runs[0]["loss"]}


def table(point, measured):
    print(f"\n{point:<28}CPU-seconds a step: best, median   wall: min, median      peak RSS (before)   first step done after")
    ours = measured["draftsmith"]
    for name, side in measured.items():
        ratio = f"{side['cpu'] / ours['cpu']:5.2f}x" if side is not ours else "      "
        print(f"  {name:<32}{side['cpu']:7.2f} {side['cpu_median']:7.2f} {ratio} {side['wall']:9.2f} {side['wall_median']:7.2f} "
              f"{side['wall'] / ours['wall']:5.2f}x {side['peak'] / 1e9:8.2f} ({side['before'] / 1e9:.2f}) GB {side['peak'] / ours['peak']:5.2f}x "
              f"{side['start']:8.1f} s   n {side['n']}   {side['loss']}")
    sys.stdout.flush()


def load():
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", default=POINTS)
    parser.add_argument("--ours", required=True, type=pathlib.Path, help="train_bench of the build")
    parser.add_argument("--specforge", help="Python of its environment")
    parser.add_argument("--speculators", help="Python of its environment")
    parser.add_argument("--losses", default="ce", help="of speculators: ce, kl_div (its default) or both with a comma (%(default)s)")
    parser.add_argument("--waits", default="as it comes,passive", help="how the peers' threads wait (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="how often the sides take turns (%(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="measured steps of one turn, behind one that warms up (%(default)s)")
    arguments = parser.parse_args()
    print(f"fp32, batch 1, AdamW, 2 threads, all tokens supervised, features in memory; {pin()}; load before {load()}")
    for peer in ("specforge", "speculators"):
        if not getattr(arguments, peer):
            print(f"{peer} is left out: its environment was not given")
    for point in arguments.points:
        chosen = sides(arguments, point)
        runs = {name: [] for name in chosen}
        for _ in range(arguments.rounds):
            for name, (command, waits) in chosen.items():
                runs[name].append(measure(command, waits))
        table(point, {name: joined(turns) for name, turns in runs.items()})
    print(f"\nload after {load()}")


if __name__ == "__main__":
    main()
