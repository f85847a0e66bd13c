"""One job for raw_client: its tensors as NumPy, their chunks, and the answer in fp64."""

import numpy as np

from tests.end_to_end.harness.raw_client import types_pb2

# One tensor message must stay below it.
CHUNK_BYTES = 1 << 20

_CRC_TABLE = []


def crc32c(data):
    """CRC-32C (Castagnoli), a byte at a time: for small tensors."""
    if not _CRC_TABLE:
        for value in range(256):
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
            _CRC_TABLE.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Job:
    """A forward job in fp32 with random inputs; `lengths` are (q_len, kv_len) of its sequences."""

    def __init__(self, lengths, q_heads=4, kv_heads=2, head_dim=16, causal=False, seed=1):
        self.lengths = lengths
        self.spec = types_pb2.AttentionSpec(
            dtype=types_pb2.DATA_TYPE_FP32, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim
        )
        for q_len, kv_len in lengths:
            self.spec.sequences.add(q_len=q_len, kv_len=kv_len)
        if causal:
            self.spec.masks.add(causal=True)
        random = np.random.default_rng(seed)
        rows = {"q": sum(q for q, _ in lengths), "kv": sum(kv for _, kv in lengths)}

        def tensor(rows, heads):
            values = random.integers(-128, 128, size=(rows, heads, head_dim))
            return (values / 128).astype("<f4")

        self.q = tensor(rows["q"], q_heads)
        self.k = tensor(rows["kv"], kv_heads)
        self.v = tensor(rows["kv"], kv_heads)

    def inputs(self):
        return (
            (types_pb2.TENSOR_ID_Q, self.q),
            (types_pb2.TENSOR_ID_K, self.k),
            (types_pb2.TENSOR_ID_V, self.v),
        )

    def chunks(self, rows=None, crc=False):
        """Chunks of all inputs in the caller's rows, at most `rows` of them in each."""
        for tensor, values in self.inputs():
            yield from chunks_of(tensor, values, rows, crc)

    def shard_chunks(self, shard, rows=None, crc=False):
        """Chunks of what `shard` of a plan owns, in the shard's own rows."""
        for tensor, values in self.inputs():
            yield from chunks_of(tensor, values[rows_of(tensor, shard)], rows, crc)

    def reference(self):
        """(output, LSE) in fp64: three loops, obviously right."""
        out = np.zeros(self.q.shape)
        lse = np.full(self.q.shape[:2], -np.inf)
        group = self.spec.q_heads // self.spec.kv_heads
        q0 = kv0 = 0
        for q_len, kv_len in self.lengths:
            for head in range(self.spec.q_heads):
                rows, keys = slice(q0, q0 + q_len), slice(kv0, kv0 + kv_len)
                k, v = self.k[keys, head // group], self.v[keys, head // group]
                self._attend(out[rows, head], lse[rows, head], self.q[rows, head], k, v)
            q0, kv0 = q0 + q_len, kv0 + kv_len
        return out, lse

    def _attend(self, out, lse, q, k, v):
        scores = q.astype("f8") @ k.astype("f8").T / np.sqrt(self.spec.head_dim)
        if self.spec.masks and scores.size:
            last = np.arange(len(q))[:, None] + len(k) - len(q)
            scores[np.arange(len(k))[None, :] > last] = -np.inf
        for row, score in enumerate(scores):
            seen = score > -np.inf
            if seen.any():
                top = score[seen].max()
                weights = np.exp(score[seen] - top)
                lse[row] = top + np.log(weights.sum())
                out[row] = weights @ v[seen].astype("f8") / weights.sum()


class GradientsJob(Job):
    """Its gradients, by a random d_out; d_lse is 0."""

    def __init__(self, *lengths, **shape):
        super().__init__(*lengths, **shape)
        self.spec.gradients.SetInParent()
        out, lse = self.reference()
        self.out, self.lse = out.astype("<f4"), lse.astype("<f4")[..., None]
        self.d_out = np.random.default_rng(2).standard_normal(self.q.shape).astype("<f4")

    def inputs(self):
        return super().inputs() + (
            (types_pb2.TENSOR_ID_OUT, self.out),
            (types_pb2.TENSOR_ID_LSE, self.lse),
            (types_pb2.TENSOR_ID_D_OUT, self.d_out),
        )


def rows_of(tensor, shard):
    """The global rows of a tensor's part in a shard, in its own order."""
    of_keys = tensor in (
        types_pb2.TENSOR_ID_K,
        types_pb2.TENSOR_ID_V,
        types_pb2.TENSOR_ID_DK,
        types_pb2.TENSOR_ID_DV,
    )
    return indices(shard.kv_rows if of_keys else shard.q_rows)


def chunks_of(tensor, values, rows=None, crc=False):
    row_bytes = values[:1].nbytes
    step = max(1, min(rows or len(values), CHUNK_BYTES // max(row_bytes, 1)))
    for begin in range(0, len(values), step):
        part = values[begin : begin + step]
        chunk = types_pb2.Chunk(
            tensor=tensor, row_begin=begin, row_count=len(part), data=part.tobytes()
        )
        if crc:
            chunk.crc32c = crc32c(chunk.data)
        yield chunk


def indices(ranges):
    """The global rows of a shard, in its own order."""
    rows = [
        np.arange(each.block) + each.begin + block * each.stride
        for each in ranges
        for block in range(each.count)
    ]
    return np.concatenate(rows) if rows else np.zeros(0, int)


class Outputs:
    """Collects a job's output chunks: every cell once, every CRC correct."""

    def __init__(self, job, q_rows=None):
        """`q_rows`: global rows of a shard whose chunks come in its own rows."""
        rows = len(job.q)
        self.job = job
        self.out = np.full(job.q.shape, np.nan, "<f4")
        self.lse = np.full(job.q.shape[:2] + (1,), np.nan, "<f4")
        self.seen = {id(self.out): np.zeros(self.out.shape[:2], int)}
        self.seen[id(self.lse)] = np.zeros(self.lse.shape[:2], int)
        self.rows = np.arange(rows) if q_rows is None else q_rows

    def place(self, chunk, rows=None):
        target = {types_pb2.TENSOR_ID_OUT: self.out, types_pb2.TENSOR_ID_LSE: self.lse}[
            chunk.tensor
        ]
        where = (self.rows if rows is None else rows)[
            chunk.row_begin : chunk.row_begin + chunk.row_count
        ]
        heads = slice(chunk.head_begin, chunk.head_begin + (chunk.head_count or target.shape[1]))
        values = np.frombuffer(chunk.data, "<f4")
        target[where, heads] = values.reshape(len(where), -1, target.shape[2])
        self.seen[id(target)][where, heads] += 1
        if not chunk.HasField("crc32c") or chunk.crc32c != crc32c(chunk.data):
            raise AssertionError("an output chunk without a right CRC")

    def check(self):
        """Raises AssertionError unless every value has come once and is right."""
        for seen in self.seen.values():
            if not (seen == 1).all():
                raise AssertionError("output cells are missing, or came twice")
        out, lse = self.job.reference()
        seen = np.isfinite(lse)
        same = (self.lse[..., 0][~seen] == -np.inf).all()  # Rows that see no key.
        lse_error = np.abs(self.lse[..., 0][seen] - lse[seen]).max(initial=0)
        error = np.abs(self.out - out).max(initial=0)
        # fp32: far above what rounding does to values below 1, far below what a wrong row does.
        if not same or not error <= 1e-5 or not lse_error <= 1e-5:
            raise AssertionError(f"wrong by {error} (output) and {lse_error} (LSE)")
