"""A long prompt in parts: each part's queries see all keys up to its own end, as in one job over the whole of it."""

import unittest

import numpy

from tests.end_to_end.harness.attend_case import LAYOUTS, STRATEGIES, AttendCase, hidden_by, judged, rounded

# Ends of the parts. Only the second is a boundary of a kernel's tile or block of keys; the third
# part is one row.
ENDS = (300, 768, 769, 1000)
# Beyond what a kernel takes at a time of one row's keys.
LONG_ENDS = (4000, 8990, 8992, 9001)


class ChunkedPrefillTest(AttendCase):
    def inputs(self, dtype, rows=ENDS[-1]):
        random = numpy.random.default_rng(5)
        return [rounded(random.standard_normal((rows, heads, 64)).astype(numpy.float32), dtype) for heads in (4, 2, 2)]

    def parts(self, q, k, v, dtype, mask, *flags, ends=ENDS):
        """Output and LSE of all rows, part by part, each by another plan."""
        answers, begin = [], 0
        for index, end in enumerate(ends):
            plan = ("--world-size", str(1 + index % self.WORKERS), "--layout", LAYOUTS[index], "--strategy", STRATEGIES[index])
            part = {"q": q[begin:end], "k": k[:end], "v": v[:end]}
            answers.append(self.run_file(part, "--spec", self.spec_file({"masks": [mask]}), *plan, *flags, dtype=dtype)[0])
            begin = end
        return {name: numpy.concatenate([answer[name] for answer in answers], axis=0 if name == "output" else -1) for name in answers[0]}

    def test_parts_are_as_right_as_the_whole(self):
        for dtype in ("fp32", "bf16"):
            for mask in ({"causal": True}, {"causal": True, "windowLeft": "200", "alwaysVisible": "4"}):
                with self.subTest(dtype=dtype, mask=mask):
                    q, k, v = self.inputs(dtype)
                    answer = self.parts(q, k, v, dtype, mask)
                    self.assert_within_budget(answer, *judged(q, k, v, hidden_by(mask, ENDS[-1], ENDS[-1]), dtype), str(mask), dtype)

    def assert_bits_of_the_whole(self, dtype, mask, ends):
        q, k, v = self.inputs(dtype, ends[-1])
        whole, _ = self.run_file({"q": q, "k": k, "v": v}, "--spec", self.spec_file({"masks": [mask]}), "--deterministic", dtype=dtype)
        parts = self.parts(q, k, v, dtype, mask, "--deterministic", ends=ends)
        for name in ("output", "lse"):
            self.assertEqual(parts[name].tobytes(), whole[name].tobytes(), name)

    def test_deterministic_parts_have_the_bits_of_the_whole(self):
        for dtype in ("fp32", "bf16", "fp16"):
            for mask in ({"causal": True}, {"causal": True, "windowLeft": "200", "alwaysVisible": "4"}):
                with self.subTest(dtype=dtype, mask=mask):
                    self.assert_bits_of_the_whole(dtype, mask, ENDS)

    def test_those_of_a_long_prompt_too(self):
        for dtype in ("fp32", "bf16", "fp16"):
            with self.subTest(dtype=dtype):
                self.assert_bits_of_the_whole(dtype, {"causal": True}, LONG_ENDS)


if __name__ == "__main__":
    unittest.main()
