"""Gradients of jobs with a bias, a bit mask or an offset of the LSE: real processes, answers judged by numpy and by --verify."""

import json
import os
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from tests.end_to_end.attend_case import LAYOUTS, AttendCase

STRATEGIES = ("ring-pass-kv", "all-gather-kv", "rotate-kv", "halo", "ring-pass-q", "ulysses", "ulysses-ring", "double-ring", "tree")
HEADS, KV_HEADS, DIM, VALUE_DIM = 4, 2, 16, 24


class Job:
    """One sequence of fp32: scores gain `added` ([heads, rows, keys]), where −inf hides; `offset` is [heads, rows]."""

    def __init__(self, random, q_len, kv_len, added, offset, d_lse=True):
        shapes = {"q": (q_len, HEADS, DIM), "k": (kv_len, KV_HEADS, DIM), "v": (kv_len, KV_HEADS, VALUE_DIM), "d_out": (q_len, HEADS, VALUE_DIM)}
        self.tensors = {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}
        q, k, v = (self.by_head(name) for name in ("q", "k", "v"))
        scores = numpy.einsum("hid,hjd->hij", q, k) / DIM**0.5 + offset[:, :, None] + added
        with numpy.errstate(divide="ignore"):
            lse = numpy.log(numpy.exp(scores).sum(axis=2))
        self.weights = numpy.where(numpy.isinf(lse)[:, :, None], 0, numpy.exp(scores - numpy.where(numpy.isinf(lse), 0, lse)[:, :, None]))
        out = numpy.einsum("hij,hjd->ihd", self.weights, v)
        self.tensors |= {"output": out.astype(numpy.float32), "lse": lse.astype(numpy.float32)}
        if d_lse:
            self.tensors["d_lse"] = random.standard_normal(lse.shape).astype(numpy.float32)

    def by_head(self, name):
        array = self.tensors[name].astype(float).transpose(1, 0, 2)
        return numpy.repeat(array, HEADS // len(array), axis=0)

    def gradients(self):
        """dq, dk, dv, and dS of every pair."""
        q, k, v, d_out, out = (self.by_head(name) for name in ("q", "k", "v", "d_out", "output"))
        delta = (d_out * out).sum(axis=2) - self.tensors.get("d_lse", 0)
        d_scores = self.weights * (numpy.einsum("hid,hjd->hij", d_out, v) - delta[:, :, None])

        def of_keys(array):
            return array.reshape(KV_HEADS, HEADS // KV_HEADS, *array.shape[1:]).sum(axis=1).transpose(1, 0, 2)

        return {"dq": numpy.einsum("hij,hjd->ihd", d_scores, k) / DIM**0.5,
                "dk": of_keys(numpy.einsum("hij,hid->hjd", d_scores, q)) / DIM**0.5,
                "dv": of_keys(numpy.einsum("hij,hid->hjd", self.weights, d_out))}, d_scores


class GradientPairsTest(AttendCase):
    WORKERS = 3

    def run_gradients(self, tensors, *flags):
        source, target = (os.path.join(self.folder, name) for name in ("pairs_in", "pairs_out"))
        save_file({name: numpy.ascontiguousarray(array) for name, array in tensors.items()}, source)
        done = self.service.annulus("gradients", "--json", "--input", source, "--output", target, "--verify", "25", *flags)
        self.assertEqual(done.returncode, 0, f"{flags}\n{done.stdout}\n{done.stderr}")
        self.assertEqual(json.loads(done.stdout)["verified"]["q_rows"], 25)
        return load_file(target)

    def assert_gradients(self, answer, exact, what):
        for name, right in exact.items():
            self.assertEqual(answer[name].shape, right.shape, what)
            numpy.testing.assert_allclose(answer[name], right, rtol=0, atol=4e-6 * max(1, numpy.abs(right).max()), err_msg=f"{what} {name}")

    def test_every_strategy_with_each_and_all(self):
        random = numpy.random.default_rng(1)
        for index, strategy in enumerate(("auto", *STRATEGIES)):
            q_len, kv_len, world = 70, 83, (2, 3, 1)[index % 3]
            flags = ("--strategy", strategy, "--world-size", str(world), "--layout", LAYOUTS[index % 4], "--path", ("direct", "gateway")[index % 2])
            with self.subTest(flags=flags):
                added, offset, extra = numpy.zeros((HEADS, q_len, kv_len)), numpy.zeros((HEADS, q_len)), {}
                if index % 4 != 1:
                    bias = random.standard_normal((1 if index % 2 else HEADS, q_len, kv_len)).astype(numpy.float16)
                    bias[random.random(bias.shape) < 0.1] = -numpy.inf
                    extra["bias"], added = bias, added + bias
                if index % 4 != 2:
                    visible = random.random((HEADS if index % 2 else 1, q_len, kv_len)) < 0.7
                    visible[:, 11] = False  # This row sees nothing.
                    extra["mask"], added = visible, numpy.where(visible, added, -numpy.inf)
                if index % 4 != 3:
                    extra["lse_offset"] = offset = random.standard_normal((HEADS, q_len)).astype(numpy.float32)
                job = Job(random, q_len, kv_len, added, offset, d_lse=index % 3 != 1)
                answer = self.run_gradients({**job.tensors, **extra}, *flags)
                self.assert_gradients(answer, job.gradients()[0], strategy)
                if index % 4 != 2:
                    self.assertTrue((answer["dq"][11] == 0).all())


if __name__ == "__main__":
    unittest.main()
