"""The layers of a module that have LoRA adapters: made here, or by the package peft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

Adapter = tuple[nn.Linear, nn.Linear]
"""A and B of a layer."""

_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of the values of peft's `init_lora_weights` that change the weights of the base model."""


class LoRALinear(nn.Module):
    """A frozen linear layer with an adapter: base(x) + scale * B(A(x)). The adapter computes in its own type
    of numbers.
    """

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        self.scale = scale
        self.to(base.weight.device)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer with its adapter."""
        out: Tensor = self.base(x)
        low = self.lora_B(self.lora_A(x.to(self.lora_A.weight.dtype)))
        out = out + (self.scale * low).to(out.dtype)
        return out


def adapted_layers(
    module: nn.Module, rank: int, scale: float, targets: Sequence[str], adapter: str
) -> dict[str, Adapter]:
    """Return A and B of each layer with an adapter, by the layer's name. A module without adapters gets them.
    All parameters are frozen.

    Raises ValueError as `PrefixLoRA` does.
    """
    if hasattr(module, "_orig_mod") or isinstance(
        module, nn.parallel.DistributedDataParallel | nn.DataParallel
    ):
        raise ValueError(
            f"module: a {type(module).__name__} cannot get adapters: pass the module in it, and wrap that "
            "afterwards"
        )
    if isinstance(module, nn.Linear | LoRALinear):
        raise ValueError("module: a single layer cannot be replaced: put it into another module")
    _check_peft(module, adapter)
    trained = {name for name, one in module.named_parameters() if one.requires_grad}
    found = dict(_layers_of_peft(module, scale, adapter))
    if found:
        own = {f"{name}.lora_{side}.{adapter}.weight" for name in found for side in "AB"}
        if rest := sorted(trained - own):
            raise ValueError(
                f"module: peft also trains {', '.join(rest[:3])}, which is not sent to the server: use only "
                "linear target_modules, without modules_to_save, bias and variants of LoRA, or freeze the "
                "parameters"
            )
    else:
        found = _own_layers(module, rank, scale, targets)
    for name, (first, _) in found.items():
        if first.out_features != rank:
            raise ValueError(f"rank: {rank}, but the adapter of {name} has rank {first.out_features}")
    module.requires_grad_(False)
    return found


def _check_peft(module: nn.Module, adapter: str) -> None:
    """Raise ValueError if peft's adapters cannot be trained as prefixes."""
    config: Any = getattr(module, "peft_config", None)
    made = config.get(adapter) if isinstance(config, Mapping) else None
    start = str(getattr(made, "init_lora_weights", "")).lower()
    if start.startswith(_CHANGE_THE_BASE):
        raise ValueError(
            f"module: init_lora_weights={start!r} changes the base weights, so the clients' would differ"
        )
    for name, layer in module.named_modules():
        known = getattr(layer, "lora_A", None)
        if not isinstance(known, nn.ModuleDict):
            continue
        if known and adapter not in known:
            raise ValueError(f"adapter: {name} has no {adapter!r}, but {', '.join(sorted(known))}")
        active = list(getattr(layer, "active_adapters", [adapter]))
        if (
            active != [adapter]
            or getattr(layer, "disable_adapters", False)
            or getattr(layer, "merged", False)
        ):
            raise ValueError(
                f"adapter: {adapter!r} must be the only active one of {name}, enabled and not merged; active "
                f"are {active}"
            )


def _layers_of_peft(module: nn.Module, scale: float, adapter: str) -> Iterator[tuple[str, Adapter]]:
    for name, layer in module.named_modules():
        first, second = getattr(layer, "lora_A", None), getattr(layer, "lora_B", None)
        if not (isinstance(first, nn.ModuleDict) and isinstance(second, nn.ModuleDict) and adapter in first):
            continue
        a, b = first[adapter], second[adapter]
        if isinstance(a, nn.Linear) and isinstance(b, nn.Linear):
            layer.scaling[adapter] = scale
            yield name, (a, b)


def _own_layers(module: nn.Module, rank: int, scale: float, targets: Sequence[str]) -> dict[str, Adapter]:
    """Return the adapters that the module has already, or replace its linear layers by ones with adapters. A
    layer that the module has in several places gets one adapter.
    """
    ready = {name: one for name, one in module.named_modules() if isinstance(one, LoRALinear)}
    if ready:
        for one in ready.values():
            one.scale = scale
        return {name: (one.lora_A, one.lora_B) for name, one in ready.items()}
    found: dict[str, Adapter] = {}
    made: dict[int, LoRALinear] = {}
    matched: set[str] = set()
    for name, layer in list(module.named_modules(remove_duplicate=False)):
        if not isinstance(layer, nn.Linear):
            continue
        ends = [one for one in targets if name == one or name.endswith(f".{one}")]
        # Attention of PyTorch reads the weights of this layer and does not call it.
        unusable = isinstance(layer, NonDynamicallyQuantizableLinear)
        if (targets and not ends) or (unusable and not targets):
            continue
        if unusable:
            raise ValueError(f"targets: {name} is of a MultiheadAttention, which does not call it")
        matched |= set(ends)
        parent, _, last = name.rpartition(".")
        if id(layer) not in made:
            made[id(layer)] = LoRALinear(layer, rank, scale)
            found[name] = made[id(layer)].lora_A, made[id(layer)].lora_B
        setattr(module.get_submodule(parent), last, made[id(layer)])
    if missing := [one for one in targets if one not in matched]:
        raise ValueError(f"targets: no linear layer of the module ends in {', '.join(missing)}")
    if not found:
        raise ValueError("module: it has no linear layer that can get an adapter")
    return found
