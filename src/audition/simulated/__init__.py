"""A vLLM-shaped server in a process of its own: `python -m audition.simulated serve MODEL ...`.

It takes vLLM's arguments, prints vLLM's boot log, serves vLLM's endpoints and metrics, and follows a small stated
timing model, so that the rest of audition can be rehearsed and tested against a real process without a GPU.

What must not live here: anything that imports the rest of audition. This room stands alone on the standard library,
uvicorn, httptools and uvloop. Three modules are also meant for readers outside: `ledger` (who holds GPU memory),
`faults` (the table of faults on demand) and `settings` (the keys of the AUDITION_SIM variable).
"""
