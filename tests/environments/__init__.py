"""Real surroundings for tests: vLLM on the CPU and a private Docker engine. No test double belongs here."""
