"""AttendInline from a shell: options as JSON by grpcurl, on one worker and on several by every strategy and layout, judged by
numpy in fp64."""

import itertools
import json
import math
import os
import subprocess
import unittest

import numpy

from tests.end_to_end.harness import cluster
from tests.end_to_end.harness.attend_case import ALL_LAYOUTS, ALL_STRATEGIES, LARGEST_BUDGET, hidden_by, kept_weights, mask_of, rounded

HEADS, KV_HEADS, DIM, ROWS, KEYS = 4, 2, 8, 30, 37
SLOPES, SINKS = [0.5, 0.25, 0.125, -0.0625], [2.0, -1.0, 0.5, 4.0]
RANGES = [{"qBegin": 2, "qEnd": 20, "kBegin": 1, "kEnd": 25, "kind": "KIND_CAUSAL"}, {"qBegin": 0, "qEnd": 30, "kBegin": 30, "kEnd": 37}]
WHOLE = {"qBegin": 0, "qEnd": ROWS, "kBegin": 0, "kEnd": KEYS}
EVERY = numpy.ones((HEADS, ROWS, KEYS), bool)
MASKS = {
    "causal": [{"causal": True}],
    "window and chunk": [{"causal": True, "windowLeft": 12, "chunk": "16"}],
    "ranges": [{"ranges": RANGES}],
    "inverse causal": [{"ranges": [{**WHOLE, "kind": "KIND_INVERSE_CAUSAL"}]}],
    "bi-causal": [{"ranges": [{**WHOLE, "kind": "KIND_BI_CAUSAL"}]}],
    "prefix": [{"causal": True, "prefix": "12"}],
    "chunk": [{"chunk": 8}],
    "window": [{"windowLeft": 5, "windowRight": "3", "alwaysVisible": 2}],
    "top left": [{"causal": True, "alignment": "ALIGNMENT_TOP_LEFT"}],
    "of heads": [{"causal": True}, {"queryHeads": [1, 3]}],
}


# Lengths of documents, one after the other, and the group of masks that each follows.
DOCUMENTS = ((12, 15), (0, 4), (10, 18), (8, 0))
OWN_MASKS = ([{"causal": True}, {"windowLeft": 3, "queryHeads": [2]}], [{"chunk": 5}],
             [{"ranges": [{"qBegin": 0, "qEnd": 7, "kBegin": 2, "kEnd": 16}]}, {"causal": True, "prefix": 3, "queryHeads": [0, 1]}], [{}])
MERGING = ("ring-pass-q", "tree")
WORLDS = (2, 3, 4, 3)  # A cycle that shares no factor with those of strategies and layouts.


def enum(kind, name):
    return f"{kind}_{name}".upper().replace("-", "_")


def several_workers(strategy, layout, world):
    return {"worldSize": world, "strategy": enum("STRATEGY", strategy), "layout": enum("LAYOUT", layout)}


def type_of(name):
    return "fp32" if name is None else name.removeprefix("DATA_TYPE_").lower()


def number(value):
    return value if math.isfinite(value) else "-Infinity"


def documents(groups):
    """The visible pairs of documents with these masks: [heads, rows, keys]."""
    visible = numpy.zeros((HEADS, ROWS, KEYS), bool)
    row = key = 0
    for (q_len, kv_len), masks in zip(DOCUMENTS, groups):
        for head in range(HEADS):
            visible[head, row : row + q_len, key : key + kv_len] = ~hidden_by(mask_of(masks, head), q_len, kv_len)
        row, key = row + q_len, key + kv_len
    return visible


class InlineJsonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(cluster.Serve(4, "--threads", "1"))
        random = numpy.random.default_rng(4)
        shapes = {"q": (ROWS, HEADS, DIM), "k": (KEYS, KV_HEADS, DIM), "v": (KEYS, KV_HEADS, DIM), "lseOffset": (ROWS, HEADS, 1),
                  "bias": (ROWS, HEADS, KEYS), "bitMask": (ROWS, HEADS, KEYS)}
        cls.tensors = {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}
        cls.tensors["bitMask"] = (cls.tensors["bitMask"] < 0.3).astype(numpy.float32)

    def inline(self, spec, execution, tensors):
        """(output, LSE in [heads, rows], the answer) of the spec, with these tensors beside q, k and v, or instead of them."""
        shape = {"dtype": "DATA_TYPE_FP32", "qHeads": HEADS, "kvHeads": KV_HEADS, "headDim": DIM,
                 "sequences": [{"qLen": ROWS, "kvLen": str(KEYS)}]}
        tensors = {**{name: self.tensors[name] for name in "qkv"}, **tensors}
        tensors = {name: {"shape": array.shape, "values": [number(value) for value in array.ravel().tolist()]} for name, array in tensors.items()}
        request = {"spec": {**shape, **spec}, "execution": execution, "tensors": tensors}
        done = subprocess.run([os.path.abspath("external/python_tools/grpcurl"), "-plaintext", "-max-time", "60", "-d", "@",
                               self.service.address, "annulus.v1.Attention/AttendInline"],
                              input=json.dumps(request), capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, f"{spec}\n{done.stderr}")
        answer = json.loads(done.stdout)
        out, lse = (numpy.array([float(value) for value in answer[name]["values"]], numpy.float32) for name in ("out", "lse"))
        return out.reshape(ROWS, HEADS, DIM), lse.reshape(ROWS, HEADS).T, answer

    def exact(self, visible, change=lambda scores: scores, kept=None, sinks=None, dtype="fp32"):
        q, k, v = (rounded(self.tensors[name], dtype).astype(float) for name in "qkv")
        k, v = (numpy.repeat(array, HEADS // KV_HEADS, axis=1) for array in (k, v))
        scores = change(numpy.einsum("ihd,jhd->hij", q, k) / DIM**0.5)
        weights = numpy.where(visible, numpy.exp(scores), 0)
        total = weights.sum(axis=2) + (0 if sinks is None else numpy.exp(sinks)[:, None])
        with numpy.errstate(divide="ignore"):
            lse = numpy.log(total)
        weights /= numpy.where(total == 0, 1, total)[:, :, None]
        return numpy.einsum("hij,jhd->ihd", weights if kept is None else weights * kept, v), lse

    @staticmethod
    def ways():
        """Executions without end: one worker, then two by several, whose strategies and layouts meet one another in turn."""
        several = (several_workers(*way) for way in zip(*map(itertools.cycle, (ALL_STRATEGIES, ALL_LAYOUTS, WORLDS))))
        for first in several:
            yield from ({"worldSize": 1}, first, next(several))

    def assert_right(self, spec, execution, exact, tensors):
        """It ran as asked, and its numbers are right and not those of a job without the options."""
        out, lse, answer = self.inline(spec, execution, tensors)
        stats = answer["stats"]
        ran, base = stats["execution"], 2 if "lseBase" in spec.get("outputs", {}) else math.e
        self.assertEqual(ran["world_size"], execution["worldSize"])
        self.assertEqual(stats["lse_base"], "LSE_BASE_2" if base == 2 else "LSE_BASE_E")
        self.assertGreaterEqual(stats["balance"], 1)
        if "strategy" in execution:
            self.assertEqual((ran["strategy"], ran["layout"]), (execution["strategy"], execution["layout"]))
        dtype = type_of(spec.get("dtype"))
        within = {"rtol": 1e-5, "atol": 5e-6} if dtype == "fp32" else {"rtol": LARGEST_BUDGET[dtype], "atol": LARGEST_BUDGET[dtype]}
        numpy.testing.assert_allclose(out, exact[0], **within)
        relative = 1e-5 if dtype == "fp32" else 1e-3
        numpy.testing.assert_allclose(lse, exact[1] / math.log(base), rtol=relative, atol=relative)
        self.assertEqual((rounded(out, dtype) == out).all(), type_of(spec.get("outDtype", spec.get("dtype"))) == dtype)
        plain = self.exact(EVERY)
        with numpy.errstate(invalid="ignore"):
            self.assertGreater(max(numpy.abs(out - plain[0]).max(), numpy.nanmax(numpy.abs(lse - plain[1]))), 0.01)

    def check(self, *cases):
        """Each (name, spec, right answer, tensors) in three ways; all of them together cover every strategy and layout."""
        ways, seen = self.ways(), set()
        for name, spec, exact, tensors in cases:
            for execution in itertools.islice(ways, 3):
                with self.subTest(option=name, execution=execution):
                    self.assert_right(spec, execution, exact, tensors)
                if "strategy" in execution:
                    seen |= {execution["strategy"], execution["layout"]}
        self.assertEqual(seen, {enum("STRATEGY", name) for name in ALL_STRATEGIES} | {enum("LAYOUT", name) for name in ALL_LAYOUTS})

    def test_masks(self):
        self.check(*((name, {"masks": masks}, self.exact(numpy.stack([~hidden_by(mask_of(masks, head), ROWS, KEYS) for head in range(HEADS)])), {})
                     for name, masks in MASKS.items()))

    def test_scores_and_outputs(self):
        tensors = self.tensors
        offset, bias = tensors["lseOffset"][:, :, 0].T[:, :, None], tensors["bias"].transpose(1, 0, 2)
        away = numpy.array(SLOPES)[:, None, None] * numpy.abs(numpy.arange(ROWS)[:, None] + KEYS - ROWS - numpy.arange(KEYS))
        rate, seed = 0.25, 2**40 + 5
        kept = kept_weights(rate, seed, HEADS, ROWS, KEYS)
        self.check(
            ("scale", {"scale": -0.5}, self.exact(EVERY, lambda s: s * -0.5 * DIM**0.5), {}),
            ("soft cap", {"modifiers": {"softCap": 0.75}}, self.exact(EVERY, lambda s: 0.75 * numpy.tanh(s / 0.75)), {}),
            ("alibi", {"modifiers": {"alibiSlopes": SLOPES}}, self.exact(EVERY, lambda s: s - away), {}),
            ("sinks", {"modifiers": {"sinks": SINKS}}, self.exact(EVERY, sinks=SINKS), {}),
            ("bias", {"modifiers": {"bias": {"heads": HEADS}}}, self.exact(EVERY, lambda s: s + bias), {"bias": tensors["bias"]}),
            ("offset", {"modifiers": {"lseOffset": True}}, self.exact(EVERY, lambda s: s + offset), {"lseOffset": tensors["lseOffset"]}),
            ("dropout", {"dropout": {"rate": rate, "seed": str(seed)}}, self.exact(EVERY, kept=kept), {}),
            ("base 2", {"outputs": {"lseBase": "LSE_BASE_2"}}, self.exact(EVERY), {}),
        )

    def test_documents_bits_and_biases(self):
        bits, bias = self.tensors["bitMask"], self.tensors["bias"].copy()
        bias[numpy.random.default_rng(5).random(bias.shape) < 0.1] = -numpy.inf
        one_bits, one_bias = bits[:, 1:2], bias[:, 2:3]
        seen, one_seen, added, one_added = (array.transpose(1, 0, 2) for array in (bits == 1, one_bits == 1, bias, one_bias))
        window = {"causal": True, "windowLeft": 14}
        near = numpy.broadcast_to(~hidden_by(window, ROWS, KEYS), EVERY.shape)
        lengths = [{"qLen": q_len, "kvLen": str(kv_len)} for q_len, kv_len in DOCUMENTS]
        first = numpy.cumsum([0] + [len(masks) for masks in OWN_MASKS])
        own = [{**document, "mask": int(mask)} for document, mask in zip(lengths, first)]
        heads, by_heads = {"bitMaskHeads": HEADS}, {"bias": {"heads": HEADS}}
        self.check(
            ("documents", {"sequences": lengths}, self.exact(documents([[{}]] * 4)), {}),
            ("causal documents", {"sequences": lengths, "masks": [{"causal": True}]}, self.exact(documents([[{"causal": True}]] * 4)), {}),
            ("documents with masks of their own", {"sequences": own, "masks": sum(OWN_MASKS, [])}, self.exact(documents(OWN_MASKS)), {}),
            ("bits", {"masks": [{"bitMask": True}], **heads}, self.exact(seen), {"bitMask": bits}),
            ("bits of one head", {"masks": [{"bitMask": True}]}, self.exact(EVERY & one_seen), {"bitMask": one_bits}),
            ("bias of one head", {"modifiers": {"bias": {}}}, self.exact(EVERY, lambda s: s + one_added), {"bias": one_bias}),
            ("bits, window and bias", {"masks": [{**window, "bitMask": True}], **heads, "modifiers": by_heads},
             self.exact(seen & near, lambda s: s + added), {"bitMask": bits, "bias": bias}),
            ("those of one head", {"masks": [{**window, "bitMask": True}], "modifiers": {"bias": {"heads": 1}}},
             self.exact(near & one_seen, lambda s: s + one_added), {"bitMask": one_bits, "bias": one_bias}),
        )

    def test_element_types(self):
        causal = numpy.broadcast_to(~hidden_by({"causal": True}, ROWS, KEYS), EVERY.shape)
        cases = []
        for dtype, given in itertools.product(("fp16", "bf16"), ({}, {"outDtype": "DATA_TYPE_FP32"}, None)):
            given = {"outDtype": enum("DATA_TYPE", dtype)} if given is None else given
            tensors = {name: rounded(self.tensors[name], dtype) for name in "qkv"}
            spec = {"dtype": enum("DATA_TYPE", dtype), "masks": [{"causal": True}], **given}
            cases.append((f"{dtype} {given}", spec, self.exact(causal, dtype=dtype), tensors))
        self.check(*cases)

    def test_deterministic(self):
        spec = {"deterministic": True, "masks": [{"causal": True}]}
        right = self.inline(spec, {"worldSize": 1}, {})
        plans = itertools.product([name for name in ALL_STRATEGIES if name not in MERGING], ALL_LAYOUTS)
        for (strategy, layout), world in zip(plans, itertools.cycle(WORLDS)):
            with self.subTest(strategy=strategy, layout=layout, world=world):
                execution = several_workers(strategy, layout, world)
                out, lse, answer = self.inline(spec, execution, {})
                self.assertEqual(answer["stats"]["execution"]["strategy"], execution["strategy"])
                self.assertTrue((out == right[0]).all() and (lse == right[1]).all())

    def test_max_logit(self):
        q, k = (numpy.repeat(self.tensors[name].astype(float), HEADS // self.tensors[name].shape[1], axis=1) for name in "qk")
        scores = numpy.einsum("ihd,jhd->hij", q, k) / DIM**0.5
        for execution in itertools.islice(self.ways(), 14):
            _, _, answer = self.inline({"outputs": {"maxLogit": True}}, execution, {})
            largest = numpy.array(answer["max_logit"]["values"], float).reshape(ROWS, HEADS).T
            numpy.testing.assert_allclose(largest, scores.max(axis=2), rtol=1e-5, atol=1e-6)

    def test_both_bases_say_the_same(self):
        for world in (1, 3):
            _, natural, _ = self.inline({}, {"worldSize": world}, {})
            _, binary, _ = self.inline({"outputs": {"lseBase": "LSE_BASE_2"}}, {"worldSize": world}, {})
            numpy.testing.assert_allclose(binary * math.log(2), natural, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
