"""One gRPC call in bare HTTP/2 frames, for what no gRPC library would send. Small messages only (64 KiB in all)."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STREAM = 1


def grpc_message(message):
    data = message.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def _literal(name, value):
    """A header field without indexing or compression."""
    return b"\0" + b"".join(bytes([len(text)]) + text for text in (name, value))


class Http2Call:
    """Stream 1 of a connection of its own. `ended` says how it ended: "trailers", "reset" or "goaway"."""

    def __init__(self, address, method, timeout=30):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._in = b""
        self._messages = b""
        self.ended = ""
        self.error = 0
        self._socket.sendall(PREFACE)
        window = struct.pack(">HI", 4, 2**31 - 1)
        self.frame(SETTINGS, 0, window, stream=0)
        self.frame(WINDOW_UPDATE, 0, struct.pack(">I", 2**30), stream=0)
        fields = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", method.encode()),
            (b":authority", address.encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
        self.frame(HEADERS, END_HEADERS, b"".join(_literal(*field) for field in fields))

    def frame(self, kind, flags, payload, stream=STREAM):
        head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
        self._socket.sendall(head + payload)

    def send(self, message, half_close=False):
        self.frame(DATA, END_STREAM if half_close else 0, grpc_message(message))

    def _exactly(self, count):
        while len(self._in) < count:
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionError("closed")
            self._in += more
        out, self._in = self._in[:count], self._in[count:]
        return out

    def _take_frame(self):
        head = self._exactly(9)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        payload = self._exactly(length)
        if kind == DATA:
            self._messages += payload
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self.frame(kind, ACK, payload if kind == PING else b"", stream=0)
        elif kind == RST_STREAM:
            self.ended, self.error = "reset", int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.ended, self.error = "goaway", int.from_bytes(payload[4:8], "big")
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended = "trailers"

    def read(self, kind):
        """The next message of this type; None at the end."""
        while True:
            if len(self._messages) >= 5:
                length = int.from_bytes(self._messages[1:5], "big")
                if len(self._messages) >= 5 + length:
                    data = self._messages[5 : 5 + length]
                    self._messages = self._messages[5 + length :]
                    return kind.FromString(data)
            if self.ended:
                return None
            self._take_frame()

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
