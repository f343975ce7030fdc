"""vLLM's own kernels, from files of its wheel, without installing it.

    python3 -m pip download --no-deps --only-binary=:all: vllm==0.33.0
    unzip vllm-0.33.0-*.whl 'vllm/model_executor/determinism/*' vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so -d FOLDER
    xz -9 FOLDER/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so          # if transfers are limited: 173 MB become 14

`load(FOLDER)` gives the batch-invariant Triton kernels as a module: `linear_batch_invariant`, `rms_norm_batch_invariant` and more.
Small stand-ins here replace what these files import from the rest of vLLM (its platform, its Triton, a few numbers). `flash(FOLDER)`
gives FlashAttention 3 over pages, or None. Written for 0.33.0; earlier wheels have the Triton kernels in
`vllm/model_executor/layers/batch_invariant.py`, with other helpers.
"""
import importlib.util
import lzma
import pathlib
import sys
import tempfile
import types

import torch

PLACES = ["vllm/model_executor/determinism/batch_invariant.py", "vllm/model_executor/layers/batch_invariant.py"]
FLASH = "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"


def flash(folder):
    """Attention of packed rows over pages of keys and values, as vLLM calls it; None if the wheel's file is not there."""
    path = pathlib.Path(folder) / FLASH
    packed = path.with_name(path.name + ".xz")
    if not path.is_file() and packed.is_file():
        path = pathlib.Path(tempfile.mkdtemp()) / path.name
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    if not path.is_file():
        print(f"{folder} has no {FLASH}: torch's own attention is taken", file=sys.stderr)
        return None
    torch.ops.load_library(str(path))

    def attend(q, keys, values, starts, lengths, table, rows, seen, scale, splits):
        # In the order of vLLM's `flash_attn_interface.py`: its operation takes no names.
        call = [q, keys, values, None, None, None, None, starts, None, None, None, lengths, rows, seen, table]
        call += [None] * 8 + [scale, True, -1, -1, 0.0, True, None, splits, None, 0, None, 1, 0, None]
        return torch.ops._vllm_fa3_C.fwd(*call)[0]
    return attend


class Platform:
    """Stands in for vLLM's platform: the methods that its kernels call."""

    def __init__(self):
        self.cuda = torch.cuda.is_available()
        self.dispatch_key = "CUDA" if self.cuda else "CPU"

    def is_cuda(self):
        return self.cuda

    def is_cuda_alike(self):
        return self.cuda

    def is_rocm(self):
        return False

    def is_xpu(self):
        return False

    def get_device_capability(self):
        major, minor = torch.cuda.get_device_capability() if self.cuda else (0, 0)
        return types.SimpleNamespace(major=major, minor=minor)

    def is_device_capability_family(self, family):
        return self.get_device_capability().major == family // 10


def shared_bytes():
    if not torch.cuda.is_available():
        return 0
    return torch.cuda.get_device_properties(0).shared_memory_per_block_optin


def units(index=None):
    """The number of multiprocessors; 4 without a GPU."""
    return torch.cuda.get_device_properties(index or 0).multi_processor_count if torch.cuda.is_available() else 4


def module(name, **members):
    made = types.ModuleType(name)
    made.__path__ = []
    vars(made).update(members)
    sys.modules[name] = made


def load(folder):
    import triton
    import triton.language as tl
    found = [pathlib.Path(folder) / place for place in PLACES]
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        sys.exit(f"none of {', '.join(PLACES)} is in {folder}: unpack the wheel's files there")
    platform = Platform()
    module("vllm")
    module("vllm.envs", VLLM_BATCH_INVARIANT=True)
    module("vllm.platforms", current_platform=platform)
    module("vllm.platforms.interface", DeviceCapability=types.SimpleNamespace)
    module("vllm.triton_utils", tl=tl, triton=triton)
    module("vllm.utils")
    module("vllm.utils.mem_utils", get_max_shared_memory_bytes=shared_bytes)
    module("vllm.utils.nccl", pin_nccl_env=lambda settings: None)
    module("vllm.utils.platform_utils", num_compute_units=units)
    module("vllm.utils.torch_utils", is_torch_equal_or_newer=lambda version: True)
    module("vllm.model_executor")
    module("vllm.model_executor." + path.parent.name)
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]
    # vLLM's own files, unchanged.
    for file in [path.with_name("batch_invariant_configs.py"), path]:
        if file.is_file():
            name = f"vllm.model_executor.{path.parent.name}.{file.stem}"
            spec = importlib.util.spec_from_file_location(name, file)
            made = importlib.util.module_from_spec(spec)
            sys.modules[name] = made
            spec.loader.exec_module(made)
    return made
