"""Attention by Annulus on nothing but generated stubs. In the root of the repository:

    pip install grpcio-tools numpy
    python -m grpc_tools.protoc -Iproto --python_out=examples --grpc_python_out=examples \
        proto/annulus/v1/types.proto proto/annulus/v1/attention.proto
    python examples/attend.py 127.0.0.1:8001

The stubs are then in examples/annulus, which git ignores: beside a script is where Python looks first.
"""

import sys
import threading

import grpc
import numpy
from annulus.v1 import attention_pb2, attention_pb2_grpc, types_pb2

CHUNK_BYTES = 1 << 20


def chunks(tensor, array):
    """A [rows, heads, dim] array as messages of at most 1 MiB."""
    array = numpy.ascontiguousarray(array)
    step = max(1, CHUNK_BYTES // max(1, array.strides[0]))
    for begin in range(0, len(array), step):
        part = array[begin : begin + step]
        chunk = types_pb2.Chunk(tensor=tensor, row_begin=begin, row_count=len(part), data=part.tobytes())
        yield attention_pb2.AttendRequest(chunks=[chunk])


def check(name, array):
    """The service takes bytes as they come: those of another type or order would be other numbers."""
    if array.dtype != numpy.dtype("<f4"):
        raise TypeError(f"{name} is {array.dtype.str}, not little-endian float32: {name}.astype('<f4') is")
    if array.ndim != 3:
        raise ValueError(f"{name} is {list(array.shape)}, not [tokens, heads, dim]")


def attend(channel, q, k, v, causal=False, timeout=60):
    """q, k, v: float32 [tokens, heads, dim]. Returns the output, as q, and the log-sum-exp [tokens, heads]."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        check(name, array)
    spec = types_pb2.AttentionSpec(
        dtype=types_pb2.DATA_TYPE_FP32,
        q_heads=q.shape[1], kv_heads=k.shape[1], head_dim=q.shape[2], head_dim_v=v.shape[2],
        sequences=[types_pb2.Sequence(q_len=len(q), kv_len=len(k))],
        masks=[types_pb2.Mask(causal=causal)],
    )
    accepted = threading.Event()

    def requests():
        yield attention_pb2.AttendRequest(start=attention_pb2.AttendRequest.Start(spec=spec))
        accepted.wait()  # Nothing is sent for a job that is refused.
        for name, array in (("Q", q), ("K", k), ("V", v)):
            yield from chunks(types_pb2.TensorId.Value("TENSOR_ID_" + name), array)

    out = numpy.empty((len(q), q.shape[1], v.shape[2]), numpy.float32)
    lse = numpy.empty((len(q), q.shape[1], 1), numpy.float32)
    places = {types_pb2.TENSOR_ID_OUT: out, types_pb2.TENSOR_ID_LSE: lse}
    try:
        for response in attention_pb2_grpc.AttentionStub(channel).Attend(requests(), timeout=timeout):
            accepted.set()
            for chunk in response.chunks:
                rows = places[chunk.tensor][chunk.row_begin : chunk.row_begin + chunk.row_count]
                rows[...] = numpy.frombuffer(chunk.data, numpy.float32).reshape(rows.shape)
    finally:
        accepted.set()
    return out, lse[..., 0]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/attend.py HOST:PORT")
    random = numpy.random.default_rng(1)
    q, k, v = (random.standard_normal((1000, 4, 64), numpy.float32) for _ in range(3))
    with grpc.insecure_channel(sys.argv[1]) as channel:
        out, lse = attend(channel, q, k, v, causal=True)
    print("output", out.shape, "lse", lse.shape, "first row equals v:", numpy.allclose(out[0], v[0]))
