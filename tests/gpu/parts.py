"""The parts of a run on a GPU. Limits are about four times what an H200 beside 16 CPUs takes, where that is known."""

import dataclasses
import os
import shutil
import sys

from tests.gpu.end_to_end import START_SECONDS
from tests.gpu.results import SKIPPED_CODE
from tests.gpu.runner import Part

CUDNN_SUITES = ("conformance", "special_values")
KERNEL_SUITES = ("conformance", "dropout", "gradient_conformance", "gradient_pairs", "modifiers", "pairs", "special_values")
# Small enough for a checker that slows a kernel down a hundred times: of each suite, parts of the cases' names.
CHECKED_CASES = {
    "special_values": ("RowsWithoutKeys", "ARowThatSeesNothing", "WhatIsMasked"),
    "gradient_conformance": ("RowsAndKeysWithoutPartners", "ARowWhoseLseIsMinusInfinity"),
}
NO_HOPPER = "the kernel for Hopper needs a GPU of sm_90"
HOPPER_CHECK = "hopper_check"
# The message of compute-sanitizer about a GPU, or a virtual machine's GPU, that it does not
# support.
NO_SANITIZING = "Device not supported"
# Time of a part with workers, without their start.
OWN_SECONDS = 15
SANITIZER_PLACES = ("/usr/local/cuda/bin/compute-sanitizer", "/opt/cuda/bin/compute-sanitizer")


def find_sanitizer():
    return shutil.which("compute-sanitizer") or next((path for path in SANITIZER_PLACES if os.access(path, os.X_OK)), None)


def staged(stage, parts, doubted_after=""):
    return [dataclasses.replace(part, stage=stage, doubted_after=doubted_after) for part in parts]


def gtest(program, name, title, seconds, *flags, before=(), environment=None):
    command = [*before, program, f"--gtest_output=json:{name}.json", *flags]
    return Part(name, title, seconds, command, "gtest", environment or {})


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Same start as in run.sh: the folder where a part runs must not shadow our packages.
START = 'import runpy, sys; sys.path[0] = sys.argv.pop(1); runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)'


def script(module, *arguments):
    return [sys.executable, "-c", START, ROOT, f"tests.gpu.{module}", *arguments]


def skip(reason):
    """The command of a part for which the machine lacks something."""
    return [sys.executable, "-c", f"print({reason!r}); raise SystemExit({SKIPPED_CODE})"]


def checked(place, tool, suite, hopper):
    """One kernel's cases: what a checker says of the one should not stand against the other."""
    name = f"sanitizer_{tool}_{'hopper_' if hopper else ''}{suite}"
    title = f"compute-sanitizer's {tool} on a small part of the suite {suite}, {'the kernel for Hopper' if hopper else 'the portable kernel'}"
    sanitizer = find_sanitizer()
    if sanitizer is None:
        return Part(name, title, 10, skip("no compute-sanitizer here"))
    if hopper and not place.hopper:
        return Part(name, title, 10, skip(NO_HOPPER))
    before = [sanitizer, "--tool", tool, "--error-exitcode", "9"]
    cases = ":".join(f"*{case}*{'/hopper' if hopper else ''}" for case in CHECKED_CASES[suite])
    others = "" if hopper else "-*/hopper:*/cudnn"
    part = gtest(place.test(f"kernel_{suite}_test"), name, title, 90, f"--gtest_filter={cases}{others}", before=before)
    return dataclasses.replace(part, unable=NO_SANITIZING)


def checks(place):
    tools = ("memcheck", "racecheck")
    return staged("checks", [checked(place, tool, suite, False) for tool in tools for suite in CHECKED_CASES]) + staged(
        "hopper_checks", [checked(place, tool, suite, True) for tool in tools for suite in CHECKED_CASES],
        HOPPER_CHECK)


def whole_jobs(place):
    name, title = "whole_jobs", "jobs from end to end beside the longer of their two parts"
    if place.nccl is None:
        return Part(name, title, 10, skip("no NCCL here, which a worker with a GPU loads"))
    return Part(name, title, 120, script("whole_jobs", "whole_jobs.json", "--nccl-library", place.nccl), "figures",
                {"ANNULUS_PROGRAMS": place.programs})


def end_to_end(place, name, title, seconds, *flags):
    """A start that takes too long ends before the part does, with the workers' logs."""
    command = script("end_to_end", *flags, "--nccl-library", place.nccl, "--start-seconds", str(seconds - OWN_SECONDS))
    return Part(name, title, seconds, command, environment={"ANNULUS_PROGRAMS": place.programs})


def jobs(place, name, workers, kernel, seconds):
    title = f"jobs by {workers} worker{'s' if workers > 1 else ''} with --device cuda:0 --cuda-kernel {kernel}, answers judged in fp64"
    if place.nccl is None:
        return Part(name, title, 10, skip("no NCCL here, which a worker with a GPU loads"))
    return end_to_end(place, name, title, seconds, "--workers", str(workers), "--cuda-kernel", kernel)


