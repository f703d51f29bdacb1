"""Host figures from /proc."""

import time
from pathlib import Path

import pytest

from audition.observe.host import HostSample, HostSampler, cpu_count, gpu_caveat, read_host, summarise


def write_proc(folder: Path, user: int, idle: int, available_kib: int = 2048) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0\nintr 5\n")
    (folder / "loadavg").write_text("1.50 0.10 0.00 1/100 4242\n")
    (folder / "meminfo").write_text(f"MemTotal: 9000 kB\nMemAvailable: {available_kib} kB\nSwapTotal: 4096 kB\nSwapFree: 1024 kB\n")
    return folder


def test_one_sample(tmp_path: Path) -> None:
    proc = write_proc(tmp_path / "proc", 30, 70)
    assert read_host(proc) == HostSample(30, 100, 1.5, 2, 3)
    assert cpu_count(proc) == 2


def test_the_summary_is_over_differences() -> None:
    rows = [HostSample(0, 0, 0.5, 100, 0), HostSample(50, 100, 2.0, 40, 7), HostSample(60, 200, 1.0, 90, 0)]
    summary = summarise(rows, 4)
    assert summary is not None
    assert summary.cpu_share_mean == pytest.approx(0.3)
    assert summary.cpu_share_max == pytest.approx(0.5)
    assert (summary.load1_max, summary.available_mib_min, summary.swap_used_mib_max, summary.samples) == (2.0, 40, 7, 3)
    assert summarise(rows[:1], 4) is None


def test_this_host_is_sampled_by_a_thread() -> None:
    with HostSampler(interval_s=0.05) as host:
        until = time.monotonic() + 20
        while (summary := host.summary()) is None or summary.samples < 3:
            assert time.monotonic() < until
            sum(range(20_000))
    assert 0 <= summary.cpu_share_mean <= summary.cpu_share_max <= 1
    assert summary.available_mib_min > 0
    assert host.caveats() == []
    assert host.summary() is not None


def test_a_host_without_proc_is_said(tmp_path: Path) -> None:
    with HostSampler(interval_s=0.01, proc=tmp_path / "none") as host:
        pass
    assert host.summary() is None
    assert [caveat.code for caveat in host.caveats()] == ["no-host-telemetry"]


def test_missing_gpu_telemetry_is_said_only_when_gpus_are_named() -> None:
    assert gpu_caveat([]) == []
    assert "GPU 0, 1" in gpu_caveat([0, 1])[0].text
