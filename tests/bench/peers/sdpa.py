"""PyTorch's scaled_dot_product_attention on the CPU against our kernel, in turn, on the same shapes.

Both get 2 threads. Ours is the benchmark `kernel`, whose figure for each shape is asked for right
after PyTorch's; the ratio is ours over theirs.
"""

import json
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional

THREADS = 2
REPEATS = 5
# Name of the kernel benchmark's case -> (dtype, rows, query heads, key heads, dim, causal).
CASES = {
    "fp32 full 4k": (torch.float32, 4096, 4, 4, 128, False),
    "fp32 causal 8k": (torch.float32, 8192, 2, 2, 128, True),
    "bf16 full 4k": (torch.bfloat16, 4096, 4, 4, 128, False),
    "bf16 causal 8k": (torch.bfloat16, 8192, 2, 2, 128, True),
    "fp16 full 4k": (torch.float16, 4096, 4, 4, 128, False),
}


def peer_rates(dtype, rows, q_heads, kv_heads, dim, causal):
    """GFLOP/s of each repeat; the first call, which does not count, touches all memory."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(1, q_heads, rows, dim, generator=generator).to(dtype)
    k, v = (torch.randn(1, kv_heads, rows, dim, generator=generator).to(dtype) for _ in range(2))
    pairs = rows * (rows + 1) // 2 if causal else rows * rows
    flops = 4 * pairs * q_heads * dim
    rates = []
    for repeat in range(REPEATS + 1):
        begin = time.perf_counter()
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        if repeat > 0:
            rates.append(flops / (time.perf_counter() - begin) / 1e9)
    return rates


def our_rate(kernel, case):
    done = subprocess.run(
        [kernel, "--threads", str(THREADS), case], capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)[0]["value"]


def main():
    torch.set_num_threads(THREADS)
    kernel = os.path.join(os.environ["ANNULUS_BENCH_BIN"], "tests", "bench", "kernel")
    entries = []
    for case, shape in CASES.items():
        rates = peer_rates(*shape)
        theirs = statistics.median(rates)
        ours = our_rate(kernel, case)
        entries.append(
            {
                "name": f"sdpa {case}, {THREADS} threads",
                "value": theirs,
                "unit": "GFLOP/s",
                "compared_to": f"ours over PyTorch {torch.__version__} on the same shape, same run",
                "ratio": ours / theirs,
                "better": "higher",
                "bar": None,
                "met": None,
                "ceiling": None,
                "repeats": REPEATS,
                "spread": (max(rates) - min(rates)) / theirs,
            }
        )
    print(json.dumps(entries))


if __name__ == "__main__":
    main()
