"""cuda_library: .cu sources, compiled by nvcc, as a cc_library."""

load("@cuda//:defs.bzl", "CUDA_HOME", "HAVE_CUDA", "NVCC_VERSION")

# Machine code for Ampere and for Hopper with its own instructions; PTX for what comes later.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=[sm_80,compute_80]",
    "-gencode=arch=compute_90a,code=sm_90a",
]

_NVCC_FLAGS = [
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "--expt-relaxed-constexpr",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-g1",
    "-Xptxas=-v",
]

# What ptxas says of registers and spills is kept beside the object; nothing is shown of a success.
_COMPILE = """
report=$1; shift
"$@" 2> "$report" || { cat "$report" >&2; exit 1; }
"""

def _compile(ctx, src, context):
    stem = src.basename[:-len(".cu")]
    object = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, stem))
    report = ctx.actions.declare_file("%s/%s.ptxas.txt" % (ctx.label.name, stem))
    arguments = ctx.actions.args()
    arguments.add(report)
    arguments.add(CUDA_HOME + "/bin/nvcc")
    arguments.add_all(_NVCC_FLAGS + _ARCHITECTURES + ctx.attr.nvcc_flags)
    arguments.add_all(["-I.", "-I" + ctx.bin_dir.path])
    arguments.add_all(context.includes, format_each = "-I%s")
    arguments.add_all(context.system_includes, format_each = "-I%s")
    arguments.add_all(context.defines, format_each = "-D%s")
    arguments.add_all(["-c", src, "-o", object])
    ctx.actions.run_shell(
        command = _COMPILE,
        arguments = [arguments],
        inputs = depset(ctx.files.srcs + ctx.files.hdrs, transitive = [context.headers]),
        outputs = [object, report],
        mnemonic = "Nvcc",
        progress_message = "Compiling %s with nvcc" % src.short_path,
        use_default_shell_env = True,
        # A new toolkit compiles anew.
        execution_requirements = {"nvcc-version": NVCC_VERSION},
    )
    return object, report

def _cuda_objects_impl(ctx):
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    made = [_compile(ctx, src, merged.compilation_context) for src in ctx.files.srcs]
    return [
        DefaultInfo(files = depset([object for object, _ in made])),
        OutputGroupInfo(reports = depset([report for _, report in made])),
    ]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "nvcc_flags": attr.string_list(),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def _built_once_impl(ctx):
    return [
        DefaultInfo(files = ctx.attr.objects[DefaultInfo].files),
        OutputGroupInfo(reports = ctx.attr.objects[OutputGroupInfo].reports),
    ]

# The same objects whatever the variant (docs/explanation/testing.md): no sanitizer reaches into nvcc's output, and compiling it takes minutes.
_built_once = rule(
    implementation = _built_once_impl,
    attrs = {"objects": attr.label(cfg = "host")},
)

def cuda_library(name, srcs, hdrs = [], deps = [], nvcc_flags = [], tags = [], visibility = None):
    """A cc_library of .cu sources; nothing at all where there is no CUDA toolkit.

    So who depends on it says deps = if_cuda(["..."]) (@cuda//:defs.bzl). Warnings are errors, ptxas's too.

    Args:
      name: the cc_library. NAME_objects are its object files, and NAME_reports what ptxas said of each source (SOURCE.ptxas.txt:
        registers, spills), for tests that read them.
      srcs: .cu files. No device code is linked across them.
      hdrs: .h and .cuh files.
      deps: cc_library targets whose headers are used; cudart is always among them.
      nvcc_flags: more flags for nvcc.
      tags: as everywhere.
      visibility: as everywhere.
    """
    if not HAVE_CUDA:
        return
    _cuda_objects(
        name = name + "_nvcc",
        srcs = srcs,
        hdrs = hdrs,
        nvcc_flags = nvcc_flags,
        tags = tags + ["manual"],
        deps = deps,
        visibility = ["//visibility:private"],
    )
    _built_once(
        name = name + "_objects",
        objects = ":" + name + "_nvcc",
        tags = tags,
        visibility = visibility,
    )
    native.filegroup(
        name = name + "_reports",
        srcs = [":" + name + "_objects"],
        output_group = "reports",
        tags = tags,
        visibility = visibility,
    )
    native.cc_library(
        name = name,
        srcs = [":" + name + "_objects"],
        hdrs = hdrs,
        tags = tags,
        visibility = visibility,
        deps = deps + ["@cuda//:cudart"],
    )
