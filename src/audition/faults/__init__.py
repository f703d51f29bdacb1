"""Why a server failed: signatures as data, one TOML file each, and a streaming matcher over log lines."""
