"""Callers that are killed, or stand still: their jobs end, and what they held is free again."""

import os
import signal
import subprocess
import sys
import unittest

from tests.end_to_end.harness import processes, raw_client, raw_job, service_case
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.service_case import ServiceCase

# 128 MiB of output after little compute: more than the transport holds.
LARGE_OUTPUT = (32768, 16)

# Sends a job up to a point, says its id, and waits for its end.
CALLER = """
import sys
from tests.end_to_end.harness import raw_client, raw_job
address, q_len, kv_len, share = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
job = raw_job.Job([(q_len, kv_len)], q_heads=8, kv_heads=8, head_dim=128)
chunks = list(job.chunks())
with raw_client.Stubs(address, raw_client.NARROW) as stubs, raw_client.Attend(stubs, timeout=280) as call:
    call.start(job.spec, raw_client.types_pb2.Execution(world_size=2))
    job_id = call.accepted().job_id
    for chunk in chunks[:int(len(chunks) * share)]:
        call.chunk(chunk)
    if share == 1:
        call.half_close()
    print(job_id, flush=True)
    sys.stdin.read()
"""


class VanishCase(ServiceCase):
    WINDOW = "10m"

    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(
            processes.Processes(
                cls.WORKERS,
                # A long job runs for many seconds on any machine.
                worker_flags={"--min-rate-window": cls.WINDOW, "--min-rate": "64KiB", "--kernel": "portable"},
            )
        )
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))

    def caller(self, q_len, kv_len, share=1.0):
        """A caller in a process of its own, and its job's id."""
        process = subprocess.Popen(
            [sys.executable, "-c", CALLER, self.service.address, *map(str, (q_len, kv_len, share))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, process.stdout.readline().strip()


class KilledTest(VanishCase):
    def killed(self, process):
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(timeout=10), -signal.SIGKILL)

    def test_a_caller_is_killed_during_its_upload(self):
        process, job_id = self.caller(2048, 2048, 0.5)
        service_case.await_state(self.stubs, job_id, "STATE_UPLOADING")
        self.killed(process)
        service_case.await_state(self.stubs, job_id, "STATE_CANCELLED")

    def test_a_caller_is_killed_while_its_job_runs(self):
        process, job_id = self.caller(8192, 8192)
        service_case.await_state(self.stubs, job_id, "STATE_RUNNING")
        self.killed(process)
        service_case.await_state(self.stubs, job_id, "STATE_CANCELLED")

    def test_a_caller_is_killed_before_it_reads_its_outputs(self):
        process, job_id = self.caller(*LARGE_OUTPUT)
        service_case.await_state(self.stubs, job_id, "STATE_DRAINING")
        self.killed(process)
        service_case.await_state(self.stubs, job_id, "STATE_CANCELLED")


class StalledTest(VanishCase):
    WINDOW = "6s"  # Longer than a whole upload takes, of which each rank waits for others' parts.

    def test_a_caller_stands_still_during_its_upload(self):
        process, job_id = self.caller(2048, 2048, 0.5)
        process.send_signal(signal.SIGSTOP)
        self.ended(job_id, "DEADLINE_EXCEEDED", "UPLOAD_STALLED")

    def test_a_caller_sends_nothing(self):
        _, job_id = self.caller(2048, 2048, 0.0)
        self.ended(job_id, "DEADLINE_EXCEEDED", "UPLOAD_STALLED")

    def test_a_caller_never_reads_its_outputs(self):
        process, job_id = self.caller(*LARGE_OUTPUT)
        self.assertIsNone(process.poll())
        self.ended(job_id, "DEADLINE_EXCEEDED", "DOWNLOAD_STALLED")

    def test_an_upload_to_a_worker_stands_still(self):
        job = raw_job.Job([(64, 64)])
        with DirectJob(self.stubs, job, world_size=self.WORKERS) as direct:
            with raw_client.Put(direct.worker(0), direct.plan.shards[0].ticket) as call:
                with self.assertRaises(raw_client.CallError) as caught:
                    call.finish(half_close=False)
            self.assert_refused(caught.exception, "DEADLINE_EXCEEDED", "UPLOAD_STALLED")
            with self.assertRaises(raw_client.CallError) as caught:
                direct.end()
            self.assert_refused(caught.exception, "DEADLINE_EXCEEDED", "UPLOAD_STALLED")

    def ended(self, job_id, code, reason):
        service_case.await_state(self.stubs, job_id, "STATE_FAILED", seconds=60)
        request = raw_client.jobs_pb2.GetJobRequest(job_id=job_id)
        error = raw_client.call(self.stubs.jobs.GetJob, request).error
        self.assertEqual((error.code, error.reason), (4, reason), error)


if __name__ == "__main__":
    unittest.main()
