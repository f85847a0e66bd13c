"""A worker is killed, or stands still: its job ends with a typed error or runs again and is right, and the service heals."""

import contextlib
import json
import signal
import subprocess
import unittest

from tests.end_to_end.harness import cluster, processes, raw_client, raw_job, service_case
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import jobs_pb2, types_pb2

WORKERS = 3
# From a kill to a membership without the worker, and a lease (3 s) more for one that stands still.
DETECT_SECONDS = 10
# Workers as slow as they can be: a long job is some seconds of compute on any machine.
WORKER_FLAGS = {"--kernel": "portable"}
LONG = "1,6144,6144,8,8,64,fp32,3"
LONG_BACKWARD = "1,4096,4096,8,8,64,fp32,3"


def long_job():
    return raw_job.Job([(6144, 6144)], q_heads=8, kv_heads=8, head_dim=64)


class LostWorkerTest(unittest.TestCase):
    COORDINATOR_FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(processes.Processes(WORKERS, cls.COORDINATOR_FLAGS, WORKER_FLAGS))
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))

    def tearDown(self):
        """Every slot has a worker again, nothing is held, and all of them compute together."""
        for number in range(WORKERS):
            if not self.service.worker(number).state():
                self.service.start_worker(number)
        self.await_members(range(WORKERS), seconds=processes.START_SECONDS)
        service_case.await_idle(self.service)
        self.attend_right(WORKERS)

    def attend_right(self, world_size):
        job = raw_job.Job([(65, 65), (0, 4)], causal=True, seed=11)
        # A group that is just being formed is worth a second try, as RetryInfo says.
        service_case.attend(self.stubs, job, types_pb2.Execution(world_size=world_size))

    def await_members(self, numbers, state="ready", seconds=DETECT_SECONDS):
        """Waits until just these slots are there, in this state."""
        wanted, seen = {f"w{number}" for number in numbers}, {}

        def there():
            workers = service_case.cluster_state(self.service)["workers"]
            seen.update(workers=workers)
            return {each["slot"] for each in workers if each["state"] == state} == wanted

        service_case.wait_for(there, seconds, lambda: f"{wanted} {state}; it says {seen}")

    def job_in(self, state):
        """The id of the one job that reaches the state, or that the client's job has by then."""
        found = []

        def there():
            request = jobs_pb2.ListJobsRequest()
            jobs = raw_client.call(self.stubs.jobs.ListJobs, request).jobs
            wanted = jobs_pb2.Job.State.Value(state)
            found[:] = [job.job_id for job in jobs if job.state == wanted]
            return found

        service_case.wait_for(there, 60, f"a job in {state}")
        return found[0]

    def gateway_job(self, job, share=1.0):
        """An Attend call over all workers that has sent this share of its chunks."""
        call = self.enterContext(raw_client.Attend(self.stubs, timeout=280))
        call.start(job.spec, types_pb2.Execution(world_size=WORKERS))
        job_id = call.accepted().job_id
        chunks = list(job.chunks())
        for chunk in chunks[: int(share * len(chunks))]:
            call.chunk(chunk)
        if share == 1:
            call.half_close()
        return call, job_id

    def assert_group_lost(self, call):
        with self.assertRaises(raw_client.CallError) as caught:
            for message in call.read_all():
                self.fail(f"an answer from a lost group: {message}")
        error = caught.exception
        self.assertEqual((error.code, error.reason), ("ABORTED", "GROUP_LOST"), str(error))
        self.assertIsNotNone(error.retry_after, str(error))

    @contextlib.contextmanager
    def stopped(self, number):
        """Afterwards it goes on, and is let in again only as a new one."""
        worker = self.service.worker(number)
        worker.pause()
        try:
            yield
        finally:
            worker.signal(signal.SIGCONT)

    def client(self, *flags, command="attend", shape=LONG):
        """`annulus attend` or its like on a long job, under way."""
        asked = [cluster.program(), command, "--address", self.service.address]
        process = subprocess.Popen(
            [*asked, "--synthetic", shape, "--verify", "32", "--json", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.kill)
        return process

    def assert_right_after_a_retry(self, process):
        out, err = process.communicate(timeout=280)
        self.assertEqual(process.returncode, 0, err)
        facts = json.loads(out)
        self.assertGreaterEqual(facts["sends"] + facts["attempts"] - 1, 2, out)
        return facts


class KilledWorkerTest(LostWorkerTest):
    def test_idle(self):
        self.service.worker(1).kill()
        self.await_members([0, 2])
        self.attend_right(2)

    def test_during_an_upload_through_the_gateway(self):
        call, job_id = self.gateway_job(raw_job.Job([(4096, 4096)], head_dim=64), share=0.5)
        service_case.await_state(self.stubs, job_id, "STATE_UPLOADING")
        self.service.worker(0).kill()
        self.assert_group_lost(call)
        self.await_members([1, 2])
        self.attend_right(2)

    def test_during_compute_through_the_gateway(self):
        call, job_id = self.gateway_job(long_job())
        service_case.await_state(self.stubs, job_id, "STATE_RUNNING")
        self.service.worker(2).kill()
        self.assert_group_lost(call)
        self.await_members([0, 1])
        self.attend_right(2)

    def test_during_compute_with_the_client_library(self):
        for path in ("direct", "gateway"):
            with self.subTest(path=path):
                client = self.client("--path", path, "--world-size", str(WORKERS))  # Worker 1 too.
                self.job_in("STATE_RUNNING")
                self.service.worker(1).kill()
                self.await_members([0, 2])
                self.service.start_worker(1)
                self.assert_right_after_a_retry(client)
                self.await_members(range(WORKERS))

    def test_a_deterministic_job_has_the_same_bits_after_a_retry(self):
        for command, shape in (("attend", LONG), ("gradients", LONG_BACKWARD)):
            with self.subTest(command=command):
                alone = self.client("--deterministic", "--world-size", "1", command=command, shape=shape)
                out, err = alone.communicate(timeout=280)
                self.assertEqual(alone.returncode, 0, err)
                client = self.client("--deterministic", "--world-size", str(WORKERS), command=command, shape=shape)
                self.job_in("STATE_RUNNING")
                self.service.worker(2).kill()
                self.await_members([0, 1])
                self.service.start_worker(2)
                again = self.assert_right_after_a_retry(client)
                outputs = [name for name in again if name.endswith("_crc32c")]
                self.assertEqual(len(outputs), 2 if command == "attend" else 3)
                for name in outputs:
                    self.assertEqual(again[name], json.loads(out)[name])
                self.await_members(range(WORKERS))

    def test_deterministic_jobs_have_the_same_bits_where_a_worker_was_lost_with_its_shard(self):
        """Forward, backward, and few queries of many keys; each rank has some of the 256 rows that are never cut."""
        for job in (raw_job.Job([(600, 800)], causal=True), raw_job.GradientsJob([(600, 800)], causal=True), raw_job.Job([(2, 3000)])):
            with self.subTest(job=job.spec):
                job.spec.deterministic = True
                with DirectJob(self.stubs, job, world_size=1) as direct:
                    expected = direct.bits()
                with DirectJob(self.stubs, job, world_size=2) as direct:
                    first = direct.plan
                    self.assertGreater(first.shards[1].input_bytes, 0)
                    direct.put(0)
                    lost = self.kill_endpoint(first.shards[1].endpoint)
                    direct.plan = direct._placed()
                    self.assertEqual(direct.plan.attempt, first.attempt + 1)
                    self.assertEqual(direct.bits(), expected)
                self.service.start_worker(lost)
                self.await_members(range(WORKERS))

    def test_a_direct_upload_is_asked_for_again(self):
        job = raw_job.Job([(256, 256)])
        with DirectJob(self.stubs, job, world_size=2) as direct:
            first = direct.plan
            direct.put(0)
            lost = self.kill_endpoint(first.shards[1].endpoint)
            direct.plan = direct._placed()
            self.assertEqual(direct.plan.attempt, first.attempt + 1)
            endpoints = {shard.endpoint for shard in direct.plan.shards}
            self.assertNotIn(first.shards[1].endpoint, endpoints)
            for rank in range(2):
                self.assertTrue(direct.put(rank).complete)
            direct.finish()
        self.assertEqual(self.service.worker(lost).state(), "")

    def kill_endpoint(self, endpoint):
        workers = service_case.cluster_state(self.service)["workers"]
        slot = next(each["slot"] for each in workers if each["data_endpoint"] == endpoint)
        self.service.worker(int(slot[1:])).kill()
        return int(slot[1:])

    def test_a_ticket_does_not_outlive_its_worker(self):
        with DirectJob(self.stubs, raw_job.Job([(64, 64)]), world_size=WORKERS) as direct:
            tickets = [shard.ticket for shard in direct.plan.shards]
            self.service.worker(0).kill()
            self.await_members([1, 2])
        self.service.start_worker(0)
        self.await_members(range(WORKERS))
        workers = service_case.cluster_state(self.service)["workers"]
        endpoint = next(each["data_endpoint"] for each in workers if each["slot"] == "w0")
        for ticket in tickets:
            request = raw_client.data_plane_pb2.GetShardStatusRequest(ticket=ticket)
            with self.assertRaises(raw_client.CallError) as caught:
                raw_client.call(self.stubs.data(endpoint).GetShardStatus, request)
            self.assertEqual(caught.exception.reason, "BAD_TICKET")

    def test_all_of_them(self):
        for number in range(WORKERS):
            self.service.worker(number).kill()
        self.await_members([])
        with self.assertRaises(raw_client.CallError) as caught:
            self.attend_right(1)
        error = caught.exception
        self.assertEqual((error.code, error.reason), ("UNAVAILABLE", "NO_WORKERS"), str(error))
        self.assertIsNotNone(error.retry_after)


class LeavingWorkerTest(LostWorkerTest):
    def test_a_worker_that_is_asked_to_end_finishes_its_job_first(self):
        client = self.client("--path", "direct", "--world-size", str(WORKERS))
        job_id = self.job_in("STATE_RUNNING")
        leaving = self.service.worker(1)
        leaving.signal(signal.SIGTERM)
        self.await_members([1], state="draining")
        self.assertEqual(self.job_in("STATE_RUNNING"), job_id, "it was over before the worker began to leave")
        out, err = client.communicate(timeout=280)
        self.assertEqual(client.returncode, 0, err)
        facts = json.loads(out)
        self.assertEqual((facts["sends"], facts["attempts"]), (1, 1), out)
        self.assertEqual(leaving.wait(), 0)
        self.await_members([0, 2])


class StoppedWorkerTest(LostWorkerTest):
    def test_past_its_lease_while_idle(self):
        with self.stopped(1):
            self.await_members([0, 2])
            self.attend_right(2)

    def test_past_its_lease_during_compute(self):
        client = self.client("--path", "direct")
        self.job_in("STATE_RUNNING")
        with self.stopped(2):
            self.assert_right_after_a_retry(client)

    def test_past_its_lease_through_the_gateway(self):
        call, job_id = self.gateway_job(long_job())
        service_case.await_state(self.stubs, job_id, "STATE_RUNNING")
        with self.stopped(0):
            self.assert_group_lost(call)


class PausedWorkerTest(LostWorkerTest):
    # Suspect after two beats of 1 s; lost much later.
    COORDINATOR_FLAGS = ("--lease", "30s")

    def test_shorter_than_its_lease(self):
        job = long_job()
        call, job_id = self.gateway_job(job)
        service_case.await_state(self.stubs, job_id, "STATE_RUNNING")
        with self.stopped(1):
            self.await_members([1], state="suspect")
        stats, outputs = None, raw_job.Outputs(job)
        for message in call.read_all():
            stats = message.done if message.HasField("done") else stats
            for chunk in message.chunks:
                outputs.place(chunk)
        self.assertEqual(stats.attempts, 1)
        outputs.check()


del LostWorkerTest  # Only its heirs have cases.

if __name__ == "__main__":
    unittest.main()
