"""Types of values that TensorRT-LLM checks with validators of its own.

Their messages begin as pydantic's do, "Input should be …": `validate` makes the fix of the rest.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

# `LoadFormat` in the order of its numbers.
LOAD_FORMATS = ("auto", "dummy", "vision_only", "gms")
KV_DTYPES = ("auto", "fp8", "fp8_ds_mla", "nvfp4")
# Names of torch's types; the engine looks the value up in torch.
TORCH_DTYPES = (
    *("bfloat16", "bool", "double", "float", "float16", "float32", "float64", "half"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn_x2", "int", "int8", "int16", "int32", "int64", "long", "short", "uint8"),
    *("uint16", "uint32", "uint64", "cdouble", "cfloat", "chalf", "complex32", "complex64"),
    "complex128",
)


def rejected(expected: str) -> PydanticCustomError:
    return PydanticCustomError("rejected", "Input should be {expected}", {"expected": expected})


def contradiction(key: str, message: str, fix: str) -> PydanticCustomError:
    """Two keys of one section that exclude each other; ``key`` is the one to change."""
    return PydanticCustomError(
        "contradiction", "{reason}", {"reason": message, "key": key, "fix": fix}
    )


def _not_one_of(names: tuple[str, ...]) -> PydanticCustomError:
    # As pydantic's own error of a Literal.
    quoted = [f"'{name}'" for name in names]
    expected = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return PydanticCustomError(
        "literal_error", "Input should be {expected}", {"expected": expected}
    )


def _not_null(value: object) -> object:
    if value is None:
        raise rejected("a section")
    return value


def _load_format(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value in range(len(LOAD_FORMATS)):
        return str(value)
    if isinstance(value, str) and value.lower() in LOAD_FORMATS:
        return value
    raise _not_one_of(LOAD_FORMATS)


def _kv_dtype(value: object) -> object:
    if isinstance(value, str) and value.lower() in (*KV_DTYPES, *TORCH_DTYPES):
        return value
    raise _not_one_of(KV_DTYPES)


def _text_of(value: object) -> object:
    return str(value) if isinstance(value, (bool, int, float)) else value


def _not_zero(value: int) -> int:
    if value == 0:
        raise rejected("a number other than 0")
    return value


def _ratios(value: list[float]) -> list[float]:
    if any(share <= 0 for share in value) or not math.isclose(sum(value), 1.0, abs_tol=1e-6):
        raise rejected("a list of positive numbers with the sum 1")
    return value


def _tag(value: str) -> str:
    if not value.strip():
        raise rejected("a string that is not blank")
    return value


NotNull = BeforeValidator(_not_null)
LoadFormat = Annotated[str, BeforeValidator(_load_format)]
KvDtype = Annotated[str, BeforeValidator(_kv_dtype)]
# The engine converts the value of an environment variable.
EnvValue = Annotated[str, BeforeValidator(_text_of)]
NotZero = Annotated[int, AfterValidator(_not_zero)]
# A negative number marks a recurrent layer.
Windows = Annotated[list[NotZero], Field(min_length=1)]
PoolRatio = Annotated[list[float], Field(min_length=1), AfterValidator(_ratios)]
Tag = Annotated[str, AfterValidator(_tag)]
Text = Annotated[str, Field(min_length=1)]
