"""When a spike may run: calendars, the window, and the free slots between them. Pure: text and instants in, intervals out.

Fetching calendars, the clock and waiting live in ``audition.run.slot``. What is doubtful in a calendar is read to the disadvantage
of the spike: events of a "never during" calendar are taken as wide as any reading of them, those of an "only during" one as narrow.
"""
