"""The cost of collectives, compared with a ring that moves every chunk; limits and buckets by brute force."""

from itertools import product

import pytest

from cs336_model.arithmetic.flops import ModelShape, parameter_count
from cs336_model.arithmetic.layer_limits import (
    DATA,
    LAYOUTS,
    SHARDED,
    TENSOR,
    TWO_D,
    Layer,
    Rates,
    fewest_tokens,
    most_devices,
)
from cs336_model.arithmetic.rings import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    Bucket,
    Collective,
    Links,
    all_reduce_seconds,
    buckets_of,
    exposed_s,
    fitted_links,
    parameter_sizes,
    slowdown,
)

W = 10.0  # bytes per second


def rounds_of(values: list[list[int]], start: int, reduce: bool) -> int:
    """Moves chunks around a ring, N − 1 times each device sends one to the next; returns the rounds. `values`: per
    device one number per chunk, changed in place. In round r, device i sends chunk (start + i − r) mod N."""
    n = len(values)
    for turn in range(n - 1):
        sent = [(device, (start + device - turn) % n) for device in range(n)]
        moving = [values[device][chunk] for device, chunk in sent]
        for (device, chunk), value in zip(sent, moving, strict=True):
            receiver = values[(device + 1) % n]
            receiver[chunk] = receiver[chunk] + value if reduce else value
    return n - 1


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_a_ring_that_moves_every_chunk_takes_as_long_and_reduces_to_the_sum(n):
    size, links = 1000.0 * n, Links(W)
    values = [[(device + 1) * 10**chunk for chunk in range(n)] for device in range(n)]
    expected = [sum(device[chunk] for device in values) for chunk in range(n)]
    seconds_of_round = size / n / W  # all links carry one chunk at the same time
    scatter_s = rounds_of(values, 0, reduce=True) * seconds_of_round
    assert [values[device][(device + 1) % n] for device in range(n)] == expected[1:] + expected[:1]
    gather_s = rounds_of(values, 1, reduce=False) * seconds_of_round
    assert values == [expected] * n
    assert links.seconds(Collective(REDUCE_SCATTER, size, n)) == pytest.approx(scatter_s)
    assert links.seconds(Collective(ALL_GATHER, size, n)) == pytest.approx(gather_s)
    assert links.seconds(Collective(ALL_REDUCE, size, n)) == pytest.approx(scatter_s + gather_s)


def test_one_device_communicates_nothing_and_latency_counts_once_for_each_collective():
    assert Links(W, latency_s=1.0).seconds(Collective(ALL_REDUCE, 100, 1)) == 0
    assert Links(W, latency_s=1.0).total_seconds([Collective(ALL_GATHER, 20, 2)] * 3) == pytest.approx(3 * (1 + 1))


def test_latency_and_bandwidth_are_those_of_planted_times():
    sizes, planted = [1e6, 1e7, 1e8, 1e9], Links(300e9, 30e-6)
    times = [planted.seconds(Collective(ALL_REDUCE, size, 4)) for size in sizes]
    fitted = fitted_links(4, sizes, times)
    assert (fitted.bytes_per_s, fitted.latency_s) == (pytest.approx(300e9), pytest.approx(30e-6))
    without = fitted_links(2, sizes, [size / 300e9 for size in sizes])
    assert without.bytes_per_s == pytest.approx(300e9) and without.latency_s == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="same size"):
        fitted_links(2, [1e6, 1e6], [1.0, 2.0])


LAYER = Layer(tokens=64, d_model=6, d_ff=24, weight_bytes=4, activation_bytes=2)


