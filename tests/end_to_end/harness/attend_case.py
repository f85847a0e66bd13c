"""Shared by the tests of whole jobs: an `annulus serve`, files of every element type, and a check
in numpy."""

import itertools
import json
import os
import re
import struct
import tempfile
import unittest

import numpy

from tests.end_to_end.harness import cluster

# Strategies that support every number of ranks with any heads and move only keys; and all
# strategies.
STRATEGIES = ("ring-pass-kv", "all-gather-kv", "rotate-kv", "halo")
ALL_STRATEGIES = (*STRATEGIES, "ring-pass-q", "ulysses", "ulysses-ring", "double-ring", "tree")
LAYOUTS = ("contiguous", "zigzag", "striped", "zigzag-per-sequence")
ALL_LAYOUTS = (*LAYOUTS, "by-area")
PATHS = ("direct", "gateway")
# Strategies whose ranks are a grid where there are 4 of them, with what makes it one of 2 by 2.
GRIDS = {"ulysses-ring": ("--ulysses-degree", "2"), "double-ring": ("--inner-ring-degree", "2")}
# Each strategy, and none that is asked for, on several ranks; and one rank.
RUNS = (*((strategy, 4 if strategy in GRIDS else 2 + index % 2) for index, strategy in enumerate(("auto", *ALL_STRATEGIES))), ("auto", 1))

# Element types: the name in a file, the bits, and what the judge asks of a naive answer before it believes it.
FILE_DTYPES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
LARGEST_BUDGET = {"fp32": 1e-4, "fp16": 4e-3, "bf16": 4e-2}


def ranks(strategy, world):
    """The flags for a strategy on so many ranks."""
    return ("--strategy", strategy, "--world-size", str(world), *(GRIDS.get(strategy, ()) if world == 4 else ()))


def every_pair(*axes):
    """Few rows of values, one of each axis, in which every two values of different axes meet."""
    sizes = [len(axis) for axis in axes]
    missing = {(a, i, b, j) for a, b in itertools.combinations(range(len(axes)), 2) for i in range(sizes[a]) for j in range(sizes[b])}
    rows, used = [], [[0] * size for size in sizes]
    while missing:
        a, i, b, j = min(missing)
        row = {a: i, b: j}
        for axis in (each for each in range(len(axes)) if each not in (a, b)):
            def gain(value):
                met = sum(((c, k, axis, value) if c < axis else (axis, value, c, k)) in missing for c, k in row.items())
                return met, -used[axis][value]
            row[axis] = max(range(sizes[axis]), key=gain)
        for axis, value in row.items():
            used[axis][value] += 1
        rows.append([row[axis] for axis in range(len(axes))])
        missing -= {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(axes)), 2)}
    return [tuple(axis[value] for axis, value in zip(axes, row)) for row in rows]


def to_bits(array, dtype):
    """The elements in the type, rounded to nearest even, as little-endian bits."""
    if dtype == "fp32":
        return array.astype("<f4")
    if dtype == "fp16":
        return array.astype("<f2")
    bits = array.astype("<f4").view("<u4").astype(numpy.uint64)  # Finite numbers.
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def from_bits(bits, dtype):
    if dtype == "bf16":
        return (bits.astype("<u4") << 16).view("<f4")
    return bits.astype("<f4")


def rounded(array, dtype):
    return from_bits(to_bits(array, dtype), dtype)


def spacing(magnitude, dtype):
    """ulp of the type."""
    step = numpy.spacing(magnitude.astype(numpy.float16 if dtype == "fp16" else numpy.float32)).astype(numpy.float64)
    return step * 2**16 if dtype == "bf16" else step


