"""Times, memory and start-up of training steps in this process, as one line of JSON that compare.py reads."""

import json
import os
import pathlib
import resource
import statistics
import time


def _status_bytes(field):
    line = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def _seconds_since_start():
    """Since the kernel started this process: interpreter and imports count. In steps of 10 ms."""
    ticks = float(pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _cpu_seconds():
    """User and system time of all threads, spinning ones too."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def imported_after():
    """To be called once all imports are done: they are the larger part of a start."""
    return round(_seconds_since_start(), 2)


def report(who, point, step, steps, facts):
    """Runs `step` once (the start-up figure ends there) and `steps` times more, which are the ones that count."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins here: an earlier point must not show in it
    before = _status_bytes("VmRSS")
    step()
    start_up = _seconds_since_start()
    cpu, wall = [], []
    for _ in range(steps):
        begin = _cpu_seconds(), time.perf_counter()
        step()
        cpu.append(_cpu_seconds() - begin[0])
        wall.append(time.perf_counter() - begin[1])
    print(json.dumps({
        "who": who, "point": str(point), "cpu_best": min(cpu), "cpu": cpu, "wall_min": min(wall), "wall_median": statistics.median(wall),
        "wall": wall, "peak_rss": _status_bytes("VmHWM"), "rss_before": before, "start_up": start_up, **facts}), flush=True)
