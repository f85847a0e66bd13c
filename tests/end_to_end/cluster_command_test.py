"""Tests the output of `annulus cluster`: workers with their budgets, groups, the queue and jobs."""

import json
import os
import unittest
import unittest.mock

from tests.end_to_end.harness import cluster, raw_client, raw_job
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import jobs_pb2, types_pb2
from tests.end_to_end.harness.service_case import ServiceCase, await_idle, cluster_state, wait_for

MIB = 1 << 20
LIMITS = {"staging": 64 * MIB, "device": 256 * MIB, "sessions": 0}


class ClusterCommandTest(ServiceCase):
    FLAGS = ("--threads", "1", "--staging-bytes", "64MiB", "--device-bytes", "256MiB")

    def text(self):
        done = self.service.annulus("cluster")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_workers_with_their_budgets_and_groups(self):
        await_idle(self.service)
        facts = cluster_state(self.service)
        self.assertTrue(facts["ready"])
        self.assertEqual([worker["slot"] for worker in facts["workers"]], ["worker-0", "worker-1"])
        for worker in facts["workers"]:
            self.assertEqual(worker["state"], "ready")
            self.assertRegex(worker["backend"], r"^cpu/(amx|avx512bf16|avx512|avx2|portable) \+ gloo$")
            for budget, limit in LIMITS.items():
                self.assertEqual(worker[budget], {"used_bytes": 0, "limit_bytes": limit}, budget)
        (group,) = facts["groups"]
        self.assertEqual((group["slots"], group["ready"]), (["worker-0", "worker-1"], True))
        self.assertGreater(group["generation"], 0)
        self.assertRegex(self.text(), r"(?s)0 jobs wait, 0 run\n.*worker-0.*0 B of 67.11 MB.*worker-1")

    def test_a_job_that_waits_and_one_that_does_not(self):
        job = raw_job.Job([(8, 1 << 18)])  # More than half of the staging memory, at each of two ranks.
        with DirectJob(self.stubs, job, world_size=2) as first:
            held = cluster_state(self.service)
            self.assertEqual((held["queued_jobs"], held["running_jobs"]), (0, 1))
            for worker in held["workers"]:
                self.assertGreater(worker["staging"]["used_bytes"], 32 * MIB)
            request = jobs_pb2.RunJobRequest(spec=job.spec, execution=types_pb2.Execution(world_size=2))
            with raw_client.Stream(self.stubs.jobs.RunJob, 60, request) as second:
                waiting = second.read().job_id
                wait_for(lambda: cluster_state(self.service)["queued_jobs"] == 1, 20, "a job in the queue")
                facts = cluster_state(self.service)
                states = {each["job_id"]: each["state"] for each in facts["jobs"]}
                self.assertEqual((states[first.job_id], states[waiting]), ("uploading", "queued"))
                self.assertEqual(facts["running_jobs"], 1)
                self.assertEqual([worker["staging"] for worker in facts["workers"]],
                                 [worker["staging"] for worker in held["workers"]])
                self.assertIn("1 job waits, 1 runs\n", self.text())
        await_idle(self.service)
        states = {each["job_id"]: each["state"] for each in cluster_state(self.service)["jobs"]}
        self.assertEqual({states[first.job_id], states[waiting]}, {"cancelled"})


    def test_the_latest_jobs_that_have_ended_and_all_when_asked(self):
        for _ in range(12):
            done = self.service.annulus("attend", "--synthetic", "1,4,4,1,1,4,fp32,1")
            self.assertEqual(done.returncode, 0, done.stderr)
        latest = [line for line in self.text().splitlines() if line.startswith("job ")]
        self.assertEqual(len(latest), 10)
        for line in latest:
            self.assertRegex(line, r"^job \S+: succeeded after \d+\.\d ms")
        self.assertRegex(self.text(), r"\nand \d+ earlier jobs that have ended \(--all shows them\)\n$")
        every = self.service.annulus("cluster", "--all").stdout
        self.assertGreaterEqual(every.count("\njob "), 12)
        self.assertNotIn("earlier jobs", every)

    def test_json_has_the_same_jobs_as_the_text(self):
        for _ in range(12):
            done = self.service.annulus("attend", "--synthetic", "1,4,4,1,1,4,fp32,1")
            self.assertEqual(done.returncode, 0, done.stderr)
        latest, every = (json.loads(self.service.annulus("cluster", "--json", *flags).stdout) for flags in ((), ("--all",)))
        self.assertEqual(len(latest["jobs"]), 10)
        self.assertEqual(latest["jobs"], every["jobs"][:10])
        self.assertEqual(latest["jobs_left_out"], len(every["jobs"]) - 10)
        self.assertGreaterEqual(latest["jobs_left_out"], 2)
        self.assertEqual(every["jobs_left_out"], 0)

    def test_a_job_is_cancelled_by_its_name(self):
        with DirectJob(self.stubs, raw_job.Job([(8, 8)]), world_size=1) as job:
            done = self.service.annulus("cancel", "--job", job.job_id)
            self.assertEqual((done.returncode, done.stdout), (0, f"job {job.job_id}: cancelled\n"), done.stderr)
        again = self.service.annulus("cancel", "--job", job.job_id, "--json")
        self.assertEqual(json.loads(again.stdout), {"job_id": job.job_id, "state": "cancelled"})
        unknown = self.service.annulus("cancel", "--job", "job-nope")
        self.assertEqual(unknown.returncode, 3)
        self.assertIn("JOB_NOT_FOUND", unknown.stderr)

    def test_the_address_may_come_from_the_environment(self):
        with unittest.mock.patch.dict(os.environ, ANNULUS_ADDRESS=self.service.address):
            self.assertEqual(cluster.annulus("cluster").returncode, 0)
        with unittest.mock.patch.dict(os.environ, ANNULUS_ADDRESS="nowhere"):
            done = cluster.annulus("cluster")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--address: 'nowhere' is not HOST:PORT", done.stderr)


