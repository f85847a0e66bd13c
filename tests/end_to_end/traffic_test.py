"""Bytes between ranks in whole jobs, by the counters in a job's answer: none if nothing has to
move, and with a window no more than it shows."""

import itertools
import json
import unittest

import numpy

from tests.end_to_end.harness.attend_case import ALL_STRATEGIES, PATHS, every_pair
from tests.end_to_end.harness.gradient_case import GradientCase

COMMANDS = ("attend", "gradients")
# An exchange of heads moves every row, whatever it sees.
BY_NEED = tuple(strategy for strategy in ALL_STRATEGIES if strategy != "ulysses")


def chosen(strategy):
    """The flags for it; left alone, the cost model may find that heads are exchanged faster."""
    return ("--strategy", strategy) + (("--ulysses-degree", "1") if strategy == "ulysses-ring" else ())


class TrafficTest(GradientCase):
    WORKERS = 3

    def synthetic(self, command, shape, *flags):
        done = self.service.annulus(command, "--json", "--synthetic", shape, *flags)
        self.assertEqual(done.returncode, 0, f"{flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def assert_quiet(self, facts, world):
        self.assertEqual(facts["bytes_sent_per_rank"], [0] * world)

    def test_one_rank_sends_nothing_and_waits_for_nobody(self):
        for strategy, command, path in every_pair(ALL_STRATEGIES, COMMANDS, PATHS):
            with self.subTest(command=command, strategy=strategy, path=path):
                flags = ("--strategy", strategy, "--world-size", "1", "--path", path, "--verify", "20")
                facts = self.synthetic(command, "1,150,210,4,2,16,bf16,1", "--mask", "causal", *flags)
                self.assert_quiet(facts, 1)
                self.assertEqual(facts["exposed_communication_seconds"], 0)

    def test_a_small_job_is_left_on_one_rank(self):
        for command in COMMANDS:
            facts = self.synthetic(command, "1,64,64,4,2,16,bf16,1")
            self.assertEqual(facts["world_size"], 1)
            self.assert_quiet(facts, 1)

    def test_documents_that_have_one_rank_each_send_nothing(self):
        """12 documents, whose rows and keys every one of these layouts deals whole: four to each of three ranks."""
        spec = {"masks": [{"causal": True}], "sequences": [{"qLen": "25", "kvLen": "30"}] * 12}
        tensors = self.made(numpy.random.default_rng(1), 12 * 25, 12 * 30)
        given = self.forward(tensors, spec, "fp32")
        for strategy, layout in zip(BY_NEED, itertools.cycle(("contiguous", "zigzag", "by-area"))):
            with self.subTest(strategy=strategy, layout=layout):
                flags = ("--world-size", "3", *chosen(strategy), "--layout", layout, "--verify", "20")
                _, facts = self.run_file(tensors, "--spec", self.spec_file(spec), *flags)
                self.assert_quiet(facts, 3)
                _, facts = self.run_gradients(given, spec, "fp32", *flags)
                self.assert_quiet(facts, 3)
        # Cut elsewhere they do send, and that is counted.
        _, facts = self.run_file(tensors, "--spec", self.spec_file(spec), "--world-size", "3", "--layout", "zigzag-per-sequence")
        self.assertGreater(sum(facts["bytes_sent_per_rank"]), 0)

    def test_what_a_window_sends_does_not_grow_with_the_length(self):
        window, key_bytes = 100, 2 * 16 * 4  # A row of K and V: one head of 16, twice, in fp32.
        spec = self.spec_file({"masks": [{"causal": True, "windowLeft": str(window)}]})
        for command, strategy in itertools.product(COMMANDS, BY_NEED):
            with self.subTest(command=command, strategy=strategy):
                flags = ("--spec", spec, "--world-size", "3", "--layout", "contiguous", *chosen(strategy))
                sent = [self.synthetic(command, f"1,{rows},{rows},2,1,16,fp32,1", *flags)["bytes_sent_per_rank"]
                        for rows in (600, 4800)]
                self.assertEqual(*sent)
                self.assertGreater(sum(sent[0]), 0)
                if command == "attend" and strategy not in ("ring-pass-q", "tree"):
                    self.assertEqual(sum(sent[0]), 2 * window * key_bytes)  # Over each of two borders.

    def test_a_window_of_4096_sends_as_much_at_a_million_tokens(self):
        flags = ("--mask", "causal", "--window", "4095", "--strategy", "halo", "--world-size", "3", "--layout", "contiguous", "--verify", "8")
        for rows in (1 << 15, 1 << 20):
            with self.subTest(rows=rows):
                sent = self.synthetic("attend", f"1,{rows},{rows},1,1,8,bf16,1", *flags)["bytes_sent_per_rank"]
                self.assertEqual(sent, [4095 * 2 * 8 * 2] * 2 + [0])


if __name__ == "__main__":
    unittest.main()
