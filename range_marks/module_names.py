"""The names of a model's modules, from the tree that they form."""

from collections.abc import Iterator

from torch import nn

# Wrappers around a module that are not part of its model: of compilers, sharding and checkpoints.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def model_name(model: nn.Module) -> str:
    """The name of its class, without what is wrapped around it."""
    return type(_unwrapped(model)).__name__


def names_in(
    model: nn.Module, depth: int | None = None, name_of_model: str | None = None
) -> Iterator[tuple[nn.Module, str | None]]:
    """The model by its class or `name_of_model`, and every module in it by the path that leads there, as in its
    parameters' names.

    Numbers are left out, so that the layers of one list have one name: `blocks.3.attention` is `blocks.attention`.
    If a list holds different modules, or is called itself, the class follows the name of its members: `head.Linear`. A
    container of equal modules whose names differ in their numbers alone, `layers.block_3`, is such a list.
    A name of more than `depth` parts is None.
    """
    whole = name_of_model or model_name(model)
    yield model, whole
    waiting, seen = [(model, "")], {id(model)}
    while waiting:
        module, path = waiting.pop()
        for key, child in module.named_children():
            if id(child) not in seen:
                seen.add(id(child))
                name = ".".join(part for part in (path, _part(module, key, child)) if part)
                yield child, (name or whole) if depth is None or name.count(".") < depth else None
                waiting.append((child, name))


def _part(module: nn.Module, key: str, child: nn.Module) -> str:
    if key in WRAPPERS:
        return ""
    if not key.isdigit() and not _is_numbered(module):
        return key
    of_one_class = len({type(child) for child in module.children()}) == 1
    return "" if isinstance(module, nn.ModuleList) and of_one_class else type(child).__name__


def _is_numbered(module: nn.Module) -> bool:
    """Whether it is a list by other means: modules that print the same, as "layer_0", "layer_1" and so on."""
    children = dict(module.named_children())
    names = {key.rstrip("0123456789") for key in children}
    if not isinstance(module, (nn.Sequential, nn.ModuleDict)) or len(children) < 2 or len(names) > 1:
        return False
    return names.isdisjoint(children) and len({repr(child) for child in children.values()}) == 1


def _unwrapped(module: nn.Module) -> nn.Module:
    children = dict(module.named_children())
    inner = next((children[key] for key in WRAPPERS if key in children), None)
    return module if inner is None else _unwrapped(inner)
