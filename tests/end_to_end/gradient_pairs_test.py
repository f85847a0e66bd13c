"""Gradients of jobs with a bias, a bit mask or an offset of the LSE: real processes, answers judged by numpy and by --verify."""

import json
import os
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from tests.end_to_end.harness.attend_case import ALL_LAYOUTS, GRIDS, LAYOUTS, PATHS, RUNS, AttendCase, every_pair, ranks

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
    WORKERS = 4

    def run_gradients(self, tensors, *flags):
        source, target = (os.path.join(self.folder, name) for name in ("pairs_in", "pairs_out"))
        save_file({name: numpy.ascontiguousarray(array) for name, array in tensors.items()}, source)
        done = self.service.annulus("gradients", "--json", "--input", source, "--output", target, "--verify", "25", *flags)
        self.assertEqual(done.returncode, 0, f"{flags}\n{done.stdout}\n{done.stderr}")
        facts = json.loads(done.stdout)
        self.assertEqual(facts["verified"]["q_rows"], 25)
        asked = dict(zip(flags[::2], flags[1::2]))
        self.assertEqual(str(facts["world_size"]), asked["--world-size"])
        strategy = asked.get("--strategy", "auto")
        self.assertIn(strategy, (facts["strategy"], "auto"))
        if strategy in GRIDS:
            self.assertEqual((facts["ulysses_degree"], facts["ring_degree"]), (2, 2) if strategy == "ulysses-ring" else (1, 4))
        return load_file(target)

    def assert_close(self, answer, right, what, rounding=0):
        self.assertEqual(answer.shape, right.shape, what)
        numpy.testing.assert_allclose(answer, right, rtol=rounding, atol=4e-6 * max(1, numpy.abs(right).max()), err_msg=what)

    def assert_gradients(self, answer, exact, what):
        for name, right in exact.items():
            self.assert_close(answer[name], right, f"{what} {name}")

    def test_every_strategy_with_each_and_all(self):
        random = numpy.random.default_rng(1)
        q_len, kv_len = 70, 83
        # Heads of the bias and of the mask, 0 for none, and whether there is an offset and a gradient into the LSE.
        axes = (RUNS, ALL_LAYOUTS, (HEADS, 1, 0), (HEADS, 1, 0), (True, False), (True, False), PATHS)
        for (strategy, world), layout, bias_heads, mask_heads, with_offset, d_lse, path in every_pair(*axes):
            flags = (*ranks(strategy, world), "--layout", layout, "--path", path)
            with self.subTest(flags=flags, bias=bias_heads, mask=mask_heads, offset=with_offset, d_lse=d_lse):
                added, offset, extra = numpy.zeros((HEADS, q_len, kv_len)), numpy.zeros((HEADS, q_len)), {}
                if bias_heads:
                    bias = random.standard_normal((bias_heads, q_len, kv_len)).astype(numpy.float16)
                    bias[random.random(bias.shape) < 0.1] = -numpy.inf
                    extra["bias"], added = bias, added + bias
                if mask_heads:
                    visible = random.random((mask_heads, q_len, kv_len)) < 0.7
                    visible[:, 11] = False  # This row sees nothing.
                    extra["mask"], added = visible, numpy.where(visible, added, -numpy.inf)
                if with_offset:
                    extra["lse_offset"] = offset = random.standard_normal((HEADS, q_len)).astype(numpy.float32)
                job = Job(random, q_len, kv_len, added, offset, d_lse=d_lse)
                answer = self.run_gradients({**job.tensors, **extra}, *flags)
                self.assert_gradients(answer, job.gradients()[0], strategy)
                if mask_heads:
                    self.assertTrue((answer["dq"][11] == 0).all())

    def test_the_gradient_of_a_bias_by_every_strategy(self):
        random = numpy.random.default_rng(2)
        q_len, kv_len = 60, 75
        for (strategy, world), layout, heads, path in every_pair(RUNS, LAYOUTS, (1, HEADS), PATHS):
            spec = {"gradients": {"dBias": True}, "modifiers": {"bias": {"heads": heads}}}
            flags = (*ranks(strategy, world), "--spec", self.spec_file(spec), "--layout", layout, "--path", path)
            with self.subTest(flags=flags, heads=heads):
                bias = random.standard_normal((heads, q_len, kv_len)).astype(numpy.float32)
                bias[random.random(bias.shape) < 0.1] = -numpy.inf
                job = Job(random, q_len, kv_len, numpy.broadcast_to(bias, (HEADS, q_len, kv_len)), numpy.zeros((HEADS, q_len)))
                answer = self.run_gradients({**job.tensors, "bias": bias}, *flags)
                exact, d_scores = job.gradients()
                self.assert_gradients(answer, exact, strategy)
                self.assert_close(answer["d_bias"], d_scores if heads > 1 else d_scores.sum(axis=0, keepdims=True), strategy)
                self.assertTrue((answer["d_bias"][numpy.isinf(bias)] == 0).all())

    def test_what_one_number_stands_for_is_summed(self):
        """Extents of 1 in the file: the gradient has the same shape, and the type of the bias."""
        random = numpy.random.default_rng(3)
        batch, q_len, kv_len = 2, 40, 50
        for index, shape in enumerate(((1, 1, q_len, kv_len), (q_len, kv_len), (batch, HEADS, 1, kv_len), (HEADS, 1, kv_len), (batch, HEADS, q_len, kv_len))):
            with self.subTest(shape=shape):
                dtype = (numpy.float32, numpy.float16)[index % 2]
                bias = random.standard_normal(shape).astype(dtype)
                whole = numpy.broadcast_to(bias.astype(float), (batch, HEADS, q_len, kv_len))
                jobs = [Job(random, q_len, kv_len, added, numpy.zeros((HEADS, q_len))) for added in whole]
                tensors = {name: numpy.stack([job.tensors[name] for job in jobs]) for name in jobs[0].tensors}
                flags = ("--spec", self.spec_file({"gradients": {"dBias": True}}), "--world-size", str(1 + index % 3))
                answer = self.run_gradients({**tensors, "bias": bias}, *flags)["d_bias"]
                self.assertEqual((answer.shape, answer.dtype), (shape, dtype))
                right = numpy.stack([job.gradients()[1] for job in jobs])
                padded = (1,) * (4 - len(shape)) + shape
                right = right.sum(axis=tuple(axis for axis in range(4) if padded[axis] == 1), keepdims=True).reshape(shape)
                self.assert_close(answer.astype(float), right, str(shape), rounding=1e-3 if dtype == numpy.float16 else 0)

    def test_rows_of_more_than_a_chunk(self):
        """3.2 MB a row of the gradient: fetched head by head."""
        spec = self.spec_file({"gradients": {"dBias": True}, "modifiers": {"bias": {"heads": 4}}})
        for path in ("direct", "gateway"):
            done = self.service.annulus("gradients", "--json", "--synthetic", "1,3,200000,4,1,8,bf16,9", "--spec", spec, "--verify", "2",
                                        "--path", path)
            self.assertEqual(done.returncode, 0, f"{path}\n{done.stdout}\n{done.stderr}")

    def test_a_gradient_without_a_bias_is_refused(self):
        done = self.service.annulus("gradients", "--json", "--synthetic", "1,64,64,4,2,16,fp32,1", "--spec",
                                    self.spec_file({"gradients": {"dBias": True}}))
        self.assertEqual(done.returncode, 3, done.stdout)
        error = json.loads(done.stdout)["error"]
        self.assertEqual((error["reason"], error["fields"][0]["field"]), ("INVALID_MODIFIER", "spec.gradients.d_bias"))


if __name__ == "__main__":
    unittest.main()
