"""Attend streams that do not say what their spec promised, and callers that vanish or stop."""

import unittest

from tests.end_to_end.harness import cluster, raw_client, service_case
from tests.end_to_end.harness.http2 import Http2Call
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2
from tests.end_to_end.harness.raw_job import CHUNK_BYTES, Job, Outputs, chunks_of, crc32c
from tests.end_to_end.harness.service_case import ServiceCase

MAX_INT64 = 2**63 - 1


def long_job():
    """A job that runs for many seconds on slow workers."""
    return Job([(8192, 8192)], q_heads=8, kv_heads=8, head_dim=128)


class StreamFaultsTest(ServiceCase):
    FLAGS = cluster.SLOW

    def setUp(self):
        self.job = Job([(64, 96)], causal=True)
        self.chunks = list(self.job.chunks(rows=16, crc=True))
        self.execution = types_pb2.Execution(world_size=self.WORKERS)

    def attend(self):
        # Far above what a busy machine predicts for the long jobs here.
        return self.enterContext(raw_client.Attend(self.stubs, timeout=280))

    def accepted(self):
        """An Attend call whose chunks are waited for."""
        call = self.attend()
        call.start(self.job.spec, self.execution)
        call.accepted()
        return call

    def refused(self, call, code, reason, *fields):
        """The service ends the call, with nothing but its error."""
        with self.assertRaises(raw_client.CallError) as caught:
            for message in call.read_all():
                self.fail(f"got {message} instead of {reason}")
        self.assert_refused(caught.exception, code, reason, *fields)
        return caught.exception

    def chunk_refused(self, reason, *fields, code="INVALID_ARGUMENT", **values):
        """A good chunk first, then one with `values`."""
        call = self.accepted()
        call.chunk(self.chunks[0])
        chunk = types_pb2.Chunk()
        chunk.CopyFrom(self.chunks[1])
        for name, value in values.items():
            setattr(chunk, name, value)
        call.chunk(chunk)
        return self.refused(call, code, reason, *fields)

    # The order of messages.

    def test_a_chunk_before_the_start(self):
        call = self.attend()
        call.chunk(self.chunks[0])
        self.refused(call, "INVALID_ARGUMENT", "STREAM_SEQUENCE", "start")

    def test_two_starts(self):
        call = self.accepted()
        call.chunk(self.chunks[0])
        call.start(self.job.spec, self.execution)
        self.refused(call, "INVALID_ARGUMENT", "STREAM_SEQUENCE", "start")

    def test_an_empty_message(self):
        for call in (self.attend(), self.accepted()):
            call.send(attention_pb2.AttendRequest())
            self.refused(call, "INVALID_ARGUMENT", "STREAM_SEQUENCE")

    def test_the_end_before_the_start(self):
        call = self.attend()
        call.half_close()
        self.refused(call, "INVALID_ARGUMENT", "STREAM_SEQUENCE", "start")

    # The fields of a chunk.

    def test_a_chunk_out_of_range(self):
        for values in (
            {"row_begin": 64},
            {"row_begin": 63, "row_count": 2},
            {"row_begin": -1},
            {"row_count": 0},
            {"row_count": -16},
            {"row_begin": MAX_INT64},
            {"row_count": MAX_INT64},
        ):
            with self.subTest(values=values):
                self.chunk_refused("CHUNK_OUT_OF_RANGE", **values)

    def test_heads_out_of_range(self):
        for values in (
            {"head_begin": 4, "head_count": 1},
            {"head_begin": -1, "head_count": 4},
            {"head_begin": 1, "head_count": 4},
            {"head_begin": 2**31 - 1, "head_count": 2**31 - 1},
            {"head_count": -4},
        ):
            with self.subTest(values=values):
                self.chunk_refused("CHUNK_OUT_OF_RANGE", **values)

    def test_a_chunk_twice(self):
        call = self.accepted()
        for chunk in self.chunks[:1] * 2 + self.chunks[1:]:
            call.chunk(chunk)
        self.refused(call, "INVALID_ARGUMENT", "CHUNK_OVERLAP")

    def test_a_chunk_more_than_the_whole(self):
        job = long_job()
        call = self.attend()
        call.start(job.spec, self.execution)
        call.accepted()
        for chunk in job.chunks():
            call.chunk(chunk)
        call.chunk(next(job.chunks()))
        self.refused(call, "INVALID_ARGUMENT", "CHUNK_OVERLAP")

    def test_chunks_that_overlap(self):
        call = self.accepted()
        call.chunk(self.chunks[0])
        tensor, values = self.job.inputs()[0]
        overlapping = next(iter(chunks_of(tensor, values[8:24])))
        overlapping.row_begin = 8
        call.chunk(overlapping)
        self.refused(call, "INVALID_ARGUMENT", "CHUNK_OVERLAP")

    def test_more_or_fewer_bytes_than_rows(self):
        for data in (self.chunks[1].data[:-4], self.chunks[1].data + bytes(4), b""):
            with self.subTest(bytes=len(data)):
                self.chunk_refused("TENSOR_BYTES_MISMATCH", data=data, crc32c=crc32c(data))

    def test_a_tensor_that_is_no_input(self):
        for tensor in (types_pb2.TENSOR_ID_OUT, types_pb2.TENSOR_ID_D_OUT, 0, 99, -1):
            with self.subTest(tensor=tensor):
                self.chunk_refused("UNKNOWN_TENSOR", "chunks[0].tensor", tensor=tensor)

    def test_fields_that_this_version_does_not_know(self):
        """They may be options: none is ignored."""
        chunk = types_pb2.Chunk()
        chunk.CopyFrom(self.chunks[0])
        chunk.MergeFromString(raw_client.UNKNOWN_FIELD)
        call = self.accepted()
        call.chunk(chunk)
        self.refused(call, "INVALID_ARGUMENT", "UNKNOWN_FIELD", "chunks[0].111")
        request = attention_pb2.AttendRequest(chunks=[self.chunks[0]])
        request.MergeFromString(raw_client.UNKNOWN_FIELD)
        call = self.accepted()
        call.send(request)
        self.refused(call, "INVALID_ARGUMENT", "UNKNOWN_FIELD", "111")

    def damaged(self, **values):
        """One rank's chunks are checked by its worker alone, those that are dealt out by the gateway."""
        for self.execution.world_size in (1, self.WORKERS):
            with self.subTest(world_size=self.execution.world_size):
                error = self.chunk_refused("CHECKSUM_MISMATCH", code="DATA_LOSS", **values)
                self.assertIn("expected", error.metadata)
                self.assertIn("got", error.metadata)

    def test_a_wrong_crc(self):
        self.damaged(crc32c=self.chunks[1].crc32c ^ 1)

    def test_a_changed_byte(self):
        data = bytearray(self.chunks[1].data)
        data[17] ^= 0x40
        self.damaged(data=bytes(data))

    def test_a_chunk_larger_than_the_limit(self):
        data = bytes(CHUNK_BYTES + 4)
        self.chunk_refused("LIMIT_EXCEEDED", data=data, crc32c=crc32c(b""))

    def test_a_message_larger_than_the_limit(self):
        call = self.accepted()
        call.chunk(types_pb2.Chunk(tensor=types_pb2.TENSOR_ID_Q, row_count=1, data=bytes(9 << 20)))
        with self.assertRaises(raw_client.CallError) as caught:
            call.read()
        self.assertEqual(caught.exception.code, "RESOURCE_EXHAUSTED")

    # Rows that are missing at the end.

    def test_too_few_rows(self):
        for missing in (0, 5, len(self.chunks) - 1):
            with self.subTest(missing=missing):
                call = self.accepted()
                for chunk in self.chunks[:missing] + self.chunks[missing + 1 :]:
                    call.chunk(chunk)
                call.half_close()
                self.refused(call, "INVALID_ARGUMENT", "MISSING_ROWS")

    def test_nothing_at_all(self):
        call = self.accepted()
        call.half_close()
        self.refused(call, "INVALID_ARGUMENT", "MISSING_ROWS")

    def test_some_heads_are_missing(self):
        call = self.accepted()
        tensor, values = self.job.inputs()[2]
        for chunk in self.chunks:
            if chunk.tensor == tensor:
                chunk.data = values[chunk.row_begin : chunk.row_begin + 16, :1].tobytes()
                chunk.head_count = 1
                chunk.ClearField("crc32c")
            call.chunk(chunk)
        call.half_close()
        self.refused(call, "INVALID_ARGUMENT", "MISSING_ROWS")

    # Chunks after the end.

    def after_half_close(self, late):
        """A whole job, then `late` on the stream that its caller has closed."""
        job = Job([(16, 16)])
        outputs = Outputs(job)
        with Http2Call(self.service.address, "/annulus.v1.Attention/Attend") as call:
            start = attention_pb2.AttendRequest.Start(spec=job.spec, execution=self.execution)
            call.send(attention_pb2.AttendRequest(start=start))
            self.assertTrue(call.read(attention_pb2.AttendResponse).HasField("accepted"))
            *first, last = job.chunks()
            for chunk in first:
                call.send(attention_pb2.AttendRequest(chunks=[chunk]))
            call.send(attention_pb2.AttendRequest(chunks=[last]), half_close=True)
            call.send(attention_pb2.AttendRequest(chunks=[late]))
            done = False
            while (message := call.read(attention_pb2.AttendResponse)) is not None:
                done = message.HasField("done")
                for chunk in message.chunks:
                    outputs.place(chunk)
        return call, done, outputs

    def test_a_chunk_after_the_half_close_changes_nothing(self):
        late = next(Job([(16, 16)], seed=2).chunks())
        call, done, outputs = self.after_half_close(late)
        self.assertEqual((call.ended, done), ("trailers", True), call.error)
        outputs.check()

    # Callers that go away.

    def test_a_cancelled_upload(self):
        call = self.accepted()
        call.chunk(self.chunks[0])
        service_case.await_jobs(self.service, 1)
        call.cancel()

    def test_a_call_cancelled_while_its_job_runs(self):
        job = long_job()
        call = self.attend()
        call.start(job.spec, self.execution)
        job_id = call.accepted().job_id
        for chunk in job.chunks():
            call.chunk(chunk)
        call.half_close()
        service_case.await_state(self.stubs, job_id, "STATE_RUNNING")
        call.cancel()
        service_case.await_state(self.stubs, job_id, "STATE_CANCELLED")

    def test_outputs_that_nobody_reads(self):
        job = Job([(32768, 1)], q_heads=8, kv_heads=8, head_dim=64)  # 64 MiB of output.
        stubs = self.enterContext(raw_client.Stubs(self.service.address, raw_client.NARROW))
        call = self.enterContext(raw_client.Attend(stubs, timeout=280))
        call.start(job.spec, self.execution)
        job_id = call.accepted().job_id
        for chunk in job.chunks():
            call.chunk(chunk)
        call.half_close()
        service_case.await_state(self.stubs, job_id, "STATE_DRAINING")
        call.cancel()
        service_case.await_state(self.stubs, job_id, "STATE_CANCELLED")

    def test_a_deadline_in_the_middle_of_an_upload(self):
        call = self.enterContext(raw_client.Attend(self.stubs, timeout=6))
        call.start(self.job.spec, self.execution)
        call.accepted()
        call.chunk(self.chunks[0])
        with self.assertRaises(raw_client.CallError) as caught:
            call.read()
        self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")


if __name__ == "__main__":
    unittest.main()
