"""libannulus_client.so as other languages use it: through its header's functions alone, by ctypes."""

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import unittest

import numpy

from tests.end_to_end.harness import cluster

LIBRARY = "client/c/libannulus_client.so"
Q, K, V, OUT, LSE, D_OUT, DQ, DK, DV = 1, 2, 3, 4, 5, 7, 9, 10, 11
OUTPUT = 1


class Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("tokens", "sequence", "token", "head", "element")]


class Tensor(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("flags", ctypes.c_int32), ("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("strides", ctypes.POINTER(Strides))]


class Progress(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("state", "attempt", "segments_done", "segments")] + [
        (name, ctypes.c_int64) for name in ("bytes_sent", "bytes_to_send", "bytes_received", "bytes_to_receive")
    ]


def load():
    library = ctypes.CDLL(LIBRARY)
    pointer, text, seconds = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double
    for name, result, arguments in (
        ("version", text, []),
        ("client_new", pointer, [text, ctypes.POINTER(pointer)]),
        ("client_free", None, [pointer]),
        ("client_event_fd", ctypes.c_int, [pointer]),
        ("attend", pointer, [pointer, text, ctypes.POINTER(Tensor), ctypes.c_size_t]),
        ("call_wait", ctypes.c_int, [pointer, seconds]),
        ("call_cancel", None, [pointer]),
        ("call_result", text, [pointer, ctypes.POINTER(ctypes.c_size_t)]),
        ("call_progress", ctypes.c_int, [pointer, ctypes.POINTER(Progress)]),
        ("call_free", None, [pointer]),
        ("unary", pointer, [pointer, text, text, seconds]),
        ("string_free", None, [pointer]),
    ):
        function = getattr(library, "annulus_" + name)
        function.restype, function.argtypes = result, arguments
    return library


LIB = load()


def tensor_of(number, array, flags=0):
    return Tensor(number, flags, array.ctypes.data, array.nbytes)


def strided(number, array, flags=0):
    """A [batch, tokens, heads, dim] view, however it lies in memory."""
    batch, token, head, element = array.strides
    strides = Strides(array.shape[1], batch, token, head, element)
    extent = array.itemsize + sum((size - 1) * stride for size, stride in zip(array.shape, array.strides))
    return Tensor(number, flags, array.ctypes.data, extent, ctypes.pointer(strides))


def with_strides(tensor, *strides):
    return Tensor(tensor.id, tensor.flags, tensor.data, tensor.bytes, ctypes.pointer(Strides(*strides)))


class Client:
    def __init__(self, **options):
        error = ctypes.c_void_p()
        self.handle = LIB.annulus_client_new(json.dumps(options).encode(), ctypes.byref(error))
        if not self.handle:
            text = ctypes.string_at(error.value)
            LIB.annulus_string_free(error)
            raise ValueError(json.loads(text)["error"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.annulus_client_free(self.handle)

    def start(self, request, *tensors):
        text = request if isinstance(request, bytes) else json.dumps(request).encode()
        return LIB.annulus_attend(self.handle, text, (Tensor * len(tensors))(*tensors), len(tensors))

    def run(self, request, *tensors):
        call = self.start(request, *tensors)
        self.ended = LIB.annulus_call_wait(call, 60)
        outcome = json.loads(LIB.annulus_call_result(call, None))
        LIB.annulus_call_free(call)
        return outcome

    def unary(self, method, request=None, seconds=10):
        text = LIB.annulus_unary(self.handle, method.encode(), request and json.dumps(request).encode(), seconds)
        answer = json.loads(ctypes.string_at(text))
        LIB.annulus_string_free(text)
        return answer


def spec_of(tokens, heads=2, dim=16, **more):
    return {"dtype": "DATA_TYPE_FP32", "qHeads": heads, "kvHeads": heads, "headDim": dim,
            "sequences": [{"qLen": tokens, "kvLen": tokens}], **more}


class Job:
    """Random inputs with room for the outputs, and the exact answer."""

    def __init__(self, tokens, heads=2, dim=16, seed=1):
        random = numpy.random.default_rng(seed)
        self.q, self.k, self.v = (random.standard_normal((tokens, heads, dim), numpy.float32) for _ in range(3))
        self.out = numpy.full_like(self.q, numpy.nan)
        self.lse = numpy.full((tokens, heads), numpy.nan, numpy.float32)

    def tensors(self):
        return [tensor_of(Q, self.q), tensor_of(K, self.k), tensor_of(V, self.v), tensor_of(OUT, self.out, OUTPUT), tensor_of(LSE, self.lse, OUTPUT)]

    def weights(self):
        scores = numpy.einsum("ihd,jhd->hij", self.q.astype(float), self.k) * self.q.shape[2] ** -0.5
        total = numpy.exp(scores).sum(axis=2)
        return numpy.exp(scores) / total[..., None], numpy.log(total).T

    def check(self, case):
        weights, lse = self.weights()
        numpy.testing.assert_allclose(self.out, numpy.einsum("hij,jhd->ihd", weights, self.v), atol=1e-5)
        numpy.testing.assert_allclose(self.lse, lse, rtol=1e-5)


class ExportsTest(unittest.TestCase):
    def test_they_are_the_functions_of_the_header(self):
        with open("client/c/annulus.h", encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        declared = set(re.findall(r"\b(annulus_\w+)\(", text))
        listed = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
        exported = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
        self.assertEqual(exported, declared)


class CInterfaceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = cluster.Serve(2).__enter__()
        cls.addClassCleanup(cls.service.__exit__, None, None, None)

    def client(self, **options):
        return Client(address=self.service.address, **options)

    def test_attention_by_each_path(self):
        with self.client() as client:
            for path in ("DATA_PATH_AUTO", "DATA_PATH_DIRECT", "DATA_PATH_GATEWAY"):
                job = Job(300, seed=len(path))
                outcome = client.run({"spec": spec_of(300), "path": path}, *job.tensors())
                self.assertIn("result", outcome, outcome)
                self.assertEqual(outcome["result"]["attempts"], 1)
                self.assertTrue(outcome["result"]["stats"]["jobId"])
                if path != "DATA_PATH_AUTO":
                    self.assertEqual(outcome["result"]["path"], path)
                job.check(self)

    def test_strides(self):
        orders = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3), "sbhd": (1, 0, 2, 3), "hdbs": (2, 3, 0, 1)}
        random = numpy.random.default_rng(5)
        shape = batch, tokens, heads, dim = 2, 700, 3, 32
        with self.client() as client:
            for path in ("DATA_PATH_DIRECT", "DATA_PATH_GATEWAY"):
                for name, order in orders.items():
                    with self.subTest(path=path, order=name):
                        def view(width=0):
                            whole = numpy.full([shape[i] + width for i in order], numpy.nan, numpy.float32)
                            return whole.transpose(numpy.argsort(order))[tuple(slice(0, size) for size in shape)]

                        q, v, out = view(3), view(), view(1)
                        q[...], v[...] = random.standard_normal(shape), random.standard_normal(shape)
                        one = random.standard_normal((1, tokens, 1, dim)).astype(numpy.float32)
                        k = numpy.broadcast_to(one, shape)  # Strides of 0.
                        beside = out.base
                        spec = spec_of(tokens, heads=heads, dim=dim)
                        spec["sequences"] = [{"qLen": tokens, "kvLen": tokens}] * batch
                        outcome = client.run(
                            {"spec": spec, "path": path},
                            strided(Q, q), strided(K, k), strided(V, v), strided(OUT, out, OUTPUT),
                        )
                        self.assertIn("result", outcome, outcome)
                        scores = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k) * dim**-0.5
                        weights = numpy.exp(scores - scores.max(axis=3, keepdims=True))
                        exact = numpy.einsum("bhij,bjhd->bihd", weights / weights.sum(axis=3, keepdims=True), v)
                        numpy.testing.assert_allclose(out, exact, atol=1e-5)
                        self.assertEqual(numpy.isnan(beside).sum(), beside.size - out.size, "written beside the output")

    def test_gradients_of_a_kept_state(self):
        with self.client() as client:
            job = Job(64)
            kept = client.run({"spec": spec_of(64, forward={"keepState": "60s"})}, *job.tensors())
            state = kept["result"]["stats"]["jobId"]
            d_out = numpy.ones_like(job.q)
            dq, dk, dv = (numpy.empty_like(job.q) for _ in range(3))
            outcome = client.run(
                {"spec": spec_of(64, gradients={"state": state, "releaseState": True})},
                tensor_of(D_OUT, d_out), tensor_of(DQ, dq, OUTPUT), tensor_of(DK, dk, OUTPUT), tensor_of(DV, dv, OUTPUT),
            )
            self.assertIn("result", outcome, outcome)
            weights, _ = job.weights()
            numpy.testing.assert_allclose(dv, numpy.einsum("hij,ihd->jhd", weights, d_out), atol=1e-5)
            gone = client.unary("ReleaseState", {"jobId": state})
            self.assertIn("result", gone, gone)

    def test_unary_calls(self):
        with self.client() as client:
            self.assertEqual(len(client.unary("GetServerInfo")["result"]["workers"]), 2)
            plan = client.unary("PlanJob", {"spec": spec_of(1000), "execution": {"worldSize": 2}})
            self.assertEqual(len(plan["result"]["shards"]), 2)
            self.assertIn("result", client.unary("ListJobs"))
            self.assertEqual(client.unary("GetJob", {"jobId": "job-none"})["error"]["reason"], "JOB_NOT_FOUND")
            self.assertEqual(client.unary("Mystery")["error"]["fieldViolations"][0]["field"], "method")

    def test_what_is_wrong_is_refused_before_a_call(self):
        with Client(address="127.0.0.1:1") as client:  # Where nobody listens.
            job = Job(8)
            right = job.tensors()
            narrow = Tensor(K, 0, job.k.ctypes.data, job.k.nbytes - 4)
            cases = (
                (b"{", right, "BAD_REQUEST", ""),
                ({"spec": {"masks": [{"causal": "no"}]}}, right, "BAD_REQUEST", "spec.masks[0].causal"),
                ({"spek": {}}, right, "BAD_REQUEST", ""),
                ({"spec": spec_of(8), "path": "DATA_PATH_SLOW"}, right, "BAD_REQUEST", "path"),
                ({"spec": spec_of(8), "timeout": "0s"}, right, "BAD_REQUEST", "timeout"),
                ({"spec": spec_of(8), "maxAttempts": -1}, right, "INVALID_REQUEST", "max_attempts"),
                ({"spec": spec_of(8, heads=0)}, right, "DIM_OVERFLOW", "spec.q_heads"),
                ({"spec": spec_of(8)}, right[1:], "MISSING_TENSOR", "q"),
                ({"spec": spec_of(8)}, [right[0], narrow, *right[2:]], "TENSOR_BYTES_MISMATCH", "k"),
                ({"spec": spec_of(8)}, [*right, right[0]], "UNKNOWN_TENSOR", "tensors[5].id"),
                ({"spec": spec_of(8)}, [Tensor(99, 0, None, 0), *right], "UNKNOWN_TENSOR", "tensors[0].id"),
                ({"spec": spec_of(8)}, [Tensor(Q, 2, None, 0), *right], "BAD_REQUEST", "tensors[0].flags"),
                ({"spec": spec_of(8)}, [Tensor(Q, 0, None, 4), *right[1:]], "TENSOR_BYTES_MISMATCH", "tensors[0].bytes"),
                ({"spec": spec_of(8)}, [with_strides(right[0], 3, 0, 128, 64, 4), *right[1:]], "SHAPE_MISMATCH", "q.strides"),
                ({"spec": spec_of(8)}, [with_strides(right[0], 0, 0, 132, 64, 4), *right[1:]], "TENSOR_BYTES_MISMATCH", "q"),
                ({"spec": spec_of(8)}, [*right[:3], with_strides(right[3], 0, 0, 128, 0, 4), right[4]], "SHAPE_MISMATCH", "output.strides"),
            )
            for request, tensors, reason, field in cases:
                with self.subTest(reason=reason, field=field):
                    error = client.run(request, *tensors)["error"]
                    self.assertEqual(error["reason"], reason, error)
                    violations = error.get("fieldViolations", [{}])
                    self.assertEqual(violations[0].get("field", ""), field, error)
        with self.assertRaisesRegex(ValueError, "BAD_REQUEST"):
            Client(adress="x")

    def test_events_progress_and_cancellation(self):
        with self.client() as client:
            job = Job(20000, heads=4, dim=64)
            call = client.start({"spec": spec_of(20000, heads=4, dim=64)}, *job.tensors())
            self.assertEqual(LIB.annulus_call_wait(call, 0), 0)
            self.assertIsNone(LIB.annulus_call_result(call, None))
            events = LIB.annulus_client_event_fd(client.handle)
            self.assertTrue(select.select([events], [], [], 30)[0], "no event")
            os.read(events, 8)
            progress = Progress()
            self.assertEqual(LIB.annulus_call_progress(call, ctypes.byref(progress)), 1)
            self.assertGreater(progress.state, 0)
            LIB.annulus_call_cancel(call)
            self.assertEqual(LIB.annulus_call_wait(call, 30), 1)
            error = json.loads(LIB.annulus_call_result(call, None))["error"]
            self.assertEqual(error["code"], 1, error)  # CANCELLED
            LIB.annulus_call_free(call)

    def test_a_client_that_is_freed_ends_its_calls(self):
        client = self.client()
        job = Job(20000, heads=4, dim=64)
        call = client.start({"spec": spec_of(20000, heads=4, dim=64)}, *job.tensors())
        LIB.annulus_client_free(client.handle)
        self.assertEqual(LIB.annulus_call_wait(call, 0), 1)
        self.assertEqual(json.loads(LIB.annulus_call_result(call, None))["error"]["code"], 1)
        LIB.annulus_call_free(call)

    def test_a_call_that_is_freed_borrows_nothing(self):
        with self.client() as client:
            job = Job(20000, heads=4, dim=64)
            LIB.annulus_call_free(client.start({"spec": spec_of(20000, heads=4, dim=64)}, *job.tensors()))
            before = job.out.copy()
            again = Job(16)
            self.assertIn("result", client.run({"spec": spec_of(16)}, *again.tensors()))
            numpy.testing.assert_array_equal(job.out, before)

    def test_a_forked_child_is_refused(self):
        with self.client() as client:
            job = Job(16)
            self.assertIn("result", client.run({"spec": spec_of(16)}, *job.tensors()))
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                call = client.start({"spec": spec_of(16)}, *job.tensors())
                unary = client.unary("GetServerInfo")
                LIB.annulus_client_free(client.handle)
                os.write(write, json.dumps([json.loads(LIB.annulus_call_result(call, None)), unary]).encode())
                os._exit(0)
            os.close(write)
            with open(read, encoding="utf-8") as said:
                outcomes = json.loads(said.read())
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual([outcome["error"]["reason"] for outcome in outcomes], ["FORKED", "FORKED"])
            self.assertIn("result", client.run({"spec": spec_of(16)}, *job.tensors()))


if __name__ == "__main__":
    unittest.main()
