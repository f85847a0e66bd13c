"""Bias and bit mask by every strategy and every entry: real processes, answers judged by numpy and by --verify."""

import json
import os
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from tests.end_to_end.harness import raw_client
from tests.end_to_end.harness.attend_case import ALL_STRATEGIES, AttendCase
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2

BITS = {"masks": [{"causal": True, "bitMask": True}]}
OPTIONS = {
    "none": {},
    "bias": {"modifiers": {"bias": {}}},
    "bias of heads": {"modifiers": {"bias": {"dtype": "DATA_TYPE_FP16", "heads": 4}}},
    "bits": BITS,
    "bits of heads": {**BITS, "bitMaskHeads": 4},
    "offset": {"modifiers": {"lseOffset": True}},
    "both": {**BITS, "modifiers": {"bias": {"heads": 4}, "softCap": 1.5}},
}
REFUSED = 3


def exact(q, k, v, bias, visible):
    """(output, lse) of one sequence in fp64; bias and visible are [heads, rows, keys]."""
    scores = numpy.einsum("ihd,jhd->hij", q.astype(float), numpy.repeat(k, 2, axis=1).astype(float)) / q.shape[2] ** 0.5
    scores = numpy.where(visible & (bias > -numpy.inf), scores + bias, -numpy.inf)
    top = scores.max(axis=2, keepdims=True, initial=-1e30)
    weights = numpy.exp(scores - top)
    total = weights.sum(axis=2, keepdims=True)
    out = numpy.einsum("hij,jhd->ihd", weights / numpy.where(total == 0, 1, total), numpy.repeat(v, 2, axis=1).astype(float))
    with numpy.errstate(divide="ignore"):
        return out, numpy.where(total > 0, top + numpy.log(total), -numpy.inf)[:, :, 0]


