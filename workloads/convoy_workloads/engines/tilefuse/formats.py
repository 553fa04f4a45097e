"""The `quantization_config` of a model's `config.json`: which format its matrices have. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from convoy_crds.shown import shown
from convoy_workloads.engines.tilefuse import awq, packed_int
from convoy_workloads.engines.tilefuse.groups import Codes, FormatError

FIELD = "quantization_config"
CHANNEL_GROUP = 128
"""Group size for a model with one scale for each output, which all groups then get."""


@dataclass(frozen=True)
class Format:
    """A file format of quantised matrices."""

    scheme: str
    names: tuple[str, ...]
    """Ends of the names of the tensors that each matrix has."""
    optional: tuple[str, ...]
    """Ends of the names of tensors that a matrix may have."""
    tensors: Callable[[Codes], dict[str, NDArray[Any]]]
    codes: Callable[[str, Mapping[str, NDArray[Any]], int], Codes]
    config: Callable[[int], dict[str, object]]


FORMATS: Mapping[str, Format] = {
    one.scheme: one
    for one in (
        Format("w4a16", awq.NAMES, (), awq.tensors, awq.codes, awq.config),
        Format(
            "w8a16",
            packed_int.NAMES,
            (packed_int.ZEROS,),
            packed_int.tensors,
            packed_int.codes,
            packed_int.config,
        ),
    )
}
"""The format that is read and written, by scheme."""


def read(config: object) -> tuple[Format, int]:
    """Return the format and the group size of a `quantization_config`. Raises FormatError, with the field, if
    this engine does not read that format.
    """
    if not isinstance(config, dict):
        raise FormatError(f"{FIELD}: must be an object")
    method = config.get("quant_method")
    if method == "awq":
        return FORMATS["w4a16"], _awq(config)
    if method == "compressed-tensors":
        return _packed_int(config)
    raise FormatError(
        f"{FIELD}.quant_method: {shown(method)} is not supported. Use awq for 4 bits, compressed-tensors for "
        "8 bits, or the model without quantisation"
    )


def _awq(config: Mapping[str, Any]) -> int:
    version = str(config.get("version", "gemm")).lower()
    if version != "gemm":
        raise FormatError(
            f"{FIELD}.version: {shown(version)} has another order of the weights. Only 'gemm' is supported: "
            "export the model again with version='GEMM'"
        )
    _require(config.get("bits", 4), 4, "bits", "use the format compressed-tensors for 8 bits")
    _require(config.get("zero_point", True), True, "zero_point", "export the model with zero points")
    _require(bool(config.get("desc_act", False)), False, "desc_act", "export the model without desc_act")
    return _group_size(config.get("group_size", 128), "group_size")


def _packed_int(config: Mapping[str, Any]) -> tuple[Format, int]:
    _require(config.get("format"), "pack-quantized", "format", "compress the model with the scheme W8A16")
    transforms = config.get("transform_config") or None
    _require(transforms, None, "transform_config", "compress the model without rotations of its activations")
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise FormatError(f"{FIELD}.config_groups: must be one group, because all matrices have one scheme")
    name, group = next(iter(groups.items()))
    weights = group.get("weights") if isinstance(group, dict) else None
    where = f"config_groups.{name}.weights"
    if not isinstance(weights, dict):
        raise FormatError(f"{FIELD}.{where}: must be an object")
    if group.get("input_activations") is not None:
        raise FormatError(
            f"{FIELD}.config_groups.{name}.input_activations: must be absent: use the scheme W8A16"
        )
    _require(weights.get("num_bits"), 8, f"{where}.num_bits", "use the format awq for 4 bits")
    _require(weights.get("type", "int"), "int", f"{where}.type", "compress the model with the scheme W8A16")
    _require(weights.get("actorder"), None, f"{where}.actorder", "compress the model without actorder")
    symmetric = weights.get("symmetric", True)
    if not isinstance(symmetric, bool):
        raise FormatError(f"{FIELD}.{where}.symmetric: {shown(symmetric)} must be a boolean")
    form = FORMATS["w8a16"]
    if not symmetric:
        form = replace(form, codes=packed_int.codes_with_zeros)
    if weights.get("strategy") == "channel":
        return form, CHANNEL_GROUP
    _require(weights.get("strategy"), "group", f"{where}.strategy", "compress the model with groups of 128")
    return form, _group_size(weights.get("group_size"), f"{where}.group_size")


def _require(found: object, expected: object, field: str, hint: str) -> None:
    if found != expected or type(found) is not type(expected):
        raise FormatError(f"{FIELD}.{field}: {shown(found)} is not supported, only {shown(expected)}: {hint}")


def _group_size(found: object, field: str) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 32 or found % 32 or found > 65536:
        raise FormatError(
            f"{FIELD}.{field}: {shown(found)} is not supported. It must be a multiple of 32: quantise the "
            "model again, with groups of 128"
        )
    return found
