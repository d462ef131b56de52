"""What is said of a window beyond its times."""

import pytest

from kernel_recorder.contents import compilation_sentence, step_sentence, varying_sentence


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"by": "optimizer", "name": "Adam", "repeated": [["optimizer", "Adam", 9], ["module", "GPT", 2]]}, []),
        (
            {"by": "optimizer", "number": 2, "repeated": [["optimizer", name, 9] for name in ("Adam", "SGD", "Adam")]},
            ["the program has several optimizers (Adam, SGD, Adam 2); a step ends with a step of Adam 2"],
        ),
        (
            {"by": "optimizer", "number": 0, "repeated": [["optimizer", "SGD", 9]] * 20},
            ["the program has several optimizers (SGD, SGD 2, SGD 3, SGD 4, ...); a step ends with a step of SGD"],
        ),
        (
            {"by": "weights", "name": "Adam"},
            [
                "a step begins with the first call of a model after Adam has changed the weights, since its own steps"
                " are compiled, or inside the backward pass"
            ],
        ),
        ({"by": "module", "name": "GPT\x1b"}, ["a step is a call of GPT\\x1b, and what follows it until the next"]),
        ({"by": "graph", "name": "a CUDA graph"}, ["a step ends with each replay of a CUDA graph"]),
        ({}, []),
    ],
)
def test_what_a_step_is_is_said_where_it_is_not_obvious(window, said):
    assert list(step_sentence(window)) == said


def test_what_differs_between_whole_steps_is_said_by_step():
    passes = [{"GPT forward 4x8": 2}, {"GPT forward 4x8": 2, "GPT inference 4x8": 3}, {"GPT forward 4x8": 1}]
    assert list(varying_sentence({"passes": passes[:1] * 3, "done": 3})) == []
    (sentence,) = varying_sentence({"passes": passes, "done": 2, "first": 6})  # the third was cut off
    assert sentence.startswith("steps 6 to 7 call models differently")
    assert sentence.endswith("calls in each of them: GPT inference 4x8: 0, 3")
    many = [{f"GPT forward {length}": 1} for length in range(5)]
    (sentence,) = varying_sentence({"passes": many, "done": 5})
    assert sentence.endswith("GPT forward 2: 0, 0, 1, 0, 0; and 2 more")


def test_what_was_compiled_is_said_with_the_reason():
    (sentence,) = compilation_sentence({"compilations": 2, "compilation_reasons": ["size mismatch"]})
    assert sentence.startswith("torch.compile compiled 2 graphs inside the window")
    assert sentence.endswith("since size mismatch")
