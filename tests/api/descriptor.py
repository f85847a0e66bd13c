"""annulus.v1 as lines of text, one for each thing that a client may rely on.

    .venv/bin/python -m tests.api.descriptor            shows what differs from the golden file
    .venv/bin/python -m tests.api.descriptor --update   writes additions into the golden file

--update refuses to take a line out: what has been released stays.
"""

import argparse
import os
import sys
import tempfile

PROTOS = tuple(f"annulus/v1/{name}.proto" for name in ("attention", "data_plane", "jobs", "types"))
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "annulus_v1.txt")


def compile_protos(root="proto", protos=PROTOS):
    """The FileDescriptorSet of `protos`, without what they import from elsewhere."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    well_known = os.path.join(os.path.dirname(protoc.__file__), "_proto")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        out = os.path.join(folder, "set.pb")
        code = protoc.main(
            ["protoc", f"-I{root}", f"-I{well_known}", f"--descriptor_set_out={out}", *protos]
        )
        if code != 0:
            raise RuntimeError(f"protoc ended with {code}")
        with open(out, "rb") as file:
            return descriptor_pb2.FileDescriptorSet.FromString(file.read())


def describe(files):
    """Its lines, in an order that does not depend on that of the sources."""
    lines = []
    for file in files.file:
        for message in file.message_type:
            lines += _message(message, file.package, file.name)
        for enum in file.enum_type:
            lines += _enum(enum, file.package, file.name)
        for service in file.service:
            lines += _service(service, file.package, file.name)
    return sorted(lines)


def _message(message, scope, file):
    name = f"{scope}.{message.name}"
    lines = [f"message {name} in {file}"]
    for field in message.field:
        lines.append(f"message {name} field {field.number:>3} {_field(message, field)}")
    for nested in message.nested_type:
        lines += _message(nested, name, file)
    for enum in message.enum_type:
        lines += _enum(enum, name, file)
    return lines


def _field(message, field):
    kind = field.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[field.type].name
    kind = field.type_name.lstrip(".") or kind.removeprefix("TYPE_").lower()
    words = [f"{field.name}: {kind}"]
    if field.label == field.LABEL_REPEATED:
        words.append("repeated")
    if field.proto3_optional:
        words.append("optional")
    elif field.HasField("oneof_index"):
        words.append(f"in oneof {message.oneof_decl[field.oneof_index].name}")
    words.append(f"json {field.json_name}")
    return " ".join(words)


def _enum(enum, scope, file):
    name = f"{scope}.{enum.name}"
    return [f"enum {name} in {file}"] + [
        f"enum {name} value {value.number:>3} {value.name}" for value in enum.value
    ]


def _service(service, scope, file):
    name = f"{scope}.{service.name}"
    lines = [f"service {name} in {file}"]
    for method in service.method:
        request = "stream " * method.client_streaming + method.input_type.lstrip(".")
        response = "stream " * method.server_streaming + method.output_type.lstrip(".")
        lines.append(f"service {name} method {method.name}({request}) returns ({response})")
    return lines


def read_golden(path=GOLDEN):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]


def compare(golden, present):
    """(what clients rely on and is gone or different, what is new)."""
    return sorted(set(golden) - set(present)), sorted(set(present) - set(golden))


def write_golden(lines, path=GOLDEN):
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "# annulus.v1 as released: additive changes only. "
            "Written by `.venv/bin/python -m tests.api.descriptor --update`.\n"
        )
        file.writelines(line + "\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(description="compares annulus.v1 with its golden file")
    parser.add_argument("--update", action="store_true", help="take additions into the golden file")
    arguments = parser.parse_args()
    present = describe(compile_protos())
    broken, added = compare(read_golden() if os.path.exists(GOLDEN) else [], present)
    for line in broken:
        print(f"- {line}")
    for line in added:
        print(f"+ {line}")
    if broken:
        print("annulus.v1 changed in ways that break its clients: the - lines must come back")
        return 1
    if arguments.update:
        write_golden(present)
        return 0
    return 1 if added else 0


if __name__ == "__main__":
    sys.exit(main())
