"""NaN and infinities in places that a row does not see change no bit of it, by any strategy, forward and backward; and the
largest logits and the smallest numbers come through the whole service right."""

import itertools
import unittest

import numpy

from tests.end_to_end.harness.attend_case import ALL_STRATEGIES, judged, rounded
from tests.end_to_end.harness.gradient_case import GradientCase

LAYOUTS = ("contiguous", "zigzag", "striped", "by-area", "zigzag-per-sequence")
ROWS, WINDOW = 260, 40
SPOILT = (70, 71, 72)  # Rows of keys and values.


class HiddenValuesTest(GradientCase):
    def setUp(self):
        random = numpy.random.default_rng(6)
        self.clean = {name: random.standard_normal((ROWS, heads, 16)).astype(numpy.float32)
                      for name, heads in (("q", 4), ("k", 2), ("v", 2))}
        self.spec = self.spec_file({"masks": [{"causal": True, "windowLeft": str(WINDOW)}]})
        self.plans = [*zip(ALL_STRATEGIES, itertools.cycle(LAYOUTS), itertools.cycle((3, 2, 4))), ("auto", "zigzag", 1)]

    def spoilt(self, key, value):
        tensors = {name: array.copy() for name, array in self.clean.items()}
        tensors["k"][list(SPOILT)] = key
        tensors["v"][list(SPOILT)] = value
        return tensors

    def plan_flags(self, strategy, layout, world):
        return ("--spec", self.spec, "--strategy", strategy, "--layout", layout, "--world-size", str(world))

    def test_keys_and_values(self):
        sees = numpy.zeros(ROWS, bool)
        sees[SPOILT[0] : SPOILT[-1] + WINDOW + 1] = True
        for plan in self.plans:
            flags = self.plan_flags(*plan)
            wanted, facts = self.run_file(self.clean, *flags)
            self.assertEqual(facts["world_size"], plan[2])
            for key, value in ((numpy.nan, numpy.nan), (1, numpy.inf), (numpy.inf, -numpy.inf)):
                with self.subTest(plan=plan, key=key, value=value):
                    answer, _ = self.run_file(self.spoilt(key, value), *flags)
                    numpy.testing.assert_array_equal(answer["output"][~sees], wanted["output"][~sees])
                    numpy.testing.assert_array_equal(answer["lse"][:, ~sees], wanted["lse"][:, ~sees])
                    self.assertFalse(numpy.isfinite(answer["output"][sees]).any())

    def run_plan(self, tensors, strategy, layout, world):
        """Gradients behind the window."""
        spec = {"masks": [{"causal": True, "windowLeft": str(WINDOW)}]}
        flags = ("--strategy", strategy, "--layout", layout, "--world-size", str(world))
        return self.run_gradients(tensors, spec, "fp32", *flags)[0]

    def test_gradients(self):
        random = numpy.random.default_rng(7)
        forward, _ = self.run_file(self.clean, "--spec", self.spec)
        tensors = {**self.clean, **forward, "d_out": random.standard_normal((ROWS, 4, 16)).astype(numpy.float32)}
        bad = {name: array.copy() for name, array in tensors.items()}
        row = 150  # An element of d_out. It affects dq of its row, and the keys that the row sees.
        bad["d_out"][row] = numpy.nan
        reached = numpy.zeros(ROWS, bool)
        reached[row - WINDOW : row + 1] = True
        for plan in self.plans:
            with self.subTest(plan=plan):
                wanted, answer = (self.run_plan(each, *plan) for each in (tensors, bad))
                others = numpy.arange(ROWS) != row
                numpy.testing.assert_array_equal(answer["dq"][others], wanted["dq"][others])
                for name in ("dk", "dv"):
                    numpy.testing.assert_array_equal(answer[name][~reached], wanted[name][~reached])
                    self.assertTrue(numpy.isnan(answer[name][reached]).all())
                self.assertTrue(numpy.isnan(answer["dq"][row]).all())

    def with_large_logits(self):
        """Scores beyond ±1e4 that fp32 holds exactly, of elements that bf16 does."""
        random = numpy.random.default_rng(8)
        large = {name: (random.integers(-25, 26, self.clean[name].shape) * 5.0).astype(numpy.float32) for name in "qk"}
        return {**self.clean, **large}

    @staticmethod
    def with_equal_keys(tensors):
        return {**tensors, "k": numpy.broadcast_to(tensors["k"][:1], tensors["k"].shape)}

    def with_subnormal_rows(self):
        tensors = {name: array.copy() for name, array in self.clean.items()}
        for array in tensors.values():
            array[::3] = 1e-40
        return tensors

    def assert_large(self, answer):
        """LSE on both sides."""
        self.assertGreater(answer["lse"].max(), 1e4)
        self.assertLess(answer["lse"].min(), -1e4)

    def test_large_logits_and_equal_rows(self):
        """Keys that are all alike have the mean of v for an output."""
        tensors = self.with_large_logits()
        equal = self.with_equal_keys(tensors)
        exact, naive = judged(*(tensors[name] for name in "qkv"), "full")
        self.assertGreater(numpy.abs(exact[1]).max(), 1e4)
        for world, strategy in ((1, "auto"), (3, "ring-pass-kv"), (4, "tree"), (4, "ulysses")):
            flags = ("--world-size", str(world), "--strategy", strategy)
            with self.subTest(world=world, strategy=strategy):
                answer, _ = self.run_file(tensors, *flags)
                self.assert_within_budget(answer, exact, naive, "large logits")
                answer, _ = self.run_file(equal, *flags)
                self.assert_large(answer)
                mean = self.clean["v"].mean(axis=0, dtype=numpy.float64).repeat(2, axis=0)
                numpy.testing.assert_allclose(answer["output"], numpy.broadcast_to(mean, answer["output"].shape), atol=1e-6)

    def test_gradients_of_extreme_numbers(self):
        large = self.with_large_logits()
        cases = {"large": large, "equal keys": self.with_equal_keys(large), "equal rows": self.with_equal_keys(self.clean),
                 "subnormal": self.with_subnormal_rows()}
        hidden = numpy.zeros((ROWS, ROWS), bool)
        runs = ((1, "auto", "fp32"), (3, "ring-pass-kv", "fp32"), (4, "ring-pass-q", "bf16"), (2, "ulysses", "fp32"))
        halves = itertools.cycle((runs[::2], runs[1::2]))
        for name, (world, strategy, dtype) in ((name, run) for name, half in zip(cases, halves) for run in half):
            with self.subTest(case=name, world=world, strategy=strategy, dtype=dtype):
                rounded_to = {of: rounded(array, dtype) for of, array in cases[name].items()}
                tensors = self.forward(rounded_to, {}, dtype)
                if name == "equal keys":
                    self.assert_large(tensors)
                if name == "subnormal":
                    tensors["d_out"][1::3] = 1e-40
                answer, _ = self.run_gradients(tensors, {}, dtype, "--world-size", str(world), "--strategy", strategy)
                self.assert_gradients(answer, tensors, hidden, dtype, name)

    def test_subnormal_numbers_do_no_harm(self):
        """They count as zero in q, k and v, so nothing but what they are worth is lost."""
        tensors = self.with_subnormal_rows()
        for world, strategy in ((1, "auto"), (3, "rotate-kv"), (4, "ring-pass-q")):
            with self.subTest(world=world, strategy=strategy):
                answer, _ = self.run_file(tensors, "--world-size", str(world), "--strategy", strategy)
                self.assert_within_budget(answer, *judged(*(tensors[name] for name in "qkv"), "full"), "subnormal")


if __name__ == "__main__":
    unittest.main()
