"""AttendInline again and again: what a call has held is free after it, whether it ended well or was cancelled."""

import signal
import unittest

import grpc

from tests.end_to_end.harness import cluster, processes, raw_client, service_case
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2

BUDGET_MIB = 4
SECONDS = 60


def request(kib):
    """A call whose tensors take a little more than `kib`."""
    head_dim = 64
    rows = kib * 1024 // (2 * 4 * head_dim)
    spec = types_pb2.AttentionSpec(
        dtype=types_pb2.DATA_TYPE_FP32, q_heads=1, kv_heads=1, head_dim=head_dim
    )
    spec.sequences.add(q_len=1, kv_len=rows)
    synthetic = attention_pb2.SyntheticInputs(seed=3)
    return attention_pb2.AttendInlineRequest(spec=spec, synthetic=synthetic)


class InlineCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        flags = (*cluster.PATIENT, "--max-inline-bytes", f"{BUDGET_MIB}MiB")
        cls.service = cls.enterClassContext(processes.Processes(1, flags))
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))

    def tearDown(self):
        service_case.await_idle(self.service)

    def call(self, kib):
        return raw_client.call(self.stubs.attention.AttendInline, request(kib), SECONDS)

    def test_calls_that_exceed_the_budget_together_all_succeed(self):
        digests = {self.call(900).out_crc32c for _ in range(5 * BUDGET_MIB)}
        self.assertEqual(len(digests), 1)

    def refused(self):
        try:
            self.call(900)
        except raw_client.CallError as error:
            self.assertEqual((error.code, error.reason), ("RESOURCE_EXHAUSTED", "QUEUE_FULL"))
            return True
        return False

    def test_a_call_that_never_fits_is_not_told_to_come_back(self):
        with self.assertRaises(raw_client.CallError) as caught:
            self.call(BUDGET_MIB * 1024)
        error = caught.exception
        self.assertEqual((error.code, error.reason), ("INVALID_ARGUMENT", "LIMIT_EXCEEDED"))

    def test_cancelled_calls_give_their_bytes_back(self):
        worker = self.service.worker(0)
        worker.pause()
        try:
            # Each is refused before it waits for anything, or waits for the worker.
            waiting = [
                self.stubs.attention.AttendInline.future(request(900), timeout=SECONDS)
                for _ in range(BUDGET_MIB)
            ]
            service_case.await_jobs(self.service, BUDGET_MIB)
            self.assertTrue(self.refused())
            for each in waiting:
                each.cancel()
                with self.assertRaises((grpc.RpcError, grpc.FutureCancelledError)):
                    each.result()
            service_case.await_jobs(self.service, 0)
        finally:
            worker.signal(signal.SIGCONT)
        service_case.wait_for(lambda: not self.refused(), SECONDS, "room for an inline call")


if __name__ == "__main__":
    unittest.main()
