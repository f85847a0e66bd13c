"""spec.deterministic through the whole service: the same bits from any number of processes, by any plan and path, where a
worker has left, and beside other jobs."""

import contextlib
import itertools
import json
import os
import signal
import tempfile
import threading
import unittest

import numpy
import safetensors.numpy

from tests.end_to_end.harness import processes, raw_client, raw_job, service_case
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2

WORKERS = 4
# A file of NaN alone: memory that has held it, and a neighbour that computes with it, must not be seen.
POISON = os.path.join(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp(), "poison")
SHAPE = "1,1500,2100,4,2,64,bf16,5"
# Command and inputs; the keys of few queries go through the kernel in parts.
JOBS = {
    "forward": ("attend", SHAPE),
    "backward": ("gradients", "1,900,1100,4,2,32,bf16,5"),
    "decode": ("attend", "1,2,9001,4,2,64,bf16,5"),
}
# Jobs of other callers that run meanwhile: other content, shapes, types and numbers of ranks. Each
# thread runs one.
NOISE = (
    ("attend", "--synthetic", "2,700,900,6,3,32,fp16,77", "--world-size", "2", "--path", "gateway"),
    ("gradients", "--synthetic", "1,500,800,2,2,64,fp32,78", "--world-size", "3", "--mask", "causal"),
    ("attend", "--input", POISON, "--world-size", "2"),
)
RUNS = 20
LAYOUTS = ("contiguous", "zigzag", "striped", "by-area", "zigzag-per-sequence")
STRATEGIES = ("auto", "ring-pass-kv", "all-gather-kv", "rotate-kv", "halo", "ulysses", "ulysses-ring", "double-ring")


class DeterministicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        safetensors.numpy.save_file({name: numpy.full((800, 2, 64), numpy.nan, numpy.float32) for name in ("q", "k", "v")}, POISON)
        cls.service = cls.enterClassContext(processes.Processes(WORKERS))
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))
        cls.expected = {job: cls.bits(job, "--deterministic", "--world-size", "1") for job in JOBS}

    @classmethod
    def run_job(cls, job, *flags):
        command, shape = JOBS[job]
        done = cls.service.annulus(command, "--synthetic", shape, "--mask", "causal", "--json", *flags)
        if done.returncode != 0:
            raise AssertionError(f"{job} {flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    @classmethod
    def bits(cls, job, *flags):
        """The checksums of the job's outputs."""
        return {name: value for name, value in cls.run_job(job, *flags).items() if name.endswith("_crc32c")}

    def assert_same_bits(self, job, *flags):
        self.assertEqual(self.bits(job, "--deterministic", *flags), self.expected[job])

    def tearDown(self):
        service_case.await_idle(self.service)

    def run_plans(self, job, plans):
        """Runs the job by each (ranks, layout, strategy) at its index, and says which (layout, strategy) shared it out."""
        shared = set()
        for index, (world, layout, strategy) in plans:
            flags = ("--world-size", str(world), "--layout", layout, "--strategy", strategy,
                     "--path", ("direct", "gateway")[index // len(STRATEGIES) % 2])
            with self.subTest(job=job, flags=flags):
                self.assert_same_bits(job, *flags)
            if world > 1:
                shared.add((layout, strategy))
        return shared

    def test_every_plan(self):
        plans = enumerate(itertools.product((1, 2, 3, 4), LAYOUTS, STRATEGIES))
        shared = self.run_plans("forward", [(i, plan) for i, plan in plans if i % 3 == 0 or plan[:2] == (2, "zigzag")])
        self.assertEqual(shared, set(itertools.product(LAYOUTS, STRATEGIES)))

    def test_few_queries_of_many_keys(self):
        plans = enumerate(itertools.product((2, 3, 4), LAYOUTS, STRATEGIES))
        shared = self.run_plans("decode", [(i, plan) for i, plan in plans if i % 11 == 0 or plan[0] == 2])
        self.assertEqual(shared, set(itertools.product(LAYOUTS, STRATEGIES)))

    def test_without_the_option_bits_differ(self):
        """So the comparison can fail."""
        for job in JOBS:
            seen = {tuple(self.bits(job, "--world-size", str(world)).values()) for world in (1, 2, 3, 4)}
            self.assertGreater(len(seen), 1, job)

    def test_the_answer_is_right(self):
        for job in JOBS:
            self.run_job(job, "--deterministic", "--world-size", "3", "--verify", "60")

    @contextlib.contextmanager
    def beside_others(self):
        """Gives how often each job of NOISE has run by now; raises what any of them ended with."""
        stop, counts, errors = threading.Event(), [0] * len(NOISE), []

        def others(number):
            while not stop.is_set() and not errors:
                done = self.service.annulus(*NOISE[number])
                if done.returncode != 0:
                    errors.append(f"{NOISE[number]}\n{done.stdout}\n{done.stderr}")
                counts[number] += 1

        threads = [threading.Thread(target=others, args=(number,)) for number in range(len(NOISE))]
        for thread in threads:
            thread.start()
        try:
            yield counts
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(errors, [])

    def test_beside_other_jobs_again_and_again(self):
        """Each time by another plan, so that every strategy has run on several workers."""
        shared = set()
        with self.beside_others() as noise:
            for run, job in itertools.product(range(RUNS), JOBS):
                world, strategy = 1 + (run + run // 4) % WORKERS, STRATEGIES[run % len(STRATEGIES)]
                if job == "backward" and strategy == "ulysses":
                    world = min(world, 2)  # More would share a key/value head.
                with self.subTest(run=run, job=job, world=world, strategy=strategy):
                    self.assert_same_bits(job, "--world-size", str(world), "--strategy", strategy, "--layout", LAYOUTS[run % len(LAYOUTS)])
                if world > 1:
                    shared.add((job, strategy))
            ran = list(noise)
        self.assertEqual(shared, set(itertools.product(JOBS, STRATEGIES)))
        # Each ran about as often as a checked job; half as often is enough.
        self.assertGreaterEqual(min(ran), RUNS // 2, ran)

    def test_what_others_compute_changes_no_bits_of_a_plan_that_is_asked_for(self):
        """Without the option, too: one neighbour computes with NaN alone."""
        pinned = ("--world-size", "2", "--strategy", "ring-pass-kv", "--layout", "zigzag")
        alone = {job: self.bits(job, *pinned) for job in JOBS}
        with self.beside_others() as noise:
            for run, job in itertools.product(range(RUNS // 4), JOBS):
                with self.subTest(run=run, job=job):
                    self.assertEqual(self.bits(job, *pinned), alone[job])
            ran = list(noise)
        self.assertGreater(min(ran), 0, ran)

    def place(self, jobs, world):
        """The jobs at once, so that all of them have their workers before any of them runs."""
        return [self.enterContext(DirectJob(self.stubs, job, world_size=world)) for job in jobs]

    def test_on_whichever_workers(self):
        """Runs as many jobs at once as the workers have room for. By its plan, each runs on other
        workers."""
        decode = [(2, 9001)]  # The same as in JOBS.
        for (kind, lengths), world in itertools.product(
            ((raw_job.Job, [(150, 210)]), (raw_job.GradientsJob, [(150, 210)]), (raw_job.Job, decode)), (1, 2)
        ):
            jobs = [kind(lengths, causal=True) for _ in range(WORKERS // world)]
            for job in jobs:
                job.spec.deterministic = True
            placed = self.place(jobs, world)
            used = [shard.endpoint for direct in placed for shard in direct.plan.shards]
            self.assertEqual(len(set(used)), WORKERS, used)
            first, *others = (direct.bits() for direct in placed)
            self.assertEqual(len({tensor for tensor, _, _ in first}), 2 if kind is raw_job.Job else 3)
            for bits in others:
                self.assertEqual(bits, first)

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
            self.assertEqual(f"{answer.out_crc32c:08x}", self.expected["forward"]["output_crc32c"])

    def test_gradients_by_every_plan(self):
        plans = enumerate(itertools.product((1, 2, 3, 4), LAYOUTS, STRATEGIES))
        # For ulysses only plans whose ranks share no key/value head.
        some = [(i, plan) for i, plan in plans if plan[0] == 2 or i % 7 == 0 and (plan[2] != "ulysses" or plan[0] == 1)]
        self.assertEqual(self.run_plans("backward", some), set(itertools.product(LAYOUTS, STRATEGIES)))

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

    def test_zz_where_a_worker_has_left(self):
        """Last: the other cases need all workers."""
        self.service.worker(1).signal(signal.SIGTERM)

        def members():
            workers = service_case.cluster_state(self.service)["workers"]
            return sum(each["state"] == "ready" for each in workers) == WORKERS - 1

        service_case.wait_for(members, 10, "a membership without it")
        for world, job in itertools.product((1, 2, 3), JOBS):
            with self.subTest(world=world, job=job):
                self.assert_same_bits(job, "--world-size", str(world))


if __name__ == "__main__":
    unittest.main()
