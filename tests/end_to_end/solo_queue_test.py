"""Jobs of one worker that wait behind another: cancelled, late or left alone, they free what they hold at once."""

import signal
import subprocess
import unittest

from tests.end_to_end.harness import cluster, raw_client, raw_job
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.service_case import ServiceCase, cluster_state, wait_for

# Half a minute of work on the slowest path of the kernel.
FRONT = ("--synthetic", "1,16384,16384,8,8,64,fp32,1", "--world-size", "1", "--timeout", "2h")


class SoloQueueTest(ServiceCase):
    WORKERS = 1
    FLAGS = cluster.SLOW

    def setUp(self):
        self.front = subprocess.Popen(
            [cluster.program(), "attend", "--address", self.service.address, *FRONT],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        self.addCleanup(self.end_front)
        wait_for(self.front_runs, 60, "the job in front runs")
        self.held = self.staging()

    def tearDown(self):
        self.end_front()
        super().tearDown()

    def end_front(self):
        if self.front.poll() is None:
            self.front.send_signal(signal.SIGINT)
        self.front.communicate(timeout=30)

    def front_runs(self):
        self.assertIsNone(self.front.poll(), "the job in front has ended")
        jobs = raw_client.call(self.stubs.jobs.ListJobs, raw_client.jobs_pb2.ListJobsRequest()).jobs
        return any(job.state == raw_client.jobs_pb2.Job.STATE_RUNNING for job in jobs)

    def staging(self):
        return int(cluster_state(self.service)["workers"][0]["staging"]["used_bytes"])

    def queued_job(self, **options):
        """A job whose shard is complete and that waits for its turn."""
        direct = self.enterContext(
            DirectJob(self.stubs, raw_job.Job([(40, 40)]), world_size=1, **options)
        )
        self.assertTrue(direct.put(0).complete)
        self.assertGreater(self.staging(), self.held)
        return direct

    def assert_freed(self):
        wait_for(lambda: self.staging() == self.held, 10, "its bytes are free")
        self.assertIsNone(self.front.poll(), "the job in front has ended")

    def test_cancelled(self):
        direct = self.queued_job()
        request = raw_client.jobs_pb2.CancelJobRequest(job_id=direct.job_id)
        raw_client.call(self.stubs.jobs.CancelJob, request)
        with self.assertRaises(raw_client.CallError) as caught:
            direct.end()
        self.assert_refused(caught.exception, "CANCELLED", "CANCELLED_BY_CLIENT")
        self.assert_freed()

    def test_past_its_deadline(self):
        direct = self.queued_job(timeout=15)
        with self.assertRaises(raw_client.CallError) as caught:
            direct.end()
        self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
        self.assert_freed()

    def test_disconnected(self):
        direct = self.queued_job()
        direct.events.cancel()
        self.assert_freed()


if __name__ == "__main__":
    unittest.main()
