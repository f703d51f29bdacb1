"""GPU figures from samples, and what is said where there is no GPU."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from audition.observe.gpu import (
    GpuError,
    GpuProcess,
    GpuSample,
    GpuSampler,
    Nvml,
    energy_per_1000_tokens,
    gpu_caveats,
    process_of,
    summarise_gpu,
)
from audition.observe.host import HostSampler, gpu_caveat

VLLM = GpuProcess(10, "llm", "VLLM::Worker", "/docker/a", 20_000)
TRAINING = GpuProcess(11, "anna", "python", "/user/anna", 900)


def sample(at: float, index: int = 0, reasons: int | None = 0, processes: tuple[GpuProcess, ...] = (VLLM,)) -> GpuSample:
    return GpuSample(index, at, 20_000 + int(at), 24_564, 0.5, 300.0 + at, 1000.0 + 300 * at, 60 + int(at), reasons, processes)


def test_a_summary_is_over_all_samples() -> None:
    rows = [sample(0, reasons=0x04), sample(1, reasons=0x24), sample(2, processes=(VLLM, TRAINING)), sample(3)]
    summary = summarise_gpu("RTX", rows)
    assert (summary.memory_used_mib_max, summary.temperature_c_max, summary.power_w_max) == (20_003, 63, 303.0)
    assert summary.energy_j == pytest.approx(900.0)
    assert summary.power_capped == 0.5
    assert summary.throttled == {"software thermal slowdown": 0.25}
    assert summary.processes == [VLLM, TRAINING]
    assert energy_per_1000_tokens([summary, summary], 4000) == pytest.approx(450.0)
    assert energy_per_1000_tokens([summary], 0) is None


def test_what_a_card_does_not_tell_is_absent_not_zero() -> None:
    silent = GpuSample(0, 0.0, 5, 10, None, None, None, None, None)
    summary = summarise_gpu("old", [silent, silent])
    assert (summary.use_mean, summary.power_w_mean, summary.energy_j, summary.temperature_c_max, summary.power_capped) == (
        None,
    ) * 5
    assert summary.throttled == {}
    assert energy_per_1000_tokens([summary], 10) is None


@pytest.mark.parametrize(
    ("rows", "watched", "ours", "expected"),
    [
        ([sample(0), sample(1)], [0], None, []),
        ([sample(0, reasons=0x40), sample(1)], [0], None, [("gpu-throttled", "void")]),
        ([sample(n, reasons=0x40 if n == 0 else 0) for n in range(20)], [0], None, [("gpu-throttled", "note")]),
        ([sample(0, reasons=0x40), sample(1)], [1], lambda p: True, []),
        ([sample(0, processes=(VLLM, TRAINING))], [0], None, [("other-tenants", "note")]),
        ([sample(0, processes=(VLLM, TRAINING))], [0], lambda p: p.group == "/docker/a", [("other-tenants", "note")]),
        ([sample(0, processes=(TRAINING,))], [1], None, [("other-tenants", "note")]),
    ],
)
def test_caveats(
    rows: list[GpuSample], watched: list[int], ours: Callable[[GpuProcess], bool] | None, expected: list[tuple[str, str]]
) -> None:
    caveats = gpu_caveats([summarise_gpu("RTX", rows)], watched, ours)
    assert [(caveat.code, caveat.effect) for caveat in caveats] == expected


def test_a_process_is_named_with_its_owner() -> None:
    own = process_of(os.getpid(), 5)
    assert own.name
    assert own.owner
    assert process_of(2**22 + 1, None) == GpuProcess(2**22 + 1, "", "", "", None)


class Two:
    """A source of samples: two cards, the second one falls off the bus."""

    def __init__(self) -> None:
        self.looked = threading.Event()

    def names(self) -> dict[int, str]:
        return {0: "A", 1: "B"}

    def driver(self) -> str | None:
        return "580.65.06"

    def sample(self, index: int) -> GpuSample:
        if index == 1:
            self.looked.set()
            raise GpuError("GPU 1 does not answer")
        return sample(0.0)


def test_the_sampler_keeps_what_it_can_get() -> None:
    cards = Two()
    with GpuSampler(lambda: cards, interval_s=0.01) as sampler:
        assert cards.looked.wait(20)
    assert [summary.name for summary in sampler.summaries()] == ["A"]
    assert sampler.problem == "GPU 1 does not answer"


def test_the_host_sampler_tells_of_the_legs_gpus(tmp_path: Path) -> None:
    class Shared(Two):
        def sample(self, index: int) -> GpuSample:
            super().sample(0)
            self.looked.set()
            return sample(0.0, index, processes=(VLLM, TRAINING))

    cards = Shared()
    with HostSampler(interval_s=0.01, gpus=[0], source=lambda: cards) as host:
        assert cards.looked.wait(20)
        while (summary := host.summary()) is None or len(summary.gpus) < 2:
            pass
    assert {caveat.code for caveat in host.caveats()} == {"other-tenants"}
    assert summary.disk_free_mib
    facts = summary.as_facts()
    assert isinstance(facts["gpus"], list)
    assert facts["driver"] == "580.65.06"


def test_where_nvml_is_missing_that_is_said() -> None:
    try:
        Nvml()
    except GpuError as error:
        reason = str(error)
    else:
        pytest.skip("This machine has NVML; what happens without it cannot be seen here.")
    with HostSampler(interval_s=0.01, gpus=[0]) as host:
        while (summary := host.summary()) is None:
            pass
    assert summary.gpus == []
    assert summary.gpus_missing == reason
    assert host.caveats() == []
    assert reason in gpu_caveat([0, 1])[0].text
    assert gpu_caveat([]) == []
