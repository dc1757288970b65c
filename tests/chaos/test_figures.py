"""Slopes of figures: a leak is distinguished from noise, and a run that goes on has the figures of before."""

from __future__ import annotations

import random

from tests.chaos.figures import Figures, slope_of


def test_a_figure_that_grows_differs_from_one_that_only_varies():
    chance = random.Random(4)
    seconds = [60.0 * number for number in range(60)]
    noise = [(at, 1e8 + chance.gauss(0, 1e6)) for at in seconds]
    leak = [(at, value + 3e3 * at) for at, value in noise]

    flat, rising = slope_of(noise), slope_of(leak)

    assert flat is not None
    assert not flat.rises
    assert rising is not None
    assert rising.rises
    assert abs(rising.per_hour - 3e3 * 3600) < 4 * rising.error


def test_a_few_figures_have_no_slope():
    assert slope_of([(1.0, 1.0), (2.0, 2.0)]) is None
    assert slope_of([(1.0, 1.0)] * 20) is None


def test_a_run_that_goes_on_has_the_figures_of_before(tmp_path):
    first = Figures(tmp_path / "figures.jsonl")
    for number in range(10):
        first.keep(number * 10.0, {"files": number})

    again = Figures(tmp_path / "figures.jsonl")
    again.keep(again.seconds + 10.0, {"files": 10})

    before, after, slope = again.slopes()["files"]
    assert (before, after) == (0, 10)
    assert abs(slope.per_hour - 360) < 1e-6
