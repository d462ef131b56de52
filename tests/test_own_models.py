"""Other people's models by the declarations written for them, from the configuration to the tables of an answer."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from cs336_model import ranges
from cs336_model.program import benchmark
from cs336_model.program.targets import replace
from kernel_tables.trace import Trace
from profile_grid.questions.c_other_kernels.table import forward_parts
from profile_grid.questions.e_attention.table import MATMULS, SOFTMAX, attention, attention_backward
from profile_grid.stages.capture.step_tables import kernel_table, measured_activities, measured_ranges, range_table
from profile_grid.study.dimensions import LEADING
from profile_grid.study.runs import checked_config, grid_runs, specification_json
from profile_grid.study.schema import ConfigError
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.per_pass import Merged

ROOT = Path(__file__).parents[1]
STAND_INS = Path(__file__).with_name("stand_ins")
WRITTEN = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
COURSE, _, GPT, LLAMA = re.findall(r"```yaml\n(.*?)```", WRITTEN, re.DOTALL)
TINY = {"d_model": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2}


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    """The stand-ins can be imported; what a test changed in them and the ranges it chose are gone at its end."""
    for folder in (STAND_INS, STAND_INS / "nanogpt"):
        monkeypatch.syspath_prepend(folder)
    yield
    ranges.emit_ranges("none")
    for name in ("model", "cs336_basics", "cs336_basics.model", "cs336_model.model.course_attention"):
        sys.modules.pop(name, None)


def program(declared: str | dict, mode: str = "train_step", **changes) -> dict:
    """What the capture of a tiny run is told by this part of a configuration."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config |= {"grids": {"g": [{"models": ["tiny"], "context_lengths": [8], "modes": [mode]}]}, "grid": "g"}
    config |= {"vocab_size": 50, "batch_size": 2, "device": "cpu", "models": {"tiny": TINY}}
    config |= {"capture": {"backend": "torch", "warmup_steps": 1, "measured_steps": 2}}
    config |= yaml.safe_load(declared) if isinstance(declared, str) else {"program": declared}
    (run,) = grid_runs(checked_config(config | changes)).values()
    return json.loads(specification_json(config | changes, run, CAPTURE))["program"]


def measured(told: dict, folder: Path, *options: str) -> dict:
    """The result of a run in this process."""
    path = folder / "result.json"
    benchmark.main(["--spec", json.dumps(told), "--output", str(path), *options])
    return json.loads(path.read_text())


def captured(told: dict, folder: Path) -> tuple[dict, Trace]:
    """The result of a run under PyTorch's profiler, and its capture."""
    result = measured(told, folder, "--profiler", "torch", "--capture", str(folder / "capture.sqlite"))
    return result, Trace(folder / "capture.sqlite")


def merged(told: dict, trace: Trace, **sizes) -> Merged:
    """The merged tables of this one run, as far as the answers below need them."""
    leading = {"run": told["run"], **told["dimensions"]}
    activities = measured_activities(trace)
    kernels = kernel_table(activities).assign(**leading)
    instances = range_table(activities, measured_ranges(trace)).assign(**leading)
    steps = pd.DataFrame({"phase": "step", "step": [0, 1]}).assign(**leading)
    runs = pd.DataFrame([leading | {**TINY, **sizes}])
    assert set(LEADING) <= set(kernels)
    return Merged({"kernels": kernels, "ranges": instances, "phases": steps, "runs": runs})


def test_the_courses_model_works_by_one_word_and_its_attention_has_all_parts(tmp_path):
    told = program(COURSE)
    assert told["constructor"] == "cs336_basics.model:BasicsTransformerLM"
    result, trace = captured(told, tmp_path)
    with trace:
        paths = set(trace.range_tree()["range"])
        tables = merged(told, trace)
    around = "measure > step > forward > BasicsTransformerLM > layers > layers.attn"
    assert f"{around} > scaled dot product attention > computing softmax" in paths
    assert f"{around} > layers.attn.q_proj" in paths
    for table in (attention(tables), attention_backward(tables)):
        rows = table.set_index("part")
        assert (rows.loc[[SOFTMAX, *MATMULS], "gpu_time_ms"] > 0).all()
        assert rows.loc[SOFTMAX, "runtime_to_matmuls"] > 0 and rows.loc[SOFTMAX, "flops_to_matmuls"] > 0
        assert rows.loc[SOFTMAX, "instances_per_pass"] == 2
    assert {"lm_head", "layers.ffn.0", "layers.ln1"} & set(forward_parts(tables)["part"])
    assert len(result["losses"]) == 3


