"""What the engine and the host say about themselves: metrics text, log lines, /proc. Parsing is pure; only ``host`` reads files.

What must not live here: sending requests, judging.
"""
