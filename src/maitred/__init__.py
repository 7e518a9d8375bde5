"""maitred: the host stand of an LLM fleet, everything outside the inference engine."""

__version__ = "0.1.0"
