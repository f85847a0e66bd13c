"""Progress events about segments that a watcher of a job receives."""

import numpy

from tests.end_to_end.harness import raw_client, raw_job
from tests.end_to_end.harness.raw_client import jobs_pb2, types_pb2

HEADS, KV_HEADS, DIM = 6, 3, 64


def execution_of(strategy, world_size, flags=()):
    """The execution that the command line requests with these values and with further flags, each a
    name and its value."""
    asked = {"strategy": strategy, "world_size": str(world_size)}
    asked |= {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2])}
    execution = types_pb2.Execution()
    for name, value in asked.items():
        enum = execution.DESCRIPTOR.fields_by_name[name].enum_type
        setattr(execution, name, enum.values_by_name[f"{name}_{value}".upper().replace("-", "_")].number if enum else int(value))
    return execution


def assert_told(case, address, rows, execution, gradients=False):
    """Checks a job of progress_of(): it runs as requested, has more than one segment, and each
    segment is reported once it is done."""
    planned, told = progress_of(address, rows, execution, gradients)
    for field, value in execution.ListFields():
        case.assertEqual(getattr(planned, field.name), value, field.name)
    case.assertTrue(told, "a job of one segment")
    case.assertGreater(told[-1].segments, 1)
    case.assertEqual([each.segments_done for each in told], [*range(1, told[-1].segments + 1)])


def progress_of(address, rows, execution, gradients=False):
    """(the planned execution, the reported progress) of a causal bf16 job of zeros by Attend: one
    sequence of `rows` queries and as many keys."""
    spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_BF16, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    spec.sequences.add(q_len=rows, kv_len=rows)
    spec.masks.add(causal=True)
    inputs = {"Q": (HEADS, DIM), "K": (KV_HEADS, DIM), "V": (KV_HEADS, DIM)}
    if gradients:
        spec.gradients.SetInParent()
        inputs |= {"OUT": (HEADS, DIM), "LSE": (HEADS, 1), "D_OUT": (HEADS, DIM)}
    with raw_client.Stubs(address) as stubs, raw_client.Attend(stubs) as call:
        call.start(spec, execution)
        accepted = call.accepted()
        request = jobs_pb2.WatchJobRequest(job_id=accepted.job_id)
        with raw_client.Stream(stubs.jobs.WatchJob, 60, request) as watch:
            watch.read()  # The job cannot run before it has its inputs.
            for tensor, (heads, dim) in inputs.items():
                zeros = numpy.zeros((rows, heads, dim), "<f4" if tensor == "LSE" else "<u2")
                for chunk in raw_job.chunks_of(types_pb2.TensorId.Value("TENSOR_ID_" + tensor), zeros):
                    call.chunk(chunk)
            call.half_close()
            for _ in call.read_all():
                pass
            told = [event.progress for event in watch.read_all() if event.HasField("progress")]
            return accepted.plan.execution, told