class PairsTest(AttendCase):
    def run_tensors(self, tensors, *flags, expect=0):
        source, target = (os.path.join(self.folder, name) for name in ("pairs_in", "pairs_out"))
        save_file(tensors, source)
        done = self.service.annulus("attend", "--json", "--input", source, "--output", target, *flags)
        self.assertEqual(done.returncode, expect, f"{flags}\n{done.stdout}\n{done.stderr}")
        return load_file(target) if expect == 0 else done.stderr + done.stdout

    def test_each_changes_the_answer_of_every_strategy(self):
        for strategy, digests in self.digests_of(ALL_STRATEGIES, OPTIONS):
            # An offset alone moves LSE, and outputs but for rounding.
            self.assertEqual(len({lse for _, lse in digests.values()}), len(digests), strategy)
            self.assertEqual(len({out for name, (out, _) in digests.items() if name != "offset"}), len(digests) - 1, strategy)

    def test_files_of_every_broadcast_shape(self):
        random = numpy.random.default_rng(3)
        batch, q_len, kv_len, heads = 2, 50, 61, 4
        q, k, v = (random.standard_normal(shape).astype(numpy.float32)
                   for shape in ((batch, q_len, heads, 16), (batch, kv_len, 2, 16), (batch, kv_len, 2, 24)))
        whole = (batch, heads, q_len, kv_len)
        shapes = (whole, (1, 1, q_len, kv_len), (q_len, kv_len), (heads, q_len, kv_len), (batch, 1, 1, kv_len), (batch, heads, 1, kv_len))
        for index, shape in enumerate(shapes):
            tensors = {"q": q, "k": k, "v": v}
            bias, visible = numpy.zeros(shape), numpy.ones(shape, bool)
            if index % 3 != 0:
                bias = random.standard_normal(shape).astype(numpy.float16)
                bias[random.random(shape) < 0.1] = -numpy.inf
                tensors["bias"] = bias
            if index % 3 != 1:
                visible = random.random(shape) < 0.7
                tensors["mask"] = visible if index % 2 else visible.astype(numpy.uint8) * 7
            flags = ("--world-size", str(1 + index % 4), *(("--strategy", ALL_STRATEGIES[index + 3]) if index % 4 else ()))
            with self.subTest(shape=shape, tensors=sorted(tensors), flags=flags):
                answer = self.run_tensors(tensors, *flags, "--verify", "20", "--path", ("direct", "gateway")[index % 2])
                bias, visible = (numpy.broadcast_to(array, whole) for array in (bias.astype(float), visible))
                for b in range(batch):
                    out, lse = exact(q[b], k[b], v[b], bias[b], visible[b])
                    numpy.testing.assert_allclose(answer["output"][b], out, rtol=1e-5, atol=5e-6)
                    numpy.testing.assert_allclose(answer["lse"][b], lse, rtol=1e-5, atol=1e-5)

    def test_a_mask_of_the_file_hides_from_heads_that_no_mask_names_too(self):
        random = numpy.random.default_rng(6)
        q, k, v = (random.standard_normal(shape).astype(numpy.float32) for shape in ((30, 4, 16), (30, 2, 16), (30, 2, 24)))
        visible = random.random((4, 30, 30)) < 0.6
        causal = numpy.tri(30, dtype=bool)
        hidden_by_causal = lambda heads: numpy.array([causal if head in heads else numpy.ones_like(causal) for head in range(4)])
        for named in ([0], [3, 1], [0, 1, 2, 3]):
            with self.subTest(named=named):
                spec = self.spec_file({"masks": [{"causal": True, "queryHeads": named}]})
                answer = self.run_tensors({"q": q, "k": k, "v": v, "mask": visible}, "--spec", spec, "--world-size", "2", "--verify", "30")
                out, lse = exact(q, k, v, numpy.zeros((4, 30, 30)), visible & hidden_by_causal(named))
                numpy.testing.assert_allclose(answer["output"], out, rtol=1e-5, atol=5e-6)
                numpy.testing.assert_allclose(answer["lse"], lse, rtol=1e-5, atol=1e-5)

    def test_packed_sequences_of_different_lengths(self):
        """Columns are keys of a row's own sequence. Rows from which everything is hidden are empty.
        Invisible values may be NaN."""
        random = numpy.random.default_rng(4)
        lengths = ((30, 40), (7, 9), (12, 0))
        q, k, v = (random.standard_normal(shape).astype(numpy.float32) for shape in ((49, 4, 16), (49, 2, 16), (49, 2, 16)))
        bias = random.standard_normal((4, 49, 40)).astype(numpy.float32)
        bias[:, 30:, 9:] = numpy.nan
        bias[:, 5] = -numpy.inf
        bias[:, :30, 17] = -numpy.inf
        k[17] = v[17] = numpy.nan
        spec = self.spec_file({"sequences": [{"qLen": a, "kvLen": b} for a, b in lengths]})
        for world, strategy in ((1, "auto"), (3, "ring-pass-q"), (4, "ulysses")):
            with self.subTest(world=world, strategy=strategy):
                answer = self.run_tensors({"q": q, "k": k, "v": v, "bias": bias}, "--spec", spec, "--world-size", str(world),
                                          "--strategy", strategy, "--verify", "49")
                rows = keys = 0
                for q_len, kv_len in lengths:
                    queries, own = slice(rows, rows + q_len), slice(keys, keys + kv_len)
                    of = bias[:, queries, :kv_len]
                    out, lse = exact(q[queries], numpy.nan_to_num(k[own]), numpy.nan_to_num(v[own]), of, numpy.ones(of.shape, bool))
                    numpy.testing.assert_allclose(answer["output"][queries], out, rtol=1e-5, atol=5e-6)
                    numpy.testing.assert_allclose(answer["lse"][:, queries], lse, rtol=1e-5, atol=1e-5)
                    rows, keys = rows + q_len, keys + kv_len
                self.assertTrue((answer["output"][5] == 0).all() and (answer["lse"][:, 5] == -numpy.inf).all())

    def test_rows_of_more_than_a_chunk(self):
        """3.2 MB a row of bias: sent head by head."""
        spec = self.spec_file({"modifiers": {"bias": {"heads": 8}}})
        for path in ("direct", "gateway"):
            with self.subTest(path=path):
                self.attend("--synthetic", "1,5,200000,8,1,8,bf16,9", "--spec", spec, "--verify", "2", "--path", path)

    def test_smoothed_keys(self):
        """Keys less their mean, and scale·q·mean: the answer is that of the keys as they were, sinks and soft cap included."""
        random = numpy.random.default_rng(5)
        q, k, v = (random.standard_normal(shape).astype(numpy.float32) for shape in ((2, 40, 4, 16), (2, 50, 2, 16), (2, 50, 2, 16)))
        k += 3
        mean = k.mean(axis=1, keepdims=True)
        offset = (q * numpy.repeat(mean, 2, axis=2)).sum(axis=3).transpose(0, 2, 1) / 4
        spec = self.spec_file({"masks": [{"causal": True}], "modifiers": {"softCap": 4, "sinks": [1, 0, 2, -1]},
                               "outputs": {"maxLogit": True}})
        plain = self.run_tensors({"q": q, "k": k, "v": v}, "--spec", spec)
        for world, strategy in ((1, "auto"), (4, "tree"), (3, "ulysses-ring"), (4, "rotate-kv")):
            with self.subTest(strategy=strategy):
                tensors = {"q": q, "k": k - mean, "v": v, "lse_offset": numpy.ascontiguousarray(offset, numpy.float32)}
                answer = self.run_tensors(tensors, "--spec", spec, "--world-size", str(world), "--strategy", strategy, "--verify", "30")
                for name, expected in plain.items():
                    numpy.testing.assert_allclose(answer[name], expected, rtol=2e-5, atol=2e-5)

    def test_inline(self):
        """Three keys, one hidden by the bias and one by its bit."""
        spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_FP32, q_heads=1, kv_heads=1, head_dim=1, scale=1)
        spec.sequences.add(q_len=2, kv_len=4)
        spec.masks.add(bit_mask=True)
        spec.modifiers.bias.dtype = types_pb2.DATA_TYPE_FP32
        tensors = attention_pb2.InlineTensors()
        hidden = -numpy.inf
        for tensor, shape, values in (
            (tensors.q, (2, 1, 1), (1, 1)),
            (tensors.k, (4, 1, 1), (1, 2, 3, 4)),
            (tensors.v, (4, 1, 1), (1, 2, 4, 8)),
            (tensors.bias, (2, 1, 4), (0.5, hidden, 0, 0, hidden, 0, hidden, 0)),
            (tensors.bit_mask, (2, 1, 4), (1, 1, 1, 0, 1, 0, 1, 0)),
        ):
            tensor.shape.extend(shape)
            tensor.values.extend(values)
        with raw_client.Stubs(self.service.address) as stubs:
            request = attention_pb2.AttendInlineRequest(spec=spec, tensors=tensors)
            answer = raw_client.call(stubs.attention.AttendInline, request)
            weights = numpy.exp([1.5, 3])
            numpy.testing.assert_allclose(answer.out.values, [weights @ [1, 4] / weights.sum(), 0], rtol=1e-6)
            numpy.testing.assert_allclose(answer.lse.values, [numpy.log(weights.sum()), hidden], rtol=1e-6)
            self.refuse_inline(stubs, request)

    def refuse_inline(self, stubs, good):
        def refused(reason, field, change):
            request = attention_pb2.AttendInlineRequest()
            request.CopyFrom(good)
            change(request)
            with self.subTest(reason=reason, field=field), self.assertRaises(raw_client.CallError) as caught:
                raw_client.call(stubs.attention.AttendInline, request)
            self.assertEqual((caught.exception.code, caught.exception.reason), ("INVALID_ARGUMENT", reason))
            self.assertIn(field, caught.exception.fields)

        def half(request):
            request.tensors.bit_mask.values[2] = 0.5

        refused("INVALID_MASK", "tensors.bit_mask.values[2]", half)
        refused("SHAPE_MISMATCH", "tensors.bias.shape", lambda r: r.tensors.ClearField("bias"))
        refused("UNKNOWN_TENSOR", "tensors.bias", lambda r: r.spec.ClearField("modifiers"))
        refused("UNKNOWN_TENSOR", "tensors.bit_mask", lambda r: r.spec.ClearField("masks"))
        refused("UNKNOWN_TENSOR", "tensors.lse_offset", lambda r: r.tensors.lse_offset.SetInParent())

    def test_files_that_fit_nothing_are_refused(self):
        tensors = {name: numpy.ones((10, 4, 8), numpy.float32) for name in ("q", "k", "v")}
        bad = (
            ("SHAPE_MISMATCH", "bias", numpy.ones((4, 10, 9), numpy.float32)),
            ("SHAPE_MISMATCH", "spec.modifiers.bias.heads", {"bias": numpy.ones((3, 10, 10), numpy.float32)}),
            ("SHAPE_MISMATCH", "mask", numpy.ones((9, 10), bool)),
            ("SHAPE_MISMATCH", "mask", numpy.ones(9, bool)),
            ("SHAPE_MISMATCH", "mask", numpy.ones((1, 1, 10, 10), bool)),
            ("UNSUPPORTED_DTYPE", "bias", numpy.ones((10, 10), numpy.float64)),
            ("UNSUPPORTED_DTYPE", "mask", numpy.ones((10, 10), numpy.float32)),
        )
        for reason, field, more in bad:
            with self.subTest(reason=reason, field=field):
                more = more if isinstance(more, dict) else {field: more}
                told = self.run_tensors({**tensors, **more}, expect=REFUSED)
                self.assertIn(reason, told)
                self.assertIn(field, told)
        spec = self.spec_file({"modifiers": {"bias": {"heads": 4}}})
        self.assertIn("MISSING_TENSOR", self.run_tensors(tensors, "--spec", spec, expect=REFUSED))
        told = self.run_tensors({**tensors, "bias": numpy.ones((10, 10), numpy.float16)}, "--spec",
                                self.spec_file({"modifiers": {"bias": {"dtype": "DATA_TYPE_FP32"}}}), expect=REFUSED)
        self.assertIn("UNSUPPORTED_DTYPE", told)

    def test_a_plan_counts_the_bytes(self):
        """The bias travels if queries travel, and stays if they stay."""
        def sent(strategy, options):
            done = self.service.annulus("plan", "--json", "--synthetic", "1,512,512,4,2,32,fp32,1", "--world-size", "4", "--strategy",
                                        strategy, "--spec", self.spec_file(options))
            self.assertEqual(done.returncode, 0, done.stderr)
            return max(json.loads(done.stdout)["bytes_sent_per_rank"])

        bias = {"modifiers": {"bias": {"heads": 4}}}
        self.assertEqual(sent("ring-pass-kv", bias), sent("ring-pass-kv", {}))
        # Three hops of 128 rows, 4 heads and 512 columns.
        self.assertEqual(sent("ring-pass-q", bias) - sent("ring-pass-q", {}), 3 * 128 * 4 * 512 * 4)


if __name__ == "__main__":
    unittest.main()