def portable_parts(place):
    """Nothing of these runs the kernel for Hopper, which might leave a GPU unable to run anything."""
    nccl = {"ANNULUS_NCCL_LIBRARY": place.nccl} if place.nccl else {}
    parts = [gtest(place.test("device_test"), "device", "copies, queues and events on CUDA's runtime", 30)]
    parts += [gtest(place.test(f"kernel_{suite}_test"), f"kernel_{suite}", f"the kernel's suite {suite}, on the GPU", 30,
                    "--gtest_filter=-*/hopper:*/cudnn") for suite in KERNEL_SUITES]
    parts += [
        gtest(place.test("virtual_ranks_test"), "virtual_ranks", "jobs of every strategy by ranks that share the GPU", 45,
              "--gtest_filter=-*Hopper*"),
        gtest(place.test("nccl_ranks_test"), "nccl_ranks", "NCCL between two processes on the GPU", 45, environment=nccl),
        *(jobs(place, f"jobs_{workers}", workers, "portable", 45) for workers in (1, 2)),
    ]
    return staged("portable", parts)


def hopper_parts(place):
    """The same with the kernel for Hopper; its check at a worker's start comes first, by itself."""
    worker = os.path.join(place.programs, "annulus-worker")
    check = Part(HOPPER_CHECK, "the check of the kernel for Hopper at a worker's start", 30, [worker, "--check-hopper-on", "cuda:0"])
    parts = [Part("hopper_gradients_check", "the check of the kernel for gradients on Hopper at a worker's start", 30,
                  [worker, "--check-hopper-gradients-on", "cuda:0"])]
    parts += [gtest(place.test(f"kernel_{suite}_test"), f"hopper_kernel_{suite}", f"the suite {suite} with the kernel for Hopper", 30,
                    "--gtest_filter=*/hopper") for suite in KERNEL_SUITES]
    parts += [
        gtest(place.test("virtual_ranks_test"), "hopper_virtual_ranks", "jobs of every strategy with the kernel for Hopper", 45,
              "--gtest_filter=*Hopper*"),
        *(jobs(place, f"hopper_jobs_{workers}", workers, "hopper", START_SECONDS + OWN_SECONDS) for workers in (1, 2)),
    ]
    if place.hopper:
        return staged(HOPPER_CHECK, [check]) + staged("hopper", parts, HOPPER_CHECK)
    return staged("hopper", [Part(part.name, part.title, 10, skip(NO_HOPPER)) for part in (check, *parts)])


def cudnn_of(place):
    return {"ANNULUS_CUDNN_LIBRARY": place.cudnn} if place.cudnn else {}


def cudnn_parts(place):
    parts = [gtest(place.test(f"kernel_{suite}_test"), f"cudnn_kernel_{suite}", f"the suite {suite} with cuDNN", 45,
                   "--gtest_filter=*/cudnn", environment=cudnn_of(place)) for suite in CUDNN_SUITES]
    name, title = "cudnn_jobs", "jobs by a worker with cuDNN, whose start checks its numbers"
    if place.nccl is None or place.cudnn is None:
        parts.append(Part(name, title, 10, skip("no NCCL or no cuDNN here")))
    else:
        # Errors of the Hopper kernel must not count as cuDNN's.
        flags = ("--workers", "1", "--cuda-kernel", "portable", "--cudnn-library", place.cudnn)
        parts.append(end_to_end(place, name, title, 60, *flags))
    return staged("cudnn", parts)


def bench(place, kernel, title, seconds, environment=None):
    """A process for each kernel: one that leaves the GPU unable to run anything leaves the others' figures."""
    name = "bench" if kernel == "portable" else f"bench_{kernel}"
    if kernel == "hopper" and not place.hopper:
        return Part(name, title, 10, skip(NO_HOPPER))
    return Part(name, title, seconds, [place.test("gpu_bench"), kernel, f"{name}.json"], "figures", environment or {},
                doubted_after=HOPPER_CHECK if kernel == "hopper" else "")


def all_parts(place):
    """`place` says where programs are: test(name), programs; nccl and cudnn, NCCL's library and cuDNN's or None; hopper, whether the
    GPU is of sm_90."""
    measurements = [
        bench(place, "portable", "the portable kernel: its shapes, decoding, carried state, gradients, virtual ranks, memory", 90),
        bench(place, "hopper", "the kernel for Hopper: its shapes, decoding, carried state, gradients, virtual ranks, memory", 90),
        bench(place, "cudnn", "what a worker with cuDNN computes by: its shapes", 60, cudnn_of(place)),
        whole_jobs(place),
        Part("peers", "cuDNN, FlashAttention, a matrix product and a plain read, by torch", 90, script("peers", "figures", "peers.json"),
             "figures"),
    ]
    # By workers with the kernel for Hopper where it is on.
    answers = Part("torch_answers", "answers beside those of torch's SDPA", 100,
                   script("peers", "answers", place.programs, place.nccl or ""))
    return [
        *portable_parts(place), *hopper_parts(place), *staged("hopper", [answers]), *cudnn_parts(place),
        *(dataclasses.replace(part, stage="measurements", alone=True) for part in measurements), *checks(place),
    ]
