"""Runs torch on the same card: figures to compare with ours, and answers to compare with ours.

    python3 -m tests.gpu.peers figures FILE.json
    python3 -m tests.gpu.peers answers PROGRAMS NCCL_LIBRARY

Exits with 77 and the reason if there is no torch, or no GPU that it supports.
"""

import json
import os
import statistics
import struct
import sys
import tempfile

from tests.gpu import files
from tests.gpu.results import SKIPPED_CODE

REPEATS = 20
HEADS = 16
# Length, dimension, causal: as gpu_bench has them.
SHAPES = [(length, 128, causal) for length in (8192, 16384, 32768) for causal in (False, True)] + [(16384, 64, False), (16384, 256, False)]
BACKWARD_SHAPES = [(8192, 128, causal) for causal in (False, True)]
READ_BYTES = 1 << 30
FILE_TYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def skip(reason):
    print(reason)
    raise SystemExit(SKIPPED_CODE)


def load_torch():
    try:
        import torch
    except ImportError as error:
        skip(f"no torch here: {error}")
    if not torch.cuda.is_available():
        skip(f"torch {torch.__version__} sees no GPU")
    return torch


def seconds(torch, call):
    """Median time of the call on the device."""
    times = []
    for n in range(REPEATS + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if n >= 3:
            times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def entry(name, amount, time, unit="TFLOP/s"):
    return {"name": name, "value": amount / time / {"TFLOP/s": 1e12, "GB/s": 1e9}[unit], "unit": unit, "compared_to": "",
            "ratio": None, "better": "higher", "bar": None, "met": None, "repeats": REPEATS}


class Figures:
    """In a file that is whole whenever this process is killed."""

    def __init__(self, torch, path):
        # Shown with every ratio.
        self._by = f"by torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
        self._path, self._found = path, []

    def add(self, figure):
        self._found.append({**figure, "compared_to": self._by})
        files.replace(self._path, json.dumps(self._found))
        print(f"{figure['name']}: {figure['value']:.0f} {figure['unit']}", flush=True)


def backward_figures(torch, backends, sdpa_kernel, kept):
    """Figures of cuDNN's backward pass, which need not give the same bits twice."""
    for length, dim, causal in BACKWARD_SHAPES:
        q, k, v, d_out = (torch.randn(1, HEADS, length, dim, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
        pairs = length * (length + 1) / 2 if causal else length * length
        name = f"cudnn backward bf16 S{length} D{dim} {'causal' if causal else 'full'}"
        try:
            with sdpa_kernel(backends.CUDNN_ATTENTION):
                out = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
                time = seconds(torch, lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True))
        except (AttributeError, RuntimeError) as error:
            print(f"{name}: {error}")
            continue
        kept.add(entry(name, 10 * pairs * HEADS * dim, time))


def figures(path):
    torch = load_torch()
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError as error:
        skip(f"torch {torch.__version__} is too old: {error}")
    torch.manual_seed(1)
    kept = Figures(torch, path)
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    kept.add(entry("gemm bf16 8192", 2 * size**3, seconds(torch, lambda: a @ b)))
    much = torch.randn(READ_BYTES // 4, device="cuda")
    kept.add(entry("read", READ_BYTES, seconds(torch, much.sum), "GB/s"))
    del much
    for length, dim, causal in SHAPES:
        q, k, v = (torch.randn(1, HEADS, length, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        pairs = length * (length + 1) / 2 if causal else length * length
        shape = f"forward bf16 S{length} D{dim} {'causal' if causal else 'full'}"
        for prefix, backend in (("cudnn", "CUDNN_ATTENTION"), ("sdpa", "FLASH_ATTENTION")):
            if not hasattr(SDPBackend, backend):
                print(f"torch {torch.__version__} has no {backend}")
                continue
            try:
                with sdpa_kernel(getattr(SDPBackend, backend)):
                    time = seconds(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))
            except RuntimeError as error:
                print(f"{prefix} {shape}: {error}")
                continue
            kept.add(entry(f"{prefix} {shape}", 4 * pairs * HEADS * dim, time))
    backward_figures(torch, SDPBackend, sdpa_kernel, kept)


def save(torch, path, tensors):
    """A safetensors file, byte by byte."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": FILE_TYPES[str(tensor.dtype).split(".")[1]], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load_output(torch, path):
    with open(path, "rb") as file:
        whole = file.read()
    size = struct.unpack("<Q", whole[:8])[0]
    found = json.loads(whole[8 : 8 + size])["output"]
    begin, end = (8 + size + offset for offset in found["data_offsets"])
    dtype = {name: getattr(torch, kind) for kind, name in FILE_TYPES.items()}[found["dtype"]]
    return torch.frombuffer(bytearray(whole[begin:end]), dtype=dtype).reshape(found["shape"])


def judge(torch, service, dtype, causal, folder, seconds):
    """One job by the service and by torch; whether ours is as near to fp64 as theirs, twice over."""
    length, heads, dim = 2000, 4, 128
    q, k, v = (torch.randn(length, heads, dim, device="cuda", dtype=torch.float32).to(dtype) for _ in range(3))
    source, target = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    save(torch, source, {"q": q, "k": k, "v": v})
    mask = "causal" if causal else "full"
    done = service.annulus("attend", "--input", source, "--output", target, "--mask", mask, timeout=seconds)
    if done.returncode != 0:
        raise SystemExit(f"attend: {done.stderr.strip()}\n{service.tail()}")
    ours = load_output(torch, target).cuda().double()
    heads_first = [tensor.transpose(0, 1) for tensor in (q, k, v)]
    exact_q, exact_k, exact_v = (tensor.double() for tensor in heads_first)
    scores = exact_q @ exact_k.transpose(1, 2) * dim**-0.5
    if causal:
        scores.masked_fill_(torch.ones(length, length, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
    exact = (torch.softmax(scores, dim=2) @ exact_v).transpose(0, 1)
    theirs = torch.nn.functional.scaled_dot_product_attention(*(tensor[None] for tensor in heads_first), is_causal=causal)[0]
    of_ours = (ours - exact).abs().max().item()
    of_theirs = (theirs.transpose(0, 1).double() - exact).abs().max().item()
    ulp = torch.finfo(dtype).eps * exact.abs().max().item()
    print(f"{dtype} {mask}: off by {of_ours:.3g}, torch's SDPA by {of_theirs:.3g}, an ulp is {ulp:.3g}")
    return of_ours <= 2 * of_theirs + ulp


def answers(programs, nccl_library):
    torch = load_torch()
    if not nccl_library:
        skip("no NCCL here, which a worker with a GPU loads")
    os.environ["ANNULUS_PROGRAMS"] = programs
    from tests.gpu import end_to_end

    torch.manual_seed(2)
    flags = {"--device": "cuda:0", "--device-bytes": "2GiB", "--nccl-library": nccl_library}
    with tempfile.TemporaryDirectory() as folder, end_to_end.GpuProcesses(1, flags) as service:
        good = [judge(torch, service, dtype, causal, folder, end_to_end.JOB_SECONDS)
                for dtype in (torch.bfloat16, torch.float16, torch.float32) for causal in (False, True)]
    if not all(good):
        raise SystemExit("further from fp64 than twice torch's SDPA")


if __name__ == "__main__":
    {"figures": figures, "answers": answers}[sys.argv[1]](*sys.argv[2:])
