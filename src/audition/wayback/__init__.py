"""The way back: everything that brings production back and proves it, in the standard library alone.

This room is copied as a zip application beside every armed guard, so it imports nothing of the rest of audition and
nothing from outside the standard library. It never sees a verdict.
"""
