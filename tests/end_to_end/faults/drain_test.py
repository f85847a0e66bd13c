"""SIGTERM of a coordinator with running jobs: these finish, new ones are refused, and health probes
show it."""

import signal
import unittest

from tests.end_to_end.harness import cluster, processes, raw_client, raw_job
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import jobs_pb2
from tests.end_to_end.harness.service_case import wait_for

SECONDS = 30
SERVING, NOT_SERVING = 1, 2


class DrainTest(unittest.TestCase):
    def setUp(self):
        flags = (*cluster.PATIENT, "--drain-grace", "60s")
        self.service = self.enterContext(processes.Processes(1, flags))
        self.stubs = self.enterContext(raw_client.Stubs(self.service.address))
        self.coordinator = self.service.coordinator

    def health(self, name):
        """grpc.health.v1 by hand: a string field, an enum field."""
        check = self.stubs.channel(self.service.address).unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=lambda text: b"\x0a" + bytes([len(text)]) + text.encode(),
            response_deserializer=lambda data: data[1],
        )
        return raw_client.call(check, name)

    def await_end(self):
        wait_for(lambda: self.coordinator.state() == "", SECONDS, self.coordinator.tail)
        self.assertEqual(self.coordinator.end(), 0, self.coordinator.tail())

    def test_what_runs_ends_and_what_is_new_is_refused(self):
        job = raw_job.Job([(33, 65)], causal=True, seed=5)
        through = raw_client.Attend(self.stubs)
        with DirectJob(self.stubs, job) as direct, through:
            through.start(job.spec)
            through.accepted()
            self.assertEqual((self.health("readiness"), self.health("")), (SERVING, SERVING))
            self.coordinator.signal(signal.SIGTERM)
            wait_for(lambda: self.health("readiness") == NOT_SERVING, SECONDS, "not ready")
            self.assertEqual((self.health(""), self.health("liveness")), (NOT_SERVING, SERVING))
            with self.assertRaises(raw_client.CallError) as refused:
                request = jobs_pb2.RunJobRequest(spec=job.spec)
                with raw_client.Stream(self.stubs.jobs.RunJob, SECONDS, request) as call:
                    call.read()
            self.assertEqual(refused.exception.code, "UNAVAILABLE")
            self.assertEqual(refused.exception.reason, "DRAINING")
            self.assertGreater(refused.exception.retry_after, 0)
            direct.put(0)
            direct.finish()
            # The one that is left keeps the coordinator alive.
            self.assertEqual(self.health("liveness"), SERVING)
            outputs = raw_job.Outputs(job)
            for chunk in job.chunks(crc=True):
                through.chunk(chunk)
            through.half_close()
            through.outputs(outputs)
            outputs.check()
        self.await_end()

    def test_a_second_signal_ends_it_at_once(self):
        through = raw_client.Attend(self.stubs)
        with through:
            through.start(raw_job.Job([(33, 65)], causal=True, seed=5).spec)
            through.accepted()
            self.coordinator.signal(signal.SIGTERM)
            wait_for(lambda: "draining" in self.coordinator.tail(), SECONDS, self.coordinator.tail)
            self.assertNotEqual(self.coordinator.state(), "", "it drains")
            self.coordinator.signal(signal.SIGTERM)
            wait_for(lambda: self.coordinator.state() == "", SECONDS, self.coordinator.tail)
        self.assertEqual(self.coordinator.end(), 128 + signal.SIGTERM)
        wait_for(lambda: "again: ending at once" in self.coordinator.tail(), SECONDS, self.coordinator.tail)

    def test_idle_it_ends_at_once(self):
        self.coordinator.signal(signal.SIGTERM)
        self.await_end()


if __name__ == "__main__":
    unittest.main()
