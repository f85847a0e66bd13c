"""How far from fp64 each path of the CPU kernel is, and PyTorch's scaled_dot_product_attention on the same tensors.

Ours is a job of `annulus serve` with one worker of that path; errors are relative to the root mean square of the exact answer, of
gradients the worst of dq, dk and dv.
"""

import os
import tempfile

import safetensors.torch
import torch
import torch.nn.functional

from benchmarks.rounds import entry, kernel_rounds
from tests.end_to_end.harness import cluster

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
HEADS, LENGTH, DIM = 4, 2048, 128
FURTHER = 2.0  # Limit: twice the error of another implementation of the same precision.


def made():
    """q, k, v and d_out, [1, heads, length, dim], fp64."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(1, HEADS, LENGTH, DIM, generator=generator, dtype=torch.float64) for _ in range(4)]


def answers(attend, tensors):
    """The output of attend(q, k, v), and the gradients of q, k and v."""
    *inputs, d_out = tensors
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    output = attend(*inputs)
    return [output.detach(), *torch.autograd.grad(output, inputs, d_out)]


def exactly(q, k, v):
    scores = (q @ k.transpose(2, 3) * DIM**-0.5).masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, dim=3) @ v


def by_torch(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_service(service, tensors, folder, flags):
    """Like `answers`, computed by a running service."""
    source, forward, backward = (os.path.join(folder, name) for name in ("in", "forward", "backward"))
    named = dict(zip(("q", "k", "v", "d_out"), (tensor.contiguous() for tensor in tensors)))

    def ask(verb, target):
        safetensors.torch.save_file(named, source)
        done = service.annulus(verb, "--input", source, "--output", target, "--mask", "causal", "--tensor-layout", "bhsd", *flags)
        if done.returncode != 0:
            raise SystemExit(f"{verb}: {done.stderr.strip()}\n{service.tail()}")
        return safetensors.torch.load_file(target)

    named.update(ask("attend", forward))
    gradients = ask("gradients", backward) if not flags else {}
    return [named["output"], *(gradients[name] for name in ("dq", "dk", "dv") if name in gradients)]


def errors(found, exact):
    """(root mean square, largest) of each answer, relative to the exact one's root mean square."""
    away = [(a.double() - b).abs() / b.square().mean().sqrt() for a, b in zip(found, exact)]
    return [(x.square().mean().sqrt().item(), x.max().item()) for x in away]


def compared(path, dtype, ours, theirs):
    """Entries: forward and, where there are any, gradients."""
    for operation, which in (("forward", slice(0, 1)), ("gradients", slice(1, None))):
        for measure, of in ((0, "root mean square"), (1, "largest")):
            pairs = [(a[measure], b[measure]) for a, b in zip(ours[which], theirs[which])]
            if not pairs:
                continue
            own, other = max(pairs, key=lambda pair: pair[0] / pair[1])
            bar = FURTHER if dtype in DTYPES else None  # bf16x3 is documented as further.
            yield entry(f"error, {operation} {dtype} by {path}, {of}", own, "of the answer's root mean square",
                        f"PyTorch {torch.__version__} SDPA, {other:.3g} of it, same tensors", [own / other], bar, None, better="lower")


class Case:
    """The tensors of a type, the exact answers, and how far PyTorch is from them."""

    def __init__(self, dtype):
        self.tensors = [tensor.to(DTYPES.get(dtype, torch.float32)) for tensor in made()]
        self.exact = answers(exactly, [tensor.double() for tensor in self.tensors])
        self.theirs = errors(answers(by_torch, self.tensors), self.exact)


def entries():
    rounds = kernel_rounds()
    paths = rounds.ask("paths")["paths"]
    rounds.close()
    cases = {dtype: Case(dtype) for dtype in (*DTYPES, "bf16x3")}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            with cluster.Serve(1, f"--worker-flag=--kernel={path['name']}") as service:
                for dtype in (*DTYPES, *(["bf16x3"] if path["bf16x3"] else [])):
                    case, flags = cases[dtype], [] if dtype in DTYPES else ["--arithmetic", "bf16x3"]
                    ours = errors(by_service(service, case.tensors, folder, flags), case.exact)
                    found += compared(path["name"], dtype, ours, case.theirs)
    return found
