"""Soft cap, ALiBi and sinks by every strategy: real processes, answers judged by numpy and by --verify."""

import itertools
import unittest

import numpy

from tests.end_to_end import raw_client
from tests.end_to_end.attend_case import LAYOUTS, AttendCase, hidden_by, judged, rounded
from tests.end_to_end.raw_client import attention_pb2, types_pb2

STRATEGIES = ("ring-pass-kv", "all-gather-kv", "rotate-kv", "halo", "ring-pass-q", "ulysses", "ulysses-ring", "double-ring")
OPTIONS = {
    "soft cap": {"softCap": 1.25},
    "alibi": {"alibiSlopes": [0.5, 0.25, 0.125, 0.0625]},
    "sinks": {"sinks": [2.0, -1.0, 0.5, 4.0]},
}
TOGETHER = {name: value for option in OPTIONS.values() for name, value in option.items()}


class ModifiersTest(AttendCase):
    def test_each_changes_the_answer_of_every_strategy(self):
        for index, strategy in enumerate(STRATEGIES):
            flags = ("--synthetic", f"2,150,170,4,2,32,{('fp32', 'bf16', 'fp16')[index % 3]},5", "--strategy", strategy,
                     "--world-size", "4", "--layout", LAYOUTS[index % 4], "--path", ("direct", "gateway")[index % 2],
                     "--verify", "300")
            digests = {}
            for name, modifiers in {"none": {}, **OPTIONS, "together": TOGETHER}.items():
                with self.subTest(strategy=strategy, modifiers=name):
                    spec = {"masks": [{"causal": True}], "modifiers": modifiers}
                    facts = self.attend(*flags, "--spec", self.spec_file(spec))
                    self.assertEqual(facts["strategy"], strategy)
                    digests[name] = facts["output_crc32c"], facts["lse_crc32c"]
            for place in (0, 1):
                self.assertEqual(len({digest[place] for digest in digests.values()}), len(digests), strategy)

    def test_answers_are_right(self):
        random = numpy.random.default_rng(6)
        masks = ({"causal": True}, {}, {"causal": True, "windowLeft": "40"})
        for index, (modifiers, (q_len, kv_len)) in enumerate(
            itertools.product((*OPTIONS.values(), TOGETHER), ((150, 150), (90, 140), (140, 90)))
        ):
            dtype, mask = ("fp32", "fp16", "bf16")[index // 3 % 3], masks[index % 3]
            q, k, v = (rounded(random.standard_normal(shape), dtype)
                       for shape in ((q_len, 4, 64), (kv_len, 2, 64), (kv_len, 2, 48)))
            exact, naive = judged(q, k, v, hidden_by(mask, q_len, kv_len), dtype, modifiers)
            spec = self.spec_file({"masks": [mask], "modifiers": modifiers})
            for world in (1, 2 + index % 3):
                with self.subTest(modifiers=modifiers, q_len=q_len, kv_len=kv_len, mask=mask, world=world):
                    answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--spec", spec, "--world-size", str(world),
                                              "--strategy", STRATEGIES[index % 8] if world > 1 else "auto", dtype=dtype)
                    self.assert_within_budget(answer, exact, naive, str(modifiers), dtype)

    def test_inline(self):
        """One key of score 3 beside a sink of 1, capped at 2: numbers that a reader can follow."""
        spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_FP32, q_heads=1, kv_heads=1, head_dim=1, scale=1)
        spec.sequences.add(q_len=1, kv_len=1)
        spec.sequences.add(q_len=1)
        spec.modifiers.soft_cap = 2
        spec.modifiers.sinks.append(1)
        tensors = attention_pb2.InlineTensors()
        for tensor, rows, value in ((tensors.q, 2, 1.5), (tensors.k, 1, 2), (tensors.v, 1, 8)):
            tensor.shape.extend((rows, 1, 1))
            tensor.values.extend([value] * rows)
        with raw_client.Stubs(self.service.address) as stubs:
            request = attention_pb2.AttendInlineRequest(spec=spec, tensors=tensors)
            answer = raw_client.call(stubs.attention.AttendInline, request)
        score = 2 * numpy.tanh(1.5)
        weight = numpy.exp(score) / (numpy.exp(score) + numpy.e)
        numpy.testing.assert_allclose(answer.out.values, [8 * weight, 0], rtol=1e-6)
        numpy.testing.assert_allclose(answer.lse.values, [numpy.log(numpy.exp(score) + numpy.e), 1], rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
