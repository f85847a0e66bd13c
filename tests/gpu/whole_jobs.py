"""The time of a job from end to end, compared with the longer of its two parts: transfers and the worker's work.

    python3 -m tests.gpu.whole_jobs FILE.json [--device cuda:0] [--nccl-library PATH] [--lengths 8192,32768,131072]

If bytes travel while the GPU works, a job takes little more than one of the two. Keys cannot stay on a worker
between jobs yet, so there is no figure of a job that sends only queries.
"""

import argparse
import json
import statistics
import sys

from tests.gpu import end_to_end, files

HEADS, DIM = 8, 128
BAR = 1.5


def attend(service, queries, keys, seed):
    shape = f"1,{queries},{keys},{HEADS},{HEADS},{DIM},bf16,{seed}"
    return end_to_end.ask(service, "attend", "--synthetic", shape, "--mask", "causal", verified_rows="0", seconds=60)


def goodput(facts):
    """Bytes per second."""
    return facts["input_bytes"] / facts["uploading_seconds"]


def over_longer_part(facts, bytes_per_second):
    wire = (facts["input_bytes"] + facts["output_bytes"]) / bytes_per_second
    return facts["seconds"] / max(wire, facts["running_seconds"])


def figure(name, seconds, ratios):
    ratio = statistics.median(ratios)
    return {"name": name, "value": statistics.median(seconds), "unit": "s",
            "compared_to": "the longer of its bytes at one upload stream's rate and the worker's work, in turn", "ratio": ratio,
            "better": "lower", "bar": BAR, "met": ratio <= BAR, "repeats": len(ratios), "spread": max(ratios) - min(ratios)}


def measure(service, length, flags):
    seconds, ratios = [], []
    for n in range(flags.repeats + 1):
        # One query over many keys: nearly all that happens is the upload.
        rate = goodput(attend(service, 1, flags.upload_rows, seed=1))
        facts = attend(service, length, length, seed=2)
        end_to_end.check_device(facts, flags.device, f"{length} rows")
        if n > 0:
            seconds.append(facts["seconds"])
            ratios.append(over_longer_part(facts, rate))
    return figure(f"end to end bf16 S{length} D{DIM} causal, {HEADS} heads", seconds, ratios)


def main(arguments):
    parser = argparse.ArgumentParser(prog="tests.gpu.whole_jobs", description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--nccl-library", default="")
    parser.add_argument("--lengths", default="8192,32768,131072")
    parser.add_argument("--upload-rows", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=5)
    flags = parser.parse_args(arguments)
    worker_flags = {"--device": flags.device, "--staging-bytes": "3GiB", "--device-bytes": "4GiB", "--measure-time": "50ms"}
    if flags.nccl_library:
        worker_flags["--nccl-library"] = flags.nccl_library
    found = []
    with end_to_end.GpuProcesses(1, worker_flags) as service:
        for length in flags.lengths.split(","):
            found.append(measure(service, int(length), flags))
            files.replace(flags.file, json.dumps(found))
            print(f"{found[-1]['name']}: {found[-1]['value']:.4f} s, {found[-1]['ratio']:.2f} of its longer part", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