def test_the_attention_that_is_put_in_its_place_computes_what_the_courses_does(monkeypatch):
    course = import_module("cs336_basics.model")
    ours = import_module("cs336_model.model.course_attention").scaled_dot_product_attention
    generator = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(2, 3, 5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    for mask in (None, torch.ones(5, 5, dtype=torch.bool).tril()):
        assert torch.allclose(ours(Q, K, V, mask), course.scaled_dot_product_attention(Q, K, V, mask), rtol=1e-12)
    monkeypatch.setattr(course, "softmax", lambda x, dim: x * 0)
    assert (ours(Q, K, V) == 0).all()  # the softmax is the one that is installed


def test_a_model_that_takes_a_config_object_is_measured_with_the_loss_that_it_computes(tmp_path):
    told = program(GPT)
    result, trace = captured(told, tmp_path)
    with trace:
        tree = trace.range_tree().set_index("range")
    width, layers, steps = 16, 2, 2
    of_a_layer = (width * 3 * width + 3 * width) + (width * width + width) + 2 * 4 * width * width + 5 * width
    assert result["parameters"] == 50 * width + 8 * width + layers * (of_a_layer + 4 * width) + 2 * width
    forward = "measure > step > forward > GPT > transformer.h > transformer.h.attn"
    assert tree.loc[forward, "instances"] == steps * layers
    assert tree.loc[f"{forward.replace('forward', 'backward')} > transformer.h.attn.c_attn", "kernels"] > 0
    assert tree.loc["measure > step > loss", "kernels"] == steps  # nothing but detach: it is computed in forward
    assert all(3.5 < loss < 4.5 for loss in result["losses"])  # about ln 50


def test_a_forward_pass_alone_asks_for_no_loss_and_counts_the_flops_that_it_takes(tmp_path):
    result = measured(program(GPT, mode="forward"), tmp_path)
    training = measured(program(GPT, mode="forward_backward"), tmp_path)
    of_head = 2 * 16 * 50 * 2  # of one position of both sequences
    assert training["flops"]["forward"] - result["flops"]["forward"] == 7 * of_head
    assert len(result["losses"]) == 1


def test_a_llama_is_measured_from_a_configuration(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    result, trace = captured(program(LLAMA), tmp_path)
    with trace:
        tree = trace.range_tree().set_index("range")
    layers = "measure > step > forward > LlamaForCausalLM > model > model.layers"
    assert tree.loc[layers, "instances"] == 2 * 2
    assert tree.loc[f"{layers.replace('forward', 'backward')} > model.layers.mlp > model.layers.mlp.up_proj", "kernels"]
    assert len(result["losses"]) == 3


def test_no_module_has_a_range_where_a_run_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr("range_marks.module_parts.ModuleParts.begin", lambda self: pytest.fail("it has"))
    assert measured(program(GPT), tmp_path)["status"] == "complete"


KEYWORDS = """
import torch
from types import SimpleNamespace
from torch import nn

class LM(nn.Module):
    def __init__(self, *, vocab=50, width=8, returned="logits", step=False):
        super().__init__()
        self.embedding, self.head, self.returned = nn.Embedding(vocab, width), nn.Linear(width, vocab), returned
        if step:
            self.step = nn.Identity()

    def forward(self, tokens):
        logits = getattr(self, "step", nn.Identity())(self.head(self.embedding(tokens)))
        return {
            "logits": logits, "tuple": (logits.sum(), logits), "mapping": {"logits": logits},
            "object": SimpleNamespace(logits=logits), "hidden": SimpleNamespace(hidden=logits),
            "nothing": None, "one position": logits[:, -1:],
        }[self.returned]

def raising(**sizes):
    raise KeyError("no such size")

def no_module(**sizes):
    return LM
"""


@pytest.fixture
def keywords(tmp_path, monkeypatch):
    """The module `their_lm`, whose models take keywords of their own and return what they are told."""
    (tmp_path / "their_lm.py").write_text(KEYWORDS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("their_lm", None)


@pytest.mark.parametrize("returned", ["logits", "tuple", "mapping", "object"])
def test_logits_are_found_in_what_a_model_returns(tmp_path, keywords, returned):
    declared = {"constructor": "their_lm:LM", "arguments": {"vocab": "$vocab_size", "returned": returned}}
    assert len(measured(program(declared), tmp_path)["losses"]) == 3


@pytest.mark.parametrize(
    ("constructor", "arguments", "message"),
    [
        ("LM", {"returned": "nothing"}, "the model returned None; expected: logits"),
        ("LM", {"returned": "hidden"}, "the model returned a SimpleNamespace; expected: logits"),
        ("LM", {"returned": "one position"}, "logits of shape (2, 1, 50) for tokens of shape (2, 8) and no loss"),
        ("LM", {"vocab": 60}, "logits of shape (2, 8, 60), and vocab_size is 50: give the constructor vocab_size"),
        ("LM", {"vocab": 40}, "without a parameter for each of 50 tokens (the largest dimension is 40)"),
        ("LM", {"d_model": 8}, "called with d_model, raised TypeError: LM.__init__() got an"),
        ("raising", {}, "raised KeyError: 'no such size' (their_lm.py, line 22)"),
        ("no_module", {}, "their_lm:no_module returned the class LM, not a torch.nn.Module"),
        ("Absent", {}, "'their_lm:Absent': their_lm has no attribute 'Absent'; check the spelling"),
    ],
)
def test_what_a_model_returns_or_refuses_is_said_in_one_line(tmp_path, keywords, constructor, arguments, message):
    told = program({"constructor": f"their_lm:{constructor}", "arguments": arguments})
    with pytest.raises(SystemExit) as ended:
        measured(told, tmp_path)
    assert message in ended.value.code and ended.value.code.startswith("tiny_ctx8_train_step_bs2: ")
    assert "\n" not in ended.value.code
    assert not (tmp_path / "result.json").exists()


def test_a_module_that_is_called_as_a_phase_or_a_step_is_told_from_it(tmp_path, keywords):
    arguments = {"vocab": "$vocab_size", "step": True}
    told = program({"constructor": "their_lm:LM", "arguments": arguments, "annotate": "modules"})
    _, trace = captured(told, tmp_path)
    with trace:
        paths = trace.range_tree().set_index("range")["instances"]
    assert paths["measure > step"] == 2
    assert paths["measure > step > forward > LM > module step"] == 2


def test_a_function_of_other_parameters_is_not_put_in_the_place_of_another(tmp_path):
    told = program(COURSE)
    told["replace"] = {"cs336_basics.model:scaled_dot_product_attention": "cs336_basics.model:softmax"}
    with pytest.raises(SystemExit, match=r"takes \(x, dim\) and cannot replace .*, which takes \(Q, K, V, mask\)"):
        measured(told, tmp_path)


def test_a_builtin_is_replaced_although_the_names_of_its_parameters_are_unknown(monkeypatch):
    monkeypatch.setattr(torch, "tanh", torch.tanh)
    replace("torch:tanh", "torch.nn.functional:silu")
    assert torch.tanh is torch.nn.functional.silu


@pytest.mark.parametrize(
    ("declared", "models", "message"),
    [
        ("program: cs337_basics", {}, "program: 'cs337_basics' is not one of ['cs336_basics']"),
        ({"constructor": "m:LM", "arguments": {"a b": 1}}, {}, "'a b' is not allowed here"),
        ({"constructor": "m:LM", "arguments": {"n": "$d_modle"}}, {}, "$d_modle is not a size of models.tiny"),
        ({"constructor": "m:LM", "annotate": "functions"}, {}, "'functions' is not one of ['modules']"),
        ({"constructor": "m:LM", "config": "os.system"}, {}, "'os.system'"),
        ({"constructor": "m:LM"}, {"tiny": {"width": 8}}, "models.tiny"),
        ({"constructor": "m:LM", "arguments": {}}, {"tiny": {"batch_size": 8}}, "every run has a batch_size already"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused_in_one_line(declared, models, message):
    with pytest.raises(ConfigError) as refused:
        program(declared, **({"models": models} if models else {}))
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_another_argument_or_size_is_another_specification():
    def declared(width: int = 8, **arguments) -> dict:
        of_model = {"constructor": "m:LM", "arguments": {"vocab": "$vocab_size", **arguments}}
        return program(of_model, models={"tiny": {"width": width}})

    assert declared() == declared()
    others = (declared(dropout=0.1), declared(width=9), declared(vocab=50))
    assert all(other != declared() for other in others)
