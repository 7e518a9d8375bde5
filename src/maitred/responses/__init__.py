"""The stateful Responses API: turns of a conversation that is kept, each model call a journey of its own.

Read `turn.py` first.
"""
