"""Options of scores, weights and outputs by every strategy: real processes, answers judged by numpy and by --verify."""

import itertools
import unittest

import numpy

from tests.end_to_end.harness import raw_client
from tests.end_to_end.harness.attend_case import ALL_STRATEGIES, LAYOUTS, AttendCase, documented, every_pair, hidden_by, judged, modified, ranks, rounded
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2

OPTIONS = {
    "soft cap": {"softCap": 1.25},
    "alibi": {"alibiSlopes": [0.5, 0.25, 0.125, 0.0625]},
    "sinks": {"sinks": [2.0, -1.0, 0.5, 4.0]},
}
FURTHER = {
    "dropout": {"dropout": {"rate": 0.25, "seed": "9"}},
    "another seed": {"dropout": {"rate": 0.25, "seed": "10"}},
    "base 2": {"outputs": {"lseBase": "LSE_BASE_2"}},
    "max logit": {"outputs": {"maxLogit": True}},
}
TOGETHER = {name: value for option in OPTIONS.values() for name, value in option.items()}


class ModifiersTest(AttendCase):
    def test_each_changes_the_answer_of_every_strategy(self):
        specs = {name: {"modifiers": modifiers} for name, modifiers in {"none": {}, **OPTIONS, "together": TOGETHER}.items()}
        for strategy, digests in self.digests_of(ALL_STRATEGIES, specs):
            for place in (0, 1):
                self.assertEqual(len({digest[place] for digest in digests.values()}), len(digests), strategy)

    def test_answers_are_right(self):
        random = numpy.random.default_rng(6)
        masks = ({"causal": True}, {}, {"causal": True, "windowLeft": "40"})
        axes = (ALL_STRATEGIES, (*OPTIONS.values(), TOGETHER), (2, 3, 4), ((150, 150), (90, 140), (140, 90)), masks, ("fp32", "fp16", "bf16"))
        for strategy, modifiers, several, (q_len, kv_len), mask, dtype in every_pair(*axes):
            q, k, v = (rounded(random.standard_normal(shape), dtype)
                       for shape in ((q_len, 4, 64), (kv_len, 2, 64), (kv_len, 2, 48)))
            exact, naive = judged(q, k, v, hidden_by(mask, q_len, kv_len), dtype, modifiers)
            spec = self.spec_file({"masks": [mask], "modifiers": modifiers})
            for strategy, world in (("auto", 1), (strategy, several)):
                with self.subTest(modifiers=modifiers, q_len=q_len, kv_len=kv_len, mask=mask, strategy=strategy, world=world):
                    answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--spec", spec, *ranks(strategy, world), dtype=dtype)
                    self.assert_within_budget(answer, exact, naive, str(modifiers), dtype)

    def test_dropout_and_outputs_of_every_strategy(self):
        """Each changes what it should and nothing else, however the job runs."""
        for strategy, dtype, flags in self.runs_of(ALL_STRATEGIES):
            facts = {}
            for name, options in {"none": {}, **FURTHER}.items():
                with self.subTest(strategy=strategy, option=name):
                    facts[name] = self.attend(*flags, "--spec", self.spec_file({"masks": [{"causal": True}], **options}))
            outputs, lses = ({name: fact[key] for name, fact in facts.items()} for key in ("output_crc32c", "lse_crc32c"))
            self.assertEqual(len({outputs[name] for name in ("none", "dropout", "another seed")}), 3, strategy)
            self.assertEqual(outputs["base 2"], outputs["none"], strategy)
            self.assertNotEqual(lses["base 2"], lses["none"], strategy)
            self.assertEqual(lses["dropout"], lses["none"], strategy)
            # The AMX path keeps another maximum if max_logit is not requested
            # (docs/reference/numerics.md).
            if dtype != "bf16" or "amx" not in facts["none"]["backend"]:
                self.assertEqual((outputs["max logit"], lses["max logit"]), (outputs["none"], lses["none"]), strategy)
            self.assertEqual([name for name, fact in facts.items() if "max_logit_crc32c" in fact], ["max logit"])

    def test_dropout_is_as_documented(self):
        """Equal scores, and a value column for each key: the output says which weights were kept."""
        keeps = documented("keeps")
        lengths, rate, seed = ((7, 30), (20, 41)), 0.3, 2**40 + 5
        q, k = numpy.zeros((27, 4, 8)), numpy.zeros((71, 2, 8))
        v = numpy.zeros((71, 2, 41))
        v[:30, :, :30], v[30:] = numpy.eye(30)[:, None, :], numpy.eye(41)[:, None, :]
        wanted = numpy.zeros((27, 4, 41))
        for sequence, ((q_len, kv_len), first) in enumerate(zip(lengths, (0, 7))):
            for i, head, j in numpy.ndindex(q_len, 4, kv_len):
                wanted[first + i, head, j] = keeps(rate, seed, sequence, head, i, j) / kv_len / (1 - rate)
        spec = self.spec_file({"sequences": [{"qLen": a, "kvLen": b} for a, b in lengths],
                               "dropout": {"rate": rate, "seed": str(seed)}})
        for strategy, layout, world in (("auto", "auto", 1), *zip(ALL_STRATEGIES, itertools.cycle(LAYOUTS), itertools.cycle((2, 3, 4)))):
            with self.subTest(strategy=strategy, layout=layout, world=world):
                answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--spec", spec, "--strategy", strategy, "--layout", layout,
                                          "--world-size", str(world))
                numpy.testing.assert_allclose(answer["output"], wanted, rtol=1e-5)

    def test_the_largest_score_and_base_2(self):
        random = numpy.random.default_rng(8)
        q, k, v = (random.standard_normal(shape).astype(numpy.float32) for shape in ((2, 60, 4, 16), (2, 40, 2, 16), (2, 40, 2, 16)))
        hidden = hidden_by({"causal": True}, 60, 40)
        spec = self.spec_file({"masks": [{"causal": True}], "modifiers": TOGETHER,
                               "outputs": {"lseBase": "LSE_BASE_2", "maxLogit": True}})
        for index, path in enumerate(("direct", "gateway")):
            answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--spec", spec, "--world-size", "3", "--path", path,
                                      "--strategy", ALL_STRATEGIES[3 + index], more=("max_logit",))
            for b, head in numpy.ndindex(2, 4):
                scores = q[b, :, head].astype(float) @ k[b, :, head // 2].T / 4
                scores = modified(scores, TOGETHER, head, numpy.arange(40))
                scores[hidden] = -numpy.inf
                numpy.testing.assert_allclose(answer["max_logit"][b, head], scores.max(axis=1), rtol=1e-5, atol=1e-5)
                lse = numpy.log2(numpy.exp(scores).sum(axis=1) + numpy.exp(TOGETHER["sinks"][head]))
                numpy.testing.assert_allclose(answer["lse"][b, head], lse, rtol=1e-5, atol=1e-5)

    def test_inline(self):
        """One key of score 3 beside a sink of 1, capped at 2: numbers that a reader can follow."""
        spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_FP32, q_heads=1, kv_heads=1, head_dim=1, scale=1)
        spec.sequences.add(q_len=1, kv_len=1)
        spec.sequences.add(q_len=1)
        spec.modifiers.soft_cap = 2
        spec.modifiers.sinks.append(1)
        spec.outputs.max_logit = True
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
        numpy.testing.assert_allclose(answer.max_logit.values, [score, -numpy.inf], rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
