"""The load client and the workloads: sends requests, stores bytes and times, and turns them into records afterwards.

What must not live here: statistics and verdicts (see ``audition.judge``), and reading the engine's text (see ``audition.observe``).
"""
