"""Masks of some sequences and heads, and range lists: real processes, every strategy, judged by numpy in fp64."""

import itertools
import unittest

import numpy

from tests.end_to_end.harness.attend_case import ALL_LAYOUTS, ALL_STRATEGIES, AttendCase, hidden_by, mask_of, reference, rounded

SEQUENCES = ((90, 120, 0), (70, 70, 2), (61, 40, 4))  # Query rows, key rows, mask.
HEADS, GROUP, DIM = 6, 3, 16
MASKS = (
    {"causal": True},
    {"causal": True, "windowLeft": "11", "queryHeads": [1, 4, 5]},
    {"ranges": [{"qBegin": 0, "qEnd": 40, "kBegin": 5, "kEnd": 44, "kind": "KIND_CAUSAL"},
                {"qBegin": 20, "qEnd": 70, "kBegin": 10, "kEnd": 60, "kind": "KIND_INVERSE_CAUSAL"},
                {"qBegin": 35, "qEnd": 66, "kBegin": 30, "kEnd": 70, "kind": "KIND_BI_CAUSAL"},
                {"qBegin": 0, "qEnd": 9, "kBegin": 50, "kEnd": 70, "kind": "KIND_FULL"}]},
    {"chunk": "16", "queryHeads": [0]},
    {"causal": True, "alwaysVisible": "2", "windowLeft": "5"},
)


def group_of(first):
    """The masks of the group that begins at `first`."""
    return [MASKS[first], *itertools.takewhile(lambda mask: "queryHeads" in mask, MASKS[first + 1 :])]


class MasksTest(AttendCase):
    WORKERS = 4

    def test_every_strategy_follows_the_mask_of_each_sequence_and_head(self):
        random = numpy.random.default_rng(7)
        q_rows, k_rows = (sum(sequence[side] for sequence in SEQUENCES) for side in (0, 1))
        q = rounded(random.standard_normal((q_rows, HEADS, DIM)), "fp32")
        k, v = (rounded(random.standard_normal((k_rows, HEADS // GROUP, DIM)), "fp32") for _ in range(2))
        exact = numpy.zeros((q_rows, HEADS, DIM))
        lse = numpy.full((HEADS, q_rows), -numpy.inf)
        q0 = k0 = 0
        for q_len, kv_len, first in SEQUENCES:
            for head in range(HEADS):
                one, at = slice(q0, q0 + q_len), slice(k0, k0 + kv_len)
                kv = slice(head // GROUP, head // GROUP + 1)
                hidden = hidden_by(mask_of(group_of(first), head), q_len, kv_len)
                out, log = reference(q[one, head : head + 1], k[at, kv], v[at, kv], hidden, numpy.float64)
                exact[one, head], lse[head, one] = out[:, 0], log[0]
            q0, k0 = q0 + q_len, k0 + kv_len
        spec = self.spec_file({"masks": MASKS, "sequences": [{"qLen": a, "kvLen": b, "mask": m} for a, b, m in SEQUENCES]})
        for index, (strategy, world) in enumerate(itertools.product(ALL_STRATEGIES, (2, 3, 4))):
            layout = ALL_LAYOUTS[index % len(ALL_LAYOUTS)]
            with self.subTest(strategy=strategy, world=world, layout=layout):
                answer, facts = self.run_file({"q": q, "k": k, "v": v}, "--spec", spec, "--strategy", strategy, "--layout", layout,
                                              "--world-size", str(world), "--path", ("direct", "gateway")[index % 2], "--verify", "64")
                self.assertEqual((facts["strategy"], facts["world_size"]), (strategy, world))
                error = numpy.abs(answer["output"] - exact).max()
                self.assertLessEqual(error, 2e-6)
                seen = numpy.isfinite(lse)
                self.assertTrue((answer["lse"][~seen] == -numpy.inf).all())
                self.assertLessEqual(numpy.abs(answer["lse"][seen] - lse[seen]).max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
