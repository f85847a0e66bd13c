"""Every method of annulus.v1 is served: one that is only in the proto answers UNIMPLEMENTED, and compiles."""

import unittest

import grpc
from google.protobuf import message_factory

from tests.end_to_end.harness import cluster, raw_client
from tests.end_to_end.harness.raw_client import attention_pb2, data_plane_pb2, jobs_pb2, types_pb2

SECONDS = 20


def code_of(channel, path, messages):
    """The status code of a call with these messages; what it answers is dropped."""
    call = channel.stream_stream(path)(iter(messages), timeout=SECONDS)
    try:
        for _ in call:
            pass
    except grpc.RpcError:
        pass
    return call.code()


class MethodsTest(unittest.TestCase):
    def test_all_are_served(self):
        with cluster.Serve(2) as service:
            spec = types_pb2.AttentionSpec(
                dtype=types_pb2.DATA_TYPE_FP32,
                q_heads=1,
                kv_heads=1,
                head_dim=8,
                sequences=[types_pb2.Sequence(q_len=4, kv_len=4)],
            )
            with raw_client.Stubs(service.address) as stubs:
                plan = stubs.jobs.PlanJob(jobs_pb2.PlanJobRequest(spec=spec), timeout=SECONDS)
            worker = plan.shards[0].endpoint
            places = ((attention_pb2, service.address), (jobs_pb2, service.address), (data_plane_pb2, worker))
            called = 0
            for proto, address in places:
                with grpc.insecure_channel(address) as channel:
                    for name, of in proto.DESCRIPTOR.services_by_name.items():
                        for method in of.methods:
                            path = f"/{proto.DESCRIPTOR.package}.{name}/{method.name}"
                            empty = message_factory.GetMessageClass(method.input_type)().SerializeToString()
                            with self.subTest(path):
                                code = code_of(channel, path, [] if method.client_streaming else [empty])
                                self.assertNotEqual(code, grpc.StatusCode.UNIMPLEMENTED)
                            called += 1
            self.assertGreaterEqual(called, 16)


if __name__ == "__main__":
    unittest.main()
