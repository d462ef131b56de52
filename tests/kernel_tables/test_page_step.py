"""The picture of one step: phases in their order, their parts, the classes of their kernels; nothing gets lost."""

import pytest

from kernel_tables.page.markup import html_environment
from kernel_tables.page.step import Leaf, picture


def leaf(path: str, ms: float, kernel_class: str = "gemm") -> Leaf:
    return Leaf(tuple(path.split(" > ")) if path else (), "kernel", kernel_class, ms, 1)


STEP = [
    leaf("optimizer", 10, "elementwise"),
    leaf("forward > block > attention > softmax", 20, "elementwise/softmax"),
    leaf("forward > block > attention", 10),
    leaf("forward > block > mlp", 25),
    leaf("forward > head", 4.5),
    leaf("forward > norm", 0.5, "reduction"),
    leaf("backward", 30),
    leaf("", 0.1, "memset"),
]


def test_phases_stand_in_the_order_of_a_step_and_conserve_its_time():
    drawn = picture(STEP)
    assert [bar.name for bar in drawn.bars] == ["forward", "backward", "optimizer", "outside the phases"]
    assert drawn.ms == pytest.approx(sum(one.ms for one in STEP))
    assert sum(bar.share for bar in drawn.bars) == pytest.approx(1)
    for bar in drawn.bars:
        assert sum(kind.ms for kind in bar.families) == pytest.approx(bar.ms)
        assert not bar.parts or sum(part.ms for part in bar.parts) == pytest.approx(bar.ms)


def test_a_part_that_takes_much_is_shown_by_its_own_parts_and_small_ones_together():
    forward = picture(STEP).bars[0]
    assert [(part.name, part.ms) for part in forward.parts] == [
        ("mlp", 25), ("softmax", 20), ("attention", 10), ("head", 4.5), ("others", pytest.approx(0.5)),
    ]  # fmt: skip
    assert (forward.length, picture(STEP).bars[1].length) == (1, 0.5)


def test_of_many_parts_the_largest_are_shown_and_the_others_together():
    (bar,) = picture([leaf(f"forward > part {number}", 10 + number) for number in range(20)]).bars
    assert [part.name for part in bar.parts[:2]] == ["part 19", "part 18"]
    assert len(bar.parts) == 8 and bar.parts[-1].name == "others"
    assert sum(part.ms for part in bar.parts) == pytest.approx(bar.ms)


def test_a_phase_without_ranges_inside_is_one_piece_and_classes_that_take_little_are_told_together():
    drawn = picture(STEP)
    assert drawn.bars[1].parts == ()
    assert drawn.families == ("gemm", "elementwise", "other")
    assert [kind.name for kind in drawn.bars[3].families] == ["other"]


def test_a_step_without_kernels_is_an_empty_picture():
    assert picture([]).bars == ()


def test_names_are_escaped_where_the_picture_is_written():
    drawn = picture([leaf("<script>alert(1)</script> > <b>", 1), leaf("<script>alert(1)</script> > c", 1)])
    template = html_environment().from_string(
        '{% from "step.html.j2" import step_picture %}{{ step_picture(drawn, "a < b") }}'
    )
    html = template.render(drawn=drawn)
    assert "<script" not in html and "<b>" not in html
    assert "&lt;script&gt;" in html and "a &lt; b" in html
