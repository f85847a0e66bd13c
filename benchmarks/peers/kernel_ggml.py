"""Our kernel, the machine's roof and ggml's flash attention in turn, on the same shapes and threads.

One round is the roof, ours, theirs; ratios are of rounds, medians of REPEATS of them. ggml takes queries of fp32 and keys and values
of fp32, fp16 or bf16; it is built for the processor that it runs on. One row of what it computes is held against fp64.
"""

import ctypes
import json
import statistics
import time

import ggml
import numpy

from benchmarks.rounds import THREADS, alternate, entry, kernel_rounds

REPEATS = 5
HEADS, DIM = 8, 128
LENGTHS = (2048, 4096)
TYPES = {"fp32": ggml.GGML_TYPE_F32, "fp16": ggml.GGML_TYPE_F16, "bf16": ggml.GGML_TYPE_BF16}
# Our type, their keys', and what ours has to reach over theirs where it has no AMX.
CASES = (("fp32", "fp32", 2.7), ("bf16", "fp16", 5.5), ("fp16", "fp16", None), ("bf16", "bf16", None))


def numbers_of(dtype, numbers):
    """Bytes of a type; numbers of bf16 are cut off."""
    if dtype == "bf16":
        return (numbers.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
    return numbers.astype({"fp32": numpy.float32, "fp16": numpy.float16}[dtype]).tobytes()


class Theirs:
    def __init__(self, kv_dtype, length):
        shape = (HEADS, length, DIM)
        random = numpy.random.default_rng(1)
        self.q, self.k, self.v = (random.standard_normal(shape, dtype=numpy.float32) for _ in range(3))
        bytes_of_all = 6 * HEADS * length * DIM * 4 + (64 << 20)
        self.context = ggml.ggml_init(ggml.ggml_init_params(mem_size=bytes_of_all, mem_buffer=None))
        q, k, v = (self.tensor(*of) for of in (("fp32", self.q), (kv_dtype, self.k), (kv_dtype, self.v)))
        self.out = ggml.ggml_flash_attn_ext(self.context, q, k, v, None, DIM**-0.5, 0.0, 0.0)
        self.graph = ggml.ggml_new_graph(self.context)
        ggml.ggml_build_forward_expand(self.graph, self.out)

    def tensor(self, dtype, numbers):
        heads, length, dim = numbers.shape
        tensor = ggml.ggml_new_tensor_4d(self.context, TYPES[dtype], dim, length, heads, 1)
        data = numbers_of(dtype, numbers)
        ctypes.memmove(ggml.ggml_get_data(tensor), data, len(data))
        return tensor

    def run(self):
        begin = time.perf_counter()
        if ggml.ggml_graph_compute_with_ctx(self.context, self.graph, THREADS) != 0:
            raise SystemExit("ggml failed")
        return time.perf_counter() - begin

    def check(self):
        """The last row of the first head; fp16 and bf16 keys are off by their rounding."""
        length = self.q.shape[1]
        data = ctypes.cast(ggml.ggml_get_data(self.out), ctypes.POINTER(ctypes.c_float))
        got = numpy.ctypeslib.as_array(data, (length, HEADS, DIM))[-1, 0].astype(numpy.float64)
        q, k, v = (tensor[0].astype(numpy.float64) for tensor in (self.q, self.k, self.v))
        scores = k @ q[-1] * DIM**-0.5
        weights = numpy.exp(scores - scores.max())
        wrong = numpy.abs(got - weights @ v / weights.sum()).max()
        if not wrong < 1e-2:
            raise SystemExit(f"ggml's output is off by {wrong}")

    def close(self):
        ggml.ggml_free(self.context)


def measure(ours, dtype, kv_dtype, length, bar):
    what = ours.ask(f"case {dtype} of-type {length} {length} {HEADS} {HEADS} {DIM} full forward")
    theirs = Theirs(kv_dtype, length)
    theirs.run()
    theirs.check()
    roofs, own, other = alternate(ours, what, theirs, REPEATS)
    theirs.close()
    name = f"forward {dtype} S{length} D{DIM} full, {THREADS} threads, over ggml with keys of {kv_dtype}"
    compared_to = f"ggml's flash attention at {statistics.median(other):.4g} GFLOP/s on {what['cpu']}, ours by {what['path']}, in turn"
    return entry(name, statistics.median(own), "GFLOP/s", compared_to, [a / b for a, b in zip(own, other)],
                 None if what["path"] == "amx" else bar, statistics.median(roofs))


def main():
    ggml.ggml_cpu_init()
    ours = kernel_rounds()
    print(json.dumps([measure(ours, *case[:2], length, case[2]) for case in CASES for length in LENGTHS]))


if __name__ == "__main__":
    main()
