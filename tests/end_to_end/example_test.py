"""The example of the documentation, run as a reader would run it: plain stubs, one address."""

import unittest

import grpc
import numpy

from tests.end_to_end import cluster
from tools.testing import proto_stubs


class ExampleTest(unittest.TestCase):
    def test_it_computes_attention(self):
        proto_stubs.load("annulus/v1/attention.proto")
        from docs.examples import attend as example

        random = numpy.random.default_rng(2)
        q = random.standard_normal((3000, 4, 64), numpy.float32)
        k, v = (random.standard_normal((2500, 2, 64), numpy.float32) for _ in range(2))
        with cluster.Serve(2) as service, grpc.insecure_channel(service.address) as channel:
            out, lse = example.attend(channel, q, k, v)
            with self.assertRaises(grpc.RpcError) as refused:
                example.attend(channel, q[:, :3], k, v)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        for head in range(4):
            scores = q[:, head].astype(float) @ k[:, head // 2].T.astype(float) / 8
            total = numpy.exp(scores).sum(axis=1)
            exact = numpy.exp(scores) / total[:, None] @ v[:, head // 2]
            numpy.testing.assert_allclose(out[:, head], exact, atol=1e-5)
            numpy.testing.assert_allclose(lse[:, head], numpy.log(total), rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
