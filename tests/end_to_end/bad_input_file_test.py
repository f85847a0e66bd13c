"""safetensors files that are corrupt, truncated, hostile or of another job: the command line
refuses them without a call to the service."""

import json
import os
import struct
import tempfile
import unittest

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save

from tests.end_to_end.harness import service_case
from tests.end_to_end.harness.service_case import ServiceCase

REFUSED = 3
ROWS, HEADS, DIM = 4, 2, 8
BYTES = ROWS * HEADS * DIM * 4


def tensors(**others):
    """The tensors of a job, changed by `others`."""
    return {**{name: np.ones((ROWS, HEADS, DIM), "<f4") for name in "qkv"}, **others}


def good():
    return save(tensors())


def entry(begin, end, shape=(ROWS, HEADS, DIM), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def built(data_bytes=3 * BYTES, **changes):
    """A file whose header says what it should, but for `changes` by tensor."""
    header = {name: entry(i * BYTES, (i + 1) * BYTES) for i, name in enumerate("qkv")}
    header.update(changes)
    text = json.dumps({name: each for name, each in header.items() if each is not None}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data_bytes)


class BadFileTest(ServiceCase):
    def setUp(self):
        self.folder = self.enterContext(
            tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        )

    def attend(self, data, *flags, verb="attend"):
        path = os.path.join(self.folder, "in.safetensors")
        with open(path, "wb") as file:
            file.write(data)
        return self.service.annulus(verb, "--input", path, *flags)

    def refused(self, data, *flags, reason="BAD_SAFETENSORS", verb="attend"):
        """With the documented code, in words on stderr, for programs on stdout, and without a job. Returns the words."""
        before = len(service_case.cluster_state(self.service)["jobs"])
        done = self.attend(data, *flags, verb=verb)
        self.assertEqual((done.returncode, done.stdout), (REFUSED, ""), done.stderr)
        self.assertRegex(done.stderr, rf"^annulus: INVALID_ARGUMENT / {reason}: \S")
        again = self.attend(data, "--json", *flags, verb=verb)
        self.assertEqual((again.returncode, again.stderr), (REFUSED, done.stderr))
        error = json.loads(again.stdout)["error"]
        self.assertEqual((error["code"], error["reason"]), ("INVALID_ARGUMENT", reason))
        self.assertEqual(len(service_case.cluster_state(self.service)["jobs"]), before)
        return done.stderr

    def test_a_good_file_is_taken(self):
        for data in (good(), built()):
            done = self.attend(data)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_truncated_anywhere(self):
        data = good()
        header = 8 + struct.unpack("<Q", data[:8])[0]
        for length in (0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1, len(data) - 1):
            with self.subTest(length=length):
                self.refused(data[:length])

    def test_a_header_longer_than_the_file(self):
        for length in (len(good()), 2**31, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1):
            with self.subTest(length=length):
                self.refused(struct.pack("<Q", length) + good()[8:])

    def test_a_header_that_is_no_json(self):
        for text in (b"", b"abcd", b"{", b"[]", b"null", b"\xff\xfe{}", b"[" * 10000, b'{"q":' * 5000):
            with self.subTest(text=text[:16]):
                self.refused(struct.pack("<Q", len(text)) + text)

    def test_sizes_that_overflow(self):
        for shape in ([2**62, 2**62, 4], [2**32, 2**32, 1], [2**63 - 1, 2, 1], [-1, HEADS, DIM], [-ROWS, HEADS, DIM], [2**64, 1, 1]):
            with self.subTest(shape=shape):
                self.refused(built(q=entry(0, BYTES, shape)))

    def test_ranges_that_overlap(self):
        self.refused(built(k=entry(0, BYTES)))
        self.refused(built(k=entry(BYTES - 4, 2 * BYTES - 4)))

    def test_ranges_outside_or_backwards(self):
        for begin, end in (
            (3 * BYTES, 4 * BYTES),
            (-BYTES, 0),
            (2 * BYTES, BYTES),
            (2**63 - 1, 2**63 - 1 + BYTES),
            (2**64 - BYTES, 2**64),
        ):
            with self.subTest(begin=begin):
                self.refused(built(v=entry(begin, end)))

    def test_a_range_that_is_not_its_shape(self):
        for dim in (DIM - 1, DIM + 1):
            self.refused(built(q=entry(0, BYTES, (ROWS, HEADS, dim))))

    def test_bytes_that_nobody_names(self):
        self.refused(built(data_bytes=3 * BYTES + 1))
        self.refused(good() + b"x")
        self.refused(built(data_bytes=4 * BYTES, v=entry(3 * BYTES, 4 * BYTES)))

    def test_members_of_other_types(self):
        for wrong in (7, "F32", [], {"dtype": 1}, {**entry(0, BYTES), "shape": "4"}):
            with self.subTest(wrong=wrong):
                self.refused(built(q=wrong))

    def test_a_missing_or_unfit_tensor(self):
        self.refused(built(v=None, data_bytes=2 * BYTES), reason="MISSING_TENSOR")
        self.refused(built(q=entry(0, BYTES, dtype="I32")), reason="UNSUPPORTED_DTYPE")
        for dtype in ("Q7", "U32"):
            told = self.refused(built(q=entry(0, BYTES, dtype=dtype)), reason="UNSUPPORTED_DTYPE")
            self.assertIn(f"q: is {dtype}, but must be F32, F16 or BF16", told)
        self.refused(built(q=entry(0, BYTES, (ROWS * HEADS, DIM))), reason="SHAPE_MISMATCH")
        self.refused(built(k=entry(BYTES, 2 * BYTES, (ROWS * 2, HEADS, DIM // 2))), reason="SHAPE_MISMATCH")
        for name, shape in {"k": (ROWS, HEADS, DIM + 1), "v": (ROWS + 1, HEADS, DIM), "q": (ROWS, HEADS + 1, DIM)}.items():
            with self.subTest(name):
                self.refused(save(tensors(**{name: np.zeros(shape, "<f4")})), reason="SHAPE_MISMATCH")
        doubles = {name: array.astype("<f8") for name, array in tensors().items()}
        self.refused(save(doubles), reason="UNSUPPORTED_DTYPE")

    def test_a_type_is_judged_where_its_tensor_is_used(self):
        """Types of the format, as its own library reads them, and an unknown type."""
        types = {"F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "C64": 64, "F3_E1M1": 3}
        plain = self.attend(built(), "--json")
        for dtype, bits in types.items():
            begin, end = 3 * BYTES, 3 * BYTES + 8 * bits // 8
            for name, flags in (("scales", ("--ignore-tensors", "scales")), ("max_logit", ())):
                with self.subTest(dtype=dtype, name=name):
                    file = built(data_bytes=end, **{name: entry(begin, end, (8,), dtype)})
                    if dtype != "F3_E1M1":
                        self.assertEqual(dict(deserialize(file))[name]["dtype"], dtype)
                    done = self.attend(file, "--json", *flags)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(done.stdout)["output_crc32c"], json.loads(plain.stdout)["output_crc32c"])
            with self.subTest(dtype=dtype, used=True):
                told = self.refused(built(data_bytes=end, mask=entry(begin, end, (8,), dtype)), reason="UNSUPPORTED_DTYPE")
                self.assertIn(f"mask: is {dtype}, ", told)

    def test_tensors_of_names_that_a_job_does_not_take(self):
        """Not computed without what the file may mean by them, and not verified without it either."""
        upstream = {name: np.zeros((ROWS, HEADS, DIM), "<f4") for name in ("output", "d_out")}
        upstream["lse"] = np.full((HEADS, ROWS), np.log(ROWS) + DIM**0.5, "<f4")
        for verb, whole in (("attend", tensors()), ("gradients", tensors(**upstream)), ("plan", tensors())):
            self.assertEqual(self.attend(save(whole), verb=verb).returncode, 0)
            for name in ("bit_mask", "attn_mask", "lse-offset"):
                with self.subTest(verb=verb, name=name):
                    file = save({**whole, name: np.zeros((HEADS, ROWS, ROWS), bool)})
                    (line,) = self.refused(file, reason="UNKNOWN_TENSOR", verb=verb).splitlines()
                    self.assertRegex(line, f" {name}, but this job takes only q, k, v, bias, mask, lse_offset")
                    done = self.attend(file, "--ignore-tensors", name, verb=verb)
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_tensors_are_left_aside_by_name(self):
        digests = {}
        for what, visible, flags in (("plain", None, ()), ("masked", False, ()), ("aside", False, ("--ignore-tensors", "mask,notes"))):
            more = {} if visible is None else {"mask": np.full((ROWS, ROWS), visible)}
            notes = {"notes": np.zeros(1)} if flags else {}
            done = self.attend(save(tensors(**more, **notes)), "--json", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            digests[what] = json.loads(done.stdout)["lse_crc32c"]
        self.assertEqual(digests["aside"], digests["plain"])
        self.assertNotEqual(digests["masked"], digests["plain"])
        self.refused(good(), "--ignore-tensors", "mask", reason="MISSING_TENSOR")
        for flags in (("--ignore-tensors", "a,,b"), ("--ignore-tensors", "")):
            self.assertEqual(self.attend(good(), *flags).returncode, 2, flags)
        done = self.service.annulus("attend", "--synthetic", "1,8,8,2,2,4,fp32,1", "--ignore-tensors", "a")
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
