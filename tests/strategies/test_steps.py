"""Every step names a function that is there, and each extension that ships is found by its name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from freshline.plan.step import Step
from freshline.plan.strategy import RefreshStrategy
from freshline.values import registry

LIBRARY = Path(__file__).parents[2] / "platform"


def steps() -> list[type[Step]]:
    """The steps that ship, once the rules that define some of them are loaded."""
    for name in registry.STRATEGIES:
        registry.find_strategy(name)
    return sorted(Step.__subclasses__(), key=lambda step: step.__name__)


@pytest.mark.parametrize("step", [step for step in steps() if step.__module__.startswith("freshline.")])
def test_a_step_names_a_function_of_an_attempt_and_the_step(step):
    module, _, function = step.computed_by.partition(":")
    file = LIBRARY.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]

    assert [argument.arg for argument in found.args.args] == ["attempt", "step"]
    assert ast.unparse(found.args.args[1].annotation or ast.Constant(None)) == step.__name__


@pytest.mark.parametrize("name", registry.STRATEGIES)
def test_a_strategy_is_called_as_the_registry_calls_it(name):
    strategy = registry.find_strategy(name)

    assert issubclass(strategy, RefreshStrategy)
    assert strategy.name == name


@pytest.mark.parametrize("name", registry.MERGES)
def test_a_merge_is_called_as_the_registry_calls_it(name):
    assert registry.find_merge(name).name == name
