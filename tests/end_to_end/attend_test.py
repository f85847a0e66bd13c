"""Jobs through the whole service: real processes on loopback, answers verified in fp64 by the client."""

import itertools
import json
import os
import pty
import subprocess
import threading
import unittest

from tests.end_to_end.harness import cluster, service_case
from tests.end_to_end.harness.attend_case import LAYOUTS, PATHS, STRATEGIES, AttendCase

LENGTHS = (0, 1, 7, 509, 4097, 16385)
DTYPES = ("fp32", "bf16", "fp16")


class MatrixTest(AttendCase):
    def test_every_world_size_strategy_and_layout(self):
        for world, strategy, (number, layout) in itertools.product((1, 2, 3, 4), STRATEGIES, enumerate(LAYOUTS)):
            path = PATHS[(number + world) % 2]
            with self.subTest(world=world, strategy=strategy, layout=layout, path=path):
                facts = self.attend(
                    "--synthetic", "1,509,509,4,2,32,fp32,3", "--mask", "causal", "--verify", "128",
                    "--world-size", str(world), "--strategy", strategy, "--layout", layout, "--path", path,
                )
                self.assertEqual((facts["world_size"], facts["path"]), (world, path))
                if world > 1:
                    self.assertEqual((facts["strategy"], facts["layout"]), (strategy, layout))

    def test_every_length_type_and_mask(self):
        cases = []
        for (a, length), (b, dtype), (c, mask) in itertools.product(
            enumerate(LENGTHS), enumerate(DTYPES), enumerate(("full", "causal"))
        ):
            world, path = 1 + (a + b + 2 * c) % self.WORKERS, PATHS[(a // 2 + a // 4 + b + c) % 2]
            cases.append((length, dtype, mask, world, path))
        # Each length, type, mask, world size and path meets each; so do each type and mask together with world sizes and paths.
        self.assertEqual([len({(case[i], case[j]) for case in cases}) for i, j in itertools.combinations(range(5), 2)],
                         [18, 12, 24, 12, 6, 12, 6, 8, 4, 8])
        self.assertEqual([len({case[1:3] + case[i : i + 1] for case in cases}) for i in (3, 4)], [24, 12])
        for length, dtype, mask, world, path in cases:
            with self.subTest(length=length, dtype=dtype, mask=mask, world=world, path=path):
                facts = self.attend(
                    "--synthetic", f"1,{length},{length},2,1,32,{dtype},5", "--mask", mask, "--verify", "128",
                    "--path", path, "--world-size", str(world),
                )
                self.assertEqual((facts["world_size"], facts["path"]), (world, path))
                self.assertEqual(facts["verified"]["rows"], min(length, 128))

    def test_lengths_that_differ_and_batches(self):
        for shape in ("1,100,700,4,4,64,fp32,1", "1,700,100,4,1,64,bf16,1", "3,65,33,4,2,16,48,fp16,1",
                      "2,0,50,2,2,8,fp32,1", "2,50,0,2,2,8,fp32,1", "1,1,4097,8,2,64,fp32,1"):
            for mask in ("full", "causal", "causal-top-left"):
                with self.subTest(shape=shape, mask=mask):
                    self.attend("--synthetic", shape, "--mask", mask, "--verify", "200")

    def test_the_balance_is_that_of_visible_pairs(self):
        """The last third of a causal job has five ninths of its pairs."""
        for path, (layout, least, most) in itertools.product(
            PATHS, (("contiguous", 5 / 3 - 0.05, 5 / 3 + 0.05), ("by-area", 1, 1.05), ("zigzag", 1, 1.05), ("striped", 1, 1.05))
        ):
            job = ("--synthetic", "1,900,900,2,1,32,fp32,7", "--mask", "causal", "--world-size", "3", "--strategy", "ring-pass-kv", "--layout", layout)
            plan = json.loads(self.service.annulus("plan", "--json", *job).stdout)
            facts = self.attend(*job, "--path", path)
            for said in (plan, facts):
                with self.subTest(path=path, layout=layout):
                    self.assertEqual((said["layout"], said["world_size"]), (layout, 3))
                    self.assertGreaterEqual(said["balance"], least)
                    self.assertLessEqual(said["balance"], most)

    def test_both_paths_give_the_same_bits_of_the_same_plan(self):
        for world, strategy, mask in itertools.product((1, 2, 3, 4), STRATEGIES, ("full", "causal")):
            with self.subTest(world=world, strategy=strategy, mask=mask):
                flags = ("--synthetic", "1,300,300,4,4,64,fp32,8", "--strategy", strategy, "--mask", mask,
                         "--world-size", str(world))
                direct, gateway = (self.attend(*flags, "--path", path) for path in PATHS)
                self.assertEqual((direct["path"], gateway["path"]), PATHS)
                for name in ("world_size", "strategy", "layout", "output_crc32c", "lse_crc32c"):
                    self.assertEqual(direct[name], gateway[name], name)


class CommandLineTest(AttendCase):
    WORKERS = 2

    def test_the_cluster_shows_its_workers_and_nothing_held(self):
        self.attend("--synthetic", "1,64,64,2,2,16,fp32,1")
        service_case.await_idle(self.service)
        done = self.service.annulus("cluster", "--json", "--wait", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual(service_case.used_bytes(facts), {})
        self.assertTrue(facts["ready"])
        self.assertEqual({worker["state"] for worker in facts["workers"]}, {"ready"})
        self.assertEqual(len(facts["workers"]), 2)
        self.assertTrue(all(worker["staging"]["limit_bytes"] > 0 for worker in facts["workers"]))
        self.assertIn("succeeded", {job["state"] for job in facts["jobs"]})
        self.assertEqual(self.service.annulus("cluster").returncode, 0)

    def test_waiting_for_too_many_workers_ends_at_the_deadline(self):
        done = self.service.annulus("cluster", "--wait", "9", "--timeout", "300ms")
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_a_plan_says_why(self):
        done = self.service.annulus("plan", "--json", "--synthetic", "1,4096,4096,8,2,64,bf16,1", "--mask", "causal",
                                    "--world-size", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["world_size"], 2)
        self.assertGreater(plan["predicted_seconds"], 0)
        self.assertEqual(len(plan["shards"]), 2)
        self.assertTrue(plan["rejected"])
        for rejected in plan["rejected"]:
            self.assertGreater(len(rejected["reason"].split()), 1, rejected)
            self.assertGreater(rejected["bytes_sent_per_rank"], 0)
            if rejected["predicted_seconds"] >= plan["predicted_seconds"] or rejected["reason"].startswith("left aside"):
                continue
            # Among executions of about equal time, the one that sends least is chosen
            # (choose_execution.h).
            self.assertLessEqual(plan["predicted_seconds"], 1.08 * rejected["predicted_seconds"], rejected)
            self.assertLessEqual(max(plan["bytes_sent_per_rank"]), rejected["bytes_sent_per_rank"], rejected)

    def test_a_plan_says_what_each_link_carries(self):
        flags = ("plan", "--synthetic", "1,4096,4096,8,2,64,bf16,1", "--world-size", "2", "--strategy", "ring-pass-kv",
                 "--layout", "contiguous")
        plan = json.loads(self.service.annulus(*flags, "--json").stdout)
        shard_bytes = 2048 * 2 * (64 + 64) * 2
        self.assertEqual(plan["links"], [{"from": rank, "to": 1 - rank, "bytes": shard_bytes} for rank in (0, 1)])
        self.assertEqual(plan["bytes_sent_per_rank"], [shard_bytes] * 2)
        text = self.service.annulus(*flags).stdout
        self.assertIn("plan: ring-pass-kv, contiguous, 2 workers\npredicted: ", text)
        for rank in (0, 1):
            self.assertIn(f"  rank {rank}: 2048 query rows, 2048 key rows, in 3.15 MB, out 2.16 MB, to others 1.05 MB\n", text)
            self.assertIn(f"  rank {rank} to rank {1 - rank}: 1.05 MB\n", text)
        text = self.service.annulus("plan", "--synthetic", "1,4096,4096,8,2,64,bf16,1", "--world-size", "2").stdout
        self.assertRegex(text, r"\nnot taken:\n(  [a-z-]+, .*2 workers.*: \w.* \([0-9.e-]+ s, [0-9.]+ [kM]B sent by a rank\)\n)+$")

    def test_a_plan_counts_what_could_not_save_anything_too(self):
        flags = ("plan", "--synthetic", "1,4,4,2,2,16,fp32,1")  # Less than a group takes to meet.
        text = self.service.annulus(*flags).stdout
        self.assertRegex(text, r"\nnot taken:\n(  [a-z-]+, [a-z-]+(?: by 1)?, 2 workers: (?:its fixed cost|left aside: )[a-z ,-]+ \([0-9.e-]+ s, [0-9.]+ k?B sent by a rank\)\n)+$")
        for rejected in json.loads(self.service.annulus(*flags, "--json").stdout)["rejected"]:
            self.assertGreater(rejected["bytes_sent_per_rank"], 0, rejected)
            self.assertGreater(rejected["predicted_seconds"], 0, rejected)

    def test_no_progress_bar_in_a_pipe(self):
        done = self.service.annulus("attend", "--synthetic", "1,64,64,2,2,16,fp32,1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("GB/s", done.stdout)

    def test_a_progress_bar_on_a_terminal(self):
        ours, terminal = pty.openpty()
        shown = []

        def read():
            while True:
                try:
                    shown.append(os.read(ours, 4096))
                except OSError:  # Its last writer is gone.
                    return

        reader = threading.Thread(target=read)
        reader.start()
        with subprocess.Popen(
            [cluster.program(), "attend", "--address", self.service.address, "--json",
             "--synthetic", "1,4097,4097,4,2,64,bf16,1"],
            stdout=subprocess.PIPE, stderr=terminal, text=True, env={**os.environ, "TERM": "xterm"},
        ) as process:
            os.close(terminal)
            out, _ = process.communicate(timeout=cluster.CALL_SECONDS)
        reader.join(timeout=cluster.CALL_SECONDS)
        os.close(ours)
        text = b"".join(shown).decode()
        self.assertEqual(process.returncode, 0, text)
        json.loads(out)  # The bar is on standard error alone.
        self.assertRegex(text, r"^\r(waiting|uploading|computing|fetching) +\[#* *\] +\d+ %")
        self.assertRegex(text, r"\r +\r$")  # It is taken away.
        self.assertNotIn("\n", text)

    def test_wrong_command_lines_end_with_2_and_one_line(self):
        for arguments in (("attend",), ("attend", "--nonsense"), ("attend", "--mask", "diagonal"),
                          ("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--world-size", "-1"), ("dance",), (),
                          ("cluster", "--timeout", "soon"), ("serve", "--workers", "0"),
                          ("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--scale", "nan"),
                          ("plan", "--synthetic", "1,1,1,1,1,1,fp32,1", "--scale", "-inf"),
                          ("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--scale", "1e39")):
            done = cluster.annulus(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_an_output_that_cannot_be_written_fails_before_the_job(self):
        before = json.loads(self.service.annulus("cluster", "--json").stdout)["jobs"]
        for path in ("/nonexistent/out", "/"):
            done = self.service.annulus("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--output", path)
            self.assertNotEqual(done.returncode, 0, path)
            self.assertIn(path, done.stderr)
        self.assertEqual(json.loads(self.service.annulus("cluster", "--json").stdout)["jobs"], before)

    def test_no_coordinator_is_try_again(self):
        done = cluster.annulus("cluster", "--address", "127.0.0.1:1", "--json")
        self.assertEqual(done.returncode, 4, done.stderr)


if __name__ == "__main__":
    unittest.main()
