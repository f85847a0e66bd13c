"""What a watcher of a job hears of its segments."""

import numpy

from tests.end_to_end import raw_client, raw_job
from tests.end_to_end.raw_client import jobs_pb2, types_pb2

HEADS, KV_HEADS, DIM = 6, 3, 64


def assert_told(case, *job, **options):
    """Of a job of progress_of(): that it has more segments than one, and that each is told once it is done."""
    told = progress_of(*job, **options)
    case.assertTrue(told, "a job of one segment")
    case.assertGreater(told[-1].segments, 1)
    case.assertEqual([each.segments_done for each in told], [*range(1, told[-1].segments + 1)])


def progress_of(address, rows, strategy, world_size, gradients=False):
    """Progress, as it was told, of a causal bf16 job of zeros by Attend: one sequence of `rows` queries and as many keys."""
    spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_BF16, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    spec.sequences.add(q_len=rows, kv_len=rows)
    spec.masks.add(causal=True)
    inputs = {"Q": (HEADS, DIM), "K": (KV_HEADS, DIM), "V": (KV_HEADS, DIM)}
    if gradients:
        spec.gradients.SetInParent()
        inputs |= {"OUT": (HEADS, DIM), "LSE": (HEADS, 1), "D_OUT": (HEADS, DIM)}
    name = "STRATEGY_" + strategy.upper().replace("-", "_")
    execution = types_pb2.Execution(strategy=types_pb2.Execution.Strategy.Value(name), world_size=world_size)
    with raw_client.Stubs(address) as stubs, raw_client.Attend(stubs) as call:
        call.start(spec, execution)
        request = jobs_pb2.WatchJobRequest(job_id=call.accepted().job_id)
        with raw_client.Stream(stubs.jobs.WatchJob, 60, request) as watch:
            watch.read()  # The job cannot run before it has its inputs.
            for tensor, (heads, dim) in inputs.items():
                zeros = numpy.zeros((rows, heads, dim), "<f4" if tensor == "LSE" else "<u2")
                for chunk in raw_job.chunks_of(types_pb2.TensorId.Value("TENSOR_ID_" + tensor), zeros):
                    call.chunk(chunk)
            call.half_close()
            for _ in call.read_all():
                pass
            return [event.progress for event in watch.read_all() if event.HasField("progress")]
