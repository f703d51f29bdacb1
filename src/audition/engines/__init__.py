"""Engines: one small protocol, three backends (process, compose, simulated). Every backend passes the same contract suite."""
