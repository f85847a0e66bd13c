"""Our ring of two workers against PyTorch's (_templated_ring_attention over Gloo with the CPU's flash attention), in turn.

Both have two processes of one thread. Theirs rotates by all-to-all and balances causal work, as ours does; its time is that of the
slower rank. The ceiling is what the kernel's own instructions reach on two threads (kernel_rounds), in turn.
"""

import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing

from benchmarks.rounds import Rounds, entry, kernel_rounds

REPEATS = 5
HEADS, DIM = 8, 128
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Without AMX 1.5 and 3 times theirs would be about the roof.
BARS_AMX = {"fp32": 1.5, "bf16": 3.0}
BARS = {"fp32": 1.2, "bf16": 2.0}
CASES = [(dtype, length, mask) for dtype in DTYPES for length in (4096, 8192) for mask in ("full", "causal")]


def rank_main(rank, pipe, store):
    from torch.distributed.tensor.experimental import _attention

    os.dup2(2, 1)  # Gloo talks on standard output.
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    _attention.set_rotate_method("alltoall")
    tensors = causal = None
    while (word := pipe.recv()) is not None:
        if word != "run":
            dtype, length, mask = word
            causal = mask == "causal"
            _attention._cp_options.enable_load_balance = causal
            generator = torch.Generator().manual_seed(rank)
            tensors = [torch.randn(1, HEADS, length // 2, DIM, generator=generator).to(DTYPES[dtype]) for _ in range(3)]
        torch.distributed.barrier()
        begin = time.perf_counter()
        _attention._templated_ring_attention(torch.distributed.group.WORLD, 2, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
                                             *tensors, is_causal=causal)
        pipe.send(time.perf_counter() - begin)
    torch.distributed.destroy_process_group()


class Theirs:
    """Two processes, controlled by pipes."""

    def __init__(self):
        context = torch.multiprocessing.get_context("spawn")
        store = os.path.join(tempfile.mkdtemp(), "store")
        self.pipes = []
        for rank in range(2):
            own, other = context.Pipe()
            context.Process(target=rank_main, args=(rank, other, store), daemon=True).start()
            self.pipes.append(own)

    def ask(self, word):
        """Seconds of the slower rank."""
        for pipe in self.pipes:
            pipe.send(word)
        return max(pipe.recv() for pipe in self.pipes)


def main():
    ours, kernel, theirs, entries = Rounds("ring", in_runfiles=True), kernel_rounds(), Theirs(), []
    for dtype, length, mask in CASES:
        flops = ours.ask(f"case {dtype} {length} {HEADS} {DIM} {mask}")["flops"]
        what = kernel.ask(f"case {dtype} of-type 256 256 1 1 {DIM} full forward")
        theirs.ask((dtype, length, mask))
        roofs, own, other = [], [], []
        for _ in range(REPEATS):
            roofs.append(kernel.ask("roof")["gflops"])
            own.append(flops / ours.ask("run")["seconds"] / 1e9)
            other.append(flops / theirs.ask("run") / 1e9)
        compared_to = f"PyTorch {torch.__version__} ring over Gloo at {statistics.median(other):.4g} GFLOP/s, in turn"
        bar = (BARS_AMX if what["path"] == "amx" else BARS)[dtype] if length == 8192 else None
        entries.append(entry(f"ring of two, {dtype} {mask} {length}, {HEADS} heads of {DIM}", statistics.median(own), "GFLOP/s",
                             compared_to, [a / b for a, b in zip(own, other)], bar, statistics.median(roofs)))
    for pipe in theirs.pipes:
        pipe.send(None)
    ours.close()
    kernel.close()
    print(json.dumps(entries))


if __name__ == "__main__":
    main()
