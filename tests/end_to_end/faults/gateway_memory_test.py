"""1 GiB passes the gateway, four jobs at once, one of them with a reader that does not read: its memory stays small."""

import threading
import unittest
from concurrent import futures

import numpy as np

from tests.end_to_end.harness import processes, raw_client, service_case
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2

MIB = 1 << 20
GROWTH_KIB = 64 << 10
HEADS, DIM = 8, 128
ROW_BYTES = HEADS * DIM * 4
# Sizes of one job. It has few queries or few keys, so that most of the work is transport.
ROWS = 128 * MIB // ROW_BYTES
SECONDS = 240


class Transfer:
    """One Attend call whose inputs are made as they are asked for: all of them are this value."""

    def __init__(self, stubs, q_len, kv_len):
        self.lengths = (q_len, kv_len)
        self.spec = types_pb2.AttentionSpec(
            dtype=types_pb2.DATA_TYPE_FP32, q_heads=HEADS, kv_heads=HEADS, head_dim=DIM
        )
        self.spec.sequences.add(q_len=q_len, kv_len=kv_len)
        self.go = threading.Event()
        self.sent = self.received = 0
        self.wrong = []
        self.call = raw_client.Stream(stubs.attention.Attend, SECONDS, self._requests())
        self.job_id = self.call.read().accepted.job_id
        self.go.set()

    def _requests(self):
        start = attention_pb2.AttendRequest.Start(spec=self.spec)
        yield attention_pb2.AttendRequest(start=start)
        self.go.wait(SECONDS)
        rows = MIB // ROW_BYTES
        data = np.full(rows * HEADS * DIM, 0.5, "<f4").tobytes()
        q_len, kv_len = self.lengths
        for tensor, length in (
            (types_pb2.TENSOR_ID_Q, q_len),
            (types_pb2.TENSOR_ID_K, kv_len),
            (types_pb2.TENSOR_ID_V, kv_len),
        ):
            for begin in range(0, length, rows):
                count = min(rows, length - begin)
                chunk = types_pb2.Chunk(tensor=tensor, row_begin=begin, row_count=count)
                chunk.data = data[: count * ROW_BYTES]
                self.sent += len(chunk.data)
                yield attention_pb2.AttendRequest(chunks=[chunk])

    def read(self):
        """Reads to the end. Equal values weigh the same: every output is that value."""
        cells = 0
        for message in self.call.read_all():
            for chunk in message.chunks:
                values = np.frombuffer(chunk.data, "<f4")
                self.received += len(chunk.data)
                if chunk.tensor == types_pb2.TENSOR_ID_OUT:
                    cells += values.size
                    if not np.allclose(values, 0.5, atol=1e-6):
                        self.wrong.append(chunk.row_begin)
        if cells != self.lengths[0] * HEADS * DIM:
            self.wrong.append(f"{cells} values")


class GatewayMemoryTest(unittest.TestCase):
    def test_it_holds_no_more_than_its_credits(self):
        flags = {"--staging-bytes": "2GiB", "--device-bytes": "2GiB", "--min-rate-window": "10m"}
        growth = []
        # The better one of two runs: what the allocator keeps for itself differs.
        for _ in range(2):
            with processes.Processes(2, worker_flags=flags) as service:
                with raw_client.Stubs(service.address) as warm_up:
                    # Memory that a warm process needs does not count as growth.
                    Transfer(warm_up, 256, 256).read()
                growth.append(self.growth_kib(service))
                service_case.await_idle(service)
            if growth[-1] <= GROWTH_KIB:
                break
        self.assertLessEqual(min(growth), GROWTH_KIB, growth)

    def growth_kib(self, service):
        """The growth of the coordinator's memory at its peak."""
        before = service.coordinator.resident_kib()
        lengths = [(16, ROWS), (16, ROWS), (16, ROWS), (ROWS, 16)]
        options = [()] * 3 + [raw_client.NARROW]
        stubs = [self.enterContext(raw_client.Stubs(service.address, each)) for each in options]
        transfers = [Transfer(each, q, kv) for each, (q, kv) in zip(stubs, lengths)]
        *fast, slow = transfers
        with futures.ThreadPoolExecutor(len(fast)) as readers:
            for reading in [readers.submit(transfer.read) for transfer in fast]:
                reading.result(SECONDS)
        # Its outputs wait, and the gateway with them: nothing of it has been read.
        service_case.await_state(stubs[-1], slow.job_id, "STATE_DRAINING", SECONDS)
        self.assertEqual(slow.received, 0)
        slow.read()
        peak = service.coordinator.resident_kib("VmHWM")
        passed = sum(each.sent + each.received for each in transfers)
        print(f"{passed / MIB:.0f} MiB passed; VmRSS before {before} KiB, VmHWM {peak} KiB")
        self.assertEqual([each.wrong for each in transfers], [[]] * 4)
        self.assertGreaterEqual(passed, 1024 * MIB)
        return peak - before


if __name__ == "__main__":
    unittest.main()
