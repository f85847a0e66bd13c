"""Whole jobs through the service, by workers with `--device`; their answers are judged in fp64 by `annulus attend --verify`.

    python3 -m tests.gpu.end_to_end --workers 2 [--device cuda:0] [--cuda-kernel hopper] [--nccl-library PATH]
        [--cudnn-library PATH] [--start-seconds 75]

Several workers share one GPU: NCCL refuses that of processes of one machine, so each has a machine's name of its own.
"""

import argparse
import json
import os
import sys

from tests.end_to_end.harness import processes

# So that two ranks can share a GPU, and nothing of a network is looked for.
NCCL = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2",
        "NCCL_RAS_ENABLE": "0"}
# Sequences, rows, keys, query and key/value heads, dimension, type, seed.
JOBS = (
    ("1,4096,4096,8,8,128,bf16,1", "causal"),
    ("1,1500,2500,8,2,64,fp16,2", "full"),
    ("2,700,700,4,4,128,fp32,3", "causal"),
    ("1,2048,2048,2,2,256,bf16,4", "full"),
    ("4,1,8192,16,2,128,bf16,5", "causal"),
)
GRADIENT_JOBS = (("1,1024,1024,4,2,128,bf16,6", "causal"), ("1,700,900,4,4,64,fp32,7", "full"))
STRATEGIES = ("ring-pass-kv", "ring-pass-q", "ulysses", "all-gather-kv")
VERIFIED_ROWS = "32"
# Shorter than a part's limit: what a job waits for shows in the logs, and of a part that is killed they are lost.
JOB_SECONDS = 25
# For all workers: more than the minute that the checks of the kernels for Hopper have at each start.
START_SECONDS = 75


class GpuProcesses(processes.Processes):
    def __init__(self, workers, worker_flags, start_seconds=START_SECONDS):
        super().__init__(workers, worker_flags=worker_flags)
        self._start_seconds = start_seconds

    def await_workers(self, count, seconds=None):
        super().await_workers(count, seconds or self._start_seconds)

    def start_worker(self, number):
        os.environ["NCCL_HOSTID"] = f"annulus-{number}"
        return super().start_worker(number)


def ask(service, verb, *flags, verified_rows=VERIFIED_ROWS, seconds=JOB_SECONDS):
    """The answer's facts."""
    done = service.annulus(verb, "--json", "--verify", verified_rows, *flags, timeout=seconds)
    if done.returncode != 0:
        raise SystemExit(f"{verb} {' '.join(flags)}: {(done.stderr + done.stdout).strip()}\n{service.tail()}")
    return json.loads(done.stdout)


# The beginning of the back-end's name in the answer.
BACKENDS = {"portable": "cuda/mma ", "hopper": "cuda/wgmma+mma "}


def check_device(facts, device, what, cuda_kernel="", cudnn=False):
    if not facts["backend"].startswith(BACKENDS.get(cuda_kernel, device.split(":")[0])):
        raise SystemExit(f"{what} ran on {facts['backend']!r}, not on {device} {cuda_kernel}")
    if cudnn and "cudnn" not in facts["backend"]:
        raise SystemExit(f"{what} ran on {facts['backend']!r}, without cuDNN")


def run(workers, device, nccl_library, cuda_kernel="", cudnn_library="", start_seconds=START_SECONDS):
    os.environ.update({name: value for name, value in NCCL.items() if name not in os.environ})
    flags = {"--device": device, "--threads": "2", "--staging-bytes": "1GiB", "--device-bytes": "2GiB", "--measure-time": "50ms"}
    if nccl_library:
        flags["--nccl-library"] = nccl_library
    if cuda_kernel:
        flags["--cuda-kernel"] = cuda_kernel
    if cudnn_library:
        flags["--cudnn-library"] = cudnn_library
    with GpuProcesses(workers, flags, start_seconds) as service:
        for number, (shape, mask) in enumerate(JOBS):
            ranks = ("--world-size", str(workers))
            if workers > 1:
                ranks += ("--strategy", STRATEGIES[number % len(STRATEGIES)])
            facts = ask(service, "attend", "--synthetic", shape, "--mask", mask, *ranks)
            check_device(facts, device, shape, cuda_kernel, bool(cudnn_library))
            verified = facts["verified"]
            print(f"{shape} {mask} {facts['strategy']} on {facts['backend']}: {facts['running_seconds']:.4f} s, error "
                  f"{verified['output_error']:.3g} of {verified['output_budget']:.3g} allowed")
        for shape, mask in GRADIENT_JOBS:
            facts = ask(service, "gradients", "--synthetic", shape, "--mask", mask, "--world-size", str(workers))
            check_device(facts, device, shape, cuda_kernel, bool(cudnn_library))
            verified = facts["verified"]
            print(f"gradients {shape} {mask} {facts['strategy']} on {facts['backend']}: {facts['running_seconds']:.4f} s, "
                  f"{verified['worst_tensor']} off by {verified['error']:.3g} of {verified['budget']:.3g} allowed")


def main(arguments):
    parser = argparse.ArgumentParser(prog="tests.gpu.end_to_end", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--nccl-library", default="")
    parser.add_argument("--cuda-kernel", default="", help="that of the workers, and of every answer")
    parser.add_argument("--cudnn-library", default="")
    parser.add_argument("--start-seconds", type=int, default=START_SECONDS)
    flags = parser.parse_args(arguments)
    run(flags.workers, flags.device, flags.nccl_library, flags.cuda_kernel, flags.cudnn_library, flags.start_seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
