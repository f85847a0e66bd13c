"""annulus.v1 on plain generated stubs, one message at a time: for tests that say wrong things on purpose.

    stubs = raw_client.Stubs(service.address)
    with raw_client.Attend(stubs, timeout=30) as call:
        call.start(job.spec)
        call.accepted()
        ...

Every wait has a deadline: that of its call.
"""

import queue
import threading

import grpc

from tools.testing import proto_stubs

proto_stubs.load()
from annulus.v1 import attention_pb2, attention_pb2_grpc  # noqa: E402
from annulus.v1 import data_plane_pb2, data_plane_pb2_grpc  # noqa: E402
from annulus.v1 import jobs_pb2, jobs_pb2_grpc, types_pb2  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402

__all__ = ["attention_pb2", "data_plane_pb2", "jobs_pb2", "types_pb2"]

DETAILS = "grpc-status-details-bin"
# To merge into a message: field 111, which none has, with the value 1.
UNKNOWN_FIELD = b"\xf8\x06\x01"


class CallError(Exception):
    """A call's status with what google.rpc says beside it."""

    def __init__(self, error):
        self.code = error.code().name
        self.message = error.details() or ""
        self.reason = self.domain = ""
        self.metadata, self.fields, self.retry_after = {}, {}, None
        rich = dict(error.trailing_metadata() or ()).get(DETAILS)
        for detail in status_pb2.Status.FromString(rich).details if rich else ():
            self._take(detail)
        super().__init__(f"{self.code} {self.reason} {self.fields or ''} {self.message}")

    def _take(self, detail):
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            self.reason, self.domain = info.reason, info.domain
            self.metadata = dict(info.metadata)
        elif detail.Unpack(bad):
            self.fields = {each.field: each.description for each in bad.field_violations}
        elif detail.Unpack(retry):
            self.retry_after = retry.retry_delay.ToTimedelta().total_seconds()


def call(method, request, timeout=30):
    """A unary call; its failure is a CallError."""
    try:
        return method(request, timeout=timeout)
    except grpc.RpcError as error:
        raise CallError(error) from None


# Without the probe the transport takes 64 KiB beyond what was read, on any machine; with it, what sockets hold.
NARROW = (("grpc.http2.bdp_probe", 0),)


class Stubs:
    """Stubs of one coordinator, and of the workers that its plans name. Close it, or use `with`."""

    def __init__(self, address, options=()):
        self._options = options
        self._channels = {}
        self._lock = threading.Lock()
        self.attention = attention_pb2_grpc.AttentionStub(self.channel(address))
        self.jobs = jobs_pb2_grpc.JobsStub(self.channel(address))

    def channel(self, address):
        with self._lock:
            if address not in self._channels:
                self._channels[address] = grpc.insecure_channel(address, self._options)
            return self._channels[address]

    def data(self, endpoint):
        return data_plane_pb2_grpc.DataPlaneStub(self.channel(endpoint))

    def close(self):
        for channel in self._channels.values():
            channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Stream:
    """A call that streams: send() what you like, read() until it is over."""

    def __init__(self, method, timeout, request=None):
        self._requests = queue.SimpleQueue()
        self._closed = False
        if request is None:
            request = iter(self._requests.get, None)
        self._call = method(request, timeout=timeout)

    def send(self, message):
        self._requests.put(message)

    def half_close(self):
        if not self._closed:
            self._closed = True
            self._requests.put(None)

    def read(self):
        """The next message, None at an end that is OK."""
        try:
            return next(self._call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            raise CallError(error) from None

    def read_all(self):
        while (message := self.read()) is not None:
            yield message

    def cancel(self):
        self._call.cancel()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.half_close()  # Before the cancel, so that the thread that sends ends too.
        self._call.cancel()


class Attend(Stream):
    """Attention.Attend."""

    def __init__(self, stubs, timeout=60):
        super().__init__(stubs.attention.Attend, timeout)

    def start(self, spec, execution=None, request_id=""):
        start = attention_pb2.AttendRequest.Start(
            spec=spec, execution=execution, request_id=request_id
        )
        self.send(attention_pb2.AttendRequest(start=start))

    def chunk(self, chunk):
        self.send(attention_pb2.AttendRequest(chunks=[chunk]))

    def accepted(self):
        """The message that it must be; before it nothing has been asked for."""
        message = self.read()
        if message is None or not message.HasField("accepted"):
            raise AssertionError(f"wanted accepted, not {message}")
        return message.accepted

    def outputs(self, outputs):
        """Reads the rest into `outputs`; its JobStats."""
        stats = None
        for message in self.read_all():
            if stats is not None:
                raise AssertionError("a message came after done")
            for chunk in message.chunks:
                outputs.place(chunk)
            if message.HasField("done"):
                stats = message.done
        if stats is None:
            raise AssertionError("the call ended well without done")
        return stats


class AttendMany(Stream):
    """Attention.AttendMany, without a deadline of its own: jobs have theirs."""

    def __init__(self, stubs, timeout=None):
        super().__init__(stubs.attention.AttendMany, timeout)

    def job(self, job, execution=None, timeout=60, request_id=""):
        """Sends a small job of raw_job, whole, with CRCs."""
        start = attention_pb2.AttendRequest.Start(
            spec=job.spec, execution=execution, request_id=request_id
        )
        start.timeout.FromMilliseconds(round(timeout * 1000))
        self.send(attention_pb2.AttendRequest(start=start, chunks=job.chunks(crc=True)))

    def answer(self, outputs=None):
        """Reads one job's answer into `outputs`; its last message, with done or error."""
        while (message := self.read()) is not None:
            for chunk in message.chunks:
                outputs.place(chunk)
            if message.HasField("done") or message.HasField("error"):
                return message
        raise AssertionError("the call ended before its job did")


class Put:
    """DataPlane.PutShard: finish() gives its answer."""

    def __init__(self, stub, ticket=None, timeout=60):
        self._requests = queue.SimpleQueue()
        self._call = stub.PutShard.future(iter(self._requests.get, None), timeout=timeout)
        if ticket is not None:
            self.ticket(ticket)

    def ticket(self, ticket):
        self._requests.put(data_plane_pb2.PutShardRequest(ticket=ticket))

    def chunk(self, chunk):
        self._requests.put(data_plane_pb2.PutShardRequest(chunks=[chunk]))

    def finish(self, half_close=True):
        """The ShardStatus or the CallError; without half_close the worker must end the call."""
        try:
            if half_close:
                self._requests.put(None)
            return self._call.result()
        except grpc.RpcError as error:
            raise CallError(error) from None
        finally:
            self._requests.put(None)

    def cancel(self):
        self._call.cancel()
        self._requests.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()
