"""AttendInline from a shell: options as JSON by grpcurl, on one worker and on several, judged by numpy in fp64."""

import json
import math
import os
import subprocess
import unittest

import numpy

from tests.end_to_end import cluster
from tests.end_to_end.attend_case import hidden_by, kept_weights, mask_of

HEADS, KV_HEADS, DIM, ROWS, KEYS = 4, 2, 8, 30, 37
SLOPES, SINKS = [0.5, 0.25, 0.125, -0.0625], [2.0, -1.0, 0.5, 4.0]
RANGES = [{"qBegin": 2, "qEnd": 20, "kBegin": 1, "kEnd": 25, "kind": "KIND_CAUSAL"}, {"qBegin": 0, "qEnd": 30, "kBegin": 30, "kEnd": 37}]
WHOLE = {"qBegin": 0, "qEnd": ROWS, "kBegin": 0, "kEnd": KEYS}
EVERY = numpy.ones((HEADS, ROWS, KEYS), bool)
MASKS = {
    "ranges": [{"ranges": RANGES}],
    "inverse causal": [{"ranges": [{**WHOLE, "kind": "KIND_INVERSE_CAUSAL"}]}],
    "bi-causal": [{"ranges": [{**WHOLE, "kind": "KIND_BI_CAUSAL"}]}],
    "prefix": [{"causal": True, "prefix": "12"}],
    "chunk": [{"chunk": 8}],
    "window": [{"windowLeft": 5, "windowRight": "3", "alwaysVisible": 2}],
    "top left": [{"causal": True, "alignment": "ALIGNMENT_TOP_LEFT"}],
    "of heads": [{"causal": True}, {"queryHeads": [1, 3]}],
}


class InlineJsonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(cluster.Serve(3, "--threads", "1"))
        random = numpy.random.default_rng(4)
        shapes = {"q": (ROWS, HEADS, DIM), "k": (KEYS, KV_HEADS, DIM), "v": (KEYS, KV_HEADS, DIM), "lseOffset": (ROWS, HEADS, 1),
                  "bias": (ROWS, HEADS, KEYS)}
        cls.tensors = {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}
        cls.tensors["bitMask"] = (random.random((ROWS, HEADS, KEYS)) < 0.6).astype(numpy.float32)

    def inline(self, spec, world, *more):
        """(output, LSE in [heads, rows], the answer) of the spec, with these tensors beside q, k and v."""
        shape = {"dtype": "DATA_TYPE_FP32", "qHeads": HEADS, "kvHeads": KV_HEADS, "headDim": DIM,
                 "sequences": [{"qLen": ROWS, "kvLen": str(KEYS)}]}
        tensors = {name: {"shape": self.tensors[name].shape, "values": self.tensors[name].ravel().tolist()} for name in ("q", "k", "v", *more)}
        request = {"spec": {**shape, **spec}, "execution": {"worldSize": world}, "tensors": tensors}
        done = subprocess.run([os.path.abspath("external/python_tools/grpcurl"), "-plaintext", "-max-time", "60", "-d", "@",
                               self.service.address, "annulus.v1.Attention/AttendInline"],
                              input=json.dumps(request), capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, f"{spec}\n{done.stderr}")
        answer = json.loads(done.stdout)
        out, lse = (numpy.array([float(value) for value in answer[name]["values"]]) for name in ("out", "lse"))
        return out.reshape(ROWS, HEADS, DIM), lse.reshape(ROWS, HEADS).T, answer

    def exact(self, visible, change=lambda scores: scores, kept=None, sinks=None):
        q, k, v = (numpy.repeat(self.tensors[name].astype(float), HEADS // self.tensors[name].shape[1], axis=1) for name in "qkv")
        scores = change(numpy.einsum("ihd,jhd->hij", q, k) / DIM**0.5)
        weights = numpy.where(visible, numpy.exp(scores), 0)
        total = weights.sum(axis=2) + (0 if sinks is None else numpy.exp(sinks)[:, None])
        with numpy.errstate(divide="ignore"):
            lse = numpy.log(total)
        weights /= numpy.where(total == 0, 1, total)[:, :, None]
        return numpy.einsum("hij,jhd->ihd", weights if kept is None else weights * kept, v), lse

    def check(self, name, spec, exact, *more, base=math.e):
        plain = self.exact(EVERY)
        for world in (1, 3):
            with self.subTest(option=name, world=world):
                out, lse, answer = self.inline(spec, world, *more)
                stats = answer["stats"]
                self.assertEqual(stats["execution"]["world_size"], world)
                self.assertEqual(stats["lse_base"], "LSE_BASE_2" if base == 2 else "LSE_BASE_E")
                self.assertGreaterEqual(stats["balance"], 1)
                numpy.testing.assert_allclose(out, exact[0], rtol=1e-5, atol=5e-6)
                numpy.testing.assert_allclose(lse, exact[1] / math.log(base), rtol=1e-5, atol=1e-5)
                self.assertGreater(max(numpy.abs(out - plain[0]).max(), numpy.abs(lse - plain[1]).max()), 0.01)

    def test_masks(self):
        for name, masks in MASKS.items():
            visible = [~hidden_by(mask_of(masks, head), ROWS, KEYS) for head in range(HEADS)]
            self.check(name, {"masks": masks}, self.exact(numpy.stack(visible)))

    def test_scores_and_outputs(self):
        tensors = self.tensors
        offset, bias = tensors["lseOffset"][:, :, 0].T[:, :, None], tensors["bias"].transpose(1, 0, 2)
        away = numpy.array(SLOPES)[:, None, None] * numpy.abs(numpy.arange(ROWS)[:, None] + KEYS - ROWS - numpy.arange(KEYS))
        rate, seed = 0.25, 2**40 + 5
        kept = kept_weights(rate, seed, HEADS, ROWS, KEYS)
        for name, spec, exact, more in (
            ("scale", {"scale": -0.5}, self.exact(EVERY, lambda s: s * -0.5 * DIM**0.5), ()),
            ("soft cap", {"modifiers": {"softCap": 0.75}}, self.exact(EVERY, lambda s: 0.75 * numpy.tanh(s / 0.75)), ()),
            ("alibi", {"modifiers": {"alibiSlopes": SLOPES}}, self.exact(EVERY, lambda s: s - away), ()),
            ("sinks", {"modifiers": {"sinks": SINKS}}, self.exact(EVERY, sinks=SINKS), ()),
            ("bias", {"modifiers": {"bias": {"heads": HEADS}}}, self.exact(EVERY, lambda s: s + bias), ("bias",)),
            ("offset", {"modifiers": {"lseOffset": True}}, self.exact(EVERY, lambda s: s + offset), ("lseOffset",)),
            ("dropout", {"dropout": {"rate": rate, "seed": str(seed)}}, self.exact(EVERY, kept=kept), ()),
        ):
            self.check(name, spec, exact, *more)
        self.check("base 2", {"outputs": {"lseBase": "LSE_BASE_2"}}, self.exact(EVERY), base=2)

    def test_bit_mask(self):
        visible = self.tensors["bitMask"].transpose(1, 0, 2) == 1
        self.check("bit mask", {"masks": [{"bitMask": True}], "bitMaskHeads": HEADS}, self.exact(visible), "bitMask")

    def test_max_logit(self):
        q, k = (numpy.repeat(self.tensors[name].astype(float), HEADS // self.tensors[name].shape[1], axis=1) for name in "qk")
        scores = numpy.einsum("ihd,jhd->hij", q, k) / DIM**0.5
        for world in (1, 3):
            _, _, answer = self.inline({"outputs": {"maxLogit": True}}, world)
            largest = numpy.array(answer["max_logit"]["values"], float).reshape(ROWS, HEADS).T
            numpy.testing.assert_allclose(largest, scores.max(axis=2), rtol=1e-5, atol=1e-6)

    def test_both_bases_say_the_same(self):
        for world in (1, 3):
            _, natural, _ = self.inline({}, world)
            _, binary, _ = self.inline({"outputs": {"lseBase": "LSE_BASE_2"}}, world)
            numpy.testing.assert_allclose(binary * math.log(2), natural, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
