"""MergePartials: parts of the keys attended by themselves and joined are attention over all of them, and what cannot be
joined is refused."""

import os
import shutil
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.end_to_end.harness import raw_client
from tests.end_to_end.harness.raw_client import attention_pb2, types_pb2
from tests.end_to_end.harness.service_case import ServiceCase

E, BASE_2 = types_pb2.Outputs.LSE_BASE_E, types_pb2.Outputs.LSE_BASE_2
ROWS_HEADS = attention_pb2.Partial.LSE_LAYOUT_ROWS_HEADS
HEADS_ROWS = attention_pb2.Partial.LSE_LAYOUT_HEADS_ROWS
CUTS = (0, 31, 31, 40, 90)  # Keys of the parts; one has none.
SEED = int.from_bytes(os.urandom(4), "little")


def exact(q, k, v):
    """Output and LSE of [batch, tokens, heads, dim] in fp64."""
    q, k, v = (np.moveaxis(each.astype(np.float64), 1, 2) for each in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    lse = np.log(np.exp(scores).sum(-1))
    return np.moveaxis(np.exp(scores - lse[..., None]) @ v, 1, 2), lse


def tensor(array):
    return attention_pb2.InlineTensor(shape=array.shape, values=array.astype(np.float32).ravel())


def partial(out, lse, base=E, layout=ROWS_HEADS):
    out, lse = np.asarray(out, np.float32), np.asarray(lse, np.float32)
    return attention_pb2.Partial(out=tensor(out), lse=tensor(lse), lse_base=base, lse_layout=layout)


class MergeTest(ServiceCase):
    def setUp(self):
        print(f"seed {SEED}")
        random = np.random.default_rng(SEED)
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")))
        self.q = random.standard_normal((2, 33, 4, 32), np.float32)
        self.k, self.v = (random.standard_normal((2, CUTS[-1], 4, 32), np.float32) for _ in "kv")

    def path(self, name):
        return os.path.join(self.folder, name)

    def parts(self):
        """Files with what `annulus attend` says of each part of the keys."""
        files = []
        for i, (begin, end) in enumerate(zip(CUTS, CUTS[1:])):
            given, made = self.path(f"in{i}"), self.path(f"part{i}")
            keys = slice(begin, end)
            save_file({"q": self.q, "k": self.k[:, keys].copy(), "v": self.v[:, keys].copy()}, given)
            done = self.service.annulus("attend", "--input", given, "--output", made)
            self.assertEqual(done.returncode, 0, done.stderr)
            files.append(made)
        return files

    def merge(self, files, *flags, expect=0):
        inputs = [word for file in files for word in ("--input", file)]
        done = self.service.annulus("merge", *inputs, "--output", self.path("merged"), *flags)
        self.assertEqual(done.returncode, expect, done.stderr)
        return load_file(self.path("merged")) if expect == 0 else done.stderr

    def test_parts_of_the_keys_join_to_all_of_them(self):
        files = self.parts()
        out, lse = exact(self.q, self.k, self.v)
        merged = self.merge(files, "--lse-base", "e")
        np.testing.assert_allclose(merged["output"], out, atol=2e-6)
        np.testing.assert_allclose(merged["lse"], lse, atol=2e-6)
        # In groups, the answers handed on as they are, and to base 2.
        first = self.path("first")
        save_file(self.merge(files[:2], "--lse-base", "e"), first)
        grouped = self.merge([files[2], first, files[3]], "--lse-base", "e", "--output-lse-base", "2")
        np.testing.assert_allclose(grouped["output"], out, atol=2e-6)
        np.testing.assert_allclose(grouped["lse"] * np.log(2), lse, atol=2e-6)

    def test_a_base_or_a_layout_other_than_a_file_says_is_refused(self):
        files = self.parts()
        told = self.merge(files, "--lse-base", "2", expect=3)
        self.assertEqual(told, f"annulus: INVALID_ARGUMENT / LSE_MISMATCH: {files[0]}: lse: the metadata of its file has lse_base e, not 2\n")
        joined = self.path("base 2")
        save_file(self.merge(files[:2], "--lse-base", "e", "--output-lse-base", "2"), self.path("unsaid"))
        os.rename(self.path("merged"), joined)
        self.assertIn("base 2: lse: the metadata of its file has lse_base 2, not e", self.merge([files[2], joined], "--lse-base", "e", expect=3))
        self.merge([self.path("unsaid"), joined], "--lse-base", "2")
        scales = [self.path(f"scale {scale}") for scale in ("0.5", "2")]
        for path, scale in zip(scales, ("0.5", "2")):
            done = self.service.annulus("attend", "--synthetic", "1,8,8,1,1,4,fp32,1", "--scale", scale, "--output", path)
            self.assertEqual(done.returncode, 0, done.stderr)
        told = self.merge(scales, "--lse-base", "e", expect=3)
        self.assertIn(f"{scales[1]}: lse: its job had scale 2, but that of {scales[0]} had scale 0.5: these are not partials of the same attention", told)
        square = self.path("square")
        save_file({"output": np.ones((3, 3, 4), np.float32), "lse": np.zeros((3, 3), np.float32)}, square)
        self.merge([square], "--lse-base", "e", "--lse-layout", "tokens-heads")
        self.assertIn("lse_layout tokens-heads, not heads-tokens", self.merge([self.path("merged")], "--lse-base", "e", expect=3))

    def test_files_larger_than_a_call_are_cut(self):
        random = np.random.default_rng(SEED)
        files, outs, lses = [], [], []
        for i in range(3):
            outs.append(random.standard_normal((5000, 3, 64), np.float32))
            lses.append(random.standard_normal((5000, 3), np.float32))
            files.append(self.path(f"large{i}"))
            save_file({"output": outs[-1], "lse": lses[-1]}, files[-1])
        merged = self.merge(files, "--lse-base", "2", "--lse-layout", "tokens-heads")
        weights = np.exp2(np.array(lses, np.float64))
        want = (weights[..., None] * np.array(outs, np.float64)).sum(0) / weights.sum(0)[..., None]
        np.testing.assert_allclose(merged["output"], want, atol=2e-6)
        np.testing.assert_allclose(merged["lse"], np.log(weights.sum(0)), atol=2e-6)

    def test_a_value_is_named_by_its_place_in_the_file(self):
        """[batch, tokens, heads] are 2, 3000, 3, so that there are calls of several thousand rows."""
        files = [self.path("first"), self.path("second")]
        lse = np.zeros((2, 3, 3000), np.float32)
        save_file({"output": np.ones((2, 3000, 3, 64), np.float32), "lse": lse}, files[0])
        lse[1, 2, 2345] = np.nan
        save_file({"output": np.ones((2, 3000, 3, 64), np.float32), "lse": lse}, files[1])
        told = self.merge(files, "--lse-base", "e", expect=3)
        self.assertEqual(told, f"annulus: INVALID_ARGUMENT / CORRUPT_PARTIAL: {files[1]}: lse: sequence 1, row 2345, head 2 is NaN; if it marks a row "
                               "without visible keys, use --nonfinite-lse-is-empty\n")

    def test_names_that_nobody_knows_are_refused(self):
        path = self.path("misspelt")
        save_file({"output": np.ones((2, 3, 4), np.float32), "lse": np.zeros((3, 2), np.float32),
                   "lse_rst": np.zeros((3, 2), np.float32), "q": np.ones((2, 3, 4), np.float32)}, path)
        told = self.merge([path], "--lse-base", "e", expect=3)
        self.assertIn(f"UNKNOWN_TENSOR: {path} has lse_rst, but a merge takes only output, lse, lse_rest", told)
        self.merge([path], "--lse-base", "e", "--ignore-tensors", "lse_rst")
        plain = self.path("plain")
        save_file({"output": np.ones((2, 3, 4), np.float32), "lse": np.zeros((3, 2), np.float32)}, plain)
        self.merge([plain, path], "--lse-base", "e", "--ignore-tensors", "lse_rst")
        told = self.merge([plain, path], "--lse-base", "e", "--ignore-tensors", "lse_rst,weird", expect=3)
        self.assertIn("MISSING_TENSOR: weird: named in --ignore-tensors, but not in any of the files\n", told)

    def test_what_files_say_of_their_jobs_must_fit_together(self):
        """Sinks in one part, modifiers alike in all, and no part twice."""
        made = {}
        for name, spec in (("plain", "{}"), ("sunk", '{"modifiers": {"sinks": [1, 2]}}'), ("capped", '{"modifiers": {"softCap": 3}}')):
            made[name] = self.path(name)
            with open(self.path("spec"), "w", encoding="utf-8") as file:
                file.write(spec)
            done = self.service.annulus("attend", "--synthetic", "1,8,8,2,2,4,fp32,1", "--spec", self.path("spec"), "--output", made[name])
            self.assertEqual(done.returncode, 0, done.stderr)
        again = self.path("again")
        shutil.copy(made["sunk"], again)
        self.merge([made["plain"], made["sunk"]], "--lse-base", "e")
        told = self.merge([made["sunk"], made["plain"], again], "--lse-base", "e", expect=3)
        self.assertIn(f"LSE_MISMATCH: {again}: lse: both its job and that of {made['sunk']} had sinks, ", told)
        told = self.merge([made["plain"], made["capped"]], "--lse-base", "e", expect=3)
        self.assertIn("its job had modifiers.softCap 3, but that of ", told)
        told = self.merge([made["plain"], made["plain"]], "--lse-base", "e", expect=3)
        self.assertIn(f"INPUT_TWICE: {made['plain']}: it is given twice", told)
        done = self.service.annulus("merge", "--input", made["plain"], "--lse-base", "e", "--output", self.path("merged"))
        self.assertIn("merged 1 partial of 8 rows x 2 heads in 1 call, ", done.stdout)

    def test_files_that_do_not_fit_are_refused(self):
        good, bad = self.path("good"), self.path("bad")
        save_file({"output": np.ones((2, 3, 4), np.float32), "lse": np.zeros((3, 2), np.float32)}, good)
        for tensors, reason in (
            ({"output": np.ones((2, 3, 4), np.float32)}, "MISSING_TENSOR"),
            ({"output": np.ones((2, 3, 5), np.float32), "lse": np.zeros((3, 2), np.float32)}, "SHAPE_MISMATCH"),
            ({"output": np.ones((2, 3, 4), np.float32), "lse": np.zeros((2, 3), np.float32)}, "SHAPE_MISMATCH"),
            ({"output": np.ones((2, 3, 4), np.int32), "lse": np.zeros((3, 2), np.float32)}, "UNSUPPORTED_DTYPE"),
            ({"output": np.ones((2, 3, 4), np.float32), "lse": np.full((3, 2), np.nan, np.float32)}, "CORRUPT_PARTIAL"),
        ):
            save_file(tensors, bad)
            with self.subTest(reason=reason):
                self.assertIn(reason, self.merge([good, bad], "--lse-base", "e", expect=3))
                self.assertFalse(os.path.exists(self.path("merged")))
        self.assertEqual(self.service.annulus("merge", "--input", good, "--output", good).returncode, 2)
        as_empty = self.merge([good, bad], "--lse-base", "e", "--nonfinite-lse-is-empty")
        np.testing.assert_array_equal(as_empty["output"], np.ones((2, 3, 4)))

    def test_a_copy_of_a_file_is_warned_of(self):
        """It is merged, as what is asked for."""
        files = [self.path(name) for name in ("first", "other", "copy")]
        for path, lse in zip(files, (1, 2, 1)):
            save_file({"output": np.ones((2, 3, 4), np.float32), "lse": np.full((3, 2), lse, np.float32)}, path, {"from": path})
        for given, told in ((files[:2], ""), (files, f"annulus: warning: {files[2]} has the same output and lse as {files[0]}: its keys count twice\n")):
            inputs = [flag for path in given for flag in ("--input", path)]
            done = self.service.annulus("merge", *inputs, "--lse-base", "e", "--output", self.path("merged"))
            self.assertEqual((done.returncode, done.stderr), (0, told))
        np.testing.assert_allclose(load_file(self.path("merged"))["lse"], np.log(2 * np.exp(1) + np.exp(2)), rtol=1e-6)

    def test_an_lse_of_plus_infinity_is_refused_with_its_flag(self):
        save_file({"output": np.ones((2, 3, 4), np.float32), "lse": np.full((3, 2), np.inf, np.float32)}, self.path("infinite"))
        told = self.merge([self.path("infinite")], "--lse-base", "e", expect=3)
        self.assertIn("row 0, head 0 is +infinity; if it marks a row without visible keys, use --nonfinite-lse-is-empty\n", told)

    def call(self, request):
        return raw_client.call(self.stubs.attention.MergePartials, request)

    def refused(self, request, reason, field, code="INVALID_ARGUMENT"):
        with self.subTest(reason=reason, field=field):
            with self.assertRaises(raw_client.CallError) as caught:
                self.call(request)
            self.assert_refused(caught.exception, code, reason, field)

    def test_a_call_by_hand(self):
        log2 = float(np.log2(3))
        request = attention_pb2.MergePartialsRequest(
            partials=[
                partial([[[1, 2]], [[5, 6]]], [[0], [7]]),
                partial([[[9, 10]], [[8, 8]]], [[log2, -np.inf]], BASE_2, HEADS_ROWS),
                partial([[[np.nan] * 2]] * 2, [[-np.inf]] * 2),
            ],
            lse_layout=HEADS_ROWS,
        )
        answer = self.call(request)
        np.testing.assert_allclose(answer.out.values, [7, 8, 5, 6], rtol=1e-6)
        np.testing.assert_allclose(answer.lse.values, [np.log(4), 7], rtol=1e-6)
        self.assertEqual((list(answer.lse.shape), answer.lse_base, answer.lse_layout), ([1, 2], E, HEADS_ROWS))

    def test_what_cannot_be_joined_is_refused(self):
        good = partial(np.ones((2, 3, 4)), np.zeros((2, 3)))
        many = attention_pb2.MergePartialsRequest

        def damaged(change):
            bad = attention_pb2.Partial()
            bad.CopyFrom(good)
            change(bad)
            return many(partials=[good, bad])

        refused = self.refused
        refused(many(), "MISSING_TENSOR", "partials")
        refused(many(partials=[good] * 257), "LIMIT_EXCEEDED", "partials")
        large = partial(np.ones((200, 20, 100)), np.zeros((200, 20)))
        refused(many(partials=[large] * 2), "LIMIT_EXCEEDED", "partials")
        rests = partial(np.ones((300_000, 1, 1)), np.zeros((300_000, 1)))
        refused(many(partials=[rests]), "LIMIT_EXCEEDED", "partials")  # Its answer has a rest for each LSE.
        for beyond in (3e38, -3e38):  # fp32, by base 2.
            extreme = partial(np.ones((1, 1, 1)), np.full((1, 1), beyond))
            refused(many(partials=[extreme], lse_base=BASE_2), "CORRUPT_PARTIAL", "partials")
        refused(damaged(lambda p: p.ClearField("lse_base")), "INVALID_REQUEST", "partials[1].lse_base")
        refused(damaged(lambda p: p.ClearField("lse_layout")), "INVALID_REQUEST", "partials[1].lse_layout")
        refused(damaged(lambda p: setattr(p, "lse_base", 7)), "UNKNOWN_ENUM", "partials[1].lse_base")
        refused(many(partials=[good], lse_layout=9), "UNKNOWN_ENUM", "lse_layout")
        refused(damaged(lambda p: p.out.shape.append(1)), "SHAPE_MISMATCH", "partials[1].out.shape")
        refused(damaged(lambda p: p.lse.shape.reverse()), "SHAPE_MISMATCH", "partials[1].lse.shape")
        refused(damaged(lambda p: p.lse.values.pop()), "TENSOR_BYTES_MISMATCH", "partials[1].lse.values")
        refused(damaged(lambda p: p.out.values.append(1)), "TENSOR_BYTES_MISMATCH", "partials[1].out.values")
        for value in (np.nan, np.inf):
            bad = damaged(lambda p, value=value: p.lse.values.__setitem__(4, value))
            refused(bad, "CORRUPT_PARTIAL", "partials[1].lse.values[4]")
        unknown = damaged(lambda p: p.MergeFromString(raw_client.UNKNOWN_FIELD))
        refused(unknown, "UNKNOWN_FIELD", "partials[1].111")


if __name__ == "__main__":
    unittest.main()
