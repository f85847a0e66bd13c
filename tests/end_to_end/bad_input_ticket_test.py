"""A ticket is the only authority at a worker: one that is wrong, expired or used again opens nothing."""

import unittest

from tests.end_to_end.harness import raw_client, raw_job
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import data_plane_pb2, types_pb2
from tests.end_to_end.harness.service_case import ServiceCase, wait_for


class TicketTest(ServiceCase):
    def setUp(self):
        self.job = raw_job.Job([(40, 40)])

    def run_job(self, **options):
        return self.enterContext(
            DirectJob(self.stubs, self.job, world_size=self.WORKERS, **options)
        )

    def refused(self, direct, rank, ticket, code, reason):
        """By every method of the worker of `rank`, before a chunk is looked at."""
        wrong_chunk = [types_pb2.Chunk(tensor=99)]

        def put():
            direct.put(rank, wrong_chunk, ticket)

        def fetch():
            with direct.fetch(rank, ticket) as call:
                call.read()

        def status():
            direct.status(rank, ticket)

        def exchange():
            with raw_client.Stream(direct.worker(rank).ExchangeShards, 30) as call:
                call.send(data_plane_pb2.PutShardRequest(ticket=ticket))
                call.send(data_plane_pb2.PutShardRequest(chunks=wrong_chunk))
                call.read()

        for ask in (put, fetch, status, exchange):
            with self.subTest(ask=ask.__name__):
                with self.assertRaises(raw_client.CallError) as caught:
                    ask()
                self.assert_refused(caught.exception, code, reason)

    def await_refusal(self, direct, reason):
        """The caller may know of its job's end a little before the worker does, which drops the shard."""

        def refused():
            try:
                direct.status(0)
            except raw_client.CallError as error:
                return error.reason == reason
            return False

        wait_for(refused, 60, reason)

    def finish(self, direct):
        """Refused calls have no effect: the job's own tickets are still valid."""
        for rank in range(self.WORKERS):
            self.assertTrue(direct.put(rank).complete)
        direct.finish()

    def test_no_ticket_and_bytes_that_are_none(self):
        direct = self.run_job()
        for ticket in (b"", b"x", bytes(64), b"\xff" * 4096):
            self.refused(direct, 0, ticket, "PERMISSION_DENIED", "BAD_TICKET")
        self.finish(direct)

    def test_any_changed_byte(self):
        direct = self.run_job()
        ticket = direct.plan.shards[0].ticket
        for place in (0, 1, len(ticket) // 2, len(ticket) - 1):
            changed = bytearray(ticket)
            changed[place] ^= 0x10
            self.refused(direct, 0, bytes(changed), "PERMISSION_DENIED", "BAD_TICKET")
        self.refused(direct, 0, ticket[:-1], "PERMISSION_DENIED", "BAD_TICKET")
        self.finish(direct)

    def test_the_ticket_of_another_worker(self):
        direct = self.run_job()
        other = direct.plan.shards[1].ticket
        self.refused(direct, 0, other, "PERMISSION_DENIED", "BAD_TICKET")
        self.finish(direct)

    def test_claims_of_one_ticket_under_the_signature_of_another(self):
        one, two = self.run_job(), self.run_job()
        first, second = one.plan.shards[0].ticket, two.plan.shards[0].ticket
        # The signature is the last field.
        mixed = first[:-32] + second[-32:]
        self.assertNotEqual(first[-32:], second[-32:])
        self.refused(one, 0, mixed, "PERMISSION_DENIED", "BAD_TICKET")
        self.finish(one)
        self.finish(two)

    def test_a_ticket_of_a_job_that_has_ended(self):
        direct = self.run_job()
        self.finish(direct)
        ticket = direct.plan.shards[0].ticket
        self.await_refusal(direct, "JOB_ENDED")
        self.refused(direct, 0, ticket, "ABORTED", "JOB_ENDED")

    def test_a_ticket_of_a_job_that_was_cancelled(self):
        direct = self.run_job()
        direct.put(0)
        request = raw_client.jobs_pb2.CancelJobRequest(job_id=direct.job_id)
        raw_client.call(self.stubs.jobs.CancelJob, request)
        with self.assertRaises(raw_client.CallError) as caught:
            direct.end()
        self.assert_refused(caught.exception, "CANCELLED", "CANCELLED_BY_CLIENT")
        self.await_refusal(direct, "JOB_ENDED")
        self.refused(direct, 0, direct.plan.shards[0].ticket, "ABORTED", "JOB_ENDED")

    def test_an_expired_ticket(self):
        """A ticket is good until its job's deadline."""
        direct = self.run_job(timeout=6)
        with self.assertRaises(raw_client.CallError) as caught:
            direct.end()
        self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
        ticket = direct.plan.shards[0].ticket
        self.await_refusal(direct, "TICKET_EXPIRED")
        self.refused(direct, 0, ticket, "FAILED_PRECONDITION", "TICKET_EXPIRED")

    def test_a_ticket_twice(self):
        """After the shard is complete: others are refused, the same are taken, nothing changes."""
        direct = self.run_job()
        direct.put(0)
        noise = [types_pb2.Chunk(tensor=types_pb2.TENSOR_ID_Q, row_count=1, data=bytes(256))]
        with self.assertRaises(raw_client.CallError) as caught:
            direct.put(0, noise)
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "CHUNK_OVERLAP")
        self.assertTrue(direct.put(0).complete)
        self.assertTrue(direct.put(1).complete)
        direct.finish()

    def test_two_tickets_in_one_call(self):
        direct = self.run_job()
        ticket = direct.plan.shards[0].ticket
        with raw_client.Put(direct.worker(0), ticket) as call:
            call.ticket(ticket)
            with self.assertRaises(raw_client.CallError) as caught:
                call.finish()
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "STREAM_SEQUENCE", "ticket")
        self.finish(direct)

    def test_a_chunk_before_the_ticket(self):
        direct = self.run_job()
        with raw_client.Put(direct.worker(0)) as call:
            call.chunk(next(self.job.shard_chunks(direct.plan.shards[0])))
            with self.assertRaises(raw_client.CallError) as caught:
                call.finish(half_close=False)
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "STREAM_SEQUENCE", "ticket")
        self.finish(direct)

    def test_an_end_before_the_ticket(self):
        direct = self.run_job()
        with raw_client.Put(direct.worker(0)) as call:
            with self.assertRaises(raw_client.CallError) as caught:
                call.finish()
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "STREAM_SEQUENCE", "ticket")
        self.finish(direct)

    def test_parts_that_are_not_there(self):
        direct = self.run_job()
        for rank in range(self.WORKERS):
            direct.put(rank)
        for part in (
            {"tensor": types_pb2.TENSOR_ID_OUT, "row_begin": 2**62, "row_count": 2**62},
            {"tensor": types_pb2.TENSOR_ID_OUT, "row_begin": -1, "row_count": 1},
            {"tensor": types_pb2.TENSOR_ID_Q, "row_begin": 0, "row_count": 1},
        ):
            with self.subTest(part=part):
                request = data_plane_pb2.FetchShardRequest(ticket=direct.plan.shards[0].ticket)
                request.parts.add(**part)
                call = raw_client.Stream(direct.worker(0).FetchShard, 30, request)
                with self.assertRaises(raw_client.CallError) as caught:
                    call.read()
                self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
                self.assertIn(caught.exception.reason, ("CHUNK_OUT_OF_RANGE", "UNKNOWN_TENSOR"))
        direct.finish()


if __name__ == "__main__":
    unittest.main()
