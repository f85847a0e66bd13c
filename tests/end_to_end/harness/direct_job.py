"""A job by the direct path, call by call: RunJob at the coordinator, PutShard and FetchShard at the workers."""

import itertools

from tests.end_to_end.harness import raw_client, raw_job
from tests.end_to_end.harness.raw_client import data_plane_pb2, jobs_pb2, types_pb2


class DirectJob:
    """RunJob of `job`, placed. Use with `with`: leaving it cancels what has not ended."""

    def __init__(self, stubs, job, timeout=60, **execution):
        self.stubs, self.job = stubs, job
        request = jobs_pb2.RunJobRequest(
            spec=job.spec, execution=types_pb2.Execution(**execution)
        )
        self.events = raw_client.Stream(stubs.jobs.RunJob, timeout, request)
        self.states = []
        self.job_id = ""
        self.plan = self._placed()

    def _placed(self):
        for event in self.events.read_all():
            self._note(event)
            if event.HasField("placed"):
                return event.placed
        raise AssertionError("the job ended before it was placed")

    def _note(self, event):
        self.job_id = event.job_id
        if event.HasField("state_changed"):
            self.states.append(jobs_pb2.Job.State.Name(event.state_changed.state))

    def until(self, state):
        """Reads events until one of this state; raises CallError where the call ends with one."""
        while state not in self.states:
            event = self.events.read()
            if event is None:
                raise AssertionError(f"went through {self.states} and not {state}")
            self._note(event)

    def end(self):
        """Reads events to the end of the call; raises CallError where it ends with one."""
        for event in self.events.read_all():
            self._note(event)

    def worker(self, rank):
        return self.stubs.data(self.plan.shards[rank].endpoint)

    def put(self, rank, chunks=None, ticket=None):
        """PutShard of a rank: the answer, or the CallError."""
        shard = self.plan.shards[rank]
        ticket = shard.ticket if ticket is None else ticket
        with raw_client.Put(self.worker(rank), ticket) as call:
            for chunk in self.job.shard_chunks(shard, crc=True) if chunks is None else chunks:
                call.chunk(chunk)
            return call.finish()

    def status(self, rank, ticket=None):
        ticket = self.plan.shards[rank].ticket if ticket is None else ticket
        request = data_plane_pb2.GetShardStatusRequest(ticket=ticket)
        return raw_client.call(self.worker(rank).GetShardStatus, request)

    def fetch(self, rank, ticket=None, timeout=60):
        """FetchShard of a rank, as a stream of its messages."""
        ticket = self.plan.shards[rank].ticket if ticket is None else ticket
        request = data_plane_pb2.FetchShardRequest(ticket=ticket)
        return raw_client.Stream(self.worker(rank).FetchShard, timeout, request)

    def chunks(self):
        """Fetches all: each output chunk, and the global rows of its shard's part of that tensor."""
        for rank, shard in enumerate(self.plan.shards):
            if shard.output_bytes == 0:
                continue
            with self.fetch(rank) as call:
                for message in call.read_all():
                    for chunk in message.chunks:
                        yield chunk, raw_job.rows_of(chunk.tensor, shard)

    def bits(self):
        """Puts and fetches all, and sees the job succeed: the output's bytes by tensor, global row and head."""
        for rank in range(len(self.plan.shards)):
            self.put(rank)
        cells = {}
        for chunk, rows in self.chunks():
            rows = rows[chunk.row_begin : chunk.row_begin + chunk.row_count]
            of_keys = chunk.tensor in (types_pb2.TENSOR_ID_DK, types_pb2.TENSOR_ID_DV)
            all_heads = self.job.spec.kv_heads if of_keys else self.job.spec.q_heads
            heads = range(chunk.head_begin, chunk.head_begin + (chunk.head_count or all_heads))
            size = len(chunk.data) // len(rows) // len(heads)
            for at, (row, head) in enumerate(itertools.product(rows, heads)):
                cells[chunk.tensor, row, head] = chunk.data[at * size : (at + 1) * size]
        self.until("STATE_SUCCEEDED")
        return cells

    def finish(self):
        """Fetches all, checks the answer, and sees the job succeed."""
        outputs = raw_job.Outputs(self.job)
        for chunk, rows in self.chunks():
            outputs.place(chunk, rows)
        outputs.check()
        self.until("STATE_SUCCEEDED")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.events.cancel()
