"""From records to a verdict: pure functions over what a run left on disk. No clock, network or randomness without a stated seed."""
