"""ExchangeShards: small shards one after the other on one call, there and back."""

import unittest

from tests.end_to_end.harness import raw_client, raw_job
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import data_plane_pb2
from tests.end_to_end.harness.service_case import ServiceCase

JOBS = 6


class ExchangeTest(ServiceCase):
    def setUp(self):
        self.calls = {}  # By the worker's endpoint.

    def placed(self, n=0, **execution):
        job = raw_job.Job([(20 + n, 30), (0, 5), (7, 7)])
        return self.enterContext(DirectJob(self.stubs, job, **execution))

    def exchange(self, direct, rank):
        endpoint = direct.plan.shards[rank].endpoint
        if endpoint not in self.calls:
            method = self.stubs.data(endpoint).ExchangeShards
            self.calls[endpoint] = self.enterContext(raw_client.Stream(method, 60))
        return self.calls[endpoint]

    def request(self, direct, rank, leave_out=0):
        shard = direct.plan.shards[rank]
        chunks = list(direct.job.shard_chunks(shard, crc=True))
        return data_plane_pb2.PutShardRequest(
            ticket=shard.ticket, chunks=chunks[: len(chunks) - leave_out]
        )

    def take(self, direct, rank, outputs):
        rows = raw_job.indices(direct.plan.shards[rank].q_rows)
        call = self.exchange(direct, rank)
        while (message := call.read()) is not None:
            for chunk in message.chunks:
                outputs.place(chunk, rows)
            if message.HasField("report"):
                return message.report
        self.fail("the call ended before the report")

    def run_jobs(self, **execution):
        for n in range(JOBS):
            direct = self.placed(n, **execution)
            ranks = range(len(direct.plan.shards))
            for rank in ranks:
                self.exchange(direct, rank).send(self.request(direct, rank))
            outputs = raw_job.Outputs(direct.job)
            for rank in ranks:
                self.assertTrue(self.take(direct, rank, outputs).backend)
            outputs.check()
            direct.until("STATE_SUCCEEDED")
        self.assertLessEqual(len(self.calls), self.WORKERS)
        for call in self.calls.values():
            call.half_close()
            self.assertIsNone(call.read())

    def test_jobs_of_one_worker(self):
        self.run_jobs(world_size=1)

    def test_jobs_of_all_workers(self):
        self.run_jobs(world_size=self.WORKERS)

    def test_an_error_ends_the_call_and_not_the_job(self):
        direct = self.placed(world_size=1)
        call = self.exchange(direct, 0)
        call.send(self.request(direct, 0, leave_out=1))
        call.half_close()
        with self.assertRaises(raw_client.CallError) as caught:
            call.read()
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "MISSING_ROWS", "v")
        self.calls.clear()
        self.exchange(direct, 0).send(self.request(direct, 0))  # The same rows again, and the rest.
        outputs = raw_job.Outputs(direct.job)
        self.take(direct, 0, outputs)
        outputs.check()
        direct.until("STATE_SUCCEEDED")

    def test_a_ticket_opens_once(self):
        direct = self.placed(world_size=1)
        call = self.exchange(direct, 0)
        call.send(self.request(direct, 0))
        self.take(direct, 0, raw_job.Outputs(direct.job))
        direct.until("STATE_SUCCEEDED")
        call.send(self.request(direct, 0))
        with self.assertRaises(raw_client.CallError) as caught:
            call.read()
        self.assert_refused(caught.exception, "ABORTED", "JOB_ENDED")


if __name__ == "__main__":
    unittest.main()
