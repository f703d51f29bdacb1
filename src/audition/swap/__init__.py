"""Swapping production for a candidate and back, as pure decisions: plan, journal, recovery. No effects, no clock, no verdict."""
