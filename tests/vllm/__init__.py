"""Against real vLLM on the CPU; run by `make test-vllm`."""
