"""Chunks and the end of the inputs keep their order in the gateway, however its threads meet."""

import threading
import unittest

import grpc

from tests.end_to_end.harness import cluster
from tools.testing import proto_stubs

JOBS, ROWS, STEP, HEADS, DIM = 300, 256, 4, 2, 16


class GatewayOrderTest(unittest.TestCase):
    def test_the_end_does_not_overtake_the_last_chunks(self):
        proto_stubs.load("annulus/v1/attention.proto")
        from annulus.v1 import attention_pb2, attention_pb2_grpc, types_pb2

        spec = types_pb2.AttentionSpec(
            dtype=types_pb2.DATA_TYPE_FP32, q_heads=HEADS, kv_heads=HEADS, head_dim=DIM,
            sequences=[types_pb2.Sequence(q_len=ROWS, kv_len=ROWS)],
        )
        inputs = (types_pb2.TENSOR_ID_Q, types_pb2.TENSOR_ID_K, types_pb2.TENSOR_ID_V)

        def run(stub, world_size):
            accepted = threading.Event()

            def requests():
                execution = types_pb2.Execution(world_size=world_size)
                start = attention_pb2.AttendRequest.Start(spec=spec, execution=execution)
                yield attention_pb2.AttendRequest(start=start)
                accepted.wait()
                for tensor in inputs:
                    for begin in range(0, ROWS, STEP):
                        data = bytes(STEP * HEADS * DIM * 4)
                        chunk = types_pb2.Chunk(tensor=tensor, row_begin=begin, row_count=STEP, data=data)
                        yield attention_pb2.AttendRequest(chunks=[chunk])

            rows = 0
            try:
                for response in stub.Attend(requests(), timeout=60):
                    accepted.set()
                    for chunk in response.chunks:
                        if chunk.tensor == types_pb2.TENSOR_ID_OUT:
                            rows += chunk.row_count
            finally:
                accepted.set()
            return rows

        with cluster.Serve(2, "--threads", "1", "--log-level", "error") as service:
            with grpc.insecure_channel(service.address) as channel:
                stub = attention_pb2_grpc.AttentionStub(channel)
                for job in range(JOBS):
                    self.assertEqual(run(stub, 1 + job % 2), ROWS, f"job {job}")


if __name__ == "__main__":
    unittest.main()
