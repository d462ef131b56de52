"""Names of modules from the tree that they form."""

from torch import nn

from kernel_tables.marks import module_names


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = nn.Linear(2, 2), nn.LayerNorm(2)


class Model(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def names(model):
    return [name for _, name in module_names(model)]


def test_the_layers_of_one_list_have_one_name():
    model = Model(embedding=nn.Embedding(2, 2), blocks=nn.ModuleList([Block(), Block()]))
    assert sorted(names(model)) == sorted(
        ["Model", "embedding", "blocks", *["blocks", "blocks.attention", "blocks.norm"] * 2]
    )


def test_what_is_called_itself_or_holds_different_things_names_its_members_by_class():
    head = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    mixed = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
    assert names(Model(head=head)) == ["Model", "head", "head.Linear", "head.ReLU", "head.Linear"]
    assert names(Model(mixed=mixed)) == ["Model", "mixed", "mixed.Linear", "mixed.ReLU"]


def test_a_part_of_two_models_or_twice_in_one_has_its_first_name():
    shared = nn.Linear(2, 2)
    assert names(Model(one=shared, other=shared)) == ["Model", "one"]


def test_a_compiled_model_has_the_names_of_the_model():
    model = nn.Module()
    model.add_module("_orig_mod", Model(head=nn.Linear(2, 2)))
    assert names(model) == ["Model", "Model", "head"]


def test_a_unit_of_fsdp_has_the_name_of_the_class_that_the_program_wrote():
    model, head = Model(head=nn.Sequential(Block(), nn.Linear(2, 2))), "head"
    for module in (model, model.head[0]):
        module.__class__ = type(f"FSDP{type(module).__name__}", (type("FSDPModule", (), {}), type(module)), {})
    assert names(model)[:4] == ["Model", head, f"{head}.Block", f"{head}.Linear"]
