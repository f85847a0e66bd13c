"""Starts a service on this machine, runs two jobs through it and says what happened; the program
behind tools/quickstart."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

from tests.end_to_end.harness import cluster

REAL_DATA = "tests/data/minilm_layer3.safetensors"
WORKERS = 2
JOB_SECONDS = 900


def naive(data, causal):
    """Attention with scores and sums in float32: what the error budget is measured by."""
    tokens, heads, dim = data["q"].shape
    out = numpy.empty((tokens, heads, data["v"].shape[2]), numpy.float32)
    hidden = numpy.triu(numpy.ones((tokens, tokens), bool), 1)
    for head in range(heads):
        scores = data["q"][:, head] @ data["k"][:, head].T * numpy.float32(dim**-0.5)
        if causal:
            scores[hidden] = -numpy.inf
        weights = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[:, head] = weights @ data["v"][:, head]
    return out


def worst_of_budget(data, answer, causal):
    """Largest error over its budget (docs/reference/numerics.md), output and LSE; 1 is the limit."""
    kind = "causal" if causal else "full"
    exact, exact_lse = data[f"{kind}_output"], data[f"{kind}_lse"]
    ours, lse = answer["output"].astype(numpy.float64), answer["lse"].astype(numpy.float64)
    if ours.shape != exact.shape or lse.shape != exact_lse.shape:
        raise SystemExit(f"quickstart: shapes {ours.shape} and {lse.shape} are wrong")
    by_head = (0, 2)
    half_ulp = numpy.spacing(numpy.abs(exact).max(axis=by_head).astype(numpy.float32)) / 2
    budget = 2 * numpy.abs(naive(data, causal) - exact).max(axis=by_head) + half_ulp
    errors = numpy.abs(ours - exact).max(axis=by_head)
    lse_budget = 1e-5 * numpy.maximum(1, numpy.abs(exact_lse))
    return errors.max(), float((errors / budget).max()), float((numpy.abs(lse - exact_lse) / lse_budget).max())


def attend(service, *flags):
    """Runs one job; what the client says of it. Its progress bar shows on a terminal."""
    command = [cluster.program(), "attend", "--address", service.address, "--json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=JOB_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"quickstart: annulus attend ended with {done.returncode}")
    return json.loads(done.stdout)


def tell(facts):
    """Prints the facts of a job from the client's answer."""
    ms = {name: facts[f"{name}_seconds"] * 1e3 for name in ("queued", "uploading", "running")}
    sent = ", ".join(f"{count / 1e6:.2f} MB" for count in facts["bytes_sent_per_rank"]) or "nothing"
    print(f"    plan      {facts['strategy']}, {facts['layout']}, {facts['world_size']} workers, {facts['backend']}")
    print(
        f"    time      {facts['seconds'] * 1e3:.1f} ms: queued {ms['queued']:.1f}, "
        f"uploading {ms['uploading']:.1f}, running {ms['running']:.1f} "
        f"(predicted {facts['predicted_seconds'] * 1e3:.1f}; "
        f"waiting for others {facts['exposed_communication_seconds'] * 1e3:.1f})"
    )
    print(
        f"    data      {facts['input_bytes'] / 1e6:.2f} MB in, {facts['output_bytes'] / 1e6:.2f} MB out, "
        f"{facts['path']} path, {facts['gigabytes_per_second']:.3f} GB/s over all; "
        f"each worker sent {sent}"
    )


def run_real_data(service):
    data = load_file(REAL_DATA)
    within = True
    for mask in ("full", "causal"):
        print(f"  layer 3 of all-MiniLM-L6-v2: 761 tokens, 12 heads of 32, fp32, {mask}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.safetensors")
            facts = attend(
                service, "--input", REAL_DATA, "--output", path, "--mask", mask, "--world-size", str(WORKERS)
            )
            error, output_part, lse_part = worst_of_budget(data, load_file(path), mask == "causal")
        good = output_part <= 1 and lse_part <= 1
        within = within and good
        tell(facts)
        print(
            f"    error     {error:.3g} at most against the fp64 answers: {output_part:.2f} of the budget, "
            f"LSE {lse_part:.2f} of its budget: {'good' if good else 'BROKEN'}"
        )
    return within


def run_long_job(service, tokens):
    print(f"  {tokens} tokens, 8 query heads on 2 key/value heads of 64, bf16, causal, synthetic", flush=True)
    facts = attend(
        service,
        *("--synthetic", f"1,{tokens},{tokens},8,2,64,bf16,1", "--mask", "causal"),
        *("--verify", "64", "--timeout", f"{JOB_SECONDS - 60}s"),
    )
    tell(facts)
    verified = facts["verified"]
    print(
        f"    error     {verified['rows']} random rows recomputed in fp64: {verified['output_error']:.3g} of "
        f"{verified['output_budget']:.3g} allowed, LSE {verified['lse_part']:.2f} of its budget: good"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=32768, help="of the long job")
    tokens = parser.parse_args().tokens
    print(f"starting a coordinator and {WORKERS} workers", flush=True)
    with cluster.Serve(WORKERS, measure_time="1s") as service:
        print(f"ready at {service.address}\n\n1. real data", flush=True)
        within = run_real_data(service)
        print("\n2. a long job", flush=True)
        run_long_job(service, tokens)
        code = service.stop()
    print(f"\nstopped everything; annulus serve ended with {code}")
    return 0 if within and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
