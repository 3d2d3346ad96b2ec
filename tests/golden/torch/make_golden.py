"""Writes state.bin and older.bin: one state dict in both formats of torch.save. Needs PyTorch.

Element i of every tensor, in row-major order, is i / 4 - 2, which all floating-point types hold
exactly. "transposed" is a view whose strides are not those of its shape, "part" a view of the
storage of "float32" that begins at its fourth element."""

import pathlib
import warnings

import torch

warnings.filterwarnings("ignore")
here = pathlib.Path(__file__).parent


def ramp(*shape, dtype=torch.float32):
    n = 1
    for s in shape:
        n *= s
    return (torch.arange(n, dtype=torch.float64) / 4 - 2).reshape(shape).to(dtype)


whole = ramp(3, 4)
module = torch.nn.Module()
module.register_parameter("parameter", torch.nn.Parameter(ramp(5)))
state = module.state_dict(keep_vars=True)  # an OrderedDict with the attribute _metadata
state["float32"] = whole
state["float16"] = ramp(2, 3, dtype=torch.float16)
state["bfloat16"] = ramp(2, 3, dtype=torch.bfloat16)
state["float64"] = ramp(2, 3, dtype=torch.float64)
state["int64"] = torch.arange(4)
state["transposed"] = ramp(4, 3).t().contiguous().t()
state["part"] = whole.view(-1)[4:8]
state["scalar"] = ramp(1).reshape(())
torch.save(state, here / "state.bin")
torch.save(state, here / "older.bin", _use_new_zipfile_serialization=False)
