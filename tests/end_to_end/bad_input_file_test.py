"""safetensors files that are corrupt, truncated or hostile: `annulus attend` refuses them and asks nobody."""

import json
import os
import struct
import tempfile
import unittest

import numpy as np
from safetensors.numpy import save

from tests.end_to_end import service_case
from tests.end_to_end.service_case import ServiceCase

REFUSED = 3
ROWS, HEADS, DIM = 4, 2, 8
BYTES = ROWS * HEADS * DIM * 4


def good():
    tensor = np.ones((ROWS, HEADS, DIM), "<f4")
    return save({name: tensor for name in ("q", "k", "v")})


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

    def attend(self, data, *flags):
        path = os.path.join(self.folder, "in.safetensors")
        with open(path, "wb") as file:
            file.write(data)
        return self.service.annulus("attend", "--input", path, *flags)

    def refused(self, data, *flags):
        """With the documented code, in words on stderr, and without a job."""
        before = len(service_case.cluster_state(self.service)["jobs"])
        done = self.attend(data, *flags)
        self.assertEqual(done.returncode, REFUSED, done.stderr)
        self.assertRegex(done.stderr, r"^annulus: INVALID_ARGUMENT / [A-Z_]+: \S")
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(service_case.cluster_state(self.service)["jobs"]), before)

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
        for length in (len(good()), 2**31, 2**63 - 1, 2**64 - 8, 2**64 - 1):
            with self.subTest(length=length):
                self.refused(struct.pack("<Q", length) + good()[8:])

    def test_a_header_that_is_no_json(self):
        for text in (b"", b"{", b"[]", b"null", b"\xff\xfe{}", b"[" * 10000, b'{"q":' * 5000):
            with self.subTest(text=text[:16]):
                self.refused(struct.pack("<Q", len(text)) + text)

    def test_sizes_that_overflow(self):
        for shape in ([2**32, 2**32, 1], [2**63 - 1, 2, 1], [-1, HEADS, DIM], [2**64, 1, 1]):
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
        self.refused(built(q=entry(0, BYTES, (ROWS, HEADS, DIM - 1))))

    def test_bytes_that_nobody_names(self):
        self.refused(built(data_bytes=3 * BYTES + 1))
        self.refused(built(data_bytes=4 * BYTES, v=entry(3 * BYTES, 4 * BYTES)))

    def test_members_of_other_types(self):
        for wrong in (7, "F32", [], {"dtype": 1}, {**entry(0, BYTES), "shape": "4"}):
            with self.subTest(wrong=wrong):
                self.refused(built(q=wrong))

    def test_a_missing_or_unfit_tensor(self):
        self.refused(built(v=None, data_bytes=2 * BYTES))
        self.refused(built(q=entry(0, BYTES, dtype="I32")))
        self.refused(built(q=entry(0, BYTES, dtype="Q7")))
        self.refused(built(q=entry(0, BYTES, (ROWS * HEADS, DIM))))
        self.refused(built(k=entry(BYTES, 2 * BYTES, (ROWS * 2, HEADS, DIM // 2))))


if __name__ == "__main__":
    unittest.main()
