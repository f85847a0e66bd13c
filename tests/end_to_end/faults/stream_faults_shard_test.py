"""PutShard streams that do not say what the spec promised: refused by the worker, and the shard can still be sent."""

import unittest

from tests.end_to_end.harness import raw_client, raw_job
from tests.end_to_end.harness.direct_job import DirectJob
from tests.end_to_end.harness.raw_client import types_pb2
from tests.end_to_end.harness.service_case import ServiceCase


class ShardFaultsTest(ServiceCase):
    def setUp(self):
        self.job = raw_job.Job([(64, 96)], causal=True)
        self.direct = self.enterContext(
            DirectJob(self.stubs, self.job, world_size=self.WORKERS)
        )
        shard = self.direct.plan.shards[0]
        self.chunks = list(self.job.shard_chunks(shard, rows=16, crc=True))
        self.rows = self.chunks[-1].row_begin + self.chunks[-1].row_count

    def refused(self, chunks, code, reason):
        """By the worker; then the same job is finished, so that no wrong byte has stayed."""
        with self.assertRaises(raw_client.CallError) as caught:
            self.direct.put(0, chunks)
        self.assert_refused(caught.exception, code, reason)
        self.resume()
        return caught.exception

    def resume(self):
        for rank in range(self.WORKERS):
            self.assertTrue(self.direct.put(rank).complete)
        self.direct.finish()

    def changed(self, **values):
        chunk = types_pb2.Chunk()
        chunk.CopyFrom(self.chunks[1])
        for name, value in values.items():
            setattr(chunk, name, value)
        return [self.chunks[0], chunk]

    def test_rows_past_the_shard(self):
        """The job has them; this shard has not."""
        chunk = self.changed(row_begin=self.rows, tensor=types_pb2.TENSOR_ID_V)
        self.refused(chunk, "INVALID_ARGUMENT", "CHUNK_OUT_OF_RANGE")

    def test_rows_past_64_bits(self):
        chunk = self.changed(row_begin=2**63 - 1, row_count=2**63 - 1)
        self.refused(chunk, "INVALID_ARGUMENT", "CHUNK_OUT_OF_RANGE")

    def test_a_chunk_twice_in_one_call(self):
        self.refused([self.chunks[0]] * 2, "INVALID_ARGUMENT", "CHUNK_OVERLAP")

    def test_a_tensor_that_is_no_input(self):
        self.refused(self.changed(tensor=types_pb2.TENSOR_ID_LSE), "INVALID_ARGUMENT", "UNKNOWN_TENSOR")

    def test_a_field_that_this_version_does_not_know(self):
        chunks = self.changed()
        chunks[1].MergeFromString(raw_client.UNKNOWN_FIELD)
        self.refused(chunks, "INVALID_ARGUMENT", "UNKNOWN_FIELD")

    def test_fewer_bytes_than_rows(self):
        chunk = self.changed(data=self.chunks[1].data[:-1])
        self.refused(chunk, "INVALID_ARGUMENT", "TENSOR_BYTES_MISMATCH")

    def test_a_wrong_crc(self):
        self.refused(self.changed(crc32c=1), "DATA_LOSS", "CHECKSUM_MISMATCH")

    def test_too_few_rows_and_what_is_missing(self):
        kept = self.chunks[:1] + self.chunks[2:]
        missing = self.chunks[1]
        with self.assertRaises(raw_client.CallError) as caught:
            self.direct.put(0, kept)
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "MISSING_ROWS")
        status = self.direct.status(0)
        self.assertFalse(status.complete)
        self.assertEqual(status.expected_bytes - status.received_bytes, len(missing.data))
        rows = [(each.tensor, each.row_begin, each.row_count) for each in status.missing]
        self.assertEqual(rows, [(missing.tensor, missing.row_begin, missing.row_count)])
        self.assertTrue(self.direct.put(0, [missing]).complete)
        self.resume()

    def test_verified_rows_again_in_a_later_call(self):
        with self.assertRaises(raw_client.CallError):
            self.direct.put(0, self.chunks[:2])
        self.resume()

    def test_other_bytes_in_the_place_of_verified_rows(self):
        with self.assertRaises(raw_client.CallError):
            self.direct.put(0, self.chunks[:2])
        other = types_pb2.Chunk()
        other.CopyFrom(self.chunks[0])
        other.data = bytes(len(other.data))
        other.ClearField("crc32c")
        with self.assertRaises(raw_client.CallError) as caught:
            self.direct.put(0, [other])
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "CHUNK_OVERLAP")
        self.resume()

    def test_an_upload_that_is_broken_off(self):
        with raw_client.Put(self.direct.worker(0), self.direct.plan.shards[0].ticket) as call:
            call.chunk(self.chunks[0])
            call.cancel()
        self.resume()


if __name__ == "__main__":
    unittest.main()
