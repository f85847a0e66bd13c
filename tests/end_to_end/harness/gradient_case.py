"""Shared by the tests of whole gradients jobs: files in both directions, and a check in numpy."""

import json
import os

import numpy

from tests.end_to_end.harness.attend_case import LARGEST_BUDGET, AttendCase, load_tensors, product, rounded, save_tensors, spacing


def gradients(tensors, hidden, real, dtype, kept=None):
    """dq, dk and dv of one sequence in the float type `real`, from the formulas of docs/reference/numerics.md. In float32 weights, dS
    and the gradients are rounded to `dtype`. `kept`: what dropout multiplies weights by, [heads, rows, keys]."""
    q, k, v, out, d_out = (tensors[name].astype(real) for name in ("q", "k", "v", "output", "d_out"))
    lse = tensors["lse"].astype(real)
    d_lse = tensors["d_lse"].astype(real) if "d_lse" in tensors else numpy.zeros_like(lse)
    naive = real == numpy.float32
    group, scale = q.shape[1] // k.shape[1], real(q.shape[2] ** -0.5)
    dq, dk, dv = (numpy.zeros(array.shape, real) for array in (q, k, v))
    for head in range(q.shape[1]):
        of = head // group
        scores = product(q[:, head], k[:, of].T) * scale
        with numpy.errstate(invalid="ignore", over="ignore"):
            weights = numpy.where(hidden, real(0), numpy.exp(scores - lse[head][:, None]))
        delta = (d_out[:, head] * out[:, head]).sum(axis=1) - d_lse[head]
        factor = real(1) if kept is None else kept[head].astype(real)
        d_scores = weights * (factor * product(d_out[:, head], v[:, of].T) - delta[:, None])
        weights = factor * weights
        if naive:
            weights, d_scores = rounded(weights, dtype), rounded(d_scores, dtype)
        dq[:, head] = product(d_scores, k[:, of]) * scale
        dk[:, of] += product(numpy.ascontiguousarray(d_scores.T), q[:, head]) * scale
        dv[:, of] += product(numpy.ascontiguousarray(weights.T), d_out[:, head])
    return {name: rounded(array, dtype) if naive else array for name, array in (("dq", dq), ("dk", dk), ("dv", dv))}


class GradientCase(AttendCase):
    def gradients(self, *flags, expect=0):
        done = self.service.annulus("gradients", "--json", *flags)
        self.assertEqual(done.returncode, expect, f"{flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def made(self, random, q_len, kv_len, heads=(4, 2), dims=(24, 16), dtype="fp32"):
        shapes = {"q": (q_len, heads[0], dims[0]), "k": (kv_len, heads[1], dims[0]), "v": (kv_len, heads[1], dims[1])}
        return {name: rounded(random.standard_normal(shape), dtype) for name, shape in shapes.items()}

    def forward(self, tensors, spec, dtype):
        """q, k and v with what a forward job gives, and random upstream gradients."""
        source, target = (os.path.join(self.folder, name) for name in ("in", "out"))
        save_tensors(source, tensors, dtype)
        self.attend("--input", source, "--output", target, "--spec", self.spec_file(spec))
        answer, _ = load_tensors(target)
        random = numpy.random.default_rng(7)
        d_out = rounded(random.standard_normal(answer["output"].shape), dtype)
        d_lse = random.standard_normal(answer["lse"].shape).astype(numpy.float32)
        return {**tensors, "output": answer["output"], "lse": answer["lse"], "d_out": d_out, "d_lse": d_lse}

    def run_gradients(self, tensors, spec, dtype, *flags):
        source, target = (os.path.join(self.folder, name) for name in ("upstream", "gradients"))
        save_tensors(source, tensors, dtype, fp32=("lse", "d_lse"))
        facts = self.gradients("--input", source, "--output", target, "--spec", self.spec_file(spec), *flags)
        answer, dtypes = load_tensors(target)
        of_sinks = {"d_sink": "fp32"} if "sinks" in spec.get("modifiers", {}) else {}
        self.assertEqual(dtypes, {"dq": dtype, "dk": dtype, "dv": dtype, **of_sinks})
        return answer, facts

    def assert_gradients(self, answer, tensors, hidden, dtype, what, kept=None):
        exact = gradients(tensors, hidden, numpy.float64, dtype, kept)
        naive = gradients(tensors, hidden, numpy.float32, dtype, kept)
        for name, right in exact.items():
            got = answer[name].astype(numpy.float64)
            self.assertEqual(got.shape, right.shape, what)
            if got.size == 0:
                continue
            largest = numpy.abs(right).max()
            # The naive error of few rows is luck: the largest of all heads counts, and an ulp more.
            budget = 2 * numpy.abs(naive[name] - right).max() + 2 * spacing(numpy.array(largest), dtype)
            self.assertLessEqual(budget, 4 * LARGEST_BUDGET[dtype] * max(1, largest), f"{what} {name}")
            self.assertLessEqual(numpy.abs(got - right).max(), budget, f"{what} {name}")
