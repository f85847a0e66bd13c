"""spec.deterministic through the whole service: the same bits from any number of processes, by any plan and path, after a
worker was lost, and beside other jobs."""

import itertools
import json
import threading
import unittest

from tests.end_to_end import processes, raw_client, service_case
from tests.end_to_end.raw_client import attention_pb2, types_pb2

WORKERS = 4
SHAPE = "1,1500,2100,4,2,64,bf16,5"
LAYOUTS = ("contiguous", "zigzag", "striped", "by-area", "zigzag-per-sequence")
STRATEGIES = ("auto", "ring-pass-kv", "all-gather-kv", "rotate-kv", "halo", "ulysses", "ulysses-ring", "double-ring")


class DeterministicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(processes.Processes(WORKERS, ()))
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))
        cls.expected = cls.bits("--world-size", "1")

    @classmethod
    def attend(cls, *flags):
        done = cls.service.annulus("attend", "--synthetic", SHAPE, "--mask", "causal", "--json", *flags)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return json.loads(done.stdout)

    @classmethod
    def bits(cls, *flags):
        facts = cls.attend("--deterministic", *flags)
        return facts["output_crc32c"], facts["lse_crc32c"]

    def tearDown(self):
        service_case.await_idle(self.service)

    def test_every_plan(self):
        plans = itertools.product((1, 2, 3, 4), LAYOUTS, STRATEGIES)
        for index, (world, layout, strategy) in enumerate(plans):
            if index % 3 and (world, layout) != (2, "zigzag"):
                continue
            flags = ("--world-size", str(world), "--layout", layout, "--strategy", strategy,
                     "--path", ("direct", "gateway")[index % 2])
            with self.subTest(flags=flags):
                self.assertEqual(self.bits(*flags), self.expected)

    def test_without_the_option_bits_differ(self):
        """So the comparison can fail."""
        seen = {self.attend("--world-size", str(world))["output_crc32c"] for world in (1, 2, 3, 4)}
        self.assertGreater(len(seen), 1)

    def test_the_answer_is_right(self):
        self.attend("--deterministic", "--world-size", "3", "--verify", "300")

    def test_beside_other_jobs_again_and_again(self):
        stop = threading.Event()

        def others():
            while not stop.is_set():
                self.attend("--world-size", "2", "--path", "gateway")

        noise = [threading.Thread(target=others) for _ in range(2)]
        for thread in noise:
            thread.start()
        try:
            for run in range(20):
                self.assertEqual(self.bits("--world-size", str(1 + run % WORKERS)), self.expected, run)
        finally:
            stop.set()
            for thread in noise:
                thread.join()

    def test_inline(self):
        spec = types_pb2.AttentionSpec(
            dtype=types_pb2.DATA_TYPE_BF16, q_heads=4, kv_heads=2, head_dim=64, deterministic=True
        )
        spec.masks.add(causal=True)
        spec.sequences.add(q_len=1500, kv_len=2100)
        for world in (1, 3):
            request = attention_pb2.AttendInlineRequest(
                spec=spec,
                execution=types_pb2.Execution(world_size=world),
                synthetic=attention_pb2.SyntheticInputs(seed=5),
            )
            answer = raw_client.call(self.stubs.attention.AttendInline, request)
            self.assertEqual(f"{answer.out_crc32c:08x}", self.expected[0])

    def test_gradients_by_every_plan(self):
        def bits(*flags):
            done = self.service.annulus("gradients", "--synthetic", "1,900,1100,4,2,32,bf16,5", "--mask", "causal", "--json", *flags)
            self.assertEqual(done.returncode, 0, f"{flags}\n{done.stdout}\n{done.stderr}")
            return tuple(json.loads(done.stdout)[f"{name}_crc32c"] for name in ("dq", "dk", "dv"))

        expected = bits("--deterministic", "--world-size", "1")
        plans = itertools.product((1, 2, 3, 4), LAYOUTS, STRATEGIES)
        for index, (world, layout, strategy) in enumerate(plans):
            if index % 5 or (strategy == "ulysses" and world > 2):
                continue
            flags = ("--deterministic", "--world-size", str(world), "--layout", layout, "--strategy", strategy,
                     "--path", ("direct", "gateway")[index % 2])
            with self.subTest(flags=flags):
                self.assertEqual(bits(*flags), expected)
        bits("--deterministic", "--world-size", "3", "--verify", "60")
        self.assertGreater(len({bits("--world-size", str(world)) for world in (1, 2, 3, 4)}), 1)

    def test_gradients_that_would_be_added_up_by_rank_are_refused(self):
        for how in (("ulysses", "--world-size", "4"), ("ulysses-ring", "--ulysses-degree", "3"), ("tree",)):
            done = self.service.annulus("gradients", "--synthetic", SHAPE, "--deterministic", "--strategy", *how)
            self.assertEqual(done.returncode, 3)
            self.assertIn("NOT_SERVED", done.stderr)

    def test_what_merges_partials_is_refused(self):
        for strategy in ("ring-pass-q", "tree"):
            done = self.service.annulus("plan", "--synthetic", SHAPE, "--deterministic", "--strategy", strategy)
            self.assertEqual(done.returncode, 3)
            self.assertIn("NOT_SERVED", done.stderr)

    def test_zz_after_a_worker_was_lost(self):
        """Last: the other cases need all workers."""
        self.service.worker(1).kill()

        def members():
            workers = service_case.cluster_state(self.service)["workers"]
            return sum(each["state"] == "ready" for each in workers) == WORKERS - 1

        service_case.wait_for(members, 10, "a membership without it")
        for world in (1, 2, 3):
            self.assertEqual(self.bits("--world-size", str(world)), self.expected)


if __name__ == "__main__":
    unittest.main()
