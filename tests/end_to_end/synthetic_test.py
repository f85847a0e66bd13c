"""One generator everywhere: by seed, from the command line, and as docs/reference/numerics.md writes it."""

import json
import re
import unittest

import numpy

from tests.end_to_end.harness import raw_client
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2
from tests.end_to_end.harness.service_case import ServiceCase

SEED = 2**40 + 7
Q_LEN, KV_LEN, Q_HEADS, KV_HEADS, DIM = 6, 9, 4, 2, 16


def documented():
    """The `element` of docs/reference/numerics.md, and the numbers that it gives for it."""
    with open("docs/reference/numerics.md", encoding="utf-8") as file:
        text = file.read()
    (code,) = re.findall(r"```python\n(def element.*?)```", text, re.DOTALL)
    (numbers,) = re.findall(r"first four elements × 128 are (.*?)\. ", text.replace("\n", " "))
    names = {}
    exec(code, names)
    return names["element"], re.findall(r"([−\d ]+) \(([QKV])\)", numbers)


class SyntheticTest(ServiceCase):
    def spec(self, dtype):
        spec = types_pb2.AttentionSpec(dtype=dtype, q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=DIM)
        spec.sequences.add(q_len=Q_LEN, kv_len=KV_LEN)
        spec.sequences.add(q_len=Q_LEN, kv_len=KV_LEN)
        return spec

    def inline(self, spec, **inputs):
        execution = types_pb2.Execution(world_size=1)
        request = attention_pb2.AttendInlineRequest(spec=spec, execution=execution, **inputs)
        answer = raw_client.call(self.stubs.attention.AttendInline, request, 30)
        return [f"{crc:08x}" for crc in (answer.out_crc32c, answer.lse_crc32c)]

    def test_by_seed_and_from_the_command_line(self):
        for name in ("fp32", "fp16", "bf16"):
            with self.subTest(dtype=name):
                shape = f"2,{Q_LEN},{KV_LEN},{Q_HEADS},{KV_HEADS},{DIM},{name}"
                facts = {}
                for seed in (SEED, SEED + 1):
                    done = self.service.annulus("attend", "--json", "--world-size", "1", "--synthetic", f"{shape},{seed}")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    facts[seed] = json.loads(done.stdout)
                spec = self.spec(getattr(types_pb2, f"DATA_TYPE_{name.upper()}"))
                synthetic = attention_pb2.SyntheticInputs(seed=SEED)
                ours = [facts[SEED]["output_crc32c"], facts[SEED]["lse_crc32c"]]
                self.assertEqual(self.inline(spec, synthetic=synthetic), ours)
                self.assertNotEqual(facts[SEED + 1]["output_crc32c"], ours[0])

    def test_as_documented(self):
        element, numbers = documented()
        self.assertEqual([letter for _, letter in numbers], ["Q", "K", "V"])
        for tensor, (text, _) in enumerate(numbers, 1):
            listed = [int(number) for number in text.replace("−", "-").split()]
            self.assertEqual([element(1, tensor, 0, 0, dim) * 128 for dim in range(4)], listed)
        tensors = attention_pb2.InlineTensors()
        for tensor, (name, rows, heads) in enumerate(
            (("q", 2 * Q_LEN, Q_HEADS), ("k", 2 * KV_LEN, KV_HEADS), ("v", 2 * KV_LEN, KV_HEADS)), 1
        ):
            getattr(tensors, name).shape.extend((rows, heads, DIM))
            getattr(tensors, name).values.extend(
                element(SEED, tensor, *index) for index in numpy.ndindex(rows, heads, DIM)
            )
        for dtype in (types_pb2.DATA_TYPE_FP32, types_pb2.DATA_TYPE_BF16):
            spec = self.spec(dtype)
            synthetic = attention_pb2.SyntheticInputs(seed=SEED)
            self.assertEqual(self.inline(spec, tensors=tensors), self.inline(spec, synthetic=synthetic))


if __name__ == "__main__":
    unittest.main()
