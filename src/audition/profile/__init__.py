"""A serving profile's arguments: what vLLM of a given version makes of them, how two arms differ, which interactions are on record.

Pure, except for reading its own data files. No compose model, no checkpoint, no machine lives here.
"""
