"""Our kernel, the machine's roof and PyTorch's scaled_dot_product_attention in turn, on the same shapes and threads.

One round is the roof, ours, theirs; ratios are of rounds, medians of REPEATS of them. Shapes: every length, type, direction at 128
dimensions, and dimensions, masks and grouped heads at 4k and 8k; with ANNULUS_BENCH_GRID=whole all of them together (hours), with
ANNULUS_BENCH_GRID=picture those that tools/testing/roofline.py draws. Last come the errors of all paths beside PyTorch's.
"""

import itertools
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional

from benchmarks import path_errors
from benchmarks.path_errors import DTYPES
from benchmarks.rounds import THREADS, alternate, entry, kernel_rounds

REPEATS = 5
WINDOW = 1024
LENGTHS = (2048, 4096, 8192, 16384)
HEADS = {"MHA": (4, 4), "GQA": (8, 2)}
# Lower limits from 4k on, relative to the roof and to PyTorch, by (dtype, dim, mask) of the forward
# pass.
BARS_AMX = {
    ("bf16", 128, "full"): (0.56, 2.8), ("bf16", 128, "causal"): (0.47, 2.6), ("bf16", 64, "full"): (None, 3.0),
    ("fp32", 128, "full"): (0.80, 1.3), ("bf16x3", 128, "full"): (None, 3.7),
}
BARS = {("fp32", 128, "full"): (0.82, None), ("bf16", 128, "full"): (0.80, None), ("bf16", 64, "full"): (0.74, None)}
GRADIENTS_OVER_FORWARD = 0.8


def cases():
    """(dtype, length, dim, mask, heads, gradients); bf16x3 is fp32 with that arithmetic, forward only."""
    types = (*DTYPES, "bf16x3")
    grid = os.environ.get("ANNULUS_BENCH_GRID")
    if grid == "picture":
        return list(itertools.product(DTYPES, LENGTHS, (128,), ("full", "causal"), ("MHA",), (False,)))
    if grid == "whole":
        return [case for case in itertools.product(types, LENGTHS, (64, 128, 256), ("full", "causal", "window"), HEADS, (False, True))
                if case[0] in DTYPES or not case[5]]
    chosen = []
    for dtype, gradients in itertools.product(types, (False, True)):
        if dtype == "bf16x3" and gradients:
            continue
        # Without AMX PyTorch takes minutes for one longer run of these.
        slow = dtype == "fp16" and gradients
        chosen += [(dtype, length, 128, mask, "MHA", gradients) for length in LENGTHS[: 2 if slow else None] for mask in ("full", "causal")]
        for length in (4096,) if slow else (4096, 8192):
            chosen += [(dtype, length, dim, "full", "MHA", gradients) for dim in (64, 256)]
            chosen += [(dtype, length, 128, "window", "MHA", gradients), (dtype, length, 128, "causal", "GQA", gradients)]
    return chosen


class Theirs:
    def __init__(self, dtype, length, dim, mask, heads, gradients):
        generator = torch.Generator().manual_seed(1)
        of_type = DTYPES.get(dtype, torch.float32)

        def tensor(count):
            return torch.randn(1, count, length, dim, generator=generator).to(of_type).requires_grad_(gradients)

        q_heads, kv_heads = heads
        self.q, self.k, self.v = tensor(q_heads), tensor(kv_heads), tensor(kv_heads)
        self.options = {"is_causal": mask == "causal", "enable_gqa": q_heads != kv_heads}
        if mask == "window":
            away = torch.arange(length)[:, None] - torch.arange(length)[None, :]
            self.options["attn_mask"] = (away >= 0) & (away < WINDOW)
        self.d_out = torch.randn(1, q_heads, length, dim, generator=generator).to(of_type) if gradients else None

    def run(self):
        """Seconds of the forward pass, or of the backward pass alone."""
        begin = time.perf_counter()
        out = torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, **self.options)
        if self.d_out is not None:
            begin = time.perf_counter()
            torch.autograd.grad(out, (self.q, self.k, self.v), self.d_out)
        return time.perf_counter() - begin


def measure(ours, case):
    dtype, length, dim, mask, heads, gradients = case
    kind = ("fp32", "bf16x3") if dtype == "bf16x3" else (dtype, "of-type")
    q_heads, kv_heads = HEADS[heads]
    operation = "gradients" if gradients else "forward"
    what = ours.ask(f"case {kind[0]} {kind[1]} {length} {length} {q_heads} {kv_heads} {dim} "
                    f"{WINDOW if mask == 'window' else mask} {operation}")
    if not what.get("served", True):
        return None
    theirs = Theirs(dtype, length, dim, mask, HEADS[heads], gradients)
    theirs.run()
    roofs, own, other = alternate(ours, what, theirs, REPEATS)
    of_roof, over_torch = None, None
    if length >= 4096 and heads == "MHA" and not gradients:
        of_roof, over_torch = (BARS_AMX if what["path"] == "amx" else BARS).get((dtype, dim, mask), (None, None))
    name = f"{operation} {dtype} S{length} D{dim} {mask} {heads}, {THREADS} threads"
    rate, roof = statistics.median(own), statistics.median(roofs)
    return rate, [
        entry(f"{name}, of {what['roof']}", rate, "GFLOP/s", f"{what['roof']} on {what['cpu']}, path {what['path']}, in turn",
              [a / b for a, b in zip(own, roofs)], of_roof, roof),
        entry(f"{name}, over PyTorch", rate, "GFLOP/s", f"PyTorch {torch.__version__} SDPA at {statistics.median(other):.4g} GFLOP/s, in turn",
              [a / b for a, b in zip(own, other)], over_torch, roof),
    ]


def main():
    torch.set_num_threads(THREADS)
    ours, entries, forward = kernel_rounds(), [], {}
    for case in cases():
        measured = measure(ours, case)
        if measured is None:
            print("not served by this path:", *case, file=sys.stderr)
            continue
        rate, of_case = measured
        # Hours may lie between the first and the last: nothing waits for the end to be seen.
        for each in of_case:
            print(f"{each['name']}: {each['value']:.4g} GFLOP/s, {each['ratio']:.3f}", file=sys.stderr, flush=True)
        entries += of_case
        if not case[5]:
            forward[case[:5]] = rate
        elif case[:5] in forward:
            by_amx = case[0] != "fp32" and "path amx" in of_case[0]["compared_to"]
            bar = GRADIENTS_OVER_FORWARD if case[1] >= 4096 and not by_amx else None
            entries.append(entry(of_case[0]["name"].split(", of ")[0] + ", over own forward", rate, "GFLOP/s",
                                 "the forward pass of the same shape, same run", [rate / forward[case[:5]]], bar, forward[case[:5]]))
    ours.close()
    print(json.dumps(entries + path_errors.entries()))


if __name__ == "__main__":
    main()