class LogTest(ServiceCase):
    FLAGS = ("--threads", "1", "--log-format", "json", "--log-level", "debug")

    def test_every_line_is_json_and_says_its_job(self):
        jobs = []
        for world in ("2", "1"):
            done = self.service.annulus("attend", "--json", "--synthetic", "1,64,64,2,2,16,fp32,1", "--world-size", world)
            self.assertEqual(done.returncode, 0, done.stderr)
            jobs.append(json.loads(done.stdout)["job_id"])
        await_idle(self.service)

        def components():
            return {(line["component"], line.get("job")) for line in map(json.loads, filter(None, list(self.service.log)))}

        group, solo = jobs
        wanted = {("coordinator", group), ("worker-0", group), ("worker-1", group), ("coordinator", solo)}
        either = {("worker-0", solo), ("worker-1", solo)}
        wait_for(lambda: wanted <= components() and either & components(), 20, components)
        for text in filter(None, list(self.service.log)):
            line = json.loads(text)
            self.assertEqual(list(line)[:3], ["time", "level", "component"], text)
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("debug", "info", "warning", "error"), text)
            self.assertTrue(line["message"], text)
            self.assertLessEqual(set(line), {"time", "level", "component", "job", "message"})
            for job in jobs:
                if job in line["message"]:
                    self.assertEqual(line["job"], job, text)

    def test_it_says_what_was_taken_and_what_was_not(self):
        done = self.service.annulus("attend", "--json", "--synthetic", "1,300,300,2,2,16,fp32,1", "--strategy", "auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)

        def messages():
            return [line["message"] for line in map(json.loads, filter(None, list(self.service.log))) if line.get("job") == facts["job_id"]]

        way = r"[a-z-]+, [a-z-]+(, \d+ x \d+)?, \d workers?: \S+ ms(, at most \d+ bytes a worker)?"
        wait_for(lambda: any("placed: " in message for message in messages()), 20, messages)
        (placed,) = [message for message in messages() if "placed: " in message]
        self.assertRegex(placed, rf"^attempt 1 placed: {facts['strategy']}, {facts['layout']}, {facts['world_size']} worker.*bytes a worker$")
        self.assertRegex(placed, f"^attempt 1 placed: {way}$")
        rejected = [message for message in messages() if message.startswith("rejected ")]
        self.assertGreater(len(rejected), 1)
        for message in rejected:
            self.assertRegex(message, f"^rejected {way}: .+")


if __name__ == "__main__":
    unittest.main()
