"""The engine model, live: a stand-in for vLLM that speaks its API, with its timing, metrics and failures."""