def times(layout: str, of_pass: str, tokens: float, n: int, rates: Rates) -> tuple[float, float]:
    """(computation, communication) in seconds, written out once more: for 2-D with every X × Y."""
    rounds = {"forward": 1, "backward": 2}[of_pass]
    weights, compute = 3 * 6 * 24, 2 * rounds * tokens * 3 * 6 * 24 / n / rates.flop_per_s
    per_byte = 1 / rates.links.bytes_per_s
    if layout in (DATA, SHARDED):
        around = (0 if of_pass == "forward" else 2) if layout == DATA else rounds
        return compute, around * (n - 1) / n * weights * 4 * per_byte
    if layout == TENSOR:
        return compute, 2 * (n - 1) / n * tokens * 6 * 2 * per_byte
    ways = [(x, n // x) for x in range(2, n) if n % x == 0]
    return compute, min(
        (rounds * (x - 1) / x * weights / y * 4 + 2 * (y - 1) / y * tokens / x * 6 * 2) * per_byte for x, y in ways
    )


@pytest.mark.parametrize("flop_per_s", [40.0, 400.0, 4000.0])
@pytest.mark.parametrize(("layout", "of_pass"), list(product(LAYOUTS, ("forward", "backward"))))
def test_limits_are_those_of_trying_every_number_of_tokens_and_of_devices(layout, of_pass, flop_per_s):
    rates = Rates(flop_per_s, Links(W))
    n = 8
    fits = [ms[1] <= ms[0] * (1 + 1e-9) for ms in (times(layout, of_pass, b, n, rates) for b in range(1, 4000))]
    compute_s, communication_s = times(layout, of_pass, 64, n, rates)
    assert rates.compute_s(LAYER, of_pass, n) == pytest.approx(compute_s)
    assert rates.communication_s(LAYER, layout, of_pass, n) == pytest.approx(communication_s)
    first = fits.index(True) + 1 if True in fits else None
    fewest = fewest_tokens(LAYER, layout, of_pass, n, rates)
    assert all(fits[first - 1 :]) if first else fewest > 3999
    if first:
        assert fewest <= first * (1 + 1e-9) and (first == 1 or fewest > first - 1)
    powers = [2**k for k in range(2 if layout == TWO_D else 1, 21)]
    fitting = [ms[1] <= ms[0] for ms in (times(layout, of_pass, 64, count, rates) for count in powers)]
    expected = powers[fitting.index(False) - 1] if False in fitting else 2**20
    assert most_devices(LAYER, layout, of_pass, rates) == (expected if fitting[0] else 1)


def test_two_devices_have_no_2d_layout():
    assert Rates(1.0, Links(W)).communication_s(LAYER, TWO_D, "forward", 2) is None
    assert fewest_tokens(LAYER, TWO_D, "forward", 2, Rates(1.0, Links(W))) is None


SHAPE = ModelShape(batch_size=1, context_length=8, vocab_size=100, d_model=64, num_layers=3, num_heads=4, d_ff=256)


def test_parameters_are_those_of_the_model():
    from cs336_model.model import TransformerLM

    model = TransformerLM(100, 8, 64, 3, 4, 256, 10000.0)
    assert parameter_sizes(SHAPE) == [parameter.numel() for parameter in model.parameters()]
    assert sum(parameter_sizes(SHAPE)) == parameter_count(SHAPE)


def test_buckets_hold_every_gradient_once_and_all_but_the_last_reach_their_limit():
    for megabytes in (0.001, 0.05, 0.2, 100):
        buckets = buckets_of(SHAPE, megabytes, 4)
        assert sum(bucket.size_bytes for bucket in buckets) == 4 * parameter_count(SHAPE)
        assert all(bucket.size_bytes >= megabytes * 2**20 for bucket in buckets[:-1])
        shares = [bucket.ready_share for bucket in buckets]
        assert shares == sorted(shares) and shares[-1] == 1.0
    assert len(buckets) == 1


def test_what_is_exposed_is_what_a_clock_shows_that_ticks_through_the_step():
    """Time in steps of 1 ms: a link works on the first bucket that is ready and not yet reduced."""
    links, backward_s = Links(1e9, 2e-3), 0.1
    for megabytes in (0.05, 0.2, 0.5):
        buckets = buckets_of(SHAPE, megabytes, 4)
        seconds = [round(second, 3) + 1e-3 for second in all_reduce_seconds(buckets, 2, links)]
        whole = [Bucket(bucket.size_bytes, round(bucket.ready_share, 2)) for bucket in buckets]
        remaining, tick = [round(1000 * second) for second in seconds], 0
        while any(remaining):
            current = next(index for index, left in enumerate(remaining) if left)
            if tick >= round(1000 * whole[current].ready_share * backward_s):
                remaining[current] -= 1
            tick += 1
        assert exposed_s(whole, seconds, backward_s) == pytest.approx(max(tick / 1000 - backward_s, 0), abs=1e-9)
    assert exposed_s([Bucket(4, 0.5)], [0.01], 0.1) == 0


def test_the_slowdown_is_the_planted_one_and_never_negative():
    samples = [(exposed + 0.7 * hidden, exposed, hidden) for exposed, hidden in ((1.0, 4.0), (2.0, 9.0), (0.0, 3.0))]
    assert slowdown(samples) == pytest.approx(0.7)
    assert slowdown([(1.0, 2.0, 3.0)]) == 0.0
    assert slowdown([(1.0, 2.0, 0.0)]) is None