def save_tensors(path, tensors, dtype, fp32=()):
    """Writes a safetensors file byte by byte, because numpy has no bf16. Tensors named in `fp32`
    have that type, and bool arrays are BOOL."""
    header, data = {}, b""
    for name, array in tensors.items():
        own = "fp32" if name in fp32 else dtype
        truth = array.dtype == bool
        content = array.tobytes() if truth else to_bits(array, own).tobytes()
        header[name] = {"dtype": "BOOL" if truth else FILE_DTYPES[own], "shape": array.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load_tensors(path):
    """(name → array in fp32, name → dtype) of a safetensors file."""
    with open(path, "rb") as file:
        whole = file.read()
    size = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8 : 8 + size]), whole[8 + size :]
    arrays, dtypes = {}, {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        dtypes[name] = {known: dtype for dtype, known in FILE_DTYPES.items()}[entry["dtype"]]
        begin, end = entry["data_offsets"]
        bits = numpy.frombuffer(data[begin:end], "<f4" if entry["dtype"] == "F32" else "<f2" if entry["dtype"] == "F16" else "<u2")
        arrays[name] = from_bits(bits, dtypes[name]).reshape(entry["shape"])
    return arrays, dtypes


# The pairs (row i, key j) that a range shows in its rectangle.
RANGE_KINDS = {
    "KIND_FULL": lambda i, j, r: (i == i) & (j == j),
    "KIND_CAUSAL": lambda i, j, r: j - r["kEnd"] <= i - r["qEnd"],
    "KIND_INVERSE_CAUSAL": lambda i, j, r: j - r["kBegin"] >= i - r["qBegin"],
    "KIND_BI_CAUSAL": lambda i, j, r: RANGE_KINDS["KIND_CAUSAL"](i, j, r) & RANGE_KINDS["KIND_INVERSE_CAUSAL"](i, j, r),
}


def hidden_by(mask, q_len, kv_len):
    """The (row, key) pairs that a JSON mask hides, literally by the rule of
    docs/reference/numerics.md. The caller handles the mask's heads."""
    field = {name: int(mask[name]) for name in mask if name not in ("causal", "alignment", "ranges", "queryHeads")}
    i, j = numpy.arange(q_len)[:, None], numpy.arange(kv_len)[None, :]
    p = i + (0 if "alignment" in mask else kv_len - q_len)
    order = (j <= p) | (j < field.get("prefix", 0)) if mask.get("causal") else numpy.ones((q_len, kv_len), bool)
    local = (j >= p - field.get("windowLeft", 1 << 40)) & (j <= p + field.get("windowRight", 1 << 40))
    if "chunk" in field:
        local &= j // field["chunk"] == p // field["chunk"]
    visible = order & (local | (j < field.get("alwaysVisible", 0)))
    if "ranges" in mask:
        listed = numpy.zeros((q_len, kv_len), bool)
        for r in mask["ranges"]:
            inside = (i >= r["qBegin"]) & (i < r["qEnd"]) & (j >= r["kBegin"]) & (j < r["kEnd"])
            listed |= inside & RANGE_KINDS[r.get("kind", "KIND_FULL")](i, j, r)
        visible &= listed
    return ~visible


def mask_of(masks, head):
    """The one that a head follows: the first that names it, or the first of all, which names none."""
    return next((mask for mask in masks[1:] if head in mask["queryHeads"]), masks[0])


def named_mask(name):
    return {"full": {}, "causal": {"causal": True}, "causal-top-left": {"causal": True, "alignment": "top left"}}[name]


def product(a, b):
    """a @ b; in float32 one term after the other, as a loop has them: BLAS has its own, smaller errors."""
    if a.dtype != numpy.float32:
        return a @ b
    total = numpy.zeros((a.shape[0], b.shape[1]), numpy.float32)
    for i in range(a.shape[1]):
        total += a[:, i : i + 1] * b[i]
    return total


def modified(scores, modifiers, head, keys):
    """Soft cap and ALiBi (bottom-right) of one head's scores; column n is key keys[n]."""
    real = scores.dtype.type
    if "softCap" in modifiers:
        cap = real(modifiers["softCap"])
        scores = cap * numpy.tanh(scores / cap)
    if "alibiSlopes" in modifiers:
        position = numpy.arange(len(scores))[:, None] + len(keys) - len(scores)
        scores = scores - real(modifiers["alibiSlopes"][head]) * numpy.abs(position - keys[None, :]).astype(real)
    return scores


def reference(q, k, v, mask, real, dtype="fp32", modifiers=None, keys=None):
    """Attention of one sequence in the float type `real`; (output, lse), rows that see nothing give (0, -inf).

    `mask` is "full", "causal", "causal-top-left", or what is hidden. In float32 weights and outputs are rounded to `dtype`.
    `modifiers` is ScoreModifiers in JSON; `keys` is the place of each row of k and v, 0, 1, … where it is not given.
    """
    modifiers = modifiers or {}
    keys = numpy.arange(len(k)) if keys is None else keys
    q, k, v = (array.astype(real) for array in (q, k, v))
    group = q.shape[1] // k.shape[1]
    out = numpy.zeros((q.shape[0], q.shape[1], v.shape[2]), real)
    lse = numpy.full((q.shape[1], q.shape[0]), -numpy.inf, real)
    hidden = hidden_by(named_mask(mask), len(q), len(k)) if isinstance(mask, str) else mask
    for head in range(q.shape[1]):
        scores = product(q[:, head], k[:, head // group].T) * real(q.shape[2] ** -0.5)
        scores = modified(scores, modifiers, head, keys)
        scores[hidden] = -numpy.inf
        seen = ~hidden.all(axis=1) if len(k) else numpy.zeros(len(q), bool)
        sink = real(modifiers["sinks"][head]) if "sinks" in modifiers else real(-numpy.inf)
        lse[head, ~seen] = sink
        if not seen.any():
            continue
        top = numpy.maximum(scores[seen].max(axis=1, keepdims=True), sink)
        weights = numpy.exp(scores[seen] - top)
        total = weights.sum(axis=1, keepdims=True) + numpy.exp(sink - top)
        weights /= total
        if real == numpy.float32:
            weights = rounded(weights, dtype)
        out[seen, head] = product(weights, v[:, head // group])
        lse[head, seen] = (top + numpy.log(total))[:, 0]
    return rounded(out, dtype) if real == numpy.float32 else out, lse


def judged(q, k, v, mask, dtype="fp32", modifiers=None):
    """(exact output and LSE, naive outputs) of one sequence whose elements are of the type.

    The largest error of one naive answer is luck: there are two, over the keys from the first and from the last, as
    `annulus attend --verify` has several.
    """
    hidden = hidden_by(named_mask(mask), len(q), len(k)) if isinstance(mask, str) else mask
    keys = numpy.arange(len(k))
    naive = [reference(q, k[order], v[order], hidden[:, order], numpy.float32, dtype, modifiers, keys[order])[0]
             for order in (slice(None), slice(None, None, -1))]
    return reference(q, k, v, hidden, numpy.float64, modifiers=modifiers), numpy.stack(naive)


def documented(name):
    """A function of docs/reference/numerics.md."""
    with open("docs/reference/numerics.md", encoding="utf-8") as file:
        (code,) = re.findall(rf"```python\n(def {name}.*?)```", file.read(), re.DOTALL)
    names = {}
    exec(code, names)
    return names[name]


def kept_weights(rate, seed, heads, q_len, kv_len):
    """The factors by which dropout multiplies the weights of the first sequence: [heads, rows,
    keys]."""
    keeps = documented("keeps")
    return numpy.array([[[keeps(rate, seed, 0, head, i, j) / (1 - rate) for j in range(kv_len)] for i in range(q_len)] for head in range(heads)])


class AttendCase(unittest.TestCase):
    WORKERS = 4
    SERVE_FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(cluster.Serve(cls.WORKERS, "--threads", "1", *cls.SERVE_FLAGS))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")))
        # Groups that formed before the last worker registered are closed by then. A state that one of them kept would be lost
        # (docs/explanation/reliability.md, "Known and left for now").
        first = cls.service.annulus("attend", "--synthetic", "1,64,64,1,1,16,fp32,1", "--world-size", str(cls.WORKERS))
        if first.returncode != 0:
            raise AssertionError(first.stderr)

    def attend(self, *flags, expect=0):
        done = self.service.annulus("attend", "--json", *flags)
        self.assertEqual(done.returncode, expect, f"{flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def runs_of(self, strategies):
        """strategy, element type, flags: of verified jobs of 4 ranks by every strategy, in which every two of type, layout and path
        meet."""
        rows = every_pair(LAYOUTS, tuple(FILE_DTYPES), PATHS)
        self.assertGreaterEqual(len(rows), len(strategies))
        for strategy, (layout, dtype, path) in zip(itertools.cycle(strategies), rows):
            yield strategy, dtype, ("--synthetic", f"2,150,170,4,2,32,{dtype},5", *ranks(strategy, 4), "--layout", layout, "--path", path,
                                    "--verify", "300")

    def digests_of(self, strategies, specs):
        """strategy, {name: (output, lse) checksums}: each spec by each strategy, judged by --verify."""
        for strategy, _, flags in self.runs_of(strategies):
            digests = {}
            for name, spec in specs.items():
                with self.subTest(strategy=strategy, option=name):
                    facts = self.attend(*flags, "--spec", self.spec_file({"masks": [{"causal": True}], **spec}))
                    self.assertEqual(facts["strategy"], strategy)
                    digests[name] = facts["output_crc32c"], facts["lse_crc32c"]
            yield strategy, digests

    def assert_within_budget(self, answer, exact, naive, what, dtype="fp32", by_head=False):
        """The error budget of docs/reference/numerics.md for few rows, or head by head, as for many; `naive` as of judged()."""
        out, lse = answer["output"].astype(numpy.float64), answer["lse"].astype(numpy.float64)
        self.assertEqual(out.shape, exact[0].shape, what)
        self.assertEqual(lse.shape, exact[1].shape, what)
        if out.size == 0:
            return
        largest = numpy.abs(exact[0]).max(axis=(0, 2))
        wrong = numpy.abs(naive - exact[0]).max(axis=(0, 1, 3))
        # A naive answer that is wrong would allow anything.
        self.assertTrue((2 * wrong <= LARGEST_BUDGET[dtype] * numpy.maximum(1, largest)).all(), f"{what}: naive off by {wrong}")
        step = spacing(largest, dtype)
        if not by_head:  # The largest error of a head's few rows is luck.
            wrong += 0.75 * step * (out.shape[0] * out.shape[2] < 4096)
            # Like in every other head.
            parts = wrong / numpy.where(largest > 0, largest, numpy.inf)
            wrong = numpy.maximum(wrong, parts.max() * largest)
        budget = 2 * wrong + step / 2
        error = numpy.abs(out - exact[0]).max(axis=(0, 2))
        self.assertTrue((error <= budget).all(), f"{what}: {error} of {budget}")
        seen = numpy.isfinite(exact[1])
        self.assertTrue((lse[~seen] == -numpy.inf).all(), what)
        off = numpy.abs(lse[seen] - exact[1][seen]) / numpy.maximum(1, numpy.abs(exact[1][seen]))
        self.assertTrue((off <= (1e-5 if dtype == "fp32" else 1e-3)).all(), f"{what}: LSE off by {off.max() if off.size else 0}")

    def run_file(self, tensors, *flags, dtype="fp32", more=()):
        """(tensors of the answer, facts) of a job over a file; output is of the inputs' type, LSE and what there is `more` of fp32."""
        source, target = (os.path.join(self.folder, name) for name in ("in", "out"))
        save_tensors(source, tensors, dtype)
        facts = self.attend("--input", source, "--output", target, *flags)
        answer, dtypes = load_tensors(target)
        self.assertEqual(dtypes, {"output": dtype, "lse": "fp32", **{name: "fp32" for name in more}})
        return answer, facts

    def spec_file(self, spec):
        path = os.path.join(self.folder, "spec.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(spec, file)
        return path
